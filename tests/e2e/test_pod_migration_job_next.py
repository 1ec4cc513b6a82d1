# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PodMigrationJobs under Koordinator v1.8.0, where it differs: no events, and gates in its configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.arena import Arena
from support.jobs import Jobs, job_of, move
from support.koordinator import configured, migration_args
from support.lab import Lab
from support.plays import Player
from support.waiting import steadily, until
from witness import objects as o
from witness.log import Json


@pytest.fixture(scope="module")
def lab(koord_next: Lab) -> Lab:
    return koord_next


@pytest.fixture
def jobs(arena: Arena) -> Iterator[Jobs]:
    made = Jobs(arena.api, arena)
    try:
        yield made
    finally:
        made.clear()


def skip_replicas(config: Json) -> None:
    migration_args(config)["skipEvictionGates"] = ["ExpectedReplicas"]


@pytest.mark.whole
def test_a_move_without_events_and_a_single_replica(lab: Lab, arena: Arena, jobs: Jobs, play: Player) -> None:
    arena.nodes(3)
    web, alone, db = jobs.deployment("web"), jobs.deployment("alone", 1), jobs.statefulset("db")
    arena.settle()
    pods = {one.name: jobs.named(one, uid=True) for one in (web, alone, db)}
    run = move(play, *pods.values(), ttl="60s")
    assert not run.ok
    for name in ("web", "db"):
        job = job_of(run, pods[name])
        assert (job["outcome"], job["phase"], job["status"]) == ("moved", "Succeeded", "Complete"), run.text
        assert job["node"] not in ("", job["pod"]["node"])
        assert job["events"] == [], "this version makes none"
    assert job_of(run, pods["alone"])["cause"]["code"] == "single_replica"

    with configured(lab, skip_replicas):
        run = move(play, pods["alone"], ttl="60s")
    assert run.ok, run.text
    assert job_of(run)["outcome"] == "moved"


@pytest.mark.whole
def test_skip_eviction_gates_admit_a_batch_jobs_pod_only_with_all_three_that_count_replicas(
    lab: Lab, arena: Arena, jobs: Jobs, play: Player
) -> None:
    (here,) = arena.nodes(1)
    batch = arena.job("batch", here)
    until(lambda: batch.pods() and o.ready(batch.pods()[0]), 30, "the batch Job's pod runs")
    pod = jobs.named(batch, uid=True)
    gates = ["ExpectedReplicas", "MaxMigratingPerWorkload", "MaxUnavailablePerWorkload"]

    def skipping(*names: str) -> Callable[[Json], None]:
        return lambda config: migration_args(config).update(skipEvictionGates=list(names))

    with configured(lab, skipping(*gates[:2])):
        run = move(play, pod, mode="EvictDirectly")
        assert job_of(run)["cause"]["code"] == "unknown_workload", run.text
        held = jobs.by_hand("held", pod, mode="EvictDirectly")
        steadily(lambda: not jobs.passed(held) and jobs.phase(held) == "", 5, "arbitration holds it")
        jobs.clear()
    with configured(lab, skipping(*gates)):
        run = move(play, pod, mode="EvictDirectly", ttl="60s")
        assert job_of(run)["phase"] == "Succeeded", run.text
