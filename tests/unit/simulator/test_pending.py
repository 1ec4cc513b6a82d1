# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods whose successors fit nowhere while their node is out: what is planned, waited for, and given back."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.nodes import START, STOP
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

NODES = ("n1", "n2", "n3")


def ready(world: World, name: str = "web") -> int:
    return int(world.get(kinds.DEPLOYMENTS, name)["status"].get("readyReplicas", 0))


def spread(replicas: int = 3, *more: Raw, **options: t.Any) -> World:
    """The usual shape: one replica on each node, and never two on one."""
    web = manifests.deployment("web", replicas, affinity=manifests.apart("web"), **options)
    return World([*map(manifests.node, NODES), web, manifests.service("web"), *more])


def run(world: World, given: Input, name: str = "me", within: float = 1800.0) -> Outcome:
    me = world.process(name)
    task = me.spawn(lambda: maintain(me, given))
    world.machine.run_until(lambda: not task.alive, within=within)
    return Outcome(wrong=["killed"]) if me.process.dead else t.cast("Outcome", task.value())


def test_the_usual_shape_is_maintained_with_one_replica_less() -> None:
    seen: list[int] = []

    def work(actor: Actor, _node: str) -> None:
        seen.append(ready(actor.world))

    with spread() as world:
        outcome = run(world, Input(NODES, work=work))
        assert (outcome.failed, outcome.wrong) == ({}, [])
        assert seen == [2, 2, 2]
        assert ready(world) == 3


def evictions(world: World) -> int:
    return sum(sent.request.resource == "pods/eviction" and sent.status == 201 for sent in world.log)


@pytest.mark.parametrize("seconds", [0.5, 2.0, 6.0, 14.0])
def test_the_same_command_waits_for_what_a_killed_one_had_to_wait_for(seconds: float) -> None:
    """Its pods have left the node, so that nothing there tells of them any more."""
    slow = manifests.deployment("slow", 2, annotations={START: "60s", STOP: "1s"})
    short: list[tuple[int, int]] = []

    def work(actor: Actor, _node: str) -> None:
        short.append((ready(actor.world), ready(actor.world, "slow")))

    with spread(3, slow) as world:
        world.settle(70.0)
        on = next(name for name in NODES if world.pods(on=name, app="slow"))
        me = world.process("me")
        me.spawn(lambda: maintain(me, Input((on,), work=work)))
        world.machine.run_until(lambda: evictions(world) >= 2 and not world.pods(on=on), within=120)
        world.machine.run_for(seconds)
        me.process.kill()
        world.machine.run_for(20.0)
        outcome = run(world, Input((on,), work=work))
        assert (outcome.failed, outcome.wrong) == ({}, [])
        assert short == [(2, 2)]
        assert ready(world) == 3
