# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a plan advises where something is in its way."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.run.planned import Build, asked, building, codes, plan
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests


@pytest.fixture
def build() -> t.Iterator[Build]:
    with building() as made:
        yield made


def changed(result: t.Any) -> list[list[tuple[str, str]]]:
    return [[(change["code"], change["name"]) for change in one["changes"]] for one in result.data["advice"]]


def test_a_feasible_plan_asks_nothing_for_the_sake_of_advice(build: Build) -> None:
    found = build(3)
    result = plan(found)
    assert result.data["advice"] == []
    assert "list resourcequotas" not in asked(found)


def test_what_would_unblock_a_plan_is_told_and_unblocks_it(build: Build) -> None:
    found = build(2, manifests.budget("web", minAvailable=2))
    result = plan(found)
    assert not result.data["feasible"]
    assert changed(result) == [[("add_replica", "web")], [("relax_budget", "web")], [("set_option", "swap_blocked")]]
    found.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 3}})
    found.settle()
    assert plan(found).data["feasible"]
    found.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 2}})
    found.patch(kinds.BUDGETS, "web", {"spec": {"minAvailable": None, "maxUnavailable": 1}})
    found.settle()
    assert plan(found).data["feasible"]
    assert plan(found).data["advice"] == []


def test_advice_that_needs_a_permission_more_is_not_given(build: Build) -> None:
    found = build(2, manifests.budget("web", minAvailable=2))
    found.server.denied.add(("create", kinds.LEASES.resource))
    assert codes(plan(found)) == ["missing_permission", "budget_allows_nothing"]
    assert plan(found).data["advice"] == []


def test_advice_to_swap_knows_the_quotas(build: Build) -> None:
    meta, hard = {"name": "pods", "namespace": "shop"}, {"pods": "2"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "status": {"hard": hard, "used": hard}}
    found = build(2, manifests.budget("web", maxUnavailable=0), quota)
    result = plan(found)
    assert ("set_option", "swap_blocked") not in [change for one in changed(result) for change in one]
    assert changed(result)[0] == [("relax_budget", "web")]


def test_a_pod_that_fits_nowhere_gets_advice_too(build: Build) -> None:
    result = plan(build(0, manifests.deployment("bound", 1, nodeSelector={"pool": "a"})))
    assert not result.data["feasible"]
    assert [("add_node", "n1")] in changed(result)
    assert [("allow_interruption", "bound")] in changed(result)
