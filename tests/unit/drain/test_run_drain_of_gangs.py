# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A gang over three nodes, from the plan to the drain, in a simulated cluster."""

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
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

RUN = "r1/first"
ON = ("n1", "n2", "n3")
GROUPS = kinds.POD_GROUPS.resource


def world_of(**spec: t.Any) -> World:
    """StatefulSet `train` with a pod on each of n1, n2 and n3, all of one PodGroup (Kubernetes 1.37)."""
    gang = {"schedulingGroup": {"podGroupName": "train"}} if not spec.pop("alone", False) else {}
    train = manifests.stateful_set("train", 0, {"podManagementPolicy": "Parallel"}, **gang)
    world = World([*map(manifests.node, ON), train], **spec)
    for count, here in enumerate(ON, 1):
        for name in ON:
            world.cordon(name, name != here)
        world.patch(kinds.STATEFUL_SETS, "train", {"spec": {"replicas": count}})
        world.settle()
    for name in ON:
        world.cordon(name, False)
    world.apply(*map(manifests.node, ("n7", "n8", "n9")))
    world.settle()
    return world


def pod_group(mode: str) -> Raw:
    meta = {"name": "train", "namespace": "shop"}
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": {mode: {}}}
    return {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": meta, "spec": spec}


def planned(me: Actor, **choices: t.Any) -> Result:
    return me.run(lambda ctx: make_plan(ctx, PlanOptions(nodes=ON, choices=DrainPolicy(**choices))))


def drained(me: Actor, nodes: tuple[str, ...], **choices: t.Any) -> Result:
    assert not me.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", nodes)), RUN).failed
    assert not me.run(lambda ctx: guard(ctx, GuardOptions("present", nodes)), RUN).failed
    return me.run(lambda ctx: drain(ctx, DrainOptions(nodes, DrainPolicy(**choices), timeout=300.0)), RUN)


def test_without_consent_a_gang_is_a_blocker_and_stays() -> None:
    with world_of() as world:
        world.apply(pod_group("all"))
        me = world.process("me")
        found = planned(me)
        (told,) = [one for one in found.data["findings"] if one["code"] == "gang"]
        assert (told["severity"], told["object"]) == ("blocker", "PodGroup shop/train")
        assert not found.data["feasible"]
        assert drained(me, ("n1",)).data["nodes"][0]["outcome"] == "refused"
        assert len(world.pods(app="train", on="n1")) == 1


def test_with_consent_it_is_interrupted_once() -> None:
    with world_of() as world:
        world.apply(pod_group("all"))
        me = world.process("me")
        found = planned(me, allow_interruption=True)
        assert found.data["waves"] == [list(ON)], "max_parallel is 1"
        assert found.data["feasible"]
        result = drained(me, ON, allow_interruption=True)
        assert [node["outcome"] for node in result.data["nodes"]] == ["drained"] * 3
        sent = [one for one in world.log if one.request.resource == "pods/eviction" and one.status == 201]
        assert sorted(one.request.name for one in sent) == ["train-0", "train-1", "train-2"]
        first, last = min(one.arrived for one in sent), max(one.arrived for one in sent)
        assert last - first < 2.0, "at once, not when the one before is back"


@pytest.mark.parametrize("mode", ["single", "all"])
def test_pods_of_a_group_that_may_go_one_by_one_do_so(mode: str) -> None:
    with world_of() as world:
        world.apply(pod_group(mode))
        me = world.process("me")
        assert len(planned(me, allow_interruption=True).data["waves"]) == (3 if mode == "single" else 1)
        outcome = drained(me, ("n1",)).data["nodes"][0]["outcome"]
        assert outcome == ("drained" if mode == "single" else "refused")


def test_pod_groups_are_read_only_where_pods_have_one() -> None:
    for alone, reads in ((True, 0), (False, 3)):
        with world_of(alone=alone) as world:
            before = len(world.log)
            me = world.process("me")
            planned(me, allow_interruption=True)
            drained(me, ON, allow_interruption=True)
            read = [one.request for one in world.log[before:] if one.request.resource == GROUPS]
            assert [request.verb for request in read] == ["list"] * reads, "by the plan, pdb_guard and the drain"
