# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The nodes of a cluster for an inventory: read page by page, of which only what is kept stays in memory."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds, kubeconfig
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import inventory_hosts
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context


@dataclass(frozen=True, slots=True)
class InventoryOptions:
    """Which nodes, by a label selector (empty: all), and the annotation to keep, see ``inventory_hosts.Wanted``."""

    node_selector: str = ""
    maintained_annotation: str = ""


def read(ctx: context.Context, options: InventoryOptions) -> context.Result:
    """The nodes as ``inventory_hosts.kept`` keeps them, in ``nodes``. Nothing is written."""
    keep = functools.partial(inventory_hosts.kept, annotation=options.maintained_annotation)
    found = ctx.cluster.items(kinds.NODES, labels=options.node_selector, patience=act.PATIENCE, keep=keep)
    return context.Result({"nodes": found.items})


def server(target: t.Mapping[str, t.Any]) -> str:
    """Which cluster the fields of ``ConnectionOptions`` lead to, without a request and without a secret.

    Empty where that is not known before connecting: in a pod, or if the kubeconfig cannot be used.
    """
    if target.get("host"):
        return str(target["host"])
    try:
        chosen = kubeconfig.choose(target.get("kubeconfig") or kubeconfig.default_paths(), target.get("context") or "")
    except errors.ConfigError:
        return ""
    return f"{chosen.cluster['server']} {chosen.context}"
