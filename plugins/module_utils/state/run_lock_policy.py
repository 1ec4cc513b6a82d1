# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The fence in the API server: a map of who holds which node lock,
by which a policy judges what we write to pods.

The map is ``held`` in one NodeFence, ``<name of the lease>: <run>/<nonce>``, and is installed with
the policy. Who takes a lock first writes its entry; from then on the server refuses what an earlier
holder still sends. An entry is written only if the map is as it was read *before* the lock was
proven, so a process that was frozen in between cannot overwrite the entry of the next holder.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    run_context,
    run_reconcile,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_leases

T = t.TypeVar("T")
MAP = objects.Ref("NodeFence", names.FENCE_MAP, names.NAMESPACE, api_version=names.FENCE_API)


UNANSWERED = "failed calling webhook"
"""How the API server says that one did not answer, and that this fails the request."""


def by_the_fence(error: errors.ClusterError) -> bool:
    """Whether it was our policy that refused an eviction or a patch."""
    return isinstance(error, errors.DeniedByWebhook) and f"'{names.FENCE_POLICY}'" in error.message


class LockPolicy:
    """The map of holders; ``there``: it may exist, as far as is known.
    Safe to use from several threads.

    Entries are ``<run>/<nonce>`` by name of the lease.
    """

    def __init__(self, ctx: run_context.Context, *, there: bool = False) -> None:
        self._ctx = ctx
        self.there = there
        self._one_at_a_time = ctx.clock.lock()

    def hold(self, entries: t.Mapping[str, str], prove_lock: run_requests.ProveLock) -> None:
        """Write these entries, where there is a map; ``prove_lock`` shows that the locks are ours.

        Raises:
            ClusterError: the map could not be read or written;
                whatever ``prove_lock`` raises comes through.
        """

        def decide(found: objects.Raw | None) -> api_changes.Change | None:
            self.there = found is not None
            held = _entries(found)
            wanted = {lease: me for lease, me in sorted(entries.items()) if held.get(lease) != me}
            return _patch(found, wanted) if found is not None and wanted else None

        with self._one_at_a_time:
            run_reconcile.reconcile(self._ctx, MAP, decide, prove_lock=prove_lock, remember=False)

    def leave(self, entries: t.Mapping[str, str], patience: float = run_requests.PATIENCE) -> None:
        """Remove these entries within ``patience``; those of somebody else stay.

        Raises:
            ClusterError: the map could not be read or written.
        """
        if self.there and entries:
            with self._one_at_a_time:
                _take_out(self._ctx, lambda lease, holder: entries.get(lease) == holder, patience)

    def try_to_hold(self, entries: t.Mapping[str, str], prove_lock: run_requests.ProveLock) -> None:
        """As ``hold``, but a failure is only reported: the first eviction will
        show whether it matters.
        """
        try:
            self.hold(entries, prove_lock)
        except errors.ClusterError as error:
            if self.there or not isinstance(error, errors.Forbidden):
                self._ctx.tell(
                    phases.What.NOT_FENCED, f"the fence in the server could not be written: {error}"
                )


def named(decide: run_reconcile.Decide, lock: str) -> run_reconcile.Decide:
    """The same changes, each of which names the lock under which it is sent."""

    def naming_the_lock(found: objects.Raw | None) -> api_changes.Change | None:
        change = decide(found)
        return replace(change, lock=lock) if change else None

    return naming_the_lock


def sent(send: t.Callable[[], T], regain: t.Callable[[], object]) -> T:
    """What ``send`` gives; it is called once more where the fence refused it, after ``regain``.

    The fence may have been installed after the lock was taken.
    """
    try:
        return send()
    except errors.DeniedByWebhook as denied:
        if not by_the_fence(denied):
            raise
    regain()
    return send()


def refusal(
    ctx: run_context.Context, change: api_changes.Change, *, by_others: bool
) -> errors.ClusterError | None:
    """What a webhook or policy says to a dry run of the change; ``None`` where none refuses it, or
    something else does.

    Our fence is not meant: what is done to a pod names a lock, which a plan does not hold. Nor are
    the bounds of our account, where a controller will make the change (``by_others``).
    """
    if change.target.kind == "Pod":
        change = replace(change, lock=f"{names.node_lease_name('')}={names.TRIAL}")
    request = verbs.dry(run_requests.request_for(change))
    try:
        ctx.cluster.send(request, patience=run_requests.NO_PATIENCE)
    except errors.DeniedByWebhook as error:
        bounds = by_others and f".{names.PREFIX}'" in error.message
        return None if bounds or by_the_fence(error) else error
    except errors.ServerError as error:
        return error if UNANSWERED in error.message else None
    except errors.ClusterError:
        return None
    return None


def forget(ctx: run_context.Context, lease: str, run_id: str) -> None:
    """Remove the entry that any start of the run left for this lock, which is deleted by now."""
    try:
        _take_out(ctx, lambda name, holder: name == lease and run_leases.run_of(holder) == run_id)
    except errors.ClusterError as error:
        ctx.tell(
            phases.What.NOT_FENCED, f"the fence in the server keeps the entry of {lease}: {error}"
        )


def _take_out(
    ctx: run_context.Context,
    ours: t.Callable[[str, str], bool],
    patience: float = run_requests.PATIENCE,
) -> None:
    def decide(found: objects.Raw | None) -> api_changes.Change | None:
        gone = {
            lease: None for lease, holder in sorted(_entries(found).items()) if ours(lease, holder)
        }
        return _patch(found, gone) if found is not None and gone else None

    run_reconcile.reconcile(
        ctx,
        MAP,
        decide,
        remember=False,
        patience=patience,
        timeout=min(patience, run_requests.TIMEOUT),
    )


def _entries(found: objects.Raw | None) -> t.Mapping[str, str]:
    return (found or {}).get("held") or {}


def _patch(found: objects.Raw, held: t.Mapping[str, str | None]) -> api_changes.Change:
    version = found["metadata"]["resourceVersion"]
    return api_changes.Change(
        "patch",
        MAP,
        "Write the holders of the locks into the server's fence",
        {"held": held},
        resource_version=version,
    )
