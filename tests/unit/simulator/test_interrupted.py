# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that is interrupted lets go of what it holds, so the same command goes on at once, whenever that happened."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.clocks import Interruption
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import run_recovery
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_whole import patched, traces, watch_services
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, Saved, World

NODES = ("n1", "n2")
ENDS_WITHIN = 5.0
"""Seconds that Ansible gives its workers."""


@pytest.fixture(scope="module")
def saved() -> Saved:
    with World(manifests.usual()) as world:
        return world.saved()


@pytest.fixture(scope="module")
def usual(saved: Saved) -> float:
    """How long a run takes that nobody interrupts."""
    with World.of(saved) as world:
        began = world.machine.now
        run(world)
        return world.machine.now - began


def run(world: World, *, after: float | None = None, named: str = "") -> Actor:
    """The command, until it ends or is interrupted."""
    me = world.process("me")

    def command() -> t.Any:
        me.clock.interruption = Interruption(lambda: world.machine.current)
        return maintain(me, Input(NODES, work=patched, run=named))

    def interrupt() -> None:
        assert me.clock.interruption
        me.clock.interruption.asked = True

    if after is not None:
        world.machine.after(after, interrupt, "interrupt")
    task = me.spawn(command)
    world.machine.run_until(lambda: not task.alive)
    assert me.process.dead or task.value().ok, task.value().wrong
    return me


def held(world: World) -> list[str]:
    """Leases that somebody who comes would have to watch."""
    return [
        f"{name} {raw['spec'].get('leaseDurationSeconds')}"
        for (_namespace, name), raw in world.store.of(kinds.LEASES.resource).items()
        if raw["spec"].get("leaseDurationSeconds", 0) > 1
    ]


def at_work(world: World) -> list[str]:
    """Nodes on whose hosts the user's tasks may be at work."""
    found = {
        name: raw["metadata"].get("annotations", {})
        for (_ns, name), raw in world.store.of(kinds.NODES.resource).items()
    }
    return [name for name, kept in found.items() if json.loads(kept.get(names.RECORD, "{}")).get("step") == "out"]


@pytest.mark.parametrize("part", [number / 24 for number in range(24)])
def test_the_same_command_goes_on_at_once(part: float, saved: Saved, usual: float) -> None:
    with World.of(saved) as world:
        watch_services(world)
        began, after = world.machine.now, part * usual
        assert run(world, after=after).process.dead
        assert world.machine.now - began <= after + ENDS_WITHIN
        looker = world.process("looker")
        found, alive = looker.run(run_recovery.look)
        out = at_work(world)
        assert held(world) == [f"node-{node} 3600" for node in out]
        assert alive == set()
        named, again = found[0].run if out else "", world.machine.now
        me = run(world, named=named)
        assert [event.message for event in me.told if event.what == phases.What.WAITING] == []
        assert world.machine.now - again <= usual + ENDS_WITHIN
        assert traces(world) == []
