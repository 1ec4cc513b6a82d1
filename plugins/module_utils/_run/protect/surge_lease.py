# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Holding the leases of surges: written first, renewed while somebody works or waits, deleted last."""

from __future__ import annotations

import threading
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import clocks, errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import api_changes, objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import surge_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, writing

MARGIN = 5.0
"""Seconds before its end from which a lease proves nothing any more."""
RENEW_WITHIN = 5.0
"""Seconds one attempt of a renewal in the background may take."""
AT_ONCE = 8
LEAVE_WITHIN = 10.0
"""Seconds the end of a call waits for a renewal that is under way."""

NodesFence = t.Callable[[t.Collection[str]], None]
"""Proves that these nodes are still ours; raises where they are not."""


class LostSurgeError(Exception):
    """Somebody else holds the surge now; ``str()`` says who."""


class SurgeLeases:
    """The surge leases one call holds in the name of ``holder``; empty keeps the name that is there.

    From the first on they are renewed by a thread of their own, until ``close``. ``fence`` is asked for a
    surge's nodes before every attempt of a write.
    """

    def __init__(self, ctx: context.Context, holder: str = "", fence: NodesFence = lambda nodes: None) -> None:
        self._ctx, self._holder, self._fence = ctx, holder, fence
        self._known: dict[str, objects.Raw] = {}
        self._held: dict[str, surge_records.Surge] = {}
        self._sent: dict[str, clocks.Stopwatch] = {}
        self._turns: dict[str, threading.Lock] = {}
        self._stop = ctx.clock.event()
        self._keeper: threading.Thread | None = None

    def write(self, surge: surge_records.Surge) -> surge_records.Surge:
        """Write the record before anything changes.

        Raises:
            AlreadyExists: a surge of this workload is recorded already.
            ClusterError: the record could not be written.
        """
        now = self._ctx.clock.wall()

        def decide(lease: objects.Raw | None) -> api_changes.Change | None:
            if lease is None:
                return surge.writing(self._holder, now)
            if not _is_as(lease, surge, self._holder, now):
                raise errors.AlreadyExists(f"a surge of {surge.workload} is recorded already")
            return None

        with self._turn(surge.uid):
            return self._put(surge, decide, None, remember=True)

    def hold(self, surge: surge_records.Surge) -> surge_records.Surge:
        """Put our name and the present time into the lease, with the record as it is in ``surge``.

        Raises:
            LostSurgeError: somebody else has it, or it is gone.
            ClusterError: the lease could not be written.
        """
        with self._turn(surge.uid):
            return self._hold(surge)

    def prove(self, surge: surge_records.Surge) -> None:
        """Prove before a write for the surge that its nodes and its lease are still ours, whatever time we lost.

        Raises:
            LostSurgeError: somebody else has it.
            StopRun: a node was taken over, or nobody can tell.
            ClusterError: the lease grew old and could not be renewed.
        """
        self._fence(tuple(surge.nodes))
        held, sent = self._held.get(surge.uid), self._sent.get(surge.uid)
        if held is None or sent is None or sent.read() > surge_records.HOLD - MARGIN:
            self.hold(held or surge)

    def forget(self, surge: surge_records.Surge) -> None:
        """Delete the lease.

        Raises:
            LostSurgeError: somebody else has it.
            ClusterError: it could not be deleted.
        """

        def decide(lease: objects.Raw | None) -> api_changes.Change | None:
            if lease is None or lease["metadata"].get("uid") != surge.lease_uid:
                return None
            return self._ours(surge, lease).forgetting()

        with self._turn(surge.uid):
            known = self._known.get(surge.uid, writing.UNREAD)
            writing.write(self._ctx, surge.lease, decide, known=known, fence=lambda: self._fence(tuple(surge.nodes)))
            self._let_go(surge.uid)

    def close(self) -> None:
        """Stop renewing; what is still held lasts for ``HOLD`` seconds more."""
        self._stop.set()
        if self._keeper:
            self._keeper.join(LEAVE_WITHIN)
            self._keeper = None

    def _turn(self, uid: str) -> threading.Lock:
        return self._turns.setdefault(uid, self._ctx.clock.lock())

    def _let_go(self, uid: str) -> None:
        for kept in (self._known, self._held, self._sent):
            kept.pop(uid, None)

    def _hold(
        self, surge: surge_records.Surge, patience: float = act.PATIENCE, timeout: float = 30.0
    ) -> surge_records.Surge:
        name, now = self._holder or surge.holder, self._ctx.clock.wall()
        tried = False

        def decide(lease: objects.Raw | None) -> api_changes.Change | None:
            nonlocal tried
            seen = self._ours(surge, lease)
            if tried and _is_as(t.cast("objects.Raw", lease), surge, name, now):
                return None
            tried = True
            return seen.with_record_of(surge).renewing(name, now)

        known = self._known.get(surge.uid, writing.UNREAD)
        try:
            return self._put(surge, decide, known, patience=patience, timeout=timeout)
        except LostSurgeError:
            self._let_go(surge.uid)
            raise

    def _ours(self, surge: surge_records.Surge, lease: objects.Raw | None) -> surge_records.Surge:
        """The record as it is now, where we may write it: it is our run's, or as silent as it was judged."""
        seen = surge_records.Surge.from_lease(lease) if lease else None
        if seen is None or seen.lease_uid != surge.lease_uid:
            raise LostSurgeError(f"the record of the surge of {surge.workload} is gone")
        mine, theirs = context.Run.parse(self._holder or surge.holder), context.Run.parse(seen.holder)
        same_run = bool(mine and theirs and mine.id == theirs.id)
        untouched = (seen.holder, seen.resource_version) == (surge.holder, surge.resource_version)
        if not (same_run or untouched):
            by = theirs.id if theirs else "nobody"
            raise LostSurgeError(f"the surge of {surge.workload} is held by run {by} now")
        return seen

    def _put(
        self,
        surge: surge_records.Surge,
        decide: writing.Decide,
        known: objects.Raw | writing.Unread | None,
        *,
        remember: bool = False,
        patience: float = act.PATIENCE,
        timeout: float = 30.0,
    ) -> surge_records.Surge:
        sent = clocks.Stopwatch(self._ctx.clock)

        def fence() -> None:
            self._fence(tuple(surge.nodes))
            sent.reset()

        found = writing.write(
            self._ctx,
            surge.lease,
            decide,
            known=known,
            fence=fence,
            remember=remember,
            patience=patience,
            timeout=timeout,
        ).object
        lease = t.cast("objects.Raw", found)
        held = t.cast("surge_records.Surge", surge_records.Surge.from_lease(lease))
        self._known[surge.uid], self._held[surge.uid], self._sent[surge.uid] = lease, held, sent
        if self._keeper is None and not self._stop.is_set():
            self._keeper = self._ctx.clock.thread(self._keep, "surge-keeper")
            self._keeper.start()
        return held

    def _keep(self) -> None:
        while not self._stop.wait(surge_records.RENEW):
            with self._ctx.clock.pool(AT_ONCE, "surge") as pool:
                list(pool.map(self._renew, list(self._held)))

    def _renew(self, uid: str) -> None:
        with self._turn(uid):
            held = self._held.get(uid)
            if held is None or self._stop.is_set():
                return
            try:
                self._hold(held, patience=0.0, timeout=RENEW_WITHIN)
            except (LostSurgeError, context.StopRun, errors.ClusterError):
                # Whoever writes for this surge next is told by ``prove``.
                return


def _is_as(lease: objects.Raw, surge: surge_records.Surge, holder: str, now: str) -> bool:
    """Whether the lease is as a write of that time in that name leaves it."""
    spec = lease.get("spec") or {}
    ours = (spec.get("holderIdentity"), spec.get("renewTime")) == (holder, surge_records.micro_time(now))
    return ours and surge_records.Surge.from_lease(lease) == surge
