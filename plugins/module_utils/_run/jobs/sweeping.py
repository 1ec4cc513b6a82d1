# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a drain by PodMigrationJobs leaves: nothing. Jobs are ended first and deleted then, Reservations after them."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import ClusterError, Forbidden
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.migration_jobs import (
    API_VERSION,
    NO_LIMITER,
    Job,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import writing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.act import PATIENCE
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs.job_work import (
    free,
    reject,
    remove,
    unlimit,
    wake,
)

LOOK_EVERY = 0.25
"""Seconds between two lists of Reservations."""
SILENT = 20.0
"""Seconds without news of a job that has passed arbitration, after which its controller is reminded of it.

A koord-descheduler that starts anew never comes back to jobs that run already; any update makes it.
"""
SOON = 3.0
"""The same for jobs of an earlier run: whatever killed that one may have killed their controller, too."""
OVERDUE = 60.0
"""Seconds after a job's ttl: its controller would have ended it by then if it were there."""
VANISHING = 5.0
"""Seconds that the controller gets to delete the Reservation of a deleted job."""


def serves(job: Job, node: str) -> bool:
    """Whether the job was made to empty the node."""
    return job.ours and job.annotations.get(names.SERVES_NODES) == node


@dataclass
class Sweep:
    """Ends, deletes and waits for what jobs leave; ``fence`` is asked right before each write."""

    ctx: Context
    fence: t.Callable[[], None]
    _listed: float = float("-inf")
    _orphaned: dict[str, tuple[float, float]] = field(default_factory=dict)
    _swept: dict[str, set[str]] = field(default_factory=dict)
    _sweeping: dict[str, float] = field(default_factory=dict)

    def done_with(self, node: str, jobs: t.Mapping[str, Job], mine: t.Collection[str]) -> bool:
        """Whether nothing is left of the node's jobs, of which ``mine`` are those that somebody else follows."""
        if self._orphans(node, jobs, mine):
            return False
        swept = self._swept.setdefault(node, set())
        ended = [job for job in jobs.values() if job.ended and serves(job, node)]
        for job in ended:
            if job.uid not in swept:
                self._delete(job.ref)
                # The controller names a Reservation after the job's UID.
                swept |= {job.uid, job.reservation or job.uid}
        return not ended and self._reservations_gone(node, swept)

    def remind(self, job: Job, *, unlimited: bool) -> None:
        """Bring a job that has passed arbitration before its controller again; a refusal is told in the report.

        ``unlimited``: without the object limiter, once its eviction was sent.
        """
        let_end = unlimited and job.evicting and NO_LIMITER not in job.annotations
        try:
            (unlimit if let_end else wake)(self.ctx, job, self.fence)
        except ClusterError as error:
            self.ctx.note("kept", f"koord-descheduler could not be reminded of {job.ref}: {error}")

    def _orphans(self, node: str, jobs: t.Mapping[str, Job], mine: t.Collection[str]) -> bool:
        """Whether jobs are at work whose pods left before this call began: those of a run that was killed.

        Their controller may have been killed as well, so they are brought before it again.
        """
        now = self.ctx.clock.now()
        waiting = False
        for job in jobs.values():
            if job.ended or job.name in mine or not serves(job, node):
                continue
            since, reminded = self._orphaned.setdefault(job.name, (now, now - SILENT + SOON))
            if now > since + job.ttl + OVERDUE:
                continue
            waiting = True
            if job.passed and now - reminded >= SILENT:
                self._orphaned[job.name] = since, now
                self.remind(job, unlimited=True)
        return waiting

    def _reservations_gone(self, node: str, wanted: set[str]) -> bool:
        if not wanted:
            return True
        now = self.ctx.clock.now()
        since = self._sweeping.setdefault(node, now)
        if now < self._listed + LOOK_EVERY:
            return False
        self._listed = now
        try:
            found = self.ctx.cluster.items(kinds.RESERVATIONS, patience=PATIENCE).items
        except Forbidden as error:
            self.ctx.note("kept", f"Whether Reservations are left is not known: {error}", node=node)
            return True
        left = [raw["metadata"] for raw in found if raw["metadata"]["name"] in wanted]
        if left and now - since > VANISHING:
            for meta in left:
                self._delete(Ref("Reservation", meta["name"], "", meta["uid"], API_VERSION))
        return not left

    def give_up(self, job: Job, why: str) -> None:
        """End a job that has not evicted its pod, and delete it: one that vanished unended is never forgotten."""
        try:
            self.fence()
            if not job.ended:
                reject(self.ctx, job, why)
            remove(self.ctx, job)
            if job.reservation and not job.succeeded:
                free(self.ctx, job.reservation)
        except ClusterError as error:
            self.ctx.note("kept", f"{job.ref} stays: {error}")

    def _delete(self, target: Ref) -> None:
        try:
            writing.remove(self.ctx, Change("delete", target, f"Delete {target}, which has served"), fence=self.fence)
        except ClusterError as error:
            self.ctx.note("kept", f"{target} stays: {error}")
