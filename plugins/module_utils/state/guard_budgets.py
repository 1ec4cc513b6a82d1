# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Guard budgets: a PodDisruptionBudget of ours for pods that have none,
while one of their nodes is in maintenance.

A guard is shared by all nodes and runs that need it; an annotation names the nodes, and the last
one removes it. It never covers pods of another budget, because a pod with two budgets cannot be
evicted: such a guard is not created, and one is removed when a foreign budget appears later. So is
one that allows no eviction because its controller cannot count its pods.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    decoding,
    names,
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy

OWN_LABEL: t.Mapping[tuple[str, str], str] = {
    ("apps/v1", "Deployment"): names.HASH,
    ("apps/v1", "StatefulSet"): "statefulset.kubernetes.io/pod-name",
    ("argoproj.io/v1alpha1", "Rollout"): "rollouts-pod-template-hash",
}
"""The label that pods of such a workload have from its controller,
and no others with which they share all labels.
"""


@dataclass(frozen=True, slots=True)
class Guard:
    """A workload's guard: ``change`` creates or extends it and is ``None`` where it
    serves the nodes already.

    ``serves`` maps its leaving nodes to their UIDs, ``creation`` creates it. ``instead`` names a
    budget that excludes it; then there is no guard and no change.
    """

    workload: objects.Ref
    replicas: int
    serves: t.Mapping[str, str]
    budget: objects.Ref
    creation: api_changes.Change
    change: api_changes.Change | None = None
    instead: objects.Ref | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """The leaving nodes with pods of the workload."""
        return tuple(sorted(self.serves))


def guards(
    snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan]
) -> tuple[Guard, ...]:
    """The guards for all pods that are evicted without a budget (``PodPlan.guarded``)."""
    wanted: dict[str, set[str]] = {}
    for plan in plans:
        if plan.guarded and plan.workload is not None:
            wanted.setdefault(plan.workload.uid, set()).add(plan.pod.node)
    found: list[Guard] = []
    made: dict[str, objects.Ref] = {}
    for uid, nodes in wanted.items():
        workload = snapshot.workload(uid)
        if workload is None or workload.replicas < 2 or not workload.selector:
            continue
        guard = _guard(snapshot, workload, sorted(nodes), made)
        found.append(guard)
        if guard.instead is None:
            made.update((pod.uid, guard.budget) for pod in _covered(snapshot, workload))
    return tuple(found)


def again(snapshot: snapshots.Snapshot, guard: Guard) -> Guard:
    """The guard by the current state; unchanged where its workload is gone."""
    workload = snapshot.workload(guard.workload.uid)
    return _guard(snapshot, workload, guard.nodes, {}) if workload else guard


def _guard(
    snapshot: snapshots.Snapshot,
    workload: objects.Workload,
    nodes: t.Sequence[str],
    made: t.Mapping[str, objects.Ref],
) -> Guard:
    name = names.guard_name(workload.uid)
    ref = objects.Ref("PodDisruptionBudget", name, workload.namespace, api_version="policy/v1")
    serves = {node: snapshot.nodes[node].uid for node in nodes if node in snapshot.nodes}
    guard = Guard(workload.ref, workload.replicas, serves, ref, _create(workload, ref, serves))
    for pod in _covered(snapshot, workload):
        others = (b.ref for b in snapshot.budgets_of(pod) if b.name != name)
        if other := next(others, None) or made.get(pod.uid):
            return replace(guard, instead=other)
    return replace(guard, change=ensuring(guard, snapshot.budget(ref.namespace, name)))


def _covered(snapshot: snapshots.Snapshot, workload: objects.Workload) -> t.Iterator[objects.Pod]:
    """The pods that a guard of the workload covers."""
    return (p for p in snapshot.selected(workload.namespace, _selector(workload)) if not p.finished)


def _selector(workload: objects.Workload) -> objects.Raw | None:
    """Its pods only: with one of a Job or a DaemonSet among them no eviction would be allowed."""
    own = OWN_LABEL.get((workload.api_version, workload.kind))
    wanted = workload.selector
    if not own or not wanted:
        return wanted
    return {
        **wanted,
        "matchExpressions": [
            *(wanted.get("matchExpressions") or ()),
            {"key": own, "operator": "Exists"},
        ],
    }


def ensuring(guard: Guard, existing: objects.Budget | None) -> api_changes.Change | None:
    """The change that makes the guard's budget serve its nodes; ``None`` if it does already."""
    if existing is None:
        return guard.creation
    now = nodes_of(existing)
    if guard.serves.items() <= now.items():
        return None
    return _serve(existing, {**now, **guard.serves})


def workload_uid(budget: objects.Budget) -> str:
    """The UID of the workload of one of our guards."""
    return budget.name.removeprefix(names.GUARD_PREFIX)


def is_one(snapshot: snapshots.Snapshot, budget: objects.Budget) -> bool:
    """Whether it is as we make it: for the workload whose UID is in its name,
    with its selector and our rule.

    Anybody who may create budgets can give one our name and label, and what is not as we make it
    counts like any other budget. To be removed at the end, name and label suffice.
    """
    workload = snapshot.workload(workload_uid(budget)) if budget.ours else None
    if workload is None or workload.namespace != budget.namespace:
        return False
    made = (_selector(workload), 1, None)
    return (budget.selector, budget.max_unavailable, budget.min_available) == made


def nodes_of(budget: objects.Budget) -> dict[str, str]:
    """The nodes a guard serves, with their UIDs; none if the annotation cannot be parsed."""
    try:
        found = decoding.json_of(budget.annotations.get(names.SERVES_NODES, "{}"))
        return {str(name): str(uid) for name, uid in found.items()}
    except (decoding.UnreadableError, AttributeError):
        return {}


def unguard(
    snapshot: snapshots.Snapshot, budget: objects.Budget, nodes: t.Collection[str]
) -> api_changes.Change | None:
    """Remove the nodes, and those that no longer exist, from one guard, or the guard where it
    serves no others; ``None`` where it serves none of them.
    """
    now = nodes_of(budget)
    left = {n: uid for n, uid in now.items() if n not in nodes and snapshot.has_node(n, uid)}
    if not left:
        return _remove(budget, f"Remove {budget.ref}, which guards no node any more")
    return _serve(budget, left) if left != now else None


def serving(snapshot: snapshots.Snapshot, nodes: t.Collection[str]) -> tuple[objects.Budget, ...]:
    """The guards that ``unguard`` would touch."""
    return tuple(b for b in snapshot.budgets if b.ours and unguard(snapshot, b, nodes))


def conflicting(snapshot: snapshots.Snapshot) -> tuple[api_changes.Change, ...]:
    """Remove each guard that keeps its pods instead of guarding them: of which the pods are covered
    by another budget by now, or cannot be counted.
    """
    changes = []
    for guard in snapshot.budgets:
        if not is_one(snapshot, guard):
            continue
        other = _other_budget(snapshot, guard)
        why = guard.sync_failed
        if not why and other:
            why = f"{other.ref} covers its pods now"
        if why:
            changes.append(_remove(guard, f"Remove {guard.ref}: {why}"))
    return tuple(changes)


def _other_budget(snapshot: snapshots.Snapshot, guard: objects.Budget) -> objects.Budget | None:
    """A foreign budget, or of two guards the one to keep, over a pod of the guard."""
    pods = (pod for pod in snapshot.selected(guard.namespace, guard.selector) if not pod.finished)
    others = (b for pod in pods for b in snapshot.budgets_of(pod) if b.name != guard.name)
    return next((b for b in others if not is_one(snapshot, b) or b.name < guard.name), None)


def _create(
    workload: objects.Workload, ref: objects.Ref, serves: t.Mapping[str, str]
) -> api_changes.Change:
    # AlwaysAllow: a guard must never keep a broken pod, which could be evicted without the guard.
    spec = {
        "selector": _selector(workload),
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": ref.name,
            "namespace": ref.namespace,
            "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
            "annotations": {names.SERVES_NODES: _dump(serves)},
        },
        "spec": spec,
    }
    after = {"nodes": sorted(serves), "spec": spec}
    return api_changes.Change("create", ref, f"Guard {workload.ref} by {ref}", body, {}, after)


def _serve(budget: objects.Budget, serves: t.Mapping[str, str]) -> api_changes.Change:
    after = {"nodes": sorted(serves)}
    body = {"metadata": {"annotations": {names.SERVES_NODES: _dump(serves)}}}
    sentence = f"Let {budget.ref} guard {', '.join(after['nodes'])}"
    return api_changes.patch(budget, sentence, body, {"nodes": sorted(nodes_of(budget))}, after)


def _remove(budget: objects.Budget, sentence: str) -> api_changes.Change:
    before = {"nodes": sorted(nodes_of(budget))}
    return api_changes.Change(
        "delete", budget.ref, sentence, None, before, {}, budget.resource_version
    )


def _dump(serves: t.Mapping[str, str]) -> str:
    return json.dumps(dict(serves), sort_keys=True, separators=(",", ":"))
