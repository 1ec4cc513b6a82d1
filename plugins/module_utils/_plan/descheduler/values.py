# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A value held against its description, as Go's JSON decoder and the deschedulers' validators would read it."""

from __future__ import annotations

import difflib
import ipaddress
import math
import re
import sys
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import rules, schemas
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import node_taints, selectors

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(rf"({_NUMBER})({'|'.join(sorted(_UNITS, key=len, reverse=True))})", re.ASCII)
_DURATION = re.compile(rf"[+-]?(?:{_PART.pattern})+", re.ASCII)
_PERCENT = re.compile(r"([+-]?\d+)%", re.ASCII)
_FLOAT = re.compile(rf"[+-]?(?:{_NUMBER}(?:e[+-]?\d+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE)
_PORT = re.compile(r"\+?\d+", re.ASCII)

_SAID = {
    "bool": "true or false, without quotes",
    "int": "a whole number",
    "float": "a number",
    "string": "a text (numbers and true/false in quotes)",
    "duration": "a duration such as 90s, 5m or 1h30m",
    "int_or_percent": 'a whole number or a percentage such as "10%"',
    "float_or_string": "a number",
    "address": "an IP address and a port such as 0.0.0.0:10251",
    "selector_text": "a label selector as text, such as pool=a,tier!=db",
    "args": "keys and values",
    "object": "keys and values",
    "list": "a list",
    "map": "names and values",
}


@dataclass(frozen=True, slots=True)
class Reader:
    """How a part of the document is read: by which schema, and whether unknown keys end the descheduler."""

    schema: schemas.Schema
    strict: bool

    def faults(self, field: schemas.Field, value: t.Any, path: str) -> t.Iterator[rules.Fault]:
        """Everything that is wrong with the value; ``None`` is as good as no value, where the field is nullable."""
        if value is None and field.nullable:
            return
        if value is None or not _fits(field, value):
            said = "null" if value is None else _short(value)
            yield rules.Fault(
                "wrong_type", f"{said} is not {_SAID[field.type]}.", _hint(field, value), path, decoding=True
            )
            return
        if field.width and not _within(field, value):
            low, high = field.width
            remedy = f"Give a number from {low:.17g} to {high:.17g}."
            yield rules.Fault("out_of_range", f"{_short(value)} is out of range.", remedy, path, decoding=True)
            return
        if field.forbidden and is_set(value):
            yield rules.Fault("forbidden", f"{_said(field.forbidden)}.", "Remove it.", path, field.real)
        match field.type:
            case "object":
                yield from self._object(field, value, path)
            case "list":
                yield from self._list(field, value, path)
            case "map":
                yield from self._map(field, value, path)
            case _:
                yield from _scalar(field, value, path)

    def _object(self, field: schemas.Field, value: t.Mapping[str, t.Any], path: str) -> t.Iterator[rules.Fault]:
        for key, inner in value.items():
            here = _join(path, key)
            known = field.fields.get(key)
            if known is None:
                yield self._unknown(field, key, here)
            elif not self.schema.knows(known.since):
                message = f"{key} came with version {known.since}."
                yield rules.Fault(
                    "too_new",
                    message,
                    "Remove it, or name the newer version.",
                    here,
                    self._lost,
                    decoding=True,
                )
            else:
                if known.deprecated and inner not in (None, False):
                    yield rules.warning("deprecated", f"{key} is deprecated.", f"Use {known.deprecated}.", here)
                yield from self.faults(known, inner, here)
        for key, known in field.fields.items():
            missing = known.required or known.nonempty
            if missing and not is_set(value.get(key)) and self.schema.knows(known.since):
                yield rules.Fault("required", f"{key} has to be given.", "", _join(path, key), known.real)
        for group in field.exclusive:
            given = [key for key in group if is_set(value.get(key))]
            if len(given) > 1:
                message = f"Only one of {' and '.join(given)} may be given."
                yield rules.Fault("exclusive", message, "Remove all but one of them.", path, field.real)
        for low, high in field.le:
            yield from _ordered(value, low, high, path)
        if field.fields is schemas.LABEL_SELECTOR.fields:
            for fault in _selector(value, path):
                yield replace(fault, real=field.malformed)

    @property
    def _lost(self) -> t.Literal["refuses", "drops"]:
        return "refuses" if self.strict else "drops"

    def _unknown(self, field: schemas.Field, key: str, path: str) -> rules.Fault:
        right = field.alike.get(key) or similar(key, field.fields)
        message = f"There is no key {key} here."
        rule, remedy = "unknown_key", f"Known are {', '.join(field.fields)}."
        if right:
            rule, remedy = "look_alike", f"It is called {right}."
        elif field.fields is schemas.LABEL_SELECTOR.fields:
            remedy = f"Write labels below matchLabels: {{{key}: …}}."
        return rules.Fault(rule, message, remedy, path, self._lost, decoding=True)

    def _list(self, field: schemas.Field, value: t.Sequence[t.Any], path: str) -> t.Iterator[rules.Fault]:
        if field.minimum is not None and len(value) < field.minimum:
            yield rules.Fault("out_of_range", f"At least {field.minimum:g} are needed.", "", path, field.real)
        item = t.cast("schemas.Field", field.item)
        seen: dict[t.Any, int] = {}
        for index, given in enumerate(value):
            here = f"{path}[{index}]"
            inner = _zero(item) if given is None else given
            yield from self.faults(item, inner, here)
            if item.enum and inner == "":
                kept = given is None and index == 0 and field.default and not self.strict
                remedy = f"Known are {_listed(item)}."
                yield rules.Fault(
                    "not_in_list", "There is nothing here.", remedy, here, "starts" if kept else item.real
                )
            if item.nonempty and not is_set(inner):
                yield rules.Fault("required", f"{_said(item.note)} has to be given.", path=here)
            name = inner if field.unique == "*" else inner.get(field.unique) or "" if isinstance(inner, dict) else None
            if field.unique and isinstance(name, str):
                if name in seen:
                    where = f"{path}[{seen[name]}]"
                    yield rules.Fault("duplicate", f"{name!r} is there already, see {where}.", "", here, field.real)
                seen.setdefault(name, index)

    def _map(self, field: schemas.Field, value: t.Mapping[str, t.Any], path: str) -> t.Iterator[rules.Fault]:
        for key, inner in value.items():
            here = _join(path, key)
            if field.keys and key not in field.keys:
                right = similar(key, field.keys)
                remedy = f"It is called {right}." if right else f"Known are {', '.join(field.keys)}."
                rule = "look_alike" if right else "unknown_key"
                yield rules.Fault(rule, f"There is no {key} here.", remedy, here, field.real)
            item = t.cast("schemas.Field", field.item)
            yield from self.faults(item, _zero(item) if inner is None else inner, here)


def is_set(value: t.Any) -> bool:
    """Whether Go would call the value set: not null, and no empty text, list or map; 0 and false are set."""
    return value is not None and value != "" and value != [] and value != {}


def _zero(field: schemas.Field) -> t.Any:
    """What Go makes of null in a list or a map: the type's zero value, not nothing."""
    match field.type:
        case "object":
            return {}
        case "string":
            return ""
    return None if field.type in ("list", "map", "bool") else 0


def number(value: t.Any) -> float | None:
    """A number of a map, where null is 0, or ``None``."""
    if value is None:
        return 0.0
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def similar(word: str, known: t.Iterable[str]) -> str:
    """The known word that was most likely meant, or the empty text."""
    words = list(known)
    for candidate in words:
        if candidate.lower() == word.lower():
            return candidate
    return next(iter(difflib.get_close_matches(word, words, 1, 0.85)), "")


def seconds(text: t.Any) -> float | None:
    """A duration as Go's ``time.ParseDuration`` reads it, or ``None``."""
    if not isinstance(text, str):
        return None
    if text in ("0", "+0", "-0"):
        return 0.0
    if not _DURATION.fullmatch(text):
        return None
    total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return -total if text.startswith("-") else total


def _fits(field: schemas.Field, value: t.Any) -> bool:
    match field.type:
        case "bool":
            return isinstance(value, bool)
        case "int":
            return _whole(value)
        case "float":
            return isinstance(value, (int, float)) and not isinstance(value, bool) and _finite(value)
        case "string" | "selector_text" | "address":
            return isinstance(value, str)
        case "duration":
            return seconds(value) is not None
        case "int_or_percent":
            return _whole(value) or isinstance(value, str)
        case "float_or_string":
            return isinstance(value, (int, float, str)) and not isinstance(value, bool) and _finite(value)
        case "list":
            return isinstance(value, list)
        case "args":
            return True
    return isinstance(value, dict)


def _finite(value: float | str) -> bool:
    return isinstance(value, str) or (abs(value) <= sys.float_info.max and not math.isnan(value))


def _within(field: schemas.Field, value: t.Any) -> bool:
    """Whether the Go type holds the number; a text has no width."""
    low, high = t.cast("tuple[float, float]", field.width)
    return isinstance(value, str) or low <= value <= high


def _whole(value: t.Any) -> bool:
    """1.0 is written as 1 when YAML becomes JSON."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and _finite(value) and value.is_integer())


def _scalar(field: schemas.Field, value: t.Any, path: str) -> t.Iterator[rules.Fault]:
    number = _number(field, value)
    if isinstance(number, str):
        yield rules.Fault("malformed", number, "", path, field.malformed)
        return
    if field.enum and value and value not in field.enum:
        right = field.alike.get(value) or similar(value, field.enum)
        remedy = f"It is called {right}." if right else f"Known are {_listed(field)}."
        yield rules.Fault(
            "look_alike" if right else "not_in_list", f"There is no {value!r} here.", remedy, path, field.real
        )
    if number is None:
        return
    low, above, high = field.minimum, field.above, field.maximum
    if (low is not None and number < low) or (above is not None and number <= above):
        limit = f"{low:g} or more" if low is not None else f"more than {above:g}"
        yield rules.Fault("out_of_range", f"{value} is too small.", f"Give {limit}.", path, field.real)
    if high is not None and number > high:
        yield rules.Fault("out_of_range", f"{value} is too large.", f"Give {high:.0f} or less.", path, field.real)


def _number(field: schemas.Field, value: t.Any) -> float | str | None:
    """The value as a number, ``None`` where it has none, or a text: why it cannot be read."""
    match field.type:
        case "int" | "float":
            return float(value)
        case "duration":
            return seconds(value)
        case "int_or_percent" if isinstance(value, str):
            found = _PERCENT.fullmatch(value)
            return float(found[1]) if found else f"{value!r} is not {_SAID['int_or_percent']}."
        case "float_or_string" if isinstance(value, str):
            return float(value) if _FLOAT.fullmatch(value) else f"{value!r} is not a number."
        case "int_or_percent" | "float_or_string":
            return float(value)
        case "address":
            return None if _address(value) else f"{value!r} is not {_SAID['address']}."
        case "selector_text":
            try:
                selectors.parse(value)
            except ValueError as error:
                return f"{error}."
    return None


def _address(value: str) -> bool:
    """As ``net.SplitHostPort`` takes it apart; an IP address alone gets the default port."""
    host, colon, port = value.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif not colon or ":" in host:
        return _ip(value)
    return _ip(host or "0.0.0.0") and bool(_PORT.fullmatch(port)) and 1 <= int(port) <= 65535


def _ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def _ordered(value: t.Mapping[str, t.Any], low: str, high: str, path: str) -> t.Iterator[rules.Fault]:
    lows, highs = value.get(low), value.get(high)
    if not isinstance(lows, dict) or not isinstance(highs, dict):
        return
    for name, given in lows.items():
        one, limit = number(given), number(highs[name]) if name in highs else None
        if one is not None and limit is not None and one > limit:
            message = f"{low} of {name} is {one:g}, {high} is {limit:g}."
            yield rules.Fault("order", message, f"Keep {low} at or below {high}.", _join(_join(path, low), name))


_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def _selector(value: t.Mapping[str, t.Any], path: str) -> t.Iterator[rules.Fault]:
    """What the API machinery checks of a label selector beyond its shape (``LabelSelectorAsSelector``)."""
    labels, expressions = value.get("matchLabels"), value.get("matchExpressions")
    for key, label in labels.items() if isinstance(labels, dict) else ():
        if not node_taints.is_qualified(key) or (isinstance(label, str) and not node_taints.is_label_value(label)):
            yield rules.Fault("malformed", f"{key}={label} is no label.", path=_join(_join(path, "matchLabels"), key))
    for index, given in enumerate(expressions if isinstance(expressions, list) else ()):
        expression = {} if given is None else given
        if isinstance(expression, dict):
            yield from _expression(expression, f"{path}.matchExpressions[{index}]")


def _expression(expression: t.Mapping[str, t.Any], path: str) -> t.Iterator[rules.Fault]:
    key, operator, values = (expression.get(name) for name in ("key", "operator", "values"))
    if not is_set(key):
        yield rules.Fault("required", "key has to be given.", path=f"{path}.key")
    elif isinstance(key, str) and not node_taints.is_qualified(key):
        yield rules.Fault("malformed", f"{key!r} is no label key.", path=f"{path}.key")
    if not is_set(operator):
        yield rules.Fault(
            "required", "operator has to be given.", f"Known are {', '.join(_OPERATORS)}.", f"{path}.operator"
        )
    elif isinstance(operator, str) and operator not in _OPERATORS:
        right = similar(operator, _OPERATORS)
        remedy = f"It is called {right}." if right else f"Known are {', '.join(_OPERATORS)}."
        rule = "look_alike" if right else "not_in_list"
        yield rules.Fault(rule, f"There is no {operator!r} here.", remedy, f"{path}.operator")
    if operator in ("In", "NotIn") and not is_set(values):
        yield rules.Fault("required", "In and NotIn need values.", path=f"{path}.values")
    if operator in ("Exists", "DoesNotExist") and is_set(values):
        yield rules.Fault("forbidden", "Exists and DoesNotExist take no values.", "Remove them.", f"{path}.values")
    for word in values if isinstance(values, list) else ():
        if isinstance(word, str) and not node_taints.is_label_value(word):
            yield rules.Fault("malformed", f"{word!r} is no label value.", path=f"{path}.values")


def _listed(field: schemas.Field) -> str:
    return ", ".join(word for word in field.enum if word)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _said(words: str) -> str:
    return words[:1].upper() + words[1:]


def _short(value: t.Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


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
