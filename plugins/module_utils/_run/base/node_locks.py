# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The lease that says who works on a node or a descheduler right now: taken, renewed, proven before a write, given up.

The age of a lease counts from the moment its renewal was *sent*: the answer may be read much later, by a
process that was frozen or a machine that was suspended in between.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import clocks, errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import api_changes, names, objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, holders, writing

WORKING = 15
"""Seconds a lease lasts while a call works."""
MARGIN = 1.0
"""Seconds before its end from which a lease proves nothing any more: a request takes time to arrive."""
RENEW_WITHIN = 5.0
"""Seconds one attempt to renew or to give up may take."""
NO_PATIENCE = 0.0
"""Seconds for which a renewal is repeated: the next one follows soon."""
TRY_AGAIN = 1.0
"""Seconds between two renewals that are needed for a write."""


class LostLockError(context.StopRun):
    """Another run took the node (or what else is locked) over; nothing more may be sent for it."""

    def __init__(self, node: str, why: str, kind: str = "Node") -> None:
        kept = "the node's record holds it all" if kind == "Node" else f"the {kind}'s stored state holds it all"
        super().__init__(
            "adopted_by",
            f"{kind} {node} was taken over: {why}. This run stops before its next change.",
            f"Look at the other run. Nothing of this one is lost: {kept}.",
            f"{kind} {node}",
        )
        self.node, self.why = node, why


def moment(wall: str, token: str) -> str:
    """The time of a write to the microsecond, which identifies it if its answer is lost.

    The last three digits are drawn, so that two writes of one millisecond differ, too.
    """
    return wall.replace("Z", f"{int(token, 16) % 1000:03d}Z")


class NodeLock:
    """The lock of one node for the run ``me``; ``lost`` says who took it over, empty if nobody did.

    ``place`` is ``<namespace>/<name>`` of its lease, ``target``. With another ``kind``, ``node`` is the name of such an
    object, ``<namespace>/<name>``. Safe to use from several threads.
    """

    def __init__(self, ctx: context.Context, me: context.Run, node: str, place: str, kind: str = "Node") -> None:
        self.node, self.me, self.lost, self.kind = node, me, "", kind
        self._ctx = ctx
        namespace, _slash, name = place.partition("/")
        self.target = holders.ref(name, namespace)
        self._raw: objects.Raw | None = None
        self._sent = clocks.Stopwatch(ctx.clock)
        self._confirmed: clocks.Stopwatch | None = None
        self._one_at_a_time = ctx.clock.lock()

    @property
    def what(self) -> str:
        """What it locks, as text."""
        return f"{self.kind} {self.node}"

    @property
    def held(self) -> bool:
        """Whether it was taken, and no other run is known to have taken it since."""
        return self._raw is not None and not self.lost

    @property
    def fresh(self) -> bool:
        """Whether no run that follows the protocol can have taken it yet."""
        return self.held and self._confirmed is not None and self._confirmed.read() <= WORKING - MARGIN

    def take(self, may: t.Callable[[objects.Raw], bool], known: objects.Raw | None) -> objects.Raw | None:
        """Take it if it is free or ``may`` allows it; ``None`` if it is ours, else the lease as it is.

        ``may`` decides about a lease that has a holder; ``known`` is the lease as it was read just now.

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

    def renew(self, seconds: int = WORKING) -> bool:
        """Renew it for so many seconds; whether that certainly succeeded."""
        with self._one_at_a_time:
            if not self.held:
                return False
            stamp = self._stamp()

            def decide(lease: objects.Raw | None) -> api_changes.Change | None:
                if lease is None:
                    self.lost = "its lease was deleted"
                elif not self._is_ours(lease):
                    self.lost = holders.held(self.what, lease)
                elif (lease["spec"].get("renewTime"), lease["spec"].get("leaseDurationSeconds")) != (stamp, seconds):
                    body = {"spec": {"leaseDurationSeconds": seconds, "renewTime": stamp}}
                    return holders.patch(lease, f"Lock {self.what}", body)
                return None

            try:
                found = self._write(decide, self._raw, patience=NO_PATIENCE, timeout=RENEW_WITHIN, tries=3)
            except errors.ClusterError:
                return False
            if found is None or self.lost:
                return False
            self._keep(found)
            return True

    def fence(self) -> None:
        """Prove that it is still ours, however long this process was frozen; an old one is renewed.

        Raises:
            LostLockError: another run took the node over.
            StopRun: the API server did not answer for a minute.
        """
        waited = clocks.Stopwatch(self._ctx.clock)
        while not self.fresh:
            if self.lost:
                raise LostLockError(self.node, self.lost, self.kind)
            if waited.read() > act.PATIENCE:
                raise context.StopRun(
                    "lock_unsure",
                    f"The lock of {self.what} could not be renewed, so another run may have taken it.",
                    "Run the same command again once the API server answers: it resumes.",
                    self.what,
                )
            if not self.renew() and not self.lost:
                self._ctx.clock.sleep(TRY_AGAIN)

    def drop(self, patience: float) -> None:
        """Delete the lease, unless another run holds it by now.

        Raises:
            ClusterError: it could not be deleted.
        """

        def decide(lease: objects.Raw | None) -> api_changes.Change | None:
            if lease is None or not self._is_ours(lease):
                return None
            return holders.deletion(lease, f"Delete the lock of {self.what}")

        with self._one_at_a_time:
            known, self._raw = self._raw, None
            if known is not None and not self.lost:
                self._write(decide, known, patience=patience, timeout=RENEW_WITHIN)

    def _stamp(self) -> str:
        return moment(self._ctx.clock.wall(), self._ctx.clock.token())

    def _is_ours(self, lease: objects.Raw | None) -> bool:
        return lease is not None and (lease.get("spec") or {}).get("holderIdentity") == str(self.me)

    def _is_claimed(self, lease: objects.Raw | None, stamp: str) -> bool:
        """Whether our own write of that time succeeded."""
        spec = (lease or {}).get("spec") or {}
        claimed = (spec.get("renewTime"), spec.get("leaseDurationSeconds")) == (stamp, WORKING)
        return claimed and self._is_ours(lease)

    def _write(self, decide: writing.Decide, known: objects.Raw | None, **limits: t.Any) -> objects.Raw | None:
        how = {**limits, "known": known, "fence": self._sending, "remember": False}
        return writing.write(self._ctx, self.target, decide, **how).object

    def _sending(self) -> None:
        self._sent = clocks.Stopwatch(self._ctx.clock)

    def _keep(self, lease: objects.Raw) -> None:
        self._raw, self._confirmed = lease, self._sent

    def _claim(self, lease: objects.Raw | None, stamp: str) -> api_changes.Change:
        spec = {"holderIdentity": str(self.me), "leaseDurationSeconds": WORKING, "renewTime": stamp}
        if lease is None:
            spec["acquireTime"] = stamp
            return holders.creation(self.target, f"Lock {self.what}", self._ctx.by, spec)
        if not self._is_ours(lease):
            spec["acquireTime"] = stamp
            spec["leaseTransitions"] = (lease.get("spec") or {}).get("leaseTransitions", 0) + 1
        body = {"metadata": {"annotations": {names.LOCK_DETAILS: self._ctx.by}}, "spec": spec}
        return holders.patch(lease, f"Lock {self.what}", body)
