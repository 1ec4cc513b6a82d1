# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Controllers of kinds that are not listed: resolved by discovery and their scale subresource."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    index_keys,
    objects,
    run_context,
    selectors,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    errors,
    kinds,
    verbs,
)

LISTED = frozenset({"Node", "Job", "DaemonSet", "StatefulSet", "ReplicaSet", "Deployment"})
"""Kinds of Kubernetes that either have no replica count or are listed anyway:
missing there means gone.
"""
GROUPS = frozenset({"", "v1", "apps", "batch"})
"""Of which they are; others have kinds of the same names, Kruise a StatefulSet."""
_UNKNOWN = (
    errors.NotFound,
    errors.Forbidden,
    errors.Invalid,
    errors.Overloaded,
    errors.ServerError,
)
"""Answers after which nothing is known of a group: whoever makes a pod chooses of
which one its owner is.
"""


def scales(
    ctx: run_context.Context, snapshot: snapshots.Snapshot, pods: t.Iterable[objects.Pod]
) -> list[objects.Workload]:
    """The top controllers of the pods that the snapshot does not have and that can be scaled.

    Takes one discovery request for each API group version and two reads for each controller.
    """
    found = ((snapshot.workload_of(pod), pod.owner) for pod in pods)
    return named(ctx, snapshot, (known.owner if known else owner for known, owner in found))


def named(
    ctx: run_context.Context, snapshot: snapshots.Snapshot, refs: t.Iterable[objects.Ref | None]
) -> list[objects.Workload]:
    """Those of these controllers that the snapshot does not have and that can be scaled."""
    wanted = (ref for ref in refs if ref and ref.possible and not _listed(ref))
    return _read_all(
        ctx, {ref.uid: ref for ref in wanted if snapshot.workload(ref.uid) is None}.values()
    )


def _listed(ref: objects.Ref) -> bool:
    return ref.kind in LISTED and ref.api_version.partition("/")[0] in GROUPS


def again(ctx: run_context.Context, known: t.Iterable[objects.Workload]) -> list[objects.Workload]:
    """Controllers that were read by ``scales``, as they are now;
    those that are gone are left out.
    """
    return _read_all(ctx, (workload.ref for workload in known))


def _read_all(ctx: run_context.Context, owners: t.Iterable[objects.Ref]) -> list[objects.Workload]:
    groups: dict[str, list[objects.Raw]] = {}
    found = []
    for owner in owners:
        if owner.api_version not in groups:
            groups[owner.api_version] = _resources(ctx, owner.api_version)
        kind = scalable(groups[owner.api_version], owner)
        workload = _read(ctx, kind, owner) if kind else None
        if workload:
            found.append(workload)
    return found


def there(ctx: run_context.Context, owner: objects.Ref) -> bool:
    """Whether the owner of a pod exists, by a list: a watch of its kind may be behind."""
    kind = kinds.KINDS.get((owner.api_version, owner.kind))
    if kind is None or not owner.possible:
        return False
    try:
        fields = f"metadata.name={owner.name}"
        found = ctx.cluster.items(kind, namespace=owner.namespace, fields=fields).items
    except (errors.NotFound, errors.Forbidden):
        return False
    return any(item["metadata"].get("uid") == owner.uid for item in found)


def scalable(resources: t.Iterable[objects.Raw], owner: objects.Ref) -> kinds.Kind | None:
    """The owner's kind from discovery, ``None`` if it has no scale subresource."""
    known = {resource["name"]: resource for resource in resources}
    for name, resource in known.items():
        if resource.get("kind") == owner.kind and "/" not in name and f"{name}/scale" in known:
            group, _slash, version = owner.api_version.rpartition("/")
            return kinds.Kind(
                group, version, name, owner.kind, bool(resource.get("namespaced", True))
            )
    return None


def _resources(ctx: run_context.Context, api_version: str) -> list[objects.Raw]:
    try:
        return list(ctx.cluster.send(verbs.api_resources(api_version)).get("resources") or ())
    except _UNKNOWN:
        return []


def _read(
    ctx: run_context.Context, kind: kinds.Kind, owner: objects.Ref
) -> objects.Workload | None:
    """The controller with the counts of its scale; ``None`` if it is gone or may not be read."""
    wanted = (
        verbs.get(kind, owner.name, namespace=owner.namespace, subresource=part)
        for part in ("scale", "")
    )
    try:
        scale, whole = (ctx.cluster.send(request) for request in wanted)
    except (errors.NotFound, errors.Forbidden):
        return None
    workload = _parsed(whole, scale, owner)
    return workload if workload and workload.uid == owner.uid else None


def _parsed(whole: objects.Raw, scale: objects.Raw, owner: objects.Ref) -> objects.Workload | None:
    """``None`` if the object, or its scale, is of another shape than a workload."""
    try:
        return index_keys.custom(merged(whole, scale), owner.api_version, owner.kind)
    except decoding.MISREAD:
        return None


def merged(whole: objects.Raw, scale: objects.Raw) -> objects.Raw:
    """The object as a workload: replicas and selector are where its scale says they are."""
    counted = scale.get("spec") or {}
    status = dict(whole.get("status") or {})
    spec = {**(whole.get("spec") or {}), "replicas": counted.get("replicas", 0)}
    if not isinstance(spec.get("selector"), dict) or "matchLabels" not in spec["selector"]:
        spec["selector"] = _selector((scale.get("status") or {}).get("selector", ""))
    status["replicas"] = (scale.get("status") or {}).get("replicas", 0)
    return {**whole, "spec": spec, "status": status}


def _selector(text: str) -> objects.Raw | None:
    try:
        return selectors.parse(text) if text else None
    except ValueError:
        return None
