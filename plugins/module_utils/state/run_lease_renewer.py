# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What keeps the locks of a call alive while it works: a thread that renews them,
or their heartbeats.
"""

from __future__ import annotations

import contextlib
import threading
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    objects,
    run_context,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    lock_leases,
    run_heartbeats,
    run_leases,
    run_node_lock,
)

RENEW_EVERY_SECONDS = 5.0
RENEWALS_PER_LOOK = 3
"""With every so many renewals of a heartbeat, the leases that name it are listed, as a person may
have deleted one.
"""
LEAVE_WITHIN_SECONDS = 10.0
"""Seconds that leaving all locks may take; what is left after that expires."""


class LeaseRenewer:
    """Keeps the ``locks`` of a call, which are by node, alive in a thread of its own.

    The locks of one start of a run share one of its ``heartbeats``; others are renewed themselves.
    """

    def __init__(self, ctx: run_context.Context) -> None:
        self.ctx = ctx
        self.locks: dict[str, run_node_lock.NodeLock] = {}
        self.heartbeats: dict[run_context.Run, run_heartbeats.Heartbeat] = {}
        self._stop = ctx.clock.event()
        self._thread: threading.Thread | None = None

    def heartbeat(self, me: run_context.Run, place: str) -> run_heartbeats.Heartbeat | None:
        """The heartbeat that keeps the lease ``place`` alive,
        ``None`` if that is renewed itself.
        """
        if not (me.nonce and place.startswith(f"{names.NAMESPACE}/")):
            return None
        return self.heartbeats.setdefault(me, run_heartbeats.Heartbeat(self.ctx, me))

    def start_heartbeats(
        self, listed: t.Mapping[lock_leases.NamespacedName, objects.Raw]
    ) -> dict[str, str]:
        """Start them; returns the nodes that cannot be locked because of that,
        each with the reason.

        Where a policy of an earlier release forbids heartbeats, leases are renewed one by one.
        """
        refused: dict[str, str] = {}
        for me, heartbeat in list(self.heartbeats.items()):
            if heartbeat.fresh:
                continue
            its = [lock for lock in self._all() if lock.heartbeat is heartbeat]
            try:
                heartbeat.start(listed.get((names.NAMESPACE, heartbeat.target.name)))
            except (errors.Forbidden, errors.DeniedByWebhook) as error:
                text = f"locks are renewed one by one, because their heartbeat was refused: {error}"
                self.ctx.tell(phases.What.NOTE, text)
                del self.heartbeats[me]
                for lock in its:
                    lock.heartbeat = None
            except errors.ClusterError as error:
                refused |= {lock.node: f"{lock.what} could not be locked: {error}" for lock in its}
        return refused

    def _all(self) -> list[run_node_lock.NodeLock]:
        """Those of this moment: a step may add to them while a round goes on."""
        return list(self.locks.values())

    def start(self) -> None:
        """Renew whatever is held from now on."""
        if self._thread:
            return
        self._stop = self.ctx.clock.event()
        self._thread = self.ctx.clock.thread(self._renew_all, "lease-keeper")
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join(LEAVE_WITHIN_SECONDS / 2)
            self._thread = None

    def _renew_all(self) -> None:
        rounds = 0
        while not self._stop.wait(RENEW_EVERY_SECONDS):
            until, rounds = self.ctx.clock.now() + LEAVE_WITHIN_SECONDS, rounds + 1
            held = [lock for lock in self._all() if lock.held]
            named = {lock.heartbeat for lock in held if lock.heartbeat}
            jobs: list[t.Callable[[], object]] = [lock.renew for lock in held if not lock.heartbeat]
            at_once(self.ctx, [*jobs, *(heartbeat.renew for heartbeat in named)], until)
            behind = [lock for lock in held if lock.behind]
            if named and rounds % RENEWALS_PER_LOOK == 0:
                behind += self._vanished([lock for lock in held if lock.named])
            at_once(self.ctx, [lock.look for lock in behind], until)

    def _vanished(self, locks: t.Sequence[run_node_lock.NodeLock]) -> list[run_node_lock.NodeLock]:
        """Those of the locks whose lease is not ours any more, by one list of all leases."""
        try:
            current = self.look()
        except errors.ClusterError:
            return []
        vanished = []
        for lock in locks:
            if lock.node not in current or not lock.names(current[lock.node].lease):
                vanished.append(lock)
        return vanished

    def look(self) -> dict[str, lock_leases.Seen]:
        """The leases as they are now, by node."""
        return self.seen_in(self.listed())

    def listed(self) -> dict[lock_leases.NamespacedName, objects.Raw]:
        """All leases where those of the nodes are."""
        namespaces = {lock.target.namespace for lock in self._all()}
        leases = run_leases.leases_in(self.ctx, namespaces)
        return {lock_leases.place_of(lease): lease for lease in leases}

    def seen_in(
        self, listed: t.Mapping[lock_leases.NamespacedName, objects.Raw]
    ) -> dict[str, lock_leases.Seen]:
        """Those of the nodes among the leases, by node."""
        found = {}
        for node, lock in list(self.locks.items()):
            if lease := listed.get((lock.target.namespace, lock.target.name)):
                name, _uid = lock_leases.heartbeat_of(lease)
                heartbeat = listed.get((lock.target.namespace, name))
                found[node] = lock_leases.Seen.among(lease, filter(None, [heartbeat]))
        return found


def at_once(
    ctx: run_context.Context, jobs: t.Sequence[t.Callable[[], object]], until: float
) -> None:
    """Call all jobs in parallel, and wait until ``until`` (of the context's clock) at most. What
    has not begun by then is not begun; failures of the API server are not reported.
    """
    if not jobs:
        return
    pool = ctx.clock.pool(run_requests.MAX_PARALLEL, "lock")
    try:
        for future in [pool.submit(job) for job in jobs]:
            # A renewal that failed needs no answer here: the next write on behalf of the lock has
            # to prove it first, and finds the lease too old.
            with contextlib.suppress(errors.ClusterError, TimeoutError):
                future.result(left(ctx, until))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def left(ctx: run_context.Context, until: float) -> float:
    """Seconds that are left."""
    return max(until - ctx.clock.now(), 0.0)
