# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a drain makes its jobs: how fast, after which pauses, and for whom none."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import run_starter
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import jobs_of, still_world
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_feeding import LIMITS, Scene


@pytest.fixture
def world() -> t.Iterator[World]:
    with still_world() as made:
        yield made


def made_at(scene: Scene, seconds: float) -> list[float]:
    """When jobs were asked for, in seconds from now; looked at four times a second."""
    began = scene.world.machine.now
    for _tick in range(int(seconds * 4)):
        scene.step(0.25)
    return [
        round(sent.arrived - began, 1) for sent in scene.world.log if sent.request.method == "POST" and sent.arrived
    ]


@pytest.mark.parametrize(("per_second", "apart"), [(0.5, 2.0), (10.0, 0.0)])
def test_jobs_are_made_as_fast_as_the_controller_evicts(world: World, per_second: float, apart: float) -> None:
    scene = Scene(world, 2, controller=replace(LIMITS, evict_qps=per_second))
    first, second = made_at(scene, 4.0)
    assert second - first == pytest.approx(apart, abs=0.3)


@pytest.mark.parametrize(("what", "pause"), [("throttled", 1.0), ("throttled with time", 2.0)])
def test_a_server_that_cannot_make_a_job_is_asked_again_after_a_pause(world: World, what: t.Any, pause: float) -> None:
    scene = Scene(world, 1)
    scene.me.faults.when(lambda request: request.method == "POST", Fault(what), times=run_starter.MAX_TRIES)
    looks: list[tuple[float, int]] = []
    while not jobs_of(world):
        scene.step(0.25)
        looks.append((world.machine.now, len(scene.me.faults.met)))
    refused = next(at for at, met in looks if met == run_starter.MAX_TRIES)
    assert pause <= looks[-1][0] - refused <= pause + 0.6


@pytest.mark.parametrize(("other", "route"), [("other", "evict"), (names.guard_name("uid-ReplicaSet-web"), "job")])
def test_a_pod_with_two_budgets_gets_no_job_and_waits_only_for_the_end_of_ours(
    world: World, other: str, route: str
) -> None:
    scene = Scene(world, 1)
    rule = {"maxUnavailable": 1}
    scene.budgets = [objects.budget(name, 2, healthy=9, desired=5, rule=rule) for name in ("web", other)]
    for _tick in range(3):
        scene.step()
    assert (jobs_of(world), scene.moves[0].plan.route) == ({}, route)
