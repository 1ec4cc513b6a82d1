# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``pdb_guard`` with ``state: absent``: what protected the pods of nodes is given back, from wherever it is."""

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


def absent(work: guard_work.Work) -> None:
    """Give back what serves the nodes, and what serves nodes that no longer exist."""
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
        site, did = work.sites[name], any(name in w["nodes"] for w in work.workloads)
        if did:
            site.outcome = outcomes.GuardOutcome.GIVEN_BACK
            site.message = f"What protected the pods of node {name} is given back."
        else:
            ours = site.record is not None
            site.outcome = (
                outcomes.GuardOutcome.ALREADY_GIVEN_BACK if ours else outcomes.GuardOutcome.NOT_IN_MAINTENANCE_ANY_MORE
            )
            site.message = f"Nothing protects the pods of node {name} any more."


def _surges(work: guard_work.Work, nodes: frozenset[str]) -> list[surge_records.Surge]:
    found = list(surge_records.surges_for(work.snapshot, nodes))
    return found + [
        one
        for one in surge_records.surges_in(work.snapshot)
        if one not in found and surge_records.orphaned(work.snapshot, one)
    ]


def _staying(work: guard_work.Work, surge: surge_records.Surge, nodes: t.Collection[str]) -> frozenset[str]:
    """The nodes that still need the surge: they are not given back, and their record is of its run."""
    found = (work.snapshot.nodes.get(name) for name in surge.nodes if name not in nodes)
    return frozenset(node.name for node in found if node and _needs(node, surge))


def _needs(node: objects.Node, surge: surge_records.Surge) -> bool:
    try:
        record = node_records.record_of(node)
    except node_records.BadRecordError:
        # Nobody may guess what it meant.
        return True
    return record is not None and record.run == surge.run


def _predict(work: guard_work.Work, surge: surge_records.Surge, nodes: t.Collection[str]) -> None:
    staying = _staying(work, surge, nodes)
    shrunk = swap.shrunk(work.snapshot, surge, staying)
    if staying and shrunk.leaving:
        for change in swap.shrinking(work.snapshot, surge, shrunk):
            work.ctx.changed(change)
        work.show_surge(surge, outcomes.WorkloadOutcome.GIVEN_BACK_IN_PART)
        return
    changes, kept = swap.whole_undo(work.snapshot, surge)
    for change in changes:
        work.ctx.changed(change)
    work.show_surge(surge, outcomes.WorkloadOutcome.GIVEN_BACK, "; ".join(kept))


def _give_back(work: guard_work.Work, nodes: frozenset[str], surges: list[surge_records.Surge]) -> None:
    ctx, me = work.ctx, work.identity(sorted(nodes))
    cases = [surge_case.Case(surge.workload, tuple(surge.nodes), "undo", surge) for surge in surges]
    for case, surge in zip(cases, surges, strict=True):
        staying = _staying(work, surge, nodes)
        shrunk = swap.shrunk(work.snapshot, surge, staying)
        if staying and shrunk.leaving:
            case.shrunk = shrunk
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
    """Take the nodes off one guard; what cannot be taken off stands against its own nodes only."""

    def decide(found: objects.Raw | None) -> api_changes.Change | None:
        return guards.unguard(work.snapshot, objects.Budget.of(found), nodes) if found else None

    serves = guards.nodes_of(budget)
    here = [name for name in serves if name in nodes]
    change = t.cast("api_changes.Change", guards.unguard(work.snapshot, budget, nodes))
    try:
        writing.write(
            work.ctx,
            budget.ref,
            writing.at_first(change, decide),
            known=None,
            fence=functools.partial(work.fence, here),
        )
    except (context.StopRun, errors.ClusterError) as error:
        message = f"{budget.ref} could not be given back: {error}"
        work.fail(
            here,
            outcomes.WorkloadOutcome.NOT_GIVEN_BACK,
            str(budget.ref),
            message,
            "Later: recover -e recover_state=undone.",
        )
        return
    work.show_unguarded(budget, serves)


def _close(work: guard_work.Work, case: surge_case.Case, surge: surge_records.Surge) -> None:
    failed = case.open or case.failed
    ended = outcomes.WorkloadOutcome.KEPT if case.kept else t.cast("outcomes.WorkloadOutcome", case.outcome)
    outcome = outcomes.WorkloadOutcome.NOT_GIVEN_BACK if failed else ended
    message = case.waiting if case.open else "; ".join(case.kept) or case.message
    work.show_surge(surge, outcome, message)
    if failed:
        text = f"the surge of {case.workload} is still there: {message}"
        work.fail(
            surge.nodes,
            outcome,
            str(case.workload),
            text,
            case.remedy or "Once that is over: recover -e recover_state=undone.",
        )
