# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Where things are drawn: instants to percentages of a picture's width."""

from __future__ import annotations

import bisect
import datetime
import math
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report.model import (
    Mark,
    ServiceLine,
    Span,
    Watch,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report.text import clock, count, duration

STEPS = (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
DAY = 86400
MOST_TICKS = 6
LEAST_WIDTH = 0.25
"""Percent: nothing that happened is too short to be seen."""
MOST_MARKS = 40
Tick = tuple[float, str]
Bar = tuple[float, float, str, str]
"""Left edge and width in percent, kind, tooltip."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear time axis; ``relative`` labels count from its start, others show the time of day."""

    start: float
    end: float
    relative: bool = False

    def at(self, instant: float) -> float:
        """The place of an instant, in percent."""
        length = max(self.end - self.start, 0.001)
        return round(min(max((instant - self.start) / length, 0.0), 1.0) * 100, 2)

    def ticks(self) -> list[Tick]:
        """A handful of round moments, none so near the end that its label would not fit."""
        length = max(self.end - self.start, 0.001)
        step = next((s for s in STEPS if length / s <= MOST_TICKS), 0.0)
        step = step or DAY * math.ceil(length / DAY / MOST_TICKS)
        origin = self.start if self.relative else 0.0
        first = math.ceil((self.start - origin) / step - 1e-9)
        moments = (origin + step * (first + n) for n in range(MOST_TICKS + 2))
        return [(self.at(m), self._label(m, step)) for m in moments if self.at(m) <= 93]

    def _label(self, moment: float, step: float) -> str:
        if not self.relative:
            when = datetime.datetime.fromtimestamp(moment, datetime.UTC)
            if step >= DAY:
                return when.strftime("%m-%d")
            return when.strftime("%H:%M" if step >= 60 else "%H:%M:%S")
        since = moment - self.start
        if step >= 60:
            return f"{since / 60:.0f} min"
        return f"{since:.1f} s" if step < 1 else f"{since:.0f} s"

    def bars(self, spans: t.Iterable[Span], words: t.Mapping[str, str]) -> list[Bar]:
        """A bar for each span, with what it is, for how long and from when as its tooltip."""
        found = []
        for span in spans:
            left = self.at(span.start)
            width = max(round(self.at(span.end) - left, 2), LEAST_WIDTH)
            so_far = " so far" if span.open else ""
            title = (
                f"{words.get(span.phase, span.phase)}: {duration(span.seconds)}{so_far}, "
                f"{clock(span.start)} to {clock(span.end)}"
            )
            found.append((min(left, 100 - LEAST_WIDTH), width, span.phase, title))
        return found

    def marks(self, marks: t.Iterable[Mark], kinds: t.Container[str]) -> list[tuple[float, str, str]]:
        """A tick for each moment of those kinds; of very many, evenly spread ones."""
        wanted = [mark for mark in marks if mark.what in kinds]
        every = math.ceil(len(wanted) / MOST_MARKS) or 1
        return [(self.at(m.at), m.what, f"{clock(m.at)} {m.what}: {m.message}") for m in wanted[::every]]


class WatchedAxis:
    """A time axis of only those stretches in which Services were watched, one beside the other.

    The user's tasks take minutes, a drain seconds: on a plain axis nothing would be seen of it.
    """

    def __init__(self, watched: t.Iterable[Span]) -> None:
        self.windows = [(span.start, span.end) for span in watched]
        self._starts = [start for start, _end in self.windows]
        self._gap = min(1.2, 12 / max(len(self.windows), 1))
        total = sum(end - start for start, end in self.windows)
        room = 100 - self._gap * (len(self.windows) - 1)
        self._scale = room / total if total > 0 else 0.0
        self._lefts, left = [], 0.0
        for start, end in self.windows:
            self._lefts.append(left)
            left += (end - start) * self._scale + self._gap

    def at(self, instant: float) -> float:
        """The place of an instant, in percent; between two stretches the end of the first."""
        index = max(bisect.bisect_right(self._starts, instant) - 1, 0)
        start, end = self.windows[index]
        return round(self._lefts[index] + (min(max(instant, start), end) - start) * self._scale, 3)

    def ticks(self) -> list[Tick]:
        """The clock at the left edge of a stretch, where there is room for it."""
        found: list[Tick] = []
        for (start, _end), left in zip(self.windows, self._lefts, strict=True):
            if left <= 88 and (not found or left - found[-1][0] >= 14):
                found.append((round(left, 2), clock(start)))
        return found

    def steps(self, service: ServiceLine) -> list[tuple[float, float, float, float, str, str]]:
        """Areas: left, width, top, height (percent), kind, tooltip; darkness takes the full height."""
        top = max(service.highest, service.desired, 1)
        lit, found = False, []
        for watch in service.watches:
            for start, end, ready in watch.steps():
                lit = lit or ready > 0
                left = self.at(start)
                width = round(self.at(end) - left, 3)
                dark = lit and ready == 0
                if (width <= 0 and not dark) or (ready == 0 and not dark):
                    continue
                height = 100.0 if dark else round(100 * ready / top, 1)
                text = f"{count(ready, 'ready endpoint')} for {duration(end - start)}"
                title = f"{text}, {clock(start)} to {clock(end)}"
                kind = "dark" if dark else "ready"
                width = max(width, LEAST_WIDTH)
                found.append((left, width, round(100 - height, 1), height, kind, title))
        return found

    def edges(self, service: ServiceLine) -> list[tuple[float, float, str]]:
        """The line above the areas of each stretch: left, width (percent), path in 1000 x 100."""
        top = max(service.highest, service.desired, 1)
        found = []
        for watch in service.watches:
            left, right = self.at(watch.start), self.at(watch.end)
            if right > left:
                found.append((left, round(right - left, 3), _path(watch, top)))
        return found


def goal_height(service: ServiceLine) -> float:
    """Where the dashed line of the desired number is, from the top, in percent."""
    return round(100 - 100 * service.desired / max(service.highest, service.desired, 1), 1)


def _path(watch: Watch, top: int) -> str:
    length = max(watch.end - watch.start, 0.001)
    parts: list[str] = []
    for start, _end, ready in watch.steps():
        x, y = round(1000 * (start - watch.start) / length), round(100 - 100 * ready / top)
        parts.append(f"H{x}V{y}" if parts else f"M{x} {y}")
    return "".join(parts) + "H1000"
