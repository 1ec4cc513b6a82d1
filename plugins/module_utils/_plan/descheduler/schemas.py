# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The language in which a descheduler's configuration is described: what a value is, and what it may be.

The descriptions themselves (``koordinator``, ``sigs``) are data without code; ``values`` holds a configuration
against them, ``profiles`` and ``traps`` know what cannot be said of one value alone, and the tables in the
documentation are made from them.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

Type = t.Literal[
    "bool",
    "int",
    "float",
    "string",
    "duration",
    "int_or_percent",
    "float_or_string",
    "address",
    "selector_text",
    "args",
    "object",
    "list",
    "map",
]

Real = t.Literal["refuses", "crashes", "drops", "starts"]
"""What the descheduler itself does with such a configuration.

``refuses``: exits and says why. ``crashes``: exits all the same (a panic, or an error after its checks).
``drops``: starts as if the words were not there. ``starts``: takes it, and it does not do what it says.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One value: its type, its default (as the documentation shows it), and its limits.

    ``fields`` are an object's keys, ``item`` is what a list or a map holds, ``keys`` the only keys of a map.
    ``real`` says what the descheduler does where the limits are broken, ``malformed`` where a text of the
    right type cannot be read. Of each of ``exclusive``'s groups of keys only one may be set. ``le`` are pairs
    of keys: a number under the first may not be greater than the one of the same name under the second.
    ``alike`` are wrong words that only look right, with the right ones. ``width`` are the numbers that the Go type
    holds: another one cannot even be decoded. ``nullable`` is whether null is as good as nothing, and
    ``zero_is_default`` whether 0 and less are.
    """

    type: Type
    default: str = ""
    fields: t.Mapping[str, Field] = field(default_factory=dict)
    item: Field | None = None
    keys: tuple[str, ...] = ()
    enum: tuple[str, ...] = ()
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    width: tuple[float, float] | None = None
    nullable: bool = True
    zero_is_default: bool = False
    required: bool = False
    nonempty: bool = False
    forbidden: str = ""
    unique: str = ""
    real: Real = "refuses"
    malformed: Real = "refuses"
    exclusive: tuple[tuple[str, ...], ...] = ()
    le: tuple[tuple[str, str], ...] = ()
    alike: t.Mapping[str, str] = field(default_factory=dict)
    deprecated: str = ""
    since: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A plugin: where it may stand, what it takes, and how carefully the descheduler reads that.

    ``strict``: an unknown key ends the descheduler, else it is dropped. ``checked``: whether its values are
    checked always, only when it is enabled, or never. ``stray`` is what happens at a wrong extension point.
    """

    points: tuple[str, ...]
    args: Field
    strict: bool = True
    checked: t.Literal["always", "enabled", "never"] = "always"
    stray: Real = "refuses"
    needs_config: bool = False
    since: str = ""
    does: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """One descheduler: its document, its extension points (with what is enabled by default), its plugins."""

    name: str
    version: str
    api_version: str
    kind: str
    root: Field
    strict: bool
    points: t.Mapping[str, tuple[str, ...]]
    plugins: t.Mapping[str, Plugin]
    plugin_type: t.Literal["object", "string"]
    alike: t.Mapping[str, str] = field(default_factory=dict)

    def knows(self, since: str) -> bool:
        """Whether this version has what came with ``since``; the empty text was always there."""
        return not since or _numbers(since) <= _numbers(self.version)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


INT32 = (-(2**31), 2**31 - 1)
INT64 = (-(2**63), 2**63 - 1)
UINT32 = (0, 2**32 - 1)
UINT64 = (0, 2**64 - 1)
FLOAT32 = (-3.4028235677973366e38, 3.4028235677973366e38)


def boolean(default: str = "false", note: str = "", **more: t.Any) -> Field:
    """True or false; text such as ``"true"`` is neither."""
    return Field(type="bool", default=default, note=note, **more)


def whole(default: str = "", note: str = "", **more: t.Any) -> Field:
    """An integer of 64 bits unless ``width`` says otherwise."""
    return Field(type="int", default=default, note=note, **{"width": INT64, **more})


def count(default: str = "", note: str = "", **more: t.Any) -> Field:
    """An integer that is not negative; unsigned, of 64 bits, unless ``width`` says otherwise."""
    return Field(type="int", default=default, note=note, minimum=0, **{"width": UINT64, **more})


def text(default: str = "", note: str = "", **more: t.Any) -> Field:
    """A text, perhaps one of ``enum``."""
    return Field(type="string", default=default, note=note, **more)


def duration(default: str = "", note: str = "", **more: t.Any) -> Field:
    """A duration as Go writes it: ``90s``, ``5m``, ``1h30m``; a bare number is none."""
    return Field(type="duration", default=default, note=note, **more)


def record(fields: t.Mapping[str, Field], note: str = "", **more: t.Any) -> Field:
    """An object with these keys."""
    return Field(type="object", fields=fields, note=note, **more)


def several(item: Field, note: str = "", **more: t.Any) -> Field:
    """A list."""
    return Field(type="list", item=item, note=note, **more)


def by_name(item: Field, note: str = "", **more: t.Any) -> Field:
    """A map of names to values."""
    return Field(type="map", item=item, note=note, **more)


def selector_text(note: str = "", malformed: Real = "starts") -> Field:
    """A label selector as kubectl takes it: ``pool=a,tier!=db``; a plugin reads it while it runs."""
    return Field(type="selector_text", note=note, malformed=malformed)


def percents(note: str = "", *, maximum: float | None = 100, **more: t.Any) -> Field:
    """Resources with a percentage each."""
    return by_name(Field(type="float", minimum=0, maximum=maximum), note, **more)


TEXTS = several(text())

LABEL_SELECTOR = record(
    {
        "matchLabels": by_name(text()),
        "matchExpressions": several(
            record(
                {
                    "key": text(),
                    "operator": text(),
                    "values": TEXTS,
                }
            )
        ),
    },
    "a label selector: matchLabels, matchExpressions",
)
"""What its words may be is one rule of the API machinery's (``values``): not every descheduler asks for it."""

INCLUDE_TYPO = {"include the following:": "include", "include the following": "include"}
"""A stored page of ACK has this translated key under evictableNamespaces."""

NAMESPACES = record(
    {"include": TEXTS, "exclude": TEXTS},
    exclusive=(("include", "exclude"),),
    alike=INCLUDE_TYPO,
)

EXCLUDED_NAMESPACES = record(
    {"include": replace(TEXTS, forbidden="only namespaces to exclude can be given here"), "exclude": TEXTS},
    "exclude alone",
    alike=INCLUDE_TYPO,
)

HIGHEST_PRIORITY = 2_000_000_000
"""``SystemCriticalPriority``: no threshold may be higher."""

PRIORITY_VALUE = whole("", "at most 2000000000", width=INT32)
