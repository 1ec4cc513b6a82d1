# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The locks on the nodes (or a descheduler) of one call: taken together, and renewed as long as the call runs.

What state a node is in is not in its lock but in its record, by which the next holder of an expired lock goes on.
A taker trusts only its own clock: it has to see a lease unchanged for the lease's whole duration, because
``renewTime`` is by another clock.
"""

from __future__ import annotations

import contextlib
import threading
import typing as t
from functools import partial

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    names,
    node_records,
    objects,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import (
    act,
    context,
    holders,
    node_locks,
    server_fence,
)

IDLE = 60
"""Seconds a lease lasts between two calls of one run."""
RENEW_EVERY = 5.0
DYING = 60.0
"""Seconds for which a restarted run waits for its earlier start to die."""
LEAVE_WITHIN = 10.0
"""Seconds that leaving all locks may take; what is left after that expires."""
LOOK_EVERY = 1.0


def lease_namespace(ctx: context.Context, wanted: str | None) -> str:
    """The namespace of node leases: ``wanted``, else that of Medik8s if it exists, else ours.

    Raises:
        ClusterError: it is unknown whether that of Medik8s exists. If one account guessed, two could lock the same
            node in two places.
    """
    if wanted:
        return wanted
    try:
        ctx.cluster.send(verbs.get(kinds.NAMESPACES, names.MEDIK8S_NAMESPACE), patience=act.PATIENCE)
    except errors.NotFound:
        return names.NAMESPACE
    return names.MEDIK8S_NAMESPACE


class Locks:
    """The locks on nodes in the hands of one call, each in the name of the run it is given.

    ``leases`` maps a node to ``<namespace>/<name>`` of its lease, ``me`` is in whose name they are held. With another
    ``kind``, these are such objects instead of nodes, by ``<namespace>/<name>``.
    """

    def __init__(
        self,
        ctx: context.Context,
        me: context.Run | None = None,
        leases: t.Mapping[str, str] | None = None,
        kind: str = "Node",
    ) -> None:
        self._ctx, self._of_nodes = ctx, kind == "Node"
        self._locks: dict[str, node_locks.NodeLock] = {}
        self._server = server_fence.ServerFence(ctx)
        self._stop = ctx.clock.event()
        self._keeper: threading.Thread | None = None
        for node, place in (leases or {}).items():
            self._locks[node] = node_locks.NodeLock(ctx, me or context.Run(""), node, place, kind)

    def take_recorded(self, records: t.Mapping[str, node_records.Record]) -> dict[str, str]:
        """Take the locks of nodes that have a record, each in the name of its record's run.

        Returns the nodes that somebody else holds, each with the reason.

        Raises:
            ClusterError: the leases cannot be read.
        """
        for node, record in records.items():
            me = context.Run(record.run, record.nonce)
            self._locks[node] = node_locks.NodeLock(self._ctx, me, node, record.lease)
        if not records:
            return {}
        borrowed = self._ctx.run is None or not self._ctx.run.nonce
        return self.take(borrowed=borrowed)

    def take(self, *, patient: bool = False, borrowed: bool = False, adopt: bool = False) -> dict[str, str]:
        """Take every lease; returns the nodes that somebody else holds, each with the reason.

        A taken lease is renewed from then on, also while others are still waited for.

        Args:
            patient: the holder is an earlier start of the same run, so wait for it to die.
            borrowed: the identity was read from the record, so a lease that is being renewed belongs to another call.
            adopt: the caller vouches that nobody works on the hosts any more, so a lease that the same run left
                for the duration of its tasks is taken without waiting for its end.
        """
        current = self._read_all()

        def take(lock: node_locks.NodeLock) -> objects.Raw | str | None:
            def free(lease: objects.Raw) -> bool:
                holder, duration = context.Run.parse(lease["spec"].get("holderIdentity")), holders.duration_of(lease)
                if adopt and duration > IDLE and holder and holder.id == lock.me.id:
                    return True
                return holder == lock.me and not (borrowed and duration <= node_locks.WORKING)

            try:
                return lock.take(free, current.get(lock.node))
            except errors.ClusterError as error:
                return f"{lock.what} could not be locked: {error}"

        self._keep_renewed()
        try:
            with self._ctx.clock.pool(act.AT_ONCE, "lock") as pool:
                taken = dict(zip(self._locks, pool.map(take, self._locks.values()), strict=True))
            refused = {node: why for node, why in taken.items() if isinstance(why, str)}
            waiting = {node: lease for node, lease in taken.items() if lease and not isinstance(lease, str)}
            refused |= _outwait(self._ctx, self._locks, waiting, patient, self._read_all)
            if self._of_nodes:
                self._hold(self._server.try_to_hold, self._locks)
            return refused
        except BaseException:
            self.leave()
            raise

    def fence(self, nodes: t.Collection[str] | None = None) -> None:
        """Prove before a write that the locks of these nodes (``None``: of all that were taken) are still ours.

        Raises:
            LostLockError: another run took a node over.
            StopRun: the API server did not answer for a minute.
        """
        for node, lock in self._locks.items():
            if (nodes is None or node in nodes) and (lock.held or lock.lost):
                lock.fence()

    def regain(self, node: str) -> None:
        """After the server's fence refused an eviction: find out whether the lock is ours, and enter it again.

        Raises:
            LostLockError: another run took the node over.
            StopRun: the API server did not answer for a minute.
            ClusterError: the lock is ours, and the fence cannot be written.
        """
        lock = self._locks[node]
        if lock.held:
            lock.renew()
            self.fence([node])
            self._hold(self._server.hold, [node])
        self.fence([node])

    def lost(self) -> dict[str, str]:
        """The nodes that another run took over, and which."""
        return {node: lock.lost for node, lock in self._locks.items() if lock.lost}

    def leave(self, seconds: float = IDLE, *, drop: t.Collection[str] = ()) -> None:
        """Stop renewing, delete the leases of the nodes in ``drop``, and renew the others for ``seconds``.

        All of it ends within ``LEAVE_WITHIN``: what is not deleted or renewed by then expires.
        """
        until = self._ctx.clock.now() + LEAVE_WITHIN
        self._stop.set()
        if self._keeper:
            self._keeper.join(LEAVE_WITHIN / 2)
            self._keeper = None
        going = [lock for node, lock in self._locks.items() if node in drop and lock.held]
        staying = [lock for node, lock in self._locks.items() if node not in drop]
        # Both at once: neither may take the other's time.
        with self._ctx.clock.pool(act.AT_ONCE, "leave") as pool:
            dropped = pool.submit(self._drop, going, until)
            self._each(lambda lock: lock.renew(int(seconds)), staying, until)
        dropped.result()

    def _hold(self, hold: t.Callable[[t.Mapping[str, str], act.Fence], None], nodes: t.Collection[str]) -> None:
        """Enter those of the nodes whose locks are ours into the server's fence."""
        while held := [node for node in nodes if self._locks[node].held]:
            with contextlib.suppress(node_locks.LostLockError):
                hold(_entries(self._locks[node] for node in held), partial(self.fence, held))
                return

    def _drop(self, locks: t.Sequence[node_locks.NodeLock], until: float) -> None:
        """Delete these leases, and first their entries in the server's fence, so that none is left without its lock.

        The fence gets half of the time: the next holder overwrites a leftover entry, but has to wait for a lock.
        """
        left = self._left(until)
        pool = self._ctx.clock.pool(act.AT_ONCE, "fence")
        try:
            pool.submit(self._server.leave, _entries(locks), left).result(left / 2)
        except (errors.ClusterError, TimeoutError) as error:
            nodes, why = ", ".join(lock.node for lock in locks), str(error) or "no answer in time"
            self._ctx.tell(phases.What.NOT_FENCED, f"the fence in the server keeps entries of {nodes}: {why}")
        finally:
            pool.shutdown(wait=False)
        self._each(lambda lock: lock.drop(self._left(until)), locks, until)

    def _left(self, until: float) -> float:
        return max(until - self._ctx.clock.now(), 0.0)

    def _each(
        self, do: t.Callable[[node_locks.NodeLock], object], locks: t.Sequence[node_locks.NodeLock], until: float
    ) -> None:
        """Do it for all at once, and wait until ``until`` at most."""
        pool = self._ctx.clock.pool(act.AT_ONCE, "lock")
        try:
            for future in [pool.submit(do, lock) for lock in locks]:
                # Whoever needs the lease next notices that it is too old.
                with contextlib.suppress(errors.ClusterError, TimeoutError):
                    future.result(self._left(until))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _keep_renewed(self) -> None:
        self._keeper = self._ctx.clock.thread(self._keep, "lease-keeper")
        self._keeper.start()

    def _keep(self) -> None:
        while not self._stop.wait(RENEW_EVERY):
            if held := [lock for lock in self._locks.values() if lock.held]:
                self._each(lambda lock: lock.renew(), held, self._ctx.clock.now() + LEAVE_WITHIN)

    def _read_all(self) -> dict[str, objects.Raw]:
        found = {}
        for namespace in sorted({lock.target.namespace for lock in self._locks.values()}):
            for item in self._ctx.cluster.items(kinds.LEASES, namespace=namespace, patience=act.PATIENCE).items:
                found[(namespace, item["metadata"]["name"])] = item
        places = {node: (lock.target.namespace, lock.target.name) for node, lock in self._locks.items()}
        return {node: found[place] for node, place in places.items() if place in found}


def _outwait(
    ctx: context.Context,
    locks: t.Mapping[str, node_locks.NodeLock],
    waiting: dict[str, objects.Raw],
    patient: bool,
    read_all: t.Callable[[], t.Mapping[str, objects.Raw]],
) -> dict[str, str]:
    """Watch held leases until each was unchanged for its duration (taken) or was renewed (refused)."""
    start = ctx.clock.now()
    refused: dict[str, str] = {}
    silent_since = dict.fromkeys(waiting, start)
    for node, lease in waiting.items():
        text = f"lock held by {holders.holder_of(lease)}; watching whether it is alive"
        namespace, _slash, name = ("", "", "") if locks[node].kind == "Node" else node.partition("/")
        ctx.tell(phases.What.WAITING, text, node="" if name else node, namespace=namespace, name=name)
    while True:
        for node, lease in list(waiting.items()):
            now = ctx.clock.now()
            duration = holders.duration_of(lease)
            showed_life = silent_since[node] > start
            if now - silent_since[node] >= duration:
                left = locks[node].take(_unchanged(lease), lease)
                if left is None:
                    del waiting[node]
                else:
                    waiting[node], silent_since[node] = left, now
            elif duration > IDLE or (showed_life and (not patient or now >= start + DYING)):
                refused[node] = holders.held(locks[node].what, lease)
                del waiting[node]
        if not waiting:
            return refused
        ctx.clock.sleep(LOOK_EVERY)
        current = read_all()
        for node, lease in list(waiting.items()):
            seen = current.get(node) or locks[node].take(_unchanged(lease), None)
            if seen is None:
                del waiting[node]
            elif seen["metadata"].get("resourceVersion") != lease["metadata"].get("resourceVersion"):
                waiting[node], silent_since[node] = seen, ctx.clock.now()


def _unchanged(seen: objects.Raw) -> t.Callable[[objects.Raw], bool]:
    """Only the lease as it was watched may be taken: any write of it was a renewal."""
    version = seen["metadata"].get("resourceVersion")
    return lambda lease: bool(lease["metadata"].get("resourceVersion") == version)


def _entries(locks: t.Iterable[node_locks.NodeLock]) -> dict[str, str]:
    """What the server's fence says of these locks: holder by name of the lease."""
    return {lock.target.name: str(lock.me) for lock in locks}
