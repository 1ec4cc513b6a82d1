# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""From a snapshot to the objects of its copy, in the order in which they have to be created.

Pods are created bound to their nodes and without owners, and their controllers afterwards: these
adopt what fits their selectors, as they do after an owner was deleted without its pods.
A DaemonSet creates its own.
"""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import (
    field_filter,
    notes,
    snapshot_files,
    workload_copies,
)

Json = dict[str, t.Any]

NODE_SWITCH = "lab.kubeops.io/node"
_USUAL_CONDITIONS = {
    "Ready": "True",
    "MemoryPressure": "False",
    "DiskPressure": "False",
    "PIDPressure": "False",
    "NetworkUnavailable": "False",
}


@dataclass(frozen=True, slots=True)
class Copy:
    """The objects of a copy, each in a step of ``STEPS``, and what it lacks.

    ``conditions`` are those of nodes that a simulated kubelet does not set, by node. ``ready`` are
    the pods (namespace and name) that have to be ready before the controllers follow. ``members``
    are the pods of each StatefulSet, which have to carry the hash of its revision.
    """

    steps: t.Mapping[str, list[Json]]
    conditions: t.Mapping[str, list[Json]]
    ready: frozenset[tuple[str, str]]
    members: t.Mapping[tuple[str, str], frozenset[str]]
    notes: list[snapshot_files.Note] = field(default_factory=list)


STEPS = ("ground", "nodes", "storage", "daemons", "pods", "owners", "rules")
"""Namespaces and classes; nodes; volumes and claims; DaemonSets; pods; their controllers;
budgets, Services, quotas.
"""


def copy(snapshot: snapshot_files.Snapshot, *, stop: float) -> Copy:
    """The copy of a cluster; ``stop`` are the seconds a pod usually takes to stop."""
    found = {kind: snapshot.objects.get(kind) or [] for kind in field_filter.KINDS}
    gaps = [*snapshot.notes, notes.note("extensions")]
    made = workload_copies.Workloads(found, stop, gaps)
    steps: dict[str, list[Json]] = {
        "ground": _ground(found),
        "nodes": [_node(raw) for raw in found["nodes"]],
        "storage": [
            *map(_volume, found["volumes"]),
            *_as_they_are(found, "claims", "v1", "PersistentVolumeClaim"),
            *map(_csi_node, found["csi_nodes"]),
        ],
        "daemons": made.daemons(),
        "pods": made.pods(),
        "owners": made.owners(),
        "rules": [
            *_as_they_are(found, "budgets", "policy/v1", "PodDisruptionBudget"),
            *_services(found),
            *_scalers(found, gaps),
            *_as_they_are(found, "quotas", "v1", "ResourceQuota"),
            *_as_they_are(found, "limits", "v1", "LimitRange"),
        ],
    }
    conditions = {
        raw["metadata"]["name"]: set_ for raw in found["nodes"] if (set_ := _conditions(raw))
    }
    return Copy(steps, conditions, made.ready(), made.members(), gaps)


def _as_they_are(
    found: t.Mapping[str, list[Json]], name: str, api_version: str, kind: str
) -> list[Json]:
    return [_object(api_version, kind, raw, spec=raw["spec"]) for raw in found[name]]


def _object(api_version: str, kind: str, raw: objects.Raw, **fields: t.Any) -> Json:
    metadata = workload_copies.meta(raw)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _ground(found: t.Mapping[str, list[Json]]) -> list[Json]:
    made = [_object("v1", "Namespace", raw) for raw in found["namespaces"]]
    for kind, api_version, name in (
        ("priority_classes", "scheduling.k8s.io/v1", "PriorityClass"),
        ("storage_classes", "storage.k8s.io/v1", "StorageClass"),
        ("runtime_classes", "node.k8s.io/v1", "RuntimeClass"),
    ):
        for raw in found[kind]:
            fields = {key: value for key, value in raw.items() if key != "metadata"}
            made.append(_object(api_version, name, raw, **fields))
    return made


def _node(raw: objects.Raw) -> Json:
    status = raw["status"]
    ready = next((c["status"] for c in status["conditions"] if c["type"] == "Ready"), "True")
    switch = {"False": {NODE_SWITCH: "not-ready"}, "Unknown": {NODE_SWITCH: "down"}}.get(ready, {})
    made = _object("v1", "Node", raw, spec={k: v for k, v in raw["spec"].items() if v})
    made["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake", **switch}
    addresses = [{"type": "Hostname", "address": raw["metadata"]["name"]}]
    kept = {key: status[key] for key in ("allocatable", "capacity", "nodeInfo")}
    made["status"] = {**kept, "addresses": addresses}
    return made


def _conditions(raw: objects.Raw) -> list[Json]:
    """Conditions of others, and the kubelet's bad ones: a healthy kubelet does not report them."""
    return [
        {"message": "as in the cluster that was copied", "reason": "Copied", **condition}
        for condition in raw["status"]["conditions"]
        if condition["type"] != "Ready"
        and _USUAL_CONDITIONS.get(condition["type"]) != condition["status"]
    ]


def _volume(raw: objects.Raw) -> Json:
    spec = {**raw["spec"], "persistentVolumeReclaimPolicy": "Retain"}
    name = raw["metadata"]["name"]
    if raw.get("driver"):
        spec["csi"] = {"driver": raw["driver"], "volumeHandle": name}
    else:
        spec["local" if raw.get("local") else "hostPath"] = {"path": "/copy"}
    if raw.get("claim"):
        spec["claimRef"] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **raw["claim"]}
    return _object("v1", "PersistentVolume", raw, spec=spec)


def _csi_node(raw: objects.Raw) -> Json:
    name = raw["metadata"]["name"]
    drivers = raw["spec"].get("drivers") or ()
    drivers = [{**one, "nodeID": one.get("nodeID") or name} for one in drivers]
    return _object("storage.k8s.io/v1", "CSINode", raw, spec={"drivers": drivers})


def _services(found: t.Mapping[str, list[Json]]) -> t.Iterator[Json]:
    for raw in found["services"]:
        spec = {key: value for key, value in raw["spec"].items() if key != "headless" and value}
        if raw["spec"].get("headless") or not spec.get("ports"):
            spec["clusterIP"] = "None"
        yield _object("v1", "Service", raw, spec=spec)


def _scalers(
    found: t.Mapping[str, list[Json]], gaps: list[snapshot_files.Note]
) -> t.Iterator[Json]:
    """Autoscalers with their limits; without metrics they leave the count as it is."""
    target = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    metrics = [{"type": "Resource", "resource": target}]
    if found["autoscalers"]:
        gaps.append(notes.note("autoscaling"))
    for raw in found["autoscalers"]:
        spec = {**raw["spec"], "metrics": metrics}
        yield _object("autoscaling/v2", "HorizontalPodAutoscaler", raw, spec=spec)


def expected(made: Copy) -> dict[tuple[str, str], int]:
    """Ready pods that each budget counts once all copies are, by its namespace and name."""
    pods = collections.defaultdict[str, list[objects.Pod]](list)
    for raw in made.steps["pods"]:
        if (raw["metadata"]["namespace"], raw["metadata"]["name"]) in made.ready:
            pods[raw["metadata"]["namespace"]].append(objects.Pod.of(raw))
    counts = {}
    for raw in made.steps["rules"]:
        if raw["kind"] == "PodDisruptionBudget":
            budget = objects.Budget.of(raw)
            count = sum(budget.covers(pod) for pod in pods[budget.namespace])
            counts[budget.namespace, budget.name] = count
    return counts
