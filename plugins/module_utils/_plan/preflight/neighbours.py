# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Others that work on the nodes: they delete, reboot or maintain one, and say so in the cluster.

All of it is in what a plan reads anyway, except the leases of Medik8s.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    decoding,
    names,
    objects,
    reasons,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import lifecycle
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import held

KURED_LOCK = "weave.works/kured-node-lock"
"""Annotation of kured's DaemonSet (kured 1.17, pkg/daemonsetlock); ``--lock-annotation`` may name another one."""

KURED = "kube-system/kured"
"""Where kured's DaemonSet is unless its user has given it another namespace or name."""

LEAVING: t.Mapping[str, str] = {
    "karpenter.sh/disrupted": "Karpenter is about to delete it",
    "karpenter.sh/disruption": "Karpenter is about to delete it",
    "ToBeDeletedByClusterAutoscaler": "cluster-autoscaler is about to delete it",
}
"""By the key of a hard taint, who takes the node away: Karpenter 1 and its beta, cluster-autoscaler (``taints.go``)."""


def findings(
    snapshot: snapshots.Snapshot, nodes: t.Iterable[str], now: str, kured: str = KURED
) -> list[reasons.Finding]:
    """What stands against taking these nodes out; ``now`` is RFC 3339, ``kured`` names kured's DaemonSet."""
    found: list[reasons.Finding] = []
    named = [snapshot.nodes[name] for name in nodes if name in snapshot.nodes]
    for node in named:
        found += [*_leaving(node), *_leased(snapshot, node, now), *_maintained(node)]
    return [*found, *_rebooting(snapshot, [node.name for node in named], now, kured)] if named else found


def _leaving(node: objects.Node) -> list[reasons.Finding]:
    """Whether the node is being deleted: there will be nothing to give back."""
    why = ["it has a deletionTimestamp"] if node.deleting else []
    hard = [str(x.get("key")) for x in node.taints if x.get("effect") in ("NoSchedule", "NoExecute")]
    why += [f"{LEAVING[key]} (taint {key})" for key in hard if key in LEAVING]
    if not why:
        return []
    message = f"Node {node.name} is being deleted: {' and '.join(why)}."
    remedy = "Omit it; whoever deletes it drains it, too."
    return [reasons.Finding.of_node(node.name, "node_being_deleted", message, remedy)]


def _leased(snapshot: snapshots.Snapshot, node: objects.Node, now: str) -> list[reasons.Finding]:
    """Whether an operator of Medik8s works on the node; its lease is the one that we take as our lock."""
    lease = objects.find(snapshot.leases, names.MEDIK8S_NAMESPACE, names.node_lease_name(node.name))
    if lease is None or held.recorded(node) or not held.alive(lease, now):
        return []
    if (lease["metadata"].get("labels") or {}).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY:
        # Another run of ours, at work or killed just now: whether it lives is found out when the lock is taken.
        return []
    spec = lease["spec"]
    message = (
        f"Node {node.name} is held by {spec['holderIdentity']} since {spec.get('acquireTime') or spec['renewTime']} "
        f"(lease {names.MEDIK8S_NAMESPACE}/{names.node_lease_name(node.name)})."
    )
    remedy = "Wait until that maintenance or remediation ends: `kubectl get nodemaintenances,nodehealthchecks`."
    return [reasons.Finding.of_node(node.name, "leased", message, remedy)]


def _maintained(node: objects.Node) -> list[reasons.Finding]:
    """Whether somebody else says, by a condition, that the node is maintained.

    One that is planned, or over with the drain, may be the very one that this run carries out.
    """
    found = []
    for condition in () if held.recorded(node) else lifecycle.foreign(node):
        kind = condition["type"]
        why = ": ".join(condition[key] for key in ("reason", "message") if condition.get(key)) or "no reason given"
        at_work = kind in (lifecycle.DRAINING, lifecycle.IN_PROGRESS)
        message = f"Node {node.name}: somebody else has set condition {kind} to True ({why})."
        remedy = "It stays as it is."
        if at_work:
            patch = f'{{"status":{{"conditions":[{{"type":"{kind}","status":"False"}}]}}}}'
            remedy = (
                "Wait until they have finished. If nobody works on the node: "
                f"`kubectl patch node {node.name} --subresource=status -p '{patch}'`."
            )
        severity: reasons.Severity = "blocker" if at_work else "warning"
        found.append(reasons.Finding.of_node(node.name, "foreign_condition", message, remedy, severity))
    return found


def _rebooting(snapshot: snapshots.Snapshot, nodes: t.Sequence[str], now: str, kured: str) -> list[reasons.Finding]:
    """Whether kured reboots a node.

    Its lock is for the whole cluster, so it stands against all nodes. A lock in the name of what is no node is how an
    administrator switches kured off (its documentation, "Manual Lock"), and in nobody's way. Anybody who may create
    DaemonSets can write such a lock, so only that of kured's own counts; another one is worth knowing.
    """
    found: list[reasons.Finding] = []
    for daemon_set in snapshot.daemon_sets:
        meta = daemon_set["metadata"]
        text = (meta.get("annotations") or {}).get(KURED_LOCK)
        place = f"{meta.get('namespace')}/{meta['name']}"
        for holder, since in _kured_locks(text, now) if text else ():
            if holder not in snapshot.nodes:
                continue
            if place != kured:
                found.append(_not_kured(place, kured))
                break
            message = f"kured is rebooting node {holder} since {since}: it holds the lock in DaemonSet {place}."
            remedy = (
                "Wait until it has released the lock. If that node does not come back: "
                f"`kubectl -n {meta.get('namespace')} annotate daemonset {meta['name']} {KURED_LOCK}-`."
            )
            found.append(reasons.Finding("kured_reboot", message, remedy, object=f"Node {holder}", nodes=tuple(nodes)))
    return found


def _not_kured(place: str, kured: str) -> reasons.Finding:
    message = f"DaemonSet {place} has a lock of kured, which does not count: kured's DaemonSet is {kured}."
    remedy = f"If it is kured's, set maintain_kured (kured of maintenance_plan) to {place}."
    return reasons.Finding("kured_reboot", message, remedy, "warning", f"DaemonSet {place}")


def _kured_locks(text: str, now: str) -> list[tuple[str, str]]:
    """Node and beginning of each lock in the annotation that has not expired; text of somebody else holds nothing."""
    try:
        value = decoding.json_of(text)
        locks = value.get("locks") or () if "maxOwners" in value else (value,)
        return [(str(x["nodeID"]), str(x.get("created"))) for x in locks if not _expired(x, now)]
    except decoding.MISREAD:
        return []


def _expired(lock: t.Mapping[str, t.Any], now: str) -> bool:
    """A TTL is a number of nanoseconds; 0, its default, is for ever."""
    created, today = decoding.moment(lock.get("created")), decoding.moment(now)
    lifetime = (decoding.whole(lock.get("TTL")) or 0) / 1e9
    return bool(lifetime and created and today and (today - created).total_seconds() >= lifetime)
