# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs as they are fed and followed, on a simulated cluster whose controller does what no lab does on demand."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import dispositions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    causes,
    run_dispatcher,
    run_leftovers,
    run_starter,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import EVICT
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.apiserver import ApiServer
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import (
    becomes,
    jobs_of,
    reserve,
    still_world,
    writes,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_feeding import EVICTING, Scene


@pytest.fixture
def world() -> t.Iterator[World]:
    with still_world() as made:
        yield made


def test_as_many_as_admitted_with_uid_run_node_and_a_ttl(world: World) -> None:
    scene = Scene(world)
    assert scene.step() == ["web-0", "web-1"]
    assert scene.step() == ["web-0", "web-1"]
    made = jobs_of(world)[scene.job("web-0")]
    assert made["spec"]["deleteOptions"]["preconditions"] == {"uid": "uid-web-0"}
    assert made["spec"]["ttl"] == "170s"
    assert made["metadata"]["labels"][dispositions.POLICY] == "Eviction"
    assert made["metadata"]["labels"][f"{names.PREFIX}/run"] == "r1"
    assert made["metadata"]["annotations"][names.SERVES_NODES] == "n1"
    assert scene.moves[2].blocked_by is not None
    assert "maxMigratingPerNode is 2" in scene.moves[2].blocked_by["message"]
    scene.gone("web-0")
    scene.becomes("web-0", phase="Succeeded")
    assert scene.step() == ["web-0", "web-1", "web-2"]


@pytest.mark.parametrize("grace", [None, 0, 5])
def test_a_job_evicts_with_the_grace_that_was_asked_for(world: World, grace: int | None) -> None:
    scene = Scene(world, 1)
    scene.begin(grace)
    scene.step()
    options = jobs_of(world)[scene.job("web-0")]["spec"]["deleteOptions"]
    assert options.get("gracePeriodSeconds") == grace


def test_only_a_pod_whose_own_job_has_ended_gets_one_of_another_name(world: World) -> None:
    scene = Scene(world, 2)
    scene.step()
    failed, deleted = scene.job("web-0"), scene.job("web-1")
    scene.becomes("web-0", passed=True, phase="Failed", reason="Timeout")
    world.delete(kinds.PODMIGRATIONJOBS, deleted)
    scene.begin()
    scene.step()
    made = jobs_of(world)
    assert {failed, deleted} < set(made)
    assert sorted(raw["spec"]["podRef"]["name"] for raw in made.values()) == ["web-0", "web-0", "web-1"]


def test_a_job_that_waits_for_arbitration_is_never_written(world: World) -> None:
    scene = Scene(world, 1)
    scene.step()
    for _tick in range(100):
        scene.step()
    assert scene.sent("PATCH") == []
    assert scene.sent("DELETE") == []


def test_a_run_that_takes_over_makes_no_second_job(world: World) -> None:
    scene = Scene(world, 1)
    scene.step()
    scene.becomes("web-0", passed=True, phase="Running")
    scene.begin()
    scene.step()
    assert len(scene.sent("POST")) == 1
    for _tick in range(5):
        scene.step()
    assert len(scene.sent("PATCH")) == 1, "its controller may be another one by now: it is reminded soon"


def test_silence_after_arbitration_is_broken_now_and_then(world: World) -> None:
    scene = Scene(world, 1)
    scene.step()
    scene.becomes("web-0", passed=True, phase="Running")
    for _tick in range(45):
        scene.step()
    assert len(scene.sent("PATCH")) == 2


@pytest.mark.parametrize(("kind", "let_off"), [("StatefulSet", True), ("ReplicaSet", False)])
def test_a_successor_of_the_same_name_is_let_off_the_limiter_once_the_pod_is_gone(
    world: World, kind: str, let_off: bool
) -> None:
    scene = Scene(world, 1, kind)
    scene.step()
    job = scene.job("web-0")
    for status in ({}, {"conditions": [EVICTING]}):
        scene.becomes("web-0", passed=True, phase="Running", **status)
        scene.step()
        assert scene.sent("PATCH") == [], "its own eviction is not counted yet"
    scene.gone("web-0")
    for _tick in range(5):
        scene.step()
    assert (EVICT in jobs_of(world)[job]["metadata"]["annotations"]) is let_off
    assert len(scene.sent("PATCH")) == let_off


def test_no_job_is_made_where_too_few_others_serve(world: World) -> None:
    scene = Scene(world, 3)
    scene.missing = 1
    assert scene.step() == [], "one of nine is missing already, and no budget allows more"
    assert scene.moves[0].blocked_by is not None
    assert "needs 8 ready pods beside this one and has 7" in scene.moves[0].blocked_by["message"]
    scene.missing = 0
    assert scene.step() == ["web-0", "web-1"]


def test_no_job_is_made_for_the_last_pod_that_is_wanted(world: World) -> None:
    scene = Scene(world, 1)
    scene.wanted, scene.missing = 1, 8
    assert scene.step() == []
    [move] = scene.moves
    assert (move.state, move.outcome) == ("failed", "needs_surge")
    assert "Run the same command again: it moves it by a surge." in move.reason


@pytest.mark.parametrize("what", ["forbidden", "error", "conflict", "lost"])
def test_a_reminder_that_is_refused_ends_nothing_else(world: World, what: What) -> None:
    scene = Scene(world, 1)
    scene.step()
    scene.becomes("web-0", passed=True, phase="Running")
    scene.me.faults.when(lambda request: request.method == "PATCH", Fault(what), times=run_starter.MAX_TRIES)
    for _tick in range(100):
        scene.step()
    # A reminder whose answer is lost is recognized when the job is read again, and not written twice.
    assert len(scene.sent("PATCH")) >= run_starter.MAX_TRIES + (what != "lost")
    told = [event.message for event in scene.ctx.timeline if event.what == "kept"]
    assert any("could not be reminded" in message for message in told) == (what in ("forbidden", "error"))
    assert scene.moves[0].plan.route == "job"


@pytest.mark.parametrize(("fallback", "state", "route"), [("eviction", "waiting", "evict"), ("fail", "failed", "job")])
def test_a_job_that_fails_is_explained_and_falls_back(world: World, fallback: str, state: str, route: str) -> None:
    scene = Scene(world, 1, fallback=fallback)
    scene.step()
    scene.pods[0]["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    message = "Pod is forbidden to migrate because it does not meet the requirements"
    scene.becomes("web-0", phase="Failed", reason="ForbiddenMigratePod", message=message)
    scene.step()
    move = scene.moves[0]
    assert (move.state, move.plan.route) == (state, route)
    assert "It has local volumes" in move.reason
    scene.step()
    assert len(scene.sent("POST")) == 1


def test_after_two_jobs_that_no_scheduler_answered_no_more_are_made(world: World) -> None:
    scene = Scene(world, 3)
    scene.step()
    for pod in ("web-0", "web-1"):
        conditions = [{"type": "ReservationCreated", "status": "True"}]
        scene.becomes(pod, passed=True, phase="Failed", reason="Timeout", conditions=conditions)
    scene.step()
    scene.step()
    assert [move.plan.route for move in scene.moves] == ["evict", "evict", "evict"]
    assert "got no answer from their scheduler" in scene.moves[2].reason


@pytest.mark.parametrize("passed", [True, False])
def test_a_controller_that_never_ends_a_job_is_not_waited_for(world: World, passed: bool) -> None:
    scene = Scene(world, 1)
    scene.step()
    if passed:
        scene.becomes("web-0", passed=True)
    scene.step(170 + run_dispatcher.OVERDUE_SECONDS + 1)
    assert scene.moves[0].plan.route == "evict"
    if not passed:
        assert scene.sent("PATCH") == [], "it would be tried for ever"
        return
    [status] = [r for r in scene.sent("PATCH") if r.path.endswith("/status")]
    assert t.cast("t.Any", status.body)["status"]["phase"] == "Failed"
    assert jobs_of(world) == {}, "ended first, deleted then"


def test_a_job_that_arbitration_holds_for_ever_falls_back_alone(world: World) -> None:
    scene = Scene(world, 3)
    assert scene.step() == ["web-0", "web-1"]
    scene.becomes("web-1", passed=True, phase="Running")
    scene.step(170 + run_dispatcher.OVERDUE_SECONDS - 1)
    scene.gone("web-1")
    scene.becomes("web-1", phase="Succeeded")
    scene.step(2.0)
    scene.step()
    assert [move.plan.route for move in scene.moves] == ["evict", "job", "job"]
    assert "web-2" in scene.step(), "koord-descheduler answers: the next pod gets its job"


def test_a_job_whose_pod_left_otherwise_is_ended_before_its_ttl(world: World) -> None:
    scene = Scene(world, 1, "StatefulSet")
    scene.step()
    scene.becomes("web-0", passed=True, phase="Running")
    scene.gone("web-0")
    began = world.machine.now
    while scene.feed.flying("n1"):
        assert world.machine.now < began + causes.GONE_SECONDS + 3
        scene.step()
    assert jobs_of(world)[scene.job("web-0")]["status"]["reason"] == "Rejected"


def forbid(server: ApiServer) -> None:
    server.denied.add(("create", kinds.PODMIGRATIONJOBS.resource))


def forget(server: ApiServer) -> None:
    """Somebody removes Koordinator."""
    server.add_ons = frozenset()


@pytest.mark.parametrize("refuse", [forbid, forget])
def test_jobs_that_may_not_be_made_are_not_tried_again(world: World, refuse: t.Callable[[ApiServer], None]) -> None:
    scene = Scene(world, 2)
    world.machine.run_for(1.0)  # the watch is open
    refuse(world.server)
    scene.step()
    scene.step()
    assert [move.plan.route for move in scene.moves] == ["evict", "evict"]
    assert len(scene.sent("POST")) <= 2


FAULTS: list[What] = ["lost", "in doubt", "conflict", "throttled", "error", "down"]


@pytest.mark.parametrize("what", FAULTS)
def test_a_pod_has_one_job_whatever_the_first_answer_was(world: World, what: What) -> None:
    scene = Scene(world, 1)
    scene.me.faults.when(lambda request: request.method == "POST", Fault(what, 5.0))
    for _tick in range(10):
        scene.step()
    assert [raw["spec"]["podRef"]["name"] for raw in jobs_of(world).values()] == ["web-0"]
    assert scene.moves[0].plan.route == "job"
    assert "waits for arbitration" in (scene.moves[0].blocked_by or {"message": "waits for arbitration"})["message"]


@pytest.mark.parametrize(("what", "route"), [("conflict", "job"), ("error", "evict")])
def test_a_server_that_fails_again_and_again_is_left_alone_and_rivals_are_outlasted(
    world: World, what: What, route: str
) -> None:
    scene = Scene(world, 1)
    scene.me.faults.when(lambda request: request.method == "POST", Fault(what), times=run_starter.MAX_TRIES)
    scene.step()
    assert (jobs_of(world), scene.moves[0].plan.route) == ({}, route)
    for _tick in range(3):
        scene.step()
    assert len(jobs_of(world)) == (route == "job")


def test_what_served_is_swept_and_what_a_killed_run_left_is_ended(world: World) -> None:
    scene = Scene(world, 2)
    scene.step()
    done, left = scene.job("web-0"), scene.job("web-1")
    for pod in ("web-0", "web-1"):
        scene.gone(pod)
    becomes(world, done, phase="Succeeded")
    becomes(world, left, passed=True, phase="Running", conditions=[EVICTING])
    reservation = jobs_of(world)[done]["metadata"]["uid"]
    reserve(world, reservation)
    # Another process: it knows nothing of the pods that left before it began.
    scene.begin()
    scene.moves = []
    for _tick in range(5):
        scene.step()
        assert not scene.done_with("n1")
    assert EVICT in jobs_of(world)[left]["metadata"]["annotations"]
    assert scene.done_with("n2"), "it serves another node"
    becomes(world, left, phase="Succeeded")
    for _tick in range(3):
        scene.step()
        assert not scene.done_with("n1")
    assert jobs_of(world) == {}
    world.delete(kinds.RESERVATIONS, reservation)
    scene.step()
    assert scene.done_with("n1")


def test_a_reservation_that_nobody_deletes_is_deleted(world: World) -> None:
    scene = Scene(world, 1)
    scene.step()
    name = scene.job("web-0")
    scene.gone("web-0")
    reservation = jobs_of(world)[name]["metadata"]["uid"]
    scene.becomes("web-0", phase="Succeeded")
    reserve(world, reservation)
    began = world.machine.now
    while not scene.done_with("n1"):
        assert world.machine.now < began + 10
        scene.step()
    assert world.machine.now > began + run_leftovers.VANISHES_SECONDS
    assert [request.name for request in scene.sent("DELETE")] == [name, reservation]
    assert world.find(kinds.RESERVATIONS, reservation) is None


def test_jobs_of_a_node_that_is_given_back_are_ended(world: World) -> None:
    scene = Scene(world, 2)
    scene.step()
    evicting = scene.job("web-1")
    scene.becomes("web-0", passed=True)
    becomes(world, evicting, passed=True, phase="Running", conditions=[EVICTING])
    scene.me.run(lambda _ctx: scene.feed.abandon("n1", "time is up"))
    assert list(jobs_of(world)) == [evicting], "nothing undoes an eviction"
    assert not scene.feed.flying("n1")


@pytest.mark.parametrize("passes", [True, False])
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_job_of_a_node_that_is_given_back_is_ended_once_it_has_passed_arbitration(
    world: World, passes: bool, goes_on: bool
) -> None:
    scene = Scene(world, 1)
    scene.step()
    job = scene.job("web-0")
    scene.me.run(lambda _ctx: scene.feed.abandon("n1", "time is up"))
    scene.moves = []
    if goes_on:
        scene.step()
    assert [*jobs_of(world)] == [job]
    if passes:
        world.machine.after(1.0, lambda: becomes(world, job, passed=True), "arbitration")
    if goes_on:
        scene.step()
        scene.step()
        assert (job in jobs_of(world)) is not passes
    scene.me.run(lambda _ctx: scene.feed.stop())
    assert (job in jobs_of(world)) is not passes
    assert (writes(world) == [f"create podmigrationjobs {job}"]) is not passes
    told = [event.message for event in scene.ctx.timeline if event.what == "kept"]
    assert any("waits for arbitration and must not be written" in message for message in told) is not passes
