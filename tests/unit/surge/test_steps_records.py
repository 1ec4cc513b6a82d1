# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each step of a surge, asked in one state of the cluster."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, serving
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.surge_records import Surge
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import steps
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    deployment,
    node,
    pod,
    snapshot,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import WEB

UID = "uid-Deployment-web"
BEGUN = "2026-01-02T00:00:00Z"
LATER = "2026-01-02T00:00:05Z"
LOWEST = {names.DELETION_COST: names.LOWEST_COST}
SURGE = Surge(
    "apps/v1",
    "Deployment",
    "shop",
    "web",
    UID,
    prior_replicas=1,
    target=2,
    node="n1",
    node_uid="uid-n1",
    pod="old",
    pod_uid="uid-old",
    cost=None,
    run="r1",
    by="ann",
    since=BEGUN,
    created=BEGUN,
)


def world(replicas: int = 2, *pods: Raw, **kinds: t.Any) -> Snapshot:
    """`old` on n1, which leaves, and `new` on n2, unless other pods are given."""
    there = list(pods) or [pod("old", owner=WEB), pod("new", "n2", WEB, created=LATER)]
    return snapshot(deployment("web", replicas), pods=there, **kinds)


def made(changes: t.Iterable[t.Any]) -> list[tuple[str, str]]:
    return [(change.verb, change.target.name) for change in changes]


def planned(found: Snapshot) -> list[PodPlan]:
    return [PodPlan(one, "surge", "single_replica", "", found.workloads[0].ref) for one in found.pods_on(["n1"])]


def test_one_surge_for_each_workload_that_is_still_there() -> None:
    found = world(3, pod("a", owner=WEB, annotations={names.DELETION_COST: "7"}), pod("b", owner=WEB))
    plans = planned(found)
    gone = replace(plans[0], workload=replace(found.workloads[0].ref, uid="uid-gone"))
    evicted = replace(plans[0], route="evict")
    (surge,) = steps.surges(found, [gone, evicted, *plans], run="r1", by="ann", since=BEGUN)
    assert (surge.prior_replicas, surge.target, surge.node, surge.node_uid) == (3, 4, "n1", "uid-n1")
    assert (surge.pod, surge.pod_uid, surge.cost) == ("a", "uid-a", "7")


@pytest.mark.parametrize(
    ("replicas", "cost", "changes"),
    [
        (1, {}, [("patch", "old"), ("scale", "web")]),
        (1, LOWEST, [("scale", "web")]),
        (2, LOWEST, []),
        pytest.param(3, LOWEST, [], id="somebody else set it"),
    ],
)
def test_raising_makes_what_is_missing(replicas: int, cost: dict[str, str], changes: list[tuple[str, str]]) -> None:
    found = world(replicas, pod("old", owner=WEB, annotations=cost))
    assert made(steps.raising(found, SURGE)) == changes
    assert steps.raised(found, SURGE) is (replicas == 2)
    assert steps.raising(snapshot(), SURGE) == ()
    assert not steps.raised(snapshot(), SURGE)


def test_a_pod_that_does_not_leave_loses_our_cost() -> None:
    found = world(2, pod("old", owner=WEB, annotations=LOWEST), pod("new", "n2", WEB, annotations=LOWEST))
    (change,) = steps.raising(found, SURGE)
    assert (change.target.name, change.after) == ("new", {})


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        pytest.param(world(2), "", id="at rest"),
        pytest.param(world(3), "2 of 3 pods", id="one is missing"),
        pytest.param(world(1), "2 of 1 pods", id="one too many"),
        pytest.param(world(1, pod("a", owner=WEB), pod("b", owner=WEB, deleting=LATER)), "", id="one is ending"),
        pytest.param(snapshot(), "", id="gone"),
    ],
)
def test_a_workload_rests_once_it_has_as_many_pods_as_it_wants(listed: Snapshot, why: str) -> None:
    assert (why in steps.not_applied(listed, SURGE)) if why else not steps.not_applied(listed, SURGE)
    assert (why in steps.not_at_rest(listed, UID)) if why else not steps.not_at_rest(listed, UID)


def test_a_count_that_the_controller_has_not_seen_is_not_judged() -> None:
    parts = deployment("web", 3)
    parts["deployments"][0]["metadata"]["generation"] = 2
    found = snapshot(parts, pods=[pod("old", owner=WEB)])
    assert "has not seen its count of 3 yet" in steps.not_applied(found, SURGE)
    assert "has not seen the latest specification" in steps.not_at_rest(found, UID)


ENDPOINTS = serving.Endpoints(Snapshot())


@pytest.mark.parametrize(
    ("pods", "available", "lowering", "why"),
    [
        ([{}, {}], 2, False, ""),
        ([{}, {"ready": False}], 2, False, "shop/new is not ready"),
        ([{}, {"ready": False, "phase": "Pending"}], 2, False, "(Pending)"),
        ([{"ready": False}, {}], 2, False, "shop/old is not ready"),
        ([{}, {}], 1, False, "1 of 2 pods are available"),
        ([{}, {}], 3, True, ""),
    ],
)
def test_newcomers_serve_when_all_are_ready_and_available(
    pods: list[Raw], available: int, lowering: bool, why: str
) -> None:
    parts = deployment("web", 2)
    parts["deployments"][0]["status"]["availableReplicas"] = available
    there = [pod("old", owner=WEB, **pods[0]), pod("new", "n2", WEB, **pods[1])]
    missing = steps.waiting_for(snapshot(parts, pods=there), SURGE, ENDPOINTS, ["n1"], lowering=lowering)
    assert (why in missing) if why else not missing


@pytest.mark.parametrize(("available", "lowering", "serves"), [(2, False, True), (1, False, False), (2, True, False)])
def test_a_pod_that_is_evicted_on_a_leaving_node_counts_only_for_lowering(
    available: int, lowering: bool, serves: bool
) -> None:
    parts = deployment("web", 3)
    parts["deployments"][0]["status"]["availableReplicas"] = available
    there = [pod("old", owner=WEB), pod("ill", owner=WEB, ready=False), pod("new", "n2", WEB)]
    missing = steps.waiting_for(snapshot(parts, pods=there), SURGE, ENDPOINTS, ["n1"], lowering=lowering)
    assert (not missing) is serves
    if not lowering:
        assert steps.waiting_for(snapshot(parts, pods=there), SURGE, ENDPOINTS, ["n1"]) == missing
    assert "is gone" in steps.waiting_for(snapshot(), SURGE, ENDPOINTS, ["n1"])


@pytest.mark.parametrize(
    ("newcomer", "code"),
    [
        pytest.param({}, "", id="all is well"),
        pytest.param({"on": "n1"}, "surge_on_leaving_node", id="on a leaving node"),
        pytest.param({"on": "n3"}, "surge_on_leaving_node", id="on a cordoned node"),
        pytest.param({"on": "n1", "created": BEGUN}, "surge_on_leaving_node", id="in the second of the surge"),
        pytest.param({"on": "n1", "created": "2026-01-01T23:59:59Z"}, "", id="older than the surge"),
        pytest.param({"on": ""}, "surge_not_scheduled", id="not looked at yet"),
    ],
)
def test_a_newcomer_where_it_cannot_stay_blocks_the_surge(newcomer: Raw, code: str) -> None:
    new = pod("new", newcomer.pop("on", "n2"), WEB, **{"created": LATER, **newcomer})
    listed = [node("n1"), node("n2"), node("n3", unschedulable=True)]
    found = steps.blocked(world(2, pod("old", owner=WEB, created=LATER), new, nodes=listed), SURGE, ["n1"])
    assert (found.code if found else "") == code


@pytest.mark.parametrize(
    ("replicas", "current", "failure", "code"),
    [
        (1, 1, "", "surge_reverted"),
        (2, 1, "exceeded quota", "surge_refused"),
        pytest.param(2, 2, "exceeded quota", "", id="an old failure"),
        pytest.param(2, 1, "", "", id="still starting"),
        pytest.param(3, 3, "", "", id="somebody wants more"),
    ],
)
def test_what_the_controller_says_blocks_the_surge(replicas: int, current: int, failure: str, code: str) -> None:
    parts = deployment("web", replicas)
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": failure}
    parts["replica_sets"][0]["status"].update(replicas=current, conditions=[condition] if failure else [])
    found = steps.blocked(snapshot(parts, pods=[pod("old", owner=WEB)]), SURGE, ["n1"])
    assert (found.code if found else "") == code
    assert getattr(steps.blocked(snapshot(), SURGE, ["n1"]), "code", "") == "workload_gone"


@pytest.mark.parametrize(
    ("failure", "quota"),
    [
        ('pods "web-x" is forbidden: exceeded quota: pods', True),
        ('pods "web-x" is forbidden: maximum cpu usage per Container is 1, but limit is 2', False),
        ('pods "web-x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true', False),
        ('error looking up service account shop/web: serviceaccount "web" not found', False),
        ('admission webhook "pods.example.com" denied the request: no', False),
        ("pods \"web-x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", False),
    ],
)
def test_what_to_do_about_a_rejection_is_of_what_rejects(failure: str, quota: bool) -> None:
    """Of these a quota alone has room again once the pod is gone."""
    parts = deployment("web", 2)
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": failure}
    parts["replica_sets"][0]["status"].update(replicas=1, conditions=[condition])
    found = steps.blocked(snapshot(parts, pods=[pod("old", owner=WEB)]), SURGE, ["n1"])
    assert found is not None
    assert ("quota" in found.remedy, "allow_interruption" in found.remedy) == (quota, quota)


@pytest.mark.parametrize(
    ("replicas", "lowered", "prior"),
    [
        pytest.param(1, False, None, id="as before"),
        pytest.param(2, False, None, id="ours"),
        pytest.param(2, True, 2, id="no longer ours"),
        pytest.param(3, False, 3, id="somebody wants three"),
        pytest.param(0, False, None, id="somebody wants none"),
    ],
)
def test_a_surge_goes_on_top_of_what_somebody_else_wants(replicas: int, lowered: bool, prior: int | None) -> None:
    found = steps.rebased(world(replicas), replace(SURGE, stage="ready"), lowered=lowered)
    assert (found and (found.prior_replicas, found.target, found.stage)) == (prior and (prior, prior + 1, "raising"))
    assert steps.rebased(world(2), SURGE) is None
    assert steps.rebased(world(3, pod("new", "n2", WEB)), SURGE) is None
    assert steps.rebased(snapshot(), SURGE) is None


@pytest.mark.parametrize(
    ("replicas", "lowered"),
    [
        pytest.param(2, [{"replicas": 1}], id="ours goes back"),
        pytest.param(1, [], id="as before"),
        pytest.param(4, [], id="somebody else's stays"),
    ],
)
def test_only_our_count_is_lowered(replicas: int, lowered: list[Raw]) -> None:
    assert [change.after for change in steps.lowering(world(replicas), SURGE)] == lowered
    assert steps.lowering(snapshot(), SURGE) == ()


def test_given_back_the_newest_pods_end_and_only_those_of_the_surge() -> None:
    older = pod("older", "n2", WEB, created="2026-01-01T00:00:00Z", annotations=LOWEST)
    there = [pod("old", owner=WEB, annotations=LOWEST), older, pod("new", "n2", WEB, created=LATER)]
    undo = steps.giving_back(world(3, *there), replace(SURGE, prior_replicas=2, target=3))
    costs = {change.target.name: change.after for change in undo.changes if change.verb == "patch"}
    assert costs == {"new": LOWEST, "old": {}, "older": {}}
    assert "lower its count" in undo.waiting
    alone = [pod("old", owner=WEB), older]
    undo = steps.giving_back(world(2, *alone), replace(SURGE, prior_replicas=1, target=2))
    assert made(undo.changes) == [("patch", "older"), ("scale", "web")]


@pytest.mark.parametrize(
    ("replicas", "surge", "lowered", "kept"),
    [
        (1, SURGE, False, False),
        (5, SURGE, False, True),
        (5, SURGE, True, False),
        (2, SURGE, True, False),
    ],
)
def test_a_count_that_is_not_ours_is_kept(replicas: int, surge: Surge, lowered: bool, kept: bool) -> None:
    undo = steps.giving_back(world(replicas), surge, lowered=lowered)
    assert any("left as is" in told for told in undo.kept) is kept
    assert not [change for change in undo.changes if change.verb == "scale"]


def test_costs_go_back_once_the_controller_has_acted() -> None:
    there = [pod("old", owner=WEB, annotations=LOWEST), pod("new", "n2", WEB, annotations=LOWEST)]
    waits = steps.giving_back(world(1, *there), SURGE)
    assert (waits.changes, "2 of 1 pods" in waits.waiting) == ((), True)
    assert made(steps.giving_back(world(1, there[0]), SURGE).changes) == [("patch", "old")]
    undo = steps.giving_back(world(1), SURGE)
    assert (undo.changes, undo.waiting) == ((), "")


def test_the_orphans_of_a_workload_that_is_gone_get_their_cost_back() -> None:
    gone = snapshot(pods=[pod("old", annotations=LOWEST), pod("new", annotations=LOWEST)])
    (change,) = steps.giving_back(gone, SURGE).changes
    assert (change.target.name, change.after) == ("old", {})


@pytest.mark.parametrize(
    ("value", "before", "words", "after"),
    [
        ("-5", {}, "Set the deletion cost", {names.DELETION_COST: "-5"}),
        (None, LOWEST, "Remove the deletion cost", {}),
    ],
)
def test_a_cost_is_set_or_removed(value: str | None, before: dict[str, str], words: str, after: dict[str, str]) -> None:
    change = steps.cost(snapshot(pods=[pod("p", annotations=before)]).pods[0], value)
    assert words in change.sentence
    assert (change.before, change.after) == (before, after)


@pytest.mark.parametrize(("replicas", "verb"), [(3, "Raise"), (1, "Lower")])
def test_a_count_is_told_as_raised_or_lowered(replicas: int, verb: str) -> None:
    change = steps.scale(world(2).workloads[0], replicas)
    assert change.sentence == f"{verb} Deployment shop/web from 2 to {replicas} replicas"
