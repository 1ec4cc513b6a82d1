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


def _with_alarm(params: specs.Params) -> specs.Params:
    """Raises BadOption."""
    told = params["announce"]
    if told:
        # Most drains tell nobody, and this imports reports.
        from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import announce

        told = announce.alarm(told)
    return {**params, "alarm_after": params["alarm_after"] or float("inf"), "announce": told or None}


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
        "timeout": {"type": "str", "default": "24h"},
        "pod_timeout": {"type": "str"},
        "alarm_after": {"type": "str", "default": "10m"},
        "announce": {
            "type": "dict",
            "options": {
                "events": {"type": "bool", "default": False},
                "webhook": {"type": "dict", "options": specs.WEBHOOK},
            },
        },
        "wait_for": {
            "type": "list",
            "elements": "str",
            "choices": ["gone", "replacement", "volumes"],
            "default": ["gone", "replacement", "volumes"],
        },
    },
    durations=("job_wait", "operator_budget_wait", "load_balancer_wait", "timeout", "pod_timeout", "alarm_after"),
    lists=("nodes", "namespaces", "fenced"),
    engine=lambda ctx, params: drain.drain(ctx, specs.from_params(drain.DrainOptions, params)),
    prepare=lambda params, environ: choices.combined(hooks.from_params(_with_alarm(params)), environ),
    # The URL of a webhook and its headers are secrets.
    unshown=(*hooks.POD_RULES, "announce"),
    detailed=True,
    foreign=kubernetes_core.of_drain,
)
