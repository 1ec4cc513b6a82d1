# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Pods that stay on their nodes and serve from there.

While such a node reboots, their Service still sends clients to it until the node counts as not
ready, some 50 seconds later; with ``internalTrafficPolicy: Local``, those on the node. No watch of
EndpointSlices shows it.
"""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    index_keys,
    node_taints,
    objects,
    serving,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    other_runs,
    replacement,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    readiness,
)


def might_serve(plans: t.Iterable[drain_policy.PodPlan]) -> list[objects.Pod]:
    """The pods that stay and are ready: whether they serve is in the EndpointSlices."""
    stay = [plan.pod for plan in plans if plan.route == "skip"]
    return [pod for pod in stay if pod.ready and not pod.deleting]


def findings(
    snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan]
) -> list[reasons.Finding]:
    """One for each DaemonSet, or other pod, that serves from nodes that are to be taken out."""
    groups: dict[str, list[tuple[objects.Pod, list[str]]]] = {}
    for pod in might_serve(plans):
        if other_runs.recorded(snapshot.nodes[pod.node]):
            continue
        if services := _services(snapshot, pod):
            owner = pod.ref
            if pod.owner:
                owner = objects.Ref(pod.owner.kind, pod.owner.name, pod.namespace)
            groups.setdefault(str(owner), []).append((pod, services))
    return [_finding(subject, group) for subject, group in groups.items()]


def _finding(subject: str, group: t.Sequence[tuple[objects.Pod, list[str]]]) -> reasons.Finding:
    nodes = tuple(dict.fromkeys(pod.node for pod, _services in group))
    served = _names_of(group)
    while_ = "while the node reboots" if len(nodes) == 1 else "while they reboot"
    where = f"{', '.join(served)} from {reasons.listed(nodes)}"
    message = f"{subject} stays, and serves {where}: dark for its clients there {while_}."
    remedy = _remedy(group[0][0])
    return reasons.Finding(
        "serves_from_node", message, remedy, "warning", subject, nodes, objects=(subject, *served)
    )


def _names_of(group: t.Sequence[tuple[objects.Pod, list[str]]]) -> tuple[str, ...]:
    every: dict[str, None] = {}
    for _pod, services in group:
        every |= dict.fromkeys(services)
    return tuple(every)


def _services(snapshot: snapshots.Snapshot, pod: objects.Pod) -> list[str]:
    """The Services of which the pod is a ready endpoint, but headless ones."""
    places: dict[tuple[str, str], None] = {}
    for piece in _with_address(snapshot, pod):
        if index_keys.ready_in(piece, pod.uid):
            places |= dict.fromkeys(index_keys.service_of(piece))
    return [f"Service {namespace}/{name}" for namespace, name in places]


def _with_address(snapshot: snapshots.Snapshot, pod: objects.Pod) -> list[objects.Raw]:
    """The EndpointSlices with the pod, of Services that are not headless."""
    pieces = snapshot.slices_with(pod.uid)
    return [one for one in pieces if index_keys.HEADLESS not in one["metadata"]["labels"]]


def _remedy(pod: objects.Pod) -> str:
    if pod.owner is None or pod.owner.kind != "DaemonSet":
        return ""
    if not node_taints.untolerated(pod.tolerations, (node_taints.CORDON, node_taints.OURS)):
        return "It tolerates our taint, so no rule can move it: it would be there again at once."
    rule = f"{{owners: [DaemonSet/{pod.owner.name}], namespaces: [{pod.namespace}], last: true}}"
    return (
        f"If nothing on the node needs it meanwhile, let it leave last: maintain_rules: [{rule}]."
    )


# Services that go dark: of pods that leave by consent, and those that one pod of several
# alone stands behind.
#
# The latter are those of single brokers, announced addresses, or leaders. Such a pod is evicted
# while the others serve, but not for these Services: nothing else has what they select.


SERVICES_NAMED = 5


def might_darken(plans: t.Sequence[drain_policy.PodPlan]) -> set[str]:
    """The namespaces of pods whose Services may go dark: EndpointSlices tell."""
    consented = [plan for plan in plans if plan.interruption == "allowed" or _darkens(plan)]
    return {plan.pod.namespace for plan in (*consented, *might_be_alone(plans))}


def _darkens(plan: drain_policy.PodPlan) -> bool:
    return plan.route in ("evict", "job") and plan.code in readiness.DARKENING and plan.pod.ready


def dark(
    snapshot: snapshots.Snapshot,
    plans: t.Iterable[drain_policy.PodPlan],
    waves: t.Iterable[t.Collection[str]],
) -> dict[str, list[str]]:
    """The Services without endpoint once pods have left by consent, by the pods' UIDs."""
    found: dict[str, list[str]] = {}
    for _wave, group in drain_policy.by_wave(filter(_darkens, plans), waves):
        found |= serving.dark_without(snapshot, (plan.pod for plan in group))
    return found


BESIDE_OTHERS = readiness.OF_SEVERAL | {"operator_budget", replacement.FIRST}
"""Codes of plans that rely on other pods of the workload."""


def might_be_alone(plans: t.Iterable[drain_policy.PodPlan]) -> list[drain_policy.PodPlan]:
    """The plans of ready pods that leave while others serve."""
    moved = (plan for plan in plans if plan.route in ("evict", "job", "replace"))
    return [plan for plan in moved if plan.code in BESIDE_OTHERS and plan.pod.ready]


def member_findings(
    snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan]
) -> list[reasons.Finding]:
    """One for each workload with pods that leave, and that Services have for themselves."""
    groups: dict[str, list[tuple[objects.Pod, list[str]]]] = {}
    endpoints = functools.cache(snapshot.endpoints)
    for plan in might_be_alone(plans):
        workload = snapshot.workload_of(plan.pod)
        if workload and workload.replicas == 1:
            # What serves before it leaves has the labels that its Services select.
            continue
        if services := _alone_behind(snapshot, plan.pod, endpoints):
            groups.setdefault(str(plan.workload or plan.pod.owner), []).append((plan.pod, services))
    return [_member_finding(subject, group) for subject, group in groups.items()]


def _alone_behind(
    snapshot: snapshots.Snapshot,
    pod: objects.Pod,
    endpoints: t.Callable[[index_keys.NamespacedName], set[str]],
) -> list[str]:
    """The Services with a cluster IP of which the pod is the only ready endpoint."""
    places: dict[tuple[str, str], None] = {}
    for piece in _with_address(snapshot, pod):
        places |= dict.fromkeys(index_keys.service_of(piece))
    return ["/".join(place) for place in places if endpoints(place) == {pod.uid}]


def _member_finding(
    subject: str, group: t.Sequence[tuple[objects.Pod, list[str]]]
) -> reasons.Finding:
    services = _names_of(group)
    message = (
        f"Only one pod of {subject} is behind each of the Services "
        f"{reasons.listed(services, SERVICES_NAMED)}: dark for their clients while it moves."
    )
    remedy = (
        "Nothing to do where clients change to another member by themselves. "
        "The report will name these Services."
    )
    nodes = tuple(dict.fromkeys(pod.node for pod, _names in group))
    about = (subject, *(f"Service {name}" for name in services))
    return reasons.Finding(
        "member_services", message, remedy, "warning", subject, nodes, objects=about
    )
