# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What nodes of a wave must not take with them together: the control plane, and members of what needs a quorum.

A pod that moves is back before the next one of its budget leaves, so nodes with such pods may share a wave. A pod whose
volume only its node has, or whose successor fits nowhere else, is down until that is back: the next one of its budget
could not leave in the same wave.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, pod_plan, snapshots
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import (
    findings,
    forecast,
    pending,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight import waves

CONTROL_PLANE = tuple(f"node-role.kubernetes.io/{role}" for role in ("control-plane", "master", "etcd"))
"""Labels of nodes that run the control plane or its etcd, of which one is out at a time."""
DOWN = "local_volume"
"""The code of pods that are down until their node is back."""


def shares(
    snapshot: snapshots.Snapshot, nodes: t.Iterable[objects.Node], plans: t.Iterable[pod_plan.PodPlan]
) -> tuple[waves.Share, ...]:
    """What these nodes share; nothing that only one of them has."""
    members = {node.name: 1 for node in nodes if any(label in node.labels for label in CONTROL_PLANE)}
    found = [waves.Share("control_plane", 1, members, "of the control plane")]
    down: dict[objects.Ref, collections.Counter[str]] = {}
    for plan in plans:
        keeper = plan.budgets[0] if plan.budgets else plan.workload
        if plan.code == DOWN and plan.route == "evict" and keeper:
            down.setdefault(keeper, collections.Counter())[plan.pod.node] += 1
    for keeper, takes in down.items():
        budget = snapshot.budget(keeper.namespace, keeper.name) if keeper.kind == "PodDisruptionBudget" else None
        most = max(1, budget.allowed) if budget else 1
        found.append(_down(keeper, most, takes))
    return tuple(share for share in found if len(share.takes) > 1)


def nowhere(
    snapshot: snapshots.Snapshot, plans: t.Iterable[pod_plan.PodPlan], placed: t.Mapping[str, forecast.Forecast]
) -> tuple[waves.Share, ...]:
    """What nodes share by pods whose successors fit nowhere."""
    gaps = pending.gaps(snapshot, findings.unplaced(plans, placed))
    found = ((gap, collections.Counter(plan.pod.node for plan in gap.plans)) for gap in gaps)
    return tuple(_down(gap.need.object, max(1, gap.need.most), takes) for gap, takes in found if len(takes) > 1)


def _down(keeper: objects.Ref, most: int, takes: t.Mapping[str, int]) -> waves.Share:
    return waves.Share("budget", most, takes, f"with pods of {keeper} that are down until it is back")
