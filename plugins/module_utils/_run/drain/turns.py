# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whose turn it is on each node, where rules say who leaves before whom.

Computed anew in each turn of the loop from the pods that are left, so that a run that is resumed goes on where it was.
Nodes do not wait for each other: one that cannot be emptied holds nothing on the others.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import pod_moves
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain import node_drains


def take(sites: t.Iterable[node_drains.NodeDrain], now: float) -> frozenset[str]:
    """Hold the moves whose turn has not come; returns the UIDs of workloads of which no pod may leave yet.

    Kubelets delete a pod once its volumes are unmounted, so what leaves last is not needed for those of the others.
    """
    held: set[str] = set()
    free: set[str] = set()
    for site in (site for site in sites if site.open):
        left = site.left()
        first: dict[t.Any, pod_moves.Move] = {}
        for move in left:
            first.setdefault(move.plan.manner, move)
        ordered = any(manner.ordered for manner in first)
        for move in left:
            before = ordered and next((first[other] for other in first if move.plan.manner.waits_for(other)), None)
            _hold(move, before or None, now)
            if move.plan.workload:
                (held if move.held else free).add(move.plan.workload.uid)
    return frozenset(held - free)


def _hold(move: pod_moves.Move, before: pod_moves.Move | None, now: float) -> None:
    """Hold a waiting move because of another one, or let it go; who is leaving already goes on."""
    if before and move.state == "waiting":
        move.held = True
        pod, rule = before.pod, move.plan.manner.rule or before.plan.manner.rule
        move.block("Pod", pod.namespace, pod.name, f"by {rule} it leaves after {pod.ref}, which is still there")
    elif move.held or move.turn_at is None:
        if move.held:
            move.blocked_by = None
        move.held, move.turn_at = False, now


def overdue(moves: t.Iterable[pod_moves.Move], now: float) -> list[pod_moves.Move]:
    """The moves that took longer, from when it was their turn, than the deadline of their rule."""
    limited = ((move, move.turn_at, move.plan.manner.deadline) for move in moves if not move.held)
    return [move for move, at, deadline in limited if at is not None and deadline is not None and now - at > deadline]


def fail(moves: t.Iterable[pod_moves.Move], now: float) -> None:
    """End the moves that are overdue."""
    for move in moves:
        manner = move.plan.manner
        why = f"the deadline of {manner.rule}, {manner.deadline:g} s, has passed. {move.plan.reason}"
        move.end("failed", outcomes.PodOutcome.DEADLINE, now, why)
