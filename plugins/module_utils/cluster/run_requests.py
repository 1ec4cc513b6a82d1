# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""From a change as data to a request, and sending it."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    run_context,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    client,
    kinds,
    verbs,
)


def request_for(change: api_changes.Change) -> verbs.Request:
    """The request that makes the change, guarded by the UID or resourceVersion that it names."""
    target = change.target
    kind = kinds.KINDS[(target.api_version, target.kind)]
    match change.verb:
        case "create":
            return verbs.create(kind, dict(change.body or {}), namespace=target.namespace)
        case "patch" | "scale" | "status":
            body = dict(change.body or {})
            if change.resource_version:
                body["metadata"] = {
                    **body.get("metadata", {}),
                    "resourceVersion": change.resource_version,
                }
            subresource = "" if change.verb == "patch" else change.verb
            # Nothing else of a patch is for admission alone: an annotation would stay.
            holder = change.lock.partition("=")[2]
            return verbs.merge_patch(kind, target.name, body, target.namespace, subresource, holder)
        case "delete":
            return verbs.delete(
                kind,
                target.name,
                namespace=target.namespace,
                uid=target.uid,
                resource_version=change.resource_version,
                grace_seconds=change.grace_seconds,
            )
        case "evict":
            return verbs.evict(
                target.namespace,
                target.name,
                target.uid,
                grace_seconds=change.grace_seconds,
                annotations={names.FENCE: change.lock} if change.lock else None,
            )


MAX_PARALLEL = 8
"""How many requests of one call, or objects to work on, are under way at most."""
PATIENCE, NO_PATIENCE = client.PATIENCE, client.NO_PATIENCE
TIMEOUT = 30.0
"""Seconds one attempt of a request may take."""
ProveLock = t.Callable[[], None]
"""Proves that the sender may still act; raises where it may not."""


def submit(
    ctx: run_context.Context,
    change: api_changes.Change,
    *,
    prove_lock: ProveLock | None = None,
    patience: float = PATIENCE,
    timeout: float = TIMEOUT,
    remember: bool = True,
) -> objects.Raw | None:
    """Send the change, remember it, and give the object as it is now;
    in check mode only remember it.

    ``lock`` is called before every attempt; what it raises ends the change unsent. For the rest
    see ``run_reconcile.reconcile``.

    Raises:
        ClusterError: the server refused or could not be reached; nothing is remembered then.
    """
    answer = None
    if not ctx.check:
        answer = ctx.cluster.send(
            request_for(change), timeout=timeout, patience=patience, before_send=prove_lock
        )
    if remember:
        ctx.changed(change)
    return None if change.verb == "delete" else answer
