# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The manifests of the fence in the API server, which a cluster needs once.

The policy applies only to evictions and changes of pods that name one of our locks; all others pass as if it did not
exist. An eviction names it in an annotation; that of a change would stay on the pod, so its field manager names the
holder, and the pod its node. The policy's parameter is the map of who holds which lock. If the map is missing or cannot
be read, every request passes, because the server looks it up before it knows which request this is.

The map has a kind of its own: kube-apiserver follows parameters of built-in kinds only until the last policy that uses
the kind is deleted. Until it restarts, it evaluates policies created after that with the state known then.
"""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names, objects

ADMISSION = "admissionregistration.k8s.io/v1"

# CEL. A lock is <lease>=<run>/<nonce>; `held` maps the names of leases to <run>/<nonce>.
_ANNOTATIONS = "object.metadata.annotations"
_EVICTS = "request.operation == 'CREATE'"
_OURS = f"{names.MANAGER}/"
NAMED_BY_MANAGER = f"(has(request.options.fieldManager) && request.options.fieldManager.startsWith('{_OURS}'))"
"""CEL: whether a change of an object names who holds a lock."""
_NAMES_A_LOCK = f"{_EVICTS} ? has({_ANNOTATIONS}) && '{names.FENCE}' in {_ANNOTATIONS} : {NAMED_BY_MANAGER}"
_LOCK = (
    f"{_EVICTS} ? {_ANNOTATIONS}['{names.FENCE}'] : "
    f"'{names.node_lease_name('')}' + dyn(object).spec.nodeName + '=' + "
    f"request.options.fieldManager.substring({len(_OURS)})"
)
_KEY = "variables.lock.split('=')[0]"
_HELD = "has(params.held) ? params.held : {}"
# A plan tries what a run will write, and holds no lock.
_TRIAL = f"has(request.dryRun) && request.dryRun && variables.lock.endsWith('={names.TRIAL}')"
_HOLDS_IT = (
    "variables.key in variables.held && variables.key + '=' + variables.held[variables.key] == variables.lock || "
    f"{_TRIAL}"
)
_HOLDER = "(variables.key in variables.held ? variables.held[variables.key].split('/')[0] : 'nobody')"
_REFUSAL = f"'the lock ' + variables.key + ' is held by ' + {_HOLDER}"

_LABELS = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
_EVICTIONS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
_PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}
_SCHEMA = {
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

DEFINITION: objects.Raw = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"nodefences.{names.PREFIX}", "labels": _LABELS},
    "spec": {
        "group": names.PREFIX,
        "names": {"kind": "NodeFence", "plural": "nodefences", "singular": "nodefence"},
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA}}],
    },
}
MAP: objects.Raw = {
    "apiVersion": names.FENCE_API,
    "kind": "NodeFence",
    "metadata": {"name": names.FENCE_MAP, "namespace": names.NAMESPACE, "labels": _LABELS},
}
POLICY: objects.Raw = {
    "apiVersion": ADMISSION,
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": names.FENCE_POLICY, "labels": _LABELS},
    "spec": {
        "failurePolicy": "Ignore",
        "paramKind": {"apiVersion": names.FENCE_API, "kind": "NodeFence"},
        "matchConstraints": {"resourceRules": [_EVICTIONS, _PODS]},
        "matchConditions": [{"name": "names-a-lock", "expression": _NAMES_A_LOCK}],
        "variables": [
            {"name": "lock", "expression": _LOCK},
            {"name": "key", "expression": _KEY},
            {"name": "held", "expression": _HELD},
        ],
        "validations": [
            {
                "expression": _HOLDS_IT,
                "messageExpression": _REFUSAL,
                "message": "the lock is held by somebody else",
                "reason": "Forbidden",
            }
        ],
    },
}
BINDING: objects.Raw = {
    "apiVersion": ADMISSION,
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": names.FENCE_POLICY, "labels": _LABELS},
    "spec": {
        "policyName": names.FENCE_POLICY,
        "validationActions": ["Deny"],
        "paramRef": {"name": names.FENCE_MAP, "namespace": names.NAMESPACE, "parameterNotFoundAction": "Allow"},
    },
}

FENCE = (DEFINITION, MAP, POLICY, BINDING)
"""In the order in which they are created; they are deleted in the opposite one."""
