# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is told of jobs while they are made and followed, and what the result says of each."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import (
    Job,
    JobSettings,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_job_moves import (
    JobMove,
    JobMoves,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import jobs_of
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_moving import (
    EVICTED,
    JOB,
    Build,
    Scene,
    made,
    nothing,
    scenes,
    succeeds,
)

DIRECTLY = JobSettings("EvictDirectly")


@pytest.fixture
def build() -> t.Iterator[Build]:
    with scenes() as found:
        yield found


def told(ctx: Context) -> list[str]:
    return [event.message for event in ctx.timeline]


def existing(scene: Scene) -> JobMove:
    """The move of a job that was there before."""
    job = Job.of(scene.job())
    return JobMove(job.pod, scene.move().pod, name=JOB, job=job, state="following")


def started(scene: Scene, one: JobMove, check: bool = False, **settings: t.Any) -> Context:
    ctx = scene.world.process("me").ctx(check=check)
    scene.world.process("me").run(lambda _ctx: JobMoves(ctx, [one], JobSettings(**settings)).start())
    return ctx


# -- progress ------------------------------------------------------------------------------------------


def test_where_a_job_stands_is_told_when_it_changes_and_after_a_while_why(build: Build) -> None:
    def runs(scene: Scene) -> None:
        conditions = [
            {"type": "ReservationCreated", "status": "True"},
            {"type": "ReservationScheduled", "status": "False", "message": "no room"},
        ]
        scene.becomes(phase="Running", conditions=conditions)

    scene = build()
    ctx = scene.follow(scene.move(), steps=[nothing, runs, *[nothing] * 9, succeeds], settings=JobSettings(ttl=90.0))
    assert told(ctx) == [
        f"job {JOB} created (ReservationFirst, ttl 90s)",
        f"job {JOB} waits for arbitration",
        f"job {JOB} finds no place",
        f"job {JOB} finds no place: No place is found: no room",
        f"job {JOB} has succeeded",
    ]


def test_why_a_pod_has_no_job_yet_is_told_once(build: Build) -> None:
    def first(scene: Scene) -> None:
        scene.vanishes()
        scene.becomes(phase="Succeeded", podRef=scene.arrives("web-3"), conditions=EVICTED)

    def second(scene: Scene) -> None:
        arrived = {"namespace": "shop", "name": "web-4", "uid": "4"}
        scene.becomes("job-2", phase="Succeeded", podRef=arrived, conditions=EVICTED)

    scene = build()
    ctx = scene.follow(scene.move(), scene.move(2), steps=[*[nothing] * 4, first, nothing, second])
    [line] = [text for text in told(ctx) if text.startswith("no job yet: ")]
    assert "of Deployment shop/web" in line


def test_without_known_limits_no_job_is_held(build: Build) -> None:
    scene = build()
    moves = [scene.move(), scene.move(2)]
    ctx = scene.world.process("me").ctx()
    batch = JobMoves(ctx, moves, JobSettings(), None)
    scene.play(lambda looks: batch.follow(looks, ctx.clock.now() + 2.0), ctx, [])
    assert sorted(jobs_of(scene.world)) == ["job-1", "job-2"]


def test_a_pod_that_is_gone_before_its_job_is_made_holds_nobody(build: Build) -> None:
    scene = build()
    one = scene.move()
    scene.vanishes()
    scene.follow(one)
    assert one.outcome == "gone"


# -- what is said of the end ---------------------------------------------------------------------------


def test_a_move_names_the_node_and_the_new_pod(build: Build) -> None:
    scene = build()
    one = scene.move()
    scene.follow(one, steps=[succeeds])
    assert one.message == f"Job {JOB} moved {one.target} to node n2: Pod shop/web-3."


def test_a_pod_that_nobody_replaces_was_evicted(build: Build) -> None:
    def evicts(scene: Scene) -> None:
        scene.vanishes()
        scene.becomes(phase="Succeeded", conditions=EVICTED)

    scene = build()
    one = scene.move()
    assert one.pod
    one.pod = replace(one.pod, owner=None)
    scene.follow(one, steps=[evicts], settings=DIRECTLY)
    assert (one.outcome, one.message) == ("moved", f"Job {JOB} evicted {one.target}.")


def test_only_a_new_pod_of_the_same_owner_replaces_one(build: Build) -> None:
    """Others become Ready meanwhile: one of nobody, and one of another workload."""

    def evicts(scene: Scene) -> None:
        scene.vanishes()
        like = scene.pods[1]
        for name, owners in (("alone", []), ("other", [{**like["metadata"]["ownerReferences"][0], "uid": "other"}])):
            meta = {"name": name, "namespace": "shop", "ownerReferences": owners}
            scene.world.apply({**like, "metadata": meta, "spec": {**like["spec"], "nodeName": "n2"}})
            scene.ready(name)
        scene.becomes(phase="Succeeded", conditions=EVICTED)

    scene = build()
    one = scene.move()
    scene.follow(one, steps=[evicts], settings=DIRECTLY, within=10)
    assert one.pod
    assert (one.outcome, one.new_pod) == ("not_ready", None)
    assert one.message == f"Job {JOB} evicted {one.target}; no new pod of {one.pod.owner} is ready."


@pytest.mark.parametrize("paused", [True, False])
def test_a_paused_job_that_is_deleted_may_have_come_of_age(build: Build, paused: bool) -> None:
    def deletes(scene: Scene) -> None:
        scene.world.delete(kinds.PODMIGRATIONJOBS, JOB)

    scene = build()
    one = scene.move()
    scene.follow(one, steps=[nothing, deletes], settings=JobSettings(paused=paused))
    assert one.outcome == "deleted"
    assert ("a paused one is deleted five minutes after its ttl" in one.message) == paused


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({"phase": "Failed", "reason": "Timeout", "message": "too slow"}, "has failed (Timeout): too slow"),
        ({"phase": "Failed", "message": "odd"}, "has failed: odd"),
        ({"phase": "Failed"}, "was rejected."),
        ({"phase": "Succeeded"}, "has already moved Pod shop/web-"),
    ],
)
def test_a_job_that_had_ended_before_is_said_to(build: Build, status: t.Any, message: str) -> None:
    scene = made(build(), False, **status)
    one = existing(scene)
    started(scene, one)
    assert one.message.startswith(f"Job {JOB} {message}")


# -- without waiting -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paused", "there", "outcome", "message"),
    [
        (False, False, "created", "moves"),
        (True, False, "paused", "waits for approval to move"),
        (False, True, "exists", "moves"),
        (True, True, "paused", "waits for approval to move"),
    ],
)
def test_who_does_not_wait_is_told_what_the_job_will_do(
    build: Build, paused: bool, there: bool, outcome: str, message: str
) -> None:
    scene = build()
    one = existing(made(scene, paused)) if there else scene.move()
    ctx = started(scene, one, paused=False if there else paused, ttl=0.0)
    assert (one.outcome, one.message) == (outcome, f"Job {JOB} {message} {one.target}.")
    how = "ReservationFirst, paused" if paused else "ReservationFirst"
    assert told(ctx) == ([] if there else [f"job {JOB} created ({how})"])
    sentences = [] if there else [f"Create PodMigrationJob {JOB} for {one.target} ({how})"]
    assert [change.sentence for change in ctx.changes] == sentences


def test_check_mode_announces_no_job(build: Build) -> None:
    scene = build()
    ctx = started(scene, scene.move(), check=True)
    assert (told(ctx), len(ctx.changes)) == ([], 1)


# -- the result ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ended", "seconds"),
    [
        ("2026-01-01T00:00:10.260000Z", 10.3),
        ("2026-01-01T00:00:00Z", 0.0),
        ("2025-12-31T23:59:58Z", 0.0),
        ("", None),
    ],
)
def test_how_long_a_job_took_is_never_less_than_nothing(build: Build, ended: str, seconds: float | None) -> None:
    """Its beginning is by the server's clock, and its end by ours."""
    one = existing(made(build(), False))
    assert one.job
    one.job, one.ended = replace(one.job, created="2026-01-01T00:00:00Z"), ended
    assert one.to_dict()["seconds"] == seconds


def test_a_move_without_a_job_says_nothing_of_one(build: Build) -> None:
    shown = build().move().to_dict()
    assert (shown["ttl"], shown["phase"], shown["paused"], shown["seconds"]) == (0.0, "", False, None)
