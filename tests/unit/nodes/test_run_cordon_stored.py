# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A start takes out only what its run still has to do, and that is asked under the lock."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs.arguments import StateOptions, state
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

INPUT = {"playbook": "maintain", "nodes": ["n1", "n2"]}


@pytest.fixture
def world() -> t.Iterator[World]:
    with World([manifests.node("n1"), manifests.node("n2")]) as made:
        yield made


def started(actor: Actor) -> str:
    """A start of the run: the first one stores it, the others go on with it."""
    asked = StateOptions("started", input=INPUT, plan={"waves": [["n1"], ["n2"]]})
    return str(actor.run(lambda ctx: state(ctx, asked)).data["run"])


def taken_out(actor: Actor, run: str, *nodes: str, stored: bool = True) -> Result:
    return actor.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", nodes, stored=stored)), run)


def finished(actor: Actor, run: str, *nodes: str) -> None:
    """What another start does to nodes, from their lock to their end."""
    for loop in (
        lambda ctx: cordon(ctx, CordonOptions("cordoned", nodes, stored=True)),
        lambda ctx: state(ctx, StateOptions("noted", nodes=nodes)),
        lambda ctx: cordon(ctx, CordonOptions("uncordoned", nodes)),
    ):
        assert not actor.run(loop, run).failed


def locks(world: World) -> list[str]:
    return [name for _space, name in world.store.of(kinds.LEASES.resource) if name.startswith("node-")]


def out(world: World, node: str) -> bool:
    return names.RECORD in (world.get(kinds.NODES, node)["metadata"].get("annotations") or {})


def outcomes(result: Result) -> dict[str, str]:
    return {node["name"]: node["outcome"] for node in result.data["nodes"]}


def test_nothing_is_taken_out_for_a_run_that_another_start_has_ended(world: World) -> None:
    me, other = world.process("me"), world.process("other")
    mine, its = started(me), started(other)
    finished(other, its, "n1", "n2")
    assert not other.run(lambda ctx: state(ctx, StateOptions("ended")), its).failed
    result = taken_out(me, mine, "n1")
    assert outcomes(result) == {"n1": "adopted_by"}
    assert "another start has finished it" in result.message
    assert "starts anew" in result.message
    assert not out(world, "n1")
    assert locks(world) == []


def test_a_roll_that_was_undone_between_two_waves_does_not_go_on(world: World) -> None:
    me, ann = world.process("me"), world.process("ann")
    mine = started(me)
    finished(me, mine, "n1")
    world.machine.run_for(120.0)
    undone = ann.run(lambda ctx: state(ctx, StateOptions("undone")), mine.partition("/")[0])
    assert not undone.failed, undone.message
    assert outcomes(taken_out(me, mine, "n2")) == {"n2": "adopted_by"}
    assert not out(world, "n2")


def test_a_node_that_another_start_has_finished_is_left_and_the_others_are_taken(world: World) -> None:
    me, other = world.process("me"), world.process("other")
    mine, its = started(me), started(other)
    finished(other, its, "n1")
    assert outcomes(taken_out(me, mine, "n1", "n2")) == {"n1": "adopted_by", "n2": "cordoned"}
    assert (out(world, "n1"), out(world, "n2")) == (False, True)
    assert locks(world) == ["node-n2"]


def takes_lock(request: Request) -> bool:
    return (request.verb, request.resource) == ("create", kinds.LEASES.resource)


def asks(request: Request) -> bool:
    return (request.verb, request.resource) == ("get", kinds.CONFIGMAPS.resource)


@pytest.mark.parametrize(
    ("meets", "what"),
    [
        pytest.param(takes_lock, "frozen", id="before the lock"),
        pytest.param(asks, "frozen sent", id="after the question, which the lock has to outlive"),
    ],
)
def test_a_start_that_stood_still_does_nothing_once_more(
    world: World, meets: t.Callable[[Request], bool], what: What
) -> None:
    me, other = world.process("me"), world.process("other")
    mine, its = started(me), started(other)
    # Long enough for a lock to run out, and short enough for the answer to be read.
    me.faults.when(meets, Fault(what, 28.0))
    task = me.call(lambda ctx: cordon(ctx, CordonOptions("cordoned", ("n1",), stored=True)), mine)
    world.machine.run_until(lambda: me.process.frozen)
    finished(other, its, "n1")
    assert me.process.frozen
    world.machine.run_until(lambda: not task.alive)
    assert outcomes(task.value()) == {"n1": "adopted_by"}
    carried_out = [sent.request for sent in world.log if sent.process == "me" and sent.status]
    assert not any(request.writes and request.name == "n1" for request in carried_out)
    assert locks(world) == []


def test_a_memory_that_cannot_be_read_is_no_leave_to_begin(world: World) -> None:
    me = world.process("me")
    mine = started(me)
    world.server.denied.add(("get", "configmaps"))
    result = taken_out(me, mine, "n1")
    assert outcomes(result) == {"n1": "failed"}
    assert not out(world, "n1")
    assert locks(world) == []


@pytest.mark.parametrize("run", ["", "/2", "mine", "mine/2"])
def test_who_has_stored_no_run_is_not_asked_for_one(world: World, run: str) -> None:
    assert outcomes(taken_out(world.process("me"), run, "n1", stored=False)) == {"n1": "cordoned"}


@pytest.mark.parametrize("run", ["", "/2"])
def test_without_the_id_of_a_run_there_is_none_to_ask_for(world: World, run: str) -> None:
    assert outcomes(taken_out(world.process("me"), run, "n1")) == {"n1": "cordoned"}


def test_a_start_that_goes_on_with_a_node_of_a_killed_one_has_it_still_to_do(world: World) -> None:
    me, again = world.process("me"), world.process("again")
    assert outcomes(taken_out(me, started(me), "n1")) == {"n1": "cordoned"}
    me.process.kill()
    assert outcomes(taken_out(again, started(again), "n1")) == {"n1": "cordoned"}
