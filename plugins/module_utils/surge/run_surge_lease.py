# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Holding the leases of surges: written first, renewed while somebody works or
waits, deleted last.
"""

from __future__ import annotations

import functools
import threading
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_context,
    run_reconcile,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import clocks, errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import surge_records

MARGIN_SECONDS = 5.0
"""So many seconds before its end a lease proves nothing any more: a request takes time to
arrive.
"""
RENEW_WITHIN_SECONDS = 5.0
"""Seconds one attempt of a renewal in the background may take."""
MAX_PARALLEL = 8
LEAVE_WITHIN_SECONDS = 10.0
"""Seconds the end of a call waits for a renewal that is under way."""

ProveLocks = t.Callable[[t.Collection[str]], None]
"""Proves that these nodes are still ours; raises where they are not."""


class LostSurgeError(Exception):
    """Somebody else holds the surge now; ``str()`` says who."""


class _Held(t.NamedTuple):
    """A lease as we last wrote it, what it says, and the time since that was sent."""

    lease: objects.Raw
    surge: surge_records.Surge
    sent: clocks.Stopwatch


class SurgeLeases:
    """The surge leases one call holds in the name of ``holder``;
    empty keeps the name that is there.

    From the first on they are renewed by a thread of their own, until ``close``. ``prove_locks`` is
    asked for a surge's nodes before every attempt of a write, and raises where they are lost.
    ``found`` are leases as they were read just now. All writes raise ClusterError where the server
    refused, and all but the first LostSurgeError where somebody else has the lease, or it is gone.
    """

    def __init__(
        self,
        ctx: run_context.Context,
        holder: str,
        prove_locks: ProveLocks,
        found: t.Iterable[objects.Raw] = (),
    ) -> None:
        self._ctx, self._holder, self._prove_locks = ctx, holder, prove_locks
        self._found = {lease["metadata"].get("uid"): lease for lease in found}
        self._held: dict[str, _Held] = {}
        self._turns: dict[str, threading.Lock] = {}
        self._stop = ctx.clock.event()
        self._starting = ctx.clock.lock()
        self._keeper: threading.Thread | None = None

    def write(self, surge: surge_records.Surge) -> surge_records.Surge:
        """Write the record before anything changes;
        AlreadyExists where there is one of this workload.
        """
        now = self._ctx.clock.server()

        def decide(lease: objects.Raw | None) -> api_changes.Change | None:
            if lease is None:
                return surge.writing(self._holder, now)
            if not _is_as(lease, surge, self._holder, now):
                raise errors.AlreadyExists(f"a surge of {surge.workload} is recorded already")
            return None

        with self._turn(surge.uid):
            return self._put(surge, decide, first=True)

    def claim(self, surge: surge_records.Surge) -> surge_records.Surge:
        """Put our name and the present time into the lease,
        with the record as it is in ``surge``.
        """
        with self._turn(surge.uid):
            return self._claim(surge)

    def prove(self, surge: surge_records.Surge) -> None:
        """Prove before a write for the surge that its nodes and its lease are still ours,
        whatever time we lost.
        """
        self._prove_locks((surge.node,))
        held = self._held.get(surge.uid)
        if held is None or held.sent.read() > surge_records.LEASE_SECONDS - MARGIN_SECONDS:
            self.claim(held.surge if held else surge)

    def forget(self, surge: surge_records.Surge) -> None:
        def decide(lease: objects.Raw | None) -> api_changes.Change | None:
            if lease is None or lease["metadata"].get("uid") != surge.lease_uid:
                return None
            return self._ours(surge, lease).forgetting()

        with self._turn(surge.uid):
            prove_lock = functools.partial(self._prove_locks, (surge.node,))
            run_reconcile.reconcile(
                self._ctx, surge.lease, decide, known=self._known(surge), prove_lock=prove_lock
            )
            self._held.pop(surge.uid, None)

    def close(self) -> None:
        """Stop renewing; what is still held lasts for ``LEASE_SECONDS`` seconds more."""
        self._stop.set()
        if self._keeper:
            self._keeper.join(LEAVE_WITHIN_SECONDS)
            self._keeper = None

    def _turn(self, uid: str) -> threading.Lock:
        return self._turns.setdefault(uid, self._ctx.clock.lock())

    def _known(self, surge: surge_records.Surge) -> objects.Raw | run_reconcile.Unread:
        """The lease as it is known, for the first attempt of a write."""
        held = self._held.get(surge.uid)
        return held.lease if held else self._found.get(surge.lease_uid, run_reconcile.UNREAD)

    def _claim(self, surge: surge_records.Surge, *, once: bool = False) -> surge_records.Surge:
        name, now = self._holder or surge.holder, self._ctx.clock.server()
        tried = False

        def decide(lease: objects.Raw | None) -> api_changes.Change | None:
            nonlocal tried
            seen = self._ours(surge, lease)
            if tried and _is_as(t.cast("objects.Raw", lease), surge, name, now):
                return None
            tried = True
            return seen.with_record_of(surge).renewing(name, now)

        try:
            return self._put(surge, decide, once=once)
        except LostSurgeError:
            self._held.pop(surge.uid, None)
            raise

    def _ours(self, surge: surge_records.Surge, lease: objects.Raw | None) -> surge_records.Surge:
        """The record as it is now, where we may write it: it is our run's,
        or as silent as it was judged.
        """
        seen = surge_records.Surge.from_lease(lease) if lease else None
        if seen is None or seen.lease_uid != surge.lease_uid:
            raise LostSurgeError(f"the record of the surge of {surge.workload} is gone")
        mine = run_context.Run.parse(self._holder or surge.holder)
        theirs = run_context.Run.parse(seen.holder)
        same_run = bool(mine and theirs and mine.id == theirs.id)
        untouched = (seen.holder, seen.resource_version) == (surge.holder, surge.resource_version)
        if not (same_run or untouched):
            by = theirs.id if theirs else "nobody"
            raise LostSurgeError(f"the surge of {surge.workload} is held by run {by} now")
        return seen

    def _put(
        self,
        surge: surge_records.Surge,
        decide: run_reconcile.Decide,
        *,
        first: bool = False,
        once: bool = False,
    ) -> surge_records.Surge:
        sent = clocks.Stopwatch(self._ctx.clock)

        def prove_lock() -> None:
            self._prove_locks((surge.node,))
            sent.reset()

        found = run_reconcile.reconcile(
            self._ctx,
            surge.lease,
            decide,
            known=None if first else self._known(surge),
            prove_lock=prove_lock,
            remember=first,
            patience=run_requests.NO_PATIENCE if once else run_requests.PATIENCE,
            timeout=RENEW_WITHIN_SECONDS if once else 30.0,
        ).object
        lease = t.cast("objects.Raw", found)
        held = t.cast("surge_records.Surge", surge_records.Surge.from_lease(lease))
        self._keep_up(lease, held, sent)
        return held

    def _keep_up(
        self, lease: objects.Raw, surge: surge_records.Surge, sent: clocks.Stopwatch
    ) -> None:
        """Renew it from now on."""
        self._held[surge.uid] = _Held(lease, surge, sent)
        with self._starting:
            if self._keeper is None and not self._stop.is_set():
                self._keeper = self._ctx.clock.thread(self._keep, "surge-keeper")
                self._keeper.start()

    def _keep(self) -> None:
        while not self._stop.wait(surge_records.RENEW_EVERY_SECONDS):
            with self._ctx.clock.pool(MAX_PARALLEL, "surge") as pool:
                list(pool.map(self._renew, list(self._held)))

    def _renew(self, uid: str) -> None:
        with self._turn(uid):
            held = self._held.get(uid)
            if held is None or self._stop.is_set():
                return
            try:
                self._claim(held.surge, once=True)
            except (LostSurgeError, run_context.CallAborted, errors.ClusterError):
                # The next write for this surge calls ``prove``, which fails for the same reason.
                return


def _is_as(lease: objects.Raw, surge: surge_records.Surge, holder: str, now: str) -> bool:
    """Whether the lease is as a write of that time in that name leaves it."""
    spec = lease.get("spec") or {}
    if spec.get("holderIdentity") != holder:
        return False
    if spec.get("renewTime") != surge_records.micro_time(now):
        return False
    return surge_records.Surge.from_lease(lease) == surge
