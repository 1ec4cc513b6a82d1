# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The objects of a large cluster that exists only as the answers of an API server
(synthetic_server.py).

Every object is computed from its number when it is asked for, so any size needs little memory, and
any two runs get the same objects. On each node there are 30 pods: three of DaemonSets, two or three
of StatefulSets with a volume each, the others of Deployments of 1 to 20 replicas, most of them with
a budget, some spread over zones or kept apart. As in real clusters, each pod has a token volume and
annotations of its own, and each Deployment its old ReplicaSets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Raw = dict[str, Any]

DAEMONS = ("agent", "logs", "network")
PODS_PER_NODE = 30
MOVABLE = PODS_PER_NODE - len(DAEMONS)
SIZES = (10, 4, 3, 20, 6, 1, 8, 2)
"""Replicas of the Deployments of a block, one after the other;
with two StatefulSets of three they fill two nodes.
"""
BLOCK = sum(SIZES)
STATEFUL = 3
BLOCKERS = 16
"""Where there are to be blockers, so many blocks have a StatefulSet of one pod,
and a budget that allows nothing.
"""
REVISIONS = 11
"""The ReplicaSets of a Deployment: the current one, and as many old ones as are kept by default."""
APPS_PER_NAMESPACE = 80
ZONES = 3
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
BOUND = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
WEBHOOKS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
WHEN = "2026-11-02T08:00:00Z"


@dataclass(frozen=True)
class App:
    """One workload: its number, kind and replicas, and the number of its first pod."""

    number: int
    stateful: bool
    replicas: int
    first: int
    blocks: bool = False
    """Whether its budget never allows an eviction."""

    @property
    def name(self) -> str:
        return f"{'db' if self.stateful else 'web'}-{self.number}"

    @property
    def namespace(self) -> str:
        return f"team-{self.number // APPS_PER_NAMESPACE}"

    @property
    def labels(self) -> dict[str, str]:
        return {"app.kubernetes.io/name": self.name, "app.kubernetes.io/part-of": self.namespace}

    @property
    def budget(self) -> Raw | None:
        """Of single replicas none has one; of the others each fifth Deployment has none."""
        if self.blocks:
            return {"maxUnavailable": 0}
        if self.replicas == 1 or (not self.stateful and self.number % 5 == 4):
            return None
        return {"maxUnavailable": 1 if self.replicas < 10 else "10%"}


class Synthetic:
    """The objects of a cluster with so many nodes; with ``writers`` no single
    replica may be doubled.

    With ``blockers`` there are StatefulSets of one pod, and budgets that never allow an eviction.
    """

    def __init__(self, nodes: int, *, writers: bool = False, blockers: bool = False) -> None:
        self.nodes, self.writers = nodes, writers
        self.apps: list[App] = []
        self.owner: list[int] = []
        self._apps_of: dict[str, Sequence[App]] = {}
        self._spaces: dict[str, dict[str, list[int]]] = {}
        total, number = nodes * MOVABLE, 0
        while len(self.owner) < total:
            bad = blockers and number < BLOCKERS * (len(SIZES) + 2)
            last = 1 if bad else STATEFUL
            for size, stateful in (
                *((size, False) for size in SIZES),
                (STATEFUL, True),
                (last, True),
            ):
                replicas = min(size, total - len(self.owner))
                if replicas:
                    blocks = bad and size == SIZES[1]
                    self.apps.append(App(number, stateful, replicas, len(self.owner), blocks))
                    self.owner += [number] * replicas
                    number += 1
        self.kinds: dict[str, tuple[str, int, Callable[[int], Raw]]] = {
            "/api/v1/nodes": ("Node", nodes, self.node),
            "/api/v1/pods": ("Pod", nodes * PODS_PER_NODE, self.pod),
            "/api/v1/namespaces": (
                "Namespace",
                -(-len(self.apps) // APPS_PER_NAMESPACE) + 1,
                self.space,
            ),
            "/apis/apps/v1/daemonsets": ("DaemonSet", len(DAEMONS), self.daemon_set),
            **{f"{ADMISSION}/{kind.lower()}s": (kind, 0, self.node) for kind in WEBHOOKS},
            **self._of_apps(),
        }

    def _of_apps(self) -> dict[str, tuple[str, int, Callable[[int], Raw]]]:
        single = [app for app in self.apps if not app.stateful]
        stateful = [app for app in self.apps if app.stateful]
        budgets = [app for app in self.apps if app.budget]
        scaled = [app for app in single if app.number % 10 == 3]
        claims = [(app, place) for app in stateful for place in range(app.replicas)]

        def each(
            kind: str, made: Callable[..., Raw], found: Sequence[Any]
        ) -> tuple[str, int, Callable[[int], Raw]]:
            self._apps_of[kind] = [one if isinstance(one, App) else one[0] for one in found]
            return kind, len(found), lambda number: made(found[number])

        return {
            "/apis/apps/v1/deployments": each("Deployment", self.deployment, single),
            "/apis/apps/v1/replicasets": each(
                "ReplicaSet",
                self.replica_set,
                [(app, x) for app in single for x in range(REVISIONS)],
            ),
            "/apis/apps/v1/statefulsets": each("StatefulSet", self.stateful_set, stateful),
            "/apis/policy/v1/poddisruptionbudgets": each(
                "PodDisruptionBudget", self.budget, budgets
            ),
            "/apis/autoscaling/v2/horizontalpodautoscalers": each(
                "HorizontalPodAutoscaler", self.autoscaler, scaled
            ),
            "/api/v1/persistentvolumeclaims": each("PersistentVolumeClaim", self.claim, claims),
            "/api/v1/persistentvolumes": each("PersistentVolume", self.volume, claims),
            "/apis/storage.k8s.io/v1/storageclasses": ("StorageClass", 1, storage_class),
            "/apis/storage.k8s.io/v1/csinodes": ("CSINode", self.nodes, self.csi_node),
            "/apis/storage.k8s.io/v1/volumeattachments": each(
                "VolumeAttachment", self.attachment, claims
            ),
            "/apis/discovery.k8s.io/v1/endpointslices": each(
                "EndpointSlice", self.slice, self.apps
            ),
            "/api/v1/services": each("Service", self.service, self.apps),
            "/apis/networking.k8s.io/v1/networkpolicies": each(
                "NetworkPolicy", self.network_policy, self.apps
            ),
        }

    def spot(self, number: int) -> int:
        """The node of a movable pod: consecutive ones on different nodes and zones,
        each node gets as many.
        """
        return number % self.nodes

    def node(self, number: int) -> Raw:
        labels = {
            HOST: node_name(number),
            ZONE: zone(number),
            "kubernetes.io/os": "linux",
            "pool": f"p{number % 4}",
        }
        conditions = [
            condition("Ready", "True"),
            *(condition(f"{x}Pressure", "False") for x in ("Memory", "Disk", "PID")),
        ]
        sizes = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "200Gi"}
        images = [
            {"names": [f"registry.example/{x}@sha256:{x:064x}"], "sizeBytes": 10_000_000 + x}
            for x in range(40)
        ]
        status = {
            "allocatable": sizes,
            "capacity": sizes,
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": address(number)}],
            "nodeInfo": {"bootID": uid("boot", number), "kubeletVersion": "v1.36.3"},
            "images": images,
        }
        return {
            "metadata": meta("node", node_name(number), labels=labels),
            "spec": {},
            "status": status,
        }

    def pod(self, number: int) -> Raw:
        daemon, rest = divmod(number, self.nodes)
        if daemon < len(DAEMONS):
            return self.daemon_pod(DAEMONS[daemon], rest)
        number -= len(DAEMONS) * self.nodes
        app = self.apps[self.owner[number]]
        place = number - app.first
        if app.stateful:
            name, kind, owner = f"{app.name}-{place}", "StatefulSet", app.name
        else:
            name, kind, owner = (
                f"{app.name}-{hashed(app, 0)}-{number:05x}",
                "ReplicaSet",
                f"{app.name}-{hashed(app, 0)}",
            )
        spec, labels = pod_spec(app), app.labels if app.stateful else versioned(app)
        if app.stateful:
            claim = {"persistentVolumeClaim": {"claimName": f"data-{name}"}, "name": "data"}
            spec["volumes"] = [claim, *spec["volumes"]]
        return self.running(name, app.namespace, labels, kind, owner, spec, self.spot(number))

    def daemon_pod(self, name: str, number: int) -> Raw:
        spec = pod_spec(None)
        spec["tolerations"] = [{"operator": "Exists"}]
        term = {
            "matchFields": [
                {"key": "metadata.name", "operator": "In", "values": [node_name(number)]}
            ]
        }
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        spec["affinity"] = {"nodeAffinity": affinity}
        return self.running(
            f"{name}-{number:05x}", "kube-system", {"app": name}, "DaemonSet", name, spec, number
        )

    def running(
        self,
        name: str,
        namespace: str,
        labels: Mapping[str, str],
        kind: str,
        owner: str,
        spec: Raw,
        spot: int,
    ) -> Raw:
        """A pod that has run for long."""
        reference = {
            "apiVersion": "apps/v1",
            "kind": kind,
            "name": owner,
            "uid": uid(kind, f"{namespace}/{owner}"),
        }
        found = meta(
            "pod",
            name,
            namespace,
            labels,
            {**reference, "controller": True, "blockOwnerDeletion": True},
        )
        found["generateName"], found["managedFields"] = f"{owner}-", MANAGED
        networks = {"ips": [address(spot)], "container": uid("network", name), "default": True}
        found["annotations"] = {
            "cni.example/containerID": f"{hash_of(name):064x}",
            "cni.example/podIP": f"{address(spot)}/32",
            "k8s.v1.cni.cncf.io/network-status": json.dumps([networks]),
            "checksum/config": f"{hash_of(owner):064x}",
        }
        spec = {**with_token(spec, name), "nodeName": node_name(spot)}
        ready = [
            condition(x, "True")
            for x in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ]
        containers = [
            {
                "name": each["name"],
                "ready": True,
                "restartCount": 0,
                "image": each["image"],
                "state": {"running": {}},
            }
            for each in spec["containers"]
        ]
        status = {
            "phase": "Running",
            "conditions": ready,
            "containerStatuses": containers,
            "podIP": address(spot),
        }
        return {"metadata": found, "spec": spec, "status": status}

    def deployment(self, app: App) -> Raw:
        status = {
            "replicas": app.replicas,
            "readyReplicas": app.replicas,
            "availableReplicas": app.replicas,
        }
        return {
            "metadata": meta("Deployment", app.name, app.namespace, app.labels) | {"generation": 2},
            "spec": {
                "replicas": app.replicas,
                "selector": {"matchLabels": app.labels},
                "template": template(app),
                **(
                    {"strategy": {"type": "Recreate"}} if self.writers and app.replicas == 1 else {}
                ),
            },
            "status": {**status, "updatedReplicas": app.replicas, "observedGeneration": 2},
        }

    def replica_set(self, pair: tuple[App, int]) -> Raw:
        """One of a Deployment by its age: the current one is the first."""
        app, age = pair
        of = {"apiVersion": "apps/v1", "kind": "Deployment", "name": app.name, "controller": True}
        owner = {**of, "uid": uid("Deployment", f"{app.namespace}/{app.name}")}
        count = 0 if age else app.replicas
        labels = versioned(app, age)
        found = meta("ReplicaSet", f"{app.name}-{hashed(app, age)}", app.namespace, labels, owner)
        of_it = {**template(app, age), "metadata": {"labels": labels}}
        spec = {"replicas": count, "selector": {"matchLabels": labels}, "template": of_it}
        status = {
            "replicas": count,
            "readyReplicas": count,
            "availableReplicas": count,
            "observedGeneration": 1,
        }
        return {"metadata": {**found, "generation": 1}, "spec": spec, "status": status}

    def stateful_set(self, app: App) -> Raw:
        made = self.deployment(app)
        made["metadata"] = meta("StatefulSet", app.name, app.namespace, app.labels) | {
            "generation": 2
        }
        made["spec"]["serviceName"] = app.name
        return made

    def daemon_set(self, number: int) -> Raw:
        name, counts = DAEMONS[number], ("desiredNumberScheduled", "numberReady", "numberAvailable")
        found = meta("DaemonSet", name, "kube-system") | {"generation": 1}
        spec = {"selector": {"matchLabels": {"app": name}}, "template": {"spec": pod_spec(None)}}
        return {
            "metadata": found,
            "spec": spec,
            "status": {**dict.fromkeys(counts, self.nodes), "observedGeneration": 1},
        }

    def budget(self, app: App) -> Raw:
        rule = app.budget or {}
        allowed = 0 if app.blocks else 1 if app.replicas < 10 else app.replicas // 10
        status = {
            "disruptionsAllowed": allowed,
            "currentHealthy": app.replicas,
            "expectedPods": app.replicas,
        }
        return {
            "metadata": meta("PodDisruptionBudget", app.name, app.namespace) | {"generation": 1},
            "spec": {**rule, "selector": {"matchLabels": app.labels}},
            "status": {**status, "desiredHealthy": app.replicas - allowed, "observedGeneration": 1},
        }

    def autoscaler(self, app: App) -> Raw:
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": app.name}
        spec = {
            "scaleTargetRef": target,
            "minReplicas": app.replicas,
            "maxReplicas": app.replicas * 2,
        }
        return {
            "metadata": meta("HorizontalPodAutoscaler", app.name, app.namespace),
            "spec": spec,
            "status": {},
        }

    def claim(self, place: tuple[App, int]) -> Raw:
        app, number = place
        name = f"data-{app.name}-{number}"
        spec = {
            "volumeName": f"pv-{app.name}-{number}",
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
        }
        found = meta("PersistentVolumeClaim", name, app.namespace) | {"annotations": BOUND}
        return {"metadata": found, "spec": spec, "status": {"phase": "Bound"}}

    def volume(self, place: tuple[App, int]) -> Raw:
        app, number = place
        values = [zone(self.spot(app.first + number))]
        terms = {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": ZONE, "operator": "In", "values": values}]}
                ]
            }
        }
        claim = {"namespace": app.namespace, "name": f"data-{app.name}-{number}"}
        spec = {
            "claimRef": claim,
            "nodeAffinity": terms,
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
        }
        spec |= {"csi": {"driver": "disk.example", "volumeHandle": f"{app.name}-{number}"}}
        return {
            "metadata": meta("PersistentVolume", f"pv-{app.name}-{number}"),
            "spec": spec,
            "status": {"phase": "Bound"},
        }

    def attachment(self, place: tuple[App, int]) -> Raw:
        app, number = place
        source, node = (
            {"persistentVolumeName": f"pv-{app.name}-{number}"},
            node_name(self.spot(app.first + number)),
        )
        found = attached(f"{app.name}-{number}")["metadata"]
        spec = {"attacher": "disk.example", "source": source, "nodeName": node}
        return {"metadata": found, "spec": spec, "status": {"attached": True}}

    def csi_node(self, number: int) -> Raw:
        driver = {
            "name": "disk.example",
            "nodeID": node_name(number),
            "topologyKeys": [ZONE],
            "allocatable": {"count": 25},
        }
        return {"metadata": meta("CSINode", node_name(number)), "spec": {"drivers": [driver]}}

    def space(self, number: int) -> Raw:
        name = f"team-{number - 1}" if number else "kube-system"
        return {"metadata": meta("Namespace", name), "spec": {}, "status": {"phase": "Active"}}

    def service(self, app: App) -> Raw:
        """That of the app."""
        spec = {
            "type": "ClusterIP",
            "selector": app.labels,
            "ports": [{"port": 80, "targetPort": 8080}],
        }
        return {"metadata": meta("Service", app.name, app.namespace), "spec": spec}

    def network_policy(self, app: App) -> Raw:
        """Pods of its namespace may reach the app."""
        peers = [{"podSelector": {"matchLabels": {"app.kubernetes.io/part-of": app.namespace}}}]
        spec = {
            "podSelector": {"matchLabels": app.labels},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": peers}],
        }
        return {"metadata": meta("NetworkPolicy", app.name, app.namespace), "spec": spec}

    def slice(self, app: App) -> Raw:
        """The endpoints of the app's Service: all of its pods."""
        pods = [
            self.pod(len(DAEMONS) * self.nodes + app.first + place) for place in range(app.replicas)
        ]
        endpoints = [
            {
                "addresses": [pod["status"]["podIP"]],
                "conditions": {"ready": True},
                "targetRef": {
                    "kind": "Pod",
                    "name": pod["metadata"]["name"],
                    "uid": pod["metadata"]["uid"],
                },
            }
            for pod in pods
        ]
        labels = {"kubernetes.io/service-name": app.name}
        found = meta("EndpointSlice", f"{app.name}-x", app.namespace, labels)
        return {"metadata": found, "addressType": "IPv4", "endpoints": endpoints}

    def numbers(
        self, path: str, fields: str = "", space: str = "", labels: str = ""
    ) -> Sequence[int]:
        """Which objects of a list are asked for: of pods those of a node or of apps, of a
        namespace, or all of them.
        """
        kind, count, made = self.kinds[path]
        if labels:
            return self._labelled(kind, labels)
        found = self._spaced(kind, count).get(space, []) if space else range(count)
        if not fields:
            return found
        key, _equals, value = fields.partition("=")
        if key == "metadata.name" and kind == "Node":
            return [int(value.removeprefix("node-"))]
        if key == "metadata.name" and kind == "Pod":
            return self._pod_named(value)
        if key == "metadata.name":
            return [number for number in found if made(number)["metadata"]["name"] == value]
        if (path, key) != ("/api/v1/pods", "spec.nodeName") or not value.startswith("node-"):
            raise ValueError(f"no such field selector here: {fields}")
        return range(int(value.removeprefix("node-")), count, self.nodes)

    def _pod_named(self, name: str) -> Sequence[int]:
        *_owner, app, last = name.split("-")
        begin = len(DAEMONS) * self.nodes
        if name.startswith("db-"):
            return [begin + self.apps[int(app)].first + int(last)]
        return (
            [begin + int(last, 16)] if name.startswith("web-") and not last.startswith("n") else []
        )

    def _labelled(self, kind: str, labels: str) -> Sequence[int]:
        """The pods of the apps that ``app.kubernetes.io/name in (…)`` names,
        and the nodes of zones; else none: nothing here carries labels of ours.
        """
        key, _in, values = labels.partition(" in ")
        if kind == "Node" and key == ZONE:
            return [
                number
                for number in range(self.nodes)
                if zone(number) in values.strip("()").split(",")
            ]
        if kind != "Pod" or key.startswith("maintenance.kubeops.io/"):
            return []
        if key != "app.kubernetes.io/name":
            raise ValueError(f"no such label selector here: {labels}")
        begin = len(DAEMONS) * self.nodes
        apps = [self.apps[int(name.rpartition("-")[2])] for name in values.strip("()").split(",")]
        return [begin + app.first + place for app in apps for place in range(app.replicas)]

    def _spaced(self, kind: str, count: int) -> dict[str, list[int]]:
        """The numbers of a kind's objects by their namespace."""
        if kind not in self._spaces:
            found: dict[str, list[int]] = {}
            for number in range(count):
                found.setdefault(self._space_of(kind, number), []).append(number)
            self._spaces[kind] = found
        return self._spaces[kind]

    def _space_of(self, kind: str, number: int) -> str:
        if kind in self._apps_of:
            return self._apps_of[kind][number].namespace
        movable = number - len(DAEMONS) * self.nodes
        return (
            self.apps[self.owner[movable]].namespace
            if kind == "Pod" and movable >= 0
            else "kube-system"
        )


def storage_class(_number: int) -> Raw:
    """The one class: its volumes are made where the pod goes."""
    found = meta("StorageClass", "fast")
    return {
        "metadata": found,
        "provisioner": "disk.example",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def pod_spec(app: App | None) -> Raw:
    """As pods have it after admission; those of some workloads are spread over
    zones or kept apart.
    """
    requests = {"cpu": "100m", "memory": "256Mi"}
    probe = {
        "httpGet": {"path": "/ready", "port": 8080},
        "initialDelaySeconds": 5,
        "periodSeconds": 10,
    }
    variables = [
        {"name": f"SETTING_{x}", "value": f"value {x} of {app.name if app else HOST}"}
        for x in range(12)
    ]
    container = {
        "name": "main",
        "image": "registry.example/main:1.2.3",
        "resources": {"requests": requests, "limits": requests},
        "readinessProbe": probe,
        "env": variables,
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    beside = {
        **container,
        "name": "beside",
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
    }
    wait = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    found: Raw = {
        "containers": [container, beside],
        "volumes": [],
        "tolerations": [
            {"key": f"node.kubernetes.io/{x}", **wait} for x in ("not-ready", "unreachable")
        ],
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "priority": 0,
        "securityContext": {},
    }
    if app is None:
        return found
    selector = {"matchLabels": app.labels}
    if app.number % 4 == 1:
        spread = {
            "maxSkew": 2,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }
        found["topologySpreadConstraints"] = [spread]
    if app.stateful or app.number % 8 == 2:
        term = [{"topologyKey": HOST, "labelSelector": selector}]
        found["affinity"] = {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}
        }
    if app.number % 8 == 3:
        found["nodeSelector"] = {"kubernetes.io/os": "linux"}
    return found


def with_token(spec: Raw, name: str) -> Raw:
    """With the token that admission adds: a volume, whose name no other pod has, and its mounts."""
    volume = f"kube-api-access-{hash_of(name) % 16**5:05x}"
    mount = {
        "name": volume,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        "readOnly": True,
    }
    namespace = {
        "path": "namespace",
        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
    }
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    containers = [
        {**each, "volumeMounts": [*each.get("volumeMounts", ()), mount]}
        for each in spec["containers"]
    ]
    volumes = [
        *spec["volumes"],
        {"name": volume, "projected": {"defaultMode": 420, "sources": sources}},
    ]
    return {**spec, "containers": containers, "volumes": volumes}


def template(app: App, age: int = 0) -> Raw:
    """The pod template of a workload, or an earlier one."""
    spec = pod_spec(app)
    if age:
        spec["containers"][0] = {
            **spec["containers"][0],
            "image": f"registry.example/main:1.1.{REVISIONS - age}",
        }
    return {"metadata": {"labels": app.labels}, "spec": spec}


MANAGED: list[Raw] = [
    {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": WHEN,
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            f"f:{part}": {f"f:field{x}": {} for x in range(20)}
            for part in ("metadata", "spec", "status")
        },
    }
    for manager in ("kube-controller-manager", "kubelet")
]
"""What servers say about who wrote which field: a good part of a pod as it is sent."""


def meta(
    kind: str,
    name: str,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
    owner: Raw | None = None,
) -> Raw:
    """The metadata of an object."""
    place = f"{namespace}/{name}" if namespace else name
    found: Raw = {
        "name": name,
        "uid": uid(kind, place),
        "resourceVersion": "1000",
        "creationTimestamp": WHEN,
    }
    found |= {"namespace": namespace} if namespace else {}
    found |= {"labels": dict(labels)} if labels else {}
    return found | ({"ownerReferences": [owner]} if owner else {})


def attached(pod: str) -> Raw:
    """What names the VolumeAttachment of a pod of a StatefulSet."""
    return {"metadata": meta("VolumeAttachment", f"csi-{pod}")}


def uid(kind: str, place: object) -> str:
    """A UID, the same in each run."""
    return f"{kind.lower()}:{place}"


def hashed(app: App, age: int) -> str:
    """The pod-template-hash of the app's current template (``age`` 0), or of one before."""
    return f"{app.number * REVISIONS + age:08x}"


def versioned(app: App, age: int = 0) -> dict[str, str]:
    """The labels of the pods of one of the app's ReplicaSets."""
    return {**app.labels, "pod-template-hash": hashed(app, age)}


def hash_of(word: str) -> int:
    """The same in each run, unlike that of Python."""
    return int(hashlib.sha256(word.encode()).hexdigest(), 16)


def node_name(number: int) -> str:
    """As the nodes are called."""
    return f"node-{number:05}"


def zone(number: int) -> str:
    """Consecutive nodes are in different zones."""
    return f"z{number % ZONES}"


def address(number: int) -> str:
    """An address in 10.0.0.0/8."""
    return f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"


def condition(kind: str, status: str) -> Raw:
    """A condition of a node or a pod."""
    return {"type": kind, "status": status, "lastTransitionTime": WHEN, "lastProbeTime": None}
