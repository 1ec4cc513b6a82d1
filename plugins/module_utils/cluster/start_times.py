# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""How long a new pod of a workload takes to be Ready: as long as its running pods took,
else by a rule of thumb.

A pod tells it by two of its conditions: from PodScheduled to Ready. Before that it may have waited
for room, which says nothing of its successor. Ready tells when it *last* became so, so a pod does
not count if a container of it was started again, or if it took longer than its workload gives a pod
(``progressDeadlineSeconds``): then it was not Ready for a while. Of several pods the median counts.
"""

from __future__ import annotations

import statistics
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    objects,
    snapshots,
)

STARTS = 10.0
"""Seconds for a pod of which nothing is known, beside the initial delay of its readiness probe."""
LONGEST = 600.0
"""Seconds that a Deployment gives its pods to become available, unless it says otherwise."""


@dataclass(frozen=True, slots=True)
class StartTime:
    """Seconds until a new pod is ``ready`` and, minReadySeconds later, ``available``."""

    ready: float = 0.0
    available: float = 0.0


def of(snapshot: snapshots.Snapshot, workload: objects.Workload | None) -> StartTime:
    """The start time of the workload's pods; 0 where nothing is known of the workload."""
    if workload is None:
        return StartTime()
    longest = float(workload.spec.get("progressDeadlineSeconds") or LONGEST)
    taken = [
        seconds for pod in snapshot.pods_of(workload) if (seconds := took(pod, longest)) is not None
    ]
    if not taken:
        return by_rule(workload)
    ready = float(statistics.median(taken))
    return StartTime(ready, ready + _settles(workload))


def by_rule(workload: objects.Workload) -> StartTime:
    """The start time as it may be, whatever the running pods took."""
    ready = STARTS + _initial_delay(workload)
    return StartTime(ready, ready + _settles(workload))


def took(pod: objects.Pod, longest: float = LONGEST) -> float | None:
    """Seconds that the pod took to be Ready; ``None`` if it does not tell,
    or more than ``longest``.
    """
    begun, ready = decoding.moment(pod.scheduled or pod.created), decoding.moment(pod.ready_since)
    if not pod.ready or pod.restarted or begun is None or ready is None:
        return None
    seconds = (ready - begun).total_seconds()
    return seconds if 0 <= seconds <= longest else None


def _settles(workload: objects.Workload) -> float:
    return float(workload.spec.get("minReadySeconds") or 0)


def _initial_delay(workload: objects.Workload) -> float:
    template: objects.Raw = (workload.spec.get("template") or {}).get("spec") or {}
    probes: t.Iterable[objects.Raw] = (
        c.get("readinessProbe") or {} for c in template.get("containers") or ()
    )
    return float(max((probe.get("initialDelaySeconds") or 0 for probe in probes), default=0))
