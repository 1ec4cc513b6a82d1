# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Objects of the cluster by lists, parsed, of the kinds that a question needs."""

from __future__ import annotations

import contextlib
import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    index_keys,
    names,
    objects,
    run_context,
    scopes,
    sharing,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    client,
    errors,
    kinds,
)

KINDS: t.Mapping[str, kinds.Kind] = {
    "nodes": kinds.NODES,
    "pods": kinds.PODS,
    "budgets": kinds.BUDGETS,
    "deployments": kinds.DEPLOYMENTS,
    "replica_sets": kinds.REPLICA_SETS,
    "stateful_sets": kinds.STATEFUL_SETS,
    "rollouts": kinds.ROLLOUTS,
    "clone_sets": kinds.CLONE_SETS,
    "autoscalers": kinds.HPAS,
    "daemon_sets": kinds.DAEMON_SETS,
    "claims": kinds.PVCS,
    "volumes": kinds.PVS,
    "quotas": kinds.RESOURCE_QUOTAS,
    "limits": kinds.LIMIT_RANGES,
    "slices": kinds.ENDPOINT_SLICES,
    "leases": kinds.LEASES,
    "attachments": kinds.VOLUME_ATTACHMENTS,
    "device_claims": kinds.RESOURCE_CLAIMS,
    "device_slices": kinds.RESOURCE_SLICES,
    "device_classes": kinds.DEVICE_CLASSES,
    "pod_groups": kinds.POD_GROUPS,
    "eviction_requests": kinds.EVICTION_REQUESTS,
    "csi_nodes": kinds.CSI_NODES,
    "storage_classes": kinds.STORAGE_CLASSES,
    "virtual_machines": kinds.VIRTUAL_MACHINES,
    "kubevirts": kinds.KUBEVIRTS,
    "selecting_services": kinds.SERVICES,
    "network_policies": kinds.NETWORK_POLICIES,
    "replication_controllers": kinds.REPLICATION_CONTROLLERS,
    "kruise_daemon_sets": kinds.KRUISE_DAEMON_SETS,
    "selecting_jobs": kinds.JOBS,
}

OPTIONAL = frozenset({"pod_groups", "virtual_machines", "kubevirts"})
"""What may be refused to be read: it then counts as empty."""
REFUSABLE = frozenset(
    {
        "selecting_services",
        "network_policies",
        "replication_controllers",
        "kruise_daemon_sets",
        "selecting_jobs",
    }
)
"""What may be refused, too, where it is then known that it is:
the resources are then in ``refused``.
"""


def spaces_of(name: str, part: scopes.Slice) -> tuple[str, ...]:
    """The namespaces in which a part of a kind is, none for all."""
    return (names.NAMESPACE,) if name == "leases" else part.namespaces


def lists(
    cluster: client.Cluster,
    wanted: t.Collection[str],
    scope: scopes.ReadScope | None = None,
    recent: dict[str, run_context.RecentList] | None = None,
    owners: t.Container[str] | None = None,
    follows: t.Collection[str] = (),
) -> dict[str, list[t.Any]]:
    """Parsed objects by kind, of what is in scope: one list request (in pages) for each
    kind, or each part of it.

    ``recent`` takes in the lists of whole kinds, which there are without a scope.
    ``owners`` are the UIDs of all owners of pods: other earlier revisions are left out. Lists of
    kinds that it ``follows`` begin a watch, for who watches them next.
    """
    found: dict[str, list[t.Any]] = {name: [] for name in wanted}
    share = sharing.Interner()
    for name in wanted:
        at = cluster.clock.now()
        version = ""
        begun = list[client.Stream]()
        try:
            for part in scope.parts(name) if scope else (scopes.ALL,):
                if scope is None and name in follows:
                    listing, begun = _begun(cluster, name, share)
                else:
                    listing = _listing(cluster, name, part, scope, share, owners=owners)
                found[name] += listing.items
                version = listing.resource_version
        except errors.NotFound:
            pass
        except errors.Forbidden:
            if name in REFUSABLE:
                found.setdefault("refused", []).append(KINDS[name].resource)
            elif name not in OPTIONAL:
                raise
            continue
        if recent is not None and scope is None and name != "nodes":
            recent[name] = run_context.RecentList(found[name], version, at, begun)
    return found


def recent_lists(
    ctx: run_context.Context, wanted: t.Collection[str], scope: scopes.ReadScope | None = None
) -> dict[str, list[t.Any]]:
    """As ``lists``, but what a step of the call has listed a moment ago is not asked for again;
    what is listed now is for the steps after it.
    """
    found: dict[str, list[t.Any]] = {}
    for name in wanted:
        recent = ctx.listed_recently(name) if scope is None else None
        if recent is not None:
            found[name] = list(recent.items)
    if "nodes" in found:
        parsed = map(index_keys.parser("nodes", sharing.Interner()), found["nodes"])
        found["nodes"] = [node for node in parsed if node is not None]
    missing = [name for name in wanted if name not in found]
    return found | lists(ctx.cluster, missing, scope, ctx.recent, follows=ctx.follows)


def listed(
    cluster: client.Cluster,
    name: str,
    part: scopes.Slice,
    scope: scopes.ReadScope | None = None,
    labels: str = "",
) -> list[t.Any]:
    """Parsed objects of one part of a kind, or of those with certain ``labels``."""
    return _listing(cluster, name, part, scope, sharing.Interner(), labels).items


def _listing(
    cluster: client.Cluster,
    name: str,
    part: scopes.Slice,
    scope: scopes.ReadScope | None,
    share: sharing.Interner,
    labels: str = "",
    owners: t.Container[str] | None = None,
) -> client.Listing:
    keep = index_keys.parser(name, share)
    found = list[t.Any]()
    version = ""
    if name == "replica_sets" and owners is not None:
        keep = functools.partial(index_keys.unless_superseded, owners, keep)
    for space in spaces_of(name, part) or ("",):
        kind = KINDS[name]
        wanted = labels or part.labels
        listing = cluster.items(kind, namespace=space, labels=wanted, fields=part.fields, keep=keep)
        found += (one for one in listing.items if one is not None)
        version = listing.resource_version
    if scope and name == "pods":
        found = [one for one in found if scope.takes(part, one)]
    return client.Listing(found, version)


def _begun(
    cluster: client.Cluster, name: str, share: sharing.Interner
) -> tuple[client.Listing, list[client.Stream]]:
    """All of a kind, and the watch that goes on with it, where the server begins one so."""
    listing, begun = cluster.begun(KINDS[name], keep=index_keys.parser(name, share))
    found = [one for one in listing.items if one is not None]
    return client.Listing(found, listing.resource_version), [begun] if begun else []


def pods_of(cluster: client.Cluster, nodes: t.Collection[str], among: int) -> list[objects.Pod]:
    """The pods on these nodes, ``among`` so many nodes of the cluster."""
    return [
        pod
        for pod in lists(cluster, ("pods",), scopes.apart(nodes, among))["pods"]
        if pod.node in nodes
    ]


def device_rules(cluster: client.Cluster) -> list[t.Any]:
    """The DeviceTaintRules, of the first version that the cluster has; empty where it has none."""
    for kind in (kinds.DEVICE_TAINT_RULES, kinds.DEVICE_TAINT_RULES_BETA):
        with contextlib.suppress(errors.NotFound):
            return list(cluster.items(kind).items)
    return []
