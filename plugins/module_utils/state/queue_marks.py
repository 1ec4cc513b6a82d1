# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The taint on nodes that wait for their wave: the scheduler prefers other nodes for the pods
that leave earlier ones.

Without it, a pod that moves in one wave may land on a node of the next, and moves again (kured's
``--prefer-no-schedule-taint`` is for the same). It holds nothing up: a pod that fits nowhere else
goes there. A stored run (``run-<id>``) is the intent: the taint is set after that is stored, and
removed before that is deleted.
"""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    node_taints,
    objects,
)


def taint(run_id: str) -> objects.Raw:
    """The taint of a node that waits for its wave in this run."""
    return {"key": names.WAITING, "value": run_id, "effect": "PreferNoSchedule"}


def nodes_of(
    waves: t.Iterable[t.Collection[str]], finished: t.Collection[str] = ()
) -> tuple[str, ...]:
    """The nodes that wait while the first of these waves is maintained,
    without those that are finished already.
    """
    left = [[name for name in wave if name not in finished] for wave in waves]
    later = [wave for wave in left if wave][1:]
    return tuple(itertools.chain.from_iterable(later))


def runs_of(node: objects.Node) -> set[str]:
    """The runs whose taint the node has; at most one, as the API server tells taints
    apart by key and effect.
    """
    return {str(one.get("value") or "") for one in node.taints if one.get("key") == names.WAITING}


def set_on(node: objects.Node, run_id: str) -> api_changes.Change | None:
    """Set the taint; not on a node that is out of service, nor where another run's is."""
    if names.RECORD in node.annotations or runs_of(node):
        return None
    wanted = (*node.taints, taint(run_id))
    return _patch(node, f"Prefer other nodes to node {node.name}, which waits for its wave", wanted)


def removed_from(node: objects.Node, run_id: str) -> api_changes.Change | None:
    """Remove the run's taint."""
    wanted = without(node.taints, run_id)
    if wanted == node.taints:
        return None
    return _patch(node, f"Prefer other nodes to node {node.name} no longer", wanted)


def without(taints: tuple[objects.Raw, ...], run_id: str) -> tuple[objects.Raw, ...]:
    """The taints without the run's."""
    return tuple(
        one for one in taints if (one.get("key"), one.get("value") or "") != (names.WAITING, run_id)
    )


def _patch(
    node: objects.Node, sentence: str, taints: tuple[objects.Raw, ...]
) -> api_changes.Change:
    """A merge patch replaces the whole list: order and timeAdded of the others
    are sent back as read.
    """
    return api_changes.Change(
        "patch",
        objects.Ref("Node", node.name, uid=node.uid, api_version="v1"),
        sentence,
        body={"spec": {"taints": [dict(one) for one in taints] or None}},
        before={"taints": [node_taints.in_words(one) for one in node.taints]},
        after={"taints": [node_taints.in_words(one) for one in taints]},
        resource_version=node.resource_version,
    )
