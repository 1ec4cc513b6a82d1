# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``pdb_guard``: a floor under the pods that will be evicted, and a surge for those that will be swapped.

``present`` prepares: an extra pod for each one that leaves by a swap, which serves before the call ends,
and a budget of ours for pods that have none. Ending the swaps is the drain's work. ``absent`` undoes all of it
from whatever state it is in. Where there is nothing to do, no lock is taken and nothing is written.
"""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    node_records,
    outcomes,
    pod_plan,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import migrate, volumes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import guards, surge_records, swap
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, observe, owners
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.protect import (
    guard_back,
    guard_floors,
    guard_work,
    surge_case,
    surge_machine,
)

PREPARED = (outcomes.WorkloadOutcome.RAISED, outcomes.WorkloadOutcome.GUARDED, outcomes.WorkloadOutcome.ENDED)
"""Outcomes of workloads for which this call did something."""


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


def guard(ctx: context.Context, options: GuardOptions) -> context.Result:
    """Protect the nodes' pods, or undo that; each node has its own outcome."""
    work = guard_work.Work(ctx, {name: guard_work.Site(name) for name in dict.fromkeys(options.nodes)}, {})
    try:
        work.read("nodes", "pods", "budgets", "leases")
        for site in work.sites.values():
            _read_record(work, site, present=options.state == "present")
        if options.state == "present":
            _present(work, options)
        else:
            guard_back.absent(work)
    except (context.StopRun, errors.ClusterError) as error:
        work.stop(work.nodes, error)
    failed = [site.message for site in work.sites.values() if site.failed]
    return context.Result(
        {
            "nodes": [site.shown() for site in work.sites.values()],
            "workloads": work.workloads,
            "findings": [finding.to_dict() for finding in work.findings],
        },
        failed=bool(failed),
        message="; ".join(dict.fromkeys(failed)),
    )


def _read_record(work: guard_work.Work, site: guard_work.Site, *, present: bool) -> None:
    node = work.snapshot.nodes.get(site.name)
    if node is None:
        if present:
            site.outcome, site.message = outcomes.GuardOutcome.GONE, f"Node {site.name} does not exist."
        return
    try:
        site.record = record = node_records.record_of(node)
    except node_records.BadRecordError as error:
        site.close(outcomes.GuardOutcome.BAD_RECORD, str(error))
        return
    if record is None:
        if present and not work.ctx.check:
            site.outcome = outcomes.GuardOutcome.NOT_IN_MAINTENANCE
            site.message = f"Node {site.name} carries no record: call node_cordon with state=cordoned first."
        return
    if record.foreign_to(*work.ctx.caller, check=work.ctx.check):
        site.outcome, site.message = outcomes.GuardOutcome.ADOPTED_BY, record.owner(site.name)


def _present(work: guard_work.Work, options: GuardOptions) -> None:
    pods = work.snapshot.pods_on(work.nodes)
    work.read(*observe.owners_of(pods), *(("claims", "volumes") if volumes.claimants(pods) else ()))
    if any(pod.owner for pod in pods):
        work.read("autoscalers")
    work.add("scales", owners.scales(work.ctx, work.snapshot, pods))
    groups: dict[str, list[str]] = {}
    for name in work.nodes:
        groups.setdefault(str(work.identity([name])), []).append(name)
    for nodes in groups.values():
        try:
            _protect(work, options, nodes)
        except (context.StopRun, errors.ClusterError) as error:
            work.stop(nodes, error)
    for name in work.nodes:
        done = any(name in w["nodes"] and w["outcome"] in PREPARED for w in work.workloads)
        site = work.sites[name]
        site.outcome = outcomes.GuardOutcome.PROTECTED if done else outcomes.GuardOutcome.ALREADY_PROTECTED
        site.message = f"The pods of node {name} are protected."


def _protect(work: guard_work.Work, options: GuardOptions, nodes: list[str]) -> None:
    """Prepare all pods on nodes of one run."""
    ctx, wave = work.ctx, _Wave(work, options, nodes)
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

    def __init__(self, call: guard_work.Work, options: GuardOptions, nodes: list[str]) -> None:
        self.call, self.options, self.nodes, self.me = call, options, nodes, call.identity(nodes)
        seen = call.snapshot
        self.wanted = self.plan(seen)
        self.recorded = {surge.uid: surge for surge in surge_records.surges_in(seen)}
        self.ready = [old for uid, new in self.wanted.items() if (old := self._is_ready(uid, new))]
        done = {surge.uid for surge in self.ready}
        self.cases = [
            surge_case.Case(s.workload, tuple(s.nodes), "plan") for uid, s in self.wanted.items() if uid not in done
        ]
        plans = self._routes(seen, nodes)
        self.floors = guard_floors.Floors(call.ctx, guards.guards(seen, plans), call.fence)
        self.refused = [plan for plan in plans if plan.code == outcomes.WorkloadOutcome.BAD_SURGE]

    @property
    def todo(self) -> bool:
        """Whether anything has to be written."""
        return bool(self.cases) or self.floors.todo

    def plan(self, seen: snapshots.Snapshot) -> dict[str, surge_records.Surge]:
        """The surges that are wanted now, by the UID of the workload; nodes that were lost since need none."""
        if not self.options.surge:
            return {}
        ctx, lost = self.call.ctx, self.call.lost()
        plans = self._routes(seen, [name for name in self.nodes if name not in lost])
        pin = self.options.pin_budgets
        found = swap.surges(seen, plans, run=self.me.id, by=ctx.by, since=ctx.clock.server(), pin=pin)
        return {surge.uid: surge for surge in found}

    def _routes(self, seen: snapshots.Snapshot, nodes: t.Collection[str]) -> tuple[pod_plan.PodPlan, ...]:
        """The pods' routes, as if everything were allowed that the drain may be allowed later.

        What is refused in the end stops the run before any pod is moved; the plan reports that.
        """
        choices = pod_plan.Choices(
            force=True,
            delete_emptydir_data=True,
            swap_blocked=self.options.swap_blocked,
            reactive_budgets=self.options.reactive_budgets,
        )
        return migrate.routes(seen, nodes, choices, now=self.call.ctx.clock.server())

    def _is_ready(self, uid: str, wanted: surge_records.Surge) -> surge_records.Surge | None:
        """The recorded surge, if an earlier call of this run made it ready and nobody undid it."""
        old = self.recorded.get(uid)
        if old is None or old.run != self.me.id or old.stage != "ready":
            return None
        fits = wanted.leaving.keys() <= old.leaving.keys() and swap.raised(self.call.snapshot, old)
        return old if fits else None

    def work(self) -> None:
        """Raise the surges and write the guards, until all are decided or time is up."""
        call, ctx = self.call, self.call.ctx
        watched = (*guard_work.SURGING, *observe.surged(self.wanted.values())) if self.cases else ("budgets", "pods")
        surging = surge_machine.Surging(
            ctx, self.me, self.options.settle, self.plan, call.fence, self.nodes, self.cases
        )
        with observe.Live(ctx, watched) as live, contextlib.closing(surging):
            live.seed(call.found)
            call.loop(surging, self.floors, live, self.options.timeout)

    def close(self) -> None:
        """Add what came of every workload to the result."""
        for surge in self.ready:
            self.call.show_surge(surge, outcomes.WorkloadOutcome.ALREADY_RAISED)
        for floor in self.floors.floors:
            self.call.show_guard(floor)
        for case in self.cases:
            _close_present(self.call, case, self.wanted[case.workload.uid])
        for plan in self.refused:
            bad = outcomes.WorkloadOutcome.BAD_SURGE
            self.call.fail([plan.pod.node], bad, str(plan.workload), plan.reason, plan.remedy)

    def predict(self) -> None:
        """Check mode: what a real call would change, in its order."""
        call = self.call
        for floor in self.floors.floors:
            if floor.guard.change and not floor.guard.instead:
                call.ctx.changed(floor.guard.change)
                floor.written = True
            call.show_guard(floor)
        for case in self.cases:
            surge, old = self.wanted[case.workload.uid], self.recorded.get(case.workload.uid)
            if old and old.run == self.me.id and surge.leaving.keys() <= old.leaving.keys():
                surge = old
            else:
                call.ctx.changed(surge.writing(str(self.me), call.ctx.clock.wall()))
            for change in swap.raising(call.snapshot, surge):
                call.ctx.changed(change)
            call.show_surge(surge, outcomes.WorkloadOutcome.RAISED)
        for surge in self.ready:
            call.show_surge(surge, outcomes.WorkloadOutcome.ALREADY_RAISED)


def _close_present(work: guard_work.Work, case: surge_case.Case, wanted: surge_records.Surge) -> None:
    outcome, message = t.cast("outcomes.WorkloadOutcome", case.outcome), case.message
    if case.open:
        outcome = outcomes.WorkloadOutcome.NOT_GIVEN_BACK
        message = f"{case.message} Its surge could not be undone in time: {case.waiting}"
    work.show_surge(case.surge or wanted, outcome, message)
    if case.open or case.failed:
        work.fail(wanted.nodes, outcome, str(case.workload), message, case.remedy)
