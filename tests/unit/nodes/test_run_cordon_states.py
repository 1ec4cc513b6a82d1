# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each state of `node_cordon` makes of each step of a record, for whom, and in how many requests."""

from __future__ import annotations

import collections
import itertools
import typing as t
from functools import partial

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import (
    CallAborted,
    Context,
    Result,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions, State
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.read import instant
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import lock_leases
from ansible_collections.kubeops.node_maintenance.tests.unit.nodes.test_run_cordon import drained, record_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

STATES: tuple[State, ...] = ("cordoned", "out", "returning", "parked", "uncordoned")
STEPS: tuple[t.Any, ...] = ("cordoned", "drained", "out", "returning", "parked")


def brought(
    world: World, state: State, run: str = "r1/n1", *nodes: str, check: bool = False, **options: t.Any
) -> tuple[Context, list[Raw]]:
    """The call of a person, and what is told of each node."""
    me = world.process("me")
    ctx = me.ctx(run, check=check)
    result = me.run(lambda _ctx: cordon(ctx, CordonOptions(state, nodes or ("a",), **options)))
    assert result.failed == any(node["failed"] for node in result.data["nodes"])
    return ctx, result.data["nodes"]


def outcome(world: World, state: State, run: str = "r1/n1", **options: t.Any) -> str:
    _ctx, (node,) = brought(world, state, run, **options)
    return str(node["outcome"])


def requests(world: World) -> dict[str, int]:
    """How many of each verb and kind."""
    return dict(collections.Counter(f"{sent.request.verb} {sent.request.resource}" for sent in world.log))


def alone(step: t.Any = "cordoned") -> World:
    return World([drained(step=step)], settle=False)


SAME, OTHERS, BY_HAND = ("r1/n1",), ("r1/n2", "/n2"), ("", "r1")


@pytest.mark.parametrize(("step", "state"), list(itertools.product(STEPS, STATES)))
def test_who_may_bring_a_node_from_which_step_to_which_state(step: str, state: State) -> None:
    """While a node is out only its own start may; once it is parked everybody; between them any start of the run.

    A call of another run may take up the work of one that died, not end it.
    """
    with alone(step) as world:
        for run in (*SAME, *OTHERS, *BY_HAND, "r2/n2"):
            if step == "out":
                may = run in SAME
            else:
                may = run != "r2/n2" or step == "parked" or state in ("cordoned", "returning")
            assert (outcome(world, state, run, check=True) != "adopted_by") is may, run
            assert outcome(world, state, run, check=True, adopt=True) != "adopted_by", "the caller vouches"


@pytest.mark.parametrize(("step", "state"), [("out", "cordoned"), ("drained", "uncordoned")])
def test_a_refusal_names_the_node(step: str, state: State) -> None:
    with alone(step) as world:
        _ctx, (node,) = brought(world, state, "r2/n2")
    assert node["outcome"] == "adopted_by"
    assert node["message"].startswith("Node a ")
    assert f"step {step}" in node["message"]


@pytest.mark.parametrize(
    ("step", "state", "found"),
    [
        ("cordoned", "cordoned", "already_cordoned"),
        ("drained", "cordoned", "already_cordoned"),
        ("out", "cordoned", "cordoned"),
        ("returning", "cordoned", "cordoned"),
        ("parked", "cordoned", "cordoned"),
        ("out", "out", "already_out"),
        ("drained", "out", "out"),
        ("parked", "parked", "already_parked"),
        ("returning", "parked", "parked"),
        ("parked", "returning", "returning"),
        ("cordoned", "uncordoned", "uncordoned"),
    ],
)
def test_a_node_at_its_state_already_is_not_written(step: str, state: State, found: str) -> None:
    with alone(step) as world:
        ctx, (node,) = brought(world, state)
        assert node["outcome"] == found
        already = found.startswith("already")
        assert bool(ctx.changes) is not already
        if already:
            assert requests(world) == {"list nodes": 1}, "no lock is taken where there is nothing to do"
            assert node["message"] == f"Node a is {state} already."
            assert node["record"]["step"] == step


@pytest.mark.parametrize(
    ("step", "state", "said"),
    [
        ("drained", "out", "handed over to the tasks on its host"),
        ("out", "returning", "our taint removed, still cordoned"),
        ("returning", "parked", "left out of service"),
        ("drained", "uncordoned", "uncordoned"),
        ("out", "cordoned", "maintenance resumed"),
    ],
)
def test_a_line_of_progress_says_what_was_done(step: str, state: State, said: str) -> None:
    with alone(step) as world:
        brought(world, state)
        lines = [event for event in world.process("me").told if event.what == state]
        assert [(event.node, event.message) for event in lines] == [("a", said)]
        if state != "uncordoned":
            assert record_of(world)["step"] == state


def test_a_new_start_resumes_in_its_own_name_and_keeps_what_the_first_one_wrote() -> None:
    with alone("drained") as world:
        before = record_of(world)
        _ctx, (node,) = brought(world, "cordoned", "r1/n2", reason="")
        now = record_of(world)
        assert node["outcome"] == "cordoned", "the proof that it is drained was another start's"
        assert (now["run"], now["nonce"], now["by"], now["step"]) == ("r1", "n2", "me@sim", "cordoned")
        assert (now["since"], now["reason"], now["prior"]) == (before["since"], before["reason"], before["prior"])


def test_since_when_a_node_is_out_and_what_had_left_it_is_told_by_the_callers_clock() -> None:
    with World([drained(step="parked", moved=3)], settle=False) as world:
        me = world.process("late", skew=5000.0)
        world.machine.run_for(600.0)
        for state in ("returning", "uncordoned"):
            (node,) = me.run(partial(_brought, state), "/n2").data["nodes"]
            out = instant(node["out_since"])
            assert out is not None
            assert me.clock.epoch() - out == pytest.approx(600, abs=5)
            assert node["moved_before"] == 3


def _brought(state: State, ctx: Context) -> Result:
    return cordon(ctx, CordonOptions(state, ("a",)))


def test_a_new_start_may_say_another_reason_and_the_same_one_keeps_who_began() -> None:
    with alone("returning") as world:
        brought(world, "cordoned", "r1/n2", reason="a new disk")
        assert (record_of(world)["reason"], record_of(world)["by"]) == ("a new disk", "me@sim")
        brought(world, "parked", "r1/n2", reason="another")
        assert (record_of(world)["reason"], record_of(world)["by"]) == ("a new disk", "me@sim")
    with alone("returning") as world:
        brought(world, "parked", "r1/n1")
        assert record_of(world)["by"] == "tina"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("check", [False, True])
def test_a_node_without_a_record(state: State, check: bool) -> None:
    with World([manifests.node("a")], settle=False) as world:
        _ctx, (node,) = brought(world, state, check=check)
        if state == "cordoned":
            assert (node["outcome"], node["record"]["step"]) == ("cordoned", "cordoned")
        elif state == "uncordoned":
            assert node["outcome"] == "not_in_maintenance"
            assert node["message"] == "Node a has no record, so there is nothing of ours to undo."
        else:
            assert node["outcome"] == (state if check else "not_in_maintenance_yet")
            assert ("would be cordoned by then" if check else "state=cordoned") in node["message"]


def test_a_node_that_somebody_else_cordoned_stays_so() -> None:
    with World([manifests.node("a")], settle=False) as world:
        world.cordon("a")
        _ctx, (node,) = brought(world, "uncordoned")
        assert node["message"].endswith("Somebody else cordoned it, and it stays so.")
        _ctx, (node,) = brought(world, "cordoned")
        assert node["kept"] == ["node a was cordoned before by somebody else and stays so afterwards"]
        _ctx, (node,) = brought(world, "uncordoned")
        assert node["record"] is None
        assert world.get(kinds.NODES, "a")["spec"]["unschedulable"]
        assert [event.message for event in world.process("me").told][-1] == "given back, cordoned as before"


def test_what_somebody_changed_meanwhile_is_told_of_a_node_that_stays_out() -> None:
    with alone("cordoned") as world:
        world.cordon("a", wanted=False)
        states: tuple[State, ...] = ("parked", "returning")
        for state in states:
            _ctx, (node,) = brought(world, state)
            assert node["kept"] == ["somebody uncordoned node a; our taint still keeps pods off it"]
        _ctx, (node,) = brought(world, "uncordoned")
        assert node["kept"][0] == "somebody uncordoned node a during the maintenance"


@pytest.mark.parametrize(
    ("state", "found"),
    [("cordoned", None), ("out", None), ("returning", "gone"), ("parked", "gone"), ("uncordoned", "gone")],
)
def test_a_node_that_does_not_exist(state: State, found: str | None) -> None:
    with World([manifests.node("a")], settle=False) as world:
        if found is None:
            with pytest.raises(CallAborted, match="There is no node b"):
                brought(world, state, "r1/n1", "a", "b")
            assert requests(world) == {"list nodes": 1}
        else:
            _ctx, shown = brought(world, state, "r1/n1", "b")
            assert [(node["outcome"], node["message"]) for node in shown] == [("gone", "Node b no longer exists.")]


def test_each_node_is_told_once_in_the_order_in_which_they_were_named() -> None:
    with World([manifests.node(name) for name in "abc"], settle=False) as world:
        _ctx, shown = brought(world, "cordoned", "r1/n1", "c", "a", "c", "b")
        assert [node["name"] for node in shown] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("step", "state", "asked"),
    [
        ("", "cordoned", {"list nodes": 1, "get namespaces": 1, "stays": 1, "get nodes": 0}),
        ("out", "cordoned", {"list nodes": 1, "get namespaces": 0, "stays": 1, "get nodes": 0}),
        ("drained", "parked", {"list nodes": 1, "get namespaces": 0, "stays": 0, "get nodes": 0}),
    ],
    ids=["a first record goes out on what was listed", "so does a further step", "its lock goes too"],
)
def test_in_how_many_requests(step: str, state: State, asked: dict[str, int]) -> None:
    node = drained(step=t.cast("t.Any", step)) if step else manifests.node("a")
    with World([node, manifests.namespace(names.NAMESPACE)], settle=False) as world:
        brought(world, state)
        leases, found = "leases.coordination.k8s.io", requests(world)
        assert found == {
            key: count
            for key, count in {
                "list nodes": asked["list nodes"],
                "get namespaces": asked["get namespaces"],
                f"list {leases}": 1,
                f"create {leases}": 2,
                "get nodefences.maintenance.kubeops.io": 1,
                "get nodes": asked["get nodes"],
                "patch nodes": 1,
                f"patch {leases}": asked["stays"],
                f"delete {leases}": 2 - 2 * asked["stays"],
            }.items()
            if count
        }


@pytest.mark.parametrize(
    ("step", "state", "options", "seconds"),
    [
        ("out", "cordoned", {}, 60),
        ("out", "cordoned", {"lease_duration": 900.0}, 900),
        ("drained", "out", {"lease_duration": 900.0}, 900),
        ("out", "returning", {"lease_duration": 900.0}, 60),
        ("drained", "parked", {"lease_duration": 900.0}, None),
        ("drained", "uncordoned", {}, None),
    ],
)
def test_for_how_long_the_lock_lasts_afterwards(
    step: str, state: State, options: dict[str, t.Any], seconds: int | None
) -> None:
    with alone(step) as world:
        brought(world, state, **options)
        leases = [raw for _place, raw in world.store.of(kinds.LEASES.resource).items()]
        mine = [lock_leases.Seen.among(lease, leases) for lease in leases if not lock_leases.is_heartbeat(lease)]
        assert [seen.duration for seen in mine] == ([seconds] if seconds else [])
        assert len(leases) == len([part for seen in mine for part in (seen.lease, seen.heartbeat) if part])


def test_a_lock_that_is_held_leaves_the_node_and_says_how_to_go_on() -> None:
    with alone("cordoned") as world:
        brought(world, "cordoned", "r1/n2")
        world.patch(
            kinds.LEASES, "node-a", {"spec": {"holderIdentity": "x/y", "leaseDurationSeconds": 999}}, names.NAMESPACE
        )
        before = record_of(world)
        ctx, (node,) = brought(world, "parked", "r1/n2")
        assert node["outcome"] == "held"
        assert node["message"].startswith("Node a is held by run x ")
        assert node["message"].endswith("Wait until it ends, or inspect it with the recover playbook.")
        assert {key: node["record"][key] for key in ("run", "step")} == {"run": "r1", "step": "cordoned"}
        assert (record_of(world), ctx.changes) == (before, [])


def test_a_lock_that_may_not_be_written_names_the_permission_and_no_other_run() -> None:
    with alone("cordoned") as world:
        world.server.denied.add(("create", kinds.LEASES.resource))
        _ctx, (node,) = brought(world, "cordoned", "r1/n2")
    assert node["outcome"] == "held"
    assert node["message"].startswith("Node a could not be locked: create leases.coordination.k8s.io ")
    assert "403" in node["message"]
    assert "Wait until it ends" not in node["message"]


@pytest.mark.parametrize(("run", "patient"), [("r1/n2", True), ("r1", True), ("/n2", False), ("", False)])
def test_only_a_call_of_the_records_run_waits_a_minute_for_the_dying_one(run: str, patient: bool) -> None:
    with alone("cordoned") as world:
        tina = world.process("tina")
        tina.faults.when(lambda r: r.method == "PATCH" and r.resource == "nodes", Fault("hang"), times=99)
        tina.call(lambda ctx: cordon(ctx, CordonOptions("parked", ("a",))), "r1/n1")
        world.machine.run_for(0.5)
        began = world.machine.now
        _ctx, (node,) = brought(world, "cordoned", run)
        assert (node["outcome"], world.machine.now - began >= 60.0) == ("held", patient)


def test_check_mode_writes_nothing_and_predicts_the_change() -> None:
    with alone("drained") as world:
        ctx, (node,) = brought(world, "parked", check=True)
        assert (node["outcome"], [change.verb for change in ctx.changes]) == ("parked", ["patch"])
        assert requests(world) == {"list nodes": 1}
        assert record_of(world)["step"] == "drained"


@pytest.mark.parametrize(("options", "tainted"), [({}, True), ({"taint": True}, True), ({"taint": False}, False)])
def test_a_node_is_held_by_our_taint_unless_that_is_not_wanted(options: dict[str, t.Any], tainted: bool) -> None:
    with World([manifests.node("a")], settle=False) as world:
        brought(world, "cordoned", **options)
        taints = world.get(kinds.NODES, "a")["spec"].get("taints") or []
        assert (names.TAINT_KEY in [taint["key"] for taint in taints]) is tainted
