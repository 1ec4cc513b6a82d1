# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Work on a host begins when the load balancers outside of the cluster have left it."""

from __future__ import annotations

import functools
import json
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context, Result, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import cordon as steps
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import run_external_controllers
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions, State
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record, Step
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_locks import Locks
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

SINCE = "2026-01-01T00:00:00.000Z"
"""When the node was cordoned: when the worlds begin."""


def drained(labels: t.Mapping[str, str] | None = None, step: Step = "drained", **changes: t.Any) -> Raw:
    """A node in the hands of run `r1`, which `tina` started."""
    found = manifests.node("a", labels=labels)
    draft = Record("r1", "n1", "tina", "", SINCE, "cordoned", "", f"{names.NAMESPACE}/node-a", {})
    seen = {**found, "metadata": {**found["metadata"], "uid": "", "resourceVersion": "1"}}
    record, change = steps.take_out(Node.of(seen), draft, taint=True)
    assert change is not None
    found["spec"] |= (change.body or {}).get("spec") or {}
    found["metadata"]["annotations"] = {names.RECORD: replace(record, step=step, **changes).dump()}
    return found


def record_of(world: World) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(world.get(kinds.NODES, "a")["metadata"]["annotations"][names.RECORD]))


def brought(world: World, state: State, run: str) -> tuple[Context, Result]:
    """The call, and what came of it."""
    me = world.process("me")
    ctx = me.ctx(run)
    return ctx, me.run(lambda _ctx: cordon(ctx, CordonOptions(state, ("a",))))


@pytest.mark.parametrize(
    ("services", "labels", "waited"),
    [
        pytest.param(["ClusterIP", "LoadBalancer"], {}, 18.0, id="waits for what is left of the time"),
        pytest.param(["ClusterIP", "NodePort"], {}, 0.0, id="no load balancer outside"),
        pytest.param(None, {}, 18.0, id="nobody may look: there may be one"),
        pytest.param(["LoadBalancer"], {names.BALANCERS.partition("/")[2]: ""}, 0.0, id="left out before"),
    ],
)
def test_work_waits_for_load_balancers(services: list[str] | None, labels: dict[str, str], waited: float) -> None:
    with World([drained(labels)], settle=False) as world:
        for number, kind in enumerate(services or ()):
            made = manifests.service(f"web-{number}")
            world.apply({**made, "spec": {**made["spec"], "type": kind}})
        if services is None:
            world.server.denied.add(("list", "services"))
        world.machine.run_for(12.0)
        ctx, result = brought(world, "out", "r1/n1")
        assert not result.failed, result.message
        assert record_of(world)["step"] == "out"
        # By the server's clock, which tells whole seconds, and as long as it takes to ask twice what is refused.
        assert world.machine.now - 12.0 == pytest.approx(waited, abs=1.0)
        assert ("waiting" in [event.what for event in ctx.timeline]) is bool(waited)


def test_by_default_a_node_is_tainted_and_marked_for_all_other_controllers() -> None:
    options = CordonOptions("cordoned", ("n1",))
    assert (options.taint, options.marks) == (True, ["load_balancers", "autoscalers", "remediation"])


@pytest.mark.parametrize(
    ("waits", "said"),
    [
        ({"n1": 0.0, "n2": 600.0, "n3": 3.0}, ["600 s for others to react to MaintenancePlanned of n2, n3"]),
        ({"n1": 0.0}, []),
        ({}, []),
    ],
)
def test_only_nodes_whose_notice_is_not_over_are_waited_for(waits: dict[str, float], said: list[str]) -> None:
    with World() as world:
        me = world.process("me")
        before = world.machine.now
        me.run(lambda ctx: run_external_controllers.await_notice(ctx, waits))
        assert [event.message for event in me.told] == said
        assert world.machine.now - before == pytest.approx(max(waits.values(), default=0.0), abs=1.0)


@pytest.mark.parametrize("run", ["", "/n2", "r1/n2", "r2/n2"])
@pytest.mark.parametrize("state", ["returning", "uncordoned", "cordoned", "parked"])
def test_a_node_whose_tasks_run_is_given_back_by_nobody_else(run: str, state: State) -> None:
    with World([drained(step="out")]) as world:
        before = world.get(kinds.NODES, "a")
        _ctx, result = brought(world, state, run)
        assert result.failed
        assert "recover_run=r1" in result.message
        assert "tina" in result.message
        assert world.get(kinds.NODES, "a") == before


@pytest.mark.parametrize(
    ("run", "nonce"),
    [("", ""), ("/n2", "n2"), ("r2/n2", "n2")],
    ids=["by hand", "one start of release", "another run"],
)
def test_a_parked_node_is_taken_up_in_the_name_of_its_run(run: str, nonce: str) -> None:
    with World([drained(step="parked")]) as world:
        _ctx, result = brought(world, "returning", run)
        assert not result.failed, result.message
        record = record_of(world)
        assert (record["run"], record["nonce"], record["step"]) == ("r1", nonce, "returning")


def test_a_record_that_cannot_be_read_fails_its_own_node_alone() -> None:
    spoilt = drained()
    spoilt["metadata"]["annotations"][names.RECORD] = "{"
    with World([spoilt]) as world:
        _ctx, result = brought(world, "parked", "r1/n1")
        assert result.data["nodes"][0]["failed"]
        assert "cannot be read" in result.message


@pytest.mark.parametrize("state", ["returning", "parked", "out"])
def test_a_node_that_another_gave_back_meanwhile_keeps_no_lock(state: State) -> None:
    with World([drained()]) as world:

        def given_back() -> None:
            world.patch(kinds.NODES, "a", {"metadata": {"annotations": {names.RECORD: None}}})

        locking = kinds.LEASES.resource
        world.process("me").faults.overtaken(lambda r: r.writes and r.resource == locking, given_back)
        _ctx, result = brought(world, state, "r1/n1")
        assert result.data["nodes"][0]["outcome"] == "not_in_maintenance_yet"
        assert world.store.of(locking) == {}


def test_a_lock_is_kept_for_as_long_as_asked_where_nobody_can_renew_it() -> None:
    """So it is before somebody's tasks switch a machine off; the node is cordoned and drained already."""

    def begun(world: World, who: str, run: str, **options: t.Any) -> dict[str, t.Any]:
        asked = CordonOptions(options.pop("state", "cordoned"), ("n1",), **options)
        shown: dict[str, t.Any] = world.process(who).run(lambda ctx: cordon(ctx, asked), run).data["nodes"][0]
        return shown

    with World([manifests.node("n1")]) as world:
        begun(world, "tina", "aa/1")
        assert begun(world, "tina", "aa/1", lease_duration=600.0)["outcome"] == "already_cordoned"
        world.machine.run_for(500.0)
        other = begun(world, "otto", "/2", state="returning")
        assert (other["outcome"], other["failed"]) == ("held", True)
        assert begun(world, "tina", "aa/1", state="returning")["outcome"] == "returning"


def test_a_release_removes_the_lock_that_a_killed_one_left_and_none_that_lives() -> None:
    def released(world: World, who: str, run: str) -> t.Any:
        task = world.process(who).call(lambda ctx: cordon(ctx, CordonOptions("uncordoned", ("n1", "n2"))), run)
        world.machine.run_until(lambda: not task.alive)
        return task

    with World([manifests.node("n1"), manifests.node("n2")]) as world:
        tina, ann = world.process("tina"), world.process("ann")
        tina.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", ("n1",))), "/1")
        tina.faults.when(lambda r: r.method == "PATCH" and r.resource == "nodes", Fault("killed after"))
        released(world, "tina", "/1")
        locks = Locks(ann.ctx(), Run("bb", "2"), {"n2": f"{names.NAMESPACE}/node-n2"})
        taking = ann.spawn(locks.take)
        world.machine.run_until(lambda: not taking.alive)
        assert not released(world, "otto", "/3").value().failed
        assert {name for _ns, name in world.store.of(kinds.LEASES.resource)} == {
            "node-n2",
            names.heartbeat_name("bb/2"),
        }


def _bring(options: CordonOptions, ctx: Context) -> Result:
    return cordon(ctx, options)


@pytest.mark.parametrize("later", [True, False])
def test_what_a_node_was_marked_with_is_taken_back_whatever_later_calls_say(later: bool) -> None:
    """The options that took it out are forgotten by then: its record says what is ours."""
    mine = functools.partial(
        CordonOptions, exclude_from_load_balancers=not later, hold_autoscalers=later, hold_remediation=False
    )
    others = functools.partial(
        CordonOptions, exclude_from_load_balancers=later, hold_autoscalers=later, hold_remediation=later
    )
    with World([manifests.node("a")]) as world:
        before = world.get(kinds.NODES, "a")
        me = world.process("me")
        out = me.run(lambda ctx: cordon(ctx, mine("cordoned", ("a",))))
        assert not out.failed, out.message
        meta = world.get(kinds.NODES, "a")["metadata"]
        assert "remediation.medik8s.io/exclude-from-remediation" not in meta["labels"]
        assert ("karpenter.sh/do-not-disrupt" in meta["annotations"]) is later
        assert (names.BALANCERS.partition("/")[2] in meta["labels"]) is not later
        for options in (others(state, ("a",)) for state in ("cordoned", "returning", "uncordoned")):
            result = me.run(functools.partial(_bring, options))
            assert not result.failed, result.message
        after = world.get(kinds.NODES, "a")
    for node in (before, after):
        node["metadata"].pop("resourceVersion")
    assert after == before
