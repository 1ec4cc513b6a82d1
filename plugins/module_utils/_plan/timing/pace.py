# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""How many requests of one kind may be in flight, by how the API server answers them.

As TCP does it: one more for each round of quick answers, half as many when the server is overloaded. What is slow is
told by the quickest answer so far, since servers differ.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST = 8
"""How many are in flight at first, if so many may be."""
LEAST, LEAST_FOR_SLOW = 1, 4
"""How many are in flight at least when the server is overloaded, and when it is slow, maybe for others' sake."""
SLOW, NOTICED = 4.0, 0.25
"""An answer is slow that takes so many times as long as the quickest one, and at least so many seconds."""
PAUSE = 1.0
"""Seconds after a cut in which answers to what was sent before cut no more."""


@dataclass
class Pace:
    """``most`` are in flight at most. Times in seconds."""

    most: int

    def __post_init__(self) -> None:
        self._limit = float(min(self.most, FIRST))
        self._quickest = float("inf")
        self._cut_at = float("-inf")

    @property
    def limit(self) -> int:
        """How many may be in flight now."""
        return int(self._limit)

    def answered(self, now: float, seconds: float) -> None:
        """An answer came after so many seconds."""
        self._quickest = min(self._quickest, seconds)
        if seconds > max(SLOW * self._quickest, NOTICED):
            self._cut(now, 0.75, LEAST_FOR_SLOW)
        else:
            self._limit = min(float(self.most), self._limit + 1 / self._limit)

    def overloaded(self, now: float) -> None:
        """The server refused one, or did not answer, because it has too much to do."""
        self._cut(now, 0.5, LEAST)

    def _cut(self, now: float, factor: float, least: int) -> None:
        if now - self._cut_at >= PAUSE and self._limit > least:
            self._cut_at, self._limit = now, max(float(least), self._limit * factor)
