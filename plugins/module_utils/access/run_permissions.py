# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Asks the API server what these credentials may do, without changing anything."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import permissions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    run_context,
    run_listing,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    errors,
    kinds,
    verbs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons

_STAY = ("DaemonSet", "Node")
"""Owners whose pods stay."""


def ask(ctx: run_context.Context, needs: t.Sequence[permissions.Need]) -> list[reasons.Finding]:
    """A finding for each role that these credentials lack.

    Takes one review for each need, for the whole cluster, and one for each
    namespace if that is refused.
    """
    with ctx.clock.pool(run_requests.MAX_PARALLEL, "permissions") as pool:
        lacks = [lack for lack in pool.map(lambda need: _ask(ctx, need), needs) if lack]
    return missing(ctx, lacks)


def missing(ctx: run_context.Context, lacks: t.Sequence[permissions.Lack]) -> list[reasons.Finding]:
    """The findings about what these credentials lack, with the commands that grant it."""
    return permissions.missing(lacks, _user(ctx)) if lacks else []


def refused(
    ctx: run_context.Context, error: errors.Forbidden, needs: t.Sequence[permissions.Need]
) -> list[reasons.Finding]:
    """What was refused, and what else is missing of what is needed."""
    request = error.request
    verb, resource = (request.verb, request.resource) if request else ("read", "the cluster")
    words = f"{verb} {resource}"
    first = reasons.Finding(
        "missing_permission",
        f"These credentials may not {words}: {error.message.rstrip('.')}.",
        f"Grant the verb {verb} on {resource} in a role that is bound to them.",
        "blocker",
        words,
    )
    found = ask(ctx, needs)
    return found if words in {need.words for need in needs} and found else [first, *found]


def lacking(
    ctx: run_context.Context,
    *,
    steps: t.Sequence[str],
    nodes: t.Sequence[str] = (),
    within: t.Sequence[str] = (),
) -> list[reasons.Finding]:
    """After a call was refused something: all that these credentials lack for the steps
    that it consists of.

    ``nodes`` are those whose pods it moves, ``within`` the namespaces that it
    is limited to, if any.
    """
    asked = [error.request for error in ctx.cluster.refusals if error.request]
    refused = [request.namespace for request in asked if request.namespace != names.NAMESPACE]
    namespaces = [name for name in (*refused, *_spaces(ctx, nodes)) if not within or name in within]
    return ask(
        ctx, permissions.of_steps(steps, tuple(filter(None, dict.fromkeys((*within, *namespaces)))))
    )


def _spaces(ctx: run_context.Context, nodes: t.Sequence[str]) -> list[str]:
    """The namespaces of pods that may have to leave these nodes; none without the right to list."""
    try:
        found = run_listing.lists(ctx.cluster, ("pods",))["pods"] if nodes else []
    except errors.Forbidden:
        return []
    return sorted(
        {
            pod.namespace
            for pod in found
            if pod.node in nodes and not (pod.owner and pod.owner.kind in _STAY)
        }
    )


def _ask(ctx: run_context.Context, need: permissions.Need) -> permissions.Lack | None:
    if allowed(ctx, need, ""):
        return None
    refused = tuple(namespace for namespace in need.namespaces if not allowed(ctx, need, namespace))
    return permissions.Lack(need, refused) if refused or not need.namespaces else None


def _user(ctx: run_context.Context) -> str:
    """Who the API server says these credentials are, a placeholder before Kubernetes 1.28."""
    kind = kinds.SELF_SUBJECT_REVIEWS
    try:
        answer = ctx.cluster.send(
            verbs.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind})
        )
    except errors.ClusterError:
        return "USER"
    return str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "USER")


def allowed(
    ctx: run_context.Context, need: permissions.Need, namespace: str, name: str = ""
) -> bool:
    """Whether the need is met in a namespace (empty: everywhere), for one object if named."""
    plural, _slash, subresource = need.resource.partition("/")
    attributes = {
        "verb": need.verb,
        "group": need.group,
        "resource": plural,
        "subresource": subresource,
        "namespace": namespace,
        "name": name,
    }
    kind = kinds.SELF_SUBJECT_ACCESS_REVIEWS
    review = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    answer = ctx.cluster.send(verbs.create(kind, review))
    return bool((answer.get("status") or {}).get("allowed"))
