# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workloads that are short of pods which fit nowhere until their node is back."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import pending
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import drafts, preflight
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects

Raw = dict[str, t.Any]
WEB = objects.owned("ReplicaSet", "web")
NOWHERE: Raw = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"}


def waiting(name: str, **status: t.Any) -> Raw:
    """A pod for which the scheduler finds no node."""
    raw = objects.pod(name, "", ready=False, owner=WEB, phase="Pending")
    raw["status"] = {**raw["status"], "conditions": [NOWHERE], **status}
    return raw


def overlooked(name: str) -> Raw:
    """A pod of which no scheduler has said anything."""
    raw = objects.pod(name, "", ready=False, owner=WEB, phase="Pending")
    raw["spec"]["schedulerName"] = "mine"
    return raw


def web(count: int, **changes: t.Any) -> list[Raw]:
    return [objects.pod(f"web-{number}", f"n{number}", owner=WEB, **changes) for number in range(1, count + 1)]


def seen(*pods: Raw, replicas: int = 3, budgets: t.Sequence[Raw] = ()) -> Snapshot:
    return objects.snapshot(objects.deployment("web", replicas), pods=list(pods), budgets=list(budgets))


def lack(snapshot: Snapshot, ready: int = 3) -> pending.Lack | None:
    workload = snapshot.workload("uid-Deployment-web")
    assert workload is not None
    return pending.lack(snapshot, node_records.Awaited(workload.ref, ready))


@pytest.mark.parametrize(
    ("pods", "nowhere"),
    [
        pytest.param([*web(2), waiting("x")], True, id="no place"),
        pytest.param(web(2), False, id="not created yet"),
        pytest.param([*web(2), overlooked("x")], True, id="not looked at yet"),
        pytest.param([*web(2), waiting("x", nominatedNodeName="n3")], False, id="others are preempted for it"),
        pytest.param([*web(2), objects.pod("x", "n3", ready=False, owner=WEB)], False, id="starting"),
        pytest.param([*web(1), waiting("x"), objects.pod("y", "n3", ready=False, owner=WEB)], False, id="one of both"),
        pytest.param([*web(1), waiting("x"), waiting("y")], True, id="two without a place"),
    ],
)
def test_it_is_known_whether_all_that_is_missing_has_no_place(pods: list[Raw], nowhere: bool) -> None:
    found = lack(seen(*pods))
    assert found is not None
    assert found.nowhere is nowhere


def test_a_pod_that_no_scheduler_looks_at_is_named_with_its_scheduler() -> None:
    found, placeless = lack(seen(*web(2), overlooked("x"))), lack(seen(*web(2), waiting("x")))
    assert found is not None
    assert placeless is not None
    assert "Pod shop/x: no scheduler has looked at it (schedulerName: mine)" in found.text
    assert (found.overlooked, placeless.overlooked) == (True, False)


@pytest.mark.parametrize(("ready", "replicas", "short"), [(3, 3, True), (2, 3, False), (3, 2, False)])
def test_what_counts_is_what_was_ready_and_is_still_wanted(ready: int, replicas: int, short: bool) -> None:
    assert bool(lack(seen(*web(2), waiting("x"), replicas=replicas), ready)) is short


@pytest.mark.parametrize(
    ("budgets", "choices", "bearable"),
    [
        pytest.param([], {}, True, id="one of three, without a budget"),
        pytest.param([objects.budget("web", 0, healthy=2, desired=2)], {}, True, id="its budget holds"),
        pytest.param([objects.budget("web", 0, healthy=2, desired=3)], {}, False, id="its budget does not hold"),
        pytest.param([objects.budget("web", 0, desired=3)], {"allow_interruption": True}, True, id="allowed"),
        pytest.param([objects.budget("web", 0, desired=3)], {"disable_eviction": True}, True, id="budgets ignored"),
        pytest.param([objects.guard("Deployment", "web", 0, healthy=2)], {}, True, id="our guard holds"),
    ],
)
def test_what_its_budget_bears_is_borne(budgets: list[Raw], choices: dict[str, t.Any], bearable: bool) -> None:
    snapshot = seen(*web(2), waiting("x"), budgets=budgets)
    found = lack(snapshot)
    assert found is not None
    assert pending.bearable(snapshot, found, drain_policy.DrainPolicy(**choices)) is bearable


@pytest.mark.parametrize(("consent", "bearable"), [({}, False), ({names.ALLOW_INTERRUPTION: "true"}, True)])
def test_that_nothing_serves_is_borne_with_consent_alone(consent: dict[str, str], bearable: bool) -> None:
    parts = objects.deployment("web", 1)
    parts["deployments"][0]["metadata"]["annotations"] = consent
    snapshot = objects.snapshot(parts, pods=[waiting("x")], budgets=[objects.budget("web", 1, healthy=0, desired=0)])
    found = lack(snapshot, 1)
    assert found is not None
    assert pending.bearable(snapshot, found, drain_policy.DrainPolicy()) is bearable


def planned(snapshot: Snapshot, *nodes: str, most: int = 1, **more: t.Any) -> drafts.Plan:
    asked = preflight.DraftOptions(nodes, max_parallel=most, now="2026-01-01T00:00:00Z", **more)
    return drafts.judged(snapshot, asked, drafts.draft(snapshot, asked))


def codes(plan: drafts.Plan) -> list[tuple[str, str]]:
    wanted = ("fits_nowhere", "no_room")
    return [(one.code, one.severity) for one in plan.findings if one.code in wanted]


def apart(count: int = 3) -> list[Raw]:
    return [{**pod, "spec": {**pod["spec"], "affinity": manifests.apart("web")}} for pod in web(count)]


THREE = ("n1", "n2", "n3")


@pytest.mark.parametrize(
    ("budgets", "told"),
    [
        pytest.param([], ("fits_nowhere", "warning"), id="a guard of ours"),
        pytest.param([objects.budget("web", 1)], ("fits_nowhere", "warning"), id="a budget for one"),
        pytest.param(
            [objects.budget("web", 3, desired=0, rule={"maxUnavailable": "100%"})],
            ("fits_nowhere", "warning"),
            id="one that allows all",
        ),
    ],
)
def test_the_usual_shape_is_planned_with_one_replica_less(budgets: list[Raw], told: tuple[str, str]) -> None:
    plan = planned(seen(*apart(), budgets=budgets), *THREE)
    assert (plan.draft.waves, set(codes(plan))) == ((("n1",), ("n2",), ("n3",)), {told})


def test_nodes_whose_pods_fit_nowhere_share_a_wave_as_far_as_their_budget_bears_it() -> None:
    waits = planned(seen(*apart()), *THREE, most=3).draft
    assert (waits.waves, [wait.limits for wait in waits.waits]) == ((("n1",), ("n2",), ("n3",)), [("budget",)] * 2)
    for_two = objects.budget("web", 2, desired=1)
    assert planned(seen(*apart(), budgets=[for_two]), *THREE, most=3).draft.waves == (("n1", "n2"), ("n3",))


@pytest.mark.parametrize(
    ("replicas", "budgets", "object_"),
    [
        pytest.param(3, [], "Deployment shop/web", id="a guard of ours bears one"),
        pytest.param(3, [objects.budget("web", 1)], "PodDisruptionBudget shop/web", id="a budget bears one"),
        pytest.param(
            2,
            [objects.budget("web", 2, healthy=2, desired=0, rule={"minAvailable": 0})],
            "PodDisruptionBudget shop/web",
            id="a budget bears both, and nothing would be left",
        ),
    ],
)
def test_too_few_that_would_be_left_are_a_blocker(replicas: int, budgets: list[Raw], object_: str) -> None:
    """Two pods of n1 that no other node takes."""
    bound = [objects.pod(f"web-{number}", "n1", owner=WEB) for number in (1, 2)]
    for one in bound:
        one["spec"]["nodeSelector"] = {"disk": "fast"}
    others = [objects.pod("web-3", "n2", owner=WEB)] if replicas == 3 else []
    plan = planned(seen(*bound, *others, replicas=replicas, budgets=budgets), "n1")
    (finding,) = [one for one in plan.findings if one.code == "no_room"]
    assert (codes(plan), finding.object, finding.nodes) == ([("no_room", "blocker")], object_, ("n1",))
    assert finding.remedy


def test_pods_that_do_not_serve_are_no_blocker() -> None:
    bound = [objects.pod(f"web-{number}", "n1", owner=WEB, ready=False) for number in (1, 2)]
    for one in bound:
        one["spec"]["nodeSelector"] = {"disk": "fast"}
    assert codes(planned(seen(*bound, objects.pod("web-3", "n2", owner=WEB)), "n1")) == [("fits_nowhere", "warning")]


def test_nodes_that_stay_out_add_up() -> None:
    plan = planned(seen(*apart()), "n1", "n2", evacuates=True)
    assert codes(plan) == [("no_room", "blocker")]


DB = objects.owned("StatefulSet", "db")
BEGAN, LATER = "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"


def members(*unready: int, there: t.Iterable[int] = range(3), born: str = "2026-01-01T00:00:00Z") -> list[Raw]:
    """Pods of StatefulSet db; those that are not Ready are from before the drain, or ``born`` in it."""
    made = [objects.pod(f"db-{number}", f"n{number}", owner=DB, ready=number not in unready) for number in there]
    for one in made:
        one["metadata"] |= {"labels": {"app": "db"}, "creationTimestamp": born}
    return made


def ending(until: str) -> list[Raw]:
    pods = members(0, there=(0, 1))
    pods[0]["metadata"]["deletionTimestamp"] = until
    return pods


def stored(*pods: Raw, replicas: int = 3, budgets: t.Sequence[Raw] = (), **spec: t.Any) -> Snapshot:
    top = objects.workload("StatefulSet", "db", replicas, **spec)
    nodes = [objects.node(f"n{number}") for number in range(7)]
    return objects.snapshot({"stateful_sets": [top]}, nodes=nodes, pods=list(pods), budgets=list(budgets))


@pytest.mark.parametrize(
    ("pods", "spec", "behind"),
    [
        pytest.param(members(0, there=(0, 1)), {}, "db-0", id="a later one is not created"),
        pytest.param(members(0, there=(0, 1)), {"podManagementPolicy": "Parallel"}, "", id="created at once"),
        pytest.param(members(0, there=(0, 1), born=LATER), {}, "", id="a successor itself"),
        pytest.param(members(2, there=(1, 2)), {}, "", id="the later one is not Ready"),
        pytest.param(members(0, there=(0, 1)), {"replicas": 2}, "", id="no more are wanted"),
        pytest.param([*members(0, there=(0,)), *members(1, there=(1,), born=LATER)], {}, "", id="one is coming"),
        pytest.param(ending(LATER), {}, "", id="it is ending"),
        pytest.param(ending("2026-01-01T00:00:00Z"), {}, "db-0", id="it does not end"),
        pytest.param(members(0, 1), {}, "", id="all are created"),
        pytest.param(members(4, there=(4, 5)), {"ordinals": {"start": 4}}, "db-4", id="numbers from four on"),
    ],
)
def test_what_is_not_created_is_behind_the_first_pod_that_is_not_ready(pods: list[Raw], spec: Raw, behind: str) -> None:
    snapshot = stored(*pods, **spec)
    workload = snapshot.workload("uid-StatefulSet-db")
    assert workload is not None
    found = pending.lack(snapshot, node_records.Awaited(workload.ref, 2), BEGAN)
    assert found is not None
    assert (found.behind.name if found.behind else "", found.nowhere) == (behind, bool(behind))
    assert (found.finding("n2").code == "successor_waits") is bool(behind)


@pytest.mark.parametrize(
    ("pods", "nodes", "most", "severity"),
    [
        pytest.param(members(0), ["n2"], {"minAvailable": 1}, "warning", id="one is left"),
        pytest.param(members(0), ["n1", "n2"], {"minAvailable": 0}, "blocker", id="none is left"),
        pytest.param(members(0, there=range(4)), ["n2", "n3"], {"minAvailable": 2}, "blocker", id="too few are left"),
        pytest.param(members(0), ["n2"], {"minAvailable": 2}, "", id="none may leave at all"),
        pytest.param(members(0), ["n0", "n2"], {"minAvailable": 1}, "", id="the earlier one leaves as well"),
        pytest.param(members(2), ["n1"], {"minAvailable": 1}, "", id="it is a later one"),
        pytest.param(members(), ["n2"], {"minAvailable": 1}, "", id="all are Ready"),
    ],
)
def test_pods_that_leave_behind_one_that_is_not_ready_are_told(
    pods: list[Raw], nodes: list[str], most: Raw, severity: str
) -> None:
    ready = sum(one["status"]["conditions"][0]["status"] == "True" for one in pods)
    rule = objects.budget("db", ready - most["minAvailable"], healthy=ready, desired=most["minAvailable"], rule=most)
    rule["spec"]["selector"] = {"matchLabels": {"app": "db"}}
    plan = planned(stored(*pods, replicas=len(pods), budgets=[rule]), *nodes, most=2)
    found = [one for one in plan.findings if one.code == "successor_waits"]
    assert [(one.severity, one.object) for one in found] == [(severity, "StatefulSet shop/db")] * bool(severity)


@pytest.mark.parametrize(
    ("changes", "spec", "only"),
    [
        pytest.param({}, {}, False, id="any node"),
        pytest.param({"labels": {"pool": "b"}}, {"nodeSelector": {"pool": "a"}}, True, id="another pool"),
        pytest.param({"labels": {"pool": "a"}}, {"nodeSelector": {"pool": "a"}}, False, id="the same pool"),
        pytest.param({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, {}, True, id="a taint"),
        pytest.param(
            {"unschedulable": True, "taints": [{"key": names.TAINT_KEY, "effect": "NoSchedule"}]},
            {},
            False,
            id="out of service",
        ),
    ],
)
def test_whether_no_other_node_takes_a_pod(changes: Raw, spec: Raw, only: bool) -> None:
    here = objects.pod("web-0", "n1")
    here["spec"] |= spec
    nodes = [objects.node("n1", labels={"pool": "a"}), objects.node("n2", **changes)]
    found = objects.snapshot(nodes=nodes, pods=[here])
    assert pending.only_its_node(found, found.pods[0]) is only
