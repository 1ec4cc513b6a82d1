# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The one table that gives every pod on the leaving nodes its route, and says why."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.pod_plan import Choices, PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import dead
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes.cases import Case, Table
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes.rules import (
    RULES,
    SETTLED,
    tolerant,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes.way import by_job
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap.surge_records import (
    surges_in,
    unreadable,
)


def routes(
    snapshot: Snapshot,
    nodes: t.Collection[str],
    choices: Choices,
    *,
    now: str = "",
    known: frozenset[str] | None = None,
) -> tuple[PodPlan, ...]:
    """Every pod on the nodes with its route.

    ``now`` (RFC 3339, UTC, by the API server's clock) tells who is past its grace. ``known`` are the UIDs of the
    pods that were there when the nodes began to be emptied; ``None`` says that this is the beginning.

    The snapshot needs nodes, pods, budgets, leases and the kinds of the pods' controllers; claims and
    volumes where ``volumes.claimants`` says so.

    Raises:
        ValueError: ``pod_selector`` is no label selector.
    """
    table = Table(
        snapshot,
        choices,
        frozenset(nodes),
        now,
        selectors.parse(choices.pod_selector),
        {s.uid: s for s in surges_in(snapshot)},
        unreadable(snapshot),
        known,
    )
    return tuple(_plan(Case(table, pod)) for pod in snapshot.pods_on(table.leaving))


def left_to_move(snapshot: Snapshot, nodes: t.Collection[str], choices: Choices) -> tuple[Pod, ...]:
    """The pods that keep the nodes from being called drained.

    Those that were filtered out are among them: nobody looked at what happens to them. Those that
    tolerate the maintenance are not: they come back whatever is done.
    """
    plans = routes(snapshot, nodes, choices)
    return tuple(p.pod for p in plans if p.code == "not_selected" or (p.route != "skip" and not p.tolerant))


def _plan(case: Case) -> PodPlan:
    plan = next(found for found in (rule(case) for rule in RULES) if found)
    if case.pod.node in case.choices.fenced and dead.lost(case.table.snapshot.nodes.get(case.pod.node)):
        return dead.fenced(plan)
    if case.bad_surge and plan.route in ("swap", "evict"):
        return case.to("refuse", "bad_surge", f"{case.bad_surge}")
    return plan if plan.code in SETTLED else by_job(case, tolerant(case, plan))
