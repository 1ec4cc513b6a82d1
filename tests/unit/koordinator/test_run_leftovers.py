# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that drains of earlier runs left, on a simulated cluster: who made them, and which are given up."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    run_dispatcher,
    run_leftovers,
    run_starter,
    run_tracker,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import (
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
    still_world,
    writes,
)

EVICTING = [{"type": "Eviction", "status": "False"}]


def job(name: str, node: str = "n1", run: str = "r1") -> Raw:
    made = manifest(name, Ref("Pod", name, "shop", f"uid-{name}", "v1"), JobSettings(run=run))
    if node:
        made["metadata"]["annotations"][names.SERVES_NODES] = node
    return made


@pytest.fixture
def world() -> t.Iterator[World]:
    with still_world() as made:
        yield made


def test_jobs_of_drains_are_traces_and_those_of_people_are_not(world: World) -> None:
    put(world, job("a"), phase="Succeeded")
    put(world, job("b", node=""))
    [trace] = world.process("me").run(run_leftovers.traces)
    assert (trace.run, str(trace.object), trace.nodes) == ("r1", "PodMigrationJob a", ("n1",))
    assert trace.what == "a PodMigrationJob of a drain, which has succeeded"
    assert trace.since == jobs_of(world)["a"]["metadata"]["creationTimestamp"]


def test_where_there_is_no_koordinator_nothing_is_left() -> None:
    with World() as world:
        assert world.process("me").run(run_leftovers.traces) == ()
        assert [sent.status for sent in world.log] == [404]


def test_who_may_not_list_jobs_finds_none(world: World) -> None:
    put(world, job("a"))
    world.server.denied.add(("list", kinds.PODMIGRATIONJOBS.resource))
    assert world.process("me").run(run_leftovers.traces) == ()


def test_of_a_job_that_waits_only_its_end_is_awaited(world: World) -> None:
    """And one that somebody deletes meanwhile has ended, whereas one that was never seen may still appear."""
    for name in ("waits", "ended"):
        put(world, job(name))
    tracks = {
        name: run_starter.InFlightJob(Ref("Pod", name), name=name, abandoned="why") for name in ("waits", "unseen")
    }
    tracks["kept"] = run_starter.InFlightJob(Ref("Pod", "ended"), name="ended")

    def run(ctx: Context) -> list[list[str]]:
        jobs = run_dispatcher.AbandonedJobs(ctx, run_tracker.JobTracker(ctx), tracks)
        found = {name: Job.of(raw) for name, raw in jobs_of(world).items()}
        return [[one.name for one in jobs.end(seen)] for seen in (found, {}, {})]

    assert world.process("me").run(run) == [["waits", "unseen"], ["unseen"], ["unseen"]]
    assert [tracks[name].over for name in ("waits", "unseen", "kept")] == [True, False, False]
    assert writes(world) == []


def test_only_what_serves_nobody_any_more_is_given_up(world: World) -> None:
    put(world, job("ended"), phase="Succeeded")
    put(world, job("passed"), passed=True)
    put(world, job("waits"))
    put(world, job("never"))
    put(world, job("leaves"), phase="Running", conditions=EVICTING)
    put(world, {**job("asks"), "spec": {**job("asks")["spec"], "paused": True}}, passed=True)
    put(world, job("other", run="r2"))
    put(world, job("out", node="n2"))
    seen: list[Raw] = []
    world.machine.after(2.0, lambda: becomes(world, "waits", passed=True), "arbitration")
    world.on_event.append(lambda event: seen.append(event.raw) if event.what == "MODIFIED" else None)
    world.process("me").run(lambda ctx: run_leftovers.give_up(ctx, "r1", {"n2"}))
    assert writes(world) == [
        "delete podmigrationjobs ended",
        "patch podmigrationjobs/status passed",
        "delete podmigrationjobs passed",
        "patch podmigrationjobs/status waits",
        "delete podmigrationjobs waits",
    ]
    assert {sent.status for sent in world.log if sent.request.writes} == {200}
    phases = [raw["status"].get("phase") for raw in seen]
    assert phases == ["Failed", None, "Failed"], "each is ended before it is deleted"
    assert sorted(jobs_of(world)) == ["asks", "leaves", "never", "other", "out"], "what may not be written stays"
