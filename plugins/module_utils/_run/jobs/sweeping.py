# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a drain by PodMigrationJobs leaves: nothing. Jobs are ended first and deleted then, Reservations after them."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import migration_jobs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import api_changes, names, objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, writing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import job_work

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


def serves(job: migration_jobs.Job, node: str) -> bool:
    """Whether the job was made to empty the node."""
    return job.ours and job.annotations.get(names.SERVES_NODES) == node


@dataclass
class Sweep:
    """Ends, deletes and waits for what jobs leave; ``fence`` is asked right before each write."""

    ctx: context.Context
    fence: t.Callable[[], None]
    _listed: float = float("-inf")
    _orphaned: dict[str, tuple[float, float]] = field(default_factory=dict)
    _swept: dict[str, set[str]] = field(default_factory=dict)
    _sweeping: dict[str, float] = field(default_factory=dict)

    def done_with(self, node: str, jobs: t.Mapping[str, migration_jobs.Job], mine: t.Collection[str]) -> bool:
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

    def remind(self, job: migration_jobs.Job, *, unlimited: bool) -> None:
        """Bring a job that has passed arbitration before its controller again; a refusal is told in the report.

        ``unlimited``: without the object limiter, once its eviction was sent.
        """
        let_end = unlimited and job.evicting and migration_jobs.NO_LIMITER not in job.annotations
        try:
            (job_work.unlimit if let_end else job_work.wake)(self.ctx, job, self.fence)
        except errors.ClusterError as error:
            self.ctx.note("kept", f"koord-descheduler could not be reminded of {job.ref}: {error}")

    def _orphans(self, node: str, jobs: t.Mapping[str, migration_jobs.Job], mine: t.Collection[str]) -> bool:
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
            found = self.ctx.cluster.items(kinds.RESERVATIONS, patience=act.PATIENCE).items
        except errors.Forbidden as error:
            self.ctx.note("kept", f"Whether Reservations are left is not known: {error}", node=node)
            return True
        left = [raw["metadata"] for raw in found if raw["metadata"]["name"] in wanted]
        if left and now - since > VANISHING:
            for meta in left:
                self._delete(objects.Ref("Reservation", meta["name"], "", meta["uid"], migration_jobs.API_VERSION))
        return not left

    def give_up(self, job: migration_jobs.Job, why: str) -> None:
        """End a job that has not evicted its pod, and delete it: one that vanished unended is never forgotten."""
        try:
            self.fence()
            if not job.ended:
                job_work.reject(self.ctx, job, why)
            job_work.remove(self.ctx, job)
            if job.reservation and not job.succeeded:
                job_work.free(self.ctx, job.reservation)
        except errors.ClusterError as error:
            self.ctx.note("kept", f"{job.ref} stays: {error}")

    def _delete(self, target: objects.Ref) -> None:
        try:
            writing.remove(
                self.ctx, api_changes.Change("delete", target, f"Delete {target}, which has served"), fence=self.fence
            )
        except errors.ClusterError as error:
            self.ctx.note("kept", f"{target} stays: {error}")
