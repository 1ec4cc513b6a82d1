# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Filters that look at the node alone: unschedulable, taints, node selector and node affinity.

They are the scheduler's plugins NodeUnschedulable, TaintToleration and NodeAffinity, in its order.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import node_taints, objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import world
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import scheduling

CLOSED = "node(s) were unschedulable"
TAINTED = "node(s) had untolerated taint(s)"
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
CONFLICT = "pod affinity terms conflict"

_CORDON: objects.Raw = {"key": world.UNSCHEDULABLE, "effect": "NoSchedule"}


def required(guest: world.Guest) -> objects.Raw | None:
    """Its required node affinity."""
    affinity = (guest.spec.get("affinity") or {}).get("nodeAffinity") or {}
    return t.cast("objects.Raw | None", affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))


def named(guest: world.Guest) -> frozenset[str] | None:
    """The node names that its ``matchFields`` leave, ``None`` for any: each of the ORed terms has to name some."""
    terms = (required(guest) or {}).get("nodeSelectorTerms") or ()
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


def matches(guest: world.Guest, node: objects.Node) -> bool:
    """Whether node selector and node affinity allow the node."""
    return scheduling.selects(guest.spec, node)


def reason(guest: world.Guest, place: world.Place) -> str:
    """Why the pod cannot be on the node, ``""`` if it can."""
    if place.closed and not node_taints.tolerates(guest.tolerations, _CORDON):
        return CLOSED
    if place.taints and node_taints.untolerated(guest.tolerations, place.taints):
        return TAINTED
    return "" if matches(guest, place.node) else NOT_SELECTED


def unmet(pod: objects.Pod, node: objects.Node) -> list[str]:
    """What keeps the pod off the node by itself, in words: taints, labels that it lacks; nothing of a cordon."""
    taints = node_taints.untolerated(pod.tolerations, (x for x in node.taints if x.get("key") != world.UNSCHEDULABLE))
    return [*(f"taint {node_taints.in_words(taint)}" for taint in taints), *scheduling.unmet(pod.placed, node)]


def preference(guest: world.Guest, place: world.Place) -> tuple[int, int]:
    """How little the pod wants the node: PreferNoSchedule taints that it does not tolerate, weights that do not match.

    The lower the better.
    """
    if not place.taints and not guest.spec.get("affinity"):
        return 0, 0
    taints = sum(
        1
        for taint in place.taints
        if taint.get("effect") == "PreferNoSchedule" and not node_taints.tolerates(guest.tolerations, taint)
    )
    affinity = (guest.spec.get("affinity") or {}).get("nodeAffinity") or {}
    weight = sum(
        term.get("weight", 0)
        for term in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        if scheduling.node_matches({"nodeSelectorTerms": [term.get("preference") or {}]}, place.node)
    )
    return taints, -weight
