# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Others that work on the nodes: they delete, reboot or maintain one, and say so in the cluster.

All of it is in what a plan reads anyway, except the leases of Medik8s.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    gangs,
    names,
    node_taints,
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import other_runs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import node_conditions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import lock_leases

KURED_LOCK = "weave.works/kured-node-lock"
"""Annotation of kured's DaemonSet (kured 1.17, pkg/daemonsetlock, ``--lock-annotation``)."""

KURED = "kube-system/kured"
"""Where kured's DaemonSet is unless its user has given it another namespace or name."""

LEAVING: t.Mapping[str, str] = {
    "karpenter.sh/disrupted": "Karpenter is about to delete it",
    "karpenter.sh/disruption": "Karpenter is about to delete it",
    "ToBeDeletedByClusterAutoscaler": "cluster-autoscaler is about to delete it",
}
"""Who deletes a node, by the key of a hard taint (Karpenter 1, cluster-autoscaler taints.go)."""


def findings(
    snapshot: snapshots.Snapshot, nodes: t.Iterable[str], now: str, kured: str = KURED
) -> list[reasons.Finding]:
    """What stands against taking these nodes out; ``now`` is RFC 3339."""
    found: list[reasons.Finding] = []
    named = [snapshot.nodes[name] for name in nodes if name in snapshot.nodes]
    for node in named:
        found += [*_leaving(node), *_leased(snapshot, node, now), *_maintained(node)]
    if named:
        return [*found, *_rebooting(snapshot, [node.name for node in named], now, kured)]
    return found


def _leaving(node: objects.Node) -> list[reasons.Finding]:
    """Whether the node is being deleted: there will be nothing to give back."""
    why = ["it has a deletionTimestamp"] if node.deleting else []
    hard = [str(x.get("key")) for x in node.taints if node_taints.hard(x)]
    why += [f"{LEAVING[key]} (taint {key})" for key in hard if key in LEAVING]
    if not why:
        return []
    message = f"Node {node.name} is being deleted: {' and '.join(why)}."
    remedy = "Omit it; whoever deletes it drains it, too."
    return [reasons.Finding.of_node(node.name, "node_being_deleted", message, remedy)]


def _leased(snapshot: snapshots.Snapshot, node: objects.Node, now: str) -> list[reasons.Finding]:
    """Whether an operator of Medik8s works on the node; its lease is the one that we lock."""
    lease = objects.find(snapshot.leases, names.MEDIK8S_NAMESPACE, names.node_lease_name(node.name))
    if lease is None or other_runs.recorded(node) or not other_runs.alive(lease, now):
        return []
    if not lock_leases.is_theirs(lease):
        # Another run of ours, at work or killed just now:
        # whether it lives is found out when the lock is taken.
        return []
    spec = lease["spec"]
    message = (
        f"Node {node.name} is held by {spec['holderIdentity']} since "
        f"{spec.get('acquireTime') or spec['renewTime']} (lease "
        f"{names.MEDIK8S_NAMESPACE}/{names.node_lease_name(node.name)})."
    )
    remedy = lock_leases.THEIR_REMEDY
    return [reasons.Finding.of_node(node.name, "leased", message, remedy)]


def _maintained(node: objects.Node) -> t.Iterator[reasons.Finding]:
    """Whether somebody else says, by a condition, that the node is maintained.

    One that is planned, or over with the drain, may be the very one that this run carries out.
    """
    for condition in () if other_runs.recorded(node) else node_conditions.foreign(node):
        kind = condition["type"]
        words = [condition[key] for key in ("reason", "message") if condition.get(key)]
        why = ": ".join(words) or "no reason given"
        at_work = kind in (node_conditions.DRAINING, node_conditions.IN_PROGRESS)
        message = f"Node {node.name}: somebody else has set condition {kind} to True ({why})."
        remedy = "It stays as it is."
        if at_work:
            patch = f'{{"status":{{"conditions":[{{"type":"{kind}","status":"False"}}]}}}}'
            remedy = (
                "Wait until they have finished. If nobody works on the node: "
                f"`kubectl patch node {node.name} --subresource=status -p '{patch}'`."
            )
        severity: reasons.Severity = "blocker" if at_work else "warning"
        yield reasons.Finding.of_node(node.name, "foreign_condition", message, remedy, severity)


def _rebooting(
    snapshot: snapshots.Snapshot, nodes: t.Sequence[str], now: str, kured: str
) -> t.Iterator[reasons.Finding]:
    """Whether kured reboots a node.

    Its lock is for the whole cluster, so it stands against all nodes. A lock in the name of what is
    no node is how an administrator switches kured off (its documentation, "Manual Lock"), and in
    nobody's way. Anybody who may create DaemonSets can write such a lock, so only that of kured's
    own counts; another one is worth knowing.
    """
    for daemon_set in snapshot.daemon_sets:
        meta = daemon_set["metadata"]
        text = (meta.get("annotations") or {}).get(KURED_LOCK)
        place = f"{meta.get('namespace')}/{meta['name']}"
        for holder, since in _kured_locks(text, now) if text else ():
            if holder not in snapshot.nodes:
                continue
            if place != kured:
                yield _not_kured(place, kured)
                break
            message = (
                f"kured is rebooting node {holder} since {since}: "
                f"it holds the lock in DaemonSet {place}."
            )
            remedy = (
                "Wait until it has released the lock. If that node does not come back: `kubectl "
                f"-n {meta.get('namespace')} annotate daemonset {meta['name']} {KURED_LOCK}-`."
            )
            yield reasons.Finding(
                "kured_reboot", message, remedy, object=f"Node {holder}", nodes=tuple(nodes)
            )


def _not_kured(place: str, kured: str) -> reasons.Finding:
    message = (
        f"DaemonSet {place} has a lock of kured, which does not count: "
        f"kured's DaemonSet is {kured}."
    )
    remedy = f"If it is kured's, set maintain_kured (kured of maintenance_plan) to {place}."
    return reasons.Finding("kured_reboot", message, remedy, "warning", f"DaemonSet {place}")


def _kured_locks(text: str, now: str) -> list[tuple[str, str]]:
    """Node and beginning of each lock that has not expired; text of somebody else holds nothing."""
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


# Which gangs a maintenance interrupts, and which nodes should therefore leave together.


def together(
    snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan]
) -> list[tuple[str, ...]]:
    """For each gang that is interrupted, the nodes that its pods leave, where these are several."""
    nodes = (
        (gang, _nodes(group, drain_policy.MOVING)) for gang, group in _by_gang(snapshot, plans)
    )
    return [leaving for _gang, leaving in nodes if len(leaving) > 1]


def gang_findings(
    snapshot: snapshots.Snapshot,
    plans: t.Iterable[drain_policy.PodPlan],
    waves: t.Sequence[t.Collection[str]],
) -> t.Iterator[reasons.Finding]:
    """One for each gang on the nodes: a blocker without consent, an info if it is waited for."""
    for gang, group in _by_gang(snapshot, plans):
        refused = [plan for plan in group if plan.route == "refuse" and plan.code == "gang"]
        leaving = _nodes(group, drain_policy.MOVING)
        severity: reasons.Severity = "warning" if leaving else "info"
        if refused:
            severity = "blocker"
        nodes = _nodes(group, (*drain_policy.MOVING, "wait", "refuse"))
        message = f"{gang.words} is a gang: what ends one of its pods interrupts all of them."
        if severity == "warning":
            times = sum(1 for wave in waves if set(wave) & set(leaving))
            message += (
                f" It is interrupted on {', '.join(leaving)}, which leave {_together(times)}."
            )
        remedy = refused[0].remedy if refused else ""
        yield reasons.Finding("gang", message, remedy, severity, str(gang.ref), nodes)


def _together(times: int) -> str:
    if times < 2:
        return "together"
    return f"in {times} waves because of max_per_zone, so it is interrupted {times} times"


def _by_gang(
    snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan]
) -> list[tuple[gangs.Gang, list[drain_policy.PodPlan]]]:
    found: dict[str, tuple[gangs.Gang, list[drain_policy.PodPlan]]] = {}
    by_pod = gangs.found(snapshot.pods, snapshot.pod_groups)
    for plan in plans:
        gang = by_pod.get(plan.pod.uid)
        if gang and plan.route != "skip":
            found.setdefault(f"{gang.ref.api_version} {gang.ref}", (gang, []))[1].append(plan)
    return list(found.values())


def _nodes(plans: t.Iterable[drain_policy.PodPlan], routes: t.Container[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(plan.pod.node for plan in plans if plan.route in routes))
