# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time, threads and chance as the engine takes them (`kube.clocks.Clock`), on a machine."""

from __future__ import annotations

import collections
import random
import threading
import typing as t
from concurrent.futures import Executor, Future

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.clocks import Clock, Interruption
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import (
    FOREVER,
    Killed,
    Machine,
    Process,
    Task,
)

EPOCH = 1_767_225_600.0
"""2026-01-01T00:00:00Z: the wall clock where the machine's time is 0."""


class SimulatedClock(Clock):
    """What one process sees of the machine's time; `tokens` is shared by all of them, so that none is drawn twice."""

    def __init__(self, process: Process, tokens: t.Iterator[int], chance: random.Random | None = None) -> None:
        self.process = process
        self.machine = process.machine
        self._tokens, self._chance = tokens, chance

    def now(self) -> float:
        return self.machine.now + self.process.boot

    def epoch(self) -> float:
        return EPOCH + self.machine.now + self.process.skew

    def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            self.machine.hop()
        until = self.machine.now + seconds
        while (left := until - self.machine.now) > 0:
            self.look()
            self.machine.pause(self.machine.now + (min(left, Interruption.SLICE) if self.interruption else left))
        self.look()

    def jitter(self) -> float:
        return self._chance.uniform(1.0, 1.5) if self._chance else 1.25

    def token(self) -> str:
        return f"{0x5EED0000 + next(self._tokens):08x}"

    def lock(self) -> threading.Lock:
        return t.cast("threading.Lock", Lock(self.machine))

    def condition(self) -> threading.Condition:
        return t.cast("threading.Condition", Condition(self.machine))

    def event(self) -> threading.Event:
        return t.cast("threading.Event", Event(self.machine))

    def thread(self, target: t.Callable[[], None], name: str) -> threading.Thread:
        return t.cast("threading.Thread", Thread(self.process, target, name))

    def pool(self, workers: int, name: str) -> Executor:
        return Pool(self, workers, name)


def _until(machine: Machine, timeout: float | None) -> float:
    return FOREVER if timeout is None or timeout < 0 else machine.now + timeout


class Lock:
    """`threading.Lock`, and with `again` a re-entrant one. Who waits longest gets it.

    Where the machine is `fine`, others are let in before it is taken, but for a `short` one.
    """

    def __init__(self, machine: Machine, *, again: bool = False, short: bool = False) -> None:
        self._machine, self._again, self._short = machine, again, short
        self._owner: Task | None = None
        self._depth = 0
        self._waiting: collections.deque[Task] = collections.deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        machine = self._machine
        me = machine.current
        if machine.fine and me is not None and not self._short and (machine.ready or me.process.frozen):
            machine.hop()
        if self._depth == 0 or (self._again and self._owner is me):
            self._owner, self._depth = me, self._depth + 1
            return True
        if not blocking:
            return False
        if me is not None:
            self._waiting.append(me)
        try:
            if machine.pause(_until(machine, timeout)):
                return True  # the one who let go has made us its owner
        except BaseException:
            self._forget(me)
            raise
        self._forget(me)
        return False

    def release(self) -> None:
        if self._depth == 0:
            raise RuntimeError("release of a lock that nobody holds")
        self._depth -= 1
        if self._depth:
            return
        self._owner = None
        while self._waiting:
            heir = self._waiting.popleft()
            if not heir.process.dead:
                self._owner, self._depth = heir, 1
                self._machine.wake(heir)
                return

    def locked(self) -> bool:
        return self._depth > 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_error: object) -> None:
        self.release()

    def put_down(self) -> int:
        """Let go of it altogether, for a wait; how deep it was held."""
        depth, self._depth = self._depth, 1
        self.release()
        return depth

    def take_up(self, depth: int) -> None:
        self.acquire()
        self._depth = depth

    def _forget(self, me: Task | None) -> None:
        if me is not None and me in self._waiting:
            self._waiting.remove(me)


class Condition(Lock):
    """`threading.Condition` with its re-entrant lock."""

    def __init__(self, machine: Machine, *, short: bool = False) -> None:
        super().__init__(machine, again=True, short=short)
        self._asleep: list[Task] = []

    def wait(self, timeout: float | None = None) -> bool:
        machine = self._machine
        me = machine.current
        if me is None or self._owner is not me:
            raise RuntimeError("wait on a condition that is not held")
        self._asleep.append(me)
        depth = self.put_down()
        try:
            woken = machine.pause(_until(machine, timeout))
        finally:
            if me in self._asleep:
                self._asleep.remove(me)
        self.take_up(depth)
        return woken

    def wait_for(self, predicate: t.Callable[[], t.Any], timeout: float | None = None) -> t.Any:
        until = _until(self._machine, timeout)
        while not (result := predicate()):
            left = until - self._machine.now
            if left <= 0:
                break
            self.wait(None if left == FOREVER else left)
        return result

    def notify(self, count: int = 1) -> None:
        woken, self._asleep = self._asleep[:count], self._asleep[count:]
        for task in woken:
            self._machine.wake(task)

    def notify_all(self) -> None:
        self.notify(len(self._asleep))


class Event:
    """`threading.Event`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._set = False
        self._asleep: list[Task] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        woken, self._asleep = self._asleep, []
        for task in woken:
            self._machine.wake(task)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        machine = self._machine
        if self._set:
            if machine.fine and machine.current is not None:
                machine.hop()
            return True
        me = machine.current
        if me is not None:
            self._asleep.append(me)
        try:
            machine.pause(_until(machine, timeout))
        finally:
            if me in self._asleep:
                self._asleep.remove(me)
        return self._set


class Thread:
    """`threading.Thread`, as far as the engine uses it."""

    def __init__(self, process: Process, target: t.Callable[[], None], name: str) -> None:
        self._process, self._target, self.name = process, target, name
        self._task: Task | None = None
        self._end = Event(process.machine)

    def start(self) -> None:
        def run() -> None:
            try:
                self._target()
            finally:
                self._end.set()

        self._task = self._process.spawn(run, self.name)

    def is_alive(self) -> bool:
        return self._task is not None and self._task.alive

    def join(self, timeout: float | None = None) -> None:
        if self.is_alive():
            self._end.wait(timeout)


class _Future(Future[t.Any]):
    """A future whose waits are waits on the machine."""

    def __init__(self, machine: Machine) -> None:
        self._condition = t.cast("threading.Condition", Condition(machine, short=True))
        self._state = "PENDING"
        self._result: t.Any = None
        self._exception: BaseException | None = None
        self._waiters: list[t.Any] = []
        self._done_callbacks: list[t.Any] = []


class Pool(Executor):
    """`ThreadPoolExecutor`: a thread for each of up to `workers` tasks, which goes on with what is left."""

    def __init__(self, clock: SimulatedClock, workers: int, name: str) -> None:
        self._process, self._machine, self._workers, self._name = clock.process, clock.machine, workers, name
        self._queue: collections.deque[tuple[_Future, t.Callable[[], t.Any]]] = collections.deque()
        self._busy: list[Task] = []
        self._idle = Event(clock.machine)
        self._closed = False

    def submit(self, fn: t.Callable[..., t.Any], /, *args: t.Any, **kwargs: t.Any) -> Future[t.Any]:
        if self._closed:
            raise RuntimeError("the pool is closed")
        future = _Future(self._machine)
        self._queue.append((future, lambda: fn(*args, **kwargs)))
        if len(self._busy) < self._workers:
            self._busy.append(self._process.spawn(self._work, f"{self._name}-{len(self._busy)}"))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        if cancel_futures:
            while self._queue:
                self._queue.popleft()[0].cancel()
        while wait and self._busy:
            self._idle.clear()
            self._idle.wait()

    def _work(self) -> None:
        me = t.cast("Task", self._machine.current)
        try:
            while self._queue:
                future, call = self._queue.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    result = call()
                except Killed:
                    raise
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
        finally:
            self._busy.remove(me)
            if not self._busy:
                self._idle.set()
