# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whether a node that is being drained is still the node that was cordoned, and still cordoned.

If a person or another run changes that, they meant to: the drain stops and leaves the
node as they made it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    node_taints,
    objects,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records

STOPPED = (
    "No further pod of it is moved, and the node stays as they left it. "
    "To continue, cordon it again"
)


@dataclass(frozen=True, slots=True)
class NodeLost:
    """Why the drain of the node stops: its outcome, and the reason."""

    outcome: outcomes.DrainOutcome
    message: str


def node_lost(node: objects.Node | None, taken: node_records.Record) -> NodeLost | None:
    """Why the node is no longer as it was with the record ``taken``; ``None`` while it is.

    Its taints are compared with its present record, since both are written in one patch.
    """
    if node is None:
        return NodeLost(outcomes.DrainOutcome.GONE, "it was deleted meanwhile")
    if node.uid != taken.node_uid:
        text = "another one that was never cordoned is registered under its name"
        text = f"it was deleted, and {text}. No further pod of it is moved"
        text = f"{text}. To maintain the new one, start again"
        return NodeLost(outcomes.DrainOutcome.REPLACED, text)
    try:
        record = node_records.record_of(node)
    except node_records.BadRecordError as error:
        return NodeLost(outcomes.DrainOutcome.FAILED, str(error))
    if record is None:
        text = "its record is gone: somebody gave the node back meanwhile"
        return NodeLost(outcomes.DrainOutcome.ADOPTED_BY, text)
    if record.nonce != taken.nonce:
        text = "its record was taken over by another run"
        return NodeLost(outcomes.DrainOutcome.ADOPTED_BY, text)
    if not node.unschedulable:
        text = f"somebody uncordoned it during the drain. {STOPPED}"
        return NodeLost(outcomes.DrainOutcome.UNCORDONED, text)
    for taint in record.added:
        there = any(node_taints.same_taint(taint, found) for found in node.taints)
        if taint.get("key") == names.TAINT_KEY and not there:
            text = f"somebody removed our taint {names.TAINT_KEY} during the drain. {STOPPED}"
            return NodeLost(outcomes.DrainOutcome.UNTAINTED, text)
    return None
