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
)

WRITE_AGAIN_SECONDS = 1.0
"""Seconds after which a guard that was written, and that the watch does not show, is written again:
the watch may be late.
"""


@dataclass
class GuardBudget:
    """One guard and how far it is: ``there`` once it is in place, ``outcome`` is why there is
    none.
    """

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
        self._ctx = ctx
        self._prove_locks = prove_locks
        self.budgets = [GuardBudget(guard) for guard in wanted]

    @property
    def todo(self) -> bool:
        """Whether anything has to be written, as far as the plan knows."""
        return any(guard_budget.guard.change for guard_budget in self.budgets)

    @property
    def done(self) -> bool:
        """Whether every guard was seen in place just now, or never will be."""
        return all(guard_budget.settled for guard_budget in self.budgets)

    @property
    def waiting(self) -> list[str]:
        return [
            guard_budget.waiting
            for guard_budget in self.budgets
            if not guard_budget.settled and guard_budget.waiting
        ]

    def step(self, snapshot: snapshots.Snapshot) -> None:
        """Called by the loop in each turn: write the guards that are not in place."""
        for guard_budget in self.budgets:
            if guard_budget.outcome or guard_budget.guard.instead:
                continue
            try:
                self._step(guard_budget, snapshot)
            except run_reconcile.PASSING as error:
                guard_budget.waiting = str(error)
            except errors.NotFound:
                gone = f"{guard_budget.guard.workload} is gone with its namespace."
                self._end(guard_budget, outcomes.WorkloadOutcome.ENDED, gone)
            except run_node_lock.LostLockError as lost:
                self._without(guard_budget, lost, snapshot)
            except run_context.CallAborted as stop:
                self._end(
                    guard_budget,
                    outcomes.WorkloadOutcome.FAILED,
                    stop.reason.message,
                    stop.reason.remedy,
                )
            except errors.ClusterError as error:
                self._end(
                    guard_budget,
                    outcomes.WorkloadOutcome.GUARD_DENIED,
                    str(error),
                    "Fix that, then run again.",
                )

    def give_up(self) -> None:
        remedy = "Check what removes it, and kube-controller-manager."
        for guard_budget in self.budgets:
            if not guard_budget.settled:
                text = f"{guard_budget.guard.budget} was not in place in time" + (
                    f": {guard_budget.waiting}." if guard_budget.waiting else "."
                )
                self._end(guard_budget, outcomes.WorkloadOutcome.TIMED_OUT, text, remedy)

    def _step(self, guard_budget: GuardBudget, snapshot: snapshots.Snapshot) -> None:
        place = (guard_budget.guard.budget.namespace, guard_budget.guard.budget.name)
        budget = snapshot.budget(*place)
        now = self._ctx.clock.now()
        laid = budget is not None and guard_budgets.ensuring(guard_budget.guard, budget) is None
        # Where its controller cannot count its pods, nothing more will come:
        # the drain goes on without it.
        guard_budget.there = (
            laid and budget is not None and bool(budget.observed or budget.sync_failed)
        )
        guard_budget.waiting = (
            "" if guard_budget.there else f"{guard_budget.guard.budget} to be observed"
        )
        if laid or now < guard_budget.not_before:
            return
        guard = guard_budgets.again(snapshot, guard_budget.guard)
        if guard.instead:
            guard_budget.guard = guard
            return
        guard_budget.not_before = now + WRITE_AGAIN_SECONDS
        guard_budget.written = (
            self._write(guard, guard_budgets.ensuring(guard, budget)) or guard_budget.written
        )

    def _without(
        self,
        guard_budget: GuardBudget,
        lost: run_node_lock.LostLockError,
        snapshot: snapshots.Snapshot,
    ) -> None:
        """Go on for the nodes that are still ours."""
        serves = {node: uid for node, uid in guard_budget.guard.serves.items() if node != lost.node}
        if serves:
            guard_budget.guard = guard_budgets.again(
                snapshot, replace(guard_budget.guard, serves=serves)
            )
            guard_budget.not_before = float("-inf")
        else:
            self._end(
                guard_budget,
                outcomes.WorkloadOutcome.ADOPTED_BY,
                lost.reason.message,
                lost.reason.remedy,
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
            run_surge_lease.tell(
                self._ctx, phases.What.GUARDED, message, guard.workload, min(guard.nodes)
            )
        return made is not None

    def _end(
        self,
        guard_budget: GuardBudget,
        outcome: outcomes.WorkloadOutcome,
        message: str,
        remedy: str = "",
    ) -> None:
        guard_budget.outcome = outcome
        guard_budget.message = message
        guard_budget.remedy = remedy
        guard_budget.there = False
        what = phases.What.FAILED if outcome.failed else phases.What.NOTE
        guard = guard_budget.guard
        run_surge_lease.tell(self._ctx, what, message, guard.workload, min(guard.nodes))
