# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs made and followed, on a simulated cluster.

No controller moves there: what they would do is said by each test; the real ones are asked on the lab.
"""

from __future__ import annotations

import functools
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.causes import GONE_SECONDS
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import (
    EVICT,
    Job,
    JobSettings,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_job_moves import JobMove
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_job_writes import REMINDED
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_tracker import SILENT_SECONDS
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import jobs_of, reserve, writes
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_moving import (
    ARRIVED,
    EVICTED,
    JOB,
    Build,
    Scene,
    nothing,
    scenes,
    succeeds,
)


@pytest.fixture
def build() -> t.Iterator[Build]:
    with scenes() as made:
        yield made


def test_a_pod_is_moved(build: Build) -> None:
    scene = build()
    one = scene.move()
    ctx = scene.follow(one, steps=[succeeds])
    assert one.outcome == "moved"
    assert "to node n2: Pod shop/web-3" in one.message
    assert writes(scene.world) == [f"create podmigrationjobs {JOB}"]
    assert len(ctx.changes) == 1
    assert [event.message for event in ctx.timeline][-1] == f"job {JOB} has succeeded"
    assert one.to_dict()["new_pod"] == {**ARRIVED, "node": "n2"}


def test_a_second_pod_of_the_workload_gets_its_job_when_the_first_has_moved(build: Build) -> None:
    seen: list[int] = []

    def first(scene: Scene) -> None:
        seen.append(len(jobs_of(scene.world)))
        scene.vanishes()
        scene.becomes(phase="Succeeded", podRef=scene.arrives("web-3"), conditions=EVICTED)

    def second(scene: Scene) -> None:
        arrived = {**ARRIVED, "name": "web-4", "uid": "4"}
        scene.becomes("job-2", phase="Succeeded", podRef=arrived, conditions=EVICTED)

    scene = build()
    moves = scene.move(), scene.move(2)
    scene.follow(*moves, steps=[first, nothing, second])
    assert seen == [1], "a limit of one lets one job be made"
    assert [one.outcome for one in moves] == ["moved", "moved"]


def test_a_job_that_somebody_deleted_holds_no_place_of_its_workload(build: Build) -> None:
    def deletes(scene: Scene) -> None:
        scene.world.delete(kinds.PODMIGRATIONJOBS, JOB)

    scene = build()
    moves = scene.move(), scene.move(2)
    starts = functools.partial(Scene.becomes, phase="Running")
    ends = functools.partial(Scene.becomes, name="job-2", phase="Succeeded", podRef=ARRIVED, conditions=EVICTED)
    scene.follow(*moves, steps=[starts, deletes, nothing, ends])
    assert [one.outcome for one in moves] == ["deleted", "moved"]


def test_a_job_that_ends_without_a_new_pod_waits_for_one_that_is_ready(build: Build) -> None:
    def evicts(scene: Scene) -> None:
        scene.vanishes()
        scene.arrives("web-3", ready=False)
        scene.becomes(phase="Succeeded", conditions=EVICTED)

    scene = build()
    one = scene.move()
    scene.follow(one, steps=[evicts, lambda scene: scene.ready("web-3")], settings=JobSettings("EvictDirectly"))
    assert one.outcome == "moved"
    assert one.new_pod
    assert one.new_pod.name == "web-3"

    scene = build()
    one = scene.move()
    scene.follow(one, steps=[evicts], settings=JobSettings("EvictDirectly"), within=10)
    assert one.outcome == "not_ready"


def test_a_job_whose_pod_vanished_is_ended_and_its_place_given_back(build: Build) -> None:
    at: list[float] = []

    def replaced(scene: Scene) -> None:
        reserve(scene.world, "r")
        body = {"spec": {"reservationOptions": {"reservationRef": {"name": "r"}}}}
        scene.world.patch(kinds.PODMIGRATIONJOBS, JOB, body)
        scene.becomes(phase="Running", nodeName="n2")
        scene.vanishes()
        scene.arrives(scene.pods[0]["metadata"]["name"])
        at.append(scene.machine.now)

    scene = build(stateful=True)
    one = scene.move()
    scene.follow(one, steps=[replaced])
    assert one.outcome == "gone"
    assert not one.failed
    assert scene.machine.now - at[0] >= GONE_SECONDS
    assert scene.job()["status"]["reason"] == "Rejected"
    assert scene.world.find(kinds.RESERVATIONS, "r") is None


def test_a_paused_job_whose_pod_vanished_is_somebody_s_and_stays(build: Build) -> None:
    def starts(scene: Scene) -> None:
        scene.becomes(phase="Running")
        scene.world.patch(kinds.PODMIGRATIONJOBS, JOB, {"spec": {"paused": True}})
        scene.vanishes()

    scene = build()
    one = scene.move()
    scene.follow(one, steps=[starts])
    assert (one.outcome, one.failed) == ("gone", False)
    assert scene.job()["status"] == {"phase": "Running"}


def test_a_job_that_failed_because_its_pod_had_gone_is_no_failure(build: Build) -> None:
    def fails(scene: Scene) -> None:
        scene.vanishes()
        scene.becomes(phase="Failed", reason="MissingPod")

    scene = build()
    one = scene.move()
    scene.follow(one, steps=[fails])
    assert (one.outcome, one.failed) == ("gone", False)


def test_the_job_of_a_pod_that_keeps_its_name_is_freed_of_the_limiter_once_it_has_evicted(build: Build) -> None:
    def evicts(scene: Scene) -> None:
        assert EVICT not in scene.job()["metadata"]["annotations"]
        scene.vanishes()
        scene.becomes(phase="Running", conditions=EVICTED)

    def ends(scene: Scene) -> None:
        scene.becomes(phase="Succeeded", nodeName="n2", podRef=ARRIVED)

    scene = build(stateful=True)
    one = scene.move()
    scene.follow(one, steps=[evicts, nothing, ends])
    assert one.outcome == "moved"
    assert scene.job()["metadata"]["annotations"][EVICT] == "true"


def test_a_job_on_which_nothing_happens_is_woken(build: Build) -> None:
    scene = build()
    scene.follow(scene.move(), steps=[lambda scene: scene.becomes(phase="Running")], within=SILENT_SECONDS * 2.5)
    assert REMINDED in scene.job()["metadata"]["annotations"]


def test_a_reminder_that_is_refused_ends_nothing_else(build: Build) -> None:
    scene = build()
    one = scene.move()
    scene.world.process("me").faults.when(lambda request: request.method == "PATCH", Fault("forbidden"), times=4)
    ctx = scene.follow(one, steps=[lambda scene: scene.becomes(phase="Running")], within=SILENT_SECONDS * 2.5)
    assert one.outcome == "timeout"
    assert any("could not be reminded" in event.message for event in ctx.timeline)


def test_a_job_that_names_no_uid_is_about_the_pod_that_its_controller_fills_in(build: Build) -> None:
    def starts(scene: Scene) -> None:
        scene.world.patch(kinds.PODMIGRATIONJOBS, JOB, {"spec": {"podRef": {"uid": uid}}})
        scene.becomes(phase="Running")

    scene = build()
    uid = scene.pods[0]["metadata"]["uid"]
    kind = {"apiVersion": kinds.PODMIGRATIONJOBS.api_version, "kind": kinds.PODMIGRATIONJOBS.kind}
    pod = {"namespace": scene.pods[0]["metadata"]["namespace"], "name": scene.pods[0]["metadata"]["name"]}
    scene.world.apply({**kind, "metadata": {"name": JOB}, "spec": {"podRef": pod}})
    job = Job.of(scene.job())
    one = JobMove(job.pod, name=JOB, job=job, state="following")
    scene.follow(one, steps=[starts, *[nothing] * int(GONE_SECONDS * 2), succeeds])
    assert one.outcome == "moved"


@pytest.mark.parametrize("paused", [False, True])
def test_a_job_that_waits_for_arbitration_is_never_written(build: Build, paused: bool) -> None:
    scene = build()
    one = scene.move()
    scene.follow(one, settings=JobSettings(paused=paused), within=SILENT_SECONDS * 2.5)
    assert writes(scene.world) == [f"create podmigrationjobs {JOB}"]
    assert one.outcome == "timeout"
    assert one.cause
    assert one.cause.code == "not_arbitrated"


@pytest.mark.parametrize(("there", "outcome"), [(True, "deleted"), (False, "gone")])
def test_a_job_that_somebody_deletes(build: Build, there: bool, outcome: str) -> None:
    def deletes(scene: Scene) -> None:
        scene.world.delete(kinds.PODMIGRATIONJOBS, JOB)
        if not there:
            scene.vanishes()

    scene = build()
    one = scene.move()
    scene.follow(one, steps=[lambda scene: scene.becomes(phase="Running"), deletes])
    assert one.outcome == outcome


def test_a_failed_job_says_why(build: Build) -> None:
    scene = build()
    one = scene.move()
    scene.follow(one, steps=[lambda scene: scene.becomes(phase="Failed", reason="ForbiddenMigratePod")])
    assert (one.outcome, one.failed) == ("failed", True)
    assert one.to_dict()["cause"]["code"] == "forbidden"


FAULTS: list[What] = ["lost", "in doubt", "conflict", "throttled", "error"]


@pytest.mark.parametrize("what", FAULTS)
def test_a_job_is_made_once_whatever_the_first_answer_was(build: Build, what: What) -> None:
    scene = build()
    one = scene.move()
    scene.world.process("me").faults.when(lambda request: request.method == "POST", Fault(what))
    ctx = scene.follow(one, steps=[nothing, nothing, nothing, succeeds])
    assert one.outcome == "moved"
    assert [change.verb for change in ctx.changes] == ["create"]


@pytest.mark.parametrize(("uid", "outcome"), [("", "moved"), ("other", "failed")])
def test_a_job_of_that_name_for_this_pod_is_adopted_and_another_is_not(build: Build, uid: str, outcome: str) -> None:
    scene = build()
    one = scene.move()
    pod = {"namespace": one.target.namespace, "name": one.target.name, "uid": uid or one.target.uid}
    kind = {"apiVersion": kinds.PODMIGRATIONJOBS.api_version, "kind": kinds.PODMIGRATIONJOBS.kind}
    scene.world.apply({**kind, "metadata": {"name": JOB}, "spec": {"podRef": pod}})
    scene.follow(one, steps=[succeeds])
    assert one.outcome == outcome
