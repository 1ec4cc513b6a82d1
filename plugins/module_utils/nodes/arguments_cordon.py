# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``node_cordon``."""

from __future__ import annotations

import functools

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import run_permissions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    kubernetes_core,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import arguments_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    run_cordon,
    run_node_steps,
)


def _prepared(params: specs.Params) -> specs.Params:
    arguments_policy.notice(params)
    return {**params, "rules": arguments_policy.pod_rules_of(params["rules"])}


SPEC = specs.ClusterModuleSpec(
    name="node_cordon",
    lacking=functools.partial(run_permissions.lacking, steps=("read", "locks", "runs", "nodes")),
    options={
        "state": {
            "type": "str",
            "choices": ["cordoned", "out", "returning", "parked", "uncordoned"],
            "default": "cordoned",
        },
        **specs.NODES,
        "reason": {"type": "str"},
        "taint": {"type": "bool", "default": True},
        "exclude_from_load_balancers": {"type": "bool", "default": True},
        "hold_autoscalers": {"type": "bool", "default": True},
        "hold_remediation": {"type": "bool", "default": True},
        "node_conditions": {"type": "bool", "default": False},
        "planned_notice": {"type": "str"},
        "lease_namespace": {"type": "str"},
        "lease_duration": {"type": "str"},
        "adopt": {"type": "bool", "default": False},
        "stored": {"type": "bool", "default": False},
        **specs.RULES,
    },
    durations=("planned_notice", "lease_duration"),
    lists=("nodes",),
    prepare=_prepared,
    detailed=True,
    engine=specs.engine(run_cordon.cordon, run_node_steps.CordonOptions),
    foreign=kubernetes_core.of_drain,
)
