# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Before and during a drain: give every pod on the nodes its route, and close nodes that cannot be emptied."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import migrate, volumes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.snapshot import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.surge import Surge
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run import job_backend, owners
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.evict import Move
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.observe import Live, owners_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.replaced import Replacements
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.sites import Site

NEEDS: t.Mapping[str, str] = {
    "needs_surge": "leaves by a swap, which is not prepared",
    "needs_guard": "has no budget and no guard",
}
"""What ``pdb_guard`` has to do first, by the node's outcome, and how messages say it."""


class Routing:
    """The moves of all sites, made of the one table of routes. ``surges`` are those that are prepared, by UID."""

    def __init__(
        self,
        ctx: Context,
        choices: migrate.Choices,
        live: Live,
        sites: t.Mapping[str, Site],
        surges: t.Mapping[str, Surge],
        replacements: Replacements,
    ) -> None:
        self.ctx, self.choices, self.live, self.sites = ctx, choices, live, sites
        self.surges, self.replacements = surges, replacements

    def plan(self) -> None:
        """Give every pod its route; sites that cannot be emptied are closed before any write."""
        self.choices = job_backend.required(self.ctx, self.choices)
        snapshot = self.live.snapshot()
        open_sites = {name for name, site in self.sites.items() if site.open}
        pods = snapshot.pods_on(open_sites)
        wanted = owners_of(pods) + (["claims", "volumes"] if volumes.claimants(pods) else [])
        # An autoscaler that something else writes makes an eviction of what would be a swap.
        wanted += ["autoscalers"] if any(pod.owner for pod in pods) else []
        self.live.fetch(wanted)
        self.live.seed({"scales": owners.scales(self.ctx, self.live.snapshot(), pods)})
        snapshot = self.live.snapshot()
        self.adopt(snapshot, open_sites)
        for name in open_sites:
            self._close_if_refused(self.sites[name], snapshot)
        if not self.ctx.check:
            for name in open_sites:
                site = self.sites[name]
                if not site.open or site.left() or not site.record:
                    continue
                if site.selected_only:
                    site.outcome, site.message = "selected_gone", f"Node {name} holds none of the selected pods."
                elif site.record.step != "cordoned":
                    site.outcome, site.message = "already_drained", f"Node {name} holds no pod that has to go."

    def adopt(self, snapshot: Snapshot, nodes: t.Collection[str]) -> None:
        """Plan pods that were not seen before, and those whose route may have changed."""
        now = self.ctx.clock.now()
        for plan in migrate.routes(snapshot, nodes, self.choices, now=self.ctx.clock.wall()):
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
            new = Move(plan, state, now, outcome=plan.code if state == "skipped" else "", reason=plan.reason)
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

    def refuse_late(self, site: Site) -> None:
        """A pod that came after the plan and may not be moved stops its node."""
        for move in site.moves.values():
            if move.state == "waiting" and move.plan.route == "refuse":
                move.end("failed", "refused", self.ctx.clock.now(), move.plan.reason)

    def look_again(self, site: Site, snapshot: Snapshot) -> None:
        """Say of pods that do not end what holds them now, not why they were sent away."""
        for plan in migrate.routes(snapshot, {site.name}, self.choices, now=self.ctx.clock.wall()):
            move = site.moves.get(plan.pod.uid)
            if move and move.state == "leaving":
                move.plan = dataclasses.replace(move.plan, code=plan.code, reason=plan.reason, remedy=plan.remedy)
                move.reason = plan.reason

    def _close_if_refused(self, site: Site, snapshot: Snapshot) -> None:
        """Leave a node alone whose pods may not be moved, or not yet."""
        now = self.ctx.clock.now()
        refused = [move for move in site.moves.values() if move.plan.route == "refuse"]
        lacking = [(move, lack) for move in site.moves.values() if (lack := self._lack(move, snapshot))]
        if refused:
            site.outcome = "refused"
            site.message = f"Node {site.name} is left as it is: " + " ".join(
                f"{move.pod.ref}: {move.plan.reason} {move.plan.remedy}" for move in refused[:10]
            )
        elif lacking:
            site.outcome = lacking[0][1]
            site.message = f"Node {site.name}: " + "; ".join(f"{m.pod.ref} {NEEDS[lack]}" for m, lack in lacking[:10])
            site.message += ". Call pdb_guard with state=present first."
        for move in refused:
            move.end("failed", "refused", now)
        for move, lack in lacking:
            move.end("failed", lack, now)

    def _lack(self, move: Move, snapshot: Snapshot) -> str:
        """What ``pdb_guard`` has to do before this pod may go, ``""`` for nothing; check mode takes it as done."""
        plan = move.plan
        if self.ctx.check or move.done:
            return ""
        if plan.route == "swap" and not (plan.workload and plan.workload.uid in self.surges):
            return "needs_surge"
        if plan.guarded and plan.route != "skip" and not snapshot.budgets_of(plan.pod):
            return "needs_guard"
        return ""
