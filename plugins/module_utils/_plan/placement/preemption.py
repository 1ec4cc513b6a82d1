# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whom the scheduler would preempt for a pod that fits nowhere (DefaultPreemption).

It spares budgets, but deletes pods against them where nothing else helps. Of equally important pods it keeps those that
have run for longer.
"""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, selectors, snapshots
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import filters, world

Budgets: t.TypeAlias = "t.Mapping[str, t.Sequence[objects.Budget]]"
"""By namespace."""

EACH = 2**31
"""What the scheduler adds to the priority of each victim before it adds them up, so that none is below 0."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """The node on which ``victims``, pods of lower priority, would be deleted for the pod.

    ``against`` counts those whose budgets do not allow it.
    """

    node: str
    victims: tuple[world.Guest, ...]
    against: int

    @property
    def cost(self) -> tuple[int, int, int, int, tuple[int, ...], str]:
        """The scheduler takes the lowest: of equal ones the node whose most important victims started last."""
        priorities = [victim.priority for victim in self.victims]
        highest, total = max(priorities), sum(one + EACH for one in priorities)
        earliest = min(victim.since for victim in self.victims if victim.priority == highest)
        return self.against, highest, total, len(priorities), tuple(-ord(one) for one in earliest), self.node


def preempted(scheduler: filters.Filters, guest: world.Guest) -> Eviction | None:
    """What would be deleted for the pod: as few against budgets, as unimportant and as few as can be.

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


def on_node(scheduler: filters.Filters, guest: world.Guest, place: world.Place, budgets: Budgets) -> Eviction | None:
    """The pods that have to leave this node; those that may stay are kept, the most important first."""
    around = scheduler.around
    lower = [other for other in place.guests.values() if other.priority < guest.priority]
    lower.sort(key=lambda one: (-one.priority, one.since, one.namespace, one.name))
    for other in lower:
        around.leave(other)
    against = _against(budgets, lower)
    victims: list[world.Guest] | None = None
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


def _against(budgets: Budgets, guests: t.Iterable[world.Guest]) -> set[int]:
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
