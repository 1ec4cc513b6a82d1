# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a pod waits for its job, what is said meanwhile, and what follows."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    causes,
    run_dispatcher,
    run_starter,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import (
    API_VERSION,
    KIND,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import (
    becomes,
    jobs_of,
    still_world,
    writes,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_feeding import EVICTING, Scene


@pytest.fixture
def world() -> t.Iterator[World]:
    with still_world() as made:
        yield made


def ticks(scene: Scene, seconds: int) -> None:
    for _second in range(seconds):
        scene.step()


def said(scene: Scene, number: int = 0) -> str:
    """What its pod waits for."""
    return (scene.moves[number].blocked_by or {}).get("message", "")


def held_by_a_sibling(world: World, **choices: t.Any) -> Scene:
    """Two pods elsewhere are not Ready: arbitration admits none, and a budget would allow two evictions."""
    scene = Scene(world, 1, **choices)
    scene.unready = 2
    scene.budgets = [objects.budget("web", 2, healthy=7, desired=5)]
    return scene


@pytest.mark.parametrize(
    ("choices", "state", "route"),
    [
        ({"backend": "auto"}, "waiting", "evict"),
        ({"backend": "auto", "fallback": "fail"}, "waiting", "evict"),
        ({"backend": "koordinator"}, "waiting", "evict"),
        ({"backend": "koordinator", "fallback": "fail"}, "failed", "job"),
    ],
)
def test_what_only_arbitration_holds_goes_without_a_job_after_a_minute(
    world: World, choices: t.Any, state: str, route: str
) -> None:
    scene = held_by_a_sibling(world, **choices)
    ticks(scene, 58)
    assert (scene.moves[0].state, scene.moves[0].plan.route) == ("waiting", "job")
    assert "2 pods of Deployment shop/web are unavailable or migrate: 2 of 9 may." in said(scene)
    assert "It waits for a job for 60 s at most." in said(scene)
    ticks(scene, 5)
    assert (scene.moves[0].state, scene.moves[0].plan.route) == (state, route)
    assert "2 of 9 may." in scene.moves[0].reason
    assert jobs_of(world) == {}


def test_how_long_a_pod_waits_is_a_choice(world: World) -> None:
    scene = held_by_a_sibling(world, backend="auto", job_wait=10.0)
    ticks(scene, 15)
    assert scene.moves[0].plan.route == "evict"


@pytest.mark.parametrize("backend", ["auto", "koordinator"])
def test_what_would_hold_an_eviction_too_is_not_waited_for_in_vain(world: World, backend: str) -> None:
    scene = held_by_a_sibling(world, backend=backend)
    scene.budgets = [objects.budget("web", 0, healthy=7, desired=7)]
    ticks(scene, 600)
    assert (scene.moves[0].state, scene.moves[0].plan.route) == ("waiting", "job")
    scene.unready, scene.budgets = 0, [objects.budget("web", 2, healthy=9, desired=7)]
    assert scene.step() == ["web-0"], "reserved as planned, since its budget has room"


def test_a_limit_that_koordinator_was_asked_for_is_waited_for(world: World) -> None:
    scene = Scene(world, 3, backend="koordinator")
    for _step in range(3):
        assert scene.step(40.0) == ["web-0", "web-1"]
    assert scene.moves[2].plan.route == "job"
    scene = Scene(world, 3, backend="auto")
    ticks(scene, 62)
    assert scene.moves[2].plan.route == "evict", "maxMigratingPerNode is 2"


@pytest.mark.parametrize(
    ("choices", "state", "route"),
    [
        ({"backend": "auto"}, "waiting", "evict"),
        ({"backend": "koordinator"}, "waiting", "evict"),
        ({"backend": "koordinator", "fallback": "fail"}, "failed", "job"),
    ],
)
def test_a_refusal_that_became_permanent_is_not_waited_for(
    world: World, choices: t.Any, state: str, route: str
) -> None:
    scene = Scene(world, 1, **choices)
    scene.wanted = 2
    ticks(scene, 2)
    assert (scene.moves[0].state, scene.moves[0].plan.route) == (state, route)
    assert "maxMigratingPerWorkload lets all 2 replicas of Deployment shop/web go at once." in scene.moves[0].reason


def test_auto_leaves_a_job_that_arbitration_does_not_pass_unwritten(world: World) -> None:
    scene = Scene(world, 1, backend="auto")
    ticks(scene, 30)
    assert "waits for arbitration" in said(scene)
    ticks(scene, 35)
    assert scene.moves[0].plan.route == "evict"
    assert writes(world) == [f"create podmigrationjobs {scene.job('web-0')}"]
    scene.gone("web-0")
    scene.step()
    assert not scene.done_with("n1"), "arbitration passes a job whose pod it does not find"
    scene.becomes("web-0", phase="Failed", reason="MissingPod")
    ticks(scene, 2)
    scene.done_with("n1")
    scene.step()
    assert scene.done_with("n1")
    assert jobs_of(world) == {}


def test_auto_gives_up_a_job_that_does_not_evict(world: World) -> None:
    scene = Scene(world, 1, backend="auto")
    scene.step()
    scene.becomes("web-0", passed=True, phase="Running")
    ticks(scene, 65)
    assert scene.moves[0].plan.route == "evict"
    assert jobs_of(world) == {}


def test_what_holds_a_job_under_way_is_said(world: World) -> None:
    scene = Scene(world, 1)
    scene.step()
    conditions = [{"type": "ReservationCreated", "status": "True"}, {"type": "ReservationScheduled", "status": "False"}]
    scene.becomes("web-0", passed=True, phase="Running", conditions=conditions)
    scene.step()
    assert said(scene) == "", "it has begun just now"
    ticks(scene, 6)
    assert said(scene).startswith(f"PodMigrationJob {scene.job('web-0')} finds no place: No place is found")


def test_a_job_that_has_evicted_and_never_ends_is_not_waited_for(world: World) -> None:
    scene = Scene(world, 1)
    scene.step()
    scene.becomes("web-0", passed=True, phase="Running", conditions=[EVICTING])
    scene.step()
    scene.gone("web-0")
    scene.step()
    assert not scene.done_with("n1")
    ticks(scene, int(170 + run_dispatcher.OVERDUE_SECONDS))
    scene.done_with("n1")
    assert scene.done_with("n1")
    assert jobs_of(world) == {}
    assert any("does not end PodMigrationJob" in event.message for event in scene.ctx.timeline)


def test_a_job_that_nobody_arbitrates_is_removed_once_its_pod_is_gone(world: World) -> None:
    scene = Scene(world, 1, backend="auto")
    ticks(scene, 65)
    scene.gone("web-0")
    ticks(scene, int(causes.GONE_SECONDS) + 2)
    scene.done_with("n1")
    scene.step()
    assert scene.done_with("n1")
    assert jobs_of(world) == {}


def of_a_person(world: World, **changes: t.Any) -> str:
    """Ann's job for the first pod, made with kubectl, paused; it names no UID, as the documents show it."""
    meta = {"name": "ask-first", "managedFields": [{"manager": "kubectl-create", "operation": "Update"}]}
    reference = {"namespace": "shop", "name": "web-0", **changes}
    spec = {"podRef": reference, "paused": True, "ttl": "60s"}
    world.apply({"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec})
    becomes(world, "ask-first", passed=True)
    return "ask-first"


@pytest.mark.parametrize(
    ("choices", "state", "route"),
    [
        ({"backend": "auto"}, "waiting", "evict"),
        ({"backend": "koordinator"}, "waiting", "evict"),
        ({"backend": "koordinator", "fallback": "fail"}, "failed", "job"),
    ],
)
@pytest.mark.parametrize("uid", ["", "uid-web-0"])
def test_a_persons_paused_job_is_said_waited_for_and_left_alone(
    world: World, choices: t.Any, state: str, route: str, uid: str
) -> None:
    scene = Scene(world, 1, **choices)
    job = of_a_person(world, **({"uid": uid} if uid else {}))
    ticks(scene, 10)
    assert f"PodMigrationJob {job} is paused and waits for approval: kubectl-create created it 20" in said(scene)
    assert "It waits for a job for 60 s at most." in said(scene)
    ticks(scene, 55)
    assert (scene.moves[0].state, scene.moves[0].plan.route) == (state, route)
    assert "waits for approval: kubectl-create created it" in scene.moves[0].reason
    if route == "evict":
        scene.gone("web-0")
    ticks(scene, 300)
    scene.done_with("n1")
    scene.me.run(lambda _ctx: scene.feed.abandon("n1", "time is up"))
    scene.me.run(lambda _ctx: scene.feed.stop())
    assert writes(world) == [], "there is no second job, and nobody rules over the first"
    assert jobs_of(world)[job]["spec"]["paused"]


def test_a_paused_job_that_is_approved_meanwhile_moves_the_pod(world: World) -> None:
    scene = Scene(world, 1)
    job = of_a_person(world)
    ticks(scene, 40)
    world.patch(kinds.PODMIGRATIONJOBS, job, {"spec": {"paused": False}})
    scene.becomes("web-0", phase="Running", conditions=[EVICTING])
    ticks(scene, 3)
    assert (scene.moves[0].plan.route, said(scene)) == ("job", "")
    scene.gone("web-0")
    scene.becomes("web-0", phase="Succeeded")
    ticks(scene, 2)
    assert scene.done_with("n1")
    assert writes(world) == []


def test_a_job_of_the_drain_that_a_person_pauses_is_left_to_them(world: World) -> None:
    scene = Scene(world, 1)
    scene.step()
    job = scene.job("web-0")
    scene.becomes("web-0", passed=True)
    world.patch(kinds.PODMIGRATIONJOBS, job, {"spec": {"paused": True}})
    ticks(scene, 400)
    assert scene.moves[0].plan.route == "evict"
    scene.me.run(lambda _ctx: scene.feed.abandon("n1", "time is up"))
    assert jobs_of(world)[job]["spec"]["paused"]
    assert writes(world) == [f"create podmigrationjobs {job}"]


def test_a_job_that_someone_else_made_and_nothing_carries_out_is_not_waited_for(world: World) -> None:
    scene = Scene(world, 1)
    job = of_a_person(world)
    world.patch(kinds.PODMIGRATIONJOBS, job, {"spec": {"paused": False}})
    ticks(scene, 65)
    assert scene.moves[0].plan.route == "evict"
    assert writes(world) == []


@pytest.mark.parametrize(("there", "allowed", "over"), [(True, True, True), (True, False, False), (False, True, False)])
def test_only_a_pod_that_could_be_evicted_has_waited_long_enough(
    world: World, there: bool, allowed: bool, over: bool
) -> None:
    scene = Scene(world, 1, job_wait=1.0)
    scene.budgets = [objects.budget("web", 2 if allowed else 0, healthy=9, desired=5)]
    waiting = run_starter.Waits(scene.choices, {})
    seen = scene.snapshot()
    if not there:
        seen = objects.snapshot(objects.deployment("web", scene.wanted))
    assert not waiting.over(scene.moves[0], seen, set(), 0.0)
    assert waiting.over(scene.moves[0], seen, set(), 1.0) is over
