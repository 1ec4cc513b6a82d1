# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Filters by pod affinity and anti-affinity, of the pod and of those that run (InterPodAffinity)."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import world

NO_COMPANY = "node(s) didn't match pod affinity rules"
BAD_COMPANY = "node(s) didn't match pod anti-affinity rules"
UNWELCOME = "node(s) didn't satisfy existing pods anti-affinity rules"

Domains = Counter[tuple[str, str]]
"""How many pods count in each domain: a label of nodes with its value."""


@dataclass(frozen=True, slots=True)
class Company:
    """``wanted`` and ``shunned`` are the topology keys of the pod's terms; ``first``: it may be the first of its kind.

    ``unwelcome`` are the domains of pods that keep it away, with the labels that name them.
    """

    wanted: tuple[str, ...]
    near: Domains
    first: bool
    shunned: tuple[str, ...]
    bad: Domains
    unwelcome: Domains

    def __bool__(self) -> bool:
        return bool(self.wanted or self.shunned or self.unwelcome)


def company(around: world.World, guest: world.Guest) -> Company:
    """What the pods of the cluster mean for this one, as they are now."""
    wanted, shunned = guest.terms("podAffinity"), guest.terms("podAntiAffinity")
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
        _count(around, bad, around.tally((_wanted(around, guest.namespace, term),)).by_node, term["topologyKey"])
    unwelcome: Domains = Counter()
    for example, by_node in around.shunning(guest):
        for term in example.terms("podAntiAffinity"):
            if _covers(around, example.namespace, term, guest):
                _count(around, unwelcome, by_node, term["topologyKey"])
    keys = [tuple(term["topologyKey"] for term in terms) for terms in (wanted, shunned)]
    return Company(keys[0], near, first, keys[1], bad, unwelcome)


def reason(found: Company, place: world.Place) -> str:
    """Why the pod cannot be on the node, ``""`` if it can."""
    if found.wanted:
        domains = [(key, place.labels.get(key)) for key in found.wanted]
        if any(value is None for _key, value in domains):
            return NO_COMPANY
        if not found.first and any(found.near.get((key, value or ""), 0) <= 0 for key, value in domains):
            return NO_COMPANY
    if _within(found.bad, found.shunned, place):
        return BAD_COMPANY
    return UNWELCOME if _within(found.unwelcome, {key for key, _value in found.unwelcome}, place) else ""


def _within(domains: Domains, keys: t.Iterable[str], place: world.Place) -> bool:
    return any(domains.get((key, place.labels[key]), 0) > 0 for key in keys if key in place.labels)


def _count(around: world.World, domains: Domains, by_node: t.Mapping[str, int], key: str) -> None:
    for name, count in by_node.items():
        value = around.places[name].labels.get(key)
        if count and value is not None:
            domains[key, value] += count


def _wanted(around: world.World, namespace: str, term: objects.Raw) -> tuple[frozenset[str] | None, objects.Raw | None]:
    """The namespaces and the selector of a term; without any namespaces the pod's own counts."""
    listed, selector = term.get("namespaces") or (), term.get("namespaceSelector")
    if selector is None:
        return frozenset(listed or (namespace,)), term.get("labelSelector")
    more = around.namespaces(selector)
    return None if more is None else more | set(listed), term.get("labelSelector")


def _covers(around: world.World, namespace: str, term: objects.Raw, guest: world.Guest) -> bool:
    spaces, selector = _wanted(around, namespace, term)
    return (spaces is None or guest.namespace in spaces) and selectors.matches(selector, guest.labels)
