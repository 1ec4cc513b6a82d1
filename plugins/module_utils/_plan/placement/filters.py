# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Where a pod fits now: each node, or why it cannot, in the words and the order of the default scheduler."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import (
    affinity,
    node_rules,
    room,
    spread,
    storage,
    world,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """``nodes`` that can take the pod, in order of names; ``reasons`` count the others by reason.

    ``refusal`` says why no node is even looked at. ``total`` is the number of all nodes.
    """

    nodes: tuple[str, ...]
    reasons: t.Mapping[str, int]
    total: int
    refusal: str = ""

    @property
    def text(self) -> str:
        """What the scheduler's event says if no node can take it."""
        said = f"0/{self.total} nodes are available:"
        if self.refusal:
            return f"{said} {self.refusal}."
        counted = sorted(f"{count} {reason}" for reason, count in self.reasons.items())
        return f"{said} {', '.join(counted)}." if counted else said


class Filters:
    """The scheduler's filters over a world; what a pod's nodes have of their own is computed once for equal pods."""

    def __init__(self, around: world.World) -> None:
        self.around = around
        self.storage = storage.Storage(around.snapshot)
        self._own: dict[str, tuple[int, dict[str, str], list[world.Place]]] = {}

    def answer(self, guest: world.Guest) -> Answer:
        """Every node for the pod."""
        around, total = self.around, len(self.around.places)
        look = self.look(guest)
        if look.refusal:
            return Answer((), {}, total, look.refusal)
        reasons, open_places = self.by_itself(guest)
        counts = Counter(reasons.values())
        nodes = []
        for place in open_places:
            found = look.reasons(place)
            if found:
                counts.update(found)
            else:
                nodes.append(place.name)
        return Answer(tuple(nodes), dict(counts), len(around.places))

    def look(self, guest: world.Guest) -> Look:
        """What the pod needs of the pods around it, as they are now."""
        named = node_rules.named(guest)
        if named is not None and not named:
            return Look(self, guest, refusal=node_rules.CONFLICT)
        needs = storage.needs(self.storage, self.around, guest) if guest.volumes else storage.NOTHING
        if needs.refusal:
            return Look(self, guest, refusal=needs.refusal)
        return Look(
            self,
            guest,
            needs=needs,
            spread=spread.constraints(self.around, guest),
            company=affinity.company(self.around, guest),
        )

    def by_itself(self, guest: world.Guest) -> tuple[dict[str, str], list[world.Place]]:
        """Reasons by node of what the nodes are by themselves, and the places that are left."""
        spec = guest.spec
        key = world.key_of(spec.get("nodeSelector"), node_rules.required(guest), guest.tolerations)
        epoch, reasons, places = self._own.get(key, (-1, {}, []))
        if epoch != self.around.epoch:
            named = node_rules.named(guest)
            reasons, places = {}, []
            for place in self.around.places.values():
                if named is not None and place.name not in named:
                    reasons[place.name] = node_rules.NOT_NAMED
                elif why := node_rules.reason(guest, place):
                    reasons[place.name] = why
                else:
                    places.append(place)
            self._own[key] = (self.around.epoch, reasons, places)
        return reasons, places


@dataclass(frozen=True, slots=True)
class Look:
    """A pod's needs at one moment."""

    filters: Filters
    guest: world.Guest
    refusal: str = ""
    needs: storage.Needs = storage.NOTHING
    spread: tuple[spread.Constraint, ...] = ()
    company: affinity.Company | None = None

    def reasons(self, place: world.Place) -> tuple[str, ...]:
        """Why the pod cannot be on a node that suits it by itself; empty if it can."""
        guest = self.guest
        if guest.ports and room.ports_taken(guest, place):
            return (room.PORTS,)
        if short := room.short(guest, place):
            return short
        if guest.volumes and (why := storage.reasons(self.filters.storage, guest, self.needs, place)):
            return why
        if self.spread and (uneven := spread.reason(self.spread, place)):
            return (uneven,)
        if self.company and (unwanted := affinity.reason(self.company, place)):
            return (unwanted,)
        return ()
