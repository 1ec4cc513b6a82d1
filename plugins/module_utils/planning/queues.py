# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Pods that leave one after the other, because their budget lets only so many be missing at a time.

A budget counts pods that are Ready and not ending. So the next pod may leave when the successor of
one before is Ready: a Deployment makes that at once, a StatefulSet when the old pod is gone, and,
unless it is ``Parallel``, one after the other.
"""

from __future__ import annotations

import copy
import heapq
import re
import statistics
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    budgets,
    decoding,
    names,
    objects,
    pod_specs,
    snapshots,
    start_times,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy

# How long a pod takes to end: a range, and what is expected within it.
#
# Nothing in the API tells how long a pod took that is gone, but for a StatefulSet: it makes a pod
# again when the old one is gone, and in a rollout it ends a pod as soon as the one with the next
# higher number is available. So what is between these two moments was the end of the old pod; of
# several the median is expected.
#
# Of other pods only the limits are known: what their containers sleep before they are told to end,
# and the grace period. Most end soon after they were told. A grace period that somebody made
# shorter than the default was made so because the pods use it; of the default one,
# and of a longer one, nobody knows.


ENDS_SOON_SECONDS = 2.0
"""Seconds in which most pods are gone once their containers were told to end."""
DEFAULT_GRACE_SECONDS = 30
"""The grace period, in seconds, of pods that ask for none."""
LATE_SECONDS = 5.0
"""Seconds after its grace period in which a pod is gone, and the next one of a rollout ended."""
_NUMBERED = re.compile(r".*-(\d{1,9})")


class StopTime(t.NamedTuple):
    """Seconds from the eviction of a pod until it is gone."""

    least: float = 0.0
    expected: float = 0.0
    most: float = 0.0


def of(snapshot: snapshots.Snapshot, workload: objects.Workload | None, grace: float) -> StopTime:
    """The stop time of a pod of the workload with this grace period."""
    if taken := _in_rollouts(snapshot, workload) if workload else []:
        found = (min(taken), statistics.median(taken), max(taken))
        return StopTime(*(min(seconds, grace) for seconds in found))
    sleeps = pod_specs.sleeps(workload.pod_spec) if workload else 0.0
    soon = min(grace, ENDS_SOON_SECONDS + sleeps)
    return StopTime(soon, grace if grace < DEFAULT_GRACE_SECONDS else soon, grace)


def _in_rollouts(snapshot: snapshots.Snapshot, workload: objects.Workload) -> list[float]:
    """How long the pods took that the pods of the newest revision have replaced one by one.

    In a rollout all of them follow one another, from the highest number on. Where two do not, some
    were evicted since, or made as the StatefulSet was made or grew: then nothing is known.
    """
    if workload.kind != "StatefulSet" or workload.generation <= 1:
        return []
    numbered = {
        int(name[1]): pod
        for pod in snapshot.pods_of(workload)
        if (name := _NUMBERED.fullmatch(pod.name))
    }
    newest = numbered[max(numbered)].labels.get(names.REVISION) if numbered else None
    settles = float(workload.spec.get("minReadySeconds") or 0)
    found = []
    for number, pod in numbered.items():
        before = numbered.get(number + 1)
        if before is None or pod.labels.get(names.REVISION) != newest:
            continue
        seconds = _between(before, pod, settles)
        if not seconds:
            # Moments in objects are whole seconds.
            continue
        if not 0 < seconds <= pod.grace_seconds + LATE_SECONDS:
            return []
        found.append(seconds)
    return found


def _between(before: objects.Pod, pod: objects.Pod, settles: float) -> float | None:
    """Seconds between when one was available and the other made, or its predecessor was gone."""
    ready, made = decoding.moment(before.ready_since), decoding.moment(pod.created)
    if not before.ready or before.restarted or ready is None or made is None:
        return None
    return (made - ready).total_seconds() - settles


Bound = t.Literal["least", "expected", "most"]
"""Which of the times that a pod may take to end."""
TURN_SECONDS = 0.3
"""Seconds until a budget's status shows a Ready successor, and the next eviction is accepted."""
SERVING_SECONDS = 2.0
"""Seconds for which others have to be enough before a replaced pod ends; or minReadySeconds."""


@dataclass(frozen=True, slots=True)
class Step:
    """A pod that leaves: how long it takes to end, and its successor to be Ready, in seconds.

    ``after``: the successor comes only once the pod is gone; ``ordered``: and only once the one
    before it in its workload, with this UID, is available, ``settles`` seconds after it is Ready.
    """

    stop: float
    start: float
    after: bool = False
    ordered: str = ""
    settles: float = 0.0

    @property
    def turn(self) -> float:
        """Seconds from its eviction until the next pod of its budget may leave."""
        return (self.stop if self.after else 0.0) + self.start + TURN_SECONDS

    @property
    def lasts(self) -> float:
        """Seconds from its eviction until it is gone and its successor Ready."""
        return max(self.stop, self.turn - TURN_SECONDS)


class Played(t.NamedTuple):
    """Seconds until the last pod may leave, and until all are gone and their successors Ready."""

    waits: float
    lasts: float


def play(steps: t.Iterable[Step], allowed: int) -> Played:
    """Play all steps, with ``allowed`` pods missing at a time."""
    missing: list[float] = []
    chains: dict[str, float] = {}
    waits = lasts = 0.0
    for step in steps:
        at = heapq.heappop(missing) + TURN_SECONDS if len(missing) >= max(1, allowed) else 0.0
        gone = at + step.stop
        begins = max(gone, chains.get(step.ordered, gone)) if step.after else at
        ready = begins + step.start
        if step.ordered:
            chains[step.ordered] = ready + step.settles
        heapq.heappush(missing, ready)
        waits, lasts = max(waits, at), max(lasts, gone, ready)
    return Played(waits, lasts)


class Times:
    """How long pods take to end and start; ``balanced``: the ``load_balancer_wait`` of the call."""

    def __init__(self, snapshot: snapshots.Snapshot, balanced: float = 0.0) -> None:
        self._snapshot = snapshot
        self._balanced = balanced
        self._bound: Bound = "expected"
        self._workloads: dict[str, objects.Workload | None] = {}
        self._known: dict[str, start_times.StartTime] = {}
        self._stops: dict[tuple[str, int], StopTime] = {}

    def at(self, bound: Bound) -> Times:
        """The same, with the shortest or longest ends that are possible."""
        found = copy.copy(self)
        found._bound = bound
        return found

    def start(self, plan: drain_policy.PodPlan) -> start_times.StartTime:
        """When the pod's successor is ready, and available."""
        workload = self._workload(plan)
        if workload is None or plan.pod.finished:
            return start_times.StartTime()
        if workload.uid not in self._known:
            self._known[workload.uid] = start_times.of(self._snapshot, workload)
        return self._known[workload.uid]

    def stop(self, plan: drain_policy.PodPlan) -> float:
        """Seconds that the pod takes to end; none if it has finished."""
        if plan.pod.finished:
            return 0.0
        workload = self._workload(plan)
        ruled = plan.policy.grace(plan.pod, None)
        key = (workload.uid if workload else "", plan.pod.grace_seconds if ruled is None else ruled)
        if key not in self._stops:
            self._stops[key] = of(self._snapshot, workload, float(key[1]))
        return t.cast("float", getattr(self._stops[key], self._bound))

    def replaced(self, plan: drain_policy.PodPlan) -> float:
        """Seconds until a successor has served, and the pod has been out of its Services."""
        start = self.start(plan)
        serves = max(SERVING_SECONDS, start.available - start.ready)
        return start.ready + serves + plan.policy.balanced(self._balanced) + TURN_SECONDS

    def job(self, plan: drain_policy.PodPlan) -> float:
        """Both, one after the other, as by a PodMigrationJob."""
        return self.stop(plan) + self.start(plan).available

    def move(self, plan: drain_policy.PodPlan, settle: float) -> float | None:
        """From its turn until it is gone and its successor Ready; ``None`` if nothing moves."""
        if plan.pod.finished:
            return None
        if plan.route in ("surge", "replace"):
            starts = self.replaced(plan)
            if plan.route == "surge":
                starts = self.start(plan).available + settle
            return starts + self.stop(plan)
        if plan.route == "job":
            return self.job(plan)
        return self.step(plan).lasts if plan.route == "evict" else None

    def step(self, plan: drain_policy.PodPlan) -> Step:
        """The pod as it is evicted."""
        start = self.start(plan)
        workload = self._workload(plan)
        if workload is None or workload.kind != "StatefulSet":
            return Step(self.stop(plan), start.ready)
        ordered = workload.uid if workload.ordered else ""
        settles = start.available - start.ready
        return Step(self.stop(plan), start.ready, after=True, ordered=ordered, settles=settles)

    def _workload(self, plan: drain_policy.PodPlan) -> objects.Workload | None:
        uid = plan.pod.uid
        if uid not in self._workloads:
            self._workloads[uid] = self._snapshot.workload_of(plan.pod)
        return self._workloads[uid]


@dataclass(frozen=True, slots=True)
class Queue:
    """Pods of a wave that share what lets them leave.

    ``budget`` is that, with ``guard`` the one of ours for ``workload``; ``None`` if nothing holds
    the pods back. ``allowed`` may be missing at a time: 0 if it allows nothing at the moment, and
    the pods wait until it does.
    """

    plans: tuple[drain_policy.PodPlan, ...]
    budget: objects.Ref | None
    workload: objects.Ref | None
    allowed: int
    guard: bool = False


def queues(snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan]) -> list[Queue]:
    """The queues of the pods that are evicted, in the order of their first pods."""
    found: dict[tuple[str, ...], list[drain_policy.PodPlan]] = {}
    for plan in plans:
        if plan.route == "evict":
            found.setdefault(_shared(plan), []).append(plan)
    return [_queue(snapshot, tuple(group)) for group in found.values()]


def _shared(plan: drain_policy.PodPlan) -> tuple[str, ...]:
    """What the pod queues with: its budget, or the guard of its workload, else nothing."""
    if plan.guarded and plan.workload:
        return "guard", plan.workload.uid
    budget = _budget(plan)
    return ("budget", budget.namespace, budget.name) if budget else ("pod", plan.pod.uid)


def _budget(plan: drain_policy.PodPlan) -> objects.Ref | None:
    """The budget that may hold the pod back; one that is not Ready takes nothing of it."""
    return next(iter(plan.budgets), None) if plan.pod.ready else None


def _queue(snapshot: snapshots.Snapshot, plans: tuple[drain_policy.PodPlan, ...]) -> Queue:
    first = plans[0]
    if first.guarded and first.workload:
        name = names.guard_name(first.workload.uid)
        space = first.pod.namespace
        guard = objects.Ref("PodDisruptionBudget", name, space, api_version="policy/v1")
        allowed = 0 if guard_spent(snapshot, first) else 1
        return Queue(plans, guard, first.workload, allowed, guard=True)
    if ref := _budget(first):
        verdict = budgets.diagnose(snapshot, first.pod)
        budget = snapshot.budget(ref.namespace, ref.name)
        allowed = budget.allowed if budget and verdict.allowed else 0
        return Queue(plans, ref, first.workload, allowed)
    return Queue(plans, None, first.workload, len(plans))


def guard_spent(snapshot: snapshots.Snapshot, plan: drain_policy.PodPlan) -> str:
    """Why a guard (``maxUnavailable: 1``) would not allow the pod's eviction now, or empty.

    One of its workload is missing already. A pod that is not Ready may go (``AlwaysAllow``).
    """
    workload = snapshot.workload_of(plan.pod)
    if not plan.guarded or workload is None or not plan.pod.ready:
        return ""
    ready = sum(1 for pod in snapshot.pods_of(workload) if pod.ready and not pod.deleting)
    if ready >= workload.replicas:
        return ""
    return f"{workload.ref} has {ready} of {workload.replicas} pods ready"
