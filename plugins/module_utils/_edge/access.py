# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_access``, and the file of the kubeconfig that it writes."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import errors, private_file, specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.access import accounts, roles
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.access import access
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context

SHORTEST = 600.0
"""Seconds; the API server makes no token for less."""


def _installed(ctx: context.Context, params: specs.Params) -> context.Result:
    given = dict(params)
    dest, lifetime = given.pop("dest"), given.get("token_lifetime")
    if lifetime is not None and lifetime < SHORTEST:
        raise errors.BadOption("token_lifetime", lifetime, "at least 10 minutes, as the API server demands")
    if dest:
        given["dest"] = private_file.PrivateFile(dest)
    try:
        return access.install(ctx, specs.from_params(access.AccessOptions, given))
    except private_file.PlaceError as error:
        return context.Result({"findings": []}, failed=True, message=str(error))


SPEC = specs.ClusterModuleSpec(
    name="maintenance_access",
    options={
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "steps": {"type": "list", "elements": "str", "choices": list(roles.STEPS), "default": list(roles.MAINTAIN)},
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
        "token": {"type": "str", "choices": ["request", "secret"], "default": "request", "no_log": False},
        "token_lifetime": {"type": "raw", "default": "24h", "no_log": False},
    },
    durations=("token_lifetime",),
    lists=("namespaces", "taints"),
    engine=_installed,
)
