# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""How long a maintenance will roughly take, without the user's own tasks.

A rough figure from what the pods say of themselves: a leaving pod takes its grace period, at most
``ENDS`` seconds of it (most pods end early); a newcomer takes ``STARTS`` seconds, the initial delay of
its readiness probe and its minReadySeconds. Pods of one budget go in groups as large as it allows,
different budgets go at the same time; a wave takes as long as its slowest group.
"""

from __future__ import annotations

import math
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.case import PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Raw
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.snapshot import Snapshot

ENDS = 30.0
STARTS = 10.0
PER_WAVE = 5.0
"""Cordon, proof and giving back."""


def estimate_seconds(
    snapshot: Snapshot, plans: t.Sequence[PodPlan], waves: t.Iterable[t.Collection[str]], *, settle: float = 0.0
) -> int:
    """Seconds for all waves together; jobs and ending pods are not waited for in it."""
    return math.ceil(sum(PER_WAVE + _wave(snapshot, plans, wave, settle) for wave in waves))


def _wave(snapshot: Snapshot, plans: t.Iterable[PodPlan], wave: t.Collection[str], settle: float) -> float:
    groups: dict[str, list[PodPlan]] = {}
    for plan in plans:
        if plan.pod.node in wave and plan.route in ("evict", "swap"):
            groups.setdefault(_group(plan), []).append(plan)
    return max((_seconds(snapshot, group, settle) for group in groups.values()), default=0.0)


def _group(plan: PodPlan) -> str:
    """What the pod queues with: its budget, the guard of its workload, its swap, or nobody."""
    if plan.route == "swap" or plan.guarded:
        return f"{plan.workload}"
    return str(plan.budgets[0]) if plan.budgets else plan.pod.uid


def _seconds(snapshot: Snapshot, group: list[PodPlan], settle: float) -> float:
    ends = max(min(float(plan.pod.grace_seconds), ENDS) for plan in group)
    starts = max(_starts(snapshot, plan) for plan in group)
    if group[0].route == "swap":
        return starts + settle + ends
    allowed = len(group)
    if group[0].guarded:
        allowed = 1
    elif group[0].budgets:
        asked = group[0].budgets[0]
        found = (b.allowed for b in snapshot.budgets if b.ref == asked)
        allowed = max(1, next(found, 1))
    return math.ceil(len(group) / allowed) * (ends + starts)


def _starts(snapshot: Snapshot, plan: PodPlan) -> float:
    workload = snapshot.workload_of(plan.pod)
    if workload is None:
        return 0.0
    template: Raw = (workload.spec.get("template") or {}).get("spec") or {}
    probes = [(c.get("readinessProbe") or {}).get("initialDelaySeconds") or 0 for c in template.get("containers") or ()]
    return STARTS + max(probes, default=0) + float(workload.spec.get("minReadySeconds") or 0)
