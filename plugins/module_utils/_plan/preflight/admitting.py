# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Webhooks that fail closed, and what becomes of new pods while their own pods are away.

Where such a webhook does not answer, no successor is created: of pods that were evicted there is none, and swaps wait.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    admission,
    objects,
    pod_plan,
    reasons,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import readiness

SHOWN = 5
Waves = t.Iterable[t.Collection[str]]


def findings(snapshot: snapshots.Snapshot, plans: t.Iterable[pod_plan.PodPlan], waves: Waves) -> list[reasons.Finding]:
    """Webhooks that are down already, and those whose last pods leave with a wave."""
    if not snapshot.webhooks:
        return []
    labels = {raw["metadata"]["name"]: raw["metadata"].get("labels") or {} for raw in snapshot.namespaces}
    moving = [plan for plan in plans if plan.route in ("evict", "swap", "replace", "job") and not plan.pod.finished]
    by_wave = list(pod_plan.by_wave(moving, waves))
    found = []
    for hook in snapshot.webhooks:
        asked = [plan for plan in moving if _asks(hook, plan.pod, labels) and plan.workload]
        serving = snapshot.endpoints(hook.service)
        if asked and not serving:
            found.append(_down(hook, asked, sure=bool(labels) and not hook.conditional))
        for wave, beside in by_wave if serving else ():
            mine = [plan for plan in beside if plan.pod.uid in serving]
            if len(mine) == len(serving) and not any(_serves_on(snapshot, plan) for plan in mine):
                others = [plan for plan in asked if plan.pod.node in wave and plan not in mine]
                own = any(_asks(hook, plan.pod, labels) for plan in mine)
                found += [_leaves(hook, mine, others, own=own)] if own or others else []
    return found


def _asks(hook: admission.Webhook, pod: objects.Pod, labels: t.Mapping[str, t.Mapping[str, str]]) -> bool:
    # Every namespace has its name as a label; others are unknown where namespaces may not be read.
    known = labels.get(pod.namespace, {"kubernetes.io/metadata.name": pod.namespace})
    return hook.asks_for(pod.labels, known)


def _serves_on(snapshot: snapshots.Snapshot, plan: pod_plan.PodPlan) -> bool:
    """Whether other pods, or a new one first, serve while this one leaves."""
    if plan.route in ("swap", "replace"):
        return True
    need = readiness.need(snapshot, plan.pod) if plan.code in readiness.OF_SEVERAL else None
    return need is not None and need.least > 0


def _called(hook: admission.Webhook) -> str:
    return f"Webhook {hook.name} ({hook.config})"


def _down(hook: admission.Webhook, asked: t.Sequence[pod_plan.PodPlan], *, sure: bool) -> reasons.Finding:
    owners = list(dict.fromkeys(str(plan.workload) for plan in asked))
    shown = reasons.listed(owners, SHOWN)
    message = (
        f"{_called(hook)} fails closed, and Service {'/'.join(hook.service)} has no ready endpoint: no successor of "
        f"{len(asked)} {'pod' if len(asked) == 1 else 'pods'} ({shown}) {'can' if sure else 'may'} be created."
    )
    remedy = f"Repair the pods of the Service, or set failurePolicy: Ignore in {hook.config}."
    nodes = tuple(dict.fromkeys(plan.pod.node for plan in asked))
    return reasons.Finding("webhook_down", message, remedy, "blocker" if sure else "warning", str(hook.config), nodes)


def _leaves(
    hook: admission.Webhook, mine: t.Sequence[pod_plan.PodPlan], others: t.Sequence[pod_plan.PodPlan], *, own: bool
) -> reasons.Finding:
    owner = mine[0].workload or mine[0].pod.ref
    names = ", ".join(f"{plan.pod.namespace}/{plan.pod.name}" for plan in mine[:SHOWN])
    message = f"{_called(hook)} fails closed, and all pods that answer it ({names}) leave with one wave."
    rule = f"{{owners: [{owner.kind}/{owner.name}], namespaces: [{owner.namespace}], last: true}}"
    remedy = "Give it a second replica on another node, or a budget that keeps one of its pods"
    if own:
        message += " It is asked for its own pods, too: none of their successors could be created."
        remedy += f"; or exclude its namespace in {hook.config}."
    else:
        message += f" Until one of them serves again, no successor of {len(others)} other pods is created."
        remedy += f"; or let its pods leave after the others: maintain_rules: [{rule}]."
    nodes = tuple(dict.fromkeys(plan.pod.node for plan in mine))
    return reasons.Finding("webhook_leaves", message, remedy, "blocker" if own else "warning", str(owner), nodes)
