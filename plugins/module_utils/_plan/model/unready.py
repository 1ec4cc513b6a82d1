# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Why pods that are waited for are not ready: what a message about such a wait has to name."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, snapshots


def rejected(snapshot: snapshots.Snapshot, workload: objects.Workload) -> str:
    """Why its controller cannot create the pods that it lacks: a quota, a LimitRange, a webhook."""
    owners = (workload, *snapshot.owned_by(workload))
    found = next((one.failure for one in owners if one.failure and one.current < one.replicas), "")
    return f"one more pod of {workload.ref} is rejected: {found.rstrip('.')}" if found else ""


def why(snapshot: snapshots.Snapshot, pods: t.Iterable[objects.Pod], workload: objects.Workload | None = None) -> str:
    """What keeps the first of these pods from being ready, or their controllers from creating more; empty if unknown.

    One that cannot start comes before one that is only not ready yet. ``workload`` may have no pod.
    """
    living = [pod for pod in pods if not pod.deleting and not pod.finished]
    owners = {owner.uid: owner for owner in (workload, *map(snapshot.workload_of, living)) if owner}
    if found := next(filter(None, (rejected(snapshot, owner) for owner in owners.values())), ""):
        return found
    unready = sorted((pod for pod in living if not pod.ready), key=lambda pod: (not pod.unschedulable, not pod.stuck))
    return next((f"{pod.ref}: {text}" for pod in unready if (text := of(pod))), "")


def of(pod: objects.Pod) -> str:
    """What keeps this pod from being ready; empty if unknown."""
    return pod.unschedulable or pod.trouble or pod.overlooked


def beside(snapshot: snapshots.Snapshot, pod: objects.Pod) -> str:
    """Why the pods that have to be ready for this one to go are not; empty if unknown."""
    budget = next(iter(snapshot.budgets_of(pod)), None)
    workload = snapshot.workload_of(pod)
    if budget:
        return why(snapshot, snapshot.selected(budget.namespace, budget.selector))
    return why(snapshot, snapshot.pods_of(workload), workload) if workload else ""


def told(found: str) -> str:
    """As the end of a sentence."""
    return f" ({found})" if found else ""
