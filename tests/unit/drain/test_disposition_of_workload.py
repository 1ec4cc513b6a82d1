# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The route of pods of Deployments, ReplicaSets and StatefulSets."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.surge_records import Surge
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    TOLERATES_ALL,
    Raw,
    budget,
    claim,
    deployment,
    guard,
    mounts,
    owned,
    pod,
    snapshot,
    workload,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import (
    CONSENT,
    NEVER,
    NOW,
    SCRATCH,
    WEB,
    only,
    web,
)

RECREATE: Raw = {"strategy": {"type": "Recreate"}}
ALWAYS: Raw = {"policy": "AlwaysAllow"}
RWO: t.Any = {
    "claims": [claim("data", "pv", ("ReadWriteOnce",))],
    "volumes": [{"metadata": {"name": "pv"}, "spec": {}}],
}


@pytest.mark.parametrize(
    ("found", "choices", "route", "code"),
    [
        pytest.param(web(1), DrainPolicy(), "surge", "single_replica", id="one replica"),
        pytest.param(
            web(1, budgets=[budget("b", 0, healthy=1, desired=1)]),
            DrainPolicy(),
            "surge",
            "single_replica",
            id="one replica, whatever its budget says",
        ),
        pytest.param(web(1, pod_changes={"volumes": SCRATCH}), DrainPolicy(), "refuse", "emptydir", id="emptyDir"),
        pytest.param(
            web(1, pod_changes={"volumes": SCRATCH}),
            DrainPolicy(delete_emptydir_data=True),
            "surge",
            "single_replica",
            id="emptyDir, allowed",
        ),
        pytest.param(web(1, pod_changes={"ready": False}), DrainPolicy(), "evict", "not_ready", id="not ready"),
        pytest.param(
            web(1, pod_changes={"ready": False}, budgets=[budget("b", 0, healthy=0, desired=1, expected=1)]),
            DrainPolicy(),
            "evict",
            "unhealthy_blocked",
            id="not ready, and its budget holds it",
        ),
        pytest.param(
            web(1, pod_changes={"ready": False}, budgets=[budget("b", 0, healthy=0, desired=1, expected=1, **ALWAYS)]),
            DrainPolicy(),
            "evict",
            "not_ready",
            id="not ready, AlwaysAllow",
        ),
        pytest.param(
            web(3, pod_changes={"ready": False}, budgets=[budget("b", 0, healthy=2, desired=2, expected=3)]),
            DrainPolicy(),
            "evict",
            "not_ready",
            id="not ready, enough others are",
        ),
        pytest.param(
            web(1, pod_changes={"phase": "Pending", "ready": False}), DrainPolicy(), "evict", "pending", id="to start"
        ),
        pytest.param(web(1, spec=RECREATE), DrainPolicy(), "refuse", "recreate", id="recreate"),
        pytest.param(
            web(1, spec=RECREATE),
            DrainPolicy(allow_interruption=True),
            "evict",
            "interruption_allowed",
            id="recreate, allowed",
        ),
        pytest.param(
            web(1, spec={**RECREATE, "annotations": CONSENT}),
            DrainPolicy(),
            "evict",
            "interruption_allowed",
            id="recreate, allowed by its owner",
        ),
        pytest.param(
            web(1, spec={**RECREATE, "annotations": {names.ALLOW_INTERRUPTION: "yes"}}),
            DrainPolicy(),
            "refuse",
            "recreate",
            id="only the value true is a consent",
        ),
        pytest.param(
            web(1, spec=RECREATE, budgets=[budget("b", 0, healthy=1, desired=1)]),
            DrainPolicy(allow_interruption=True),
            "refuse",
            "budget_allows_nothing",
            id="consent does not override a budget",
        ),
        pytest.param(
            web(1, spec=RECREATE, budgets=[budget("b", 1, healthy=1, desired=0)]),
            DrainPolicy(allow_interruption=True),
            "evict",
            "interruption_allowed",
            id="consent under a budget with room",
        ),
        pytest.param(
            web(1, pod_changes={"volumes": mounts("data")}, **RWO),
            DrainPolicy(),
            "refuse",
            "volume_single_node",
            id="ReadWriteOnce",
        ),
        pytest.param(
            snapshot(deployment("web", 0), pods=[pod("left", owner=WEB)]),
            DrainPolicy(),
            "evict",
            "scaled_down",
            id="scaled to 0",
        ),
        pytest.param(web(3), DrainPolicy(), "evict", "guarded", id="three, no budget"),
        pytest.param(web(3, spec=RECREATE), DrainPolicy(), "evict", "guarded", id="three, Recreate, no budget"),
        pytest.param(web(3, budgets=[budget("b", 1)]), DrainPolicy(), "evict", "replicas", id="three, room"),
        pytest.param(
            web(3, budgets=[budget("b", 0, healthy=2, desired=2, expected=3)]),
            DrainPolicy(),
            "evict",
            "replicas",
            id="three, spent for the moment",
        ),
        pytest.param(
            web(3, budgets=[budget("b", 0, observed=False)]),
            DrainPolicy(),
            "evict",
            "replicas",
            id="three, not observed",
        ),
        pytest.param(
            web(3, budgets=[budget("b", 0, **NEVER)]),
            DrainPolicy(),
            "refuse",
            "budget_allows_nothing",
            id="three, never",
        ),
        pytest.param(
            web(3, budgets=[budget("b", 0, healthy=3, desired=3)]),
            DrainPolicy(allow_interruption=True),
            "refuse",
            "budget_allows_nothing",
            id="three, minAvailable 3",
        ),
        pytest.param(
            web(3, budgets=[budget("b", 1), budget("c", 1)]), DrainPolicy(), "refuse", "two_budgets", id="two budgets"
        ),
        pytest.param(
            web(1, budgets=[budget("b", 1), budget("c", 1)]),
            DrainPolicy(allow_interruption=True),
            "refuse",
            "two_budgets",
            id="two budgets on one replica",
        ),
        pytest.param(
            web(3, pod_changes={"phase": "Pending", "ready": False}, budgets=[budget("b", 1), budget("c", 1)]),
            DrainPolicy(),
            "evict",
            "pending",
            id="two budgets, not started",
        ),
        pytest.param(
            web(3, budgets=[budget("b", 1), guard("Deployment", "web", 0, desired=3)]),
            DrainPolicy(),
            "evict",
            "replicas",
            id="our guard beside a budget counts for nothing",
        ),
        pytest.param(
            web(3, budgets=[guard("Deployment", "web", 0, desired=3)]),
            DrainPolicy(),
            "evict",
            "guarded",
            id="our guard",
        ),
        pytest.param(
            web(3, budgets=[budget("b", 0, **NEVER)]),
            DrainPolicy(disable_eviction=True, force=True),
            "evict",
            "disable_eviction",
            id="deleted, whatever its budget",
        ),
        pytest.param(
            web(3),
            DrainPolicy(disable_eviction=True, force=True),
            "evict",
            "disable_eviction",
            id="deleted without guard",
        ),
        pytest.param(
            web(1), DrainPolicy(disable_eviction=True, force=True), "surge", "single_replica", id="surged, not deleted"
        ),
        pytest.param(
            web(3, budgets=[budget("b", 0, **NEVER)]),
            DrainPolicy(reactive_budgets=("app=web",)),
            "evict",
            "operator_budget",
            id="operator",
        ),
    ],
)
def test_pods_of_a_deployment(found: Snapshot, choices: DrainPolicy, route: str, code: str) -> None:
    plan = only(found, choices)
    assert (plan.route, plan.code) == (route, code)
    assert str(plan.workload) == "Deployment shop/web"
    assert plan.guarded == (code == "guarded")


DB = owned("StatefulSet", "web")


@pytest.mark.parametrize(
    ("replicas", "choices", "route", "code"),
    [
        (1, DrainPolicy(), "refuse", "stateful_single"),
        (1, DrainPolicy(allow_interruption=True), "evict", "interruption_allowed"),
        (3, DrainPolicy(), "evict", "guarded"),
    ],
)
def test_pods_of_a_stateful_set(replicas: int, choices: DrainPolicy, route: str, code: str) -> None:
    pods = [pod("web-0", owner=DB), *(pod(f"web-{i}", "n2", DB) for i in range(1, replicas))]
    plan = only(snapshot(stateful_sets=[workload("StatefulSet", "web", replicas)], pods=pods), choices)
    assert (plan.route, plan.code) == (route, code)


def test_a_replica_set_without_deployment_is_a_workload_of_its_own() -> None:
    plan = only(snapshot(replica_sets=[workload("ReplicaSet", "web", 1)], pods=[pod("p", owner=WEB)]))
    assert (plan.route, str(plan.workload)) == ("surge", "ReplicaSet shop/web")


def surged(leaving: str, prior: int) -> Raw:
    """The lease of a surge of Deployment `web`."""
    surge = Surge(
        "apps/v1",
        "Deployment",
        "shop",
        "web",
        "uid-Deployment-web",
        prior,
        prior + 1,
        *("n1", "uid-n1", leaving, f"uid-{leaving}", None),
        "r1",
        "ann",
        NOW,
    )
    meta = {"name": names.surge_name(surge.uid), "annotations": {names.SURGE: surge.dump()}}
    return {"metadata": meta, "spec": {"holderIdentity": "r1/n"}}


@pytest.mark.parametrize(
    ("found", "leaving", "prior", "route", "code"),
    [
        pytest.param(web(2), "web-0", 1, "surge", "single_replica", id="prepared, one replica"),
        pytest.param(web(2), "gone", 1, "surge", "single_replica", id="prepared for another pod"),
        pytest.param(web(4), "web-0", 3, "surge", "single_replica", id="prepared, three replicas"),
        pytest.param(web(4), "gone", 3, "evict", "guarded", id="three replicas, prepared for another pod"),
        pytest.param(
            web(2, pod_changes={"ready": False}), "web-0", 1, "evict", "not_ready", id="prepared, not ready any more"
        ),
        pytest.param(
            web(2, pod_changes={"tolerations": [TOLERATES_ALL]}),
            "web-0",
            1,
            "surge",
            "single_replica",
            id="prepared and tolerant",
        ),
    ],
)
def test_a_surge_counts_with_the_replicas_before_it(
    found: Snapshot, leaving: str, prior: int, route: str, code: str
) -> None:
    plan = only(replace(found, leases=(surged(leaving, prior),)))
    assert (plan.route, plan.code) == (route, code)


def test_a_deployment_in_the_middle_of_a_rollout_is_not_surged() -> None:
    newer = workload("ReplicaSet", "newer", 1, owned("Deployment", "web"))
    found = snapshot(deployment("web", 1), pods=[pod("p", owner=WEB)], replica_sets=[newer])
    assert only(found).code == "rollout_in_progress"


def test_two_budgets_are_both_named() -> None:
    plan = only(web(3, budgets=[budget("b", 1), budget("c", 1)]))
    assert "PodDisruptionBudget shop/b" in plan.reason
    assert "PodDisruptionBudget shop/c" in plan.reason


def test_a_budget_that_allows_nothing_is_named_with_its_rule_and_the_remedies() -> None:
    plan = only(web(3, budgets=[budget("b", 0, **NEVER)]))
    assert "PodDisruptionBudget shop/b" in plan.reason
    assert "maxUnavailable: 0" in plan.reason
    assert [str(ref) for ref in plan.budgets] == ["PodDisruptionBudget shop/b"]


@pytest.mark.parametrize(
    ("kind", "method", "offered"),
    [("Deployment", "surge", True), ("Deployment", "evict", False), ("StatefulSet", "surge", False)],
)
def test_a_replacement_is_offered_only_where_it_may_be_possible(kind: str, method: str, offered: bool) -> None:
    laid = [budget("b", 0, **NEVER)]
    found = web(3, budgets=laid)
    if kind == "StatefulSet":
        pods = [pod(f"web-{n}", f"n{n + 1}", owned(kind, "web")) for n in range(3)]
        found = snapshot({"stateful_sets": [workload(kind, "web", 3)]}, pods=pods, budgets=laid)
    plan = only(found, DrainPolicy(method=method))
    assert (plan.route, plan.code) == ("refuse", "budget_allows_nothing")
    assert ("method: replace" in plan.remedy) is offered
