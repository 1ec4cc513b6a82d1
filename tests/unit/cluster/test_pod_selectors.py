# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import objects, pod_selectors
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import owned, pod

WEB = objects.Pod.of(pod("web-0", owner=owned("ReplicaSet", "web-5d4"), labels={"app": "web", "tier": "a"}))
BARE = objects.Pod.of(pod("shell"))
DEPLOYMENT = objects.Ref("Deployment", "web", "shop")


@pytest.mark.parametrize(
    ("raw", "selected"),
    [
        ({}, True),
        ({"pods": "app=web"}, True),
        ({"pods": "app=web,tier in (b)"}, False),
        ({"namespaces": "shop"}, True),
        ({"namespaces": ["bank", "sh*"]}, True),
        ({"namespaces": ["bank"]}, False),
        ({"owners": ["Deployment"]}, True),
        ({"owners": ["Deployment/web"]}, True),
        ({"owners": "ReplicaSet/web-*"}, True),
        ({"owners": ["Deployment/other"]}, False),
        ({"owners": ["StatefulSet", "Pod"]}, False),
        ({"pods": "app=web", "namespaces": ["shop"], "owners": ["Deployment/w?b"]}, True),
        ({"pods": "app=web", "namespaces": ["bank"], "owners": ["Deployment/web"]}, False),
    ],
)
def test_all_that_is_given_has_to_hold(raw: dict[str, t.Any], selected: bool) -> None:
    selector, faults = pod_selectors.read("rules[0]", raw)
    assert not faults
    assert selector.matches(WEB, DEPLOYMENT) == selected


@pytest.mark.parametrize(("owner", "selected"), [("Pod", True), ("Pod/sh*", True), ("Pod/x", False), ("Job", False)])
def test_a_pod_of_nobody_is_its_own_owner(owner: str, selected: bool) -> None:
    assert pod_selectors.read("", {"owners": [owner]})[0].matches(BARE) == selected


def test_everything_that_is_wrong_is_named_at_once() -> None:
    raw = {"pods": "app web", "namespaces": ["Shop", "ok"], "owners": ["deployment", "Job/a/b", 3]}
    faults = pod_selectors.read("rules[2]", raw)[1]
    assert [fault[0] for fault in faults] == [
        "rules[2].pods",
        "rules[2].namespaces[0]",
        "rules[2].owners[0]",
        "rules[2].owners[1]",
        "rules[2].owners[2]",
    ]
    assert "StatefulSet, Deployment/web" in faults[2][2]


@pytest.mark.parametrize("raw", [{"pods": ["app=web"]}, {"namespaces": {"a": 1}}, {"owners": 3}])
def test_another_type_is_told(raw: dict[str, t.Any]) -> None:
    assert len(pod_selectors.read("rules[0]", raw)[1]) == 1
