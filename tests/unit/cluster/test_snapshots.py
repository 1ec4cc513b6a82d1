# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The questions that join several objects of a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import index_keys, serving
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    deployment,
    node,
    owned,
    pod,
    snapshot,
    workload,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import WEB


@pytest.mark.parametrize(
    ("name", "uid", "there"),
    [("n1", "uid-n1", True), ("n1", "", True), ("n1", "uid-old", False), ("n9", "", False), ("n9", "uid-n1", False)],
)
def test_a_namesake_is_another_node(name: str, uid: str, there: bool) -> None:
    assert snapshot().has_node(name, uid) is there


EXPRESSION: Raw = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("selector", "covered"),
    [
        ({"matchLabels": {"app": "web"}}, ["a"]),
        ({"matchLabels": {"app": "web", "tier": "front"}}, []),
        ({"matchLabels": {"app": "db", "tier": "back"}}, ["b"]),
        (EXPRESSION, ["a", "b"]),
        ({**EXPRESSION, "matchLabels": {"tier": "back"}}, ["b"]),
        ({}, ["a", "b", "c"]),
        (None, []),
    ],
)
def test_a_budget_and_the_pods_it_selects_find_each_other(selector: Raw | None, covered: list[str]) -> None:
    pods = [
        pod("a", labels={"app": "web"}),
        pod("b", labels={"tier": "back", "app": "db"}),
        pod("c", labels={}),
        pod("d", labels={"app": "web", "tier": "back"}, namespace="bank"),
    ]
    found = snapshot(pods=pods, budgets=[budget("b", 1, selector=selector)])
    assert [one.name for one in found.selected("shop", selector)] == covered
    assert [one.name for one in found.pods if found.budgets_of(one)] == covered


def test_the_workload_of_a_pod_is_the_topmost_with_a_count() -> None:
    above = workload("ReplicaSet", "kept", 1, owned("Database", "main", "example.org/v1"))
    pods = [
        pod("a", owner=WEB),
        pod("b", owner=owned("ReplicaSet", "kept")),
        pod("c"),
        pod("d", owner=owned("Job", "j")),
    ]
    found = snapshot(deployment("web", 1), replica_sets=[above], pods=pods)
    tops = [found.workload_of(one) for one in found.pods]
    assert [str(top.ref) if top else "" for top in tops] == ["Deployment shop/web", "ReplicaSet shop/kept", "", ""]
    assert [one.kind for one in found.owned_by(found.workloads[0])] == ["ReplicaSet"]


def test_a_workload_has_the_pods_that_are_not_finished() -> None:
    pods = [pod("a", owner=WEB), pod("b", owner=WEB, phase="Succeeded"), pod("c", owner=WEB, phase="Pending")]
    found = snapshot(deployment("web", 3), pods=pods)
    assert [one.name for one in found.pods_of(found.workloads[0])] == ["a", "c"]


def test_of_several_autoscalers_the_first_counts() -> None:
    def scaler(name: str, kind: str = "Deployment") -> Raw:
        target = {"kind": kind, "name": "web"}
        return {"metadata": {"name": name, "namespace": "shop"}, "spec": {"scaleTargetRef": target, "maxReplicas": 2}}

    found = snapshot(deployment("web", 1), autoscalers=[scaler("other", "Rollout"), scaler("a"), scaler("b")])
    scaled = [found.autoscaler_of(top) for top in found.workloads]
    assert [one.name if one else "" for one in scaled] == ["a", ""]


def test_a_kind_with_a_list_of_its_own_is_fresher_than_a_scale() -> None:
    top = workload("Deployment", "web", 3)
    found = snapshot(scales=[workload("Deployment", "web", 1)], deployments=[top])
    held = found.workload("uid-Deployment-web")
    assert held is not None
    assert held.replicas == 3


def endpoint(name: str, ready: bool | None = True) -> Raw:
    return {"targetRef": {"uid": f"uid-{name}"}, "conditions": {} if ready is None else {"ready": ready}}


def piece(service: str, *endpoints: Raw, family: str = "IPv4") -> Raw:
    labels = {index_keys.SERVICE: service} if service else {}
    return {
        "metadata": {"name": "x", "namespace": "shop", "labels": labels},
        "addressType": family,
        "endpoints": list(endpoints),
    }


A, B = endpoint("a"), endpoint("b")


@pytest.mark.parametrize(
    ("slices", "missing"),
    [
        pytest.param([], "", id="no Service"),
        pytest.param([piece("web", A, B)], "", id="ready"),
        pytest.param([piece("web", A, endpoint("b", None))], "", id="not given means ready"),
        pytest.param([piece("web", A, endpoint("b", False))], "Service shop/web (IPv4)", id="not ready"),
        pytest.param([piece("web", A)], "Service shop/web (IPv4)", id="not there"),
        pytest.param([piece("web", endpoint("a", False))], "Service shop/web (IPv4)", id="a peer that is not ready"),
        pytest.param([piece("web", B)], "", id="only the pod itself"),
        pytest.param([piece("web", A), piece("web", B)], "", id="in another slice"),
        pytest.param([piece("web", A, B), piece("web", endpoint("b", False))], "", id="ready in one of two slices"),
        pytest.param([piece("web", endpoint("b", False)), piece("web", A, B)], "", id="ready in the second slice"),
        pytest.param([piece("web", A, B), piece("web", A, family="IPv6")], "Service shop/web (IPv6)", id="one family"),
        pytest.param([piece("b", A), piece("a", A)], "Service shop/a (IPv4)", id="the first by name"),
        pytest.param([piece("", A), piece("web", A)], "Service shop/web (IPv4)", id="a slice of no Service"),
        pytest.param([piece("web", {"addresses": ["10.0.0.1"]}, A)], "Service shop/web (IPv4)", id="no pod behind it"),
    ],
)
def test_a_pod_serves_where_its_peers_do(slices: list[Raw], missing: str) -> None:
    found = snapshot(pods=[pod("a"), pod("b")], slices=slices)
    assert serving.Endpoints(found).missing(found.pods, found.pods[1]) == missing


def test_pods_are_found_by_their_node_in_the_order_of_the_list() -> None:
    found = snapshot(pods=[pod("b", "n2"), pod("a"), pod("c", "n3")], nodes=[node("n1"), node("n2"), node("n3")])
    assert [one.name for one in found.pods_on({"n1", "n2"})] == ["b", "a"]
    assert found.pod("uid-a") is found.pods[1]
    assert replace(found, pods=()).pods_on({"n1"}) == ()
