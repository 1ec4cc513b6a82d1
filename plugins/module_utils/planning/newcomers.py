# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whether new pods that serve first, and guards, can be created: quotas, limits, namespaces."""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import released
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import surge_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import quota

Moves = list[tuple[objects.Workload, list[drain_policy.PodPlan]]]
"""The workloads with their pods that leave in one wave."""


def findings(
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[drain_policy.PodPlan],
    waves: t.Iterable[t.Collection[str]],
    terminating: t.Collection[str],
) -> list[reasons.Finding]:
    """What prevents new pods; those of surges that are raised already are not checked again.

    The new pods of one wave exist at the same time, those of different waves do not.
    """
    up = {surge.uid for surge in surge_records.surges_in(snapshot)}
    surged = [p for p in plans if p.route in ("surge", "replace") and p.workload]
    first = [p for p in surged if p.workload and p.workload.uid not in up]
    making = [p for p in plans if p.route in ("surge", "replace") or p.guarded]
    found = list(_terminating(making, terminating))
    for _wave, of_wave in drain_policy.by_wave(first, waves):
        leaving: dict[str, list[drain_policy.PodPlan]] = {}
        for plan in of_wave:
            if plan.workload:
                leaving.setdefault(plan.workload.uid, []).append(plan)
        moves = [(w, group) for uid, group in leaving.items() if (w := snapshot.workload(uid))]
        found += _quotas(snapshot, moves)
        for workload, group in moves:
            found += _of_workload(snapshot, workload, group)
    return list(dict.fromkeys(found))


def _of_workload(
    snapshot: snapshots.Snapshot, workload: objects.Workload, group: list[drain_policy.PodPlan]
) -> t.Iterator[reasons.Finding]:
    nodes = _nodes(group)
    severity = _severity([group])
    for name, why in quota.violated(
        _in(snapshot.limits, workload.namespace), workload.pod_spec
    ).items():
        place = f"LimitRange {workload.namespace}/{name}"
        message = f"One more pod of {workload.ref} violates {place}: {why}."
        remedy = "Change the LimitRange or the workload."
        yield reasons.Finding("limit_range_forbids_surge", message, remedy, severity, place, nodes)
    leaving = {plan.pod.uid for plan in group}
    others = [p for p in snapshot.pods_of(workload) if p.uid not in leaving]
    waiting = [p for p in others if not p.ready and not p.deleting]
    if waiting and group[0].route == "surge":
        message = (
            f"{', '.join(str(p.ref) for p in waiting[:5])} of {workload.ref} is not Ready: until "
            "it is, lowering the replicas could delete a pod that serves."
        )
        remedy = "Repair or remove that pod first."
        yield reasons.Finding(
            "not_ready_elsewhere", message, remedy, "blocker", str(workload.ref), nodes
        )


def _severity(groups: t.Iterable[list[drain_policy.PodPlan]]) -> reasons.Severity:
    """Pods of several replicas that are not replaced first are evicted as their budget allows."""
    for group in groups:
        if any(plan.route == "surge" or plan.interruption == "possible" for plan in group):
            return "blocker"
    return "warning"


def _quotas(snapshot: snapshots.Snapshot, moves: Moves) -> t.Iterator[reasons.Finding]:
    for namespace in dict.fromkeys(workload.namespace for workload, _group in moves):
        inside = [(workload, group) for workload, group in moves if workload.namespace == namespace]
        newcomers = [quota.Newcomers(one.pod_spec, _count(one, group)) for one, group in inside]
        limits = _in(snapshot.limits, namespace)
        count = sum(newcomer.count for newcomer in newcomers)
        for name, why in quota.exceeded(_in(snapshot.quotas, namespace), limits, newcomers).items():
            place = f"ResourceQuota {namespace}/{name}"
            who = ", ".join(str(workload.ref) for workload, _group in inside)
            pods = f"{count} more pod{'s' if count > 1 else ''}"
            message = f"{place} has no room for {pods} ({who}): {why}."
            remedy = "Raise the quota for the maintenance, or drain fewer nodes at a time."
            groups = [group for _workload, group in inside]
            severity = _severity(groups)
            nodes = _nodes(itertools.chain.from_iterable(groups))
            yield reasons.Finding("quota_forbids_surge", message, remedy, severity, place, nodes)


def _count(workload: objects.Workload, group: list[drain_policy.PodPlan]) -> int:
    """How many more pods of it there are at the same time."""
    if group[0].route == "surge":
        return len(group)
    return min(len(group), released.most_at_once(workload))


def _terminating(
    plans: list[drain_policy.PodPlan], terminating: t.Collection[str]
) -> t.Iterator[reasons.Finding]:
    for namespace in dict.fromkeys(
        plan.pod.namespace for plan in plans if plan.pod.namespace in terminating
    ):
        place = f"Namespace {namespace}"
        message = f"{place} is being deleted: no new pod and no guard can be created in it."
        nodes = _nodes(plan for plan in plans if plan.pod.namespace == namespace)
        yield reasons.Finding(
            "namespace_terminating", message, "Wait until it is gone.", "blocker", place, nodes
        )


def _in(raws: t.Iterable[objects.Raw], namespace: str) -> list[objects.Raw]:
    return [found for found in raws if found["metadata"].get("namespace") == namespace]


def _nodes(plans: t.Iterable[drain_policy.PodPlan]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(plan.pod.node for plan in plans))
