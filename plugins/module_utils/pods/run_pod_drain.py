# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""One pod that is being moved off its node, and what blocks it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_context,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import released
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    readiness,
)

State = t.Literal["waiting", "asked", "leaving", "gone", "failed", "skipped"]


@dataclass
class PodDrain:
    """One pod that is being moved off its node. Times are of the context's monotonic clock.

    ``unsure`` is a request without an answer: it succeeded if the pod is gone. ``waits_for_turn``:
    rules let other pods of the node leave before, or its surge does not serve yet; ``turn_at`` is
    when it was no longer so.
    ``let_go``: its ReplicaSet has let it go, to replace it.
    """

    plan: drain_policy.PodPlan
    state: State
    since: float
    outcome: outcomes.PodOutcome | None = None
    reason: str = ""
    ended: float = 0.0
    not_before: float = 0.0
    tries: int = 0
    refusals: int = 0
    left_at: float | None = None
    waits_for_turn: bool = False
    turn_at: float | None = None
    blocked_by: dict[str, str] | None = None
    remedy: str = ""
    hook: str = ""
    let_go: bool = False
    ours: bool = False
    unsure: api_changes.Change | None = None
    budget: tuple[str, str] | None = None

    @property
    def pod(self) -> objects.Pod:
        return self.plan.pod

    @property
    def done(self) -> bool:
        return self.state in ("gone", "failed", "skipped")

    def taken(self, now: float) -> float:
        """Seconds since it was its turn, or since it is leaving."""
        return now - (self.left_at or self.turn_at or self.since)

    def came_true(self, ctx: run_context.Context) -> None:
        """Remember the request without an answer, as the pod is gone."""
        if self.unsure:
            self.ours = True
            ctx.changed(self.unsure)
            self.unsure = None

    def end(self, state: State, outcome: outcomes.PodOutcome, now: float, reason: str = "") -> None:
        self.state = state
        self.outcome = outcome
        self.ended = now
        self.reason = reason or self.reason

    def reopen(self) -> None:
        """It was taken for gone, and is there."""
        self.state = "waiting"
        self.outcome = None
        self.left_at = None
        self.not_before = 0.0

    def note(self, ctx: run_context.Context, what: outcomes.Outcome, message: str) -> None:
        """Keep an event about the pod for the report."""
        pod = self.pod
        ctx.note(what, message, node=pod.node, namespace=pod.namespace, name=pod.name)

    def block(self, by: objects.Ref, message: str, remedy: str = "", hook: str = "") -> None:
        """Remember what blocks it, and what helps, for messages and for the result.

        ``hook`` is the key of the hook's call that it waits for.
        """
        place = {"kind": by.kind, "namespace": by.namespace, "name": by.name}
        self.blocked_by = {**place, "message": message}
        self.remedy = remedy
        self.hook = hook

    @property
    def waits(self) -> reasons.Reason:
        why = self.plan.why
        if self.blocked_by:
            message = self.blocked_by["message"]
            remedy = self.remedy or why.remedy
            return replace(why, message=message, remedy=remedy)
        if self.state == "asked":
            return replace(why, message="Its eviction has not been answered.")
        return why


def too_few(
    move: PodDrain,
    snapshot: snapshots.Snapshot,
    leaving: t.Collection[str],
    prior: t.Mapping[str, int],
) -> readiness.TooFewReady | None:
    """Why too few others serve for it to go, see ``short``; ``None`` if its owner consented."""
    pod = snapshot.pod(move.pod.uid)
    if pod is None or move.plan.code in readiness.CONSENTED:
        return None
    if move.plan.code == released.CODE:
        mark = released.mark_of(pod)
        why = f"{pod.ref} was given back meanwhile"
        if mark:
            why = released.lacks(snapshot, pod, mark, leaving)
        return readiness.TooFewReady(move.plan.workload or pod.ref, f"{why}.") if why else None
    return readiness.short(snapshot, pod, leaving, prior)


def stays_as_last(move: PodDrain, snapshot: snapshots.Snapshot, now: float) -> bool:
    """Whether its workload has this pod alone; then a surge has to come first, and this ends."""
    found = last_one(move, snapshot)
    if found is None:
        return False
    move.block(found.object, found.message)
    if found.alone:
        why = f"{found.message} Run the same command again: it moves it by a surge."
        move.end("failed", outcomes.PodOutcome.NEEDS_SURGE, now, why)
    return True


def last_one(move: PodDrain, snapshot: snapshots.Snapshot) -> readiness.LastPod | None:
    """The workload of which the pod serves last, where its route counts on others."""
    pod = snapshot.pod(move.pod.uid)
    if pod is None or move.plan.code not in readiness.OF_SEVERAL:
        return None
    return readiness.last(snapshot, pod)
