# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``pdb_guard``."""

from __future__ import annotations

import functools

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import run_permissions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import arguments_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import run_guard


def _prepared(params: specs.Params) -> specs.Params:
    budgets = arguments_policy.reactive_budgets(params["reactive_budgets"])
    return {
        **params,
        "reactive_budgets": budgets,
        "rules": arguments_policy.pod_rules_of(params["rules"]),
    }


SPEC = specs.ClusterModuleSpec(
    name="pdb_guard",
    lacking=functools.partial(
        run_permissions.lacking, steps=("read", "locks", "runs", "guard", "surge")
    ),
    options={
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        **specs.NODES,
        **specs.BUDGETS,
        **specs.RULES,
        "allow_interruption": {"type": "bool", "default": False},
        "node_autoscaler": {"type": "bool", "default": False},
        "settle": {"type": "str"},
        "timeout": {"type": "str"},
    },
    durations=("settle", "timeout"),
    lists=("nodes",),
    prepare=_prepared,
    detailed=True,
    engine=specs.engine(run_guard.guard, run_guard.GuardOptions),
)
