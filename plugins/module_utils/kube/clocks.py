# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""Time, threads and random numbers of the machine.

Whatever waits, starts a thread or draws a number does it through a `Clock`, so that a test can
replace the machine by one in which time stands still and one thread runs at a time.
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


class Interrupted(Exception):
    """The call was asked to end."""


class Interruption:
    """The wish that a call ends, told once, at the next wait of the thread that made this.

    What the call does at its end waits undisturbed, as do its other threads.
    A signal handler may set `asked`.
    """

    SLICE = 0.2
    """Seconds for which nobody looks whether it is asked."""

    def __init__(self, thread: Callable[[], object] = threading.get_ident) -> None:
        self.asked = False
        self._thread = thread
        self._mine = thread()
        self._raised = False

    def look(self) -> None:
        """Raises Interrupted if the call is to end, and has not been told."""
        if self.asked and not self._raised and self._thread() == self._mine:
            self._raised = True
            raise Interrupted


class Clock:
    """The machine's time and threads, and the API server's time as far as it is known."""

    interruption: Interruption | None = None
    _heard: tuple[float, float] | None = None

    def now(self) -> float:
        """Seconds on a clock that never goes back and, if the system has such a clock,
        runs during suspend.
        """
        return (
            time.monotonic() if _THROUGH_SUSPEND is None else time.clock_gettime(_THROUGH_SUSPEND)
        )

    def epoch(self) -> float:
        """Seconds of the wall clock; never to be compared with those of other machines."""
        return time.time()

    def wall(self) -> str:
        """UTC as RFC 3339 with milliseconds."""
        return _rfc3339(self.epoch())

    def hear(self, date: float) -> None:
        """Note the present time of the API server, in seconds since 1970."""
        self._heard = date, self.now()

    def server(self) -> str:
        """The API server's time as RFC 3339 in UTC; the wall clock's before its first answer.

        It is the Date of its last answer plus the time that has passed since. Times in the server's
        objects may be compared with this, but not with this machine's.
        """
        if self._heard is None:
            return self.wall()
        date, at = self._heard
        return _rfc3339(date + self.now() - at)

    def here(self, moment: float) -> str:
        """When a moment of the API server's time, in seconds since 1970,
        was on this machine's wall clock.
        """
        if self._heard is None:
            return _rfc3339(moment)
        date, at = self._heard
        return _rfc3339(moment + self.epoch() - (date + self.now() - at))

    def sleep(self, seconds: float) -> None:
        """Raises Interrupted as `look` does."""
        until = self.now() + seconds
        while (left := until - self.now()) > 0:
            self.look()
            time.sleep(min(left, Interruption.SLICE) if self.interruption else left)
        self.look()

    def look(self) -> None:
        """Called by whatever waits; raises Interrupted if the call is to end."""
        if self.interruption:
            self.interruption.look()

    def jitter(self) -> float:
        """A factor between 1 and 1.5 for pauses, so that callers spread out."""
        return random.uniform(1.0, 1.5)

    def token(self) -> str:
        """Eight random hexadecimal digits."""
        return secrets.token_hex(4)

    def lock(self) -> threading.Lock:
        return threading.Lock()

    def condition(self) -> threading.Condition:
        return threading.Condition()

    def event(self) -> threading.Event:
        return threading.Event()

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """A daemon thread, not started yet."""
        return threading.Thread(target=target, name=name, daemon=True)

    def pool(self, workers: int, name: str) -> Executor:
        """An executor with up to `workers` threads."""
        return ThreadPoolExecutor(workers, thread_name_prefix=name)


def _rfc3339(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Stopwatch:
    """Seconds since it was made or last reset, by whichever of the two clocks shows more.

    If no other clock runs during suspend, the wall clock does. If that is set forward, the time
    appears longer than it was, never shorter.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        self._now = self._clock.now()
        self._epoch = self._clock.epoch()

    def read(self) -> float:
        return max(self._clock.now() - self._now, self._clock.epoch() - self._epoch)
