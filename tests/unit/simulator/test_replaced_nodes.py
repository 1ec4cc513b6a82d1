# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that the tasks delete or register again (a new image, kubeadm reset and join): nothing of the old one stays."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs.arguments import StateOptions, state
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_whole import traces
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain, recover
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, Saved, World

Work = t.Callable[[Actor, str], None]


@pytest.fixture(scope="module")
def saved() -> Saved:
    """A pair that is guarded, and a single pod that is surged."""
    objects = [manifests.deployment("pair", 2), manifests.deployment("single", 1), manifests.daemon_set("agent")]
    with World([manifests.node("n1"), *objects]) as world:
        world.apply(manifests.node("n2"))
        world.settle()
        return world.saved()


@pytest.fixture
def world(saved: Saved) -> t.Iterator[World]:
    with World.of(saved) as world:
        yield world


def deletes(actor: Actor, name: str) -> None:
    actor.world.delete(kinds.NODES, name)
    actor.clock.sleep(5.0)


def registers_again(actor: Actor, name: str) -> None:
    deletes(actor, name)
    actor.world.apply(manifests.node(name))
    actor.clock.sleep(5.0)


def fails(actor: Actor, name: str) -> None:
    registers_again(actor, name)
    raise RuntimeError("kubeadm join failed")


def dies(actor: Actor, name: str) -> None:
    registers_again(actor, name)
    actor.process.kill()
    actor.clock.sleep(1.0)


def run(world: World, work: Work, **options: t.Any) -> Outcome:
    me = world.process("me")
    task = me.spawn(lambda: maintain(me, Input(("n1",), work=work, **options)))
    world.machine.run_until(lambda: not task.alive)
    return Outcome(wrong=["killed"]) if me.process.dead else t.cast("Outcome", task.value())


def returned(outcome: Outcome) -> str:
    (call,) = outcome.steps("returning")
    return str(call["nodes"][0]["outcome"])


def test_a_node_that_is_registered_again_passes_the_gates_and_leaves_nothing(world: World) -> None:
    outcome = run(world, registers_again)
    assert (outcome.ok, outcome.failed, outcome.wrong) == (True, {}, [])
    assert returned(outcome) == "replaced"
    assert traces(world) == []
    assert world.get(kinds.DEPLOYMENTS, "single")["spec"]["replicas"] == 1


def test_a_new_node_that_does_not_pass_the_gates_fails_the_run(world: World) -> None:
    def unready(actor: Actor, name: str) -> None:
        registers_again(actor, name)
        actor.world.set_node_ready(name, "False")

    outcome = run(world, unready, timeout=30.0)
    assert "Ready" in outcome.failed["n1"]
    world.set_node_ready("n1")
    assert run(world, registers_again).ok
    assert traces(world) == []


@pytest.mark.parametrize("work", [deletes, fails])
def test_what_fails_leaves_no_lock_and_the_same_command_works(world: World, work: Work) -> None:
    outcome = run(world, work)
    assert list(outcome.failed) == ["n1"]
    assert [trace for trace in traces(world) if not trace.startswith("ConfigMap")] == []
    if work is deletes:
        world.apply(manifests.node("n1"))
        world.settle()
    again = run(world, registers_again)
    assert (again.ok, again.failed, again.wrong) == (True, {}, [])
    assert traces(world) == []


def test_after_a_kill_the_run_has_to_be_named_and_then_goes_on(world: World) -> None:
    """The tasks may still be running on the host."""
    assert run(world, dies).wrong == ["killed"]
    (run_id,) = {name.removeprefix(names.RUN_PREFIX) for _ns, name in world.store.of(kinds.CONFIGMAPS.resource)}
    refused = run(world, registers_again)
    assert f"maintain_run={run_id}" in refused.failed["n1"]
    again = run(world, registers_again, run=run_id)
    assert (again.ok, again.failed, again.wrong) == (True, {}, [])
    assert traces(world) == []


def test_after_a_kill_recover_undoes_a_named_run_at_once(world: World) -> None:
    assert run(world, dies).wrong == ["killed"]
    (run_id,) = {name.removeprefix(names.RUN_PREFIX) for _ns, name in world.store.of(kinds.CONFIGMAPS.resource)}
    ann = world.process("ann")
    undone = ann.run(lambda ctx: state(ctx, StateOptions("undone")))
    assert [(node["name"], node["outcome"]) for node in undone.data["nodes"]] == [("n1", "left")]
    assert f"recover_run={run_id}" in undone.data["nodes"][0]["message"]
    assert "Lease node-n1" in traces(world)
    task = ann.spawn(lambda: recover(ann, run_id))
    world.machine.run_until(lambda: not task.alive, within=200.0)
    assert task.value() == []
    assert traces(world) == []


def test_after_a_kill_a_release_tells_of_the_lock(world: World) -> None:
    assert run(world, dies).wrong == ["killed"]
    ann = world.process("ann")
    ann.run(lambda ctx: cordon(ctx, CordonOptions("uncordoned", ("n1",))), "/ann")
    assert [(event.what, event.node) for event in ann.told] == [("kept", "n1")]
    assert "recover_run=" in ann.told[0].message
    assert "Lease node-n1" in traces(world)


def test_a_record_that_somebody_removed_makes_no_new_node(world: World) -> None:
    def removed(actor: Actor, name: str) -> None:
        actor.world.patch(kinds.NODES, name, {"metadata": {"annotations": {names.RECORD: None}}})

    outcome = run(world, removed)
    assert list(outcome.failed) == ["n1"]
    assert returned(outcome) == "not_in_maintenance_yet"
    assert "Lease node-n1" not in traces(world)
