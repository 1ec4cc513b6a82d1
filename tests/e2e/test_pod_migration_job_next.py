# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PodMigrationJobs under Koordinator v1.8.0, where it differs: no events, and gates in its configuration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.arena import Arena
from support.jobs import Jobs, job_of, move
from support.koordinator import configured, migration_args
from support.lab import Lab
from support.plays import Player
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
