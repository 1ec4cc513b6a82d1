# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Devices of dynamic resource allocation: real claims and the real scheduler; the nodes and slices are made up."""

from __future__ import annotations

import pytest
from support.arena import Arena, Workload
from support.devices import devices
from support.plays import Player
from support.waiting import until
from support.watching import Watch
from witness.log import Json

TAINT: Json = {"key": "example.com/unhealthy", "value": "ecc", "effect": "NoSchedule"}


def on(web: Workload, node: str) -> bool:
    return web.nodes() == [node]


@pytest.mark.whole
def test_a_claim_that_is_shared_by_name_is_refused_first_and_follows_its_pod_with_consent(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, other = arena.nodes(2)
    with devices(arena, [here, other]) as made:
        web = arena.deployment("web", on=here, pod=made.shared("gpu"))
        arena.settle()
        assert made.allocated() == [here], "by the scheduler"
        with watching() as seen:
            run = play("maintain", maintain_nodes=[here])
        assert not run.ok
        assert seen.writes == []
        found = run.finding("claim_single_node")
        assert f"ResourceClaim {arena.namespace}/gpu" in found["message"]
        assert f"{made.driver}/{here}/gpu-0" in found["message"]
        assert "resourceClaimTemplateName" in found["remedy"]
        assert on(web, here)
        run = play("maintain", maintain_nodes=[here], maintain_allow_interruption=True)
        assert run.ok, run.text
        until(lambda: on(web, other) and made.allocated() == [other], 30, "the claim was allocated anew")


@pytest.mark.whole
def test_a_second_pod_gets_the_free_device_of_another_node(arena: Arena, play: Player, watching: Watch) -> None:
    here, other = arena.nodes(2)
    with devices(arena, [here, other]) as made:
        web = arena.deployment("web", on=here, pod=made.own("gpu"))
        arena.settle()
        assert made.allocated() == [here]
        with watching() as seen:
            run = play("maintain", maintain_nodes=[here])
            assert run.ok, run.text
        assert seen.dark_seconds(web) == 0
        assert on(web, other)
        until(lambda: made.allocated() == [other], 30, "the first pod's claim is gone")


@pytest.mark.whole
def test_a_second_pod_without_a_free_device_is_refused_first(arena: Arena, play: Player, watching: Watch) -> None:
    here, busy, sick = arena.nodes(3)
    with devices(arena, [here, busy, sick], TAINT) as made:
        pod = made.own("gpu")
        arena.deployment("other", on=busy, pod=pod)
        web = arena.deployment("web", on=here, pod=pod)
        arena.settle()
        assert made.allocated() == sorted([here, busy])
        with watching() as seen:
            run = play("maintain", maintain_nodes=[here])
        assert not run.ok
        assert seen.writes == []
        message = run.finding("no_free_device")["message"]
        assert f"1 of class {arena.name}" in message
        assert f"{made.driver}/{sick}/gpu-0 (example.com/unhealthy=ecc:NoSchedule)" in message
        run = play("maintain", maintain_nodes=[here], maintain_allow_interruption=True)
        assert run.ok, run.text
        until(lambda: on(web, here), 30, "it is back on the only node with a device")
