# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Where a pod fits now, in the words and the order of the default scheduler."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    node_affinity,
    node_taints,
    objects,
    selectors,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    storage,
    world,
)

# Filters by pod affinity and anti-affinity, of the pod and of those that run (InterPodAffinity).


NO_COMPANY = "node(s) didn't match pod affinity rules"
BAD_COMPANY = "node(s) didn't match pod anti-affinity rules"
UNWELCOME = "node(s) didn't satisfy existing pods anti-affinity rules"

Domains = Counter[tuple[str, str]]
"""How many pods count in each domain: a label of nodes with its value."""


@dataclass(frozen=True, slots=True)
class Company:
    """``wanted`` and ``shunned`` are the topology keys of the pod's terms; ``first``:
    it may be the first of its kind.

    ``unwelcome`` are the domains of pods that keep it away, with the labels that name them.
    """

    wanted: tuple[str, ...]
    near: Domains
    first: bool
    shunned: tuple[str, ...]
    bad: Domains
    unwelcome: Domains


def company(around: world.World, guest: world.PodInfo) -> Company | None:
    """What the pods of the cluster mean for this one, as they are now; ``None`` for nothing."""
    wanted, shunned = guest.terms("podAffinity"), guest.terms("podAntiAffinity")
    shunning = around.shunning(guest)
    if not (wanted or shunned or shunning):
        return None
    near: Domains = Counter()
    first = False
    if wanted:
        pairs = tuple(_wanted(around, guest.namespace, term) for term in wanted)
        tally = around.tally(pairs)
        for term in wanted:
            _count(around, near, tally.by_node, term["topologyKey"])
        first = not near and tally.counts(guest)
    bad: Domains = Counter()
    for term in shunned:
        tally = around.tally((_wanted(around, guest.namespace, term),))
        _count(around, bad, tally.by_node, term["topologyKey"])
    unwelcome: Domains = Counter()
    for example, by_node in shunning:
        for term in example.terms("podAntiAffinity"):
            if _covers(around, example.namespace, term, guest):
                _count(around, unwelcome, by_node, term["topologyKey"])
    if not (wanted or shunned or unwelcome):
        return None
    keys = [tuple(term["topologyKey"] for term in terms) for terms in (wanted, shunned)]
    return Company(keys[0], near, first, keys[1], bad, unwelcome)


def affinity_reason(found: Company, place: world.NodeInfo) -> str:
    """Why the pod cannot be on the node, ``""`` if it can."""
    if found.wanted:
        domains = [(key, place.labels.get(key)) for key in found.wanted]
        if any(value is None for _key, value in domains):
            return NO_COMPANY
        if not found.first and any(
            found.near.get((key, value or ""), 0) <= 0 for key, value in domains
        ):
            return NO_COMPANY
    if _within(found.bad, found.shunned, place):
        return BAD_COMPANY
    unwelcome = {key for key, _value in found.unwelcome}
    return UNWELCOME if _within(found.unwelcome, unwelcome, place) else ""


def _within(domains: Domains, keys: t.Iterable[str], place: world.NodeInfo) -> bool:
    return any(domains.get((key, place.labels[key]), 0) > 0 for key in keys if key in place.labels)


def _count(around: world.World, domains: Domains, by_node: t.Mapping[str, int], key: str) -> None:
    for name, count in by_node.items():
        value = around.places[name].labels.get(key)
        if count and value is not None:
            domains[key, value] += count


def _wanted(
    around: world.World, namespace: str, term: objects.Raw
) -> tuple[frozenset[str] | None, objects.Raw | None]:
    """The namespaces and the selector of a term; without any namespaces the pod's own counts."""
    listed = term.get("namespaces") or ()
    selector = term.get("namespaceSelector")
    if selector is None:
        return frozenset(listed or (namespace,)), term.get("labelSelector")
    more = around.namespaces(selector)
    return None if more is None else more | set(listed), term.get("labelSelector")


def _covers(around: world.World, namespace: str, term: objects.Raw, guest: world.PodInfo) -> bool:
    spaces, selector = _wanted(around, namespace, term)
    return (spaces is None or guest.namespace in spaces) and selectors.matches(
        selector, guest.labels
    )


# Filters that look at the node alone: unschedulable, taints, node selector and node affinity.
#
# They are the scheduler's plugins NodeUnschedulable,
# TaintToleration and NodeAffinity, in its order.


CLOSED = "node(s) were unschedulable"
TAINTED = "node(s) had untolerated taint(s)"
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
CONFLICT = "pod affinity terms conflict"

_CORDON: objects.Raw = {"key": world.UNSCHEDULABLE, "effect": "NoSchedule"}


def nodes_named(guest: world.PodInfo) -> frozenset[str] | None:
    """Node names that ``matchFields`` leave, ``None`` for any: each ORed term has to name some."""
    terms = (world.required(guest.spec) or {}).get("nodeSelectorTerms") or ()
    found: set[str] = set()
    for term in terms:
        mine: set[str] | None = None
        for requirement in term.get("matchFields") or ():
            if requirement.get("key") == "metadata.name" and requirement.get("operator") == "In":
                values = set(requirement.get("values") or ())
                mine = values if mine is None else mine & values
        if mine is None:
            return None
        found |= mine
    return frozenset(found) if terms else None


def node_reason(guest: world.PodInfo, place: world.NodeInfo) -> str:
    """Why the pod cannot be on the node, ``""`` if it can."""
    if place.closed and not node_taints.tolerates(guest.tolerations, _CORDON):
        return CLOSED
    if place.taints and node_taints.untolerated(guest.tolerations, place.taints):
        return TAINTED
    return "" if node_affinity.selects(guest.spec, place.node) else NOT_SELECTED


def unmet(pod: objects.Pod, node: objects.Node) -> list[str]:
    """What keeps the pod off the node by itself, in words; nothing of a cordon."""
    taints = node_taints.untolerated(
        pod.tolerations, (x for x in node.taints if x.get("key") != world.UNSCHEDULABLE)
    )
    return [
        *(f"taint {node_taints.in_words(taint)}" for taint in taints),
        *node_affinity.unmet(pod.placed, node),
    ]


def preference(guest: world.PodInfo, place: world.NodeInfo) -> tuple[int, int]:
    """How little the pod wants the node: PreferNoSchedule taints that it does not tolerate,
    weights that do not match.

    The lower the better.
    """
    taints = weight = 0
    for taint in place.taints:
        soft = taint.get("effect") == "PreferNoSchedule"
        if soft and not node_taints.tolerates(guest.tolerations, taint):
            taints += 1
    affinity = (guest.spec.get("affinity") or {}).get("nodeAffinity") or {}
    for term in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
        preferred = {"nodeSelectorTerms": [term.get("preference") or {}]}
        if node_affinity.node_matches(preferred, place.node):
            weight += term.get("weight", 0)
    return taints, -weight


# Filters by topology spread constraints with ``DoNotSchedule`` (PodTopologySpread).


HARD = "DoNotSchedule"
UNEVEN = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{UNEVEN} (missing required label)"


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint with the count of matching pods by domain."""

    key: str
    skew: int
    own: int
    fewest: int
    counts: t.Mapping[str, int]


def constraints(around: world.World, guest: world.PodInfo) -> tuple[Constraint, ...]:
    """The pod's constraints as the cluster is now."""
    every = guest.spec.get("topologySpreadConstraints") or ()
    raws = [raw for raw in every if raw.get("whenUnsatisfiable", HARD) == HARD]
    if not raws:
        return ()
    keys = [raw["topologyKey"] for raw in raws]
    return tuple(_constraint(around, guest, raw, keys) for raw in raws)


def spread_reason(found: t.Iterable[Constraint], place: world.NodeInfo) -> str:
    """Why the pod cannot be on the node, ``""`` if it can."""
    for one in found:
        domain = place.labels.get(one.key)
        if domain is None:
            return NO_LABEL
        if one.counts.get(domain, 0) + one.own - one.fewest > one.skew:
            return UNEVEN
    return ""


def _constraint(
    around: world.World, guest: world.PodInfo, raw: objects.Raw, keys: t.Sequence[str]
) -> Constraint:
    key = raw["topologyKey"]
    selector = _selector(guest, raw)
    counting = _counting(around, guest, raw, keys)
    counts: Counter[str] = Counter()
    if selector is not None and (selector.get("matchLabels") or selector.get("matchExpressions")):
        # A selector that selects everything counts nothing (countPodsMatchSelector).
        tally = around.tally(((frozenset({guest.namespace}), selector),), living=True)
        for name, count in tally.by_node.items():
            if count and name in counting.by_node:
                counts[counting.by_node[name]] += count
    fewest = min(counts.values(), default=2**31 - 1)
    if len(counts) < len(counting.all) or len(counting.all) < (raw.get("minDomains") or 1):
        fewest = 0
    return Constraint(
        key, raw.get("maxSkew", 1), int(selectors.matches(selector, guest.labels)), fewest, counts
    )


def _counting(
    around: world.World, guest: world.PodInfo, raw: objects.Raw, keys: t.Sequence[str]
) -> world.Domains:
    """The nodes that count, with their domain: by labels of all constraints, and policies."""

    def found() -> dict[str, str]:
        return {
            place.name: place.labels[raw["topologyKey"]]
            for place in around.places.values()
            if all(key in place.labels for key in keys) and _counts(guest, raw, place)
        }

    policies = (raw.get("nodeAffinityPolicy"), raw.get("nodeTaintsPolicy"))
    own = guest.suiting or world.suiting(guest.spec, guest.tolerations)
    lasting = raw.get("nodeTaintsPolicy", "Ignore") != "Honor"
    key = world.key_of(raw["topologyKey"], keys, policies, own)
    return around.domains(key, found, lasting=lasting)


def _selector(guest: world.PodInfo, raw: objects.Raw) -> objects.Raw | None:
    selector: objects.Raw | None = raw.get("labelSelector")
    keys = raw.get("matchLabelKeys") or ()
    more = {key: guest.labels[key] for key in keys if key in guest.labels}
    if not more or selector is None:
        return selector
    expressions = [*(selector.get("matchExpressions") or ())]
    expressions += [{"key": key, "operator": "In", "values": [more[key]]} for key in more]
    return {**selector, "matchExpressions": expressions}


def _counts(guest: world.PodInfo, raw: objects.Raw, place: world.NodeInfo) -> bool:
    """Whether the node is a domain's, by the constraint's two policies."""
    chosen = raw.get("nodeAffinityPolicy", "Honor") == "Honor"
    if chosen and not node_affinity.selects(guest.spec, place.node):
        return False
    tainted = raw.get("nodeTaintsPolicy", "Ignore") == "Honor"
    return not (tainted and node_taints.untolerated(guest.tolerations, place.taints))


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
        message = f"0/{self.total} nodes are available:"
        if self.refusal:
            return f"{message} {self.refusal}."
        counted = sorted(f"{count} {reason}" for reason, count in self.reasons.items())
        return f"{message} {', '.join(counted)}." if counted else message


@dataclass(slots=True)
class _Suiting:
    """For equal pods: reasons by node of what the nodes are by themselves,
    and the places that are left.

    They are as after the first ``seen`` changes of nodes.
    """

    seen: int = 0
    reasons: dict[str, str] = field(default_factory=dict)
    places: dict[str, world.NodeInfo] = field(default_factory=dict)


class Filters:
    """The scheduler's filters over a world; what a pod's nodes have of their own is computed
    once for equal pods.

    ``looks`` counts how often a pod was held against a node: what a forecast costs.
    """

    def __init__(self, around: world.World) -> None:
        self.around = around
        self.storage = storage.Storage(around.snapshot)
        self.looks = 0
        self._suiting: dict[str, _Suiting] = {}

    def answer(self, guest: world.PodInfo) -> Answer:
        total = len(self.around.places)
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
        return Answer(tuple(sorted(nodes)), dict(counts), total)

    def look(self, guest: world.PodInfo) -> Look:
        named = nodes_named(guest)
        if named is not None and not named:
            return Look(self, guest, refusal=CONFLICT)
        needs = storage.NOTHING
        if guest.volumes:
            needs = storage.needs(self.storage, self.around, guest)
        if needs.refusal:
            return Look(self, guest, refusal=needs.refusal)
        spread = constraints(self.around, guest)
        others = company(self.around, guest)
        return Look(self, guest, needs=needs, spread=spread, company=others)

    def by_itself(
        self, guest: world.PodInfo
    ) -> tuple[t.Mapping[str, str], t.Mapping[str, world.NodeInfo]]:
        """Reasons by node of what the nodes are by themselves, and the places that are left."""
        around = self.around
        key = guest.suiting or world.suiting(guest.spec, guest.tolerations)
        found = self._suiting.get(key)
        again: t.Iterable[str]
        if found is None:
            found = self._suiting.setdefault(key, _Suiting())
            again = around.places
        else:
            again = dict.fromkeys(around.changed[found.seen :])
        found.seen = len(around.changed)
        named = nodes_named(guest)
        for name in again:
            place = around.places[name]
            why = node_reason(guest, place)
            if named is not None and name not in named:
                why = NOT_NAMED
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
    guest: world.PodInfo
    refusal: str = ""
    needs: storage.Needs = storage.NOTHING
    spread: tuple[Constraint, ...] = ()
    company: Company | None = None

    def reasons(self, place: world.NodeInfo) -> tuple[str, ...]:
        """Why the pod cannot be on a node that suits it by itself; empty if it can."""
        guest = self.guest
        self.filters.looks += 1
        if guest.ports and world.ports_taken(guest, place):
            return (world.PORTS,)
        if short := world.short(guest, place):
            return short
        if guest.volumes and (why := storage.reasons(self.filters.storage, self.needs, place)):
            return why
        if self.spread and (uneven := spread_reason(self.spread, place)):
            return (uneven,)
        if self.company and (unwanted := affinity_reason(self.company, place)):
            return (unwanted,)
        return ()
