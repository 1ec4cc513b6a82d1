# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What both states of ``pdb_guard`` share: the snapshot, the locks, the loop and the result."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    objects,
    related,
    run_context,
    run_listing,
    run_object_events,
    run_owners,
    run_services,
    run_targeted_reads,
    run_watch_cache,
    scopes,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    devices,
    replacement,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    guard_budgets,
    node_records,
    run_locks,
    surge_records,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import (
    run_guard_budgets,
    run_raise,
)

LOOP_PAUSE_SECONDS = 0.5
"""Longest pause of the loop; every change in the cluster ends it early."""
SECONDS_BETWEEN_LINES = 1.0
"""Least seconds between two lines about one workload, whose controllers pass through
many states meanwhile.
"""
UNDO_SECONDS = 60.0
"""Seconds for undoing surges after the call's own time is up."""

OF_OTHERS = ("leases", "budgets")
"""What is watched, too, while surges of others are waited for, or a surge is planned anew."""

RAISED = frozenset({outcomes.WorkloadOutcome.RAISED, outcomes.WorkloadOutcome.ALREADY_RAISED})
"""Outcomes of workloads that run extra replicas now."""
FAILS_NODE = {
    outcomes.WorkloadOutcome.TIMED_OUT: outcomes.GuardOutcome.TIMED_OUT,
    outcomes.WorkloadOutcome.NOT_GIVEN_BACK: outcomes.GuardOutcome.NOT_GIVEN_BACK,
}
"""The outcome of a node by that of a workload that failed; any other failure blocks the node."""


@dataclass
class GuardedNode:
    """One node of the call."""

    name: str
    record: node_records.Record | None = None
    outcome: outcomes.GuardOutcome | None = None
    message: str = ""

    @property
    def open(self) -> bool:
        return self.outcome is None

    @property
    def failed(self) -> bool:
        return self.outcome is not None and self.outcome.failed

    def close(self, outcome: outcomes.GuardOutcome, message: str) -> None:
        """Decide the outcome. The first one stays; later ones only add to the message."""
        self.outcome = self.outcome or outcome
        if message not in self.message:
            self.message = f"{self.message}; {message}" if self.message else message

    def to_dict(self) -> dict[str, t.Any]:
        outcome = outcomes.word_of(self.outcome)
        return {
            "name": self.name,
            "outcome": outcome,
            "message": self.message,
            "failed": self.failed,
        }


def claim(
    ctx: run_context.Context, node: objects.Node
) -> tuple[node_records.Record | None, reasons.Reason | None]:
    """The node's record, and why not to act on it: ``bad_record``,
    ``not_in_maintenance`` or ``adopted_by``.
    """
    try:
        record = node_records.record_of(node)
    except node_records.BadRecordError as error:
        return None, reasons.Reason("bad_record", str(error))
    if record is None and not ctx.check:
        message = f"Node {node.name} carries no record: call node_cordon with state=cordoned first."
        return None, reasons.Reason("not_in_maintenance", message)
    if record and record.foreign_to(*ctx.caller, check=ctx.check):
        return record, reasons.Reason("adopted_by", record.owner(node.name))
    return record, None


@dataclass
class GuardCall:
    """One call of ``pdb_guard``: its nodes, what it has read of the cluster, and its result.

    ``found`` are the objects by kind.
    """

    ctx: run_context.Context
    guarded_nodes: dict[str, GuardedNode]
    found: dict[str, list[t.Any]]
    workloads: list[dict[str, t.Any]] = field(default_factory=list)
    findings: list[reasons.Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = self.ctx.clock.now()
        self.prior = dict[str, int]()
        self.locks = run_locks.Locks(self.ctx)
        self.services = run_services.Services(self.ctx, self.prior)
        self.snapshot = snapshots.Snapshot.of(self.found)
        self.scope: scopes.ReadScope | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that are still to be served."""
        return tuple(name for name, guarded_node in self.guarded_nodes.items() if guarded_node.open)

    def read(self, *wanted: str, **known: list[t.Any]) -> None:
        """Read more kinds, each once, of what is in scope;
        ``known`` are kinds that were read in another way.
        """
        missing = [name for name in wanted if name not in self.found]
        self.found.update(run_listing.recent_lists(self.ctx, missing, self.scope), **known)
        self.snapshot = snapshots.Snapshot.of(self.found)

    def narrow(self) -> None:
        """Read of a large cluster only what the call's nodes need; needs the nodes."""
        self.scope = scopes.narrow(self.guarded_nodes, len(self.snapshot.nodes))

    def enter(self, namespaces: t.Iterable[str]) -> None:
        """Take in namespaces, before anything that is read by them;
        does nothing without a scope.
        """
        if self.scope:
            self.scope.enter(namespaces)

    def widen(
        self, pods: t.Iterable[objects.Pod], surges: t.Iterable[surge_records.Surge] = ()
    ) -> None:
        """Read the pods that decide whether these may leave, and those of surged
        workloads; needs their owners.
        """
        if self.scope:
            surged = (
                workload for surge in surges if (workload := self.snapshot.workload(surge.uid))
            )
            every = list(self.found["pods"])
            for part in self.scope.widen(related.pods(self.snapshot, pods, surged)):
                every += run_listing.listed(self.ctx.cluster, "pods", part, self.scope)
            self.read(pods=every)

    def identity(self, nodes: t.Iterable[str]) -> run_context.Run:
        """In whose name the call acts on the nodes: that of their record, else its own."""
        for name in nodes:
            if record := self.guarded_nodes[name].record:
                return run_context.Run(record.run, record.nonce)
        return self.ctx.run if self.ctx.run and self.ctx.run.id else run_context.Run("none")

    def lock(self, nodes: t.Collection[str]) -> list[str]:
        """Lock the nodes, and give those that are ours to write for now; the others are closed."""
        records = {name: record for name in nodes if (record := self.guarded_nodes[name].record)}
        for name, why in self.locks.take_recorded(records).items():
            self.guarded_nodes[name].close(outcomes.GuardOutcome.HELD, why)
        if records and not self.locks.held_before:
            self._look_again()
        return [name for name in nodes if self.guarded_nodes[name].open]

    def _look_again(self) -> None:
        """Close what somebody has given back or taken over between our look and our lock."""
        found, _whole = run_targeted_reads.nodes_of(self.ctx.cluster, self.nodes)
        now = {name: objects.Node.of(raw) for name, raw in found.items()}
        for name in self.nodes:
            was = self.guarded_nodes[name].record
            if was is None:
                continue
            record = node_records.record_of(now[name]) if name in now else None
            if record is None or record.nonce != was.nonce:
                why = f"Node {name} is not in maintenance any more."
                if record:
                    why = record.owner(name)
                self.guarded_nodes[name].close(outcomes.GuardOutcome.ADOPTED_BY, why)

    def unlock(self) -> None:
        """Leave the locks for the next call of the run."""
        for name, why in self.locks.lost().items():
            self.guarded_nodes[name].close(
                outcomes.GuardOutcome.ADOPTED_BY, f"Node {name} was taken over: {why}"
            )
        self.locks.leave()
        self.locks = run_locks.Locks(self.ctx)

    def prove_locks(self, nodes: t.Collection[str]) -> None:
        self.locks.prove(nodes)

    def show_surge(
        self, surge: surge_records.Surge, outcome: outcomes.WorkloadOutcome, message: str = ""
    ) -> None:
        leaving = self.snapshot.pod(surge.pod_uid)
        over = (budget.name for budget in (self.snapshot.budgets_of(leaving) if leaving else ()))
        during = surge.target if outcome in RAISED else surge.prior_replicas
        replicas = (surge.prior_replicas, during)
        self.show(surge.workload, replicas, next(over, None), outcome, (surge.node,), message)

    def show_guard(self, guard_budget: run_guard_budgets.GuardBudget) -> None:
        """Add a workload's line about its guard; without it, its nodes have failed."""
        guard, message = guard_budget.guard, guard_budget.message
        outcome = outcomes.WorkloadOutcome.ALREADY_GUARDED
        if guard_budget.written:
            outcome = outcomes.WorkloadOutcome.GUARDED
        budget = guard.budget
        if guard.instead:
            outcome, budget = outcomes.WorkloadOutcome.NOT_GUARDED, guard.instead
            message = (
                f"{guard.instead} covers some of its pods, and no pod with two "
                "budgets can be evicted."
            )
            remedy = "Its pods are evicted without a guard."
            self.findings.append(
                reasons.Finding("guard_overlaps", message, remedy, "info", str(guard.workload))
            )
        outcome = guard_budget.outcome or outcome
        replicas = (guard.replicas, guard.replicas)
        self.show(guard.workload, replicas, budget.name, outcome, guard.nodes, message)
        if outcome.failed:
            self.fail(guard.nodes, outcome, str(guard.workload), message, guard_budget.remedy)

    def fail(
        self,
        nodes: t.Iterable[str],
        what: outcomes.WorkloadOutcome,
        subject: str,
        message: str,
        remedy: str,
    ) -> None:
        """Close those of the nodes that this call has, with a finding that says why."""
        found = reasons.Finding(what.value, message, remedy, "blocker", subject)
        self.findings.append(found)
        outcome = FAILS_NODE.get(what, outcomes.GuardOutcome.BLOCKED)
        for name in nodes:
            if name in self.guarded_nodes:
                self.guarded_nodes[name].close(outcome, f"Node {name}: {found.sentence}")

    def stop(
        self, nodes: t.Iterable[str], error: run_context.CallAborted | errors.ClusterError
    ) -> None:
        """Close the nodes whose work ended by this."""
        why = reasons.Finding("failed", str(error))
        if isinstance(error, run_context.CallAborted):
            why = error.reason
        self.findings.append(replace(why, object="the call"))
        for name in nodes:
            self.guarded_nodes[name].close(outcomes.GuardOutcome.FAILED, why.sentence)

    def show_unguarded(self, budget: objects.Budget, nodes: t.Iterable[str]) -> None:
        """Add the line about a guard that was removed; its workload may be gone."""
        found = self.snapshot.workload(guard_budgets.workload_uid(budget))
        ref = found.ref if found else objects.Ref("", "", budget.namespace)
        count = found.replicas if found else 0
        self.show(ref, (count, count), budget.name, outcomes.WorkloadOutcome.UNGUARDED, nodes)

    def show(
        self,
        workload: objects.Ref,
        replicas: tuple[int, int],
        budget: str | None,
        outcome: outcomes.WorkloadOutcome,
        nodes: t.Iterable[str],
        message: str = "",
    ) -> None:
        """Add a workload's line; ``replicas`` are those before and during the maintenance."""
        self.workloads.append(
            {
                "kind": workload.kind,
                "namespace": workload.namespace,
                "name": workload.name,
                "replicas_before": replicas[0],
                "replicas_during": replicas[1],
                "budget": budget,
                "outcome": outcome.value,
                "nodes": sorted(nodes),
                "message": message,
            }
        )


@dataclass
class SurgeTurns:
    """The surges and guards of one call, stepped until all are decided; what is not when ``limit``
    seconds are over is undone.

    A call takes the turns itself (``run``). In a wave the drain takes them between its own, once
    all surges are begun.
    """

    call: GuardCall
    surging: run_raise.Surging
    guards: run_guard_budgets.GuardBudgets
    limit: float | None
    late: bool = False

    def __post_init__(self) -> None:
        limit = float("inf") if self.limit is None else self.limit
        self._deadline = self.call.began + limit

    def run(self, live: run_watch_cache.WatchCache, *, begin: bool = False) -> None:
        """Take turns until all is decided; with ``begin`` only until all surges are begun, and all
        guards in place.
        """
        with contextlib.closing(run_object_events.Events(self.call.ctx, live)) as events:
            while True:
                snapshot = live.snapshot()
                self.call.services.sample(snapshot)
                if self.turn(snapshot, events):
                    return
                if begin and self.surging.begun and self.guards.done:
                    return
                if self.surging.planning:
                    live.follow(OF_OTHERS)
                live.wait(min(LOOP_PAUSE_SECONDS, self.surging.seconds_left))

    def turn(self, snapshot: snapshots.Snapshot, events: run_object_events.Events) -> bool:
        """One turn by this look at the cluster; whether it was the last one."""
        ctx, surging, guards = self.call.ctx, self.surging, self.guards
        surging.step(snapshot)
        events.ask_once(case.silent(snapshot) for case in surging.cases)
        if not self.late:
            guards.step(snapshot)
        over = ctx.clock.now() >= self._deadline
        if (surging.done and guards.done) or (self.late and over):
            return True
        if over:
            self.late = True
            self._deadline = ctx.clock.now() + UNDO_SECONDS
            guards.give_up()
            surging.fail_open(
                outcomes.WorkloadOutcome.TIMED_OUT, f"not ready after {self.limit:g} s", snapshot
            )
            return self.turn(snapshot, events)
        self._tell_progress(guards.waiting)
        return False

    def _tell_progress(self, pending: list[str]) -> None:
        """A line when what is waited for has changed."""
        ctx = self.call.ctx
        for case in self.surging.cases:
            if case.open and case.waiting:
                ctx.tell_changed(
                    phases.What.PROTECTING,
                    f"waiting: {case.waiting}",
                    pace=SECONDS_BETWEEN_LINES,
                    node=case.node,
                    namespace=case.workload.namespace,
                    name=case.workload.name,
                )
        if pending:
            text = f"waiting: {reasons.listed(pending, 3)}"
            ctx.tell_changed(phases.What.WAITING, text, pace=SECONDS_BETWEEN_LINES)


def around(
    work: GuardCall, pods: t.Sequence[objects.Pod], choices: drain_policy.DrainPolicy
) -> None:
    """What the routes of these pods depend on."""
    recorded = surge_records.surges_for(work.snapshot, work.nodes)
    if work.scope:
        # Which pods stay with their node is known by these alone.
        work.read(*(name for name in related.owners_of(pods) if name == "daemon_sets"))
        spaces = {surge.workload.namespace for surge in recorded}
        work.enter(spaces | related.namespaces_of(work.snapshot, pods))
    devised = devices.KINDS if devices.claimants(pods) else ()
    work.read(
        "budgets",
        *related.owners_of(pods),
        *related.groups_of(pods),
        *related.machines_of(pods),
        *devised,
    )
    work.read(*related.surged(surge.kind for surge in recorded) if work.scope else ())
    if devices.volume_claimants(pods):
        if work.scope:
            work.read(**run_targeted_reads.claims_of(work.ctx.cluster, pods))
        work.read("claims", "volumes")
    if any(pod.owner for pod in pods):
        work.read("autoscalers")
    work.read(scales=run_owners.scales(work.ctx, work.snapshot, pods))
    work.widen(pods, recorded)
    work.read(*replacement.kinds(work.snapshot, pods, choices))


def absent(work: GuardCall) -> None:
    """Read our guards, which say what nodes they serve, and what the surges need to be undone."""
    if work.scope is None:
        work.read("pods", "budgets")
        return
    found = surges(work, frozenset(work.nodes))
    labels = f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY}"
    ours = run_listing.listed(work.ctx.cluster, "budgets", scopes.ALL, labels=labels)
    nodes = set(work.nodes)
    serving = {budget.namespace for budget in ours if nodes & guard_budgets.nodes_of(budget).keys()}
    work.enter(serving | {surge.workload.namespace for surge in found})
    work.read("budgets")
    if found:
        work.read("pods", *related.surged(surge.kind for surge in found))
    known = {budget.uid for budget in ours}
    work.read(
        budgets=[*ours, *(budget for budget in work.found["budgets"] if budget.uid not in known)]
    )
    if found:
        work.widen((), found)


def surges(work: GuardCall, nodes: frozenset[str]) -> list[surge_records.Surge]:
    """The surges that serve these nodes, and those whose node no longer exists."""
    return [
        one
        for one in surge_records.surges_in(work.snapshot)
        if one.node in nodes or not work.snapshot.has_node(one.node, one.node_uid)
    ]


def watching(
    work: GuardCall, surges: t.Collection[surge_records.Surge], *wanted: str
) -> run_watch_cache.WatchCache:
    """What is wanted, and what shows how the workloads of these surges change;
    it begins with what was read.
    """
    live = run_watch_cache.WatchCache(
        work.ctx,
        dict.fromkeys((*wanted, *related.surged(surge.kind for surge in surges))),
        work.scope,
    )
    live.seed(work.found)
    return live
