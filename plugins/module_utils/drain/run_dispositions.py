# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Every pod on the nodes of a drain: its route, and what the watch says of it."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    objects,
    related,
    run_context,
    run_owners,
    run_watch_cache,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    devices,
    dispositions,
    released,
    replacement,
    run_node_drain,
    run_replacement_wait,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    run_pod_drain,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import surge_records

OWNERS_EVERY_SECONDS = 3.0
"""Seconds between two reads of owners that cannot be watched, and of one that is not known yet."""
RELATED_EVERY_SECONDS = 1.0
"""Seconds between two looks at which other pods decide whether those of the nodes may leave."""


@dataclasses.dataclass
class Routing:
    """The moves of all nodes: how each pod leaves, and how far it is.

    By UIDs of workloads: ``surges`` are prepared; the replacement of pods of the ``unreplaced`` was
    given up, for the reason that is the value.
    """

    ctx: run_context.Context
    choices: drain_policy.DrainPolicy
    live: run_watch_cache.WatchCache
    node_drains: t.Mapping[str, run_node_drain.NodeDrain]
    surges: dict[str, surge_records.Surge]
    replacements: run_replacement_wait.ReplacementWait
    unreplaced: dict[str, str] = dataclasses.field(default_factory=dict)
    _scales: list[objects.Workload] = dataclasses.field(default_factory=list)
    _scaled_at: float = float("-inf")
    _first: frozenset[str] = frozenset()
    _asked_at: dict[str, float] = dataclasses.field(default_factory=dict)
    _requests_at: float = float("-inf")
    _beside_at: float = float("-inf")

    def plan(self) -> snapshots.Snapshot:
        """Give every pod on open nodes its route; returns the cluster on which that was decided."""
        nodes = [name for name, node_drain in self.node_drains.items() if node_drain.open]
        pods = self.live.snapshot().pods_on(nodes)
        self._enter(pods)
        # An autoscaler makes an eviction of what would be a surge.
        self.live.fetch(["autoscalers"] if any(pod.owner for pod in pods) else [])
        self._first = frozenset(pod.uid for pod in pods)
        snapshot = self._with_owners(pods)
        self._adopt(snapshot, nodes)
        self._read_requests()
        return snapshot

    def follow(self, snapshot: snapshots.Snapshot) -> None:
        """Update every move from the watch, and plan pods that came late."""
        now = self.ctx.clock.now()
        stale = []
        for name, node_drain in self.node_drains.items():
            if node_drain.open and self._follow_node(node_drain, snapshot):
                stale.append(name)
        if stale:
            self._plan_again(snapshot, stale)
        if self._scales and now - self._scaled_at >= OWNERS_EVERY_SECONDS:
            # These cannot be watched.
            self._scaled_at = now
            self._scales = run_owners.again(self.ctx, self._scales)
            self.live.seed({"scales": list(self._scales)})
        if self.live.scope and now - self._beside_at >= RELATED_EVERY_SECONDS:
            # A budget may be new, or an owner another one.
            self._beside_at = now
            self._look_beside(snapshot, [move.pod for move in self._waiting()])
        with contextlib.suppress(errors.ClusterError):
            # What was read before holds until they can be read again.
            self._read_requests()

    def _follow_node(
        self, node_drain: run_node_drain.NodeDrain, snapshot: snapshots.Snapshot
    ) -> bool:
        """Update the moves of the node; whether some of its pods have to be planned (again)."""
        now = self.ctx.clock.now()
        stale = False
        present = {pod.uid: pod for pod in snapshot.pods_on((node_drain.name,))}
        for uid, move in node_drain.moves.items():
            if move.state == "asked" or move.done:
                continue
            found = present.get(uid)
            if found is None:
                self._gone(move, now)
            elif found.deleting and move.state == "waiting":
                move.state = "leaving"
                move.left_at = now
            elif (
                found.finished and move.plan.route in ("wait", "surge", "replace")
            ) or _given_back(move, found, self.unreplaced):
                stale = True
        came, went = present.keys() - node_drain.present, node_drain.present - present.keys()
        if came or any(_may_return(node_drain.moves.get(uid), snapshot) for uid in went):
            node_drain.quiet_since = now
        node_drain.present = frozenset(present)
        return stale or bool(present.keys() - node_drain.moves.keys())

    def moves(self) -> list[run_pod_drain.PodDrain]:
        """The moves of all nodes, also of closed ones."""
        found: list[run_pod_drain.PodDrain] = []
        for node_drain in self.node_drains.values():
            found += node_drain.moves.values()
        return found

    def _waiting(self) -> t.Iterator[run_pod_drain.PodDrain]:
        """The moves of the pods that are still to leave."""
        for node_drain in self.node_drains.values():
            if node_drain.open:
                yield from (move for move in node_drain.moves.values() if move.state == "waiting")

    def _read_requests(self) -> None:
        """List the EvictionRequests, if pods that wait for their eviction have responders;
        most clusters have none.
        """
        now = self.ctx.clock.now()
        if now - self._requests_at < OWNERS_EVERY_SECONDS:
            return
        if any(move.plan.route == "evict" and move.pod.responders for move in self._waiting()):
            self._requests_at = now
            self.live.fetch(("eviction_requests",), again=True)

    def _gone(self, move: run_pod_drain.PodDrain, now: float) -> None:
        move.came_true(self.ctx)
        outcome = _outcome(move, delete=self.choices.disable_eviction)
        move.end("gone", outcome, now)
        pod = move.pod
        self.ctx.note(
            phases.What.GONE, outcome.value, node=pod.node, namespace=pod.namespace, name=pod.name
        )

    def _plan_again(self, snapshot: snapshots.Snapshot, nodes: t.Collection[str]) -> None:
        """Plan pods that came late, once their owners are known,
        and those whose route may have changed.

        One that may not be moved fails its node.
        """
        late: list[objects.Pod] = []
        for name in nodes:
            moves = self.node_drains[name].moves
            late += [pod for pod in snapshot.pods_on((name,)) if pod.uid not in moves]
        if late:
            snapshot = self._with_owners(late)
        unknown = frozenset(pod.uid for pod in late if self._behind(pod, snapshot))
        self._adopt(snapshot, nodes, but=unknown)
        now = self.ctx.clock.now()
        refused = outcomes.PodOutcome.REFUSED
        for name in nodes:
            for move in self.node_drains[name].moves.values():
                if move.state == "waiting" and move.plan.route == "refuse":
                    move.end("failed", refused, now, move.plan.reason)

    def without_surge(self, uid: str, node: str) -> bool:
        """Plan the node's pods of this workload anew: its surge was undone, and its record is
        gone, or says that they may be interrupted. Whether that could be read.
        """
        try:
            self.live.fetch(("leases",), again=True)
        except errors.ClusterError:
            return False
        self.surges.pop(uid, None)
        self._plan_again(self.live.snapshot(), [node])
        return True

    def _with_owners(self, pods: t.Sequence[objects.Pod]) -> snapshots.Snapshot:
        """The cluster, with the owners and volumes of these pods."""
        self._enter(pods)
        self.live.follow(related.owners_of(pods))
        self.live.fetch(related.groups_of(pods))
        self.live.fetch(related.machines_of(pods), again=True)
        if devices.volume_claimants(pods):
            self.live.fetch_claims(pods)
        if devices.claimants(pods):
            self.live.fetch(devices.KINDS, again=True)
            self.live.know_nodes()
        self.take_in(run_owners.scales(self.ctx, self.live.snapshot(), pods))
        self._look_beside(self.live.snapshot(), pods)
        self.live.fetch(replacement.kinds(self.live.snapshot(), pods, self.choices))
        self.live.fetch(("selecting_services",) if self.surges else ())
        return self.live.snapshot()

    def take_in(self, found: t.Sequence[objects.Workload]) -> None:
        """Know controllers that cannot be watched, and read them again now and then."""
        if found:
            self._scales = [*self._scales, *found]
            self._scaled_at = self.ctx.clock.now()
            self.live.seed({"scales": list(self._scales)})

    def _enter(self, pods: t.Sequence[objects.Pod]) -> None:
        """Take in the namespaces of pods that may have to leave, and of the surges."""
        if self.live.scope:
            # Which pods stay with their node is known by these alone.
            self.live.follow(name for name in related.owners_of(pods) if name == "daemon_sets")
            surged = {surge.workload.namespace for surge in self.surges.values()}
            self.live.enter(surged | related.namespaces_of(self.live.snapshot(), pods))

    def _look_beside(self, snapshot: snapshots.Snapshot, pods: t.Iterable[objects.Pod]) -> None:
        """Know all pods that decide whether these may leave: budgets and owners say which."""
        if self.live.scope:
            pods = list(pods)
            let_go = (mark.deployment for pod in pods if (mark := released.mark_of(pod)))
            uids = (*self.surges, *self.replacements.awaited, *let_go)
            known = [workload for uid in uids if (workload := snapshot.workload(uid))]
            self.live.widen(related.pods(snapshot, pods, known))

    def _behind(self, pod: objects.Pod, snapshot: snapshots.Snapshot) -> bool:
        """Whether the pod's owner exists, and its watch has not shown it yet."""
        owner = pod.owner
        if owner is None or owner.kind not in related.OWNER_KINDS:
            return False
        if snapshot.daemon_set(owner.uid) or snapshot.workload(owner.uid):
            return False
        now = self.ctx.clock.now()
        if now - self._asked_at.get(owner.uid, float("-inf")) < OWNERS_EVERY_SECONDS:
            return True
        self._asked_at[owner.uid] = now
        return run_owners.there(self.ctx, owner)

    def _adopt(
        self, snapshot: snapshots.Snapshot, nodes: t.Collection[str], *, but: t.Collection[str] = ()
    ) -> None:
        """Plan new pods, ``but`` for these, and those whose route may have changed."""
        now = self.ctx.clock.now()
        for plan in self._routes(snapshot, nodes):
            if plan.pod.uid in but:
                continue
            node_drain = self.node_drains[plan.pod.node]
            move = node_drain.moves.get(plan.pod.uid)
            if move and (move.done or move.state != "waiting" or move.plan.route == plan.route):
                continue
            if move and {move.plan.route, plan.route} == {"job", "evict"}:
                # Both end in an eviction, and a job may be under way, or have failed before.
                continue
            new = run_pod_drain.PodDrain(plan, "waiting", now, reason=plan.reason)
            if plan.route == "skip":
                new.state = "skipped"
                new.outcome = outcomes.PodOutcome(plan.code)
            elif plan.pod.deleting:
                new.state = "leaving"
                new.left_at = now
            node_drain.moves[plan.pod.uid] = new
            self.replacements.expect(plan, snapshot)

    def ended(self) -> list[surge_records.Surge]:
        """The surges that this drain ends: all but those whose pods were not selected,
        which a later one ends.
        """
        staying = {move.pod.uid for move in self.moves() if move.plan.code == "not_selected"}
        return [surge for surge in self.surges.values() if surge.pod_uid not in staying]

    def _routes(
        self, snapshot: snapshots.Snapshot, nodes: t.Collection[str]
    ) -> tuple[drain_policy.PodPlan, ...]:
        now = self.ctx.clock.server()
        return dispositions.routes(
            snapshot, nodes, self.choices, now=now, known=self._first, unreplaced=self.unreplaced
        )

    def look_again(
        self, node_drain: run_node_drain.NodeDrain, snapshot: snapshots.Snapshot
    ) -> None:
        """Give the reason why pods that are terminating do not end,
        instead of that for their route.
        """
        for plan in self._routes(snapshot, {node_drain.name}):
            move = node_drain.moves.get(plan.pod.uid)
            if move and move.state == "leaving":
                move.plan = dataclasses.replace(
                    move.plan, code=plan.code, reason=plan.reason, remedy=plan.remedy
                )
                move.reason = plan.reason


def _outcome(move: run_pod_drain.PodDrain, *, delete: bool) -> outcomes.PodOutcome:
    """What became of a pod that is gone."""
    if move.plan.tolerant:
        return outcomes.PodOutcome.TOLERATES_MAINTENANCE
    if move.ours or move.pod.finished:
        return run_node_drain.evicted(move, delete=delete)
    return run_node_drain.MOVED_BY.get(move.plan.route, outcomes.PodOutcome.GONE)


def _given_back(
    move: run_pod_drain.PodDrain, pod: objects.Pod, unreplaced: t.Container[str]
) -> bool:
    """Whether it was to be replaced first, and is its ReplicaSet's again, or was all the time."""
    workload = move.plan.workload
    given_up = move.plan.route == "replace" and workload is not None and workload.uid in unreplaced
    return given_up and move.state == "waiting" and names.RELEASED not in pod.labels


def _may_return(move: run_pod_drain.PodDrain | None, snapshot: snapshots.Snapshot) -> bool:
    """Whether the successor of a pod that has gone may come to the node although that is out.

    The scheduler keeps it off, unless the pod tolerates the maintenance or its template names its
    node itself. Of a workload that is not known, or whose template is elsewhere,
    everything is possible.
    """
    if move is None:
        return True
    if move.state == "skipped":
        return False
    workload = snapshot.workload_of(move.pod)
    template = workload.pod_spec if workload else {}
    return move.plan.tolerant or not template or bool(template.get("nodeName"))
