# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What bystanders write, and that it is missed where it is written over."""

from __future__ import annotations

import random

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.explore import scenes
from ansible_collections.kubeops.node_maintenance.tests.explore.bystanders import Bystanders
from ansible_collections.kubeops.node_maintenance.tests.explore.judge import NOTE, Judge, Violation
from ansible_collections.kubeops.node_maintenance.tests.explore.states import difference
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Choices
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

SCENE = scenes.small()


def disturbed(seed: int) -> tuple[World, Bystanders]:
    """A world at the end of a run."""
    world = SCENE.world(choices=Choices(chance=random.Random(seed)), fine=True)
    bystanders, me = Bystanders(world), world.process("me")
    task = me.spawn(lambda: maintain(me, SCENE.given))
    world.machine.run_until(lambda: not task.alive)
    assert task.value().ok
    world.machine.on_step.clear()
    world.settle()
    return world, bystanders


def test_the_same_seed_writes_the_same() -> None:
    (one, first), (other, second) = disturbed(1), disturbed(1)
    with one, other:
        assert first.written == second.written
        assert first.written
        assert first.reported == second.reported
        assert first.reported


def test_what_they_write_is_no_difference() -> None:
    with SCENE.world() as world:
        judge, begins = Judge(world, {}), difference(world, SCENE.begins)
        world.patch(kinds.NODES, "n1", {"metadata": {"annotations": {NOTE: "1"}}})
        judge.unchanged()
        assert difference(world, SCENE.begins) == begins
        world.patch(kinds.NODES, "n1", {"metadata": {"annotations": {"other": "1"}}})
        assert difference(world, SCENE.begins) != begins


def test_it_is_missed_where_it_is_written_over() -> None:
    world, bystanders = disturbed(1)
    with world:
        bystanders.nothing_lost()
        before = SCENE.begins.state.objects[kinds.NODES.resource]["", "n1"]
        world.objects.replace(kinds.NODES, world.get(kinds.NODES, "n1"), before)
        world.objects.replace(kinds.NODES, world.get(kinds.NODES, "n1"), before, "status")
        with pytest.raises(Violation, match="n1 has lost"):
            bystanders.nothing_lost()
