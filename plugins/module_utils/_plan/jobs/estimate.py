# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""How long a maintenance will roughly take, without the user's own tasks.

A rough figure from what the pods say of themselves: a leaving pod takes its grace period, at most
``ENDS`` seconds of it (most pods end early); a newcomer takes ``STARTS`` seconds, the initial delay of
its readiness probe and its minReadySeconds. Pods of one budget go in groups as large as it allows,
different budgets go at the same time; a wave takes as long as its slowest group. Pods that leave by a
PodMigrationJob go as fast as the limits of Koordinator's MigrationController let them, but with backend ``auto`` they
are evicted after ``job_wait``.
"""

from __future__ import annotations

import collections
import math
import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import object_limiter
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    migration_controller,
    objects,
    pod_plan,
    snapshots,
)

ENDS = 30.0
STARTS = 10.0
JOB_STEPS = 5.0
"""What a PodMigrationJob takes beside the pods: arbitration, a Reservation, and a controller that looks every 3 s."""
PER_WAVE = 5.0
"""Cordon, proof and giving back."""


def wave_seconds(
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[pod_plan.PodPlan],
    waves: t.Iterable[t.Collection[str]],
    *,
    settle: float = 0.0,
    choices: pod_plan.Choices | None = None,
    now: str = "",
) -> list[int]:
    """Seconds for each wave; batch Jobs and ending pods are not waited for in it.

    Each wave waits for what the object limiter remembers of those before, with ``now`` (RFC 3339) also of earlier runs.
    """
    seconds, choices = list[int](), choices or pod_plan.Choices()
    controller = choices.controller
    start, taken = _remembered(snapshot, now)
    for _nodes, leaving in pod_plan.by_wave(plans, waves):
        by_job = [plan for plan in leaving if plan.route == "job"]
        jobs = _by_jobs(snapshot, by_job, controller, taken, start + sum(seconds)) if controller and by_job else 0.0
        if choices.backend == "auto" and jobs > choices.job_wait:
            evicted = _wave(snapshot, [replace(plan, route="evict") for plan in by_job], settle)
            jobs = min(jobs, choices.job_wait + evicted)
        seconds.append(math.ceil(PER_WAVE + max(_wave(snapshot, leaving, settle), jobs)))
    return seconds


def limiter_seconds(
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[pod_plan.PodPlan],
    controller: migration_controller.Controller,
    now: str = "",
) -> dict[str, float]:
    """For how long the object limiter of its workload stretches the departure of these pods, by the workload's UID.

    With ``now`` (RFC 3339) the evictions that it remembers are counted.
    """
    start, taken = _remembered(snapshot, now)
    return _limited(snapshot, plans, controller, taken, start)


def _remembered(snapshot: snapshots.Snapshot, now: str) -> tuple[float, dict[object_limiter.Key, list[float]]]:
    """The moment as seconds since the epoch, and what the object limiter remembers; without it 0 and nothing."""
    moment = objects.moment(now)
    if moment is None:
        return 0.0, {}
    return moment.timestamp(), object_limiter.by_key(object_limiter.evictions((), snapshot.pods))


def _limited(
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[pod_plan.PodPlan],
    controller: migration_controller.Controller,
    taken: dict[object_limiter.Key, list[float]],
    start: float,
) -> dict[str, float]:
    """The same from ``start``; the departures are added to ``taken``."""
    found: dict[str, float] = {}
    counts: dict[object_limiter.Key, list[pod_plan.PodPlan]] = {}
    for plan in plans:
        counts.setdefault(object_limiter.keys_of(plan.pod)[0], []).append(plan)
    for key, group in counts.items():
        workload = snapshot.workload_of(group[0].pod)
        gap, burst = migration_controller.interval(controller, "workload", workload.replicas if workload else 0)
        if not workload or not gap:
            continue
        times = object_limiter.departures(taken.get(key, ()), gap, burst, len(group), start)
        taken.setdefault(key, []).extend(times)
        if times[-1] > start:
            found[workload.uid] = max(found.get(workload.uid, 0.0), times[-1] - start)
    return found


def _by_jobs(
    snapshot: snapshots.Snapshot,
    plans: list[pod_plan.PodPlan],
    controller: migration_controller.Controller,
    taken: dict[object_limiter.Key, list[float]],
    start: float,
) -> float:
    """Seconds for these jobs under the limits per node, namespace and workload, and the object limiters."""
    each = JOB_STEPS + max(min(float(p.pod.grace_seconds), ENDS) + starts(snapshot, p) for p in plans)
    rounds = [1.0]
    for limit, key in (
        (controller.max_migrating_globally, lambda pod: ""),
        (controller.max_migrating_per_node, lambda pod: pod.node),
        (controller.max_migrating_per_namespace, lambda pod: pod.namespace),
    ):
        sizes = collections.Counter(key(plan.pod) for plan in plans)
        rounds += [math.ceil(size / limit) for size in sizes.values() if limit > 0]
    for uid, size in collections.Counter(plan.workload.uid for plan in plans if plan.workload).items():
        workload = snapshot.workload(uid)
        most = min(migration_controller.per_workload(controller, workload.replicas)) if workload else 1
        rounds.append(math.ceil(size / max(1, most)))
    by_namespace, burst = migration_controller.interval(controller, "namespace", 0)
    spaces = collections.Counter(plan.pod.namespace for plan in plans)
    waits = [by_namespace * max(0, size - burst) for size in spaces.values()]
    return each + max((max(rounds) - 1) * each, *_limited(snapshot, plans, controller, taken, start).values(), *waits)


def _wave(snapshot: snapshots.Snapshot, plans: t.Iterable[pod_plan.PodPlan], settle: float) -> float:
    bands: dict[tuple[bool, int], dict[str, list[pod_plan.PodPlan]]] = {}
    for plan in plans:
        if plan.route in ("evict", "swap"):
            band = bands.setdefault((plan.manner.last, plan.manner.order), {})
            band.setdefault(_group(plan), []).append(plan)
    return sum(max(_seconds(snapshot, group, settle) for group in groups.values()) for groups in bands.values())


def _group(plan: pod_plan.PodPlan) -> str:
    """What the pod queues with: its budget, the guard of its workload, its swap, or nothing."""
    if plan.route == "swap" or plan.guarded:
        return f"{plan.workload}"
    return str(plan.budgets[0]) if plan.budgets else plan.pod.uid


def _seconds(snapshot: snapshots.Snapshot, group: list[pod_plan.PodPlan], settle: float) -> float:
    ends = max(min(float(plan.pod.grace_seconds), ENDS) for plan in group)
    ready = max(starts(snapshot, plan) for plan in group)
    if group[0].route == "swap":
        return ready + settle + ends
    allowed = len(group)
    if group[0].guarded:
        allowed = 1
    elif group[0].budgets:
        asked = group[0].budgets[0]
        budget = snapshot.budget(asked.namespace, asked.name)
        allowed = max(1, budget.allowed if budget else 1)
    return math.ceil(len(group) / allowed) * (ends + ready)


def starts(snapshot: snapshots.Snapshot, plan: pod_plan.PodPlan) -> float:
    """Seconds until a successor of the pod serves; 0 where nothing is known of its workload."""
    workload = snapshot.workload_of(plan.pod)
    if workload is None:
        return 0.0
    template: objects.Raw = (workload.spec.get("template") or {}).get("spec") or {}
    probes = [(c.get("readinessProbe") or {}).get("initialDelaySeconds") or 0 for c in template.get("containers") or ()]
    return STARTS + max(probes, default=0) + float(workload.spec.get("minReadySeconds") or 0)
