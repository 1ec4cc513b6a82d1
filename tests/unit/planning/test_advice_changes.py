# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each change that is advised does, and what takes it back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, snapshots
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import advice
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.behaviours import budgeting, every
from ansible_collections.kubeops.node_maintenance.tests.unit.support.advised import nodes, roomy, web
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    deployment,
    owned,
    pod,
    snapshot,
    workload,
)

OTHERS: Raw = {"matchLabels": {"app": "other"}}
SCALER: Raw = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "uid-hpa"},
    "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 1, "maxReplicas": 3},
}


def shop(*on: str, **kinds: list[Raw]) -> snapshots.Snapshot:
    """Deployments `web`, with a pod on each of these nodes, and `other`; nodes n1 to n3."""
    made = web(len(on), on=on)
    pods = [*made.pop("pods"), *kinds.pop("pods", [])]
    return snapshot(made, deployment("other", 5), {"pods": pods}, nodes=kinds.pop("nodes", nodes()), **kinds)


def patched(command: str) -> Raw:
    """The rule that a patch of a budget sets."""
    found = dict(json.loads(command.rpartition(" ")[2].strip("'")))["spec"]
    return {key: value for key, value in found.items() if value is not None}


def test_a_budget_is_kept_before_it_is_deleted() -> None:
    mine, other = shop("n1", budgets=[budget("web", 0), budget("other", 1)]).budgets
    change = advice.delete_budget(mine, other)
    assert change.command == "kubectl get pdb web -n shop -o yaml > web.yaml && kubectl delete pdb web -n shop"
    assert change.back == "kubectl apply -f web.yaml"


@pytest.mark.parametrize("rule", [{"maxUnavailable": 0}, {"minAvailable": 3}, {"minAvailable": "100%"}])
def test_a_budget_of_a_workload_gets_one_disruption(rule: Raw) -> None:
    mine = budget("web", 0, healthy=3, desired=3, rule=rule, expected=3)
    seen = shop("n1", "n2", "n3", budgets=[mine, budget("other", 0, selector=OTHERS)])
    change = advice.relax_budget(seen, seen.budgets[0])
    assert (patched(change.command), patched(change.back)) == ({"maxUnavailable": 1}, rule)
    assert (change.kind, change.namespace, change.name) == ("PodDisruptionBudget", "shop", "web")


def test_a_budget_of_bare_pods_gets_a_lower_minimum() -> None:
    bare = [pod(f"x-{n}", "n1", labels={"app": "x"}) for n in (1, 2)]
    done = pod("x-3", "n1", labels={"app": "x"}, phase="Succeeded")
    over = budget("x", 0, healthy=2, desired=2, selector={"matchLabels": {"app": "x"}})
    seen = shop(pods=[*bare, done], budgets=[over])
    change = advice.relax_budget(seen, replace(seen.budgets[0], expected=0))
    assert (patched(change.command), patched(change.back)) == ({"minAvailable": 1}, {"minAvailable": 2})
    more = advice.relax_budget(seen, replace(seen.budgets[0], expected=5))
    assert patched(more.command) == {"minAvailable": 4}, "by the count of its controller, where that has one"


def test_a_budget_that_cannot_be_counted_gets_a_number_instead() -> None:
    """Not of its status, which says nothing of its pods."""
    done = pod("report", "n2", owned("Job", "report", "batch/v1"), phase="Succeeded", ready=False)
    laid = budgeting.read(every.RECORDED["a_budget_over_the_pod_of_a_job"][0])
    seen = shop("n1", "n2", "n3", pods=[done], budgets=[laid])
    assert patched(advice.relax_budget(seen, seen.budgets[0]).command) == {"minAvailable": 2}


def test_a_consent_is_an_annotation() -> None:
    seen = shop("n1")
    top = next(one for one in seen.workloads if one.kind == "Deployment" and one.name == "web")
    change = advice.allow_interruption(top.ref)
    assert change.command == f"kubectl annotate deployment web -n shop {names.ALLOW_INTERRUPTION}=true"
    assert change.back == f"kubectl annotate deployment web -n shop {names.ALLOW_INTERRUPTION}-"


def added(seen: snapshots.Snapshot, kind: str = "Deployment") -> advice.Change | None:
    top = next(one for one in seen.workloads if one.kind == kind and one.name == "web")
    return advice.add_replica(seen, top)


def test_one_more_replica_and_the_number_before() -> None:
    change = added(shop("n1", "n2"))
    assert change is not None
    assert (change.command[-12:], change.back[-12:]) == ("--replicas=3", "--replicas=2")


@pytest.mark.parametrize(
    ("most", "minimum", "raised"),
    [(3, 1, (3, 1)), (2, 1, None), (5, 4, (5, 4))],
    ids=["raised", "at its maximum", "above already"],
)
def test_the_autoscaler_of_the_workload_is_raised(most: int, minimum: int, raised: tuple[int, int] | None) -> None:
    own = {**SCALER, "spec": {**SCALER["spec"], "minReplicas": minimum, "maxReplicas": most}}
    seen = shop(*("n1", "n2", "n3", "n1")[: max(2, minimum)], autoscalers=[own])
    change = added(seen)
    told = change and tuple(int(word.rpartition(":")[2].strip("}'")) for word in (change.command, change.back))
    assert told == raised


def test_no_replica_is_advised_where_another_controller_sets_the_number() -> None:
    owner = [{"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "k", "uid": "k", "controller": True}]
    kept = {**SCALER, "metadata": {**SCALER["metadata"], "ownerReferences": owner}}
    assert added(shop("n1", "n2", autoscalers=[kept])) is None


def test_no_replica_is_advised_for_a_stateful_set() -> None:
    seen = snapshot({"stateful_sets": [workload("StatefulSet", "web", 2)]}, nodes=nodes())
    assert added(seen, "StatefulSet") is None


def test_a_node_is_uncordoned_and_cordoned_again() -> None:
    change = advice.uncordon(shop(nodes=[roomy("n1", unschedulable=True)]).nodes["n1"])
    assert (change.command, change.back) == ("kubectl uncordon n1", "kubectl cordon n1")


def test_options_of_the_call_as_the_playbook_takes_them() -> None:
    assert advice.set_option("force", True, "Move it.").command == "-e maintain_force=true"
    assert advice.set_option("fallback", "eviction", "").command == "-e maintain_fallback=eviction"
    assert advice.set_option("serial", 1, "").command == "-e maintain_serial=1"


@pytest.mark.parametrize(
    ("version", "said"), [("v1", "rollout"), ("apps/v1", "rollout"), ("argoproj.io/v1alpha1", "rollout.argoproj.io")]
)
def test_kubectl_is_told_the_group_where_a_kind_may_be_of_several(version: str, said: str) -> None:
    seen = shop("n1")
    assert advice._resource(replace(seen.workloads[0].ref, kind="Rollout", api_version=version)) == said
