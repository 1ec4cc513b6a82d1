# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which pods a NoExecute taint ends, and when.

The rules are the taint manager's (``pkg/controller/tainteviction``, read at v1.36.3): it deletes pods and asks
no budget. Of each taint only the first toleration that covers it counts; a pod without one goes at once, one
whose tolerations have no ``tolerationSeconds`` stays, and of several times the shortest holds. Once a pod's
time is running, a further taint that it tolerates for a while neither shortens nor renews it.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import node_taints, objects


class Stay(t.NamedTuple):
    """How long a pod may stay: seconds, ``None`` for ever, and the taint that decides it."""

    seconds: int | None
    taint: objects.Raw | None = None


@dataclass(frozen=True, slots=True)
class Kill:
    """A pod that the taint manager deletes ``seconds`` after the taint is set."""

    pod: objects.Pod
    seconds: int
    taint: objects.Raw

    @property
    def reason(self) -> str:
        """Why, and what comes of it where that is not plain."""
        taint, owner = node_taints.in_words(self.taint), self.pod.owner
        why = f"It tolerates {taint} for {self.seconds} s." if self.seconds else f"It does not tolerate {taint}."
        if self.pod.mirror:
            return f"{why} Only the API's picture of this static pod goes; its kubelet makes it again."
        if self.pod.finished:
            return f"{why} It has ended already; its object and its log go."
        if owner and owner.kind == "DaemonSet":
            again = "is made again each time it went" if self.seconds else "is not made again while the taint stays"
            return f"{why} A pod of this DaemonSet {again}."
        return why

    def to_dict(self) -> dict[str, t.Any]:
        """As the module returns it."""
        return {
            "node": self.pod.node,
            "namespace": self.pod.namespace,
            "name": self.pod.name,
            "uid": self.pod.uid,
            "owner": str(self.pod.owner) if self.pod.owner else "",
            "seconds": self.seconds,
            "taint": node_taints.in_words(self.taint),
            "reason": self.reason,
        }


def stay(tolerations: t.Sequence[objects.Raw], taints: t.Iterable[objects.Raw]) -> Stay:
    """How long a pod with these tolerations may stay under these taints, counted from when they are set."""
    shortest = Stay(None)
    for taint in taints:
        if taint.get("effect") != "NoExecute":
            continue
        used = node_taints.first_match(tolerations, taint)
        if used is None:
            return Stay(0, taint)
        seconds = used.get("tolerationSeconds")
        if seconds is not None and (shortest.seconds is None or seconds < shortest.seconds):
            shortest = Stay(max(seconds, 0), taint)
    return shortest


def forecast(
    pods: t.Iterable[objects.Pod], before: t.Sequence[objects.Raw], after: t.Sequence[objects.Raw]
) -> tuple[Kill, ...]:
    """The pods of one node that go because its taints change, the first to go first.

    Pods that are being deleted already, and those that a taint of before ends anyway, are left out.
    """
    kills = []
    for pod in pods:
        was, will = stay(pod.tolerations, before), stay(pod.tolerations, after)
        if pod.deleting or will.seconds is None or will.taint is None:
            continue
        if was.seconds is None or (will.seconds == 0 and was.seconds > 0):
            kills.append(Kill(pod, will.seconds, will.taint))
    return tuple(sorted(kills, key=lambda kill: (kill.seconds, kill.pod.namespace, kill.pod.name)))
