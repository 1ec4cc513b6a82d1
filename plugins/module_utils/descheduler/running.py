# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Comparison of the configuration that a descheduler runs with the desired one.

The running configuration comes from ``/configz`` (JSON with Go's field names,
``MaxMigratingPerNode``) or from the log line "Using component config" (YAML with the document's
keys). Both contain every default, and each profile's plugins merged with the default plugins.
Durations, percentages and addresses are compared by meaning, keys case-insensitively.
"""

from __future__ import annotations

import itertools
import json
import re
import typing as t
from dataclasses import astuple, dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    profiles,
    schemas,
    values,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import durations

Raw = profiles.Raw

DEFAULT_PROFILE = "koord-descheduler"
"""The name of a single profile that has none."""

_SKIPPED = ("apiVersion", "kind", "profiles")

OWN_POOL = "__default_node_pool__"
"""The pool of LowNodeLoad's settings outside of ``nodePools`` (``conversion_plugins.go``)."""

SHOWN = 80
"""So many characters of a value are shown."""

OVERRIDDEN = ("leaderElection", "clientConnection", "healthzBindAddress", "metricsBindAddress")
"""Settings that are not compared: command-line flags may override them."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two configurations differ, as sentences.

    ``conflicts``: a desired value is not the running one. ``extras``: a running value is neither
    desired nor the schema's default.
    """

    conflicts: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()

    @classmethod
    def of_all(cls, several: t.Sequence[Comparison]) -> Comparison:
        """The differences of several pods' configurations, each sentence once."""
        parts = zip(*map(astuple, several), strict=True)
        return cls(*(tuple(dict.fromkeys(itertools.chain(*part))) for part in parts))


def comparable(one: Raw, other: t.Any) -> bool:
    """Whether a comparison with what runs would tell these configurations apart."""
    return isinstance(other, dict) and all(one.get(key) == other.get(key) for key in OVERRIDDEN)


def compare(wanted: Raw, running: Raw, schema: schemas.Schema) -> Comparison:
    """Compare the running configuration with the desired one."""
    walk = _Walk()
    walk.fields(
        schema.root, wanted, _recased(running, schema.root), "", skipped=(*_SKIPPED, *OVERRIDDEN)
    )
    mine = profiles.profiles_of(wanted, schema)
    theirs = _objects(_folded(running), "profiles")
    if len(mine) != len(theirs):
        walk.conflict("profiles", len(mine), len(theirs))
    raws = profiles.list_at(wanted, "profiles") or [{}]
    for profile, raw, found in zip(mine, raws, theirs, strict=False):
        _profile(walk, profile, raw if isinstance(raw, dict) else {}, found, schema)
    return Comparison(tuple(walk.conflicts), tuple(walk.extras))


def document(running: Raw, schema: schemas.Schema) -> dict[str, t.Any]:
    """The running configuration as a document that means the same, without merged defaults."""
    found = {
        **_recased(running, schema.root),
        "apiVersion": schema.api_version,
        "kind": schema.kind,
    }
    found["profiles"] = []
    for raw in _objects(_folded(running), "profiles"):
        points = _folded(raw.get("plugins"))
        configs: list[dict[str, t.Any]] = []
        for entry in _objects(raw, "pluginconfig"):
            known = schema.plugins.get(str(entry.get("name")))
            args = entry.get("args") or {}
            configs.append(
                {"name": entry.get("name"), "args": _recased(args, known.args) if known else args}
            )
        plugins = {}
        for point in schema.points:
            runs = [entry.get("name") for entry in _objects(_folded(points.get(point)), "enabled")]
            plugins[point] = {
                "disabled": [{"name": "*"}],
                "enabled": [{"name": name} for name in runs],
            }
        found["profiles"].append(
            {"name": raw.get("name"), "plugins": plugins, "pluginConfig": configs}
        )
    return found


def _objects(raw: Raw, key: str) -> list[dict[str, t.Any]]:
    """The objects in the list under the key, with lower-case keys."""
    return [_folded(entry) for entry in profiles.list_at(raw, key) if isinstance(entry, dict)]


def _profile(
    walk: _Walk, wanted: profiles.Profile, raw: Raw, running: Raw, schema: schemas.Schema
) -> None:
    path = wanted.path
    name = raw.get("name") or DEFAULT_PROFILE
    if running.get("name") != name:
        walk.conflict(f"{path}.name", name, running.get("name"))
    points = _folded(running.get("plugins"))
    for point, names in wanted.enabled.items():
        entries = profiles.list_at(_folded(points.get(point)), "enabled")
        enabled = tuple(_folded(entry).get("name") for entry in entries)
        if enabled != names:
            walk.conflict(f"{path}.plugins.{point}.enabled", list(names), list(enabled))
    args = {entry.get("name"): entry.get("args") for entry in _objects(running, "pluginconfig")}
    for plugin, desired in wanted.args.items():
        known = schema.plugins.get(plugin)
        if known and (plugin in args or plugin in wanted.plugins):
            found = _unpooled(desired, _recased(args.get(plugin) or {}, known.args))
            walk.fields(
                known.args, desired, found, f"{path}.pluginConfig[{plugin}].args", skipped=_SKIPPED
            )


def _unpooled(desired: Raw, running: dict[str, t.Any]) -> dict[str, t.Any]:
    """LowNodeLoad's arguments with its own settings, and pools without inherited values."""
    own, *others = profiles.list_at(running, "nodePools") or [None]
    if not isinstance(own, dict) or own.get("name") != OWN_POOL:
        return running
    mine = [*profiles.list_at(desired, "nodePools"), *[{}] * len(others)]
    pools = [_without_inherited(one, other, own) for one, other in zip(mine, others, strict=False)]
    return {
        **running,
        **{key: value for key, value in own.items() if key != "name"},
        "nodePools": pools,
    }


def _without_inherited(desired: t.Any, running: t.Any, own: t.Any) -> t.Any:
    """Since v1.8.0 a pool inherits what it lacks (``SetDefaults_LowNodeLoadNodePools``)."""
    if not isinstance(running, dict) or not isinstance(desired, dict) or not isinstance(own, dict):
        return running
    return {
        key: _without_inherited(desired.get(key), value, own.get(key))
        for key, value in running.items()
        if key in desired or value != own.get(key)
    }


@dataclass(slots=True)
class _Walk:
    """Collects the differences between two values of the same field."""

    conflicts: list[str] = field(default_factory=list)
    extras: list[str] = field(default_factory=list)

    def conflict(self, path: str, wanted: t.Any, running: t.Any) -> None:
        self.conflicts.append(
            f"{path}: wanted {values.shown(wanted, SHOWN)}, running {values.shown(running, SHOWN)}"
        )

    def value(self, field: schemas.Field, wanted: t.Any, running: t.Any, path: str) -> None:
        if _blank(wanted) and _blank(running):
            return
        if wanted is None:
            self._undesired(field, running, path)
        elif _left_to_default(field, wanted) and _runs_as_default(field, running):
            return
        elif field.type == "object" and isinstance(wanted, dict):
            self.fields(field, wanted, running if isinstance(running, dict) else {}, path)
        elif field.type == "map" and isinstance(wanted, dict) and isinstance(running, dict):
            for key in dict.fromkeys((*wanted, *running)):
                self.value(
                    t.cast("schemas.Field", field.item),
                    wanted.get(key),
                    running.get(key),
                    f"{path}.{key}",
                )
        elif field.type == "list" and isinstance(wanted, list) and isinstance(running, list):
            self._items(t.cast("schemas.Field", field.item), wanted, running, path)
        elif not _same(field, wanted, running):
            self.conflict(path, wanted, running)

    def _items(
        self, item: schemas.Field, wanted: list[t.Any], running: list[t.Any], path: str
    ) -> None:
        if len(wanted) != len(running):
            self.conflict(path, wanted, running)
        for index, (one, other) in enumerate(zip(wanted, running, strict=False)):
            self.value(item, one, other, f"{path}[{index}]")

    def fields(
        self,
        field: schemas.Field,
        wanted: Raw,
        running: Raw,
        path: str,
        skipped: t.Collection[str] = (),
    ) -> None:
        for key, known in field.fields.items():
            if key not in skipped:
                self.value(
                    known, wanted.get(key), running.get(key), f"{path}.{key}" if path else key
                )

    def _undesired(self, field: schemas.Field, running: t.Any, path: str) -> None:
        """A running value that was not configured: it should be the default."""
        if _default(field) is None and field.type == "object" and isinstance(running, dict):
            self.fields(field, {}, running, path)
        elif not _runs_as_default(field, running):
            self.extras.append(
                f"{path}: running {values.shown(running, SHOWN)}, which is not configured"
            )


def _runs_as_default(field: schemas.Field, running: t.Any) -> bool:
    default = _default(field)
    walk = _Walk()
    if default is not None:
        walk.value(field, default, running, "")
    return default is not None and not walk.conflicts and not walk.extras


def _left_to_default(field: schemas.Field, wanted: t.Any) -> bool:
    """Whether Go may take the value for unset and fill in the default."""
    if field.zero_is_default and isinstance(wanted, int):
        return wanted <= 0
    return wanted == {} or (wanted == "" and bool(field.enum))


def _same(field: schemas.Field, wanted: t.Any, running: t.Any) -> bool:
    if field.type == "duration":
        mine, theirs = durations.go_seconds(str(wanted)), durations.go_seconds(str(running))
        return mine is not None and mine == theirs
    return bool(_scalar(wanted) == _scalar(running))


def _scalar(value: t.Any) -> t.Any:
    """A number, also one in a string, as a float; booleans and other strings as strings."""
    if isinstance(value, bool) or value is None:
        return str(value or False).lower()
    try:
        return float(value)
    except (TypeError, ValueError):
        return value if isinstance(value, (dict, list)) else str(value)


def _blank(value: t.Any) -> bool:
    """Whether this is how Go shows an unset value."""
    if isinstance(value, dict):
        return all(_blank(inner) for inner in value.values())
    return value in (None, "", False, 0, "0s", [])


_WORD = re.compile(r"[^\s{}\[\]:,]+")


def _default(field: schemas.Field) -> t.Any:
    """A default of the schema, such as ``[koord-scheduler]`` or ``{workload: {duration: 5m}}``."""
    if field.default[:1] in ("{", "["):
        return json.loads(_WORD.sub(lambda word: json.dumps(word[0]), field.default))
    return field.default or None


def _folded(value: t.Any) -> dict[str, t.Any]:
    return (
        {str(key).lower(): inner for key, inner in value.items()} if isinstance(value, dict) else {}
    )


def _recased(value: t.Any, field: schemas.Field) -> t.Any:
    """The value with the document's keys instead of Go's."""
    if field.type == "object" and isinstance(value, dict):
        names = {name.lower(): name for name in field.fields}
        return {
            names[key.lower()]: _recased(inner, field.fields[names[key.lower()]])
            for key, inner in value.items()
            if key.lower() in names
        }
    if field.item and isinstance(value, dict):
        return {key: _recased(inner, field.item) for key, inner in value.items()}
    if field.item and isinstance(value, list):
        return [_recased(inner, field.item) for inner in value]
    return value


_MARK = '"Using component config"'


def logged(log: str) -> str:
    """The last configuration that koord-descheduler logged at its start (with ``-v 2`` or more)."""
    found = ""
    lines = iter(log.splitlines())
    for line in lines:
        if line.startswith("{") and "Using component config" in line:
            entry = _json(line)
            found = str((entry if isinstance(entry, dict) else {}).get("config") or "") or found
        elif _MARK in line and line.rstrip().endswith("config=<"):
            block: list[str] = []
            for inner in lines:
                if inner.strip() == ">":
                    found = "\n".join(block)
                    break
                block.append(inner.removeprefix("\t"))
        elif _MARK in line and 'config="' in line:
            found = str(_json(line.partition("config=")[2]) or "") or found
    return found


def _json(text: str) -> t.Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
