# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The second half of a surge, step by step."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_reconcile
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_node_lock import LostLockError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.surge_records import Surge
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_lower import Surges
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_surge_lease import LostSurgeError
from ansible_collections.kubeops.node_maintenance.tests.unit.support.halves import End, Play
from ansible_collections.kubeops.node_maintenance.tests.unit.support.play import Hand, prepare, recorded
from ansible_collections.kubeops.node_maintenance.tests.unit.support.world import World

LEASES = kinds.LEASES.resource
SCALE = "patch deployments.apps/scale"


def surge(name: str, node: str) -> Surge:
    leaving = (node, "", f"{name}-0", f"uid-{name}-0", None)
    return Surge("apps/v1", "Deployment", "shop", name, f"uid-{name}", 1, 2, *leaving, run="r1", by="me", since="")


@pytest.fixture
def world() -> World:
    return World(["n1"])


@pytest.fixture
def three(world: World) -> Surges:
    """Of `a` and `b` on n1, and `c` on n2."""
    ctx = world.sim.process("me").ctx("r1/x")
    return Surges(ctx, [surge("a", "n1"), surge("b", "n1"), surge("c", "n2")])


def states(surges: Surges, **wanted_: str) -> None:
    for name, state in wanted_.items():
        surges._surges[f"uid-{name}"].state = t.cast("t.Any", state)


# -- several of them -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "done", "n1", "n2"),
    [
        ({}, False, False, False),
        ({"a": "done", "b": "done"}, False, True, False),
        ({"a": "done", "b": "lowered", "c": "done"}, False, False, True),
        ({"a": "failed", "b": "done", "c": "done"}, True, False, True),
        ({"a": "done", "b": "done", "c": "done"}, True, True, True),
    ],
)
def test_a_node_is_done_with_when_all_surges_that_serve_it_are(
    three: Surges, given: dict[str, str], done: bool, n1: bool, n2: bool
) -> None:
    states(three, **given)
    assert (three.done, three.done_with("n1"), three.done_with("n2"), three.done_with("n3")) == (done, n1, n2, True)


def test_what_failed_is_told_of_the_nodes_that_it_serves_and_waits_for_nothing(three: Surges) -> None:
    for one in three._surges.values():
        one.waiting = "a pod"
    three._surges["uid-c"].waiting = ""
    three.failures.update({"uid-a": "no a", "uid-b": "no b"})
    assert three.waiting == {}
    assert [three.failed_for(node) for node in ("n1", "n2", "n3")] == ["no a; no b", "", ""]
    three.failures.clear()
    assert three.waiting == {"uid-a": "a pod", "uid-b": "a pod"}
    assert three.failed_for("n1") == ""


def test_a_lost_node_ends_the_surges_that_serve_it_alone(three: Surges) -> None:
    states(three, c="done")
    three.lose("n1", "it was uncordoned")
    a, b, c = three._surges.values()
    assert (a.state, b.state, c.state) == ("failed", "failed", "done")
    assert three.failures == dict.fromkeys(("uid-a", "uid-b"), "it was uncordoned")
    three.lose("n2", "that, too")
    assert (c.state, c.lost) == ("done", False), "what is over is left as it is"
    assert (three.failed_for("n1"), three.done_with("n1")) == ("", True), "it is not this run's to judge"


@pytest.mark.parametrize(
    ("error", "state", "waiting"),
    [
        (errors.Overloaded("busy"), "open", str(errors.Overloaded("busy"))),
        (run_reconcile.Contended("busy"), "open", str(run_reconcile.Contended("busy"))),
        (errors.Forbidden("no"), "failed", ""),
        (LostSurgeError("r2 has it"), "failed", ""),
        (LostLockError("n1", "by r2"), "failed", ""),
    ],
)
def test_each_surge_fails_alone(world: World, three: Surges, error: Exception, state: str, waiting: str) -> None:
    states(three, a="done")
    tried: list[str] = []

    def work(one: t.Any) -> None:
        tried.append(one.current.name)
        if one.current.name == "b":
            raise error

    world.sim.process("steps").run(lambda _ctx: three._each(work))
    assert tried == ["b", "c"]
    b = three._surges["uid-b"]
    assert (b.state, b.waiting) == (state, waiting)
    assert three._surges["uid-c"].state == "open"
    assert (three.failures == {}) == (state == "open")
    assert b.lost == isinstance(error, LostLockError)


# -- one of them ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("run", "holder"), [("r1/n2", "r1/n2"), ("r1", "r1/n1"), ("", "r1/n1"), ("/n2", "r1/n1")])
def test_only_a_run_with_a_nonce_puts_its_name_into_the_lease(world: World, run: str, holder: str) -> None:
    Play(world).rounds()
    end = End(world, run)
    end.does(end.surges.claim)
    assert recorded(world).holder == holder


def test_the_lease_is_ours_before_the_first_step_and_is_not_held_twice(world: World) -> None:
    Play(world).rounds()
    end = End(world, "r1/n2")
    for _time in range(2):
        end.does(end.surges.claim)
    assert end.writes == [f"patch {LEASES}"]
    end.step()
    assert end.writes == [f"patch {LEASES}", SCALE]


@pytest.mark.parametrize(("stage", "seconds"), [("raising", 2.0), ("ready", 0.0)])
def test_pods_that_were_not_seen_to_serve_do_so_for_two_seconds(world: World, stage: t.Any, seconds: float) -> None:
    prepare(world, Hand(world), "n1")
    end = End(world)
    end.surges = Surges(end.ctx, [replace(recorded(world), stage=stage)], end.prove_locks)
    began = world.sim.machine.now
    while SCALE not in end.sent:
        end.step()
        if SCALE not in end.sent:
            world.act(0.5)
    assert world.sim.machine.now - began == seconds


def test_who_stops_serving_before_the_end_begins_anew(world: World) -> None:
    prepare(world, Hand(world), "n1")
    end = End(world)
    end.step()
    assert end.surges._surges[world.uid].serving_since == world.sim.machine.now
    world.act(1.5)
    newcomer = world.newcomer()["metadata"]["name"]
    world.set_ready(newcomer, False)
    end.step()
    assert "is not ready" in end.surges.waiting[world.uid]
    assert end.surges._surges[world.uid].serving_since is None
    world.set_ready(newcomer, True)
    end.step()
    world.act(1.5)
    end.step()
    assert not world.ended


def test_a_pod_that_stays_on_a_leaving_node_counts_when_the_count_is_lowered() -> None:
    """One that is not ready would be ended before any other, whatever the costs."""
    world = World(["n1", "n1", "n9"])
    prepare(world, Hand(world), "n1")
    end = End(world)
    world.set_ready("web-1", False)
    end.step()
    assert end.surges.waiting == {world.uid: f"Pod shop/{world.first[1]} is not ready"}
    assert SCALE not in end.sent


def test_what_is_lowered_and_given_back_is_told(world: World) -> None:
    Play(world).rounds()
    end = End(world)
    end.rounds()
    assert [(event.what, event.message) for event in end.me.told] == [
        ("lowered", f"scaled from 2 to 1, which ends {world.first[0]}"),
        ("restored", "restored to its state before the surge"),
    ]
    assert (end.surges.waiting, end.surges.done) == ({}, True)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_count_that_is_not_the_surges_is_raised_from_or_given_up(world: World, count: int) -> None:
    """Somebody's count is the wanted one, and the leaving pod is added to it again; none is none."""
    Play(world).rounds()
    world.scale(count)
    end = End(world)
    end.rounds()
    assert end.surges.done
    assert world.replicas == count
    assert end.sent.count(SCALE) == (2 if count == 3 else 0)
    assert not world.leases or count == 1


@pytest.mark.parametrize("acted", [False, True])
def test_after_lowering_the_leaving_pod_ends_and_no_other(world: World, acted: bool) -> None:
    """The view shows our count; the controller has not `acted` yet, or has ended the other pod."""
    Play(world).rounds()
    end, before = End(world), world.snapshot()
    end.step(before)
    assert end.surges._surges[world.uid].state == "lowered"
    workload = before.workload(world.uid)
    assert workload
    now = replace(workload, replicas=1, resource_version="999999")
    others = [one for one in before.workloads if one.uid != world.uid]
    pods = tuple(pod for pod in before.pods if pod.node == "n1" or not acted)
    end.step(replace(before, pods=pods, workloads=(now, *others)))
    if acted:
        assert f"{world.first[0]} stayed while another pod ended" in end.surges.failures[world.uid]
    else:
        assert end.surges.waiting == {world.uid: "Deployment shop/web has 2 of 1 pods"}


def test_a_count_that_is_set_while_the_leaving_pod_ends_is_kept(world: World) -> None:
    """Also one that is the surge's: we have lowered it, so it is somebody else's."""
    Play(world).rounds()
    end, before = End(world), world.snapshot()
    end.step(before)
    workload = before.workload(world.uid)
    assert workload
    now = replace(workload, replicas=2, resource_version="999999")
    end.step(replace(before, workloads=(now, *(one for one in before.workloads if one.uid != world.uid))))
    assert (recorded(world).prior_replicas, recorded(world).target) == (2, 3)


def test_a_count_that_is_set_after_the_leaving_pod_ended_is_kept(world: World) -> None:
    Play(world).rounds()
    end = End(world)
    end.step()
    world.act()
    assert world.ended == ["web-0"]
    world.scale(2)
    assert end.rounds().done_with("n1")
    assert world.replicas == 2


def test_a_raise_that_was_overtaken_is_made_again(world: World) -> None:
    Play(world).rounds()
    world.scale(3)
    world.act()
    end = End(world)

    def annotate() -> None:
        world.sim.patch(kinds.DEPLOYMENTS, "web", {"metadata": {"annotations": {"theirs": "x"}}})

    end.me.faults.overtaken(lambda request: request.resource == "deployments.apps/scale", annotate)
    assert end.rounds().done_with("n1"), end.surges.failures
    assert world.replicas == 3
