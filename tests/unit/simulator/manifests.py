# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects to begin a world with, as a user would write them."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.serving import LOAD
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw

SHOP = "shop"


def node(name: str, *, pods: int = 20, labels: t.Mapping[str, str] | None = None, taints: t.Sequence[Raw] = ()) -> Raw:
    """A Ready node with room for so many pods."""
    spec: Raw = {"taints": list(taints)} if taints else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "32", "memory": "256Gi", "pods": str(pods)},
            "capacity": {"cpu": "32", "memory": "256Gi", "pods": str(pods)},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2025-12-31T00:00:00Z"}],
            "nodeInfo": {"bootID": f"boot-{name}"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }


def template(app: str, **options: t.Any) -> Raw:
    """A pod template; options are parts of the pod's spec, and `annotations`."""
    annotations = options.pop("annotations", None)
    meta: Raw = {"labels": {"app": app}} | ({"annotations": annotations} if annotations else {})
    container = {"name": "c", "image": "registry.example/c:1", "resources": {"requests": {"cpu": "10m"}}}
    spec: Raw = {"containers": [container], "terminationGracePeriodSeconds": 5}
    return {"metadata": meta, "spec": {**spec, **options}}


def _top(kind: str, name: str, spec: Raw, options: dict[str, t.Any]) -> Raw:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": options.pop("namespace", SHOP)},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": template(name, **options),
            **spec,
        },
    }


def deployment(name: str, replicas: int, spec: Raw | None = None, **options: t.Any) -> Raw:
    """A Deployment; options are those of `template`."""
    return _top("Deployment", name, {"replicas": replicas, **(spec or {})}, options)


def stateful_set(name: str, replicas: int, spec: Raw | None = None, **options: t.Any) -> Raw:
    return _top("StatefulSet", name, {"replicas": replicas, "serviceName": name, **(spec or {})}, options)


def replica_set(name: str, replicas: int, **options: t.Any) -> Raw:
    """One that no Deployment owns: its controller gives its pods no label of their own."""
    return _top("ReplicaSet", name, {"replicas": replicas}, options)


def job(name: str, app: str, on: str = "", complete: str = "0s") -> Raw:
    """A Job whose pod has the labels of another app, as those of a chart often have."""
    chosen: Raw = {"nodeSelector": {"kubernetes.io/hostname": on}} if on else {}
    pod = template(app, annotations={"lab.kubeops.io/complete": complete}, restartPolicy="Never", **chosen)
    meta = {"name": name, "namespace": SHOP}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": pod}}


def daemon_set(name: str, **options: t.Any) -> Raw:
    return _top("DaemonSet", name, {}, options)


def apart(name: str) -> Raw:
    """The affinity of pods of this app that are never on one node."""
    term = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def service(name: str, namespace: str = SHOP) -> Raw:
    spec = {"selector": {"app": name}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def budget(name: str, app: str = "", namespace: str = SHOP, **rule: t.Any) -> Raw:
    """A budget of the pods of an app; the rule is `minAvailable` or `maxUnavailable`."""
    spec = {"selector": {"matchLabels": {"app": app or name}}, **rule}
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}


def autoscaler(name: str, least: int, most: int, *, load: int | None = None, namespace: str = SHOP) -> Raw:
    """An HPA of the Deployment of that name; `load` is how many pods its metrics ask for."""
    meta: Raw = {"name": name, "namespace": namespace}
    if load is not None:
        meta["annotations"] = {LOAD: str(load)}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": most}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec}


def namespace(name: str) -> Raw:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def koordinator(limiter: str = "300s") -> list[Raw]:
    """Koordinator as its chart installs it, on a node of its own; its controllers are in koordinator.py.

    `limiter`: within which time only so many pods of a workload may go as may be missing at once; `0s` for no limit.
    """
    home, mine = "koordinator-system", {"key": "dedicated", "value": "infra", "effect": "NoSchedule"}
    args: Raw = {"evictionPolicy": "Eviction", "namespaces": {"exclude": ["kube-system", home]}}
    args["objectLimiters"] = {"workload": {"duration": limiter}}
    profile = {
        "name": "koord-descheduler",
        "plugins": {"evict": {"disabled": [{"name": "*"}], "enabled": [{"name": "MigrationController"}]}},
        "pluginConfig": [{"name": "MigrationController", "args": args}],
    }
    config = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "profiles": [profile],
    }
    name = "koord-descheduler-config"
    meta = {"name": name, "namespace": home}
    where: Raw = {"nodeSelector": {"role": "infra"}, "tolerations": [mine], "namespace": home}
    return [
        node("infra", labels={"role": "infra"}, taints=[mine]),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {name: json.dumps(config)}},
        deployment("koord-descheduler", 1, **where),
        deployment("koord-scheduler", 1, **where),
    ]


def usual(nodes: int = 3, **options: t.Any) -> list[Raw]:
    """One of each that a drain has to treat in another way, on a few nodes; options are those of `template`."""
    return [
        *(node(f"n{number}") for number in range(1, nodes + 1)),
        deployment("single", 1, **options),
        service("single"),
        deployment("web", 3, **options),
        service("web"),
        budget("web", maxUnavailable=1),
        deployment("scaled", 2, **options),
        service("scaled"),
        autoscaler("scaled", 2, 4, load=2),
        stateful_set("db", 3, **options),
        service("db"),
        budget("db", maxUnavailable=1),
        daemon_set("agent"),
    ]
