# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Label selectors as the API server reads them (``metav1.LabelSelector``)."""

from __future__ import annotations

import typing as t


def matches(selector: t.Mapping[str, t.Any] | None, labels: t.Mapping[str, str]) -> bool:
    """Whether the labels satisfy the selector.

    ``None`` matches nothing and an empty selector matches everything (policy/v1 semantics of a
    budget's selector). An unknown operator matches nothing.
    """
    if selector is None:
        return False
    wanted: t.Mapping[str, str] = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_expression(e, labels) for e in selector.get("matchExpressions") or ())


def _expression(expression: t.Mapping[str, t.Any], labels: t.Mapping[str, str]) -> bool:
    key, values = expression.get("key", ""), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False


def as_query(selector: t.Mapping[str, t.Any]) -> str:
    """The selector in the query form ``a=b,c in (d,e),!f``."""
    parts = [f"{k}={v}" for k, v in sorted((selector.get("matchLabels") or {}).items())]
    for e in selector.get("matchExpressions") or ():
        key, values = e["key"], ",".join(e.get("values") or ())
        parts.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }[e["operator"]]
        )
    return ",".join(parts)
