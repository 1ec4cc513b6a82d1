# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which nodes are taken out together, in which order, and why a node waits for others."""

from __future__ import annotations

import collections
import math
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import pending
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    forecast,
    forecast_findings,
    queues,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy

# In which order nodes are taken out of service.


Order = t.Literal["given", "name", "pods", "priority", "zone"]
ORDERS: tuple[Order, ...] = t.get_args(Order)


def ordered(
    nodes: t.Iterable[objects.Node],
    plans: t.Iterable[drain_policy.PodPlan],
    order: Order,
    *,
    zone_key: str = "topology.kubernetes.io/zone",
) -> list[objects.Node]:
    """The nodes in this order; those that are equal by it keep the order given.

    ``name`` counts numbers in a name by their value, ``pods`` begins with the node with the fewest
    pods to move, ``priority`` with the one whose most important pod to move has the lowest
    priority, ``zone`` does zone after zone by the label ``zone_key``, nodes without it first.
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


# How long the pods of a wave queue, because those that share a budget leave only so many at a time.
#
# Budgets are a vector: each has a line of its own, and the pods of all lines leave at the same
# time. So a wave takes as long as its longest line, and nodes whose pods stand in different
# lines go well together.


@dataclass(frozen=True, slots=True)
class Line:
    """Pods that leave ``allowed`` at a time; ``takes`` is how many of them each node has.

    The next turn comes after ``turn`` seconds, and the last one takes ``ends`` seconds. ``words``
    tell what a node with such pods is; no other line has the same.
    """

    allowed: int
    takes: t.Mapping[str, int]
    words: str
    turn: float
    ends: float

    def lasts(self, pods: int) -> float:
        """Seconds for so many of them, at least one."""
        return (math.ceil(pods / self.allowed) - 1) * self.turn + self.ends


class Lines:
    """The lines by the nodes that have pods in them."""

    def __init__(self, lines: t.Iterable[Line]) -> None:
        self._of = collections.defaultdict[str, list[Line]](list)
        for line in lines:
            for name in line.takes:
                self._of[name].append(line)

    def __bool__(self) -> bool:
        return bool(self._of)

    def of(self, nodes: t.Iterable[objects.Node]) -> dict[str, Line]:
        """The lines with pods of these nodes, by their words."""
        return {line.words: line for node in nodes for line in self._of.get(node.name, ())}


class Turns:
    """The lines of one wave while it is filled; ``longest`` of them in seconds."""

    def __init__(self, lines: Lines, nodes: t.Iterable[objects.Node]) -> None:
        self.longest = 0.0
        self._lines = lines
        self._pods = collections.Counter[str]()
        self.add(list(nodes))

    def add(self, nodes: t.Sequence[objects.Node]) -> None:
        for line, pods in self._with(nodes):
            self._pods[line.words] = pods
            self.longest = max(self.longest, line.lasts(pods))

    def longer(self, nodes: t.Sequence[objects.Node]) -> t.Iterator[Line]:
        """The lines that would be longer than the longest one with the nodes in the wave."""
        return (line for line, pods in self._with(nodes) if line.lasts(pods) > self.longest)

    def _with(self, nodes: t.Sequence[objects.Node]) -> t.Iterator[tuple[Line, int]]:
        """Each line of the nodes with how many pods of it the wave would have with them."""
        for words, line in self._lines.of(nodes).items():
            yield line, self._pods[words] + sum(line.takes.get(node.name, 0) for node in nodes)


def lines(
    snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan]
) -> tuple[Line, ...]:
    """Those of the pods that are evicted under a budget, or under the guard of their workload."""
    times = queues.Times(snapshot)
    found = list[Line]()
    for queue in queues.queues(snapshot, plans):
        if queue.budget is None:
            continue
        allowed = max(1, queue.allowed)
        holder = queue.workload if queue.guard else queue.budget
        takes = collections.Counter(plan.pod.node for plan in queue.plans)
        steps = [times.step(plan) for plan in queue.plans]
        words = f"with pods of {holder}, of which {allowed} may"
        turn, ends = max(step.turn for step in steps), max(step.lasts for step in steps)
        found.append(Line(allowed, takes, f"{words} leave at a time", turn, ends))
    return tuple(found)


Limit = t.Literal["max_parallel", "max_per_zone", "control_plane", "budget", "room", "queue"]
Unit: t.TypeAlias = t.Sequence[objects.Node]
"""Nodes that share a wave."""

AHEAD, AT_MOST = 4, 256
"""For how many times ``max_parallel`` nodes, and how many at most, a shorter wave is tried."""
SHOWN = 2
"""How many of the budgets and the like are named that a node waits for."""


@dataclass(frozen=True, slots=True)
class Share:
    """Something of which the nodes of a wave may take ``most`` with them;
    ``takes`` is how much each node does.

    A node that takes more by itself goes without others that take any.
    ``words`` tell what such a node is.
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
    """How many nodes of a wave there may be, and how many of them with the same value of
    the label ``zone_key``.

    Nodes without the label count as one zone. ``shares`` are what they may take with them.
    """

    max_parallel: int = 1
    zone_key: str = "topology.kubernetes.io/zone"
    max_per_zone: int | None = None
    shares: tuple[Share, ...] = ()

    def exceeded(self, wave: t.Sequence[objects.Node]) -> tuple[Limit, ...]:
        """The limits that the nodes would exceed together."""
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
        if self.max_per_zone is None:
            return set()
        zones = collections.Counter(self.zone(node) for node in wave)
        return {zone for zone, count in zones.items() if count > self.max_per_zone}

    def zone(self, node: objects.Node) -> str | None:
        return node.labels.get(self.zone_key)


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a node is in ``wave`` (from 1, never the first) and not in the one before.

    That one would have exceeded ``limits`` with the node and those that leave ``together`` with it,
    because ``behind``, which come first, are in it: without them the node would be in it.
    ``shared`` are the words of exceeded shares. With the limit ``queue`` it gave way to later
    nodes: ``shared`` are the words of the lines in which its pods would have queued behind others.
    With ``max_parallel`` as well there are no others, it has more turns by itself.
    """

    node: str
    wave: int
    limits: tuple[Limit, ...]
    behind: tuple[str, ...]
    together: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        before = f"wave {self.wave - 1}"
        names = reasons.listed(self.behind, 3)
        full = f"{len(self.behind)} {'node' if len(self.behind) == 1 else 'nodes'}"
        alike = f"{names} {self._alike}"
        if self.together:
            room = f"no room for {len(self.together) + 1} nodes that leave together, as it has"
            return f"{before} has {room} {full if 'max_parallel' in self.limits else alike}"
        if "max_parallel" not in self.limits:
            return f"{before} has {alike}"
        said = f"{before} is full with {full}"
        said += " whose pods need fewer turns" if "queue" in self.limits else ""
        if "max_per_zone" in self.limits:
            said += " and has as many of the same zone as it may"
        return said + "".join(f" and has one {words}" for words in self.shared[:SHOWN])

    @property
    def _alike(self) -> str:
        """What the nodes that it waits for have in common, as text."""
        words = ["of the same zone"] if "max_per_zone" in self.limits else []
        words += self.shared[:SHOWN]
        if len(self.shared) > SHOWN:
            words.append(f"{len(self.shared) - SHOWN} others like these")
        return " or ".join(words)

    def to_dict(self) -> dict[str, t.Any]:
        lists = {key: list(getattr(self, key)) for key in ("limits", "behind", "together")}
        return {"node": self.node, "wave": self.wave, **lists, "reason": self.reason}


class Formed(t.NamedTuple):
    """The nodes by wave, and why each that is not in the first wave waits, in the same order."""

    waves: tuple[tuple[str, ...], ...]
    waits: tuple[Wait, ...]


def formed(
    nodes: t.Sequence[objects.Node],
    limits: Limits,
    *,
    together: t.Iterable[t.Collection[str]] = (),
    lines: t.Iterable[Line] = (),
) -> Formed:
    """The nodes in waves within the limits, in the order given.

    A wave takes the first nodes that it has room for. Nodes that are named ``together`` share a
    wave, if need be a larger one, unless there are too many of a zone among them,
    or they take too much of a share.

    Two nodes with pods in the same of these ``lines`` may share a wave: the drain keeps to the
    budget. But a node that would make the longest line of a wave longer gives way to one of the
    next that does not, if the plan gets shorter by it and has no more waves.
    """
    units = list[Unit]()
    for unit in _units(nodes, together):
        units += [[node] for node in unit] if limits.crowded(unit) or limits.taken(unit) else [unit]
    found = _filled(units, limits, Lines(()))
    queued = Lines(lines)
    shorter = _filled(units, limits, queued) if queued and limits.max_parallel > 1 else found
    seconds = _seconds(units, found, queued)
    if len(shorter) <= len(found) and _seconds(units, shorter, queued) < seconds:
        found = shorter
    else:
        queued = Lines(())
    waves = [_nodes(units, wave) for wave in found]
    waits = list[Wait]()
    for wave, numbers in enumerate(found[1:], start=2):
        turns = Turns(queued, waves[wave - 2])
        for number in numbers:
            longer = [*turns.longer(units[number])] if number < found[wave - 2][-1] else []
            waits += _waits(waves[wave - 2], units[number], wave, limits, longer)
    return Formed(tuple(tuple(node.name for node in wave) for wave in waves), tuple(waits))


def _nodes(units: t.Sequence[Unit], wave: t.Iterable[int]) -> list[objects.Node]:
    nodes: list[objects.Node] = []
    for number in wave:
        nodes += units[number]
    return nodes


def _seconds(units: t.Sequence[Unit], waves: t.Iterable[t.Iterable[int]], lines: Lines) -> float:
    """How long the longest lines of all waves take."""
    return sum(Turns(lines, _nodes(units, wave)).longest for wave in waves)


def _filled(units: t.Sequence[Unit], limits: Limits, lines: Lines) -> list[list[int]]:
    """The waves, by the numbers of their units: each begins with the first unit that is left."""
    left = dict(enumerate(units))
    found = list[list[int]]()
    most = limits.most(node for unit in units for node in unit)
    while left:
        wave = [next(iter(left))]
        nodes = [*left.pop(wave[0])]
        queued = Turns(lines, nodes)
        fitting = dict(left)
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


def _next(
    fitting: dict[int, Unit], nodes: t.Sequence[objects.Node], limits: Limits, queued: Turns
) -> int | None:
    """The first unit that makes no line of the wave longer than its longest, else the first for
    which there is room.

    Those for which there is none leave ``fitting``: there will not be any when the
    wave has more nodes.
    """
    first = t.cast("int | None", None)
    looked = 0
    full = list[int]()
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
    before: t.Sequence[objects.Node],
    unit: Unit,
    wave: int,
    limits: Limits,
    longer: t.Sequence[Line],
) -> t.Iterator[Wait]:
    """Of the nodes of a unit not in the wave before; it gave way to nodes in ``longer`` lines."""
    both = [*before, *unit]
    exceeded = limits.exceeded(both)
    zones = limits.crowded(both)
    shares = limits.taken(both)
    behind: tuple[str, ...] = ()
    for node in before:
        shared = any(node.name in share.takes for share in shares)
        if "max_parallel" in exceeded or limits.zone(node) in zones or shared:
            behind += (node.name,)
    words = tuple(share.words for share in shares)
    if longer and exceeded == ("max_parallel",):
        names = [node.name for node in before]
        queued = tuple(name for name in names if any(name in line.takes for line in longer))
        exceeded = ("queue",) if queued else ("max_parallel", "queue")
        behind = queued or behind
        words = tuple(line.words for line in longer) if queued else ()
    for node in unit:
        others = tuple(other.name for other in unit if other is not node)
        yield Wait(node.name, wave, exceeded, behind, others, words)


def _units(
    nodes: t.Sequence[objects.Node], together: t.Iterable[t.Collection[str]]
) -> list[list[objects.Node]]:
    """The nodes in groups that share a wave, each at the place of its first node."""
    units = [[node] for node in nodes]
    for named in together:
        kept: list[list[objects.Node]] = []
        joined: list[objects.Node] | None = None
        for unit in units:
            if not any(node.name in named for node in unit):
                kept.append(unit)
            elif joined is None:
                joined = unit
                kept.append(unit)
            else:
                joined.extend(unit)
        units = kept
    return units


# Nodes whose pods fit nowhere while all of them are out leave in smaller waves.
#
# Which nodes these are is found by forecasts: of a wave with a pod that fits nowhere now, but would
# if the nodes left one after the other, at most half as many nodes share a wave, until all such
# pods fit or smaller waves do not help.


Placed: t.TypeAlias = t.Mapping[str, forecast.Forecast]

WORDS = "with pods that need the same room"
MAX_FORECASTS = 8
"""How many waves are tried at most: halves of 256 nodes."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Waves with the forecast of each pod that moves, by UID."""

    formed: Formed
    placed: Placed

    @property
    def lost(self) -> frozenset[str]:
        return frozenset(uid for uid, one in self.placed.items() if one.fits is False)


class Shaping:
    """The waves of nodes with these pods; ``form`` gives them under further shares,
    ``foresee`` their forecast.

    ``together`` are nodes that share a wave.
    """

    def __init__(
        self,
        plans: t.Iterable[drain_policy.PodPlan],
        together: t.Iterable[t.Collection[str]],
        form: t.Callable[[tuple[Share, ...]], Formed],
        foresee: t.Callable[[t.Sequence[t.Collection[str]]], Placed],
    ) -> None:
        self._node = {plan.pod.uid: plan.pod.node for plan in plans}
        self._leader = {name: min(gang) for gang in together for name in gang}
        self._form = form
        self._foresee = foresee

    def shaped(self, formed: Formed) -> Foreseen:
        """The waves in which the fewest pods fit nowhere; these if smaller ones do not help."""
        best = last = Foreseen(formed, self._foresee(formed.waves))
        helped = best.lost - self._lost_alone(best) if best.lost else frozenset()
        shares: tuple[Share, ...] = ()
        for _number in range(MAX_FORECASTS):
            narrower = self._narrower(last, helped, shares)
            if narrower == shares:
                break
            shares = narrower
            formed = self._form(shares)
            last = Foreseen(formed, self._foresee(formed.waves))
            if len(last.lost) < len(best.lost):
                best = last
        return best

    def _narrower(
        self, seen: Foreseen, helped: frozenset[str], shares: tuple[Share, ...]
    ) -> tuple[Share, ...]:
        """Half as many nodes of waves with pods that fit nowhere, and of those they shared with."""
        hit = {self._node[uid] for uid in seen.lost & helped}
        for wave in seen.formed.waves:
            units = self._units(wave)
            if len(units) > 1 and hit.intersection(wave):
                takes = {unit[0]: 1 for unit in units}
                same = [share for share in shares if share.takes.keys() & takes.keys()]
                most = min([len(units) // 2, *(share.most for share in same)])
                for share in same:
                    takes.update(share.takes)
                others = (share for share in shares if share not in same)
                shares = (*others, Share("room", most, takes, WORDS))
        return shares

    def _lost_alone(self, seen: Foreseen) -> frozenset[str]:
        """The pods that fit nowhere although the nodes of their wave leave one after the other."""
        hit = {self._node[uid] for uid in seen.lost}
        crowded = [wave for wave in seen.formed.waves if len(wave) > 1 and hit.intersection(wave)]
        apart: list[list[str]] = []
        for wave in crowded:
            apart += self._units(wave)
        if not apart:
            return seen.lost
        return seen.lost - {uid for uid, one in self._foresee(apart).items() if one.fits}

    def _units(self, wave: t.Iterable[str]) -> list[list[str]]:
        """Its nodes one by one, those that leave together as one."""
        units = collections.defaultdict[str, list[str]](list)
        for name in wave:
            units[self._leader.get(name, name)].append(name)
        return list(units.values())


# What nodes of a wave must not take with them together: the control plane,
# and members of what needs a quorum.
#
# A pod that moves is back before the next one of its budget leaves, so nodes with such pods may
# share a wave. A pod whose volume only its node has, or whose successor fits nowhere else, is down
# until that is back: the next one of its budget could not leave in the same wave.


CONTROL_PLANE = tuple(
    f"node-role.kubernetes.io/{role}" for role in ("control-plane", "master", "etcd")
)
"""Labels of nodes that run the control plane or its etcd, of which one is out at a time."""
DOWN = "local_volume"
"""The code of pods that are down until their node is back."""


def shares(
    snapshot: snapshots.Snapshot,
    nodes: t.Iterable[objects.Node],
    plans: t.Iterable[drain_policy.PodPlan],
) -> tuple[Share, ...]:
    """What these nodes share; nothing that only one of them has."""
    members = {node.name: 1 for node in nodes if not node.labels.keys().isdisjoint(CONTROL_PLANE)}
    found = [Share("control_plane", 1, members, "of the control plane")]
    down: dict[objects.Ref, collections.Counter[str]] = {}
    for plan in plans:
        keeper = plan.budgets[0] if plan.budgets else plan.workload
        if plan.code == DOWN and plan.route == "evict" and keeper:
            down.setdefault(keeper, collections.Counter())[plan.pod.node] += 1
    for keeper, takes in down.items():
        budget = None
        if keeper.kind == "PodDisruptionBudget":
            budget = snapshot.budget(keeper.namespace, keeper.name)
        most = max(1, budget.allowed) if budget else 1
        found.append(_down(keeper, most, takes))
    return tuple(share for share in found if len(share.takes) > 1)


def nowhere(
    snapshot: snapshots.Snapshot,
    plans: t.Iterable[drain_policy.PodPlan],
    placed: t.Mapping[str, forecast.Forecast],
) -> tuple[Share, ...]:
    """What nodes share by pods whose successors fit nowhere."""
    gaps = pending.gaps(snapshot, forecast_findings.unplaced(plans, placed))
    found = []
    for gap in gaps:
        takes = collections.Counter(plan.pod.node for plan in gap.plans)
        if len(takes) > 1:
            found.append(_down(gap.need.object, max(1, gap.need.most), takes))
    return tuple(found)


def _down(keeper: objects.Ref, most: int, takes: t.Mapping[str, int]) -> Share:
    return Share("budget", most, takes, f"with pods of {keeper} that are down until it is back")
