# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The cluster as the scheduler would see it while pods move: nodes with their pods, indexed once
and then kept current.

Built in one pass over nodes and pods. What depends on all pods, the counts of topology spread and
pod affinity, is kept in tallies: one for each selector that was asked for,
with its matches by node.
"""

from __future__ import annotations

import json
import typing as t
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    quantities,
    selectors,
    shapes,
    snapshots,
)

# What a pod asks of a node and takes of it: resources and host ports
# (``component-helpers/resource``).


Amounts = dict[str, int]
"""By resource, as ``quantities.counted`` counts it."""
Port = tuple[str, str, int]
"""Address, protocol and number; the address ``0.0.0.0`` is every address."""

EVERYWHERE = "0.0.0.0"


def pod_requests(spec: objects.Raw, *, running: bool) -> Amounts:
    """The requests of a trimmed spec: containers and sidecars together, or the largest init
    container at its turn.

    What is said for the whole pod counts instead, and the overhead is added. ``running``: during a
    resize the larger of what is wanted, allocated and in force counts.
    """
    counted: Mapping[str, t.Any] = (spec.get("counted") or {}) if running else {}
    infeasible = bool(spec.get("infeasible"))
    total: Amounts = {}
    for container in spec.get("containers") or ():
        counts = counted.get(container["name"])
        _add(total, _effective(container.get("requests"), counts, infeasible))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        sidecar = container.get("restartPolicy") == "Always"
        counts = counted.get(container["name"]) if sidecar else None
        own = _effective(container.get("requests"), counts, infeasible)
        if sidecar:
            _add(total, own)
            _add(sidecars, own)
            own = dict(sidecars)
        else:
            _add(own, sidecars)
        for name, amount in own.items():
            peak[name] = max(peak.get(name, 0), amount)
    for name, amount in peak.items():
        total[name] = max(total.get(name, 0), amount)
    whole = (spec.get("resources") or {}).get("requests")
    if whole:
        in_force = spec.get("countedWhole") if running else None
        stated = _effective(whole, in_force, infeasible)
        for name in whole:
            if name in ("cpu", "memory") or name.startswith("hugepages-"):
                total[name] = stated[name]
    _add(total, _amounts(spec.get("overhead")))
    return {name: amount for name, amount in total.items() if amount}


def ports(spec: objects.Raw) -> tuple[Port, ...]:
    """The host ports of containers and sidecars."""
    lasting = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    return tuple(
        (port.get("hostIP") or EVERYWHERE, port.get("protocol") or "TCP", port["hostPort"])
        for container in (*lasting, *(spec.get("containers") or ()))
        for port in container.get("ports") or ()
    )


def _effective(
    wanted: objects.Raw | None, counted: t.Sequence[objects.Raw] | None, infeasible: bool
) -> Amounts:
    if not counted:
        return _amounts(wanted)
    found: Amounts = {}
    for one in (*(() if infeasible else (wanted,)), *counted):
        for name, amount in _amounts(one).items():
            found[name] = max(found.get(name, 0), amount)
    return found


def _amounts(raw: objects.Raw | None) -> Amounts:
    return {name: quantities.counted(name, text) for name, text in (raw or {}).items()}


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


PodTerms: t.TypeAlias = "tuple[tuple[frozenset[str] | None, objects.Raw | None], ...]"
"""Pairs of namespaces (``None``: all) and a label selector that a pod has to match, all of them."""


HOLDING = ("persistentVolumeClaim", "ephemeral", *shapes.DISKS, "iscsi", "rbd")
"""Kinds of volumes that decide where a pod fits; others are made on any node."""


NOW = "9"
"""After every timestamp."""


class Common:
    """The fields that pods share which are the same in all but name."""

    __slots__ = ("ports", "requests", "spec", "suiting")

    def __init__(self, spec: objects.Raw, requests: Amounts, suiting: str = "") -> None:
        self.spec = spec
        self.requests = requests
        self.suiting = suiting
        self.ports = ports(spec)


Known: t.TypeAlias = "dict[tuple[int, int, int], Common]"
"""By the ``id`` of what equal pods share; the snapshot keeps that."""


@dataclass(eq=False, slots=True)
class PodInfo:
    """A pod, on a node or to be placed, as the scheduler's ``PodInfo``; ``deleting`` pods do not
    count for topology spread.

    ``spec`` is trimmed, ``volumes`` are those of ``HOLDING``, ``requests`` and ``ports`` are what
    it takes. It started at ``since``, which is ``NOW`` before that. ``suiting`` is the same for all
    that the same nodes suit.
    """

    namespace: str
    name: str
    labels: t.Mapping[str, str]
    spec: objects.Raw
    tolerations: tuple[objects.Raw, ...]
    volumes: tuple[objects.Raw, ...]
    requests: Amounts
    ports: tuple[Port, ...]
    priority: int = 0
    deleting: bool = False
    group: str = ""
    since: str = NOW
    suiting: str = ""

    @property
    def words(self) -> str:
        return f"Pod {self.namespace}/{self.name}"

    def terms(self, kind: str) -> t.Sequence[objects.Raw]:
        """The required terms of its ``podAffinity`` or ``podAntiAffinity``."""
        affinity = (self.spec.get("affinity") or {}).get(kind) or {}
        return affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()

    @classmethod
    def of(cls, pod: objects.Pod, known: Known | None = None) -> PodInfo:
        """A pod as it runs; ``known`` is what such pods before it have in common."""
        found = {} if known is None else known
        key = (id(pod.placed), 0, 0)
        if key not in found:
            found[key] = Common(pod.placed, pod_requests(pod.placed, running=True))
        return cls._of(pod, found[key], running=True)

    @classmethod
    def successor(
        cls, pod: objects.Pod, template: objects.Raw, known: Known | None = None
    ) -> PodInfo:
        """The pod that replaces it: as it is, but with the requests of its workload's
        ``template`` (a raw pod spec).

        The template counts because a resize changes only the pod; the pod counts for the rest,
        because admission adds to the template.
        """
        found = {} if known is None else known
        key = (id(pod.placed), id(template) if template else 0, id(pod.tolerations))
        if key not in found:
            spec = cls._succeeding(pod, template)
            requests = pod_requests(spec, running=False)
            found[key] = Common(spec, requests, suiting(spec, pod.tolerations))
        return cls._of(pod, found[key], running=False)

    @staticmethod
    def _succeeding(pod: objects.Pod, template: objects.Raw) -> objects.Raw:
        spec = dict(pod.placed)
        for key in ("containers", "initContainers"):
            asked = {
                one.get("name"): (one.get("resources") or {}).get("requests")
                for one in template.get(key) or ()
            }
            if spec.get(key):
                spec[key] = [
                    {**one, "requests": asked[one["name"]]} if asked.get(one["name"]) else one
                    for one in spec[key]
                ]
        return spec

    @classmethod
    def _of(cls, pod: objects.Pod, common: Common, *, running: bool) -> PodInfo:
        return cls(
            namespace=pod.namespace,
            name=pod.name,
            labels=pod.labels,
            spec=common.spec,
            tolerations=pod.tolerations,
            volumes=tuple(
                volume for volume in pod.volumes if any(volume.get(kind) for kind in HOLDING)
            ),
            requests=common.requests,
            ports=common.ports,
            priority=pod.priority,
            deleting=running and pod.deleting,
            since=(running and pod.started) or NOW,
            suiting=common.suiting,
        )


@dataclass(eq=False, slots=True)
class NodeInfo:
    """A node with what is on it, as the scheduler's ``NodeInfo``; ``taints`` and ``closed``
    (unschedulable) are as they will be.

    ``guests`` are its pods by their ``id()``, ``mounting`` those of them that have volumes.
    """

    node: objects.Node
    taints: tuple[objects.Raw, ...]
    closed: bool
    room: Amounts
    most_pods: int
    used: Amounts = field(default_factory=dict)
    ports: Counter[Port] = field(default_factory=Counter)
    guests: dict[int, PodInfo] = field(default_factory=dict)
    mounting: dict[int, PodInfo] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def labels(self) -> t.Mapping[str, str]:
        return self.node.labels


class Domains(t.NamedTuple):
    """The domains of a topology: of each node that counts, and all of them."""

    by_node: t.Mapping[str, str]
    all: frozenset[str]


NO_DOMAINS = Domains({}, frozenset())


class Tally:
    """How many pods on each node match all of some selectors."""

    def __init__(self, wanted: PodTerms, *, living: bool) -> None:
        self.wanted = wanted
        self.living = living
        self.by_node: Counter[str] = Counter()

    def counts(self, guest: PodInfo) -> bool:
        """Whether the pod matches; with ``living``, one that is being deleted does not."""
        if self.living and guest.deleting:
            return False
        for spaces, selector in self.wanted:
            if spaces is not None and guest.namespace not in spaces:
                return False
            if not selectors.matches(selector, guest.labels):
                return False
        return True

    @property
    def hint(self) -> tuple[str, str] | None:
        """A label that every match has."""
        labels = (_label_of(selector) for _spaces, selector in self.wanted)
        return next(filter(None, labels), None)


class World:
    """All nodes and pods; ``take``, ``leave``, ``close`` and ``reopen`` change it.

    ``changed`` are the nodes that were closed or reopened, one after the other; ``by_crowd`` are
    the nodes by number of pods; ``anti`` are the pods with required anti-affinity, one of each
    group of equal terms, with their numbers by node.
    """

    def __init__(self, snapshot: snapshots.Snapshot) -> None:
        self.snapshot = snapshot
        self.places = {name: _place(node) for name, node in sorted(snapshot.nodes.items())}
        self.by_uid: dict[str, PodInfo] = {}
        self.where: dict[int, str] = {}
        self.lowest = min((pod.priority for pod in snapshot.pods if not pod.finished), default=0)
        self.changed: list[str] = []
        self.claims_used: Counter[tuple[str, str]] = Counter()
        self.by_crowd: dict[int, dict[str, NodeInfo]] = {0: dict(self.places)}
        self.anti: dict[str, tuple[PodInfo, Counter[str]]] = {}
        self._anti_by_label: dict[tuple[str, str] | None, dict[str, None]] = {}
        self.namespace_labels = {
            n["metadata"]["name"]: n["metadata"].get("labels") or {} for n in snapshot.namespaces
        }
        self._tallies: dict[str, Tally] = {}
        self._domains: dict[str, tuple[int, Domains]] = {}
        self._hinted: dict[tuple[str, str], list[Tally]] = {}
        self._unhinted: list[Tally] = []
        self._labelled: dict[tuple[str, str], dict[int, PodInfo]] = {}
        known: Known = {}
        for pod in snapshot.pods:
            if pod.node in self.places and not pod.finished:
                guest = PodInfo.of(pod, known)
                self.by_uid[pod.uid] = guest
                self.take(guest, pod.node)

    def take(self, guest: PodInfo, name: str) -> None:
        self.where[id(guest)] = name
        place = self.places[name]
        self._moved(place, 1)
        place.guests[id(guest)] = guest
        if guest.volumes:
            place.mounting[id(guest)] = guest
        self._change(guest, place, 1)
        for label in guest.labels.items():
            self._labelled.setdefault(label, {})[id(guest)] = guest

    def leave(self, guest: PodInfo) -> str | None:
        """The pod is gone; returns its node."""
        name = self.where.pop(id(guest), None)
        if name is None:
            return None
        place = self.places[name]
        self._moved(place, -1)
        del place.guests[id(guest)]
        place.mounting.pop(id(guest), None)
        self._change(guest, place, -1)
        for label in guest.labels.items():
            del self._labelled[label][id(guest)]
        return name

    def close(self, name: str) -> None:
        """The node takes no pods: as a cordon, with the taint that the node controller adds."""
        place = self.places[name]
        if not place.closed:
            place.closed = True
            place.taints = (*place.taints, {"key": UNSCHEDULABLE, "effect": "NoSchedule"})
            self.changed.append(name)

    def reopen(self, name: str, taints: tuple[objects.Raw, ...]) -> None:
        """The node takes pods again, with these taints."""
        place = self.places[name]
        place.closed = False
        place.taints = tuple(x for x in taints if x.get("key") != UNSCHEDULABLE)
        self.changed.append(name)

    def shun(self, name: str, taint: objects.Raw) -> None:
        """The node has one more taint, which keeps no pod off it."""
        place = self.places[name]
        place.taints = (*place.taints, taint)

    def domains(self, key: str, found: t.Callable[[], dict[str, str]], *, lasting: bool) -> Domains:
        """The nodes with their domain that ``found`` returns, called once for each ``key``.

        Unless it is ``lasting``, it is asked again after a node was closed or reopened.
        """
        now = 0 if lasting else len(self.changed)
        seen, known = self._domains.get(key, (-1, NO_DOMAINS))
        if seen != now:
            by_node = found()
            known = Domains(by_node, frozenset(by_node.values()))
            self._domains[key] = (now, known)
        return known

    def shunning(self, guest: PodInfo) -> list[tuple[PodInfo, Counter[str]]]:
        """Those of ``anti`` whose terms may mean the pod, by a label that a term asks for."""
        groups: dict[str, None] = {}
        for label in (None, *guest.labels.items()):
            groups |= self._anti_by_label.get(label, {})
        return [self.anti[group] for group in groups]

    def _moved(self, place: NodeInfo, step: int) -> None:
        crowd = len(place.guests)
        del self.by_crowd[crowd][place.name]
        self.by_crowd.setdefault(crowd + step, {})[place.name] = place

    def _change(self, guest: PodInfo, place: NodeInfo, step: int) -> None:
        for resource, amount in guest.requests.items():
            place.used[resource] = place.used.get(resource, 0) + step * amount
        for port in guest.ports:
            place.ports[port] += step
        for volume in guest.volumes:
            if claim := volume.get("persistentVolumeClaim"):
                self.claims_used[guest.namespace, claim["claimName"]] += step
        if terms := guest.terms("podAntiAffinity"):
            self._anti_of(guest, terms)[place.name] += step
        for tally in self._tallies_for(guest):
            if tally.counts(guest):
                tally.by_node[place.name] += step

    def _anti_of(self, guest: PodInfo, terms: t.Sequence[objects.Raw]) -> Counter[str]:
        """How many pods with the same terms as this one each node has."""
        guest.group = guest.group or key_of(guest.namespace, terms)
        if guest.group not in self.anti:
            self.anti[guest.group] = (guest, Counter())
            for term in terms:
                label = _label_of(term.get("labelSelector"))
                self._anti_by_label.setdefault(label, {})[guest.group] = None
        return self.anti[guest.group][1]

    def _tallies_for(self, guest: PodInfo) -> t.Iterator[Tally]:
        """The tallies whose ``hint`` is a label of the pod, and those without a hint."""
        for label in guest.labels.items():
            yield from self._hinted.get(label, ())
        yield from self._unhinted

    def tally(self, wanted: PodTerms, *, living: bool = False) -> Tally:
        """The count of the pods that match, current from now on."""
        pairs = [(None if spaces is None else sorted(spaces), one) for spaces, one in wanted]
        key = key_of(pairs, living)
        found = self._tallies.get(key)
        if found is None:
            found = self._tallies[key] = Tally(wanted, living=living)
            hint = found.hint
            guests: t.Iterable[PodInfo]
            if hint:
                self._hinted.setdefault(hint, []).append(found)
                guests = self._labelled.get(hint, {}).values()
            else:
                self._unhinted.append(found)
                places = self.places.values()
                guests = (guest for place in places for guest in place.guests.values())
            for guest in guests:
                if found.counts(guest):
                    found.by_node[self.where[id(guest)]] += 1
        return found

    def namespaces(self, selector: objects.Raw) -> frozenset[str] | None:
        """The namespaces that a namespace selector selects, ``None`` for all."""
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            return None
        known = self.namespace_labels.items()
        return frozenset(name for name, labels in known if selectors.matches(selector, labels))


UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_encode = json.JSONEncoder(sort_keys=True).encode


def suiting(spec: objects.Raw, tolerations: t.Sequence[objects.Raw]) -> str:
    """The same text for all that the same nodes suit."""
    return key_of(spec.get("nodeSelector"), required(spec), tolerations)


def required(spec: objects.Raw) -> objects.Raw | None:
    """Its required node affinity."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return t.cast(
        "objects.Raw | None", affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    )


def key_of(*parts: t.Any) -> str:
    """The same text for equal data."""
    return _encode(parts)


def _label_of(selector: objects.Raw | None) -> tuple[str, str] | None:
    """A label that everything has that the selector matches."""
    exact: t.Mapping[str, str] = (selector or {}).get("matchLabels") or {}
    return next(iter(exact.items()), None)


def _place(node: objects.Node) -> NodeInfo:
    room = {name: quantities.counted(name, text) for name, text in node.allocatable.items()}
    return NodeInfo(node, node.taints, node.unschedulable, room, room.get("pods", 0))


# Filters by what is left on a node: host ports, pod count,
# resources (NodePorts and NodeResourcesFit).


PORTS = "node(s) didn't have free ports for the requested pod ports"
PODS = "Too many pods"


def insufficient(resource: str) -> str:
    """The scheduler's reason for a node that has too little of it left."""
    return f"Insufficient {resource}"


def ports_taken(guest: PodInfo, place: NodeInfo) -> bool:
    """Whether a host port is in use; one on every address clashes with the same on any."""
    for address, protocol, number in guest.ports:
        for (other, used, taken), count in place.ports.items():
            clash = EVERYWHERE in (address, other) or address == other
            if count > 0 and clash and (used, taken) == (protocol, number):
                return True
    return False


def short(guest: PodInfo, place: NodeInfo) -> tuple[str, ...]:
    """Every resource that the node is short of: the scheduler names all of them."""
    found: tuple[str, ...]
    found = (PODS,) if len(place.guests) >= place.most_pods else ()
    has = place.room
    used = place.used
    for name, amount in guest.requests.items():
        if amount > has.get(name, 0) - used.get(name, 0):
            found += (insufficient(name),)
    return found


def load(guest: PodInfo, place: NodeInfo) -> float:
    """How full the node is with the pod, of CPU and memory (LeastAllocated); 0 is empty."""
    found = 0.0
    asked = guest.requests
    used = place.used
    for name in ("cpu", "memory"):
        if room := place.room.get(name):
            found += (used.get(name, 0) + asked.get(name, 0)) / room
    return round(found, 6)
