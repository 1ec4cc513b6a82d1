# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Guards, the budgets of our own: each is written, and written again,
until the watch shows it in place.
"""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_context,
    run_reconcile,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    guard_budgets,
    run_node_lock,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import (
    run_surge_lease,
    run_surge_writer,
)

AGAIN = 1.0
"""Seconds before a guard that was written and is not seen is written again:
its watch may be behind.
"""


@dataclass
class GuardBudget:
    """One guard; ``outcome`` says why there is none, ``None`` while it is in place or tried for."""

    guard: guard_budgets.Guard
    there: bool = False
    written: bool = False
    not_before: float = float("-inf")
    waiting: str = ""
    outcome: outcomes.WorkloadOutcome | None = None
    message: str = ""
    remedy: str = ""

    @property
    def settled(self) -> bool:
        """Whether it is in place, not needed, or not to be had."""
        return self.there or self.outcome is not None or self.guard.instead is not None


class GuardBudgets:
    """The guards of one call. ``prove_locks`` proves a guard's nodes before every write."""

    def __init__(
        self,
        ctx: run_context.Context,
        wanted: t.Iterable[guard_budgets.Guard],
        prove_locks: run_surge_lease.ProveLocks,
    ) -> None:
        self._ctx, self._prove_locks = ctx, prove_locks
        self.floors = [GuardBudget(guard) for guard in wanted]

    @property
    def todo(self) -> bool:
        """Whether anything has to be written, as far as the plan knows."""
        return any(floor.guard.change for floor in self.floors)

    @property
    def done(self) -> bool:
        """Whether every guard was seen in place just now, or never will be."""
        return all(floor.settled for floor in self.floors)

    @property
    def waiting(self) -> list[str]:
        return [floor.waiting for floor in self.floors if not floor.settled and floor.waiting]

    def step(self, snapshot: snapshots.Snapshot) -> None:
        """Write the guards that are not in place."""
        for floor in self.floors:
            if floor.outcome or floor.guard.instead:
                continue
            try:
                self._step(floor, snapshot)
            except run_reconcile.PASSING as error:
                floor.waiting = str(error)
            except errors.NotFound:
                gone = f"{floor.guard.workload} is gone with its namespace."
                self._end(floor, outcomes.WorkloadOutcome.ENDED, gone)
            except run_node_lock.LostLockError as lost:
                self._without(floor, lost, snapshot)
            except run_context.CallAborted as stop:
                self._end(
                    floor, outcomes.WorkloadOutcome.FAILED, stop.reason.message, stop.reason.remedy
                )
            except errors.ClusterError as error:
                self._end(
                    floor,
                    outcomes.WorkloadOutcome.GUARD_DENIED,
                    str(error),
                    "Fix that, then run again.",
                )

    def give_up(self) -> None:
        remedy = "Check what removes it, and kube-controller-manager."
        for floor in self.floors:
            if not floor.settled:
                text = f"{floor.guard.budget} was not in place in time" + (
                    f": {floor.waiting}." if floor.waiting else "."
                )
                self._end(floor, outcomes.WorkloadOutcome.TIMED_OUT, text, remedy)

    def _step(self, floor: GuardBudget, snapshot: snapshots.Snapshot) -> None:
        place = (floor.guard.budget.namespace, floor.guard.budget.name)
        budget, now = snapshot.budget(*place), self._ctx.clock.now()
        laid = budget is not None and guard_budgets.ensuring(floor.guard, budget) is None
        # Where its controller cannot count its pods, nothing more will come:
        # the drain goes on without it.
        floor.there = laid and budget is not None and bool(budget.observed or budget.sync_failed)
        floor.waiting = "" if floor.there else f"{floor.guard.budget} to be observed"
        if laid or now < floor.not_before:
            return
        guard = guard_budgets.again(snapshot, floor.guard)
        if guard.instead:
            floor.guard = guard
            return
        floor.not_before = now + AGAIN
        floor.written = self._write(guard, guard_budgets.ensuring(guard, budget)) or floor.written

    def _without(
        self, floor: GuardBudget, lost: run_node_lock.LostLockError, snapshot: snapshots.Snapshot
    ) -> None:
        """Go on for the nodes that are still ours."""
        serves = {node: uid for node, uid in floor.guard.serves.items() if node != lost.node}
        if serves:
            floor.guard = guard_budgets.again(snapshot, replace(floor.guard, serves=serves))
            floor.not_before = float("-inf")
        else:
            self._end(
                floor, outcomes.WorkloadOutcome.ADOPTED_BY, lost.reason.message, lost.reason.remedy
            )

    def _write(self, guard: guard_budgets.Guard, change: api_changes.Change | None) -> bool:
        def decide(found: objects.Raw | None) -> api_changes.Change | None:
            return guard_budgets.ensuring(guard, objects.Budget.of(found) if found else None)

        if change is None:
            return False
        prove_lock = functools.partial(self._prove_locks, guard.nodes)
        made = run_reconcile.reconcile(
            self._ctx,
            guard.budget,
            run_reconcile.at_first(change, decide),
            known=None,
            prove_lock=prove_lock,
        ).change
        if made:
            message = f"guarded by {guard.budget}"
            run_surge_writer.tell(
                self._ctx, phases.What.GUARDED, message, guard.workload, min(guard.nodes)
            )
        return made is not None

    def _end(
        self, floor: GuardBudget, outcome: outcomes.WorkloadOutcome, message: str, remedy: str = ""
    ) -> None:
        floor.outcome, floor.message, floor.remedy, floor.there = outcome, message, remedy, False
        what = phases.What.FAILED if outcome.failed else phases.What.NOTE
        guard = floor.guard
        run_surge_writer.tell(self._ctx, what, message, guard.workload, min(guard.nodes))
