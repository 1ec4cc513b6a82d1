# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""After a pod has gone: is its replacement ready elsewhere, and what else has to follow its end?"""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    index_keys,
    objects,
    related,
    run_context,
    run_owners,
    run_requests,
    run_watch_cache,
    snapshots,
    unready,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    pending,
    run_detach_wait,
    run_node_drain,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import ownership
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    readiness,
    run_pod_drain,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import run_surge_lease

SLICES_BEHIND_SECONDS = 5.0
"""Seconds for which EndpointSlices that lack Ready pods are waited for: the Service may have
another selector by now, and never list them.
"""

MISSING_FOR_SECONDS = 0.25
"""Seconds for which the answer that something is missing is not computed anew."""


LOOK_EVERY_SECONDS = 1.0
"""Seconds between two looks at what workloads lack while their pods still leave."""

UNPLACED_SECONDS = 15.0
"""Seconds for which the scheduler finds no node for a successor until it is taken for one that
needs the drained node itself, and is not waited for.
"""
GIVE_UP_UNPLACED_SECONDS = 60.0
"""The same until pods that could only leave after it are given up."""


class ReplacementWait:
    """What has to be there before a node counts as drained;
    ``waited_for`` is what was missing at the last look.

    ``awaited`` are the workloads of which pods leave, by their UIDs, and ``pending`` those of them
    that are not waited for, because their successors fit nowhere until their own node is back, or
    are behind a pod that is not Ready.
    """

    def __init__(
        self,
        ctx: run_context.Context,
        wait_for: t.Collection[str],
        wake: t.Callable[[], None] = lambda: None,
        choices: drain_policy.DrainPolicy | None = None,
    ) -> None:
        self._ctx = ctx
        self._wait_for = wait_for
        self._choices = choices or drain_policy.DrainPolicy()
        self.volumes = run_detach_wait.Detachments(ctx, wake)
        self.awaited: dict[str, node_records.Awaited] = {}
        self.pending: dict[str, pending.Lack] = {}
        self._of_node: dict[str, dict[str, None]] = {}
        self._nowhere: dict[str, tuple[float, pending.Lack]] = {}
        self._looked = float("-inf")
        self._began = ctx.clock.server()
        self._served: dict[tuple[str, str], int] = {}
        self._first: dict[str, int] = {}
        self._complete_at: float | None = None
        self._judged: snapshots.Snapshot | None = None
        self._judged_at = float("-inf")
        self.waited_for: list[str] = []

    def expect(self, plan: drain_policy.PodPlan, snapshot: snapshots.Snapshot) -> None:
        """Remember what has to follow this pod's end."""
        if plan.route == "skip":
            self.volumes.stays(plan, snapshot)
        if plan.route not in drain_policy.MOVING or plan.tolerant:
            return
        self.volumes.leaves(plan.pod, snapshot)
        workload = snapshot.workload_of(plan.pod)
        if plan.route == "surge" or workload is None or "replacement" not in self._wait_for:
            # The new pods are ready already.
            return
        ready = {p.uid for p in snapshot.pods_of(workload) if p.ready and not p.deleting}
        if plan.route == "replace":
            # So are these; if they do not come, one that is given back may not be its own yet.
            self._first.setdefault(workload.uid, len(ready))
            return
        self._of_node.setdefault(plan.pod.node, {})[workload.uid] = None
        if workload.uid in self.awaited:
            return
        # With what the node alone has, none can be ready before it is back. A pod of its operator
        # may belong to its node, too, as Rook's OSDs do; the operator's budget keeps
        # the others meanwhile.
        here = plan.code in readiness.ONLY_HERE
        if plan.code == "operator_budget" and workload.replicas == 1:
            here = True
        self.awaited[workload.uid] = node_records.Awaited(
            workload.ref, max(len(ready), self._first.get(workload.uid, 0)), here
        )
        if not here:
            self._expect_endpoints(ready, snapshot)

    def _expect_endpoints(self, ready: t.Collection[str], snapshot: snapshots.Snapshot) -> None:
        services: set[tuple[str, str]] = set()
        for uid in ready:
            for piece in snapshot.slices_with(uid):
                services.update(index_keys.service_of(piece))
        for place in sorted(services):
            uids = snapshot.endpoints(place)
            if not uids.isdisjoint(ready):
                self._served[place] = max(len(uids), self._served.get(place, 0))

    def resume(self, node: str, record: node_records.Record) -> None:
        """Wait, too, for what the node's record says that an earlier start waited for."""
        for one in record.awaits:
            self.awaited.setdefault(one.workload.uid, one)
            self._of_node.setdefault(node, {})[one.workload.uid] = None
        self.volumes.resume(node, record.volumes)

    def of(self, node: str) -> tuple[dict[str, node_records.Awaited], tuple[str, ...]]:
        """The workloads, by their UIDs, and the volumes that have to follow
        the pods of this node.
        """
        return {uid: self.awaited[uid] for uid in self._of_node.get(node, ())}, self.volumes.of(
            node
        )

    def silent(
        self, node_drain: run_node_drain.NodeDrain, snapshot: snapshots.Snapshot
    ) -> t.Iterator[objects.Ref | None]:
        """The objects of which Events alone may say why the pods of the node stay,
        or what has to follow them lacks.
        """
        for move in node_drain.left():
            if move.state == "waiting":
                yield unready.silent(snapshot, *unready.others(snapshot, move.pod))
        for one in self.of(node_drain.name)[0].values():
            yield pending.silent(snapshot, one)

    def pending_of(self, node: str) -> dict[node_records.Awaited, pending.Lack]:
        """The workloads for whose pods this node has to come back, with what they lack."""
        return {
            self.awaited[uid]: self.pending[uid]
            for uid in self._of_node.get(node, ())
            if uid in self.pending
        }

    def missing(self, snapshot: snapshots.Snapshot) -> list[str]:
        """What is missing before a node without pods counts as drained, as texts; empty if nothing.

        Asked for every such node in every turn, so an answer is kept: that something is missing for
        a moment, that nothing is as long as the cluster is the same.
        """
        now = self._ctx.clock.now()
        if self.waited_for:
            known = now - self._judged_at < MISSING_FOR_SECONDS
        else:
            known = self._judged is snapshot
        if known and not self.volumes.answered:
            return self.waited_for
        self._judged = snapshot
        self._judged_at = now
        self.waited_for = self._lacking(snapshot) if "replacement" in self._wait_for else []
        if not self.waited_for and "volumes" in self._wait_for:
            self.waited_for = self.volumes.left(snapshot)
        return self.waited_for

    def hopeless(self, snapshot: snapshots.Snapshot) -> dict[str, pending.Lack]:
        """The workloads of which the scheduler has placed no successor for a long
        time, by their UIDs.
        """
        if self._choices.node_autoscaler:
            return {}
        now = self._ctx.clock.now()
        if now - self._looked >= LOOK_EVERY_SECONDS:
            self._look(snapshot)
        return {
            uid: found
            for uid, (since, found) in self._nowhere.items()
            if now - since >= GIVE_UP_UNPLACED_SECONDS
        }

    def _look(self, snapshot: snapshots.Snapshot) -> dict[str, pending.Lack]:
        """What the workloads lack, and since when that has no node."""
        now = self._looked = self._ctx.clock.now()
        short = {
            uid: found
            for uid, one in self.awaited.items()
            if (found := pending.lack(snapshot, one, self._began))
        }
        nowhere = {uid: found for uid, found in short.items() if found.nowhere}
        self._nowhere = {
            uid: (self._nowhere.get(uid, (now,))[0], found) for uid, found in nowhere.items()
        }
        return short

    def _lacking(self, snapshot: snapshots.Snapshot) -> list[str]:
        """The workloads that lack ready pods; then, for a while,
        the Services that do not list these yet.
        """
        short = self._look(snapshot)
        self.pending = {
            uid: found for uid, found in short.items() if self._is_pending(uid, found, snapshot)
        }
        if waited := [found.text for uid, found in short.items() if uid not in self.pending]:
            self._complete_at = None
            return waited
        now = self._ctx.clock.now()
        self._complete_at = now if self._complete_at is None else self._complete_at
        # Where something is pending, its Services lack it, and the slices have
        # had the time for that.
        if short or now - self._complete_at >= SLICES_BEHIND_SECONDS:
            return []
        return self._unlisted(snapshot)

    def _is_pending(self, uid: str, found: pending.Lack, snapshot: snapshots.Snapshot) -> bool:
        if self.awaited[uid].here:
            return True
        if self._choices.node_autoscaler:
            return False
        if found.overlooked:
            return False
        since = self._nowhere.get(uid, (float("inf"),))[0]
        return self._ctx.clock.now() - since >= UNPLACED_SECONDS and pending.bearable(
            snapshot, found, self._choices
        )

    def _unlisted(self, snapshot: snapshots.Snapshot) -> list[str]:
        """The Services that lack endpoints although the pods are ready:
        traffic follows the EndpointSlices.
        """
        counts = {place: len(snapshot.endpoints(place)) for place in self._served}
        return [
            f"Service {'/'.join(place)} has {counts[place]} of {before} ready endpoints"
            for place, before in self._served.items()
            if counts[place] < before
        ]

    def close(self) -> None:
        """Look for nothing any more."""
        self.volumes.close()


def watch_awaited(
    ctx: run_context.Context, live: run_watch_cache.WatchCache, replacements: ReplacementWait
) -> t.Sequence[objects.Workload]:
    """Know the workloads that an earlier start of the run has made short, whose pods may be gone.

    Gives those that cannot be watched.
    """
    refs = [one.workload for one in replacements.awaited.values()]
    live.enter({ref.namespace for ref in refs})
    live.follow(related.kinds_of(refs))
    return run_owners.named(ctx, live.snapshot(), refs)


@dataclass
class AwaitedRecords:
    """Writes into the nodes' records what has to follow their pods, so that a drain that goes on
    where another one was killed waits for the same.
    """

    ctx: run_context.Context
    live: run_watch_cache.WatchCache
    node_drains: t.Mapping[str, run_node_drain.NodeDrain]
    replacements: ReplacementWait
    prove_locks: run_surge_lease.ProveLocks
    _written: dict[str, tuple[int, int]] = field(default_factory=dict)

    def write(self) -> list[tuple[run_node_drain.NodeDrain, ownership.NodeLost]]:
        """Write what is new to the records, before any pod leaves;
        gives the nodes that are not ours any more.
        """
        todo = [
            node_drain
            for node_drain in self.node_drains.values()
            if node_drain.open and node_drain.left() and self._new(node_drain)
        ]
        if not todo:
            return []
        with self.ctx.clock.pool(run_requests.MAX_PARALLEL, "owe") as pool:
            return [
                (node_drain, why)
                for node_drain, why in zip(todo, pool.map(self._write, todo), strict=True)
                if why
            ]

    def predicted(self, node_drain: run_node_drain.NodeDrain) -> api_changes.Change | None:
        """What would be written to the record of the node."""
        if node_drain.node is None or node_drain.record is None:
            return None
        return self._recording(node_drain)(node_drain.node, node_drain.record)

    def _new(self, node_drain: run_node_drain.NodeDrain) -> bool:
        """Whether more has to follow its pods than was written last; it never becomes less."""
        return self._written.get(node_drain.name) != self._size(node_drain)

    def _size(self, node_drain: run_node_drain.NodeDrain) -> tuple[int, int]:
        awaits, volumes = self.replacements.of(node_drain.name)
        return len(awaits), len(volumes)

    def _write(self, node_drain: run_node_drain.NodeDrain) -> ownership.NodeLost | None:
        self._written[node_drain.name] = self._size(node_drain)
        return node_drain.write(
            self.ctx, self._recording(node_drain), self.prove_locks, known=node_drain.raw
        )[0]

    def _recording(self, node_drain: run_node_drain.NodeDrain) -> run_node_drain.ChangeOfNode:
        awaits, volumes = self.replacements.of(node_drain.name)
        return functools.partial(
            run_node_drain.with_awaited,
            awaits=tuple(awaits.values()),
            volumes=volumes,
            leaving=node_drain.leaving,
        )

    def hopeless(
        self, left: t.Iterable[run_pod_drain.PodDrain], snapshot: snapshots.Snapshot
    ) -> str:
        """Why pods would wait for ever for successors of others, which fit nowhere;
        empty where they need not.
        """
        for move in left:
            pod = snapshot.pod(move.pod.uid)
            if move.state != "waiting" or not move.blocked_by or pod is None:
                continue
            if found := pending.holding(snapshot, pod, self.replacements.hopeless(snapshot)):
                why = (
                    f"{move.pod.ref} stays: {move.blocked_by['message'].rstrip('.')}. {found.text}"
                )
                if found.overlooked:
                    return (
                        f"{why}. Start that scheduler, or correct the "
                        "schedulerName, then run again."
                    )
                if found.behind:
                    return f"{why}. Repair {found.behind}, then run again."
                return (
                    f"{why}, and no node has had room for long. "
                    "Add a node or free room, then run again."
                )
        return ""
