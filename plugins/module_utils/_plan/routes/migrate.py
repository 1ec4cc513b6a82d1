# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Gives every pod on the leaving nodes its route, with the reason."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    objects,
    pod_plan,
    selectors,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import (
    cases,
    dead,
    job_route,
    replacing,
    rules,
    tolerant,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import surge_records


def routes(
    snapshot: snapshots.Snapshot,
    nodes: t.Collection[str],
    choices: pod_plan.Choices,
    *,
    now: str = "",
    known: frozenset[str] | None = None,
    only: t.Container[str] | None = None,
    unreplaced: t.Mapping[str, str] | None = None,
) -> tuple[pod_plan.PodPlan, ...]:
    """Every pod on the nodes with its route; of ``only`` these, by UID.

    ``now`` (RFC 3339, UTC, the API server's clock) tells which pods are past their grace period. ``known`` are the
    UIDs of the pods that were there when the drain began; ``None``: it begins now. ``unreplaced``: why no replacement
    of pods of these workloads came to serve, by their UIDs. The snapshot needs nodes, pods, budgets, leases and the
    kinds of the pods' controllers; claims and volumes if ``volumes.claimants`` says so, others if ``replacing.kinds``.

    Raises:
        ValueError: ``pod_selector`` is not a label selector.
    """
    context = cases.RoutingContext(
        snapshot,
        choices,
        frozenset(nodes),
        now,
        selectors.parse(choices.pod_selector),
        {s.uid: s for s in surge_records.surges_in(snapshot)},
        surge_records.unreadable(snapshot),
        known,
        unreplaced or {},
    )
    pods = snapshot.pods_on(context.leaving)
    return tuple(_plan(cases.Case(context, pod)) for pod in pods if only is None or pod.uid in only)


def left_to_move(
    snapshot: snapshots.Snapshot, nodes: t.Collection[str], choices: pod_plan.Choices
) -> tuple[objects.Pod, ...]:
    """The pods because of which the nodes are not drained.

    These include pods that were not selected, but no pods that tolerate the maintenance and would come back.
    """
    plans = routes(snapshot, nodes, choices)
    return tuple(p.pod for p in plans if p.code == "not_selected" or (p.route != "skip" and not p.tolerant))


def _plan(case: cases.Case) -> pod_plan.PodPlan:
    plan = next(found for found in (rule(case) for rule in rules.RULES) if found)
    if case.pod.node in case.choices.fenced and dead.lost(case.context.snapshot.nodes.get(case.pod.node)):
        return dead.fenced(plan)
    if case.bad_surge and plan.route in ("swap", "replace", "evict"):
        return case.to("refuse", "bad_surge", str(case.bad_surge))
    if plan.code in tolerant.SETTLED:
        return plan
    return job_route.by_job(case, replacing.rerouted(case, tolerant.rerouted(case, plan)))
