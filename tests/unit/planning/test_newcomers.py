# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands against one more pod of each workload that is surged."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.reasons import Finding
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import newcomers
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import steps
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    deployment,
    owned,
    pod,
    snapshot,
)

WAVES = (("n1",), ("n2",))


def of(name: str, on: str, **changes: t.Any) -> Raw:
    return pod(f"{name}-{on}", on, owned("ReplicaSet", name), labels={"app": name}, **changes)


def quota(pods: int) -> Raw:
    hard = {"pods": str(pods)}
    return {"metadata": {"name": "q", "namespace": "shop"}, "spec": {"hard": hard}, "status": {"hard": hard}}


def surges(found: Snapshot) -> list[PodPlan]:
    """Every pod on n1 and n2 is surged."""
    return [
        PodPlan(one, "surge", "single_replica", "", top.ref)
        for one in found.pods_on(["n1", "n2"])
        if (top := found.workload_of(one))
    ]


def findings(found: Snapshot, terminating: tuple[str, ...] = ()) -> list[Finding]:
    return newcomers.findings(found, surges(found), WAVES, terminating)


@pytest.mark.parametrize(
    ("pods", "room", "told"),
    [
        ([of("web", "n1")], 1, []),
        ([of("web", "n1")], 0, ["1 more pod (Deployment shop/web)"]),
        ([of("web", "n1"), of("db", "n1")], 2, []),
        ([of("web", "n1"), of("db", "n1")], 1, ["2 more pods (Deployment shop/web, Deployment shop/db)"]),
        pytest.param([of("web", "n1"), of("db", "n2")], 1, [], id="one after the other"),
        ([of("web", "n1"), of("db", "n2")], 0, ["1 more pod (Deployment shop/web)", "1 more pod (Deployment shop/db)"]),
    ],
)
def test_newcomers_of_one_wave_need_room_at_once(pods: list[Raw], room: int, told: list[str]) -> None:
    found = findings(snapshot(deployment("web", 1), deployment("db", 1), pods=pods, quotas=[quota(room)]))
    assert [finding.code for finding in found] == ["quota_forbids_surge"] * len(told)
    assert all(words in finding.message for words, finding in zip(told, found, strict=True))


def test_the_second_pod_of_one_that_was_resized_counts_as_its_template() -> None:
    """It starts with what the template says; what the first pod has by now is in the quota's status already."""
    resized = of("web", "n1", requests={"cpu": "4"})
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    for hard, told in (("5", False), ("4500m", True)):
        limit = {"hard": {"requests.cpu": hard}}
        room = {
            "metadata": {"name": "q", "namespace": "shop"},
            "spec": limit,
            "status": {**limit, "used": {"requests.cpu": "4"}},
        }
        found = findings(snapshot(deployment("web", 1, template=template), pods=[resized], quotas=[room]))
        assert bool(found) is told


def test_a_surge_that_is_raised_already_is_not_checked_again() -> None:
    found = snapshot(deployment("web", 1), pods=[of("web", "n1")], quotas=[quota(0)])
    (surge,) = steps.surges(found, surges(found), run="r1", by="ann", since="")
    lease = {"metadata": {"name": surge.lease.name, "annotations": {names.SURGE: surge.dump()}}, "spec": {}}
    assert findings(found)
    assert not findings(replace(found, leases=(lease,)))


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({}, False),
        ({"ready": False}, True),
        ({"ready": False, "deleting": "2026-01-01T00:00:00Z"}, False),
    ],
)
def test_a_pod_elsewhere_has_to_be_ready(state: Raw, told: bool) -> None:
    found = findings(snapshot(deployment("web", 2), pods=[of("web", "n1", ready=False), of("web", "n3", **state)]))
    assert [finding.code for finding in found] == (["not_ready_elsewhere"] if told else [])


@pytest.mark.parametrize(("count", "named"), [(5, 5), (6, 5)])
def test_five_pods_are_named_at_most(count: int, named: int) -> None:
    ill = [pod(f"ill-{n}", "n3", owned("ReplicaSet", "web"), ready=False) for n in range(count)]
    (finding,) = findings(snapshot(deployment("web", 9), pods=[of("web", "n1"), *ill]))
    assert finding.message.count("Pod shop/ill-") == named


@pytest.mark.parametrize(
    ("route", "guarded", "told"), [("surge", False, True), ("evict", True, True), ("evict", False, False)]
)
def test_nothing_new_is_made_in_a_namespace_that_goes(route: t.Any, guarded: bool, told: bool) -> None:
    found = snapshot(deployment("web", 1), pods=[of("web", "n1"), of("web", "n2")])
    plans = [replace(plan, route=route, guarded=guarded) for plan in surges(found)]
    blocked = newcomers.findings(found, plans, (), ["shop", "bank"])
    assert [finding.nodes for finding in blocked] == ([("n1", "n2")] if told else [])
    assert not newcomers.findings(found, plans, (), ["bank"])


def test_pods_that_may_be_evicted_otherwise_are_only_warned_of() -> None:
    """They are let go a few at a time, so no more than these have to fit."""
    pods = [of("web", "n1"), {**of("web", "n1"), "name": "web-2"}]
    found = snapshot(deployment("web", 3), pods=pods, quotas=[quota(0)])
    plans = [replace(plan, route="replace", code="replaced_first") for plan in surges(found)]
    cases: tuple[tuple[t.Any, str], ...] = (("", "warning"), ("possible", "blocker"), ("allowed", "warning"))
    for interruption, severity in cases:
        some = [replace(plan, interruption=interruption) for plan in plans]
        told = newcomers.findings(found, some, WAVES, ())
        assert [(one.code, one.severity) for one in told] == [("quota_forbids_surge", severity)]
    roomy = snapshot(deployment("web", 3), pods=pods, quotas=[quota(1)])
    assert not newcomers.findings(roomy, plans, WAVES, ())
