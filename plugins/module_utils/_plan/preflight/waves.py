# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which nodes are taken out together, in which order, and why a node waits for others."""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects

Limit = t.Literal["max_parallel", "max_per_zone", "control_plane", "budget", "room"]


@dataclass(frozen=True, slots=True)
class Share:
    """Something of which the nodes of a wave may take ``most`` with them; ``takes`` is how much each node does.

    A node that takes more by itself goes without others that take any. ``words`` tell what such a node is.
    """

    limit: Limit
    most: int
    takes: t.Mapping[str, int]
    words: str

    def exceeded(self, wave: t.Iterable[objects.Node]) -> bool:
        taken = [self.takes[node.name] for node in wave if node.name in self.takes]
        return len(taken) > 1 and sum(taken) > self.most


@dataclass(frozen=True, slots=True)
class Limits:
    """How many nodes of a wave there may be, and how many of them with the same value of the label ``zone_key``.

    Nodes without the label count as one zone. ``shares`` are what they may take with them.
    """

    max_parallel: int = 1
    zone_key: str = "topology.kubernetes.io/zone"
    max_per_zone: int | None = None
    shares: tuple[Share, ...] = ()

    def exceeded(self, wave: t.Sequence[objects.Node]) -> tuple[Limit, ...]:
        """Those that the nodes would exceed together."""
        found: list[Limit] = ["max_parallel"] if len(wave) > self.max_parallel else []
        found += ["max_per_zone"] if self.crowded(wave) else []
        return tuple(dict.fromkeys((*found, *(share.limit for share in self.taken(wave)))))

    def taken(self, wave: t.Sequence[objects.Node]) -> tuple[Share, ...]:
        """The shares of which the nodes would take too much together."""
        return tuple(share for share in self.shares if share.exceeded(wave))

    def crowded(self, wave: t.Iterable[objects.Node]) -> set[str | None]:
        """The zones with too many of the nodes."""
        if self.max_per_zone is None:
            return set()
        zones = collections.Counter(self.zone(node) for node in wave)
        return {zone for zone, count in zones.items() if count > self.max_per_zone}

    def zone(self, node: objects.Node) -> str | None:
        return node.labels.get(self.zone_key)


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a node is in ``wave`` (from 1, never the first) and not in the one before.

    That one would have exceeded ``limits`` with the node and those that leave ``together`` with it, because ``behind``,
    which come first, are in it: without them the node would be in it. ``shared`` are the words of exceeded shares.
    """

    node: str
    wave: int
    limits: tuple[Limit, ...]
    behind: tuple[str, ...]
    together: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """In words: what the wave before has."""
        before, names = f"wave {self.wave - 1}", ", ".join(self.behind[:3])
        names += f" and {len(self.behind) - 3} more" if len(self.behind) > 3 else ""
        full = f"{len(self.behind)} {'node' if len(self.behind) == 1 else 'nodes'}"
        if self.together:
            room = f"{before} has no room for {len(self.together) + 1} nodes that leave together, as it has"
            return f"{room} {full}" if "max_parallel" in self.limits else f"{room} {names} {self._alike}"
        if "max_parallel" not in self.limits:
            return f"{before} has {names} {self._alike}"
        also = [" and has as many of the same zone as it may"] if "max_per_zone" in self.limits else []
        return "".join([f"{before} is full with {full}", *also, *(f" and has one {words}" for words in self.shared)])

    @property
    def _alike(self) -> str:
        """What those have in common that it waits for."""
        zone = ("of the same zone",) if "max_per_zone" in self.limits else ()
        return " or ".join((*zone, *self.shared))

    def to_dict(self) -> dict[str, t.Any]:
        """As the module returns it."""
        lists = {key: list(getattr(self, key)) for key in ("limits", "behind", "together")}
        return {"node": self.node, "wave": self.wave, **lists, "reason": self.reason}


class Formed(t.NamedTuple):
    """The nodes by wave, and for each node that is not in the first wave why it waits, in the same order."""

    waves: tuple[tuple[str, ...], ...]
    waits: tuple[Wait, ...]


def formed(nodes: t.Sequence[objects.Node], limits: Limits, *, together: t.Iterable[t.Collection[str]] = ()) -> Formed:
    """The nodes in waves within the limits, in the order given.

    A node goes into the first wave with room for it, so two nodes that share a budget may share a wave: the drain keeps
    to the budget. Nodes that are named ``together`` share a wave, if need be a larger one, unless there are too many of
    a zone among them, or they take too much of a share.
    """
    found: list[list[objects.Node]] = []
    with_room: list[int] = []
    waits: list[Wait] = []
    for unit in _units(nodes, together):
        for some in [[node] for node in unit] if limits.crowded(unit) or limits.taken(unit) else [unit]:
            index = next((i for i in with_room if not limits.exceeded([*found[i], *some])), len(found))
            if index == len(found):
                found.append([])
                with_room.append(index)
            if index:
                waits += _waits(found[index - 1], some, index + 1, limits)
            found[index] += some
            if len(found[index]) >= limits.max_parallel:
                with_room.remove(index)
    waits.sort(key=lambda wait: wait.wave)
    return Formed(tuple(tuple(node.name for node in wave) for wave in found), tuple(waits))


def _waits(
    before: t.Sequence[objects.Node], unit: t.Sequence[objects.Node], wave: int, limits: Limits
) -> t.Iterator[Wait]:
    """Of the nodes of a unit that the wave before had no room for."""
    both = [*before, *unit]
    exceeded, zones, shares = limits.exceeded(both), limits.crowded(both), limits.taken(both)
    behind = tuple(
        node.name
        for node in before
        if "max_parallel" in exceeded or limits.zone(node) in zones or any(node.name in share.takes for share in shares)
    )
    words = tuple(share.words for share in shares)
    for node in unit:
        yield Wait(node.name, wave, exceeded, behind, tuple(other.name for other in unit if other is not node), words)


def _units(nodes: t.Sequence[objects.Node], together: t.Iterable[t.Collection[str]]) -> list[list[objects.Node]]:
    """The nodes in groups that share a wave, each at the place of its first node."""
    units = [[node] for node in nodes]
    for named in together:
        joined = [unit for unit in units if any(node.name in named for node in unit)]
        if len(joined) > 1:
            units = [unit for unit in units if unit is joined[0] or not any(unit is other for other in joined)]
            joined[0].extend(node for unit in joined[1:] for node in unit)
    return units
