# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""Time, threads and chance, as the engine takes them from its machine.

Everything that waits, starts a thread or draws a number does it through a `Clock`, so that a test can
give a machine of its own, in which time stands still and one thread runs at a time.
"""

from __future__ import annotations

import datetime
import random
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

_THROUGH_SUSPEND = getattr(time, "CLOCK_BOOTTIME", None)


class Clock:
    """The machine's own time and threads, and what is known of the time of the API server that it talks to."""

    _heard: tuple[float, float] | None = None

    def now(self) -> float:
        """Seconds on a clock that never goes back and, where the system has one, runs through suspend."""
        return time.monotonic() if _THROUGH_SUSPEND is None else time.clock_gettime(_THROUGH_SUSPEND)

    def epoch(self) -> float:
        """Seconds of the wall clock: a second witness of time that passed, and nothing to compare with others'."""
        return time.time()

    def wall(self) -> str:
        """UTC as RFC 3339 with milliseconds."""
        return _rfc3339(self.epoch())

    def hear(self, date: float) -> None:
        """Take in what the API server's clock shows just now, in seconds since 1970."""
        self._heard = date, self.now()

    def server(self) -> str:
        """What the API server's clock shows, as RFC 3339 in UTC; the wall clock before its first answer.

        By the Date of its last answer and the time that has passed here since: the times of its objects may be
        compared with this, and never with this machine's.
        """
        if self._heard is None:
            return self.wall()
        date, at = self._heard
        return _rfc3339(date + self.now() - at)

    def sleep(self, seconds: float) -> None:
        """Do nothing for a while."""
        time.sleep(seconds)

    def jitter(self) -> float:
        """Between 1 and 1.5: what a pause is stretched by, so that callers spread."""
        return random.uniform(1.0, 1.5)

    def token(self) -> str:
        """Eight hexadecimal digits that nobody else draws."""
        return secrets.token_hex(4)

    def lock(self) -> threading.Lock:
        """Held by one thread at a time."""
        return threading.Lock()

    def condition(self) -> threading.Condition:
        """A lock with a bell; re-entrant, as Python's own."""
        return threading.Condition()

    def event(self) -> threading.Event:
        """A flag that can be waited for."""
        return threading.Event()

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """A thread that does not hold up the end of the process; not started yet."""
        return threading.Thread(target=target, name=name, daemon=True)

    def pool(self, workers: int, name: str) -> Executor:
        """Up to `workers` threads that work off what is submitted."""
        return ThreadPoolExecutor(workers, thread_name_prefix=name)


def _rfc3339(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Stopwatch:
    """Seconds since it was made or last reset, by the later of two witnesses.

    A machine that was suspended on a system without a clock that runs through it shows that on its wall
    clock. A wall clock that was set forward makes the time look longer than it was, never shorter.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self._now, self._epoch = self._clock.now(), self._clock.epoch()

    def read(self) -> float:
        """Seconds that have passed."""
        return max(self._clock.now() - self._now, self._clock.epoch() - self._epoch)
