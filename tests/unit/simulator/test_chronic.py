# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods of DaemonSets that were not Ready before the maintenance keep no node out after it, and others do."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_gates import ReadyOptions, check_ready
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.nodes import READY, Kubelets
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World


def world_of() -> World:
    """Two DaemonSets on two nodes; the pods of one have never been Ready."""
    sick = manifests.daemon_set("sick", annotations={READY: "never"})
    objects = [manifests.node("n1"), manifests.node("n2"), manifests.daemon_set("well"), sick]
    return World([*objects, manifests.deployment("web", 2)])


def run(world: World, work: t.Callable[[Actor, str], None], **options: t.Any) -> Outcome:
    me = world.process("me")
    task = me.spawn(lambda: maintain(me, Input(("n1",), work=work, timeout=60.0, **options)))
    world.machine.run_until(lambda: not task.alive, within=900.0)
    return Outcome(wrong=["killed"]) if me.process.dead else t.cast("Outcome", task.value())


def breaks(world: World, app: str) -> None:
    """The pod of a DaemonSet on n1 is not Ready any more."""
    (pod,) = world.pods(on="n1", app=app)
    world.controller(Kubelets).set_ready((manifests.SHOP, pod["metadata"]["name"]), False)


def reboots(actor: Actor, name: str) -> None:
    actor.world.reboot(name)


def reboots_and_breaks(actor: Actor, name: str) -> None:
    actor.world.reboot(name)
    breaks(actor.world, "well")


def test_who_was_not_ready_before_is_not_waited_for() -> None:
    with world_of() as world:
        outcome = run(world, reboots)
        assert (outcome.ok, outcome.failed, outcome.wrong) == (True, {}, [])


def test_who_was_ready_before_is_waited_for() -> None:
    with world_of() as world:
        outcome = run(world, reboots_and_breaks)
        assert "DaemonSet shop/well has no Ready pod" in outcome.failed["n1"]
        assert "shop/sick" not in outcome.failed["n1"]


def test_what_was_recorded_first_counts_in_a_resumed_run() -> None:
    """What the tasks of the first start have broken was not so before."""
    with world_of() as world:
        assert not run(world, reboots_and_breaks).ok
        again = run(world, reboots)
        assert "DaemonSet shop/well has no Ready pod" in again.failed["n1"]


def test_on_a_node_that_was_lost_counts_who_was_not_ready_before_that() -> None:
    with world_of() as world:
        world.delete(kinds.DEPLOYMENTS, "web")
        world.settle()
        world.machine.run_for(5.0)
        world.set_node_ready("n1", "False")
        breaks(world, "well")
        outcome = run(world, lambda actor, name: actor.world.set_node_ready(name))
        assert "shop/sick" not in outcome.failed["n1"]
        assert "DaemonSet shop/well has no Ready pod" in outcome.failed["n1"]


@pytest.mark.parametrize(("later", "codes"), [("", []), ("well", ["daemonset_missing"])])
def test_in_a_soak_counts_who_was_ready_when_it_began(later: str, codes: list[str]) -> None:
    with world_of() as world:
        if later:
            world.machine.after(30.0, lambda: breaks(world, later), "it breaks")
        options = ReadyOptions(nodes=("n1",), gates=("ready", "daemonsets"), soak=60.0)
        result = world.process("me").run(lambda ctx: check_ready(ctx, options))
        assert [one["code"] for one in result.data["findings"]] == codes
