# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which nodes a pod may be on by its node selector and node affinity; taints are in ``taints``.

The rules are the scheduler's (``component-helpers/scheduling/corev1``). They read raw pod specs, so
that the template of a workload can be asked as well as a pod.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects


def node_matches(selector: objects.Raw | None, node: objects.Node) -> bool:
    """Whether the node satisfies a ``NodeSelector``: one of its terms; ``None`` asks for nothing."""
    if selector is None:
        return True
    return any(_term(term, node) for term in selector.get("nodeSelectorTerms") or ())


def selects(spec: objects.Raw, node: objects.Node) -> bool:
    """Whether a pod spec's nodeName, nodeSelector and required node affinity let it be on the node."""
    if spec.get("nodeName") and spec["nodeName"] != node.name:
        return False
    wanted: t.Mapping[str, str] = spec.get("nodeSelector") or {}
    if any(node.labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return node_matches(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"), node)


def _term(term: objects.Raw, node: objects.Node) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_requirement(e, node.labels) for e in expressions) and all(
        _requirement(f, {"metadata.name": node.name}) for f in fields
    )


def _requirement(requirement: objects.Raw, have: t.Mapping[str, str]) -> bool:
    key: str = requirement.get("key", "")
    values: t.Sequence[str] = requirement.get("values") or ()
    match requirement.get("operator"):
        case "In":
            return key in have and have[key] in values
        case "NotIn":
            return key not in have or have[key] not in values
        case "Exists":
            return key in have
        case "DoesNotExist":
            return key not in have
        case "Gt" | "Lt" as operator:
            try:
                left, right = int(have[key]), int(values[0])
            except (KeyError, IndexError, ValueError):
                return False
            return left > right if operator == "Gt" else left < right
    return False
