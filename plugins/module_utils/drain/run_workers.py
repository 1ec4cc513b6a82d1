# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Threads that send the requests of a loop, as many at a time as the API server takes."""

from __future__ import annotations

import collections
import math
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import run_pod_drain

# How many requests of one kind may be in flight, by how the API server answers them.
#
# As TCP does it: one more for each round of quick answers, half as many when the server is
# overloaded. What is slow is told by the quickest answer so far, since servers differ.


FIRST_LIMIT = 8
"""How many are in flight at first, if so many may be."""
LEAST_LIMIT, LEAST_LIMIT_IF_SLOW = 1, 4
"""How many are in flight at least when the server is overloaded, and when it is slow,
maybe for others' sake.
"""
SLOW_FACTOR, SLOW_SECONDS = 4.0, 0.25
"""An answer is slow that takes so many times as long as the quickest one,
and at least so many seconds.
"""
BETWEEN_CUTS_SECONDS = 1.0
"""Seconds after a cut in which answers to what was sent before cut no more."""


@dataclass
class Pace:
    """``most`` are in flight at most. Times in seconds."""

    most: int

    def __post_init__(self) -> None:
        self._limit = float(min(self.most, FIRST_LIMIT))
        self._quickest = float("inf")
        self._cut_at = float("-inf")

    @property
    def limit(self) -> int:
        return int(self._limit)

    def answered(self, now: float, seconds: float) -> None:
        self._quickest = min(self._quickest, seconds)
        if seconds > max(SLOW_FACTOR * self._quickest, SLOW_SECONDS):
            self._cut(now, 0.75, LEAST_LIMIT_IF_SLOW)
        else:
            self._limit = min(float(self.most), self._limit + 1 / self._limit)

    def overloaded(self, now: float) -> None:
        """The server refused one, or did not answer, because it has too much to do."""
        self._cut(now, 0.5, LEAST_LIMIT)

    def _cut(self, now: float, factor: float, least: int) -> None:
        if now - self._cut_at >= BETWEEN_CUTS_SECONDS and self._limit > least:
            self._cut_at = now
            self._limit = max(float(least), self._limit * factor)


AHEAD_OF_EACH_WORKER = 0.5
"""Requests decided for each worker beside the one under way, so that none is idle until the
loop has looked again.
"""
OVERLOAD = (errors.Overloaded, errors.Unreachable, errors.ServerError, errors.UnknownOutcome)
"""Refusals that tell that the API server has too much to do, whatever was asked."""


class Workers:
    """Do the ``work`` of moves in the order in which they are given, ``most`` at a time."""

    def __init__(
        self, ctx: run_context.Context, most: int, work: t.Callable[[run_pod_drain.PodDrain], None]
    ) -> None:
        self._ctx = ctx
        self._work = work
        self._pool = ctx.clock.pool(most, "evict")
        self._lock = ctx.clock.lock()
        self._pace = Pace(most)
        self._next: collections.deque[run_pod_drain.PodDrain] = collections.deque()
        self._busy = 0

    @property
    def room(self) -> int:
        """How many moves may have been given and not been answered."""
        return self._pace.limit + math.ceil(self._pace.limit * AHEAD_OF_EACH_WORKER)

    def give(self, move: run_pod_drain.PodDrain) -> None:
        with self._lock:
            self._next.append(move)
        self._employ()

    def answered(self, error: Exception | None, seconds: float) -> None:
        """What the API server answered, after so many seconds; it says how many it takes."""
        now = self._ctx.clock.now()
        if isinstance(error, OVERLOAD):
            self._pace.overloaded(now)
        elif error is None:
            self._pace.answered(now, seconds)
        self._employ()

    def close(self) -> None:
        """Wait for what is under way; nothing more is begun."""
        with self._lock:
            self._next.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _employ(self) -> None:
        """Begin as many workers as there are moves for, and as may be busy."""
        with self._lock:
            new = max(min(self._pace.limit - self._busy, len(self._next)), 0)
            self._busy += new
        for _worker in range(new):
            self._pool.submit(self._serve)

    def _serve(self) -> None:
        """A worker: it takes the next move as soon as it has done with the one before."""
        while True:
            with self._lock:
                if not self._next or self._busy > self._pace.limit:
                    self._busy -= 1
                    return
                move = self._next.popleft()
            self._work(move)
