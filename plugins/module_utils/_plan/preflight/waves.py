# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which nodes are taken out together, and in which order."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects


def waves(
    nodes: t.Sequence[objects.Node],
    max_parallel: int = 1,
    *,
    zone_key: str = "topology.kubernetes.io/zone",
    max_per_zone: int | None = None,
) -> tuple[tuple[str, ...], ...]:
    """The nodes in waves of at most ``max_parallel``, in the order given.

    ``max_per_zone`` limits how many of a wave carry the same value of the label ``zone_key``; nodes
    without the label count as one zone. A node goes into the first wave with room for it, so two nodes
    that share a budget may share a wave: the drain keeps to the budget.
    """
    found: list[list[objects.Node]] = []
    for node in nodes:
        zone = node.labels.get(zone_key)
        for wave in found:
            same_zone = sum(1 for other in wave if other.labels.get(zone_key) == zone)
            if len(wave) < max_parallel and (max_per_zone is None or same_zone < max_per_zone):
                wave.append(node)
                break
        else:
            found.append([node])
    return tuple(tuple(node.name for node in wave) for wave in found)
