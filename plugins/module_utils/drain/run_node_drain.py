# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""One node of a drain with all of its pods, and both in the result."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_context,
    run_reconcile,
    run_services,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    pending,
    released,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    cordon,
    node_conditions,
    ownership,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import run_pod_drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    node_records,
    run_node_lock,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import (
    run_guard_call,
    run_surge_lease,
)

MOVED_BY: t.Mapping[str, outcomes.PodOutcome] = {
    "surge": outcomes.PodOutcome.SURGED,
    "job": outcomes.PodOutcome.MIGRATED,
}
"""Outcomes of pods by the route they left by; by any other they are just gone."""

NOTHING: t.Mapping[str, str] = {}

ChangeOfNode = t.Callable[[objects.Node, node_records.Record], "api_changes.Change | None"]
"""From a node that is out, with its record as it is now, to the change;
``None`` where none is needed.
"""


@dataclass
class NodeDrain:
    """The drain of one node: the node, its record, and a move for each of its pods.

    ``outcome`` is ``None`` while it is in work.
    ``raw`` is the node as it was last read to be written, or written. ``lacking`` are the
    DaemonSets that had no Ready pod there when the drain began, ``moved`` is how many pods had left
    it before, by its record. ``checked`` is the node as it was last judged to be still ours, with
    the record by which that was judged. ``needed_by`` are the workloads for which it has to come
    back, with what they lack.
    """

    name: str
    node: objects.Node | None = None
    record: node_records.Record | None = None
    moves: dict[str, run_pod_drain.PodDrain] = field(default_factory=dict)
    outcome: outcomes.DrainOutcome | None = None
    message: str = ""
    quiet_since: float = float("-inf")
    present: frozenset[str] = frozenset()
    moved: int = 0
    raw: objects.Raw | None = None
    lacking: t.Collection[str] = ()
    checked: tuple[objects.Node | None, node_records.Record] | None = None
    needed_by: t.Mapping[node_records.Awaited, pending.Lack] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        return self.outcome is None

    @property
    def failed(self) -> bool:
        return self.outcome is not None and self.outcome.failed

    @property
    def taken(self) -> node_records.Record:
        """The record with which it was taken out; only asked for while it is in work."""
        return t.cast("node_records.Record", self.record)

    @property
    def selected_only(self) -> bool:
        """Whether pods were filtered out: nobody looked at them,
        so the node cannot be called drained.
        """
        return any(move.plan.code == "not_selected" for move in self.moves.values())

    def close(self, ctx: run_context.Context, outcome: outcomes.DrainOutcome, message: str) -> None:
        """Decide the node's outcome; moves that are not over have failed,
        except for requests under way.
        """
        self.outcome = outcome
        self.message = f"Node {self.name}: {message}"
        self.end_moves(ctx.clock.now())
        ctx.tell(outcome, message, node=self.name)

    def end_moves(self, now: float) -> None:
        """Give up what is left of a closed node; again when requests under way were answered."""
        for move in self.left():
            if move.state == "waiting":
                move.end("failed", outcomes.PodOutcome.NOT_MOVED, now, move.reason)
            elif move.state == "leaving":
                move.end("failed", outcomes.PodOutcome.STILL_ENDING, now, move.reason)

    def left(self) -> list[run_pod_drain.PodDrain]:
        return [move for move in self.moves.values() if not move.done]

    @property
    def leaving(self) -> int:
        """How many pods still have to leave; one that has finished only leaves an object."""
        return sum(not move.pod.finished for move in self.left())

    def count_earlier(self) -> None:
        """Count the pods that have left since the drain began that an earlier call did not end."""
        self.moved += max(0, self.taken.leaving - self.leaving) if self.record else 0

    def read_record(self, ctx: run_context.Context) -> None:
        """Read who has the node in maintenance; closes the node where that is not
        this run, or unknown.
        """
        if self.node is None:
            self.outcome = outcomes.DrainOutcome.UNKNOWN_NODE
            self.message = f"There is no node {self.name}."
            return
        self.record, why = run_guard_call.claim(ctx, self.node)
        self.moved = self.record.moved if self.record else 0
        if why:
            self.outcome = outcomes.DrainOutcome.FAILED
            self.message = why.message
            if why.code != "bad_record":
                self.outcome = outcomes.DrainOutcome(why.code)

    def write(
        self,
        ctx: run_context.Context,
        wanted: ChangeOfNode,
        prove_locks: run_surge_lease.ProveLocks,
        *,
        known: objects.Raw | None = None,
    ) -> tuple[ownership.NodeLost | None, api_changes.Change | None]:
        """Make a change to the node, on the condition that it is still ours and
        out; both are read anew.

        ``known`` is the node as it was read a moment ago. Returns why the node cannot be emptied
        any more, and the change that was made.
        """
        taken = self.taken
        why = t.cast("ownership.NodeLost | None", None)

        def decide(raw: objects.Raw | None) -> api_changes.Change | None:
            nonlocal why
            self.raw = raw
            self.node = objects.Node.of(raw) if raw else None
            why = ownership.node_lost(self.node, taken)
            if why or self.node is None:
                return None
            self.record = node_records.record_of(self.node)
            return wanted(self.node, self.taken)

        target = objects.Ref("Node", self.name, api_version="v1")
        prove_lock = functools.partial(prove_locks, (self.name,))
        try:
            written = run_reconcile.reconcile(
                ctx, target, decide, known=known or run_reconcile.UNREAD, prove_lock=prove_lock
            )
        except run_node_lock.LostLockError as lost:
            return taken_over(lost.why), None
        except errors.ClusterError as error:
            why = ownership.NodeLost(
                outcomes.DrainOutcome.FAILED, f"its record could not be written: {error} Run again."
            )
            return why, None
        self.raw = written.object
        return why, written.change

    def drained(self, node: objects.Node, record: node_records.Record) -> api_changes.Change | None:
        """The proof that nothing is left on the node that had to go,
        and which workloads it has to come back for.

        With it goes which DaemonSets were ``lacking`` there when it was first drained: its return
        does not wait for those; and how many pods have left it.
        """
        gone = sum(1 for move in self.moves.values() if move.outcome and move.outcome.moved)
        prior = {"daemonsets": list(self.lacking), **record.prior}
        awaits = tuple(one for one, found in self.needed_by.items() if not found.behind)
        left = {"moved": self.moved + gone, "leaving": 0, "awaits": awaits, "volumes": ()}
        return cordon.at_step(node, record, "drained", prior=prior, **left)

    def show(
        self,
        ctx: run_context.Context,
        phase: node_conditions.Phase,
        prove_locks: run_surge_lease.ProveLocks,
    ) -> ownership.NodeLost | None:
        """Bring the conditions to the phase, if they are ours to set;
        why the node cannot be emptied any more.
        """

        def wanted(_node: objects.Node, record: node_records.Record) -> api_changes.Change | None:
            if self.raw:
                return node_conditions.change(self.raw, record, phase, ctx.clock.server())
            return None

        if self.taken.conditions:
            return self.write(ctx, wanted, prove_locks, known=self.raw)[0]
        return None

    def to_dict(self, now: float) -> dict[str, t.Any]:
        """The node in the result of ``node_drain``; ``now`` is by the context's clock."""
        shown = {
            "name": self.name,
            "outcome": outcomes.word_of(self.outcome),
            "failed": self.failed,
            "message": self.message,
            "moved_before": self.moved,
            "pods": [_shown(move, now) for move in self.moves.values()],
        }
        if self.needed_by:
            shown["pending"] = [found.to_dict() for found in self.needed_by.values()]
        return shown


def evicted(move: run_pod_drain.PodDrain, *, delete: bool) -> outcomes.PodOutcome:
    """The outcome of a pod that an eviction or a deletion has ended."""
    if move.pod.finished:
        return outcomes.PodOutcome.CLEARED
    if delete:
        return outcomes.PodOutcome.DELETED
    if move.plan.code == released.CODE:
        return outcomes.PodOutcome.REPLACED
    return outcomes.PodOutcome.EVICTED


def with_awaited(
    node: objects.Node,
    record: node_records.Record,
    *,
    awaits: t.Iterable[node_records.Awaited],
    volumes: t.Iterable[str],
    leaving: int,
) -> api_changes.Change | None:
    """How many pods are about to leave and what has to follow them,
    beside what the record names already.
    """
    known = {one.workload.uid: one for one in (*awaits, *record.awaits)}
    wanted = replace(
        record,
        leaving=record.leaving or leaving,
        awaits=tuple(known.values()),
        volumes=tuple(sorted({*record.volumes, *volumes})),
    )
    return cordon.noted(node, wanted, f"Record what has to follow the pods of node {node.name}")


def predicted(
    ctx: run_context.Context, node_drain: NodeDrain, raw: objects.Raw | None
) -> list[api_changes.Change | None]:
    """How the node's conditions would change when its drain begins, and when it is proven."""
    if raw is None or node_drain.record is None:
        return []
    began = node_conditions.change(raw, node_drain.record, "draining", ctx.clock.server())
    ended = node_conditions.change(
        node_conditions.after(raw, began), node_drain.record, "drained", ctx.clock.server()
    )
    return [began, ended]


def taken_over(why: str) -> ownership.NodeLost:
    """Somebody has the node's lock now; ``why`` says who."""
    return ownership.NodeLost(
        outcomes.DrainOutcome.ADOPTED_BY, f"it was taken over ({why}); nothing more is sent for it"
    )


def result_of(
    node_drains: t.Collection[NodeDrain],
    seen: run_services.Services,
    now: float,
    spent: t.Mapping[str, float],
    hooks_of: t.Callable[[NodeDrain], list[dict[str, t.Any]]] = lambda node_drain: [],
) -> run_context.Result:
    """The documented return; ``spent``: the call's ``requests`` and ``seconds``,
    ``hooks_of``: those of a node.
    """
    moves: list[run_pod_drain.PodDrain] = []
    nodes, pending_pods = [], []
    for node_drain in node_drains:
        moves += node_drain.moves.values()
        pending_pods += [
            found.finding(node_drain.name).to_dict() for found in node_drain.needed_by.values()
        ]
        shown = node_drain.to_dict(now)
        if hooks := hooks_of(node_drain):
            shown["hooks"] = hooks
        nodes.append(shown)
    failed = [node_drain for node_drain in node_drains if node_drain.failed]
    return run_context.Result(
        {
            **({"findings": pending_pods} if pending_pods else {}),
            "nodes": nodes,
            "summary": {
                "evicted": sum(1 for move in moves if move.ours and move.state == "gone"),
                "migrated": sum(1 for move in moves if move.outcome in MOVED_BY.values()),
                "skipped": sum(1 for move in moves if move.state == "skipped"),
                "failed": sum(1 for move in moves if move.state == "failed"),
                "refusals": sum(move.refusals for move in moves),
                "services": seen.watched,
                **spent,
            },
            **seen.result(),
        },
        failed=bool(failed),
        message="; ".join(node_drain.message for node_drain in failed),
    )


def too_late(moves: t.Sequence[run_pod_drain.PodDrain], missing: t.Sequence[str]) -> str:
    """What was left when time was up, what blocked it, and what helps."""
    if not moves:
        return "timed out; " + "; ".join(missing[:5])
    parts = [f"{move.pod.ref} ({move.waits.sentence})" for move in moves[:10]]
    more = f" and {len(moves) - 10} more" if len(moves) > 10 else ""
    return f"timed out with {len(moves)} pods left: " + "; ".join(parts) + more


def _shown(move: run_pod_drain.PodDrain, now: float) -> dict[str, t.Any]:
    pod = move.pod
    waited = 0.0
    if move.state != "skipped":
        waited = round((move.ended or now) - move.since, 3)
    shown: dict[str, t.Any] = {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        # It is evicted in the end.
        "route": "replace" if move.plan.code == released.CODE else move.plan.route,
        "outcome": outcomes.word_of(move.outcome or outcomes.PodOutcome.NOT_MOVED),
        "reason": move.reason,
        "waited_seconds": waited,
    }
    if move.blocked_by and move.state == "failed":
        shown["blocked_by"] = move.blocked_by
    return shown


# Whose turn it is on each node, where rules say who leaves before whom. Computed anew in each turn
# of the loop from the pods that are left, so that a run that is resumed goes on where it was. Nodes
# do not wait for each other, as one of them may never become empty.


def set_turns(
    node_drains: t.Iterable[NodeDrain], now: float, coming: t.Mapping[str, str] = NOTHING
) -> frozenset[str]:
    """Mark the moves whose turn has not come; returns the UIDs of workloads of which
    no pod may leave yet.

    ``coming`` are surges that do not serve yet, as what they wait for, by the UIDs of workloads.
    Kubelets delete a pod once its volumes are unmounted, so what leaves last is not needed for
    those of the others.
    """
    waiting: set[str] = set()
    free: set[str] = set()
    for node_drain in node_drains:
        if not node_drain.open:
            continue
        left = node_drain.left()
        first: dict[t.Any, run_pod_drain.PodDrain] = {}
        for move in left:
            first.setdefault(move.plan.policy, move)
        ordered = any(policy.ordered for policy in first)
        for move in left:
            before = None
            if ordered:
                waits_for = move.plan.policy.waits_for
                before = next((first[other] for other in first if waits_for(other)), None)
            _set_turn(move, before, now)
            _hold(move, coming)
            if move.plan.workload:
                (waiting if move.waits_for_turn else free).add(move.plan.workload.uid)
    return frozenset(waiting - free)


def _set_turn(
    move: run_pod_drain.PodDrain, before: run_pod_drain.PodDrain | None, now: float
) -> None:
    """Let a move wait for another one, or say that it is its turn. One that is leaving already
    goes on, whatever comes before it.
    """
    if before and move.state == "waiting":
        move.waits_for_turn = True
        pod = before.pod
        rule = move.plan.policy.rule or before.plan.policy.rule
        move.block(pod.ref, f"by {rule} it leaves after {pod.ref}, which is still there")
    elif move.waits_for_turn or move.turn_at is None:
        if move.waits_for_turn:
            move.blocked_by = None
        move.waits_for_turn = False
        move.turn_at = now


def _hold(move: run_pod_drain.PodDrain, coming: t.Mapping[str, str]) -> None:
    """Let a pod wait for its surge."""
    workload = move.plan.workload
    if workload and workload.uid in coming and move.state == "waiting":
        move.waits_for_turn = True
        move.block(workload, f"its surge waits: {coming[workload.uid]}")


def overdue(moves: t.Iterable[run_pod_drain.PodDrain], now: float) -> list[run_pod_drain.PodDrain]:
    """The moves that took longer, from when it was their turn, than the deadline of their rule."""
    limited = (
        (move, move.turn_at, move.plan.policy.deadline) for move in moves if not move.waits_for_turn
    )
    return [
        move
        for move, at, deadline in limited
        if at is not None and deadline is not None and now - at > deadline
    ]


def fail(moves: t.Iterable[run_pod_drain.PodDrain], now: float) -> None:
    """End the moves that are overdue."""
    for move in moves:
        policy = move.plan.policy
        why = (
            f"the deadline of {policy.rule}, {policy.deadline:g} s, has passed. {move.plan.reason}"
        )
        move.end("failed", outcomes.PodOutcome.DEADLINE, now, why)
