# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine on which one thread runs at a time and time stands still while anybody can run.

Threads are greenlets. A thread runs until it waits (`pause`) or lets others go first (`hop`); then the
machine chooses who is next among everything that is ready: threads, and actions of the surroundings such as
a controller's step or the delivery of a watch's event. Only when nothing is ready does time jump to the next
timer. Every choice goes through `Choices`, so a run is a function of what is chosen.
"""

from __future__ import annotations

import heapq
import random
import typing as t

import greenlet

Call = t.Callable[[], t.Any]

FOREVER = float("inf")


class Killed(BaseException):
    """Ends the threads of a process that was killed; nothing of the engine catches it."""


class Stuck(AssertionError):
    """Nobody can run any more, or runs for too long, and what was waited for has not happened."""


class Choices:
    """Who is next: as recorded, then by chance where a generator is given, else the one that waits longest.

    `made` are the choices so far as (picked, out of how many); only where there was more than one possibility.
    """

    def __init__(self, recorded: t.Sequence[int] = (), chance: random.Random | None = None) -> None:
        self.recorded = recorded
        self.chance = chance
        self.made: list[tuple[int, int]] = []

    def choose(self, count: int) -> int:
        """A number below `count`. A record that does not fit (it was shrunk) counts as 0."""
        at = len(self.made)
        if at < len(self.recorded):
            picked = self.recorded[at]
            picked = picked if picked < count else 0
        else:
            picked = int(self.chance.random() * count) if self.chance else 0
        self.made.append((picked, count))
        return picked

    def picked(self) -> list[int]:
        """What to give as `recorded` to see the same again."""
        return [picked for picked, _count in self.made]


class Process:
    """Threads that live and die together. `boot` and `skew` are added to its steady and its wall clock."""

    def __init__(self, machine: Machine, name: str, *, skew: float = 0.0, boot: float = 0.0) -> None:
        self.machine, self.name, self.skew, self.boot = machine, name, skew, boot
        self.dead = False
        self.frozen = False
        self.tasks: list[Task] = []
        self.crashes: list[BaseException] = []

    def spawn(self, target: Call, name: str) -> Task:
        """A thread that is ready to run."""
        if self.dead:
            raise Killed
        task = Task(self, target, name)
        self.tasks.append(task)
        self.machine.ready.append(task)
        return task

    def kill(self) -> None:
        """None of its threads runs again. Called by one of them, that one ends here."""
        self.machine.kill(self)

    def freeze(self, seconds: float | None = None) -> None:
        """No thread of it runs until it is thawed, while time goes on; one of its own is frozen at its next hop."""
        self.frozen = self.machine.somebody_is_frozen = True
        if seconds is not None:
            self.machine.after(seconds, self.thaw, f"thaw {self.name}")

    def thaw(self) -> None:
        self.frozen = False

    def ended(self, task: Task) -> None:
        """Called by a thread at its end."""
        self.tasks.remove(task)
        if task.error is not None and not isinstance(task.error, Killed) and not task.watched:
            self.crashes.append(task.error)


class Task:
    """A thread. `result` and `error` tell its end; somebody looks at them where `watched`."""

    __slots__ = ("alive", "error", "greenlet", "name", "process", "result", "target", "ticket", "watched", "woken")

    def __init__(self, process: Process, target: Call, name: str) -> None:
        self.process, self.target, self.name = process, target, name
        self.greenlet = greenlet.greenlet(self._run, process.machine.hub)
        self.ticket = 0
        self.woken = False
        self.alive = True
        self.watched = False
        self.result: t.Any = None
        self.error: BaseException | None = None

    def _run(self) -> None:
        try:
            if self.process.dead:
                raise Killed
            self.result = self.target()
        except BaseException as error:
            self.error = error
        finally:
            self.alive = False
            self.process.ended(self)

    def run(self) -> None:
        machine = self.process.machine
        machine.current = self
        self.greenlet.switch()
        machine.current = None

    def value(self) -> t.Any:
        """What it returned; raises what it raised."""
        if self.alive:
            raise Stuck(f"{self.name} has not ended")
        if self.error is not None:
            raise self.error
        return self.result


class Action:
    """Something of the surroundings that is done when it is chosen, and not before: once, however often posted.

    `process` is whose freezing holds it up, such as that of a watch's reader.
    """

    __slots__ = ("call", "name", "posted", "process", "ticket")

    def __init__(self, call: Call, name: str, process: Process | None = None) -> None:
        self.call, self.name, self.process = call, name, process
        self.posted = False
        self.ticket = 0

    def run(self) -> None:
        self.posted = False
        self.call()


class Machine:
    """The scheduler. `now` is in seconds since its start; `fine` lets others in at every lock and signal too.

    `on_step` is called after each step; what it raises ends the run.
    """

    def __init__(self, choices: Choices | None = None, *, fine: bool = False, now: float = 0.0) -> None:
        self.hub = greenlet.getcurrent()
        self.choices = choices or Choices()
        self.fine = fine
        self.now = now
        self.steps = 0
        self.ready: list[Task | Action] = []
        self.current: Task | None = None
        self.processes: list[Process] = []
        self.on_step: list[Call] = []
        self.somebody_is_frozen = False
        self._timers: list[tuple[float, int, Task | Action, int]] = []
        self._count = 0
        self._condemned: list[Process] = []

    # -- what is called from outside ------------------------------------------------------------------

    def process(self, name: str, *, skew: float = 0.0, boot: float = 0.0) -> Process:
        process = Process(self, name, skew=skew, boot=boot)
        self.processes.append(process)
        return process

    def run_until(self, done: Call, *, within: float = 3600.0, steps: int = 2_000_000) -> None:
        """Go on until `done()`.

        Raises:
            Stuck: not within so many seconds of its own time or steps.
        """
        limit, last = self.now + within, self.steps + steps
        while not done():
            if self.steps >= last:
                raise Stuck(f"{steps} steps and no end: {self.picture()}")
            if not self.step(limit):
                raise Stuck(f"not within {within:g} s: {self.picture()}")

    def run_for(self, seconds: float, *, steps: int = 2_000_000) -> None:
        """Let so much time pass."""
        limit, last = self.now + seconds, self.steps + steps
        while self.step(limit):
            if self.steps >= last:
                raise Stuck(f"{steps} steps in {seconds:g} s: {self.picture()}")
        self.now = max(self.now, limit)

    def step(self, limit: float = FOREVER) -> bool:
        """One choice and what follows from it; False when nothing happens before the time `limit`."""
        ready = self.ready
        while not (able := self._able() if self.somebody_is_frozen else ready):
            if not self._advance(limit):
                return False
        at = self.choices.choose(len(able)) if len(able) > 1 else 0
        item = able[at]
        if able is ready:
            del ready[at]
        else:
            ready.remove(item)
        self.steps += 1
        item.run()
        while self._condemned:
            self._bury(self._condemned.pop())
        for hook in self.on_step:
            hook()
        return True

    def kill(self, process: Process) -> None:
        process.dead = True
        if self.current is None:
            self._bury(process)
            return
        self._condemned.append(process)
        if self.current.process is process:
            raise Killed

    def close(self) -> None:
        """Kill what still runs; its threads would keep all of this in memory."""
        for process in self.processes:
            if not process.dead:
                self.kill(process)
        self.on_step.clear()

    def picture(self) -> str:
        """Who is there, for messages."""
        alive = [
            f"{process.name}{' (frozen)' if process.frozen else ''}: {', '.join(task.name for task in process.tasks)}"
            for process in self.processes
            if process.tasks
        ]
        return "; ".join(alive) or "nobody is left"

    # -- what threads and the surroundings call --------------------------------------------------------

    def pause(self, until: float = FOREVER) -> bool:
        """The calling thread waits: True when `wake` ended that, False when the time came.

        Raises:
            Killed: its process was.
        """
        task = self._mine()
        task.woken = False
        task.ticket += 1
        if until != FOREVER:
            self._push(until, task)
        self.hub.switch()
        if task.process.dead:
            raise Killed
        return task.woken

    def hop(self) -> None:
        """The calling thread lets everybody else go first who is ready."""
        task = self._mine()
        self.ready.append(task)
        self.hub.switch()
        if task.process.dead:
            raise Killed

    def wake(self, task: Task) -> None:
        """End a thread's pause; called once for a pause. It may have ended by its time just now."""
        if task.process.dead:
            return
        task.ticket += 1
        task.woken = True
        if task not in self.ready:
            self.ready.append(task)

    def post(self, action: Action) -> None:
        """Have it done soon; also one that was waiting for its time."""
        if not action.posted:
            action.posted = True
            action.ticket += 1
            self.ready.append(action)

    def at(self, time: float, action: Action) -> None:
        """Have it posted at that time, instead of at the one it was waiting for."""
        action.ticket += 1
        self._push(time, action)

    def after(self, seconds: float, call: Call, name: str) -> Action:
        """Have something done in a while."""
        action = Action(call, name)
        self.at(self.now + seconds, action)
        return action

    def waits(self, action: Action) -> bool:
        """Whether its time is still to come."""
        return any(item is action and action.ticket == ticket for _time, _count, item, ticket in self._timers)

    # -- its own ---------------------------------------------------------------------------------------

    def _mine(self) -> Task:
        task = self.current
        if task is None:
            raise Stuck("only a thread of the machine can wait; start one with `Process.spawn`")
        if task.process.dead:
            raise Killed
        return task

    def _able(self) -> list[Task | Action]:
        """What may run while somebody is frozen."""
        self.somebody_is_frozen = any(process.frozen for process in self.processes)
        return [item for item in self.ready if item.process is None or not item.process.frozen]

    def _advance(self, limit: float) -> bool:
        """Jump to the next timer that still counts; all of the same moment are ready then."""
        timers = self._timers
        while timers and timers[0][2].ticket != timers[0][3]:
            heapq.heappop(timers)
        if not timers or timers[0][0] > limit:
            return False
        self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now:
            _time, _count, item, ticket = heapq.heappop(timers)
            if item.ticket != ticket:
                continue
            item.ticket += 1
            if isinstance(item, Action):
                if not item.posted:
                    item.posted = True
                    self.ready.append(item)
            else:
                self.ready.append(item)
        return True

    def _push(self, time: float, item: Task | Action) -> None:
        self._count += 1
        heapq.heappush(self._timers, (time, self._count, item, item.ticket))

    def _bury(self, process: Process) -> None:
        for task in list(process.tasks):
            task.ticket += 1
            if task in self.ready:
                self.ready.remove(task)
            if task.greenlet:
                self.current = task
                task.greenlet.throw(Killed)
                self.current = None
            else:  # it has not begun
                task.alive, task.error = False, Killed()
                process.tasks.remove(task)
