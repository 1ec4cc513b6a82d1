# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``node_drain``."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import (
    choices,
    hooks,
    kubernetes_core,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain import drain

SPEC = specs.ClusterModuleSpec(
    name="node_drain",
    steps=("read", "locks", "runs", "nodes", "evict", "surge"),
    options={
        **specs.NODES,
        **choices.CHOICES,
        **hooks.POD_RULES,
        "grace_period": {"type": "int"},
        "order": {"type": "str", "choices": ["priority", "listed"], "default": "priority"},
        "parallel": {"type": "int", "default": 32},
        "timeout": {"type": "str"},
        "pod_timeout": {"type": "str"},
        "wait_for": {
            "type": "list",
            "elements": "str",
            "choices": ["gone", "replacement", "volumes"],
            "default": ["gone", "replacement", "volumes"],
        },
    },
    durations=("job_wait", "operator_budget_wait", "timeout", "pod_timeout"),
    lists=("nodes", "namespaces", "fenced"),
    engine=lambda ctx, params: drain.drain(ctx, specs.from_params(drain.DrainOptions, params)),
    prepare=lambda params, environ: choices.combined(hooks.from_params(params), environ),
    unshown=tuple(hooks.POD_RULES),
    detailed=True,
    foreign=kubernetes_core.of_drain,
)
