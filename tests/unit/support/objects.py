# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects as the API server sends them, as small as a decision needs them, and a cluster made of them."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.index_keys import PARSERS
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import guard_budgets

Raw = dict[str, t.Any]

TOLERATES_ALL: Raw = {"operator": "Exists"}


def node(name: str, **changes: t.Any) -> Raw:
    """A Ready node; `changes` are taken for taints, unschedulable, labels, annotations, conditions, boot."""
    conditions = {"Ready": "True", **changes.get("conditions", {})}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "labels": {"kubernetes.io/hostname": name, **changes.get("labels", {})},
            "annotations": changes.get("annotations", {}),
        },
        "spec": {"taints": changes.get("taints", []), "unschedulable": changes.get("unschedulable", False)},
        "status": {
            "conditions": [{"type": key, "status": value} for key, value in conditions.items()],
            "nodeInfo": {"bootID": changes.get("boot", f"boot-{name}")},
        },
    }


def owned(kind: str, name: str, api_version: str = "apps/v1") -> list[Raw]:
    """What an object of this controller carries as owner references."""
    return [{"kind": kind, "name": name, "uid": f"uid-{kind}-{name}", "apiVersion": api_version, "controller": True}]


def _responders(names_: t.Iterable[str]) -> list[Raw]:
    return [{"name": name, "priority": 10000} for name in names_]


def pod(name: str, on: str = "n1", owner: list[Raw] | None = None, **changes: t.Any) -> Raw:
    """A Running and Ready pod of namespace `shop`."""
    meta: Raw = {
        "name": name,
        "namespace": changes.get("namespace", "shop"),
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "labels": changes.get("labels", {"app": "web"}),
        "annotations": changes.get("annotations", {}),
        "creationTimestamp": changes.get("created", "2026-01-01T00:00:00Z"),
        "finalizers": changes.get("finalizers", []),
        "ownerReferences": owner or [],
    }
    if "deleting" in changes:
        meta["deletionTimestamp"] = changes["deleting"]
    ready = changes.get("ready", True)
    return {
        "metadata": meta,
        "spec": {
            "nodeName": on,
            "tolerations": changes.get("tolerations", []),
            "volumes": changes.get("volumes", []),
            "terminationGracePeriodSeconds": changes.get("grace", 30),
            "containers": [{"name": "c", "resources": {"requests": changes.get("requests", {})}}],
            **({"evictionResponders": _responders(changes["responders"])} if "responders" in changes else {}),
        },
        "status": {
            "phase": changes.get("phase", "Running"),
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def workload(kind: str, name: str, replicas: int, owner: list[Raw] | None = None, **spec: t.Any) -> Raw:
    """A Deployment, ReplicaSet or StatefulSet at rest; `annotations` apart, keywords are parts of its spec."""
    annotations = spec.pop("annotations", {})
    template = spec.pop("template", {"metadata": {"labels": {"app": name}}, "spec": {"containers": []}})
    return {
        "apiVersion": spec.pop("api_version", "apps/v1"),
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{kind}-{name}",
            "resourceVersion": "1",
            "generation": 1,
            "annotations": annotations,
            "ownerReferences": owner or [],
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
            **spec,
        },
        "status": {
            "observedGeneration": 1,
            "replicas": replicas,
            "readyReplicas": replicas,
            "availableReplicas": replicas,
        },
    }


def deployment(name: str, replicas: int, **spec: t.Any) -> dict[str, list[Raw]]:
    """A Deployment with its ReplicaSet; its pods are owned by `owned("ReplicaSet", name)`."""
    top = workload("Deployment", name, replicas, **spec)
    return {
        "deployments": [top],
        "replica_sets": [workload("ReplicaSet", name, replicas, owned("Deployment", name))],
    }


def guard(kind: str, name: str, allowed: int, **changes: t.Any) -> Raw:
    """Our guard over `app: web` for the workload of this kind and name."""
    own = guard_budgets.OWN_LABEL.get(("apps/v1", kind))
    expressions = {"matchExpressions": [{"key": own, "operator": "Exists"}]} if own else {}
    selector = {"matchLabels": {"app": "web"}, **expressions}
    made = {"rule": {"maxUnavailable": 1}, "selector": selector, **changes}
    return budget(names.guard_name(f"uid-{kind}-{name}"), allowed, **made)


def budget(name: str, allowed: int, *, healthy: int = 3, desired: int = 2, **changes: t.Any) -> Raw:
    """An observed budget of namespace `shop` over `app: web`."""
    rule = changes.get("rule", {"minAvailable": desired})
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY} if name.startswith(names.GUARD_PREFIX) else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "generation": 1,
            "labels": labels,
        },
        "spec": {
            "selector": changes.get("selector", {"matchLabels": {"app": "web"}}),
            **rule,
            **({"unhealthyPodEvictionPolicy": changes["policy"]} if "policy" in changes else {}),
        },
        "status": {
            "observedGeneration": 1 if changes.get("observed", True) else 0,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": changes.get("expected", healthy),
        },
    }


def claim(name: str, volume: str, modes: tuple[str, ...] = ("ReadWriteMany",)) -> Raw:
    """A PersistentVolumeClaim of namespace `shop` that is bound to `volume`."""
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"volumeName": volume, "accessModes": list(modes)},
    }


def mounts(name: str) -> list[Raw]:
    """A pod's volumes that mount the claim."""
    return [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


def on_hosts(*hosts: str) -> Raw:
    """A volume's node affinity to these nodes."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(hosts)}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def snapshot(*parts: dict[str, list[Raw]], nodes: t.Sequence[Raw] | None = None, **kinds: list[Raw]) -> Snapshot:
    """A cluster of the nodes n1, n2 and n3 (unless given) and of these objects by kind."""
    found: dict[str, list[Raw]] = {"nodes": list(nodes or [node("n1"), node("n2"), node("n3")])}
    for part in (*parts, kinds):
        for kind, raws in part.items():
            found.setdefault(kind, []).extend(raws)
    return Snapshot.of({kind: [PARSERS[kind](raw) for raw in raws] for kind, raws in found.items()})
