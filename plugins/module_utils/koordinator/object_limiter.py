# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The object limiter: which evictions it remembers, and when it lets the next pod go.

It is in ``controllers/migration/controller.go`` of koordinator v1.7.0 (the same in v1.8.0): token
buckets in the memory of koord-descheduler, for evictions of that process, and nothing tells what is
in them. So they are computed from what evictions leave in the cluster, whoever caused them:

* a job tells of its own as long as it exists; those of a drain are deleted with their Reservations;
* a pod that has taken a Reservation has its name in an annotation of koord-scheduler (``PreBind``
  of its plugin), which outlives job and Reservation, runs and their kills. The pod was created when
  its predecessor was evicted, or, in a StatefulSet, when that was gone.

An eviction in mode EvictDirectly leaves nothing once its job is deleted.
"""

from __future__ import annotations

import collections
import datetime
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    migration_jobs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    migration_controller,
)

Key = tuple[str, str]
"""What a limiter counts by: (``workload``, UID of a controller) or (``namespace``, its name)."""
Taken = t.Mapping[Key, t.Sequence[float]]
"""When evictions took tokens, as seconds since the epoch."""

ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"


@dataclass(frozen=True, slots=True)
class Eviction:
    """One eviction by a job: what it counts for, and when it was, in seconds since the epoch."""

    keys: frozenset[Key]
    at: float


def evictions(
    jobs: t.Iterable[migration_jobs.Job],
    pods: t.Iterable[objects.Pod],
    known: t.Mapping[str, Eviction] | None = None,
) -> dict[str, Eviction]:
    """The evictions that jobs and pods tell of, and those ``known`` before, by Reservation,
    or by job without one.

    The earliest time counts: a job's condition changes once more when its pod is gone.
    """
    found = dict(known or {})
    here = {pod.uid: pod for pod in pods}
    for job in jobs:
        if at := job.condition("Eviction").get("lastTransitionTime"):
            owners = {("workload", uid) for uid in job.workloads}
            target = here.get(job.pod.uid)
            keys = (
                owners | {("namespace", job.pod.namespace)} | set(keys_of(target) if target else ())
            )
            _note(found, job.reservation or job.name, keys, at)
    for pod in here.values():
        if reservation := _reservation(pod):
            _note(found, reservation, set(keys_of(pod)), pod.created)
    return found


def _note(found: dict[str, Eviction], name: str, keys: set[Key], at: str) -> None:
    moment = decoding.moment(at)
    before = found.get(name)
    if moment is not None:
        seconds = moment.timestamp()
        found[name] = Eviction(
            frozenset(keys | (before.keys if before else set())),
            min(seconds, before.at if before else seconds),
        )


def _reservation(pod: objects.Pod) -> str:
    """The name of the Reservation that the pod has taken."""
    text = pod.annotations.get(ALLOCATED)
    try:
        found = decoding.json_of(text) if text else {}
    except decoding.UnreadableError:
        return ""
    return str(found.get("name") or "") if isinstance(found, dict) else ""


def by_key(found: t.Mapping[str, Eviction]) -> dict[Key, list[float]]:
    """The times of the evictions by what they count for."""
    times: dict[Key, list[float]] = collections.defaultdict(list)
    for eviction in found.values():
        for key in eviction.keys:
            times[key].append(eviction.at)
    return dict(times)


def keys_of(pod: objects.Pod) -> tuple[Key, ...]:
    """What the object limiters count the pod's eviction by."""
    by_namespace = ("namespace", pod.namespace)
    return (("workload", pod.owner.uid), by_namespace) if pod.owner else (by_namespace,)


def limited(
    snapshot: snapshots.Snapshot,
    pod: objects.Pod,
    controller: migration_controller.Controller,
    taken: Taken,
    now: float,
    soon: t.Sequence[Key] = (),
) -> reasons.Reason | None:
    """The object limiter that holds the pod at ``now``, and until when.

    ``soon`` are the keys of evictions that are about to be sent:
    nobody knows yet until when they hold the next one.
    """
    workload = snapshot.workload_of(pod)
    for scope, key in keys_of(pod):
        gap, burst = migration_controller.interval(
            controller, scope, workload.replicas if workload else 0
        )
        if not gap:
            continue
        times = taken.get((scope, key), ())
        upcoming = [now] * soon.count((scope, key))
        free, then = next_token(times, gap, burst), next_token([*times, *upcoming], gap, burst)
        if then <= now:
            continue
        what = f"namespace {key}"
        if scope == "workload":
            what = str(workload.ref if workload else pod.owner)
        until = f"the next one goes at {_clock(free)} UTC" if free > now else "one is about to go"
        return reasons.Reason(
            "object_limiter",
            f"The object limiter lets one pod of {what} go in {gap:g} s: {until}.",
            f"Wait, or change objectLimiters.{scope} of the MigrationController.",
        )
    return None


def _clock(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%H:%M:%S")


def next_token(times: t.Iterable[float], gap: float, burst: int) -> float:
    """When a token bucket of ``burst`` lets one more through after ``times``; 0 for always."""
    tokens = float(burst)
    last = 0.0
    for at in sorted(times):
        tokens = min(float(burst), tokens + (at - last) / gap) - 1.0
        last = at
    return last + (1.0 - tokens) * gap if tokens < 1.0 else 0.0


def departures(
    times: t.Iterable[float], gap: float, burst: int, count: int, now: float
) -> list[float]:
    """When ``count`` more go after takings at ``times``, each as soon as may be from ``now`` on."""
    taken = list(times)
    found = [now]
    for _one in range(count):
        found.append(max(found[-1], next_token(taken, gap, burst)))
        taken.append(found[-1])
    return found[1:]
