# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""After a pod has gone: is its replacement ready elsewhere, is its volume detached?"""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    lookups,
    objects,
    pod_plan,
    scopes,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import dead
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, aside, by_name, context

ATTACHMENTS = kinds.VOLUME_ATTACHMENTS

LOOK_EVERY = 1.0
"""Seconds between two lists of VolumeAttachments while one is waited for."""

Volumes = t.AbstractSet[tuple[str, str]]
"""Names of volumes, each after its node."""

LOOK, UNKNOWN = "attachments", "whether volumes are still attached is being looked up"

MANY = 1000
"""VolumeAttachments of a cluster of which it is not worthwhile to list all each time."""

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
        self._aside = aside.Aside(ctx, "volumes", wake)
        self._ready: dict[str, int] = {}
        self._served: dict[tuple[str, str], int] = {}
        self._complete_at: float | None = None
        self._volumes: set[tuple[str, str]] = set()
        self._attached: list[str] = []
        self._known: list[str] = []
        self._looked = float("-inf")
        self._judged: snapshots.Snapshot | None = None
        self._judged_at = float("-inf")
        self.waited_for: list[str] = []

    def expect(self, plan: pod_plan.PodPlan, snapshot: snapshots.Snapshot) -> None:
        """Remember what has to follow this pod's end."""
        if plan.route not in ("evict", "swap", "job") or plan.tolerant:
            return
        for claim in plan.pod.claims:
            found = snapshot.claim(plan.pod.namespace, claim) or {}
            if volume := (found.get("spec") or {}).get("volumeName"):
                self._volumes.add((plan.pod.node, volume))
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
        known = known and not self._aside.done(LOOK)
        if not known:
            self._judged, self._judged_at, wanted = snapshot, now, self._wait_for
            short = self._lacking(snapshot) if "replacement" in wanted else []
            self.waited_for = short or (self._still_attached() if self._volumes and "volumes" in wanted else [])
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
        self._aside.close()

    def _still_attached(self) -> list[str]:
        """The volumes of the last look; while the next one is under way, nothing says that none is attached."""
        now = self._ctx.clock.now()
        if self._aside.done(LOOK):
            of, left = self._aside.answer(LOOK)
            self._attached = [f"volume {volume} is still attached to node {node}" for node, volume in sorted(left)]
            self._looked = now if of == self._volumes else float("-inf")
        if now - self._looked >= LOOK_EVERY and not self._aside.going(LOOK):
            self._aside.start(LOOK, functools.partial(self._look, frozenset(self._volumes)))
        return self._attached or ([UNKNOWN] if self._aside.going(LOOK) else [])

    def _look(self, volumes: Volumes) -> tuple[Volumes, Volumes]:
        return volumes, self._left(volumes)

    def _left(self, volumes: Volumes) -> Volumes:
        """Which of them are attached. Of many the few that were at the last look by their names, until none is.

        A list of all proves that none is, whatever was attached meanwhile.
        """
        if 0 < len(self._known) <= scopes.FEW:
            known = [raw for name in self._known for raw in by_name.named(self._ctx.cluster, ATTACHMENTS, name)]
            if left := _waited(volumes, known):
                return left
        nodes = {node for node, _volume in volumes}
        listed = self._ctx.cluster.items(ATTACHMENTS, patience=act.PATIENCE, keep=lambda raw: _of(nodes, raw)).items
        found = [raw for raw in listed if raw]
        self._known = [raw["metadata"]["name"] for raw in found if len(listed) > MANY and _waited(volumes, [raw])]
        return _waited(volumes, found)


def _waited(volumes: Volumes, found: t.Sequence[objects.Raw]) -> Volumes:
    """The volumes among these, each with its node, that the attachments are of."""
    nodes = {node for node, _volume in volumes}
    return volumes & {(node, volume) for node in nodes for volume in dead.attached_to(found, node)}


def _of(nodes: t.Container[str], raw: objects.Raw) -> objects.Raw | None:
    """The attachment, if it is to one of the nodes."""
    return raw if (raw.get("spec") or {}).get("nodeName") in nodes else None


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
    why = next((pod.unschedulable for pod in living if not pod.ready and pod.unschedulable), "")
    return f"{workload.ref} has {ready} of {wanted} ready pods" + (f" ({why})" if why else "")
