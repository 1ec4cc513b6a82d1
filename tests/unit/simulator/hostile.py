# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a tenant, and a kubelet on its own node, may write into objects: every field, with values that are stored.

`TENANTS` and `KUBELETS` are trees of such objects, by kind, with a `Leaf` for each field. `leaves` gives them with
their paths, and `overlay` puts odd values into an object: what is around such a field is filled with usual ones.

The API server checks types, and of texts little; so a field of a built-in kind keeps its type here. Of a custom
resource, whose definition may allow anything, a part may be of any type.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw

Path = tuple[str | int, ...]
DEEP = "[" * 5000
LONG = "x" * 100_000


@dataclass(frozen=True)
class Leaf:
    """A field: a value as it is usual, and others that an API server stores as well."""

    usual: t.Any
    odd: tuple[t.Any, ...]


def text(usual: str = "x") -> Leaf:
    """A text of which the API server checks at most that there is one."""
    return Leaf(
        usual, ("..", "../../healthz", "\x1b[2J\r\nNever dark.", "{{ 7 * 7 }}", DEEP, "²٣", "a,b=c d", "%s", LONG)
    )


def label(usual: str = "x") -> Leaf:
    return Leaf(usual, ("", "007", "1_000", "9" * 63, "a.b_c-d", "-5"))


def choice(usual: str, *others: str) -> Leaf:
    return Leaf(usual, others)


def number(usual: int = 1) -> Leaf:
    """An integer of 32 bits that may not be negative."""
    return Leaf(usual, (0, 1, 2**31 - 1))


def wide(usual: int = 1) -> Leaf:
    """An integer of 64 bits."""
    return Leaf(usual, (0, -1, 2**63 - 1, -(2**63)))


def quantity(usual: str = "10m") -> Leaf:
    return Leaf(usual, ("0", "1e3000000", "1e-3000000", "1e5000", "9" * 5000, "0." + "1" * 5000, "8Ei", "1n"))


def share(usual: int | str = 1) -> Leaf:
    """An integer or a percentage."""
    return Leaf(usual, (0, 2**31 - 1, "0%", "100%", "9" * 5000 + "%", "9999999999999999999%"))


def time(usual: str = "2026-01-01T00:00:00Z") -> Leaf:
    return Leaf(usual, (None, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1970-01-01T00:00:00Z"))


def flag() -> Leaf:
    return Leaf(True, (False, None))


def json_text(usual: str = "{}") -> Leaf:
    """An annotation in which a program looks for JSON."""
    wrong = ("", "{", "[]", "null", "5", '"x"', '{"name": 5}', '{"name": [1]}', '{"n2": {"x": 1}}', '{"v": 1}', "1e999")
    return Leaf(usual, (*wrong, DEEP, '{"a":' * 3000, '"\\ud800"', '{"n2": "\\u001b[2J"}', "9" * 5000, LONG))


def anything(usual: t.Any) -> Leaf:
    """A part of a custom resource."""
    deep: t.Any = "x"
    for _level in range(300):
        deep = [{"a": deep}]
    return Leaf(usual, (None, 5, -1.5, 2**70, "x", "", [], [1], ["x"], [None], {}, {"x": 1}, {"x": [None]}, True, deep))


ANNOTATIONS: Raw = {
    **{
        key: json_text()
        for key in (
            "maintenance.kubeops.io/nodes",
            "maintenance.kubeops.io/surge",
            "maintenance.kubeops.io/record",
            "maintenance.kubeops.io/released",
            "scheduling.koordinator.sh/reservation-allocated",
            "weave.works/kured-node-lock",
        )
    },
    **{
        key: text()
        for key in (
            "maintenance.kubeops.io/allow-interruption",
            "maintenance.kubeops.io/maintenance-planned",
            "maintenance.kubeops.io/ready-to-move",
            "maintenance.kubeops.io/rule",
            "controller.kubernetes.io/pod-deletion-cost",
            "maintenance.kubeops.io/deadline",
            "maintenance.kubeops.io/grace-period",
            "maintenance.kubeops.io/method",
            "maintenance.kubeops.io/load-balancer-wait",
            "maintenance.kubeops.io/order",
            "maintenance.kubeops.io/skip",
            "maintenance.kubeops.io/wait",
            "gang.scheduling.koordinator.sh/name",
            "kueue.x-k8s.io/pod-group-serving",
            "kubernetes.io/config.mirror",
            "deployment.kubernetes.io/revision",
            "kubevirt.io/domain",
            "kruise.io/related-pub",
        )
    },
}
LABELS: Raw = {
    key: label()
    for key in (
        "app",
        "app.kubernetes.io/managed-by",
        "application",
        "common.k8s.elastic.co/type",
        "controller-revision-hash",
        "longhorn.io/component",
        "strimzi.io/cluster",
        "koordinator.sh/evict-policy",
        "jobset.sigs.k8s.io/jobset-name",
        "kueue.x-k8s.io/pod-group-name",
        "leaderworkerset.sigs.k8s.io/name",
        "leaderworkerset.sigs.k8s.io/group-key",
        "leaderworkerset.sigs.k8s.io/group-index",
        "pod-group.scheduling.sigs.k8s.io",
        "pod-template-hash",
        "cnpg.io/cluster",
        "kubevirt.io",
        "maintenance.kubeops.io/released",
    )
}
OWNER: Raw = {
    "apiVersion": text("apps/v1"),
    "kind": text("ReplicaSet"),
    "name": text("x"),
    "uid": text("u"),
    "controller": flag(),
}
META: Raw = {
    "annotations": ANNOTATIONS,
    "labels": LABELS,
    "ownerReferences": [OWNER],
    "finalizers": [text("example.org/x")],
}
SELECTOR: Raw = {
    "matchLabels": {"app": label("t-web")},
    "matchExpressions": [
        {"key": label("app"), "operator": choice("Exists", "In", "NotIn", "DoesNotExist"), "values": [label("t-web")]}
    ],
}
REQUIREMENT: Raw = {
    "key": label("kubernetes.io/hostname"),
    "operator": choice("Exists", "In", "NotIn", "Gt", "Lt", "DoesNotExist"),
    "values": [label("5")],
}
TERM: Raw = {
    "matchExpressions": [REQUIREMENT],
    "matchFields": [{"key": "metadata.name", "operator": choice("NotIn", "In"), "values": [label("n9")]}],
}
NEIGHBOURS: Raw = {
    "labelSelector": SELECTOR,
    "namespaceSelector": SELECTOR,
    "namespaces": [label("tenant")],
    "topologyKey": label("kubernetes.io/hostname"),
    "matchLabelKeys": [label("pod-template-hash")],
}
BOTH: Raw = {
    "requiredDuringSchedulingIgnoredDuringExecution": [NEIGHBOURS],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": number(5), "podAffinityTerm": NEIGHBOURS}],
}
RESOURCES: Raw = {
    "requests": {"cpu": quantity(), "memory": quantity("1Mi"), "example.org/gpu": quantity("0")},
    "limits": {"cpu": quantity("1"), "memory": quantity("1Gi"), "ephemeral-storage": quantity("1Gi")},
    "claims": [{"name": text("gpu")}],
}
PROBE: Raw = {"initialDelaySeconds": number(), "periodSeconds": number(), "failureThreshold": number()}
CONTAINER: Raw = {
    "name": "c",
    "image": text("registry.example/c:1"),
    "command": [text("sleep")],
    "args": [text("--config=/x/config")],
    "volumeMounts": [
        {
            "name": text("a"),
            "mountPath": text("/x"),
            "subPath": text("config"),
            "bindMountOptions": Leaf([], (["noexec"],)),
        }
    ],
    "resources": RESOURCES,
    "ports": [{"hostPort": number(80), "hostIP": text("10.0.0.1"), "protocol": choice("TCP", "UDP", "SCTP")}],
    "restartPolicy": choice("Always", "Never"),
    "restartPolicyRules": [{"action": choice("Restart", "RestartAllContainers")}],
    "readinessProbe": PROBE,
    "lifecycle": {"preStop": {"sleep": {"seconds": wide()}}},
}
POD_SPEC: Raw = {
    "containers": [CONTAINER],
    "initContainers": [{**CONTAINER, "name": "i"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": number(5), "preference": TERM}],
        },
        "podAffinity": BOTH,
        "podAntiAffinity": BOTH,
    },
    "nodeSelector": {"kubernetes.io/hostname": label("n3")},
    "overhead": {"cpu": quantity("1m")},
    "preemptionPolicy": choice("Never", "PreemptLowerPriority"),
    "priority": Leaf(0, (-(2**31), 2**31 - 1, 1000000000)),
    "priorityClassName": text("high"),
    "resourceClaims": [{"name": text("gpu"), "resourceClaimName": text("claim")}],
    "resources": RESOURCES,
    "schedulerName": text("default-scheduler"),
    "schedulingGates": [{"name": text("example.org/gate")}],
    "schedulingGroup": {"podGroupName": text("group")},
    "evictionResponders": [{"name": text("example.org/r")}],
    "terminationGracePeriodSeconds": wide(5),
    "activeDeadlineSeconds": wide(5),
    "hostNetwork": flag(),
    "hostUsers": flag(),
    "tolerations": [
        {
            "key": label("a"),
            "operator": choice("Exists", "Equal", "Lt", "Gt"),
            "value": label("5"),
            "effect": choice("NoExecute", "NoSchedule", ""),
            "tolerationSeconds": wide(300),
        }
    ],
    "topologySpreadConstraints": [
        {
            "maxSkew": number(),
            "minDomains": number(),
            "topologyKey": label("kubernetes.io/hostname"),
            "whenUnsatisfiable": choice("DoNotSchedule", "ScheduleAnyway"),
            "labelSelector": SELECTOR,
            "matchLabelKeys": [label("app")],
            "nodeAffinityPolicy": choice("Honor", "Ignore"),
            "nodeTaintsPolicy": choice("Honor", "Ignore"),
        }
    ],
    "volumes": [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "persistentVolumeClaim": {"claimName": label("t-claim")}},
        {
            "name": "e",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {
                        "accessModes": [choice("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany")],
                        "resources": {"requests": {"storage": quantity("1Gi")}},
                        "storageClassName": text("fast"),
                    }
                }
            },
        },
        {"name": "g", "gcePersistentDisk": {"pdName": text("d"), "readOnly": flag()}},
        {"name": "w", "awsElasticBlockStore": {"volumeID": text("v")}},
        {"name": "z", "azureDisk": {"diskURI": text("u")}},
        {"name": "c", "cinder": {"volumeID": text("v")}},
        {"name": "p", "portworxVolume": {"volumeID": text("v")}},
        {"name": "s", "iscsi": {"iqn": text("q"), "readOnly": flag()}},
        {"name": "r", "rbd": {"monitors": [text("m")], "pool": text("p"), "image": text("i"), "readOnly": flag()}},
        {"name": "h", "hostPath": {"path": text("/x")}},
    ],
}
TEMPLATE: Raw = {
    "metadata": {"annotations": ANNOTATIONS, "labels": LABELS},
    "spec": {**POD_SPEC, "nodeName": label("n1")},
}
STRATEGY: Raw = {
    "type": choice("RollingUpdate", "Recreate", "OnDelete"),
    "rollingUpdate": {"maxSurge": share("25%"), "maxUnavailable": share("25%"), "partition": number(0)},
}
WORKLOAD: Raw = {
    "metadata": META,
    "spec": {
        "replicas": number(2),
        "minReadySeconds": number(0),
        "progressDeadlineSeconds": number(600),
        "revisionHistoryLimit": number(10),
        "paused": flag(),
        "strategy": STRATEGY,
        "updateStrategy": STRATEGY,
        "selector": SELECTOR,
        "template": TEMPLATE,
        "serviceName": text("t-db"),
        "podManagementPolicy": choice("OrderedReady", "Parallel"),
        "ordinals": {"start": number(0)},
        "volumeClaimTemplates": [
            {"metadata": {"name": "data"}, "spec": {"accessModes": [choice("ReadWriteOnce", "ReadWriteMany")]}}
        ],
    },
}
CONDITION: Raw = {
    "type": choice("Ready", "PodScheduled", "PodResizePending", "DisruptionTarget"),
    "status": choice("True", "False", "Unknown"),
    "reason": text("Unschedulable"),
    "message": text("why"),
    "lastTransitionTime": time(),
}
CUSTOM: Raw = {
    "spec": {
        "replicas": anything(1),
        "selector": anything({"matchLabels": {"app": "t-web"}}),
        "template": anything({"metadata": {}, "spec": {}}),
        "strategy": anything({}),
        "workloadRef": anything({}),
        "minReadySeconds": anything(0),
        "progressDeadlineSeconds": anything(600),
        "paused": anything(False),
        "updateStrategy": anything({}),
    },
    "status": anything({}),
}
"""Of a definition that checks nothing: Kruise's and Argo's do not check the template, others nothing at all."""

TENANTS: t.Mapping[str, Raw] = {
    "Pod": {"metadata": META, "spec": POD_SPEC},
    "Deployment": WORKLOAD,
    "ReplicaSet": WORKLOAD,
    "StatefulSet": WORKLOAD,
    "DaemonSet": WORKLOAD,
    "PodDisruptionBudget": {
        "metadata": META,
        "spec": {
            "minAvailable": share(),
            "maxUnavailable": share(),
            "selector": SELECTOR,
            "unhealthyPodEvictionPolicy": choice("IfHealthyBudget", "AlwaysAllow"),
        },
    },
    "HorizontalPodAutoscaler": {
        "metadata": META,
        "spec": {
            "scaleTargetRef": {"kind": text("Deployment"), "name": text("t-web"), "apiVersion": text("apps/v1")},
            "minReplicas": number(),
            "maxReplicas": number(),
        },
    },
    "Service": {
        "metadata": META,
        "spec": {
            "selector": {"app": label("t-web"), "role": label("leader")},
            "type": choice("ClusterIP", "NodePort", "LoadBalancer"),
            "internalTrafficPolicy": choice("Cluster", "Local"),
            "externalTrafficPolicy": choice("Cluster", "Local"),
        },
    },
    "EndpointSlice": {
        "metadata": {**META, "labels": {"kubernetes.io/service-name": label("t-web")}},
        "addressType": choice("IPv4", "IPv6", "FQDN"),
        "endpoints": [
            {
                "addresses": [text("10.0.0.1")],
                "conditions": {"ready": flag(), "serving": flag()},
                "targetRef": {"kind": text("Pod"), "name": text("x"), "uid": text("u")},
                "nodeName": text("n1"),
            }
        ],
    },
    "PersistentVolumeClaim": {
        "metadata": META,
        "spec": {
            "accessModes": [choice("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany")],
            "resources": {"requests": {"storage": quantity("1Gi")}},
            "storageClassName": text("fast"),
            "volumeMode": choice("Filesystem", "Block"),
            "volumeName": text("pv"),
            "selector": SELECTOR,
        },
    },
    "ResourceQuota": {
        "metadata": META,
        "spec": {
            "hard": {"pods": quantity("100"), "requests.cpu": quantity("100"), "limits.memory": quantity("1Ti")},
            "scopes": [choice("BestEffort", "NotTerminating")],
            "scopeSelector": {
                "matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": choice("In", "Exists"), "values": [text("high")]}
                ]
            },
        },
    },
    "LimitRange": {
        "metadata": META,
        "spec": {
            "limits": [
                {
                    "type": choice("Container", "Pod", "PersistentVolumeClaim"),
                    "max": {"cpu": quantity("10")},
                    "min": {"cpu": quantity("1n")},
                    "default": {"memory": quantity("1Mi")},
                    "defaultRequest": {"cpu": quantity("1m")},
                }
            ]
        },
    },
    "ResourceClaim": {
        "metadata": META,
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": text("gpu"),
                        "exactly": {
                            "deviceClassName": text("gpu"),
                            "count": wide(1),
                            "allocationMode": choice("ExactCount", "All"),
                            "selectors": [{"cel": {"expression": text("device.driver == 'x'")}}],
                        },
                    }
                ]
            }
        },
    },
    "EvictionRequest": {
        "metadata": META,
        "spec": {
            "target": {"pod": {"name": text("x"), "uid": text("u")}},
            "intent": choice("Eviction", "Withdrawn"),
            "requester": text("example.org/r"),
        },
        "status": {"conditions": [CONDITION]},
    },
    "PodGroup": {"metadata": META, "spec": {"disruptionMode": {"all": {}}, "minCount": number()}},
    "CloneSet": {"metadata": META, **CUSTOM},
    "Rollout": {"metadata": META, **CUSTOM},
    "VirtualMachineInstance": {"metadata": META, "spec": anything({}), "status": anything({})},
}
"""What whoever may create pods, workloads, budgets and claims in a namespace writes there."""

POD: Raw = {"namespace": text("tenant"), "name": text("x"), "uid": text("u")}
STATUS: Raw = {
    **{key: anything("x") for key in ("status", "reason", "message", "nodeName")},
    "phase": choice("Pending", "Running", "Failed", "Succeeded", "Available", "x"),
    "conditions": [
        {**CONDITION, "type": choice("Eviction", "Scheduled", "ReservationScheduled", "x")},
        anything({"type": "Ready"}),
    ],
}
JOBS: t.Mapping[str, Raw] = {
    "PodMigrationJob": {
        "metadata": {
            "annotations": {
                **ANNOTATIONS,
                "koordinator.sh/evict-trigger": text(),
                "koordinator.sh/evict-reason": text(),
                "descheduler.koordinator.sh/passed-arbitration": text("true"),
            },
            "labels": {
                **LABELS,
                "app.kubernetes.io/created-by": label(),
                "maintenance.kubeops.io/run": label(),
                "maintenance.kubeops.io/pod-uid": label(),
            },
            "ownerReferences": [OWNER],
        },
        "spec": {
            "paused": anything(False),
            "ttl": anything("300s"),
            "mode": anything("ReservationFirst"),
            "podRef": POD,
            "reservationOptions": {
                "reservationRef": {"name": text("t-reserved")},
                "template": {"spec": {"owners": [{"controller": {"uid": text("u")}}]}},
            },
            "deleteOptions": {"preconditions": {"uid": text("u")}},
        },
        "status": {**STATUS, "podRef": POD},
    },
    "Reservation": {
        "metadata": META,
        "spec": {
            "allocateOnce": anything(True),
            "owners": [
                {"controller": {"uid": text("u"), "namespace": text("tenant")}, "labelSelector": SELECTOR},
                {"object": POD},
            ],
            "template": {"spec": {"schedulerName": text("koord-scheduler")}},
            "ttl": anything("300s"),
        },
        "status": {**STATUS, "currentOwners": [POD]},
    },
}
"""What whoever may create Koordinator's objects, which are in no namespace, and its controllers write there."""

KUBELETS: t.Mapping[str, Raw] = {
    "Node": {
        "metadata": {
            "ownerReferences": [OWNER],
            "annotations": {
                "maintenance.kubeops.io/record": json_text(),
                "cluster-autoscaler.kubernetes.io/scale-down-disabled": text("true"),
                "karpenter.sh/do-not-disrupt": text("true"),
                "example.org/maintained-at": text("2026-01-01T00:00:00Z"),
            },
            "labels": {
                "kubernetes.io/hostname": label("n2"),
                "topology.kubernetes.io/zone": label("z"),
                "topology.kubernetes.io/region": label("r"),
                "node.kubernetes.io/exclude-from-external-load-balancers": label(""),
                "remediation.medik8s.io/exclude-from-remediation": label("true"),
                **{f"node-role.kubernetes.io/{role}": label("") for role in ("control-plane", "master", "etcd")},
                "5": label("5"),
            },
        },
        "spec": {
            "unschedulable": flag(),
            "taints": [{"key": label("k"), "value": label("v"), "effect": choice("NoSchedule", "NoExecute")}],
        },
        "status": {
            "addresses": [
                {"type": text("InternalIP"), "address": text("10.0.0.1")},
                {"type": "Hostname", "address": text("n2")},
            ],
            "allocatable": {"cpu": quantity("32"), "memory": quantity("256Gi"), "pods": quantity("20")},
            "conditions": [
                {**CONDITION, "type": choice("Ready", "MemoryPressure", "MaintenanceInProgress", "Drained", "x" * 300)}
            ],
            "nodeInfo": {
                key: text("x") for key in ("bootID", "kubeletVersion", "osImage", "kernelVersion", "operatingSystem")
            },
        },
    },
    "CSINode": {
        "metadata": META,
        "spec": {"drivers": [{"name": text("csi.example"), "nodeID": text("n"), "allocatable": {"count": number(5)}}]},
    },
    "ResourceSlice": {
        "metadata": META,
        "spec": {
            "driver": text("x"),
            "nodeName": text("n2"),
            "pool": {"name": text("p"), "generation": wide(), "resourceSliceCount": wide()},
            "devices": [
                {
                    "name": text("d"),
                    "attributes": {"example.org/model": {"string": text("a")}, "n": {"int": wide()}},
                    "capacity": {"memory": {"value": quantity("1Gi")}},
                    "taints": [{"key": label("k"), "value": label("v"), "effect": choice("NoSchedule", "NoExecute")}],
                }
            ],
        },
    },
    "Pod": {
        "metadata": {"annotations": ANNOTATIONS},
        "status": {
            "phase": choice("Running", "Pending", "Failed", "Unknown", "Succeeded"),
            "message": text("why"),
            "startTime": time(),
            "conditions": [CONDITION],
            "podIP": text("10.1.0.1"),
            "nominatedNodeName": text("n1"),
            "containerStatuses": [
                {
                    "name": "c",
                    "restartCount": number(0),
                    "resources": RESOURCES,
                    "allocatedResources": {"cpu": quantity("1")},
                    "state": {"waiting": {"reason": text("ErrImagePull"), "message": text("no")}},
                }
            ],
            "initContainerStatuses": [
                {"name": "i", "resources": RESOURCES, "allocatedResources": {"cpu": quantity("1")}}
            ],
            "resources": {"requests": {"cpu": quantity("1")}},
            "allocatedResources": {"cpu": quantity("1")},
            "resourceClaimStatuses": [{"name": text("gpu"), "resourceClaimName": text("claim")}],
            "extendedResourceClaimStatus": {"resourceClaimName": text("claim")},
        },
    },
}
"""What a kubelet writes: into its own node, what it reports of that, and the status of its pods."""

OPEN: frozenset[Path] = frozenset(
    {
        (),
        ("metadata",),
        ("metadata", "annotations"),
        ("metadata", "labels"),
        ("spec",),
        ("spec", "template"),
        ("spec", "template", "metadata"),
        ("spec", "template", "metadata", "annotations"),
        ("spec", "template", "metadata", "labels"),
        ("spec", "template", "spec"),
        ("status",),
    }
)
"""Where an odd value leaves the other fields as they are; elsewhere these are filled with usual values."""


def leaves(tree: t.Any, path: Path = ()) -> t.Iterator[tuple[Path, Leaf]]:
    """The fields of an object with their paths."""
    if isinstance(tree, Leaf):
        yield path, tree
    elif isinstance(tree, dict):
        for key, inner in tree.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(tree, list):
        for index, inner in enumerate(tree):
            yield from leaves(inner, (*path, index))


def parts(tree: t.Any, path: Path = ()) -> t.Iterator[Path]:
    """The paths of all that is in an object: its fields, and what they are in."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, one in inner:
        yield (*path, key)
        yield from parts(one, (*path, key))


class Recorded(dict[str, t.Any]):
    """An object, or a part of one, that notes which of its fields are read."""

    def __init__(self, raw: t.Mapping[str, t.Any], noted: set[tuple[str, ...]], path: tuple[str, ...]) -> None:
        super().__init__({key: recorded(value, noted, (*path, key)) for key, value in raw.items()})
        self._noted, self._path = noted, path

    def __getitem__(self, key: str) -> t.Any:
        self._noted.add((*self._path, key))
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._noted.add((*self._path, str(key)))
        return super().__contains__(key)

    def get(self, key: str, default: t.Any = None) -> t.Any:
        self._noted.add((*self._path, key))
        return super().get(key, default)


def recorded(raw: t.Any, noted: set[tuple[str, ...]], path: tuple[str, ...]) -> t.Any:
    """The same, with what is read of it, each by its kind and path, without the numbers in lists."""
    if isinstance(raw, dict):
        return Recorded(raw, noted, path)
    return [recorded(one, noted, path) for one in raw] if isinstance(raw, list) else raw


def overlay(raw: t.Any, tree: t.Any, odd: t.Mapping[Path, t.Any], path: Path = ()) -> t.Any:
    """The object with these values at these paths of its tree."""
    if path in odd:
        return odd[path]
    if path not in OPEN or not isinstance(tree, dict):
        return _filled(tree, odd, path)
    found = dict(raw) if isinstance(raw, dict) else {}
    for key, inner in tree.items():
        here = (*path, key)
        if any(where[: len(here)] == here for where in odd):
            found[key] = overlay(found.get(key), inner, odd, here)
    return found


def usual(tree: t.Any) -> t.Any:
    """The object with a usual value in each field."""
    return _filled(tree, {}, ())


def _filled(tree: t.Any, odd: t.Mapping[Path, t.Any], path: Path) -> t.Any:
    if path in odd:
        return odd[path]
    if isinstance(tree, dict):
        return {key: _filled(inner, odd, (*path, key)) for key, inner in tree.items()}
    if isinstance(tree, list):
        return [_filled(inner, odd, (*path, index)) for index, inner in enumerate(tree)]
    return tree.usual if isinstance(tree, Leaf) else tree
