# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The gates: whether a node that comes back may take pods.

All gates are evaluated, so that everything that is missing is reported, not just the first of it. Our own taint
and the cordon do not count: they are still there, or have just been removed.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    names,
    node_records,
    node_taints,
    objects,
    reasons,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import scheduling

Gate = t.Literal["ready", "rebooted", "daemonsets", "pressure", "stable"]
GATES: tuple[Gate, ...] = t.get_args(Gate)

PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def gates(
    snapshot: snapshots.Snapshot,
    node: objects.Node,
    record: node_records.Record | None,
    wanted: t.Collection[str],
    *,
    missing_seconds: float = 0.0,
) -> tuple[reasons.Finding, ...]:
    """What keeps the node from taking pods; empty if every wanted gate is passed.

    ``rebooted`` compares the bootID with the record's. ``daemonsets`` needs nodes, pods and DaemonSets in the
    snapshot. ``missing_seconds`` is how much longer the other gates have to hold for ``stable``.
    """
    found: list[reasons.Finding] = []
    if "ready" in wanted and not node.ready:
        status = node.conditions.get("Ready", "not reported")
        found.append(_blocker("not_ready", node, f"its condition Ready is {status}", "Check its kubelet."))
    if "rebooted" in wanted:
        found += _rebooted(node, record)
    if "pressure" in wanted:
        found += [
            _blocker("pressure", node, f"its condition {name} is True", "Free the resource, or wait.")
            for name in PRESSURES
            if node.conditions.get(name) == "True"
        ]
    if "daemonsets" in wanted:
        found += _daemon_sets(snapshot, node)
    if "stable" in wanted and not found and missing_seconds > 0:
        found.append(_blocker("unstable", node, f"the gates have to hold {missing_seconds:.0f} s longer", "Wait."))
    return tuple(found)


def runs_on(daemon_set: objects.Raw, node: objects.Node) -> bool:
    """Whether the DaemonSet keeps a pod on the node, decided as its controller does; our taint is ignored."""
    spec: objects.Raw = ((daemon_set.get("spec") or {}).get("template") or {}).get("spec") or {}
    if daemon_set["metadata"].get("deletionTimestamp") or not scheduling.selects(spec, node):
        return False
    tolerations = [*(spec.get("tolerations") or ()), *node_taints.DAEMON_TOLERATIONS]
    if spec.get("hostNetwork"):
        tolerations.append(node_taints.HOST_NETWORK_TOLERATION)
    lasting = (x for x in node.taints if x.get("key") != names.TAINT_KEY)
    return not node_taints.untolerated(tolerations, lasting)


def _rebooted(node: objects.Node, record: node_records.Record | None) -> list[reasons.Finding]:
    before = record.prior.get("bootID") if record else None
    if not before:
        why = "its bootID before the maintenance is not recorded"
        return [_blocker("not_rebooted", node, why, "Cordon it with node_cordon before it is rebooted.")]
    if node.boot_id == before:
        why = f"its bootID is still {before}: it has not been rebooted"
        return [_blocker("not_rebooted", node, why, "Reboot it, or omit the gate rebooted.")]
    return []


def _daemon_sets(snapshot: snapshots.Snapshot, node: objects.Node) -> list[reasons.Finding]:
    serving = {p.owner.uid for p in snapshot.pods_on({node.name}) if p.owner and p.ready and not p.deleting}
    found = []
    for daemon_set in snapshot.daemon_sets:
        meta = daemon_set["metadata"]
        if meta["uid"] not in serving and runs_on(daemon_set, node):
            why = f"DaemonSet {meta.get('namespace')}/{meta['name']} has no Ready pod on it"
            found.append(_blocker("daemonset_missing", node, why, "Check that pod, or wait for it."))
    return found


def _blocker(code: str, node: objects.Node, why: str, remedy: str) -> reasons.Finding:
    return reasons.Finding.of_node(node.name, code, f"Node {node.name}: {why}.", remedy)
