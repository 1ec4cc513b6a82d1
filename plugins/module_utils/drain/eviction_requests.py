# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Evictions that a pod's responders carry out: EvictionRequests (KEP-4563,
``lifecycle.k8s.io/v1alpha1``).

A pod names in ``spec.evictionResponders`` who acts before it ends, such as an operator that moves a
primary. Whoever wants the pod gone creates an EvictionRequest, and the responders act one after the
other; the last one, of Kubernetes itself, evicts the pod by the Eviction API, which asks no
responder. So only a request for a pod with responders is worth waiting for: without them it ends in
what the drain does anyway. (Types and their meaning: k8s.io/api v0.37.1; behind the gate
EvictionRequestAPI, and without a controller in Kubernetes 1.37.1.)
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy

WAIT_SECONDS = 600.0
"""Seconds for which a drain leaves a pod to somebody else's request."""
OVER = ("TargetEvicted", "Failed")
"""Conditions with which the controller ends a request."""


def active(snapshot: snapshots.Snapshot, pod: objects.Pod) -> objects.Raw | None:
    """The first request for exactly this pod that is neither withdrawn nor over."""
    return next(
        (raw for raw in snapshot.eviction_requests if _target(raw) == pod.uid and _wanted(raw)),
        None,
    )


def _target(raw: objects.Raw) -> str:
    return str(((raw["spec"].get("target") or {}).get("pod") or {}).get("uid", ""))


def _wanted(raw: objects.Raw) -> bool:
    conditions = (raw.get("status") or {}).get("conditions") or ()
    over = any(one.get("type") in OVER and one.get("status") == "True" for one in conditions)
    return (
        raw["spec"].get("intent") == "Eviction"
        and not over
        and "deletionTimestamp" not in raw["metadata"]
    )


def named(raw: objects.Raw) -> objects.Ref:
    """The request's coordinates."""
    meta = raw["metadata"]
    return objects.Ref(
        "EvictionRequest",
        meta["name"],
        meta.get("namespace", ""),
        api_version="lifecycle.k8s.io/v1alpha1",
    )


def waited_for(raw: objects.Raw) -> str:
    """Why a drain leaves the pod to the request, as text."""
    return (
        f"{named(raw)} of {raw['spec'].get('requester')} is being answered by the pod's responders"
    )


def findings(
    snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan]
) -> list[reasons.Finding]:
    """The pods with responders that would be evicted, by workload, and the requests for them."""
    found: list[reasons.Finding] = []
    groups: dict[str, list[objects.Pod]] = {}
    for plan in plans:
        if plan.route != "evict" or not plan.pod.responders:
            continue
        groups.setdefault(str(plan.workload or plan.pod.ref), []).append(plan.pod)
        if raw := active(snapshot, plan.pod):
            message = (
                f"{plan.pod.ref} is wanted gone by {named(raw)} ({raw['spec'].get('requester')})."
            )
            remedy = (
                f"Nothing to do: the drain waits up to {WAIT_SECONDS / 60:g} minutes for it, then "
                "evicts the pod itself."
            )
            node = (plan.pod.node,)
            found.append(
                reasons.Finding(
                    "eviction_requested", message, remedy, "info", str(named(raw)), node
                )
            )
    for subject, pods in groups.items():
        responders: dict[str, None] = {}
        for pod in pods:
            responders |= dict.fromkeys(pod.responders)
        message = (
            f"Pods of {subject} want {', '.join(responders)} to act before they end; "
            "an eviction does not ask these responders."
        )
        remedy = (
            "Create EvictionRequests for them first where their controller runs, "
            "or rely on their budget."
        )
        nodes = tuple(dict.fromkeys(pod.node for pod in pods))
        found.append(
            reasons.Finding("eviction_responders", message, remedy, "warning", subject, nodes)
        )
    return found
