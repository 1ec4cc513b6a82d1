# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whether a node that is being emptied is still the node that was taken out, and still out.

What a person or another run does to the node in the meantime is their will: the drain stops for it and
leaves the node as they made it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    names,
    node_records,
    node_taints,
    objects,
    outcomes,
)

STOPPED = "No further pod of it is moved, and the node stays as they left it. To go on, take it out anew"


@dataclass(frozen=True, slots=True)
class Fallen:
    """Why the node is no longer to be emptied: its outcome, and the reason as a sentence."""

    outcome: outcomes.DrainOutcome
    message: str


def fallen(node: objects.Node | None, taken: node_records.Record) -> Fallen | None:
    """What became of the node since it was taken out with the record ``taken``; ``None`` while it is out.

    Which taints hold the node is read from its present record: both travel in one patch.
    """
    if node is None:
        return Fallen(outcomes.DrainOutcome.GONE, "it was deleted meanwhile")
    if node.uid != taken.node_uid:
        return Fallen(
            outcomes.DrainOutcome.REPLACED,
            "it was deleted, and another one is registered under its name, which was never taken out. "
            "No further pod of it is moved. To maintain the new one, start again",
        )
    try:
        record = node_records.record_of(node)
    except node_records.BadRecordError as error:
        return Fallen(outcomes.DrainOutcome.FAILED, str(error))
    if record is None:
        return Fallen(outcomes.DrainOutcome.ADOPTED_BY, "its record is gone: somebody gave the node back meanwhile")
    if record.nonce != taken.nonce:
        return Fallen(outcomes.DrainOutcome.ADOPTED_BY, "its record was taken over by another run")
    if not node.unschedulable:
        return Fallen(outcomes.DrainOutcome.UNCORDONED, f"somebody uncordoned it while it was being emptied. {STOPPED}")
    ours = [taint for taint in record.added if taint.get("key") == names.TAINT_KEY]
    if any(not any(node_taints.same_taint(taint, found) for found in node.taints) for taint in ours):
        return Fallen(
            outcomes.DrainOutcome.UNTAINTED,
            f"somebody removed our taint {names.TAINT_KEY} while it was being emptied. {STOPPED}",
        )
    return None
