# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Maintenance windows: whether a wave may start now, and if not, when.

Start and end are times of a wall clock. One that the clock skips in spring counts as if it had not
been set forward yet; one that comes twice in autumn is its first occurrence (as in PEP
495 with ``fold=0``).
"""

from __future__ import annotations

import datetime
import typing as t
from dataclasses import dataclass

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY = datetime.timedelta(days=1)
DAYS_AHEAD = 15
"""Days to look ahead. Each window opens weekly, unless the clock skips all of it once."""


@dataclass(frozen=True, slots=True)
class Window:
    """Opens on ``days`` (0 is Monday) at ``start`` and closes at the next ``end``,
    both by the clock of ``zone``.

    If both are equal, it is open for a whole day.
    """

    days: frozenset[int]
    start: datetime.time
    end: datetime.time
    zone: datetime.tzinfo


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which a window is open; ``zone`` is that of its first window."""

    start: datetime.datetime
    end: datetime.datetime
    zone: datetime.tzinfo

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()


def spans(windows: t.Iterable[Window], now: datetime.datetime) -> list[Span]:
    """From before ``now`` (with a time zone) to two weeks later; those that touch are one."""
    found: list[Span] = []
    for window in windows:
        today = now.astimezone(window.zone).date()
        for ahead in range(-2, DAYS_AHEAD):
            day = today + ahead * DAY
            if day.weekday() in window.days:
                last = day if window.end > window.start else day + DAY
                start, end = (
                    datetime.datetime.combine(date, time, window.zone).astimezone(datetime.UTC)
                    for date, time in ((day, window.start), (last, window.end))
                )
                found.append(Span(start, end, window.zone))
    joined: list[Span] = []
    for span in sorted((span for span in found if span.seconds > 0), key=lambda span: span.start):
        if joined and span.start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end), joined[-1].zone)
        else:
            joined.append(span)
    return joined


def fitting(windows: t.Iterable[Window], now: datetime.datetime, seconds: float) -> Span | None:
    """The next open time in which a wave of ``seconds`` can start; ``None`` without one."""
    ahead = (Span(max(now, span.start), span.end, span.zone) for span in spans(windows, now))
    return next((span for span in ahead if span.seconds > 0 and span.seconds >= seconds), None)


def closed(windows: t.Sequence[Window], now: datetime.datetime, seconds: float) -> str:
    """Why a wave of ``seconds`` must not start now, and when it can; empty if it may."""
    if not windows:
        return ""
    known = spans(windows, now)
    current = next((span for span in known if span.start <= now < span.end), None)
    takes = f"The next wave takes about {_lasting(seconds)}"
    if current is None:
        text, which = "The maintenance window is closed.", "It"
    elif (left := (current.end - now).total_seconds()) >= seconds:
        return ""
    else:
        which = "The next one"
        text = (
            f"{takes}, and the maintenance window closes in {_lasting(left)} "
            f"({_said(current.end, current.zone)})."
        )
    ahead = [span for span in known if span.start > now]
    fitting = next((span for span in ahead if span.seconds >= seconds), None)
    if fitting:
        return f"{text} {which} opens {_said(fitting.start, fitting.zone)}."
    longest = max((span.seconds for span in (*ahead, *([current] if current else ()))), default=0.0)
    before = "" if current else f" {takes}."
    return (
        f"{text}{before} No window of the next two weeks is open that long; the longest one for "
        f"{_lasting(longest)}. Set a longer maintain_window, a smaller maintain_serial or a "
        "shorter maintain_tasks_estimate."
    )


def _said(moment: datetime.datetime, zone: datetime.tzinfo) -> str:
    local = moment.astimezone(zone)
    return f"{DAYS[local.weekday()].title()} {local:%Y-%m-%d %H:%M %Z}"


def _lasting(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
