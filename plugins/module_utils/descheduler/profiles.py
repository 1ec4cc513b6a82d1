# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Profiles: the plugins enabled at each extension point, and their arguments."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    schemas,
    values,
)

TYPE_META = {"apiVersion": schemas.text(), "kind": schemas.text()}

IDLE = ("presort", "sort")
"""Extension points that the sigs descheduler accepts but never runs."""

Raw = t.Mapping[str, t.Any]


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile with the defaults merged in; ``given`` and ``paths`` of arguments by plugin."""

    path: str
    enabled: t.Mapping[str, tuple[str, ...]]
    given: t.Mapping[str, t.Any]
    paths: t.Mapping[str, str]

    @property
    def plugins(self) -> tuple[str, ...]:
        """The names of all enabled plugins, each once."""
        return tuple(dict.fromkeys(itertools.chain.from_iterable(self.enabled.values())))

    @property
    def args(self) -> t.Mapping[str, Raw]:
        """The arguments of each configured plugin; empty if they are not an object."""
        return {
            name: given if isinstance(given, dict) else {} for name, given in self.given.items()
        }

    def args_path(self, name: str) -> str:
        """Where the plugin's arguments are, or would be."""
        return self.paths.get(name) or f"{self.path}.pluginConfig"


def profiles_of(config: Raw, schema: schemas.Schema) -> tuple[Profile, ...]:
    """The profiles of a document, at least Koordinator's default; wrong types are skipped."""
    found = [raw if isinstance(raw, dict) else {} for raw in list_at(config, "profiles")]
    if not found and schema.plugin_type == "object":
        found = [{}]
    return tuple(_profile(raw, f"profiles[{index}]", schema) for index, raw in enumerate(found))


def _profile(raw: Raw, path: str, schema: schemas.Schema) -> Profile:
    args: dict[str, t.Any] = {}
    paths: dict[str, str] = {}
    for index, entry in enumerate(list_at(raw, "pluginConfig")):
        name = entry.get("name") if isinstance(entry, dict) else None
        if isinstance(name, str) and name not in paths:
            args[name] = {} if entry.get("args") is None else entry["args"]
            paths[name] = f"{path}.pluginConfig[{index}].args"
    enabled = {point: _enabled(raw, point, schema) for point in schema.points}
    return Profile(path, enabled, args, paths)


def _enabled(raw: Raw, point: str, schema: schemas.Schema) -> tuple[str, ...]:
    """What runs at the point: the defaults that are not disabled, then the enabled plugins
    (``mergePluginSet``).
    """
    wanted = _names(raw, point, "enabled")
    disabled = [] if schema.plugin_type == "string" else _names(raw, point, "disabled")
    defaults = (
        [] if "*" in disabled else [name for name in schema.points[point] if name not in disabled]
    )
    return (*defaults, *(name for name in wanted if name not in defaults))


def _names(raw: Raw, point: str, part: str) -> list[str]:
    entries = list_at(dict_at(dict_at(raw, "plugins"), point), part)
    names = []
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else entry
        if entry is None:
            name = ""
        if isinstance(name, str):
            names.append(name)
    return names


def dict_at(raw: Raw, key: str) -> dict[str, t.Any]:
    """The object under the key; empty if there is none, or a value of another type."""
    found = raw.get(key)
    return found if isinstance(found, dict) else {}


def list_at(raw: Raw, key: str) -> list[t.Any]:
    """The list under the key; empty if there is none, or a value of another type."""
    found = raw.get(key)
    return found if isinstance(found, list) else []


@dataclass(frozen=True, slots=True)
class Args:
    """A plugin's arguments, their path, and the document with its schema."""

    args: Raw
    path: str
    config: Raw
    schema: schemas.Schema

    def record(self, key: str) -> dict[str, t.Any]:
        """The object under the key; empty if there is none, or a value of another type."""
        return dict_at(self.args, key)

    def entries(self, key: str) -> list[t.Any]:
        """The list under the key; empty if there is none, or a value of another type."""
        return list_at(self.args, key)

    def has(self, key: str) -> bool:
        """Whether Go considers the key set."""
        return values.is_set(self.args.get(key))


def faults(config: Raw, schema: schemas.Schema) -> schemas.Faults:
    """What is wrong with plugins: their names, extension points and arguments."""
    raws = list_at(config, "profiles")
    for profile, raw in zip(profiles_of(config, schema), raws or [{}], strict=False):
        yield from _points(raw if isinstance(raw, dict) else {}, profile, schema)
        yield from _evictors(profile, schema)
        yield from _configs(profile, schema)


def _points(raw: Raw, profile: Profile, schema: schemas.Schema) -> schemas.Faults:
    for point in schema.points:
        path = f"{profile.path}.plugins.{point}"
        seen = set[str]()
        for index, name in enumerate(_names(raw, point, "enabled")):
            here = f"{path}.enabled[{index}]"
            if name in seen and schema.plugin_type == "object":
                yield schemas.Fault("duplicate", f"{name} is enabled twice.", "Remove it.", here)
            seen.add(name)
            yield from _point(name, point, here, schema)
            needs = name in schema.plugins and schema.plugins[name].needs_config
            if (
                needs
                and name not in profile.paths
                and schema.points[point] == ()
                and point not in IDLE
            ):
                remedy = f"Add {{name: {name}}} to {profile.path}.pluginConfig; args may be empty."
                yield schemas.Fault(
                    "no_config", f"{name} has no entry in pluginConfig.", remedy, here
                )
        for index, name in enumerate(_names(raw, point, "disabled")):
            here = f"{path}.disabled[{index}]"
            if schema.plugin_type == "string":
                yield schemas.warning(
                    "never_read", "disabled has no effect.", "Remove the plugin from enabled.", here
                )
            elif name != "*" and name not in schema.plugins:
                yield replace(
                    _unknown(name, here, schema, "starts"),
                    code="unknown_plugin",
                    severity="warning",
                )


def _point(name: str, point: str, path: str, schema: schemas.Schema) -> schemas.Faults:
    plugin = schema.plugins.get(name)
    if point in IDLE:
        yield schemas.Fault(
            "wrong_point", f"Nothing runs at {point}.", "Remove it.", path, "starts"
        )
    elif plugin is None:
        yield _unknown(name, path, schema)
    elif not schema.knows(plugin.since):
        yield values.too_new(name, plugin.since, path)
    elif point not in plugin.points:
        message = f"{name} does not implement {point}."
        real = plugin.stray if point in ("deschedule", "balance") else "refuses"
        if real == "starts":
            message += " The descheduler starts, but fails in every cycle."
        yield schemas.Fault(
            "wrong_point", message, f"Enable it at {' or '.join(plugin.points)}.", path, real
        )


def _unknown(
    name: str, path: str, schema: schemas.Schema, real: schemas.Real = "refuses"
) -> schemas.Fault:
    return values.unknown("plugin", name, sorted(schema.plugins), path, real, schema.alike)


def _evictors(profile: Profile, schema: schemas.Schema) -> schemas.Faults:
    """Koordinator's evict and filter; the evictor of the sigs descheduler cannot be chosen."""
    if "evict" not in schema.points:
        return
    evict, keep = profile.enabled["evict"], profile.enabled["filter"]
    path = f"{profile.path}.plugins"
    remedy = 'Enable the same one at evict and at filter, each with disabled: [{name: "*"}].'
    if not evict:
        yield schemas.Fault(
            "one_evictor", "No plugin evicts.", "Enable MigrationController.", f"{path}.evict"
        )
    elif len(evict) > 1:
        message = f"Only one plugin can evict, not {' and '.join(evict)}."
        yield schemas.Fault("one_evictor", message, remedy, f"{path}.evict")
    if not keep:
        message = (
            "No plugin filters: DaemonSet pods, system pods and pods with local data "
            "may be evicted too."
        )
        yield schemas.warning(
            "unfiltered", message, "Enable the evicting plugin at filter too.", f"{path}.filter"
        )
    elif len(keep) > 1 or (len(evict) == 1 and keep != evict):
        message = f"{' and '.join(keep)} at filter, {' and '.join(evict) or 'none'} at evict."
        yield schemas.Fault("one_evictor", message, remedy, f"{path}.filter", "starts")


def _configs(profile: Profile, schema: schemas.Schema) -> schemas.Faults:
    enabled = profile.plugins
    lost: schemas.Real = "drops" if schema.plugin_type == "object" else "refuses"
    for name, path in profile.paths.items():
        entry = path.removesuffix(".args")
        plugin = schema.plugins.get(name)
        if plugin is None:
            yield _unknown(name, entry, schema, lost)
        elif not schema.knows(plugin.since):
            yield values.too_new(name, plugin.since, entry, lost)
        elif name not in enabled:
            yield schemas.warning(
                "not_enabled", f"{name} is configured but not enabled.", path=entry
            )
    for name in dict.fromkeys((*profile.paths, *enabled)):
        plugin = schema.plugins.get(name)
        if (
            plugin
            and schema.knows(plugin.since)
            and (name in profile.paths or not plugin.needs_config)
        ):
            for fault in _args(
                name, plugin, profile.given.get(name, {}), profile.args_path(name), schema
            ):
                # Of a plugin that is not enabled only the strict decoder rejects anything.
                read = (
                    name in enabled
                    or plugin.checked == "always"
                    or (plugin.strict and fault.decoding)
                )
                yield fault if read else replace(fault, severity="warning", real="starts")


def _args(
    name: str, plugin: schemas.Plugin, args: t.Any, path: str, schema: schemas.Schema
) -> schemas.Faults:
    """A plugin's arguments alone; only Koordinator's own plugins validate apiVersion and kind."""
    described = replace(plugin.args, fields={**plugin.args.fields, **TYPE_META})
    yield from values.Reader(schema, plugin.strict).faults(described, args, path)
    real: schemas.Real = "refuses" if plugin.strict and schema.strict else "starts"
    for key, wanted in (("apiVersion", schema.api_version), ("kind", f"{name}Args")):
        given = args.get(key) if isinstance(args, dict) else None
        if isinstance(given, str) and given not in ("", wanted):
            message = f"{values.shown(given)} is not {wanted}."
            yield schemas.Fault(
                "wrong_document", message, "Remove it.", f"{path}.{key}", real, decoding=True
            )
