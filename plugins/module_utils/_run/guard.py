# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``pdb_guard``: a floor under the pods that will be evicted, and a surge for those that will be swapped.

``present`` prepares: one more pod for every one that leaves by a swap, serving before the call ends,
and a budget of ours for pods that have none. Ending the swaps is the drain's work. ``absent`` gives
everything back from wherever it is. With nothing to do no lock is taken and nothing is written.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import AlreadyExists
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import guards, migrate, swap, volumes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.case import Choices
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.record import record_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.snapshot import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.surge import (
    Surge,
    orphaned,
    surges_for,
    surges_in,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run import owners
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, Result, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.guard_work import (
    TICK,
    UNDO_WITHIN,
    Site,
    Work,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.hands import Hands
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.observe import (
    Live,
    lists,
    owners_of,
    surged,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.surging import Case, Surging

SURGING = ("pods", "budgets", "slices", "leases")
"""What is watched while surges are raised or taken back, beside the workloads' own kinds."""
TRIES = 20
"""How often a guard is written that somebody else keeps writing at the same moment."""

FAILURES = frozenset({"not_in_maintenance", "adopted_by", "held", "gone", "blocked", "timed_out", "not_given_back"})
"""Outcomes of nodes with which the call has failed."""


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """Options of the module; times in seconds, ``None`` without a limit."""

    state: t.Literal["present", "absent"]
    nodes: tuple[str, ...]
    surge: bool = True
    swap_blocked: bool = False
    pin_budgets: bool = False
    reactive_budgets: tuple[str, ...] = ()
    settle: float = 2.0
    timeout: float | None = 600.0


def guard(ctx: Context, options: GuardOptions) -> Result:
    """Bring the nodes' pods under protection, or give it back.

    Raises:
        StopRun: something that concerns the whole call, such as a lock that was lost.
        BadRecordError: a node's record cannot be read.
        BadSurgeError: the record of a surge cannot be read.
        ClusterError: the API server cannot be reached or refuses to be read.
    """
    found = lists(ctx.cluster, ("nodes", "pods", "budgets", "leases"))
    work = Work(ctx, {name: Site(name) for name in dict.fromkeys(options.nodes)}, found)
    for site in work.sites.values():
        _read_record(work, site, present=options.state == "present")
    if options.state == "present":
        _present(work, options)
    else:
        _absent(work)
    failed = [site.message for site in work.sites.values() if site.outcome in FAILURES]
    shown = [{**site.shown(), "failed": site.outcome in FAILURES} for site in work.sites.values()]
    return Result(
        {"nodes": shown, "workloads": work.workloads, "findings": work.findings},
        failed=bool(failed),
        message="; ".join(failed),
    )


def _read_record(work: Work, site: Site, *, present: bool) -> None:
    node = work.snapshot.nodes.get(site.name)
    if node is None:
        if present:
            site.outcome, site.message = "gone", f"Node {site.name} does not exist."
        return
    site.record = record = record_of(node)
    if record is None:
        if present and not work.ctx.check:
            site.outcome = "not_in_maintenance"
            site.message = f"Node {site.name} carries no record: call node_cordon with state=cordoned first."
        return
    if record.foreign_to(*work.ctx.caller, check=work.ctx.check):
        site.outcome, site.message = "adopted_by", record.owner(site.name)


# -- present ------------------------------------------------------------------------------------------


def _present(work: Work, options: GuardOptions) -> None:
    pods = work.snapshot.pods_on(work.nodes)
    work.read(*owners_of(pods), *(("claims", "volumes") if volumes.claimants(pods) else ()))
    if any(pod.owner for pod in pods):
        work.read("autoscalers")
    work.add("scales", owners.scales(work.ctx, work.snapshot, pods))
    groups: dict[str, list[str]] = {}
    for name in work.nodes:
        groups.setdefault(str(work.identity([name])), []).append(name)
    for nodes in groups.values():
        _protect(work, options, nodes)
    for name in work.nodes:
        done = any(name in w["nodes"] and w["outcome"] in ("raised", "guarded", "ended") for w in work.workloads)
        site = work.sites[name]
        site.outcome = "protected" if done else "already_protected"
        site.message = f"The pods of node {name} are protected."


def _protect(work: Work, options: GuardOptions, nodes: list[str]) -> None:
    """Prepare all pods of nodes that belong to one run."""
    ctx, me = work.ctx, work.identity(nodes)

    def planner(seen: Snapshot) -> dict[str, Surge]:
        return _wanted(ctx, options, seen, nodes, me)

    wanted = planner(work.snapshot)
    recorded = {surge.uid: surge for surge in surges_in(work.snapshot)}
    cases = []
    for uid, surge in wanted.items():
        before = recorded.get(uid)
        if before and _is_ready(work.snapshot, before, surge, me):
            work.show_surge(before, "already_raised")
        else:
            cases.append(Case(surge.workload, tuple(surge.nodes), "plan"))
    todo = []
    for one in guards.guards(work.snapshot, _routes(ctx, options, work.snapshot, nodes)):
        if one.change and not ctx.check:
            todo.append(one)
        else:
            work.show_guard(one)
        if one.change and ctx.check:
            ctx.changed(one.change)
    if ctx.check:
        _predict(work, me, wanted, recorded, cases)
    elif (cases or todo) and work.lock(nodes):
        try:
            watched = (*SURGING, *surged(wanted.values())) if cases else ("budgets", "pods")
            with Live(ctx, watched) as live:
                live.seed(work.found)
                surging = Surging(ctx, me, options.settle, planner, work.fence, nodes, cases)
                for one in todo:
                    _make_guard(work, one, live)
                work.loop(surging, live, [one.budget for one in todo], options.timeout)
        finally:
            work.unlock()
        for one in todo:
            work.show_guard(one)
        for case in cases:
            _close_present(work, case, wanted[case.workload.uid])


def _routes(
    ctx: Context, options: GuardOptions, snapshot: Snapshot, nodes: t.Collection[str]
) -> tuple[migrate.PodPlan, ...]:
    """The pods' routes, as if everything the drain may be allowed later were allowed.

    What is refused in the end stops the run before any pod moves; that is the plan's to say.
    """
    choices = Choices(
        force=True,
        delete_emptydir_data=True,
        swap_blocked=options.swap_blocked,
        reactive_budgets=options.reactive_budgets,
    )
    return migrate.routes(snapshot, nodes, choices, now=ctx.clock.wall())


def _wanted(
    ctx: Context, options: GuardOptions, snapshot: Snapshot, nodes: t.Collection[str], me: Run
) -> dict[str, Surge]:
    if not options.surge:
        return {}
    plans = _routes(ctx, options, snapshot, nodes)
    pin = options.pin_budgets
    found = swap.surges(snapshot, plans, run=me.id, by=ctx.by, since=ctx.clock.wall(), pin=pin)
    return {surge.uid: surge for surge in found}


def _is_ready(snapshot: Snapshot, recorded: Surge, wanted: Surge, me: Run) -> bool:
    """Whether an earlier call of this run did it all, and nobody took it back."""
    if recorded.run != me.id or recorded.stage != "ready":
        return False
    return wanted.leaving.keys() <= recorded.leaving.keys() and swap.raised(snapshot, recorded)


def _predict(
    work: Work, me: Run, wanted: t.Mapping[str, Surge], recorded: t.Mapping[str, Surge], cases: list[Case]
) -> None:
    """Check mode: what a real call would change, in its order."""
    for case in cases:
        surge, old = wanted[case.workload.uid], recorded.get(case.workload.uid)
        if old and old.run == me.id and surge.leaving.keys() <= old.leaving.keys():
            surge = old
        else:
            work.ctx.changed(surge.writing(str(me), work.ctx.clock.wall()))
        for change in swap.raising(work.snapshot, surge):
            work.ctx.changed(change)
        work.show_surge(surge, "raised")


def _make_guard(work: Work, one: guards.Guard, live: Live) -> None:
    """Create the guard, or put our nodes on it; what somebody else wrote meanwhile is read again."""
    hands, change = Hands(work.ctx, work.fence), one.change
    for _try in range(TRIES):
        if change is None:
            return
        try:
            if hands.do([change]):
                where = {"namespace": one.workload.namespace, "name": one.workload.name}
                work.ctx.tell("guarded", change.sentence, node=one.nodes[0], **where)
                return
        except AlreadyExists:
            pass
        live.wait(TICK)
        change = guards.widened(live.snapshot(), one)


def _close_present(work: Work, case: Case, wanted: Surge) -> None:
    outcome, message = case.outcome, case.message
    if case.open:
        outcome = "not_given_back"
        message = f"{case.message}. Its surge could not be taken back in time: {case.waiting}"
    work.show_surge(case.surge or wanted, outcome, message)
    if not case.open and not case.failed:
        return
    work.find(outcome, str(case.workload), message, case.remedy)
    for name in wanted.nodes:
        site = work.sites[name]
        site.outcome = outcome if outcome in FAILURES else "blocked"
        text = f"Node {name}: {message} {case.remedy}".strip()
        site.message = f"{site.message}; {text}" if site.message else text


# -- absent -------------------------------------------------------------------------------------------


def _absent(work: Work) -> None:
    """Give back what serves the nodes, and what serves nodes that no longer exist."""
    nodes, ctx = frozenset(work.nodes), work.ctx
    surges = list(surges_for(work.snapshot, nodes))
    surges += [one for one in surges_in(work.snapshot) if one not in surges and orphaned(work.snapshot, one)]
    if surges:
        work.read(*surged(surges))
    changes = guards.unguards(work.snapshot, nodes)
    if changes:
        work.read("deployments", "replica_sets", "stateful_sets")
    for budget in guards.serving(work.snapshot, nodes):
        work.show_unguarded(budget, guards.nodes_of(budget))
    if ctx.check:
        for change in changes:
            ctx.changed(change)
        for surge in surges:
            _predict_absent(work, surge, nodes)
    elif surges or changes:
        _give_back(work, nodes, surges)
    for name in work.nodes:
        site, did = work.sites[name], any(name in w["nodes"] for w in work.workloads)
        if did:
            site.outcome, site.message = "given_back", f"What protected the pods of node {name} is given back."
        else:
            site.outcome = "already_given_back" if site.record else "not_in_maintenance_any_more"
            site.message = f"Nothing protects the pods of node {name} any more."


def _staying(work: Work, surge: Surge, nodes: t.Collection[str]) -> frozenset[str]:
    """The nodes that still need the surge: they are not given back, and their record is of its run."""
    found = {name: work.snapshot.nodes.get(name) for name in surge.nodes if name not in nodes}
    records = {name: record_of(node) for name, node in found.items() if node}
    return frozenset(name for name, record in records.items() if record and record.run == surge.run)


def _predict_absent(work: Work, surge: Surge, nodes: t.Collection[str]) -> None:
    staying = _staying(work, surge, nodes)
    shrunk = swap.shrunk(work.snapshot, surge, staying)
    if staying and shrunk.leaving:
        for change in swap.shrinking(work.snapshot, surge, shrunk):
            work.ctx.changed(change)
        work.show_surge(surge, "given_back_in_part")
        return
    changes, kept = swap.whole_undo(work.snapshot, surge)
    for change in changes:
        work.ctx.changed(change)
    work.show_surge(surge, "given_back", "; ".join(kept))


def _give_back(work: Work, nodes: frozenset[str], surges: list[Surge]) -> None:
    ctx, locked = work.ctx, [name for name in nodes if work.sites[name].record]
    me = work.identity(locked)
    if not work.lock(locked):
        return
    cases = [Case(surge.workload, tuple(surge.nodes), "undo", surge) for surge in surges]
    for case, surge in zip(cases, surges, strict=True):
        staying = _staying(work, surge, nodes)
        shrunk = swap.shrunk(work.snapshot, surge, staying)
        if staying and shrunk.leaving:
            case.shrunk = shrunk
    try:
        with Live(ctx, (*SURGING, *surged(surges)) if cases else ("budgets",)) as live:
            live.seed(work.found)
            _remove_guards(work, nodes, live)
            surging = Surging(ctx, me, 0.0, lambda seen: {}, work.fence, nodes, cases)
            work.loop(surging, live, (), UNDO_WITHIN)
    finally:
        work.unlock()
    for case, surge in zip(cases, surges, strict=True):
        _close_absent(work, case, surge)


def _remove_guards(work: Work, nodes: frozenset[str], live: Live) -> None:
    hands = Hands(work.ctx, work.fence)
    for _try in range(TRIES):
        if hands.do(guards.unguards(live.snapshot(), nodes)):
            return
        live.wait(TICK)
    for budget in guards.serving(live.snapshot(), nodes):
        text = f"{budget.ref} is written by somebody else all the time and could not be given back."
        work.find("not_given_back", str(budget.ref), text, "Run recover later.", "warning")


def _close_absent(work: Work, case: Case, surge: Surge) -> None:
    failed = case.open or case.failed
    outcome = "not_given_back" if failed else "kept" if case.kept else case.outcome
    message = case.waiting if case.open else "; ".join(case.kept) or case.message
    work.show_surge(surge, outcome, message)
    if not failed:
        return
    work.find(outcome, str(case.workload), message, case.remedy or "Run recover once that is over.")
    for name in surge.nodes:
        if name in work.sites:
            work.sites[name].outcome = outcome
            work.sites[name].message = f"Node {name}: the surge of {case.workload} is still there: {message}"
