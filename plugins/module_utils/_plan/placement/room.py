# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Filters by what is left on a node: host ports, pod count, resources (NodePorts and NodeResourcesFit)."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import demands, world

PORTS = "node(s) didn't have free ports for the requested pod ports"
PODS = "Too many pods"
INSUFFICIENT = "Insufficient "


def ports_taken(guest: world.Guest, place: world.Place) -> bool:
    """Whether a host port that it wants is in use; one on every address clashes with the same on any."""
    for address, protocol, number in guest.ports:
        for (other, used, taken), count in place.ports.items():
            clash = demands.EVERYWHERE in (address, other) or address == other
            if count > 0 and clash and (used, taken) == (protocol, number):
                return True
    return False


def short(guest: world.Guest, place: world.Place) -> tuple[str, ...]:
    """Every resource that the node is short of: the scheduler names all of them."""
    found: tuple[str, ...]
    found, has, used = (PODS,) if len(place.guests) >= place.most_pods else (), place.room, place.used
    for name, amount in guest.requests.items():
        if amount > has.get(name, 0) - used.get(name, 0):
            found += (f"{INSUFFICIENT}{name}",)
    return found


def load(guest: world.Guest, place: world.Place) -> float:
    """How full the node is with the pod, of CPU and memory together (the scheduler's LeastAllocated); 0 is empty."""
    found = 0.0
    for name in ("cpu", "memory"):
        if place.room.get(name):
            found += (place.used.get(name, 0) + guest.requests.get(name, 0)) / place.room[name]
    return round(found, 6)
