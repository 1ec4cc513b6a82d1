# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Nodes that went away: what becomes of their pods and when, and what proof an evacuation asks for.

Once the kubelet has been silent for ``node-monitor-grace-period`` (50 s, 40 s before Kubernetes 1.32), the node
controller makes the node's Ready condition Unknown and sets the taint ``unreachable``; the taint manager then tells
each pod to end after its toleration, 300 s by default. Nobody is there to end it: its object stays, and with it the
name of a StatefulSet's pod and the attachment of its volume. The taint ``out-of-service`` lifts that: the pod garbage
collector removes such objects (every 20 s), and volumes are detached without waiting for a kubelet to unmount them
(else 6 minutes after the object has gone). Read at v1.36.3: ``pkg/controller/{nodelifecycle,tainteviction,podgc,
volume/attachdetach}``; all of it tried on the lab.
"""

from __future__ import annotations

import datetime
import typing as t
from collections import Counter
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    node_records,
    node_taints,
    objects,
    option,
    pod_plan,
    reasons,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import no_execute
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import protect

OUT_OF_SERVICE: objects.Raw = {
    "key": "node.kubernetes.io/out-of-service",
    "value": "nodeshutdown",
    "effect": "NoExecute",
}
"""As the Kubernetes documentation sets it by hand; its readers look at the key alone."""

UNREACHABLE = "node.kubernetes.io/unreachable"
LEASES = "kube-node-lease"
"""The namespace in which kubelets renew a lease each."""

FENCED = "out_of_service"
DATA = frozenset({"emptydir", "bare_pod", "daemonset_gone", "self_on_node"})
"""Refusals that hold for a dead node as well: something would be lost that the node still has."""

Successor = t.Literal["at_once", "after_its_volume", "after_its_object", "none"]


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one pod of a lost node if nobody does anything.

    ``told_at`` (RFC 3339) is when it is told to end; empty where it never is, or where nobody can know yet.
    ``successor``: when its controller starts another one. ``volumes`` stay attached to the node.
    """

    told_at: str
    in_seconds: int | None
    successor: Successor
    volumes: tuple[str, ...]
    reason: str

    def to_dict(self) -> dict[str, t.Any]:
        """As the module returns it."""
        return {
            "told_at": self.told_at,
            "in_seconds": self.in_seconds,
            "successor": self.successor,
            "volumes": list(self.volumes),
            "reason": self.reason,
        }


def lost(node: objects.Node | None) -> bool:
    """Whether the node controller has given the kubelet up."""
    return node is not None and node.conditions.get("Ready") == "Unknown"


def fate(snapshot: snapshots.Snapshot, pod: objects.Pod, now: str) -> Fate | None:
    """What becomes of a pod, ``None`` where its node is not lost. ``now`` is RFC 3339."""
    node = snapshot.nodes.get(pod.node)
    if node is None or not lost(node):
        return None
    successor, then = _successor(snapshot, pod)
    volumes = attached(snapshot, pod)
    told_at, seconds, why = _told(node, pod, now)
    if not told_at and seconds is None and not why:
        successor, then = "none", "It is never told to end"
    held = f" Volume {', '.join(volumes)} stays attached to {node.name}." if volumes else ""
    return Fate(told_at, seconds, successor, volumes, f"{why}{then}.{held}")


def _told(node: objects.Node, pod: objects.Pod, now: str) -> tuple[str, int | None, str]:
    """When the pod is told to end: the moment, seconds from now, and the half of a sentence."""
    if pod.deleting:
        return pod.deadline, 0, f"It was told to end, with grace until {pod.deadline}; no kubelet does it. "
    set_at = next((x.get("timeAdded") for x in node.taints if _ends(x)), None)
    kept = no_execute.stay(pod.tolerations, [{"key": UNREACHABLE, "effect": "NoExecute"}])
    if kept.seconds is None or pod.mirror:
        return "", None, ""
    start = moment(set_at or "")
    if start is None:
        why = f"It is told to end {kept.seconds} s after the taint {UNREACHABLE}:NoExecute is set, which it is not yet"
        return "", None, f"{why} (one node in 10 s, fewer while many are away). "
    at = start + datetime.timedelta(seconds=kept.seconds)
    today = moment(now)
    left = max(0, round((at - today).total_seconds())) if today else kept.seconds
    text = at.isoformat(timespec="seconds").replace("+00:00", "Z")
    return text, left, f"It tolerates {UNREACHABLE} for {kept.seconds} s and is told to end at {text}. "


def _ends(taint: objects.Raw) -> bool:
    return taint.get("key") == UNREACHABLE and taint.get("effect") == "NoExecute"


def _successor(snapshot: snapshots.Snapshot, pod: objects.Pod) -> tuple[Successor, str]:
    owner = pod.owner
    if pod.finished or owner is None or owner.kind in ("DaemonSet", "Node"):
        return "none", "Nothing starts in its place elsewhere"
    if owner.kind == "StatefulSet":
        return "after_its_object", f"{owner} starts another one only when its object has gone"
    workload = snapshot.workload_of(pod)
    if workload is not None and workload.replicas == 0:
        return "none", f"{workload.ref} is scaled to 0"
    tied = next((found for found in (protect.tied(snapshot, v, pod.namespace) for v in pod.volumes) if found), "")
    if tied:
        return "after_its_volume", f"Its successor is made at once, and waits for {tied}"
    return "at_once", f"{workload.ref if workload else owner} makes a successor at once"


def attached(snapshot: snapshots.Snapshot, pod: objects.Pod) -> tuple[str, ...]:
    """Names of the PersistentVolumes of the pod's claims that are attached to its node."""
    wanted = {(pod.namespace, name) for name in pod.claims}
    claimed = {
        str((claim.get("spec") or {}).get("volumeName"))
        for claim in snapshot.claims
        if (claim["metadata"].get("namespace"), claim["metadata"]["name"]) in wanted
    }
    return tuple(sorted(claimed & attached_to(snapshot.attachments, pod.node)))


def attached_to(attachments: t.Iterable[objects.Raw], node: str) -> set[str]:
    """Names of the PersistentVolumes that are attached to the node."""
    specs = (found.get("spec") or {} for found in attachments)
    return {
        str((spec.get("source") or {}).get("persistentVolumeName") or "")
        for spec in specs
        if spec.get("nodeName") == node
    }


# -- proof ---------------------------------------------------------------------------------------------


def lease_of(leases: t.Iterable[objects.Raw], node: str) -> objects.Raw | None:
    """The lease that the node's kubelet renews."""
    for lease in leases:
        if lease["metadata"].get("namespace") == LEASES and lease["metadata"]["name"] == node:
            return lease
    return None


def beat(lease: objects.Raw | None) -> tuple[str, str, str]:
    """What changes whenever a kubelet renews its lease."""
    spec: objects.Raw = (lease or {}).get("spec") or {}
    return (lease or {}).get("metadata", {}).get("uid", ""), spec.get("holderIdentity", ""), spec.get("renewTime", "")


def alive(node: objects.Node) -> str:
    """What speaks for a living kubelet, in words; empty where the cluster itself has given it up.

    When the lease was renewed is no proof: the kubelet wrote it by its own clock. The drain listens to it instead.
    """
    if lost(node):
        return ""
    return f"its condition Ready is {node.conditions.get('Ready', 'not reported')}, so its kubelet is heard of"


def not_dead(name: str, why: str) -> reasons.Finding:
    """Somebody says that the node is fenced, and it lives."""
    message = (
        f"Node {name} was said to be fenced, but {why}. With the taint out-of-service its pods would be started "
        "elsewhere and its volumes attached there while they may still be in use."
    )
    remedy = (
        f"Leave out {option.options(fenced=(name,))}: it is drained as a living node. If it is another one, name that."
    )
    return reasons.Finding("not_dead", message, remedy, "blocker", f"Node {name}", (name,))


def stays_out(node: objects.Node, record: node_records.Record) -> str:
    """Why a node that was evacuated as dead cannot come back yet, in words; empty where it can.

    Somebody who takes the taint away by hand decides that it can.
    """
    if node.ready or not all(
        any(node_taints.same_taint(OUT_OF_SERVICE, one) for one in some) for some in (record.added, node.taints)
    ):
        return ""
    return (
        f"Node {node.name} was evacuated as dead, and its kubelet does not answer yet (Ready is "
        f"{node.conditions.get('Ready', 'not reported')}). The taint out-of-service stays until it does; release it "
        "then. To give up on its return, delete the node."
    )


def fenced(plan: pod_plan.PodPlan) -> pod_plan.PodPlan:
    """The pod's plan where its node is lost and fenced: no eviction, no budget, no kubelet."""
    if plan.code == "not_selected":
        why = "The taint out-of-service ends every pod of the node, whatever pod_selector and namespaces say."
        return replace(plan, route="refuse", code="not_selected", reason=why, remedy="Leave them out.")
    if plan.route == "refuse" and plan.code in DATA:
        return plan
    if node_taints.tolerates(plan.pod.tolerations, OUT_OF_SERVICE) or plan.pod.mirror:
        return replace(plan, route="skip", code=FENCED, reason="It tolerates the taint out-of-service and stays.")
    if plan.code == "daemonset":
        return replace(
            plan, route="skip", reason="Its object goes; its DaemonSet makes it again when the node is back."
        )
    return replace(
        plan,
        route="wait",
        code=FENCED,
        reason="Its node is fenced: the taint out-of-service ends it, and no kubelet is waited for.",
        remedy="",
        budgets=(),
        guarded=False,
    )


# -- telling -------------------------------------------------------------------------------------------


def findings(
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[pod_plan.PodPlan],
    wanted: t.Iterable[str],
    vouched: t.Collection[str],
    now: str,
) -> list[reasons.Finding]:
    """A warning for each lost node that says what becomes of its pods; a blocker where one of ``vouched`` lives."""
    found = []
    for name in wanted:
        node = snapshot.nodes.get(name)
        if node is None:
            continue
        lease = lease_of(snapshot.leases, name)
        if name in vouched and (why := alive(node)):
            found.append(not_dead(name, why))
        elif lost(node):
            pods = [plan.pod for plan in plans if plan.pod.node == name]
            message = f"Node {name} does not answer{since(node, lease)}. {_sum(snapshot, pods, now)}"
            remedy = (
                "Find out whether the machine is off. If it surely is, evacuate it and say so: "
                f"{option.options(fenced=(name,))}. If it is not, mend its kubelet, or fence it first."
            )
            if name in vouched:
                remedy = "You vouch that it is fenced: its pods and volumes are let go at once."
            found.append(reasons.Finding("node_lost", message, remedy, "warning", f"Node {name}", (name,)))
    return found


def since(node: objects.Node, lease: objects.Raw | None = None) -> str:
    """Since when the node is silent, as far as is known; begins with a space."""
    renewed = beat(lease)[2]
    known = f" since {node.ready_since}" if node.ready_since else ""
    return known + (f" (its lease was last renewed at {renewed})" if renewed else "")


def _sum(snapshot: snapshots.Snapshot, pods: t.Sequence[objects.Pod], now: str) -> str:
    fates = [found for found in (fate(snapshot, pod, now) for pod in pods if not pod.finished) if found]
    if not fates:
        return "No pod is on it."
    told = sum(1 for found in fates if found.in_seconds == 0)
    later = [found for found in fates if found.in_seconds]
    waiting = Counter(found.successor for found in fates)
    parts = []
    if told:
        parts.append(f"{told} told to end already")
    if later:
        parts.append(f"{len(later)} to be told, the last at {max(found.told_at for found in later)}")
    if len(fates) > told + len(later):
        parts.append(f"{len(fates) - told - len(later)} not to be told")
    text = f"{len(fates)} pod{'s' if len(fates) > 1 else ''} on it: {', '.join(parts)}."
    if tied := waiting["after_its_object"] + waiting["after_its_volume"]:
        text += f" Not replaced before the node is back or fenced, for object and volume stay with it: {tied}."
    return text


def moment(text: str) -> datetime.datetime | None:
    """A time of the API, ``None`` where it is none."""
    try:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
