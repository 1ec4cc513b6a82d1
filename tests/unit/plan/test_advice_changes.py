# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each change that is advised makes of a cluster, and that it leaves all else as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.advice import changes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names, pod_plan, snapshots
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.advised import ROOM, nodes, roomy, wanted, web
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.objects import (
    Raw,
    budget,
    deployment,
    owned,
    pod,
    snapshot,
    workload,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.behaviours import budgeting, every

OTHERS: Raw = {"matchLabels": {"app": "other"}}
SCALER: Raw = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "uid-hpa"},
    "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 1, "maxReplicas": 3},
}


def shop(*on: str, **kinds: list[Raw]) -> snapshots.Snapshot:
    """Deployments `web`, with a pod on each of these nodes, and `other`; nodes n1 to n3."""
    made = web(len(on), on=on)
    pods = [*made.pop("pods"), *kinds.pop("pods", [])]
    return snapshot(made, deployment("other", 5), {"pods": pods}, nodes=kinds.pop("nodes", nodes()), **kinds)


def situation(seen: snapshots.Snapshot, *names_: str) -> changes.Situation:
    return changes.Situation(seen, wanted(*names_))


def plan_of(seen: snapshots.Snapshot, name: str) -> pod_plan.PodPlan:
    (found,) = (one for one in seen.pods if one.name == name)
    workload = seen.workload_of(found)
    return pod_plan.PodPlan(
        found, "refuse", "single_replica", "It is the only one.", workload.ref if workload else None
    )


def rules(seen: snapshots.Snapshot) -> dict[str, tuple[object, object, int]]:
    return {one.name: (one.max_unavailable, one.min_available, one.allowed) for one in seen.budgets}


def test_only_the_named_budget_is_deleted() -> None:
    seen = shop("n1", budgets=[budget("web", 0), budget("other", 1)])
    mine, other = seen.budgets
    change = changes.delete_budget(mine, other)
    assert [one.name for one in change.made(situation(seen)).snapshot.budgets] == ["other"]
    assert change.command == "kubectl get pdb web -n shop -o yaml > web.yaml && kubectl delete pdb web -n shop"
    assert change.back == "kubectl apply -f web.yaml"


@pytest.mark.parametrize(
    ("rule", "healthy", "relaxed"),
    [
        ({"maxUnavailable": 0}, 3, (1, None, 1)),
        ({"minAvailable": 3}, 3, (1, None, 1)),
        ({"minAvailable": "100%"}, 2, (1, None, 0)),
    ],
)
def test_a_budget_of_a_workload_gets_one_disruption(
    rule: Raw, healthy: int, relaxed: tuple[object, object, int]
) -> None:
    mine = budget("web", 0, healthy=healthy, desired=3, rule=rule, expected=3)
    seen = shop("n1", "n2", "n3", budgets=[mine, budget("other", 0, selector=OTHERS)])
    after = changes.relax_budget(seen, seen.budgets[0]).made(situation(seen)).snapshot
    assert rules(after)["web"] == relaxed
    assert rules(after)["other"] == rules(seen)["other"]


def test_a_budget_of_bare_pods_gets_a_lower_minimum() -> None:
    bare = [pod(f"x-{n}", "n1", labels={"app": "x"}) for n in (1, 2)]
    done = pod("x-3", "n1", labels={"app": "x"}, phase="Succeeded")
    seen = shop(
        pods=[*bare, done], budgets=[budget("x", 0, healthy=2, desired=2, selector={"matchLabels": {"app": "x"}})]
    )
    made = replace(seen.budgets[0], expected=0)
    seen = replace(seen, budgets=(made,))
    change = changes.relax_budget(seen, made)
    assert "minAvailable: 1" in change.text
    assert '\'{"spec":{"maxUnavailable":null,"minAvailable":1}}\'' in change.command
    assert '\'{"spec":{"maxUnavailable":null,"minAvailable":2}}\'' in change.back
    assert rules(change.made(situation(seen)).snapshot)["x"] == (None, 1, 1)


def test_a_budget_that_cannot_be_counted_gets_a_number_instead() -> None:
    """Not of its status, which says nothing of its pods."""
    done = pod("report", "n2", owned("Job", "report", "batch/v1"), phase="Succeeded", ready=False)
    laid = budgeting.read(every.RECORDED["a_budget_over_the_pod_of_a_job"][0])
    seen = shop("n1", "n2", "n3", pods=[done], budgets=[laid])
    change = changes.relax_budget(seen, seen.budgets[0])
    assert rules(change.made(situation(seen)).snapshot)["b"] == (None, 2, 1)


@pytest.mark.parametrize(
    ("rule", "healthy", "status"),
    [
        ({"max_unavailable": 1, "min_available": None}, 3, (2, 1)),
        ({"max_unavailable": 1, "min_available": None}, 2, (2, 0)),
        ({"max_unavailable": 1, "min_available": None}, 1, (2, 0)),
        ({"max_unavailable": 9, "min_available": None}, 3, (0, 3)),
        ({"max_unavailable": None, "min_available": "50%"}, 3, (2, 1)),
        ({"max_unavailable": None, "min_available": None}, 3, (0, 0)),
        ({"max_unavailable": 1, "min_available": None, "sync_failed": "no scale"}, 3, (2, 0)),
    ],
)
def test_the_status_of_a_budget_follows_its_rule(rule: Raw, healthy: int, status: tuple[int, int]) -> None:
    seen = shop("n1", budgets=[budget("web", 0)])
    found = changes._with_status(replace(seen.budgets[0], **rule), healthy, 3)
    assert (found.desired, found.allowed, found.healthy, found.expected) == (*status, healthy, 3)


def test_the_consent_is_of_the_workload_alone() -> None:
    seen = shop("n1")
    after = changes.allow_interruption(seen, plan_of(seen, "web-0")).made(situation(seen)).snapshot
    agreed = {one.name for one in after.workloads if one.annotations.get(names.ALLOW_INTERRUPTION) == "true"}
    assert agreed == {"web"}
    assert {one.kind for one in after.workloads if names.ALLOW_INTERRUPTION in one.annotations} == {"Deployment"}


def test_the_consent_of_a_pod_without_a_workload_is_its_own() -> None:
    seen = shop("n1", pods=[pod("one", "n1"), pod("two", "n1")])
    change = changes.allow_interruption(seen, plan_of(seen, "one"))
    after = change.made(situation(seen)).snapshot
    assert {one.name for one in after.pods if names.ALLOW_INTERRUPTION in one.annotations} == {"one"}
    assert change.command == f"kubectl annotate pod one -n shop {names.ALLOW_INTERRUPTION}=true"


def counts(seen: snapshots.Snapshot) -> dict[tuple[str, str], tuple[int, int, int, int]]:
    return {(one.kind, one.name): (one.replicas, one.ready, one.available, one.current) for one in seen.workloads}


def test_one_more_replica_is_counted_everywhere_and_nowhere_else() -> None:
    seen = shop(
        "n1", "n2", budgets=[budget("web", 0, healthy=2, desired=2, expected=2), budget("other", 0, selector=OTHERS)]
    )
    change = changes.add_replica(situation(seen), plan_of(seen, "web-0"))
    assert change is not None
    after = change.made(situation(seen)).snapshot
    before, now = counts(seen), counts(after)
    grown = {key for key in now if now[key] != before[key]}
    assert grown == {("Deployment", "web"), ("ReplicaSet", "web")}
    assert all(now[key] == tuple(count + 1 for count in before[key]) for key in grown)
    assert {one.name: (one.healthy, one.expected) for one in after.budgets}["web"] == (3, 3)
    assert rules(after)["other"] == rules(seen)["other"]
    (more,) = (one for one in after.pods if one.name == "web-more-3")
    assert more.node in ("n2", "n3")
    assert more.ready
    assert change.number == 3


@pytest.mark.parametrize(
    ("most", "minimum", "raised"),
    [(3, 1, 3), (2, 1, None), (5, 4, 4)],
    ids=["raised", "at its maximum", "above already"],
)
def test_the_autoscaler_of_the_workload_is_raised(most: int, minimum: int, raised: int | None) -> None:
    own = {**SCALER, "spec": {**SCALER["spec"], "minReplicas": minimum, "maxReplicas": most}}
    other = {
        "metadata": {**SCALER["metadata"], "name": "o", "uid": "uid-o"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "other"}, "minReplicas": 1, "maxReplicas": 9},
    }
    seen = shop("n1", "n2", autoscalers=[own, other])
    change = changes.add_replica(situation(seen), plan_of(seen, "web-0"))
    assert (change is not None) is (raised is not None)
    if change:
        after = change.made(situation(seen)).snapshot
        assert {one.name: one.minimum for one in after.autoscalers} == {"web": raised, "o": 1}


def test_no_replica_is_advised_where_another_controller_sets_the_number() -> None:
    owner = [{"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "k", "uid": "k", "controller": True}]
    kept = {**SCALER, "metadata": {**SCALER["metadata"], "ownerReferences": owner}}
    seen = shop("n1", "n2", autoscalers=[kept])
    assert changes.add_replica(situation(seen), plan_of(seen, "web-0")) is None


def test_no_replica_is_advised_for_a_stateful_set_or_a_pod_without_a_workload() -> None:
    parts: dict[str, list[Raw]] = {"stateful_sets": [workload("StatefulSet", "db", 2)]}
    pods = [pod("db-0", "n1", owned("StatefulSet", "db")), pod("alone", "n1")]
    seen = shop(pods=pods, **parts)
    assert changes.add_replica(situation(seen), plan_of(seen, "db-0")) is None
    assert changes.add_replica(situation(seen), plan_of(seen, "alone")) is None


@pytest.mark.parametrize("room", [{**ROOM, "pods": "1"}, {**ROOM, "cpu": "150m"}])
def test_no_replica_is_advised_without_room_beside_those_that_are_there(room: Raw) -> None:
    seen = shop("n1", "n2", nodes=[roomy("n1"), roomy("n2", room)])
    assert changes.add_replica(situation(seen), plan_of(seen, "web-0")) is None


def test_no_replica_is_advised_where_it_would_preempt_others() -> None:
    weak = pod("weak", "n2", owned("ReplicaSet", "other"), labels={"app": "other"}, requests={"cpu": "4"}, priority=-9)
    seen = shop("n1", pods=[weak], nodes=[roomy("n1"), roomy("n2")])
    assert changes.add_replica(situation(seen), plan_of(seen, "web-0")) is None


def test_another_node_has_the_shape_and_the_nodes_own_pods() -> None:
    taints = [
        {"key": "dedicated", "value": "db", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": f"{names.PREFIX}/drain", "effect": "NoSchedule"},
    ]
    like = roomy("n1", {**ROOM, "example.com/gpu": "1"}, taints=taints, unschedulable=True)
    like["metadata"]["labels"] = {"zone": "a", changes.HOSTNAME: "n1"}
    pods = [
        pod("agent", "n1", owned("DaemonSet", "agent")),
        pod("agent", "n2", owned("DaemonSet", "agent")),
        pod("static", "n1", annotations={names.MIRROR: "x"}),
        pod("plain", "n1"),
    ]
    drivers = [{"metadata": {"name": name}, "spec": {"drivers": []}} for name in ("n1", "n2")]
    seen = shop(nodes=[like, roomy("n2"), roomy("n1-more-1")], pods=pods, csi_nodes=drivers)
    change = changes.add_node(situation(seen), seen.nodes["n1"])
    after = change.made(situation(seen)).snapshot
    new = after.nodes["n1-more-2"]
    assert change.number == 2
    assert dict(new.labels) == {"zone": "a", changes.HOSTNAME: "n1-more-2"}
    assert [taint["key"] for taint in new.taints] == ["dedicated"]
    assert new.ready
    assert not new.unschedulable
    assert sorted(one.name for one in after.pods if one.node == new.name) == ["agent-2", "static-2"]
    assert [raw["metadata"]["name"] for raw in after.csi_nodes] == ["n1", "n2", "n1-more-2"]
    assert change.text == "Add a node like n1 (cpu 4, memory 8Gi, pods 10), with its labels and taints."


def test_an_uncordoned_node_loses_that_taint_alone() -> None:
    taints = [{"key": names.UNSCHEDULABLE_TAINT, "effect": "NoSchedule"}, {"key": "x", "effect": "NoSchedule"}]
    seen = shop(nodes=[roomy("n1", unschedulable=True, taints=taints), roomy("n2", unschedulable=True)])
    after = changes.uncordon(seen.nodes["n1"]).made(situation(seen)).snapshot
    assert [taint["key"] for taint in after.nodes["n1"].taints] == ["x"]
    assert (after.nodes["n1"].unschedulable, after.nodes["n2"].unschedulable) == (False, True)


def test_options_of_the_call_as_the_playbook_takes_them() -> None:
    seen = shop("n1")
    forced = changes.set_option("force", True, "Move it.")
    assert forced.made(situation(seen)).wanted.choices.force
    assert forced.command == "-e maintain_force=true"
    assert changes.set_option("backend", "evict", "").command == "-e maintain_backend=evict"
    assert changes.one_at_a_time().made(situation(seen)).wanted.max_parallel == 1


@pytest.mark.parametrize(
    ("out", "left"), [(("n1",), ("n2", "n3")), (("n1", "n3", "n9"), ("n2",)), (("n1", "n2", "n3"), None), ((), None)]
)
def test_nodes_are_left_out_while_others_are_left(out: tuple[str, ...], left: tuple[str, ...] | None) -> None:
    now = situation(shop(), "n1", "n2", "n3")
    change = changes.leave_out(now, out)
    assert (change.made(now).wanted.nodes if change else None) == left


@pytest.mark.parametrize(
    ("version", "said"), [("v1", "rollout"), ("apps/v1", "rollout"), ("argoproj.io/v1alpha1", "rollout.argoproj.io")]
)
def test_kubectl_is_told_the_group_where_a_kind_may_be_of_several(version: str, said: str) -> None:
    seen = shop("n1")
    assert changes._resource(replace(seen.workloads[0].ref, kind="Rollout", api_version=version)) == said
