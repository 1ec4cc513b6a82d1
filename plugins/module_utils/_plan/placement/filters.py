# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Where a pod fits now: each node, or why it cannot, in the words and the order of the default scheduler."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field

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
        message = f"0/{self.total} nodes are available:"
        if self.refusal:
            return f"{message} {self.refusal}."
        counted = sorted(f"{count} {reason}" for reason, count in self.reasons.items())
        return f"{message} {', '.join(counted)}." if counted else message


@dataclass(slots=True)
class _Suiting:
    """For equal pods: reasons by node of what the nodes are by themselves, and the places that are left.

    They are as after the first ``seen`` changes of nodes.
    """

    seen: int = 0
    reasons: dict[str, str] = field(default_factory=dict)
    places: dict[str, world.Place] = field(default_factory=dict)


class Filters:
    """The scheduler's filters over a world; what a pod's nodes have of their own is computed once for equal pods.

    ``looks`` counts how often a pod was held against a node: what a forecast costs.
    """

    def __init__(self, around: world.World) -> None:
        self.around = around
        self.storage = storage.Storage(around.snapshot)
        self.looks = 0
        self._suiting: dict[str, _Suiting] = {}

    def answer(self, guest: world.Guest) -> Answer:
        """Every node for the pod."""
        around, total = self.around, len(self.around.places)
        look = self.look(guest)
        if look.refusal:
            return Answer((), {}, total, look.refusal)
        reasons, open_places = self.by_itself(guest)
        counts = Counter(reasons.values())
        nodes = []
        for place in open_places.values():
            found = look.reasons(place)
            if found:
                counts.update(found)
            else:
                nodes.append(place.name)
        return Answer(tuple(sorted(nodes)), dict(counts), len(around.places))

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

    def by_itself(self, guest: world.Guest) -> tuple[t.Mapping[str, str], t.Mapping[str, world.Place]]:
        """Reasons by node of what the nodes are by themselves, and the places that are left, by name."""
        around = self.around
        key = world.key_of(guest.spec.get("nodeSelector"), node_rules.required(guest), guest.tolerations)
        found = self._suiting.get(key)
        again: t.Iterable[str]
        if found is None:
            found, again = self._suiting.setdefault(key, _Suiting()), around.places
        else:
            again = dict.fromkeys(around.changed[found.seen :])
        found.seen = len(around.changed)
        named = node_rules.named(guest)
        for name in again:
            place = around.places[name]
            why = node_rules.NOT_NAMED if named is not None and name not in named else node_rules.reason(guest, place)
            if why:
                found.reasons[name] = why
                found.places.pop(name, None)
            else:
                found.places[name] = place
                found.reasons.pop(name, None)
        return found.reasons, found.places


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
        self.filters.looks += 1
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
