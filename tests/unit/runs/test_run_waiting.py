# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes that wait for their wave are marked while their run goes on, and not longer, whatever becomes of it."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs.arguments import StateOptions, state
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

NODES = ("n1", "n2", "n3", "n4")
WAVES = [["n1"], ["n2", "n3"], ["n4"]]
GIVEN = {"playbook": "maintain", "nodes": [*NODES]}
START = StateOptions("started", input=GIVEN, plan={"waves": WAVES}, mark_waiting=True)
FOREIGN: Raw = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}


@pytest.fixture
def world() -> Iterator[World]:
    with World([*map(manifests.node, NODES), manifests.namespace(names.NAMESPACE)]) as made:
        made.patch(kinds.NODES, "n2", {"spec": {"taints": [FOREIGN]}})
        yield made


def call(world: World, options: StateOptions, run: str = "", by: str = "me") -> Result:
    return world.process(by).run(lambda ctx: state(ctx, options), run)


def marked(world: World) -> dict[str, str]:
    """The nodes that wait, and in which run."""
    found = {name: world.get(kinds.NODES, name)["spec"].get("taints") or [] for name in NODES}
    assert found["n2"][:1] == [FOREIGN]
    return {name: x["value"] for name, taints in found.items() for x in taints if x["key"] == names.WAITING}


def of_nodes(request: t.Any) -> bool:
    return bool(request.writes and request.resource == kinds.NODES.resource)


def test_later_waves_wait_until_they_leave_and_at_most_until_the_run_ends(world: World) -> None:
    begun = call(world, START)
    run = begun.data["run"]
    mine = begun.data["run_id"]
    assert marked(world) == dict.fromkeys(("n2", "n3", "n4"), mine)
    for step in ("cordoned", "returning", "uncordoned"):
        options = CordonOptions(t.cast("t.Any", step), ("n2",))
        assert not world.process("me").run(functools.partial(cordon, options=options), run).failed
    assert marked(world) == dict.fromkeys(("n3", "n4"), mine)
    call(world, StateOptions("ended"), run)
    assert marked(world) == {}
    assert call(world, StateOptions("listed")).data["traces"] == []


def test_each_mark_is_one_request(world: World) -> None:
    call(world, START)
    sent = [request.request.verb for request in world.log if request.request.resource == kinds.NODES.resource]
    assert sorted(sent) == ["list", "patch", "patch", "patch"]


@pytest.mark.parametrize("noted", [(), ("n1",)])
def test_a_failed_run_frees_the_nodes_and_marks_them_anew_once_it_is_resumed(
    world: World, noted: tuple[str, ...]
) -> None:
    run = call(world, START).data["run"]
    if noted:
        call(world, StateOptions("noted", nodes=noted), run)
    call(world, StateOptions("ended", failed=True), run)
    assert marked(world) == {}
    again = call(world, START)
    assert again.data["resumed"] is bool(noted)
    assert [*marked(world)] == (["n4"] if noted else ["n2", "n3", "n4"])


def test_nothing_is_marked_unless_it_is_asked_for(world: World) -> None:
    call(world, StateOptions("started", input=GIVEN, plan={"waves": WAVES}))
    assert marked(world) == {}


def test_a_node_waits_in_one_run_only_and_another_run_takes_it_out_with_its_mark(world: World) -> None:
    first = call(world, START)
    second = call(world, StateOptions("started", {"nodes": ["n3"]}, {"waves": [["n1"], ["n3"]]}, mark_waiting=True))
    assert marked(world) == dict.fromkeys(("n2", "n3", "n4"), first.data["run_id"])
    for step in ("cordoned", "returning", "uncordoned"):
        options = CordonOptions(t.cast("t.Any", step), ("n3",))
        assert not world.process("me").run(functools.partial(cordon, options=options), second.data["run"]).failed
    call(world, StateOptions("ended"), second.data["run"])
    assert marked(world) == dict.fromkeys(("n2", "n3", "n4"), first.data["run_id"])


@pytest.mark.parametrize("what", ["killed before", "killed after"])
@pytest.mark.parametrize("write", [0, 1, 2])
def test_a_start_that_is_killed_while_it_marks_is_listed_and_undone(world: World, write: int, what: What) -> None:
    turns = iter(range(100))
    world.process("me").faults.when(lambda r: of_nodes(r) and next(turns) == write, Fault(what))
    me = world.process("me")
    task = me.spawn(lambda: state(me.ctx(), START))
    world.machine.run_until(lambda: not task.alive)
    world.machine.run_for(120.0)
    traces = call(world, StateOptions("listed"), by="otto").data["traces"]
    shown = [trace for trace in traces if trace["object"] == f"Taint {names.WAITING}"]
    assert [len(trace["nodes"]) for trace in shown] == ([len(marked(world))] if marked(world) else [])
    assert not call(world, StateOptions("undone"), by="otto").failed
    assert marked(world) == {}
    assert call(world, StateOptions("listed"), by="otto").data["traces"] == []


def test_the_marks_of_a_living_run_are_not_undone(world: World) -> None:
    run = call(world, START).data["run"]
    me = world.process("me")
    world.machine.after(30.0, lambda: me.spawn(lambda: state(me.ctx(run), StateOptions("noted"))), "noted")
    assert not call(world, StateOptions("undone"), by="otto").failed
    assert len(marked(world)) == 3


def test_a_start_that_stood_still_marks_nothing_more_and_what_it_marked_goes_with_its_run(world: World) -> None:
    me = world.process("me")
    me.faults.when(of_nodes, Fault("frozen", 300.0))
    task = me.spawn(lambda: state(me.ctx(), START))
    world.machine.run_for(10.0)
    assert not call(world, StateOptions("undone"), by="otto").failed
    world.machine.run_until(lambda: not task.alive)
    # What was on its way when the process froze may still arrive.
    assert len(marked(world)) <= 3
    assert not call(world, StateOptions("undone"), by="otto").failed
    assert marked(world) == {}


def test_a_mark_without_a_stored_run_is_removed(world: World) -> None:
    taint = {"key": names.WAITING, "value": "gone", "effect": "PreferNoSchedule"}
    world.patch(kinds.NODES, "n4", {"spec": {"taints": [taint]}})
    (trace,) = call(world, StateOptions("listed")).data["traces"]
    assert (trace["run"], trace["nodes"], trace["alive"]) == ("gone", ["n4"], False)
    assert not call(world, StateOptions("undone"), "another").failed
    assert marked(world) == {"n4": "gone"}
    assert not call(world, StateOptions("undone")).failed
    assert marked(world) == {}


@pytest.mark.parametrize("what", ["lost", "in doubt", "conflict", "error"])
def test_a_mark_whose_answer_is_no_success_is_set_once(world: World, what: What) -> None:
    world.process("me").faults.when(of_nodes, Fault(what))
    assert not call(world, START).failed
    assert len(marked(world)) == 3


def test_marks_that_may_not_be_set_stop_nothing(world: World) -> None:
    me = world.process("me")
    me.faults.when(of_nodes, Fault("forbidden"), times=99)
    assert not call(world, START).failed
    told = [event.message for event in me.told if event.what == phases.What.NOTE]
    assert [("not all marked" in text, "(and 2 more)" in text) for text in told] == [(True, True)]
    assert marked(world) == {}
