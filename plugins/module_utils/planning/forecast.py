# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Where the pods of a maintenance go, one after the other: each takes its room
before the next is placed.

While a wave is out its nodes take no pods; nodes that wait for their turn do. A pod that is evicted
leaves before its successor comes, one that is surged after; a wave begins with its surges. The
choice among several nodes follows the scheduler's scores: preferences first, then the emptiest
node, then the name; the real one draws lots between equals.
"""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    objects,
    selectors,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    devices,
    other_runs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    filters,
    storage,
    world,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy

# Whom the scheduler would preempt for a pod that fits nowhere (DefaultPreemption).
#
# It spares budgets, but deletes pods against them where nothing else helps. Of equally important
# pods it keeps those that have run for longer.


Budgets: t.TypeAlias = "t.Mapping[str, t.Sequence[objects.Budget]]"
"""By namespace."""

EACH = 2**31
"""What the scheduler adds to the priority of each victim, so that none is below 0."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """The node on which ``victims``, pods of lower priority, would be deleted for the pod.

    ``against`` counts those whose budgets do not allow it.
    """

    node: str
    victims: tuple[world.PodInfo, ...]
    against: int

    @property
    def cost(self) -> tuple[int, int, int, int, tuple[int, ...], str]:
        """The scheduler takes the lowest; of equals, whose most important victims started last."""
        priorities = [victim.priority for victim in self.victims]
        highest = max(priorities)
        total = sum(one + EACH for one in priorities)
        earliest = min(victim.since for victim in self.victims if victim.priority == highest)
        latest_first = tuple(-ord(one) for one in earliest)
        return self.against, highest, total, len(priorities), latest_first, self.node


def preempted(scheduler: filters.Filters, guest: world.PodInfo) -> Eviction | None:
    """What would be deleted for the pod: as few against budgets,
    as unimportant and as few as can be.

    ``None`` if that does not help.
    """
    around = scheduler.around
    if guest.priority <= around.lowest:
        return None
    if guest.spec.get("preemptionPolicy") == "Never" or scheduler.look(guest).refusal:
        return None
    budgets = by_namespace(around.snapshot)
    found = (
        on_node(scheduler, guest, place, budgets)
        for place in list(scheduler.by_itself(guest)[1].values())
        if any(other.priority < guest.priority for other in place.guests.values())
    )
    return min((one for one in found if one), key=lambda one: one.cost, default=None)


def by_namespace(snapshot: snapshots.Snapshot) -> Budgets:
    """The budgets that are spared."""
    found: dict[str, list[objects.Budget]] = {}
    for budget in snapshot.budgets:
        found.setdefault(budget.namespace, []).append(budget)
    return found


def on_node(
    scheduler: filters.Filters, guest: world.PodInfo, place: world.NodeInfo, budgets: Budgets
) -> Eviction | None:
    """The pods that have to leave this node; the most important ones are kept if they may."""
    around = scheduler.around
    lower = [other for other in place.guests.values() if other.priority < guest.priority]
    lower.sort(key=lambda one: (-one.priority, one.since, one.namespace, one.name))
    for other in lower:
        around.leave(other)
    against = _against(budgets, lower)
    victims: list[world.PodInfo] | None = None
    if not scheduler.look(guest).reasons(place):
        victims = []
        for other in sorted(lower, key=lambda one: id(one) not in against):
            around.take(other, place.name)
            if scheduler.look(guest).reasons(place):
                around.leave(other)
                victims.append(other)
    gone = {id(other) for other in victims or ()}
    for other in lower:
        if id(other) in gone or victims is None:
            around.take(other, place.name)
    if not victims:
        return None
    return Eviction(place.name, tuple(victims), sum(id(victim) in against for victim in victims))


def _against(budgets: Budgets, guests: t.Iterable[world.PodInfo]) -> set[int]:
    """Those of the pods that their budgets do not let go together with the ones before them."""
    gone: collections.Counter[str] = collections.Counter()
    found = set()
    for guest in guests:
        for budget in budgets.get(guest.namespace, ()):
            selects = budget.selector and selectors.matches(budget.selector, guest.labels)
            if selects and guest.name not in budget.disrupted:
                gone[budget.uid] += 1
                if gone[budget.uid] > budget.allowed:
                    found.add(id(guest))
    return found


DEFAULT_SCHEDULER = "default-scheduler"
BEFORE = frozenset({"surge", "replace", "job"})
"""Routes on which the successor comes before the pod leaves."""
MANY, SCORED = 100, 10
"""Beyond ``MANY`` nodes the best is chosen among the ``SCORED`` emptiest that take the pod: in
large clusters the scheduler does not score all of them either.
"""
MOST_LOOKS = 5_000_000
"""How often pods are held against nodes at most, about half a minute."""
BY_OTHERS = frozenset({filters.NO_COMPANY, filters.BAD_COMPANY, filters.UNWELCOME, filters.UNEVEN})
"""Reasons that may go when other pods of the wave are placed, or have left."""
TOO_MUCH = (
    "too many pods fit nowhere, or wait for the room of others, to go on. "
    "Plan fewer nodes at a time."
)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Where a pod's successor goes: ``fits`` is ``None`` if that is not forecast,
    and ``text`` says why.

    If it fits nowhere, ``reasons`` are numbers of nodes by reason, and ``text`` is the scheduler's
    message. ``first``: it would fit if it were placed before the other pods of its wave.
    ``victims`` would be preempted for it, ``starved`` are those of them that fit nowhere else.
    ``scheduler`` is one that decides by rules of its own.
    """

    fits: bool | None = None
    target: str | None = None
    text: str = ""
    reasons: t.Mapping[str, int] | None = None
    first: bool = False
    victims: tuple[str, ...] = ()
    starved: tuple[str, ...] = ()
    scheduler: str = ""


def not_forecast(why: str) -> Forecast:
    """The forecast of a pod whose place cannot be known."""
    return Forecast(text=f"Not forecast: {why}")


def forecasts(
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[drain_policy.PodPlan],
    waves: t.Iterable[t.Collection[str]],
    *,
    stay_out: bool = False,
    with_volumes: bool = True,
) -> dict[str, Forecast]:
    """The forecast of each pod that moves, by UID; ``stay_out``:
    the nodes do not come back after their wave.

    What replaces a pod that has finished is there already, or never comes.
    Without ``with_volumes`` the snapshot lacks what the volumes of pods need.
    """
    moving = [
        plan
        for plan in plans
        if plan.route in drain_policy.MOVING and plan.workload and not plan.pod.finished
    ]
    if not moving:
        return {}
    return Sequence(snapshot, with_volumes=with_volumes).roll(moving, waves, stay_out=stay_out)


def place(
    scheduler: filters.Filters, guest: world.PodInfo
) -> tuple[str | None, filters.Answer | None]:
    """The node for the pod, which takes its room there, or the answer if no node can take it."""
    look = scheduler.look(guest)
    best: tuple[t.Any, ...] | None = None
    if not look.refusal:
        scored = 0
        most = SCORED if len(scheduler.around.places) > MANY else MANY
        for spot in _from_the_emptiest(scheduler, guest):
            if look.reasons(spot):
                continue
            score = (*filters.preference(guest, spot), world.load(guest, spot), spot.name)
            best = score if best is None else min(best, score)
            scored += 1
            if scored >= most:
                break
    if best is None:
        return None, scheduler.answer(guest)
    scheduler.around.take(guest, best[-1])
    return best[-1], None


def _from_the_emptiest(
    scheduler: filters.Filters, guest: world.PodInfo
) -> t.Iterator[world.NodeInfo]:
    places = scheduler.by_itself(guest)[1]
    by_crowd = scheduler.around.by_crowd
    return (
        spot
        for crowd in sorted(by_crowd)
        for name, spot in by_crowd[crowd].items()
        if name in places
    )


class Sequence:
    """The cluster while wave after wave goes out and comes back."""

    def __init__(self, snapshot: snapshots.Snapshot, *, with_volumes: bool = True) -> None:
        self.snapshot = snapshot
        self.with_volumes = with_volumes
        self.around = world.World(snapshot)
        self.scheduler = filters.Filters(self.around)
        self.placed: list[tuple[world.PodInfo, str]] = []
        self.known: world.Known = {}
        self.unserved = unserved(snapshot)
        self.by_devices = devices.served(snapshot)

    def roll(
        self,
        moving: t.Iterable[drain_policy.PodPlan],
        waves: t.Iterable[t.Collection[str]],
        *,
        stay_out: bool = False,
    ) -> dict[str, Forecast]:
        """The forecasts by UID; within a wave in the order of the plans, surged pods first."""
        found: dict[str, Forecast] = {}
        waves = list(waves)
        self.wait(name for wave in waves[1:] for name in wave)
        for wave, leaving in drain_policy.by_wave(moving, waves):
            self.out(wave)
            surges = [plan for plan in leaving if plan.route == "surge"]
            found |= self._moved(surges)
            # A surge that may be an interruption instead is evicted with the others.
            allowed = [
                replace(plan, route="evict") for plan in surges if plan.interruption == "allowed"
            ]
            late = [plan for plan in allowed if found[plan.pod.uid].fits is False]
            found |= self._moved([*late, *(plan for plan in leaving if plan.route != "surge")])
            if not stay_out:
                self.back(wave)
        return found

    def _moved(self, plans: t.Iterable[drain_policy.PodPlan]) -> dict[str, Forecast]:
        """The forecasts by UID; a pod that waits for what others do is tried again."""
        found: dict[str, Forecast] = {}
        waiting = list(plans)
        before = -1
        while waiting and len(waiting) != before:
            before = len(waiting)
            refused = []
            for plan in waiting:
                one = self.move(plan)
                if one.fits is not None or plan.pod.uid not in found:
                    found[plan.pod.uid] = one
                if one.fits is False and not BY_OTHERS.isdisjoint(one.reasons or ()):
                    refused.append(plan)
            waiting = refused
        return found

    def wait(self, nodes: t.Iterable[str]) -> None:
        """Pods prefer other nodes."""
        for name in nodes:
            if name in self.around.places:
                self.around.shun(name, {"key": names.WAITING, "effect": "PreferNoSchedule"})

    def out(self, wave: t.Collection[str]) -> None:
        self.placed = []
        for name in wave:
            if name in self.around.places:
                self.around.close(name)

    def back(self, wave: t.Collection[str]) -> None:
        for name in wave:
            node = self.snapshot.nodes.get(name)
            # Somebody else's cordon stays.
            if node is not None and (not node.unschedulable or other_runs.recorded(node)):
                self.around.reopen(
                    name, tuple(x for x in node.taints if x.get("key") != names.TAINT_KEY)
                )

    def move(self, plan: drain_policy.PodPlan) -> Forecast:
        pod = plan.pod
        template = _template(self.snapshot, pod)
        unknown = unforeseen(pod, template, self.unserved) or self._unknown(pod)
        old = self.around.by_uid.get(pod.uid)
        if unknown is not None:
            if old is not None:
                self.around.leave(old)
            return unknown
        guest = world.PodInfo.successor(pod, template, self.known)
        if old is not None and plan.route not in BEFORE:
            self.around.leave(old)
        found = self._placed(guest)
        if old is not None and found.fits:
            self.around.leave(old)
        return found

    def _unknown(self, pod: objects.Pod) -> Forecast | None:
        if self.scheduler.looks > MOST_LOOKS:
            return not_forecast(TOO_MUCH)
        if pod.attaches and not self.with_volumes:
            return not_forecast("these credentials may not list csinodes and storageclasses.")
        if not self.snapshot.namespaces and '"namespaceSelector"' in world.key_of(pod.placed):
            return not_forecast(
                "these credentials may not list namespaces, which its rules select."
            )
        return None

    def _placed(self, guest: world.PodInfo) -> Forecast:
        target, answer = place(self.scheduler, guest)
        if answer is None and target is not None:
            self.placed.append((guest, target))
            if driver := storage.provisioner(self.scheduler.storage, guest):
                return not_forecast(f"whether {driver} has storage left for its new volume.")
            return Forecast(fits=True, target=target)
        if answer is None:
            return Forecast()
        lacking = [name for name in self.by_devices if world.insufficient(name) in answer.reasons]
        if lacking:
            return not_forecast(
                f"devices may serve {', '.join(sorted(lacking))} where nodes do not."
            )
        eviction = preempted(self.scheduler, guest)
        if eviction is None:
            return Forecast(False, None, answer.text, answer.reasons, first=self._first(guest))
        for victim in eviction.victims:
            self.around.leave(victim)
        self.around.take(guest, eviction.node)
        self.placed.append((guest, eviction.node))
        starved = [
            victim.words for victim in eviction.victims if place(self.scheduler, victim)[0] is None
        ]
        victims = tuple(victim.words for victim in eviction.victims)
        return Forecast(
            True,
            eviction.node,
            answer.text,
            answer.reasons,
            victims=victims,
            starved=tuple(starved),
        )

    def _first(self, guest: world.PodInfo) -> bool:
        """Whether it would fit without the pods that were placed before it in this wave."""
        for other, _name in self.placed:
            self.around.leave(other)
        fits = bool(self.placed) and bool(self.scheduler.answer(guest).nodes)
        for other, name in self.placed:
            self.around.take(other, name)
        return fits


def _template(snapshot: snapshots.Snapshot, pod: objects.Pod) -> objects.Raw:
    workload = snapshot.workload_of(pod)
    return workload.pod_spec if workload else {}


def unserved(snapshot: snapshots.Snapshot) -> dict[str, str]:
    """Scheduler names that nobody serves, each with a pod that no scheduler has looked at.

    Of a pod with a gate the API server itself says that it is not scheduled.
    """
    free = [pod for pod in snapshot.pods if not pod.placed.get("schedulingGates")]
    served = {pod.scheduler for pod in snapshot.pods if pod.node}
    served |= {pod.scheduler for pod in free if pod.looked_at}
    waiting = (pod for pod in free if not (pod.node or pod.looked_at or pod.finished))
    return {pod.scheduler: str(pod.ref) for pod in waiting if pod.scheduler not in served}


def unforeseen(
    pod: objects.Pod, template: objects.Raw, idle: t.Mapping[str, str]
) -> Forecast | None:
    """What is said of a pod that the default scheduler does not place; ``idle``: ``unserved``."""
    scheduler = template.get("schedulerName") or pod.scheduler or DEFAULT_SCHEDULER
    if scheduler in idle:
        text = (
            f"No scheduler serves the name {scheduler}: none has looked at {idle[scheduler]} yet."
        )
        return Forecast(fits=False, text=text)
    if scheduler != DEFAULT_SCHEDULER:
        unknown = not_forecast(f"the scheduler {scheduler} decides by rules of its own.")
        return replace(unknown, scheduler=scheduler)
    if gates := template.get("schedulingGates"):
        listed = ", ".join(gate.get("name", "") for gate in gates)
        return not_forecast(
            f"its successor waits until somebody removes the scheduling gate {listed}."
        )
    if template.get("nodeName"):
        return not_forecast(f"its workload names the node {template['nodeName']} itself.")
    if pod.device_claims or pod.placed.get("resourceClaims"):
        return not_forecast("it needs devices by resource claims.")
    if declared := pod.placed.get("declared"):
        return not_forecast(f"which nodes declare what it needs ({', '.join(declared)}).")
    if pod.group:
        return not_forecast(
            f"it is scheduled together with the other pods of PodGroup {pod.group}."
        )
    return None
