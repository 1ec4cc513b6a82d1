# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""In which order nodes are taken out of service."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, pod_plan

Order = t.Literal["given", "name", "pods", "priority", "zone"]
ORDERS: tuple[Order, ...] = t.get_args(Order)


def ordered(
    nodes: t.Iterable[objects.Node],
    plans: t.Iterable[pod_plan.PodPlan],
    order: Order,
    *,
    zone_key: str = "topology.kubernetes.io/zone",
) -> list[objects.Node]:
    """The nodes in this order; those that are equal by it keep the order given.

    ``name`` counts numbers in a name by their value, ``pods`` begins with the node with the fewest pods to move,
    ``priority`` with the one whose most important pod to move has the lowest priority, ``zone`` does zone after zone by
    the label ``zone_key``, nodes without it first.
    """
    leaving: dict[str, list[int]] = {}
    for plan in plans:
        if plan.route != "skip":
            leaving.setdefault(plan.pod.node, []).append(plan.pod.priority)
    keys: t.Mapping[Order, t.Callable[[objects.Node], t.Any]] = {
        "given": lambda node: "",
        "name": lambda node: _natural(node.name),
        "pods": lambda node: len(leaving.get(node.name, ())),
        "priority": lambda node: max(leaving.get(node.name, ()), default=-(2**31)),
        "zone": lambda node: _natural(node.labels.get(zone_key, "")),
    }
    return sorted(nodes, key=keys[order])


def _natural(text: str) -> list[int | str]:
    """A key by which ``worker-2`` is before ``worker-10``; every other part of it is a number."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", text)]
