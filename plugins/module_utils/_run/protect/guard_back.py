# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``pdb_guard`` with ``state: absent``: undo what protected the pods of nodes, from whatever state it is in."""

from __future__ import annotations

import contextlib
import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    names,
    node_records,
    objects,
    outcomes,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import guards, surge_records, swap
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, observe, writing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.protect import (
    guard_floors,
    guard_work,
    surge_case,
    surge_machine,
)

REMEDY = "Once that is over, run recover -e recover_state=undone."


def absent(work: guard_work.Work) -> None:
    """Undo what serves the nodes, and what serves nodes that no longer exist."""
    ctx = work.ctx
    for uid, error in surge_records.unreadable(work.snapshot).items():
        here, lease = error.nodes & frozenset(work.nodes), f"Lease {names.NAMESPACE}/{names.surge_name(uid)}"
        if here:
            work.fail(here, outcomes.WorkloadOutcome.NOT_GIVEN_BACK, lease, str(error), "")
        else:
            work.findings.append(reasons.Finding("bad_surge", str(error), "", "warning", lease))
    nodes = frozenset(work.nodes)
    surges, budgets = _surges(work, nodes), guards.serving(work.snapshot, nodes)
    if surges:
        work.read(*observe.surged(surges))
    if budgets:
        work.read("deployments", "replica_sets", "stateful_sets")
    if ctx.check:
        for change in guards.unguards(work.snapshot, nodes):
            ctx.changed(change)
        for budget in budgets:
            work.show_unguarded(budget, guards.nodes_of(budget))
        for surge in surges:
            _predict(work, surge, nodes)
    elif surges or budgets:
        try:
            locked = frozenset(work.lock(sorted(nodes)))
            _give_back(work, locked, _surges(work, locked))
        finally:
            work.unlock()
    for name in work.nodes:
        site = work.sites[name]
        if any(name in line["nodes"] for line in work.workloads):
            site.outcome = outcomes.GuardOutcome.GIVEN_BACK
            site.message = f"The protection of the pods on node {name} was undone."
            continue
        site.outcome = outcomes.GuardOutcome.ALREADY_GIVEN_BACK
        if site.record is None:
            site.outcome = outcomes.GuardOutcome.NOT_IN_MAINTENANCE_ANY_MORE
        site.message = f"Nothing protects the pods on node {name} any more."


def _surges(work: guard_work.Work, nodes: frozenset[str]) -> list[surge_records.Surge]:
    found = list(surge_records.surges_for(work.snapshot, nodes))
    return found + [
        one
        for one in surge_records.surges_in(work.snapshot)
        if one not in found and surge_records.orphaned(work.snapshot, one)
    ]


def _staying(work: guard_work.Work, surge: surge_records.Surge, nodes: t.Collection[str]) -> frozenset[str]:
    """The surge's other nodes that still need it, by their records."""
    found = (work.snapshot.nodes.get(name) for name in surge.nodes if name not in nodes)
    return frozenset(node.name for node in found if node and _needs(node, surge))


def _needs(node: objects.Node, surge: surge_records.Surge) -> bool:
    try:
        record = node_records.record_of(node)
    except node_records.BadRecordError:
        # Nobody may guess what it meant.
        return True
    return record is not None and record.run == surge.run


def _shrunk(work: guard_work.Work, surge: surge_records.Surge, nodes: t.Collection[str]) -> surge_records.Surge | None:
    """What is left of the surge where other nodes than these still need it, else ``None``."""
    staying = _staying(work, surge, nodes)
    shrunk = swap.shrunk(work.snapshot, surge, staying)
    return shrunk if staying and shrunk.leaving else None


def _predict(work: guard_work.Work, surge: surge_records.Surge, nodes: t.Collection[str]) -> None:
    outcome, kept = outcomes.WorkloadOutcome.GIVEN_BACK, tuple[str, ...]()
    if shrunk := _shrunk(work, surge, nodes):
        outcome, changes = outcomes.WorkloadOutcome.GIVEN_BACK_IN_PART, swap.shrinking(work.snapshot, surge, shrunk)
    else:
        changes, kept = swap.whole_undo(work.snapshot, surge)
    for change in changes:
        work.ctx.changed(change)
    work.show_surge(surge, outcome, "; ".join(kept))


def _give_back(work: guard_work.Work, nodes: frozenset[str], surges: list[surge_records.Surge]) -> None:
    ctx, me = work.ctx, work.identity(sorted(nodes))
    cases = [
        surge_case.Case(one.workload, tuple(one.nodes), "undo", surge=one, shrunk=_shrunk(work, one, nodes))
        for one in surges
    ]
    for budget in guards.serving(work.snapshot, nodes):
        _remove_guard(work, budget, nodes)
    if not cases:
        return
    surging = surge_machine.Surging(ctx, me, 0.0, lambda seen: {}, work.fence, nodes, cases)
    with observe.Live(ctx, (*guard_work.SURGING, *observe.surged(surges))) as live, contextlib.closing(surging):
        live.seed(work.found)
        work.loop(surging, guard_floors.Floors(ctx, (), work.fence), live, guard_work.UNDO_WITHIN)
    for case, surge in zip(cases, surges, strict=True):
        _close(work, case, surge)


def _remove_guard(work: guard_work.Work, budget: objects.Budget, nodes: frozenset[str]) -> None:
    """Take the nodes off one guard; a failure is that of its own nodes only."""

    def decide(found: objects.Raw | None) -> api_changes.Change | None:
        return guards.unguard(work.snapshot, objects.Budget.of(found), nodes) if found else None

    serves = guards.nodes_of(budget)
    here = [name for name in serves if name in nodes]
    first = writing.at_first(t.cast("api_changes.Change", guards.unguard(work.snapshot, budget, nodes)), decide)
    try:
        writing.write(work.ctx, budget.ref, first, known=None, fence=functools.partial(work.fence, here))
    except (context.StopRun, errors.ClusterError) as error:
        outcome, message = outcomes.WorkloadOutcome.NOT_GIVEN_BACK, f"{budget.ref} could not be removed: {error}"
        work.fail(here, outcome, str(budget.ref), message, REMEDY)
    else:
        work.show_unguarded(budget, serves)


def _close(work: guard_work.Work, case: surge_case.Case, surge: surge_records.Surge) -> None:
    failed = case.open or case.failed
    ended = outcomes.WorkloadOutcome.KEPT if case.kept else t.cast("outcomes.WorkloadOutcome", case.outcome)
    outcome = outcomes.WorkloadOutcome.NOT_GIVEN_BACK if failed else ended
    message = case.waiting if case.open else "; ".join(case.kept) or case.message
    work.show_surge(surge, outcome, message)
    if failed:
        text = f"The surge of {case.workload} is still there: {message}"
        work.fail(surge.nodes, outcome, str(case.workload), text, case.remedy or REMEDY)
