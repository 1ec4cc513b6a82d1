# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""After a pod has gone: is its replacement ready elsewhere, and what else has to follow its end?"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    lookups,
    pod_plan,
    snapshots,
    unready,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain import detached

SLICES_BEHIND = 5.0
"""Seconds for which EndpointSlices may lack pods that are ready; a Service may also have another selector by now."""

JUDGE_EVERY = 0.25
"""Seconds for which "something is missing" stands without another look."""


class Replacements:
    """What has to be there before a node counts as drained; ``waited_for`` is what was missing at the last look."""

    def __init__(
        self, ctx: context.Context, wait_for: t.Collection[str], wake: t.Callable[[], None] = lambda: None
    ) -> None:
        self._ctx, self._wait_for = ctx, wait_for
        self.volumes = detached.Detachments(ctx, wake)
        self._ready: dict[str, int] = {}
        self._served: dict[tuple[str, str], int] = {}
        self._complete_at: float | None = None
        self._judged: snapshots.Snapshot | None = None
        self._judged_at = float("-inf")
        self.waited_for: list[str] = []

    def expect(self, plan: pod_plan.PodPlan, snapshot: snapshots.Snapshot) -> None:
        """Remember what has to follow this pod's end."""
        if plan.route == "skip":
            self.volumes.stays(plan, snapshot)
        if plan.route not in ("evict", "swap", "job") or plan.tolerant:
            return
        self.volumes.leaves(plan.pod, snapshot)
        if plan.route == "swap" or plan.code in ("local_volume", "no_free_device"):
            # With a swap the new pods are ready already; with what the node alone has, none can be before it is back.
            return
        workload = snapshot.workload_of(plan.pod)
        if workload and workload.replicas == 1 and plan.code == "operator_budget":
            # It may belong to its node, as Rook's OSDs do; its operator's budget keeps the others meanwhile.
            return
        if workload and workload.uid not in self._ready:
            ready = {p.uid for p in snapshot.pods_of(workload) if p.ready and not p.deleting}
            self._ready[workload.uid] = len(ready)
            pieces = (piece for one in ready for piece in snapshot.slices_with(one))
            for place in sorted({place for piece in pieces for place in lookups.service_of(piece)}):
                uids = snapshot.endpoints(place)
                if ready & uids:
                    self._served[place] = max(len(uids), self._served.get(place, 0))

    def missing(self, snapshot: snapshots.Snapshot) -> list[str]:
        now = self._ctx.clock.now()
        known = now - self._judged_at < JUDGE_EVERY if self.waited_for else self._judged is snapshot
        known = known and not self.volumes.answered
        if not known:
            self._judged, self._judged_at, wanted = snapshot, now, self._wait_for
            short = self._lacking(snapshot) if "replacement" in wanted else []
            self.waited_for = short or (self.volumes.left(snapshot) if "volumes" in wanted else [])
        return self.waited_for

    def _lacking(self, snapshot: snapshots.Snapshot) -> list[str]:
        """The workloads that lack ready pods; then, for a while, the Services that do not list these yet."""
        short = [text for uid, count in self._ready.items() if (text := _short(snapshot, uid, count))]
        if short:
            self._complete_at = None
            return short
        now = self._ctx.clock.now()
        self._complete_at = now if self._complete_at is None else self._complete_at
        return self._unlisted(snapshot) if now - self._complete_at < SLICES_BEHIND else []

    def _unlisted(self, snapshot: snapshots.Snapshot) -> list[str]:
        """The Services that lack endpoints although the pods are ready: traffic follows the EndpointSlices."""
        counts = {place: len(snapshot.endpoints(place)) for place in self._served}
        return [
            f"Service {'/'.join(place)} has {counts[place]} of {before} ready endpoints"
            for place, before in self._served.items()
            if counts[place] < before
        ]

    def close(self) -> None:
        """Look for nothing any more."""
        self.volumes.close()


def _short(snapshot: snapshots.Snapshot, uid: str, before: int) -> str:
    """What the workload lacks, of which ``before`` pods were ready; empty where nothing."""
    # What counts is what its owner wants now: it may have been scaled or deleted since it was planned.
    workload = snapshot.workload(uid)
    if workload is None or workload.deleting:
        return ""
    wanted = min(before, workload.replicas)
    pods = snapshot.selected(workload.namespace, workload.selector)
    if workload.selector is None:
        # A scale subresource need not say which pods it counts: then they are known by their owner alone.
        pods = iter(snapshot.owned_pods(workload.uid))
    living = [pod for pod in pods if pod.owner and not pod.deleting and not pod.finished]
    ready = sum(1 for pod in living if pod.ready)
    if ready >= wanted:
        return ""
    return f"{workload.ref} has {ready} of {wanted} ready pods{unready.told(unready.why(snapshot, living, workload))}"
