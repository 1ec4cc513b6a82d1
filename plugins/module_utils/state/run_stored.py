# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Reads what the cluster stores about runs and their nodes."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    objects,
    run_context,
    run_reconcile,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    node_records,
    stored_objects,
)


def config_maps(ctx: run_context.Context) -> list[dict[str, t.Any]]:
    """Our ConfigMaps: stored runs, and journals of deschedulers."""
    try:
        listing = ctx.cluster.items(
            kinds.CONFIGMAPS,
            namespace=names.NAMESPACE,
            labels=f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY}",
        )
    except errors.NotFound:
        return []
    return listing.items


def stored(ctx: run_context.Context) -> list[stored_objects.StoredRun]:
    """All stored runs that can be read."""
    return list(readable(config_maps(ctx)))


def readable(raws: t.Iterable[objects.Raw]) -> t.Iterator[stored_objects.StoredRun]:
    """The stored runs among these ConfigMaps; ``recover`` reports those that cannot be read."""
    for raw in raws:
        with contextlib.suppress(node_records.BadRecordError):
            if run := stored_objects.stored_run(raw):
                yield run


def run_ref(run_id: str) -> objects.Ref:
    """The ConfigMap that keeps the run."""
    return objects.Ref("ConfigMap", names.run_name(run_id), names.NAMESPACE, api_version="v1")


def not_to_do(ctx: run_context.Context, run_id: str, nodes: t.Iterable[str]) -> dict[str, str]:
    """Which of the nodes the run no longer has to do, and why.

    Raises:
        BadRecordError: what is kept of the run cannot be understood.
        ClusterError: it may not be read, or the server could not be reached.
    """
    raw = run_reconcile.read(ctx, run_ref(run_id))
    run = stored_objects.stored_run(raw) if raw else None
    if run is None:
        why = "is no longer stored: another start has finished it, or it was undone"
        then = "starts anew"
        done = list(nodes)
    else:
        why, then = "has finished it in another start", "continues with the rest"
        done = [name for name in nodes if name in run.finished]
    text = f"Run {run_id} {why}. This start did not change the node; the same command {then}."
    return {name: f"Node {name} is not taken out. {text}" for name in done}
