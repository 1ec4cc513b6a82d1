# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Where a job stands, what holds it, and why it failed, in more detail than its own reason.

The controller says little: ``ForbiddenMigratePod`` for a dozen rules, ``Timeout`` for everything
that did not happen in time, nothing at all while a limit or a budget holds a job.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    budgets,
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    causes,
    migration_jobs,
    reservations,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    migration_controller,
)

REJECTED = "Rejected"
"""The reason that we write; the controller has none for it."""


@dataclass(frozen=True, slots=True)
class View:
    """What is known beside the job: the cluster, the controller's limits (``None``: unreadable),
    all jobs by name, the time (RFC 3339).
    """

    snapshot: snapshots.Snapshot
    controller: migration_controller.Controller | None
    jobs: t.Mapping[str, migration_jobs.Job]
    now: str = ""

    def pod(self, job: migration_jobs.Job) -> objects.Pod | None:
        """The job's pod while it exists; a successor of the same name is another pod."""
        name = (job.pod.namespace, job.pod.name)
        found = (pod for pod in self.snapshot.pods if (pod.namespace, pod.name) == name)
        return next((pod for pod in found if job.pod.uid in ("", pod.uid)), None)

    def beside(self, job: migration_jobs.Job) -> list[migration_jobs.Job]:
        """The other jobs."""
        return [other for other in self.jobs.values() if other.name != job.name]


# One line for each stage, the last ones first: a job keeps the conditions of what is behind it.
def stage(job: migration_jobs.Job) -> str:  # noqa: C901
    """Where the job stands, as the end of a sentence that begins with its name."""
    if job.succeeded:
        return "has succeeded"
    if _rejected(job):
        return "was rejected"
    if job.ended:
        why = job.reason or (job.phase if job.phase != "Failed" else "")
        return f"has failed ({why})" if why else "has failed"
    if job.waiting:
        return "waits for arbitration"
    if job.paused:
        return "is paused and waits for approval"
    if not job.conditions:
        return "has passed arbitration"
    if job.condition("BoundPodReady").get("status") == "False":
        return f"waits until the new pod {_new(job)} is ready"
    if job.condition("PodBoundReservation").get("status") == "False":
        return "waits for the new pod"
    eviction = job.condition("Eviction").get("status")
    if eviction == "True":
        return "has evicted the pod"
    if eviction:
        return "waits for the pod's end"
    if job.condition("ReservationScheduled").get("status") == "True" or job.node:
        return f"has a place on node {job.node} and evicts the pod"
    if job.condition("ReservationScheduled").get("status") == "False":
        return "finds no place"
    return "reserves a place"


def described(job: migration_jobs.Job, view: View) -> str:
    """Where a job under way stands and what holds it; of a paused one also whose it is."""
    if job.paused:
        return (
            f"PodMigrationJob {job.name} is paused and waits for approval: {job.made_by} created "
            f"it {job.created}."
        )
    why = verdict(job, view)
    return f"PodMigrationJob {job.name} {stage(job)}{f': {why.message}' if why else '.'}"


def verdict(job: migration_jobs.Job, view: View) -> reasons.Reason | None:
    """Why the job failed, or what holds it now; ``None`` if nothing is known to."""
    if job.succeeded:
        return None
    return _failure(job, view) if job.ended else holding(job, view) or _stalled(job, view)


def _rejected(job: migration_jobs.Job) -> bool:
    # The controller gives a reason; whoever rejects a job as Koordinator documents it
    # writes the phase alone.
    return job.phase == "Failed" and (job.reason == REJECTED or not (job.reason or job.message))


def _failure(job: migration_jobs.Job, view: View) -> reasons.Reason:
    match job.reason:
        case "Timeout":
            why = holding(replace(job, phase="Running", paused=False), view)
            why = why or reasons.Reason("timeout", "", "Set a longer ttl.")
            return replace(why, message=f"Its ttl of {job.ttl:g} s ran out. {why.message}".strip())
        case "ForbiddenMigratePod":
            return _forbidden(job, view)
        case "Unschedulable":
            return reasons.Reason("unschedulable", f"No place was found: {job.message}", _MAKE_ROOM)
        case reason if reason in _REASONS:
            found = _REASONS[reason]
            return reasons.Reason(found.code, found.message.format(job=job), found.remedy)
    if _rejected(job):
        return reasons.Reason("rejected", "Somebody set its phase to Failed.", "")
    message = job.message or job.reason or f"its phase is {job.phase}"
    return reasons.Reason(
        "failed", f"The job has ended: {message.rstrip('.')}.", "Check its conditions and events."
    )


def _forbidden(job: migration_jobs.Job, view: View) -> reasons.Reason:
    if "on the same node" in job.message:
        return reservations.same_node(job.reservation)
    if "already bound" in job.message:
        return reservations.used(job.reservation)
    pod = view.pod(job)
    found = None
    if pod and view.controller:
        found = causes.forbidden(view.snapshot, pod, view.controller)
    return found or reasons.Reason(
        "forbidden",
        "koord-descheduler forbids it by a rule that cannot be determined from here.",
        "Its log has the rule, at verbosity 4: 'Pod fails the following checks'.",
    )


_MAKE_ROOM = "Make room, or change the node selector, affinity or requests that leave no node."

_REASONS: t.Mapping[str, reasons.Reason] = {
    REJECTED: reasons.Reason("rejected", "{job.message}", ""),
    "MissingPod": reasons.Reason(
        "pod_gone",
        "Pod {job.pod.namespace}/{job.pod.name} was gone before the job could move it.",
        "",
    ),
    "InvalidPodRef": reasons.Reason(
        "invalid_pod_ref", "The job names no pod.", "Name its namespace and name."
    ),
    "MissingReservation": reasons.Reason(
        "reservation_gone",
        "Reservation {job.reservation} was deleted.",
        "Create it again, then a new job.",
    ),
    "ReservationExpired": reasons.Reason(
        "reservation_expired",
        "Reservation {job.reservation} has expired.",
        "Create one with a longer ttl, then a new job.",
    ),
}


def holding(job: migration_jobs.Job, view: View) -> reasons.Reason | None:
    """What holds a job that has not ended."""
    pod = view.pod(job)
    if job.waiting:
        return _arbitration(job, pod, view)
    if job.paused:
        return reasons.Reason(
            "paused",
            "It is paused.",
            "Approve it (state: approved) or reject it (state: rejected).",
        )
    if job.evicting:
        return _evicted(job, pod)
    if pod is None:
        return reasons.Reason(
            "pod_gone", f"Pod {job.pod.namespace}/{job.pod.name} is gone, and not by this job."
        )
    if job.mode != "EvictDirectly" and not job.node:
        return _reserving(job, pod, view)
    return _limited(job, pod, view) or _budget(pod, view.snapshot)


def _arbitration(
    job: migration_jobs.Job, pod: objects.Pod | None, view: View
) -> reasons.Reason | None:
    if (
        pod
        and view.controller
        and (found := causes.waiting(view.snapshot, pod, view.controller, view.beside(job)))
    ):
        return found
    if not _is_old(job, view):
        return None
    return reasons.Reason(
        "not_arbitrated",
        "koord-descheduler has not admitted it, for a reason that cannot be determined from here.",
        "Check that koord-descheduler runs and has the lease, and check its log. A job or "
        "Reservation with a ttl or template that it cannot decode stops it for all jobs.",
    )


def unanswered(job: migration_jobs.Job, jobs: t.Iterable[migration_jobs.Job]) -> bool:
    """Whether koord-descheduler may be away: no answer, and no younger job has left arbitration."""
    return not job.waiting or not any(
        one.created >= job.created and not one.waiting for one in jobs
    )


_ADMITTED_WITHIN_SECONDS = 15.0
"""Seconds after which a job that nothing holds should have been admitted."""


def _is_old(job: migration_jobs.Job, view: View) -> bool:
    return bool(
        view.now
        and job.created
        and causes.seconds_of(view.now) - causes.seconds_of(job.created) >= _ADMITTED_WITHIN_SECONDS
    )


def _stalled(job: migration_jobs.Job, view: View) -> reasons.Reason | None:
    """Between its start and its first condition, only the object limiter stops a job."""
    if job.phase != "Running" or job.conditions or not _is_old(job, view):
        return None
    return reasons.Reason(
        "object_limiter",
        "koord-descheduler has started it and does nothing more: its object limiter seems to "
        "remember an eviction that has left no trace.",
        "Wait, or change objectLimiters of the MigrationController.",
    )


def _limited(job: migration_jobs.Job, pod: objects.Pod, view: View) -> reasons.Reason | None:
    """The object limiter; the controller retries it until the pod is evicted."""
    if view.controller is None or not view.now or migration_jobs.EVICT in job.annotations:
        return None
    found = causes.waiting(view.snapshot, pod, view.controller, view.beside(job), view.now)
    return found if found and found.code == "object_limiter" else None


def _reserving(job: migration_jobs.Job, pod: objects.Pod, view: View) -> reasons.Reason | None:
    created, scheduled = job.condition("ReservationCreated"), job.condition("ReservationScheduled")
    if created.get("status") == "False":
        return reasons.Reason(
            "reservation_not_created",
            f"The Reservation could not be created: {created.get('message')}",
            "Correct the template, or add owners to it if no controller owns the pod.",
        )
    if scheduled.get("status") == "False":
        return reasons.Reason(
            "unschedulable", f"No place is found: {scheduled.get('message')}", _MAKE_ROOM
        )
    if not created:
        return _limited(job, pod, view)
    found = causes.unserved(pod, view.controller) if view.controller else None
    return found or reasons.Reason(
        "no_scheduler",
        f"No scheduler handles Reservation {job.reservation}.",
        "Check that koord-scheduler runs and that its profile has the plugin Reservation.",
    )


def _evicted(job: migration_jobs.Job, pod: objects.Pod | None) -> reasons.Reason | None:
    if job.condition("Eviction").get("status") != "True":
        if pod is None:
            return None
        finalizers = f", with finalizers {', '.join(pod.finalizers)}" if pod.finalizers else ""
        return reasons.Reason(
            "pod_stays",
            f"The pod is evicted and still there (grace {pod.grace_seconds} s{finalizers}).",
            "Wait for its end. With evictionPolicy SoftEviction something else has to delete it.",
        )
    if job.condition("BoundPodReady").get("status") == "False":
        return reasons.Reason(
            "new_pod_not_ready",
            f"The new pod {_new(job)} is not Ready.",
            "Check its events and its log.",
        )
    if job.condition("PodBoundReservation").get("status") == "False":
        return reasons.Reason(
            "not_bound",
            f"The pod is evicted, and no new pod has taken Reservation {job.reservation}.",
            "Look at the workload's new pod: is there one, does it have the same schedulerName "
            "and requests, did it take another Reservation?",
        )
    return None


def _budget(pod: objects.Pod, snapshot: snapshots.Snapshot) -> reasons.Reason | None:
    found = budgets.diagnose(snapshot, pod)
    return None if found.allowed else reasons.Reason("budget", found.message, found.remedy)


def _new(job: migration_jobs.Job) -> str:
    return f"{job.new_pod.namespace}/{job.new_pod.name}" if job.new_pod else ""
