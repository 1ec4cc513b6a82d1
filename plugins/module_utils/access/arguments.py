# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_access``, and the file of the kubeconfig that it writes."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import (
    accounts,
    roles,
    run_access,
    run_tokens,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context

SHORTEST = 600.0
"""Seconds; the API server makes no token for less."""


def _installed(ctx: run_context.Context, params: specs.Params) -> run_context.Result:
    lifetime = params["token_lifetime"]
    if lifetime is not None and lifetime < SHORTEST:
        raise option_values.BadOption(
            "token_lifetime", lifetime, "at least 10 minutes, as the API server demands"
        )
    try:
        return run_access.install(ctx, specs.from_params(run_access.AccessOptions, params))
    except run_tokens.PlaceError as error:
        return run_context.Result({"findings": []}, failed=True, message=str(error))


SPEC = specs.ClusterModuleSpec(
    name="maintenance_access",
    options={
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "steps": {
            "type": "list",
            "elements": "str",
            "choices": list(roles.STEPS),
            "default": list(roles.MAINTAIN),
        },
        "service_account": {"type": "str", "default": "operator"},
        "service_account_namespace": {"type": "str", "default": "kubeops-node-maintenance"},
        "namespaces": {"type": "list", "elements": "str"},
        "descheduler_namespace": {"type": "str", "default": roles.KOORDINATOR},
        "lease_namespace": {"type": "str"},
        "fence": {"type": "bool", "default": False},
        "policies": {"type": "bool", "default": False},
        "taints": {"type": "list", "elements": "str"},
        "replicas": {"type": "int", "default": accounts.REPLICAS},
        "dest": {"type": "path"},
        "token": {
            "type": "str",
            "choices": ["request", "secret"],
            "default": "request",
            "no_log": False,
        },
        "token_lifetime": {"type": "raw", "default": "24h", "no_log": False},
    },
    durations=("token_lifetime",),
    lists=("namespaces", "taints"),
    engine=_installed,
)
