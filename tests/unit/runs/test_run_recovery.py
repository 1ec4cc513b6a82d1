# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is undone, and what is left: nobody's work, nobody's memory, nothing that people hold out on purpose."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context, Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions, State
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs.arguments import StateOptions, state
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import record_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

NODES = tuple(f"n{number}" for number in range(1, 11))


@pytest.fixture
def world() -> Iterator[World]:
    with World([manifests.node(name) for name in NODES]) as made:
        yield made


def at(world: World, step: State, *nodes: str, run: str, by: str = "tina", **options: t.Any) -> None:
    """Somebody brings nodes there and goes away, with the lock as the call leaves it."""
    who = world.process(by)
    assert not who.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", nodes, reason="a new disk")), run).failed
    if step == "out":
        # The proof that they are empty is another test's; here the record has to say so.
        for name in nodes:
            record = record_of(Node.of(world.get(kinds.NODES, name)))
            assert record
            body = {"metadata": {"annotations": {names.RECORD: record.at("drained").dump()}}}
            world.patch(kinds.NODES, name, body)
    if step != "cordoned":
        assert not who.run(lambda ctx: cordon(ctx, CordonOptions(step, nodes, **options)), run).failed


def begun(world: World, *nodes: str, by: str = "tina") -> str:
    """A stored run of these nodes, as ``<id>/<nonce>``."""
    given = StateOptions("started", input={"playbook": by, "nodes": list(nodes)}, plan={"waves": [[n] for n in nodes]})
    return str(world.process(by).run(lambda ctx: state(ctx, given)).data["run"])


def undone(world: World, run: str = "", **options: t.Any) -> Result:
    return world.process("otto").run(lambda ctx: state(ctx, StateOptions("undone", **options)), run)


def outcomes(result: Result) -> dict[str, str]:
    return {node["name"]: node["outcome"] for node in result.data["nodes"]}


def is_out(world: World, name: str) -> bool:
    return bool(world.get(kinds.NODES, name)["spec"].get("unschedulable"))


def left(world: World) -> set[str]:
    """Stored runs and leases, by their names."""
    return {name for kind in (kinds.CONFIGMAPS, kinds.LEASES) for _ns, name in world.store.of(kind.resource)}


def test_what_people_hold_out_on_purpose_stays_out(world: World) -> None:
    at(world, "parked", "n1", run="aa/1")
    result = undone(world)
    assert outcomes(result) == {"n1": "left"}
    assert not result.failed
    assert is_out(world, "n1")
    said = result.data["nodes"][0]["message"]
    assert "left out of service on purpose by run aa of tina@sim" in said
    assert "(a new disk)" in said
    assert "release -e maintain_nodes=n1" in said
    assert "recover -e recover_run=aa" in said


@pytest.mark.parametrize(("run", "options"), [("aa", {}), ("", {"parked": True})])
def test_by_its_runs_name_or_by_a_word_it_comes_back_through_the_gates(
    world: World, run: str, options: dict[str, bool]
) -> None:
    at(world, "parked", "n1", run="aa/1")
    result = undone(world, run, **options)
    assert outcomes(result) == {"n1": "to_verify"}
    assert is_out(world, "n1"), "the gates are the playbook's to ask"


def test_a_node_whose_tasks_may_still_run_needs_its_runs_name(world: World) -> None:
    at(world, "out", "n1", run="aa/1", lease_duration=5.0)
    world.machine.run_for(3600.0)
    result = undone(world)
    assert outcomes(result) == {"n1": "left"}
    assert "-e maintain_run=aa" in result.data["nodes"][0]["message"]
    assert outcomes(undone(world, "aa")) == {"n1": "to_verify"}


def test_ten_nodes_of_as_many_dead_runs_are_waited_for_once(world: World) -> None:
    for name in NODES:
        at(world, "cordoned", name, run=f"run{name}/1", by=f"p{name}")
    start = world.machine.now
    result = undone(world)
    took = world.machine.now - start
    assert outcomes(result) == dict.fromkeys(NODES, "uncordoned")
    assert not any(is_out(world, name) for name in NODES)
    assert took < 150.0, f"{took:.0f} s: each lock is silent for 60 s, all at the same time"
    assert left(world) == set()


def test_one_bad_record_fails_alone(world: World) -> None:
    at(world, "cordoned", "n1", "n2", run="aa/1")
    world.patch(kinds.NODES, "n3", {"metadata": {"annotations": {names.RECORD: "{"}}})
    result = undone(world)
    assert outcomes(result) == {"n1": "uncordoned", "n2": "uncordoned", "n3": "bad_record"}
    assert result.failed
    assert "Node n3" in result.message
    assert "n1" not in result.message


def test_one_denied_write_fails_alone(world: World) -> None:
    at(world, "cordoned", "n1", "n2", run="aa/1")
    otto = world.process("otto")
    otto.faults.when(lambda r: r.method == "PATCH" and r.name == "n1", Fault("forbidden"), times=99)
    result = undone(world)
    assert outcomes(result) == {"n1": "failed", "n2": "uncordoned"}
    assert "n1" in result.message
    assert not is_out(world, "n2")


def test_locks_where_nobody_keeps_any_need_no_right(world: World) -> None:
    """A role cannot be bound in a namespace that does not exist."""
    at(world, "cordoned", "n1", run="aa/1")
    otto = world.process("otto")
    otto.faults.when(lambda r: r.namespace == names.MEDIK8S_NAMESPACE, Fault("forbidden"), times=99)
    assert outcomes(undone(world)) == {"n1": "uncordoned"}


def test_the_memory_of_a_run_that_lives_between_two_waves_stays(world: World) -> None:
    run = begun(world, "n1", "n2")
    tina = world.process("tina")

    def goes_on() -> None:
        for _moment in range(20):
            state(tina.ctx(run), StateOptions("noted", nodes=()))
            tina.clock.sleep(30.0)

    tina.spawn(goes_on)
    for name in ("", run.partition("/")[0]):
        assert not undone(world, name).failed
        assert f"run-{run.partition('/')[0]}" in left(world)
    world.machine.run_for(1000.0)
    assert not undone(world).failed
    assert left(world) == set(), "it is dead now"


def test_what_a_dead_run_kept_goes_with_its_last_node(world: World) -> None:
    run = begun(world, "n1", "n2")
    at(world, "cordoned", "n1", run=run)
    at(world, "parked", "n2", run=run)
    result = undone(world)
    assert outcomes(result) == {"n1": "uncordoned", "n2": "left"}
    assert f"run-{run.partition('/')[0]}" in left(world), "n2 may still be gone on with"


@pytest.mark.parametrize("states", [("finished", "undone"), ("undone", "undone")])
def test_nobody_waits_for_a_sign_of_life_that_decides_nothing(world: World, states: tuple[t.Any, t.Any]) -> None:
    run = begun(world, "n1", "n2")
    at(world, "parked", "n1", run=run)
    otto, start = world.process("otto"), world.machine.now
    for options in map(StateOptions, states):
        assert not otto.run(functools.partial(state, options=options), run.partition("/")[0]).failed
    assert world.machine.now - start < 5.0
    assert f"run-{run.partition('/')[0]}" in left(world)


def test_a_lock_that_was_left_on_a_free_node_goes_and_a_living_one_stays(world: World) -> None:
    at(world, "cordoned", "n1", "n2", run="aa/1")
    for name in ("n1", "n2"):
        world.patch(kinds.NODES, name, {"metadata": {"annotations": {names.RECORD: None}}, "spec": {"taints": None}})
    tina = world.process("tina")

    def renews() -> None:
        for moment in range(100):
            body = {"spec": {"renewTime": f"2026-11-21T10:00:{moment % 60:02}.{moment:06}Z"}}
            world.patch(kinds.LEASES, "node-n2", body, names.NAMESPACE)
            tina.clock.sleep(5.0)

    tina.spawn(renews)
    result = undone(world)
    assert outcomes(result) == {"n2": "held"}
    assert left(world) == {"node-n2"}


def test_a_stored_run_that_cannot_be_read_is_listed_and_in_nobodys_way(world: World) -> None:
    run = begun(world, "n1")
    name = f"run-{run.partition('/')[0]}"
    world.patch(kinds.CONFIGMAPS, name, {"data": {"plan": "{"}}, names.NAMESPACE)
    at(world, "cordoned", "n2", run="bb/1", by="ann")
    listed = world.process("otto").run(lambda ctx: state(ctx, StateOptions("listed")))
    assert any("cannot be read" in trace["what"] and name in trace["object"] for trace in listed.data["traces"])
    assert outcomes(undone(world)) == {"n2": "uncordoned"}


def test_naming_a_run_takes_no_lock_of_somebody_else(world: World) -> None:
    """Medik8s' operators keep theirs for an hour, and renew it seldom."""
    at(world, "cordoned", "n1", run="aa/1")
    theirs = {"holderIdentity": "node-maintenance-operator", "leaseDurationSeconds": 3600}
    world.patch(kinds.LEASES, "node-n1", {"spec": theirs}, names.NAMESPACE)
    world.machine.run_for(600.0)
    result = undone(world, "aa")
    assert outcomes(result) == {"n1": "held"}
    assert is_out(world, "n1")
    assert world.get(kinds.LEASES, "node-n1", names.NAMESPACE)["spec"]["holderIdentity"] == theirs["holderIdentity"]


def listed(world: World) -> dict[str, bool]:
    """Whether each run that left something is said to live."""
    return {trace["run"]: trace["alive"] for trace in world.process("otto").run(look).data["traces"]}


def look(ctx: Context) -> Result:
    return state(ctx, StateOptions("listed"))


@pytest.mark.parametrize("skew", [-600.0, 600.0], ids=["its clock is behind", "its clock is ahead"])
def test_a_run_between_two_waves_is_listed_as_living_and_a_dead_one_as_dead(world: World, skew: float) -> None:
    world.process("tina", skew=skew)
    run = begun(world, "n1", "n2")
    world.machine.run_for(30.0)
    assert listed(world) == {run.partition("/")[0]: True}
    world.process("tina").run(lambda ctx: state(ctx, StateOptions("noted", nodes=("n1",), lease_duration=900.0)), run)
    world.machine.kill(world.process("tina").process)
    world.machine.run_for(800.0)
    assert listed(world) == {run.partition("/")[0]: True}, "the next wave may take as long as it said"
    world.machine.run_for(200.0)
    assert listed(world) == {run.partition("/")[0]: False}


def test_what_is_kept_of_a_dead_run_goes_also_where_its_sign_was_to_last_for_long(world: World) -> None:
    run = begun(world, "n1", "n2")
    tina = world.process("tina")
    tina.run(lambda ctx: state(ctx, StateOptions("noted", nodes=("n1",), lease_duration=900.0)), run)
    world.machine.kill(tina.process)
    world.machine.run_for(800.0)
    assert not undone(world).failed
    assert listed(world) == {run.partition("/")[0]: True}, "it may still come back"
    world.machine.run_for(200.0)
    assert not undone(world).failed
    assert listed(world) == {}
