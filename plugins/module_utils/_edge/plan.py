# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_plan``."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import choices, specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import verify
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.plan import plan


def _prepared(params: specs.Params, environ: t.Mapping[str, str]) -> specs.Params:
    choices.label_selector("node_selector", params["node_selector"] or "")
    return choices.combined({**params, "gates": tuple(params["gates"] or ())}, environ)


SPEC = specs.ClusterModuleSpec(
    name="maintenance_plan",
    options={
        "nodes": {"type": "list", "elements": "str"},
        "node_selector": {"type": "str"},
        "run": {"type": "str"},
        **choices.CHOICES,
        "goal": {"type": "str", "choices": ["maintained", "evacuated"], "default": "maintained"},
        "max_parallel": {"type": "int", "default": 1},
        "zone_key": {"type": "str", "no_log": False, "default": "topology.kubernetes.io/zone"},
        "max_per_zone": {"type": "int"},
        "settle": {"type": "str"},
        "gates": {"type": "list", "elements": "str", "choices": list(verify.GATES)},
        "stable": {"type": "str", "default": "10s"},
        "wait": {"type": "bool", "default": False},
        "timeout": {"type": "str"},
    },
    rules={"required_one_of": [("nodes", "node_selector")], "mutually_exclusive": [("nodes", "node_selector")]},
    durations=("job_wait", "settle", "stable", "timeout"),
    lists=("nodes", "namespaces", "fenced"),
    prepare=_prepared,
    engine=lambda ctx, params: plan.make_plan(ctx, specs.from_params(plan.PlanOptions, params)),
)
