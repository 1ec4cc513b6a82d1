# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state machine of a surge: what ends it and as what, and the way back."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import WorkloadOutcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_node_lock import LostLockError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.surge_records import BadSurgeError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_raise import State
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_surge_lease import LostSurgeError
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.support.halves import Play
from ansible_collections.kubeops.node_maintenance.tests.unit.support.play import recorded, wanted
from ansible_collections.kubeops.node_maintenance.tests.unit.support.world import World

STATES: tuple[State, ...] = ("plan", "of_other_run", "raise", "wait", "ready", "undo", "undone")


@pytest.fixture
def world() -> World:
    return World(["n1"])


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
        (CallAborted("held", "stopped", "Go on."), "failed", "stopped", "Go on."),
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
    play.proven.clear()

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
    play.surging.fail_open(WorkloadOutcome.TIMED_OUT, "not ready after 10 s", play.world.snapshot())
    given_up = state not in ("ready", "undone", "undo")
    assert play.case.outcome == ("timed_out" if given_up else None)
    assert play.case.message == ("Deployment shop/web was not ready after 10 s: a node." if given_up else "")
    assert play.case.state == ("undone" if given_up else state)


def test_without_a_reason_none_is_named(world: World) -> None:
    play = Play(world)
    play.surging.fail_open(WorkloadOutcome.TIMED_OUT, "not ready after 10 s", play.world.snapshot())
    assert play.case.message == "Deployment shop/web was not ready after 10 s."


@pytest.mark.parametrize(("state", "outcome"), [("undo", "undo_failed"), ("wait", "surge_denied")])
def test_a_refused_undo_stays_recorded_and_a_refused_surge_is_undone(world: World, state: State, outcome: str) -> None:
    play = Play(world, state=state)
    play.case.surge, play.case.claimed, play.case.message = wanted(world, "n1"), True, "It was late."
    play.surging._refused(play.case, errors.Forbidden("no"), world.snapshot())
    assert (play.case.outcome, play.case.state) == (outcome, "undone" if state == "undo" else "undo")
    said = str(errors.Forbidden("no"))
    assert play.case.message == (f"It was late. {said}" if state == "undo" else said)
    assert ("recover" in play.case.remedy) == (state == "undo")


def test_a_node_that_is_lost_ends_its_surge_and_nothing_is_undone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Play(world, state="wait")
    play.case.surge, play.case.claimed = wanted(world, "n1"), True

    def lost(*_given: object) -> None:
        raise LostLockError("n1", "by r2")

    monkeypatch.setattr(play.surging, "_step", lost)
    play.step()
    assert (play.case.outcome, play.case.state, play.writes) == ("adopted_by", "undone", [])


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
    leases = "leases.coordination.k8s.io"
    assert (back.writes[0], back.writes[-1]) == (f"patch {leases}", f"delete {leases}")
    assert back.writes.count(f"patch {leases}") == back.writes.count("patch deployments.apps/scale") == 1


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


def test_a_lost_answer_is_no_failure_of_an_undo(world: World) -> None:
    Play(world).rounds()
    back = Play(world, state="undo")
    back.case.surge = recorded(world)
    back.me.faults.when(lambda request: request.writes, Fault("unreachable"), times=1)
    assert back.rounds().outcome == "given_back"
