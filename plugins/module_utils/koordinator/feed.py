# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which PodMigrationJobs may be created now, and how long each may take.

A job's ttl runs from its creation, through arbitration as well, and a running job that waits for
the object limiter holds one of the few places of its node. So a job is created when arbitration,
the limiter and the pod's budget would let it through at once, and not before. What is under way
counts as if it ran already.
"""

from __future__ import annotations

import collections
import math
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    budgets,
    decoding,
    objects,
    snapshots,
    start_times,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    causes,
    migration_jobs,
    object_limiter,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    migration_controller,
)

STEPS_SECONDS = 30.0
"""Seconds for the controller's steps of 3 s: arbitration, reserving, evicting, binding."""

SLACK_SECONDS = 90.0
"""Seconds beyond the estimate: a restarted scheduler or controller, a budget used by others."""


@dataclass(frozen=True)
class Traffic:
    """What is under way. ``jobs`` are all PodMigrationJobs of the cluster that have not ended.

    ``evicting`` are the UIDs of pods whose eviction by a job was sent, ``taken`` when evictions by
    jobs happened, and ``now`` is in seconds since the epoch as they are.
    """

    jobs: t.Collection[migration_jobs.Job]
    taken: object_limiter.Taken
    now: float
    evicting: t.Collection[str] = ()


def admit(
    snapshot: snapshots.Snapshot,
    line: t.Iterable[drain_policy.PodPlan],
    controller: migration_controller.Controller,
    traffic: Traffic,
) -> tuple[list[drain_policy.PodPlan], dict[str, reasons.Reason]]:
    """The pods whose job may be created now, in order, and why the others wait, by UID;
    these let others pass.
    """
    start: list[drain_policy.PodPlan] = []
    not_admitted: dict[str, reasons.Reason] = {}
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
            not_admitted[plan.pod.uid] = why
    return start, not_admitted


def ttl_of(
    snapshot: snapshots.Snapshot,
    plan: drain_policy.PodPlan,
    controller: migration_controller.Controller,
) -> float:
    """Seconds after which the job gives up: well above the estimate, in whole tens of seconds.

    A pod that comes back under its own name (a StatefulSet's) meets the object limiter that its own
    eviction has filled, so one interval of it is added.
    """
    workload = snapshot.workload_of(plan.pod)
    starts = [start_times.of(snapshot, workload).available]
    starts += [start_times.by_rule(workload).available] if workload else []
    seconds = STEPS_SECONDS + SLACK_SECONDS + plan.pod.grace_seconds + 2 * max(starts)
    gap, _burst = migration_controller.interval(
        controller, "workload", workload.replicas if workload else 0
    )
    if keeps_name(plan.pod):
        seconds += gap
    return math.ceil(seconds / 10) * 10.0


def keeps_name(pod: objects.Pod) -> bool:
    """Whether its successor may have the same name, as a StatefulSet's pods do."""
    return pod.owner is None or pod.owner.kind != "ReplicaSet"


def _limited(
    snapshot: snapshots.Snapshot,
    pod: objects.Pod,
    controller: migration_controller.Controller,
    traffic: Traffic,
    jobs: t.Collection[migration_jobs.Job],
) -> reasons.Reason | None:
    soon: list[object_limiter.Key] = []
    for other in _flying(snapshot, traffic, jobs):
        soon += object_limiter.keys_of(other)
    return object_limiter.limited(snapshot, pod, controller, traffic.taken, traffic.now, soon)


def _flying(
    snapshot: snapshots.Snapshot, traffic: Traffic, jobs: t.Iterable[migration_jobs.Job]
) -> list[objects.Pod]:
    """The pods of jobs that have not sent their eviction yet."""
    uids = {job.pod.uid for job in jobs} - set(traffic.evicting)
    return [pod for pod in snapshot.pods if pod.uid in uids and not pod.deleting]


def _budgeted(
    snapshot: snapshots.Snapshot,
    pod: objects.Pod,
    traffic: Traffic,
    jobs: t.Collection[migration_jobs.Job],
) -> reasons.Reason | None:
    """After each refused eviction the controller pauses longer, so refusals are avoided."""
    verdict = budgets.diagnose(snapshot, pod)
    if not verdict.allowed:
        return reasons.Reason(f"budget_{verdict.code}", verdict.message, verdict.remedy)
    for budget in snapshot.budgets_of(pod):
        flying = sum(1 for one in _flying(snapshot, traffic, jobs) if budget.covers(one))
        if flying and flying >= budget.allowed:
            return reasons.Reason(
                "budget_spent",
                f"{budget.ref} allows {budget.allowed}, {flying} are about to be evicted.",
                "Wait.",
            )
    return None


# How long pods take that leave by PodMigrationJobs: as fast as Koordinator's
# MigrationController lets them.


JOB_STEPS_SECONDS = 5.0
"""What a job takes beside the pods: arbitration, a Reservation, a controller with steps of 3 s."""


class Pace:
    """How fast pods leave by PodMigrationJobs, wave after wave:
    each waits for what the object limiter remembers.

    With ``now`` (RFC 3339) it remembers earlier runs, too.
    Without a ``controller`` there are no jobs.
    """

    def __init__(
        self,
        snapshot: snapshots.Snapshot,
        controller: migration_controller.Controller | None,
        now: str = "",
    ) -> None:
        self._snapshot = snapshot
        self._controller = controller
        self._start = 0.0
        self._taken: dict[object_limiter.Key, list[float]] = {}
        moment = decoding.moment(now) if controller else None
        if moment is not None:
            self._start = moment.timestamp()
            self._taken = object_limiter.by_key(object_limiter.evictions((), snapshot.pods))

    def limited(
        self, plans: t.Sequence[drain_policy.PodPlan], after: float = 0.0
    ) -> dict[str, float]:
        """For how long the object limiter of its workload stretches the departure of these pods,
        by the workload's UID; they begin ``after`` seconds from now, and are remembered.
        """
        controller, start = self._controller, self._start + after
        found: dict[str, float] = {}
        if controller is None:
            return found
        counts: dict[object_limiter.Key, list[drain_policy.PodPlan]] = {}
        for plan in plans:
            counts.setdefault(object_limiter.keys_of(plan.pod)[0], []).append(plan)
        for key, group in counts.items():
            workload = self._snapshot.workload_of(group[0].pod)
            gap, burst = migration_controller.interval(
                controller, "workload", workload.replicas if workload else 0
            )
            if not workload or not gap:
                continue
            times = object_limiter.departures(
                self._taken.get(key, ()), gap, burst, len(group), start
            )
            self._taken.setdefault(key, []).extend(times)
            if times[-1] > start:
                found[workload.uid] = max(found.get(workload.uid, 0.0), times[-1] - start)
        return found

    def seconds(
        self,
        plans: t.Sequence[drain_policy.PodPlan],
        after: float,
        takes: t.Callable[[drain_policy.PodPlan], float],
    ) -> float:
        """Seconds for these jobs under the limits per node, namespace and workload,
        and the object limiters.

        They start ``after`` seconds from now; ``takes`` says how long a pod takes to end,
        and its successor to start.
        """
        controller = self._controller
        if controller is None or not plans:
            return 0.0
        each = JOB_STEPS_SECONDS + max(map(takes, plans))
        rounds = max(_rounds(self._snapshot, plans, controller))
        by_namespace, burst = migration_controller.interval(controller, "namespace", 0)
        spaces = collections.Counter(plan.pod.namespace for plan in plans)
        waits = [by_namespace * max(0, size - burst) for size in spaces.values()]
        limited = self.limited(plans, after)
        return each + max((rounds - 1) * each, *limited.values(), *waits)


def _rounds(
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[drain_policy.PodPlan],
    controller: migration_controller.Controller,
) -> t.Iterator[float]:
    """In how many rounds the jobs go by each limit."""
    yield 1.0
    for limit, key in (
        (controller.max_migrating_globally, lambda pod: ""),
        (controller.max_migrating_per_node, lambda pod: pod.node),
        (controller.max_migrating_per_namespace, lambda pod: pod.namespace),
    ):
        sizes = collections.Counter(key(plan.pod) for plan in plans)
        yield from (math.ceil(size / limit) for size in sizes.values() if limit > 0)
    for uid, size in collections.Counter(
        plan.workload.uid for plan in plans if plan.workload
    ).items():
        workload = snapshot.workload(uid)
        most = (
            min(migration_controller.per_workload(controller, workload.replicas)) if workload else 1
        )
        yield math.ceil(size / max(1, most))
