# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Guard budgets: a floor for pods that have none, as long as a node they run on is leaving.

A guard is shared by all nodes and runs that need it; an annotation names the nodes, and the last one
takes it away. It never lies over another budget, because two budgets make a pod un-evictable: a guard
that would is not made, and one over which a foreign budget appears later goes.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    names,
    objects,
    pod_plan,
    snapshots,
)


@dataclass(frozen=True, slots=True)
class Guard:
    """A workload's guard: ``change`` makes or widens it and is ``None`` where it serves the nodes already.

    ``serves`` maps its leaving nodes to their UIDs, ``creation`` makes it where it is not there.
    ``instead`` names the budget that stands in its way; then there is no guard and no change.
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


def guards(snapshot: snapshots.Snapshot, plans: t.Iterable[pod_plan.PodPlan]) -> tuple[Guard, ...]:
    """The guards for all pods that are evicted with no budget over them (``PodPlan.guarded``)."""
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
    """The guard as it has to be by now; the same where its workload is not there any more."""
    workload = snapshot.workload(guard.workload.uid)
    return _guard(snapshot, workload, guard.nodes, {}) if workload else guard


def _guard(
    snapshot: snapshots.Snapshot, workload: objects.Workload, nodes: t.Sequence[str], made: t.Mapping[str, objects.Ref]
) -> Guard:
    name = names.guard_name(workload.uid)
    ref = objects.Ref("PodDisruptionBudget", name, workload.namespace, api_version="policy/v1")
    serves = {node: snapshot.nodes[node].uid for node in nodes if node in snapshot.nodes}
    guard = Guard(workload.ref, workload.replicas, serves, ref, _create(workload, ref, serves))
    for pod in _covered(snapshot, workload):
        others = (b.ref for b in snapshot.budgets_of(pod) if b.name != name)
        if other := next(others, None) or made.get(pod.uid):
            return replace(guard, instead=other)
    return replace(guard, change=laying(guard, snapshot.budget(ref.namespace, name)))


def _covered(snapshot: snapshots.Snapshot, workload: objects.Workload) -> t.Iterator[objects.Pod]:
    """The pods that a guard of the workload is over."""
    return (p for p in snapshot.selected(workload.namespace, workload.selector) if not p.finished)


def laying(guard: Guard, existing: objects.Budget | None) -> api_changes.Change | None:
    """What brings the guard's budget from what it is now to serving its nodes; ``None`` when it does already."""
    if existing is None:
        return guard.creation
    now = nodes_of(existing)
    return None if guard.serves.items() <= now.items() else _serve(existing, {**now, **guard.serves})


def workload_uid(budget: objects.Budget) -> str:
    """The UID of the workload that one of our guards is for."""
    return budget.name.removeprefix(names.GUARD_PREFIX)


def nodes_of(budget: objects.Budget) -> dict[str, str]:
    """The nodes a guard serves, with their UIDs; what cannot be read counts as none."""
    try:
        found = json.loads(budget.annotations.get(names.SERVES_NODES, "{}"))
        return {str(name): str(uid) for name, uid in found.items()}
    except (ValueError, AttributeError):
        return {}


def unguards(snapshot: snapshots.Snapshot, nodes: t.Collection[str]) -> tuple[api_changes.Change, ...]:
    """Take the nodes, and those that no longer exist, off every guard; a guard without nodes goes."""
    found = (unguard(snapshot, budget, nodes) for budget in snapshot.budgets if budget.ours)
    return tuple(change for change in found if change)


def unguard(
    snapshot: snapshots.Snapshot, budget: objects.Budget, nodes: t.Collection[str]
) -> api_changes.Change | None:
    """Take the nodes, and those that no longer exist, off one guard; ``None`` where it serves none of them."""
    now = nodes_of(budget)
    left = {n: uid for n, uid in now.items() if n not in nodes and _exists(snapshot.nodes.get(n), uid)}
    if not left:
        return _remove(budget, f"Remove {budget.ref}, which guards for no node any more")
    return _serve(budget, left) if left != now else None


def serving(snapshot: snapshots.Snapshot, nodes: t.Collection[str]) -> tuple[objects.Budget, ...]:
    """The guards that ``unguards`` would touch."""
    return tuple(b for b in snapshot.budgets if b.ours and unguard(snapshot, b, nodes))


def yielding(snapshot: snapshots.Snapshot) -> tuple[api_changes.Change, ...]:
    """Remove each guard over whose pods another budget has come."""
    changes = []
    for guard in (b for b in snapshot.budgets if b.ours):
        for pod in snapshot.selected(guard.namespace, guard.selector):
            rivals = [
                b for b in snapshot.budgets_of(pod) if b.name != guard.name and (not b.ours or b.name < guard.name)
            ]
            if rivals and not pod.finished:
                changes.append(_remove(guard, f"Remove {guard.ref}: {rivals[0].ref} covers its pods now"))
                break
    return tuple(changes)


def _exists(node: objects.Node | None, uid: str) -> bool:
    return node is not None and uid in ("", node.uid)


def _create(workload: objects.Workload, ref: objects.Ref, serves: t.Mapping[str, str]) -> api_changes.Change:
    # AlwaysAllow: a guard must never hold a pod that is broken, for without it nothing would.
    spec = {"selector": workload.selector, "maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
    return api_changes.Change(
        "create",
        ref,
        f"Guard {workload.ref} by {ref}",
        body={
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {
                "name": ref.name,
                "namespace": ref.namespace,
                "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
                "annotations": {names.SERVES_NODES: _dump(serves)},
            },
            "spec": spec,
        },
        before={},
        after={"nodes": sorted(serves), "spec": spec},
    )


def _serve(budget: objects.Budget, serves: t.Mapping[str, str]) -> api_changes.Change:
    return api_changes.Change(
        "patch",
        budget.ref,
        f"Let {budget.ref} guard for {', '.join(sorted(serves))}",
        body={"metadata": {"annotations": {names.SERVES_NODES: _dump(serves)}}},
        before={"nodes": sorted(nodes_of(budget))},
        after={"nodes": sorted(serves)},
        resource_version=budget.resource_version,
    )


def _remove(budget: objects.Budget, sentence: str) -> api_changes.Change:
    return api_changes.Change(
        "delete",
        budget.ref,
        sentence,
        before={"nodes": sorted(nodes_of(budget))},
        after={},
        resource_version=budget.resource_version,
    )


def _dump(serves: t.Mapping[str, str]) -> str:
    return json.dumps(dict(serves), sort_keys=True, separators=(",", ":"))
