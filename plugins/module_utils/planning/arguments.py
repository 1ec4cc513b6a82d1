# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_plan``."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import arguments_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import arguments
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    neighbours,
    run_plan,
    waves,
)


def _prepared(params: specs.Params) -> specs.Params:
    option_values.label_selector("node_selector", params["node_selector"] or "")
    arguments_policy.notice(params)
    for name in ("max_parallel", "max_per_zone"):
        if params[name] is not None and params[name] < 1:
            raise option_values.BadOption(name, params[name], "an integer of at least 1")
    asked = arguments.read("before_pod", params.pop("before_pod"), "before_pod")
    return arguments_policy.combined({**params, "before_pod": asked})


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
        "timeout": {"type": "str"},
    },
    rules=specs.NODES_OR_SELECTOR,
    durations=(*arguments_policy.DURATIONS, "settle", "planned_notice", "timeout"),
    lists=("nodes", *arguments_policy.LISTS),
    prepare=_prepared,
    unshown=("before_pod",),
    detailed=True,
    engine=specs.engine(run_plan.make_plan, run_plan.PlanOptions),
)
