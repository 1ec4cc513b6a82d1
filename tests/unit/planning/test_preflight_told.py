# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a finding is told about, and that one hides no other."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.reasons import Finding
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import preflight
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy, PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.migration_controller import (
    Controller,
    Limiter,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    deployment,
    node,
    owned,
    pod,
    snapshot,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import NEVER, NOW, WEB, planned, web

SPENT: t.Any = {"healthy": 2, "desired": 2, "expected": 3}


def findings(
    found: Snapshot, nodes: tuple[str, ...], plans: t.Sequence[PodPlan] = (), **choices: t.Any
) -> dict[str, list[Finding]]:
    """By code, all nodes in one wave with n3 left."""
    waves = (tuple(name for name in nodes if name in found.nodes),)
    told: dict[str, list[Finding]] = {}
    asked = preflight.DraftOptions(nodes, DrainPolicy(**choices), now=NOW)
    for finding in preflight.findings(found, plans, asked, waves):
        told.setdefault(finding.code, []).append(finding)
    return told


def test_every_unknown_node_is_named_once() -> None:
    told = findings(snapshot(), ("n1", "n7", "n1", "n8", "n7"))["unknown_node"]
    assert [finding.nodes for finding in told] == [("n7",), ("n8",)]


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({"unschedulable": True}, {"foreign_cordon"}),
        ({"conditions": {"Ready": "False"}}, {"node_not_ready"}),
        ({"conditions": {"Ready": "Unknown"}}, {"node_lost"}),
        ({"unschedulable": True, "conditions": {"Ready": "False"}}, {"foreign_cordon", "node_not_ready"}),
        (
            {"unschedulable": True, "conditions": {"Ready": "False"}, "annotations": {names.RECORD: "{"}},
            {"bad_record"},
        ),
        ({}, set()),
    ],
)
def test_the_state_of_each_node_is_told_whatever_stands_before_it(changes: Raw, codes: set[str]) -> None:
    found = snapshot(nodes=[node("n1", **changes), node("n2", **changes), node("n3")])
    told = findings(found, ("n9", "n1", "n2"))
    assert set(told) == {"unknown_node", *codes}
    assert all([finding.nodes for finding in told[code]] == [("n1",), ("n2",)] for code in codes)


@pytest.mark.parametrize(
    ("theirs", "takes"),
    [
        ({"key": "gpu", "value": "a", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "b", "effect": "NoSchedule"}, False),
        ({"key": "gpu", "value": "a", "effect": "NoExecute"}, False),
        ({"key": "cpu", "value": "a", "effect": "NoSchedule"}, False),
    ],
)
def test_a_node_takes_the_pods_of_one_with_the_same_taint(theirs: Raw, takes: bool) -> None:
    ours: Raw = {"key": "gpu", "value": "a", "effect": "NoSchedule"}
    found = snapshot(nodes=[node("n1", taints=[ours]), node("n2", taints=[theirs])])
    assert ("last_schedulable_node" not in findings(found, ("n1",))) is takes


def test_the_wave_that_leaves_no_node_is_told_once_with_all_its_nodes() -> None:
    told = findings(snapshot(nodes=[node("n1"), node("n2")]), ("n1", "n2"))["last_schedulable_node"]
    assert [(finding.nodes, finding.object) for finding in told] == [(("n1", "n2"), "Node n2")]


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, "Pod shop/web-0 on n1"),
        (2, "2 pods in shop (web-0, web-1) on n1"),
        (5, "5 pods in shop (web-0, web-1, web-2, web-3, web-4) on n1"),
        (6, "6 pods in shop (web-0, web-1, web-2, web-3, web-4 and 1 more) on n1"),
    ],
)
def test_five_pods_of_a_workload_are_named(count: int, words: str) -> None:
    found = web(count + 1, here=count, budgets=[budget("b", 0, **NEVER)])
    (told,) = findings(found, ("n1",), planned(found))["budget_allows_nothing"]
    assert told.message.startswith(words)


@pytest.mark.parametrize(
    ("laid", "told"),
    [
        ({"allowed": 0, **SPENT}, 1),
        ({"allowed": 1, "healthy": 3}, 0),
        pytest.param({"allowed": 0, "healthy": 3, "desired": 3}, 0, id="never: a blocker of its own"),
    ],
)
def test_a_budget_that_is_spent_is_told_once(laid: dict[str, t.Any], told: int) -> None:
    found = web(3, here=2, budgets=[budget("b", **laid)])
    plans = planned(found)
    assert len(findings(found, ("n1",), plans).get("budget_spent", ())) == told
    assert "budget_spent" not in findings(found, ("n1",), [replace(plan, route="refuse") for plan in plans])
    for code in ("unhealthy_blocked", "operator_budget"):
        told_already = [replace(plan, code=code) for plan in plans]
        assert "budget_spent" not in findings(found, ("n1",), told_already)


def test_a_budget_that_never_allows_an_eviction_is_not_one_to_wait_for() -> None:
    found = web(3, here=1, budgets=[budget("b", 0, **NEVER)])
    plans = [replace(plan, route="evict") for plan in planned(found)]
    assert "budget_spent" not in findings(found, ("n1",), plans)


def test_a_budget_that_is_spent_is_told_with_the_node_of_its_first_pod() -> None:
    found = web(4, here=2, budgets=[budget("b", 0, **SPENT)])
    plans = planned(found)
    there = [replace(plan, pod=replace(plan.pod, node="n0", name="later")) for plan in plans[:1]]
    [told] = findings(found, ("n1",), [*plans, *there])["budget_spent"]
    assert told.nodes == ("n1",)


def test_a_pod_without_a_budget_hides_no_budget_that_is_spent() -> None:
    free = pod("free", owner=owned("ReplicaSet", "free"), labels={"app": "free"})
    found = web(3, budgets=[budget("b", 0, **SPENT)])
    found = replace(found, pods=(*snapshot(pods=[free]).pods, *found.pods))
    assert len(findings(found, ("n1",), planned(found, allow_interruption=True))["budget_spent"]) == 1


@pytest.mark.parametrize(
    ("elsewhere", "here", "told"),
    [
        pytest.param({}, {}, False, id="all are ready"),
        pytest.param({"ready": False}, {}, True, id="one elsewhere is not ready"),
        pytest.param({"deleting": "2026-01-02T00:00:00Z"}, {}, True, id="one elsewhere is ending"),
        pytest.param({"ready": False}, {"ready": False}, False, id="one that is not ready may go"),
    ],
)
def test_a_guard_of_a_workload_that_is_short_of_a_pod_is_spent(elsewhere: Raw, here: Raw, told: bool) -> None:
    pods = [pod("web-0", "n1", WEB, **here), pod("web-1", "n2", WEB), pod("web-2", "n3", WEB, **elsewhere)]
    found = snapshot(deployment("web", 3), pods=pods)
    spent = findings(found, ("n1",), planned(found)).get("budget_spent", ())
    assert [(one.severity, one.object, one.nodes) for one in spent] == [
        ("warning", "Deployment shop/web", ("n1",)),
    ] * told
    assert all("Deployment shop/web has 2 of 3 pods ready" in one.message for one in spent)


@pytest.mark.parametrize(("gap", "told"), [(30.0, []), (60.0, []), (61.0, ["Deployment shop/web"])])
def test_a_pace_above_a_minute_is_told(gap: float, told: list[str]) -> None:
    """Two pods of `web` wait once for the limiter, the one of `api` never."""
    pods = [pod("api", owner=owned("ReplicaSet", "api")), pod("web-0", owner=WEB), pod("web-1", owner=WEB)]
    found = snapshot(deployment("api", 3), deployment("web", 3), pods=pods)
    controller = Controller(object_limiters={"workload": Limiter(gap)})
    plans = [replace(plan, route="job") for plan in planned(found)]
    slow = findings(found, ("n1",), plans, controller=controller).get("job_pace", [])
    assert [finding.object for finding in slow] == told
    assert all(f"one every {gap:g} s: that alone takes {gap:.0f} s" in finding.message for finding in slow)
    assert all(finding.message.startswith("2 pods") for finding in slow)
    assert "job_pace" not in findings(found, ("n1",), plans)


@pytest.mark.parametrize(
    ("choices", "subject"),
    [({"pod_selector": "app=db"}, "pod_selector app=db"), ({"namespaces": ("x",)}, "namespaces")],
)
def test_pods_that_are_not_selected_are_counted(choices: dict[str, t.Any], subject: str) -> None:
    found = web(3, here=2)
    (told,) = findings(found, ("n1",), planned(found, **choices), **choices)["not_selected"]
    assert (told.object, told.message.startswith("2 pods on n1")) == (subject, True)


def test_blockers_come_before_warnings_and_these_before_infos() -> None:
    listed = [node("n1", unschedulable=True), node("n2"), node("n3")]
    found = snapshot(pods=[pod("p"), pod("q", namespace="bank")], nodes=listed)
    plans = planned(found, namespaces=("shop",))
    asked = preflight.DraftOptions(("n1",), DrainPolicy(namespaces=("shop",)), now=NOW)
    told = [finding.severity for finding in preflight.findings(found, plans, asked, (("n1",),))]
    assert told == ["blocker", "warning", "info"]
