# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a plan says and advises where something is in its way."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support.planned import Build, building, codes, plan

SURGE = DrainPolicy(method="surge")


@pytest.fixture
def build() -> t.Iterator[Build]:
    with building() as made:
        yield made


def bare(name: str) -> Raw:
    meta = {"name": name, "namespace": "shop"}
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "registry.example/c:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def changed(result: t.Any) -> list[tuple[str, str]]:
    return [(change["code"], change["name"]) for one in result.data["advice"] for change in one["changes"]]


def test_a_feasible_plan_has_no_advice(build: Build) -> None:
    found = build(3)
    result = plan(found)
    assert result.data["advice"] == []


def test_what_would_unblock_a_plan_is_told_and_unblocks_it(build: Build) -> None:
    found = build(2, manifests.budget("web", minAvailable=2))
    result = plan(found, choices=SURGE)
    assert not result.data["feasible"]
    assert changed(result) == [("add_replica", "web"), ("relax_budget", "web"), ("set_option", "method")]
    found.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 3}})
    found.settle()
    assert plan(found, choices=SURGE).data["feasible"]
    found.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 2}})
    assert plan(found, choices=replace(SURGE, method="replace")).data["feasible"]
    found.patch(kinds.BUDGETS, "web", {"spec": {"minAvailable": None, "maxUnavailable": 1}})
    found.settle()
    assert plan(found, choices=SURGE).data["feasible"]
    assert plan(found, choices=SURGE).data["advice"] == []


def test_a_missing_permission_does_not_hide_what_else_is_in_the_way(build: Build) -> None:
    found = build(2, manifests.budget("web", minAvailable=2))
    found.server.denied.add(("create", kinds.LEASES.resource))
    result = plan(found, choices=SURGE)
    assert codes(result) == ["missing_permission", "budget_allows_nothing"]
    assert {one["codes"][0] for one in result.data["advice"]} == {"budget_allows_nothing"}


def test_a_surge_for_which_there_is_no_room_may_be_an_interruption(build: Build) -> None:
    result = plan(build(0, manifests.deployment("bound", 1, nodeSelector={"pool": "a"})))
    assert not result.data["feasible"]
    assert changed(result) == [("allow_interruption", "bound"), ("set_option", "allow_interruption")]


def test_equal_findings_are_one_with_all_of_their_objects(build: Build) -> None:
    found = plan(build(3, *(bare(f"x{n}") for n in range(16)))).data
    (only,) = [one for one in found["findings"] if one["severity"] == "blocker"]
    assert sorted(only["objects"]) == sorted(f"Pod shop/x{n}" for n in range(16))
    assert only["object"] == "Pod shop/x0 and 15 more"
    assert [node["outcome"] for node in found["nodes"]] == ["blocked"]
