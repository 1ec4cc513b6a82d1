# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Writing for surges: their leases first, which are renewed while somebody works or waits and
deleted last, and every change only while lease and nodes are proven to be ours.
"""

from __future__ import annotations

import functools
import threading
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_change_writer,
    run_context,
    run_reconcile,
    run_requests,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import clocks, errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import surge_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import steps

T = t.TypeVar("T")
RESTORED = "restored to its state before the surge"
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
        self._ctx = ctx
        self._holder = holder
        self._prove_locks = prove_locks
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
        name = self._holder or surge.holder
        now = self._ctx.clock.server()
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
    """What both halves of a surge write with.

    The methods raise LostLockError where a node was lost, LostSurgeError where somebody else holds
    the surge, CallAborted where nobody knows whether its nodes are ours,
    and ClusterError where the server refused.
    """

    def __init__(self, ctx: run_context.Context, leases: SurgeLeases) -> None:
        self._ctx = ctx
        self._writer = run_change_writer.ChangeWriter(ctx)
        self.leases = leases

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
        one.surge = self.leases.claim(other)
        one.serving_since = None
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
