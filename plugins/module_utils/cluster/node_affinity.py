# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which nodes a pod may run on by its node selector and node affinity;
taints are in ``node_taints``.

The rules are the scheduler's (``component-helpers/scheduling/corev1``). They read raw pod specs, so
that they apply to the template of a workload too.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    objects,
    selectors,
)

NAME = "metadata.name"
"""The only field that a term may match."""


def node_matches(selector: objects.Raw | None, node: objects.Node) -> bool:
    """Whether the node satisfies one term of a ``NodeSelector``; ``None`` matches every node."""
    if selector is None:
        return True
    return any(_term(term, node) for term in selector.get("nodeSelectorTerms") or ())


def selects(spec: objects.Raw, node: objects.Node) -> bool:
    """Whether a pod spec's nodeName, nodeSelector and required node affinity allow the node."""
    if spec.get("nodeName") and spec["nodeName"] != node.name:
        return False
    wanted: t.Mapping[str, str] = spec.get("nodeSelector") or {}
    if any(node.labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return node_matches(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"), node)


def unmet(spec: objects.Raw, node: objects.Node) -> list[str]:
    """The rules of a pod spec that the node does not satisfy, in words."""
    wanted: t.Mapping[str, str] = spec.get("nodeSelector") or {}
    found = [
        f"nodeSelector {key}={value}"
        for key, value in wanted.items()
        if node.labels.get(key) != value
    ]
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required: objects.Raw | None = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None or node_matches(required, node):
        return found
    for term in required.get("nodeSelectorTerms") or ():
        for rules, have in (
            (term.get("matchExpressions"), node.labels),
            (term.get("matchFields"), {NAME: node.name}),
        ):
            found += [_words(rule) for rule in rules or () if not _requirement(rule, have)]
    return found


def _words(requirement: objects.Raw) -> str:
    values = ", ".join(requirement.get("values") or ())
    return f"node affinity {requirement.get('key')} {requirement.get('operator')} {values}".rstrip()


_WORDS = {
    "In": "{key} in ({values})",
    "NotIn": "{key} notin ({values})",
    "Exists": "{key}",
    "DoesNotExist": "!{key}",
}


def labels_of(term: objects.Raw) -> str | None:
    """The label selector that matches the same nodes as one term of a ``NodeSelector``;
    ``None`` where none does.
    """
    found = term.get("matchExpressions") or ()
    if (
        not found
        or term.get("matchFields")
        or any(one.get("operator") not in _WORDS for one in found)
    ):
        return None
    return ",".join(
        _WORDS[one["operator"]].format(key=one["key"], values=",".join(one.get("values") or ()))
        for one in found
    )


def _term(term: objects.Raw, node: objects.Node) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_requirement(e, node.labels) for e in expressions) and all(
        _requirement(f, {NAME: node.name}) for f in fields
    )


def _requirement(requirement: objects.Raw, have: t.Mapping[str, str]) -> bool:
    operator = requirement.get("operator")
    if operator not in ("Gt", "Lt"):
        return selectors.satisfied(requirement, have)
    try:
        (value,) = requirement["values"]
        left, right = decoding.whole(have[requirement["key"]]), decoding.whole(value)
    except (KeyError, TypeError, ValueError):
        return False
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right
