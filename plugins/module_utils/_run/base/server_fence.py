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

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import (
    ClusterError,
    DeniedByWebhook,
    Forbidden,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.objects import Raw, Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.act import PATIENCE, Fence
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.context import Context, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.holders import run_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.writing import write

MAP = Ref("NodeFence", names.FENCE_MAP, names.NAMESPACE, api_version=names.FENCE_API)


def by_the_fence(error: ClusterError) -> bool:
    """Whether it was our policy that refused an eviction."""
    return isinstance(error, DeniedByWebhook) and f"'{names.FENCE_POLICY}'" in error.message


class ServerFence:
    """The entries of ``me`` in the map; ``there`` says whether there is a map, as far as is known.

    Safe to use from several threads.
    """

    def __init__(self, ctx: Context, me: Run) -> None:
        self._ctx, self._me = ctx, str(me)
        self._one_at_a_time = ctx.clock.lock()
        self.there = False

    def hold(self, leases: t.Collection[str], prove: Fence) -> None:
        """Write us in as the holder of these locks, where there is a map; ``prove`` shows that they are ours.

        Raises:
            ClusterError: the map could not be read or written; whatever ``prove`` raises comes through.
        """

        def decide(found: Raw | None) -> Change | None:
            self.there = found is not None
            held = _entries(found)
            wanted = {lease: self._me for lease in sorted(leases) if held.get(lease) != self._me}
            return _patch(found, wanted) if found is not None and wanted else None

        with self._one_at_a_time:
            write(self._ctx, MAP, decide, fence=prove, remember=False)

    def leave(self, leases: t.Collection[str], patience: float = PATIENCE) -> None:
        """Take our entries for these locks out again, within ``patience``; those of somebody else stay.

        Raises:
            ClusterError: the map could not be read or written.
        """
        if self.there:
            with self._one_at_a_time:
                _take_out(self._ctx, leases, lambda holder: holder == self._me, patience)

    def try_to_hold(self, leases: t.Collection[str], prove: Fence) -> None:
        """As ``hold``, but what stands against it is only told: evictions will show whether it matters."""
        try:
            self.hold(leases, prove)
        except Forbidden as error:
            if self.there:
                self._ctx.tell("not_fenced", f"the fence in the server could not be written: {error}")
        except ClusterError as error:
            self._ctx.tell("not_fenced", f"the fence in the server could not be written: {error}")


def forget(ctx: Context, leases: t.Collection[str], run: Run) -> None:
    """Take out what any start of the run left in the map for these locks, which are deleted by now."""
    try:
        _take_out(ctx, leases, lambda holder: run_of(holder) == run.id)
    except ClusterError as error:
        ctx.tell("not_fenced", f"the fence in the server keeps entries of {', '.join(leases)}: {error}")


def _take_out(
    ctx: Context, leases: t.Collection[str], ours: t.Callable[[str], bool], patience: float = PATIENCE
) -> None:
    def decide(found: Raw | None) -> Change | None:
        held = _entries(found)
        gone = {lease: None for lease in sorted(leases) if lease in held and ours(held[lease])}
        return _patch(found, gone) if found is not None and gone else None

    write(ctx, MAP, decide, remember=False, patience=patience, timeout=min(patience, 30.0))


def _entries(found: Raw | None) -> t.Mapping[str, str]:
    return (found or {}).get("held") or {}


def _patch(found: Raw, held: t.Mapping[str, str | None]) -> Change:
    version = found["metadata"]["resourceVersion"]
    return Change(
        "patch", MAP, "Say in the server's fence who holds the locks", {"held": held}, resource_version=version
    )
