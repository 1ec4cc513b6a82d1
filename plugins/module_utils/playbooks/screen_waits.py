# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What is waited for: lines for each wait that lasts, none for those that are soon over."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import text

WORDS = (phases.What.WAITING, phases.What.PROTECTING, phases.What.PROGRESS)
"""Events that tell what is waited for, and are out of date with the next one."""
LASTS = 10.0
"""Seconds after which a wait is news, also one that has another reason by now."""
AGAIN = 14.0
"""Seconds until the same is told again. Looked at once a second, at most 15 are silent."""
SHOWN = 5
"""So many waits at a time; the others are counted."""


def waits(event: t.Mapping[str, str]) -> bool:
    """Whether the event tells what is waited for."""
    return event["what"] in WORDS


@dataclass(slots=True)
class Wait:
    """``event`` tells of it, ``said`` is what it was shown with at ``shown``, or empty."""

    event: t.Mapping[str, str]
    since: float
    shown: float
    said: str = ""

    def due(self, now: float) -> bool:
        return now - self.shown >= (AGAIN if self.said == self.event["message"] else LASTS)

    def told(self, now: float, at: str) -> str:
        """Its line; ``at`` is the time of the day."""
        self.shown = now
        self.said = self.event["message"]
        return _lasting(specs.line(specs.Event(**{**self.event, "at": at})), now - self.since)


class Waits:
    """The last wait of each node and object, and the task that goes on, in seconds of any clock."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], Wait] = {}
        self._task: tuple[str, float] = ("", 0.0)
        self._silent_since = 0.0

    def begin(self, task: str, now: float) -> None:
        """A task has begun: what is waited for as long as it tells of nothing else."""
        if task != self._task[0]:
            self._task = (task, now)
            self._silent_since = now

    def see(self, event: t.Mapping[str, str], now: float) -> None:
        """Hold a wait back; what is no wait ends the one of its node or object.

        One that names neither ends with whatever is told next.
        That pods were let go or evicted ends no wait.
        """
        key = (event["node"], f"{event['namespace']}/{event['name']}")
        if key != NOTHING:
            self._held.pop(NOTHING, None)
        if waits(event):
            held = self._held.setdefault(key, Wait(event, now, now))
            held.event = event
            return
        self._silent_since = now
        if event["what"] not in (phases.What.RELEASED, phases.What.EVICTED):
            self._held.pop(key, None)

    def due(self, now: float, at: str) -> list[str]:
        """The lines that are to be shown by now; ``at`` is the time of the day, as in events."""
        late = [held for held in list(self._held.values()) if held.due(now)]
        told = [held.told(now, at) for held in late]
        lines = told[:SHOWN]
        if len(told) > SHOWN:
            lines.append(f"and {text.count(len(told) - SHOWN, 'more wait')}")
        task, since = self._task
        if task and not self._held and now - self._silent_since >= LASTS:
            lines = [_lasting(f"{at[11:19]}  {task}", now - since)]
        if lines:
            self._silent_since = now
        return lines

    def clear(self) -> None:
        self._held.clear()
        self._task = ("", 0.0)


NOTHING = ("", "/")
"""The key of a wait that names neither a node nor an object."""


def _lasting(line: str, seconds: float) -> str:
    return f"{line} (for {text.duration(round(seconds))})"
