# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What becomes of a pod's route when its successor may come straight back, because the pod tolerates the maintenance.

A successor whose template names the node itself does, too: no scheduler is asked where it goes.
"""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import node_taints, pod_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import cases

TOLERATES = "tolerates_maintenance"

SETTLED = frozenset(
    {
        "mirror",
        "daemonset",
        "not_selected",
        "self_on_node",
        "left_by_rule",
        "terminating",
        "stuck_terminating",
        "finished",
    }
)
"""Codes that apply to a pod whatever it tolerates."""


def rerouted(case: cases.Case, plan: pod_plan.PodPlan) -> pod_plan.PodPlan:
    """A pod that tolerates both cordon and taint, or whose template names its node, comes straight back: it moves once.

    One that was not there when the drain began has come back, and so has every one on a node that was emptied before.
    (Timestamps cannot tell: a pod's are by the API server's clock, and ours by our own.) If it cannot simply be
    evicted it stays, because a swap's new pod may be scheduled to the same node. What would lose data or needs consent
    is refused as for any other pod.
    """
    holding, emptied = case.context.keeps_out(case.pod.node)
    named = case.workload is not None and case.workload.pod_spec.get("nodeName") == case.pod.node
    if not named and node_taints.untolerated(case.pod.tolerations, holding):
        return plan
    why = "its template names this node" if named else "it tolerates the cordon and our taint"
    plan = replace(plan, tolerant=True)
    if plan.route not in ("evict", "swap") or case.surge or plan.code == "unhealthy_blocked":
        return plan
    known = case.context.known
    if emptied or (known is not None and case.pod.uid not in known):
        reason = f"It came back after it was moved: {why}."
        return replace(plan, route="skip", code=TOLERATES, reason=reason, budgets=(), guarded=False)
    if plan.route == "swap":
        reason = f"A new pod might come to the same node, as {why}: it stays."
        what = "nodeName from the template" if named else "the toleration"
        remedy = f"Remove {what} if it should leave nodes in maintenance."
        return replace(plan, route="skip", code=TOLERATES, reason=reason, remedy=remedy)
    return replace(plan, code=TOLERATES, reason=f"{plan.reason} It is moved only once, as {why}.")
