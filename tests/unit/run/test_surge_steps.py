# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state machine of a surge: what each state does, what ends it and as what, and how long is waited."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names, reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.outcomes import WorkloadOutcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import swap
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap.surge_records import BadSurgeError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.context import StopRun
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.node_locks import LostLockError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.protect.surge_lease import LostSurgeError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.protect.surge_machine import State
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.play import recorded, wanted
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.run.halves import Play
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault

STATES: tuple[State, ...] = ("plan", "held", "raise", "wait", "ready", "undo", "undone")


@pytest.fixture
def world() -> World:
    return World(["n1"])


def state(play: Play) -> str:
    """As it is now."""
    return play.case.state


# -- its end -------------------------------------------------------------------------------------------


def test_a_workload_is_open_until_it_is_ready_or_undone(world: World) -> None:
    play = Play(world)
    opened = {}
    for play.case.state in STATES:
        opened[play.case.state] = (play.case.open, play.surging.done)
    assert {state for state, (is_open, _done) in opened.items() if not is_open} == {"ready", "undone"}
    assert all(is_open != done for is_open, done in opened.values())


@pytest.mark.parametrize(
    ("undo", "surge", "claimed", "state"),
    [
        (True, True, True, "undo"),
        (True, True, False, "undone"),
        (True, False, True, "undone"),
        (False, True, True, "undone"),
    ],
)
def test_what_ends_is_undone_only_where_its_record_is_ours(
    world: World, undo: bool, surge: bool, claimed: bool, state: str
) -> None:
    play = Play(world, state="wait")
    case = play.case
    case.surge, case.claimed, case.again = wanted(world, "n1") if surge else None, claimed, True
    case.end(play.ctx, WorkloadOutcome.TIMED_OUT, "late", "Look.", undo=undo)
    assert (case.state, case.again, case.outcome, case.message, case.remedy) == (
        state,
        False,
        "timed_out",
        "late",
        "Look.",
    )


@pytest.mark.parametrize(
    ("outcome", "failed"), [(None, False), (WorkloadOutcome.ENDED, False), (WorkloadOutcome.SURGE_DENIED, True)]
)
def test_what_failed_is_told_as_a_failure(world: World, outcome: WorkloadOutcome | None, failed: bool) -> None:
    play = Play(world)
    assert play.case.failed is False
    if outcome:
        play.case.end(play.ctx, outcome, "m")
        assert [(event.what, event.node) for event in play.me.told] == [("failed" if failed else "note", "n1")]
    assert play.case.failed is failed


@pytest.mark.parametrize(
    ("error", "outcome", "message", "remedy"),
    [
        (LostSurgeError("r2 has it"), "adopted_by", "r2 has it", "Look at the other run: it continues the surge."),
        (LostLockError("n1", "by r2"), "adopted_by", "taken over: by r2", "Look at the other run."),
        (StopRun("held", "stopped", "Go on."), "failed", "stopped", "Go on."),
        (BadSurgeError("bad"), "bad_surge", "bad", ""),
        (errors.Forbidden("no"), "surge_denied", "no", ""),
    ],
)
def test_what_stops_a_step_ends_its_workload(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception, outcome: str, message: str, remedy: str
) -> None:
    play = Play(world)

    def fails(*_all: object) -> None:
        raise error

    monkeypatch.setattr(play.surging, "_step", fails)
    play.step()
    case = play.case
    assert (case.state, case.outcome) == ("undone", outcome)
    assert message in case.message
    assert case.remedy.startswith(remedy)


def test_what_may_pass_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(world)
    play.fenced.clear()

    def away(*_all: object) -> None:
        raise errors.Unreachable("away")

    with monkeypatch.context() as patch:
        patch.setattr(play.surging, "_step", away)
        play.step()
    assert (play.case.state, play.case.waiting, play.case.open) == ("plan", str(errors.Unreachable("away")), True)
    assert play.rounds().outcome == "raised"


@pytest.mark.parametrize("state", STATES)
def test_what_is_not_ready_in_time_is_given_up(world: World, state: State) -> None:
    play = Play(world, state=state)
    play.case.waiting = "a node"
    play.surging.fail_open(WorkloadOutcome.TIMED_OUT, "not ready after 10 s")
    given_up = state not in ("ready", "undone", "undo")
    assert play.case.outcome == ("timed_out" if given_up else None)
    assert play.case.message == ("Deployment shop/web was not ready after 10 s: a node." if given_up else "")
    assert play.case.state == ("undone" if given_up else state)


def test_without_a_reason_none_is_named(world: World) -> None:
    play = Play(world)
    play.surging.fail_open(WorkloadOutcome.TIMED_OUT, "not ready after 10 s")
    assert play.case.message == "Deployment shop/web was not ready after 10 s."


@pytest.mark.parametrize(("state", "outcome"), [("undo", "undo_failed"), ("wait", "surge_denied")])
def test_a_refused_undo_stays_recorded_and_a_refused_surge_is_undone(world: World, state: State, outcome: str) -> None:
    play = Play(world, state=state)
    play.case.surge, play.case.claimed, play.case.message = wanted(world, "n1"), True, "It was late."
    play.surging._refused(play.case, errors.Forbidden("no"))
    assert (play.case.outcome, play.case.state) == (outcome, "undone" if state == "undo" else "undo")
    said = str(errors.Forbidden("no"))
    assert play.case.message == (f"It was late. {said}" if state == "undo" else said)
    assert ("recover" in play.case.remedy) == (state == "undo")


@pytest.mark.parametrize(
    ("surge", "nodes", "lost", "outcome", "left"),
    [
        (False, ("n1", "n2"), "n1", None, ("n2",)),
        (False, ("n1",), "n1", "adopted_by", ()),
        (True, ("n1", "n2"), "n2", None, ("n1",)),
        (True, ("n1", "n2"), "n1", "adopted_by", ("n2",)),
    ],
)
def test_a_lost_node_is_lost_alone(
    world: World, surge: bool, nodes: tuple[str, ...], lost: str, outcome: str | None, left: tuple[str, ...]
) -> None:
    """The surge serves n1 alone."""
    play = Play(world, state="wait")
    play.case.nodes = nodes
    play.case.surge = wanted(world, "n1") if surge else None
    play.surging._lose(play.case, LostLockError(lost, "by r2"))
    assert (play.case.outcome, play.case.nodes, play.case.fewer) == (outcome, left, surge)


# -- the first half ------------------------------------------------------------------------------------


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


def test_the_extra_pods_are_counted(world: World) -> None:
    world = World(["n1", "n1", "n9"]).block()
    play = Play(world)
    play.step()
    message = "scaled from 3 to 5: the 2 extra pods replace those being moved"
    assert [event.message for event in play.me.told] == [message]


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
    assert play.case.state == ("undo" if taken else "held")
    assert play.case.again is taken


def test_a_foreign_surge_that_is_renewed_is_not_silent(world: World) -> None:
    Play(world, "other/n").rounds()
    play = Play(world)
    for second in range(4):
        play.step()
        world.act(30.0)
        world.apply(recorded(world).renewing("other/n", f"2026-01-01T00:0{second}:00.000Z"))
    play.step()
    assert (play.case.state, play.case.foreign_since) == ("held", play.ctx.clock.now())


@pytest.mark.parametrize(
    ("run", "leaves_more", "state"),
    [("r1/n0", False, "raise"), ("r1/n0", True, "undo")],
)
def test_a_surge_of_the_same_run_goes_on_where_it_fits(world: World, run: str, leaves_more: bool, state: str) -> None:
    Play(world, run).rounds()
    play = Play(world)
    if leaves_more:
        plan, leaver = play.surging.planner, next(iter(recorded(world).leaving.values()))
        play.surging.planner = lambda seen: (
            {uid: replace(surge, leaving={**surge.leaving, "uid-more": leaver}) for uid, surge in plan(seen).items()}
            or {world.uid: replace(recorded(world), leaving={**recorded(world).leaving, "uid-more": leaver})}
        )
    play.step()
    assert play.case.state == state
    assert (play.case.claimed, play.case.again) == (True, leaves_more)
    assert play.case.held.stage == ("ready" if leaves_more else "raising")


def test_a_workload_that_nothing_leaves_any_more_needs_no_surge(world: World) -> None:
    play = Play(world)
    play.surging.planner = lambda seen: {}
    play.step()
    assert (play.case.state, play.case.outcome, play.writes) == ("undone", "ended", [])
    assert play.case.message == "No pod of Deployment shop/web has to leave by a swap any more."


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
    assert state(play) != "held"
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
    monkeypatch.setattr(swap, "blocked", lambda *_all: why)
    monkeypatch.setattr(swap, "settled", lambda *_all: acting)
    play.step()
    if seconds:
        assert play.case.outcome is None
        world.act(seconds)
        play.step()
    assert play.case.outcome == outcome
    assert not outcome or (play.case.state, play.case.message, play.case.remedy) == ("undo", "so it is", "Do it.")


def test_what_was_blocked_for_a_moment_begins_to_count_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(world)
    play.step()
    why = reasons.Reason("surge_refused", "so it is", "Do it.")
    for blocked in (why, None, why):
        monkeypatch.setattr(swap, "blocked", lambda *_all, blocked=blocked: blocked)
        play.step()
        assert (play.case.blocked_since is not None) == (blocked is not None)
        world.act(1.5)
    assert play.case.outcome is None


# -- the way back --------------------------------------------------------------------------------------


def test_giving_back_is_told_step_by_step(world: World) -> None:
    Play(world).rounds()
    back = Play(world, state="undo")
    back.case.surge = recorded(world)
    back.step()
    assert (back.case.claimed, back.case.state) == (True, "undo")
    assert back.case.waiting == "Deployment shop/web to lower its count"
    case = back.rounds()
    assert (case.state, case.outcome, case.message) == (
        "undone",
        "given_back",
        "restored to its state before the surge",
    )
    assert (case.surge, case.claimed, case.waiting) == (None, False, "")
    assert [event.what for event in back.me.told] == ["given_back"]


def test_an_undo_that_ends_another_outcome_keeps_it(world: World) -> None:
    Play(world).rounds()
    back = Play(world, state="undo")
    back.case.surge, back.case.outcome, back.case.message = recorded(world), WorkloadOutcome.TIMED_OUT, "It was late."
    case = back.rounds()
    assert (case.outcome, case.message) == ("timed_out", "It was late.")


def test_what_somebody_else_set_is_kept_and_told_once(world: World) -> None:
    Play(world).rounds()
    world.scale(5)
    world.act()
    back = Play(world, state="undo")
    back.case.surge = recorded(world)
    case = back.rounds()
    kept = "somebody else set Deployment shop/web to 5 replicas; left as is"
    assert case.kept == (kept,)
    assert [(event.what, event.message) for event in back.me.told][1:] == [("kept", kept)]


def test_a_surge_that_other_nodes_need_is_given_back_in_part() -> None:
    world = World(["n1", "n2"]).block()
    both = Play(world)
    both.surging.planner = lambda seen: {world.uid: wanted(world, "n1", "n2")}
    both.rounds()
    surge = recorded(world)
    part = Play(world, state="undo")
    part.case.surge, part.case.shrunk = surge, swap.shrunk(world.snapshot(), surge, {"n2"})
    part.step()
    assert (part.case.state, part.case.waiting) == ("undo", "the watch to show the changes to Deployment shop/web")
    assert list(recorded(world).nodes) == ["n1", "n2"], "it is forgotten last"
    case = part.rounds()
    assert (case.outcome, case.message) == ("given_back_in_part", "surge continued for n2")
    assert (list(recorded(world).nodes), len(recorded(world).leaving), world.replicas) == (["n2"], 1, 4)
    assert names.DELETION_COST not in world.annotations("web-0")
    assert names.DELETION_COST in world.annotations("web-1")


def test_a_lost_answer_is_no_failure_of_an_undo(world: World) -> None:
    Play(world).rounds()
    back = Play(world, state="undo")
    back.case.surge = recorded(world)
    back.me.faults.when(lambda request: request.writes, Fault("unreachable"), times=1)
    assert back.rounds().outcome == "given_back"
