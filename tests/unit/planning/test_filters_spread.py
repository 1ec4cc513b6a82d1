# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Topology spread at its boundaries: the skew, domains without pods, minDomains, matchLabelKeys."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import filters
from ansible_collections.kubeops.node_maintenance.tests.unit.support.placed import (
    HOST,
    ZONE,
    Raw,
    guest,
    node,
    pod,
    scheduler,
)

WEB: Raw = {"matchLabels": {"app": "web"}}
NODES = [node("n1", "a"), node("n2", "b"), node("n3", "c")]


def rule(**more: t.Any) -> Raw:
    one = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
    return {"topologySpreadConstraints": [{**one, **more}]}


def takers(on: str, *nodes: Raw, app: str = "web", labels: Raw | None = None, **more: t.Any) -> str:
    """The nodes that take one more pod, where `on` names the node of each that is there."""
    there = [pod(f"web-{number}", f"n{digit}") for number, digit in enumerate(on)]
    new = pod("new", app=app, **rule(**more))
    new["metadata"]["labels"].update(labels or {})
    answer = scheduler(*(nodes or NODES), *there).answer(guest(new))
    return "".join(str(name)[-1] for name in answer.nodes)


@pytest.mark.parametrize(
    ("on", "more", "free"),
    [
        ("", {}, "123"),
        ("1", {}, "23"),
        ("12", {}, "3"),
        ("123", {}, "123"),
        ("1", {"maxSkew": 2}, "123"),
        ("11", {"maxSkew": 2}, "23"),
        ("1", {"whenUnsatisfiable": "ScheduleAnyway"}, "123"),
        ("1", {"labelSelector": {}}, "123"),
        ("1", {"labelSelector": None}, "123"),
        ("123", {"minDomains": 3}, "123"),
        ("123", {"minDomains": 4}, ""),
        ("123", {"minDomains": 4, "maxSkew": 2}, "123"),
        ("1", {"topologyKey": HOST}, "23"),
        ("1", {"topologyKey": "rack"}, ""),
    ],
)
def test_who_takes_one_more(on: str, more: Raw, free: str) -> None:
    assert takers(on, **more) == free


def test_a_pod_that_its_own_selector_does_not_match_adds_nothing() -> None:
    assert takers("1", app="other") == "123"
    assert takers("11", app="other") == "23"


def test_a_node_without_the_label_takes_none_and_is_no_domain() -> None:
    bare = node("n2")
    bare["metadata"]["labels"] = {HOST: "n2"}
    assert takers("1", node("n1", "a"), bare) == "1"


@pytest.mark.parametrize(
    ("labels", "keys", "expressions"),
    [
        ({"v": "2"}, ["v"], [{"key": "v", "operator": "In", "values": ["2"]}]),
        ({"v": "2"}, ["w"], None),
        ({"v": "2"}, [], None),
        ({"v": "2"}, None, None),
    ],
)
def test_labels_of_the_pod_narrow_the_selector(labels: Raw, keys: list[str] | None, expressions: object) -> None:
    new = pod("new")
    new["metadata"]["labels"].update(labels)
    found = filters._selector(guest(new), {"labelSelector": WEB, "matchLabelKeys": keys})
    assert found == (WEB if expressions is None else {**WEB, "matchExpressions": expressions})
    assert filters._selector(guest(new), {"matchLabelKeys": ["v"]}) is None


def test_labels_of_the_pod_come_after_the_expressions_of_the_selector() -> None:
    given = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    found = filters._selector(guest(pod("new")), {"labelSelector": given, "matchLabelKeys": ["app"]})
    assert found is not None
    assert [one["operator"] for one in found["matchExpressions"]] == ["Exists", "In"]


def test_only_pods_of_the_same_version_count_with_match_label_keys() -> None:
    assert takers("1", labels={"version": "2"}, matchLabelKeys=["version"]) == "123"
    assert takers("1", matchLabelKeys=["version"]) == "23"


@pytest.mark.parametrize(
    ("policies", "free"),
    [
        ({}, "13"),
        ({"nodeTaintsPolicy": "Ignore"}, "13"),
        ({"nodeTaintsPolicy": "Honor"}, "13"),
    ],
)
def test_a_tainted_node_takes_none(policies: Raw, free: str) -> None:
    closed = node("n2", "b", taints=[{"key": "db", "effect": "NoSchedule"}])
    assert takers("", node("n1", "a"), closed, node("n3", "c"), **policies) == free


@pytest.mark.parametrize(("policy", "free"), [("Ignore", ""), ("Honor", "13")])
def test_a_tainted_node_is_a_domain_unless_taints_are_honored(policy: str, free: str) -> None:
    closed = node("n2", "b", taints=[{"key": "db", "effect": "NoSchedule"}])
    assert takers("13", node("n1", "a"), closed, node("n3", "c"), nodeTaintsPolicy=policy) == free
