# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which PodMigrationJobs may be created now, and how long each may take.

A job's ttl runs from its creation, through arbitration as well, and a running job that waits for the object
limiter holds one of the few places of its node. So a job is created when arbitration, the limiter and the
pod's budget would let it through at once, and not before. What is under way counts as if it ran already.
"""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import (
    causes,
    migration_jobs,
    object_limiter,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    budgets,
    migration_controller,
    objects,
    pod_plan,
    reasons,
    snapshots,
    start_times,
)

STEPS = 30.0
"""Seconds for what the controller does in steps of 3 s: arbitration, reserving, evicting, binding."""

SLACK = 90.0
"""Seconds beyond the estimate: a scheduler or controller that restarts, a budget that others use up."""


@dataclass(frozen=True)
class Traffic:
    """What is under way. ``jobs`` are all PodMigrationJobs of the cluster that have not ended.

    ``evicting`` are the UIDs of pods whose eviction by a job was sent, ``taken`` when evictions by jobs
    happened, and ``now`` is in seconds since the epoch as they are.
    """

    jobs: t.Collection[migration_jobs.Job]
    taken: object_limiter.Taken
    now: float
    evicting: t.Collection[str] = ()


def admit(
    snapshot: snapshots.Snapshot,
    line: t.Iterable[pod_plan.PodPlan],
    controller: migration_controller.Controller,
    traffic: Traffic,
) -> tuple[list[pod_plan.PodPlan], dict[str, reasons.Reason]]:
    """The pods whose job may be created now, in order, and why the others wait, by UID; these let others pass."""
    start: list[pod_plan.PodPlan] = []
    held: dict[str, reasons.Reason] = {}
    jobs = [replace(job, phase="Running") for job in traffic.jobs]
    for plan in line:
        why = (
            causes.forbidden(snapshot, plan.pod, controller)
            or causes.waiting(snapshot, plan.pod, controller, jobs)
            or _limited(snapshot, plan.pod, controller, traffic, jobs)
            or _budgeted(snapshot, plan.pod, traffic, jobs)
        )
        if why is None:
            start.append(plan)
            started = migration_jobs.manifest("", plan.pod.ref, migration_jobs.JobSettings())
            jobs.append(migration_jobs.Job.of({**started, "status": {"phase": "Running"}}))
        else:
            held[plan.pod.uid] = why
    return start, held


def ttl_of(snapshot: snapshots.Snapshot, plan: pod_plan.PodPlan, controller: migration_controller.Controller) -> float:
    """Seconds after which the job gives up: well above the estimate, in whole tens of seconds.

    A pod that comes back under its own name (a StatefulSet's) meets the object limiter that its own eviction
    has filled, so one interval of it is added.
    """
    workload = snapshot.workload_of(plan.pod)
    starts = [start_times.of(snapshot, workload).available]
    starts += [start_times.by_rule(workload).available] if workload else []
    seconds = STEPS + SLACK + plan.pod.grace_seconds + 2 * max(starts)
    gap, _burst = migration_controller.interval(controller, "workload", workload.replicas if workload else 0)
    if keeps_name(plan.pod):
        seconds += gap
    return math.ceil(seconds / 10) * 10.0


def keeps_name(pod: objects.Pod) -> bool:
    """Whether its successor may have the same name, as a StatefulSet's pods do."""
    return pod.owner is None or pod.owner.kind != "ReplicaSet"


def _flying(snapshot: snapshots.Snapshot, traffic: Traffic, jobs: t.Iterable[migration_jobs.Job]) -> list[objects.Pod]:
    """The pods of jobs that have not sent their eviction yet."""
    uids = {job.pod.uid for job in jobs} - set(traffic.evicting)
    return [pod for pod in snapshot.pods if pod.uid in uids and not pod.deleting]


def _limited(
    snapshot: snapshots.Snapshot,
    pod: objects.Pod,
    controller: migration_controller.Controller,
    traffic: Traffic,
    jobs: t.Collection[migration_jobs.Job],
) -> reasons.Reason | None:
    soon = [key for one in _flying(snapshot, traffic, jobs) for key in object_limiter.keys_of(one)]
    return object_limiter.limited(snapshot, pod, controller, traffic.taken, traffic.now, soon)


def _budgeted(
    snapshot: snapshots.Snapshot, pod: objects.Pod, traffic: Traffic, jobs: t.Collection[migration_jobs.Job]
) -> reasons.Reason | None:
    """After each refused eviction the controller pauses longer, so refusals are avoided."""
    verdict = budgets.diagnose(snapshot, pod)
    if not verdict.allowed:
        return reasons.Reason(f"budget_{verdict.code}", verdict.message, verdict.remedy)
    for budget in snapshot.budgets_of(pod):
        flying = sum(1 for one in _flying(snapshot, traffic, jobs) if budget.covers(one))
        if flying and flying >= budget.allowed:
            return reasons.Reason(
                "budget_spent", f"{budget.ref} allows {budget.allowed}, {flying} are about to be evicted.", "Wait."
            )
    return None
