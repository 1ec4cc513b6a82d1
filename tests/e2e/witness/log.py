# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The witness's log: one JSON object a line, and the world it lets one replay.

A line has `kind`, `type`, `rv` (resourceVersion, int), `mono` and `wall` (seconds) and, for
events about an object, `obj` (the full object without managedFields). Types:

BEFORE   the object as first listed        READY   all first lists are in, the watch is on
ADDED MODIFIED DELETED   as the API sent   GAP     a watch was lost and listed anew
AFTER    the object as last listed         END     all last lists are in

Lines are ordered by resourceVersion before they are judged: in one etcd that is the order in
which the changes happened, whichever thread heard of them first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Key = tuple[str, str, str]
"""Kind, namespace ("" for nodes) and name of an object."""


@dataclass(frozen=True, slots=True)
class Event:
    kind: str
    type: str
    rv: int
    mono: float
    wall: float
    obj: Json

    @property
    def key(self) -> Key:
        return key_of(self.kind, self.obj)


def key_of(kind: str, obj: Json) -> Key:
    meta = obj.get("metadata", {})
    return kind, meta.get("namespace", ""), meta.get("name", "")


@dataclass(slots=True)
class World:
    """All objects at one moment, kept by kind; changed only by the replay."""

    kinds: dict[str, dict[tuple[str, str], Json]] = field(default_factory=dict)

    def of(self, kind: str, namespace: str | None = None) -> list[Json]:
        found = self.kinds.get(kind, {})
        return [obj for (where, _unused), obj in found.items() if namespace in (None, where)]

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        return self.kinds.get(kind, {}).get((namespace, name))

    def put(self, kind: str, obj: Json) -> None:
        _unused, namespace, name = key_of(kind, obj)
        self.kinds.setdefault(kind, {})[namespace, name] = obj

    def drop(self, kind: str, obj: Json) -> None:
        _unused, namespace, name = key_of(kind, obj)
        self.kinds.get(kind, {}).pop((namespace, name), None)


@dataclass(frozen=True, slots=True)
class Moment:
    """The world right after one event; `at` is in seconds since the log's READY.

    `event` is None for the first moment (the world before).
    """

    at: float
    event: Event | None
    world: World


@dataclass(frozen=True, slots=True)
class Log:
    """Events in the order in which they happened, and when the watching began and ended."""

    events: tuple[Event, ...]
    began: float
    ended: float

    @property
    def before(self) -> World:
        return next(self.moments()).world

    @property
    def after(self) -> World:
        world = World()
        for event in self.events:
            if event.type == "AFTER":
                world.put(event.kind, event.obj)
        return world

    @property
    def gaps(self) -> list[Event]:
        return [event for event in self.events if event.type == "GAP"]

    @property
    def finished(self) -> bool:
        return any(event.type == "END" for event in self.events)

    def moments(self) -> Iterator[Moment]:
        """The world before, then the world after each change; one World, changed in place."""
        world = World()
        versions: dict[Key, int] = {}
        start = max((event.rv for event in self.events if event.type == "BEFORE"), default=0)
        told = False
        at = 0.0
        for event in self.events:
            if event.type not in ("BEFORE", "ADDED", "MODIFIED", "DELETED"):
                continue
            if event.type != "BEFORE" and event.rv > start and not told:
                told = True
                yield Moment(0.0, None, world)
            key = event.key
            if event.rv < versions.get(key, 0):
                continue
            versions[key] = event.rv
            if event.type == "DELETED":
                world.drop(event.kind, event.obj)
            else:
                world.put(event.kind, event.obj)
            if told:
                # Threads hear late, never early: a later change cannot have an earlier time.
                at = max(at, event.mono - self.began)
                yield Moment(at, event, world)
        if not told:
            yield Moment(0.0, None, world)


def log_of(events: Iterable[Event]) -> Log:
    """Order the events and find the beginning and the end (both on the monotonic clock)."""
    known = list(events)
    marks = {event.type: event.mono for event in known if event.type in ("READY", "END")}
    times = [event.mono for event in known] or [0.0]
    order = {"BEFORE": 0, "AFTER": 2}
    known.sort(key=lambda event: (order.get(event.type, 1), event.rv, event.mono))
    return Log(tuple(known), marks.get("READY", times[0]), marks.get("END", max(times)))


def load(path: Path) -> Log:
    """Read a log file; a line that a killed witness left half written is left out."""
    events = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        events.append(
            Event(
                entry["kind"],
                entry["type"],
                entry["rv"],
                entry["mono"],
                entry["wall"],
                entry.get("obj", {}),
            )
        )
    return log_of(events)
