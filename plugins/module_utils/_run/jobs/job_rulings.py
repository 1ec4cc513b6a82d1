# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Rulings over jobs that are there: approve, reject, remove.

None of them is written before arbitration has passed it: an earlier update starts the job without arbitration, and
an earlier deletion leaves it in the arbitrator's queue, which tries to update it twice a second until
koord-descheduler starts anew. The one exception is a job that is not paused and shall be rejected: it would begin
the moment it has passed, and a failed one does not.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import migration_jobs, verdict
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import outcomes, reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import job_view, job_work, job_writes

Ruling = t.Literal["approved", "rejected", "absent"]


class Rulings:
    """One ruling over several jobs; ``why`` is what a rejected job says of itself."""

    def __init__(self, ctx: context.Context, ruling: Ruling, works: t.Sequence[job_work.Work], why: str) -> None:
        self.ctx, self.ruling, self.works, self.why = ctx, ruling, works, why

    def carry_out(self, board: job_view.Board, deadline: float, wait: bool) -> None:
        """Rule over each job as soon as it may be written, at most until ``deadline``; then fail those left."""
        for view in board.looks(deadline):
            for work in self.works:
                if work.state != "following":
                    continue
                work.job = job = view.jobs.get(work.name) or t.cast("migration_jobs.Job", work.job)
                if self._must_wait(job, present=work.name in view.jobs):
                    job_work.tell_stage(self.ctx, work, verdict.verdict(job, view))
                else:
                    self._rule(work, job)
            waiting = [work for work in self.works if work.state == "following"]
            if not waiting:
                return
            if not wait or self.ctx.check:
                break
        for work in waiting:
            self._left(work, verdict.verdict(t.cast("migration_jobs.Job", work.job), view))

    def _must_wait(self, job: migration_jobs.Job, *, present: bool) -> bool:
        if not present or job.ended:
            return False
        if self.ruling == "rejected" and not job.paused:
            return False
        # One whose pod is on its way is removed after its end.
        return job.waiting or (self.ruling == "absent" and job.evicting)

    def _rule(self, work: job_work.Work, job: migration_jobs.Job) -> None:
        match self.ruling:
            case "approved":
                self._approve(work, job)
            case "rejected":
                self._reject(work, job)
            case "absent":
                self._remove(work, job)

    def _approve(self, work: job_work.Work, job: migration_jobs.Job) -> None:
        if job.succeeded:
            work.close(outcomes.JobOutcome.ALREADY_MOVED, f"Job {job.name} has moved {job.pod} already.")
        elif job.ended:
            work.close(
                outcomes.JobOutcome.FAILED, f"Job {job.name} has failed ({job.reason or job.phase}): {job.message}"
            )
        elif not job.paused:
            work.close(outcomes.JobOutcome.ALREADY_APPROVED, f"Job {job.name} is not paused.")
        else:
            work.job = job_writes.approve(self.ctx, job) or job
            work.created = True
            work.close(outcomes.JobOutcome.APPROVED, f"Job {job.name} goes on and moves {job.pod}.")
            self._tell(work)

    def _reject(self, work: job_work.Work, job: migration_jobs.Job) -> None:
        if job.succeeded or job.evicting:
            work.close(outcomes.JobOutcome.TOO_LATE, f"Job {job.name} has evicted {job.pod}: nothing undoes that.")
        elif job.ended:
            work.close(
                outcomes.JobOutcome.ALREADY_REJECTED,
                f"Job {job.name} has ended without moving {job.pod} ({job.reason}).",
            )
        else:
            work.job = job_writes.reject(self.ctx, job, self.why) or job
            if work.job.evicting:
                work.close(outcomes.JobOutcome.TOO_LATE, f"Job {job.name} has evicted {job.pod}: nothing undoes that.")
                return
            work.close(outcomes.JobOutcome.REJECTED, f"Job {job.name} is rejected; {job.pod} stays where it is.")
            self._tell(work)

    def _remove(self, work: job_work.Work, job: migration_jobs.Job) -> None:
        found = job_writes.reread(self.ctx, job.name)
        if found is None or found.uid != job.uid:
            work.close(outcomes.JobOutcome.ALREADY_ABSENT, f"There is no job {job.name} any more.")
            return
        job_writes.let_go(self.ctx, found, self.why)
        work.close(outcomes.JobOutcome.ABSENT, f"Job {job.name} is deleted.")
        self._tell(work)

    def _left(self, work: job_work.Work, why: reasons.Reason | None) -> None:
        job = t.cast("migration_jobs.Job", work.job)
        if self.ctx.check:
            self._rule(work, job)
        elif job.evicting:
            work.close(
                outcomes.JobOutcome.STILL_WAITING, f"Job {job.name} is moving {job.pod} and was not removed.", why
            )
        else:
            work.close(
                outcomes.JobOutcome.STILL_WAITING,
                f"Job {job.name} still waits for arbitration and was not written.",
                why,
            )

    def _tell(self, work: job_work.Work) -> None:
        if not self.ctx.check:
            self.ctx.tell(
                outcomes.JobOutcome(self.ruling), work.message, namespace=work.target.namespace, name=work.target.name
            )
