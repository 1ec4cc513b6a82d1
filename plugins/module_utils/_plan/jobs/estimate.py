# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""How long pods take that leave by PodMigrationJobs: as fast as Koordinator's MigrationController lets them."""

from __future__ import annotations

import collections
import math
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import object_limiter
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    decoding,
    migration_controller,
    pod_plan,
    snapshots,
)

JOB_STEPS = 5.0
"""What a PodMigrationJob takes beside the pods: arbitration, a Reservation, and a controller that looks every 3 s."""


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
    moment = decoding.moment(now)
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


class Pace:
    """How fast pods leave by PodMigrationJobs, wave after wave: each waits for what the object limiter remembers.

    With ``now`` (RFC 3339) it remembers earlier runs, too. Without a ``controller`` there are no jobs.
    """

    def __init__(
        self, snapshot: snapshots.Snapshot, controller: migration_controller.Controller | None, now: str = ""
    ) -> None:
        self._snapshot, self._controller = snapshot, controller
        self._start, self._taken = _remembered(snapshot, now)

    def seconds(
        self, plans: t.Sequence[pod_plan.PodPlan], after: float, takes: t.Callable[[pod_plan.PodPlan], float]
    ) -> float:
        """Seconds for these jobs under the limits per node, namespace and workload, and the object limiters.

        They start ``after`` seconds from now; ``takes`` says how long a pod takes to end, and its successor to start.
        """
        controller = self._controller
        if controller is None or not plans:
            return 0.0
        each = JOB_STEPS + max(map(takes, plans))
        rounds = max(_rounds(self._snapshot, plans, controller))
        by_namespace, burst = migration_controller.interval(controller, "namespace", 0)
        spaces = collections.Counter(plan.pod.namespace for plan in plans)
        waits = [by_namespace * max(0, size - burst) for size in spaces.values()]
        limited = _limited(self._snapshot, plans, controller, self._taken, self._start + after)
        return each + max((rounds - 1) * each, *limited.values(), *waits)


def _rounds(
    snapshot: snapshots.Snapshot, plans: t.Sequence[pod_plan.PodPlan], controller: migration_controller.Controller
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
    for uid, size in collections.Counter(plan.workload.uid for plan in plans if plan.workload).items():
        workload = snapshot.workload(uid)
        most = min(migration_controller.per_workload(controller, workload.replicas)) if workload else 1
        yield math.ceil(size / max(1, most))
