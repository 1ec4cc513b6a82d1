# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The nodes that a call names, and their entries in its result."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    run_context,
    run_targeted_reads,
    scopes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import lookup


def nodes(
    ctx: run_context.Context, wanted: t.Collection[str]
) -> tuple[dict[str, objects.Raw], int]:
    """These nodes by name, maybe among others, and how many the cluster has at least.

    If one of the names is unknown, it is all nodes: the message about it tells similar names.
    """
    recent = ctx.listed_recently("nodes")
    if recent is not None:
        found = run_targeted_reads.by_name(recent.items)
        if found.keys() >= set(wanted):
            return found, len(found)
    found, whole = run_targeted_reads.nodes_of(
        ctx.cluster, wanted, ctx.recent, follows="nodes" in ctx.follows
    )
    if not whole and not found.keys() >= set(wanted):
        found = run_targeted_reads.by_name(ctx.cluster.items(kinds.NODES).items)
        whole = True
    return found, len(found) if whole else scopes.FEW * scopes.SPARSE


def selected(
    ctx: run_context.Context, wanted: t.Sequence[str], selector: str = ""
) -> tuple[dict[str, objects.Raw], int]:
    """The nodes of these names, or those that the label selector matches;
    and how many the cluster has at least.

    Raises:
        CallAborted: one of the names is unknown, or the selector matches no node.
    """
    if selector:
        listed = ctx.cluster.items(kinds.NODES, labels=selector).items
        if not listed:
            first = lookup.nothing_selected(selector)
            raise run_context.CallAborted(first.code, first.message, first.remedy, first.object)
        return run_targeted_reads.by_name(listed), len(listed)
    found, among = nodes(ctx, wanted)
    refuse_unknown({name: objects.Node.of(raw) for name, raw in found.items()}, wanted)
    return {name: found[name] for name in dict.fromkeys(wanted)}, among


def result(entries: list[dict[str, t.Any]], **more: t.Any) -> run_context.Result:
    """The call's result; it fails if one of the nodes did."""
    failed = [entry["message"] for entry in entries if entry["failed"]]
    return run_context.Result(
        {"nodes": entries, **more}, failed=bool(failed), message="; ".join(failed)
    )


def refuse_unknown(found: t.Mapping[str, objects.Node], wanted: t.Iterable[str]) -> None:
    """Raise CallAborted if there is no node with one of the wanted names."""
    if unknown := lookup.unknown_nodes(found, wanted):
        first = unknown[0]
        raise run_context.CallAborted(
            first.code, " ".join(x.message for x in unknown), first.remedy, first.object
        )
