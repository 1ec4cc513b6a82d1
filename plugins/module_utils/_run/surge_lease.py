# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Holding the leases of surges: written first, renewed while somebody works, deleted last."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.change import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Raw
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.surge import RENEW, Surge
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.act import PATIENCE, request_for
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.write import write


class LostSurgeError(Exception):
    """Somebody else holds the surge now; ``str()`` says who."""


class SurgeLeases:
    """The surge leases one call holds in the name of ``holder``; empty keeps the name that is there."""

    def __init__(self, ctx: Context, holder: str = "") -> None:
        self._ctx, self._holder = ctx, holder
        self._renewed: dict[str, float] = {}

    def write(self, surge: Surge) -> Surge:
        """Write the record before anything changes.

        Raises:
            AlreadyExists: a surge of this workload is recorded already.
        """
        change = surge.writing(self._holder, self._ctx.clock.wall())
        stamp = (change.body or {})["spec"]["renewTime"]

        def decide(lease: Raw | None) -> Change | None:
            if lease is None:
                return change
            spec = lease.get("spec") or {}
            if (spec.get("holderIdentity"), spec.get("renewTime")) != (self._holder, stamp):
                raise AlreadyExists(f"a surge of {surge.workload} is recorded already")
            return None

        return self._read(t.cast("Raw", write(self._ctx, surge.lease, decide, known=None).object), surge)

    def hold(self, surge: Surge) -> Surge:
        """Put our name and the present time into the lease, with the record as it is in ``surge``.

        Raises:
            LostSurgeError: somebody else has it, or it is gone.
        """
        change = surge.renewing(self._holder or surge.holder, self._ctx.clock.wall())
        try:
            return self._read(self._ctx.cluster.send(request_for(change), patience=PATIENCE), surge)
        except NotFound as error:
            raise LostSurgeError(f"the record of the surge of {surge.workload} is gone") from error
        except Conflict as error:
            now = self._look(surge)
            if now is None or now.holder != surge.holder:
                by = now.holder.partition("/")[0] if now else "nobody"
                raise LostSurgeError(f"the surge of {surge.workload} is held by run {by} now") from error
            retried = now.with_record_of(surge).renewing(self._holder or now.holder, self._ctx.clock.wall())
            return self._read(self._ctx.cluster.send(request_for(retried), patience=PATIENCE), surge)

    def keep(self, surge: Surge) -> Surge:
        """Renew the lease if it is time to."""
        now = self._ctx.clock.now()
        due = self._renewed.setdefault(surge.uid, now) + RENEW
        return self.hold(surge) if now >= due else surge

    def forget(self, surge: Surge) -> None:
        """Delete the lease as we last wrote it.

        Raises:
            LostSurgeError: somebody else wrote it since.
        """
        change = surge.forgetting()
        try:
            self._ctx.cluster.send(request_for(change), patience=PATIENCE)
        except NotFound:
            return
        except Conflict as error:
            raise LostSurgeError(f"the record of the surge of {surge.workload} was changed by somebody") from error
        self._ctx.changed(change)

    def _look(self, surge: Surge) -> Surge | None:
        request = verbs.get(kinds.LEASES, surge.lease.name, namespace=surge.lease.namespace)
        try:
            return Surge.from_lease(self._ctx.cluster.send(request, patience=PATIENCE))
        except NotFound:
            return None

    def _read(self, answer: Raw, surge: Surge) -> Surge:
        self._renewed[surge.uid] = self._ctx.clock.now()
        return t.cast("Surge", Surge.from_lease(answer))
