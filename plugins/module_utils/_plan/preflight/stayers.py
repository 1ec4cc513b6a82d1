# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Pods that stay on their nodes and serve from there.

While such a node reboots, their Service still sends clients to it until the node counts as not ready, some 50 seconds
later; with ``internalTrafficPolicy: Local``, those on the node. No watch of EndpointSlices shows it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    lookups,
    names,
    node_taints,
    objects,
    parsers,
    pod_plan,
    reasons,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import held

OURS = {"key": names.TAINT_KEY, "effect": "NoSchedule"}


def might_serve(plans: t.Iterable[pod_plan.PodPlan]) -> list[objects.Pod]:
    """The pods that stay and are ready: whether they serve is in the EndpointSlices of their namespaces."""
    return [plan.pod for plan in plans if plan.route == "skip" and plan.pod.ready and not plan.pod.deleting]


def findings(snapshot: snapshots.Snapshot, plans: t.Iterable[pod_plan.PodPlan]) -> list[reasons.Finding]:
    """One for each DaemonSet, or pod of something else, that serves from nodes that are still to be taken out."""
    groups: dict[str, list[tuple[objects.Pod, list[str]]]] = {}
    for pod in might_serve(plans):
        if held.recorded(snapshot.nodes[pod.node]):
            continue
        if services := _services(snapshot, pod):
            owner = objects.Ref(pod.owner.kind, pod.owner.name, pod.namespace) if pod.owner else pod.ref
            groups.setdefault(str(owner), []).append((pod, services))
    return [_finding(subject, group) for subject, group in groups.items()]


def _finding(subject: str, group: t.Sequence[tuple[objects.Pod, list[str]]]) -> reasons.Finding:
    nodes = tuple(dict.fromkeys(pod.node for pod, _services in group))
    served = tuple(dict.fromkeys(name for _pod, services in group for name in services))
    while_ = "while the node reboots" if len(nodes) == 1 else "while they reboot"
    where = f"{', '.join(served)} from {reasons.listed(nodes)}"
    message, remedy = f"{subject} stays, and serves {where}: dark for its clients there {while_}.", _remedy(group[0][0])
    return reasons.Finding("serves_from_node", message, remedy, "warning", subject, nodes, objects=(subject, *served))


def _services(snapshot: snapshots.Snapshot, pod: objects.Pod) -> list[str]:
    """The Services of which the pod is a ready endpoint, but headless ones, whose clients choose among the pods."""
    pieces = (piece for piece in snapshot.slices_with(pod.uid) if parsers.HEADLESS not in piece["metadata"]["labels"])
    places = (place for piece in pieces if lookups.ready_in(piece, pod.uid) for place in lookups.service_of(piece))
    return [f"Service {namespace}/{name}" for namespace, name in dict.fromkeys(places)]


def _remedy(pod: objects.Pod) -> str:
    if pod.owner is None or pod.owner.kind != "DaemonSet":
        return ""
    if not node_taints.untolerated(pod.tolerations, (node_taints.CORDON, OURS)):
        return "It tolerates our taint, so no rule can move it: it would be there again at once."
    rule = f"{{owners: [DaemonSet/{pod.owner.name}], namespaces: [{pod.namespace}], last: true}}"
    return f"If nothing on the node needs it meanwhile, let it leave last: maintain_rules: [{rule}]."
