# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""One node of a drain with all of its pods, and how both are shown in the result."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    node_records,
    objects,
    outcomes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, pod_moves

MOVED_BY: t.Mapping[str, outcomes.PodOutcome] = {
    "swap": outcomes.PodOutcome.SWAPPED,
    "job": outcomes.PodOutcome.MIGRATED,
}
"""What a pod that left by one of these routes has come to; by any other it is just gone."""


@dataclass
class Site:
    """A node, its record, and a move for every pod; ``outcome`` is ``None`` while it is in work."""

    name: str
    node: objects.Node | None = None
    record: node_records.Record | None = None
    moves: dict[str, pod_moves.Move] = field(default_factory=dict)
    outcome: outcomes.DrainOutcome | None = None
    message: str = ""
    kept: tuple[str, ...] = ()
    quiet_since: float = 0.0
    present: frozenset[str] = frozenset()

    @property
    def open(self) -> bool:
        """Whether its outcome is not decided yet."""
        return self.outcome is None

    @property
    def failed(self) -> bool:
        """Whether its outcome is a failure."""
        return self.outcome is not None and self.outcome.failed

    @property
    def selected_only(self) -> bool:
        """Whether pods were filtered out: nobody looked at them, so the node cannot be called drained."""
        return any(move.plan.code == "not_selected" for move in self.moves.values())

    def close(self, outcome: outcomes.DrainOutcome, message: str, now: float) -> None:
        """Decide the node's outcome; what was not over has failed, but for requests that are under way."""
        self.outcome, self.message = outcome, message
        self.end_moves(now)

    def end_moves(self, now: float) -> None:
        """Give up what is left of a node that is decided; again when the requests under way have been answered."""
        for move in self.left():
            if move.state == "waiting":
                move.end("failed", outcomes.PodOutcome.NOT_MOVED, now, move.reason)
            elif move.state == "leaving":
                move.end("failed", outcomes.PodOutcome.STILL_ENDING, now, move.reason)

    def left(self) -> list[pod_moves.Move]:
        """The moves that are not over."""
        return [move for move in self.moves.values() if not move.done]

    def read_record(self, ctx: context.Context) -> None:
        """Read who has the node in maintenance; closes the site where it is not this run, or nobody can tell."""
        if self.node is None:
            self.outcome, self.message = outcomes.DrainOutcome.UNKNOWN_NODE, f"There is no node {self.name}."
            return
        try:
            self.record = node_records.record_of(self.node)
        except node_records.BadRecordError as error:
            self.outcome, self.message = outcomes.DrainOutcome.FAILED, str(error)
            return
        if self.record is None:
            if not ctx.check:
                self.outcome = outcomes.DrainOutcome.NOT_IN_MAINTENANCE
                self.message = f"Node {self.name} carries no record: call node_cordon with state=cordoned first."
            return
        if self.record.foreign_to(*ctx.caller, check=ctx.check):
            self.outcome, self.message = outcomes.DrainOutcome.ADOPTED_BY, self.record.owner(self.name)

    def shown(self, now: float) -> dict[str, t.Any]:
        """The entry of ``nodes``."""
        return {
            "name": self.name,
            "outcome": outcomes.word_of(self.outcome),
            "failed": self.failed,
            "message": self.message,
            "kept": list(self.kept),
            "pods": [_shown(move, now) for move in self.moves.values()],
        }


def result_of(sites: t.Collection[Site], series: list[dict[str, t.Any]], now: float, **totals: float) -> context.Result:
    """The documented return; ``totals`` are the call's ``services``, ``requests`` and ``seconds``."""
    moves = [move for site in sites for move in site.moves.values()]
    failed = [site for site in sites if site.failed]
    return context.Result(
        {
            "nodes": [site.shown(now) for site in sites],
            "summary": {
                "evicted": sum(1 for m in moves if m.ours and m.state == "gone"),
                "migrated": sum(1 for m in moves if m.outcome in MOVED_BY.values()),
                "skipped": sum(1 for m in moves if m.state == "skipped"),
                "failed": sum(1 for m in moves if m.state == "failed"),
                "refusals": sum(m.refusals for m in moves),
                **totals,
            },
            "services": series,
        },
        failed=bool(failed),
        message="; ".join(site.message for site in failed),
    )


def too_late(moves: t.Sequence[pod_moves.Move], missing: t.Sequence[str]) -> str:
    """What was still there when time was up, what blocked it, and what helps."""
    if not moves:
        return "time is up; " + "; ".join(missing[:5])
    parts = []
    for move in moves[:10]:
        message = move.blocked_by["message"] if move.blocked_by else move.plan.reason
        parts.append(f"{move.pod.ref} ({replace(move.plan.why, message=message).sentence})")
    more = f" and {len(moves) - 10} more" if len(moves) > 10 else ""
    return f"time is up with {len(moves)} pods left: " + "; ".join(parts) + more


def _shown(move: pod_moves.Move, now: float) -> dict[str, t.Any]:
    pod = move.pod
    shown: dict[str, t.Any] = {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "route": move.plan.route,
        "outcome": outcomes.word_of(move.outcome or outcomes.PodOutcome.NOT_MOVED),
        "reason": move.reason,
        "waited_seconds": round((move.ended or now) - move.since, 3) if move.state != "skipped" else 0.0,
    }
    if move.blocked_by and move.state == "failed":
        shown["blocked_by"] = move.blocked_by
    return shown
