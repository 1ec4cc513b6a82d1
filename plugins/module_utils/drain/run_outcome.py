# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What becomes of each node of a drain: given up, left to others, or proven to be empty."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    run_background,
    run_context,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    run_dispositions,
    run_evictor,
    run_node_drain,
    run_pod_hooks,
    run_replacement_wait,
    run_unreachable,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import run_handshakes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    run_dispatcher,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    gate_checks,
    ownership,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import run_pod_drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    guard_budgets,
    run_locks,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import run_lower

Proof: t.TypeAlias = "ownership.NodeLost | t.Literal['drained'] | frozenset[str]"
"""The answer of a proof: the node is drained, or why it is lost, or the UIDs of pods that still
have to go.
"""
QUIET_SECONDS = 1.0
"""Seconds for which no pod may have come to a node, or gone that may come back to it, before the
node is called drained. A busy controller and scheduler take so long to bring back a pod that
belongs on this very node.
"""
NOT_OURS = (
    outcomes.DrainOutcome.ADOPTED_BY,
    outcomes.DrainOutcome.UNCORDONED,
    outcomes.DrainOutcome.UNTAINTED,
)
"""Outcomes of nodes that are others' now: all pods left on them stay,
also those that a surge would end.
"""

NOT_TO_LOCK = (
    outcomes.DrainOutcome.GONE,
    outcomes.DrainOutcome.REPLACED,
    outcomes.DrainOutcome.ADOPTED_BY,
)
"""Outcomes of nodes that our run does not come back for: a lock of ours on them is deleted."""

NEEDS: t.Mapping[outcomes.PodOutcome, str] = {
    outcomes.PodOutcome.NEEDS_SURGE: "leaves by a surge, which is not prepared",
    outcomes.PodOutcome.NEEDS_GUARD: "has no budget and no guard",
}
"""What ``pdb_guard`` has to do first, by the outcome of the pod and of its node,
and how messages say it.
"""


def check_start(
    ctx: run_context.Context, routes: run_dispositions.Routing, snapshot: snapshots.Snapshot
) -> None:
    """Close nodes whose pods may not be moved, or not yet, and those with nothing to do."""
    now = ctx.clock.now()
    for node_drain in [node_drain for node_drain in routes.node_drains.values() if node_drain.open]:
        node_drain.count_earlier()
        if node_drain.node:
            node_drain.lacking = gate_checks.lacking_before(snapshot, node_drain.node)
        refused = [move for move in node_drain.moves.values() if move.plan.route == "refuse"]
        waiting = [] if ctx.check else node_drain.left()
        lacking = [
            (move, lack) for move in waiting if (lack := _lack(move, routes.surges, snapshot))
        ]
        if refused:
            node_drain.outcome = outcomes.DrainOutcome.REFUSED
            reasons = (f"{move.pod.ref}: {move.plan.why.sentence}" for move in refused[:10])
            node_drain.message = f"Node {node_drain.name} is left as it is: {' '.join(reasons)}"
        elif lacking:
            node_drain.outcome = outcomes.DrainOutcome(lacking[0][1].value)
            needs = "; ".join(f"{move.pod.ref} {NEEDS[lack]}" for move, lack in lacking[:10])
            node_drain.message = (
                f"Node {node_drain.name}: {needs}. Call pdb_guard with state=present first."
            )
        elif not ctx.check and not node_drain.left():
            if node_drain.selected_only:
                node_drain.outcome = outcomes.DrainOutcome.SELECTED_GONE
                node_drain.message = f"Node {node_drain.name} holds none of the selected pods."
            elif node_drain.taken.step != "cordoned":
                node_drain.outcome = outcomes.DrainOutcome.ALREADY_DRAINED
                node_drain.message = f"Node {node_drain.name} holds no pod that has to be moved."
        for move in refused:
            move.end("failed", outcomes.PodOutcome.REFUSED, now)
        for move, lack in lacking:
            move.end("failed", lack, now)


def _lack(
    move: run_pod_drain.PodDrain, surges: t.Container[str], snapshot: snapshots.Snapshot
) -> outcomes.PodOutcome | None:
    """What ``pdb_guard`` has to do before this pod may be moved, ``None`` for nothing."""
    plan = move.plan
    if plan.route == "surge" and not (plan.workload and plan.workload.uid in surges):
        return outcomes.PodOutcome.NEEDS_SURGE
    if plan.guarded and plan.route != "skip" and not snapshot.budgets_of(plan.pod):
        # None is made where another budget covers some pods of the workload, as an operator's
        # covers the primary alone.
        known = plan.workload is not None and snapshot.workload(plan.workload.uid) is not None
        guards = guard_budgets.guards(snapshot, [plan])
        if not known or any(guard.instead is None for guard in guards):
            return outcomes.PodOutcome.NEEDS_GUARD
    return None


@dataclass
class NodeOutcomes:
    """Decides the outcome of each node; ``deadline`` is on the context's clock,
    ``pod_timeout`` in seconds.
    """

    ctx: run_context.Context
    routing: run_dispositions.Routing
    surges: run_lower.Surges
    jobs: run_dispatcher.JobDispatcher
    evictor: run_evictor.Evictor
    locks: run_locks.Locks
    hooks: run_pod_hooks.PodHooks
    awaited: run_replacement_wait.AwaitedRecords
    deadline: float
    pod_timeout: float

    def __post_init__(self) -> None:
        self._kubelets = run_unreachable.KubeletWatch(
            self.ctx, self.routing.node_drains, self.routing.live.nudge
        )
        self._proofs = run_background.BackgroundCalls(self.ctx, "proof", self.routing.live.nudge)
        self._live = self.routing.live
        self._node_drains = self.routing.node_drains
        self._replacements = self.routing.replacements

    def check_ours(self, nodes: t.Mapping[str, objects.Node]) -> None:
        """Called first in each turn: close every node that is no longer ours to empty, because
        another run took it over, or somebody deleted or uncordoned it. Nothing more is sent for it.
        """
        for name, why in self.locks.lost().items():
            self.taken_over(name, why)
        for node_drain in self._node_drains.values():
            if not node_drain.open:
                continue
            node_drain.node = nodes.get(node_drain.name)
            # Nodes and records are frozen: the same ones give the same answer.
            node, record = node_drain.node, node_drain.taken
            checked = node_drain.checked
            if checked and checked[0] is node and checked[1] is record:
                continue
            if lost := ownership.node_lost(node, record):
                self._close(node_drain, lost.outcome, lost.message)
            node_drain.checked = node, record

    def begin(self) -> None:
        """Called once, under the locks: show in the nodes' conditions that their drain begins."""
        for node_drain in self._node_drains.values():
            node_drain.raw = self._live.raw_node(node_drain.name)
            if node_drain.open and (why := node_drain.show(self.ctx, "draining", self.locks.prove)):
                self._close(node_drain, why.outcome, why.message)

    def taken_over(self, node: str, why: str) -> None:
        """Close a node whose lock somebody else has now; ``why`` says who."""
        if self._node_drains[node].open:
            lost = run_node_drain.taken_over(why)
            self._close(self._node_drains[node], lost.outcome, lost.message)

    def finish(self) -> None:
        """Called in each turn: end the moves of closed nodes. Those with a request under way stay
        open until its answer is in, as it may have evicted the pod.
        """
        for node_drain in self._node_drains.values():
            if not node_drain.open:
                node_drain.end_moves(self.ctx.clock.now())

    def decide(self, node_drain: run_node_drain.NodeDrain, snapshot: snapshots.Snapshot) -> None:
        """Called last in each turn, for each open node: close it where it has failed, or start its
        proof where no pod is left; else it goes on.
        """
        now = self.ctx.clock.now()
        if self._proofs.going(node_drain.name):
            if self._proofs.done(node_drain.name):
                self._settle(node_drain, self._proofs.answer(node_drain.name))
            return
        failed = [move for move in node_drain.moves.values() if move.state == "failed"]
        if failed:
            if not any(move.state == "asked" for move in node_drain.moves.values()):
                why = "; ".join(f"{move.pod.ref}: {move.reason}" for move in failed[:10])
                self._close(node_drain, outcomes.DrainOutcome.FAILED, why)
            return
        if why := self._kubelets.given_up(node_drain):
            self.routing.look_again(node_drain, snapshot)
            self._close(node_drain, outcomes.DrainOutcome.UNREACHABLE, why)
            return
        left = node_drain.left()
        overdue = run_node_drain.overdue(left, now)
        late = overdue or [
            move for move in left if not move.waits_for_turn and move.taken(now) > self.pod_timeout
        ]
        if now >= self.deadline or late:
            self.routing.look_again(node_drain, snapshot)
            missing = [*self._replacements.missing(snapshot), *self.hooks.missing(node_drain.name)]
            why = run_node_drain.too_late(late or left, missing)
            run_node_drain.fail(overdue, now)
            self._close(node_drain, outcomes.DrainOutcome.TIMED_OUT, why)
            return
        if why := self.hooks.failed_for(node_drain.name):
            self._close(node_drain, outcomes.DrainOutcome.FAILED, why)
            return
        if why := self.awaited.hopeless(left, snapshot):
            self._close(node_drain, outcomes.DrainOutcome.NO_ROOM, why)
            return
        if (
            left
            or now - node_drain.quiet_since < QUIET_SECONDS
            or self._live.quiet_for("pods") == 0
        ):
            return
        self._decide_empty(node_drain, snapshot)

    def _decide_empty(
        self, node_drain: run_node_drain.NodeDrain, snapshot: snapshots.Snapshot
    ) -> None:
        """No pod is left on the node: start its proof once surges, replacements, hooks and jobs
        have ended, too.
        """
        if why := self.surges.failed_for(node_drain.name):
            self._close(node_drain, outcomes.DrainOutcome.FAILED, why)
            return
        if not self.surges.done_with(node_drain.name):
            return
        if (
            self._replacements.missing(snapshot)
            or self.hooks.missing(node_drain.name)
            or not self.jobs.done_with(node_drain.name)
        ):
            return
        if node_drain.selected_only:
            node_drain.outcome = outcomes.DrainOutcome.SELECTED_GONE
            node_drain.message = (
                f"The selected pods of node {node_drain.name} are gone; others are left, "
                "so it is not drained."
            )
        else:
            node_drain.needed_by = self._replacements.pending_of(node_drain.name)
            self._proofs.start(node_drain.name, functools.partial(self._proof, node_drain))

    def prove(self, node_drain: run_node_drain.NodeDrain) -> None:
        """Record the node as drained without a fresh list of its pods, as after an evacuation,
        which has followed each of them to its end.
        """
        self._settle(node_drain, self._recorded(node_drain))

    def close(self) -> None:
        """Wait for proofs and lists that are under way."""
        self._proofs.close()
        self._kubelets.close()

    def _settle(self, node_drain: run_node_drain.NodeDrain, proof: Proof) -> None:
        if isinstance(proof, ownership.NodeLost):
            self._close(node_drain, proof.outcome, proof.message)
        elif proof == "drained":
            left = "".join(
                f"; {found.lasting(node_drain.name)}" for found in node_drain.needed_by.values()
            )
            node_drain.outcome = outcomes.DrainOutcome.DRAINED
            node_drain.message = f"Node {node_drain.name} is drained{left}."
            self.ctx.tell(outcomes.DrainOutcome.DRAINED, f"drained{left}", node=node_drain.name)
        else:
            node_drain.quiet_since = self.ctx.clock.now()
            shown = proof & {pod.uid for pod in self._live.snapshot().pods_on((node_drain.name,))}
            for uid, move in node_drain.moves.items():
                if uid in shown and move.state == "gone":
                    move.reopen()

    def _proof(self, node_drain: run_node_drain.NodeDrain) -> Proof:
        """Runs in a thread of its own, so that the loop goes on with the other nodes."""
        return self._listed(node_drain) or self._recorded(node_drain)

    def _recorded(self, node_drain: run_node_drain.NodeDrain) -> Proof:
        """Write the proof into the node's record, on the condition that it is still out."""
        known = self._live.raw_node(node_drain.name)
        why, _made = node_drain.write(self.ctx, node_drain.drained, self.locks.prove, known=known)
        return why or node_drain.show(self.ctx, "drained", self.locks.prove) or "drained"

    def left_to_others(self) -> list[str]:
        """The nodes whose locks may go; what was announced on their pods is taken back where
        the record went first.

        If that fails, the lock stays: whoever deletes it takes the announcements back.
        """
        found = []
        for name, node_drain in self._node_drains.items():
            if node_drain.outcome not in NOT_TO_LOCK:
                continue
            try:
                if node_drain.outcome != outcomes.DrainOutcome.ADOPTED_BY:
                    run_handshakes.take_back(
                        self.ctx, node_drain.record, functools.partial(self.locks.prove, (name,))
                    )
            except (run_context.CallAborted, errors.ClusterError) as error:
                self.ctx.tell(
                    phases.What.KEPT,
                    f"what was announced on its pods stays there: {error}",
                    node=name,
                )
            else:
                found.append(name)
        return found

    def unrecorded(self, node_drain: run_node_drain.NodeDrain, lost: ownership.NodeLost) -> None:
        """Close a node whose record could not be written: what its hooks are about to do has to be
        in it first.
        """
        self._close(node_drain, lost.outcome, lost.message)

    def _close(
        self, node_drain: run_node_drain.NodeDrain, outcome: outcomes.DrainOutcome, message: str
    ) -> None:
        self.evictor.withdraw(node_drain.name)
        if outcome in NOT_OURS or self.hooks.failed_for(node_drain.name):
            self.surges.lose(node_drain.name, message)
        node_drain.close(self.ctx, outcome, message)
        if outcome != outcomes.DrainOutcome.ADOPTED_BY:
            self.jobs.abandon(
                node_drain.name, f"Node {node_drain.name} is not emptied after all: {message}"
            )

    def _listed(self, node_drain: run_node_drain.NodeDrain) -> frozenset[str]:
        """The pods that still have to go, by a fresh list: a watch that hangs looks like one
        with nothing to report.
        """
        found = self.ctx.cluster.items(kinds.PODS, fields=f"spec.nodeName={node_drain.name}").items
        stay = {uid for uid, move in node_drain.moves.items() if move.state == "skipped"}
        return frozenset(item["metadata"]["uid"] for item in found) - stay
