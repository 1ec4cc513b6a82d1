# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Label selectors as the API server reads them (``metav1.LabelSelector``)."""

from __future__ import annotations

import re
import typing as t

_WORD = r"[^\s,()=!]+"
_SET = re.compile(rf"({_WORD})\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL = re.compile(rf"({_WORD})\s*(==|=|!=)\s*({_WORD})?")
_PRESENCE = re.compile(rf"(!?)\s*({_WORD})")

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def matches(selector: t.Mapping[str, t.Any] | None, labels: t.Mapping[str, str]) -> bool:
    """Whether the labels satisfy the selector.

    ``None`` matches nothing and an empty selector matches everything (policy/v1 semantics of
    a budget's selector).
    """
    if selector is None:
        return False
    wanted: t.Mapping[str, str] = selector.get("matchLabels") or {}
    for key, value in wanted.items():
        if labels.get(key) != value:
            return False
    expressions = selector.get("matchExpressions")
    return not expressions or all(satisfied(e, labels) for e in expressions)


def satisfied(expression: t.Mapping[str, t.Any], labels: t.Mapping[str, str]) -> bool:
    """Whether the labels satisfy one expression; an unknown operator matches nothing."""
    key = expression.get("key", "")
    values = expression.get("values") or ()
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
        key = e["key"]
        values = list(e.get("values") or ())
        # ``key in ()`` is refused, and the one value may be the empty text.
        one, several = ("=", " in ") if e["operator"] == "In" else ("!=", " notin ")
        listed = (
            f"{key}{one}{values[0]}" if len(values) == 1 else f"{key}{several}({','.join(values)})"
        )
        parts.append({"Exists": key, "DoesNotExist": f"!{key}"}.get(e["operator"], listed))
    return ",".join(parts)


def parse(text: str) -> dict[str, t.Any]:
    """A selector from its query form; the empty text selects everything.

    Raises:
        ValueError: names the part that cannot be parsed.
    """
    expressions = (
        [_parsed(part.strip()) for part in re.split(r",(?![^()]*\))", text)] if text.strip() else []
    )
    return {"matchExpressions": expressions} if expressions else {}


def _parsed(part: str) -> dict[str, t.Any]:
    found = _expression(part)
    if (
        found is None
        or not is_key(found["key"])
        or not all(is_value(value) for value in found.get("values", ()))
    ):
        example = "app=web, tier!=db, env in (prod,test), gpu or !gpu"
        raise ValueError(f"{part!r} is not part of a label selector; write it like {example}")
    return found


def _expression(part: str) -> dict[str, t.Any] | None:
    """The part's words; whether they can be a key and values is not asked yet."""
    if (found := _SET.fullmatch(part)) and found[3].strip():
        values = [value.strip() for value in found[3].split(",")]
        return {
            "key": found[1],
            "operator": "In" if found[2] == "in" else "NotIn",
            "values": values,
        }
    if found := _EQUAL.fullmatch(part):
        return {
            "key": found[1],
            "operator": "NotIn" if found[2] == "!=" else "In",
            "values": [found[3] or ""],
        }
    if found := _PRESENCE.fullmatch(part):
        return {"key": found[2], "operator": "DoesNotExist" if found[1] else "Exists"}
    return None


def is_key(text: str) -> bool:
    """Whether it can be the key of a label or taint: a name, or a domain, a slash and a name."""
    domain, slash, name = text.rpartition("/")
    return bool(_NAME.fullmatch(name)) and (
        not slash or (len(domain) <= 253 and bool(_DOMAIN.fullmatch(domain)))
    )


def is_value(text: str) -> bool:
    """Whether it can be the value of a label or taint; the empty text can."""
    return not text or bool(_NAME.fullmatch(text))
