# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Lost nodes: what becomes of their pods and when, and which proof an evacuation needs.

Once the kubelet has been silent for ``node-monitor-grace-period`` (50 s, 40 s before Kubernetes
1.32), the node controller sets the node's Ready condition to Unknown and the taint ``unreachable``;
the taint manager deletes each pod after its toleration, 300 s by default. No kubelet stops it: its
object stays terminating, and with it the name of a StatefulSet's pod and the attachment of its
volume. With the taint ``out-of-service`` the pod garbage collector removes such objects (every 20
s), and volumes are detached without waiting for an unmount (else 6 minutes after the object is
gone). Read at v1.36.3: ``pkg/controller/{nodelifecycle,tainteviction,podgc,volume/attachdetach}``;
all of it tried on the lab.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import asdict, dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    no_execute,
    node_taints,
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    commands,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import eligibility

UNREACHABLE: objects.Raw = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
LEASES = "kube-node-lease"
"""The namespace of the leases that kubelets renew."""

FENCED = "out_of_service"
DATA = frozenset({"emptydir", "bare_pod", "daemonset_gone", "self_on_node"})
"""Refusals that apply to a dead node as well, because data that the node
still has would be lost.
"""

Successor = t.Literal["at_once", "after_its_volume", "after_its_object", "none"]


@dataclass(frozen=True, slots=True)
class AfterNodeLoss:
    """What becomes of one pod of a lost node if nobody intervenes.

    ``told_at`` (RFC 3339) is when the pod is deleted and starts terminating; empty if it never is,
    or if that is not known yet. ``successor``: when its controller starts another one. ``volumes``
    stay attached to the node.
    """

    told_at: str
    in_seconds: int | None
    successor: Successor
    volumes: tuple[str, ...]
    reason: str

    def to_dict(self) -> dict[str, t.Any]:
        return {**asdict(self), "volumes": list(self.volumes)}


def lost(node: objects.Node | None) -> bool:
    """Whether the node controller has lost contact with the kubelet."""
    return node is not None and node.conditions.get("Ready") == "Unknown"


def after_node_loss(
    snapshot: snapshots.Snapshot, pod: objects.Pod, now: str
) -> AfterNodeLoss | None:
    """What becomes of a pod, ``None`` where its node is not lost. ``now`` is RFC 3339."""
    node = snapshot.nodes.get(pod.node)
    if node is None or not lost(node):
        return None
    successor, then = _successor(snapshot, pod)
    volumes = attached(snapshot, pod)
    told_at, seconds, why = _deletion(node, pod, now)
    if not why:
        successor, then = "none", "It is never deleted"
    volumes_stay = f" Volume {', '.join(volumes)} stays attached to {node.name}." if volumes else ""
    return AfterNodeLoss(told_at, seconds, successor, volumes, f"{why}{then}.{volumes_stay}")


def _deletion(node: objects.Node, pod: objects.Pod, now: str) -> tuple[str, int | None, str]:
    """When the pod is deleted: the time, seconds from now, and the first sentence of the reason."""
    if pod.deleting:
        return (
            pod.deadline,
            0,
            f"It is terminating with grace until {pod.deadline}; no kubelet stops it. ",
        )
    set_at = next(
        (x.get("timeAdded") for x in node.taints if node_taints.same_taint(x, UNREACHABLE)), None
    )
    kept = no_execute.stay(pod.tolerations, [UNREACHABLE])
    if kept.seconds is None or pod.mirror:
        return "", None, ""
    start = decoding.moment(set_at or "")
    if start is None:
        why = (
            f"It is deleted {kept.seconds} s after the taint unreachable:NoExecute is set, "
            "which it is not yet"
        )
        return "", None, f"{why} (one node in 10 s, fewer while many are lost). "
    at = decoding.later(start, kept.seconds)
    if at is None:
        return "", None, ""
    today = decoding.moment(now)
    left = max(0, round((at - today).total_seconds())) if today else kept.seconds
    text = at.isoformat(timespec="seconds").replace("+00:00", "Z")
    return (
        text,
        left,
        f"It tolerates {UNREACHABLE['key']} for {kept.seconds} s and is deleted at {text}. ",
    )


def _successor(snapshot: snapshots.Snapshot, pod: objects.Pod) -> tuple[Successor, str]:
    owner = pod.owner
    if pod.finished or owner is None or owner.kind in ("DaemonSet", "Node"):
        return "none", "Nothing replaces it on another node"
    if owner.kind == "StatefulSet":
        return "after_its_object", f"{owner} starts another one only when its object is gone"
    workload = snapshot.workload_of(pod)
    if workload is not None and workload.replicas == 0:
        return "none", f"{workload.ref} is scaled to 0"
    if workload is None and owner.kind == "ReplicaSet":
        return "none", f"Its {owner} is gone, and nothing replaces it"
    for volume in pod.volumes:
        if tied := eligibility.tied(snapshot, volume, pod.namespace):
            return "after_its_volume", f"Its successor is created at once, and waits for {tied}"
    return "at_once", f"{workload.ref if workload else owner} creates a successor at once"


def attached(snapshot: snapshots.Snapshot, pod: objects.Pod) -> tuple[str, ...]:
    """Names of the PersistentVolumes of the pod's claims that are attached to its node."""
    claims = (snapshot.claim(pod.namespace, name) or {} for name in pod.claims)
    claimed = {str((claim.get("spec") or {}).get("volumeName")) for claim in claims}
    return tuple(sorted(claimed & attached_to(snapshot.attachments, pod.node)))


def attached_to(attachments: t.Iterable[objects.Raw], node: str) -> set[str]:
    """Names of the PersistentVolumes that are attached to the node."""
    specs = (found.get("spec") or {} for found in attachments)
    sources = (spec.get("source") or {} for spec in specs if spec.get("nodeName") == node)
    return {str(source.get("persistentVolumeName") or "") for source in sources}


def beat(lease: objects.Raw | None) -> tuple[str, str, str]:
    """The part of a lease that changes whenever a kubelet renews it."""
    found = lease or {}
    spec: objects.Raw = found.get("spec") or {}
    return (
        found.get("metadata", {}).get("uid", ""),
        spec.get("holderIdentity", ""),
        spec.get("renewTime", ""),
    )


def alive(node: objects.Node) -> str:
    """Why the kubelet is taken to be alive; empty if the cluster has lost contact with it.

    The lease's renewTime is no proof, since the kubelet writes it by its own clock: the drain
    watches it for renewals.
    """
    if lost(node):
        return ""
    return (
        f"its condition Ready is {node.conditions.get('Ready', 'not reported')}, "
        "so its kubelet still reports"
    )


def not_dead(name: str, why: str) -> reasons.Finding:
    """The node is declared as fenced, and it is alive."""
    message = (
        f"Node {name} was declared as fenced, but {why}. With the taint out-of-service its pods "
        "would be started on other nodes and its volumes attached there while they "
        "may still be in use."
    )
    remedy = (
        f"Drop {reasons.options(fenced=(name,))} to drain it as a living node, "
        "or name the node that is fenced."
    )
    return reasons.Finding("not_dead", message, remedy, "blocker", f"Node {name}", (name,))


def stays_out(node: objects.Node, record: node_records.Record) -> str:
    """Why a node that was evacuated as dead cannot return yet; empty if it can.

    Removing the taint by hand allows it to return.
    """
    if node.ready or not _out_of_service(record.added) or not _out_of_service(node.taints):
        return ""
    return (
        f"Node {node.name} was evacuated as dead, and its kubelet does not respond yet (Ready is "
        f"{node.conditions.get('Ready', 'not reported')}). The taint out-of-service stays until "
        "it does; release the node then. If it will not return, delete the node."
    )


def _out_of_service(taints: t.Iterable[objects.Raw]) -> bool:
    return any(node_taints.same_taint(node_taints.OUT_OF_SERVICE, taint) for taint in taints)


def fenced(plan: drain_policy.PodPlan) -> drain_policy.PodPlan:
    """The pod's plan if its node is lost and fenced: no eviction, no budget, no kubelet."""
    if plan.code in ("not_selected", "left_by_rule"):
        what, remedy = "pod_selector and namespaces", "Drop these options."
        if plan.code == "left_by_rule":
            what = plan.policy.rule or "a rule"
            remedy = "Leave this node to another run, without it."
        why = f"The taint out-of-service deletes every pod of the node, whatever {what} may say."
        return replace(plan, route="refuse", reason=why, remedy=remedy)
    if plan.route == "refuse" and plan.code in DATA:
        return plan
    if node_taints.tolerates(plan.pod.tolerations, node_taints.OUT_OF_SERVICE) or plan.pod.mirror:
        return replace(
            plan,
            route="skip",
            code=FENCED,
            reason="It tolerates the taint out-of-service and stays.",
        )
    if plan.code == "daemonset":
        why = "Its object is deleted; its DaemonSet recreates it when the node is back."
        return replace(plan, route="skip", reason=why)
    why = (
        "Its node is fenced: the taint out-of-service deletes it, without waiting for the kubelet."
    )
    return replace(
        plan, route="wait", code=FENCED, reason=why, remedy="", budgets=(), guarded=False
    )


def findings(
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[drain_policy.PodPlan],
    wanted: t.Iterable[str],
    vouched: t.Collection[str],
    now: str,
) -> list[reasons.Finding]:
    """A warning for each lost node that tells what becomes of its pods; a blocker for one of
    ``vouched`` that lives.
    """
    found = []
    for name in wanted:
        node = snapshot.nodes.get(name)
        if node is None:
            continue
        lease = objects.find(snapshot.leases, LEASES, name)
        if name in vouched and (why := alive(node)):
            found.append(not_dead(name, why))
        elif lost(node):
            pods = [plan.pod for plan in plans if plan.pod.node == name]
            message = (
                f"Node {name} has not responded{since(node, lease)}. {_sum(snapshot, pods, now)}"
            )
            remedy = (
                "Check whether the machine is off. If it certainly is: "
                f"{commands.evacuate([name])} {reasons.options(fenced=(name,))}. Where tasks can "
                "prove it, give -e maintain_fence_tasks=<file> instead of maintain_fenced. "
                "If it is not off, repair its kubelet, or fence it first."
            )
            if name in vouched:
                remedy = "You vouch that it is fenced: its pods and volumes are released at once."
            found.append(
                reasons.Finding("node_lost", message, remedy, "warning", f"Node {name}", (name,))
            )
    return found


def since(node: objects.Node, lease: objects.Raw | None = None) -> str:
    """Since when the node has been silent, as far as is known; begins with a space."""
    renewed = beat(lease)[2]
    known = f" since {node.ready_since}" if node.ready_since else ""
    return known + (f" (its lease was last renewed at {renewed})" if renewed else "")


def _sum(snapshot: snapshots.Snapshot, pods: t.Sequence[objects.Pod], now: str) -> str:
    fates = []
    for pod in pods:
        found = None if pod.finished else after_node_loss(snapshot, pod, now)
        if found:
            fates.append(found)
    if not fates:
        return "It has no pods."
    terminating = sum(1 for found in fates if found.in_seconds == 0)
    later = [found.told_at for found in fates if found.in_seconds]
    counts = {
        "already terminating": terminating,
        f"to be deleted, the last at {max(later, default='')}": len(later),
        "not deleted": len(fates) - terminating - len(later),
    }
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    waiting = Counter(found.successor for found in fates)
    text = f"{len(fates)} pod{'s' if len(fates) > 1 else ''} on it: {', '.join(parts)}."
    if tied := waiting["after_its_object"] + waiting["after_its_volume"]:
        text += (
            " Not replaced until the node is back or fenced, "
            f"because it keeps the object or the volume: {tied}."
        )
    return text
