# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The gates: whether a node that comes back may take pods.

All gates are evaluated, so that everything that is missing is reported, not just the first of it.
Our own taint and the cordon do not count: they are still there, or have just been removed.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    node_affinity,
    node_taints,
    objects,
    snapshots,
    unready,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records

Gate = t.Literal[
    "ready", "rebooted", "daemonsets", "pressure", "schedulable", "conditions", "stable"
]
GATES: tuple[Gate, ...] = t.get_args(Gate)
USUAL = tuple(gate for gate in GATES if gate != "rebooted")

PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
PROBLEMS = (
    *PRESSURES,
    "ContainerRuntimeProblem",
    "ContainerRuntimeUnhealthy",
    "CorruptDockerOverlay2",
    "FilesystemCorruptionProblem",
    "FrequentContainerdRestart",
    "FrequentDockerRestart",
    "FrequentKubeletRestart",
    "FrequentUnregisterNetDevice",
    "KernelDeadlock",
    "KubeletProblem",
    "KubeletUnhealthy",
    "ReadonlyFilesystem",
)
"""Conditions that are bad when True: those of Kubernetes, and those of node-problem-detector's
configurations (``config/*.json`` in its sources; as shipped by GKE and AKS).
"""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the caller knows of the nodes' state.

    * ``taints``: what will be set or removed once the gates are passed, and so holds nothing up.
    * ``conditions``: types of conditions and the status that each must have, ``True`` or ``False``.
    """

    taints: tuple[node_taints.DesiredTaint, ...] = ()
    conditions: t.Mapping[str, str] = field(default_factory=dict)


NOTHING = Expected()


def state_before(node: objects.Node) -> node_records.Prior:
    """What a record keeps of a node that is about to be cordoned, for the gates to compare with."""
    hard = [
        taint
        for taint in node.taints
        if node_taints.hard(taint) and taint.get("key") not in node_taints.OF_MAINTENANCE
    ]
    bad = [kind for kind in PROBLEMS if node.conditions.get(kind) == "True"]
    return {"taints": sorted(map(_name, hard)), "conditions": bad}


def gates(
    snapshot: snapshots.Snapshot,
    node: objects.Node,
    record: node_records.Record | None,
    wanted: t.Collection[str],
    *,
    expected: Expected = NOTHING,
    missing_seconds: float = 0.0,
) -> tuple[reasons.Finding, ...]:
    """What keeps the node from taking pods; empty if every wanted gate is passed.

    ``rebooted`` compares the bootID with the record's. ``daemonsets`` needs nodes, pods and
    DaemonSets in the snapshot. ``missing_seconds`` is how much longer the other gates have to
    hold for ``stable``.
    """
    found: list[reasons.Finding] = []
    if "ready" in wanted and not node.ready:
        why = f"its condition Ready is {node.conditions.get('Ready', 'not reported')}"
        found.append(_blocker("not_ready", node, why, "Check its kubelet."))
    if "rebooted" in wanted:
        found += _rebooted(node, record)
    for name in PRESSURES if "pressure" in wanted else ():
        if node.conditions.get(name) == "True":
            why = f"its condition {name} is True"
            found.append(_blocker("pressure", node, why, "Free the resource, or wait."))
    if "conditions" in wanted:
        of_others = PRESSURES if "pressure" in wanted else ()
        found += _conditions(node, record, of_others, expected.conditions)
    if "schedulable" in wanted:
        found += [_tainted(node, taint) for taint in _new_taints(node, record, expected)]
    if "daemonsets" in wanted:
        passing = [x for x in _new_taints(node, record, expected) if node_taints.owner_of(x["key"])]
        found += _daemon_sets(snapshot, node, record, passing)
    if "stable" in wanted and not found and missing_seconds > 0:
        why = f"the gates have to hold {missing_seconds:.0f} s longer"
        found.append(_blocker("unstable", node, why, "Wait."))
    return tuple(found)


def runs_on(
    daemon_set: objects.Raw, node: objects.Node, passing: t.Collection[objects.Raw] = ()
) -> bool:
    """Whether the DaemonSet keeps a pod on the node, decided as its controller does.

    Our taint and those that are ``passing``, which a controller sets until the node has
    started, are ignored.
    """
    spec: objects.Raw = ((daemon_set.get("spec") or {}).get("template") or {}).get("spec") or {}
    if daemon_set["metadata"].get("deletionTimestamp") or not node_affinity.selects(spec, node):
        return False
    tolerations = [*(spec.get("tolerations") or ()), *node_taints.DAEMON_TOLERATIONS]
    if spec.get("hostNetwork"):
        tolerations.append(node_taints.HOST_NETWORK_TOLERATION)
    lasting = (x for x in node.taints if x.get("key") != names.TAINT_KEY and x not in passing)
    return not node_taints.untolerated(tolerations, lasting)


def _name(taint: objects.Raw) -> str:
    """The key and the effect, by which the API server tells taints apart."""
    return f"{taint.get('key')}:{taint.get('effect')}"


def _new_taints(
    node: objects.Node, record: node_records.Record | None, expected: Expected
) -> tuple[objects.Raw, ...]:
    """The taints that keep pods away, and did not before the maintenance.

    Where the record does not say what was there before, those that a known
    controller sets for a while.
    """
    before = record.prior.get("taints") if record else None
    ours = record.added if record else ()
    found = []
    for taint in node.taints:
        if not node_taints.hard(taint) or taint.get("key") in node_taints.OF_MAINTENANCE:
            continue
        if any(node_taints.same_taint(taint, one) for one in ours):
            continue
        if any(one.means(taint) for one in expected.taints):
            continue
        known = node_taints.owner_of(taint["key"]) is None
        if before is not None:
            known = _name(taint) in before
        if not known:
            found.append(taint)
    return tuple(found)


def _tainted(node: objects.Node, taint: objects.Raw) -> reasons.Finding:
    words = node_taints.in_words(taint)
    name = _name(taint)
    owner = node_taints.owner_of(taint["key"])
    why = f"taint {words} keeps pods away, and was not there before the maintenance"
    if owner:
        return _blocker("tainted", node, f"{why}; {owner.name} sets and removes it", owner.remedy)
    remedy = (
        f"Find out who set it, then remove it: kubectl taint node {node.name} {name}-. If it is "
        f"to stay, name it in maintain_taints (taints of node_ready): {words}."
    )
    return _blocker("tainted", node, f"{why}; its owner is unknown", remedy)


def _conditions(
    node: objects.Node,
    record: node_records.Record | None,
    of_other_gates: t.Collection[str],
    wanted: t.Mapping[str, str],
) -> t.Iterator[reasons.Finding]:
    """Conditions worse than before, or not as wanted, but those ``of_other_gates``."""
    before = (record.prior.get("conditions") if record else None) or ()
    for kind in PROBLEMS:
        if kind not in (*of_other_gates, *before, *wanted) and node.conditions.get(kind) == "True":
            why = f"its condition {kind} is True, and was not before the maintenance"
            remedy = f"Check it: kubectl describe node {node.name}."
            yield _blocker("unhealthy", node, why, remedy)
    for kind, status in wanted.items():
        if (now := node.conditions.get(kind, "not reported")) != status:
            why = f"its condition {kind} is {now}, and has to be {status}"
            remedy = "Check who reports that condition, or wait for it."
            yield _blocker("unhealthy", node, why, remedy)


def _rebooted(
    node: objects.Node, record: node_records.Record | None
) -> t.Iterator[reasons.Finding]:
    before = record.prior.get("bootID") if record else None
    if not before:
        why = "its bootID before the maintenance is not recorded"
        remedy = "Cordon it with node_cordon before it is rebooted."
        yield _blocker("not_rebooted", node, why, remedy)
    elif node.boot_id == before:
        why = f"its bootID is still {before}: it has not been rebooted"
        yield _blocker("not_rebooted", node, why, "Reboot it, or omit the gate rebooted.")


def lacking_before(snapshot: snapshots.Snapshot, node: objects.Node) -> list[str]:
    """Those that lack one by themselves: on a node that was lost,
    pods are unready since then, and it is tainted.

    None where it is not known since when it is lost.
    """
    if node.ready:
        return lacking(snapshot, node)
    passing = [taint for taint in node.taints if node_taints.owner_of(taint["key"])]
    return lacking(snapshot, node, passing, node.ready_since) if node.ready_since else []


def lacking(
    snapshot: snapshots.Snapshot,
    node: objects.Node,
    passing: t.Collection[objects.Raw] = (),
    lost: str = "",
) -> list[str]:
    """The DaemonSets without a Ready pod on the node, although they run there (``runs_on``).

    Pods that became unready when the node was ``lost``, or since then, count as Ready.
    """
    serving = set()
    for pod in snapshot.pods_on({node.name}):
        if pod.owner and not pod.deleting and (pod.ready or (lost and pod.ready_since >= lost)):
            serving.add(pod.owner.uid)
    found = (one for one in snapshot.daemon_sets if one["metadata"]["uid"] not in serving)
    metas = (one["metadata"] for one in found if runs_on(one, node, passing))
    return [f"{meta.get('namespace')}/{meta['name']}" for meta in metas]


def _daemon_sets(
    snapshot: snapshots.Snapshot,
    node: objects.Node,
    record: node_records.Record | None,
    passing: t.Collection[objects.Raw],
) -> t.Iterator[reasons.Finding]:
    before = record.prior.get("daemonsets") if record else None
    lack = lacking(snapshot, node, passing)
    # Of several that want one host port, another one may have it by now.
    exchanged = before is None or not set(before) <= set(lack)
    waiting = ", ".join(str(one.workload) for one in record.awaits) if record else ""
    down = f"; until it is back, pods are missing of {waiting}" if waiting else ""
    for name in (name for name in lack if name not in (before or ())):
        meant = _meant_for(snapshot, node)
        there = [p for p in meant if p.owner and f"{p.namespace}/{p.owner.name}" == name]
        if exchanged and any(PORTS in pod.unschedulable for pod in there):
            continue
        unready_why = unready.in_brackets(unready.why(snapshot, there))
        why = f"DaemonSet {name} has no Ready pod on it{unready_why}{down}"
        remedy = "Check that pod, or wait for it, or omit the gate daemonsets."
        yield _blocker("daemonset_missing", node, why, remedy)


PORTS = "didn't have free ports"
"""What the scheduler says of a pod whose host port is taken."""


def _meant_for(snapshot: snapshots.Snapshot, node: objects.Node) -> t.Iterator[objects.Pod]:
    """The pods on the node, and those of DaemonSets that cannot be placed there."""
    yield from snapshot.pods_on({node.name})
    for pod in snapshot.pods_on({""}):
        if pod.owner and pod.owner.kind == "DaemonSet" and node_affinity.selects(pod.placed, node):
            yield pod


def _blocker(code: str, node: objects.Node, why: str, remedy: str) -> reasons.Finding:
    return reasons.Finding.of_node(node.name, code, f"Node {node.name}: {why}.", remedy)
