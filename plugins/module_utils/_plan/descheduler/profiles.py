# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Profiles: which plugins are enabled at which extension points, and how each is configured."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    rules,
    schemas,
    values,
)

TYPE_META = {"apiVersion": schemas.text(), "kind": schemas.text()}

IDLE = ("presort", "sort")
"""Extension points of the sigs descheduler that it reads and never uses."""

Raw = t.Mapping[str, t.Any]


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile as the descheduler completes it; ``args`` and ``paths`` of the configured plugins by name.

    ``shapeless`` are arguments that are neither keys and values nor nothing.
    """

    path: str
    enabled: t.Mapping[str, tuple[str, ...]]
    args: t.Mapping[str, Raw]
    paths: t.Mapping[str, str]
    shapeless: t.Mapping[str, t.Any]

    @property
    def plugins(self) -> tuple[str, ...]:
        """The names of all enabled plugins, each once."""
        return tuple(dict.fromkeys(name for names in self.enabled.values() for name in names))

    def args_path(self, name: str) -> str:
        """Where the plugin's arguments are, or would be."""
        return self.paths.get(name) or f"{self.path}.pluginConfig"


def profiles_of(config: Raw, schema: schemas.Schema) -> tuple[Profile, ...]:
    """The profiles of a document; one without any gets the default profile. Shapes that are wrong are passed over."""
    raws = config.get("profiles")
    found = [raw if isinstance(raw, dict) else {} for raw in raws] if isinstance(raws, list) else []
    if not found and schema.plugin_type == "object":
        found = [{}]
    return tuple(_profile(raw, f"profiles[{index}]", schema) for index, raw in enumerate(found))


def _profile(raw: Raw, path: str, schema: schemas.Schema) -> Profile:
    args: dict[str, Raw] = {}
    paths: dict[str, str] = {}
    shapeless: dict[str, t.Any] = {}
    for index, entry in enumerate(_list(raw.get("pluginConfig"))):
        name = entry.get("name") if isinstance(entry, dict) else None
        if isinstance(name, str) and name not in paths:
            given = entry.get("args")
            args[name] = given if isinstance(given, dict) else {}
            paths[name] = f"{path}.pluginConfig[{index}].args"
            if not isinstance(given, (dict, type(None))):
                shapeless[name] = given
    enabled = {point: _enabled(raw, point, schema) for point in schema.points}
    return Profile(path, enabled, args, paths, shapeless)


def _enabled(raw: Raw, point: str, schema: schemas.Schema) -> tuple[str, ...]:
    """What runs at the point: the defaults that are not disabled, then what is enabled (``mergePluginSet``)."""
    wanted, disabled = _names(raw, point, "enabled"), _names(raw, point, "disabled")
    if schema.plugin_type == "string":
        disabled = []
    defaults = [] if "*" in disabled else [name for name in schema.points[point] if name not in disabled]
    return (*defaults, *(name for name in wanted if name not in defaults))


def _names(raw: Raw, point: str, part: str) -> list[str]:
    plugins = raw.get("plugins")
    chosen = plugins.get(point) if isinstance(plugins, dict) else None
    entries = _list(chosen.get(part)) if isinstance(chosen, dict) else []
    names = (entry.get("name") if isinstance(entry, dict) else "" if entry is None else entry for entry in entries)
    return [name for name in names if isinstance(name, str)]


def _list(value: t.Any) -> list[t.Any]:
    return value if isinstance(value, list) else []


def faults(config: Raw, schema: schemas.Schema) -> t.Iterator[rules.Fault]:
    """What is wrong with plugins: their names, places and arguments."""
    raws = _list(config.get("profiles"))
    for profile, raw in zip(profiles_of(config, schema), raws or [{}], strict=False):
        raw = raw if isinstance(raw, dict) else {}
        yield from _places(raw, profile, schema)
        yield from _evictors(profile, schema)
        yield from _configs(profile, schema)


def _places(raw: Raw, profile: Profile, schema: schemas.Schema) -> t.Iterator[rules.Fault]:
    for point in schema.points:
        path = f"{profile.path}.plugins.{point}"
        seen = set[str]()
        for index, name in enumerate(_names(raw, point, "enabled")):
            here = f"{path}.enabled[{index}]"
            if name in seen and schema.plugin_type == "object":
                yield rules.Fault("duplicate", f"{name} is enabled there already.", "Remove it.", here)
            seen.add(name)
            yield from _place(name, point, here, schema)
            needs = name in schema.plugins and schema.plugins[name].needs_config
            if needs and name not in profile.paths and schema.points[point] == () and point not in IDLE:
                remedy = f"Add {{name: {name}}} to {profile.path}.pluginConfig; args may be empty."
                yield rules.Fault("no_config", f"{name} has no entry in pluginConfig.", remedy, here)
        for index, name in enumerate(_names(raw, point, "disabled")):
            here = f"{path}.disabled[{index}]"
            if schema.plugin_type == "string":
                yield rules.warning("never_read", "disabled is never read.", "Leave the plugin out of enabled.", here)
            elif name != "*" and name not in schema.plugins:
                yield rules.warning("unknown_plugin", f"There is no plugin {name}.", _meant(name, schema), here)


def _place(name: str, point: str, path: str, schema: schemas.Schema) -> t.Iterator[rules.Fault]:
    plugin = schema.plugins.get(name)
    if point in IDLE:
        yield rules.Fault("wrong_point", f"Nothing runs at {point}.", "Remove it.", path, "starts")
    elif plugin is None:
        yield _nobody(name, path, schema)
    elif not schema.knows(plugin.since):
        yield rules.Fault(
            "too_new", f"{name} came with version {plugin.since}.", "Remove it, or name that version.", path
        )
    elif point not in plugin.points:
        message = f"{name} has no work at {point}."
        real = plugin.stray if point in ("deschedule", "balance") else "refuses"
        if real == "starts":
            message += " The descheduler starts with it and fails in every cycle."
        yield rules.Fault("wrong_point", message, f"Enable it at {' or '.join(plugin.points)}.", path, real)


def _nobody(
    name: str, path: str, schema: schemas.Schema, *, real: t.Literal["refuses", "drops"] = "refuses"
) -> rules.Fault:
    meant = schema.alike.get(name) or values.similar(name, schema.plugins)
    rule = "look_alike" if meant else "unknown_plugin"
    return rules.Fault(rule, f"There is no plugin {name}.", _meant(name, schema), path, real)


def _meant(name: str, schema: schemas.Schema) -> str:
    meant = schema.alike.get(name) or values.similar(name, schema.plugins)
    return f"It is called {meant}." if meant else f"Known are {', '.join(sorted(schema.plugins))}."


def _evictors(profile: Profile, schema: schemas.Schema) -> t.Iterator[rules.Fault]:
    """Koordinator's evict and filter; the sigs descheduler has one evictor that cannot be chosen."""
    if "evict" not in schema.points:
        return
    evict, keep = profile.enabled["evict"], profile.enabled["filter"]
    path = f"{profile.path}.plugins"
    swap = 'Enable one of them, with disabled: [{name: "*"}] before it, at evict and at filter.'
    if not evict:
        yield rules.Fault("one_evictor", "No plugin evicts.", "Enable MigrationController.", f"{path}.evict")
    elif len(evict) > 1:
        yield rules.Fault(
            "one_evictor", f"Only one plugin can evict, not {' and '.join(evict)}.", swap, f"{path}.evict"
        )
    if not keep:
        message = "No plugin filters: pods of DaemonSets, of the system and with local data may be evicted too."
        yield rules.warning("unfiltered", message, "Enable the plugin that evicts at filter too.", f"{path}.filter")
    elif len(keep) > 1 or (len(evict) == 1 and keep != evict):
        message = f"{' and '.join(keep)} at filter, {' and '.join(evict) or 'none'} at evict."
        yield rules.Fault("one_evictor", message, swap, f"{path}.filter", "starts")


def _configs(profile: Profile, schema: schemas.Schema) -> t.Iterator[rules.Fault]:
    enabled = profile.plugins
    for name in dict.fromkeys((*profile.paths, *enabled)):
        path = profile.args_path(name)
        plugin = schema.plugins.get(name)
        lost: t.Literal["refuses", "drops"] = "drops" if schema.plugin_type == "object" else "refuses"
        named = path.removesuffix(".args")
        if plugin is None:
            if name in profile.paths:
                yield _nobody(name, named, schema, real=lost)
            continue
        if not schema.knows(plugin.since):
            if name in profile.paths:
                yield rules.Fault("too_new", f"{name} came with version {plugin.since}.", "Remove it.", named, lost)
            continue
        if name not in profile.paths and plugin.needs_config:
            continue
        if name not in enabled and name in profile.paths:
            yield rules.warning("not_enabled", f"{name} is configured and not enabled.", path=named)
        for fault in args_faults(name, plugin, profile.shapeless.get(name, profile.args.get(name, {})), path, schema):
            yield _weighed(fault, plugin, enabled=name in enabled)


def _weighed(fault: rules.Fault, plugin: schemas.Plugin, *, enabled: bool) -> rules.Fault:
    """A plugin that is not enabled is read by a strict decoder alone; the rest of it is worth a warning."""
    if enabled or plugin.checked == "always" or (plugin.strict and fault.decoding):
        return fault
    return replace(fault, severity="warning", real="starts")


def args_faults(
    name: str, plugin: schemas.Plugin, args: t.Any, path: str, schema: schemas.Schema
) -> t.Iterator[rules.Fault]:
    """What is wrong with a plugin's arguments, taken alone; only Koordinator's own plugins ask for their kind."""
    described = replace(plugin.args, fields={**plugin.args.fields, **TYPE_META})
    yield from values.Reader(schema, plugin.strict).faults(described, args, path)
    real: t.Literal["refuses", "starts"] = "refuses" if plugin.strict and schema.strict else "starts"
    for key, wanted in (("apiVersion", schema.api_version), ("kind", f"{name}Args")):
        given = args.get(key) if isinstance(args, dict) else None
        if isinstance(given, str) and given not in ("", wanted):
            yield rules.Fault(
                "wrong_document",
                f"{given!r} is not {wanted}.",
                "Leave it out.",
                f"{path}.{key}",
                real,
                decoding=True,
            )


def document() -> t.Mapping[str, t.Any]:
    """The keys that every document has beside its schema's own."""
    return schemas.record(TYPE_META).fields
