# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The route of pods that would come back, and what keeps a node from being drained."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.dispositions import left_to_move, routes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record, Step
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    TOLERATES_ALL,
    Raw,
    budget,
    deployment,
    node,
    owned,
    pod,
    snapshot,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import (
    WEB,
    on_its_own,
    only,
    web,
)


def daemon(**changes: t.Any) -> Raw:
    return pod("p", owner=owned("DaemonSet", "agent"), **changes)


AGENT: Raw = {"metadata": {"name": "agent", "namespace": "shop", "uid": "uid-DaemonSet-agent"}, "spec": {}}
MIRROR = {names.MIRROR: "hash"}
JOB = owned("Job", "import", "batch/v1")


OURS: Raw = {"key": names.TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"}
CORDON: Raw = {"key": names.UNSCHEDULABLE_TAINT, "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("tolerations", "tolerant"),
    [
        ([TOLERATES_ALL], True),
        ([{"operator": "Exists", "effect": ""}], True),
        ([{"operator": "Exists", "effect": "NoSchedule"}], True),
        ([{"operator": "Exists", "effect": "NoExecute"}], False),
        ([OURS], False),
        ([CORDON], False),
        ([OURS, CORDON], True),
        ([], False),
    ],
)
def test_who_tolerates_the_maintenance(tolerations: list[Raw], tolerant: bool) -> None:
    plan = only(web(3, pod_changes={"tolerations": tolerations}))
    assert plan.tolerant == tolerant
    assert plan.code == ("tolerates_maintenance" if tolerant else "guarded")
    assert plan.guarded


@pytest.mark.parametrize(
    ("replicas", "names_", "route", "code"),
    [
        pytest.param(1, "n1", "skip", "tolerates_maintenance", id="a single one"),
        pytest.param(3, "n1", "evict", "tolerates_maintenance", id="one of several"),
        pytest.param(1, "n2", "surge", "single_replica", id="another node"),
    ],
)
def test_a_template_that_names_the_node_brings_the_pod_straight_back(
    replicas: int, names_: str, route: str, code: str
) -> None:
    template = {"spec": {"nodeName": names_, "containers": []}}
    plan = only(web(replicas, spec={"template": template, "paused": True}), DrainPolicy(method="surge"))
    assert (plan.route, plan.code, plan.tolerant) == (route, code, code == "tolerates_maintenance")


def held(since: str, taint: bool = True, step: Step = "cordoned") -> Raw:
    added = ({"key": names.TAINT_KEY, "value": "r1", "effect": "NoSchedule"},) if taint else ()
    record = Record("r1", "n", "ann", "", since, step, "uid-n1", "", {}, added)
    return node("n1", annotations={names.RECORD: record.dump()})


@pytest.mark.parametrize(
    ("step", "known", "route"),
    [
        pytest.param("cordoned", None, "evict", id="there from the beginning, asked before"),
        pytest.param("cordoned", {"uid-p"}, "evict", id="there from the beginning"),
        pytest.param("cordoned", {"uid-of-its-predecessor"}, "skip", id="came back"),
        pytest.param("drained", None, "skip", id="came back, in an earlier call"),
    ],
)
@pytest.mark.parametrize("since", ["2020-01-01T00:00:00Z", "2038-01-01T00:00:00Z"])
def test_a_tolerant_pod_is_moved_at_most_once_whatever_our_clock_says(
    since: str, step: Step, known: set[str] | None, route: str
) -> None:
    pods = [pod("p", owner=WEB, tolerations=[TOLERATES_ALL]), pod("q", "n2", WEB)]
    found = snapshot(deployment("web", 2), pods=pods, nodes=[held(since, step=step), node("n2")])
    (plan,) = routes(found, {"n1"}, DrainPolicy(), known=None if known is None else frozenset(known))
    assert (plan.route, plan.code) == (route, "tolerates_maintenance")
    assert plan.guarded is (route == "evict")


def test_without_our_taint_the_cordon_alone_decides() -> None:
    pods = [pod("p", owner=WEB, tolerations=[CORDON]), pod("q", "n2", WEB)]
    found = snapshot(deployment("web", 2), pods=pods, nodes=[held("2026-01-02T00:00:00Z", taint=False), node("n2")])
    assert only(found).tolerant


@pytest.mark.parametrize(
    ("found", "choices", "route", "code"),
    [
        pytest.param(
            web(1, pod_changes={"tolerations": [TOLERATES_ALL]}),
            DrainPolicy(),
            "skip",
            "tolerates_maintenance",
            id="it stays where a surge could not help",
        ),
        pytest.param(
            on_its_own(tolerations=[TOLERATES_ALL]), DrainPolicy(), "refuse", "bare_pod", id="bare is refused as ever"
        ),
        pytest.param(
            on_its_own(tolerations=[TOLERATES_ALL], phase="Failed"), DrainPolicy(), "evict", "finished", id="finished"
        ),
        pytest.param(on_its_own(tolerations=[TOLERATES_ALL], owner=JOB), DrainPolicy(), "wait", "job", id="job"),
    ],
)
def test_tolerant_pods_that_cannot_simply_be_evicted(
    found: Snapshot, choices: DrainPolicy, route: str, code: str
) -> None:
    plan = only(found, choices)
    assert (plan.route, plan.code) == (route, code)


def test_only_pods_on_the_nodes_have_a_route() -> None:
    found = web(3, here=2)
    assert [plan.pod.name for plan in routes(found, ["n1"], DrainPolicy())] == ["web-0", "web-1"]
    assert routes(found, ["n3"], DrainPolicy()) == ()


def test_a_selector_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="label selector"):
        routes(web(1), ["n1"], DrainPolicy(pod_selector="app web"))


@pytest.mark.parametrize(
    ("found", "choices", "left"),
    [
        pytest.param(on_its_own(annotations=MIRROR), DrainPolicy(), False, id="mirror"),
        pytest.param(snapshot(pods=[daemon()], daemon_sets=[AGENT]), DrainPolicy(), False, id="daemonset"),
        pytest.param(snapshot(pods=[daemon()]), DrainPolicy(), True, id="daemonset gone"),
        pytest.param(on_its_own(), DrainPolicy(), True, id="bare"),
        pytest.param(on_its_own(), DrainPolicy(namespaces=("bank",)), True, id="not looked at"),
        pytest.param(on_its_own(deleting="2026-01-03T00:00:00Z"), DrainPolicy(), True, id="ending"),
        pytest.param(web(1, pod_changes={"tolerations": [TOLERATES_ALL]}), DrainPolicy(), False, id="tolerant, stays"),
        pytest.param(
            web(3, pod_changes={"tolerations": [TOLERATES_ALL]}), DrainPolicy(), False, id="tolerant, came back"
        ),
        pytest.param(on_its_own(owner=JOB), DrainPolicy(), True, id="job"),
    ],
)
def test_what_keeps_a_node_from_being_drained(found: Snapshot, choices: DrainPolicy, left: bool) -> None:
    assert bool(left_to_move(found, {"n1"}, choices)) == left


def test_a_tolerant_pod_that_its_budget_holds_for_now_is_evicted_when_it_may_be() -> None:
    laid = budget("b", 0, healthy=1, desired=2, expected=3)
    for known in (None, frozenset[str]()):
        found = web(3, pod_changes={"tolerations": [TOLERATES_ALL], "ready": False}, budgets=[laid])
        (plan,) = routes(found, {"n1"}, DrainPolicy(), known=known)
        assert (plan.route, plan.code, plan.tolerant) == ("evict", "unhealthy_blocked", True)
