# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Gangs: pods that only work together, so that the end of one interrupts all of them.

Found by what their projects write on pods, without any request, but for Kubernetes' own PodGroups:
whether those are disrupted as a whole is only in their spec.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import objects

POD_GROUP = ("PodGroup", "scheduling.k8s.io/v1beta1")
LWS = "leaderworkerset.sigs.k8s.io"
MARKS: t.Sequence[tuple[str, str, str]] = (
    ("JobSet", "jobset.x-k8s.io/v1alpha2", "jobset.sigs.k8s.io/jobset-name"),
    ("Pod group", "kueue.x-k8s.io", "kueue.x-k8s.io/pod-group-name"),
    ("PodGroup", "scheduling.x-k8s.io/v1alpha1", "scheduling.x-k8s.io/pod-group"),
    ("PodGroup", "scheduling.sigs.k8s.io/v1alpha1", "pod-group.scheduling.sigs.k8s.io"),
    ("Gang", "gang.scheduling.koordinator.sh", "gang.scheduling.koordinator.sh/name"),
)
"""Kind, API and the label or annotation with the name of the gang.

JobSet v0.8 and Kueue v0.12 (plain pods): labels; scheduler-plugins v0.31, and the label before
v0.24 that Koordinator still reads: PodGroup; Koordinator v1.6: an annotation, or one of the labels
of scheduler-plugins before it.
"""

_MARKED = frozenset({f"{LWS}/name", *(mark for _kind, _api, mark in MARKS)})

SERVING = "kueue.x-k8s.io/pod-group-serving"
"""Kueue's annotation of groups whose pods serve on their own: those of StatefulSets."""


@dataclass(frozen=True, slots=True)
class Gang:
    """The living pods of one gang, wherever they are."""

    ref: objects.Ref
    pods: tuple[objects.Pod, ...]

    @property
    def words(self) -> str:
        """Its name, size and nodes: ``JobSet ml/train (3 pods on n1, n2)``."""
        nodes = ", ".join(sorted({pod.node for pod in self.pods if pod.node}))
        return f"{self.ref} ({len(self.pods)} pods on {nodes})"


def ref_of(pod: objects.Pod) -> objects.Ref | None:
    """The gang that the pod says it belongs to.

    A group of a LeaderWorkerSet (v0.6) is recreated as a whole: its pods share a group key.
    """
    if pod.group:
        return objects.Ref(POD_GROUP[0], pod.group, pod.namespace, api_version=POD_GROUP[1])
    if _MARKED.isdisjoint(pod.labels) and _MARKED.isdisjoint(pod.annotations):
        return None
    name, group = pod.labels.get(f"{LWS}/name"), pod.labels.get(f"{LWS}/group-key")
    if name and group:
        called = f"{name} group {pod.labels.get(f'{LWS}/group-index', group)}"
        return objects.Ref(
            "LeaderWorkerSet", called, pod.namespace, group, "leaderworkerset.x-k8s.io/v1"
        )
    for kind, api, mark in MARKS:
        named = pod.labels.get(mark) or pod.annotations.get(mark)
        if named and pod.annotations.get(SERVING) != "true":
            return objects.Ref(kind, named, pod.namespace, api_version=api)
    return None


def found(pods: t.Iterable[objects.Pod], pod_groups: t.Iterable[objects.Raw]) -> dict[str, Gang]:
    """The gangs of at least two pods, by the UID of each of their pods.

    A PodGroup whose pods may be disrupted one by one is none (``disruptionMode``, ``single`` by
    default); one that is not among ``pod_groups`` counts as a gang.
    """
    one_by_one = {
        (raw["metadata"]["namespace"], raw["metadata"]["name"])
        for raw in pod_groups
        if "all" not in ((raw.get("spec") or {}).get("disruptionMode") or {})
    }
    members: dict[objects.Ref, list[objects.Pod]] = {}
    for pod in pods:
        ref = None if pod.finished else ref_of(pod)
        if ref and not (pod.group and (ref.namespace, ref.name) in one_by_one):
            members.setdefault(ref, []).append(pod)
    gangs: dict[str, Gang] = {}
    for ref, group in members.items():
        if len(group) > 1:
            gangs |= dict.fromkeys([pod.uid for pod in group], Gang(ref, tuple(group)))
    return gangs
