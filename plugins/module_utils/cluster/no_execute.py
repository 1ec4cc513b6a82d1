# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which pods a NoExecute taint deletes, and when.

The rules are the taint manager's (``pkg/controller/tainteviction``, read at v1.36.3): it deletes
pods without checking budgets. For each taint only the first toleration that covers it counts; a pod
without one is deleted at once, one with tolerations without ``tolerationSeconds`` stays, and of
several times the shortest applies. Once a pod's time is running, a further taint that it tolerates
for a while neither shortens nor extends it.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    node_taints,
    objects,
)


class Stay(t.NamedTuple):
    """How long a pod may stay: seconds (``None``: for ever), and the taint that limits it."""

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
        """Why, and what follows where that is not obvious."""
        taint = node_taints.in_words(self.taint)
        owner = self.pod.owner
        why = f"It does not tolerate {taint}."
        if self.seconds:
            why = f"It tolerates {taint} for {self.seconds} s."
        if self.pod.mirror:
            return f"{why} Only the mirror of this static pod is deleted; its kubelet recreates it."
        if self.pod.finished:
            return f"{why} It has finished already; its object and its log are deleted."
        if owner and owner.kind == "DaemonSet":
            again = "is not recreated while the taint stays"
            if self.seconds:
                again = "is recreated each time"
            return f"{why} A pod of this DaemonSet {again}."
        return why

    def to_dict(self) -> dict[str, t.Any]:
        pod = self.pod
        taint = node_taints.in_words(self.taint)
        place = {"node": pod.node, "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        return {
            **place,
            "owner": str(pod.owner) if pod.owner else "",
            "seconds": self.seconds,
            "taint": taint,
            "reason": self.reason,
        }


def stay(tolerations: t.Sequence[objects.Raw], taints: t.Iterable[objects.Raw]) -> Stay:
    """How long a pod with these tolerations may stay once these taints are set."""
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
    """The pods of one node that are deleted because its taints change,
    in the order of their deletion.

    Pods that are terminating already, and those that an earlier taint deletes anyway, are left out.
    """
    kills = []
    for pod in pods:
        was, will = stay(pod.tolerations, before), stay(pod.tolerations, after)
        if pod.deleting or will.seconds is None or will.taint is None:
            continue
        if was.seconds is None or (will.seconds == 0 and was.seconds > 0):
            kills.append(Kill(pod, will.seconds, will.taint))
    return tuple(sorted(kills, key=lambda kill: (kill.seconds, kill.pod.namespace, kill.pod.name)))
