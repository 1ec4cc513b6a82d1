# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Few objects of large clusters, asked for by their names."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    index_keys,
    objects,
    run_context,
    run_listing,
    scopes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    client,
    kinds,
    verbs,
)

NODES_PER_REQUEST = 25
"""How many nodes more are rather read than one is asked for by its name:
a request costs about as much.
"""


def claims_of(cluster: client.Cluster, pods: t.Iterable[objects.Pod]) -> dict[str, list[t.Any]]:
    """The claims of these pods, and the volumes that are bound to them,
    each asked for by its name.
    """
    asked = dict.fromkeys((pod.namespace, claim) for pod in pods for claim in pod.claims)
    found: list[objects.Raw] = []
    for namespace, name in asked:
        found += named(cluster, kinds.PVCS, name, namespace)
    claims = list(map(index_keys.PARSERS["claims"], found))
    bound: list[objects.Raw] = []
    for volume in dict.fromkeys((claim.get("spec") or {}).get("volumeName") for claim in claims):
        if volume:
            bound += named(cluster, kinds.PVS, volume)
    return {"claims": claims, "volumes": list(map(index_keys.PARSERS["volumes"], bound))}


def named(
    cluster: client.Cluster, kind: kinds.Kind, name: str, namespace: str = ""
) -> list[objects.Raw]:
    """The object of this name, if there is one."""
    # By lists: the right to list is all that reading needs elsewhere.
    fields = f"metadata.name={name}"
    return cluster.items(kind, namespace=namespace, fields=fields).items


def count_nodes(ctx: run_context.Context) -> int:
    """How many nodes the cluster has at least; those of a small one are for what follows, too."""
    recent = ctx.listed_recently("nodes")
    if recent is not None:
        return len(recent.items)
    page, left = _page(ctx.cluster, ctx.recent, "nodes" in ctx.follows)
    return len(page.items) + (1 if left is None else left)


def all_nodes(ctx: run_context.Context) -> list[objects.Node]:
    """All nodes; those of a small cluster are for what follows, too."""
    # Keeps them as they are sent, which a list that parses them does not.
    count_nodes(ctx)
    return run_listing.recent_lists(ctx, ("nodes",))["nodes"]


def _page(
    cluster: client.Cluster, recent: dict[str, run_context.RecentList] | None, follows: bool
) -> tuple[client.Listing, int | None]:
    """A small page of the nodes, and how many others there are:
    ``None`` if there are some, and nobody tells. ``recent`` takes in a page of all; who ``follows``
    them watches them next.
    """
    at = cluster.clock.now()
    if follows and recent is not None:
        request = verbs.watch(kinds.NODES, listing=True)
        if whole := cluster.streamed(request, most=scopes.PAGE_OF_NODES):
            listing, begun = whole
            version = listing.resource_version
            recent["nodes"] = run_context.RecentList(listing.items, version, at, [begun])
            return listing, 0
    page = cluster.send(verbs.list_page(kinds.NODES, limit=scopes.PAGE_OF_NODES))
    meta = page.get("metadata") or {}
    left = (int(meta.get("remainingItemCount") or 0) or None) if meta.get("continue") else 0
    listing = client.Listing(page.get("items") or [], str(meta.get("resourceVersion") or ""))
    if recent is not None and left == 0:
        recent["nodes"] = run_context.RecentList(listing.items, listing.resource_version, at)
    return listing, left


def nodes_of(
    cluster: client.Cluster,
    wanted: t.Iterable[str],
    recent: dict[str, run_context.RecentList] | None = None,
    *,
    follows: bool = False,
) -> tuple[dict[str, objects.Raw], bool]:
    """These nodes as the API server sends them, by name, and whether all others of the
    cluster are among them.

    Of a cluster that does not fit in a small page, few nodes are asked for by their names, unless
    few others are left. ``recent`` takes in the list of a small cluster, which begins a watch for
    who ``follows`` them.
    """
    asked = tuple(dict.fromkeys(wanted))
    if len(asked) <= scopes.FEW:
        page, left = _page(cluster, recent, follows)
        if left == 0:
            return by_name(page.items), True
        if left is None or left > NODES_PER_REQUEST * len(asked):
            found: list[objects.Raw] = []
            for name in asked:
                found += named(cluster, kinds.NODES, name)
            return by_name(found), False
    return by_name(cluster.items(kinds.NODES).items), True


def by_name(raws: t.Iterable[objects.Raw]) -> dict[str, objects.Raw]:
    """Objects of the cluster's own, such as nodes, by their names."""
    return {raw["metadata"]["name"]: raw for raw in raws}
