# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Threads that send the requests of a loop, as many at a time as the API server takes."""

from __future__ import annotations

import collections
import math
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.timing import pace
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, pod_moves

AHEAD = 0.5
"""Requests decided for each worker beside the one under way, so that none is idle until the loop has looked again."""
OVERLOAD = (errors.Overloaded, errors.Unreachable, errors.ServerError, errors.UnknownOutcome)
"""Refusals that tell that the API server has too much to do, whatever was asked."""


class Workers:
    """Do the ``work`` of moves in the order in which they are given, ``most`` at a time."""

    def __init__(self, ctx: context.Context, most: int, work: t.Callable[[pod_moves.Move], None]) -> None:
        self._ctx, self._work = ctx, work
        self._pool, self._lock = ctx.clock.pool(most, "evict"), ctx.clock.lock()
        self._pace = pace.Pace(most)
        self._next: collections.deque[pod_moves.Move] = collections.deque()
        self._busy = 0

    @property
    def room(self) -> int:
        """How many moves may have been given and not been answered."""
        return self._pace.limit + math.ceil(self._pace.limit * AHEAD)

    def give(self, move: pod_moves.Move) -> None:
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
