# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Single values validated against their schema, as Go's decoder and the deschedulers do it."""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
import sys
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import schemas
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import durations

_PERCENT = re.compile(r"([+-]?\d+)%", re.ASCII)
_FLOAT = re.compile(
    rf"[+-]?(?:{durations.NUMBER}(?:e[+-]?\d+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE
)
_PORT = re.compile(r"\+?\d+", re.ASCII)

_TYPES: t.Mapping[schemas.Type, tuple[str, type | tuple[()]]] = {
    "bool": ("true or false, without quotes", bool),
    "int": ("an integer", ()),
    "float": ("a number", ()),
    "string": ("a string (numbers and true/false in quotes)", str),
    "duration": ("a duration such as 90s, 5m or 1h30m", str),
    "int_or_percent": ('an integer or a percentage such as "10%"', str),
    "float_or_string": ("a number", str),
    "address": ("an IP address and a port such as 0.0.0.0:10251", str),
    "selector_text": ("a label selector as a string, such as pool=a,tier!=db", str),
    "args": ("keys and values", object),
    "object": ("keys and values", dict),
    "list": ("a list", list),
    "map": ("names and values", dict),
}
"""How messages describe each type, and the Python type of its values that are not numbers."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Validates a part of the document. ``strict``: on an unknown key the descheduler exits."""

    schema: schemas.Schema
    strict: bool

    def faults(self, field: schemas.Field, value: t.Any, path: str) -> schemas.Faults:
        """Everything that is wrong with the value; ``None`` is absent if the field is nullable."""
        if value is None and field.nullable:
            return
        if value is None or not _fits(field, value):
            message = f"{shown(value)} is not {_TYPES[field.type][0]}."
            yield schemas.Fault("wrong_type", message, _hint(field, value), path, decoding=True)
            return
        if (
            field.width
            and not isinstance(value, str)
            and not field.width[0] <= value <= field.width[1]
        ):
            remedy = f"Give a number from {field.width[0]} to {field.width[1]}."
            yield schemas.Fault(
                "out_of_range", f"{shown(value)} is out of range.", remedy, path, decoding=True
            )
            return
        if field.forbidden and is_set(value):
            yield schemas.Fault("forbidden", field.forbidden, "Remove it.", path, field.real)
        match field.type:
            case "object":
                yield from self._object(field, value, path)
            case "list":
                yield from self._list(field, value, path)
            case "map":
                yield from self._map(field, value, path)
            case _:
                yield from _scalar(field, value, path)

    def _object(
        self, field: schemas.Field, value: t.Mapping[str, t.Any], path: str
    ) -> schemas.Faults:
        yield from self._keys(field, value, path)
        for key, known in field.fields.items():
            missing = known.required or known.nonempty
            if missing and not is_set(value.get(key)) and self.schema.knows(known.since):
                yield schemas.required(_join(path, key), known.real)
        for group in field.exclusive:
            given = [key for key in group if is_set(value.get(key))]
            if len(given) > 1:
                message = f"Only one of {' and '.join(given)} may be set."
                yield schemas.Fault(
                    "exclusive", message, "Remove all but one of them.", path, field.real
                )
        for low, high in field.le:
            yield from ordered(value, low, high, path)
        if field.fields is schemas.LABEL_SELECTOR.fields:
            unread = field.by_labels and not is_set(value.get("matchLabels"))
            for fault in _selector(value, path):
                yield replace(fault, real="starts" if unread else field.malformed)

    def _keys(
        self, field: schemas.Field, value: t.Mapping[str, t.Any], path: str
    ) -> schemas.Faults:
        """What is wrong with the keys that are there, and with their values."""
        lost: schemas.Real = "refuses" if self.strict else "drops"
        for key, inner in value.items():
            here = _join(path, key)
            known = field.fields.get(key)
            if known is None:
                yield replace(_unknown_key(field, key, here), real=lost, decoding=True)
            elif not self.schema.knows(known.since):
                yield too_new(key, known.since, here, lost)
            else:
                if known.deprecated and inner not in (None, False):
                    yield schemas.warning(
                        "deprecated", f"{key} is deprecated.", f"Use {known.deprecated}.", here
                    )
                yield from self.faults(known, inner, here)

    def _list(self, field: schemas.Field, value: t.Sequence[t.Any], path: str) -> schemas.Faults:
        if field.minimum is not None and len(value) < field.minimum:
            yield schemas.Fault(
                "out_of_range", f"At least {field.minimum:g} are required.", "", path, field.real
            )
        item = t.cast("schemas.Field", field.item)
        seen: dict[t.Any, int] = {}
        for index, given in enumerate(value):
            here = f"{path}[{index}]"
            inner = _ZERO.get(item.type, 0) if given is None else given
            yield from self.faults(item, inner, here)
            if item.enum and inner == "":
                kept = given is None and index == 0 and field.default and not self.strict
                yield unknown("value", "", item.enum, here, "starts" if kept else item.real)
            if (
                item.nonempty
                and isinstance(inner, dict)
                and not any(is_set(inner.get(key)) for key in item.fields)
            ):
                yield schemas.Fault("required", "At least one key is required.", path=here)
            name = inner
            if field.unique != "*":
                name = inner.get(field.unique) or "" if isinstance(inner, dict) else None
            if field.unique and isinstance(name, str):
                if name in seen:
                    message = f"{shown(name)} occurs twice, first in {path}[{seen[name]}]."
                    yield schemas.Fault("duplicate", message, "", here, field.real)
                seen.setdefault(name, index)

    def _map(self, field: schemas.Field, value: t.Mapping[str, t.Any], path: str) -> schemas.Faults:
        item = t.cast("schemas.Field", field.item)
        for key, inner in value.items():
            here = _join(path, key)
            if field.keys and key not in field.keys:
                yield unknown("key", key, field.keys, here, field.real)
            yield from self.faults(item, _ZERO.get(item.type, 0) if inner is None else inner, here)


_UNKNOWN = {"key": "unknown_key", "plugin": "unknown_plugin", "value": "not_in_list"}


def unknown(
    kind: t.Literal["key", "plugin", "value"],
    word: str,
    known: t.Iterable[str],
    path: str,
    real: schemas.Real = "refuses",
    alike: t.Mapping[str, str] | None = None,
) -> schemas.Fault:
    """A word that is not ``known``; a ``look_alike`` if it resembles one or is in ``alike``."""
    words = [each for each in known if each]
    message = f"Unknown {kind} {shown(word)}."
    right = (alike or {}).get(word) or similar(word, words)
    if right:
        return schemas.Fault("look_alike", message, f"Write {right}.", path, real, word=word)
    remedy = f"Use one of {', '.join(words)}."
    return schemas.Fault(_UNKNOWN[kind], message, remedy, path, real, word=word)


def _unknown_key(field: schemas.Field, key: str, path: str) -> schemas.Fault:
    fault = unknown("key", key, field.fields, path, alike=field.alike)
    if fault.code == "unknown_key" and field.fields is schemas.LABEL_SELECTOR.fields:
        return replace(fault, remedy=f"Write labels under matchLabels: {{{key}: …}}.")
    return fault


def too_new(name: str, since: str, path: str, real: schemas.Real = "refuses") -> schemas.Fault:
    """A key or plugin that was added after the schema's version."""
    message = f"{name} was added in version {since}."
    return schemas.Fault(
        "too_new", message, "Remove it, or set the newer version.", path, real, decoding=True
    )


def is_set(value: t.Any) -> bool:
    """Whether Go considers the value set: not null and not empty; 0 and false are set."""
    return value is not None and value != "" and value != [] and value != {}


_ZERO: t.Mapping[schemas.Type, t.Any] = {
    "object": {},
    "string": "",
    "list": None,
    "map": None,
    "bool": None,
}
"""What Go makes of null in a list or map: the zero value of the type; for all other types 0."""


def number(value: t.Any) -> float | None:
    """A number in a map, where null is 0; ``None`` for anything else."""
    if value is None:
        return 0.0
    return float(value) if _is_number(value) else None


def similar(word: str, known: t.Iterable[str]) -> str:
    """The known word that was most likely meant, or the empty string."""
    words = list(known)
    for candidate in words:
        if candidate.lower() == word.lower():
            return candidate
    return next(iter(difflib.get_close_matches(word, words, 1, 0.85)), "")


def shown(value: t.Any, length: int = 40) -> str:
    """The value as JSON, a string in single quotes, shortened to ``length`` characters."""
    if isinstance(value, str):
        text = f"'{value}'"
    else:
        text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _fits(field: schemas.Field, value: t.Any) -> bool:
    match field.type:
        case "duration":
            return durations.go_seconds(value) is not None
        case "int" | "int_or_percent" if _is_whole(value):
            return True
        case "float" | "float_or_string" if _is_number(value):
            return True
    return isinstance(value, _TYPES[field.type][1])


def _is_number(value: t.Any) -> bool:
    """Whether it is a finite number, not a boolean."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max
    )


def _is_whole(value: t.Any) -> bool:
    """Whether it is an integer; 1.0 is written as 1 when YAML becomes JSON."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value % 1 == 0


def _scalar(field: schemas.Field, value: t.Any, path: str) -> schemas.Faults:
    number = _number(field, value)
    if isinstance(number, str):
        yield schemas.Fault("malformed", number, "", path, field.malformed)
        return
    if field.enum and value and value not in field.enum:
        yield unknown("value", value, field.enum, path, field.real, field.alike)
    if number is None:
        return
    low = field.minimum
    above = field.above
    high = field.maximum
    if (low is not None and number < low) or (above is not None and number <= above):
        limit = f"{low:g} or more" if low is not None else f"more than {above:g}"
        yield schemas.Fault(
            "out_of_range", f"{value} is too small.", f"Give {limit}.", path, field.real
        )
    if high is not None and number > high:
        yield schemas.Fault(
            "out_of_range", f"{value} is too large.", f"Give {high:.0f} or less.", path, field.real
        )


def _number(field: schemas.Field, value: t.Any) -> float | str | None:
    """The value as a number, ``None`` if it is of another type, or why it cannot be parsed."""
    wrong = f"{shown(value)} is not {_TYPES[field.type][0]}."
    match field.type:
        case "duration":
            return durations.go_seconds(value)
        case "int_or_percent" if isinstance(value, str):
            found = _PERCENT.fullmatch(value)
            return float(found[1]) if found else wrong
        case "float_or_string" if isinstance(value, str):
            return float(value) if _FLOAT.fullmatch(value) else wrong
        case "int" | "float" | "int_or_percent" | "float_or_string":
            return float(value)
        case "address" if not _is_address(value):
            return wrong
        case "selector_text":
            try:
                selectors.parse(value)
            except ValueError as error:
                return f"{error}."
    return None


def _is_address(value: str) -> bool:
    """Whether ``net.SplitHostPort`` accepts it; an IP address alone gets the default port."""
    host, colon, port = value.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif not colon or ":" in host:
        return _is_ip(value)
    return _is_ip(host or "0.0.0.0") and bool(_PORT.fullmatch(port)) and 1 <= int(port) <= 65535


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def ordered(value: t.Mapping[str, t.Any], low: str, high: str, path: str) -> schemas.Faults:
    """Numbers under ``low`` that exceed the ones of the same name under ``high``."""
    lows, highs = value.get(low), value.get(high)
    if not isinstance(lows, dict) or not isinstance(highs, dict):
        return
    for name in [name for name in lows if name in highs]:
        one, limit = number(lows[name]), number(highs[name])
        if one is not None and limit is not None and one > limit:
            message = f"{low} of {name} is {one:g}, {high} is {limit:g}."
            yield schemas.Fault(
                "order", message, f"Keep {low} at or below {high}.", _join(_join(path, low), name)
            )


_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def _selector(value: t.Mapping[str, t.Any], path: str) -> schemas.Faults:
    """What the API machinery (``LabelSelectorAsSelector``) validates of a selector but types."""
    labels, expressions = value.get("matchLabels"), value.get("matchExpressions")
    for key, label in labels.items() if isinstance(labels, dict) else ():
        if not selectors.is_key(key) or (isinstance(label, str) and not selectors.is_value(label)):
            where = _join(_join(path, "matchLabels"), key)
            yield schemas.Fault("malformed", f"{key}={label} is not a valid label.", path=where)
    for index, given in enumerate(expressions if isinstance(expressions, list) else ()):
        expression = {} if given is None else given
        if isinstance(expression, dict):
            yield from _expression(expression, f"{path}.matchExpressions[{index}]")


def _expression(expression: t.Mapping[str, t.Any], path: str) -> schemas.Faults:
    key, operator, values = (expression.get(name) for name in ("key", "operator", "values"))
    if not is_set(key):
        yield schemas.required(f"{path}.key")
    elif isinstance(key, str) and not selectors.is_key(key):
        yield schemas.Fault(
            "malformed", f"{shown(key)} is not a valid label key.", path=f"{path}.key"
        )
    if not is_set(operator):
        yield replace(
            schemas.required(f"{path}.operator"), remedy=f"Use one of {', '.join(_OPERATORS)}."
        )
    elif isinstance(operator, str) and operator not in _OPERATORS:
        yield unknown("value", operator, _OPERATORS, f"{path}.operator")
    if operator in ("In", "NotIn") and not is_set(values):
        yield schemas.Fault("required", "In and NotIn require values.", path=f"{path}.values")
    if operator in ("Exists", "DoesNotExist") and is_set(values):
        yield schemas.Fault(
            "forbidden", "Exists and DoesNotExist take no values.", "Remove them.", f"{path}.values"
        )
    for word in values if isinstance(values, list) else ():
        if isinstance(word, str) and not selectors.is_value(word):
            yield schemas.Fault(
                "malformed", f"{shown(word)} is not a valid label value.", path=f"{path}.values"
            )


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _hint(field: schemas.Field, value: t.Any) -> str:
    if field.type == "duration" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"For seconds write {value}s."
    if field.type == "bool" and isinstance(value, str) and value.lower() in ("true", "false"):
        return f"Write {value.lower()} without quotes."
    if field.type in ("int", "float") and isinstance(value, str):
        return "Write the number without quotes."
    if field.type == "string" and isinstance(value, (int, float)):
        return f'Write "{str(value).lower()}" in quotes.'
    return ""
