# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Bars at the foot of a terminal: for each node how many of its pods are gone,
for a build how long it takes.

Nothing here reads a clock or knows a terminal: ``now`` is in seconds of any clock,
``width`` in columns.
"""

from __future__ import annotations

import re
import typing as t
import unicodedata
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import screen_waits
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import text

CELLS = 20
WIDE, NARROW = 100, 70
"""Columns below which a bar is half as long and without its forecast, and below which only its
words are shown: what is waited for is worth more.
"""
SHOWN = 8
"""So many bars at a time; the others are counted."""
OVER = frozenset({"drained", "parked", "out", "back", "gone", "returning"})
"""Phases of a node in which no pod is waited for."""
LEFT = re.compile(r"(\d+) of (\d+) pods left(?:, |; )?(.*)", re.DOTALL)
GONE = re.compile(r"all (\d+) pods gone(?:, |; )?(.*)", re.DOTALL)
BUILDING = re.compile(
    r"Building (?P<what>.+), (?P<number>\d+) of (?P<of>\d+): \d+ s, usually (?P<usually>\d+) s"
)
"""The name of the task that waits for a build of the lab, ``roles/lab/tasks/follow.yml``."""


@dataclass(slots=True)
class Bar:
    """``done`` of ``total``, begun at ``began``; ``forecast`` in seconds,
    ``None`` if there is none.
    """

    name: str
    began: float
    done: float = 0
    total: float = 0
    counts: str = ""
    says: str = ""
    forecast: float | None = None

    def drawn(self, now: float, width: int, *, names: int, blocks: bool) -> str:
        """The bar as one line of at most ``width`` columns."""
        full, empty = ("█", "░") if blocks else ("#", "-")
        share = min(1.0, self.done / self.total) if self.total else 0.0
        most = CELLS if width >= WIDE else CELLS // 2 if width >= NARROW else 0
        cells = int(share * most)
        took = (
            text.duration(round(now - self.began))
            if now - self.began >= 10
            else f"{now - self.began:.0f} s"
        )
        shows = self.forecast and (width >= WIDE or not self.says)
        of = f" of about {text.duration(round(self.forecast or 0.0))}" if shows else ""
        words = "  ".join(word for word in (self.counts, f"{took}{of}", self.says) if word)
        drawn = (
            f"{full * cells}{empty * (most - cells)}  "
            if most and (self.total or self.counts)
            else ""
        )
        return clipped(f"{self.name:<{names}}  {drawn}{words}", width)


class Bars:
    """All bars, in the order in which they began."""

    def __init__(self, *, blocks: bool = True) -> None:
        self._blocks = blocks
        self._bars: dict[str, Bar] = {}
        self.forecasts: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._bars)

    def see(self, event: t.Mapping[str, str], now: float) -> bool:
        """Take an event of the engine into account; whether its bar says all of it,
        so that no line has to.
        """
        node = event["node"]
        if event["phase"] in OVER and not event["name"]:
            self._bars.pop(node, None)
        if not screen_waits.waits(event):
            return False
        found = counted(event["message"]) if event["what"] == phases.What.PROGRESS else None
        if found is None:
            place = f"{event['namespace']}/{event['name']}" if event["namespace"] else event["name"]
            self.wait(node, " ".join(word for word in (place, event["message"]) if word), now)
            return True
        shown = self._bars.get(node)
        if shown is None or not shown.counts:
            shown = self._bars[node] = Bar(node, now, forecast=self.forecasts.get(node))
        shown.done, shown.total, shown.says = found
        shown.counts = f"{shown.done:.0f} of {shown.total:.0f} pods gone"
        return True

    def wait(self, name: str, says: str, now: float) -> None:
        """Show that something without a number is waited for, on the node or host
        ``name`` (or on none).
        """
        self._bars.setdefault(name, Bar(name or "waiting", now)).says = says

    def build(self, what: str, since: float, usually: float, which: str) -> None:
        """Show a build that has begun at ``since`` and usually takes ``usually`` seconds."""
        self._bars.setdefault(what, Bar(what, since, total=usually, forecast=usually, says=which))

    def clear(self) -> None:
        """What the bars were about has ended."""
        self._bars.clear()

    def lines(self, now: float, width: int) -> list[str]:
        """The bars as lines of at most ``width`` columns."""
        bars = list(self._bars.values())[:SHOWN]
        names = max((len(shown.name) for shown in bars), default=0)
        for shown in bars:
            if shown.total and not shown.counts:
                shown.done = now - shown.began
        lines = [shown.drawn(now, width, names=names, blocks=self._blocks) for shown in bars]
        hidden = len(self._bars) - SHOWN
        return lines + ([clipped(f"and {hidden} more", width)] if hidden > 0 else [])


def counted(message: str) -> tuple[int, int, str] | None:
    """Pods gone, pods in all and what else a line of a drain's progress says;
    ``None`` for any other message.
    """
    if found := LEFT.fullmatch(message):
        left, total, rest = found.groups()
        return int(total) - int(left), int(total), rest
    if found := GONE.fullmatch(message):
        total, rest = found.groups()
        return int(total), int(total), rest
    return None


def clipped(line: str, width: int) -> str:
    """As much of the line as fits, without what a terminal would take as a command."""
    room = width
    shown: list[str] = []
    for letter in line:
        if not letter.isprintable():
            letter = " "
        room -= columns(letter)
        if room < 0:
            return "".join(shown)
        shown.append(letter)
    return "".join(shown)


def columns(letter: str) -> int:
    """How many columns of a terminal a letter takes."""
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
