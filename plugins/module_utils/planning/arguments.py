# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_plan``."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    node_taints,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import arguments_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import arguments
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    arguments_conditions,
    gate_checks,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    neighbours,
    run_plan,
    waves,
)

TAINT: specs.Params = {
    "key": {"type": "str", "required": True, "no_log": False},
    "value": {"type": "raw"},
    "effect": {"type": "str", "choices": list(node_taints.EFFECTS)},
    "state": {"type": "str", "choices": ["present", "absent"]},
}


def _prepared(params: specs.Params, environ: t.Mapping[str, str]) -> specs.Params:
    option_values.label_selector("node_selector", params["node_selector"] or "")
    arguments_policy.notice(params)
    for name in ("max_parallel", "max_per_zone"):
        if params[name] is not None and params[name] < 1:
            raise option_values.BadOption(name, params[name], "an integer of at least 1")
    if params["soak_since"] and decoding.moment(params["soak_since"]) is None:
        raise option_values.BadOption(
            "soak_since", params["soak_since"], "a timestamp such as 2026-11-21T05:30:00Z"
        )
    taints, faults = node_taints.read(params.pop("taints") or (), "present")
    if faults:
        raise option_values.BadOptions(faults)
    expected = gate_checks.Expected(
        taints, arguments_conditions.read("conditions", params.pop("conditions") or {})
    )
    asked = arguments.read("before_pod", params.pop("before_pod"), "before_pod")
    more = {"gates": tuple(params["gates"] or ()), "expected": expected, "before_pod": asked}
    return arguments_policy.combined({**params, **more}, environ)


SPEC = specs.ClusterModuleSpec(
    name="maintenance_plan",
    options={
        "nodes": {"type": "list", "elements": "str"},
        "node_selector": {"type": "str"},
        "run": {"type": "str"},
        **arguments_policy.CHOICES,
        "before_pod": arguments.POD_RULES["before_pod"],
        "announce_events": {"type": "bool", "default": False},
        "goal": {"type": "str", "choices": ["maintained", "evacuated"], "default": "maintained"},
        "on_blocked": {"type": "str", "choices": ["stop", "skip"], "default": "stop"},
        "order": {"type": "str", "choices": list(waves.ORDERS), "default": "given"},
        "max_parallel": {"type": "int", "default": 1},
        "zone_key": {"type": "str", "no_log": False, "default": "topology.kubernetes.io/zone"},
        "max_per_zone": {"type": "int"},
        "kured": {"type": "str", "default": neighbours.KURED},
        "settle": {"type": "str"},
        "node_conditions": {"type": "bool", "default": False},
        "planned_notice": {"type": "str"},
        "gates": {"type": "list", "elements": "str", "choices": list(gate_checks.GATES)},
        "taints": {"type": "list", "elements": "dict", "options": TAINT},
        "conditions": {"type": "dict"},
        "stable": {"type": "str", "default": "10s"},
        "wait": {"type": "bool", "default": False},
        "timeout": {"type": "str"},
        "not_rebooted": {"type": "list", "elements": "str"},
        "soak": {"type": "str"},
        "soak_since": {"type": "str"},
    },
    rules={
        "required_one_of": [("nodes", "node_selector")],
        "mutually_exclusive": [("nodes", "node_selector")],
        "required_by": {"soak": ["gates"], "soak_since": ["soak"]},
    },
    durations=(
        *(
            "job_wait",
            "operator_budget_wait",
            "load_balancer_wait",
            "settle",
            "planned_notice",
            "stable",
            "timeout",
        ),
        "soak",
    ),
    lists=("nodes", "namespaces", "fenced", "not_rebooted"),
    prepare=_prepared,
    unshown=("before_pod",),
    detailed=True,
    engine=lambda ctx, params: run_plan.make_plan(
        ctx, specs.from_params(run_plan.PlanOptions, params)
    ),
)
