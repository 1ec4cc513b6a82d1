# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Values held against Go types, as ``encoding/json`` would decode them.

koord-descheduler lists all PodMigrationJobs into Go types at once: one value of a wrong type in one job, and the
whole list cannot be decoded, so that no job is worked on any more. An unknown field would be dropped in silence.
Both are told here, with their path.
"""

from __future__ import annotations

import datetime
import re
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import values
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import types

Fault = tuple[str, t.Any, str]
"""Where, what is there, and what would be right."""

_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE])?", re.ASCII)
_RANGES = {"int32": 2**31, "int64": 2**63}
_SAID = {
    "str": "a text (numbers and true/false in quotes)",
    "bool": "true or false, without quotes",
    "int32": "a whole number",
    "int64": "a whole number",
    "int_or_str": "a whole number or a text",
    "quantity": "a quantity such as 500m, 2 or 4Gi",
    "time": "a moment such as 2026-11-21T05:30:00Z",
    "duration": "a duration as Go writes it, such as 90s, 5m or 1h30m",
}


def faults(kind: str, value: t.Any, path: str) -> t.Iterator[Fault]:
    """Everything in the value that Go would not decode as this type, and every field it does not know."""
    if value is None or kind == "any":
        return
    if kind.startswith("["):
        yield from _list(kind[1:-1], value, path)
    elif kind.startswith("{"):
        yield from _map(kind[1:-1], value, path)
    elif kind in types.TYPES:
        yield from _object(kind, value, path)
    elif not _fits(kind, value):
        yield path, value, _SAID[kind]


def _list(kind: str, value: t.Any, path: str) -> t.Iterator[Fault]:
    if not isinstance(value, list):
        yield path, value, "a list"
        return
    for index, item in enumerate(value):
        yield from faults(kind, item, f"{path}[{index}]")


def _map(kind: str, value: t.Any, path: str) -> t.Iterator[Fault]:
    if not isinstance(value, t.Mapping):
        yield path, value, "names and values"
        return
    for key, item in value.items():
        if isinstance(key, str):
            yield from faults(kind, item, f"{path}.{key}")
        else:
            yield path, key, "texts as names, in quotes where they look like something else"


def _object(kind: str, value: t.Any, path: str) -> t.Iterator[Fault]:
    fields = types.TYPES[kind]
    if not isinstance(value, t.Mapping):
        yield path, value, f"the fields of a {kind}"
        return
    for key, item in value.items():
        if key in fields:
            yield from faults(fields[key], item, f"{path}.{key}")
        else:
            right = values.similar(str(key), fields)
            yield f"{path}.{key}", item, f"no such field; it is called {right}" if right else "no such field"


def _fits(kind: str, value: t.Any) -> bool:
    match kind:
        case "str":
            return isinstance(value, str)
        case "bool":
            return isinstance(value, bool)
        case "int32" | "int64":
            return _whole(value) and -_RANGES[kind] <= value < _RANGES[kind]
        case "int_or_str":
            return isinstance(value, str) or (_whole(value) and -_RANGES["int32"] <= value < _RANGES["int32"])
        case "quantity":
            return _number(value) or (isinstance(value, str) and _QUANTITY.fullmatch(value) is not None)
        case "time":
            return isinstance(value, str) and _moment(value)
    return isinstance(value, str) and duration(value) is not None


def duration(text: str) -> float | None:
    """A duration in seconds, ``None`` where Go would not read it; only the digits of ASCII are digits."""
    return values.seconds(text) if text.isascii() else None


def _number(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _whole(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _moment(text: str) -> bool:
    """RFC 3339 with its zone, as Go wants it."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", text, re.ASCII):
        return False
    try:
        datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return False
    return True
