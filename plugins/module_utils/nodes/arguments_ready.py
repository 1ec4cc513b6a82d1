# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``node_ready``."""

from __future__ import annotations

import functools

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import run_permissions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    node_taints,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    arguments_conditions,
    arguments_taints,
    gate_checks,
    run_gates,
)


def _prepared(params: specs.Params) -> specs.Params:
    selector = option_values.label_selector("node_selector", params["node_selector"] or "")
    if params["soak_since"] and decoding.moment(params["soak_since"]) is None:
        raise option_values.BadOption(
            "soak_since", params["soak_since"], "a timestamp such as 2026-11-21T05:30:00Z"
        )
    raws = arguments_taints.read("taints", params.pop("taints") or (), "present")
    conditions = arguments_conditions.read("conditions", params.pop("conditions") or {})
    expected = gate_checks.Expected(node_taints.read(raws, "present")[0], conditions)
    more = {"node_selector": selector, "gates": tuple(params["gates"]), "expected": expected}
    return {**params, **more}


SPEC = specs.ClusterModuleSpec(
    name="node_ready",
    lacking=functools.partial(run_permissions.lacking, steps=("read", "locks")),
    options={
        "nodes": {"type": "list", "elements": "str", "aliases": ["name"]},
        "node_selector": {"type": "str"},
        "run": {"type": "str"},
        "gates": {
            "type": "list",
            "elements": "str",
            "choices": list(gate_checks.GATES),
            "default": list(gate_checks.USUAL),
        },
        "taints": {"type": "list", "elements": "raw"},
        "conditions": {"type": "dict"},
        "not_rebooted": {"type": "list", "elements": "str"},
        "stable": {"type": "str", "default": "10s"},
        "wait": {"type": "bool", "default": False},
        "timeout": {"type": "str"},
        "soak": {"type": "str"},
        "soak_since": {"type": "str"},
    },
    rules={**specs.NODES_OR_SELECTOR, "required_by": {"soak_since": ["soak"]}},
    durations=("stable", "timeout", "soak"),
    lists=("nodes", "not_rebooted"),
    prepare=_prepared,
    detailed=True,
    engine=specs.engine(run_gates.check_ready, run_gates.ReadyOptions),
)
