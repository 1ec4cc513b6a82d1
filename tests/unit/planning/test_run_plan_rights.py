# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a plan says of rights that are missing, and what it makes of what may not be read."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import plan_needs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import snapshots
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs.arguments import StateOptions, state
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.support.planned import Build, asked, building, codes, plan


@pytest.fixture
def build() -> t.Iterator[Build]:
    with building() as made:
        yield made


EVICT = ("create", "pods/eviction")


@pytest.mark.parametrize(
    ("denied", "permitted", "message"),
    [
        (("patch", "nodes"), [], "patch nodes in the whole cluster"),
        (EVICT, [], "create pods/eviction in namespace shop"),
        (EVICT, [(*EVICT, "shop")], ""),
    ],
)
def test_missing_permissions_are_named(
    build: Build, denied: tuple[str, str], permitted: list[tuple[str, str, str]], message: str
) -> None:
    found = build(3)
    found.server.denied.add(denied)
    found.server.permitted.update(permitted)
    result = plan(found)
    assert codes(result) == (["missing_permission"] if message else [])
    assert not message or message in result.data["findings"][0]["message"]
    assert result.data["feasible"] == (not message)


def test_a_refused_list_is_named_together_with_all_that_is_missing(build: Build) -> None:
    found = build(3)
    found.server.denied |= {("list", "pods"), ("patch", "nodes"), ("list", kinds.BUDGETS.resource)}
    result = plan(found)
    assert result.failed
    assert "nodes" not in result.data
    read, write = result.data["findings"]
    assert "list pods, poddisruptionbudgets.policy in the whole cluster" in read["message"]
    assert "patch nodes" in write["message"]
    assert "--user=somebody" in write["remedy"]


def test_who_has_no_rights_is_told_the_roles_and_not_each_verb(build: Build) -> None:
    found = build(3)
    lists = [(need.verb, need.words.partition(" ")[2]) for need in plan_needs.READS]
    every = plan_needs.needs(snapshots.Snapshot(), (), drain_policy.DrainPolicy(), namespace_missing=False)
    found.server.denied |= {*lists, *((need.verb, need.words.partition(" ")[2]) for need in every)}
    result = plan(found)
    assert [finding["object"] for finding in result.data["findings"]] == [
        f"ClusterRole kubeops-node-maintenance-{step}" for step in ("read", "nodes", "locks", "runs")
    ]
    assert result.data["waves"] == [], "playbooks read them in any case"


def test_what_every_playbook_begins_with_names_all_that_is_missing_too(build: Build) -> None:
    """It comes before the plan: who lacks three rights does not learn of them one by one."""
    found = build(3)
    found.server.denied |= {("list", kinds.LEASES.resource), ("patch", "nodes"), ("create", "configmaps")}
    result = found.process("ann").run(lambda ctx: state(ctx, StateOptions("listed")))
    assert result.failed
    assert {finding["code"] for finding in result.data["findings"]} == {"missing_permission"}
    assert "may not list leases.coordination.k8s.io in namespace kubeops-node-maintenance" in result.message
    assert "may not patch nodes in the whole cluster" in result.message
    assert "may not create configmaps in namespace kubeops-node-maintenance" in result.message


def test_locks_in_the_namespace_of_medik8s_are_asked_for_there(build: Build) -> None:
    found = build(3, manifests.namespace("medik8s-leases"))
    found.server.denied.add(("patch", kinds.LEASES.resource))
    (finding,) = plan(found).data["findings"]
    assert "may not patch leases.coordination.k8s.io in namespace medik8s-leases" in finding["message"]


def test_quotas_that_may_not_be_read_are_said_to_be_unknown(build: Build) -> None:
    found = build(1)
    found.server.denied.add(("list", "resourcequotas"))
    result = plan(found)
    assert codes(result) == ["not_checked"]
    assert result.data["feasible"]


def test_namespaces_that_may_not_be_read_are_no_obstacle(build: Build) -> None:
    found = build(1, ours=False)
    found.server.denied.add(("list", "namespaces"))
    assert codes(plan(found)) == []
    assert "may create namespaces" not in asked(found)


def test_our_namespace_has_to_be_made_where_it_is_missing(build: Build) -> None:
    there, missing = build(1), build(1, ours=False)
    plan(there)
    assert "may create namespaces" not in asked(there)
    plan(missing)
    assert "may create namespaces" in asked(missing)
