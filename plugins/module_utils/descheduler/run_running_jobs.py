# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""PodMigrationJobs before a restart of their controller: running ones end, stranded ones go."""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    run_context,
    run_reconcile,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    run_targets,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    causes,
    migration_jobs,
    run_installed,
    run_job_writes,
    run_tracker,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases

POLL_SECONDS = 1.0
"""Seconds between two lists."""


def wait(target: run_targets.DeschedulerTarget, how: str, timeout: float) -> None:
    """Make sure that no PodMigrationJob is running, as ``running_jobs`` says:
    a restart would strand it.

    Those that nobody processes are deleted with their Reservations,
    and older ones brought before their controller.

    Raises:
        CallAborted: some are still running.
    """
    if target.flavor == "sigs" or how == "ignore":
        return
    ctx = target.ctx
    jobs = RunningJobs(target)
    announced = False
    for late in ctx.poll(POLL_SECONDS, timeout):
        running = jobs.look()
        if not running or ctx.check:
            return
        names = ", ".join(job.name for job in running[:5])
        if late or (how == "refuse" and not jobs.unsure(running)):
            waited = f" after {timeout:.0f} s" if late else ""
            message = (
                f"{len(running)} PodMigrationJobs still run{waited} ({names}); "
                "a restart would strand them."
            )
            remedy = (
                "Wait for them and run again, or set running_jobs: ignore. Nothing was configured."
            )
            raise run_context.CallAborted(
                "jobs_running", message, remedy, f"PodMigrationJob {running[0].name}"
            )
        if not announced:
            target.tell(
                phases.What.WAITING, f"waiting for {len(running)} PodMigrationJobs: {names}"
            )
            announced = True


@dataclass
class RunningJobs:
    """Tells jobs that run from stranded ones; the dictionaries and sets are by the jobs' UIDs.

    ``gone`` has since when the pod has not existed, on the context's monotonic clock.
    """

    target: run_targets.DeschedulerTarget
    gone: dict[str, float] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    reminded: set[str] = field(default_factory=set)

    def look(self) -> list[migration_jobs.Job]:
        """The jobs that run; stranded ones are deleted."""
        ctx, running = self.target.ctx, []
        found = [job for job in listed(ctx) if causes.running(job) and job.uid not in self.left]
        since = (
            [pod["metadata"]["creationTimestamp"] for pod in self.target.pods()] if found else []
        )
        for job in found:
            why = causes.why(job, causes.seconds_of(ctx.clock.server()), since, self._gone_for(job))
            if why:
                self.left.add(job.uid)
                self.target.tell(
                    phases.What.JOB, f"PodMigrationJob {job.name} is deleted: it {why}"
                )
                run_tracker.JobTracker(ctx).give_up(job, f"The job {why}.")
                continue
            running.append(job)
            if causes.forgotten(job, since) and job.uid not in self.reminded:
                self.reminded.add(job.uid)
                run_job_writes.remind(ctx, job)
        return running

    def unsure(self, jobs: list[migration_jobs.Job]) -> bool:
        """Whether a further look may find one of the jobs stranded."""
        return any(
            job.uid in self.gone and self._gone_for(job) <= causes.GONE_SECONDS for job in jobs
        )

    def _gone_for(self, job: migration_jobs.Job) -> float:
        clock = self.target.ctx.clock
        if not job.pod.name or self._pod_exists(job):
            self.gone.pop(job.uid, None)
            return 0.0
        return clock.now() - self.gone.setdefault(job.uid, clock.now())

    def _pod_exists(self, job: migration_jobs.Job) -> bool:
        try:
            found = run_reconcile.read(self.target.ctx, job.pod)
        except errors.Forbidden:
            return True
        return found is not None and job.pod.uid in ("", found["metadata"]["uid"])


def listed(ctx: run_context.Context) -> tuple[migration_jobs.Job, ...]:
    """All PodMigrationJobs; none where there is no such resource."""
    try:
        return run_installed.listed(ctx)
    except errors.NotFound:
        return ()
