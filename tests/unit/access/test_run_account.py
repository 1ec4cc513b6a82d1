# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An account with its rights: made, narrowed, repaired and removed, and nothing of others touched."""

from __future__ import annotations

import typing as t
from collections import Counter

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import accounts, policies, roles
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access.run_access import AccessOptions, install
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

BINDINGS = kinds.CLUSTER_ROLE_BINDINGS
READ = f"kubeops-node-maintenance-read.{names.NAMESPACE}.operator"


@pytest.fixture
def world() -> t.Iterator[World]:
    with World([manifests.namespace(names.NAMESPACE), manifests.namespace("shop")]) as made:
        yield made


def called(world: World, *, check: bool = False, **options: t.Any) -> Raw:
    """The whole result of a call."""
    me = world.process("me")
    ctx = me.ctx(check=check)
    return me.run(lambda _ctx: install(ctx, AccessOptions(**options)).shaped(ctx))


def outcomes(result: Raw) -> Counter[str]:
    return Counter(f"{entry['kind']} {entry['outcome']}" for entry in result["objects"])


def writes(world: World) -> int:
    return sum(sent.request.writes for sent in world.log)


def bound(world: World) -> set[tuple[str, str]]:
    """Step and namespace of each binding."""
    found = [*world.server.select(kinds.CLUSTER_ROLE_BINDINGS), *world.server.select(kinds.ROLE_BINDINGS)]
    prefix = f"{names.NAMESPACE}-"
    return {(x["roleRef"]["name"].removeprefix(prefix), x["metadata"].get("namespace", "")) for x in found}


def test_the_account_of_maintain_is_made_once(world: World) -> None:
    made = called(world)
    assert outcomes(made) == {
        "ServiceAccount created": 1,
        "ClusterRole created": 7,
        "ClusterRoleBinding created": 5,
        "RoleBinding created": 2,
    }
    home = {("locks", names.NAMESPACE), ("runs", names.NAMESPACE)}
    assert bound(world) == {(step, "") for step in ("read", "nodes", "evict", "guard", "surge")} | home
    before = writes(world)
    again = called(world)
    assert not again["changed"]
    assert {entry["outcome"] for entry in again["objects"]} == {"already_present"}
    assert writes(world) == before


@pytest.mark.parametrize("state", ["present", "absent"])
def test_check_mode_says_what_the_real_run_does_and_writes_nothing(world: World, state: str) -> None:
    if state == "absent":
        called(world)
    before = writes(world)
    said = called(world, check=True, state=state)
    assert writes(world) == before
    assert said["changed"]
    assert called(world, state=state) == said


def test_locks_are_bound_where_medik8s_has_them_and_where_somebody_says(world: World) -> None:
    for name in ("medik8s-leases", "mine"):
        world.apply(manifests.namespace(name))
    called(world, steps=("locks",), lease_namespace="mine")
    assert {place for _step, place in bound(world)} == {names.NAMESPACE, "medik8s-leases", "mine"}


def test_a_wide_binding_goes_once_namespaces_are_named(world: World) -> None:
    called(world, steps=("evict", "read"))
    narrowed = called(world, steps=("evict", "read"), namespaces=("shop",))
    assert bound(world) == {("evict", "shop"), ("read", "")}
    assert outcomes(narrowed)["ClusterRoleBinding deleted"] == 1


def test_events_are_about_nodes_too_and_those_are_in_default(world: World) -> None:
    world.apply(manifests.namespace("default"))
    called(world, steps=("announce",), namespaces=("shop",))
    assert bound(world) == {("announce", "shop"), ("announce", "default")}


def test_what_somebody_changed_is_repaired_and_shown(world: World) -> None:
    called(world)
    role = f"{names.NAMESPACE}-evict"
    wider = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}]
    world.patch(kinds.CLUSTER_ROLES, role, {"rules": wider})
    world.patch(BINDINGS, READ, {"subjects": [{"kind": "User", "name": "eve"}]})
    repaired = called(world)
    assert outcomes(repaired)["ClusterRole changed"] == 1
    assert outcomes(repaired)["ClusterRoleBinding changed"] == 1
    assert world.get(kinds.CLUSTER_ROLES, role)["rules"] == roles.BY_STEP["evict"].manifest["rules"]
    assert [one["name"] for one in world.get(BINDINGS, READ)["subjects"]] == ["operator"]
    assert {"rules": wider} == {key: repaired["diff"][0]["before"][key] for key in ("rules",)}


def test_a_binding_to_another_role_is_made_anew(world: World) -> None:
    called(world)
    other = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    world.patch(BINDINGS, READ, {"roleRef": other})
    assert outcomes(called(world))["ClusterRoleBinding changed"] == 1
    assert world.get(BINDINGS, READ)["roleRef"]["name"] == f"{names.NAMESPACE}-read"


def test_what_others_made_with_our_name_stops_the_call_before_the_first_write(world: World) -> None:
    for role in ("evict", "surge"):
        meta = {"name": f"{names.NAMESPACE}-{role}"}
        world.apply({"apiVersion": roles.RBAC, "kind": "ClusterRole", "metadata": meta, "rules": []})
    before = writes(world)
    result = called(world)
    assert result["failed"]
    assert [one["code"] for one in result["findings"]] == ["not_ours"] * 2
    label = "app.kubernetes.io/managed-by=kubeops.node_maintenance"
    assert f"kubectl label clusterrole kubeops-node-maintenance-evict {label}" in result["msg"]
    assert writes(world) == before


def test_roles_of_an_earlier_file_without_the_label_are_ours(world: World) -> None:
    meta: Raw = {"name": f"{names.NAMESPACE}-evict", "annotations": {roles.BIND_IN: "*"}}
    world.apply({"apiVersion": roles.RBAC, "kind": "ClusterRole", "metadata": meta, "rules": []})
    assert not called(world, steps=("evict",))["failed"]
    assert accounts.ours(world.get(kinds.CLUSTER_ROLES, meta["name"]))


def test_a_service_account_of_others_is_used_and_stays(world: World) -> None:
    meta = {"name": "awx", "namespace": "shop", "labels": {"app": "awx"}}
    world.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    options: Raw = {"service_account": "awx", "service_account_namespace": "shop"}
    assert outcomes(called(world, **options))["ServiceAccount already_present"] == 1
    called(world, **options, state="absent")
    assert bound(world) == set()
    assert world.get(kinds.SERVICE_ACCOUNTS, "awx", "shop")["metadata"]["labels"] == {"app": "awx"}


def test_absent_removes_the_account_and_the_roles_that_nobody_else_has(world: World) -> None:
    called(world)
    called(world, steps=("read",), service_account="planner")
    gone = called(world, state="absent")
    assert bound(world) == {("read", "")}
    assert [x["metadata"]["name"] for x in world.server.select(kinds.CLUSTER_ROLES)] == [f"{names.NAMESPACE}-read"]
    assert [x["metadata"]["name"] for x in world.server.select(kinds.SERVICE_ACCOUNTS)] == ["planner"]
    assert outcomes(gone)["ServiceAccount deleted"] == 1
    assert not called(world, state="absent")["changed"]


def test_an_account_that_loses_a_step_keeps_the_others(world: World) -> None:
    called(world)
    called(world, state="absent", steps=("surge",))
    assert "surge" not in {step for step, _place in bound(world)}
    assert len(bound(world)) == 6
    assert len(world.server.select(kinds.SERVICE_ACCOUNTS)) == 1


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"steps": ("descheduler",)}, "descheduler_namespace"),
        ({"namespaces": ("shop", "nowhere")}, "namespaces"),
        ({"service_account_namespace": "nowhere"}, "service_account_namespace"),
    ],
)
def test_a_namespace_that_is_missing_is_named_with_its_option(world: World, options: Raw, option: str) -> None:
    before = writes(world)
    with pytest.raises(CallAborted, match="does not exist") as stopped:
        called(world, **options)
    assert option in stopped.value.reason.remedy
    assert writes(world) == before


def test_who_may_not_grant_is_told_of_everything_at_once_before_the_first_write(world: World) -> None:
    world.server.denied |= {("create", "clusterroles.rbac.authorization.k8s.io"), ("create", "serviceaccounts")}
    before = writes(world)
    result = called(world)
    assert result["failed"]
    words = {one["object"] for one in result["findings"]}
    assert words == {"create clusterroles.rbac.authorization.k8s.io", "create serviceaccounts"}
    assert len(result["findings"]) == 8
    assert all("`escalate` clusterroles and `bind` them" in one["remedy"] for one in result["findings"])
    assert writes(world) == before


def test_our_namespace_is_made_first_where_it_is_missing() -> None:
    with World([manifests.namespace("default")]) as world:
        assert called(world)["objects"][0] == {
            "kind": "Namespace",
            "namespace": "",
            "name": names.NAMESPACE,
            "outcome": "created",
        }
        assert not called(world)["changed"]


@pytest.mark.parametrize("more", [{"policies": True}, {"fence": True, "steps": ()}])
def test_policies_and_the_fence_can_be_the_first_thing_in_a_cluster(more: t.Mapping[str, t.Any]) -> None:
    with World([manifests.namespace("default")]) as world:
        assert called(world, **more)["changed"]
        assert names.NAMESPACE in {one["metadata"]["name"] for one in world.server.select(kinds.NAMESPACES)}
        assert not called(world, **more)["changed"]


def test_policies_come_before_the_rights_and_go_after_them(world: World) -> None:
    made = called(world, policies=True)["objects"]
    assert made[0]["kind"] == "ValidatingAdmissionPolicy"
    assert made[-1]["kind"] == "ClusterRoleBinding"
    gone = called(world, policies=True, state="absent")["objects"]
    assert gone[-1]["kind"] == "ValidatingAdmissionPolicy"
    left = [one["metadata"]["name"] for one in world.server.select(kinds.ADMISSION_POLICIES)]
    assert left == [names.FENCE_POLICY], "which serves other accounts, too"


def test_policies_demand_a_lock_so_the_fence_that_knows_it_comes_with_them(world: World) -> None:
    made = {(one["kind"], one["name"]) for one in called(world, policies=True)["objects"]}
    assert {(obj["kind"], obj["metadata"]["name"]) for obj in policies.FENCE} <= made
