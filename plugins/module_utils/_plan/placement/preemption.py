# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whom the scheduler would preempt for a pod that fits nowhere (DefaultPreemption, without budgets)."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import filters, world


@dataclass(frozen=True, slots=True)
class Eviction:
    """The node on which ``victims``, pods of lower priority, would be deleted for the pod."""

    node: str
    victims: tuple[world.Guest, ...]


def preempted(scheduler: filters.Filters, guest: world.Guest) -> Eviction | None:
    """What would be deleted for the pod: the least important pods, then the fewest; ``None`` if that does not help."""
    around = scheduler.around
    if guest.priority <= around.lowest:
        return None
    if guest.spec.get("preemptionPolicy") == "Never" or scheduler.look(guest).refusal:
        return None
    best: tuple[int, int, int, str] | None = None
    found: Eviction | None = None
    for place in scheduler.by_itself(guest)[1].values():
        if all(other.priority >= guest.priority for other in place.guests.values()):
            continue
        victims = _victims(scheduler, guest, place)
        if victims is None:
            continue
        cost = (max(v.priority for v in victims), sum(v.priority for v in victims), len(victims), place.name)
        if best is None or cost < best:
            best, found = cost, Eviction(place.name, victims)
    return found


def _victims(scheduler: filters.Filters, guest: world.Guest, place: world.Place) -> tuple[world.Guest, ...] | None:
    """The pods that have to leave this node; those that may stay are kept, the most important first."""
    around = scheduler.around
    lower = [other for other in place.guests.values() if other.priority < guest.priority]
    for other in lower:
        around.leave(other)
    victims: list[world.Guest] | None = None
    if not scheduler.look(guest).reasons(place):
        victims = []
        for other in sorted(lower, key=lambda one: (-one.priority, one.namespace, one.name)):
            around.take(other, place.name)
            if scheduler.look(guest).reasons(place):
                around.leave(other)
                victims.append(other)
    gone = {id(other) for other in victims or ()}
    for other in lower:
        if id(other) in gone or victims is None:
            around.take(other, place.name)
    return tuple(victims) if victims else None
