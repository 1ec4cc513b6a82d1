# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whether a configuration that runs is the one that is wanted.

What runs is told by ``/configz`` (JSON with Go's field names, ``MaxMigratingPerNode``) or by the log line "Using
component config" (YAML with the document's names). Both are completed: every default is filled in, the profiles'
plugins are merged with those that are enabled by default. Durations, percentages and addresses are compared by
what they mean, keys without regard to case.
"""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    profiles,
    schemas,
    values,
)

DEFAULT_PROFILE = "koord-descheduler"
"""The name of a single profile without one."""

_SKIPPED = ("apiVersion", "kind", "profiles")

OWN_POOL = "__default_node_pool__"
"""The pool as which LowNodeLoad tells its rules beside ``nodePools`` (``conversion_plugins.go``)."""

OVERRIDDEN = ("leaderElection", "clientConnection", "healthzBindAddress", "metricsBindAddress")
"""What flags of the process may override: where it runs as another value, the configuration is there all the same."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two configurations differ, as sentences.

    ``conflicts``: a value that is wanted runs as another one. ``extras``: a value runs that nobody asks for and
    that is not the default as far as the schema knows it. ``overridden``: the same of what flags may override.
    """

    conflicts: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    overridden: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether nothing speaks against their being the same."""
        return not self.conflicts and not self.extras


def compare(wanted: t.Mapping[str, t.Any], running: t.Mapping[str, t.Any], schema: schemas.Schema) -> Comparison:
    """Hold what runs against what is wanted."""
    walk, process, recased = _Walk([], []), _Walk([], []), _recased(running, schema.root)
    walk.fields(schema.root, wanted, recased, "", skipped=(*_SKIPPED, *OVERRIDDEN))
    others = [name for name in schema.root.fields if name not in OVERRIDDEN]
    process.fields(schema.root, wanted, recased, "", skipped=others)
    mine, theirs = profiles.profiles_of(wanted, schema), _running_profiles(running)
    if len(mine) != len(theirs):
        walk.conflict("profiles", len(mine), len(theirs))
    raws = _list(wanted.get("profiles")) or [{}]
    for profile, raw, found in zip(mine, raws, theirs, strict=False):
        _profile(walk, profile, raw if isinstance(raw, dict) else {}, found, schema)
    return Comparison(tuple(walk.conflicts), tuple(walk.extras), (*process.conflicts, *process.extras))


def _running_profiles(running: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    found = _list(_folded(running).get("profiles"))
    return [_folded(entry) for entry in found if isinstance(entry, dict)]


def _profile(
    walk: _Walk,
    wanted: profiles.Profile,
    raw: t.Mapping[str, t.Any],
    running: t.Mapping[str, t.Any],
    schema: schemas.Schema,
) -> None:
    path = wanted.path
    name = raw.get("name") or DEFAULT_PROFILE
    if running.get("name") != name:
        walk.conflict(f"{path}.name", name, running.get("name"))
    points = _folded(running.get("plugins"))
    for point, names in wanted.enabled.items():
        enabled = tuple(_folded(entry).get("name") for entry in _list(_folded(points.get(point)).get("enabled")))
        if enabled != names:
            walk.conflict(f"{path}.plugins.{point}.enabled", list(names), list(enabled))
    configs = [_folded(entry) for entry in _list(running.get("pluginconfig"))]
    args = {entry.get("name"): entry.get("args") for entry in configs}
    for plugin, asked in wanted.args.items():
        known = schema.plugins.get(plugin)
        if known is None or (plugin not in args and plugin not in wanted.plugins):
            continue
        here = f"{path}.pluginConfig[{plugin}].args"
        told = _unpooled(asked, _recased(args.get(plugin) or {}, known.args))
        walk.fields(known.args, asked, told, here, skipped=_SKIPPED)


def _unpooled(asked: t.Mapping[str, t.Any], told: dict[str, t.Any]) -> dict[str, t.Any]:
    """The arguments of LowNodeLoad with its own rules where they were written, and without what pools inherit."""
    own, *others = _list(told.get("nodePools")) or [None]
    if not isinstance(own, dict) or own.get("name") != OWN_POOL:
        return told
    mine = [*_list(asked.get("nodePools")), *[{}] * len(others)]
    pools = [_without_inherited(one, other, own) for one, other in zip(mine, others, strict=False)]
    return {**told, **{key: value for key, value in own.items() if key != "name"}, "nodePools": pools}


def _without_inherited(asked: t.Any, told: t.Any, own: t.Any) -> t.Any:
    """v1.8.0 gives a pool the rules of the plugin where it has none (``SetDefaults_LowNodeLoadNodePools``)."""
    if not isinstance(told, dict) or not isinstance(asked, dict) or not isinstance(own, dict):
        return told
    return {
        key: _without_inherited(asked.get(key), value, own.get(key))
        for key, value in told.items()
        if key in asked or value != own.get(key)
    }


@dataclass(slots=True)
class _Walk:
    conflicts: list[str]
    extras: list[str]

    def conflict(self, path: str, wanted: t.Any, running: t.Any) -> None:
        self.conflicts.append(f"{path}: wanted {_shown(wanted)}, running {_shown(running)}")

    def value(self, field: schemas.Field, wanted: t.Any, running: t.Any, path: str) -> None:
        if _blank(wanted) and _blank(running):
            return
        if wanted is None:
            self._unasked(field, running, path)
        elif _left_to_default(field, wanted) and _runs_as_default(field, running):
            return
        elif field.type == "object" and isinstance(wanted, dict):
            self.fields(field, wanted, running if isinstance(running, dict) else {}, path)
        elif field.type == "map" and isinstance(wanted, dict) and isinstance(running, dict):
            for key in dict.fromkeys((*wanted, *running)):
                self.value(t.cast("schemas.Field", field.item), wanted.get(key), running.get(key), f"{path}.{key}")
        elif field.type == "list" and isinstance(wanted, list) and isinstance(running, list):
            if len(wanted) != len(running):
                self.conflict(path, wanted, running)
            for index, (one, other) in enumerate(zip(wanted, running, strict=False)):
                self.value(t.cast("schemas.Field", field.item), one, other, f"{path}[{index}]")
        elif not _same(field, wanted, running):
            self.conflict(path, wanted, running)

    def fields(
        self,
        field: schemas.Field,
        wanted: t.Mapping[str, t.Any],
        running: t.Mapping[str, t.Any],
        path: str,
        skipped: t.Collection[str] = (),
    ) -> None:
        for key, known in field.fields.items():
            if key not in skipped:
                self.value(known, wanted.get(key), running.get(key), f"{path}.{key}" if path else key)

    def _unasked(self, field: schemas.Field, running: t.Any, path: str) -> None:
        """A value that runs although nobody wrote it: it should be the default."""
        default = _default(field)
        if default is None and field.type == "object" and isinstance(running, dict):
            self.fields(field, {}, running, path)
            return
        if not _runs_as_default(field, running):
            self.extras.append(f"{path}: running {_shown(running)}, which nobody asks for")


def _runs_as_default(field: schemas.Field, running: t.Any) -> bool:
    default, walk = _default(field), _Walk([], [])
    if default is not None:
        walk.value(field, default, running, "")
    return default is not None and not walk.conflicts and not walk.extras


def _left_to_default(field: schemas.Field, wanted: t.Any) -> bool:
    """Whether a value is written that Go may take for none, so that it fills in the default."""
    if field.zero_is_default and isinstance(wanted, int):
        return wanted <= 0
    return wanted == {} or (wanted == "" and bool(field.enum))


def _same(field: schemas.Field, wanted: t.Any, running: t.Any) -> bool:
    if field.type == "duration":
        mine, theirs = values.seconds(str(wanted)), values.seconds(str(running))
        return mine is not None and mine == theirs
    if field.type == "address":
        return _address(str(wanted)) == _address(str(running))
    mine, theirs = _scalar(wanted), _scalar(running)
    return bool(mine == theirs)


def _scalar(value: t.Any) -> t.Any:
    """Numbers by their value however they are written; booleans and all other texts as texts."""
    if isinstance(value, bool) or value is None:
        return str(value or False).lower()
    try:
        return float(value)
    except (TypeError, ValueError):
        return value if isinstance(value, (dict, list)) else str(value)


def _address(text: str) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, "10251"
    return host.strip("[]") or "0.0.0.0", port


def _blank(value: t.Any) -> bool:
    """What Go shows where nothing was set."""
    if isinstance(value, dict):
        return all(_blank(inner) for inner in value.values())
    return value in (None, "", False, "0s") or value == [] or (isinstance(value, (int, float)) and value == 0)


_WORD = re.compile(r"[^\s{}\[\]:,]+")


def _default(field: schemas.Field) -> t.Any:
    """A default as the schema writes it for people, ``[koord-scheduler]`` or ``{workload: {duration: 5m}}``."""
    if field.default[:1] in ("{", "["):
        return json.loads(_WORD.sub(lambda word: json.dumps(word[0]), field.default))
    return field.default or None


def _folded(value: t.Any) -> dict[str, t.Any]:
    return {str(key).lower(): inner for key, inner in value.items()} if isinstance(value, dict) else {}


def _list(value: t.Any) -> list[t.Any]:
    return value if isinstance(value, list) else []


def _recased(value: t.Any, field: schemas.Field) -> t.Any:
    """The value with the document's own keys instead of Go's."""
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


def _shown(value: t.Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


_MARK = '"Using component config"'


def told_in_log(log: str) -> str:
    """The configuration's text that koord-descheduler logs when it starts (from ``-v 2``), the last one; or nothing."""
    found, lines = "", iter(log.splitlines())
    for line in lines:
        if line.startswith("{") and "Using component config" in line:
            found = _json_line(line) or found
        elif _MARK in line and line.rstrip().endswith("config=<"):
            block: list[str] = []
            for inner in lines:
                if inner.strip() == ">":
                    found = "\n".join(block)
                    break
                block.append(inner.removeprefix("\t"))
        elif _MARK in line and 'config="' in line:
            found = _quoted(line.partition("config=")[2]) or found
    return found


def _json_line(line: str) -> str:
    try:
        return str(json.loads(line).get("config") or "")
    except ValueError:
        return ""


def _quoted(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        return ""
