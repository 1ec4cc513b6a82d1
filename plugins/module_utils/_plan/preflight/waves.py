# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which nodes are taken out together, in which order, and why a node waits for others."""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight import turns

Limit = t.Literal["max_parallel", "max_per_zone", "control_plane", "budget", "room", "queue"]
Unit: t.TypeAlias = t.Sequence[objects.Node]
"""Nodes that share a wave."""

AHEAD, AT_MOST = 4, 256
"""For how many times ``max_parallel`` nodes, and at most for how many, it is tried whether they shorten a wave."""
SHOWN = 2
"""How many of the budgets and the like are named that a node waits for."""


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

    def most(self, nodes: t.Iterable[objects.Node]) -> int:
        """How many of these nodes a wave can have, when it has as many of each zone as it may."""
        if self.max_per_zone is None:
            return self.max_parallel
        return min(self.max_parallel, self.max_per_zone * len({self.zone(node) for node in nodes}))

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
    which come first, are in it: without them the node would be in it. ``shared`` are the words of exceeded shares. With
    the limit ``queue`` it gave way to later nodes: ``shared`` are the words of the lines in which its pods would have
    queued behind others. With ``max_parallel`` as well there are no others, it has more turns by itself.
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
        before, names = f"wave {self.wave - 1}", reasons.listed(self.behind, 3)
        full = f"{len(self.behind)} {'node' if len(self.behind) == 1 else 'nodes'}"
        if self.together:
            room = f"{before} has no room for {len(self.together) + 1} nodes that leave together, as it has"
            return f"{room} {full}" if "max_parallel" in self.limits else f"{room} {names} {self._alike}"
        if "max_parallel" not in self.limits:
            return f"{before} has {names} {self._alike}"
        also = [" whose pods need fewer turns"] if "queue" in self.limits else []
        also += [" and has as many of the same zone as it may"] if "max_per_zone" in self.limits else []
        return "".join(
            [f"{before} is full with {full}", *also, *(f" and has one {words}" for words in self.shared[:SHOWN])]
        )

    @property
    def _alike(self) -> str:
        """What those have in common that it waits for."""
        zone = ("of the same zone",) if "max_per_zone" in self.limits else ()
        more = (f"{len(self.shared) - SHOWN} others like these",) if len(self.shared) > SHOWN else ()
        return " or ".join((*zone, *self.shared[:SHOWN], *more))

    def to_dict(self) -> dict[str, t.Any]:
        """As the module returns it."""
        lists = {key: list(getattr(self, key)) for key in ("limits", "behind", "together")}
        return {"node": self.node, "wave": self.wave, **lists, "reason": self.reason}


class Formed(t.NamedTuple):
    """The nodes by wave, and for each node that is not in the first wave why it waits, in the same order."""

    waves: tuple[tuple[str, ...], ...]
    waits: tuple[Wait, ...]


def formed(
    nodes: t.Sequence[objects.Node],
    limits: Limits,
    *,
    together: t.Iterable[t.Collection[str]] = (),
    lines: t.Iterable[turns.Line] = (),
) -> Formed:
    """The nodes in waves within the limits, in the order given.

    A wave takes the first nodes that it has room for. Nodes that are named ``together`` share a wave, if need be a
    larger one, unless there are too many of a zone among them, or they take too much of a share.

    Two nodes with pods in the same of these ``lines`` may share a wave: the drain keeps to the budget. But a node that
    would make the longest line of a wave longer gives way to one of the next that does not, if the plan gets shorter by
    it and has no more waves.
    """
    units = list[Unit]()
    for unit in _units(nodes, together):
        units += [[node] for node in unit] if limits.crowded(unit) or limits.taken(unit) else [unit]
    found, queued = _filled(units, limits, turns.Lines(())), turns.Lines(lines)
    shorter = _filled(units, limits, queued) if queued and limits.max_parallel > 1 else found
    if len(shorter) <= len(found) and _seconds(units, shorter, queued) < _seconds(units, found, queued):
        found = shorter
    else:
        queued = turns.Lines(())
    waves = [_nodes(units, wave) for wave in found]
    waits = list[Wait]()
    for wave, numbers in enumerate(found[1:], start=2):
        before = turns.Turns(queued, waves[wave - 2])
        for number in numbers:
            longer = [*before.longer(units[number])] if number < found[wave - 2][-1] else []
            waits += _waits(waves[wave - 2], units[number], wave, limits, longer)
    return Formed(tuple(tuple(node.name for node in wave) for wave in waves), tuple(waits))


def _nodes(units: t.Sequence[Unit], wave: t.Iterable[int]) -> list[objects.Node]:
    return [node for number in wave for node in units[number]]


def _seconds(units: t.Sequence[Unit], waves: t.Iterable[t.Iterable[int]], lines: turns.Lines) -> float:
    """How long the longest lines of all waves take."""
    return sum(turns.Turns(lines, _nodes(units, wave)).longest for wave in waves)


def _filled(units: t.Sequence[Unit], limits: Limits, lines: turns.Lines) -> list[list[int]]:
    """The waves, by the numbers of their units: each begins with the first unit that is left."""
    left, found = dict(enumerate(units)), list[list[int]]()
    most = limits.most(node for unit in units for node in unit)
    while left:
        wave = [next(iter(left))]
        nodes = [*left.pop(wave[0])]
        queued, fitting = turns.Turns(lines, nodes), dict(left)
        while len(nodes) < most:
            number = _next(fitting, nodes, limits, queued)
            if number is None:
                break
            unit = left.pop(number)
            del fitting[number]
            wave.append(number)
            nodes += unit
            queued.add(unit)
        found.append(sorted(wave))
    return found


def _next(fitting: dict[int, Unit], nodes: t.Sequence[objects.Node], limits: Limits, queued: turns.Turns) -> int | None:
    """The first unit that makes no line of the wave longer than its longest, else the first for which there is room.

    Those for which there is none leave ``fitting``: there will not be any when the wave has more nodes.
    """
    first, looked, full = t.cast("int | None", None), 0, list[int]()
    for number, unit in fitting.items():
        if first is None or not any(queued.longer(unit)):
            if limits.exceeded([*nodes, *unit]):
                full.append(number)
                continue
            longer = first is None and any(queued.longer(unit))
            first = number
            if not longer:
                break
        looked += 1
        if looked == min(AHEAD * limits.max_parallel, AT_MOST):
            break
    for number in full:
        del fitting[number]
    return first


def _waits(
    before: t.Sequence[objects.Node], unit: Unit, wave: int, limits: Limits, longer: t.Sequence[turns.Line]
) -> t.Iterator[Wait]:
    """Of the nodes of a unit that is not in the wave before; where ``longer`` are lines, it gave way to nodes in it."""
    both = [*before, *unit]
    exceeded, zones, shares = limits.exceeded(both), limits.crowded(both), limits.taken(both)
    behind = tuple(
        node.name
        for node in before
        if "max_parallel" in exceeded or limits.zone(node) in zones or any(node.name in share.takes for share in shares)
    )
    words = tuple(share.words for share in shares)
    if longer and exceeded == ("max_parallel",):
        queued = tuple(node.name for node in before if any(node.name in line.takes for line in longer))
        exceeded = ("queue",) if queued else ("max_parallel", "queue")
        behind, words = queued or behind, tuple(line.words for line in longer) if queued else ()
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
