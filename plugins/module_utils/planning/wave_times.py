# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""How long each wave of a maintenance will take, without the user's own tasks,
and which budgets hold it up.

In a wave, the successors of pods that are surged start first, all at the same time, and their pods
leave when they serve. Meanwhile the others leave: pods of one budget in a queue (``queues``),
different budgets at the same time, so the slowest counts. Pods that leave by a PodMigrationJob go
as fast as Koordinator's limits let them, but with backend ``auto`` they are evicted after
``job_wait``. How long a leaving pod takes is known within limits only (``queues.Times.stop``), so
each wave has a range.

Between two waves nothing is left of what a budget allowed: a wave ends when the successors
of its pods are Ready.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import released
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import feed
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import queues
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy

PER_WAVE_SECONDS = 3.0
"""Seconds for the cordon, the proof that nodes are empty, and giving them back (busy lab)."""

BOUNDS: tuple[queues.Bound, ...] = ("expected", "least", "most")


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of what a wave takes, in seconds; the whole is their sum.

    ``steps`` is for cordon, proof and giving back, ``notice`` before the first pod leaves.
    ``starts`` is waiting for successors, ``stops`` for pods to end, ``budgets`` and ``jobs`` for
    the turn of a pod by its budget or by Koordinator's limits.
    """

    steps: float = PER_WAVE_SECONDS
    notice: float = 0.0
    starts: float = 0.0
    stops: float = 0.0
    budgets: float = 0.0
    jobs: float = 0.0

    @property
    def seconds(self) -> float:
        return math.fsum(dataclasses.astuple(self))

    def plus(self, other: Parts) -> Parts:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Parts(*(mine + theirs for mine, theirs in pairs))

    def to_dict(self) -> dict[str, float]:
        return {name: round(value, 1) for name, value in dataclasses.asdict(self).items()}


NOTHING = Parts(steps=0.0)
Rounds: t.TypeAlias = tuple[int, list[drain_policy.PodPlan]]
"""How many times others of a workload are waited for, of which these pods are replaced first."""
Band: t.TypeAlias = tuple[list[drain_policy.PodPlan], list[queues.Queue], list[Rounds]]
"""Pods of a wave that leave at once: the surged, the queues of others, the replaced."""


@dataclass(frozen=True, slots=True)
class Held:
    """A budget that holds pods of a wave back, or for good.

    ``allowed`` pods may be missing at a time; the last of them waits ``seconds`` for its turn. With
    0 the budget allows nothing at the moment, and how long that lasts is not known: ``seconds`` are
    from then on. ``blocks``: it lasts.
    """

    wave: int
    budget: objects.Ref
    workload: objects.Ref | None
    pods: int
    allowed: int
    seconds: float
    guard: bool = False
    blocks: bool = False

    def to_dict(self) -> dict[str, t.Any]:
        return {
            "namespace": self.budget.namespace,
            "name": self.budget.name,
            "workload": str(self.workload or ""),
            **{key: getattr(self, key) for key in ("guard", "wave", "pods", "allowed", "blocks")},
            "seconds": round(self.seconds, 1),
        }


@dataclass(frozen=True, slots=True)
class WaveTime:
    """The forecast of one wave; ``held`` with the budget first that holds it up longest,
    those that block before.

    ``parts`` are what is expected; ``others`` are the same if all pods end as fast, or as slowly,
    as they may. It is expected that ``surges`` seconds pass until all surges have taken over, and
    that the drain takes ``drains`` without waiting for them.
    """

    parts: Parts
    held: tuple[Held, ...] = ()
    others: tuple[Parts, ...] = ()
    surges: float = 0.0
    drains: float = 0.0

    @property
    def seconds(self) -> int:
        return _whole(self.parts)

    @property
    def range(self) -> tuple[int, int]:
        """The fewest and the most seconds that it may take."""
        found = [_whole(each) for each in (self.parts, *self.others)]
        return min(found), max(found)


def wave_times(
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[drain_policy.PodPlan],
    waves: t.Iterable[t.Collection[str]],
    *,
    settle: float = 0.0,
    notice: float = 0.0,
    apart: bool = False,
    choices: drain_policy.DrainPolicy | None = None,
    now: str = "",
) -> list[WaveTime]:
    """The forecast of each wave; ending pods are not waited for in it.

    ``apart``: no pod leaves before all surges have taken over, because tasks of hooks run then.

    Each wave waits for what Koordinator's object limiter remembers of those before, with ``now``
    (RFC 3339) also of earlier runs.
    """
    choices = choices or drain_policy.DrainPolicy()
    times = queues.Times(snapshot, choices.load_balancer_wait)
    ways = [_Way(times.at(bound), feed.Pace(snapshot, choices.controller, now)) for bound in BOUNDS]
    found = list[WaveTime]()
    for number, (_nodes, leaving) in enumerate(drain_policy.by_wave(plans, waves), start=1):
        wave = _Wave(leaving, _bands(snapshot, leaving), settle, notice, apart)
        parts, *others = [_parts_of(snapshot, wave, way, choices) for way in ways]
        held = _held(snapshot, times, leaving, number)
        expected = ways[0].times
        starts = _starts(expected, wave)
        drains = _evictions(expected, wave.bands).plus(Parts(steps=0.0, jobs=parts.jobs)).seconds
        found.append(WaveTime(parts, held, tuple(others), starts, drains))
    return found


def _starts(times: queues.Times, wave: _Wave) -> float:
    """Seconds until all surges have taken over."""
    surges = [plan for plan in wave.leaving if plan.route == "surge"]
    return max((times.start(plan).available + wave.settle for plan in surges), default=0.0)


@dataclass
class _Way:
    """How fast pods end and go by jobs in one course; so many ``seconds`` are over."""

    times: queues.Times
    pace: feed.Pace
    seconds: float = 0.0


class _Wave(t.NamedTuple):
    """The pods that leave in a wave; the ``bands`` leave one after the other."""

    leaving: t.Sequence[drain_policy.PodPlan]
    bands: list[Band]
    settle: float
    notice: float
    apart: bool


def together(waves: t.Iterable[WaveTime]) -> list[int]:
    """The fewest and the most seconds that all of them may take."""
    ranges = [wave.range for wave in waves]
    return [sum(fewest for fewest, _most in ranges), sum(most for _fewest, most in ranges)]


def _parts_of(
    snapshot: snapshots.Snapshot, wave: _Wave, way: _Way, choices: drain_policy.DrainPolicy
) -> Parts:
    """What a wave takes."""
    times = way.times
    by_job = [plan for plan in wave.leaving if plan.route == "job"]
    jobs = way.pace.seconds(by_job, way.seconds, times.job)
    if choices.backend == "auto" and jobs > choices.job_wait:
        bands = _bands(snapshot, [dataclasses.replace(plan, route="evict") for plan in by_job])
        jobs = min(jobs, choices.job_wait + _evictions(times, bands).seconds)
    starts = _starts(times, wave)
    if wave.apart:
        moves = Parts(steps=0.0, starts=starts).plus(_evictions(times, wave.bands))
    else:
        moves = _evictions(times, wave.bands, starts)
    moves = dataclasses.replace(moves, jobs=max(0.0, jobs - moves.seconds))
    parts = Parts(notice=wave.notice).plus(moves)
    way.seconds += _whole(parts)
    return parts


def _bands(snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan]) -> list[Band]:
    """The pods whose turn is later (a rule's order) leave when the others are gone."""
    bands: dict[tuple[bool, int], list[drain_policy.PodPlan]] = {}
    for plan in plans:
        if plan.route in ("evict", "surge", "replace"):
            bands.setdefault((plan.policy.last, plan.policy.order), []).append(plan)
    found = []
    for band in bands.values():
        surged = [plan for plan in band if plan.route == "surge"]
        found.append((surged, queues.queues(snapshot, band), _replaced(snapshot, band)))
    return found


def _evictions(times: queues.Times, bands: t.Iterable[Band], ready: float = 0.0) -> Parts:
    """What it takes until all of them have left; the surges have taken over after ``ready``
    seconds.
    """
    whole = NOTHING
    for surged, queued, replaced in bands:
        waits = max(0.0, ready - whole.seconds) if surged else 0.0
        stops = max(map(times.stop, surged), default=0.0)
        parts = [Parts(steps=0.0, starts=waits, stops=stops)]
        parts += [_parts(times, queue) for queue in queued]
        for rounds, plans in replaced:
            starts = rounds * max(map(times.replaced, plans))
            parts.append(Parts(steps=0.0, stops=max(map(times.stop, plans)), starts=starts))
        whole = whole.plus(max(parts, key=lambda one: one.seconds))
    return whole


def _replaced(
    snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan]
) -> list[Rounds]:
    """The pods that are replaced first, of each workload so many at a time."""
    found: dict[str, list[drain_policy.PodPlan]] = {}
    for plan in plans:
        if plan.route == "replace" and plan.workload:
            found.setdefault(plan.workload.uid, []).append(plan)
    rounds: list[Rounds] = []
    for uid, some in found.items():
        workload = snapshot.workload(uid)
        at_once = released.most_at_once(workload) if workload else len(some)
        rounds.append((math.ceil(len(some) / at_once), some))
    return rounds


def _parts(times: queues.Times, queue: queues.Queue) -> Parts:
    steps = [times.step(plan) for plan in queue.plans]
    lasts = queues.play(steps, queue.allowed).lasts
    at_once = lasts if len(steps) <= queue.allowed else queues.play(steps, len(steps)).lasts
    stops = max(step.stop for step in steps)
    return Parts(steps=0.0, stops=stops, starts=at_once - stops, budgets=max(0.0, lasts - at_once))


def _held(
    snapshot: snapshots.Snapshot,
    times: queues.Times,
    plans: t.Sequence[drain_policy.PodPlan],
    wave: int,
) -> tuple[Held, ...]:
    found = []
    for budget, group in _blocked(plans).items():
        found.append(Held(wave, budget, None, len(group), 0, 0.0, blocks=True))
    for queue in queues.queues(snapshot, plans):
        waits = queues.play([times.step(plan) for plan in queue.plans], queue.allowed).waits
        if queue.budget and (waits or not queue.allowed):
            held = Held(wave, queue.budget, queue.workload, len(queue.plans), queue.allowed, waits)
            found.append(dataclasses.replace(held, guard=queue.guard))
    return tuple(sorted(found, key=lambda one: (not one.blocks, -one.seconds, str(one.budget))))


def _blocked(
    plans: t.Iterable[drain_policy.PodPlan],
) -> dict[objects.Ref, list[drain_policy.PodPlan]]:
    """The pods of budgets that never allow an eviction."""
    found: dict[objects.Ref, list[drain_policy.PodPlan]] = {}
    for plan in plans:
        if plan.code in drain_policy.BUDGET_FORBIDS and plan.budgets:
            found.setdefault(plan.budgets[0], []).append(plan)
    return found


def _whole(parts: Parts) -> int:
    return math.ceil(round(parts.seconds, 3))


# Whether the calls of a run have as much time as they take by its forecast.


SURGES_SECONDS, DRAIN_SECONDS = 600.0, 86400.0
"""Seconds that ``pdb_guard`` and ``node_drain`` have if no limit is given."""
SPARE_FACTOR = 1.5
"""How much more time than it takes by the forecast a call should have."""


def findings(
    waves: t.Sequence[t.Sequence[str]], times: t.Sequence[WaveTime], timeout: float | None
) -> list[reasons.Finding]:
    """One for each of the two calls that takes too long for a wave, about the longest one."""
    surges, drains = [time.surges for time in times], [time.drains for time in times]
    return [
        *_late(waves, surges, "pdb_guard", timeout, SURGES_SECONDS),
        *_late(waves, drains, "node_drain", timeout, DRAIN_SECONDS),
    ]


def _late(
    waves: t.Sequence[t.Sequence[str]],
    taken: t.Sequence[float],
    call: str,
    timeout: float | None,
    usual: float,
) -> list[reasons.Finding]:
    limit = usual if timeout is None else timeout
    late = [index for index, seconds in enumerate(taken) if seconds > limit]
    if not late:
        return []
    longest = max(late, key=lambda index: taken[index])
    others = f", and too long for {len(late) - 1} more" if len(late) > 1 else ""
    seconds = math.ceil(taken[longest])
    message = (
        f"By the forecast {call} takes about {seconds} s for wave {longest + 1}{others}. Its "
        f"limit is {limit:g} s; then the nodes are given back."
    )
    minutes = math.ceil(SPARE_FACTOR * seconds / 60)
    remedy = f"Give it more time: {reasons.options(timeout=f'{minutes}m')}."
    nodes = tuple(itertools.chain.from_iterable(waves[index] for index in late))
    return [reasons.Finding("timeout_too_short", message, remedy, "warning", call, nodes)]
