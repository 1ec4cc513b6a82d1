# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Options of the event source ``node_conditions``, and the call that follows the nodes."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    connection_options,
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    run_condition_events,
)

OPTIONS: specs.Params = {
    "name": {"type": "str", "default": "node-conditions"},
    "conditions": {"type": "list", "elements": "str", "default": ["Ready"]},
    "node_selector": {"type": "str", "default": ""},
}
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?")
_CONDITION = re.compile(r"[A-Za-z0-9./_-]+(=(True|False|Unknown))?")


def follow(
    arguments: t.Mapping[str, t.Any],
    environ: t.Mapping[str, str],
    emit: run_condition_events.Emit,
    stopped: t.Callable[[], bool],
) -> str:
    """Hand events to ``emit`` until ``stopped``; returns why it ended, without secrets."""
    spec = specs.ClusterModuleSpec(
        name="node_conditions",
        options=OPTIONS,
        engine=lambda ctx, params: run_condition_events.follow(
            ctx, specs.from_params(run_condition_events.FollowOptions, params), emit, stopped
        ),
        prepare=_checked,
    )
    known = spec.argument_spec.items()
    given = {name: arguments.get(name, option.get("default")) for name, option in known}
    try:
        _refuse_unknown(arguments, spec)
    except option_values.BadOption as error:
        return str(error)
    return str(specs.run_call(spec, specs.plain(given), specs.Call(environ=environ))["msg"])


def _refuse_unknown(arguments: t.Mapping[str, t.Any], spec: specs.ModuleSpec) -> None:
    for name in arguments:
        if name not in spec.argument_spec:
            known = ", ".join([*OPTIONS, *connection_options.CONNECTION])
            raise option_values.BadOption("node_conditions", name, f"one of {known}")


def _checked(params: specs.Params) -> specs.Params:
    if not _NAME.fullmatch(params["name"]):
        raise option_values.BadOption(
            "name", params["name"], "up to 52 lower-case letters, digits and hyphens"
        )
    conditions = option_values.names(params["conditions"])
    for text in conditions:
        if not _CONDITION.fullmatch(text):
            raise option_values.BadOption(
                "conditions", text, "Type or Type=Status, such as Ready or GPUHealthy=True"
            )
    option_values.label_selector("node_selector", params["node_selector"])
    return {**params, "conditions": conditions}
