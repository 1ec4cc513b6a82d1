# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which nodes are taken out together, and in which order."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects


def waves(
    nodes: t.Sequence[objects.Node],
    max_parallel: int = 1,
    *,
    zone_key: str = "topology.kubernetes.io/zone",
    max_per_zone: int | None = None,
    together: t.Iterable[t.Collection[str]] = (),
) -> tuple[tuple[str, ...], ...]:
    """The nodes in waves of at most ``max_parallel``, in the order given.

    ``max_per_zone`` limits how many of a wave carry the same value of the label ``zone_key``; nodes
    without the label count as one zone. A node goes into the first wave with room for it, so two nodes
    that share a budget may share a wave: the drain keeps to the budget. Nodes that are named ``together`` share a wave,
    if need be a larger one, unless there are too many of a zone among them.
    """
    found: list[list[objects.Node]] = []
    with_room: list[list[objects.Node]] = []
    for unit in _units(nodes, together):
        units = [unit] if _fits(unit, len(nodes), zone_key, max_per_zone) else [[node] for node in unit]
        for some in units:
            wave = next((w for w in with_room if _fits([*w, *some], max_parallel, zone_key, max_per_zone)), None)
            if wave is None:
                wave = []
                found.append(wave)
                with_room.append(wave)
            wave += some
            if len(wave) >= max_parallel:
                with_room = [other for other in with_room if other is not wave]
    return tuple(tuple(node.name for node in wave) for wave in found)


def _fits(wave: t.Sequence[objects.Node], most: int, zone_key: str, max_per_zone: int | None) -> bool:
    if len(wave) > most or max_per_zone is None:
        return len(wave) <= most
    return max(collections.Counter(node.labels.get(zone_key) for node in wave).values()) <= max_per_zone


def _units(nodes: t.Sequence[objects.Node], together: t.Iterable[t.Collection[str]]) -> list[list[objects.Node]]:
    """The nodes in groups that share a wave, each at the place of its first node."""
    units = [[node] for node in nodes]
    for named in together:
        joined = [unit for unit in units if any(node.name in named for node in unit)]
        if len(joined) > 1:
            units = [unit for unit in units if unit is joined[0] or not any(unit is other for other in joined)]
            joined[0].extend(node for unit in joined[1:] for node in unit)
    return units
