# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node is short of for a pod, and how full it would be with it."""

from __future__ import annotations

import typing as t
from collections import Counter

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import world
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects

ANY = "0.0.0.0"


def guest(ports: tuple[t.Any, ...] = (), **requests: int) -> world.PodInfo:
    return world.PodInfo("shop", "p", {}, {}, (), (), t.cast("t.Any", requests), ports)


def place(most_pods: int = 10, guests: int = 0, used: dict[str, int] | None = None, **has: int) -> world.NodeInfo:
    [node] = objects.snapshot(nodes=[objects.node("n1")]).nodes.values()
    there = {number: guest() for number in range(guests)}
    return world.NodeInfo(node, (), False, t.cast("t.Any", has), most_pods, t.cast("t.Any", used or {}), guests=there)


@pytest.mark.parametrize(
    ("wants", "here", "lacks"),
    [
        pytest.param({"cpu": 4}, place(cpu=4), (), id="just enough"),
        pytest.param({"cpu": 5}, place(cpu=4), ("Insufficient cpu",), id="one too many"),
        pytest.param({"cpu": 2}, place(cpu=4, used={"cpu": 2}), (), id="as much as is left"),
        pytest.param({"cpu": 3}, place(cpu=4, used={"cpu": 2}), ("Insufficient cpu",), id="more than is left"),
        pytest.param({"gpu": 0}, place(), (), id="nothing of what there is none of"),
        pytest.param({"gpu": 1}, place(), ("Insufficient gpu",), id="one of what there is none of"),
        pytest.param({"cpu": 5, "gpu": 1}, place(cpu=4), ("Insufficient cpu", "Insufficient gpu"), id="all are named"),
        pytest.param({}, place(most_pods=2, guests=1), (), id="room for one pod"),
        pytest.param({}, place(most_pods=2, guests=2), (world.PODS,), id="too many pods"),
        pytest.param({"cpu": 1}, place(most_pods=1, guests=1), (world.PODS, "Insufficient cpu"), id="both"),
    ],
)
def test_every_resource_that_a_node_is_short_of_is_named(
    wants: dict[str, t.Any], here: world.NodeInfo, lacks: tuple[str, ...]
) -> None:
    assert world.short(guest(**wants), here) == lacks


@pytest.mark.parametrize(
    ("wants", "used", "taken"),
    [
        ((ANY, "TCP", 80), (ANY, "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), (ANY, "TCP", 80), True),
        ((ANY, "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.2", "TCP", 80), False),
        ((ANY, "UDP", 80), (ANY, "TCP", 80), False),
        ((ANY, "TCP", 81), (ANY, "TCP", 80), False),
    ],
)
def test_a_port_of_the_host_is_had_by_one_pod_for_each_address_and_protocol(
    wants: t.Any, used: t.Any, taken: bool
) -> None:
    here = place()
    here.ports = Counter({used: 1})
    assert world.ports_taken(guest((("10.0.0.9", "TCP", 9), wants)), here) is taken
    here.ports[used] = 0
    assert not world.ports_taken(guest((wants,)), here), "whoever had it has gone"


@pytest.mark.parametrize(
    ("wants", "here", "full"),
    [
        ({"cpu": 1, "memory": 2}, place(cpu=4, memory=4), 0.75),
        ({"cpu": 1}, place(cpu=4, memory=4, used={"cpu": 1, "memory": 3}), 1.25),
        ({"cpu": 1}, place(memory=4), 0.0),
        ({"gpu": 1}, place(cpu=3, gpu=1, used={"cpu": 1}), 0.333333),
    ],
)
def test_a_node_is_as_full_as_its_processors_and_memory_are(
    wants: dict[str, t.Any], here: world.NodeInfo, full: float
) -> None:
    assert world.load(guest(**wants), here) == full
