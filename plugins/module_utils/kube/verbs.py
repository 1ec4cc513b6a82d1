# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""Requests to the API, as data; nothing here sends anything.

Paths and options follow the Kubernetes API conventions. Every write that takes a field manager
carries ours, so that `managedFields` shows which changes this collection made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds

FIELD_MANAGER = "kubeops-node-maintenance"
PAGE = 1000
PAGES: Mapping[kinds.Kind, int] = {kinds.NODES: 250}
"""Objects in a page of a list; nodes are large, with all the images that they have."""

_MANAGED = (("fieldManager", FIELD_MANAGER),)
_DRY = ("dryRun", "All")
_REVIEWS = frozenset(
    {kinds.SELF_SUBJECT_ACCESS_REVIEWS.resource, kinds.SELF_SUBJECT_REVIEWS.resource}
)


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `verb`, `resource`, `namespace` and `name` are as RBAC and messages have them.

    `resource` includes group and subresource: `pods`, `pods/eviction`, `deployments.apps/scale`.
    `upgrade` requests a WebSocket.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Mapping[str, Any] | None = None
    content_type: str = "application/json"
    verb: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    upgrade: bool = False

    @property
    def writes(self) -> bool:
        """Whether it may change the cluster; access reviews are POSTs that change
        nothing, as are dry runs.
        """
        return self.method != "GET" and self.resource not in _REVIEWS and _DRY not in self.query

    @property
    def object(self) -> str:
        """`namespace/name`, or whichever of them there is."""
        return "/".join(part for part in (self.namespace, self.name) if part)


def path(kind: kinds.Kind, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The path of a collection, an object or a subresource;
    raises ValueError without the namespace it needs.
    """
    if kind.namespaced and (name or subresource) and not namespace:
        raise ValueError(f"{kind.kind} {name!r} needs a namespace")
    parts = ["/apis", kind.group, kind.version] if kind.group else ["/api", kind.version]
    if kind.namespaced and namespace:
        parts += ["namespaces", _segment(namespace)]
    parts.append(kind.plural)
    parts += [_segment(name)] if name else []
    parts += [subresource] if subresource else []
    return "/".join(parts)


def get(kind: kinds.Kind, name: str, namespace: str = "", subresource: str = "") -> Request:
    """Reads one object, or its `scale` or `status`."""
    return _one("GET", "get", kind, name, namespace, subresource)


def list_page(
    kind: kinds.Kind,
    namespace: str = "",
    labels: str = "",
    fields: str = "",
    limit: int = PAGE,
    token: str = "",
) -> Request:
    """One page of a list, of all namespaces if `namespace` is empty.
    `limit` 0 requests the whole list at once.
    """
    query = {
        "labelSelector": labels,
        "fieldSelector": fields,
        "continue": token,
        "limit": str(limit or ""),
    }
    return _many("list", kind, namespace, query)


def watch(
    kind: kinds.Kind,
    namespace: str = "",
    labels: str = "",
    resource_version: str = "",
    timeout_seconds: int = 290,
    fields: str = "",
    *,
    listing: bool = False,
) -> Request:
    """A watch with bookmarks that the server ends after `timeout_seconds`.

    With `listing` it begins with all objects there are, and a bookmark after the last of them
    (KEP-3157).
    """
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "labelSelector": labels,
        "fieldSelector": fields,
    }
    query |= {"resourceVersion": resource_version, "timeoutSeconds": str(timeout_seconds)}
    if listing:
        query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    return _many("watch", kind, namespace, query)


def create(
    kind: kinds.Kind,
    obj: Mapping[str, Any],
    namespace: str = "",
    subresource: str = "",
    name: str = "",
) -> Request:
    """Creates an object, or POSTs to a subresource of `name`;
    `namespace` defaults to the object's own.
    """
    metadata = obj.get("metadata") or {}
    namespace = namespace or metadata.get("namespace", "")
    if kind.namespaced and not namespace:
        raise ValueError(f"{kind.kind} {metadata.get('name')!r} needs a namespace")
    return Request(
        "POST",
        path(kind, namespace, name, subresource),
        _MANAGED,
        obj,
        verb="create",
        resource=_resource(kind, subresource),
        namespace=namespace if kind.namespaced else "",
        name=name or metadata.get("name", ""),
    )


def merge_patch(
    kind: kinds.Kind,
    name: str,
    body: Mapping[str, Any],
    namespace: str = "",
    subresource: str = "",
    holder: str = "",
) -> Request:
    """A JSON merge patch; conditional if `body` has `metadata.resourceVersion` (or `uid`).

    `holder` is on whose behalf it is sent, as part of the field manager.
    """
    managed = (("fieldManager", f"{FIELD_MANAGER}/{holder}"),) if holder else _MANAGED
    request = _one("PATCH", "patch", kind, name, namespace, subresource, managed, body)
    return replace(request, content_type="application/merge-patch+json")


def delete(
    kind: kinds.Kind,
    name: str,
    namespace: str = "",
    uid: str = "",
    resource_version: str = "",
    grace_seconds: int | None = None,
) -> Request:
    """Deletes exactly this object: `uid` and `resource_version` are
    preconditions. Grace 0 means 0.
    """
    body = _delete_options(grace_seconds, uid=uid, resourceVersion=resource_version)
    return _one("DELETE", "delete", kind, name, namespace, body=body)


def dry(request: Request) -> Request:
    """The same write, which the server judges (rights, admission, validity) but does not store."""
    name, value = _DRY
    # The server reads the options of a deletion from its body and ignores those of the query.
    body = {**(request.body or {}), name: [value]} if request.method == "DELETE" else request.body
    return replace(request, query=(*request.query, _DRY), body=body)


def evict(
    namespace: str,
    name: str,
    uid: str,
    grace_seconds: int | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Request:
    """Evicts the pod with this UID and no other of the same name.
    Grace 0 means 0, None the pod's own.

    `annotations` belong to the request, for admission policies to read; the pod does not get them.
    """
    eviction = {
        "apiVersion": kinds.BUDGETS.api_version,
        "kind": "Eviction",
        "metadata": {
            "namespace": namespace,
            "name": name,
            **({"annotations": annotations} if annotations else {}),
        },
        "deleteOptions": _delete_options(grace_seconds, uid=uid),
    }
    return create(kinds.PODS, eviction, namespace, subresource="eviction", name=name)


def token(namespace: str, account: str, seconds: int) -> Request:
    """A new token of a ServiceAccount, good for `seconds`, or for less if the server says so."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds},
    }
    return create(kinds.SERVICE_ACCOUNTS, body, namespace, subresource="token", name=account)


def pod_log(
    namespace: str, name: str, container: str, *, previous: bool = False, tail_lines: int = 0
) -> Request:
    """A container's log as text, 4 MiB at most; `previous` selects the
    container's previous instance.
    """
    query = {"container": container, "limitBytes": str(4 * 1024 * 1024)}
    query |= {"previous": "true"} if previous else {}
    query |= {"tailLines": str(tail_lines)} if tail_lines else {}
    return _one("GET", "get", kinds.PODS, name, namespace, "log", tuple(query.items()))


def port_forward(namespace: str, name: str, port: int) -> Request:
    """Opens a WebSocket to a port of a pod; a GET, though since Kubernetes 1.35 it needs the
    verb `create` as well.
    """
    request = _one(
        "GET", "get", kinds.PODS, name, namespace, "portforward", (("ports", str(port)),)
    )
    return replace(request, upgrade=True)


def api_resources(group_version: str) -> Request:
    """The resources of a group (`v1`, `argoproj.io/v1alpha1`): discovery,
    needed only for owners of unknown kinds.
    """
    group, slash, version = group_version.partition("/")
    url = f"/apis/{_segment(group)}/{_segment(version)}" if slash else f"/api/{_segment(group)}"
    return Request("GET", url, verb="get", resource="apiresources", name=group_version)


def server_version() -> Request:
    """The version of the API server; anybody may ask for it,
    unless a cluster's administrator took that right away.
    """
    return Request("GET", "/version", verb="get", resource="version")


def _segment(text: str) -> str:
    """One segment of a path, whatever the text: clients resolve `..` before they send it."""
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")


def _resource(kind: kinds.Kind, subresource: str) -> str:
    return f"{kind.resource}/{subresource}" if subresource else kind.resource


def _delete_options(grace_seconds: int | None, **preconditions: str) -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if any(preconditions.values()):
        options["preconditions"] = {key: value for key, value in preconditions.items() if value}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return options


def _many(verb: str, kind: kinds.Kind, namespace: str, query: Mapping[str, str]) -> Request:
    """A request for many objects; empty parts of the query are left out."""
    given = tuple(pair for pair in query.items() if pair[1])
    return Request(
        "GET", path(kind, namespace), given, verb=verb, resource=kind.resource, namespace=namespace
    )


def _one(
    method: str,
    verb: str,
    kind: kinds.Kind,
    name: str,
    namespace: str,
    subresource: str = "",
    query: tuple[tuple[str, str], ...] = (),
    body: Mapping[str, Any] | None = None,
) -> Request:
    if not name:
        raise ValueError(f"{verb} {kind.resource}: no name")
    return Request(
        method,
        path(kind, namespace, name, subresource),
        query,
        body,
        verb=verb,
        resource=_resource(kind, subresource),
        namespace=namespace if kind.namespaced else "",
        name=name,
    )
