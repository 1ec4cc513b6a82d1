# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Leases in a call's hands, and the one of them that a start of a run renews for all of its
nodes: its heartbeat.

The age of a lease counts from the moment its renewal was *sent*: the answer may be read much later,
by a process that was frozen or a machine that was suspended in between.

Nobody is harmed if a heartbeat is deleted: a new one has another UID, so its owner has to write the
lease of each node anew before it counts as held again, and everybody else gives it the time for
that. So whoever takes a node over deletes the heartbeat first, on the condition that it is as it
was watched: a holder that was frozen cannot renew it any more.
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
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    clocks,
    errors,
    kinds,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    lock_leases,
    run_leases,
)

MARGIN_SECONDS = 1.0
"""So many seconds before its end a lease proves nothing any more: the request that it is proven for
takes time to arrive.
"""
RENEW_WITHIN_SECONDS = 5.0
"""Seconds one attempt to renew or to give up may take."""
NO_PATIENCE = 0.0
"""Seconds for which a renewal is repeated: the next one follows soon."""
MAX_TRIES = 3
"""How often a renewal is decided; other calls of the same start renew the heartbeat, too."""


def moment(server: str, token: str) -> str:
    """The API server's time of a write to the microsecond, which identifies it
    if its answer is lost.

    The last three digits are drawn, so that two writes of one millisecond differ, too.
    """
    return server.replace("Z", f"{int(token, 16) % 1000:03d}Z")


class HeldLease:
    """The lease ``target``, held in the name of ``me``. Safe to use from several threads."""

    def __init__(self, ctx: run_context.Context, me: run_context.Run, target: objects.Ref) -> None:
        self.me = me
        self.target = target
        self._ctx = ctx
        self._raw: objects.Raw | None = None
        self._sent = clocks.Stopwatch(ctx.clock)
        self._confirmed: clocks.Stopwatch | None = None
        self._one_at_a_time = ctx.clock.lock()

    @property
    def fresh(self) -> bool:
        """Whether no run that follows the protocol can have found it expired yet."""
        return (
            self._confirmed is not None
            and self._confirmed.read() <= lock_leases.WORKING - MARGIN_SECONDS
        )

    def _stamp(self) -> str:
        return moment(self._ctx.clock.server(), self._ctx.clock.token())

    def _is_ours(self, lease: objects.Raw | None) -> bool:
        return lease is not None and (lease.get("spec") or {}).get("holderIdentity") == str(self.me)

    def _write(
        self, decide: run_reconcile.Decide, known: t.Any, **limits: t.Any
    ) -> objects.Raw | None:
        how = {**limits, "known": known, "prove_lock": self._sending, "remember": False}
        return run_reconcile.reconcile(self._ctx, self.target, decide, **how).object

    def _sending(self) -> None:
        self._sent = clocks.Stopwatch(self._ctx.clock)

    def _keep(self, lease: objects.Raw) -> None:
        self._raw = lease
        self._confirmed = self._sent


class Heartbeat(HeldLease):
    """The heartbeat of the start ``me``; several calls of the start may renew it at once."""

    def __init__(self, ctx: run_context.Context, me: run_context.Run) -> None:
        super().__init__(ctx, me, run_leases.ref(names.heartbeat_name(str(me)), names.NAMESPACE))

    @property
    def uid(self) -> str:
        """The UID it had when it was last renewed."""
        return str(self._raw["metadata"]["uid"]) if self._raw else ""

    @property
    def lease(self) -> objects.Raw | None:
        """It as it was last renewed."""
        return self._raw

    def start(self, known: objects.Raw | None) -> None:
        """Renew it before a lease that names it is relied on, or make it;
        ``known`` is it as it was listed just now.

        Raises:
            ClusterError: it may not be written, or the server could not be reached.
            CallAborted: our namespace is missing and may not be created.
        """
        with self._one_at_a_time:
            self._renew(lock_leases.WORKING, known=known)

    def renew(self) -> bool:
        """Renew it, or make it anew if it is gone; whether that certainly succeeded."""
        with self._one_at_a_time:
            return self._try_to_renew()

    def refresh(self) -> bool:
        """Whether it is fresh; one that is not is renewed first. Called before a write."""
        with self._one_at_a_time:
            return self.fresh or self._try_to_renew()

    def leave(self, seconds: int) -> None:
        """Let it hold for so many seconds, in which nobody renews it; one that is gone stays so.

        Raises:
            ClusterError: it could not be written.
        """
        with self._one_at_a_time:
            if self._raw is not None:
                self._renew(
                    seconds,
                    make=False,
                    patience=NO_PATIENCE,
                    timeout=RENEW_WITHIN_SECONDS,
                    tries=MAX_TRIES,
                )

    def _try_to_renew(self) -> bool:
        try:
            self._renew(
                lock_leases.WORKING,
                patience=NO_PATIENCE,
                timeout=RENEW_WITHIN_SECONDS,
                tries=MAX_TRIES,
            )
        except errors.ClusterError:
            return False
        return True

    def _renew(self, seconds: int, *, make: bool = True, **how: t.Any) -> None:
        spec = {
            "holderIdentity": str(self.me),
            "leaseDurationSeconds": seconds,
            "renewTime": self._stamp(),
        }

        def decide(lease: objects.Raw | None) -> api_changes.Change | None:
            if lease is None and not make:
                return None
            sentence = f"Renew the heartbeat of run {self.me.id}"
            return run_leases.renewal(self.target, lease, sentence, self._ctx.by, spec)

        if found := self._write(decide, **{"known": self._raw, **how}):
            self._keep(found)


def end(
    ctx: run_context.Context, heartbeat: objects.Raw, patience: float = run_requests.PATIENCE
) -> bool:
    """Delete a heartbeat as it was read; whether that succeeded:
    ``False`` if it was written or deleted since.

    Raises:
        ClusterError: it may not be deleted, or the server could not be reached.
    """
    deletion = run_leases.deletion(
        heartbeat, f"Delete the heartbeat of run {run_leases.holder_of(heartbeat)}"
    )
    gone = False

    def decide(lease: objects.Raw | None) -> api_changes.Change | None:
        nonlocal gone
        gone = gone or lease is None
        as_read = (
            lease is not None and lease["metadata"]["resourceVersion"] == deletion.resource_version
        )
        return deletion if as_read else None

    written = run_reconcile.reconcile(
        ctx,
        deletion.target,
        decide,
        known=heartbeat,
        remember=False,
        patience=patience,
        timeout=min(patience, run_requests.TIMEOUT),
    )
    return written.change is not None and not gone


def end_once(ctx: run_context.Context, heartbeat: objects.Raw | None, ended: set[str]) -> bool:
    """Delete a heartbeat before the first lease that names it is taken or deleted;
    whether nobody has renewed it.

    ``ended`` has the UIDs of those that were deleted so. ``None``:
    no heartbeat is named, or it is gone.

    Raises:
        ClusterError: it may not be deleted, or the server could not be reached.
    """
    if heartbeat is None:
        return True
    uid = heartbeat["metadata"]["uid"]
    if uid in ended:
        return True
    if not end(ctx, heartbeat):
        return False
    ended.add(uid)
    return True


def sweep(
    ctx: run_context.Context,
    run_id: str = "",
    patience: float = run_requests.PATIENCE,
    only: objects.Raw | None = None,
) -> None:
    """Delete the heartbeats of a run (of all runs, if none is named) that no lease names;
    a failure is only reported.

    Those of other starts, too: what a start has left that was killed, nobody else would delete.
    ``only`` is known to be such a one, and the only one: leases are listed just if somebody has
    written it since.
    """
    if ctx.check:
        return
    try:
        if only and end(ctx, only, patience):
            return
        leases = ctx.cluster.items(kinds.LEASES, namespace=names.NAMESPACE, patience=patience).items
        named = {lock_leases.heartbeat_of(lease)[1] for lease in leases}
        for lease in filter(lock_leases.is_heartbeat, leases):
            wanted = run_id in ("", run_leases.holder_of(lease))
            if wanted and lease["metadata"]["uid"] not in named:
                end(ctx, lease, patience)
    except errors.NotFound:
        return
    except errors.ClusterError as error:
        ctx.tell(phases.What.NOTE, f"a heartbeat may be left, which recover deletes: {error}")
