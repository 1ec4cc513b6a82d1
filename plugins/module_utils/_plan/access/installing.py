# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which change brings an object that is installed once per cluster to its manifest, or removes it."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import api_changes, objects


def ref_of(obj: objects.Raw) -> objects.Ref:
    """The kind, name and namespace in a manifest, or of an object from a list."""
    meta = obj["metadata"]
    return objects.Ref(obj["kind"], meta["name"], meta.get("namespace", ""), api_version=obj["apiVersion"])


def present(wanted: objects.Raw, found: objects.Raw | None) -> api_changes.Change | None:
    """What makes the object as wanted; ``None`` if it is. Whatever the server or others add to it stays.

    A binding to another role has to be deleted first, because the API server does not change that.
    """
    target = ref_of(wanted)
    if found is None or going(found):
        return api_changes.Change("create", target, f"Create {target}", body=wanted, before={}, after=_parts(wanted))
    before, after = _common(_parts(found), _parts(wanted)), _parts(wanted)
    if before.get("roleRef") != after.get("roleRef"):
        return absent(wanted, found)
    body = {key: part for key, part in after.items() if before.get(key) != part}
    if not body:
        return None
    meta = {key: body.pop(key) for key in ("labels", "annotations") if key in body}
    if meta:
        body["metadata"] = meta
    version = found["metadata"]["resourceVersion"]
    sentence = f"Change {target} back to its manifest"
    return api_changes.Change("patch", target, sentence, body, before, after, resource_version=version)


def absent(wanted: objects.Raw, found: objects.Raw | None) -> api_changes.Change | None:
    """What removes the object; ``None`` if it does not exist."""
    if found is None or going(found):
        return None
    target, before = ref_of(wanted), _common(_parts(found), _parts(wanted))
    version = found["metadata"]["resourceVersion"]
    return api_changes.Change("delete", target, f"Delete {target}", before=before, after={}, resource_version=version)


def going(found: objects.Raw) -> bool:
    """Whether the object will not exist any more in a moment."""
    return "deletionTimestamp" in found["metadata"]


def _parts(obj: objects.Raw) -> dict[str, t.Any]:
    """What a manifest decides: labels and annotations, and all that is neither coordinates nor status."""
    meta = obj["metadata"]
    parts: dict[str, t.Any] = {"labels": meta.get("labels") or {}}
    if meta.get("annotations"):
        parts["annotations"] = meta["annotations"]
    return {**parts, **{key: obj[key] for key in ("spec", "rules", "roleRef", "subjects", "type") if key in obj}}


def _common(found: t.Any, wanted: t.Any) -> t.Any:
    """The found value without keys that are not wanted; it equals ``wanted`` if nothing is to be changed."""
    if isinstance(found, t.Mapping) and isinstance(wanted, t.Mapping):
        return {key: _common(found[key], wanted[key]) for key in wanted if key in found}
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        return [_common(one, other) for one, other in zip(found, wanted, strict=True)]
    return found
