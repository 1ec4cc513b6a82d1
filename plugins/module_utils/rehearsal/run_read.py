# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Reads a cluster into a snapshot by lists alone, and no Secrets and ConfigMaps."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    run_context,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    errors,
    kinds,
    verbs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import (
    field_filter,
    hashing,
    notes,
    snapshot_files,
)

KINDS: t.Mapping[str, kinds.Kind] = {
    "nodes": kinds.NODES,
    "namespaces": kinds.NAMESPACES,
    "pods": kinds.PODS,
    "deployments": kinds.DEPLOYMENTS,
    "replica_sets": kinds.REPLICA_SETS,
    "stateful_sets": kinds.STATEFUL_SETS,
    "daemon_sets": kinds.DAEMON_SETS,
    "jobs": kinds.JOBS,
    "budgets": kinds.BUDGETS,
    "autoscalers": kinds.HPAS,
    "services": kinds.SERVICES,
    "claims": kinds.PVCS,
    "volumes": kinds.PVS,
    "quotas": kinds.RESOURCE_QUOTAS,
    "limits": kinds.LIMIT_RANGES,
    "csi_nodes": kinds.CSI_NODES,
    "storage_classes": kinds.STORAGE_CLASSES,
    "priority_classes": kinds.PRIORITY_CLASSES,
    "runtime_classes": kinds.RUNTIME_CLASSES,
}
"""What is read, by its name in a snapshot."""
OPTIONAL = frozenset(
    {"jobs", "csi_nodes", "storage_classes", "priority_classes", "runtime_classes"}
)
"""What may be refused to be read: it then counts as empty, and the rehearsal says so."""


def snapshot(
    ctx: run_context.Context, hash_key: str
) -> tuple[snapshot_files.Snapshot, dict[str, str]]:
    """The cluster as it is now, and the name of each node in the snapshot, by its real name.

    Raises:
        ClusterError: the API server did not answer.
        CallAborted: kinds may not be read, or two names have the same hash.
    """
    found: snapshot_files.Objects = {}
    gaps: list[snapshot_files.Note] = []
    refused: list[str] = []
    for name, kind in KINDS.items():
        try:
            found[name] = _listed(ctx, name, kind, gaps)
        except errors.Forbidden:
            if name in OPTIONAL:
                found[name] = []
                gaps.append(notes.note("unread", detail=kind.resource))
            else:
                refused.append(kind.resource)
    if refused:
        raise run_context.CallAborted(
            "missing_permission",
            f"These credentials may not list {', '.join(refused)}.",
            "Bind them to the ClusterRoles kubeops-node-maintenance-read and "
            "kubeops-node-maintenance-rehearse.",
        )
    names = {raw["metadata"]["name"]: raw["metadata"]["name"] for raw in found["nodes"]}
    if hash_key:
        hasher = hashing.Hasher(hash_key)
        try:
            names = {name: hasher.name(name) for name in names}
            found = {kind: hasher.hashed(raws) for kind, raws in found.items()}
            gaps = [{**one, "object": _hashed(hasher, one["object"])} for one in gaps]
        except hashing.SameHashError as error:
            raise run_context.CallAborted("same_hash", str(error)) from error
    made = snapshot_files.Snapshot(version(ctx), ctx.clock.wall(), bool(hash_key), found, gaps)
    return made, names


def version(ctx: run_context.Context) -> str:
    """The version of the API server, such as ``v1.36.3``."""
    answer = ctx.cluster.send(verbs.server_version())
    return str(answer.get("gitVersion") or "")


def _listed(
    ctx: run_context.Context, name: str, kind: kinds.Kind, gaps: list[snapshot_files.Note]
) -> list[dict[str, t.Any]]:
    def keep(raw: dict[str, t.Any]) -> dict[str, t.Any] | None:
        meta = raw["metadata"]
        about = str(objects.Ref(kind.kind, meta["name"], meta.get("namespace", "")))
        gaps.extend(notes.note(code, about) for code in field_filter.notes(name, raw))
        return field_filter.slim(name, raw)

    return [raw for raw in ctx.cluster.items(kind, keep=keep).items if raw is not None]


def _hashed(hasher: hashing.Hasher, about: str) -> str:
    found = objects.Ref.read(about)
    if found is None:
        return about
    space = hasher.name(found.namespace) if found.namespace else ""
    return str(objects.Ref(found.kind, hasher.name(found.name), space))
