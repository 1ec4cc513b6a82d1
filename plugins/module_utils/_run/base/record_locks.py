# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The locks on nodes that have a record already: each is held in the name that its record says."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import node_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, locking


class RecordLocks:
    """Nodes in the hands of one call, each in the name of its record's run; a node that is lost is lost alone."""

    def __init__(self, ctx: context.Context) -> None:
        self._ctx = ctx
        self._locks: list[locking.Locks] = []

    def take(self, records: t.Mapping[str, node_records.Record]) -> dict[str, str]:
        """Take the locks, by node; those that somebody else holds come back with the reason.

        Raises:
            ClusterError: the leases cannot be read.
        """
        groups: dict[str, dict[str, str]] = {}
        for node, record in records.items():
            groups.setdefault(str(context.Run(record.run, record.nonce)), {})[node] = record.lease
        borrowed = self._ctx.run is None or not self._ctx.run.nonce
        held = {}
        for identity, places in groups.items():
            locks = locking.Locks(self._ctx, t.cast("context.Run", context.Run.parse(identity)), places)
            self._locks.append(locks)
            held.update({node: found.message for node, found in locks.take(borrowed=borrowed).items()})
        return held

    def fence(self, nodes: t.Collection[str]) -> None:
        """Prove right before a write that these nodes are still ours.

        Raises:
            LostLockError: somebody took one of them over.
            StopRun: the API server has not let us find out for a minute.
        """
        for locks in self._locks:
            locks.fence(nodes)

    def regain(self, node: str) -> None:
        """The server's fence refused us for this node: find out whether it is ours, and write us in again.

        Raises:
            LostLockError: somebody took it over.
            ClusterError: it is ours, and the fence cannot be written.
            StopRun: the API server has not let us find out for a minute.
        """
        for locks in self._locks:
            locks.regain(node)

    def lost(self) -> dict[str, str]:
        """The nodes that somebody took over, and who, in words."""
        return {node: why for locks in self._locks for node, why in locks.lost().items()}

    def leave(self, *, drop: t.Collection[str] = ()) -> None:
        """Leave the locks to the run's next call; those of ``drop`` go, for nothing of their nodes is left."""
        locking.leave_all(self._ctx, self._locks, drop=drop)
