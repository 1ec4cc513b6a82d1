# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What has to be read beside some pods, so that it is known whether and how they may leave."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    gangs,
    names,
    objects,
    scopes,
    snapshots,
    virtual_machines,
)

PLAIN = frozenset({"Deployment", "ReplicaSet", "StatefulSet"})
"""Kinds of workloads whose controllers keep only pods that their selectors match."""

OWNER_KINDS: t.Mapping[str, tuple[str, ...]] = {
    "ReplicaSet": ("replica_sets", "deployments"),
    "StatefulSet": ("stateful_sets",),
    "DaemonSet": ("daemon_sets",),
}
"""Which lists show a pod's controller; read only if such a controller appears."""

SURGED_KINDS = {
    "Deployment": ("deployments", "replica_sets"),
    "ReplicaSet": ("replica_sets",),
    "Rollout": ("rollouts", "replica_sets"),
    "CloneSet": ("clone_sets",),
}
"""What is watched to follow the surge of a workload of this kind."""


def owners_of(pods: t.Iterable[t.Any]) -> list[str]:
    """The kinds to list so that the pods' controllers are known."""
    pods = tuple(pods)
    present = {pod.owner.kind for pod in pods if pod.owner}
    if any(names.RELEASED in pod.labels for pod in pods):
        # Its ReplicaSet has let it go.
        present.add("ReplicaSet")
    found: list[str] = []
    for kind, kinds in OWNER_KINDS.items():
        if kind in present:
            found += kinds
    return found


def kinds_of(workloads: t.Iterable[objects.Ref]) -> list[str]:
    """The kinds to list so that these workloads are known, those of Kubernetes."""
    present = {"ReplicaSet" if ref.kind == "Deployment" else ref.kind: None for ref in workloads}
    found: list[str] = []
    for kind in present:
        found += OWNER_KINDS.get(kind, ())
    return found


def groups_of(pods: t.Iterable[objects.Pod]) -> list[str]:
    """The kinds to list so that it is known which pods are disrupted together; unread,
    each PodGroup is a gang.
    """
    return ["pod_groups"] if any(pod.group for pod in pods) else []


def machines_of(pods: t.Iterable[objects.Pod]) -> list[str]:
    """The kinds to list so that it is known what an eviction makes of
    KubeVirt's virtual machines.
    """
    return [*virtual_machines.KINDS] if any(virtual_machines.runs_in(pod) for pod in pods) else []


def surged(kinds: t.Iterable[str]) -> list[str]:
    """The kinds to watch while workloads of these kinds change their count."""
    found: dict[str, None] = {}
    for kind in kinds:
        found |= dict.fromkeys(SURGED_KINDS.get(kind, ()))
    return list(found)


def namespaces_of(snapshot: snapshots.Snapshot, pods: t.Iterable[objects.Pod]) -> set[str]:
    """The namespaces of the pods that may have to leave; needs the DaemonSets."""
    return {pod.namespace for pod in pods if not _stays(snapshot, pod)}


def pods(
    snapshot: snapshots.Snapshot,
    pods: t.Iterable[objects.Pod],
    more: t.Iterable[objects.Workload] = (),
) -> scopes.RelatedPods:
    """The pods that decide whether these may leave, and those of ``more`` workloads;
    needs owners and budgets.
    """
    found: dict[str, set[tuple[str, str]]] = {}
    for pod in pods:
        if _stays(snapshot, pod):
            continue
        for budget in snapshot.budgets_of(pod):
            # A guard of ours selects pods of its workload.
            if not budget.ours:
                _add(found, budget, budget.selector)
        workload = snapshot.workload_of(pod)
        plain = workload is None and pod.owner is None
        if workload and workload.kind in PLAIN and workload.owner is None:
            _add(found, workload, workload.selector)
            plain = True
        if not plain or gangs.ref_of(pod):
            found.setdefault("", set()).add((pod.namespace, ""))
    for workload in more:
        _add(found, workload, workload.selector if workload.kind in PLAIN else None)
    return {key: frozenset(pairs) for key, pairs in found.items()}


def _stays(snapshot: snapshots.Snapshot, pod: objects.Pod) -> bool:
    """Whether it is its node's own: a DaemonSet's, or a static pod's mirror."""
    return pod.mirror or (pod.owner is not None and snapshot.daemon_set(pod.owner.uid) is not None)


def _add(
    found: dict[str, set[tuple[str, str]]], of: objects.Object, selector: objects.Raw | None
) -> None:
    """One label that has to be equal: of several the one whose value is like the object's
    name, then the longest.
    """
    exact: objects.Raw = (selector or {}).get("matchLabels") or {}

    def telling(pair: tuple[str, str]) -> tuple[bool, bool, int, str]:
        key, value = pair
        return value == of.name, value in of.name, len(value), key

    key, value = max(exact.items(), key=telling, default=("", ""))
    found.setdefault(key if value else "", set()).add((of.namespace, value))
