# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which node comes back and which stays, whom a failure is blamed on, and what becomes of locks and stored runs."""

from __future__ import annotations

import itertools
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import run_recovery
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs.arguments import StateOptions, state
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record
from ansible_collections.kubeops.node_maintenance.tests.unit.nodes.test_run_cordon import drained
from ansible_collections.kubeops.node_maintenance.tests.unit.runs.test_run_recovery import (
    at,
    begun,
    is_out,
    left,
    outcomes,
    undone,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.state.test_run_lease import a_lease
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.locked import lease, rewrite

LEASES = kinds.LEASES.resource
WORK: tuple[t.Any, ...] = ("cordoned", "drained", "returning", "out", "parked")
YES_NO = (False, True)


@pytest.fixture
def world() -> t.Iterator[World]:
    made = [*(manifests.node(name) for name in ("n1", "n2", "n3")), manifests.namespace(names.NAMESPACE)]
    with World(made, settle=False) as world:
        yield world


def way(step: t.Any, reason: str = "", **how: bool) -> tuple[str | None, str]:
    """What becomes of a node that comes back by itself."""
    record = Record("aa", "1", "tina", reason, "2026-01-01T00:00:00Z", step, "", "", {})
    asked = {"is_done": False, "finished": False, "named": False, "parked": False, **how}
    chosen, message = run_recovery.way(Node.of(objects.node("n1")), record, **asked)
    return chosen.value if chosen else None, message


def test_an_undone_run_gives_back_what_nobody_works_on_and_asks_the_gates_about_the_rest() -> None:
    """The law of each node, for all that a caller can say."""
    for step, named, parked, is_done in itertools.product(WORK, YES_NO, YES_NO, YES_NO):
        found, message = way(step, named=named, parked=parked, is_done=is_done)
        if step in ("cordoned", "drained") or (step == "returning" and is_done):
            expected = None
        elif step == "returning" or named or (step == "parked" and parked):
            expected = "to_verify"
        else:
            expected = "left"
        assert found == expected, (step, named, parked, is_done)
        assert bool(message) is (expected is not None)


@pytest.mark.parametrize("step", WORK)
def test_only_finished_nodes_are_given_back_where_that_is_asked(step: str) -> None:
    assert way(step, finished=True, named=True)[0] == "left"
    assert f"Node n1 is at step {step} of run aa, so its work is not finished." in way(step, finished=True)[1]
    assert way(step, finished=True, is_done=True, named=True)[0] == ("to_verify" if step in ("out", "parked") else None)


@pytest.mark.parametrize(
    ("reason", "said"), [("a new disk", "(since 2026-01-01T00:00:00Z) (a new disk)."), ("", "Z).")]
)
def test_a_parked_nodes_reason_is_told(reason: str, said: str) -> None:
    assert said in way("parked", reason)[1]


def call(world: World, options: StateOptions, run: str = "", *, check: bool = False) -> Result:
    otto = world.process("otto")
    ctx = otto.ctx(run, check=check)
    return otto.run(lambda _ctx: state(ctx, options))


def test_finished_gives_back_the_nodes_whose_work_was_done_and_keeps_the_run(world: World) -> None:
    run = begun(world, "n1", "n2")
    at(world, "cordoned", "n1", "n2", run=run)
    world.process("tina").run(lambda ctx: state(ctx, StateOptions("noted", nodes=("n1",))), run)
    result = call(world, StateOptions("finished"), run.partition("/")[0])
    assert outcomes(result) == {"n1": "uncordoned", "n2": "left"}
    assert (is_out(world, "n1"), is_out(world, "n2")) == (False, True)
    assert names.run_name(run.partition("/")[0]) in left(world)


def test_another_runs_nodes_and_bad_records_are_nobodys_business_of_a_named_recovery(world: World) -> None:
    at(world, "cordoned", "n1", run="aa/1")
    at(world, "cordoned", "n2", run="bb/1", by="ann")
    world.patch(kinds.NODES, "n3", {"metadata": {"annotations": {names.RECORD: "{"}}})
    result = undone(world, "aa")
    assert (outcomes(result), result.failed) == ({"n1": "uncordoned"}, False)
    assert is_out(world, "n2")
    assert result.data["nodes"][0]["message"] == "Node n1 was given back."


def test_a_run_whose_nodes_fail_together_blames_only_the_one_at_fault(world: World) -> None:
    """Its lease is in a namespace that nobody may read; asked alone, the other node comes back."""
    at(world, "cordoned", "n1", "n2", run="aa/1")
    world.apply(manifests.namespace("other"))
    record = drained(step="cordoned")["metadata"]["annotations"][names.RECORD]
    foreign = record.replace('"r1"', '"aa"').replace(f"{names.NAMESPACE}/node-a", "other/node-n2")
    world.patch(kinds.NODES, "n2", {"metadata": {"annotations": {names.RECORD: foreign}}})
    world.process("otto").faults.when(
        lambda r: (r.resource, r.namespace) == (LEASES, "other"), Fault("forbidden"), times=999
    )
    result = undone(world, "aa")
    assert outcomes(result) == {"n1": "uncordoned", "n2": "held"}
    assert "Node n2 " in result.message
    assert "n1" not in result.message


def test_what_refuses_a_step_as_a_whole_is_told_of_each_node(world: World) -> None:
    at(world, "cordoned", "n1", "n2", run="aa/1")
    world.server.denied.add(("delete", LEASES))
    result = undone(world, "aa")
    assert outcomes(result) == {"n1": "failed", "n2": "failed"}
    messages = [node["message"] for node in result.data["nodes"]]
    assert [message.partition(" leases")[0] for message in messages] == ["Node n1: delete", "Node n2: delete"]


def test_check_mode_predicts_and_touches_nothing(world: World) -> None:
    run = begun(world, "n1")
    at(world, "cordoned", "n1", run=run)
    world.apply(a_lease("node-n3", "gone/1"))
    began, before = world.machine.now, left(world)
    result = call(world, StateOptions("undone"), check=True)
    assert outcomes(result) == {"n1": "uncordoned"}
    assert (is_out(world, "n1"), left(world), world.machine.now) == (True, before, began)
    sentences = [change.sentence for ctx in world.process("otto").contexts for change in ctx.changes]
    assert any("Uncordon node n1" in sentence for sentence in sentences)
    assert "Delete the leftover lock of node n3" in sentences
    assert f"Delete the stored run {run.partition('/')[0]}" in sentences, "its last node would be back by then"


def test_check_mode_keeps_a_run_whose_node_stays(world: World) -> None:
    run = begun(world, "n1", "n2")
    at(world, "cordoned", "n1", run=run)
    at(world, "parked", "n2", run=run)
    call(world, StateOptions("undone"), check=True)
    sentences = [change.sentence for ctx in world.process("otto").contexts for change in ctx.changes]
    assert not any("stored run" in sentence for sentence in sentences)


@pytest.mark.parametrize(
    ("name", "holder", "ours", "run", "gone"),
    [
        pytest.param("node-n3", "aa/1", True, "", True, id="a lock of ours"),
        pytest.param("node-n3", "aa/1", True, "aa", True, id="of the named run"),
        pytest.param("node-n3", "aa/1", True, "bb", False, id="of another run"),
        pytest.param("node-n3", "aa/1", False, "", False, id="somebody else's"),
        pytest.param("node-n1", "aa/1", True, "", False, id="of a node with a record that stays"),
        pytest.param("node-n2", "aa/1", True, "", False, id="of a node whose record cannot be read"),
        pytest.param("run-aa", "aa/1", True, "", True, id="a sign of life"),
        pytest.param("surge-x", "aa/1", True, "", False, id="another lease of ours"),
    ],
)
def test_which_leases_of_nobody_are_removed(
    world: World, name: str, holder: str, ours: bool, run: str, gone: bool
) -> None:
    at(world, "parked", "n1", run="zz/1")
    world.patch(kinds.NODES, "n2", {"metadata": {"annotations": {names.RECORD: "{"}}})
    world.apply(a_lease(name, holder, ours=ours))
    undone(world, run)
    assert (name not in left(world)) is gone


def test_a_lock_that_somebody_renews_is_told_and_a_failure(world: World) -> None:
    world.apply(a_lease("node-n3", "aa/1"))
    world.machine.after(7.0, lambda: rewrite(world, "n3"), "renew")
    result = undone(world)
    assert outcomes(result) == {"n3": "held"}
    assert (result.failed, result.message) == (True, "The lock of node n3 is still renewed by run aa.")
    assert lease(world, "n3")["holderIdentity"] == "aa/1"


def test_one_lock_that_cannot_be_deleted_keeps_no_other(world: World) -> None:
    world.apply(a_lease("node-n2", "aa/1"), a_lease("node-n3", "aa/1"))
    world.process("otto").faults.when(
        lambda r: r.method == "DELETE" and r.name == "node-n2", Fault("forbidden"), times=99
    )
    result = undone(world)
    assert result.message.startswith("The lock of node n2: ")
    assert left(world) == {"node-n2"}


def test_leases_that_cannot_be_watched_are_told_and_their_locks_stay(world: World) -> None:
    world.apply(a_lease("node-n3", "aa/1"))
    calls = iter(range(1000))
    world.process("otto").faults.when(
        lambda r: (r.verb, r.resource) == ("list", LEASES) and r.namespace == names.NAMESPACE and next(calls) > 0,
        Fault("forbidden"),
        times=99,
    )
    result = undone(world)
    assert result.message.startswith("Locks: ")
    assert left(world) == {"node-n3"}


@pytest.mark.parametrize(("duration", "seconds"), [(15, 6.0), (16, 0.0), (60, 0.0)])
def test_only_working_locks_are_looked_at_twice(world: World, duration: int, seconds: float) -> None:
    """A working call renews its lock every five seconds; whoever left it for longer does not work now."""
    world.apply(a_lease("node-n3", "aa/1", duration))
    began = world.machine.now
    shown = call(world, StateOptions("listed")).data["traces"]
    assert [(trace["run"], trace["alive"]) for trace in shown] == [("aa", False)]
    assert world.machine.now - began == seconds


@pytest.mark.parametrize("how", ["renewed", "taken meanwhile"])
def test_a_run_whose_lock_is_written_meanwhile_lives(world: World, how: str) -> None:
    world.apply(a_lease("node-n3", "aa/1"))
    if how == "renewed":
        world.machine.after(3.0, lambda: rewrite(world, "n3"), how)
    else:
        world.machine.after(3.0, lambda: world.apply(a_lease("node-n2", "aa/1")), how)
    shown = call(world, StateOptions("listed")).data["traces"]
    assert [trace["alive"] for trace in shown] == [True]


def test_a_lock_in_another_namespace_is_looked_at_where_its_record_says(world: World) -> None:
    at(world, "cordoned", "n1", run="aa/1")
    world.apply(manifests.namespace("other"))
    elsewhere = world.get(kinds.NODES, "n1")["metadata"]["annotations"][names.RECORD]
    elsewhere = elsewhere.replace(f"{names.NAMESPACE}/node-n1", "other/node-n1")
    world.patch(kinds.NODES, "n1", {"metadata": {"annotations": {names.RECORD: elsewhere}}})
    world.delete(kinds.LEASES, "node-n1", names.NAMESPACE)
    lock = a_lease("node-n1", "aa/1")
    world.apply({**lock, "metadata": {**lock["metadata"], "namespace": "other"}})
    renewed = {"spec": {"renewTime": "2026-02-02T00:00:00.000000Z"}}
    world.machine.after(3.0, lambda: world.patch(kinds.LEASES, "node-n1", renewed, "other"), "renewed")
    shown = call(world, StateOptions("listed")).data["traces"]
    assert {trace["alive"] for trace in shown} == {True}


def test_a_run_that_is_alive_is_told_and_stays_stored(world: World) -> None:
    run = begun(world, "n1")
    tina = world.process("tina")
    world.machine.after(30.0, lambda: tina.spawn(lambda: state(tina.ctx(run), StateOptions("noted"))), "noted")
    assert not undone(world).failed
    run_id = run.partition("/")[0]
    assert [event.message for event in world.process("otto").told] == [
        f"run {run_id} is alive between two of its nodes, so it stays stored"
    ]
    assert left(world) == {names.run_name(run_id)}
    assert len(world.store.of(kinds.CONFIGMAPS.resource)) == 1


@pytest.mark.parametrize(("node", "gone"), [("deleted", True), ("n1", True), ("n2", False)])
def test_a_guard_goes_where_none_of_its_nodes_has_a_record(world: World, node: str, gone: bool) -> None:
    at(world, "parked", "n2", run="zz/1")
    guard = manifests.budget(f"{names.GUARD_PREFIX}x", "web", maxUnavailable=1)
    guard["metadata"] |= {
        "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
        "annotations": {names.SERVES_NODES: f'{{"{node}":"uid-x"}}'},
    }
    world.apply(guard)
    assert not undone(world).failed
    assert (world.find(kinds.BUDGETS, f"{names.GUARD_PREFIX}x") is None) is gone
