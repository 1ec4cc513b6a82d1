# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Leases: who holds one, and the changes that create and delete one."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import api_changes, names, objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context


def run_of(identity: str | None) -> str:
    """The run of an identity ``<id>/<nonce>``, empty where nobody is named."""
    found = context.Run.parse(identity)
    return found.id if found else ""


def holder_of(lease: objects.Raw) -> str:
    """The id of the run that holds the lease, empty where nobody does."""
    return run_of((lease.get("spec") or {}).get("holderIdentity"))


def ref(name: str, namespace: str, uid: str = "") -> objects.Ref:
    """The lease of that name."""
    return objects.Ref("Lease", name, namespace, uid, "coordination.k8s.io/v1")


def creation(target: objects.Ref, sentence: str, by: str, spec: objects.Raw) -> api_changes.Change:
    """Creates a lease of ours; ``by`` says on whose behalf."""
    meta = {
        "name": target.name,
        "namespace": target.namespace,
        "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
        "annotations": {names.LOCK_DETAILS: by},
    }
    body = {"apiVersion": target.api_version, "kind": "Lease", "metadata": meta, "spec": spec}
    return api_changes.Change("create", target, sentence, body=body)


def deletion(lease: objects.Raw, sentence: str) -> api_changes.Change:
    """Deletes the lease as it was read."""
    meta = lease["metadata"]
    target = ref(meta["name"], meta["namespace"], meta["uid"])
    return api_changes.Change("delete", target, sentence, resource_version=meta["resourceVersion"])


@dataclass(frozen=True, slots=True)
class Held:
    """Why a node could not be locked: who holds it, since when, and what to do."""

    holder: str
    by: str
    since: str
    message: str

    @classmethod
    def of(cls, node: str, lease: objects.Raw) -> Held:
        """In words, from the lease as it was read."""
        spec, meta = lease.get("spec") or {}, lease.get("metadata") or {}
        holder = holder_of(lease) or "nobody"
        by = str((meta.get("annotations") or {}).get(names.LOCK_DETAILS, ""))
        since = str(spec.get("acquireTime") or "")
        words = [f"Node {node} is held by run {holder}", f"of {by}" if by else "", f"since {since}" if since else ""]
        place = f"(Lease {meta.get('namespace')}/{meta.get('name')})"
        return cls(holder, by, since, " ".join(word for word in (*words, place) if word))
