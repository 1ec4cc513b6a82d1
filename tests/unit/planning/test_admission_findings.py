# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Webhooks that fail closed: down already, or with their last pods in one wave."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import admission
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.reasons import Finding
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import preflight
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    deployment,
    owned,
    pod,
    snapshot,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import planned

PODS: Raw = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
SERVICE = ("guard", "policy")
HERE = {"matchLabels": {"team": "shop"}}


def config(**changes: t.Any) -> Raw:
    rules = changes.pop("rules", [PODS])
    client = changes.pop("clientConfig", {"service": {"namespace": SERVICE[0], "name": SERVICE[1]}})
    hook = {"name": "pods.example.com", "rules": rules, "clientConfig": client, "failurePolicy": "Fail", **changes}
    return {"metadata": {"name": "policy"}, "webhooks": [hook]}


def hooks(**changes: t.Any) -> list[admission.Webhook]:
    return admission.webhooks(config(**changes), "ValidatingWebhookConfiguration")


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True),
        ({"failurePolicy": "Ignore"}, False),
        ({"clientConfig": {"url": "https://policy.example.com"}}, False),
        ({"rules": []}, False),
        ({"rules": [{**PODS, "operations": ["UPDATE"]}]}, False),
        ({"rules": [{**PODS, "operations": ["*"], "resources": ["*"], "apiGroups": ["*"]}]}, True),
        ({"rules": [{**PODS, "resources": ["pods/eviction"]}]}, False),
        ({"rules": [{**PODS, "scope": "Cluster"}]}, False),
        ({"rules": [{**PODS, "scope": "Namespaced"}]}, True),
        ({"rules": [{**PODS, "apiGroups": ["apps"]}, PODS]}, True),
    ],
)
def test_which_webhooks_may_keep_pods_from_being_created(changes: Raw, counts: bool) -> None:
    assert bool(hooks(**changes)) is counts


def serving(*names: str, ready: bool = True) -> Raw:
    endpoints = [{"targetRef": {"kind": "Pod", "uid": f"uid-{name}"}, "conditions": {"ready": ready}} for name in names]
    meta = {"name": "x", "namespace": SERVICE[0], "uid": "x", "labels": {"kubernetes.io/service-name": SERVICE[1]}}
    return {"metadata": meta, "endpoints": endpoints}


def guard_pod(name: str, on: str) -> Raw:
    return pod(name, on, owned("ReplicaSet", "policy"), namespace=SERVICE[0], labels={"app": "policy"})


def told(
    *pods: Raw,
    endpoints: t.Sequence[str] = (),
    waves: t.Sequence[t.Collection[str]] = (("n1",), ("n2",)),
    known: bool = True,
    ready: bool = True,
    kinds: t.Any = None,
    **changes: t.Any,
) -> list[Finding]:
    parts = deployment("policy", 2)
    for raw in (parts["deployments"][0], parts["replica_sets"][0]):
        raw["metadata"]["namespace"] = SERVICE[0]
    web = [pod("web-1", "n1", owned("ReplicaSet", "web")), pod("web-2", "n3", owned("ReplicaSet", "web"))]
    spaces = [
        {"metadata": {"name": "shop", "labels": {"team": "shop"}}},
        {"metadata": {"name": SERVICE[0], "labels": {}}},
    ]
    seen = snapshot(
        deployment("web", 2),
        parts,
        pods=[*web, *pods],
        slices=[serving(*endpoints, ready=ready)],
        namespaces=spaces if known else [],
        **(kinds or {}),
    )
    seen = replace(seen, webhooks=tuple(hooks(**changes)))
    return list(preflight.webhook_findings(seen, planned(seen, ("n1", "n2"), allow_interruption=True), waves))


def test_a_webhook_without_an_endpoint_lets_no_successor_be_created() -> None:
    (found,) = told(namespaceSelector=HERE)
    assert (found.code, found.severity, found.nodes) == ("webhook_down", "blocker", ("n1",))
    assert "Service guard/policy" in found.message
    assert "no successor of 1 pod (" in found.message
    (found,) = told(pod("web-3", "n2", owned("ReplicaSet", "web")), namespaceSelector=HERE)
    assert "no successor of 2 pods (" in found.message
    assert "Deployment shop/web" in found.message
    assert [one.code for one in told(endpoints=["p"], ready=False, namespaceSelector=HERE)] == ["webhook_down"]


@pytest.mark.parametrize(
    "changes",
    [
        {"namespaceSelector": {"matchLabels": {"team": "else"}}},
        {"objectSelector": {"matchLabels": {"app": "else"}}},
        {"failurePolicy": "Ignore"},
    ],
)
def test_a_webhook_that_is_not_asked_keeps_nobody(changes: Raw) -> None:
    assert told(**changes) == []


def test_what_cannot_be_known_is_a_warning() -> None:
    assert [one.severity for one in told(matchConditions=[{"name": "x", "expression": "true"}])] == ["warning"]
    assert [one.severity for one in told(known=False)] == ["warning"]


@pytest.mark.parametrize(
    ("nodes", "waves", "least", "codes"),
    [
        pytest.param(("n1", "n1"), [("n1",)], 0, ["webhook_leaves"], id="both at once"),
        pytest.param(("n1", "n2"), [("n1", "n2")], 0, ["webhook_leaves"], id="both in one wave"),
        pytest.param(("n1", "n2"), [("n1",), ("n2",)], 0, [], id="one after the other"),
        pytest.param(("n2", "n2"), [("n1",), ("n2",)], 0, [], id="when nobody who asks it leaves"),
        pytest.param(("n1", "n3"), [("n1",)], 0, [], id="one stays"),
        pytest.param(("n1", "n1"), [("n1",)], 1, [], id="a budget keeps one"),
    ],
)
def test_the_last_pods_of_a_webhook_that_leave_with_a_wave(
    nodes: tuple[str, str], waves: list[tuple[str, ...]], least: int, codes: list[str]
) -> None:
    allows = budget("policy", 2 - least, healthy=2, desired=least, selector={"matchLabels": {"app": "policy"}})
    allows["metadata"]["namespace"] = SERVICE[0]
    pods = [guard_pod(name, on) for name, on in zip(("p-1", "p-2"), nodes, strict=True)]
    found = told(*pods, endpoints=["p-1", "p-2"], waves=waves, namespaceSelector=HERE, kinds={"budgets": [allows]})
    assert [one.code for one in found] == codes
    for one in found:
        assert (one.severity, one.object) == ("warning", "Deployment guard/policy")
        assert "{owners: [Deployment/policy], namespaces: [guard], last: true}" in one.remedy


def test_a_webhook_that_is_asked_for_its_own_pods_would_never_come_back() -> None:
    allows = budget("policy", 2, healthy=2, desired=0, selector={"matchLabels": {"app": "policy"}})
    allows["metadata"]["namespace"] = SERVICE[0]
    (found,) = told(guard_pod("p-1", "n1"), endpoints=["p-1"], kinds={"budgets": [allows]})
    assert (found.code, found.severity) == ("webhook_leaves", "blocker")
    assert "exclude its namespace" in found.remedy


def test_without_a_budget_one_of_its_pods_stays_until_the_other_serves_again() -> None:
    pods = [guard_pod("p-1", "n1"), guard_pod("p-2", "n1")]
    assert told(*pods, endpoints=["p-1", "p-2"]) == []
