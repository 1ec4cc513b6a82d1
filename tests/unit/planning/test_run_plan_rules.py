# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a plan says of each node and pod, what it reads for that, and what options mean that are left out."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import run_access
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import unreachable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import arguments as plan_arguments
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning.run_plan import PlanOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.planning.test_run_plan import POD_ON_N1, out
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.left_out import defaults
from ansible_collections.kubeops.node_maintenance.tests.unit.support.planned import Build, asked, building, codes, plan

HPAS = f"list {kinds.HPAS.resource}"
ATTACHMENTS = f"list {kinds.VOLUME_ATTACHMENTS.resource}"


@pytest.fixture
def build() -> t.Iterator[Build]:
    with building() as made:
        yield made


# -- options that are left out -------------------------------------------------------------------------


def test_what_is_left_out_is_as_documented(build: Build) -> None:
    assert plan(build()).data["feasible"], "with the defaults"
    found, wanted = defaults(
        plan_arguments.SPEC,
        PlanOptions,
        settle=2.0,
        nodes=(),
        node_selector="",
        before_pod=(),
    )
    assert found == wanted


# -- the nodes -----------------------------------------------------------------------------------------


def unmovable(world: World) -> World:
    """A pod of nobody is on n1, which is not moved without `force`."""
    world.apply(POD_ON_N1)
    return world


def test_a_blocker_of_one_node_stands_against_that_node(build: Build) -> None:
    result = plan(unmovable(build()), nodes=("n1", "n2"))
    n1, n2 = result.data["nodes"]
    assert (n1["outcome"], n1["failed"], n2["outcome"], n2["failed"]) == ("blocked", True, "planned", False)
    assert n1["message"] == "Node n1 cannot be taken out: bare_pod (Pod shop/p)."
    assert n2["message"] == "Node n2 can be taken out."
    assert (result.data["feasible"], result.failed, result.message) == (False, False, "")


def test_a_blocker_of_all_stands_against_each(build: Build) -> None:
    found = build(3)
    found.server.denied.add(("patch", "nodes"))
    result = plan(found, nodes=("n1", "n2"))
    assert [node["outcome"] for node in result.data["nodes"]] == ["blocked", "blocked"]


def test_a_node_that_is_not_there_fails_the_call_and_no_other_node(build: Build) -> None:
    result = plan(build(3), nodes=("n1", "n9", "n1"))
    assert [(node["name"], node["outcome"], node["message"]) for node in result.data["nodes"]] == [
        ("n1", "planned", "Node n1 can be taken out."),
        ("n9", "unknown", "There is no node n9."),
    ]
    assert (result.data["nodes"][1]["address"], result.data["nodes"][1]["record"]) == ("", None)
    assert result.data["nodes"][0]["address"] == "10.0.0.1"
    assert "n9" in result.message


def test_without_a_node_no_pods_are_read_and_no_rights_asked_for(build: Build) -> None:
    found = build(3)
    plan(found, nodes=("n9",))
    assert not [what for what in asked(found) if what.startswith(("list pods", "list namespaces", "may"))]


def test_nodes_at_their_goal_have_no_pods_in_the_plan(build: Build) -> None:
    agent = manifests.daemon_set("agent", tolerations=[{"operator": "Exists"}])
    found = out(build(0, agent), "parked")
    result = plan(found, nodes=("n1", "n2"), goal="evacuated")
    assert [node["outcome"] for node in result.data["nodes"]] == ["at_goal", "planned"]
    assert {pod["node"] for pod in result.data["pods"]} == {"n2"}
    assert result.data["waves"] == [["n2"]]


def test_only_those_of_one_zone_count_together(build: Build) -> None:
    zone = {"topology.kubernetes.io/zone": "z"}
    found = build(0, manifests.node("n4", labels=zone), manifests.node("n5", labels=zone), manifests.node("n6"))
    result = plan(found, nodes=("n4", "n5", "n6"), max_parallel=3, max_per_zone=1)
    assert result.data["waves"] == [["n4", "n6"], ["n5"]]


def test_the_estimate_grows_with_the_settle_time(build: Build) -> None:
    found = build(1)
    given: list[dict[str, t.Any]] = [{"settle": 0.0}, {}, {"settle": 30.0}]
    results = [plan(found, choices=DrainPolicy(method="surge"), **one) for one in given]
    times = [result.data["estimate_seconds"] for result in results]
    assert times == [times[0], times[0] + 2, times[0] + 30], "that of pdb_guard is 2 s"


# -- what is read --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "more", "lists"),
    [
        pytest.param(0, [POD_ON_N1], False, id="a pod of nobody"),
        pytest.param(0, [manifests.daemon_set("agent")], False, id="a pod of a DaemonSet"),
        pytest.param(3, [manifests.daemon_set("agent")], True, id="a pod of a Deployment, too"),
    ],
)
def test_autoscalers_are_read_where_something_scales(build: Build, replicas: int, more: list[Raw], lists: bool) -> None:
    found = build(replicas, *more)
    plan(found)
    assert (HPAS in asked(found)) is lists


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("denied", [(), (("list", kinds.VOLUME_ATTACHMENTS.resource),)], ids=["read", "denied"])
def test_what_becomes_of_the_pods_of_a_lost_node_is_told(
    build: Build, lost: bool, denied: tuple[tuple[str, str], ...]
) -> None:
    """Signs of life that may not be read are left out."""
    found = build(3)
    found.server.denied.update(denied)
    if lost:
        found.set_node_ready("n1", "Unknown")
    result = plan(found)
    assert all((pod["fate"] is not None) is lost for pod in result.data["pods"])
    assert (ATTACHMENTS in asked(found)) is lost
    assert any(f"namespaces/{unreachable.LEASES}/leases/n1" in what for what in asked(found)) is lost
    assert ("node_lost" in codes(result)) is lost


def test_locks_elsewhere_are_those_that_records_name(build: Build) -> None:
    """A lease of another node in that namespace is nobody's business, and ours are read anyway."""

    def lease(name: str, holder: str) -> Raw:
        times = {"renewTime": "2999-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15}
        meta = {"name": name, "namespace": "medik8s-leases"}
        spec = {"holderIdentity": holder, **times}
        return {"apiVersion": kinds.LEASES.api_version, "kind": kinds.LEASES.kind, "metadata": meta, "spec": spec}

    found = out(build(0, lease("node-n2", "r9/n")), "drained", "medik8s-leases/node-n1")
    assert codes(plan(found)) == codes(plan(out(build(0), "drained")))
    mine = out(build(0), "drained")
    plan(mine)
    leases = [what for what in asked(mine) if what == f"list {kinds.LEASES.resource}"]
    assert len(leases) == 1


@pytest.mark.parametrize("phase", ["Active", "Terminating"])
def test_in_a_namespace_that_ends_nothing_is_surged(build: Build, phase: str) -> None:
    found = build(1)
    found.patch(kinds.NAMESPACES, manifests.SHOP, {"status": {"phase": phase}}, subresource="status")
    result = plan(found)
    assert result.data["feasible"] is (phase == "Active")
    assert [manifests.SHOP in finding["message"] for finding in result.data["findings"]] == [True] * (phase != "Active")


@pytest.mark.parametrize(
    ("replicas", "method", "read"),
    [(1, "surge", True), (3, "surge", False), (1, "replace", True), (3, "replace", True)],
)
def test_room_is_looked_for_where_another_pod_starts_first(
    build: Build, replicas: int, method: str, read: bool
) -> None:
    budget = [manifests.budget("web", maxUnavailable=1)] if replicas > 1 else []
    found = build(replicas, *budget)
    plan(found, choices=DrainPolicy(method=method))
    assert ("list resourcequotas" in asked(found)) is read


def test_a_quota_without_room_is_told(build: Build) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "shop"}}
    full = {"hard": {"pods": "1"}, "used": {"pods": "1"}}
    found = build(1)
    found.apply({**quota, "spec": {"hard": full["hard"]}})
    found.patch(kinds.RESOURCE_QUOTAS, "q", {"status": full}, subresource="status")
    assert "quota" in " ".join(codes(plan(found)))


def test_a_pod_is_shown_with_its_budgets_and_reason(build: Build) -> None:
    found = build(3, manifests.budget("web", maxUnavailable=1))
    for pod in plan(found, choices=DrainPolicy(method="surge")).data["pods"]:
        assert (pod["owner"], pod["route"]) == ("Deployment shop/web", "evict")
        assert pod["budgets"] == ["PodDisruptionBudget shop/web"]
        assert (pod["code"], bool(pod["reason"])) == ("replicas", True)
    (alone,) = plan(build(0, POD_ON_N1), choices=DrainPolicy(force=True)).data["pods"]
    assert (alone["owner"], alone["budgets"]) == ("", [])


# -- access --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "waited"), [(0.0, 0.0), (0.3, 0.4), (29.9, 30.0), (100.0, 30.1)])
def test_a_kind_that_was_just_defined_is_waited_for_half_a_minute(seconds: float, waited: float) -> None:
    """A look every 0.2 s. What is not served by then fails where it is used, and says so itself."""
    with World([manifests.namespace(names.NAMESPACE)]) as world:
        me, began = world.process("me"), world.machine.now
        world.machine.after(seconds, lambda: served.append(True), "it is served")
        served: list[bool] = [] if seconds else [True]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run_access, "_served", lambda *_all: bool(served))
            me.run(lambda ctx: run_access._await_served(ctx, names.FENCE_API, "NodeFence"))
        assert world.machine.now - began == pytest.approx(waited, abs=0.15)


def test_check_mode_does_not_wait_for_what_it_has_not_defined() -> None:
    with World() as world:
        me, began = world.process("me"), world.machine.now
        ctx = me.ctx(check=True)
        me.run(lambda _ctx: run_access._await_served(ctx, names.FENCE_API, "NodeFence"))
        assert (world.machine.now, world.log) == (began, [])


@pytest.mark.parametrize("there", [True, False], ids=["Medik8s is there", "it is not"])
def test_leases_of_medik8s_are_read_once_where_its_namespace_is(build: Build, there: bool) -> None:
    spec = {"holderIdentity": "node-maintenance", "renewTime": "2999-01-01T00:00:00.000000Z"}
    meta = {"name": "node-n1", "namespace": names.MEDIK8S_NAMESPACE}
    lease = {"apiVersion": kinds.LEASES.api_version, "kind": kinds.LEASES.kind, "metadata": meta}
    theirs = [manifests.namespace(names.MEDIK8S_NAMESPACE), {**lease, "spec": {**spec, "leaseDurationSeconds": 3600}}]
    found = build(3, *(theirs if there else ()))
    bare = build(3)
    result, _none = plan(found), plan(bare)
    assert codes(result) == (["leased"] if there else [])
    assert result.data["feasible"] is not there
    assert len(asked(found)) - len(asked(bare)) == there


def test_leases_of_medik8s_that_may_not_be_read_are_a_missing_permission(build: Build) -> None:
    found = build(3, manifests.namespace(names.MEDIK8S_NAMESPACE))
    found.server.denied.add(("list", kinds.LEASES.resource))
    found.server.permitted.add(("list", kinds.LEASES.resource, names.NAMESPACE))
    (finding,) = plan(found).data["findings"]
    assert "may not list leases.coordination.k8s.io in namespace medik8s-leases" in finding["message"]
