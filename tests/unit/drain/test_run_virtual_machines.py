# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""KubeVirt's machines are read where pods run them, if they may be, and cost no request elsewhere."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_drain import DrainOptions, drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning.run_plan import PlanOptions, make_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.evicting import of_evictions

READ = (kinds.VIRTUAL_MACHINES.resource, kinds.KUBEVIRTS.resource)
RUN = "r1/first"


def machine(strategy: str) -> Raw:
    meta = {"name": "vm", "namespace": manifests.SHOP}
    status = {"phase": "Running", "conditions": [{"type": "LiveMigratable", "status": "True"}]}
    kind = kinds.VIRTUAL_MACHINES
    body = {"metadata": meta, "spec": {"evictionStrategy": strategy}, "status": status}
    return {"apiVersion": kind.api_version, "kind": kind.kind, **body}


def world_of(strategy: str = "LiveMigrate") -> World:
    """A running machine on n1, and n2 with room for it."""
    world = World([manifests.node("n1")], add_ons=["kubevirt.io"])
    world.apply(machine(strategy))
    kind = kinds.VIRTUAL_MACHINES
    uid = world.get(kind, "vm")["metadata"]["uid"]
    owner = {"apiVersion": kind.api_version, "kind": kind.kind, "name": "vm", "uid": uid, "controller": True}
    made = manifests.template("vm")
    made["metadata"] |= {"name": "virt-launcher-vm-x", "namespace": manifests.SHOP, "ownerReferences": [owner]}
    made["metadata"]["labels"] = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": uid}
    world.apply({"apiVersion": "v1", "kind": "Pod", **made})
    world.settle()
    world.apply(manifests.node("n2"))
    world.settle()
    return world


def planned(me: Actor) -> Result:
    return me.run(lambda ctx: make_plan(ctx, PlanOptions(nodes=("n1",), choices=DrainPolicy())))


def drained(me: Actor) -> Result:
    assert not me.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", ("n1",))), RUN).failed
    assert not me.run(lambda ctx: guard(ctx, GuardOptions("present", ("n1",))), RUN).failed
    return me.run(lambda ctx: drain(ctx, DrainOptions(("n1",), DrainPolicy(), timeout=300.0)), RUN)


def reads(world: World) -> list[tuple[str, str]]:
    sent = [one.request for one in world.log if one.request.resource in READ]
    return [(request.verb, request.resource) for request in sent]


def test_a_machine_that_is_migrated_meanwhile_leaves_without_consent() -> None:
    with world_of() as world:
        me = world.process("me")
        (told,) = [one for one in planned(me).data["findings"] if one["code"] == "operator_budget"]
        assert told["severity"] == "warning"
        assert reads(world) == [("list", one) for one in READ], "by the plan"
        # The webhook denies what it makes KubeVirt act on; the source has succeeded once the machine runs elsewhere.
        me.faults.when(of_evictions, Fault("webhook"), times=1)
        world.machine.after(40.0, lambda: succeed(world), "migration")
        (node,) = drained(me).data["nodes"]
        assert (node["outcome"], [pod["outcome"] for pod in node["pods"]]) == ("drained", ["evicted"])
        assert reads(world) == [("list", one) for one in READ] * 3, "and by pdb_guard and node_drain"


def succeed(world: World) -> None:
    world.patch(kinds.PODS, "virt-launcher-vm-x", {"status": {"phase": "Succeeded"}}, subresource="status")


@pytest.mark.parametrize("why", ["forbidden", "not installed"])
def test_what_may_not_be_read_is_judged_by_its_pod(why: str) -> None:
    with world_of() as world:
        if why == "forbidden":
            world.server.denied |= {("list", one) for one in READ}
        else:
            world.server.add_ons = frozenset()
        result = planned(world.process("me"))
        codes: list[t.Any] = [one["code"] for one in result.data["findings"] if one["severity"] == "blocker"]
        assert codes == ["not_surgeable"]
        (told,) = [one for one in result.data["findings"] if one["code"] == "not_surgeable"]
        assert "list on virtualmachineinstances.kubevirt.io" in told["remedy"]


def test_elsewhere_nothing_is_read() -> None:
    with World([manifests.node("n1"), manifests.deployment("web", 2)], add_ons=["kubevirt.io"]) as world:
        me = world.process("me")
        planned(me)
        drained(me)
        assert reads(world) == []
