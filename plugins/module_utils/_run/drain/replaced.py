# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""After a pod has gone: is its replacement ready elsewhere, is its volume detached?"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, pod_plan, snapshots
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, observe

LOOK_EVERY = 1.0
"""Seconds between two lists of VolumeAttachments while one is waited for."""

JUDGE_EVERY = 0.25
"""Seconds for which "something is missing" is believed without looking again."""


@dataclass(frozen=True, slots=True)
class _Expected:
    """A workload that loses pods by eviction, and how many were ready before.

    One that loses them by a swap is not here: its newcomers were ready before anything left.
    """

    workload: objects.Workload
    ready: int


class Replacements:
    """What has to be true beside "the pod is gone" before a node counts as drained.

    ``waited_for`` is what was missing when somebody looked last.
    """

    def __init__(self, ctx: context.Context, leaving: frozenset[str], wait_for: t.Collection[str]) -> None:
        self._ctx, self._leaving, self._wait_for = ctx, leaving, wait_for
        self._workloads: dict[str, _Expected] = {}
        self._volumes: set[tuple[str, str]] = set()
        self._attached: list[str] = []
        self._looked = float("-inf")
        self._judged: snapshots.Snapshot | None = None
        self._judged_at = float("-inf")
        self.waited_for: list[str] = []

    def expect(self, plan: pod_plan.PodPlan, snapshot: snapshots.Snapshot) -> None:
        """Remember what this pod's departure has to be followed by."""
        if plan.route not in ("evict", "swap", "job") or plan.tolerant:
            return
        for claim in plan.pod.claims:
            for found in snapshot.claims:
                meta = found["metadata"]
                volume = (found.get("spec") or {}).get("volumeName")
                if volume and (meta["namespace"], meta["name"]) == (plan.pod.namespace, claim):
                    self._volumes.add((plan.pod.node, volume))
        if plan.route == "swap" or plan.code == "local_volume":
            # Bound to its volume on this node, a replacement cannot be ready before the node is back.
            return
        workload = snapshot.workload_of(plan.pod)
        if workload and workload.uid not in self._workloads and workload.replicas > 0:
            ready = sum(1 for p in snapshot.pods_of(workload) if p.ready and not p.deleting)
            self._workloads[workload.uid] = _Expected(workload, ready)

    def missing(self, snapshot: snapshots.Snapshot) -> list[str]:
        """What is still waited for, in words; empty when nothing is."""
        now = self._ctx.clock.now()
        if self._judged is not snapshot and not (self.waited_for and now - self._judged_at < JUDGE_EVERY):
            self._judged, self._judged_at, self.waited_for = snapshot, now, self._look(snapshot)
        return self.waited_for

    def _look(self, snapshot: snapshots.Snapshot) -> list[str]:
        found = []
        if "replacement" in self._wait_for:
            found += [text for text in (self._short(e, snapshot) for e in self._workloads.values()) if text]
        if "volumes" in self._wait_for and self._volumes and not found:
            found += self._still_attached()
        return found

    def _short(self, expected: _Expected, snapshot: snapshots.Snapshot) -> str:
        # What is wanted is what its owner wants now: it may have been scaled or deleted since it was planned.
        workload = snapshot.workload(expected.workload.uid)
        if workload is None or workload.deleting:
            return ""
        wanted = min(expected.ready, workload.replicas)
        ready = waiting = 0
        why = ""
        pods = snapshot.selected(workload.namespace, workload.selector)
        if workload.selector is None:
            # A scale subresource need not say which pods it counts: then they are known by their owner alone.
            pods = (pod for pod in snapshot.pods if pod.owner and pod.owner.uid == workload.uid)
        for pod in pods:
            if pod.owner is None or pod.deleting or pod.finished:
                continue
            if pod.ready:
                ready += 1
            else:
                waiting += 1
                why = why or pod.unschedulable
        if ready >= wanted:
            return ""
        return f"{workload.ref} has {ready} of {wanted} ready pods" + (f" ({why})" if why else "")

    def _still_attached(self) -> list[str]:
        now = self._ctx.clock.now()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            self._attached = []
            for found in observe.gather(self._ctx.cluster, ("attachments",)).attachments:
                spec = found.get("spec") or {}
                volume = (spec.get("source") or {}).get("persistentVolumeName")
                if (spec.get("nodeName"), volume) in self._volumes:
                    self._attached.append(f"volume {volume} is still attached to node {spec.get('nodeName')}")
        return self._attached
