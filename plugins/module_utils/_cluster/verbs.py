# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""What to ask of the API, as data. Nothing here sends anything.

Paths and options follow the Kubernetes API conventions; every write that has the parameter carries
our field manager, so that `managedFields` tells which changes were ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from typing import Any
from urllib.parse import quote

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds

FIELD_MANAGER = "kubeops-node-maintenance"
PAGE = 1000

_MERGE_PATCH = "application/merge-patch+json"
_MANAGED = (("fieldManager", FIELD_MANAGER),)
_REVIEWS = frozenset({kinds.SELF_SUBJECT_ACCESS_REVIEWS.resource, kinds.SELF_SUBJECT_REVIEWS.resource})


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `verb`, `resource`, `namespace` and `name` are the words of RBAC and of messages.

    `upgrade` asks for a WebSocket.
    `resource` has its group and subresource: `pods`, `pods/eviction`, `deployments.apps/scale`.
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
        """Whether the cluster may be different afterwards; access reviews are POSTs that only ask."""
        return self.method != "GET" and self.resource not in _REVIEWS

    @property
    def object(self) -> str:
        """`namespace/name`, or what there is of it."""
        return "/".join(part for part in (self.namespace, self.name) if part)


def path(kind: kinds.Kind, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The path of a collection, an object or a subresource.

    Raises:
        ValueError: a single object of a namespaced kind without its namespace, which the server
            would take for something else.
    """
    if kind.namespaced and (name or subresource) and not namespace:
        raise ValueError(f"{kind.kind} {name!r} needs a namespace")
    parts = ["/apis", kind.group, kind.version] if kind.group else ["/api", kind.version]
    if kind.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(kind.plural)
    parts += [quote(name, safe="")] if name else []
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
    continue_token: str = "",
) -> Request:
    """One page of a list; without `namespace` of all of them. `limit` 0 asks for all at once."""
    query = [("labelSelector", labels), ("fieldSelector", fields), ("continue", continue_token)]
    if limit:
        query.append(("limit", str(limit)))
    return Request(
        "GET",
        path(kind, namespace),
        tuple(pair for pair in query if pair[1]),
        verb="list",
        resource=kind.resource,
        namespace=namespace,
    )


def watch(
    kind: kinds.Kind,
    namespace: str = "",
    labels: str = "",
    fields: str = "",
    resource_version: str = "",
    timeout_seconds: int = 290,
) -> Request:
    """A watch with bookmarks that the server ends after `timeout_seconds`."""
    query = [
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("labelSelector", labels),
        ("fieldSelector", fields),
        ("resourceVersion", resource_version),
        ("timeoutSeconds", str(timeout_seconds)),
    ]
    return Request(
        "GET",
        path(kind, namespace),
        tuple(pair for pair in query if pair[1]),
        verb="watch",
        resource=kind.resource,
        namespace=namespace,
    )


def create(
    kind: kinds.Kind,
    obj: Mapping[str, Any],
    namespace: str = "",
    subresource: str = "",
    name: str = "",
) -> Request:
    """Creates an object, or POSTs to a subresource of `name`; the namespace may be the object's own."""
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


def replace(kind: kinds.Kind, obj: Mapping[str, Any]) -> Request:
    """Writes a whole object back; conditional, because it carries the `resourceVersion` it was read at."""
    metadata = obj["metadata"]
    return _one(
        "PUT",
        "update",
        kind,
        metadata["name"],
        metadata.get("namespace", ""),
        query=_MANAGED,
        body=obj,
    )


def merge_patch(
    kind: kinds.Kind, name: str, body: Mapping[str, Any], namespace: str = "", subresource: str = ""
) -> Request:
    """A JSON merge patch; conditional when `body` has `metadata.resourceVersion` (or `uid`)."""
    return _one(
        "PATCH",
        "patch",
        kind,
        name,
        namespace,
        subresource,
        query=_MANAGED,
        body=body,
        content_type=_MERGE_PATCH,
    )


def delete(
    kind: kinds.Kind,
    name: str,
    namespace: str = "",
    uid: str = "",
    resource_version: str = "",
    grace_seconds: int | None = None,
    propagation: str = "",
) -> Request:
    """Deletes exactly this object: `uid` and `resource_version` are preconditions. Grace 0 means 0."""
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    conditions = {"uid": uid, "resourceVersion": resource_version}
    conditions = {key: value for key, value in conditions.items() if value}
    if conditions:
        body["preconditions"] = conditions
    if grace_seconds is not None:
        body["gracePeriodSeconds"] = grace_seconds
    if propagation:
        body["propagationPolicy"] = propagation
    return _one("DELETE", "delete", kind, name, namespace, body=body)


def evict(
    namespace: str,
    name: str,
    uid: str,
    grace_seconds: int | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Request:
    """Evicts the pod with this UID and no other of the same name. Grace 0 means 0, None the pod's own.

    `annotations` are the request's own, for admission to read; the pod does not get them.
    """
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    options["preconditions"] = {"uid": uid}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    metadata: dict[str, Any] = {"namespace": namespace, "name": name}
    if annotations:
        metadata["annotations"] = dict(annotations)
    eviction = {
        "apiVersion": kinds.BUDGETS.api_version,
        "kind": "Eviction",
        "metadata": metadata,
        "deleteOptions": options,
    }
    return create(kinds.PODS, eviction, namespace, subresource="eviction", name=name)


def pod_log(namespace: str, name: str, container: str, *, previous: bool = False, tail_lines: int = 0) -> Request:
    """A container's log as text; `previous` is that of the container's last life. At most 4 MiB."""
    query = [("container", container), ("limitBytes", str(4 * 1024 * 1024))]
    query += [("previous", "true")] if previous else []
    query += [("tailLines", str(tail_lines))] if tail_lines else []
    return _one("GET", "get", kinds.PODS, name, namespace, "log", tuple(query))


def port_forward(namespace: str, name: str, port: int) -> Request:
    """Opens a WebSocket to a port of a pod; a GET, and since Kubernetes 1.35 the verb `create` is asked for too."""
    request = _one("GET", "get", kinds.PODS, name, namespace, "portforward", (("ports", str(port)),))
    return replace_fields(request, upgrade=True)


def api_resources(group_version: str) -> Request:
    """What a group has (`v1`, `argoproj.io/v1alpha1`): the one use of discovery, for unknown owners."""
    prefix = "/apis" if "/" in group_version else "/api"
    return Request(
        "GET",
        f"{prefix}/{quote(group_version)}",
        verb="get",
        resource="apiresources",
        name=group_version,
    )


def _resource(kind: kinds.Kind, subresource: str) -> str:
    return f"{kind.resource}/{subresource}" if subresource else kind.resource


def _one(
    method: str,
    verb: str,
    kind: kinds.Kind,
    name: str,
    namespace: str,
    subresource: str = "",
    query: tuple[tuple[str, str], ...] = (),
    body: Mapping[str, Any] | None = None,
    content_type: str = "application/json",
) -> Request:
    if not name:
        raise ValueError(f"{verb} {kind.resource}: no name")
    return Request(
        method,
        path(kind, namespace, name, subresource),
        query,
        body,
        content_type,
        verb,
        _resource(kind, subresource),
        namespace if kind.namespaced else "",
        name,
    )
