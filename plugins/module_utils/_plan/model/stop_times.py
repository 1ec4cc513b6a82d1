# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""How long a pod takes to end: a range, and what is expected within it.

Nothing in the API tells how long a pod took that is gone, but for a StatefulSet: it makes a pod again when the old one
is gone, and in a rollout it ends a pod as soon as the one with the next higher number is available. So what is between
these two moments was the end of the old pod; of several the median is expected.

Of other pods only the limits are known: what their containers sleep before they are told to end, and the grace period.
Most end soon after they were told. A grace period that somebody made shorter than the default was made so because the
pods use it; of the default one, and of a longer one, nobody knows.
"""

from __future__ import annotations

import re
import statistics
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    decoding,
    objects,
    pod_specs,
    snapshots,
)

SOON = 2.0
"""Seconds in which most pods are gone once their containers were told to end."""
DEFAULT = 30
"""The grace period, in seconds, of pods that ask for none."""
LATE = 5.0
"""Seconds after its grace period in which a pod is gone, and the next one of a rollout ended."""
_NUMBERED = re.compile(r".*-(\d{1,9})")


class StopTime(t.NamedTuple):
    """Seconds from the eviction of a pod until it is gone."""

    least: float = 0.0
    expected: float = 0.0
    most: float = 0.0


def of(snapshot: snapshots.Snapshot, workload: objects.Workload | None, grace: float) -> StopTime:
    """The stop time of a pod of the workload with this grace period."""
    if taken := _in_rollouts(snapshot, workload) if workload else []:
        found = (min(taken), statistics.median(taken), max(taken))
        return StopTime(*(min(seconds, grace) for seconds in found))
    soon = min(grace, SOON + (pod_specs.sleeps(workload.pod_spec) if workload else 0.0))
    return StopTime(soon, grace if grace < DEFAULT else soon, grace)


def _in_rollouts(snapshot: snapshots.Snapshot, workload: objects.Workload) -> list[float]:
    """How long the pods took that the pods of today have replaced one by one."""
    if workload.kind != "StatefulSet":
        return []
    numbered = {int(name[1]): pod for pod in snapshot.pods_of(workload) if (name := _NUMBERED.fullmatch(pod.name))}
    settles = float(workload.spec.get("minReadySeconds") or 0)
    found = (_between(numbered[n + 1], pod, settles) for n, pod in numbered.items() if n + 1 in numbered)
    return [seconds for seconds in found if seconds is not None]


def _between(before: objects.Pod, pod: objects.Pod, settles: float) -> float | None:
    """Seconds between when one was available and the other made, if that was the end of the other's predecessor.

    When a StatefulSet is made, or grows, the higher numbers come last, or all at the same time.
    """
    ready, made = decoding.moment(before.ready_since), decoding.moment(pod.created)
    if not before.ready or before.restarted or ready is None or made is None:
        return None
    seconds = (made - ready).total_seconds() - settles
    return seconds if 0 < seconds <= pod.grace_seconds + LATE else None
