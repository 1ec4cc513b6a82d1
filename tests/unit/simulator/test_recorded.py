# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What earlier releases left in a cluster: this version reads it, goes on with it and gives everything back."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs.arguments import StateOptions, state
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import recorded
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import recover
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

FILES = sorted(recorded.FOLDER.glob("*.json"))
KILLED = [path for path in FILES if "killed" in path.name]
LOCKS_ARE_OVER = 4000.0
"""Seconds after which no lock holds, not even one for the tasks on a host."""


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    return t.cast("Path", request.param)


def left(world: World) -> list[Raw]:
    """Whatever names this collection."""
    found = [raw for some in world.store.objects.values() for raw in some.values()]
    return [raw for raw in found if raw["kind"] != "Namespace" and names.PREFIX in str(raw)]


def listed(world: World) -> list[str]:
    data = world.process("looks").run(lambda ctx: state(ctx, StateOptions("listed"))).data
    return sorted(node for trace in data["traces"] for node in trace["nodes"] if trace["object"].startswith("Node "))


def test_it_is_listed(path: Path) -> None:
    with World.of(recorded.read(path.read_text())) as world:
        assert left(world)
        assert listed(world) == (["n1", "n2"] if "evacuated" in path.name else ["n1"])


@pytest.mark.parametrize("path", KILLED, ids=lambda path: path.stem)
def test_the_same_command_ends_it(path: Path) -> None:
    run = "" if "drain" in path.name else run_of(path)
    with World.of(recorded.read(path.read_text())) as world:
        outcome = recorded.run(world, run=run)
        assert (outcome.failed, outcome.wrong) == ({}, [])
        assert left(world) == []
        assert not any(node["spec"].get("unschedulable") for node in world.store.of(kinds.NODES.resource).values())


def run_of(path: Path) -> str:
    """The run in a state, as `recover` tells it."""
    with World.of(recorded.read(path.read_text())) as world:
        data = world.process("looks").run(lambda ctx: state(ctx, StateOptions("listed"))).data
    return str(data["traces"][0]["run"])


def test_recover_gives_everything_back(path: Path) -> None:
    run = run_of(path)
    with World.of(recorded.read(path.read_text())) as world:
        world.machine.run_for(LOCKS_ARE_OVER)
        me = world.process("other")
        task = me.spawn(lambda: recover(me, run))
        world.machine.run_until(lambda: not task.alive)
        assert task.value() == []
        assert left(world) == []


def test_what_is_written_is_what_is_read(path: Path) -> None:
    text = path.read_text()
    assert recorded.written(recorded.read(text)) == text
