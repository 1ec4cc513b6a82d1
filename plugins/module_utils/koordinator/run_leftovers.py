# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a drain by PodMigrationJobs leaves: jobs are ended, then deleted, then Reservations."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    run_context,
    run_reconcile,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    job_status,
    migration_jobs,
    reservations,
    run_tracker,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import stored_objects

LOOK_EVERY_SECONDS = 0.25
"""Seconds between two lists of Reservations."""
VANISHES_SECONDS = 5.0
"""Seconds that the controller gets to delete the Reservation of a deleted job."""


def serves(job: migration_jobs.Job, node: str) -> bool:
    """Whether the job was created to empty the node."""
    return job.ours and job.annotations.get(names.SERVES_NODES) == node


@dataclass
class JobCleanup:
    """Deletes what the jobs of a drain leave, and waits until it is gone;
    ``prove_lock`` is called before each write.
    """

    ctx: run_context.Context
    prove_lock: run_requests.ProveLock
    _listed: float = float("-inf")
    _swept: dict[str, set[str]] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)

    def done_with(self, node: str, jobs: t.Mapping[str, migration_jobs.Job]) -> bool:
        """Whether nothing is left of the node's jobs, all of which have ended."""
        swept = self._swept.setdefault(node, set())
        ended = [job for job in jobs.values() if job.ended and serves(job, node)]
        for job in ended:
            if job.uid not in swept:
                self._delete(job.ref)
                # The controller names a Reservation after the job's UID.
                swept |= {job.uid, job.reservation or job.uid}
        return not ended and self._reservations_gone(node, swept)

    def _reservations_gone(self, node: str, wanted: set[str]) -> bool:
        if not wanted:
            return True
        now = self.ctx.clock.now()
        since = self._since.setdefault(node, now)
        if now < self._listed + LOOK_EVERY_SECONDS:
            return False
        self._listed = now
        try:
            found = self.ctx.cluster.items(kinds.RESERVATIONS).items
        except errors.Forbidden as error:
            self.ctx.note(
                phases.What.KEPT,
                f"Reservations may be left, they cannot be listed: {error}",
                node=node,
            )
            return True
        left = [raw["metadata"] for raw in found if raw["metadata"]["name"] in wanted]
        if left and now - since > VANISHES_SECONDS:
            for meta in left:
                self._delete(reservations.ref_of(meta["name"], meta["uid"]))
        return not left

    def _delete(self, target: objects.Ref) -> None:
        change = api_changes.Change("delete", target, f"Delete {target}, which is no longer needed")
        try:
            run_reconcile.remove(self.ctx, change, prove_lock=self.prove_lock)
        except errors.ClusterError as error:
            self.ctx.note(phases.What.KEPT, f"{target} was not deleted: {error}")


def traces(ctx: run_context.Context) -> tuple[stored_objects.Trace, ...]:
    """The jobs that drains of earlier runs left, for the list of all that earlier runs left."""
    found = []
    for job in _left(ctx):
        run = job.labels.get(migration_jobs.RUN_LABEL, "")
        nodes = job.annotations[names.SERVES_NODES]
        what = f"a PodMigrationJob of a drain, which {job_status.stage(job)}"
        found.append(stored_objects.Trace(job.ref, what, (nodes,), run, since=job.created))
    return tuple(found)


def give_up(ctx: run_context.Context, run: str | None, recorded: t.Collection[str]) -> None:
    """End and delete those of the run (``None``: of any) whose nodes are no longer in maintenance.

    ``recorded`` are the nodes that are. A job that has evicted its pod is left to end, one that
    somebody has paused to them, and one that does not pass arbitration within
    ``run_tracker.PASSES_SECONDS`` stays as well.
    """
    jobs = run_tracker.JobTracker(ctx)
    for late in ctx.poll(LOOK_EVERY_SECONDS, run_tracker.PASSES_SECONDS):
        left = []
        for job in _left(ctx):
            of_run = run in (None, job.labels.get(migration_jobs.RUN_LABEL, ""))
            goes_on = not job.ended and (job.evicting or job.paused)
            if of_run and not goes_on and job.annotations[names.SERVES_NODES] not in recorded:
                left.append(job)
        for job in left:
            if late or not job.waiting:
                jobs.give_up(job, "The maintenance for which it was created has ended.")
        if not any(job.waiting for job in left):
            return


def _left(ctx: run_context.Context) -> list[migration_jobs.Job]:
    ours = f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY}"
    try:
        found = ctx.cluster.items(kinds.PODMIGRATIONJOBS, labels=ours).items
    except (errors.NotFound, errors.Forbidden):
        # The kind is not installed, or this account uses no jobs: every playbook calls this,
        # most without the right.
        return []
    return [
        job for job in map(migration_jobs.Job.of, found) if names.SERVES_NODES in job.annotations
    ]
