# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Leases: those that there are, who holds one, and the changes that create and delete one."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    run_context,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    lock_leases,
    node_records,
)


def run_of(identity: str | None) -> str:
    """The run of an identity ``<id>/<nonce>``, empty without one."""
    found = run_context.Run.parse(identity)
    return found.id if found else ""


def holder_of(lease: objects.Raw) -> str:
    """The id of the run that holds the lease, empty if none does."""
    return run_of((lease.get("spec") or {}).get("holderIdentity"))


def ref(name: str, namespace: str, uid: str = "") -> objects.Ref:
    """The lease of that name."""
    return objects.Ref("Lease", name, namespace, uid, "coordination.k8s.io/v1")


def creation(
    target: objects.Ref,
    sentence: str,
    by: str,
    spec: objects.Raw,
    more: t.Mapping[str, str] | None = None,
) -> api_changes.Change:
    """Creates a lease of ours; ``by`` says on whose behalf, ``more`` are further annotations."""
    meta = {
        "name": target.name,
        "namespace": target.namespace,
        "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
        "annotations": {names.LOCK_DETAILS: by, **(more or {})},
    }
    body = {"apiVersion": target.api_version, "kind": "Lease", "metadata": meta, "spec": spec}
    return api_changes.Change("create", target, sentence, body=body)


def renewal(
    target: objects.Ref, lease: objects.Raw | None, sentence: str, by: str, spec: objects.Raw
) -> api_changes.Change | None:
    """Creates the lease, or renews it as it was read; ``None`` where its spec is so already."""
    if lease is None:
        return creation(target, sentence, by, {**spec, "acquireTime": spec["renewTime"]})
    if spec.items() <= (lease.get("spec") or {}).items():
        return None
    return patch(lease, sentence, {"spec": spec})


def patch(lease: objects.Raw, sentence: str, body: objects.Raw) -> api_changes.Change:
    """Patches the lease as it was read."""
    meta = lease["metadata"]
    target = ref(meta["name"], meta["namespace"])
    return api_changes.Change(
        "patch", target, sentence, body=body, resource_version=meta["resourceVersion"]
    )


def deletion(lease: objects.Raw, sentence: str) -> api_changes.Change:
    """Deletes the lease as it was read."""
    meta = lease["metadata"]
    target = ref(meta["name"], meta["namespace"], meta["uid"])
    return api_changes.Change("delete", target, sentence, resource_version=meta["resourceVersion"])


def held_by(what: str, lease: objects.Raw) -> str:
    """Why a node (``Node n1``) or a descheduler could not be locked:
    who holds it, and since when.
    """
    spec, meta = lease.get("spec") or {}, lease.get("metadata") or {}
    by, since = (meta.get("annotations") or {}).get(names.LOCK_DETAILS), spec.get("acquireTime")
    run = "" if lock_leases.is_theirs(lease) else "run "
    text = f"{what} is held by {run}{holder_of(lease) or 'nobody'}"
    if by:
        text += f" of {by}"
    if since:
        text += f" since {since}"
    text += f" (Lease {meta.get('namespace')}/{meta.get('name')})"
    if of_tasks(lease):
        then = node_records.once_over(holder_of(lease)).rstrip(".")
        text += f"; its tasks may still be running on the host. {then}"
    return text


def of_tasks(lock: objects.Raw) -> bool:
    """Whether it is the lock of a node, left for as long as the tasks of its run may take."""
    named = lock["metadata"]["name"].startswith(names.NODE_LEASE_PREFIX)
    return named and lock_leases.is_left(lock) and not lock_leases.is_theirs(lock)


def leases_in(ctx: run_context.Context, namespaces: t.Iterable[str]) -> list[objects.Raw]:
    """All leases of these namespaces; one that does not exist has none.

    Of one that only a record names none are known if they may not be read:
    a kubelet can write the record of its node.

    Raises:
        ClusterError: they may not be read, or the server could not be reached.
    """
    found: list[objects.Raw] = []
    for namespace in sorted(set(namespaces)):
        try:
            listed = ctx.cluster.items(kinds.LEASES, namespace=namespace)
        except errors.NotFound:
            continue
        except (errors.Forbidden, errors.Invalid):
            if namespace in (names.NAMESPACE, names.MEDIK8S_NAMESPACE):
                raise
            continue
        found += listed.items
    return found
