# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The writes that a PodMigrationJob may get after its creation; ``None``: the job is gone."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    run_context,
    run_reconcile,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    causes,
    job_status,
    migration_jobs,
    reservations,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases

REMINDED = f"{names.PREFIX}/reminded"
"""The annotation with the time at which koord-descheduler was last reminded of a job."""


def reread(
    ctx: run_context.Context, name: str, patience: float = run_requests.PATIENCE
) -> migration_jobs.Job | None:
    """The job as the API server has it now."""
    found = run_reconcile.read(ctx, migration_jobs.ref_of(name), patience=patience)
    return migration_jobs.Job.of(found) if found else None


def approve(ctx: run_context.Context, job: migration_jobs.Job) -> migration_jobs.Job | None:
    """Approve a paused job that has passed arbitration, with its whole ttl from now on.

    The ttl counts from the job's creation, also while it is paused; without more of it a job that
    was approved late would fail at once.
    """

    def change(job: migration_jobs.Job) -> api_changes.Change | None:
        if job.ended or not job.paused:
            return None
        spec: dict[str, t.Any] = {"paused": False}
        before: dict[str, t.Any] = {"paused": True}
        if job.ttl:
            elapsed = max(
                0.0, causes.seconds_of(ctx.clock.server()) - causes.seconds_of(job.created)
            )
            spec["ttl"] = migration_jobs.go_duration(round(job.ttl + elapsed))
            before["ttl"] = migration_jobs.go_duration(job.ttl)
        return api_changes.patch(
            job, f"Approve {job.ref}, which moves {job.pod}", {"spec": spec}, before, spec
        )

    return _write(ctx, job, change)


def reject(
    ctx: run_context.Context,
    job: migration_jobs.Job,
    why: str,
    prove_lock: run_requests.ProveLock | None = None,
) -> migration_jobs.Job | None:
    """End a job that has not evicted its pod, and delete its Reservation."""

    def change(job: migration_jobs.Job) -> api_changes.Change | None:
        if job.ended or job.evicting:
            return None
        status = {"phase": "Failed", "reason": job_status.REJECTED, "message": why}
        sentence = f"Reject {job.ref}, which would move {job.pod}"
        return api_changes.patch(
            job, sentence, {"status": status}, {"phase": job.phase}, status, verb="status"
        )

    found = _write(ctx, job, change, prove_lock)
    if found and (found.reservation if ctx.check else found.ended and not found.succeeded):
        # The controller names it after the job's UID, and writes its name into the job
        # after it has created it.
        free(ctx, found.reservation or found.uid, prove_lock)
    return found


def remind(
    ctx: run_context.Context,
    job: migration_jobs.Job,
    prove_lock: run_requests.ProveLock | None = None,
    *,
    exempt: bool = False,
) -> None:
    """Have the controller look at a job that has passed arbitration; a refusal is noted.

    After a restart it does not look at a job that was Running (seen with v1.7.0), and after
    refusals by a budget it waits longer and longer. Any update puts the job into its queue again.

    ``exempt``: the job has evicted its pod, and is exempted from the object limiter, so that it can
    end. The limiter is applied to the pod of the job's name. After the eviction of a StatefulSet's
    pod that is its successor, and the token it needs is the one that the job itself has taken:
    without this the job stays Running until the limiter's window or its ttl is over.
    """
    key = REMINDED
    value = ctx.clock.wall()
    sentence = f"Have koord-descheduler look at {job.ref} again"
    if exempt:
        key, value = migration_jobs.EVICT, "true"
        sentence = f"Let {job.ref} end without the object limiter: its pod is evicted"

    def change(job: migration_jobs.Job) -> api_changes.Change | None:
        if job.ended or job.paused or job.waiting or job.annotations.get(key) == value:
            return None
        return api_changes.patch(job, sentence, {"metadata": {"annotations": {key: value}}})

    try:
        _write(ctx, job, change, prove_lock)
    except errors.ClusterError as error:
        ctx.note(phases.What.KEPT, f"koord-descheduler could not be reminded of {job.ref}: {error}")


def let_go(
    ctx: run_context.Context,
    job: migration_jobs.Job,
    why: str,
    prove_lock: run_requests.ProveLock | None = None,
) -> None:
    """End a job that has not evicted its pod, then delete it and its Reservation.

    koord-descheduler never forgets a job that was deleted before its end.
    """
    if not job.ended:
        reject(ctx, job, why, prove_lock)
    before = {"phase": job.phase, "pod": f"{job.pod.namespace}/{job.pod.name}"}
    change = api_changes.Change("delete", job.ref, f"Delete {job.ref}", before=before, after={})
    run_reconcile.remove(ctx, change, prove_lock=prove_lock)
    # The controller deletes a job's Reservation with it, unless it is not there to see it.
    if job.reservation and not job.succeeded and not ctx.check:
        free(ctx, job.reservation, prove_lock)


def free(
    ctx: run_context.Context, reservation: str, prove_lock: run_requests.ProveLock | None = None
) -> None:
    """Delete a Reservation that no pod has taken, as the controller does after a job's ttl."""
    raw = run_reconcile.read(ctx, reservations.ref_of(reservation))
    if raw is None or (raw.get("status") or {}).get("currentOwners"):
        return
    ref = reservations.ref_of(reservation, raw["metadata"].get("uid", ""))
    before = {"phase": reservations.phase(raw), "node": reservations.node(raw)}
    run_reconcile.remove(
        ctx,
        api_changes.Change("delete", ref, f"Delete {ref}", before=before, after={}),
        prove_lock=prove_lock,
    )


def _write(
    ctx: run_context.Context,
    job: migration_jobs.Job,
    change: t.Callable[[migration_jobs.Job], api_changes.Change | None],
    prove_lock: run_requests.ProveLock | None = None,
) -> migration_jobs.Job | None:
    """Write what ``change`` makes of the job; its last state."""

    def decide(raw: objects.Raw | None) -> api_changes.Change | None:
        found = migration_jobs.Job.of(raw) if raw else None
        return change(found) if found and found.uid == job.uid else None

    raw = run_reconcile.reconcile(ctx, job.ref, decide, prove_lock=prove_lock).object
    found = migration_jobs.Job.of(raw) if raw else None
    return found if found and found.uid == job.uid else None
