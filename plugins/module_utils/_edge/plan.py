# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_plan``."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import (
    choices,
    conditions,
    errors,
    hooks,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import decoding, node_taints
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import verify
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight import neighbours, node_order
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.plan import plan

TAINT: specs.Params = {
    "key": {"type": "str", "required": True, "no_log": False},
    "value": {"type": "raw"},
    "effect": {"type": "str", "choices": list(node_taints.EFFECTS)},
    "state": {"type": "str", "choices": ["present", "absent"]},
}


def _prepared(params: specs.Params, environ: t.Mapping[str, str]) -> specs.Params:
    choices.label_selector("node_selector", params["node_selector"] or "")
    choices.notice(params)
    for name in ("max_parallel", "max_per_zone"):
        if params[name] is not None and params[name] < 1:
            raise errors.BadOption(name, params[name], "an integer of at least 1")
    if params["soak_since"] and decoding.moment(params["soak_since"]) is None:
        raise errors.BadOption("soak_since", params["soak_since"], "a timestamp such as 2026-11-21T05:30:00Z")
    taints, faults = node_taints.read(params.pop("taints") or (), "present")
    if faults:
        raise errors.BadOptions(faults)
    expected = verify.Expected(taints, conditions.read("conditions", params.pop("conditions") or {}))
    asked = hooks.read("before_pod", params.pop("before_pod"), "before_pod")
    more = {"gates": tuple(params["gates"] or ()), "expected": expected, "before_pod": asked}
    return choices.combined({**params, **more}, environ)


SPEC = specs.ClusterModuleSpec(
    name="maintenance_plan",
    options={
        "nodes": {"type": "list", "elements": "str"},
        "node_selector": {"type": "str"},
        "run": {"type": "str"},
        **choices.CHOICES,
        "before_pod": hooks.POD_RULES["before_pod"],
        "announce_events": {"type": "bool", "default": False},
        "goal": {"type": "str", "choices": ["maintained", "evacuated"], "default": "maintained"},
        "on_blocked": {"type": "str", "choices": ["stop", "skip"], "default": "stop"},
        "order": {"type": "str", "choices": list(node_order.ORDERS), "default": "given"},
        "max_parallel": {"type": "int", "default": 1},
        "zone_key": {"type": "str", "no_log": False, "default": "topology.kubernetes.io/zone"},
        "max_per_zone": {"type": "int"},
        "kured": {"type": "str", "default": neighbours.KURED},
        "settle": {"type": "str"},
        "node_conditions": {"type": "bool", "default": False},
        "planned_notice": {"type": "str"},
        "gates": {"type": "list", "elements": "str", "choices": list(verify.GATES)},
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
        *("job_wait", "operator_budget_wait", "load_balancer_wait", "settle", "planned_notice", "stable", "timeout"),
        "soak",
    ),
    lists=("nodes", "namespaces", "fenced", "not_rebooted"),
    prepare=_prepared,
    unshown=("before_pod",),
    detailed=True,
    engine=lambda ctx, params: plan.make_plan(ctx, specs.from_params(plan.PlanOptions, params)),
)
