# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The lease that says who works on a node or a descheduler right now: taken,
proven before a write, given up.

As long as it names a heartbeat, that is renewed in its place, see ``run_heartbeats``;
otherwise it is renewed itself.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    run_context,
    run_reconcile,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import clocks, errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    lock_leases,
    run_heartbeats,
    run_leases,
)

TRY_AGAIN_SECONDS = 1.0
"""Seconds between two renewals that are needed for a write."""
HEARTBEAT_LEASE_SECONDS = 86_400
"""The leaseDurationSeconds of a lease that a heartbeat keeps alive. Earlier releases know no
heartbeats; by this they take it for held.
"""


class LostLockError(run_context.CallAborted):
    """Another run took the node (or what else is locked) over; nothing more may be sent for it."""

    def __init__(self, node: str, why: str, kind: str = "Node") -> None:
        kept = f"the {kind}'s stored state holds it all"
        if kind == "Node":
            kept = "the node's record holds it all"
        super().__init__(
            "adopted_by",
            f"{kind} {node} was taken over: {why}. This run stops before its next change.",
            f"Look at the other run. Nothing of this one is lost: {kept}.",
            f"{kind} {node}",
        )
        self.node = node
        self.why = why


class NodeLock(run_heartbeats.HeldLease):
    """The lock of one node for the run ``me``; ``lost`` says who took it over, empty if nobody did.

    ``place`` is ``<namespace>/<name>`` of its lease, ``target``. With another ``kind``, ``node`` is
    the name of such an object, ``<namespace>/<name>``. With a ``heartbeat``, which is started
    before the lock is taken, that is renewed instead of the lease.
    Safe to use from several threads.
    """

    def __init__(
        self,
        ctx: run_context.Context,
        me: run_context.Run,
        node: str,
        place: str,
        kind: str = "Node",
        heartbeat: run_heartbeats.Heartbeat | None = None,
    ) -> None:
        namespace, _slash, name = place.partition("/")
        super().__init__(ctx, me, run_leases.ref(name, namespace))
        self.node = node
        self.kind = kind
        self.lost = ""
        self.heartbeat = heartbeat

    def is_of(self, me: run_context.Run, place: str) -> bool:
        """Whether it holds this lease in the name of this run."""
        same = place == f"{self.target.namespace}/{self.target.name}"
        return self.held and self.me == me and same

    @property
    def what(self) -> str:
        return f"{self.kind} {self.node}"

    @property
    def held(self) -> bool:
        """Whether it was taken, and no other run is known to have taken it since."""
        return self._raw is not None and not self.lost

    @property
    def fresh(self) -> bool:
        """Whether no run that follows the protocol can have taken it yet."""
        if (heartbeat := self.heartbeat) is None:
            return self.held and super().fresh
        # In this order: a heartbeat that is made anew in between is not the one
        # that the lease names.
        return self.held and heartbeat.fresh and self.named

    @property
    def named(self) -> bool:
        """Whether its lease names the heartbeat as it is now, as far as is known."""
        return self.names(self._raw)

    @property
    def behind(self) -> bool:
        """Whether it was taken, and its lease has yet to name the heartbeat as it is now."""
        return self.held and self.heartbeat is not None and not self.named

    def take(
        self, may: t.Callable[[objects.Raw], bool], known: objects.Raw | None
    ) -> objects.Raw | None:
        """Take it if it is free or ``may`` allows it; ``None`` if it is ours,
        else the lease as it is.

        ``may`` decides about a lease that has a holder; ``known`` is the lease as it was read just
        now. A lease that this start holds and that names its heartbeat is ours without a write.

        Raises:
            ClusterError: the lease cannot be written or read.
        """
        stamp = self._stamp()

        def decide(lease: objects.Raw | None) -> api_changes.Change | None:
            if self._is_claimed(lease, stamp):
                return None
            if lease is not None and lease["spec"].get("holderIdentity") and not may(lease):
                return None
            return self._claim(lease, stamp)

        with self._one_at_a_time:
            found = self._write(decide, known)
            if self._is_claimed(found, stamp):
                self._keep(t.cast("objects.Raw", found))
                return None
            return found

    def refresh(self) -> bool:
        """Renew the lease, or make sure that it names a fresh heartbeat; whether that certainly
        succeeded. ``prove`` calls it until it did.
        """
        if (heartbeat := self.heartbeat) is None:
            return self.renew()
        return heartbeat.refresh() and (self.named or self.look())

    def look(self) -> bool:
        """Read the lease; one that does not name the heartbeat is written anew.
        Whether it is certainly ours.
        """
        with self._one_at_a_time:
            if not (self.held and self.heartbeat):
                return False
            stamp = self._stamp()

            def decide(lease: objects.Raw | None) -> api_changes.Change | None:
                self._notice_loss(lease)
                if self.lost or self._is_claimed(lease, stamp):
                    return None
                return self._claim(lease, stamp)

            return self._hold_on(decide, run_reconcile.UNREAD)

    def renew(self, seconds: int = lock_leases.WORKING) -> bool:
        """Renew the lease itself for so many seconds, from now on without a heartbeat;
        whether that succeeded.
        """
        with self._one_at_a_time:
            if not self.held:
                return False
            self.heartbeat = None
            stamp = self._stamp()

            def decide(lease: objects.Raw | None) -> api_changes.Change | None:
                self._notice_loss(lease)
                if lease is None or self.lost:
                    return None
                if _term(lease) == (stamp, seconds):
                    return None
                body = {
                    "spec": {"leaseDurationSeconds": seconds, "renewTime": stamp},
                    **_marked(lease, {}),
                }
                return run_leases.patch(lease, f"Lock {self.what}", body)

            return self._hold_on(decide, self._raw)

    def prove(self) -> None:
        """Prove that it is still ours, however long this process was frozen; an old one is renewed.

        Raises:
            LostLockError: another run took the node over.
            CallAborted: the API server did not answer for a minute.
        """
        waited = clocks.Stopwatch(self._ctx.clock)
        while not self.fresh:
            if self.lost:
                raise LostLockError(self.node, self.lost, self.kind)
            if waited.read() > run_requests.PATIENCE:
                raise run_context.CallAborted(
                    "lock_unsure",
                    f"The lock of {self.what} could not be renewed, "
                    "so another run may have taken it.",
                    "Run the same command again once the API server answers: it resumes.",
                    self.what,
                )
            if not self.refresh() and not self.lost:
                self._ctx.clock.sleep(TRY_AGAIN_SECONDS)

    def drop(self, patience: float) -> None:
        """Delete the lease, unless another run holds it by now.

        Raises:
            ClusterError: it could not be deleted.
        """

        def decide(lease: objects.Raw | None) -> api_changes.Change | None:
            if lease is None or not self._is_ours(lease):
                return None
            return run_leases.deletion(lease, f"Delete the lock of {self.what}")

        with self._one_at_a_time:
            known = self._raw
            self._raw = None
            if known is not None and not self.lost:
                self._write(
                    decide, known, patience=patience, timeout=run_heartbeats.RENEW_WITHIN_SECONDS
                )

    def _notice_loss(self, lease: objects.Raw | None) -> None:
        if lease is None:
            self.lost = "its lease was deleted"
        elif not self._is_ours(lease):
            self.lost = run_leases.held_by(self.what, lease)

    def _hold_on(self, decide: run_reconcile.Decide, known: t.Any) -> bool:
        """Write the lease once more, and keep it as it is then;
        whether that certainly succeeded.
        """
        limits = {
            "patience": run_heartbeats.NO_PATIENCE,
            "timeout": run_heartbeats.RENEW_WITHIN_SECONDS,
            "tries": run_heartbeats.MAX_TRIES,
        }
        try:
            found = self._write(decide, known, **limits)
        except errors.ClusterError:
            return False
        if found is None or self.lost:
            return False
        self._keep(found)
        return True

    def names(self, lease: objects.Raw | None) -> bool:
        """Whether the lease is ours, and names our heartbeat."""
        uid = heartbeat.uid if (heartbeat := self.heartbeat) else ""
        return bool(
            lease and uid and self._is_ours(lease) and lock_leases.heartbeat_of(lease)[1] == uid
        )

    def _is_claimed(self, lease: objects.Raw | None, stamp: str) -> bool:
        """Whether the lease is ours by our heartbeat, or without one by our
        own write of that time.
        """
        if self.heartbeat:
            return self.names(lease)
        return _term(lease) == (stamp, lock_leases.WORKING) and self._is_ours(lease)

    def _claim(self, lease: objects.Raw | None, stamp: str) -> api_changes.Change:
        seconds = HEARTBEAT_LEASE_SECONDS if self.heartbeat else lock_leases.WORKING
        spec = {"holderIdentity": str(self.me), "leaseDurationSeconds": seconds, "renewTime": stamp}
        more = {}
        if self.heartbeat:
            more[names.HEARTBEAT] = f"{self.heartbeat.target.name}/{self.heartbeat.uid}"
        if lease is None:
            spec["acquireTime"] = stamp
            return run_leases.creation(self.target, f"Lock {self.what}", self._ctx.by, spec, more)
        if not self._is_ours(lease):
            spec["acquireTime"] = stamp
            spec["leaseTransitions"] = (lease.get("spec") or {}).get("leaseTransitions", 0) + 1
        body = {"spec": spec, **_marked(lease, {names.LOCK_DETAILS: self._ctx.by, **more})}
        return run_leases.patch(lease, f"Lock {self.what}", body)


def _term(lease: objects.Raw | None) -> tuple[t.Any, t.Any]:
    """When the lease was renewed, and for how many seconds."""
    spec = (lease or {}).get("spec") or {}
    return spec.get("renewTime"), spec.get("leaseDurationSeconds")


def _marked(lease: objects.Raw, annotations: t.Mapping[str, str]) -> objects.Raw:
    """What gives the lease these annotations; that of a heartbeat goes if it is not among them."""
    known = lease["metadata"].get("annotations") or {}
    gone: dict[str, str | None] = {names.HEARTBEAT: None} if names.HEARTBEAT in known else {}
    wanted = {**gone, **annotations}
    return {"metadata": {"annotations": wanted}} if wanted else {}


# Watching the locks that others hold until it is clear whether their holders are alive.


EARLIER_START_DIES_SECONDS = 60.0
"""Seconds for which a restarted run waits for its earlier start to die."""
LOOK_EVERY_SECONDS = 1.0
"""Seconds between two lists of leases that are watched."""
HELD_REMEDY = "Wait until it ends, or inspect it with the recover playbook."
"""Of a node that another run holds."""


# One state machine for each lock: a turn of the loop is a look at all of them.
def wait_for_expiry(  # noqa: C901
    ctx: run_context.Context,
    locks: t.Mapping[str, NodeLock],
    waiting: dict[str, lock_leases.Seen],
    patient: bool,
    read_all: t.Callable[[], t.Mapping[str, lock_leases.Seen]],
) -> dict[str, str]:
    """Watch leases that others hold until each is taken, because it was not renewed for its whole
    duration, or refused, because it was.

    ``waiting`` are the locks by node, with their leases as they were read; it is empty afterwards.
    ``patient``: an earlier start of the run may hold them, and is waited for until it has died.
    Returns the nodes that others hold, each with the reason.
    """
    start = ctx.clock.now()
    refused: dict[str, str] = {}
    silent_since = dict.fromkeys(waiting, start)
    alive: set[str] = set()
    ended: set[str] = set()
    for node, seen in waiting.items():
        text = f"lock held by {run_leases.holder_of(seen.lease)}; watching whether it is alive"
        if locks[node].kind == "Node":
            ctx.tell(phases.What.WAITING, text, node=node)
        else:
            namespace, _slash, name = node.partition("/")
            ctx.tell(phases.What.WAITING, text, namespace=namespace, name=name)

    def take(node: str, lease: objects.Raw | None, now: float) -> None:
        left = locks[node].take(_unchanged(lease), lease)
        if left is None:
            del waiting[node]
        else:
            waiting[node] = as_now(left, waiting[node])
            silent_since[node] = now
            alive.add(node)

    while True:
        for node, seen in list(waiting.items()):
            now = ctx.clock.now()
            if now - silent_since[node] >= seen.duration:
                if run_heartbeats.end_once(ctx, seen.heartbeat, ended):
                    take(node, seen.lease, now)
            elif seen.duration > lock_leases.IDLE or (
                node in alive and (not patient or now >= start + EARLIER_START_DIES_SECONDS)
            ):
                refused[node] = run_leases.held_by(locks[node].what, seen.lease)
                if locks[node].kind == "Node":
                    theirs = lock_leases.is_theirs(seen.lease)
                    refused[node] += f". {lock_leases.THEIR_REMEDY if theirs else HELD_REMEDY}"
                del waiting[node]
        if not waiting:
            return refused
        ctx.clock.sleep(LOOK_EVERY_SECONDS)
        current = read_all()
        for node, seen in list(waiting.items()):
            fresh = current.get(node)
            if fresh is None:
                take(node, None, ctx.clock.now())
            elif fresh.differs(seen):
                waiting[node] = fresh
                silent_since[node] = ctx.clock.now()
                if fresh.shows_life(seen):
                    alive.add(node)


def as_now(lease: objects.Raw, seen: lock_leases.Seen | None) -> lock_leases.Seen:
    """The lease as it is now, with its heartbeat if that was ``seen`` a moment ago."""
    return lock_leases.Seen.among(lease, filter(None, [seen.heartbeat if seen else None]))


def _unchanged(seen: objects.Raw | None) -> t.Callable[[objects.Raw], bool]:
    """Only the lease as it was watched may be taken: any write of it was a renewal."""
    version = seen["metadata"].get("resourceVersion") if seen else None
    return lambda lease: bool(version and lease["metadata"].get("resourceVersion") == version)
