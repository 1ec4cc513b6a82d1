# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Nodes of a drain on which nothing has moved on for a while: why, and who is told of it.

That a pod is terminating within its grace period is no reason to tell anybody.
"""

from __future__ import annotations

import collections
import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    run_background,
    run_context,
    run_object_events,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    run_node_drain,
    run_unreachable,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import run_pod_drain

STILL = run_object_events.QUIET_SECONDS
PODS_NAMED = 3
"""Pods of one reason that are named."""
GOES_ON = "The drain goes on by itself once that is so."
TELLING = "alarm"

Announce = t.Callable[
    [run_context.Context, objects.Raw, tuple[reasons.Blocked, ...]], t.Sequence[str]
]
"""Tells others why nodes are blocked; these and what is left on them are in a result.
Returns what went wrong.
"""
LookAgain = t.Callable[[run_node_drain.NodeDrain, snapshots.Snapshot], None]
Silent = t.Callable[[run_node_drain.NodeDrain, snapshots.Snapshot], t.Iterable[objects.Ref | None]]
"""The objects of which Events alone may say why a node waits."""
Waits = t.Mapping[reasons.Reason, t.Sequence[run_pod_drain.PodDrain]]


@dataclass(slots=True)
class _Still:
    """A node's state, and since when it has been so, by our clock and by the API server's."""

    state: t.Hashable
    since: float
    moment: str
    looks: int = 0


class Alarms:
    """Notices nodes on which nothing moves on, and says why.

    After ``after`` seconds without progress, ``announce`` (``None`` for nobody) is called once for
    each reason. ``look_again`` gives pods that do not end the reason for that. ``silent`` names the
    objects whose state does not say why; ``events`` reads the Events of these.
    """

    def __init__(
        self,
        ctx: run_context.Context,
        after: float,
        announce: Announce | None,
        look_again: LookAgain,
        events: run_object_events.Events,
        silent: Silent,
        wake: t.Callable[[], None],
    ) -> None:
        self._ctx = ctx
        self._after = after
        self._announce = announce
        self._look_again = look_again
        self._events = events
        self._silent = silent
        self._background = run_background.BackgroundCalls(ctx, TELLING, wake)
        self._still: dict[str, _Still] = {}
        self._known: set[tuple[str, str]] = set()
        self._due: list[tuple[reasons.Blocked, run_node_drain.NodeDrain]] = []
        self.why: dict[str, tuple[str, ...]] = {}

    def step(
        self,
        node_drains: t.Iterable[run_node_drain.NodeDrain],
        snapshot: snapshots.Snapshot,
        surges: t.Mapping[str, str],
        missing: t.Sequence[str],
    ) -> None:
        """Look at the open nodes; ``why`` is then what those without progress wait
        for, by their names.

        ``surges`` is what surges wait for, by the UID of their workload, ``missing`` what nodes
        without pods wait for.
        """
        now = self._ctx.clock.now()
        self.why = {}
        self._events.take()
        for node_drain in (node_drain for node_drain in node_drains if node_drain.open):
            still = self._since(node_drain, missing, now)
            if now - still.since < STILL:
                continue
            late = now - still.since >= self._after
            if still.looks < 1 + late and self._events.ask(self._silent(node_drain, snapshot)):
                still.looks = 1 + late
                self._look_again(node_drain, snapshot)
            waits = _waits(node_drain, surges, missing, now)
            self.why[node_drain.name] = tuple(reason.message for reason in waits)
            if late and not self._events.asking:
                self._raise(node_drain, waits, still)
        self._tell()

    def close(self) -> None:
        """Wait until others have been told."""
        self._events.close()
        self._background.close()
        self._heard()

    def _since(
        self, node_drain: run_node_drain.NodeDrain, missing: t.Sequence[str], now: float
    ) -> _Still:
        """Since when nothing has moved on."""
        state = tuple((uid, move.state) for uid, move in node_drain.moves.items()), len(missing)
        still = self._still.get(node_drain.name)
        if still is None or still.state != state:
            self._still[node_drain.name] = still = _Still(state, now, self._ctx.clock.server())
        return still

    def _raise(self, node_drain: run_node_drain.NodeDrain, waits: Waits, still: _Still) -> None:
        for reason, moves in waits.items():
            names = [str(move.pod.ref) for move in moves] or [f"Node {node_drain.name}"]
            who = reasons.listed(names, PODS_NAMED)
            blocked = reasons.Blocked(
                reason.code, reason.message, reason.remedy, who, node_drain.name, still.moment
            )
            if blocked.key not in self._known:
                self._known.add(blocked.key)
                self._ctx.tell(phases.What.ALARM, blocked.sentence, node=node_drain.name)
                self._due.append((blocked, node_drain))

    def _tell(self) -> None:
        """Announce what is due in a thread of its own: a webhook that does not answer must not
        stop the drain.
        """
        self._heard()
        if not self._due or self._announce is None or self._background.going(TELLING):
            return
        found = self._due
        self._due = []
        about = {
            "reason": found[0][1].taken.reason,
            "nodes": [_entry(blocked, node_drain) for blocked, node_drain in found],
        }
        reasons_of = tuple(blocked for blocked, _node_drain in found)
        announce = functools.partial(self._announce, self._ctx, about, reasons_of)
        self._background.start(TELLING, announce)

    def _heard(self) -> None:
        if self._background.done(TELLING):
            for warning in self._background.answer(TELLING):
                self._ctx.tell(phases.What.NOTE, warning)


def _waits(
    node_drain: run_node_drain.NodeDrain,
    surges: t.Mapping[str, str],
    missing: t.Sequence[str],
    now: float,
) -> Waits:
    """What the node waits for, with the pods that each reason keeps."""
    found = collections.defaultdict[reasons.Reason, list[run_pod_drain.PodDrain]](list)
    left = node_drain.left()
    for move in left:
        ends_within = move.pod.grace_seconds + run_unreachable.OVERDUE_SECONDS
        if move.left_at is None or now - move.left_at > ends_within:
            found[_wait(move, surges)].append(move)
    if not left:
        for text in missing or ["it is being verified"]:
            found[reasons.Reason("waiting", text, GOES_ON)] = []
    return found


def _wait(move: run_pod_drain.PodDrain, surges: t.Mapping[str, str]) -> reasons.Reason:
    workload = move.plan.workload
    if move.plan.route == "surge" and workload and workload.uid in surges:
        return reasons.Reason("waiting", f"Its surge waits: {surges[workload.uid]}", GOES_ON)
    return move.waits


def _entry(blocked: reasons.Blocked, node_drain: run_node_drain.NodeDrain) -> objects.Raw:
    """The node with what is left on it, as results have it."""
    pods = [
        {
            "namespace": move.pod.namespace,
            "name": move.pod.name,
            "uid": move.pod.uid,
            "owner": str(move.plan.workload or move.pod.owner or ""),
            "route": move.plan.route,
            "code": move.plan.code,
        }
        for move in node_drain.left()
    ]
    entry = outcomes.entry(node_drain.name, outcomes.PlanOutcome.BLOCKED, blocked.sentence)
    return {**entry, "failed": False, "pods": pods}
