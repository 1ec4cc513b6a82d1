# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Filters by topology spread constraints with ``DoNotSchedule`` (PodTopologySpread)."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    node_taints,
    objects,
    selectors,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import node_rules, world

UNEVEN = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{UNEVEN} (missing required label)"


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint with the count of matching pods by domain, those of the nodes that count; none is none."""

    key: str
    skew: int
    own: int
    fewest: int
    counts: t.Mapping[str, int]


def constraints(around: world.World, guest: world.Guest) -> tuple[Constraint, ...]:
    """The pod's constraints as the cluster is now."""
    raws = [
        raw
        for raw in guest.spec.get("topologySpreadConstraints") or ()
        if raw.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
    ]
    if not raws:
        return ()
    keys = [raw["topologyKey"] for raw in raws]
    return tuple(_constraint(around, guest, raw, keys) for raw in raws)


def reason(found: t.Iterable[Constraint], place: world.Place) -> str:
    """Why the pod cannot be on the node, ``""`` if it can."""
    for one in found:
        domain = place.labels.get(one.key)
        if domain is None:
            return NO_LABEL
        if one.counts.get(domain, 0) + one.own - one.fewest > one.skew:
            return UNEVEN
    return ""


def _constraint(around: world.World, guest: world.Guest, raw: objects.Raw, keys: t.Sequence[str]) -> Constraint:
    key, selector = raw["topologyKey"], _selector(guest, raw)
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
    return Constraint(key, raw.get("maxSkew", 1), int(selectors.matches(selector, guest.labels)), fewest, counts)


def _counting(around: world.World, guest: world.Guest, raw: objects.Raw, keys: t.Sequence[str]) -> world.Domains:
    """The nodes that count, with their domain: they have the labels of all constraints, and the policies allow them."""

    def found() -> dict[str, str]:
        labelled = (place for place in around.places.values() if all(key in place.labels for key in keys))
        return {place.name: place.labels[raw["topologyKey"]] for place in labelled if _counts(guest, raw, place)}

    policies = (raw.get("nodeAffinityPolicy"), raw.get("nodeTaintsPolicy"))
    own = (guest.spec.get("nodeSelector"), node_rules.required(guest), guest.tolerations)
    lasting = raw.get("nodeTaintsPolicy", "Ignore") != "Honor"
    return around.domains(world.key_of(raw["topologyKey"], keys, policies, own), found, lasting=lasting)


def _selector(guest: world.Guest, raw: objects.Raw) -> objects.Raw | None:
    selector: objects.Raw | None = raw.get("labelSelector")
    more = {key: guest.labels[key] for key in raw.get("matchLabelKeys") or () if key in guest.labels}
    if not more or selector is None:
        return selector
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in more.items()]
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *expressions]}


def _counts(guest: world.Guest, raw: objects.Raw, place: world.Place) -> bool:
    """Whether the node is a domain's, by the constraint's two policies."""
    if raw.get("nodeAffinityPolicy", "Honor") == "Honor" and not node_rules.matches(guest, place.node):
        return False
    return raw.get("nodeTaintsPolicy", "Ignore") != "Honor" or not node_taints.untolerated(
        guest.tolerations, place.taints
    )
