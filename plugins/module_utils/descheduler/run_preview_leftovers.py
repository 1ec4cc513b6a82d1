# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What dry runs of deschedulers leave whose call was killed."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    run_context,
    run_reconcile,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import stored_objects


def sweep(ctx: run_context.Context, uid: str = "", namespace: str = "") -> None:
    """Delete what dry runs left, of the descheduler with this UID or of all; what cannot be
    deleted is noted, and ends by itself.
    """
    for raw in _left(ctx, uid, namespace):
        remove(ctx, raw["metadata"], remember=not uid)


def remove(ctx: run_context.Context, meta: objects.Raw, *, remember: bool) -> None:
    """Delete a dry run's ConfigMap and its pod."""
    for kind in (kinds.CONFIGMAPS, kinds.PODS):
        uid = meta["uid"] if kind is kinds.PODS else ""
        ref = objects.Ref(kind.kind, meta["name"], meta["namespace"], uid, kind.api_version)
        change = api_changes.Change(
            "delete", ref, f"Delete {ref}", grace_seconds=0 if uid else None
        )
        try:
            run_reconcile.remove(ctx, change, remember=remember)
        except errors.ClusterError as error:
            ctx.note(phases.What.KEPT, f"{ref} was not deleted: {error}")


def traces(ctx: run_context.Context) -> tuple[stored_objects.Trace, ...]:
    """The dry runs that killed calls left, for the list of all that earlier runs left."""
    what = "the dry run of a descheduler's configuration, with its ConfigMap"
    found = []
    for raw in _left(ctx):
        meta = raw["metadata"]
        ref = objects.Ref("Pod", meta["name"], meta["namespace"])
        found.append(stored_objects.Trace(ref, what, since=meta["creationTimestamp"]))
    return tuple(found)


def _left(ctx: run_context.Context, uid: str = "", namespace: str = "") -> t.Sequence[objects.Raw]:
    labels = f"{names.PREVIEW}={uid}" if uid else names.PREVIEW
    try:
        return ctx.cluster.items(kinds.PODS, namespace=namespace, labels=labels).items
    except errors.Forbidden:
        # Every recovery asks.
        return ()
