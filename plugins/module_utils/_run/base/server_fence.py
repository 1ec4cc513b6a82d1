# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The fence in the API server: a map of who holds which node lock, by which a policy judges our evictions.

The map is ``held`` in one NodeFence, ``<name of the lease>: <run>/<nonce>``, and comes with the policy:
without it nothing is written here. Who takes a lock writes its entry before anything else; from then on the server
refuses what an earlier holder still has under way. An entry goes when its lock is given back.

An entry is written on the condition that the map is as it was read *before* the lock was proven. So a
process that was frozen in between cannot write over the entry of the one who took its lock.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    names,
    objects,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, holders, writing

MAP = objects.Ref("NodeFence", names.FENCE_MAP, names.NAMESPACE, api_version=names.FENCE_API)


def by_the_fence(error: errors.ClusterError) -> bool:
    """Whether it was our policy that refused an eviction."""
    return isinstance(error, errors.DeniedByWebhook) and f"'{names.FENCE_POLICY}'" in error.message


class ServerFence:
    """The entries of ``me`` in the map; ``there`` says whether there is a map, as far as is known.

    Safe to use from several threads.
    """

    def __init__(self, ctx: context.Context, me: context.Run) -> None:
        self._ctx, self._me = ctx, str(me)
        self._one_at_a_time = ctx.clock.lock()
        self.there = False

    def hold(self, leases: t.Collection[str], prove: act.Fence) -> None:
        """Write us in as the holder of these locks, where there is a map; ``prove`` shows that they are ours.

        Raises:
            ClusterError: the map could not be read or written; whatever ``prove`` raises comes through.
        """

        def decide(found: objects.Raw | None) -> api_changes.Change | None:
            self.there = found is not None
            held = _entries(found)
            wanted = {lease: self._me for lease in sorted(leases) if held.get(lease) != self._me}
            return _patch(found, wanted) if found is not None and wanted else None

        with self._one_at_a_time:
            writing.write(self._ctx, MAP, decide, fence=prove, remember=False)

    def leave(self, leases: t.Collection[str], patience: float = act.PATIENCE) -> None:
        """Take our entries for these locks out again, within ``patience``; those of somebody else stay.

        Raises:
            ClusterError: the map could not be read or written.
        """
        if self.there:
            with self._one_at_a_time:
                _take_out(self._ctx, leases, lambda holder: holder == self._me, patience)

    def try_to_hold(self, leases: t.Collection[str], prove: act.Fence) -> None:
        """As ``hold``, but what stands against it is only told: evictions will show whether it matters."""
        try:
            self.hold(leases, prove)
        except errors.Forbidden as error:
            if self.there:
                self._ctx.tell(phases.What.NOT_FENCED, f"the fence in the server could not be written: {error}")
        except errors.ClusterError as error:
            self._ctx.tell(phases.What.NOT_FENCED, f"the fence in the server could not be written: {error}")


def forget(ctx: context.Context, leases: t.Collection[str], run: context.Run) -> None:
    """Take out what any start of the run left in the map for these locks, which are deleted by now."""
    try:
        _take_out(ctx, leases, lambda holder: holders.run_of(holder) == run.id)
    except errors.ClusterError as error:
        ctx.tell(phases.What.NOT_FENCED, f"the fence in the server keeps entries of {', '.join(leases)}: {error}")


def _take_out(
    ctx: context.Context, leases: t.Collection[str], ours: t.Callable[[str], bool], patience: float = act.PATIENCE
) -> None:
    def decide(found: objects.Raw | None) -> api_changes.Change | None:
        held = _entries(found)
        gone = {lease: None for lease in sorted(leases) if lease in held and ours(held[lease])}
        return _patch(found, gone) if found is not None and gone else None

    writing.write(ctx, MAP, decide, remember=False, patience=patience, timeout=min(patience, 30.0))


def _entries(found: objects.Raw | None) -> t.Mapping[str, str]:
    return (found or {}).get("held") or {}


def _patch(found: objects.Raw, held: t.Mapping[str, str | None]) -> api_changes.Change:
    version = found["metadata"]["resourceVersion"]
    return api_changes.Change(
        "patch", MAP, "Say in the server's fence who holds the locks", {"held": held}, resource_version=version
    )
