# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine itself: time, choices, and threads that wait, are killed, frozen and thawed."""

from __future__ import annotations

import functools
import itertools
import random
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.clocks import SimulatedClock
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Choices, Machine, Process, Stuck

Say = t.Callable[[str], None]


class Bench:
    """A machine with one process, and what its threads said."""

    def __init__(self, choices: Choices | None = None, *, fine: bool = False) -> None:
        self.machine = Machine(choices, fine=fine)
        self.process = self.machine.process("p")
        self.clock = self.clock_of(self.process)
        self.said: list[str] = []

    def clock_of(self, process: Process) -> SimulatedClock:
        return SimulatedClock(process, itertools.count())

    def say(self, text: str) -> None:
        self.said.append(f"{self.machine.now:g} {text}")

    def run(self) -> list[str]:
        self.machine.run_for(1000)
        assert [str(error) for error in self.process.crashes] == []
        return self.said


def test_time_passes_only_when_nobody_can_run() -> None:
    bench = Bench()

    def sleeper(seconds: float) -> None:
        bench.clock.sleep(seconds)
        bench.say(f"slept {seconds:g}")

    for seconds in (5, 1, 3):
        bench.process.spawn(functools.partial(sleeper, seconds), "sleeper")
    assert bench.run() == ["1 slept 1", "3 slept 3", "5 slept 5"]


def order(choices: Choices) -> str:
    """In which order four threads of two steps each run."""
    bench = Bench(choices)
    said: list[str] = []

    def walk(name: str) -> None:
        said.append(name)
        bench.machine.hop()
        said.append(name.upper())

    for name in "abcd":
        bench.process.spawn(functools.partial(walk, name), name)
    bench.run()
    return "".join(said)


def test_without_a_choice_who_waits_longest_is_next() -> None:
    assert order(Choices()) == "abcdABCD"


def test_a_recorded_run_is_replayed_and_what_was_shrunk_still_runs() -> None:
    drawn = Choices(chance=random.Random(3))
    first = order(drawn)
    assert first not in ("abcdABCD", order(Choices(chance=random.Random(4))))
    assert order(Choices(drawn.picked())) == first
    assert sorted(order(Choices([9, 9, 3]))) == sorted("abcdABCD")


def test_a_condition_wakes_who_waits_and_holds_one_at_a_time() -> None:
    bench = Bench()
    bell = bench.clock.condition()
    box: list[str] = []

    def taker() -> None:
        with bell, bell:
            while not box:
                assert bell.wait(10.0)
            bench.say(f"took {box.pop()}")

    def giver() -> None:
        bench.clock.sleep(2)
        with bell:
            box.append("bread")
            bell.notify_all()
            bench.say("gave")

    bench.process.spawn(taker, "taker")
    bench.process.spawn(giver, "giver")
    assert bench.run() == ["2 gave", "2 took bread"]


def test_a_wait_ends_with_its_time() -> None:
    bench = Bench()
    flag, bell = bench.clock.event(), bench.clock.condition()

    def waiter() -> None:
        bench.say(f"{flag.wait(3)}")
        with bell:
            bench.say(f"{bell.wait(4)}")
            bench.say(f"{bell.wait_for(flag.is_set, 1)}")

    bench.process.spawn(waiter, "waiter")
    assert bench.run() == ["3 False", "7 False", "8 False"]


def test_who_is_woken_at_the_end_of_its_time_is_woken_once() -> None:
    bench = Bench(Choices([0, 1]))
    event = bench.clock.event()

    def wait() -> None:
        bench.say(str(event.wait(1.0)))
        bench.clock.sleep(5.0)
        bench.say("slept")

    def ring() -> None:
        bench.clock.sleep(1.0)
        event.set()

    bench.process.spawn(wait, "wait")
    bench.process.spawn(ring, "ring")
    assert bench.run() == ["1 True", "6 slept"]


def test_a_lock_is_held_by_one_and_given_to_who_waits_longest() -> None:
    bench = Bench()
    lock = bench.clock.lock()

    def holder(name: str) -> None:
        with lock:
            bench.say(name)
            bench.clock.sleep(1)

    for name in "abc":
        bench.process.spawn(functools.partial(holder, name), name)
    assert bench.run() == ["0 a", "1 b", "2 c"]


def test_a_pool_has_no_more_threads_than_it_may() -> None:
    bench = Bench()

    def work(number: int) -> int:
        bench.clock.sleep(1)
        return number * number

    def main() -> None:
        with bench.clock.pool(2, "pool") as pool:
            bench.say(str(list(pool.map(work, range(5)))))
            broken = pool.submit(lambda: 1 // 0)
            assert isinstance(broken.exception(), ZeroDivisionError)

    bench.process.spawn(main, "main")
    assert bench.run() == ["3 [0, 1, 4, 9, 16]"]


def test_a_joined_thread_has_ended() -> None:
    bench = Bench()
    child = bench.clock.thread(lambda: bench.clock.sleep(5), "child")

    def main() -> None:
        child.start()
        child.join(2)
        bench.say(f"{child.is_alive()}")
        child.join()
        bench.say(f"{child.is_alive()}")

    bench.process.spawn(main, "main")
    assert bench.run() == ["2 True", "5 False"]


def test_of_a_killed_process_nothing_runs_again() -> None:
    bench = Bench()
    other = bench.machine.process("other")
    theirs = bench.clock_of(other)

    def victim() -> None:
        try:
            bench.clock.sleep(10)
        finally:
            theirs.thread(lambda: bench.say("born after death"), "late").start()
        bench.say("outlived")

    def stubborn() -> None:
        while True:
            try:
                theirs.sleep(1)
            except Exception:
                bench.say("caught it")

    other.spawn(victim, "victim")
    other.spawn(stubborn, "stubborn")
    bench.machine.run_for(3)
    other.kill()
    assert bench.run() == []
    assert other.tasks == []


def test_who_kills_its_own_process_ends_there() -> None:
    bench = Bench()

    def main() -> None:
        bench.say("last")
        bench.process.kill()
        bench.say("ghost")

    bench.process.spawn(lambda: bench.clock.sleep(5), "sibling")
    bench.process.spawn(main, "main")
    assert bench.run() == ["0 last"]
    assert bench.process.tasks == []


def test_a_frozen_process_misses_time_but_nothing_else() -> None:
    bench = Bench()

    def ticks() -> None:
        for _tick in range(3):
            bench.clock.sleep(1)
            bench.say(f"tick {bench.clock.now():g}")

    bench.process.spawn(ticks, "ticks")
    bench.machine.after(1.5, lambda: bench.process.freeze(60), "freeze")
    assert bench.run() == ["1 tick 1", "61.5 tick 61.5", "62.5 tick 62.5"]


def test_clocks_of_processes_differ() -> None:
    bench = Bench()
    skewed = bench.clock_of(bench.machine.process("skewed", skew=600, boot=7))
    assert skewed.epoch() - bench.clock.epoch() == 600
    assert skewed.now() - bench.clock.now() == 7
    assert bench.clock.wall() == "2026-01-01T00:00:00.000Z"


def test_what_does_not_end_is_said_with_who_is_there() -> None:
    bench = Bench()

    def spin() -> None:
        while True:
            bench.machine.hop()

    bench.process.spawn(spin, "spinner")
    with pytest.raises(Stuck, match="1000 steps and no end: p: spinner"):
        bench.machine.run_until(lambda: False, steps=1000)
    bench.machine.close()
    with pytest.raises(Stuck, match="not within 5 s: nobody is left"):
        bench.machine.run_until(lambda: False, within=5)
