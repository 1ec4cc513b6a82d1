# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``descheduler_config``."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import errors, specs, yaml_text
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    check,
    places,
    rollout,
    rules,
    schemas,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.descheduler import configuring, pause

_NEEDS_CONFIG = ("present", "validated")


def _prepared(params: specs.Params, environ: t.Mapping[str, str]) -> specs.Params:
    """The engine's options from the module's.

    Raises:
        BadOption: there is no such version, or a configuration is missing.
    """
    del environ
    flavor: check.Flavor = params["flavor"]
    place = places.PLACES[flavor]
    try:
        schema = check.schema_of(flavor, params["version"] or "")
    except KeyError:
        raise errors.BadOption("version", params["version"], f"one of {', '.join(check.VERSIONS[flavor])}") from None
    wish, faults = _wish(params["config"], schema)
    if wish is None and not faults and params["state"] in _NEEDS_CONFIG:
        raise errors.BadOption("config", params["config"], f"a {schema.kind}, as keys and values or as its YAML text")
    return {
        **params,
        "schema": schema,
        "place": places.Place(
            **{name: params[name] or getattr(place, name) for name in places.Place.__dataclass_fields__}
        ),
        "wish": wish,
        "faults": faults,
        "means": lambda text: yaml_text.read(text, schema)[0] if text else None,
    }


def _wish(given: t.Any, schema: schemas.Schema) -> tuple[rollout.Wish | None, tuple[rules.Fault, ...]]:
    if given is None or given == "":
        return None, ()
    if isinstance(given, str):
        config, faults = yaml_text.read(given, schema)
        text = given
    else:
        config, faults, text = specs.plain(given), (), ""
    if config is not None or not faults:
        faults = (*faults, *check.check(config, schema))
    if not isinstance(config, dict):
        return None, faults
    return rollout.Wish(config, text or yaml_text.write(config), bool(text)), faults


def _options(params: specs.Params) -> configuring.DeschedulerOptions:
    names = ("flavor", "schema", "place", "means", "wish", "faults", "restart", "verify", "rollback", "running_jobs")
    given = {name: params[name] for name in names}
    return configuring.DeschedulerOptions(**given, state=params["state"], timeout=params["timeout"] or 300.0)


def _engine(ctx: context.Context, params: specs.Params) -> context.Result:
    if params["state"] == "paused":
        return pause.pause(ctx, _options(params))
    if params["state"] == "resumed":
        return pause.resume(
            ctx, _options(params), everywhere=params["namespace"] is None and params["deployment"] is None
        )
    return configuring.descheduler(ctx, _options(params))


def _validated(params: specs.Params) -> context.Result:
    found = configuring.invalid(params["faults"])
    if found:
        return found
    warned = f" with {len(params['faults'])} warnings" if params["faults"] else ""
    data = {
        "outcome": outcomes.ConfigOutcome.VALID.value,
        "findings": [fault.to_dict() for fault in params["faults"]],
        **configuring.NOTHING,
        "digest": params["wish"].digest,
    }
    return context.Result(data, message=f"The configuration is valid{warned}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeschedulerSpec(specs.ClusterModuleSpec):
    """Asks no cluster where a configuration is only to be validated."""

    def run(self, arguments: specs.Arguments, call: specs.Call) -> dict[str, t.Any]:
        if arguments["state"] != "validated":
            return specs.ClusterModuleSpec.run(self, arguments, call)
        result = _validated(self.prepare(self.converted(arguments), call.environ))
        return {
            **result.data,
            "changed": False,
            "failed": result.failed,
            "msg": result.message.replace(", nothing was written", ""),
            "actions": [],
            "diff": [],
            "timeline": [],
        }


SPEC = DeschedulerSpec(
    name="descheduler_config",
    options={
        "state": {
            "type": "str",
            "choices": ["present", "validated", "restarted", "paused", "resumed"],
            "default": "present",
        },
        "flavor": {"type": "str", "choices": list(places.PLACES), "default": "koordinator"},
        "version": {"type": "str"},
        "config": {"type": "raw"},
        "namespace": {"type": "str"},
        "deployment": {"type": "str"},
        "config_map": {"type": "str"},
        "key": {"type": "str", "no_log": False},
        "restart": {"type": "str", "choices": ["rollout", "scale", "none"], "default": "rollout"},
        "verify": {"type": "bool", "default": True},
        "rollback": {"type": "bool", "default": True},
        "running_jobs": {"type": "str", "choices": ["wait", "refuse", "ignore"], "default": "wait"},
        "timeout": {"type": "str", "default": "5m"},
        "run": {"type": "str"},
    },
    durations=("timeout",),
    prepare=_prepared,
    engine=_engine,
)
