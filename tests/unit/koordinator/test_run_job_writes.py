# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which PodMigrationJob may be written in which of its states, and what becomes of its Reservation."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import run_job_writes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import (
    EVICT,
    Job,
    JobSettings,
    manifest,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import (
    becomes,
    jobs_of,
    put,
    reserve,
    still_world,
    writes,
)

EVICTING = [{"type": "Eviction", "status": "False"}]
PATCH, STATUS = "patch podmigrationjobs a", "patch podmigrationjobs/status a"
FREED = "delete reservations a"


@pytest.fixture
def world() -> t.Iterator[World]:
    with still_world() as made:
        yield made


def a_job(world: World, *, paused: bool = False, ttl: str = "", **status: t.Any) -> Job:
    """Job `a`, as far as its status says."""
    made = manifest("a", Ref("Pod", "a", "shop", "uid-a", "v1"), JobSettings())
    spec = {**made["spec"], "paused": paused}
    spec.pop("ttl", None)
    put(world, {**made, "spec": {**spec, **({"ttl": ttl} if ttl else {})}}, **status)
    return now(world)


def now(world: World) -> Job:
    return Job.of(jobs_of(world)["a"])


def does(world: World, write: t.Callable[[Context], t.Any], *, check: bool = False) -> t.Any:
    me = world.process("me")
    ctx = me.ctx(check=check)
    return me.run(lambda _ctx: write(ctx))


STATES = [
    pytest.param({"passed": True}, True, id="passed"),
    pytest.param({"passed": True, "phase": "Running"}, True, id="running"),
    pytest.param({}, False, id="waits for arbitration"),
    pytest.param({"passed": True, "paused": True}, False, id="a person has yet to approve it"),
    pytest.param({"passed": True, "phase": "Succeeded"}, False, id="succeeded"),
    pytest.param({"passed": True, "phase": "Failed"}, False, id="failed"),
]


@pytest.mark.parametrize(("state", "may"), STATES)
@pytest.mark.parametrize("exempt", [False, True])
def test_a_job_is_annotated_once_it_passed_and_until_it_ends(world: World, exempt: bool, state: Raw, may: bool) -> None:
    job = a_job(world, **state)
    does(world, lambda ctx: run_job_writes.remind(ctx, job, exempt=exempt))
    assert writes(world) == ([PATCH] if may else [])
    key = EVICT if exempt else run_job_writes.REMINDED
    assert (key in now(world).annotations) is may


def test_a_job_is_exempt_once(world: World) -> None:
    job = a_job(world, passed=True, phase="Running")
    becomes(world, "a", annotations={EVICT: "true"})
    does(world, lambda ctx: run_job_writes.remind(ctx, job, exempt=True))
    assert writes(world) == []
    becomes(world, "a", annotations={EVICT: "false"})
    does(world, lambda ctx: run_job_writes.remind(ctx, job, exempt=True))
    assert (writes(world), now(world).annotations[EVICT]) == ([PATCH], "true")


@pytest.mark.parametrize(
    ("paused", "phase", "may"),
    [(True, "", True), (False, "", False), (True, "Failed", False), (False, "Succeeded", False)],
)
def test_a_paused_job_is_approved_until_it_ends(world: World, paused: bool, phase: str, may: bool) -> None:
    job = a_job(world, paused=paused, passed=True, **({"phase": phase} if phase else {}))
    does(world, lambda ctx: run_job_writes.approve(ctx, job))
    assert writes(world) == ([PATCH] if may else [])
    assert now(world).paused is (paused and not may)


@pytest.mark.parametrize(("ttl", "later"), [("5m0s", 400.0), ("", 0.0)], ids=["its whole ttl from now on", "none"])
def test_an_approved_job_has_its_whole_ttl_from_then_on(world: World, ttl: str, later: float) -> None:
    job = a_job(world, paused=True, ttl=ttl, passed=True)
    began = world.machine.now
    world.machine.run_for(100.0 - (world.machine.now - began))
    does(world, lambda ctx: run_job_writes.reread(ctx, "a"))
    does(world, lambda ctx: run_job_writes.approve(ctx, job))
    assert now(world).ttl == pytest.approx(later, abs=1.0)


@pytest.mark.parametrize(
    ("state", "may"),
    [
        pytest.param({}, True, id="waiting"),
        pytest.param({"passed": True, "phase": "Running"}, True, id="running"),
        pytest.param({"passed": True, "phase": "Running", "conditions": EVICTING}, False, id="its pod is evicted"),
        pytest.param({"passed": True, "phase": "Failed"}, False, id="ended"),
    ],
)
def test_a_job_is_rejected_until_it_evicts_its_pod(world: World, state: Raw, may: bool) -> None:
    job = a_job(world, **state)
    does(world, lambda ctx: run_job_writes.reject(ctx, job, "because"))
    assert (STATUS in writes(world)) is may
    assert (now(world).message == "because") is may


def reserved(world: World, taken: bool = False) -> None:
    """The job's Reservation `a`."""
    reserve(world, "a")
    if taken:
        world.patch(kinds.RESERVATIONS, "a", {"status": {"currentOwners": [{"name": "x"}]}}, subresource="status")


def reserving(**more: t.Any) -> Raw:
    return {"passed": True, "phase": "Running", **more}


@pytest.mark.parametrize(("taken", "freed"), [(False, True), (True, False)])
def test_a_reservation_that_no_pod_has_taken_goes_with_its_rejected_job(world: World, taken: bool, freed: bool) -> None:
    job = a_job(world, **reserving())
    world.patch(kinds.PODMIGRATIONJOBS, "a", {"spec": {"reservationOptions": {"reservationRef": {"name": "a"}}}})
    reserved(world, taken)
    does(world, lambda ctx: run_job_writes.reject(ctx, job, "because"))
    assert (FREED in writes(world)) is freed


def test_a_reservation_that_the_job_does_not_name_yet_has_the_name_of_its_uid(world: World) -> None:
    job = a_job(world, **reserving())
    reserve(world, job.uid)
    does(world, lambda ctx: run_job_writes.reject(ctx, job, "because"))
    assert f"delete reservations {job.uid}" in writes(world)


@pytest.mark.parametrize(
    ("phase", "check", "freed"),
    [("Failed", False, True), ("Succeeded", False, False), ("Failed", True, False)],
    ids=["failed", "its pod has it", "check mode"],
)
def test_a_reservation_goes_with_the_job_that_left_it(world: World, phase: str, check: bool, freed: bool) -> None:
    a_job(world, passed=True, phase=phase)
    world.patch(kinds.PODMIGRATIONJOBS, "a", {"spec": {"reservationOptions": {"reservationRef": {"name": "a"}}}})
    reserved(world)
    job = now(world)
    does(world, lambda ctx: run_job_writes.let_go(ctx, job, "because"), check=check)
    assert (FREED in writes(world)) is freed


def test_a_reservation_that_is_gone_needs_nothing(world: World) -> None:
    does(world, lambda ctx: run_job_writes.free(ctx, "a"))
    assert writes(world) == []


def test_a_namesake_is_never_written(world: World) -> None:
    job = a_job(world, passed=True, paused=True)
    world.delete(kinds.PODMIGRATIONJOBS, "a")
    a_job(world, passed=True, paused=True)
    assert does(world, lambda ctx: run_job_writes.approve(ctx, job)) is None
    for exempt in (False, True):
        does(world, lambda ctx, exempt=exempt: run_job_writes.remind(ctx, job, exempt=exempt))  # type: ignore[misc]
    assert does(world, lambda ctx: run_job_writes.reject(ctx, job, "because")) is None
    assert writes(world) == []


def test_a_job_is_let_go_by_its_end_and_then_its_deletion(world: World) -> None:
    job = a_job(world, passed=True, phase="Running")
    does(world, lambda ctx: run_job_writes.let_go(ctx, job, "because"))
    assert writes(world) == [STATUS, "delete podmigrationjobs a"]
    assert jobs_of(world) == {}


def test_a_job_that_ended_is_only_deleted(world: World) -> None:
    job = a_job(world, passed=True, phase="Failed")
    does(world, lambda ctx: run_job_writes.let_go(ctx, job, "because"))
    assert writes(world) == ["delete podmigrationjobs a"]
