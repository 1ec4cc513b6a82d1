# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Workloads that are short of ready pods because pods of theirs left a node, and which of them may stay so.

A successor that fits on no other node runs again once its own node is back. Until then its workload may be short of it
where its budget, or the rule that without one a single pod may be missing, still holds, and something of it serves.
"""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    node_records,
    objects,
    pod_plan,
    reasons,
    snapshots,
    unready,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import readiness


@dataclass(frozen=True, slots=True)
class Lack:
    """What a workload lacks. ``why`` its pods are not ready; ``nowhere``: all that it lacks have no node.

    ``overlooked``: no scheduler has looked at one of them, which its own node would not change.
    """

    workload: objects.Workload
    ready: int
    wanted: int
    why: str = ""
    nowhere: bool = False
    overlooked: bool = False

    @property
    def text(self) -> str:
        """As messages say it."""
        return f"{self.workload.ref} has {self.ready} of {self.wanted} ready pods{unready.told(self.why.rstrip('.'))}"

    def finding(self, node: str) -> reasons.Finding:
        """That this is so until the node is back."""
        message, subject = f"{self.text} until {node} is back.", str(self.workload.ref)
        return reasons.Finding("fits_nowhere", message, "", "warning", subject, (node,))

    def to_dict(self) -> dict[str, t.Any]:
        """As modules return it."""
        named = {key: getattr(self.workload, key) for key in ("kind", "namespace", "name")}
        return {**named, "ready": self.ready, "wanted": self.wanted, "reason": self.why}


def lack(snapshot: snapshots.Snapshot, one: node_records.Awaited) -> Lack | None:
    """What the workload lacks of the pods that were ready before; ``None`` where nothing.

    What counts is what its owner wants now: it may have been scaled or deleted since.
    """
    workload = snapshot.workload(one.workload.uid)
    if workload is None or workload.deleting:
        return None
    wanted, living = min(one.ready, workload.replicas), _living(snapshot, workload)
    ready = sum(pod.ready for pod in living)
    if ready >= wanted:
        return None
    # One for which others are preempted gets a node soon.
    unplaced = [p for p in living if not p.node and not p.nominated and (p.unschedulable or p.overlooked)]
    overlooked = any(pod.overlooked for pod in unplaced)
    why = unready.why(snapshot, living, workload)
    return Lack(workload, ready, wanted, why, len(unplaced) >= wanted - ready, overlooked)


def silent(snapshot: snapshots.Snapshot, one: node_records.Awaited) -> objects.Ref | None:
    """The object of which Events alone may say why the workload lacks pods; ``None`` if there is none."""
    found = lack(snapshot, one)
    return unready.silent(snapshot, _living(snapshot, found.workload), found.workload) if found else None


def _living(snapshot: snapshots.Snapshot, workload: objects.Workload) -> list[objects.Pod]:
    # A scale subresource need not say which pods it counts: then they are known by their owner alone.
    owned = workload.selector is None
    pods = snapshot.owned_pods(workload.uid) if owned else snapshot.selected(workload.namespace, workload.selector)
    return [pod for pod in pods if pod.owner and not pod.deleting and not pod.finished]


def bearable(snapshot: snapshots.Snapshot, found: Lack, choices: pod_plan.Choices) -> bool:
    """Whether its workload may stay so short until the node is back."""
    if choices.allow_interruption or choices.disable_eviction or found.workload.interruptible:
        return True
    need = next((readiness.need(snapshot, pod) for pod in _living(snapshot, found.workload)), None)
    return found.ready > 0 and need is not None and need.holds


def holding(snapshot: snapshots.Snapshot, pod: objects.Pod, short: t.Mapping[str, Lack]) -> Lack | None:
    """What keeps the pod: the workload, among these by their UIDs, whose lack leaves too few others to serve."""
    need = readiness.need(snapshot, pod) if short and readiness.short(snapshot, pod, ()) else None
    owners = (snapshot.workload_of(other) for other in (need.pods if need else ()))
    return next((short[owner.uid] for owner in owners if owner and owner.uid in short), None)


@dataclass(frozen=True, slots=True)
class Gap:
    """Pods whose successors fit nowhere while a wave is out, of one budget or of one workload without one.

    ``dark`` are the workloads of which nothing would serve.
    """

    need: readiness.Need
    plans: tuple[pod_plan.PodPlan, ...]
    dark: tuple[objects.Workload, ...]

    @property
    def bearable(self) -> bool:
        """Whether all of them may be missing until their nodes are back."""
        return len(self.plans) <= self.need.most and not self.dark


def gaps(snapshot: snapshots.Snapshot, unplaced: t.Iterable[pod_plan.PodPlan]) -> list[Gap]:
    """What is missing while these pods of one wave have no place; only of those that others have to serve for."""
    groups: dict[objects.Ref, tuple[readiness.Need, list[pod_plan.PodPlan]]] = {}
    for plan in unplaced:
        counted = plan.route in ("evict", "job") and plan.code in readiness.OF_SEVERAL and plan.pod.ready
        if counted and (need := readiness.need(snapshot, plan.pod)):
            groups.setdefault(need.object, (need, []))[1].append(plan)
    return [Gap(need, tuple(found), _dark(snapshot, found)) for need, found in groups.values()]


def _dark(snapshot: snapshots.Snapshot, plans: t.Iterable[pod_plan.PodPlan]) -> tuple[objects.Workload, ...]:
    owners = [owner for plan in plans if (owner := snapshot.workload_of(plan.pod))]
    gone = collections.Counter(owner.uid for owner in owners)
    return tuple({owner.uid: owner for owner in owners if gone[owner.uid] >= owner.replicas}.values())
