# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Decisions on jobs that exist: approve, reject, delete.

No job is written before it has passed arbitration: an earlier update starts the job without arbitration, and after an
earlier rejection or deletion the arbitrator tries to update it twice a second until koord-descheduler restarts. So a
rejection waits until the job has passed. One that is not paused may be faster then: with room at hand it evicts its pod
within a tenth of a second (seen in the lab), and koord-descheduler may lose its note of that to our write. So the pods
are looked at afterwards.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import migration_jobs, verdict
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, writing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import job_moves, job_view, job_writes

SETTLED = 1.0
"""Seconds after which an eviction that was on its way when a job was rejected shows on its pod."""

Decision = t.Literal["approved", "rejected", "absent"]


class JobDecision:
    """One decision on several jobs; ``why`` is the message of a rejected job."""

    def __init__(
        self, ctx: context.Context, decision: Decision, moves: t.Sequence[job_moves.JobMove], why: str
    ) -> None:
        self.ctx, self.decision, self.moves, self.why = ctx, decision, moves, why

    def carry_out(self, looks: job_view.Looks, deadline: float, wait: bool) -> None:
        """Apply the decision to each job as soon as it may be written; fail those left at ``deadline``."""
        for view in looks(deadline):
            for move in self.moves:
                if move.state != "following":
                    continue
                move.job = job = view.jobs.get(move.name) or t.cast("migration_jobs.Job", move.job)
                if move.name in view.jobs and self._must_wait(job):
                    move.announce_stage(self.ctx, verdict.verdict(job, view))
                else:
                    self._apply(move, job)
            waiting = [move for move in self.moves if move.state == "following"]
            if not waiting or not wait or self.ctx.check:
                break
        self._look_back()
        for move in waiting:
            job = t.cast("migration_jobs.Job", move.job)
            if self.ctx.check:
                self._apply(move, job)
                continue
            left = f"is moving {job.pod} and was not deleted" if job.evicting else "waits for arbitration: not written"
            message = f"Job {job.name} {left}."
            move.close(outcomes.JobOutcome.STILL_WAITING, message, verdict.verdict(job, view))

    def _look_back(self) -> None:
        """Correct the outcome of rejected jobs whose pods leave nevertheless, and free what is reserved for them.

        koord-descheduler may create a Reservation for a job that it read before the rejection, and forgets it then.
        """
        decided = [move for move in self.moves if move.outcome == outcomes.JobOutcome.REJECTED]
        racing = [move for move in decided if move.job and not move.job.paused and not self.ctx.check]
        if racing:
            self.ctx.clock.sleep(SETTLED)
        for move in racing:
            job = t.cast("migration_jobs.Job", move.job)
            job_writes.free(self.ctx, job.reservation or job.uid)
            raw = writing.read(self.ctx, move.target)
            if raw is None or objects.Pod.of(raw).deleting or move.target.uid not in ("", raw["metadata"]["uid"]):
                move.close(
                    outcomes.JobOutcome.TOO_LATE,
                    f"Job {move.name} is rejected, but {move.target} was evicted just before: that cannot be undone.",
                )

    def _must_wait(self, job: migration_jobs.Job) -> bool:
        if job.ended:
            return False
        # A job that has evicted its pod is deleted after its end.
        return job.waiting or (self.decision == "absent" and job.evicting)

    def _apply(self, move: job_moves.JobMove, job: migration_jobs.Job) -> None:
        decide = {"approved": self._approve, "rejected": self._reject, "absent": self._remove}[self.decision]
        outcome, message = decide(move, job)
        move.close(outcome, message)
        if outcome.value == self.decision and not self.ctx.check:
            self.ctx.tell(outcome, message, namespace=move.target.namespace, name=move.target.name)

    def _approve(self, move: job_moves.JobMove, job: migration_jobs.Job) -> tuple[outcomes.JobOutcome, str]:
        if job.ended:
            return job_moves.ended(job)
        if not job.paused:
            return outcomes.JobOutcome.ALREADY_APPROVED, f"Job {job.name} is not paused."
        move.job = job_writes.approve(self.ctx, job) or job
        return outcomes.JobOutcome.APPROVED, f"Job {job.name} is approved and moves {job.pod}."

    def _reject(self, move: job_moves.JobMove, job: migration_jobs.Job) -> tuple[outcomes.JobOutcome, str]:
        if job.ended and not (job.succeeded or job.evicting):
            message = f"Job {job.name} {verdict.stage(job)}; {job.pod} was not moved."
            return outcomes.JobOutcome.ALREADY_REJECTED, message
        if not job.ended:
            move.job = job = job_writes.reject(self.ctx, job, self.why) or job
        if job.succeeded or job.evicting:
            return outcomes.JobOutcome.TOO_LATE, f"Job {job.name} has evicted {job.pod}: that cannot be undone."
        return outcomes.JobOutcome.REJECTED, f"Job {job.name} is rejected; {job.pod} stays where it is."

    def _remove(self, move: job_moves.JobMove, job: migration_jobs.Job) -> tuple[outcomes.JobOutcome, str]:
        found = job_writes.reread(self.ctx, job.name)
        if found is None or found.uid != job.uid:
            return outcomes.JobOutcome.ALREADY_ABSENT, f"Job {job.name} no longer exists."
        job_writes.let_go(self.ctx, found, self.why)
        return outcomes.JobOutcome.ABSENT, f"Job {job.name} is deleted."
