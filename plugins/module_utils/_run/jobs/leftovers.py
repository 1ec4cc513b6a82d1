# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""PodMigrationJobs that drains of earlier runs left, known by their label and the node that they serve."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import migration_jobs, verdict
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.runs import state
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import tracker


def left(ctx: context.Context) -> tuple[migration_jobs.Job, ...]:
    """The jobs; those that ``pod_migration_job`` made on its own are nobody's leftovers."""
    ours = f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY}"
    try:
        found = ctx.cluster.items(kinds.PODMIGRATIONJOBS, labels=ours, patience=act.PATIENCE).items
    except (errors.NotFound, errors.Forbidden):
        # Where there are none, or for an account that uses none: every playbook asks, most have no rights to jobs.
        return ()
    return tuple(job for job in map(migration_jobs.Job.of, found) if names.SERVES_NODES in job.annotations)


def traces(ctx: context.Context) -> tuple[state.Trace, ...]:
    """What is said of them in a list of all that earlier runs left."""
    return tuple(
        state.Trace(
            job.labels.get(migration_jobs.RUN_LABEL, ""),
            "",
            job.created,
            str(job.ref),
            f"a PodMigrationJob of a drain, which {verdict.stage(job)}",
            (job.annotations[names.SERVES_NODES],),
        )
        for job in left(ctx)
    )


def give_up(ctx: context.Context, run: str | None, recorded: t.Collection[str]) -> None:
    """End and delete those of the run (``None``: of any) whose nodes are in nobody's maintenance any more.

    ``recorded`` are the nodes that are. A job that has evicted its pod ends by itself.
    """
    giver = tracker.JobTracker(ctx)
    for job in left(ctx):
        mine = run in (None, job.labels.get(migration_jobs.RUN_LABEL, ""))
        if mine and job.annotations[names.SERVES_NODES] not in recorded and (job.ended or not job.evicting):
            giver.give_up(job, "The maintenance for which it was made has ended.")
