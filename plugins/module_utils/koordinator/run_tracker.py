# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""One PodMigrationJob from its creation to its end.

A job is never written before arbitration: any update would carry it past the arbitration, and the
arbitrator, whose copy is old then, would try to update it twice a second until koord-descheduler
restarts. A job that is deleted while it waits is tried for as long. Only one whose pod is gone and
that waits nevertheless is ended: arbitration passes it at once, so nobody arbitrates. Jobs of other
creators, and those that a person has paused, are never written.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_context,
    run_reconcile,
    run_requests,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    causes,
    feed,
    migration_jobs,
    run_job_writes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases

SILENT_SECONDS = 20.0
"""Seconds without news of a job that has passed arbitration,
after which its controller is reminded of it.

A koord-descheduler that restarts never returns to jobs that run already;
any update makes it look at them.
"""
SILENT_IF_ADOPTED_SECONDS = 3.0
"""The same for jobs of an earlier run: its killer may have killed their controller, too."""
UNSEEN_SECONDS = 5.0
"""Seconds after which a new job that the watch has not shown is read from the API server."""

PASSES_SECONDS = 5.0
"""Seconds in which a job to be ended may pass arbitration, which happens twice a second."""

State = t.Literal["unseen", "under way", "ended", "deleted", "pod gone"]
"""``unseen``: created, but not watched yet; ``pod gone``: before the job could move it."""


class NameTaken(errors.ClusterError):
    """A job for another pod has the name."""

    rule = "another client has created a job of this name"
    remedy = "Run the same command again."


@dataclass
class TrackedJob:
    """One job and its pod, which is ``None`` where only the job is known. Times are of the
    context's monotonic clock.

    ``job`` is as last seen, ``seen`` whether the watch has shown it, ``ours`` whether the
    controller may be reminded of it. ``news`` is when it last changed, ``looked`` when it was
    created or last read in vain.
    """

    target: objects.Ref
    pod: objects.Pod | None = None
    name: str = ""
    job: migration_jobs.Job | None = None
    ours: bool = True
    seen: bool = False
    news: float = 0.0
    looked: float = 0.0
    gone_since: float | None = None
    unlimited: bool = False

    @property
    def too_late(self) -> str:
        """The message about a job whose pod was gone before."""
        return f"{self.target} was gone before job {self.name} could move it."


@dataclass(frozen=True)
class JobTracker:
    """Creates, follows, and lets go of jobs; ``prove_lock`` is called before each write."""

    ctx: run_context.Context
    prove_lock: run_requests.ProveLock | None = None

    def create(
        self,
        track: TrackedJob,
        change: api_changes.Change,
        *,
        patience: float = run_requests.PATIENCE,
        tries: int = run_reconcile.MAX_TRIES,
    ) -> None:
        """Create the job; one of this name for the same pod is what an earlier
        answer would have been.

        Raises:
            NameTaken: a job for another pod has the name.
            ClusterError: the server refused, or could not be reached.
        """
        found = run_reconcile.reconcile(
            self.ctx,
            change.target,
            lambda raw: None if raw else change,
            known=None,
            prove_lock=self.prove_lock,
            patience=patience,
            tries=tries,
        ).object
        job = migration_jobs.Job.of(found or t.cast("objects.Raw", change.body))
        if job.pod.uid != track.target.uid:
            raise NameTaken(f"{change.target} is for {job.pod}")
        track.job = job
        track.looked = self.ctx.clock.now()

    def adopt(self, track: TrackedJob, job: migration_jobs.Job) -> None:
        """Follow a job of an earlier run."""
        track.job = job
        track.seen = True
        track.news = self.ctx.clock.now() - SILENT_SECONDS + SILENT_IF_ADOPTED_SECONDS

    def follow(
        self,
        track: TrackedJob,
        jobs: t.Mapping[str, migration_jobs.Job],
        snapshot: snapshots.Snapshot,
    ) -> State:
        """Bring ``track`` up to date, and do what the job needs to come to its end.

        Raises:
            CallAborted: the lock was lost.
        """
        now = self.ctx.clock.now()
        job = jobs.get(track.name)
        if job is None:
            return "deleted" if track.seen or self._really_gone(track, now) else "unseen"
        known = track.job if track.seen else None
        if known is None or known.resource_version != job.resource_version:
            track.news = now
        track.job = job
        track.seen = True
        if job.ended:
            return "ended"
        gone = snapshot.pod(track.target.uid or job.pod.uid) is None
        replaced = any(
            (pod.namespace, pod.name) == (job.pod.namespace, job.pod.name) for pod in snapshot.pods
        )
        if self._overtaken(track, job, now, gone=gone and not (job.waiting and replaced)):
            return "pod gone"
        if track.ours and not job.waiting:
            self._remind(track, job, now, gone=gone)
        return "under way"

    def give_up(self, job: migration_jobs.Job, why: str) -> None:
        """Let go of a job; one that waits for arbitration stays, and a refusal is noted."""
        if job.waiting:
            why = "it waits for arbitration and must not be written. After its ttl it moves nothing"
            self.ctx.note(phases.What.KEPT, f"{job.ref} stays: {why}.")
            return
        try:
            run_job_writes.let_go(self.ctx, job, why, self.prove_lock)
        except errors.ClusterError as error:
            self.ctx.note(phases.What.KEPT, f"{job.ref} stays: {error}")

    def _really_gone(self, track: TrackedJob, now: float) -> bool:
        """Whether a job that the watch has not shown is not there."""
        if now - track.looked < UNSEEN_SECONDS:
            return False
        track.looked = now
        try:
            found = run_job_writes.reread(self.ctx, track.name, patience=run_requests.NO_PATIENCE)
            return found is None
        except errors.ClusterError:
            return False

    def _overtaken(
        self, track: TrackedJob, job: migration_jobs.Job, now: float, *, gone: bool
    ) -> bool:
        """End a job that has nothing to move any more, which would keep its place until its ttl."""
        if not gone or job.evicting:
            track.gone_since = None
            return False
        track.gone_since = track.gone_since or now
        if now - track.gone_since < causes.GONE_SECONDS:
            return False
        try:
            written = None
            if job.ours and not job.paused:
                written = run_job_writes.reject(self.ctx, job, track.too_late, self.prove_lock)
        except errors.ClusterError as error:
            self.ctx.note(phases.What.KEPT, f"{job.ref} stays: {error}")
            track.gone_since = now
            return False
        track.job = written or job
        return not track.job.evicting

    def _remind(
        self, track: TrackedJob, job: migration_jobs.Job, now: float, *, gone: bool
    ) -> None:
        """Bring the job before its controller again where nothing happens;
        it has passed arbitration.

        A successor of the same name meets the object limiter that its own eviction has filled: the
        job is exempted from it, now that its eviction is counted.
        """
        keeps_name = track.pod is None or feed.keeps_name(track.pod)
        exempt = (
            gone and keeps_name and job.evicting and migration_jobs.EVICT not in job.annotations
        )
        if not (exempt and not track.unlimited) and (
            job.paused or now - track.news < SILENT_SECONDS
        ):
            return
        track.news = now
        track.unlimited = track.unlimited or exempt
        run_job_writes.remind(self.ctx, job, self.prove_lock, exempt=exempt)
