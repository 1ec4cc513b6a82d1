# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The objects that are installed once per cluster: today the fence in the server.

The policy concerns only evictions that name a lock of ours; everybody else's pass as if it were not there.
Its parameter is the map of who holds which lock. Where that is missing or cannot be read the policy lets
all pass, because the server looks for it before it knows whose eviction it is.

The map has a kind of its own. kube-apiserver follows parameters of built-in kinds only until the last policy
that uses such a kind goes; one that is made later is judged by what the server knew then, until it restarts.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import api_changes, names, objects

ADMISSION = "admissionregistration.k8s.io/v1"
_NAMED = f"object.metadata.annotations['{names.FENCE}']"
_LABELS = {names.MANAGED_BY_LABEL: names.MANAGED_BY}


def fence() -> tuple[objects.Raw, ...]:
    """The objects of the fence, in the order in which they are made; they go in the opposite one."""
    holder = "(variables.key in variables.held ? variables.held[variables.key].split('/')[0] : 'nobody')"
    return (
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"nodefences.{names.PREFIX}", "labels": _LABELS},
            "spec": {
                "group": names.PREFIX,
                "names": {"kind": "NodeFence", "plural": "nodefences", "singular": "nodefence"},
                "scope": "Namespaced",
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {
                            "openAPIV3Schema": {
                                "type": "object",
                                "description": "Who holds the locks of nodes under maintenance.",
                                "properties": {
                                    "held": {
                                        "type": "object",
                                        "description": "The holder, <run>/<nonce>, by the name of the lock's Lease.",
                                        "additionalProperties": {"type": "string"},
                                    }
                                },
                            }
                        },
                    }
                ],
            },
        },
        {
            "apiVersion": names.FENCE_API,
            "kind": "NodeFence",
            "metadata": {"name": names.FENCE_MAP, "namespace": names.NAMESPACE, "labels": _LABELS},
        },
        {
            "apiVersion": ADMISSION,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": names.FENCE_POLICY, "labels": _LABELS},
            "spec": {
                "failurePolicy": "Ignore",
                "paramKind": {"apiVersion": names.FENCE_API, "kind": "NodeFence"},
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE"],
                            "resources": ["pods/eviction"],
                        }
                    ]
                },
                "matchConditions": [
                    {
                        "name": "names-a-lock",
                        "expression": (
                            f"has(object.metadata.annotations) && '{names.FENCE}' in object.metadata.annotations"
                        ),
                    }
                ],
                "variables": [
                    {"name": "key", "expression": f"{_NAMED}.split('=')[0]"},
                    {"name": "held", "expression": "has(params.held) ? params.held : {}"},
                ],
                "validations": [
                    {
                        "expression": (
                            "variables.key in variables.held"
                            f" && variables.key + '=' + variables.held[variables.key] == {_NAMED}"
                        ),
                        "messageExpression": f"'the lock ' + variables.key + ' is held by ' + {holder}",
                        "message": "the lock is held by somebody else",
                        "reason": "Forbidden",
                    }
                ],
            },
        },
        {
            "apiVersion": ADMISSION,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": names.FENCE_POLICY, "labels": _LABELS},
            "spec": {
                "policyName": names.FENCE_POLICY,
                "validationActions": ["Deny"],
                "paramRef": {
                    "name": names.FENCE_MAP,
                    "namespace": names.NAMESPACE,
                    "parameterNotFoundAction": "Allow",
                },
            },
        },
    )


def ref_of(wanted: objects.Raw) -> objects.Ref:
    """What the object is."""
    meta = wanted["metadata"]
    return objects.Ref(wanted["kind"], meta["name"], meta.get("namespace", ""), api_version=wanted["apiVersion"])


def present(wanted: objects.Raw, found: objects.Raw | None) -> api_changes.Change | None:
    """What makes the object as wanted; ``None`` where it is. What the server or others add to it stays."""
    target = ref_of(wanted)
    if found is None or _going(found):
        return api_changes.Change("create", target, f"Create {target}", body=wanted, before={}, after=_shown(wanted))
    parts: dict[str, t.Any] = {}
    if not holds(wanted["metadata"]["labels"], found["metadata"].get("labels") or {}):
        parts["metadata"] = {"labels": wanted["metadata"]["labels"]}
    if not holds(wanted.get("spec"), found.get("spec")):
        parts["spec"] = wanted["spec"]
    if not parts:
        return None
    return api_changes.Change(
        "patch",
        target,
        f"Change {target} back to what it shall be",
        body=parts,
        before=_shown(found, like=wanted),
        after=_shown(wanted),
        resource_version=found["metadata"]["resourceVersion"],
    )


def absent(wanted: objects.Raw, found: objects.Raw | None) -> api_changes.Change | None:
    """What removes the object; ``None`` where it is not there."""
    if found is None or _going(found):
        return None
    target = ref_of(wanted)
    version = found["metadata"]["resourceVersion"]
    before = _shown(found, like=wanted)
    return api_changes.Change("delete", target, f"Delete {target}", before=before, after={}, resource_version=version)


def holds(wanted: t.Any, found: t.Any) -> bool:
    """Whether ``found`` has all that is wanted; maps may have more, lists may not."""
    if isinstance(wanted, t.Mapping):
        return isinstance(found, t.Mapping) and all(holds(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        same = isinstance(found, list) and len(wanted) == len(found)
        return same and all(holds(one, other) for one, other in zip(wanted, found, strict=True))
    return bool(wanted == found)


def _going(found: objects.Raw) -> bool:
    return "deletionTimestamp" in found["metadata"]


def _shown(obj: objects.Raw, like: objects.Raw | None = None) -> objects.Raw:
    """What people care about: labels and specification; of a found object only the parts that are wanted."""
    shown = {"labels": obj["metadata"].get("labels") or {}, **({"spec": obj["spec"]} if "spec" in obj else {})}
    return shown if like is None else t.cast("objects.Raw", _cut(shown, _shown(like)))


def _cut(found: t.Any, wanted: t.Any) -> t.Any:
    """The found value without the keys that are not wanted."""
    if isinstance(found, t.Mapping) and isinstance(wanted, t.Mapping):
        return {key: _cut(found[key], wanted[key]) for key in wanted if key in found}
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        return [_cut(one, other) for one, other in zip(found, wanted, strict=True)]
    return found
