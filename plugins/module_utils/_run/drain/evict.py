# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Evictions in parallel across budgets, with one request in flight for each budget.

The API server serialises what one budget allows and answers races with conflicts that cost half a
second each, so several requests on one budget gain nothing; different budgets know nothing of each
other. A budget's room is read from its watch and never from a dry run, which does not consume it.
Whether enough pods serve is counted as well, when an eviction is queued and again right before its first
byte leaves; between the two it may have waited for a free worker, for a connection or for the lock.
"""

from __future__ import annotations

import queue
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    budgets,
    objects,
    outcomes,
    phases,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import readiness
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import (
    act,
    context,
    pod_moves,
    server_fence,
)

ASK_AGAIN = 10.0
"""Seconds after which a refused budget is asked again even if its watch stayed silent."""
AHEAD = 4
"""Evictions that wait for a free worker, so that none is idle until the loop looks again."""
STALE = 2.0
"""Seconds after which a decision is too old to be acted on: the loop has to have looked since."""
AGAIN = (
    errors.NamespaceTerminating,
    errors.DeniedByWebhook,
    errors.Overloaded,
    errors.Unreachable,
    errors.ServerError,
    errors.UnknownOutcome,
)
"""Refusals that may be another answer a little later; asked again with growing pauses."""


@dataclass
class _Line:
    """What is known of one budget beside its watch: our requests that its status does not show yet."""

    busy: bool = False
    taken: int = 0
    seen: str = ""
    refused_at: str = ""
    ask_again: float = 0.0


class Withdrawn(Exception):
    """A queued request was not sent after all: the reason for it does not hold any more."""


@dataclass
class Evictor:
    """Sends evictions (with ``delete`` plain deletions) and settles their answers on the loop's thread.

    ``fence`` proves the lock of a node right before each request, ``wake`` is called when an answer has come in.
    ``fenced`` is, by node, the lock that evictions name; where the server's own fence refuses one, ``regain`` is
    called with the node. ``prior`` is what workloads with a surge want without it, by their UID.
    """

    ctx: context.Context
    fence: t.Callable[[str], None]
    wake: t.Callable[[], None]
    parallel: int
    grace_seconds: int | None
    delete: bool
    fenced: t.Mapping[str, str] = field(default_factory=dict)
    regain: t.Callable[[str], None] = lambda node: None
    prior: t.Mapping[str, int] = field(default_factory=dict)
    _flying: int = 0
    _closed: set[str] = field(default_factory=set)
    _leaving: dict[str, pod_moves.Move] = field(default_factory=dict)
    _view: tuple[snapshots.Snapshot, float] = (snapshots.Snapshot(), float("-inf"))
    _lines: dict[tuple[str, str], _Line] = field(default_factory=dict)
    _answers: queue.SimpleQueue[tuple[pod_moves.Move, Exception | None]] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        """Start the workers; they end with ``close``."""
        self._pool = self.ctx.clock.pool(self.parallel, "evict")

    def close(self) -> None:
        """Wait for requests that are under way; nothing new is sent."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def withdraw(self, node: str) -> None:
        """Send nothing more for the node, also not what is queued."""
        self._closed.add(node)

    def step(self, moves: t.Iterable[pod_moves.Move], snapshot: snapshots.Snapshot) -> None:
        """Send what may go now, in the order of the moves."""
        now = self.ctx.clock.now()
        self._view = snapshot, now
        self._leaving = {uid: m for uid, m in self._leaving.items() if m.state in ("asked", "leaving")}
        for move in moves:
            if self._flying >= self.parallel + AHEAD:
                return
            if move.state != "waiting" or move.plan.route != "evict" or now < move.not_before:
                continue
            if not self.delete and pod_moves.stays_as_last(move, snapshot, now):
                continue
            budget = self._budget_of(move, snapshot)
            move.budget = (budget.namespace, budget.name) if budget else None
            if budget and not self._may_ask(budget, move, snapshot, now):
                continue
            if found := self._short(move, snapshot):
                move.block(found.object.kind, found.object.namespace, found.object.name, found.message)
                continue
            self._send(move)

    def settle(self) -> None:
        """Draw the consequences of the answers that have come in.

        Raises:
            LostLockError: the lock of a node was lost; the answers of others are left for the next call.
            StopRun: nobody knows whether the locks are still ours.
        """
        while True:
            try:
                move, error = self._answers.get_nowait()
            except queue.Empty:
                return
            self._flying -= 1
            line = self._line(move)
            line.busy = False
            if error is None:
                self._accept(move, line)
                continue
            move.state = "waiting"
            if isinstance(error, errors.ClusterError):
                self._refuse(move, line, error)
            elif isinstance(error, Withdrawn):
                move.tries -= 1
            else:
                raise error

    @property
    def idle(self) -> bool:
        """Whether no request is under way."""
        return self._flying == 0

    def _budget_of(self, move: pod_moves.Move, snapshot: snapshots.Snapshot) -> objects.Budget | None:
        """The budget that will be asked; it may have come or gone since the pod was planned."""
        if self.delete or move.pod.finished or move.pod.phase == "Pending":
            return None
        return next(iter(snapshot.budgets_of(move.pod)), None)

    def _line(self, move: pod_moves.Move) -> _Line:
        return self._lines.setdefault(move.budget, _Line()) if move.budget else _Line()

    def _may_ask(self, budget: objects.Budget, move: pod_moves.Move, snapshot: snapshots.Snapshot, now: float) -> bool:
        line, pod = self._line(move), snapshot.pod(move.pod.uid) or move.pod
        if line.busy:
            return False
        if budget.resource_version != line.seen:
            line.seen, line.taken = budget.resource_version, 0
        if line.refused_at == budget.resource_version and now < line.ask_again:
            return False
        if pod.ready and budget.observed and budget.allowed - line.taken <= 0 and now < line.ask_again:
            return False
        verdict = budgets.diagnose(snapshot, pod)
        if verdict.allowed and (not pod.ready or budget.allowed - line.taken > 0):
            return True
        if verdict.budget and not verdict.allowed:
            move.block(verdict.budget.kind, verdict.budget.namespace, verdict.budget.name, verdict.message)
        if verdict.code == "two_budgets" and not any(b.ours for b in snapshot.budgets_of(pod)):
            move.end("failed", outcomes.PodOutcome.TWO_BUDGETS, now, verdict.sentence)
            return False
        if move.plan.code == "reactive_budget" and now >= line.ask_again:
            return True
        line.ask_again = max(line.ask_again, now + ASK_AGAIN)
        return False

    def _short(self, move: pod_moves.Move, snapshot: snapshots.Snapshot) -> readiness.Short | None:
        return None if self.delete else pod_moves.too_few(move, snapshot, self._leaving, self.prior)

    def _send(self, move: pod_moves.Move) -> None:
        self._line(move).busy = True
        move.state, move.tries = "asked", move.tries + 1
        self._leaving[move.pod.uid] = move
        self._flying += 1
        self._pool.submit(self._ask, move)

    def _ask(self, move: pod_moves.Move) -> None:
        pod, change = move.pod, self._change(move)
        error: Exception | None = None
        try:
            try:
                self._send_now(move, change)
            except errors.DeniedByWebhook as denied:
                if not server_fence.by_the_fence(denied):
                    raise
                self.regain(pod.node)
                self._send_now(move, change)
        except Exception as caught:
            error = caught
        self._answers.put((move, error))
        self.wake()

    def _change(self, move: pod_moves.Move) -> api_changes.Change:
        fence = self.fenced.get(move.pod.node, "")
        return api_changes.eviction(move.pod, delete=self.delete, grace_seconds=self.grace_seconds, fence=fence)

    def _send_now(self, move: pod_moves.Move, change: api_changes.Change) -> None:
        # Without patience: what was decided a while ago is not sent any more, the loop decides anew.
        act.apply(self.ctx, change, fence=lambda: self._last_look(move), patience=0.0)

    def _last_look(self, move: pod_moves.Move) -> None:
        """All is ready, and the first byte would leave now: what was decided has to hold still."""
        self.fence(move.pod.node)
        snapshot, at = self._view
        stale = self.ctx.clock.now() - at > STALE
        needed = not self.delete and (self._short(move, snapshot) or pod_moves._last(move, snapshot))
        if stale or move.pod.node in self._closed or needed:
            raise Withdrawn

    def _accept(self, move: pod_moves.Move, line: _Line) -> None:
        now = self.ctx.clock.now()
        line.taken += 1
        move.state, move.left_at, move.ours, move.blocked_by = "leaving", now, True, None
        move.unsure = None
        self.ctx.note(
            phases.What.EVICTED, move.plan.reason, node=move.pod.node, namespace=move.pod.namespace, name=move.pod.name
        )

    def _refuse(self, move: pod_moves.Move, line: _Line, error: errors.ClusterError) -> None:
        now, pod = self.ctx.clock.now(), move.pod
        if isinstance(error, errors.UnknownOutcome):
            move.unsure = self._change(move)
        if isinstance(error, errors.NotFound):
            move.came_true(self.ctx)
            move.end("gone", outcomes.PodOutcome.ALREADY_GONE, now)
            return
        if isinstance(error, errors.Conflict):
            # Its name belongs to another pod now, which the UID precondition kept safe: the watch says so. Or
            # somebody wrote its budget at that moment.
            move.not_before = now + 1.0
            return
        if isinstance(error, errors.BudgetSpent | errors.BudgetNotObserved):
            move.refusals += 1
            line.refused_at, line.ask_again = line.seen, now + (error.retry_after or ASK_AGAIN)
            namespace, name = move.budget or (pod.namespace, "")
            said = "; ".join(cause.message for cause in error.causes if cause.message) or error.message
            move.block("PodDisruptionBudget", namespace, name, said)
            self.ctx.note(phases.What.REFUSED, said, node=pod.node, namespace=pod.namespace, name=pod.name)
            return
        move.block("Pod", pod.namespace, pod.name, str(error))
        self.ctx.note(phases.What.REFUSED, str(error), node=pod.node, namespace=pod.namespace, name=pod.name)
        if isinstance(error, errors.TwoBudgets):
            # The second budget is so new that the watch has not shown it; one of the two may be ours to remove.
            move.not_before = now + 1.0
            return
        if isinstance(error, AGAIN) and not server_fence.by_the_fence(error):
            move.not_before = now + max(min(2.0 ** (move.tries - 1), 30.0), error.retry_after or 0.0)
            return
        move.end("failed", outcomes.PodOutcome.FAILED, now, str(error))
