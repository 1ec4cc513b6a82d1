# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a drain by PodMigrationJobs leaves: nothing. Jobs are ended first and deleted then, Reservations after them."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import migration_jobs, reserve
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    names,
    objects,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, writing

LOOK_EVERY = 0.25
"""Seconds between two lists of Reservations."""
VANISHING = 5.0
"""Seconds that the controller gets to delete the Reservation of a deleted job."""


def serves(job: migration_jobs.Job, node: str) -> bool:
    """Whether the job was made to empty the node."""
    return job.ours and job.annotations.get(names.SERVES_NODES) == node


@dataclass
class JobCleanup:
    """Deletes what jobs leave, and waits until it is gone; ``fence`` is called right before each write."""

    ctx: context.Context
    fence: act.Fence
    _listed: float = float("-inf")
    _swept: dict[str, set[str]] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)

    def done_with(self, node: str, jobs: t.Mapping[str, migration_jobs.Job]) -> bool:
        """Whether nothing is left of the node's jobs, all of which have ended."""
        swept = self._swept.setdefault(node, set())
        ended = [job for job in jobs.values() if job.ended and serves(job, node)]
        for job in ended:
            if job.uid not in swept:
                self._delete(job.ref)
                # The controller names a Reservation after the job's UID.
                swept |= {job.uid, job.reservation or job.uid}
        return not ended and self._reservations_gone(node, swept)

    def _reservations_gone(self, node: str, wanted: set[str]) -> bool:
        if not wanted:
            return True
        now = self.ctx.clock.now()
        since = self._since.setdefault(node, now)
        if now < self._listed + LOOK_EVERY:
            return False
        self._listed = now
        try:
            found = self.ctx.cluster.items(kinds.RESERVATIONS, patience=act.PATIENCE).items
        except errors.Forbidden as error:
            self.ctx.note(phases.What.KEPT, f"Whether Reservations are left is not known: {error}", node=node)
            return True
        left = [raw["metadata"] for raw in found if raw["metadata"]["name"] in wanted]
        if left and now - since > VANISHING:
            for meta in left:
                self._delete(reserve.ref_of(meta["name"], meta["uid"]))
        return not left

    def _delete(self, target: objects.Ref) -> None:
        try:
            writing.remove(
                self.ctx, api_changes.Change("delete", target, f"Delete {target}, which has served"), fence=self.fence
            )
        except errors.ClusterError as error:
            self.ctx.note(phases.What.KEPT, f"{target} stays: {error}")
