# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a drain makes of the ends of its jobs: which it waits for, which fail it, and when Koordinator is given up."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import run_dispatcher
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import PodOutcome
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import jobs_of, still_world
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_feeding import EVICTING, Scene

CREATED = {"type": "ReservationCreated", "status": "True"}
NO_PLACE = {"type": "ReservationScheduled", "status": "False"}
UNANSWERED: Raw = {"reason": "Timeout", "conditions": [CREATED]}


@pytest.fixture
def world() -> t.Iterator[World]:
    with still_world() as made:
        yield made


def fails(scene: Scene, pod: str, **status: t.Any) -> None:
    scene.becomes(pod, passed=True, phase="Failed", **status)
    scene.step()


def routes(scene: Scene) -> list[str]:
    return [move.plan.route for move in scene.moves]


def told(scene: Scene, what: phases.What) -> list[str]:
    return [event.message for event in scene.ctx.timeline if event.what == what]


def succeeds(scene: Scene, pod: str) -> None:
    """An answered Reservation, and the pod has gone."""
    scene.gone(pod)
    scene.becomes(pod, passed=True, phase="Succeeded", conditions=[CREATED, {**NO_PLACE, "status": "True"}])
    scene.step()


# -- Koordinator is given up ---------------------------------------------------------------------------


def test_one_job_that_no_scheduler_answered_is_no_sign_of_a_broken_koordinator(world: World) -> None:
    scene = Scene(world, 3)
    scene.step()
    fails(scene, "web-0", **UNANSWERED)
    scene.step()
    assert routes(scene) == ["evict", "job", "job"]
    assert len(jobs_of(world)) == 3, "the next pod gets its job"


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"reason": "Timeout", "conditions": [CREATED, NO_PLACE]}, id="the scheduler found no place"),
        pytest.param({"reason": "Timeout"}, id="it did not come to a Reservation"),
        pytest.param({"reason": "ForbiddenMigratePod", "conditions": [CREATED]}, id="another reason"),
    ],
)
def test_jobs_that_fail_otherwise_say_nothing_of_the_scheduler(world: World, status: Raw) -> None:
    scene = Scene(world, 5)
    scene.step()
    for pod in ("web-0", "web-1"):
        fails(scene, pod, **status)
        scene.step()
    assert routes(scene) == ["evict", "evict", "job", "job", "job"], "the last one is in the line"


def test_only_jobs_in_a_row_without_an_answer_break_it(world: World) -> None:
    scene = Scene(world, 6)
    scene.step()
    fails(scene, "web-0", **UNANSWERED)
    succeeds(scene, "web-1")
    scene.step()
    fails(scene, "web-2", **UNANSWERED)
    assert routes(scene) == ["evict", "job", "evict", "job", "job", "job"], "the one between was answered"
    scene.step()
    fails(scene, "web-3", **UNANSWERED)
    scene.step()
    assert routes(scene)[4:] == ["job", "evict"], "one has its job already"
    assert "2 jobs in a row got no answer from their scheduler." in scene.moves[5].reason


# -- the end of one job --------------------------------------------------------------------------------


def test_a_job_that_has_succeeded_is_no_failure_while_its_pod_is_still_shown(world: World) -> None:
    scene = Scene(world, 1)
    scene.step()
    scene.becomes("web-0", passed=True, phase="Succeeded")
    scene.step()
    assert (routes(scene), scene.moves[0].state, told(scene, phases.What.JOB_FAILED)) == (["job"], "waiting", [])


def test_a_job_that_fails_after_its_pod_has_gone_fails_nothing(world: World) -> None:
    scene = Scene(world, 1)
    scene.step()
    scene.gone("web-0")
    fails(scene, "web-0", reason="MissingPod")
    assert (routes(scene), told(scene, phases.What.JOB_FAILED)) == (["job"], [])


def test_the_failure_of_a_job_is_told_once(world: World) -> None:
    scene = Scene(world, 1)
    scene.step()
    fails(scene, "web-0", reason="Odd", message="odd words")
    for _tick in range(3):
        scene.step()
    [message] = told(scene, phases.What.JOB_FAILED)
    assert "odd words" in message


def test_a_job_that_the_watch_does_not_show_yet_is_under_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(world, 1)
    scene.step()
    monkeypatch.setattr(scene.feed._view, "jobs", dict)
    scene.step()
    assert scene.feed.flying("n1")


def test_an_eviction_by_a_job_is_told_once_with_its_place(world: World) -> None:
    scene = Scene(world, 1)
    scene.step()
    scene.moves[0].block(Ref("PodMigrationJob", "j"), "it finds no place")
    scene.becomes("web-0", passed=True, phase="Running", nodeName="n2", conditions=[EVICTING])
    for _tick in range(3):
        scene.step()
    job = scene.job("web-0")
    assert told(scene, phases.What.EVICTED) == [f"PodMigrationJob {job} evicts Pod shop/web-0 for node n2"]
    assert scene.moves[0].blocked_by is None


def test_a_job_that_evicts_without_a_place_names_none(world: World) -> None:
    scene = Scene(world, 1)
    scene.step()
    scene.becomes("web-0", passed=True, phase="Running", conditions=[EVICTING])
    scene.step()
    assert told(scene, phases.What.EVICTED) == [f"PodMigrationJob {scene.job('web-0')} evicts Pod shop/web-0"]


# -- jobs that do not end ------------------------------------------------------------------------------

AFTER_TTL = int(170 + run_dispatcher.OVERDUE_SECONDS) + 2


def test_a_job_that_has_evicted_its_pod_is_not_given_up_while_the_pod_ends(world: World) -> None:
    """The drain's own deadline holds for the pod."""
    scene = Scene(world, 1)
    scene.step()
    scene.becomes("web-0", passed=True, phase="Running", conditions=[EVICTING])
    for _tick in range(AFTER_TTL):
        scene.step()
    assert scene.feed.flying("n1")
    assert (scene.moves[0].state, routes(scene), scene.moves[0].blocked_by) == ("waiting", ["job"], None)
    assert told(scene, phases.What.JOB_FAILED) == []


def test_what_a_job_waits_for_after_its_pod_is_said_after_five_seconds_and_not_of_the_pod(world: World) -> None:
    scene = Scene(world, 1, backend="auto")
    scene.step()
    scene.becomes("web-0", passed=True, phase="Running")
    scene.step()
    scene.gone("web-0")
    scene.step()
    assert scene.feed.waited_for == [], "it has begun just now"
    for _tick in range(5):
        scene.step()
    assert [scene.job("web-0") in text for text in scene.feed.waited_for] == [True]
    assert scene.moves[0].blocked_by is None
    assert routes(scene) == ["job"]


@pytest.mark.parametrize("known", [True, False])
def test_a_job_without_a_pod_is_given_up_after_its_ttl_and_that_is_told_once(world: World, known: bool) -> None:
    """Also one of a run that was killed, whose pod left before this call began."""
    scene = Scene(world, 1)
    scene.step()
    scene.becomes("web-0", passed=True, phase="Running", conditions=[EVICTING])
    scene.step()
    scene.gone("web-0")
    if not known:
        scene.begin()
        scene.moves = []
        scene.step()
        scene.done_with("n1")
    for _tick in range(AFTER_TTL - 5):
        scene.step()
    assert scene.feed.flying("n1")
    world.server.denied.add(("delete", kinds.PODMIGRATIONJOBS.resource))
    for _tick in range(8):
        scene.step()
    assert not scene.feed.flying("n1")
    assert len(told(scene, phases.What.JOB_FAILED)) == 1


# -- given back, and predicted -------------------------------------------------------------------------


@pytest.mark.parametrize("evicting", ["web-0", "web-1"])
def test_of_a_node_that_is_given_back_every_job_is_looked_at(world: World, evicting: str) -> None:
    scene = Scene(world, 2)
    scene.step()
    for pod in ("web-0", "web-1"):
        conditions = [EVICTING] if pod == evicting else []
        scene.becomes(pod, passed=True, phase="Running", conditions=conditions)
    scene.step()
    stays, read = scene.job(evicting), len(scene.sent("GET"))
    scene.me.run(lambda _ctx: scene.feed.abandon("n1", "time is up"))
    assert list(jobs_of(world)) == [stays]
    ended = [request for request in scene.sent("GET")[read:] if request.name == stays]
    assert ended == [], "the watch shows it"


def test_the_job_that_check_mode_predicts_is_the_one_that_is_made(world: World) -> None:
    scene = Scene(world, 1)
    scene.feed.predicted(scene.moves[0])
    [change] = scene.ctx.changes
    assert "ttl" not in (change.body or {})["spec"], "that depends on when it is made"
    scene.step()
    assert change.target.name == scene.job("web-0")


def test_what_a_surge_has_added_is_not_missed_when_its_pods_leave(world: World) -> None:
    """Of nine wanted pods one is there because of a surge: eight serve, and the job is made."""
    scene = Scene(world, 1)
    scene.missing = 1
    scene.begin(prior={"uid-Deployment-web": 8})
    assert scene.step() == ["web-0"]


def test_who_has_left_by_a_job_is_not_counted_as_serving(world: World) -> None:
    scene = Scene(world, 1)
    scene.step()
    scene.becomes("web-0", passed=True, phase="Running", conditions=[EVICTING])
    scene.step()
    assert scene.feed._starter.leaving == {"uid-web-0"}
    scene.moves[0].end("gone", PodOutcome.MIGRATED, world.machine.now)
    assert scene.feed.flying("n1"), "the job has not ended"
