# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gates of nodes that come back, on a simulated cluster: asked once, or watched until they are passed."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.run.planned import Build, asked, building, codes, plan
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


@pytest.fixture
def build() -> t.Iterator[Build]:
    with building() as made:
        yield made


def test_gates_without_waiting_take_one_look(build: Build) -> None:
    found = build()
    found.set_node_ready("n2", "False")
    result = plan(found, nodes=("n1", "n2"), gates=("ready", "pressure", "stable"))
    assert [(n["name"], n["outcome"]) for n in result.data["nodes"]] == [("n1", "passed"), ("n2", "failed")]
    assert result.failed
    assert codes(result) == ["not_ready"]
    assert "list pods" not in asked(found)


def happens(world: World, states: t.Mapping[float, str]) -> None:
    """What the Ready condition of n1 says after so many seconds; with nothing to say the node is gone."""
    for seconds, status in states.items():
        if not seconds:
            world.set_node_ready("n1", status)
            continue

        def change(status: str = status) -> None:
            if status:
                world.set_node_ready("n1", status)
            else:
                world.delete(kinds.NODES, "n1")

        world.machine.after(seconds, change, "a gate")


@pytest.mark.parametrize(
    ("states", "wanted", "timeout", "outcome", "seconds"),
    [
        pytest.param({}, ("ready",), 60, "passed", 0, id="at once"),
        pytest.param({0: "False", 2: "True"}, ("ready",), 60, "passed", 2, id="when it is ready"),
        pytest.param({}, ("ready", "stable"), 60, "passed", 5, id="when it held"),
        pytest.param({3: "False", 4: "True"}, ("ready", "stable"), 60, "passed", 9, id="when it held after a break"),
        pytest.param({0: "False"}, ("ready",), 7, "failed", 7, id="never"),
        pytest.param({}, ("ready", "stable"), 3, "failed", 3, id="not long enough"),
        pytest.param({1: ""}, ("ready", "stable"), 3, "failed", 3, id="it went away"),
    ],
)
def test_gates_are_watched_until_they_are_passed(
    build: Build, states: dict[float, str], wanted: tuple[str, ...], timeout: float, outcome: str, seconds: float
) -> None:
    found = build()
    happens(found, states)
    start = found.machine.now
    result = plan(found, gates=wanted, stable=5.0, wait=True, timeout=timeout)
    assert result.data["nodes"][0]["outcome"] == outcome
    assert found.machine.now - start == pytest.approx(seconds, abs=0.3)
    assert result.failed == (outcome == "failed")


def test_what_is_waited_for_is_told_once(build: Build) -> None:
    found = build()
    happens(found, {0: "False", 3: "True"})
    ann = found.process("ann")
    assert not plan(found, gates=("ready",), stable=0.0, wait=True).failed
    assert [event.what for event in ann.told] == ["waiting"]
