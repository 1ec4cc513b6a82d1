# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Evictions in parallel across budgets, with one request in flight for each budget,
as many as the API server takes.

The API server serialises what one budget allows and answers races with conflicts that cost half a
second each, so several requests on one budget gain nothing; different budgets are independent. What
a budget allows is read from its watch and never from a dry run, which does not consume it. Whether
enough pods serve is counted as well, when an eviction is queued and again right before its first
byte is sent; between the two it may have waited for a free worker,
for a connection or for the lock.
"""

from __future__ import annotations

import math
import queue
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    budgets,
    objects,
    operators,
    run_context,
    run_requests,
    snapshots,
    unready,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    eviction_requests,
    run_workers,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    readiness,
    run_pod_drain,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    guard_budgets,
    run_lock_policy,
)

# Pods whose budget an operator keeps at zero until it has acted (operator_budget_wait). How long
# they have waited is not stored: a drain that is run again waits anew.


@dataclass
class OperatorWaits:
    """``seconds`` is how long one pod waits at most; ``wanted`` are the caller's selectors of
    pods with operators.
    """

    seconds: float
    wanted: t.Sequence[objects.Raw] = ()
    _waiting: dict[str, tuple[float, budgets.Verdict]] = field(default_factory=dict)
    _acted: dict[tuple[str, str], float] = field(default_factory=dict)

    def diagnose(self, snapshot: snapshots.Snapshot, pod: objects.Pod) -> budgets.Verdict:
        return budgets.diagnose(snapshot, pod, self.wanted)

    def block(self, move: run_pod_drain.PodDrain, verdict: budgets.Verdict, now: float) -> None:
        """The operator keeps the pod, since now or since the last call for it;
        the move says for how long still.
        """
        since, _old = self._waiting.get(move.pod.uid, (now, verdict))
        self._waiting[move.pod.uid] = since, verdict
        message = f"{verdict.message} Waited for {_minutes(self._until(move) - now)} more at most."
        move.block(verdict.budget or move.pod.ref, message, verdict.remedy)

    def block_too(
        self, move: run_pod_drain.PodDrain, snapshot: snapshots.Snapshot, now: float
    ) -> None:
        """The same for a pod under a budget of which another pod is asked for first."""
        verdict = self.verdict_of(move) or self.diagnose(
            snapshot, snapshot.pod(move.pod.uid) or move.pod
        )
        if verdict.code == "operator_budget":
            self.block(move, verdict, now)

    def verdict_of(self, move: run_pod_drain.PodDrain) -> budgets.Verdict | None:
        """Why the operator keeps the pod, ``None`` if it does not."""
        return self._waiting[move.pod.uid][1] if move.pod.uid in self._waiting else None

    def forget(self, move: run_pod_drain.PodDrain, now: float, *, evicted: bool) -> None:
        """The operator keeps the pod no longer; ``evicted``: it works,
        so the time of its other pods begins anew.
        """
        self._waiting.pop(move.pod.uid, None)
        if evicted and move.budget:
            self._acted[move.budget] = now

    def end_if_late(self, move: run_pod_drain.PodDrain, now: float) -> bool:
        """End the move if its operator has not acted in time."""
        verdict = self.verdict_of(move)
        if verdict is None or now < self._until(move):
            return False
        reason = f"Waited {_minutes(self.seconds)} in vain: {verdict.sentence}"
        move.end("failed", outcomes.PodOutcome.OPERATOR_BUDGET, now, reason)
        return True

    def _until(self, move: run_pod_drain.PodDrain) -> float:
        since, _verdict = self._waiting[move.pod.uid]
        if move.budget:
            since = max(since, self._acted.get(move.budget, since))
        return since + self.seconds


def _minutes(seconds: float) -> str:
    """Whole minutes, rounded up so that a progress line changes once a minute."""
    if seconds > 60:
        return f"{math.ceil(seconds / 60)} min"
    return f"{max(math.ceil(seconds / 10), 1) * 10} s"


ASK_AGAIN_SECONDS = 10.0
"""Seconds after which a refused budget is asked again even without news from its watch."""
STALE_SECONDS = 2.0
"""Seconds after which a decision is too old to be acted on."""
AGAIN = (
    errors.NamespaceTerminating,
    errors.DeniedByWebhook,
    errors.Overloaded,
    errors.Unreachable,
    errors.ServerError,
    errors.UnknownOutcome,
)
"""Refusals after which the same request may succeed; it is sent again after growing pauses."""
Answer = tuple[run_pod_drain.PodDrain, "Exception | None", float]
"""A pod, the error of its eviction if it had one, and the seconds until the answer."""
LONGEST_PAUSE_SECONDS = 30.0
"""The longest pause between two tries, unless the server asks for a longer one."""


@dataclass
class BudgetState:
    """Our requests under one budget that its status does not show yet.

    ``busy``: an eviction under it has not been answered. ``taken`` were granted since its status
    was read as ``seen`` (a resourceVersion), and ``refused_at`` is that of the last refusal; until
    ``ask_again``, by the context's clock, it is not asked without news. ``spent`` is why it allows
    nothing, whichever of its pods is asked for.
    """

    busy: bool = False
    operator_has_to_act: bool = False
    taken: int = 0
    seen: str = ""
    refused_at: str = ""
    ask_again: float = 0.0
    spent: budgets.Verdict | None = None


class BudgetStates(dict[tuple[str, str], BudgetState]):
    """What is known of the budgets, by namespace and name."""

    def of(self, move: run_pod_drain.PodDrain) -> BudgetState:
        """The state of the move's budget; without a budget one that nobody shares."""
        return self.setdefault(move.budget, BudgetState()) if move.budget else BudgetState()

    def busy(self, move: run_pod_drain.PodDrain) -> bool:
        """Whether another pod under its budget is asked for, and it has to wait for that alone."""
        state = self.get(move.budget) if move.budget else None
        return state is not None and state.busy and not state.operator_has_to_act

    def may_ask(
        self,
        budget: objects.Budget,
        move: run_pod_drain.PodDrain,
        snapshot: snapshots.Snapshot,
        now: float,
        waits: OperatorWaits,
    ) -> bool:
        """Whether an eviction under this budget may be sent now;
        else the move says what it waits for.
        """
        state = self.of(move)
        pod = snapshot.pod(move.pod.uid) or move.pod
        if not state.busy and budget.resource_version != state.seen:
            state.seen = budget.resource_version
            state.taken = 0
        spent = pod.ready and budget.observed and budget.allowed - state.taken <= 0
        early = now < state.ask_again and (spent or state.refused_at == budget.resource_version)
        if state.busy or early:
            if state.operator_has_to_act:
                waits.block_too(move, snapshot, now)
            elif state.spent and not state.busy:
                _block(move, state.spent)
            return False
        verdict = waits.diagnose(snapshot, pod)
        if verdict.allowed and (not pod.ready or budget.allowed - state.taken > 0):
            return True
        state.spent = verdict if verdict.code == "spent" else None
        _block(move, verdict)
        if verdict.code == "two_budgets" and not any(
            guard_budgets.is_one(snapshot, b) for b in snapshot.budgets_of(pod)
        ):
            move.end("failed", outcomes.PodOutcome.TWO_BUDGETS, now, verdict.sentence)
            return False
        state.operator_has_to_act = verdict.code == "operator_budget"
        if state.operator_has_to_act:
            waits.block(move, verdict, now)
            if now >= state.ask_again:
                # Some act on an attempt only.
                return True
        state.ask_again = max(state.ask_again, now + ASK_AGAIN_SECONDS)
        return False


def _block(move: run_pod_drain.PodDrain, verdict: budgets.Verdict) -> None:
    if verdict.budget and not verdict.allowed:
        move.block(verdict.budget, verdict.message, verdict.remedy)


class EvictionRequestWaits(dict[str, float]):
    """When pods were first left to EvictionRequests of others, by UID."""

    def block(self, move: run_pod_drain.PodDrain, snapshot: snapshots.Snapshot, now: float) -> bool:
        """Whether the pod's responders act on somebody's request for its
        eviction; for a limited time.
        """
        request = eviction_requests.active(snapshot, move.pod) if move.pod.responders else None
        if request is None:
            return False
        named = eviction_requests.named(request)
        message = eviction_requests.waited_for(request)
        if now - self.setdefault(move.pod.uid, now) < eviction_requests.WAIT_SECONDS:
            move.block(named, message)
            return True
        move.reason = (
            f"{named} was not over after {eviction_requests.WAIT_SECONDS / 60:g} minutes. "
            f"{move.plan.reason}"
        )
        return False


class StaleDecision(Exception):
    """A queued request was not sent, because the reason for it no longer holds."""


@dataclass
class Evictor:
    """Sends evictions (with ``delete`` plain deletions) and settles their answers
    on the loop's thread.

    ``prove_lock`` proves the lock of a node right before each request, ``wake`` is called for each
    answer. ``lock_names`` has, by node, the lock that evictions name; where the server's own fence
    refuses one, ``regain`` is called with the node. ``prior`` are the replicas that workloads with
    a surge want without it, by their UID. ``waits`` are for the operators of budgets.
    """

    ctx: run_context.Context
    prove_lock: t.Callable[[str], None]
    wake: t.Callable[[], None]
    parallel: int
    grace_seconds: int | None
    delete: bool
    waits: OperatorWaits
    lock_names: t.Mapping[str, str] = field(default_factory=dict)
    regain: t.Callable[[str], None] = lambda node: None
    prior: t.Mapping[str, int] = field(default_factory=dict)
    _in_flight: int = 0
    _closed: set[str] = field(default_factory=set)
    _eviction_requests: EvictionRequestWaits = field(default_factory=EvictionRequestWaits)
    _leaving: dict[str, run_pod_drain.PodDrain] = field(default_factory=dict)
    _view: tuple[snapshots.Snapshot, float] = (snapshots.Snapshot(), float("-inf"))
    _states: BudgetStates = field(default_factory=BudgetStates)
    _answers: queue.SimpleQueue[Answer] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        self._workers = run_workers.Workers(self.ctx, self.parallel, self._ask)

    def close(self) -> None:
        """Wait for requests that are under way; nothing new is sent."""
        self._workers.close()

    def withdraw(self, node: str) -> None:
        """Send nothing more for the node, not even what is queued."""
        self._closed.add(node)

    def step(self, moves: t.Iterable[run_pod_drain.PodDrain], snapshot: snapshots.Snapshot) -> None:
        """Called by the loop in each turn: send what may go now, in the order of ``moves``, until
        enough requests are under way.
        """
        now = self.ctx.clock.now()
        self._view = snapshot, now
        self._leaving = {
            uid: move for uid, move in self._leaving.items() if move.state in ("asked", "leaving")
        }
        for move in moves:
            if self._in_flight >= self._workers.room:
                return
            if move.state != "waiting" or move.plan.route != "evict" or self._states.busy(move):
                continue
            if self.waits.end_if_late(move, now) or now < move.not_before:
                continue
            if not self.delete and run_pod_drain.stays_as_last(move, snapshot, now):
                continue
            if self._eviction_requests.block(move, snapshot, now):
                continue
            budget = self._budget_of(move, snapshot)
            move.budget = (budget.namespace, budget.name) if budget else None
            if budget and not self._states.may_ask(budget, move, snapshot, now, self.waits):
                continue
            if too_few := self._too_few(move, snapshot):
                self.waits.forget(move, now, evicted=False)
                why = unready.in_brackets(unready.beside(snapshot, move.pod))
                move.block(too_few.object, f"{too_few.message}{why}")
                continue
            self._send(move)

    def settle(self) -> None:
        """Act on the answers that have come in; after a LostLockError or CallAborted,
        call it again for the rest.
        """
        while True:
            try:
                move, error, seconds = self._answers.get_nowait()
            except queue.Empty:
                return
            self._in_flight -= 1
            state = self._states.of(move)
            state.busy = False
            self._workers.answered(error, seconds)
            if error is None:
                self._accept(move, state)
                continue
            move.state = "waiting"
            if isinstance(error, errors.ClusterError):
                self._refuse(move, state, error)
            elif isinstance(error, StaleDecision):
                move.tries -= 1
            else:
                raise error

    @property
    def idle(self) -> bool:
        return self._in_flight == 0

    def _budget_of(
        self, move: run_pod_drain.PodDrain, snapshot: snapshots.Snapshot
    ) -> objects.Budget | None:
        """The budget that will be asked; it, or the pod's labels,
        may have changed since the pod was planned.
        """
        pod = snapshot.pod(move.pod.uid) or move.pod
        if self.delete or pod.finished or pod.phase == "Pending":
            return None
        return next(iter(snapshot.budgets_of(pod)), None)

    def _too_few(
        self, move: run_pod_drain.PodDrain, snapshot: snapshots.Snapshot
    ) -> readiness.TooFewReady | None:
        budget = self._budget_of(move, snapshot)
        tried = budget is not None and budget.allowed <= 0 and self.waits.verdict_of(move)
        if self.delete or tried:
            return None
        return run_pod_drain.too_few(move, snapshot, self._leaving, self.prior)

    def _send(self, move: run_pod_drain.PodDrain) -> None:
        self._states.of(move).busy = True
        move.state = "asked"
        move.tries = move.tries + 1
        self._leaving[move.pod.uid] = move
        self._in_flight += 1
        self._workers.give(move)

    def _ask(self, move: run_pod_drain.PodDrain) -> None:
        pod = move.pod
        change = self.change(move)
        began = self.ctx.clock.now()
        error: Exception | None = None
        try:
            run_lock_policy.sent(
                lambda: self._send_now(move, change), lambda: self.regain(pod.node)
            )
        except Exception as caught:
            error = caught
        self._answers.put((move, error, self.ctx.clock.now() - began))
        self.wake()

    def change(self, move: run_pod_drain.PodDrain) -> api_changes.Change:
        """The eviction, or the plain deletion, of the move's pod."""
        lock = self.lock_names.get(move.pod.node, "")
        grace = move.plan.policy.grace(move.pod, self.grace_seconds)
        return api_changes.eviction(move.pod, delete=self.delete, grace_seconds=grace, lock=lock)

    def _send_now(self, move: run_pod_drain.PodDrain, change: api_changes.Change) -> None:
        # Without patience: instead of sending an old decision, the loop decides anew.
        run_requests.submit(
            self.ctx,
            change,
            prove_lock=lambda: self._last_look(move),
            patience=run_requests.NO_PATIENCE,
        )

    def _last_look(self, move: run_pod_drain.PodDrain) -> None:
        """Called by the client between connecting and the first byte. Raises StaleDecision where
        the pod may not go any more: the connection may have taken seconds.
        """
        self.prove_lock(move.pod.node)
        snapshot, at = self._view
        stale = self.ctx.clock.now() - at > STALE_SECONDS
        needed = not self.delete and (
            self._too_few(move, snapshot) or run_pod_drain.last_one(move, snapshot)
        )
        if stale or move.pod.node in self._closed or needed:
            raise StaleDecision

    def _accept(self, move: run_pod_drain.PodDrain, state: BudgetState) -> None:
        state.taken += 1
        state.operator_has_to_act = False
        self.waits.forget(move, self.ctx.clock.now(), evicted=True)
        move.state = "leaving"
        move.left_at = self.ctx.clock.now()
        move.ours = True
        move.blocked_by = move.unsure = None
        move.note(self.ctx, phases.What.EVICTED, move.plan.reason)

    def _refuse(
        self, move: run_pod_drain.PodDrain, state: BudgetState, error: errors.ClusterError
    ) -> None:
        now = self.ctx.clock.now()
        pod = move.pod
        if isinstance(error, errors.UnknownOutcome):
            move.unsure = self.change(move)
        if isinstance(error, errors.NotFound):
            move.came_true(self.ctx)
            move.end("gone", outcomes.PodOutcome.ALREADY_GONE, now)
            return
        if isinstance(error, errors.BudgetSpent | errors.BudgetNotObserved):
            move.refusals += 1
            state.refused_at = state.seen
            state.ask_again = now + (error.retry_after or ASK_AGAIN_SECONDS)
            namespace, name = move.budget or (pod.namespace, "")
            message = (
                "; ".join(cause.message for cause in error.causes if cause.message) or error.message
            )
            if verdict := self.waits.verdict_of(move):
                self.waits.block(move, verdict, now)
            else:
                move.block(objects.Ref("PodDisruptionBudget", name, namespace), message)
            move.note(self.ctx, phases.What.REFUSED, message)
            return
        if not isinstance(error, errors.Conflict):
            move.block(pod.ref, str(error))
            move.note(self.ctx, phases.What.REFUSED, str(error))
        by_us = run_lock_policy.by_the_fence(error)
        denied = isinstance(error, errors.DeniedByWebhook) and not by_us
        longest = LONGEST_PAUSE_SECONDS
        if denied and self._wait_for_operator(move, error.message):
            # An operator lets the pod go without a sign that a watch would show.
            longest = ASK_AGAIN_SECONDS
        pause = again_after(error, move.tries, longest)
        if pause is None:
            move.end("failed", outcomes.PodOutcome.FAILED, now, str(error))
        else:
            move.not_before = now + pause

    def _wait_for_operator(self, move: run_pod_drain.PodDrain, answer: str) -> bool:
        """Whether the pod has an operator: that a webhook denied the eviction is how
        it takes notice of it.
        """
        snapshot = self._view[0]
        now = self.ctx.clock.now()
        pod = snapshot.pod(move.pod.uid) or move.pod
        budget = self._budget_of(move, snapshot)
        operator = operators.operator_of(snapshot, pod, budget, self.waits.wanted)
        if operator is None or self.delete:
            return False
        blocking = budget if budget and budget.allowed <= 0 else None
        self.waits.block(move, budgets.of_operator(pod, blocking, operator, answer), now)
        return True


def again_after(
    error: errors.ClusterError, tries: int, longest: float = LONGEST_PAUSE_SECONDS
) -> float | None:
    """Seconds after which a refused eviction may be sent again;
    ``None`` where it would be refused for ever.

    They double with each try, up to ``longest``, unless the server asks for more.
    """
    if isinstance(error, errors.Conflict | errors.TwoBudgets):
        # Conflict: its name belongs to another pod now, which the UID precondition protected, or
        # somebody wrote its budget. Two budgets: the watch has not shown the second one yet, and
        # one of them may be ours to remove.
        return 1.0
    if isinstance(error, AGAIN) and not run_lock_policy.by_the_fence(error):
        growing = min(2.0 ** (tries - 1), longest)
        return max(growing, error.retry_after or growing)
    return None
