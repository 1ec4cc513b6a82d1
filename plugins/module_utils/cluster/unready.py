# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Why pods that are waited for are not ready: what a message about such a wait has to name."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    snapshots,
)


def rejected(snapshot: snapshots.Snapshot, workload: objects.Workload) -> str:
    """Why its controller cannot create the pods that it lacks: a quota, a LimitRange, a webhook."""
    owners = (workload, *snapshot.owned_by(workload))
    found = next((one.failure for one in owners if one.failure and one.current < one.replicas), "")
    return f"one more pod of {workload.ref} is rejected: {found.rstrip('.')}" if found else ""


def why(
    snapshot: snapshots.Snapshot,
    pods: t.Iterable[objects.Pod],
    workload: objects.Workload | None = None,
) -> str:
    """What keeps the first of these pods from being ready, or their controllers from creating
    more; empty if unknown.

    One that cannot start comes before one that is only not ready yet. ``workload`` may have no pod.
    Where nothing else says it, an Event may have been read that does.
    """
    living, owners = _involved(snapshot, pods, workload)
    if found := _known(snapshot, living, owners):
        return found
    for ref in _silent(snapshot, living, owners):
        if text := snapshot.warning_of(ref.uid):
            return f"{ref}: {text}"
    return ""


def silent(
    snapshot: snapshots.Snapshot,
    pods: t.Iterable[objects.Pod],
    workload: objects.Workload | None = None,
) -> objects.Ref | None:
    """The object of which Events alone may say why, as ``why``:
    a controller that lacks pods, or a pod.
    """
    living, owners = _involved(snapshot, pods, workload)
    if _known(snapshot, living, owners):
        return None
    return next(_silent(snapshot, living, owners), None)


def others(
    snapshot: snapshots.Snapshot, pod: objects.Pod
) -> tuple[t.Iterable[objects.Pod], objects.Workload | None]:
    """The pods that have to be ready for this one to go; with the workload,
    if they are all of its pods.
    """
    budget = next(iter(snapshot.budgets_of(pod)), None)
    if budget:
        return snapshot.selected(budget.namespace, budget.selector), None
    workload = snapshot.workload_of(pod)
    return (snapshot.pods_of(workload), workload) if workload else ((), None)


def beside(snapshot: snapshots.Snapshot, pod: objects.Pod) -> str:
    """Why the pods that have to be ready for this one to go are not; empty if unknown."""
    return why(snapshot, *others(snapshot, pod))


def _involved(
    snapshot: snapshots.Snapshot, pods: t.Iterable[objects.Pod], workload: objects.Workload | None
) -> tuple[list[objects.Pod], list[objects.Workload]]:
    living = [pod for pod in pods if not pod.deleting and not pod.finished]
    owners = {owner.uid: owner for owner in (workload, *map(snapshot.workload_of, living)) if owner}
    return living, list(owners.values())


def _known(
    snapshot: snapshots.Snapshot,
    living: t.Sequence[objects.Pod],
    owners: t.Sequence[objects.Workload],
) -> str:
    for owner in owners:
        if found := rejected(snapshot, owner):
            return found
    unready = sorted(
        (pod for pod in living if not pod.ready),
        key=lambda pod: (not pod.unschedulable, not pod.stuck),
    )
    for pod in unready:
        if found := of(snapshot, pod):
            return f"{pod.ref}: {found}"
    return ""


def of(snapshot: snapshots.Snapshot, pod: objects.Pod) -> str:
    """What keeps this pod from being ready; empty if unknown."""
    node = snapshot.nodes.get(pod.node)
    if node and not node.ready:
        # What its kubelet said of the pod is old.
        return f"its node {node.name} is not ready"
    return pod.unschedulable or pod.trouble or pod.overlooked


def _silent(
    snapshot: snapshots.Snapshot,
    living: t.Sequence[objects.Pod],
    owners: t.Sequence[objects.Workload],
) -> t.Iterator[objects.Ref]:
    for owner in owners:
        for controller in (owner, *snapshot.owned_by(owner)):
            if controller.current < controller.replicas:
                yield controller.ref
    for pod in living:
        if not pod.ready:
            yield pod.ref


def in_brackets(why: str) -> str:
    """The reason in brackets, for the end of a sentence; empty if there is none."""
    return f" ({why})" if why else ""
