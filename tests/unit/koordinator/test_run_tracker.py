# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a job is still there, which the watch shows late or never."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import run_tracker
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import (
    Job,
    JobSettings,
    manifest,
    ref_of,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import jobs_of, put, still_world

POD = Ref("Pod", "a", "shop", "uid-a", "v1")


@pytest.fixture
def world() -> t.Iterator[World]:
    with still_world() as made:
        yield made


def states(world: World, *, there: bool, seen: bool = False) -> list[str]:
    """Of a job that the watch does not show: at once, and when it is taken not to be seen any more."""
    if there:
        put(world, manifest("a", POD, JobSettings()))

    def follow(ctx: Context) -> list[str]:
        track = run_tracker.TrackedJob(POD, name="a", seen=seen, looked=ctx.clock.now())
        tracker, found = run_tracker.JobTracker(ctx), list[str]()
        for _look in range(3):
            found.append(tracker.follow(track, {}, Snapshot()))
            ctx.clock.sleep(run_tracker.UNSEEN_SECONDS)
        return found

    return list(world.process("me").run(follow))


@pytest.mark.parametrize(
    ("there", "seen", "expected"),
    [
        pytest.param(True, False, ["unseen", "unseen", "unseen"], id="the watch is late"),
        pytest.param(False, False, ["unseen", "deleted", "deleted"], id="it is gone before the watch has shown it"),
        pytest.param(False, True, ["deleted", "deleted", "deleted"], id="the watch has shown it, and its end"),
    ],
)
def test_a_job_that_the_watch_does_not_show_is_read(world: World, there: bool, seen: bool, expected: list[str]) -> None:
    assert states(world, there=there, seen=seen) == expected


def test_a_job_that_cannot_be_read_is_not_taken_to_be_gone(world: World) -> None:
    world.server.denied.add(("get", kinds.PODMIGRATIONJOBS.resource))
    assert states(world, there=False) == ["unseen", "unseen", "unseen"]


def test_a_job_of_that_name_for_another_pod_is_not_ours(world: World) -> None:
    put(world, manifest("a", POD, JobSettings()))
    other = run_tracker.TrackedJob(Ref("Pod", "b", "shop", "uid-b", "v1"), name="a")
    mine = run_tracker.TrackedJob(POD, name="a")

    def create(ctx: Context) -> None:
        tracker = run_tracker.JobTracker(ctx)
        change = Change("create", ref_of("a"), "create", manifest("a", POD, JobSettings()))
        tracker.create(mine, change)
        with pytest.raises(run_tracker.NameTaken):
            tracker.create(other, change)

    world.process("me").run(create)
    assert mine.job == Job.of(jobs_of(world)["a"])
    assert other.job is None
