# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``node_drain``."""

from __future__ import annotations

import functools

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import run_permissions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    kubernetes_core,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    arguments_policy,
    run_drain,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import arguments


def _with_alarm(params: specs.Params) -> specs.Params:
    """Raises BadOption."""
    announce = params["announce"]
    if announce:
        # Most drains tell nobody, and this imports reports.
        from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import (
            arguments_event,
        )

        announce = arguments_event.alarm(announce)
    return {
        **params,
        "alarm_after": params["alarm_after"] or float("inf"),
        "announce": announce or None,
    }


SPEC = specs.ClusterModuleSpec(
    name="node_drain",
    lacking=functools.partial(
        run_permissions.lacking, steps=("read", "locks", "runs", "nodes", "evict", "surge")
    ),
    options={
        **specs.NODES,
        **arguments_policy.CHOICES,
        **arguments.POD_RULES,
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
    durations=(*arguments_policy.DURATIONS, "timeout", "pod_timeout", "alarm_after"),
    lists=("nodes", *arguments_policy.LISTS),
    engine=specs.engine(run_drain.drain, run_drain.DrainOptions),
    prepare=lambda params: arguments_policy.combined(arguments.from_params(_with_alarm(params))),
    # The URL of a webhook and its headers are secrets.
    unshown=(*arguments.POD_RULES, "announce"),
    detailed=True,
    foreign=kubernetes_core.of_drain,
)
