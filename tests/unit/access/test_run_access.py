# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Installing the fence; that its policy does what it says is shown on the lab."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import policies
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access.run_access import (
    AccessOptions,
    State,
    install,
    standing,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.errors import Forbidden, Invalid
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

INVALID = Fault("invalid")


def empty() -> World:
    """A cluster with our namespace, in which nobody may make another one."""
    world = World([manifests.namespace(names.NAMESPACE)])
    world.server.denied.add(("create", "namespaces"))
    return world


@pytest.fixture
def world() -> t.Iterator[World]:
    with empty() as made:
        yield made


def brought(world: World, state: State = "present", *, check: bool = False) -> Raw:
    """The whole result of a call."""
    me = world.process("me")
    ctx = me.ctx(check=check)
    return me.run(lambda _ctx: install(ctx, AccessOptions(state, steps=(), fence=True)).shaped(ctx))


def outcomes(world: World, state: State = "present") -> list[str]:
    return [f"{entry['kind']} {entry['outcome']}" for entry in brought(world, state)["objects"]]


def stands(world: World) -> str:
    return world.process("me").run(standing)


def objects(world: World) -> list[Raw]:
    """Those of the fence that are there."""
    found = ((kinds.KINDS[raw["apiVersion"], raw["kind"]], raw["metadata"]) for raw in policies.FENCE)
    made = (world.find(kind, meta["name"], meta.get("namespace", "")) for kind, meta in found)
    return [raw for raw in made if raw is not None]


def writes(world: World) -> int:
    return sum(sent.request.writes for sent in world.log)


def test_it_is_installed_once_and_removed_in_the_opposite_order(world: World) -> None:
    assert outcomes(world) == [
        "CustomResourceDefinition created",
        "NodeFence created",
        "ValidatingAdmissionPolicy created",
        "ValidatingAdmissionPolicyBinding created",
    ]
    before = writes(world)
    assert {words.partition(" ")[2] for words in outcomes(world)} == {"already_present"}
    assert writes(world) == before
    assert outcomes(world, "absent") == [
        "ValidatingAdmissionPolicyBinding deleted",
        "ValidatingAdmissionPolicy deleted",
        "NodeFence deleted",
        "CustomResourceDefinition deleted",
    ]
    assert objects(world) == []
    assert {words.partition(" ")[2] for words in outcomes(world, "absent")} == {"already_absent"}


@pytest.mark.parametrize("state", ["present", "absent"])
def test_check_mode_says_what_the_real_run_does_and_writes_nothing(world: World, state: State) -> None:
    with empty() as twin:
        if state == "absent":
            for one in (world, twin):
                brought(one)
        before, there = writes(world), objects(world)
        said, done = brought(world, state, check=True), brought(twin, state)
        assert said == done
        assert done["changed"]
        assert (writes(world), objects(world)) == (before, there)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 8.0])
def test_the_kind_that_was_just_defined_is_waited_for(world: World, seconds: float) -> None:
    world.server.established_after = seconds
    assert outcomes(world)[1] == "NodeFence created"


@pytest.mark.parametrize("kind", [kinds.ADMISSION_POLICIES, kinds.ADMISSION_BINDINGS])
def test_what_refers_to_another_object_is_invalid_only_until_that_is_there(world: World, kind: kinds.Kind) -> None:
    refuse_once(world, kind)
    assert len(outcomes(world)) == 4
    world.delete(kind, policies.FENCE[-1]["metadata"]["name"])
    refuse_once(world, kind)
    before = writes(world)
    with pytest.raises(Invalid, match="simulated"):
        brought(world)
    assert writes(world) == before


def refuse_once(world: World, kind: kinds.Kind) -> None:
    """The API server calls the next object of the kind invalid."""
    wanted = kind.resource
    world.process("me").faults.when(lambda request: request.resource == wanted and request.verb == "create", INVALID)


def test_who_holds_which_lock_is_not_its_to_change(world: World) -> None:
    outcomes(world)
    world.patch(kinds.NODE_FENCES, names.FENCE_MAP, {"held": {"node-a": "r1/n1"}}, names.NAMESPACE)
    assert outcomes(world)[1] == "NodeFence already_present"
    assert world.get(kinds.NODE_FENCES, names.FENCE_MAP, names.NAMESPACE)["held"] == {"node-a": "r1/n1"}


def test_a_policy_that_was_changed_is_brought_back_and_shown_in_the_diff(world: World) -> None:
    outcomes(world)
    spec = world.get(kinds.ADMISSION_POLICIES, names.FENCE_POLICY)["spec"]
    loosened = [{**spec["validations"][0], "expression": "true"}]
    world.patch(kinds.ADMISSION_POLICIES, names.FENCE_POLICY, {"spec": {"validations": loosened}})
    assert stands(world) == "incomplete"
    done = brought(world)
    assert [entry["outcome"] for entry in done["objects"]] == ["already_present"] * 2 + ["changed", "already_present"]
    assert done["diff"][0]["before"]["spec"]["validations"][0]["expression"] == "true"
    assert "matchPolicy" not in done["diff"][0]["before"]["spec"]["matchConstraints"], "nobody asked for that"
    assert world.get(kinds.ADMISSION_POLICIES, names.FENCE_POLICY)["spec"] == spec
    assert stands(world) == "present"


def test_a_policy_whose_controller_writes_its_status_at_that_moment_is_brought_back_all_the_same(world: World) -> None:
    """What is tried before is refused then, as in the lab."""
    outcomes(world)
    world.patch(kinds.ADMISSION_POLICIES, names.FENCE_POLICY, {"spec": {"failurePolicy": "Fail"}})
    policy = kinds.ADMISSION_POLICIES.resource
    me = world.process("me")
    tried = ("dryRun", "All")
    me.faults.when(lambda request: request.resource == policy and tried in request.query, Fault("conflict"))
    assert [entry["outcome"] for entry in brought(world)["objects"]].count("changed") == 1
    assert (len(me.faults.met), stands(world)) == (1, "present")


def test_a_server_without_such_policies_is_told_from_one_that_refuses(world: World) -> None:
    world.server.absent.add(kinds.ADMISSION_POLICIES.resource)
    with pytest.raises(CallAborted, match="has no ValidatingAdmissionPolicy") as stopped:
        brought(world)
    assert "1.30" in stopped.value.reason.remedy
    assert stopped.value.reason.code == "no_admission_policies"
    world.server.absent.clear()
    refuse_all(world)
    with pytest.raises(Forbidden):
        brought(world)


def refuse_all(world: World) -> None:
    world.process("me").faults.when(lambda request: True, Fault("forbidden"), times=1000)


@pytest.mark.parametrize(
    "unknown",
    [{kinds.ADMISSION_POLICIES}, {kinds.ADMISSION_POLICIES, kinds.ADMISSION_BINDINGS}],
    ids=["others of the group are there", "nothing of the group is there"],
)
def test_nothing_is_there_to_be_removed_from_an_old_server(world: World, unknown: set[kinds.Kind]) -> None:
    world.server.absent |= {kind.resource for kind in unknown}
    assert outcomes(world, "absent") == []


def test_whether_it_stands_is_told_as_far_as_it_may_be_read(world: World) -> None:
    assert stands(world) == "absent"
    outcomes(world)
    assert stands(world) == "present"
    world.delete(kinds.NODE_FENCES, names.FENCE_MAP, names.NAMESPACE)
    assert stands(world) == "incomplete"
    refuse_all(world)
    assert stands(world) == "unknown"
