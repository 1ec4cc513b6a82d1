# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guard budgets: only where there is none, shared by nodes, gone with the last, never over another."""

from __future__ import annotations

import json
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.dispositions import routes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy, PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import guard_budgets
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    deployment,
    guard,
    node,
    owned,
    pod,
    snapshot,
    workload,
)

UID = "uid-Deployment-web"
NAME = names.guard_name(UID)
OWN: Raw = {"key": "pod-template-hash", "operator": "Exists"}
LABELS = {"app": "web", OWN["key"]: "1"}


def laid(serves: dict[str, str]) -> Raw:
    """A guard of the Deployment `web` as it is in the cluster."""
    raw = guard("Deployment", "web", 1)
    raw["metadata"]["annotations"] = {names.SERVES_NODES: json.dumps(serves)}
    return raw


def cluster(replicas: int = 2, on: t.Sequence[str] = ("n1", "n2"), **kinds: t.Any) -> Snapshot:
    pods = [pod(f"web-{i}", name, owned("ReplicaSet", "web"), labels=LABELS) for i, name in enumerate(on)]
    return snapshot(deployment("web", replicas), pods=[*pods, *kinds.pop("more", [])], **kinds)


def cluster_of_web() -> dict[str, list[Raw]]:
    pods = [pod(f"web-{i}", name, owned("ReplicaSet", "web"), labels=LABELS) for i, name in enumerate(("n1", "n2"))]
    return {**deployment("web", 2), "pods": pods}


def wanted(seen: Snapshot, *nodes: str) -> tuple[guard_budgets.Guard, ...]:
    return guard_budgets.guards(seen, routes(seen, nodes, DrainPolicy()))


def unguards(seen: Snapshot, nodes: t.Collection[str]) -> list[Change]:
    """The changes of all guards that serve these nodes, or none any more."""
    changes = [guard_budgets.unguard(seen, found, nodes) for found in guard_budgets.serving(seen, nodes)]
    return [change for change in changes if change]


def test_a_guard_lets_one_pod_go_and_never_holds_a_broken_one() -> None:
    (one,) = wanted(cluster(), "n1")
    assert one.change is not None
    body = one.change.body
    assert body is not None
    assert body["spec"] == {
        "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [OWN]},
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    assert body["metadata"]["name"] == NAME
    assert body["metadata"]["labels"] == {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    assert json.loads(body["metadata"]["annotations"][names.SERVES_NODES]) == {"n1": "uid-n1"}


def test_one_guard_serves_all_nodes_of_a_wave() -> None:
    (one,) = wanted(cluster(3, ("n1", "n2", "n3")), "n1", "n2")
    assert one.nodes == ("n1", "n2")


@pytest.mark.parametrize(
    ("replicas", "on", "kinds"),
    [
        (1, ("n1",), {}),
        (2, ("n1", "n2"), {"budgets": [budget("theirs", 1)]}),
        (2, ("n2", "n3"), {}),
    ],
    ids=["a single replica is surged", "a budget is there", "no pod on the node"],
)
def test_no_guard_where_none_is_needed(replicas: int, on: t.Sequence[str], kinds: dict[str, t.Any]) -> None:
    assert wanted(cluster(replicas, on, **kinds), "n1") == ()


def test_a_guard_is_never_laid_over_pods_of_another_budget() -> None:
    """The selector also matches a pod of something else, and that one has a budget."""
    other = pod("other-1", "n3", labels={**LABELS, "tier": "db"})
    theirs = budget("theirs", 1, selector={"matchLabels": {"tier": "db"}})
    (one,) = wanted(cluster(more=[other], budgets=[theirs]), "n1")
    assert one.change is None
    assert one.instead is not None
    assert one.instead.name == "theirs"


def test_two_workloads_with_overlapping_selectors_get_one_guard() -> None:
    both = deployment("web", 2)
    second = deployment("api", 2)
    for raw in second["deployments"]:
        raw["spec"]["selector"] = {"matchLabels": {"tier": "front"}}
    labels = {**LABELS, "tier": "front"}
    pods = [pod(f"web-{i}", f"n{i}", owned("ReplicaSet", "web"), labels=labels) for i in (1, 2)]
    pods += [
        pod(f"api-{i}", f"n{i}", owned("ReplicaSet", "api"), labels={**LABELS, "tier": "front", "app": "api"})
        for i in (1, 2)
    ]
    found = wanted(snapshot(both, second, pods=pods), "n1")
    assert [one.change is not None for one in found] == [True, False]
    assert found[1].instead is not None
    assert found[1].instead.name == NAME


def test_a_guard_that_serves_the_node_already_is_left_alone() -> None:
    (one,) = wanted(cluster(budgets=[laid({"n1": "uid-n1"})]), "n1")
    assert one.change is None
    assert one.instead is None


@pytest.mark.parametrize("serves", [{"n2": "uid-n2"}, {"n1": "another machine", "n2": "uid-n2"}])
def test_a_guard_of_another_node_is_shared(serves: dict[str, str]) -> None:
    (one,) = wanted(cluster(budgets=[laid(serves)]), "n1")
    assert one.change is not None
    assert one.change.verb == "patch"
    assert one.change.resource_version == "1"
    text = t.cast("Raw", one.change.body)["metadata"]["annotations"][names.SERVES_NODES]
    assert json.loads(text) == {"n1": "uid-n1", "n2": "uid-n2"}


def test_a_guard_made_by_another_run_meanwhile_is_widened() -> None:
    (one,) = wanted(cluster(), "n1")
    again = guard_budgets.again(cluster(budgets=[laid({"n2": "uid-n2"})]), one).change
    assert again is not None
    assert again.verb == "patch"
    assert guard_budgets.again(cluster(budgets=[laid({"n1": "uid-n1"})]), one).change is None


def test_a_guard_that_somebody_removed_is_made_and_not_patched() -> None:
    (one,) = wanted(cluster(budgets=[laid({"n2": "uid-n2"})]), "n1")
    assert one.change is not None
    assert one.change.verb == "patch"
    again = guard_budgets.again(cluster(), one).change
    assert again is not None
    assert again.verb == "create"
    assert json.loads(t.cast("Raw", again.body)["metadata"]["annotations"][names.SERVES_NODES]) == {"n1": "uid-n1"}


@pytest.mark.parametrize(
    ("serves", "nodes", "verb", "left"),
    [
        ({"n1": "uid-n1"}, ["n1"], "delete", None),
        ({"n1": "uid-n1", "n2": "uid-n2"}, ["n1"], "patch", {"n2": "uid-n2"}),
        ({"n1": "uid-n1", "gone": "uid-gone"}, ["n1"], "delete", None),
        ({"n1": "uid-n1", "n2": "another machine"}, ["n1"], "delete", None),
        ({"n2": "uid-n2", "gone": "uid-gone"}, ["n1"], "patch", {"n2": "uid-n2"}),
        ({"n2": "uid-n2"}, ["n1"], "", None),
        ({"gone": "uid-gone"}, [], "delete", None),
    ],
)
def test_the_last_node_takes_the_guard_away(
    serves: dict[str, str], nodes: list[str], verb: str, left: dict[str, str] | None
) -> None:
    seen = cluster(budgets=[laid(serves)])
    changes = unguards(seen, nodes)
    assert [change.verb for change in changes] == ([verb] if verb else [])
    if left is not None:
        text = t.cast("Raw", changes[0].body)["metadata"]["annotations"][names.SERVES_NODES]
        assert json.loads(text) == left


def test_budgets_of_others_are_never_touched() -> None:
    theirs = budget("kubeops-guardian", 1)
    theirs["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    seen = cluster(budgets=[theirs, budget("plain", 1)])
    assert unguards(seen, ["n1"]) == []
    assert guard_budgets.conflicting(seen) == ()


@pytest.mark.parametrize("text", ["", "no json", "[]", "7"])
def test_a_guard_whose_nodes_cannot_be_read_serves_none(text: str) -> None:
    raw = laid({})
    raw["metadata"]["annotations"] = {names.SERVES_NODES: text}
    (change,) = unguards(cluster(budgets=[raw]), ["n1"])
    assert change.verb == "delete"


def test_our_guard_goes_when_a_foreign_budget_comes() -> None:
    (change,) = guard_budgets.conflicting(cluster(budgets=[laid({"n1": "uid-n1"}), budget("theirs", 1)]))
    assert (change.verb, change.target.name) == ("delete", NAME)
    assert "theirs covers its pods now" in change.sentence


def test_our_guard_stays_beside_a_budget_of_other_pods() -> None:
    other = budget("theirs", 1, selector={"matchLabels": {"app": "db"}})
    assert guard_budgets.conflicting(cluster(budgets=[laid({"n1": "uid-n1"}), other])) == ()


def test_a_node_with_the_same_name_is_another_one() -> None:
    replaced = [node("n1"), node("n2")]
    replaced[0]["metadata"]["uid"] = "new"
    seen = cluster(budgets=[laid({"n1": "uid-n1"})], nodes=replaced)
    (change,) = unguards(seen, ["n2"])
    assert change.verb == "delete"


def test_of_two_guards_over_the_same_pods_the_first_by_name_stays() -> None:
    overlapping = deployment("api", 2, selector={"matchLabels": {"app": "web"}})
    first, second = guard("Deployment", "api", 1), guard("Deployment", "web", 1)
    for laid_first in ([first, second], [second, first]):
        (change,) = guard_budgets.conflicting(snapshot({"budgets": laid_first}, overlapping, cluster_of_web()))
        assert change.target.name == NAME


FORGED: t.Mapping[str, Raw] = {
    "of no workload": budget(names.guard_name("x"), 0, rule={"maxUnavailable": 1}),
    "never": budget(NAME, 0, rule={"maxUnavailable": 0}),
    "all but one": budget(NAME, 0, rule={"minAvailable": 1, "maxUnavailable": 1}),
    "by share": budget(NAME, 0, rule={"maxUnavailable": "1%"}),
    "of everything": budget(NAME, 0, rule={"maxUnavailable": 1}, selector={}),
    "of others": budget(NAME, 0, rule={"maxUnavailable": 1}, selector={"matchLabels": {"app": "api"}}),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_budget_that_only_calls_itself_a_guard_is_one_like_any_other(what: str) -> None:
    """Whoever may create budgets could otherwise hide one from the plan; at the end it goes by its name."""
    seen = cluster(budgets=[FORGED[what]])
    (forged,) = seen.budgets
    assert forged.ours
    assert not guard_budgets.is_one(seen, forged)
    (real,) = cluster(budgets=[laid({})]).budgets
    assert guard_budgets.is_one(seen, real)
    elsewhere = replace(real, namespace="another")
    assert not guard_budgets.is_one(seen, elsewhere)
    if forged.covers(seen.pods[0]):
        (plan,) = routes(seen, ("n1",), DrainPolicy())
        assert [budget.name for budget in plan.budgets] == [forged.name]
        assert not plan.guarded
    assert guard_budgets.conflicting(seen) == ()
    assert len(unguards(seen, {"n1"})) == 1


@pytest.mark.parametrize(("replicas", "guarded"), [(1, 0), (2, 1), (3, 1)])
def test_a_guard_needs_two_replicas(replicas: int, guarded: bool) -> None:
    seen = cluster(replicas)
    plans = [PodPlan(one, "evict", "guarded", "", seen.workloads[0].ref, guarded=True) for one in seen.pods_on(["n1"])]
    assert len(guard_budgets.guards(seen, plans)) == guarded
    assert guard_budgets.guards(seen, [replace(plan, guarded=False) for plan in plans]) == ()
    gone = [replace(plan, workload=replace(seen.workloads[0].ref, uid="gone")) for plan in plans]
    assert len(guard_budgets.guards(seen, [*gone, *plans])) == guarded


def test_finished_pods_are_under_no_guard() -> None:
    done = pod("web-9", "n2", owned("ReplicaSet", "web"), phase="Succeeded")
    theirs = budget("theirs", 1, selector={"matchLabels": {"app": "web", "done": "yes"}})
    done["metadata"]["labels"] = {"app": "web", "done": "yes"}
    seen = cluster(budgets=[theirs], more=[done])
    (guard,) = wanted(seen, "n1")
    assert guard.instead is None
    assert guard_budgets.conflicting(cluster(budgets=[laid({"n1": "uid-n1"}), theirs], more=[done])) == ()


@pytest.mark.parametrize(
    ("kind", "version", "label"),
    [
        ("Deployment", "apps/v1", "pod-template-hash"),
        ("StatefulSet", "apps/v1", "statefulset.kubernetes.io/pod-name"),
        ("Rollout", "argoproj.io/v1alpha1", "rollouts-pod-template-hash"),
        ("ReplicaSet", "apps/v1", None),
        ("Deployment", "example.com/v1", None),
    ],
)
@pytest.mark.parametrize("expressions", [[], [{"key": "tier", "operator": "Exists"}]])
def test_a_guard_selects_what_only_its_workload_gives_its_pods(
    kind: str, version: str, label: str | None, expressions: list[Raw]
) -> None:
    raw = workload(kind, "web", 2, api_version=version)
    raw["spec"]["selector"] |= {"matchExpressions": expressions} if expressions else {}
    found = objects.Workload.of(raw)
    own = [{"key": label, "operator": "Exists"}] if label else []
    wanted = guard_budgets._selector(found) or {}
    assert wanted["matchLabels"] == {"app": "web"}
    assert wanted.get("matchExpressions", []) == [*expressions, *own]


def test_a_guard_that_cannot_be_counted_is_removed() -> None:
    raw = laid({"n1": "uid-n1"})
    told = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale"}
    raw["status"] = {"conditions": [told], "disruptionsAllowed": 0}
    (change,) = guard_budgets.conflicting(cluster(budgets=[raw]))
    assert (change.verb, change.target.name, change.resource_version) == ("delete", NAME, "1")
