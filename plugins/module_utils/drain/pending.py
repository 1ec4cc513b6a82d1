# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Workloads that are short of ready pods because pods of theirs left a node,
and which of them may stay so.

A successor that fits on no other node runs again once its own node is back. Until then its workload
may be short of it where its budget, or the rule that without one a single pod may be missing, still
holds, and something of it serves. The same is so of a StatefulSet that creates its pods in order:
while an earlier one is not Ready, no later one is created.
"""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    node_affinity,
    node_taints,
    objects,
    snapshots,
    unready,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import replacement
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    readiness,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records


@dataclass(frozen=True, slots=True)
class Lack:
    """What a workload lacks. ``why`` its pods are not ready; ``nowhere``:
    all that it lacks have no node.

    ``overlooked``: no scheduler has looked at one of them, which its own node would not change.
    ``behind`` is the pod that has to be Ready before any of them is created.
    """

    workload: objects.Workload
    ready: int
    wanted: int
    why: str = ""
    nowhere: bool = False
    overlooked: bool = False
    behind: objects.Ref | None = None

    @property
    def text(self) -> str:
        return (
            f"{self.workload.ref} has {self.ready} of {self.wanted} ready "
            f"pods{unready.in_brackets(self.why.rstrip('.'))}"
        )

    def lasting(self, node: str) -> str:
        """With how long this is so: until the node is back, or the earlier pod Ready."""
        return (
            f"{self.text} until {f'{self.behind} is Ready' if self.behind else f'{node} is back'}"
        )

    def finding(self, node: str) -> reasons.Finding:
        code = "successor_waits" if self.behind else "fits_nowhere"
        return reasons.Finding(
            code, f"{self.lasting(node)}.", "", "warning", str(self.workload.ref), (node,)
        )

    def to_dict(self) -> dict[str, t.Any]:
        named = {key: getattr(self.workload, key) for key in ("kind", "namespace", "name")}
        return {**named, "ready": self.ready, "wanted": self.wanted, "reason": self.why}


def lack(snapshot: snapshots.Snapshot, one: node_records.Awaited, began: str = "") -> Lack | None:
    """What the workload lacks of the pods that were ready before; ``None`` where nothing.

    What counts is what its owner wants now: it may have been scaled or deleted since. A pod that
    was there before the drain ``began`` (RFC 3339), also one that was to have ended by then, makes
    way for no successor by itself.
    """
    workload = snapshot.workload(one.workload.uid)
    if workload is None or workload.deleting:
        return None
    wanted = min(one.ready, workload.replicas)
    living = _living(snapshot, workload)
    ready = sum(pod.ready for pod in living)
    if ready >= wanted:
        return None
    # One for which others are preempted gets a node soon.
    unplaced = [
        p for p in living if not p.node and not p.nominated and (p.unschedulable or p.overlooked)
    ]
    overlooked = any(pod.overlooked for pod in unplaced)
    first = earlier(snapshot, workload)
    coming = any(not pod.ready and pod.created >= began for pod in living)
    coming |= first is not None and first.deleting and first.deadline >= began
    if first and not coming and _absent_after(snapshot, workload, first):
        return Lack(
            workload, ready, wanted, _not_ready(snapshot, first), nowhere=True, behind=first.ref
        )
    why = unready.why(snapshot, living, workload)
    return Lack(workload, ready, wanted, why, len(unplaced) >= wanted - ready, overlooked)


def earlier(snapshot: snapshots.Snapshot, workload: objects.Workload) -> objects.Pod | None:
    """The first pod that is not Ready of a StatefulSet that creates none with a higher
    number before it is.
    """
    if not workload.ordered:
        return None
    waiting = (pod for pod in snapshot.pods_of(workload) if not pod.ready or pod.deleting)
    return min(waiting, key=_number, default=None)


def _number(pod: objects.Pod) -> int:
    return decoding.whole(pod.name.rpartition("-")[2]) or 0


def _absent_after(
    snapshot: snapshots.Snapshot, workload: objects.Workload, first: objects.Pod
) -> bool:
    there = {_number(pod) for pod in snapshot.pods_of(workload)}
    start = decoding.whole((workload.spec.get("ordinals") or {}).get("start")) or 0
    wanted = range(max(start, _number(first) + 1), start + workload.replicas)
    return any(number not in there for number in wanted)


def _not_ready(snapshot: snapshots.Snapshot, pod: objects.Pod) -> str:
    return f"{pod.ref} is not Ready{unready.in_brackets(unready.of(snapshot, pod))}"


def silent(snapshot: snapshots.Snapshot, one: node_records.Awaited) -> objects.Ref | None:
    """The object of which Events alone may say why the workload lacks pods;
    ``None`` if there is none.
    """
    found = lack(snapshot, one)
    if found:
        return unready.silent(snapshot, _living(snapshot, found.workload), found.workload)
    return None


def _living(snapshot: snapshots.Snapshot, workload: objects.Workload) -> list[objects.Pod]:
    # A scale subresource need not say which pods it counts: then they are known
    # by their owner alone.
    pods: t.Iterable[objects.Pod]
    if workload.selector is None:
        pods = snapshot.owned_pods(workload.uid)
    else:
        pods = snapshot.selected(workload.namespace, workload.selector)
    return [pod for pod in pods if pod.owner and not pod.deleting and not pod.finished]


def bearable(snapshot: snapshots.Snapshot, found: Lack, choices: drain_policy.DrainPolicy) -> bool:
    """Whether its workload may stay so short until the node is back."""
    if choices.allow_interruption or choices.disable_eviction or found.workload.interruptible:
        return True
    need = next((readiness.need(snapshot, pod) for pod in _living(snapshot, found.workload)), None)
    return found.ready > 0 and need is not None and need.holds


def holding(
    snapshot: snapshots.Snapshot, pod: objects.Pod, short: t.Mapping[str, Lack]
) -> Lack | None:
    """What keeps the pod: the workload, among these by their UIDs,
    whose lack leaves too few others to serve.
    """
    need = readiness.need(snapshot, pod) if short and readiness.short(snapshot, pod, ()) else None
    owners = (snapshot.workload_of(other) for other in (need.pods if need else ()))
    return next((short[owner.uid] for owner in owners if owner and owner.uid in short), None)


def only_its_node(snapshot: snapshots.Snapshot, pod: objects.Pod) -> bool:
    """Whether no other node takes such a pod by its labels and taints,
    also once all that are out of service are back.
    """
    for node in snapshot.nodes.values():
        if node.name != pod.node and node_affinity.selects(pod.placed, node):
            lasting = [
                taint for taint in node.taints if taint.get("key") not in node_taints.OF_MAINTENANCE
            ]
            if not node_taints.untolerated(pod.tolerations, lasting):
                return False
    return True


@dataclass(frozen=True, slots=True)
class Gap:
    """Pods whose successors fit nowhere while a wave is out, of one budget or of one
    workload without one.

    ``dark`` are the workloads of which nothing would serve.
    """

    need: readiness.Need
    plans: tuple[drain_policy.PodPlan, ...]
    dark: tuple[objects.Workload, ...]

    @property
    def bearable(self) -> bool:
        """Whether all of them may be missing until their nodes are back."""
        return len(self.plans) <= self.need.most and not self.dark


@dataclass(frozen=True, slots=True)
class Stalled:
    """Ready pods of a StatefulSet that leave with a wave, and have no successors before an
    earlier pod is Ready.

    ``why`` names that; ``bearable``: all of them may be missing until then.
    """

    workload: objects.Workload
    why: str
    plans: tuple[drain_policy.PodPlan, ...]
    bearable: bool


def stalled(snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan]) -> list[Stalled]:
    """Such pods among those of one wave. While a budget or guard allows none to leave,
    that keeps all of them.
    """
    groups: dict[str, list[drain_policy.PodPlan]] = {}
    leaving = [
        plan
        for plan in plans
        if plan.route in ("evict", "job") and plan.code in readiness.OF_SEVERAL
    ]
    for plan in leaving:
        if owner := snapshot.workload_of(plan.pod):
            groups.setdefault(owner.uid, []).append(plan)
    found = []
    for uid, group in groups.items():
        workload = t.cast("objects.Workload", snapshot.workload(uid))
        gone = {plan.pod.uid for plan in group}
        first = earlier(snapshot, workload)
        if first is None or first.uid in gone:
            continue
        behind = tuple(
            plan for plan in group if plan.pod.ready and _number(plan.pod) > _number(first)
        )
        need = readiness.need(snapshot, behind[0].pod) if behind else None
        if need is None or need.spare <= 0:
            continue
        left = any(
            pod.ready and not pod.deleting and pod.uid not in gone
            for pod in snapshot.pods_of(workload)
        )
        bearable = len(behind) <= need.spare and (left or workload.interruptible)
        found.append(Stalled(workload, _not_ready(snapshot, first), behind, bearable))
    return found


def gaps(snapshot: snapshots.Snapshot, unplaced: t.Iterable[drain_policy.PodPlan]) -> list[Gap]:
    """What is missing while these pods of one wave have no place;
    only of those that others have to serve for.
    """
    groups: dict[objects.Ref, tuple[readiness.Need, list[drain_policy.PodPlan]]] = {}
    for plan in unplaced:
        evicted = plan.route in ("evict", "job") and plan.code in readiness.OF_SEVERAL
        # It is evicted where no replacement comes to serve.
        counted = plan.pod.ready and (evicted or plan.code == replacement.FIRST)
        if counted and (need := readiness.need(snapshot, plan.pod)):
            groups.setdefault(need.object, (need, []))[1].append(plan)
    return [Gap(need, tuple(found), _dark(snapshot, found)) for need, found in groups.values()]


def _dark(
    snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan]
) -> tuple[objects.Workload, ...]:
    owners = [owner for plan in plans if (owner := snapshot.workload_of(plan.pod))]
    gone = collections.Counter(owner.uid for owner in owners)
    return tuple(
        {owner.uid: owner for owner in owners if gone[owner.uid] >= owner.replicas}.values()
    )
