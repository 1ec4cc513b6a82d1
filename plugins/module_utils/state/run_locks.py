# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The locks on the nodes (or a descheduler) of one call: taken together,
and kept alive as long as the call runs.

What state a node is in is not in its lock but in its record, by which the next holder of an expired
lock goes on. A taker trusts only its own clock: it has to see a lease, or the heartbeat that it
names, unchanged for its whole duration, because ``renewTime`` is by another clock.

Calls of one start share one heartbeat for all their nodes, so what is renewed does not grow with
the nodes. Leases are renewed one by one in a namespace that others read too (Medik8s'), for calls
by hand, whose identity others may have as well, for a descheduler, and while a user's tasks run,
for which the lease of each node holds by itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import typing as t
from functools import partial

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    index_keys,
    names,
    objects,
    run_context,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    errors,
    kinds,
    verbs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    lock_leases,
    node_records,
    run_heartbeats,
    run_leases,
    run_lock_policy,
    run_node_lock,
)

IDLE = lock_leases.IDLE
"""Seconds a lease lasts between two calls of one run."""
RENEW_EVERY_SECONDS = 5.0
RENEWALS_PER_LOOK = 3
"""With every so many renewals of a heartbeat, the leases that name it are listed, as a person may
have deleted one.
"""
LEAVE_WITHIN_SECONDS = 10.0
"""Seconds that leaving all locks may take; what is left after that expires."""


def lease_namespace(ctx: run_context.Context, wanted: str | None) -> str:
    """The namespace of node leases: ``wanted``, else that of Medik8s if it exists, else ours.

    Raises:
        ClusterError: it is unknown whether that of Medik8s exists. If one account guessed, two
            could lock the same node in two places.
    """
    if wanted:
        return wanted
    if (recent := ctx.listed_recently("namespaces")) is not None:
        there = {raw["metadata"]["name"] for raw in recent.items}
        return names.MEDIK8S_NAMESPACE if names.MEDIK8S_NAMESPACE in there else names.NAMESPACE
    try:
        ctx.cluster.send(verbs.get(kinds.NAMESPACES, names.MEDIK8S_NAMESPACE))
    except errors.NotFound:
        return names.NAMESPACE
    return names.MEDIK8S_NAMESPACE


def all_leases(
    ctx: run_context.Context, records: t.Iterable[node_records.Record] = ()
) -> list[objects.Raw]:
    """All leases where locks may be, also where only these records name one.

    Raises:
        ClusterError: they may not be read, or the server could not be reached.
    """
    places = {record.lease.partition("/")[0] for record in records if record.lease}
    return run_leases.leases_in(ctx, {*places, names.NAMESPACE, lease_namespace(ctx, None)})


class LeaseRenewer:
    """Keeps the ``locks`` of a call, which are by node, alive in a thread of its own.

    The locks of one start of a run share one of its ``heartbeats``; others are renewed themselves.
    """

    def __init__(self, ctx: run_context.Context) -> None:
        self.ctx = ctx
        self.locks: dict[str, run_node_lock.NodeLock] = {}
        self.heartbeats: dict[run_context.Run, run_heartbeats.Heartbeat] = {}
        self._beside = set[str]()
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
        """The locks of this moment: a step may add to them while a round goes on."""
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
        """All leases of the namespaces in which the locks are."""
        namespaces = {lock.target.namespace for lock in self._all()}
        leases = run_leases.leases_in(self.ctx, namespaces)
        held: list[run_heartbeats.HeldLease] = [*self._all(), *self.heartbeats.values()]
        own = {lock.target.name for lock in held}
        others = [lease for lease in leases if lease["metadata"]["name"] not in own]
        self._beside = set(map(run_leases.holder_of, filter(_beats, others)))
        return {lock_leases.place_of(lease): lease for lease in leases}

    def only_heartbeat(self, me: run_context.Run) -> objects.Raw | None:
        """The heartbeat of this start, if the last list had no other one of its run, nor a lock
        of another call that names one.
        """
        return None if me.id in self._beside else self.heartbeats[me].lease

    def seen_in(
        self, listed: t.Mapping[lock_leases.NamespacedName, objects.Raw]
    ) -> dict[str, lock_leases.Seen]:
        """The locks among the leases, by node."""
        found = {}
        for node, lock in list(self.locks.items()):
            if lease := listed.get((lock.target.namespace, lock.target.name)):
                name, _uid = lock_leases.heartbeat_of(lease)
                heartbeat = listed.get((lock.target.namespace, name))
                found[node] = lock_leases.Seen.among(lease, filter(None, [heartbeat]))
        return found


def _beats(lease: objects.Raw) -> bool:
    """Whether it is a heartbeat or names one."""
    return lock_leases.is_heartbeat(lease) or bool(lock_leases.heartbeat_of(lease)[1])


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
                future.result(seconds_left(ctx, until))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def seconds_left(ctx: run_context.Context, until: float) -> float:
    """Seconds that are left."""
    return max(until - ctx.clock.now(), 0.0)


class SharedLocks:
    """The locks on nodes that the steps of one call hold one after the other.

    A step takes what no step before it has taken, and leaves only what it deletes; all others are
    renewed from the first step to ``leave``.
    """

    def __init__(self, ctx: run_context.Context) -> None:
        self.ctx = ctx
        self.keeper = LeaseRenewer(ctx)
        self.server = run_lock_policy.LockPolicy(ctx)

    def leave(self) -> None:
        """Let those that are still held hold for the usual time between two calls."""
        Locks(dataclasses.replace(self.ctx, locks=self), all_shared=True).leave()


class Locks:
    """The locks on nodes in the hands of one call, each in the name of the run it is given.

    ``leases`` maps a node to ``<namespace>/<name>`` of its lease, ``me`` is in whose name they are
    held. With another ``kind``, these are such objects instead of nodes, by ``<namespace>/<name>``.
    ``listed`` are the leases of our namespace, if they were listed under all of these locks.
    ``held_before`` says that a step before held all of them when they were to be taken, so that
    whatever this step has read was read under them.
    """

    def __init__(
        self,
        ctx: run_context.Context,
        me: run_context.Run | None = None,
        leases: t.Mapping[str, str] | None = None,
        kind: str = "Node",
        *,
        all_shared: bool = False,
    ) -> None:
        self._ctx = ctx
        self._of_nodes = kind == "Node"
        self._kind = kind
        shared = ctx.locks if self._of_nodes and isinstance(ctx.locks, SharedLocks) else None
        self._stays = shared is not None and not all_shared
        self._keeper = shared.keeper if shared else LeaseRenewer(ctx)
        self._server = shared.server if shared else run_lock_policy.LockPolicy(ctx)
        self._locks: dict[str, run_node_lock.NodeLock] = {}
        self.held_before = False
        self.listed: run_context.RecentList | None = None
        if not self._stays:
            self._locks = self._keeper.locks
        for node, place in (leases or {}).items():
            me = me or run_context.Run("")
            heartbeat = self._keeper.heartbeat(me, place) if self._of_nodes else None
            self._add(me, node, place, heartbeat)

    def take_recorded(self, records: t.Mapping[str, node_records.Record]) -> dict[str, str]:
        """Take the locks of nodes that have a record, each in the name of its record's run.

        Returns the nodes that somebody else holds, each with the reason.

        Raises:
            ClusterError: the leases cannot be read.
        """
        borrowed = self._ctx.run is None or not self._ctx.run.nonce
        for node, record in records.items():
            me = run_context.Run(record.run, record.nonce)
            heartbeat = None if borrowed else self._keeper.heartbeat(me, record.lease)
            self._add(me, node, record.lease, heartbeat)
        return self.take(borrowed=borrowed) if records else {}

    def _add(
        self, me: run_context.Run, node: str, place: str, heartbeat: run_heartbeats.Heartbeat | None
    ) -> None:
        """A lock to be taken; one that a step before has taken is taken already."""
        lock = self._keeper.locks.get(node) if self._stays else None
        if lock is None or not lock.is_of(me, place):
            ctx = self._keeper.ctx
            lock = run_node_lock.NodeLock(ctx, me, node, place, self._kind, heartbeat)
        self._locks[node] = self._keeper.locks[node] = lock

    def take(
        self,
        *,
        patient: bool = False,
        borrowed: bool = False,
        adopt: bool = False,
        unheld: bool = False,
    ) -> dict[str, str]:
        """Take every lease; returns the nodes that somebody else holds, each with the reason.

        A taken lease is renewed from then on, also while others are still waited for.

        Args:
            patient: the holder is an earlier start of the same run, so wait for it to die.
            borrowed: the identity was read from the record, so a lease that is being renewed
                belongs to another call.
            adopt: the caller vouches that nobody works on the hosts any more, so a lease that the
                same run left for the duration of its tasks is taken without waiting for its end.
            unheld: most likely nobody holds any, so all are created before the leases are listed;
                the list is then what ``listed`` has.
        """
        self.held_before = self._stays and all(lock.fresh for lock in self._locks.values())
        if self.held_before:
            return {}
        self._keeper.start()
        try:
            if unheld:
                _create(self._keeper, self._locks.values())
            asked = self._locks.values()
            taken = all(lock.fresh for lock in asked)
            at = self._ctx.clock.now()
            listed = self._keeper.listed()
            self._know_run(listed)
            if taken and any(lock.target.namespace == names.NAMESPACE for lock in asked):
                self.listed = run_context.RecentList(_in_our_namespace(listed), "", at)
            refused = self._keeper.start_heartbeats(listed)
            untaken = [lock for lock in asked if not lock.fresh]
            wanted = [lock for lock in untaken if lock.node not in refused]
            current = self._keeper.seen_in(listed)

            now = self._ctx.clock.server()

            def take(lock: run_node_lock.NodeLock) -> lock_leases.Seen | str | None:
                return _taken(lock, current.get(lock.node), now, borrowed=borrowed, adopt=adopt)

            with self._ctx.clock.pool(run_requests.MAX_PARALLEL, "lock") as pool:
                answers = list(pool.map(take, wanted))
            waiting: dict[str, lock_leases.Seen] = {}
            for lock, answer in zip(wanted, answers, strict=True):
                if isinstance(answer, str):
                    refused[lock.node] = answer
                elif answer is not None:
                    waiting[lock.node] = answer
            refused |= run_node_lock.wait_for_expiry(
                self._ctx, self._locks, waiting, patient, self._keeper.look
            )
            if self._of_nodes:
                self._hold(self._server.try_to_hold, self._locks)
            return refused
        except BaseException:
            self.leave()
            raise

    def _know_run(self, listed: t.Mapping[lock_leases.NamespacedName, objects.Raw]) -> None:
        """Keep the caller's run's own lease, which the call may have to renew later on."""
        run_id, _nonce = self._ctx.caller
        name = names.run_name(run_id)
        if lease := listed.get((names.NAMESPACE, name)):
            self._ctx.latest[run_leases.ref(name, names.NAMESPACE)] = lease

    def prove(self, nodes: t.Collection[str] | None = None) -> None:
        """Prove before a write that the locks of these nodes (``None``:
        of all that were taken) are still ours.

        Raises:
            LostLockError: another run took a node over.
            CallAborted: the API server did not answer for a minute.
        """
        for node, lock in self._locks.items():
            if (nodes is None or node in nodes) and (lock.held or lock.lost):
                lock.prove()

    def regain(self, node: str) -> None:
        """After the server's fence refused an eviction: find out whether the lock is
        ours, and enter it again.

        Raises:
            LostLockError: another run took the node over.
            CallAborted: the API server did not answer for a minute.
            ClusterError: the lock is ours, and the fence cannot be written.
        """
        lock = self._locks[node]
        if lock.held:
            if lock.heartbeat:
                lock.look()
            else:
                lock.renew()
            self.prove([node])
            self._hold(self._server.hold, [node])
        self.prove([node])

    def lost(self) -> dict[str, str]:
        """The nodes that another run took over, and which."""
        return {node: lock.lost for node, lock in self._locks.items() if lock.lost}

    def leave(self, seconds: float = IDLE, *, drop: t.Collection[str] = ()) -> None:
        """Stop renewing, delete the leases of the nodes in ``drop``,
        and let the others hold for ``seconds``.

        Those that steps share are renewed further, unless they are to hold for longer than
        between two calls. A heartbeat is left for the usual time between two calls, or deleted if
        no lease names it any more. All of it ends within ``LEAVE_WITHIN_SECONDS``: what is not
        deleted or renewed by then expires.
        """
        until = self._ctx.clock.now() + LEAVE_WITHIN_SECONDS
        going = [lock for node, lock in self._locks.items() if node in drop and lock.held]
        if self._stays and seconds == IDLE:
            self._drop(going, until)
            return
        self._keeper.stop()
        staying = [lock for node, lock in self._locks.items() if node not in drop and lock.held]
        beating = {lock.me for lock in staying if lock.heartbeat} if seconds == IDLE else set()
        # Both at once: neither may take the other's time.
        with self._ctx.clock.pool(run_requests.MAX_PARALLEL, "leave") as pool:
            dropped = pool.submit(self._drop, going, until)
            renewals = [
                partial(lock.renew, int(seconds))
                for lock in staying
                if not beating or not lock.heartbeat
            ]
            left = [partial(self._keeper.heartbeats[me].leave, int(seconds)) for me in beating]
            at_once(self._ctx, [*renewals, *left], until)
        dropped.result()
        # A renewal that was under way may have made a heartbeat anew: its leases name it now,
        # or are another run's.
        at_once(self._ctx, [lock.look for lock in staying if lock.behind], until)
        if left_over := seconds_left(self._ctx, until):
            needed = beating & {lock.me for lock in staying if lock.held}
            over = [me for me in self._keeper.heartbeats if me not in needed]
            none_left = not (self._stays or staying)
            sweeps: list[t.Callable[[], object]] = []
            for me in over:
                only = self._keeper.only_heartbeat(me) if none_left else None
                sweeps.append(partial(run_heartbeats.sweep, self._ctx, me.id, left_over, only))
            at_once(self._ctx, sweeps, until)
        if self._stays:
            for node in self._locks:
                self._keeper.locks.pop(node, None)

    def _hold(
        self,
        hold: t.Callable[[t.Mapping[str, str], run_requests.ProveLock], None],
        nodes: t.Collection[str],
    ) -> None:
        """Enter those of the nodes whose locks are ours into the server's fence."""
        while held := [node for node in nodes if self._locks[node].held]:
            with contextlib.suppress(run_node_lock.LostLockError):
                hold(_entries(self._locks[node] for node in held), partial(self.prove, held))
                return

    def _drop(self, locks: t.Sequence[run_node_lock.NodeLock], until: float) -> None:
        """Delete these leases, and first their entries in the server's fence,
        so that none is left without its lock.

        The fence gets half of the time: the next holder overwrites a leftover entry,
        but has to wait for a lock.
        """
        left = seconds_left(self._ctx, until)
        pool = self._ctx.clock.pool(run_requests.MAX_PARALLEL, "fence")
        try:
            pool.submit(self._server.leave, _entries(locks), left).result(left / 2)
        except (errors.ClusterError, TimeoutError) as error:
            nodes = ", ".join(lock.node for lock in locks)
            why = str(error) or "no answer in time"
            self._ctx.tell(
                phases.What.NOT_FENCED, f"the fence in the server keeps entries of {nodes}: {why}"
            )
        finally:
            pool.shutdown(wait=False)
        at_once(self._ctx, [partial(self._drop_one, lock, until) for lock in locks], until)

    def _drop_one(self, lock: run_node_lock.NodeLock, until: float) -> None:
        lock.drop(seconds_left(self._ctx, until))


def _entries(locks: t.Iterable[run_node_lock.NodeLock]) -> dict[str, str]:
    """What the server's fence says of these locks: holder by name of the lease."""
    return {lock.target.name: str(lock.me) for lock in locks}


def _create(keeper: LeaseRenewer, locks: t.Iterable[run_node_lock.NodeLock]) -> None:
    """Create the leases that do not exist. Why one cannot be is found out after a list:
    who holds it is told by that.
    """
    refused = keeper.start_heartbeats({})
    missing = [lock for lock in locks if lock.node not in refused]

    def create(lock: run_node_lock.NodeLock) -> None:
        with contextlib.suppress(errors.ClusterError):
            lock.take(lambda _lease: False, None)

    with keeper.ctx.clock.pool(run_requests.MAX_PARALLEL, "lock") as pool:
        list(pool.map(create, missing))


def _in_our_namespace(
    listed: t.Mapping[lock_leases.NamespacedName, objects.Raw],
) -> list[objects.Raw]:
    ours = [lease for (namespace, _name), lease in listed.items() if namespace == names.NAMESPACE]
    return list(filter(None, map(index_keys.PARSERS["leases"], ours)))


def _taken(
    lock: run_node_lock.NodeLock,
    seen: lock_leases.Seen | None,
    now: str,
    *,
    borrowed: bool,
    adopt: bool,
) -> lock_leases.Seen | str | None:
    """``None`` if the lock could be taken, else its lease as it is now, or why it cannot be;
    ``now`` is the API server's time.
    """

    def free(lease: objects.Raw) -> bool:
        holder = run_context.Run.parse(lease["spec"].get("holderIdentity"))
        duration = run_node_lock.as_now(lease, seen).duration
        if lock_leases.has_lapsed(lease, now):
            return True
        if adopt and duration > IDLE and holder and holder.id == lock.me.id:
            return True
        return holder == lock.me and not (borrowed and duration <= lock_leases.WORKING)

    try:
        left = lock.take(free, seen.lease if seen else None)
    except errors.ClusterError as error:
        return f"{lock.what} could not be locked: {error}"
    return run_node_lock.as_now(left, seen) if left else None
