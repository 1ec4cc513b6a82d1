# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whether enough other pods serve for one to be evicted, by our own count.

The Eviction API checks budgets only: without one, or if its status is outdated, every eviction
succeeds. So the pods are counted as well, against the replicas that are wanted now and not when
the drain was planned.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    objects,
    snapshots,
)

ONLY_HERE = frozenset({"local_volume", "no_free_device", "only_its_node"})
"""Codes of pods of which it is known that only their node has what they need."""

CONSENTED = ONLY_HERE | {"interruption_allowed", "gang"}
"""Codes of plans that are carried out although nothing serves meanwhile."""

DARKENING = CONSENTED | {"bare_pod", "daemonset_gone", "disable_eviction"}
"""The same, with those that are not counted at all."""

OF_SEVERAL = frozenset({"replicas", "guarded", "not_ready", "pending"})
"""Codes of plans that rely on other pods of the workload, or on the pod itself not serving."""

PER_NODE = frozenset({"DaemonSet", "Job", "Node"})
"""Kinds of owners with pods that do not replace each other."""


class TooFewReady(t.NamedTuple):
    """What would have too few ready pods without this one, and why."""

    object: objects.Ref
    message: str


def short(
    snapshot: snapshots.Snapshot,
    pod: objects.Pod,
    leaving: t.Collection[str],
    prior: t.Mapping[str, int] | None = None,
) -> TooFewReady | None:
    """Why the pod has to stay for now; ``None`` if the others are enough, or if it does not serve.

    Without a budget at most one pod of a workload may be missing, with one as many as it allows. A
    workload with a single replica has no others: whether it may be interrupted was decided before.
    ``leaving`` are the UIDs of pods that are being evicted: they count as gone, whatever their
    status. ``prior`` are the replicas without their surge of workloads that have one, by UID.
    """
    if not _serves(pod) or pod.phase == "Pending":
        return None
    found = need(snapshot, pod, prior)
    if found is None:
        return None if snapshot.workload_of(pod) else _of_unknown(snapshot, pod, leaving)
    serving = _serving(found.pods, pod, leaving)
    if serving >= found.least:
        return None
    why = f"{found.object} needs {found.least} ready pods beside this one and has {serving}."
    if not found.budget:
        why += " It has no budget, so one goes at a time."
    return TooFewReady(found.object, why)


class Need(t.NamedTuple):
    """How many of these pods have to serve, by a budget or by the rule for a workload without one.

    ``most`` of them may be missing when all others serve.
    """

    object: objects.Ref
    pods: tuple[objects.Pod, ...]
    least: int
    most: int
    budget: objects.Budget | None = None

    @property
    def spare(self) -> int:
        """How many more serve now than have to; negative where too few do."""
        return sum(_serves(pod) for pod in self.pods) - self.least

    @property
    def holds(self) -> bool:
        return self.spare >= 0


def need(
    snapshot: snapshots.Snapshot, pod: objects.Pod, prior: t.Mapping[str, int] | None = None
) -> Need | None:
    """``None`` for a pod of which nothing is known, or whose workload has no others."""
    if budget := next(iter(snapshot.budgets_of(pod)), None):
        selected = snapshot.selected(budget.namespace, budget.selector)
        covered = tuple(p for p in selected if not p.finished)
        expected, desired = _wanted(snapshot, budget, covered)
        least = max(budget.desired, desired)
        return Need(budget.ref, covered, least, max(expected - least, 0), budget)
    workload = snapshot.workload_of(pod)
    if workload is None or workload.deleting:
        return None
    wanted = min(workload.replicas, (prior or {}).get(workload.uid, workload.replicas))
    return Need(workload.ref, snapshot.pods_of(workload), wanted - 1, 1) if wanted > 1 else None


class LastPod(t.NamedTuple):
    """The workload that wants one pod by now, and whether this pod is the only one (``alone``)."""

    object: objects.Ref
    message: str
    alone: bool


def last(snapshot: snapshots.Snapshot, pod: objects.Pod) -> LastPod | None:
    """Whether a pod that was one of several is the last one wanted:
    it must stay until a new pod serves.

    Its workload was scaled down to one after the plan was made. A budget that allows one pod to be
    missing does not keep the last one.
    """
    workload = snapshot.workload_of(pod)
    if not _serves(pod) or workload is None or workload.deleting or workload.replicas != 1:
        return None
    scaled = f"{workload.ref} was scaled down to one"
    if any(p.uid != pod.uid and not p.finished for p in snapshot.pods_of(workload)):
        return LastPod(workload.ref, f"{scaled}, and has not ended the others yet.", False)
    message = f"{scaled} meanwhile, and nothing would serve without this pod."
    return LastPod(workload.ref, message, True)


def _wanted(
    snapshot: snapshots.Snapshot, budget: objects.Budget, covered: t.Iterable[objects.Pod]
) -> tuple[int, int]:
    """How many pods there should be by the current replicas, and how many of them the budget
    requires to be ready.

    Where the replicas are not known, as its status says and none.
    """
    workloads: dict[str, objects.Workload] = {}
    for pod in covered:
        workload = snapshot.workload_of(pod)
        if workload is None:
            return budget.expected, 0
        workloads[workload.uid] = workload
    expected = sum(workload.replicas for workload in workloads.values())
    if budget.max_unavailable is not None:
        return expected, expected - (decoding.share(budget.max_unavailable, expected) or 0)
    least = 1 if budget.min_available is None else budget.min_available
    return expected, min(decoding.share(least, expected) or 0, expected)


def _of_unknown(
    snapshot: snapshots.Snapshot, pod: objects.Pod, leaving: t.Collection[str]
) -> TooFewReady | None:
    """Such an owner's replicas are unknown: one pod leaves at a time, while another one serves."""
    owner = pod.owner
    if owner is None or owner.kind in PER_NODE:
        return None
    peers = [p for p in snapshot.owned_pods(owner.uid) if p.uid != pod.uid and not p.finished]
    if not peers:
        return None
    if any(p.uid in leaving for p in peers):
        return TooFewReady(owner, f"Another pod of {owner} is being evicted.")
    if _serving(peers, pod, leaving):
        return None
    return TooFewReady(owner, f"No other pod of {owner} is ready.")


def _serving(pods: t.Iterable[objects.Pod], but: objects.Pod, leaving: t.Collection[str]) -> int:
    return sum(1 for p in pods if _serves(p) and p.uid != but.uid and p.uid not in leaving)


def _serves(pod: objects.Pod) -> bool:
    return pod.ready and not pod.deleting and not pod.finished
