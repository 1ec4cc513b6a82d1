# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A surge through lost answers, freezes and other runs, and on counts that somebody else sets meanwhile."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.surge_records import Surge
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_raise import Surging, WorkloadSurge
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.support.halves import End, Play
from ansible_collections.kubeops.node_maintenance.tests.unit.support.play import recorded
from ansible_collections.kubeops.node_maintenance.tests.unit.support.world import World


@pytest.fixture
def world() -> World:
    return World(["n1"])


def test_a_surge_lease_is_renewed_three_times_a_minute_whatever_the_loop_does(world: World) -> None:
    play = Play(world)
    play.rounds(1, 0.0)
    before = recorded(world).resource_version
    world.act(60.0)
    assert play.sent.count("patch leases.coordination.k8s.io") == 3
    assert recorded(world).resource_version != before


def test_a_renewal_never_brings_an_older_record_back(world: World) -> None:
    play = Play(world)
    for _round in range(6):
        play.step()
        world.act()
    assert recorded(world).stage == "ready"
    before = recorded(world).resource_version
    world.act(60.0)
    assert recorded(world).resource_version != before
    assert recorded(world).stage == "ready"


@pytest.mark.parametrize("lost", range(4))
def test_a_lost_answer_of_the_first_half_is_looked_up(world: World, lost: int) -> None:
    play = Play(world)
    play.loses(lost)
    case = play.rounds()
    assert (case.state, case.outcome) == ("ready", "raised")
    undisturbed = Play(World(["n1"]))
    undisturbed.rounds()
    assert play.writes == undisturbed.writes
    assert [change.sentence for change in play.ctx.changes] == [c.sentence for c in undisturbed.ctx.changes]
    assert recorded(world).stage == "ready"
    assert play.me.faults.met


@pytest.mark.parametrize("lost", range(3))
def test_a_lost_answer_of_the_second_half_is_looked_up(world: World, lost: int) -> None:
    Play(world).rounds()
    end = End(world)
    end.loses(lost)
    assert end.rounds().done_with("n1")
    assert not end.surges.failures
    assert len(end.writes) == 3
    assert world.ended == ["web-0"]
    assert world.kept() == world.at_first
    assert end.me.faults.met


@pytest.mark.parametrize("lost", range(4))
def test_a_lost_answer_of_giving_back_is_looked_up(world: World, lost: int) -> None:
    Play(world).rounds()
    back = Play(world, state="undo")
    back.case.surge = recorded(world)
    back.loses(lost)
    assert back.rounds().outcome == "given_back"
    assert world.kept() == world.at_first
    assert world.names() == ["web-0"]
    assert back.me.faults.met


def test_every_write_of_a_surge_proves_its_nodes_first(world: World) -> None:
    play = Play(world)
    play.rounds()
    assert play.proven == [("n1",)] * len(play.writes)
    assert len(play.proven) == 4


def test_what_was_frozen_past_its_surge_s_lease_sends_nothing_more(world: World) -> None:
    """The node's lock tells nothing here: the other run wants the same workload for another node."""
    play = Play(world)

    def taken(request: Request) -> bool:
        if not request.resource.endswith("/scale") or recorded(world).holder != "r1/n1":
            return False
        world.sim.machine.after(80.0, take, "another run takes the surge")
        return True

    def take() -> None:
        world.apply(recorded(world).renewing("other/n", "2026-01-01T00:01:30.000Z"))

    play.me.faults.when(taken, Fault("frozen", 90.0))
    case = play.rounds()
    assert (case.state, case.outcome) == ("undone", "adopted_by")
    assert "is held by run other now" in case.message
    scales = [sent for sent in world.sim.log if sent.request.resource.endswith("/scale") and sent.arrived]
    assert scales == []


def test_a_surge_that_shows_life_when_it_is_taken_is_left_alone(world: World) -> None:
    Play(world, "other/n").rounds()
    play = Play(world)
    play.rounds(1)
    world.act(61.0)
    silent = world.snapshot()
    world.apply(recorded(world).renewing("other/n", "2026-01-01T00:01:01.000Z"))
    play.step(silent)
    assert play.case.state == "of_other_run"
    assert recorded(world).holder == "other/n"


# -- what is wanted is read live ----------------------------------------------------------------------


@pytest.mark.parametrize("after", range(1, 5))
def test_a_workload_that_is_scaled_up_while_its_surge_comes_up_keeps_its_new_count(world: World, after: int) -> None:
    play = Play(world)
    play.rounds(after)
    world.scale(4)
    world.act()
    assert play.rounds().outcome == "raised"
    end = End(world)
    assert end.rounds().done_with("n1")
    assert not end.surges.failures
    assert world.replicas == len(world.pods) == 4
    assert world.ended == ["web-0"]
    assert world.least_ready >= 1
    assert not world.leases


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("after", range(4))
def test_a_count_that_is_set_during_the_second_half_is_kept(world: World, count: int, after: int) -> None:
    Play(world).rounds()
    end = End(world)
    end.rounds(after)
    world.scale(count)
    end.rounds(30)
    assert end.surges.done_with("n1"), end.surges.waiting or end.surges.failures
    assert "web-0" in world.ended
    assert not world.leases
    # What is as we made it cannot be told from what we made.
    assert world.replicas == (1 if count == 2 and not after else count)
    assert world.least_ready >= 1


@pytest.mark.parametrize("after", range(4))
def test_a_workload_that_is_scaled_to_nothing_ends_its_surge(world: World, after: int) -> None:
    play = Play(world)
    play.rounds(after)
    world.scale(0)
    world.act()
    play.rounds()
    assert play.surging.done
    if world.leases:
        assert End(world).rounds().done_with("n1")
    assert world.replicas == 0
    assert not world.leases


@pytest.mark.parametrize("half", ["first", "second"])
def test_a_workload_that_is_deleted_ends_its_surge(world: World, half: str) -> None:
    play = Play(world)
    play.rounds(2 if half == "first" else 30)
    end = End(world)
    world.sim.delete(kinds.DEPLOYMENTS, "web")
    for _round in range(5):
        world.act()
        (play if half == "first" else end).step()
    assert play.surging.done
    assert play.case.outcome == ("ended" if half == "first" else "raised")
    assert half == "first" or end.surges.done_with("n1")
    assert not world.leases


def test_the_routes_are_planned_once_for_all_workloads_of_a_look(world: World) -> None:
    play, planned = Play(world), list[int]()

    def plan(seen: Snapshot) -> dict[str, Surge]:
        planned.append(len(seen.pods))
        return play.plan(seen)

    others = [WorkloadSurge(Ref("Deployment", f"w{n}", "shop", f"uid-{n}", "apps/v1"), "n1", "plan") for n in range(50)]
    surging = Surging(play.ctx, Run("r1", "n1"), 2.0, plan, play.prove_locks, ["n1"], [*others, play.case])
    play.does(lambda: surging.step(world.snapshot()))
    assert planned == [1]
    assert {case.state for case in others} == {"undone"}
    assert play.case.state == "wait"
