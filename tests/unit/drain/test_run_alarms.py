# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node without progress waits for, and when that is told; turn by turn."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_alarms
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.still_drain import Bench

AFTER = 100.0


class Alarmed(Bench):
    """`told` are the announcements."""

    def __init__(self, **options: t.Any) -> None:
        self.told: list[tuple[reasons.Blocked, ...]] = []
        super().__init__(announce=self.announce, **{"alarm_after": AFTER, **options})

    def announce(self, _ctx: t.Any, _about: t.Any, found: tuple[reasons.Blocked, ...]) -> tuple[str, ...]:
        self.told.append(found)
        return ()

    def turn(self, seconds: float = 0.0, missing: t.Sequence[str] = (), **surges: str) -> tuple[str, ...]:
        """What n1 waits for after so many seconds."""
        self.world.machine.run_for(seconds)
        self.do(lambda: self.work.alarms.step([self.node_drain], objects.snapshot(), surges, missing))
        self.world.machine.run_for(0.01)
        return self.work.alarms.why.get("n1", ())


@pytest.fixture
def bench() -> t.Iterator[t.Callable[..., Alarmed]]:
    made: list[Alarmed] = []

    def make(**options: t.Any) -> Alarmed:
        made.append(Alarmed(**options))
        return made[-1]

    yield make
    for one in made:
        one.world.close()


Make = t.Callable[..., Alarmed]


def test_a_minute_has_to_pass_without_progress(bench: Make) -> None:
    one = bench()
    move = one.move("p0", "waiting")
    assert one.turn() == one.turn(run_alarms.STILL - 1) == ()
    move.state = "asked"
    assert one.turn() == one.turn(run_alarms.STILL - 1) == ()
    assert one.turn(2) == ("Its eviction has not been answered.",)


def test_pods_without_a_known_obstacle_say_how_they_leave(bench: Make) -> None:
    one = bench()
    one.move("p0", "waiting")
    one.move("p1", "waiting").block(Ref("PodDisruptionBudget", "web", "shop"), "It allows nothing.")
    one.turn()
    assert set(one.turn(run_alarms.STILL)) == {"it is one of several.", "It allows nothing."}


def test_a_surge_says_what_it_waits_for(bench: Make) -> None:
    one = bench()
    move = one.move("p0", "waiting", "surge")
    move.plan = replace(move.plan, workload=Ref("Deployment", "web", "shop", uid="w1"))
    one.turn()
    assert one.turn(run_alarms.STILL, w1="Pod shop/new is not ready") == ("Its surge waits: Pod shop/new is not ready",)


@pytest.mark.parametrize("missing", [[], ["volume pv is attached"]])
def test_a_node_without_pods_says_what_follows(bench: Make, missing: list[str]) -> None:
    one = bench()
    one.move("p0", "gone")
    one.turn(missing=missing)
    assert list(one.turn(run_alarms.STILL, missing)) == (missing or ["it is being verified"])


def test_fewer_things_that_are_missing_are_progress(bench: Make) -> None:
    one = bench()
    one.turn(missing=["a", "b"])
    assert one.turn(run_alarms.STILL - 1, missing=["a"]) == one.turn(run_alarms.STILL - 1, missing=["a"]) == ()
    assert one.turn(1, missing=["a"]) == ("a",)


def test_pods_of_one_reason_are_told_together(bench: Make) -> None:
    one = bench()
    for number in range(5):
        one.move(f"p{number}", "waiting")
    one.turn()
    one.turn(AFTER)
    ((why,),) = one.told
    assert why.who == "Pod shop/p0, Pod shop/p1, Pod shop/p2 and 2 more"


def test_a_reason_is_the_same_with_other_numbers_in_it(bench: Make) -> None:
    one = bench()
    move = one.move("p0", "waiting")
    one.turn()
    for text in ("it has 1 of 3", "it has 2 of 3", "it has none", "it has 3 of 30"):
        move.block(Ref("PodDisruptionBudget", "web", "shop"), text, "Wait.")
        one.turn(AFTER)
    assert [(why.message, why.remedy) for (why,) in one.told] == [("it has 1 of 3", "Wait."), ("it has none", "Wait.")]


@pytest.mark.parametrize(("left_at", "count"), [(0.0, 0), (-20.0, 1)])
def test_a_pod_has_its_grace_period_and_a_little_more(bench: Make, left_at: float, count: int) -> None:
    one = bench()
    one.move("p0", "leaving", left_at=one.ctx.clock.now() + left_at, pod={"grace": 110})
    one.turn()
    one.turn(AFTER)
    assert len(one.told) == count


def test_without_a_time_nobody_is_told(bench: Make) -> None:
    one = bench(alarm_after=float("inf"))
    one.move("p0", "waiting")
    one.turn()
    assert one.turn(AFTER * 10) != ()
    assert one.told == []
