# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""After a pod has gone: are the volumes that it used detached from its node?"""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    run_background,
    run_context,
    run_targeted_reads,
    scopes,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import unreachable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy

ATTACHMENTS = kinds.VOLUME_ATTACHMENTS

LOOK_EVERY_SECONDS = 1.0
"""Seconds between two lists of VolumeAttachments while one is waited for."""

Volumes = t.AbstractSet[tuple[str, str]]
"""Names of volumes, each after its node."""

LOOK, UNKNOWN = "attachments", "whether volumes are still attached is being looked up"

MANY_ATTACHMENTS = 1000
"""VolumeAttachments of a cluster of which it is not worthwhile to list all each time."""


class Detachments:
    """The volumes that have to be detached before their nodes count as drained."""

    def __init__(self, ctx: run_context.Context, wake: t.Callable[[], None] = lambda: None) -> None:
        self._ctx = ctx
        self._background = run_background.BackgroundCalls(ctx, "volumes", wake)
        self._wanted: set[tuple[str, str]] = set()
        self._used: dict[str, Volumes] = {}
        self._attached: list[str] = []
        self._known: list[str] = []
        self._looked = float("-inf")

    def leaves(self, pod: objects.Pod, snapshot: snapshots.Snapshot) -> None:
        """Called when a pod that leaves is planned: its volumes have to follow it."""
        self._wanted |= _volumes_of(pod, snapshot)

    def resume(self, node: str, volumes: t.Iterable[str]) -> None:
        """Wait for volumes, too, whose pods have left the node before this call."""
        self._wanted |= {(node, volume) for volume in volumes}

    def of(self, node: str) -> tuple[str, ...]:
        """The names of those that have to be detached from this node."""
        return tuple(sorted(volume for where, volume in self._wanted if where == node))

    def stays(self, plan: drain_policy.PodPlan, snapshot: snapshots.Snapshot) -> None:
        """Do not wait for the volumes of this pod while it is on its node."""
        if plan.pod.claims:
            self._used[plan.pod.uid] = _volumes_of(plan.pod, snapshot)

    @property
    def answered(self) -> bool:
        """Whether a look has been answered since the last call of ``left``."""
        return self._background.done(LOOK)

    def left(self, snapshot: snapshots.Snapshot) -> list[str]:
        """The volumes of the last look; while the next one is under way,
        nothing says that none is attached.
        """
        now = self._ctx.clock.now()
        wanted = self._to_detach(snapshot)
        if self._background.done(LOOK):
            of, left = self._background.answer(LOOK)
            self._attached = [
                f"volume {volume} is still attached to node {node}" for node, volume in sorted(left)
            ]
            self._looked = now if of == wanted else float("-inf")
        if not wanted:
            return []
        if now - self._looked >= LOOK_EVERY_SECONDS and not self._background.going(LOOK):
            self._background.start(LOOK, functools.partial(self._look, frozenset(wanted)))
        return self._attached or ([UNKNOWN] if self._background.going(LOOK) else [])

    def close(self) -> None:
        """Look for nothing any more."""
        self._background.close()

    def _to_detach(self, snapshot: snapshots.Snapshot) -> Volumes:
        """The awaited volumes, without those of pods that are still on the node."""
        used = (volumes for uid, volumes in self._used.items() if snapshot.pod(uid))
        return self._wanted.difference(*used)

    def _look(self, volumes: Volumes) -> tuple[Volumes, Volumes]:
        return volumes, self._left(volumes)

    def _left(self, volumes: Volumes) -> Volumes:
        """Which of them are attached. Of many the few that were at the last look by their
        names, until none is.

        A list of all proves that none is, whatever was attached meanwhile.
        """
        if 0 < len(self._known) <= scopes.FEW:
            known: list[objects.Raw] = []
            for name in self._known:
                known += run_targeted_reads.named(self._ctx.cluster, ATTACHMENTS, name)
            if left := _waited(volumes, known):
                return left
        nodes = {node for node, _volume in volumes}
        listed = self._ctx.cluster.items(ATTACHMENTS, keep=lambda raw: _of(nodes, raw)).items
        found = [raw for raw in listed if raw]
        self._known = []
        if len(listed) > MANY_ATTACHMENTS:
            waited = [raw for raw in found if _waited(volumes, [raw])]
            self._known = [raw["metadata"]["name"] for raw in waited]
        return _waited(volumes, found)


def _volumes_of(pod: objects.Pod, snapshot: snapshots.Snapshot) -> Volumes:
    """The volumes that the claims of the pod are bound to, with its node."""
    found = set()
    for name in pod.claims:
        claim = snapshot.claim(pod.namespace, name) or {}
        if volume := (claim.get("spec") or {}).get("volumeName"):
            found.add((pod.node, volume))
    return found


def _waited(volumes: Volumes, found: t.Sequence[objects.Raw]) -> Volumes:
    """The volumes among these, each with its node, that the attachments are of."""
    attached = set()
    for node in {node for node, _volume in volumes}:
        attached |= {(node, volume) for volume in unreachable.attached_to(found, node)}
    return volumes & attached


def _of(nodes: t.Container[str], raw: objects.Raw) -> objects.Raw | None:
    """The attachment, if it is to one of the nodes."""
    return raw if (raw.get("spec") or {}).get("nodeName") in nodes else None
