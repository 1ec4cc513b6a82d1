# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The arguments of ``descheduler_config``."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    arguments_yaml,
    check,
    installation,
    rollout,
    run_configuration,
    run_pause,
    run_preview,
    schemas,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes

_NEEDS_CONFIG = ("present", "validated", "previewed")


def schema_of(option: str, flavor: schemas.Flavor, version: str) -> schemas.Schema:
    """The schema of a flavor.

    Raises:
        BadOption: there is no such version.
    """
    try:
        return check.schema_of(flavor, version)
    except KeyError:
        raise option_values.BadOption(
            option, version, f"one of {', '.join(check.VERSIONS[flavor])}"
        ) from None


MISREAD = frozenset({"not_yaml", "duplicate_key", "wrong_document"})
"""Errors that are no question of a build: such a text is not what its author takes it for."""
Validate = t.Literal["strict", "warn"]


def checked(
    given: t.Any, schema: schemas.Schema, validate: Validate = "strict"
) -> tuple[t.Any, tuple[schemas.Fault, ...]]:
    """A configuration, given as keys and values or as YAML text, as plain data,
    and what is wrong with it.

    With ``warn`` errors are warnings, as plugins of another build may take what ours do not
    know; not ``MISREAD``.
    """
    if isinstance(given, str):
        config, faults = arguments_yaml.read(given, schema)
    else:
        config = specs.plain(given)
        faults = ()
    if config is not None or not faults:
        faults = (*faults, *check.check(config, schema))
    if validate == "warn" and isinstance(config, dict):
        faults = tuple(
            one if one.code in MISREAD else dataclasses.replace(one, severity="warning")
            for one in faults
        )
    return config, faults


class Manifest(t.NamedTuple):
    """A configuration, and where the ConfigMap that it was in says that it is (by options)."""

    config: t.Any
    place: t.Mapping[str, str]


def unpacked(option: str, given: t.Any, schema: schemas.Schema, key: str) -> Manifest:
    """The configuration in the manifest of a ConfigMap, as text; anything else as it is.
    ``key`` is for several.

    Raises:
        BadOption: the ConfigMap has no such key, or the text of its manifest has more than it.
    """
    raw, faults = (
        arguments_yaml.read(given, schema) if isinstance(given, str) else (specs.plain(given), ())
    )
    if not isinstance(raw, dict) or raw.get("kind") != "ConfigMap":
        return Manifest(given, {})
    if faults:
        raise option_values.BadOption(
            option, "the ConfigMap", f"one manifest alone. {faults[0].sentence}".rstrip(".")
        )
    data, meta = raw.get("data") or {}, raw.get("metadata") or {}
    if strange := raw.keys() - {
        "apiVersion",
        "kind",
        "metadata",
        "data",
        "binaryData",
        "immutable",
    }:
        raise option_values.BadOption(
            option, "the ConfigMap", f"one without {', '.join(sorted(strange))}"
        )
    found = next(iter(data)) if len(data) == 1 else key
    if not isinstance(data.get(found), str):
        raise option_values.BadOption(
            option, "the ConfigMap", f"one with the key {key}, or with one key; it has {list(data)}"
        )
    place = {"config_map": meta.get("name"), "namespace": meta.get("namespace"), "key": found}
    return Manifest(data[found], {name: str(value) for name, value in place.items() if value})


def overridden(given: t.Any, overrides: t.Any, schema: schemas.Schema) -> t.Any:
    """The configuration with the overrides merged into it key by key; lists are replaced."""
    if not overrides or not given:
        return given
    config, faults = (
        arguments_yaml.read(given, schema) if isinstance(given, str) else (specs.plain(given), ())
    )
    if check.errors(faults) or not isinstance(config, dict):
        return given
    return _merged(config, specs.plain(overrides))


def _merged(config: dict[str, t.Any], overrides: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    found = dict(config)
    for key, value in overrides.items():
        before = found.get(key)
        both = isinstance(before, dict) and isinstance(value, dict)
        found[key] = _merged(t.cast("t.Any", before), value) if both else value
    return found


def _prepared(params: specs.Params) -> specs.Params:
    """The module's options with the engine's under ``engine``.

    Raises:
        BadOption: there is no such version, or a configuration is missing.
    """
    flavor: schemas.Flavor = params["flavor"]
    schema = schema_of("version", flavor, params["version"] or "")
    usual = dataclasses.asdict(installation.DEFAULT_LOCATIONS[flavor])
    given, named = unpacked("config", params["config"], schema, params["key"] or usual["key"])
    given = overridden(given, params["overrides"], schema)
    missing = given is None or given == ""
    if missing and params["state"] in _NEEDS_CONFIG:
        raise option_values.BadOption(
            "config", given, f"a {schema.kind}, as keys and values or as its YAML text"
        )
    config, faults = (None, ()) if missing else checked(given, schema, params["validate"])
    desired = None
    if isinstance(config, dict):
        text = given if isinstance(given, str) else arguments_yaml.write(config)
        desired = rollout.DesiredConfig(config, text, isinstance(given, str))
    engine = run_configuration.DeschedulerOptions(
        state=params["state"],
        flavor=flavor,
        schema=schema,
        place=installation.Location(
            **{name: params[name] or named.get(name) or usual[name] for name in usual}
        ),
        parse=lambda text: arguments_yaml.read(text, schema)[0] if text else None,
        desired=desired,
        faults=faults,
        version=params["version"] or "",
        write=arguments_yaml.write,
        faults_with=lambda other: () if missing else checked(given, other, params["validate"])[1],
        restart=params["restart"],
        verify=params["verify"],
        rollback=params["rollback"],
        force_conflicts=params["force_conflicts"],
        running_jobs=params["running_jobs"],
        timeout=params["timeout"] or 300.0,
    )
    return {**params, "engine": engine}


def _engine(ctx: run_context.Context, params: specs.Params) -> run_context.Result:
    options: run_configuration.DeschedulerOptions = params["engine"]
    if options.state == "paused":
        return run_pause.pause(ctx, options)
    if options.state == "resumed":
        named = (
            any(params[name] is not None for name in ("namespace", "deployment"))
            or options.desired is not None
        )
        return run_pause.resume(ctx, options, everywhere=not named)
    if options.state == "previewed":
        return run_preview.preview(ctx, options)
    return run_configuration.descheduler(ctx, options)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeschedulerSpec(specs.ClusterModuleSpec):
    """Needs no cluster to validate a configuration."""

    def run(self, arguments: specs.Arguments, call: specs.Call) -> dict[str, t.Any]:
        if arguments["state"] != "validated":
            return specs.ClusterModuleSpec.run(self, arguments, call)
        params = self.prepare(self.converted(arguments))
        options: run_configuration.DeschedulerOptions = params["engine"]
        warned = f" with {len(options.faults)} warnings" if options.faults else ""
        digest = options.desired.digest if options.desired else ""
        valid = options.result(
            outcomes.ConfigOutcome.VALID, f"The configuration is valid{warned}.", digest=digest
        )
        result = options.invalid or valid
        done = {"changed": False, "failed": result.failed, "msg": result.message}
        return {**result.data, **done, "actions": [], "diff": [], "timeline": []}


SPEC = DeschedulerSpec(
    name="descheduler_config",
    options={
        "state": {
            "type": "str",
            "choices": ["present", "validated", "previewed", "restarted", "paused", "resumed"],
            "default": "present",
        },
        "flavor": {
            "type": "str",
            "choices": list(installation.DEFAULT_LOCATIONS),
            "default": "koordinator",
        },
        "version": {"type": "str"},
        "config": {"type": "raw"},
        "overrides": {"type": "dict", "default": {}},
        "namespace": {"type": "str"},
        "deployment": {"type": "str"},
        "config_map": {"type": "str"},
        "key": {"type": "str", "no_log": False},
        "validate": {"type": "str", "choices": ["strict", "warn"], "default": "strict"},
        "restart": {"type": "str", "choices": ["rollout", "scale", "none"], "default": "rollout"},
        "verify": {"type": "bool", "default": True},
        "rollback": {"type": "bool", "default": True},
        "force_conflicts": {"type": "bool", "default": True},
        "running_jobs": {"type": "str", "choices": ["wait", "refuse", "ignore"], "default": "wait"},
        "timeout": {"type": "str", "default": "5m"},
        "run": {"type": "str"},
    },
    durations=("timeout",),
    prepare=_prepared,
    engine=_engine,
)
