# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A right document with one thing changed: every rule of the schema broken once at every place it holds."""

from __future__ import annotations

import copy
import typing as t
from collections.abc import Iterator

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.schemas import LABEL_SELECTOR, Field

Path = tuple[str | int, ...]
Change = tuple[str, Path, t.Any]
"""What was done (in a word or two), where, and the new value; ``GONE`` removes."""

GONE = object()

_OTHER_TYPES: dict[str, tuple[t.Any, ...]] = {
    "bool": ("true", 1, []),
    "int": ("5", 1.5, True, {}),
    "float": ("1.5", True, []),
    "string": (5, True, [], {}),
    "duration": (30, True, {}),
    "int_or_percent": (1.5, True, []),
    "float_or_string": (True, {}),
    "address": (10251, []),
    "selector_text": (5, {"pool": "a"}),
    "object": ("x", [], 5),
    "list": ("x", {}, 5),
    "map": ("x", [], 5),
    "args": ("x", [], 5),
}

_OTHER_WORDS: dict[str, tuple[t.Any, ...]] = {
    "duration": ("", "30", "30 seconds", "1d", "-1s", "0s", "0", "+5m", ".5h"),
    "int_or_percent": ("ten", "10", "", "-1", "10.5%", "-10%", "0%", "150%", 0, -1, 2**31),
    "float_or_string": ("fast", "", "0", "-1", "1e1", " 5", "Inf", "NaN", 0, -1.5),
    "address": ("localhost:PORT", "127.0.0.1:0", "127.0.0.1:70000", "127.0.0.1:http", "PORT", "", "::1", "1.2.3:PORT"),
    "selector_text": ("a=b=c", "pool in (a", "=", ""),
    "bool": (True, False),
    "float": (0, 0.5, 100, 250, 1e39, 1e400),
}

_SELECTORS: tuple[t.Any, ...] = (
    {},
    {"app": "web"},
    {"matchLabels": {"a b": "c"}},
    {"matchLabels": {"a/b/c": "d"}},
    {"matchLabels": {"app": "not a value"}},
    {"matchLabels": {"app": ""}},
    {"matchLabels": {"app": None}},
    {"matchExpressions": [None]},
    {"matchExpressions": [{"key": "a", "operator": "In"}]},
    {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]},
    {"matchExpressions": [{"key": "a", "operator": "In", "values": ["not a value"]}]},
    {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
    {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
    {"matchExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]},
    {"matchExpressions": [{"key": "", "operator": "Exists"}]},
    {"matchExpressions": [{"operator": "Exists"}]},
    {"matchExpressions": [{"key": "a"}]},
    {"matchExpressions": [{"key": "a", "operator": "Exists", "value": "b"}]},
)


def changes(field: Field, value: t.Any, path: Path = ()) -> Iterator[Change]:
    """Every change at the value and below it; what is not there is passed over."""
    for index, other in enumerate(_OTHER_TYPES[field.type]):
        yield f"another type {index}", path, other
    yield "null", path, None
    for index, other in enumerate(_OTHER_WORDS.get(field.type, ())):
        yield f"another word {index}", path, other
    yield from _numbers(field, path)
    yield from _words(field, value, path)
    if field.fields is LABEL_SELECTOR.fields:
        for index, other in enumerate(_SELECTORS):
            yield f"selector {index}", path, other
        return
    if field.type == "object":
        yield from _object(field, value, path)
    elif field.type == "list":
        yield from _list(field, value, path)
    elif field.type == "map":
        yield from _map(field, value, path)


def _numbers(field: Field, path: Path) -> Iterator[Change]:
    if field.type == "int":
        whole = {"zero": 0, "negative": -1, "past 32 bits": 2**31, "past 63 bits": 2**63, "past 64 bits": 2**64}
        for name, number in {**whole, "a whole float": 3.0}.items():
            yield name, path, number
    limits = (("minimum", field.minimum, -1), ("maximum", field.maximum, 1), ("above", field.above, 0))
    for name, limit, beyond in limits if field.type in ("int", "float") else ():
        if limit is not None:
            yield name, path, int(limit)
            yield f"beyond {name}", path, int(limit) + beyond


def _words(field: Field, value: t.Any, path: Path) -> Iterator[Change]:
    if field.type != "string":
        return
    yield "empty", path, ""
    if field.enum:
        yield "no such word", path, "Nonsense"
        yield "another case", path, str(value).swapcase()
        for word in field.enum:
            yield f"the word {word}", path, word
    for word in field.alike:
        yield f"looks alike {word}", path, word


def _object(field: Field, value: dict[str, t.Any], path: Path) -> Iterator[Change]:
    yield "empty", path, {}
    yield "unknown key", (*path, "surprise"), 1
    for wrong in field.alike:
        yield f"looks alike {wrong}", (*path, wrong), ["a"]
    if first := next((key for key in value if key != key.swapcase()), ""):
        yield "key in another case", (*path, first[:1].swapcase() + first[1:]), copy.deepcopy(value[first])
    for key, inner in field.fields.items():
        if inner.forbidden:
            yield "forbidden", (*path, key), ["a"]
        if inner.since and key not in value:
            yield "too new", (*path, key), []
    for group in field.exclusive:
        given = next((key for key in group if key in value), "")
        for key in group:
            if given and key != given:
                both = {"value": 1, "name": "system-cluster-critical"}.get(key, ["b"])
                yield f"together with {given}", (*path, key), both
    for low, high in field.le:
        for name in value.get(low, {}):
            if name in value.get(high, {}):
                yield f"above {high}", (*path, low, name), value[high][name] + 1
                yield f"as much as {high}", (*path, low, name), value[high][name]
    for key, inner_value in value.items():
        known = field.fields.get(key)
        if known is None:
            continue
        yield "left out", (*path, key), GONE
        yield from changes(known, inner_value, (*path, key))


def _list(field: Field, value: list[t.Any], path: Path) -> Iterator[Change]:
    yield "empty", path, []
    yield "a null item", (*path, len(value)), None
    if value:
        yield "twice the same", (*path, len(value)), copy.deepcopy(value[0])
        yield from changes(t.cast("Field", field.item), value[0], (*path, 0))


def _map(field: Field, value: dict[str, t.Any], path: Path) -> Iterator[Change]:
    yield "empty", path, {}
    if field.keys:
        yield "unknown key", (*path, "surprise"), {}
    name = next(iter(value), "")
    if name:
        yield "left out", (*path, name), GONE
        yield from changes(t.cast("Field", field.item), value[name], (*path, name))


def changed(document: t.Any, path: Path, value: t.Any) -> t.Any:
    """A copy of the document with the value at the path."""
    if not path:
        return copy.deepcopy(value)
    made = copy.deepcopy(document)
    place = made
    for step in path[:-1]:
        place = place[step]
    last = path[-1]
    if value is GONE:
        del place[last]
    elif isinstance(last, int) and last == len(place):
        place.append(copy.deepcopy(value))
    else:
        place[last] = copy.deepcopy(value)
    return made


def shown(path: Path) -> str:
    """The path as a finding has it."""
    words = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(words).removeprefix(".")
