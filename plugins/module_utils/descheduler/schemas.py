# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The types in which the schema of a descheduler's configuration is written.

The schemas (``koordinator``, ``sigs``, ``classic``) are data. ``values`` validates single values
against them, ``profiles`` and ``traps`` what depends on several; the tables in the documentation
are generated from them.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons

Flavor = t.Literal["koordinator", "ack", "sigs"]
"""Which descheduler it is: Koordinator's, Alibaba Cloud's, or sigs.k8s.io/descheduler."""

_Scalar = t.Literal[
    "bool", "int", "float", "string", "duration", "int_or_percent", "float_or_string", "address"
]

Type = t.Literal[_Scalar, "selector_text", "args", "object", "list", "map"]

Real = t.Literal["refuses", "crashes", "drops", "starts"]
"""What the descheduler itself does with a wrong setting.

``refuses``: it exits with a validation error. ``crashes``: it panics, or exits after the
validation. ``drops``: it starts without the setting. ``starts``: it starts,
but does not do what the setting says.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One value: its type, its default (as the documentation shows it) and its limits.

    ``fields`` are an object's keys, ``item`` the elements of a list or map, ``keys`` the only keys
    of a map. ``real`` applies where a limit is broken, ``malformed`` where a string cannot be
    parsed. Of each group in ``exclusive`` one key may be set. For each pair of maps in ``le``, no
    number under the first key may exceed the number of the same name under the second. ``unique``
    is the key that distinguishes the elements of a list, ``*`` the element itself. ``alike`` maps
    misspellings to the right word. ``width`` is the range of the Go type: other numbers cannot be
    decoded. ``zero_is_default``: 0 and negative numbers mean the default. ``by_labels``: a label
    selector without matchLabels is not read.
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
    by_labels: bool = False
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
    """A plugin: its extension points, its arguments, and how strictly the descheduler reads them.

    ``strict``: on an unknown key the descheduler exits; otherwise it drops the key. ``checked``:
    whether values are validated always or only when the plugin is enabled. ``stray``: what happens
    at a wrong extension point.
    """

    points: tuple[str, ...]
    args: Field
    strict: bool = True
    checked: t.Literal["always", "enabled"] = "always"
    stray: Real = "refuses"
    needs_config: bool = False
    since: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """One descheduler: its document, its plugins, and its extension points with their defaults."""

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
        """Whether this version has what was added in ``since``; if that is empty, it has."""
        return _numbers(since or "0") <= _numbers(self.version)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


INT32 = (-(2**31), 2**31 - 1)
INT64 = (-(2**63), 2**63 - 1)
UINT32 = (0, 2**32 - 1)
UINT64 = (0, 2**64 - 1)
FLOAT32 = (-3.4028235677973366e38, 3.4028235677973366e38)


def boolean(default: str = "false", note: str = "", **more: t.Any) -> Field:
    """True or false; not a string such as ``"true"``."""
    return Field(type="bool", default=default, note=note, **more)


def whole(default: str = "", note: str = "", **more: t.Any) -> Field:
    """An integer, of 64 bits unless ``width`` is given."""
    return Field(type="int", default=default, note=note, **{"width": INT64, **more})


def count(default: str = "", note: str = "", **more: t.Any) -> Field:
    """A non-negative integer, of 64 bits unless ``width`` is given."""
    return whole(default, note, minimum=0, **{"width": UINT64, **more})


def text(default: str = "", note: str = "", **more: t.Any) -> Field:
    """A string."""
    return Field(type="string", default=default, note=note, **more)


def duration(default: str = "", note: str = "", **more: t.Any) -> Field:
    """A duration in Go's format: ``90s``, ``5m``, ``1h30m``; not a bare number."""
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
    """A label selector as kubectl accepts it, ``pool=a,tier!=db``; parsed while plugins run."""
    return Field(type="selector_text", note=note, malformed=malformed)


def percents(note: str = "", *, maximum: float | None = 100, **more: t.Any) -> Field:
    """Resources with a percentage each."""
    return by_name(Field(type="float", minimum=0, maximum=maximum), note, **more)


TEXTS = several(text())

_EXPRESSION = record({"key": text(), "operator": text(), "values": TEXTS})

LABEL_SELECTOR = record(
    {"matchLabels": by_name(text()), "matchExpressions": several(_EXPRESSION)},
    "a label selector: matchLabels, matchExpressions",
)
"""``values`` validates its labels and operators, as not every descheduler does at its start."""

_TYPO = {"include the following:": "include", "include the following": "include"}
"""A page of ACK's documentation has this translated key under evictableNamespaces."""

NAMESPACES = record(
    {"include": TEXTS, "exclude": TEXTS}, exclusive=(("include", "exclude"),), alike=_TYPO
)

EXCLUDED_NAMESPACES = record(
    {"include": replace(TEXTS, forbidden="Only exclude is allowed here."), "exclude": TEXTS},
    "exclude only",
    alike=_TYPO,
)

HIGHEST_PRIORITY = 2_000_000_000
"""``SystemCriticalPriority``: no threshold may be higher."""

PRIORITY_THRESHOLD = record(
    {
        "value": whole("", f"at most {HIGHEST_PRIORITY}", width=INT32),
        "name": text(note="an existing PriorityClass"),
    },
    exclusive=(("value", "name"),),
)

EVICTION_LIMITS = {
    f"maxNoOfPodsToEvict{part}": count(note="without it, no limit; 0: no pod is evicted")
    for part in ("PerNode", "PerNamespace", "Total")
}


# Findings about a descheduler's configuration.


@dataclass(frozen=True, slots=True)
class Fault(reasons.Reason):
    """An error or a warning. ``code`` is one of the rules that the documentation lists.

    ``path`` is the location, such as ``profiles[0].plugins.evict``, ``real`` what the descheduler
    itself does. Faults with ``decoding`` show up while the text is decoded,
    before any value is validated. ``word`` is the one that is not known.
    """

    path: str = ""
    real: Real = "refuses"
    severity: t.Literal["error", "warning"] = "error"
    decoding: bool = False
    word: str = ""

    def to_dict(self) -> dict[str, str]:
        """As the module returns it."""
        reason = reasons.Reason.to_dict(self)
        rule = reason.pop("code")
        return {
            "path": self.path,
            "rule": rule,
            "severity": self.severity,
            **reason,
            "real": self.real,
        }


Faults = t.Iterator[Fault]


def warning(code: str, message: str, remedy: str = "", path: str = "") -> Fault:
    """A finding that does not stop a rollout; the descheduler starts."""
    return Fault(code, message, remedy, path, "starts", "warning")


def required(path: str, real: Real = "refuses") -> Fault:
    """A missing value; the last part of ``path`` names it."""
    return Fault("required", f"{path.rpartition('.')[2]} is required.", "", path, real)
