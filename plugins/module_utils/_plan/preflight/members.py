# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Services that go dark: of pods that leave by consent, and those that one pod of several alone stands behind.

The latter are those of single brokers or announced addresses. Such a pod is evicted while the others serve, but not for
these Services: nothing else has what they select.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    lookups,
    objects,
    parsers,
    pod_plan,
    reasons,
    serving,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import readiness

SHOWN = 5


def might_darken(plans: t.Sequence[pod_plan.PodPlan]) -> set[str]:
    """The namespaces of pods whose Services may go dark: EndpointSlices tell."""
    consented = [plan for plan in plans if plan.interruption == "allowed" or _darkens(plan)]
    return {plan.pod.namespace for plan in (*consented, *might_be_alone(plans))}


def _darkens(plan: pod_plan.PodPlan) -> bool:
    return plan.route in ("evict", "job") and plan.code in readiness.DARKENING and plan.pod.ready


def dark(
    snapshot: snapshots.Snapshot, plans: t.Iterable[pod_plan.PodPlan], waves: t.Iterable[t.Collection[str]]
) -> dict[str, list[str]]:
    """The Services without a ready endpoint once the pods of a wave have left by consent, by the pods' UIDs."""
    found: dict[str, list[str]] = {}
    for _wave, group in pod_plan.by_wave(filter(_darkens, plans), waves):
        found |= serving.dark_without(snapshot, (plan.pod for plan in group))
    return found


def might_be_alone(plans: t.Iterable[pod_plan.PodPlan]) -> list[pod_plan.PodPlan]:
    """Those of numbered members that leave while others serve."""
    moved = (plan for plan in plans if plan.route in ("evict", "job") and plan.code in readiness.OF_SEVERAL)
    return [plan for plan in moved if plan.pod.ready and plan.pod.owner and plan.pod.owner.kind == "StatefulSet"]


def findings(snapshot: snapshots.Snapshot, plans: t.Iterable[pod_plan.PodPlan]) -> list[reasons.Finding]:
    """One for each workload with pods that leave, and that Services have for themselves."""
    groups: dict[str, list[tuple[objects.Pod, list[str]]]] = {}
    for plan in might_be_alone(plans):
        if services := _alone_behind(snapshot, plan.pod):
            groups.setdefault(str(plan.workload or plan.pod.owner), []).append((plan.pod, services))
    return [_finding(subject, group) for subject, group in groups.items()]


def _alone_behind(snapshot: snapshots.Snapshot, pod: objects.Pod) -> list[str]:
    """The Services with a cluster IP of which the pod is the only ready endpoint."""
    pieces = (piece for piece in snapshot.slices_with(pod.uid) if parsers.HEADLESS not in piece["metadata"]["labels"])
    places = dict.fromkeys(place for piece in pieces for place in lookups.service_of(piece))
    return [f"{namespace}/{name}" for namespace, name in places if snapshot.endpoints((namespace, name)) == {pod.uid}]


def _finding(subject: str, group: t.Sequence[tuple[objects.Pod, list[str]]]) -> reasons.Finding:
    services = tuple(dict.fromkeys(name for _pod, names in group for name in names))
    message = (
        f"Only one pod of {subject} is behind each of the Services {reasons.listed(services, SHOWN)}: dark for their "
        "clients while it moves."
    )
    remedy = "Nothing to do where clients change to another member by themselves. The report will name these Services."
    nodes = tuple(dict.fromkeys(pod.node for pod, _names in group))
    about = (subject, *(f"Service {name}" for name in services))
    return reasons.Finding("member_services", message, remedy, "warning", subject, nodes, objects=about)
