# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Before and during a drain: give every pod on the nodes its route, and close nodes that cannot be emptied."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    objects,
    outcomes,
    pod_plan,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import migrate, volumes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import surge_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import (
    context,
    observe,
    owners,
    pod_moves,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain import node_sites, replaced
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import koordinator

NEEDS: t.Mapping[outcomes.PodOutcome, str] = {
    outcomes.PodOutcome.NEEDS_SURGE: "leaves by a swap, which is not prepared",
    outcomes.PodOutcome.NEEDS_GUARD: "has no budget and no guard",
}
"""What ``pdb_guard`` has to do first, by the outcome of the pod and of its node, and how messages say it."""

OWNERS_EVERY = 3.0
"""Seconds between two readings of owners that cannot be watched, and between two questions after an unknown one."""


class Routing:
    """The moves of all sites, made of the one table of routes. ``surges`` are those that are prepared, by UID."""

    def __init__(
        self,
        ctx: context.Context,
        choices: pod_plan.Choices,
        live: observe.Live,
        sites: t.Mapping[str, node_sites.Site],
        surges: t.Mapping[str, surge_records.Surge],
        replacements: replaced.Replacements,
    ) -> None:
        self.ctx, self.choices, self.live, self.sites = ctx, choices, live, sites
        self.surges, self.replacements = surges, replacements
        self._scales: list[objects.Workload] = []
        self._scaled_at = float("-inf")
        self._first: frozenset[str] = frozenset()
        self._asked_at: dict[str, float] = {}

    def plan(self) -> None:
        """Give every pod its route; sites that cannot be emptied are closed before any write."""
        self.choices = koordinator.required(self.ctx, self.choices)
        snapshot = self.live.snapshot()
        open_sites = {name for name, site in self.sites.items() if site.open}
        pods = snapshot.pods_on(open_sites)
        # An autoscaler that something else writes makes an eviction of what would be a swap.
        self.live.fetch(["autoscalers"] if any(pod.owner for pod in pods) else [])
        self._first = frozenset(pod.uid for pod in pods)
        snapshot = self._with_owners(pods)
        self.adopt(snapshot, open_sites)
        for name in open_sites:
            self._close_if_refused(self.sites[name], snapshot)
        if not self.ctx.check:
            for name in open_sites:
                site = self.sites[name]
                if not site.open or site.left() or not site.record:
                    continue
                if site.selected_only:
                    site.outcome = outcomes.DrainOutcome.SELECTED_GONE
                    site.message = f"Node {name} holds none of the selected pods."
                elif site.record.step != "cordoned":
                    site.outcome = outcomes.DrainOutcome.ALREADY_DRAINED
                    site.message = f"Node {name} holds no pod that has to go."

    def take_up(self, snapshot: snapshots.Snapshot, nodes: t.Collection[str]) -> None:
        """Plan pods that came late, once their owners are known, and those whose route may have changed."""
        late = [pod for pod in snapshot.pods_on(nodes) if pod.uid not in self.sites[pod.node].moves]
        if late:
            snapshot = self._with_owners(late)
        unknown = frozenset(pod.uid for pod in late if self._behind(pod, snapshot))
        self.adopt(snapshot, nodes, but=unknown)
        for name in nodes:
            self._refuse_late(self.sites[name])

    def refresh(self) -> None:
        """Read the owners anew that cannot be watched; the others are always as they are."""
        now = self.ctx.clock.now()
        if self._scales and now - self._scaled_at >= OWNERS_EVERY:
            self._scaled_at = now
            self._scales = owners.again(self.ctx, self._scales)
            self.live.seed({"scales": list(self._scales)})

    def _with_owners(self, pods: t.Sequence[objects.Pod]) -> snapshots.Snapshot:
        """The cluster with all that is asked of these pods' owners and volumes."""
        self.live.follow(observe.owners_of(pods))
        if volumes.claimants(pods):
            self.live.fetch(("claims", "volumes"), again=True)
        found = owners.scales(self.ctx, self.live.snapshot(), pods)
        if found:
            self._scales, self._scaled_at = [*self._scales, *found], self.ctx.clock.now()
            self.live.seed({"scales": list(self._scales)})
        return self.live.snapshot()

    def _behind(self, pod: objects.Pod, snapshot: snapshots.Snapshot) -> bool:
        """Whether the pod's owner exists, and its watch has not told yet."""
        owner = pod.owner
        if owner is None or owner.kind not in observe.OWNER_KINDS:
            return False
        known = {found["metadata"]["uid"] for found in snapshot.daemon_sets}
        if owner.uid in known or snapshot.workload(owner.uid) is not None:
            return False
        now = self.ctx.clock.now()
        if now - self._asked_at.get(owner.uid, float("-inf")) < OWNERS_EVERY:
            return True
        self._asked_at[owner.uid] = now
        return owners.there(self.ctx, owner)

    def adopt(self, snapshot: snapshots.Snapshot, nodes: t.Collection[str], *, but: t.Collection[str] = ()) -> None:
        """Plan pods that were not seen before (``but`` for these), and those whose route may have changed."""
        now = self.ctx.clock.now()
        for plan in self._routes(snapshot, nodes):
            if plan.pod.uid in but:
                continue
            site = self.sites[plan.pod.node]
            move = site.moves.get(plan.pod.uid)
            if move and (move.done or move.state != "waiting" or move.plan.route == plan.route):
                continue
            if move and {move.plan.route, plan.route} == {"job", "evict"}:
                # Both end in an eviction, and the way was chosen: a job may be under way or have come to nothing.
                continue
            state: t.Literal["skipped", "waiting", "leaving"] = "waiting"
            if plan.route == "skip":
                state = "skipped"
            elif plan.pod.deleting:
                state = "leaving"
            outcome = outcomes.PodOutcome(plan.code) if state == "skipped" else None
            new = pod_moves.Move(plan, state, now, outcome=outcome, reason=plan.reason)
            if state == "leaving":
                new.left_at = now
            site.moves[plan.pod.uid] = new
            self.replacements.expect(plan, snapshot)

    def passed_over(self) -> frozenset[str]:
        """The UIDs of workloads whose surge no selected pod belongs to: a later drain ends those."""
        moves = {uid: move for site in self.sites.values() for uid, move in site.moves.items()}
        return frozenset(
            uid
            for uid, surge in self.surges.items()
            if {moves[pod].plan.code == "not_selected" for pod in surge.leaving if pod in moves} == {True}
        )

    def _routes(self, snapshot: snapshots.Snapshot, nodes: t.Collection[str]) -> tuple[pod_plan.PodPlan, ...]:
        return migrate.routes(snapshot, nodes, self.choices, now=self.ctx.clock.server(), known=self._first)

    def _refuse_late(self, site: node_sites.Site) -> None:
        """A pod that came after the plan and may not be moved stops its node."""
        for move in site.moves.values():
            if move.state == "waiting" and move.plan.route == "refuse":
                move.end("failed", outcomes.PodOutcome.REFUSED, self.ctx.clock.now(), move.plan.reason)

    def look_again(self, site: node_sites.Site, snapshot: snapshots.Snapshot) -> None:
        """Say of pods that do not end what holds them now, not why they were sent away."""
        for plan in self._routes(snapshot, {site.name}):
            move = site.moves.get(plan.pod.uid)
            if move and move.state == "leaving":
                move.plan = dataclasses.replace(move.plan, code=plan.code, reason=plan.reason, remedy=plan.remedy)
                move.reason = plan.reason

    def _close_if_refused(self, site: node_sites.Site, snapshot: snapshots.Snapshot) -> None:
        """Leave a node alone whose pods may not be moved, or not yet."""
        now = self.ctx.clock.now()
        refused = [move for move in site.moves.values() if move.plan.route == "refuse"]
        lacking = [(move, lack) for move in site.moves.values() if (lack := self._lack(move, snapshot))]
        if refused:
            site.outcome = outcomes.DrainOutcome.REFUSED
            site.message = f"Node {site.name} is left as it is: " + " ".join(
                f"{move.pod.ref}: {move.plan.why.sentence}" for move in refused[:10]
            )
        elif lacking:
            site.outcome = outcomes.DrainOutcome(lacking[0][1].value)
            site.message = f"Node {site.name}: " + "; ".join(f"{m.pod.ref} {NEEDS[lack]}" for m, lack in lacking[:10])
            site.message += ". Call pdb_guard with state=present first."
        for move in refused:
            move.end("failed", outcomes.PodOutcome.REFUSED, now)
        for move, lack in lacking:
            move.end("failed", lack, now)

    def _lack(self, move: pod_moves.Move, snapshot: snapshots.Snapshot) -> outcomes.PodOutcome | None:
        """What ``pdb_guard`` has to do before this pod may go, ``None`` for nothing; check mode takes it as done."""
        plan = move.plan
        if self.ctx.check or move.done:
            return None
        if plan.route == "swap" and not (plan.workload and plan.workload.uid in self.surges):
            return outcomes.PodOutcome.NEEDS_SURGE
        if plan.guarded and plan.route != "skip" and not snapshot.budgets_of(plan.pod):
            return outcomes.PodOutcome.NEEDS_GUARD
        return None
