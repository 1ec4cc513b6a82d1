# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `node_cordon` waits for and proves around its writes, and what each node is told if it goes wrong."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records
from ansible_collections.kubeops.node_maintenance.tests.unit.nodes.test_run_cordon import drained
from ansible_collections.kubeops.node_maintenance.tests.unit.nodes.test_run_cordon_states import (
    alone,
    brought,
    requests,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, nodes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


def pod(number: int, on: str = "a") -> Raw:
    spec = {**manifests.template("web")["spec"], "nodeName": on}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"web-{number}", "namespace": "shop"}, "spec": spec}


@pytest.mark.parametrize(
    ("pods", "named"), [(0, 0), (1, 1), (5, 5), (7, 5)], ids=["none", "one", "five", "seven, of which five are named"]
)
def test_no_task_runs_on_a_node_with_pods_that_have_to_leave(pods: int, named: int) -> None:
    with World([drained(), manifests.node("b"), *map(pod, range(pods)), pod(9, "b")], settle=False) as world:
        ctx, (node,) = brought(world, "out")
        assert node["outcome"] == ("not_drained" if pods else "out")
        assert node["message"].count("Pod shop/web-") == named
        if pods:
            assert node["message"].endswith("no task may run on it. Drain it again with node_drain.")
            assert ctx.changes == []
            assert "patch nodes" not in requests(world)
            assert "list services" not in requests(world), "nothing is waited for"


@pytest.mark.parametrize(("step", "found"), [("cordoned", "not_drained"), ("returning", "not_drained")])
def test_no_task_runs_on_a_node_whose_record_does_not_say_drained(step: t.Any, found: str) -> None:
    with alone(step) as world:
        _ctx, (node,) = brought(world, "out")
        assert node["outcome"] == found
        assert f"(its record says {step})" in node["message"]


def test_a_parked_node_may_be_handed_over_again() -> None:
    with alone("parked") as world:
        _ctx, (node,) = brought(world, "out")
        assert node["outcome"] == "out"


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_one_node_that_is_not_drained_keeps_no_other_from_its_tasks(order: tuple[str, str]) -> None:
    other = drained(step="cordoned")
    other["metadata"]["name"] = "b"
    record = json.loads(other["metadata"]["annotations"][names.RECORD])
    other["metadata"]["annotations"][names.RECORD] = json.dumps({**record, "lease": f"{names.NAMESPACE}/node-b"})
    with World([other, drained()], settle=False) as world:
        _ctx, shown = brought(world, "out", "r1/n1", *order)
        assert {node["name"]: node["outcome"] for node in shown} == {"a": "out", "b": "not_drained"}


def uncordoning(world: World, stays: float | None) -> tuple[float, Raw]:
    """How long giving a node back takes whose unschedulable taint stays for so many seconds after the cordon."""
    lifecycle = world.controller(nodes.Lifecycle)
    lifecycle.stop() if stays is None else setattr(lifecycle, "lag", stays)
    me, began = world.process("me"), world.machine.now
    _ctx, (node,) = brought(world, "uncordoned")
    assert me.told[-1].message.startswith("uncordoned")
    return world.machine.now - began, node


@pytest.mark.parametrize(
    ("stays", "seconds"),
    [
        pytest.param(0.014, 0.014, id="some milliseconds"),
        pytest.param(9.95, 9.95, id="almost ten seconds"),
        pytest.param(None, 10.0, id="for ever"),
    ],
)
def test_a_node_is_back_when_its_unschedulable_taint_is_gone(stays: float | None, seconds: float) -> None:
    with World([drained(step="returning"), manifests.namespace(names.NAMESPACE)]) as world:
        took, node = uncordoning(world, stays)
        assert took == pytest.approx(seconds, abs=0.021)
        found = requests(world)
        assert ("get nodes" in found, found["watch nodes"]) == (False, 1)
        assert node["outcome"] == "uncordoned"
        noted = f"; the taint {names.UNSCHEDULABLE_TAINT} is still there"
        assert (noted in node["message"]) is (stays is None)
        assert (noted in world.process("me").told[-1].message) is (stays is None)


def test_nodes_are_given_back_in_one_write_each_and_one_watch_tells_when_they_are_schedulable() -> None:
    leaving = [drained(step="returning") for _name in "abcdefghij"]
    for name, raw in zip("abcdefghij", leaving, strict=True):
        record = json.loads(raw["metadata"]["annotations"][names.RECORD])
        record["lease"] = f"{names.NAMESPACE}/node-{name}"
        raw["metadata"] |= {"name": name, "annotations": {names.RECORD: json.dumps(record)}}
    with World([*leaving, manifests.namespace(names.NAMESPACE)]) as world:
        began = world.machine.now
        _ctx, shown = brought(world, "uncordoned", "r1/n1", *"abcdefghij")
        assert {node["outcome"] for node in shown} == {"uncordoned"}
        found = {what: count for what, count in requests(world).items() if what.endswith(" nodes")}
        assert found == {"list nodes": 1, "patch nodes": 10, "watch nodes": 1}
        assert world.machine.now - began < 1.0
        assert not any(world.get(kinds.NODES, name)["spec"].get("taints") for name in "abcdefghij")


def test_a_node_that_cannot_be_read_after_it_was_given_back_is_back() -> None:
    with World([drained(step="returning")]) as world:
        me, began = world.process("me"), world.machine.now
        world.controller(nodes.Lifecycle).stop()
        me.faults.overtaken(
            lambda request: (request.method, request.resource) == ("PATCH", "nodes"),
            lambda: me.faults.when(lambda request: request.verb == "watch", Fault("error"), times=99),
        )
        _ctx, (node,) = brought(world, "uncordoned")
        assert (node["outcome"], world.machine.now - began < 1.0) == ("uncordoned", True)
        assert "still there" not in node["message"]


def test_a_node_that_stays_cordoned_is_not_waited_for() -> None:
    with World([manifests.node("a")], settle=False) as world:
        world.cordon("a")
        brought(world, "cordoned")
        world.settle()
        began = world.machine.now
        brought(world, "uncordoned")
        assert world.machine.now == began


def test_eight_nodes_are_written_at_once() -> None:
    with World([manifests.node(f"n{number}") for number in range(10)], settle=False) as world:
        me = world.process("me")
        me.faults.when(lambda r: (r.method, r.resource) == ("PATCH", "nodes"), Fault("late", 5.0), times=99)
        brought(world, "cordoned", "r1/n1", *(f"n{number}" for number in range(10)))
        moments = [sent.left for sent in world.log if (sent.request.verb, sent.request.resource) == ("patch", "nodes")]
        assert [moments.count(at) for at in sorted(set(moments))] == [8, 2]


def test_nodes_without_records_share_the_identity_of_their_call() -> None:
    with World([manifests.node("a"), manifests.node("b")], settle=False) as world:
        _ctx, shown = brought(world, "cordoned", "", "a", "b")
        runs = {node["record"]["run"] for node in shown}
        assert len(runs) == 1
        assert runs != {""}
        assert requests(world)["list leases.coordination.k8s.io"] == 1, "their locks are taken together"


def test_a_lock_that_is_lost_before_the_write_fails_its_node_alone() -> None:
    with World([manifests.node("a"), manifests.node("b")], settle=False) as world:
        me = world.process("me")
        me.faults.when(lambda r: r.method == "PATCH" and r.name == "a", Fault("frozen", 300.0))
        task = me.call(lambda ctx: cordon(ctx, CordonOptions("cordoned", ("a", "b"))), "r1/n1")
        world.machine.run_for(0.5)
        rival = {"spec": {"holderIdentity": "r2/n2"}}
        world.delete(kinds.LEASES, names.heartbeat_name("r1/n1"), names.NAMESPACE)
        world.patch(kinds.LEASES, "node-a", rival, names.NAMESPACE)
        world.machine.run_until(lambda: not task.alive)
        outcomes = {node["name"]: node["outcome"] for node in task.value().data["nodes"]}
        assert outcomes == {"a": "adopted_by", "b": "cordoned"}
        assert "unschedulable" not in world.get(kinds.NODES, "a")["spec"]


def test_a_write_that_is_refused_fails_its_node_alone_and_keeps_its_lock_for_the_next_try() -> None:
    with World([manifests.node("a"), manifests.node("b")], settle=False) as world:
        world.process("me").faults.when(lambda r: r.method == "PATCH" and r.name == "a", Fault("forbidden"), times=9)
        ctx, shown = brought(world, "cordoned", "r1/n1", "a", "b")
        assert [node["outcome"] for node in shown] == ["failed", "cordoned"]
        assert shown[0]["message"].startswith("Node a: ")
        assert len(ctx.changes) == 1
        leases = {name for _namespace, name in world.store.of(kinds.LEASES.resource)}
        assert leases == {"node-a", "node-b", names.heartbeat_name("r1/n1")}


def test_what_another_call_has_brought_there_meanwhile_is_no_change_of_ours() -> None:
    with alone("drained") as world:

        def parked() -> None:
            record = t.cast("node_records.Record", node_records.record_of(Node.of(world.get(kinds.NODES, "a"))))
            body = {"metadata": {"annotations": {names.RECORD: record.at("parked").dump()}}}
            world.patch(kinds.NODES, "a", body)

        world.process("me").faults.overtaken(lambda r: (r.method, r.resource) == ("PATCH", "nodes"), parked)
        ctx, (node,) = brought(world, "parked")
        assert (node["outcome"], ctx.changes) == ("already_parked", [])
        assert world.find(kinds.LEASES, "node-a", names.NAMESPACE) is None
