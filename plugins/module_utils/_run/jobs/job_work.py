# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""One job's part of a call, and the writes that a job may get after its creation."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import (
    causes,
    migration_jobs,
    reserve,
    verdict,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    names,
    objects,
    outcomes,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, writing

WOKEN = f"{names.PREFIX}/woken"
"""When a job was last woken."""


@dataclass
class Work:
    """One pod and its job. ``state`` is ``queued`` before the job is made, ``done`` once there is an outcome.

    ``pod`` is the pod as it was first seen, ``siblings`` the UIDs of its owner's pods then. Times are of the
    context's monotonic clock.
    """

    target: objects.Ref
    pod: objects.Pod | None = None
    name: str = ""
    raw: objects.Raw | None = None
    state: t.Literal["queued", "following", "replacing", "done"] = "queued"
    outcome: outcomes.JobOutcome | None = None
    message: str = ""
    cause: reasons.Reason | None = None
    new_pod: objects.Ref | None = None
    created: bool = False
    siblings: frozenset[str] = frozenset()
    told: str = ""
    told_at: float = 0.0
    gone_since: float | None = None
    version: str = ""
    still_since: float = 0.0
    ended: str = ""

    @property
    def job(self) -> migration_jobs.Job | None:
        """The job as it was last seen."""
        return migration_jobs.Job.of(self.raw) if self.raw else None

    @property
    def failed(self) -> bool:
        """Whether it makes the call fail."""
        return self.outcome is not None and self.outcome.failed

    def close(self, outcome: outcomes.JobOutcome, message: str, cause: reasons.Reason | None = None) -> None:
        """There is an outcome; nothing more is done for this pod."""
        self.state, self.outcome, self.cause = "done", outcome, cause
        self.message = f"{message} {cause.sentence}".strip() if cause else message

    def shown(self, events: t.Sequence[objects.Raw] = ()) -> dict[str, t.Any]:
        """As the module returns it."""
        job, cause = self.job, self.cause
        new_pod = self.new_pod or (job.new_pod if job else None)
        return {
            "name": self.name,
            "outcome": outcomes.word_of(self.outcome),
            "failed": self.failed,
            "message": self.message,
            "phase": job.phase if job else "",
            "status": job.status if job else "",
            "reason": job.reason if job else "",
            "cause": cause.to_dict() if cause else None,
            "node": job.node if job else "",
            "reservation": job.reservation if job else "",
            "pod": {**_shown(self.target), "node": self.pod.node if self.pod else ""},
            "new_pod": _shown(new_pod) if new_pod else None,
            "mode": job.mode if job else "",
            "paused": job.paused if job else False,
            "ttl": job.ttl if job else 0.0,
            "seconds": _seconds(job, self.ended),
            "conditions": [dict(condition) for condition in job.conditions] if job else [],
            "events": [dict(event) for event in events],
        }


def _shown(ref: objects.Ref) -> dict[str, str]:
    return {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid}


def _seconds(job: migration_jobs.Job | None, ended: str) -> float | None:
    """From the job's creation to its end as we saw it; ``None`` while it has not ended."""
    if job is None or not job.created or not ended:
        return None
    return round(max(0.0, causes.seconds_of(ended) - causes.seconds_of(job.created)), 1)


def tell_stage(ctx: context.Context, work: Work, cause: reasons.Reason | None = None) -> None:
    """Say where the job stands when that is news."""
    job = work.job
    if job is None:
        return
    text = f"job {job.name} {verdict.stage(job)}" + (f": {cause.message}" if cause else "")
    if text == work.told:
        return
    work.told, work.told_at = text, ctx.clock.now()
    node = work.pod.node if work.pod else ""
    ctx.tell("job", text, node=node, namespace=work.target.namespace, name=work.target.name)


def reread(ctx: context.Context, name: str) -> migration_jobs.Job | None:
    """The job as the API server has it now."""
    try:
        return migration_jobs.Job.of(ctx.cluster.send(verbs.get(kinds.PODMIGRATIONJOBS, name), patience=act.PATIENCE))
    except errors.NotFound:
        return None


def approve(ctx: context.Context, job: migration_jobs.Job) -> objects.Raw | None:
    """Let a paused job go on that has passed arbitration, with its whole ttl from now on.

    The ttl counts from the job's creation, also while it is paused; without more of it a job that was approved
    late would fail at once. ``None``: the job is gone.
    """

    def change(job: migration_jobs.Job) -> api_changes.Change | None:
        if job.ended or not job.paused:
            return None
        spec: dict[str, t.Any] = {"paused": False}
        before: dict[str, t.Any] = {"paused": True}
        if job.ttl:
            elapsed = max(0.0, causes.seconds_of(ctx.clock.server()) - causes.seconds_of(job.created))
            spec["ttl"], before["ttl"] = (
                migration_jobs.go_duration(round(job.ttl + elapsed)),
                migration_jobs.go_duration(job.ttl),
            )
        return api_changes.Change(
            "patch",
            job.ref,
            f"Approve {job.ref}, which moves {job.pod}",
            body={"spec": spec},
            before=before,
            after=spec,
            resource_version=job.resource_version,
        )

    return _write(ctx, job, change)


def reject(ctx: context.Context, job: migration_jobs.Job, why: str) -> objects.Raw | None:
    """End a job whose pod was not evicted yet, and delete its Reservation. ``None``: the job is gone."""

    def change(job: migration_jobs.Job) -> api_changes.Change | None:
        if job.ended or job.evicting:
            return None
        status = {"phase": "Failed", "reason": verdict.REJECTED, "message": why}
        return api_changes.Change(
            "status",
            job.ref,
            f"Reject {job.ref}, which would move {job.pod}",
            body={"status": status},
            before={"phase": job.phase},
            after=status,
            resource_version=job.resource_version,
        )

    written = _write(ctx, job, change)
    found = migration_jobs.Job.of(written) if written else None
    if found and found.reservation and (ctx.check or (found.ended and not found.succeeded)):
        free(ctx, found.reservation)
    return written


def unlimit(ctx: context.Context, job: migration_jobs.Job, fence: act.Fence | None = None) -> objects.Raw | None:
    """Let a job end whose eviction was sent, whatever the object limiter says. ``None``: the job is gone.

    The limiter is asked for the pod of the job's name. After the eviction of a StatefulSet's pod that is its
    successor, and the token that would be needed is the one that the job itself has taken: without this the job
    stays Running until the limiter's window or its ttl is over.
    """

    def change(job: migration_jobs.Job) -> api_changes.Change | None:
        if job.ended or not job.evicting or migration_jobs.NO_LIMITER in job.annotations:
            return None
        return api_changes.Change(
            "patch",
            job.ref,
            f"Let {job.ref} end without the object limiter: its pod is evicted",
            body={"metadata": {"annotations": {migration_jobs.NO_LIMITER: "true"}}},
            resource_version=job.resource_version,
        )

    return _write(ctx, job, change, fence)


def wake(ctx: context.Context, job: migration_jobs.Job, fence: act.Fence | None = None) -> objects.Raw | None:
    """Have the controller look at a job that has passed arbitration. ``None``: the job is gone.

    After a restart it does not look at a job that was Running (seen with v1.7.0), and after refusals by a budget
    it waits longer and longer. Any update puts the job into its queue again.
    """

    def change(job: migration_jobs.Job) -> api_changes.Change | None:
        if job.ended or job.paused or job.waiting:
            return None
        return api_changes.Change(
            "patch",
            job.ref,
            f"Have koord-descheduler look at {job.ref} again",
            body={"metadata": {"annotations": {WOKEN: ctx.clock.wall()}}},
            resource_version=job.resource_version,
        )

    return _write(ctx, job, change, fence)


def free(ctx: context.Context, reservation: str) -> bool:
    """Delete a Reservation that no pod has taken, as the controller does when a job's ttl runs out."""
    try:
        raw = ctx.cluster.send(verbs.get(kinds.RESERVATIONS, reservation), patience=act.PATIENCE)
    except errors.NotFound:
        return False
    if (raw.get("status") or {}).get("currentOwners"):
        return False
    ref = reserve.ref_of(reservation, raw["metadata"].get("uid", ""))
    before = {"phase": reserve.phase(raw), "node": reserve.node(raw)}
    return writing.remove(ctx, api_changes.Change("delete", ref, f"Delete {ref}", before=before, after={}))


def remove(ctx: context.Context, job: migration_jobs.Job) -> None:
    """Delete a job; its controller deletes the Reservation with it."""
    before = {"phase": job.phase, "pod": f"{job.pod.namespace}/{job.pod.name}"}
    writing.remove(ctx, api_changes.Change("delete", job.ref, f"Delete {job.ref}", before=before, after={}))


def _write(
    ctx: context.Context,
    job: migration_jobs.Job,
    change: t.Callable[[migration_jobs.Job], api_changes.Change | None],
    fence: act.Fence | None = None,
) -> objects.Raw | None:
    """Write a job on what it is; its last state, ``None`` where it is gone or another has its name."""

    def decide(raw: objects.Raw | None) -> api_changes.Change | None:
        found = migration_jobs.Job.of(raw) if raw else None
        return change(found) if found and found.uid == job.uid else None

    found = writing.write(ctx, job.ref, decide, fence=fence).object
    return found if found and found["metadata"]["uid"] == job.uid else None
