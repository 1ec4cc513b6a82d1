# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Both halves of a surge as the loops run them: against other runs, refusals, and views that lag behind."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import WorkloadOutcome
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.evictions import is_ready
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.support.halves import End, Play
from ansible_collections.kubeops.node_maintenance.tests.unit.support.play import Hand, prepare, recorded, wanted
from ansible_collections.kubeops.node_maintenance.tests.unit.support.world import Listed, World


@pytest.fixture
def world() -> World:
    return World(["n1"])


def test_a_surge_serves_for_the_settle_time_before_it_is_ready(world: World) -> None:
    play, began = Play(world), world.sim.machine.now
    case = play.rounds()
    assert (case.state, case.outcome) == ("ready", "raised")
    assert recorded(world).stage == "ready"
    assert world.sim.machine.now - began >= 3.0
    assert play.sent == [
        "create leases.coordination.k8s.io",
        "patch pods",
        "patch deployments.apps/scale",
        "patch leases.coordination.k8s.io",
    ]
    assert [(event.what, event.phase) for event in play.ctx.timeline] == [
        ("raised", "protecting"),
        ("ready", "protecting"),
    ]


def test_another_run_that_lives_is_waited_for(world: World) -> None:
    Play(world, "other/n").rounds()
    play = Play(world)
    for _round in range(100):
        play.rounds(1)
        world.apply(recorded(world).renewing("other/n", play.ctx.clock.wall()))
    assert play.case.state == "of_other_run"
    assert play.case.waiting.startswith("run other of me@here to end its surge of Deployment shop/web")
    assert not [sent for sent in play.sent if sent.startswith(("patch", "delete"))]


def test_while_another_run_is_waited_for_nothing_is_planned(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take minutes, and each change in the cluster is a turn."""
    Play(world, "other/n").rounds()
    play = Play(world)
    play.rounds(1)
    planned: list[object] = []
    monkeypatch.setattr(play.surging, "planner", planned.append)
    for _round in range(5):
        world.apply(recorded(world).renewing("other/n", play.ctx.clock.wall()))
        play.rounds(1)
    assert (play.case.state, planned) == ("of_other_run", [])


def test_a_silent_run_s_surge_is_undone_and_ours_made(world: World) -> None:
    Play(world, "other/n").rounds()
    play = Play(world)
    play.rounds(59)
    assert recorded(world).run == "other"
    case = play.rounds(30)
    assert (case.state, case.outcome) == ("ready", "raised")
    assert recorded(world).run == "r1"
    assert recorded(world).prior_replicas == 1
    assert world.replicas == 2
    assert world.least_ready == 1


def test_a_workload_still_moving_after_an_undo_is_planned_once_it_rests(world: World) -> None:
    """The controller has not confirmed the count yet: that is no reason to leave the pod unprotected."""
    world.sim.patch(kinds.DEPLOYMENTS, "web", {"spec": {"revisionHistoryLimit": 3}})
    play = Play(world)
    play.step(world.snapshot())
    assert play.case.state == "plan"
    assert "has not seen the latest specification" in play.case.waiting
    assert play.rounds().outcome == "raised"


def test_another_run_that_ends_makes_room(world: World) -> None:
    other = Play(world, "other/n")
    other.rounds()
    play = Play(world)
    play.rounds(5)
    assert play.case.state == "of_other_run"
    back = Play(world, "other/n", "undo")
    back.case.surge = recorded(world)
    back.rounds()
    assert play.rounds().outcome == "raised"


def test_the_same_run_goes_on_without_a_second_raise(world: World) -> None:
    first = Play(world)
    first.rounds(1)
    again = Play(world, "r1/n2")
    case = again.rounds()
    assert case.outcome == "raised"
    assert recorded(world).holder == "r1/n2"
    assert "patch deployments.apps/scale" not in again.sent


def test_a_permission_that_is_missing_undoes_what_was_begun(world: World) -> None:
    play = Play(world)
    play.me.faults.when(lambda request: request.resource == "deployments.apps/scale", Fault("forbidden"), times=100)
    case = play.rounds()
    assert (case.state, case.outcome) == ("undone", "surge_denied")
    assert "patch deployments.apps/scale shop/web" in case.message
    assert world.kept() == world.at_first


def test_time_is_up_and_the_surge_is_taken_back(world: World) -> None:
    world.no_more_start()
    play = Play(world)
    play.rounds(10)
    play.does(lambda: play.surging.fail_open(WorkloadOutcome.TIMED_OUT, "not ready after 10 s", play.world.snapshot()))
    case = play.rounds()
    assert (case.state, case.outcome) == ("undone", "timed_out")
    assert "not ready after 10 s" in case.message
    assert world.kept() == world.at_first
    assert world.names() == ["web-0"]


def test_a_refused_newcomer_is_given_a_moment_and_then_undone(world: World) -> None:
    play = Play(world)
    play.rounds(2, 0.1)

    def refused(listed: Listed) -> None:
        failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
        listed["replica_sets"][0]["status"].update(replicas=1, conditions=[failure])

    frozen = world.snapshot(refused)
    play.step(frozen)
    states = [play.case.state]
    world.act(2.5)
    play.step(frozen)
    assert [*states, play.case.state] == ["wait", "undo"]
    assert play.rounds().outcome == "surge_refused"
    assert world.kept() == world.at_first


def test_a_count_that_is_put_back_ends_the_surge(world: World) -> None:
    world.no_more_start()
    play = Play(world)
    play.rounds(2)
    world.scale(1)
    world.act()
    case = play.rounds()
    assert case.outcome == "surge_reverted"
    assert world.kept() == world.at_first
    assert world.names() == ["web-0"]


def test_a_reverter_that_ends_the_leaving_pod_has_done_the_surge(world: World) -> None:
    play = Play(world)
    play.rounds(5, 0.2)
    assert len(world.pods) == 2
    assert all(map(is_ready, world.pods))
    assert play.case.open
    world.scale(1)
    world.act()
    case = play.rounds()
    assert case.outcome == "ended"
    assert world.ended == ["web-0"]


def test_a_view_that_lags_behind_our_own_write_is_not_believed(world: World) -> None:
    """The old count in an old view is not somebody else's doing."""
    play = Play(world)
    before = world.snapshot()
    for _time in range(3):
        play.step(before)
    assert play.case.state in ("raise", "wait")
    assert play.sent.count("patch deployments.apps/scale") == 1
    assert play.rounds().outcome == "raised"


# -- the second half ----------------------------------------------------------------------------------


def test_the_leaving_pod_ends_and_nothing_is_left(world: World) -> None:
    Play(world).rounds()
    end = End(world)
    surges = end.rounds()
    assert surges.done_with("n1")
    assert not surges.failures
    assert world.ended == ["web-0"]
    assert world.kept() == world.at_first
    assert [(event.what, event.phase) for event in end.ctx.timeline] == [("lowered", "draining"), ("restored", "")]


def test_nothing_is_lowered_while_another_pod_is_not_ready() -> None:
    world = World(["n1", "n9", "n9"])
    prepare(world, Hand(world), "n1")
    world.set_ready("web-2", False)
    end = End(world)
    surges = end.rounds(10)
    assert not surges.done
    assert surges.waiting == {world.uid: f"Pod shop/{world.first[2]} is not ready"}
    assert not world.ended
    world.set_ready("web-2", True)
    assert end.rounds().done_with("n1")
    assert world.ended == ["web-0"]


def test_a_surge_that_somebody_took_back_fails_closed(world: World) -> None:
    Play(world).rounds()
    world.annotate(world.newcomer()["metadata"]["name"], names.LOWEST_COST)
    world.annotate("web-0", "0")
    world.scale(1)
    world.act()
    assert world.names() == ["web-0"]
    surges = End(world).rounds()
    assert surges.done
    assert not surges.done_with("n1")
    assert "somebody else changed the count" in surges.failures[world.uid]
    assert len(world.pods) == 1


def test_a_surge_of_a_process_that_was_killed_before_it_settled(world: World) -> None:
    prepare(world, Hand(world), "n1")
    assert recorded(world).stage == "raising"
    end = End(world, "r1/n2")
    end.step()
    assert not world.ended
    assert end.surges.waiting[world.uid] == "the new pods of Deployment shop/web to serve for 2 s"
    assert end.rounds().done_with("n1")


def test_a_surge_that_another_run_took_over_is_left_to_it(world: World) -> None:
    Play(world).rounds()
    end = End(world)
    world.apply(recorded(world).renewing("other/n", "2026-01-01T00:00:00.000Z"))
    surges = end.rounds()
    assert "is held by run other now" in surges.failures[world.uid]
    assert not world.ended


def test_the_record_of_a_surge_whose_only_node_somebody_else_holds_is_left_to_them(world: World) -> None:
    Play(world).rounds()
    end, before = End(world), recorded(world)
    end.surges.lose("n1", "Node n1 is held by run r2")
    end.does(end.surges.claim)
    end.does(end.surges.close)
    assert not end.writes
    assert (recorded(world).node, recorded(world).holder) == (before.node, before.holder)


def test_a_second_look_at_an_old_view_does_not_lower_twice(world: World) -> None:
    Play(world).rounds()
    end, before = End(world), world.snapshot()
    for _round in range(3):
        end.step(before)
    assert world.replicas == 1
    assert end.sent.count("patch deployments.apps/scale") == 1


def test_check_mode_names_what_ending_takes(world: World) -> None:
    Play(world).rounds()
    end = End(world)
    end.does(lambda: end.surges.predict(world.snapshot()))
    predicted = [change.sentence for change in end.ctx.changes]
    real = End(world)
    real.rounds()
    assert predicted == [change.sentence for change in real.ctx.changes]
    assert not end.sent


def test_a_wanted_surge_names_its_pod(world: World) -> None:
    assert world.alias(wanted(world, "n1").pod) == "web-0"
