# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Where instants are drawn on the page's charts, and what is if there is too much."""

from __future__ import annotations

import bisect
import datetime
import itertools
import math
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import (
    model,
    text,
    timeline,
)

STEPS = (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
DAY_SECONDS = 86400
MAX_TICKS = 6
LEAST_WIDTH = 0.25
"""Percent: nothing is too short to be seen."""
Tick = tuple[float, str]


class Axis:
    """One scale for periods that are drawn side by side; positions are percentages of the width.

    Services have a period for each time they were watched: tasks take minutes, a drain seconds, and
    on one long axis it would not be seen.
    """

    def __init__(self, starts: t.Sequence[float], ends: t.Sequence[float]) -> None:
        self.starts = starts
        self.ends = ends
        gap = min(1.2, 12 / len(starts))
        lengths = [end - start for start, end in zip(starts, ends, strict=True)]
        self._scale = (100 - gap * (len(starts) - 1)) / sum(lengths) if sum(lengths) > 0 else 0.0
        widths = (length * self._scale + gap for length in lengths[:-1])
        self._lefts = [0.0, *itertools.accumulate(widths)]

    @property
    def seconds(self) -> float:
        return self.ends[-1] - self.starts[0]

    def at(self, instant: float) -> float:
        """The position of an instant; between two periods the end of the first."""
        index = max(bisect.bisect_right(self.starts, instant) - 1, 0)
        start = self.starts[index]
        within = min(max(instant, start), self.ends[index]) - start
        return round(self._lefts[index] + within * self._scale, 3)

    def extent(self, start: float, end: float) -> tuple[float, float]:
        """Left edge and width of a period."""
        left = self.at(start)
        return min(left, 100 - LEAST_WIDTH), max(round(self.at(end) - left, 3), LEAST_WIDTH)

    def ticks(self, *, relative: bool = False) -> list[Tick]:
        """A few round instants; labels are times of day, or ``relative`` count from the start."""
        start = self.starts[0]
        length = max(self.seconds, 0.001)
        days = DAY_SECONDS * math.ceil(length / DAY_SECONDS / MAX_TICKS)
        step = next((s for s in STEPS if length / s <= MAX_TICKS), days)
        origin = start if relative else 0.0
        first = math.ceil((start - origin) / step - 1e-9)
        moments = (origin + step * (first + n) for n in range(MAX_TICKS + 2))
        fitting = (m for m in moments if m - start <= 0.93 * length)
        return [(self.at(m), _label(m, step, start if relative else None)) for m in fitting]

    def clocks(self) -> list[Tick]:
        """The time of day at the left edge of each period that has room for it."""
        found: list[Tick] = []
        for start, left in zip(self.starts, self._lefts, strict=True):
            if left <= 88 and (not found or left - found[-1][0] >= 14):
                found.append((round(left, 2), text.clock(start)))
        return found

    def areas(
        self, service: model.ServiceLine
    ) -> t.Iterator[tuple[float, float, float, int, float, float]]:
        """Each period of one number of ready endpoints: left, width, height (percent),
        the number, from, to.

        Darkness takes the full height and is never too short.
        """
        lit = False
        for watch in service.watches:
            for start, end, ready in watch.steps():
                lit = lit or ready > 0
                if lit and (ready == 0 or self.at(end) > self.at(start)):
                    height = round(100 * ready / service.top, 1) if ready else 100.0
                    yield *self.extent(start, end), height, ready, start, end

    def edges(self, service: model.ServiceLine) -> t.Iterator[tuple[float, float, str]]:
        """The line above the areas of each watch: left, width (percent), path in 1000 x 100."""
        for watch in service.watches:
            left, right = self.at(watch.start), self.at(watch.end)
            if right > left:
                yield left, round(right - left, 3), _path(watch, service.top)


def _label(moment: float, step: float, start: float | None) -> str:
    if start is None:
        when = datetime.datetime.fromtimestamp(moment, datetime.UTC)
        if step >= DAY_SECONDS:
            return when.strftime("%m-%d")
        return when.strftime("%H:%M" if step >= 60 else "%H:%M:%S")
    since = moment - start
    if step >= 60:
        return f"{since / 60:.0f} min"
    return f"{since:.1f} s" if step < 1 else f"{since:.0f} s"


def _path(watch: model.Watch, top: int) -> str:
    length = max(watch.end - watch.start, 0.001)
    parts: list[str] = []
    for start, _end, ready in watch.steps():
        x, y = round(1000 * (start - watch.start) / length), round(100 - 100 * ready / top)
        parts.append(f"H{x}V{y}" if parts else f"M{x} {y}")
    return "".join(parts) + "H1000"


def by_node(report: model.Report) -> list[tuple[str, int, list[model.PodLane]]]:
    """The pods of each node with its name and wave (0: in none), in the order of the nodes."""
    lanes = timeline.by_node(report.pods)
    waves = {node.name: node.wave for node in report.nodes}
    names = [name for name in dict.fromkeys((*waves, *lanes)) if name in lanes]
    return [(name, waves.get(name, 0), lanes[name]) for name in names]


def pods_axis(pods: t.Iterable[model.PodLane]) -> Axis | None:
    """From the first to the last instant known of any of the pods; ``None`` if none is known."""
    times = [moment for pod in pods for moment in pod.moments]
    return Axis([min(times)], [max(times)]) if times else None


def worst(pods: t.Iterable[model.PodLane], most: int) -> list[model.PodLane]:
    """At most ``most``, those with trouble or long waits before others, by their first instant."""

    def rank(pod: model.PodLane) -> tuple[t.Any, ...]:
        trouble = (not pod.failed, pod.moved, pod.route != "refuse", not pod.refused)
        return *trouble, -(pod.waited_seconds or 0.0)

    found = sorted(pods, key=rank)
    return sorted(found[:most], key=lambda p: (min(p.moments, default=0.0), p.namespace, p.name))
