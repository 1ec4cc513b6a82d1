# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The eviction API, rule by rule as in kube-apiserver's pkg/registry/core/pod/storage/eviction.go."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import answers
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.object_rules import Objects
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw

SUCCESS: Raw = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def evict(objects: Objects, namespace: str, name: str, eviction: Raw) -> Raw:
    """Delete the pod if its budget allows it.

    Raises:
        Refused: it does not, or the pod is not there, or another one.
    """
    around = objects.read(kinds.NAMESPACES, "", namespace)
    if "deletionTimestamp" in around["metadata"]:
        # An eviction is created, and nothing is created any more in a namespace that ends.
        raise answers.terminating(kinds.PODS, name, namespace)
    options = eviction.get("deleteOptions") or {}
    pod = objects.read(kinds.PODS, namespace, name)
    if not _free_to_go(pod):
        budgets = budgets_of(objects, pod)
        if len(budgets) > 1:
            raise answers.two_budgets()
        if budgets:
            objects.check_preconditions(kinds.PODS, pod, options.get("preconditions") or {})
            if not _unhealthy_may_go(pod, budgets[0]):
                _decrement(objects, pod, budgets[0])
    objects.delete(kinds.PODS, name, namespace, options)
    return SUCCESS


def budgets_of(objects: Objects, pod: Raw) -> list[Raw]:
    """Those that select the pod, by name."""
    namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
    return [
        budget
        for (where, _name), budget in sorted(objects.store.of(kinds.BUDGETS.resource).items())
        if where == namespace and selectors.matches(budget["spec"].get("selector"), labels)
    ]


def is_ready(pod: Raw) -> bool:
    """Whether its Ready condition is True."""
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in (pod.get("status") or {}).get("conditions") or ()
    )


def _free_to_go(pod: Raw) -> bool:
    """No budget is asked for a pod that has ended, is ending or has not begun."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed", "Pending") or (
        "deletionTimestamp" in pod["metadata"]
    )


def _unhealthy_may_go(pod: Raw, budget: Raw) -> bool:
    if is_ready(pod):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(status.get("currentHealthy", 0) >= desired and desired > 0)


def _decrement(objects: Objects, pod: Raw, budget: Raw) -> None:
    status, name = budget.get("status") or {}, budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"]["generation"]:
        raise answers.budget_behind(name)
    allowed = status.get("disruptionsAllowed", 0)
    if len(status.get("disruptedPods") or {}) > 2000:
        raise answers.budget_unconfirmed(name)
    if allowed <= 0:
        told = [one for one in status.get("conditions") or () if one.get("message") and one.get("status") != "True"]
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise answers.budget_spent(name, needs, has, told[0] if told else None)
    disrupted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: objects.wall()}
    after = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
    objects.replace(kinds.BUDGETS, budget, {**budget, "status": after}, "status")
