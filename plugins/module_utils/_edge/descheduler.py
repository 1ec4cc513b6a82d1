# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``descheduler_config``."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import errors, faces, yaml_text
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


def _prepared(own: faces.Own, environ: t.Mapping[str, str]) -> faces.Own:
    """The engine's options from the module's.

    Raises:
        BadOption: there is no such version, or a configuration is missing.
    """
    del environ
    flavor: check.Flavor = own["flavor"]
    place = places.PLACES[flavor]
    try:
        schema = check.schema_of(flavor, own["version"] or "")
    except KeyError:
        raise errors.BadOption("version", own["version"], f"one of {', '.join(check.VERSIONS[flavor])}") from None
    wish, faults = _wish(own["config"], schema)
    if wish is None and not faults and own["state"] in _NEEDS_CONFIG:
        raise errors.BadOption("config", own["config"], f"a {schema.kind}, as keys and values or as its YAML text")
    return {
        **own,
        "schema": schema,
        "place": places.Place(
            **{name: own[name] or getattr(place, name) for name in places.Place.__dataclass_fields__}
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
        config, faults, text = faces.plain(given), (), ""
    if config is not None or not faults:
        faults = (*faults, *check.check(config, schema))
    if not isinstance(config, dict):
        return None, faults
    return rollout.Wish(config, text or yaml_text.write(config), bool(text)), faults


def _options(own: faces.Own) -> configuring.DeschedulerOptions:
    names = ("flavor", "schema", "place", "means", "wish", "faults", "restart", "verify", "rollback", "running_jobs")
    given = {name: own[name] for name in names}
    return configuring.DeschedulerOptions(**given, state=own["state"], timeout=own["timeout"] or 300.0)


def _engine(ctx: context.Context, own: faces.Own) -> context.Result:
    if own["state"] == "paused":
        return pause.pause(ctx, _options(own))
    if own["state"] == "resumed":
        return pause.resume(ctx, _options(own), everywhere=own["namespace"] is None and own["deployment"] is None)
    return configuring.descheduler(ctx, _options(own))


def _validated(own: faces.Own) -> context.Result:
    found = configuring.invalid(own["faults"])
    if found:
        return found
    warned = f" with {len(own['faults'])} warnings" if own["faults"] else ""
    data = {
        "outcome": outcomes.ConfigOutcome.VALID.value,
        "findings": [fault.to_dict() for fault in own["faults"]],
        **configuring.NOTHING,
        "digest": own["wish"].digest,
    }
    return context.Result(data, message=f"The configuration is valid{warned}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeschedulerFace(faces.ClusterFace):
    """Asks no cluster where a configuration is only to be validated."""

    def run(self, params: faces.Params, call: faces.Call) -> dict[str, t.Any]:
        if params["state"] != "validated":
            return faces.ClusterFace.run(self, params, call)
        result = _validated(self.prepare(self.converted(params), call.environ))
        return {
            **result.data,
            "changed": False,
            "failed": result.failed,
            "msg": result.message.replace(", nothing was written", ""),
            "actions": [],
            "diff": [],
            "timeline": [],
        }


FACE = DeschedulerFace(
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
