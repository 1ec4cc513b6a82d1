# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs approved, rejected and removed, as soon as they may be written, and what that came to."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.migration_jobs import (
    Job,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs.job_decisions import (
    Decision,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs.job_writes import approve
from ansible_collections.kubeops.node_maintenance.tests.unit.run.job_cluster import becomes, writes
from ansible_collections.kubeops.node_maintenance.tests.unit.run.job_moving import (
    EVICTED,
    JOB,
    Build,
    Scene,
    decided,
    made,
    nothing,
    scenes,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.object_rules import seconds_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw


@pytest.fixture
def build() -> t.Iterator[Build]:
    with scenes() as made:
        yield made


def passes(scene: Scene) -> None:
    assert writes(scene.world, "me") == [], "it is not written before"
    scene.becomes()


@pytest.mark.parametrize(
    ("decision", "outcome", "written"),
    [
        ("approved", "approved", ["patch podmigrationjobs"]),
        ("rejected", "rejected", ["patch podmigrationjobs/status"]),
        ("absent", "absent", ["patch podmigrationjobs/status", "delete podmigrationjobs"]),
    ],
)
def test_a_paused_job_is_decided_on_once_it_has_passed(
    build: Build, decision: Decision, outcome: str, written: list[str]
) -> None:
    scene = made(build(), True)
    assert decided(scene, decision, [passes]).outcome == outcome
    assert writes(scene.world, "me") == [f"{what} {JOB}" for what in written]


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize(
    ("decision", "paused"),
    [("approved", True), ("rejected", True), ("rejected", False), ("absent", True), ("absent", False)],
)
def test_a_job_that_never_passes_is_not_written(build: Build, decision: Decision, wait: bool, paused: bool) -> None:
    scene = made(build(), paused)
    assert decided(scene, decision, wait=wait).outcome == "still_waiting"
    assert writes(scene.world, "me") == []


@pytest.mark.parametrize("decision", ["approved", "rejected", "absent"])
def test_check_mode_writes_nothing(build: Build, decision: Decision) -> None:
    scene = made(build(), True)
    assert decided(scene, decision, check=True).outcome == decision
    assert writes(scene.world, "me") == []


def test_a_job_that_is_not_paused_is_rejected_as_soon_as_it_has_passed(build: Build) -> None:
    scene = made(build(), False)
    assert decided(scene, "rejected", [nothing, nothing, passes]).outcome == "rejected"
    assert scene.job()["status"]["phase"] == "Failed"
    assert writes(scene.world, "me") == [f"patch podmigrationjobs/status {JOB}"]


@pytest.mark.parametrize(
    ("status", "decision", "outcome"),
    [
        ({"phase": "Succeeded"}, "approved", "already_moved"),
        ({"phase": "Failed", "reason": "Timeout"}, "approved", "failed"),
        ({"phase": "Running"}, "approved", "already_approved"),
        ({"phase": "Succeeded"}, "rejected", "too_late"),
        ({"phase": "Running", "conditions": EVICTED}, "rejected", "too_late"),
        ({"phase": "Failed", "reason": "Timeout"}, "rejected", "already_rejected"),
        ({"phase": "Running", "conditions": EVICTED}, "absent", "still_waiting"),
        ({"phase": "Succeeded"}, "absent", "absent"),
    ],
)
def test_decisions_on_jobs_that_are_further(build: Build, status: Raw, decision: Decision, outcome: str) -> None:
    assert decided(made(build(), False, **status), decision).outcome == outcome


def test_an_approved_job_has_its_whole_ttl_from_then_on_also_against_rivals(build: Build) -> None:
    scene = made(build(), True, phase="")
    scene.machine.run_for(100.0)
    me, rivals = scene.world.process("me"), iter(range(2))

    def first(request: Request) -> bool:
        if request.writes and (number := next(rivals, None)) is not None:
            becomes(scene.world, JOB, annotations={"rival": str(number)})
        return False

    me.faults.when(first, Fault("late"))
    ctx = me.ctx()
    me.run(lambda _ctx: approve(ctx, Job.of(scene.job())))
    assert [sent.status for sent in scene.world.log if sent.request.writes and sent.process == "me"] == [409, 409, 200]
    spec, since = scene.job()["spec"], seconds_of(scene.job()["metadata"]["creationTimestamp"])
    assert spec["paused"] is False
    assert float(spec["ttl"].removesuffix("s")) == pytest.approx(300 + scene.machine.now - since, abs=1.0)
    assert len(ctx.changes) == 1


def test_a_job_that_evicted_its_pod_while_it_was_rejected_was_too_late(build: Build) -> None:
    scene = made(build(), False, phase="Running")
    scene.machine.after(0.5, scene.vanishes, "the eviction that was on its way")
    assert decided(scene, "rejected").outcome == "too_late"
