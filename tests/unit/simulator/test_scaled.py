# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A single pod under a HorizontalPodAutoscaler, which no surge changes, and its owner who raises its minimum."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


def single(kind: str) -> Raw:
    return manifests.deployment("web", 1) if kind == "Deployment" else manifests.replica_set("web", 1)


@pytest.fixture(params=["Deployment", "ReplicaSet"])
def scaled(request: pytest.FixtureRequest) -> t.Iterator[World]:
    scaler = manifests.autoscaler("web", 1, 4, load=1)
    scaler["spec"]["scaleTargetRef"]["kind"] = request.param
    with World([manifests.node("n1"), single(request.param), manifests.service("web"), scaler]) as world:
        world.settle()
        world.apply(manifests.node("n2"))

        def look() -> None:
            assert world.serving("web") >= 1, f"dark at {world.machine.now}"

        world.machine.on_step.append(look)
        yield world


def run(world: World) -> Outcome:
    me = world.process("me")
    task = me.spawn(lambda: maintain(me, Input(("n1",), gates=("ready",), timeout=60.0)))
    world.machine.run_until(lambda: not task.alive, within=600.0)
    outcome: Outcome = task.value()
    return outcome


def test_a_surge_that_it_would_end_is_not_begun(scaled: World) -> None:
    outcome = run(scaled)
    assert "HorizontalPodAutoscaler shop/web" in outcome.wrong[0]
    assert len(scaled.pods(on="n1", app="web")) == 1
    scales = [sent for sent in scaled.log if sent.request.writes and sent.request.resource.endswith("/scale")]
    assert not [sent for sent in scales if sent.process == "me"]


@pytest.mark.parametrize("later", [0.0, 4.0, 8.0, 14.0])
def test_once_its_minimum_is_raised_the_pod_leaves(scaled: World, later: float) -> None:
    """It looks every 15 seconds: before, during and after a surge."""
    scaled.patch(kinds.HPAS, "web", {"spec": {"minReplicas": 2}})
    scaled.machine.run_for(later)
    outcome = run(scaled)
    assert (outcome.ok, outcome.failed, outcome.wrong) == (True, {}, [])
    scaled.machine.run_for(30.0)
    assert scaled.serving("web") == 2
    assert scaled.get(kinds.HPAS, "web")["spec"]["minReplicas"] == 2
