# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which gangs a maintenance interrupts, and which nodes should therefore leave together."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    gangs,
    pod_plan,
    reasons,
    snapshots,
)

MOVED = ("evict", "swap", "replace", "job")


def together(snapshot: snapshots.Snapshot, plans: t.Iterable[pod_plan.PodPlan]) -> list[tuple[str, ...]]:
    """For each gang that is interrupted, the nodes that its pods leave, where these are several."""
    nodes = ((gang, _nodes(group, MOVED)) for gang, group in _by_gang(snapshot, plans))
    return [leaving for _gang, leaving in nodes if len(leaving) > 1]


def findings(
    snapshot: snapshots.Snapshot, plans: t.Iterable[pod_plan.PodPlan], waves: t.Sequence[t.Collection[str]]
) -> list[reasons.Finding]:
    """One finding for each gang with pods on the nodes: a blocker without consent, an info if it is only waited for."""
    found = []
    for gang, group in _by_gang(snapshot, plans):
        refused = [plan for plan in group if plan.route == "refuse" and plan.code == "gang"]
        severity: reasons.Severity = "blocker" if refused else "warning" if _nodes(group, MOVED) else "info"
        nodes = _nodes(group, (*MOVED, "wait", "refuse"))
        message = f"{gang.words} is a gang: what ends one of its pods interrupts all of them."
        if severity == "warning":
            leaving = _nodes(group, MOVED)
            times = sum(1 for wave in waves if set(wave) & set(leaving))
            message += f" It is interrupted on {', '.join(leaving)}, which leave {_together(times)}."
        remedy = refused[0].remedy if refused else ""
        found.append(reasons.Finding("gang", message, remedy, severity, str(gang.ref), nodes))
    return found


def _together(times: int) -> str:
    return "together" if times < 2 else f"in {times} waves because of max_per_zone, so it is interrupted {times} times"


def _by_gang(
    snapshot: snapshots.Snapshot, plans: t.Iterable[pod_plan.PodPlan]
) -> list[tuple[gangs.Gang, list[pod_plan.PodPlan]]]:
    found: dict[str, tuple[gangs.Gang, list[pod_plan.PodPlan]]] = {}
    by_pod = gangs.found(snapshot.pods, snapshot.pod_groups)
    for plan in plans:
        gang = by_pod.get(plan.pod.uid)
        if gang and plan.route != "skip":
            found.setdefault(f"{gang.ref.api_version} {gang.ref}", (gang, []))[1].append(plan)
    return list(found.values())


def _nodes(plans: t.Iterable[pod_plan.PodPlan], routes: t.Container[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(plan.pod.node for plan in plans if plan.route in routes))
