# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""PodMigrationJobs that nobody processes any more, although their phase is still Running.

From Koordinator v1.7.0 and v1.8.0 (``pkg/descheduler/controllers/migration/controller.go``): a process draws a UID at
its start and ignores jobs that bear another one's; it fails a job whose ttl is over, and looks at each job that it
processes every three seconds. A paused job is not looked at, and is left to whom paused it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import causes, migration_jobs

CREATED_BY = "koordinator.sh/job-created-by"
"""Annotation of jobs that koord-descheduler created: the UID of the process."""

LATE = 10.0
"""Seconds after the end of its ttl in which a job's controller would have failed it."""

GONE = 7.0
"""Seconds after the end of its pod in which a job's controller would have ended it."""


def running(job: migration_jobs.Job) -> bool:
    """Whether a restart of the controller may strand the job; nobody processes a paused one."""
    return job.phase == "Running" and not job.paused


def forgotten(job: migration_jobs.Job, controllers: t.Collection[str]) -> bool:
    """Whether the job is older than every process; ``controllers`` are the times at which their pods were created.

    A process that starts looks at no job that is Running already.
    """
    return bool(controllers) and job.created < min(controllers)


def why(job: migration_jobs.Job, now: float, controllers: t.Collection[str], gone_for: float) -> str:
    """Why nobody processes a running job, as the end of a sentence that begins with its name; empty if somebody may.

    ``now`` is the API server's time in seconds, ``gone_for`` for how many seconds the pod has not existed.
    """
    age = now - causes.seconds_of(job.created)
    if age > (job.ttl or migration_jobs.KEPT_WITHOUT_TTL) + LATE:
        limit = (
            f"its ttl of {job.ttl:.0f} s" if job.ttl else f"the {migration_jobs.KEPT_WITHOUT_TTL:.0f} s of such jobs"
        )
        return f"has outlived {limit}"
    if CREATED_BY in job.annotations and forgotten(job, controllers):
        return "was created by an earlier process of koord-descheduler, and later ones ignore it"
    # With a Reservation it waits for the new pod after the old one's end.
    if gone_for > GONE and not (job.evicting and job.reservation):
        return f"has nothing to do: its pod {job.pod.namespace}/{job.pod.name} is gone"
    return ""
