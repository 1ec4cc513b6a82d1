# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Writing for surges: their records first, and every change only while record and nodes
are proven to be ours.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_change_writer,
    run_context,
    run_requests,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import surge_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import (
    run_surge_lease,
    steps,
)

T = t.TypeVar("T")
RESTORED = "restored to its state before the surge"


@dataclass(kw_only=True)
class TrackedSurge:
    """What both halves of a surge know of it.

    ``claimed``: its lease carries our name. ``serving_since`` is of the context's monotonic clock.
    """

    surge: surge_records.Surge | None = None
    claimed: bool = False
    serving_since: float | None = None
    waiting: str = ""

    @property
    def current(self) -> surge_records.Surge:
        return t.cast("surge_records.Surge", self.surge)

    def served(self, now: float) -> float:
        """Seconds for which the new pods have served without a break, up to ``now``."""
        self.serving_since = now if self.serving_since is None else self.serving_since
        return now - self.serving_since


class SurgeWriter:
    """What both halves of a surge write with. ``holder``,
    ``prove_locks`` and ``found`` are those of ``SurgeLeases``.

    The methods raise LostLockError where a node was lost, LostSurgeError where somebody else holds
    the surge, CallAborted where nobody knows whether its nodes are ours,
    and ClusterError where the server refused.
    """

    def __init__(
        self,
        ctx: run_context.Context,
        holder: str,
        prove_locks: run_surge_lease.ProveLocks,
        found: t.Iterable[objects.Raw] = (),
    ) -> None:
        self._ctx, self._writer = ctx, run_change_writer.ChangeWriter(ctx)
        self.leases = run_surge_lease.SurgeLeases(ctx, holder, prove_locks, found)

    def do(self, surge: surge_records.Surge, changes: t.Iterable[api_changes.Change]) -> bool:
        """Whether all of the changes were made; if not, they were decided on an old view."""
        return self._writer.write(changes, lambda: self.leases.prove(surge))

    def behind(self, workload: objects.Workload | None) -> bool:
        """Whether this view of the workload is older than our last write to it."""
        return workload is not None and self._writer.behind(workload.ref, workload.resource_version)

    def rebase(
        self, one: TrackedSurge, snapshot: snapshots.Snapshot, *, lowered: bool = False
    ) -> bool:
        """Whether somebody else set the count, so that the surge begins anew on theirs."""
        other = steps.rebased(snapshot, one.current, lowered=lowered)
        if other is None:
            return False
        one.surge, one.serving_since = self.leases.claim(other), None
        message = (
            f"scaled to {other.prior_replicas} replicas by somebody else: "
            "surge continued from there"
        )
        tell(self._ctx, phases.What.NOTE, message, other.workload, other.node)
        return True


def in_parallel(ctx: run_context.Context, some: t.Sequence[T], do: t.Callable[[T], object]) -> None:
    """Do it for each of them; it may wait for the server, so it is done for several at a time."""
    if len(some) < 2:
        for one in some:
            do(one)
        return
    with ctx.clock.pool(run_requests.MAX_PARALLEL, "surge") as pool:
        list(pool.map(do, some))


def tell(
    ctx: run_context.Context, what: phases.What, message: str, ref: objects.Ref, node: str
) -> None:
    """Tell something about a workload, with a node that it concerns."""
    ctx.tell(what, message, node=node, namespace=ref.namespace, name=ref.name)


def unseen(surge: surge_records.Surge) -> str:
    """What is waited for after a write that the view does not show yet."""
    return f"the watch to show the changes to {surge.workload}"
