# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What is waited for, where no bar can show it: a line for each wait that lasts, none for those that are soon over."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import phases

WORDS = frozenset({phases.What.WAITING.value, phases.What.PROTECTING.value, phases.What.PROGRESS.value})
"""Events that tell what is waited for, and are out of date with the next one."""
LASTS = 10.0
"""Seconds after which a wait is news, and between two lines about the same node or object."""


def waits(event: t.Mapping[str, str]) -> bool:
    """Whether the event tells what is waited for."""
    return event["what"] in WORDS


class Waits:
    """The last wait of each node and object, in seconds of any clock."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], tuple[str, float]] = {}
        self._since: dict[tuple[str, str], float] = {}

    def see(self, event: t.Mapping[str, str], line: str, now: float) -> None:
        """Hold a wait back; what is no wait ends the one of its node or object."""
        key = (event["node"], f"{event['namespace']}/{event['name']}")
        if waits(event):
            self._held[key] = (line, self._since.setdefault(key, now))
        else:
            self._held.pop(key, None)
            self._since.pop(key, None)

    def due(self, now: float) -> list[str]:
        """The lines that are to be shown by now."""
        found = [(key, line) for key, (line, since) in self._held.items() if now - since >= LASTS]
        for key, _line in found:
            del self._held[key]
            self._since[key] = now
        return [line for _key, line in found]

    def clear(self) -> None:
        """What was waited for has ended."""
        self._held.clear()
        self._since.clear()
