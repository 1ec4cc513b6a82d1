# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The way of a surge from its plan to new pods that serve: whose it is, what is written, how long is waited."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import steps
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_raise import Surging
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.support.halves import Play
from ansible_collections.kubeops.node_maintenance.tests.unit.support.play import recorded
from ansible_collections.kubeops.node_maintenance.tests.unit.support.world import World


@pytest.fixture
def world() -> World:
    return World(["n1"])


def state(play: Play) -> str:
    """As it is now."""
    return play.case.state


def test_the_record_comes_first_and_says_what_is_raised(world: World) -> None:
    play = Play(world)
    play.step()
    assert play.case.claimed
    assert (play.case.state, play.writes) == (
        "wait",
        [f"create {kinds.LEASES.resource}", "patch pods", "patch deployments.apps/scale"],
    )
    assert (recorded(world).prior_replicas, recorded(world).target, recorded(world).holder) == (1, 2, "r1/n1")
    told = [(event.what, event.message) for event in play.me.told]
    assert told == [("raised", "scaled from 1 to 2: the extra pod replaces the one being moved")]


def test_a_workload_that_is_not_at_rest_has_a_pod_too_many_and_is_not_surged_yet() -> None:
    world = World(["n1", "n1"])
    play = Play(world)
    world.scale(1)
    play.step()
    assert (play.case.state, play.writes) == ("plan", [])
    assert play.case.waiting
    world.act(2.0)
    play.step()
    assert (recorded(world).prior_replicas, recorded(world).target) == (1, 2)
    assert play.rounds().outcome == "raised"
    assert len(world.ended) == 1


@pytest.mark.parametrize(("settle", "seconds"), [(0.0, 1.0), (2.0, 3.0), (3.0, 4.0)])
def test_the_new_pods_serve_for_the_settle_time(world: World, settle: float, seconds: float) -> None:
    """They start within the first second; a look a second."""
    play = Play(world)
    play.surging._raising._settle = settle
    began = world.sim.machine.now
    while play.case.open:
        play.step()
        if play.case.open:
            world.act(1.0)
    assert world.sim.machine.now - began == seconds
    assert play.case.message == "serving with 2 pods"


def test_who_stops_serving_begins_anew(world: World) -> None:
    play = Play(world)
    play.step()
    world.act(1.0)
    play.step()
    assert play.case.waiting == "the new pods of Deployment shop/web to serve for 2 s"
    world.set_ready(world.newcomer()["metadata"]["name"], False)
    play.step()
    assert "is not ready" in play.case.waiting
    world.set_ready(world.newcomer()["metadata"]["name"], True)
    began = world.sim.machine.now
    play.rounds(10, 0.5)
    assert world.sim.machine.now - began == 2.0


@pytest.mark.parametrize(("seconds", "taken"), [(59.5, False), (60.0, True)])
def test_a_foreign_surge_is_silent_after_the_duration_of_its_lease_by_our_clock(
    world: World, seconds: float, taken: bool
) -> None:
    Play(world, "other/n").rounds()
    play = Play(world)
    play.step()
    world.act(seconds)
    play.step()
    assert play.case.claimed is taken
    assert play.case.state == ("undo" if taken else "of_other_run")
    assert play.case.again is taken


def test_a_foreign_surge_that_is_renewed_is_not_silent(world: World) -> None:
    Play(world, "other/n").rounds()
    play = Play(world)
    for second in range(4):
        play.step()
        world.act(30.0)
        world.apply(recorded(world).renewing("other/n", f"2026-01-01T00:0{second}:00.000Z"))
    play.step()
    assert (play.case.state, play.case.foreign_since) == ("of_other_run", play.ctx.clock.now())


@pytest.mark.parametrize(
    ("run", "another", "state"),
    [("r1/n0", False, "raise"), ("r1/n0", True, "undo")],
)
def test_a_surge_of_the_same_run_goes_on_where_it_fits(world: World, run: str, another: bool, state: str) -> None:
    Play(world, run).rounds()
    play = Play(world)
    if another:
        play.surging.planner = lambda seen: {world.uid: replace(recorded(world), pod_uid="uid-other")}
    play.step()
    assert play.case.state == state
    assert (play.case.claimed, play.case.again) == (True, another)
    assert play.case.current.stage == ("ready" if another else "raising")


def test_a_workload_that_nothing_leaves_any_more_needs_no_surge(world: World) -> None:
    play = Play(world)
    play.surging.planner = lambda seen: {}
    play.step()
    assert (play.case.state, play.case.outcome, play.writes) == ("undone", "ended", [])
    assert play.case.message == "No pod of Deployment shop/web has to leave by a surge any more."


def test_a_record_that_somebody_wrote_meanwhile_is_waited_for(world: World) -> None:
    play = Play(world)
    before = world.snapshot()
    Play(world, "other/n").step()
    play.step(before)
    assert (play.case.state, play.case.claimed) == ("plan", False)
    assert play.case.waiting == "the record of another surge of Deployment shop/web"


def test_a_record_that_we_deleted_is_not_found_in_an_old_view(world: World) -> None:
    """Our own run's surge that did not fit is undone, and the new one made although the view shows the old one."""
    first = Play(world)
    first.rounds()
    before = world.snapshot()
    play = Play(world, state="undo")
    play.case.surge, play.case.again = recorded(world), True
    while play.case.state == "undo":
        play.step()
        world.act()
    assert (state(play), play.case.claimed, bool(play.case.surge), play.case.again) == ("plan", False, False, False)
    play.step(before)
    assert state(play) != "of_other_run"
    assert play.rounds().outcome == "raised"


def test_a_workload_that_is_gone_ends_its_surge(world: World) -> None:
    play = Play(world)
    play.step()
    play.case.state = "raise"
    play.step(world.snapshot(lambda listed: listed["deployments"].clear()))
    assert (play.case.outcome, play.case.message) == ("ended", "Deployment shop/web is gone.")
    assert state(play) == "undo"


@pytest.mark.parametrize(
    ("code", "acting", "seconds", "outcome"),
    [
        ("surge_refused", "", 1.9, None),
        ("surge_refused", "", 2.0, "surge_refused"),
        ("surge_unschedulable", "", 1.9, None),
        ("surge_unschedulable", "", 2.0, "surge_unschedulable"),
        ("surge_not_scheduled", "", 59.0, None),
        ("surge_not_scheduled", "", 60.0, "surge_not_scheduled"),
        ("surge_preempts", "", 0.0, "surge_preempts"),
        ("surge_preempts", "moving", 0.0, "surge_preempts"),
        ("surge_reverted", "", 0.0, "surge_reverted"),
        ("surge_reverted", "moving", 100.0, None),
        ("workload_gone", "", 0.0, "ended"),
    ],
)
def test_what_may_be_a_moments_is_given_one(
    world: World, monkeypatch: pytest.MonkeyPatch, code: str, acting: str, seconds: float, outcome: str | None
) -> None:
    """The scheduler or a quota two seconds, and a controller that ends a pod as long as it needs."""
    play = Play(world)
    play.step()
    why = reasons.Reason(code, "so it is", "Do it.")
    monkeypatch.setattr(steps, "blocked", lambda *_all: why)
    monkeypatch.setattr(steps, "not_applied", lambda *_all: acting)
    play.step()
    if seconds:
        assert play.case.outcome is None
        world.act(seconds)
        play.step()
    assert play.case.outcome == outcome
    assert not outcome or (play.case.state, play.case.message, play.case.remedy) == ("undo", "so it is", "Do it.")


@pytest.mark.parametrize(
    "code",
    [
        "surge_not_starting",
        "surge_on_leaving_node",
        "surge_preempts",
        "surge_refused",
        "surge_reverted",
        "surge_unschedulable",
        "surge_denied",
    ],
)
def test_whatever_keeps_a_second_pod_from_serving_consent_gets_by(
    world: World, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    play = Play(world)
    me = play.ctx.run
    assert me is not None
    play.surging = Surging(play.ctx, me, 2.0, play.plan, play.prove_locks, ["n1"], [play.case], allow_interruption=True)
    if code == "surge_denied":
        play.me.faults.when(lambda request: request.resource == "deployments.apps/scale", Fault("forbidden"), times=100)
    else:
        why = reasons.Reason(code, "so it is", "Do it.")
        monkeypatch.setattr(steps, "blocked", lambda *_all: why)
        monkeypatch.setattr(steps, "not_applied", lambda *_all: "")
    play.rounds(120)
    assert (state(play), play.case.outcome) == ("undone", "interruption_allowed")
    assert recorded(world).stage == "reverted"
    last = play.ctx.timeline[-1]
    assert (last.what, "restored" in last.message) == ("note", True), "it is not waited for any more"
    assert (world.replicas, world.least_ready) == (1, 1)


def test_another_reason_is_given_its_own_moment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that comes back says only then that there is no room."""
    play = Play(world)
    play.step()
    for code, seconds in (("surge_not_scheduled", 30.0), ("surge_unschedulable", 1.9), ("surge_unschedulable", 0.2)):
        why = reasons.Reason(code, "so it is", "Do it.")
        monkeypatch.setattr(steps, "blocked", lambda *_all, why=why: why)
        play.step()
        assert play.case.outcome is None
        world.act(seconds)
    play.step()
    assert play.case.outcome == "surge_unschedulable"


def test_what_was_blocked_for_a_moment_begins_to_count_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(world)
    play.step()
    why = reasons.Reason("surge_refused", "so it is", "Do it.")
    for blocked in (why, None, why):
        monkeypatch.setattr(steps, "blocked", lambda *_all, blocked=blocked: blocked)
        play.step()
        assert (play.case.blocked_since is not None) == (blocked is not None)
        world.act(1.5)
    assert play.case.outcome is None
