# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``pdb_guard``: a floor under the pods that will be evicted, and a surge for those that need it.

``present`` prepares: an extra pod for each one that leaves by a surge, which serves before the
call ends, and a budget of ours for pods that have none. Ending the surges is the drain's work.
``absent`` undoes all of it from whatever state it is in. Where there is nothing to do,
no lock is taken and nothing is written.
"""

from __future__ import annotations

import contextlib
import functools
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    related,
    run_context,
    run_reconcile,
    run_targeted_reads,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import dispositions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    pod_rules,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    guard_budgets,
    node_records,
    surge_records,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import (
    run_guard_budgets,
    run_guard_call,
    run_raise,
    run_releases,
    steps,
)

PREPARED = (
    outcomes.WorkloadOutcome.RAISED,
    outcomes.WorkloadOutcome.GUARDED,
    outcomes.WorkloadOutcome.ENDED,
    outcomes.WorkloadOutcome.INTERRUPTION_ALLOWED,
)
"""Outcomes of workloads for which this call did something."""
BAD_SURGE = outcomes.WorkloadOutcome.BAD_SURGE
REMEDY = "Once that is over, run recover -e recover_state=undone."


Meanwhile = t.Callable[
    [run_context.Context, t.Sequence[str], run_guard_call.SurgeTurns],
    None,
]
"""Works on these nodes while their surges come to serve, and takes the turns of these."""


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """Options of the module; times in seconds, ``None`` without a limit.

    ``meanwhile`` is called once all guards are in place and all surges begun, if some are still to
    serve.
    """

    state: t.Literal["present", "absent"]
    nodes: tuple[str, ...]
    allow_interruption: bool = False
    node_autoscaler: bool = False
    method: str = "surge"
    reactive_budgets: tuple[str, ...] = ()
    rules: tuple[pod_rules.Rule, ...] = ()
    settle: float = 2.0
    timeout: float | None = 600.0
    meanwhile: Meanwhile | None = None

    @property
    def choices(self) -> drain_policy.DrainPolicy:
        """What the call may do to pods, as if the data of emptyDirs could be deleted.

        What is refused in the end stops the run before any pod is moved; the plan reports that.
        """
        return drain_policy.DrainPolicy(
            delete_emptydir_data=True,
            allow_interruption=self.allow_interruption,
            method=self.method,
            reactive_budgets=self.reactive_budgets,
            rules=self.rules,
        )


def guard(ctx: run_context.Context, options: GuardOptions) -> run_context.Result:
    """Protect the nodes' pods, or undo that; each node has its own outcome."""
    work = run_guard_call.GuardCall(
        ctx, {name: run_guard_call.GuardedNode(name) for name in dict.fromkeys(options.nodes)}, {}
    )
    try:
        work.read("leases", nodes=run_targeted_reads.all_nodes(ctx))
        work.narrow()
        for guarded_node in work.guarded_nodes.values():
            _read_record(work, guarded_node, present=options.state == "present")
        if options.state == "present":
            _present(work, options)
        else:
            _absent(work)
    except (run_context.CallAborted, errors.ClusterError) as error:
        work.stop(work.nodes, error)
    failed = [
        guarded_node.message for guarded_node in work.guarded_nodes.values() if guarded_node.failed
    ]
    return run_context.Result(
        {
            "nodes": [guarded_node.to_dict() for guarded_node in work.guarded_nodes.values()],
            "workloads": work.workloads,
            "findings": [finding.to_dict() for finding in work.findings],
            **(work.services.result() if work.services.watched else {}),
        },
        failed=bool(failed),
        message="; ".join(dict.fromkeys(failed)),
    )


def _read_record(
    work: run_guard_call.GuardCall, guarded_node: run_guard_call.GuardedNode, *, present: bool
) -> None:
    node = work.snapshot.nodes.get(guarded_node.name)
    if node is None:
        if present:
            guarded_node.outcome = outcomes.GuardOutcome.GONE
            guarded_node.message = f"Node {guarded_node.name} does not exist."
        return
    guarded_node.record, why = run_guard_call.claim(work.ctx, node)
    if why and (present or why.code != "not_in_maintenance"):
        guarded_node.close(outcomes.GuardOutcome(why.code), why.message)


def _present(work: run_guard_call.GuardCall, options: GuardOptions) -> None:
    work.read("pods")
    pods = work.snapshot.pods_on(work.nodes)
    run_guard_call.around(work, pods, options.choices)
    groups: dict[str, list[str]] = {}
    for name in work.nodes:
        groups.setdefault(str(work.identity([name])), []).append(name)
    if len(groups) > 1:
        # The nodes of the others are not protected yet.
        options = replace(options, meanwhile=None)
    for nodes in groups.values():
        try:
            _protect(work, options, nodes)
        except (run_context.CallAborted, errors.ClusterError) as error:
            work.stop(nodes, error)
    for name in work.nodes:
        done = any(name in w["nodes"] and w["outcome"] in PREPARED for w in work.workloads)
        guarded_node = work.guarded_nodes[name]
        guarded_node.outcome = (
            outcomes.GuardOutcome.PROTECTED if done else outcomes.GuardOutcome.ALREADY_PROTECTED
        )
        guarded_node.message = f"The pods of node {name} are protected."
        if guarded_node.record is None:
            guarded_node.message = f"{guarded_node.message} {node_records.presumed(name)}"


def _protect(work: run_guard_call.GuardCall, options: GuardOptions, nodes: list[str]) -> None:
    ctx = work.ctx
    wave = _Wave(work, options, nodes)
    if ctx.check:
        wave.predict()
        return
    if wave.todo:
        try:
            locked = work.lock(nodes)
            if locked != nodes:
                # For fewer nodes other pods need a surge; nothing was written yet.
                wave = _Wave(work, options, locked)
            if wave.todo:
                wave.work()
        finally:
            work.unlock()
    wave.close()


class _Wave:
    """The surges and guards that nodes of one run need, by the first snapshot."""

    def __init__(
        self, call: run_guard_call.GuardCall, options: GuardOptions, nodes: list[str]
    ) -> None:
        self.call = call
        self.options = options
        self.nodes = nodes
        self.me = call.identity(nodes)
        seen = call.snapshot
        self.wanted = self.plan(seen)
        self.recorded = {surge.uid: surge for surge in surge_records.surges_in(seen)}
        self.ready = [old for uid, new in self.wanted.items() if (old := self._is_ready(uid, new))]
        done = {surge.uid for surge in self.ready}
        todo = [surge for uid, surge in self.wanted.items() if uid not in done]
        self.cases = [run_raise.WorkloadSurge(surge.workload, surge.node, "plan") for surge in todo]
        plans = self._routes(seen, nodes)
        self.guards = run_guard_budgets.GuardBudgets(
            call.ctx, guard_budgets.guards(seen, plans), call.prove_locks
        )
        self.refused = [plan for plan in plans if plan.code == BAD_SURGE]

    @property
    def todo(self) -> bool:
        return bool(self.cases) or self.guards.todo

    def plan(self, seen: snapshots.Snapshot) -> dict[str, surge_records.Surge]:
        """The surges that are wanted now, by the UID of the workload;
        nodes that were lost since need none.
        """
        ctx = self.call.ctx
        lost = self.call.locks.lost()
        plans = self._routes(seen, [name for name in self.nodes if name not in lost])
        found = steps.surges(seen, plans, run=self.me.id, by=ctx.by, since=ctx.clock.server())
        return {surge.uid: surge for surge in found}

    def _routes(
        self, seen: snapshots.Snapshot, nodes: t.Collection[str]
    ) -> tuple[drain_policy.PodPlan, ...]:
        return dispositions.routes(
            seen, nodes, self.options.choices, now=self.call.ctx.clock.server()
        )

    def _is_ready(self, uid: str, wanted: surge_records.Surge) -> surge_records.Surge | None:
        """The recorded surge, if an earlier call of this run made it ready and nobody undid it."""
        old = self.recorded.get(uid)
        if old is None or old.run != self.me.id or old.stage != "ready":
            return None
        fits = wanted.pod_uid == old.pod_uid and steps.raised(self.call.snapshot, old)
        return old if fits else None

    def work(self) -> None:
        """Raise the surges and write the guards, until all are decided or time is up."""
        call, ctx = self.call, self.call.ctx
        call.prior.update({uid: surge.prior_replicas for uid, surge in self.wanted.items()})
        recorded = [old for uid, old in self.recorded.items() if uid in self.wanted]
        surges = [*self.wanted.values(), *recorded] if self.cases else []
        watched = ["pods"]
        if self.cases:
            call.read("selecting_services")
            watched.append("slices")
        if self.guards.budgets:
            watched.append("budgets")
        surging = run_raise.Surging(
            ctx,
            self.me,
            self.options.settle,
            planner=self.plan,
            prove_locks=call.prove_locks,
            leaving=self.nodes,
            cases=self.cases,
            allow_interruption=self.options.allow_interruption,
            node_autoscaler=self.options.node_autoscaler,
        )
        turns = run_guard_call.SurgeTurns(call, surging, self.guards, self.options.timeout)
        meanwhile = self.options.meanwhile
        with contextlib.closing(surging):
            with run_guard_call.watching(call, surges, *watched) as live:
                turns.run(live, begin=meanwhile is not None)
            if meanwhile is None or surging.done:
                return
            # From here on the drain decides what becomes of the guards.
            turns.guards = run_guard_budgets.GuardBudgets(ctx, (), call.prove_locks)
            failed = self._failed()
            meanwhile(ctx, [name for name in self.nodes if name not in failed], turns)
            if not surging.done:
                with run_guard_call.watching(call, surges, "pods", "slices") as live:
                    turns.run(live)

    def _failed(self) -> set[str]:
        """The nodes whose pods are not to be moved, by what is known so far."""
        failed = {case.node for case in self.cases if case.failed}
        failed |= {plan.pod.node for plan in self.refused}
        failed |= self.call.locks.lost().keys()
        for guard_budget in self.guards.budgets:
            if guard_budget.outcome and guard_budget.outcome.failed:
                failed |= set(guard_budget.guard.nodes)
        return failed

    def close(self) -> None:
        """Add the outcome of every workload to the result."""
        for surge in self.ready:
            self.call.show_surge(surge, outcomes.WorkloadOutcome.ALREADY_RAISED)
        for guard_budget in self.guards.budgets:
            self.call.show_guard(guard_budget)
        for case in self.cases:
            _close_present(self.call, case, self.wanted[case.workload.uid])
        for plan in self.refused:
            self.call.fail([plan.pod.node], BAD_SURGE, str(plan.workload), plan.reason, plan.remedy)

    def predict(self) -> None:
        """Check mode: what a real call would change, in its order."""
        call = self.call
        for guard_budget in self.guards.budgets:
            if guard_budget.guard.change and not guard_budget.guard.instead:
                call.ctx.changed(guard_budget.guard.change)
                guard_budget.written = True
            call.show_guard(guard_budget)
        for case in self.cases:
            surge = self.wanted[case.workload.uid]
            old = self.recorded.get(case.workload.uid)
            if old and old.run == self.me.id and surge.pod_uid == old.pod_uid:
                surge = old
            else:
                call.ctx.changed(surge.writing(str(self.me), call.ctx.clock.wall()))
            for change in steps.raising(call.snapshot, surge):
                call.ctx.changed(change)
            call.show_surge(surge, outcomes.WorkloadOutcome.RAISED)
        for surge in self.ready:
            call.show_surge(surge, outcomes.WorkloadOutcome.ALREADY_RAISED)


def _close_present(
    work: run_guard_call.GuardCall, case: run_raise.WorkloadSurge, wanted: surge_records.Surge
) -> None:
    outcome = t.cast("outcomes.WorkloadOutcome", case.outcome)
    message = case.message
    if case.open:
        outcome = outcomes.WorkloadOutcome.NOT_GIVEN_BACK
        message = f"{case.message} Its surge could not be undone in time: {case.waiting}"
    work.show_surge(case.surge or wanted, outcome, message)
    if case.open or case.failed:
        work.fail([wanted.node], outcome, str(case.workload), message, case.remedy)


def _absent(work: run_guard_call.GuardCall) -> None:
    """Undo what serves the nodes, and what serves nodes that no longer exist."""
    ctx = work.ctx
    run_guard_call.absent(work)
    _report_unreadable(work)
    nodes = frozenset(work.nodes)
    surges = run_guard_call.surges(work, nodes)
    budgets = guard_budgets.serving(work.snapshot, nodes)
    let_go = run_releases.found(work)
    if surges:
        work.read(*related.surged(surge.kind for surge in surges))
    if budgets:
        work.read("deployments", "replica_sets", "stateful_sets")
    if ctx.check:
        for budget in budgets:
            ctx.changed(_unguarding(work, budget, nodes))
            work.show_unguarded(budget, guard_budgets.nodes_of(budget))
        for surge in surges:
            _predict_absent(work, surge)
        run_releases.give_back(work, let_go)
    elif surges or budgets or let_go:
        try:
            locked = frozenset(work.lock(sorted(nodes)))
            run_releases.give_back(work, [pod for pod in let_go if pod.node in locked])
            _give_back(work, locked, run_guard_call.surges(work, locked))
        finally:
            work.unlock()
    _close_nodes(work)


def _close_nodes(work: run_guard_call.GuardCall) -> None:
    for name in work.nodes:
        guarded_node = work.guarded_nodes[name]
        guarded_node.message = f"Nothing protects the pods on node {name} any more."
        if any(name in line["nodes"] for line in work.workloads):
            guarded_node.outcome = outcomes.GuardOutcome.GIVEN_BACK
            guarded_node.message = f"The protection of the pods on node {name} was undone."
        elif guarded_node.record is None:
            guarded_node.outcome = outcomes.GuardOutcome.NOT_IN_MAINTENANCE_ANY_MORE
        else:
            guarded_node.outcome = outcomes.GuardOutcome.ALREADY_GIVEN_BACK


def _report_unreadable(work: run_guard_call.GuardCall) -> None:
    """Surges whose records cannot be read, so nothing of them is undone."""
    for uid, error in surge_records.unreadable(work.snapshot).items():
        lease = f"Lease {names.NAMESPACE}/{names.surge_name(uid)}"
        if error.node in work.nodes:
            work.fail([error.node], outcomes.WorkloadOutcome.NOT_GIVEN_BACK, lease, str(error), "")
        else:
            work.findings.append(reasons.Finding("bad_surge", str(error), "", "warning", lease))


def _predict_absent(work: run_guard_call.GuardCall, surge: surge_records.Surge) -> None:
    step = steps.giving_back(work.snapshot, surge)
    for change in (*step.changes, surge.forgetting()):
        work.ctx.changed(change)
    work.show_surge(surge, outcomes.WorkloadOutcome.GIVEN_BACK, "; ".join(step.kept))


def _give_back(
    work: run_guard_call.GuardCall, nodes: frozenset[str], surges: list[surge_records.Surge]
) -> None:
    ctx = work.ctx
    me = work.identity(sorted(nodes))
    cases = [run_raise.WorkloadSurge(one.workload, one.node, "undo", surge=one) for one in surges]
    for budget in guard_budgets.serving(work.snapshot, nodes):
        _remove_guard(work, budget, nodes)
    if not cases:
        return
    surging = run_raise.Surging(
        ctx,
        me,
        0.0,
        planner=lambda seen: {},
        prove_locks=work.prove_locks,
        leaving=nodes,
        cases=cases,
    )
    no_guards = run_guard_budgets.GuardBudgets(ctx, (), work.prove_locks)
    turns = run_guard_call.SurgeTurns(work, surging, no_guards, run_guard_call.UNDO_SECONDS)
    with (
        run_guard_call.watching(work, surges, "pods") as live,
        contextlib.closing(surging),
    ):
        turns.run(live)
    for case, surge in zip(cases, surges, strict=True):
        _close_absent(work, case, surge)


def _unguarding(
    work: run_guard_call.GuardCall, budget: objects.Budget, nodes: frozenset[str]
) -> api_changes.Change:
    """The change of one of ``guard_budgets.serving``."""
    return t.cast("api_changes.Change", guard_budgets.unguard(work.snapshot, budget, nodes))


def _remove_guard(
    work: run_guard_call.GuardCall, budget: objects.Budget, nodes: frozenset[str]
) -> None:
    """Take the nodes off one guard; a failure is that of its own nodes only."""

    def decide(found: objects.Raw | None) -> api_changes.Change | None:
        return (
            guard_budgets.unguard(work.snapshot, objects.Budget.of(found), nodes) if found else None
        )

    serves = guard_budgets.nodes_of(budget)
    here = [name for name in serves if name in nodes]
    first = run_reconcile.at_first(_unguarding(work, budget, nodes), decide)
    try:
        run_reconcile.reconcile(
            work.ctx,
            budget.ref,
            first,
            known=None,
            prove_lock=functools.partial(work.prove_locks, here),
        )
    except (run_context.CallAborted, errors.ClusterError) as error:
        outcome = outcomes.WorkloadOutcome.NOT_GIVEN_BACK
        message = f"{budget.ref} could not be removed: {error}"
        work.fail(here, outcome, str(budget.ref), message, REMEDY)
    else:
        work.show_unguarded(budget, serves)


def _close_absent(
    work: run_guard_call.GuardCall, case: run_raise.WorkloadSurge, surge: surge_records.Surge
) -> None:
    failed = case.open or case.failed
    if failed:
        outcome = outcomes.WorkloadOutcome.NOT_GIVEN_BACK
    elif case.kept:
        outcome = outcomes.WorkloadOutcome.KEPT
    else:
        outcome = t.cast("outcomes.WorkloadOutcome", case.outcome)
    message = case.waiting if case.open else "; ".join(case.kept) or case.message
    work.show_surge(surge, outcome, message)
    if failed:
        text = f"The surge of {case.workload} is still there: {message}"
        work.fail([surge.node], outcome, str(case.workload), text, case.remedy or REMEDY)
