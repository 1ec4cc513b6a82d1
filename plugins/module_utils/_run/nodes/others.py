# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Those who react to what a node or its pods show: load balancers, operators, applications, Kubernetes' controllers."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    names,
    node_records,
    objects,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import cordon as plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context


def await_notice(ctx: context.Context, waits: t.Mapping[str, float]) -> None:
    """Give others time to react to the maintenance that is planned; ``waits``: seconds by node."""
    nodes = ", ".join(name for name, wait in waits.items() if wait > 0)
    if nodes:
        longest = max(waits.values())
        ctx.tell(phases.What.WAITING, f"{longest:.0f} s for others to react to MaintenancePlanned of {nodes}")
        ctx.clock.sleep(longest)


def let_balancers_settle(ctx: context.Context, records: t.Mapping[str, node_records.Record]) -> None:
    """Wait until load balancers outside of the cluster have removed the nodes, before work on their hosts starts."""
    now = ctx.clock.server()
    wait = max((plan.balanced_for(record, now) for record in records.values()), default=0.0)
    if not wait or not _has_balancers(ctx):
        return
    ctx.tell(phases.What.WAITING, f"{wait:.0f} s for external load balancers to remove {', '.join(records)}")
    ctx.clock.sleep(wait)


def _has_balancers(ctx: context.Context) -> bool:
    """Whether a Service has an external load balancer; if Services may not be listed, one may."""
    try:
        found = ctx.cluster.items(kinds.SERVICES, patience=act.PATIENCE).items
    except errors.Forbidden:
        return True
    return any((service.get("spec") or {}).get("type") == "LoadBalancer" for service in found)


def await_schedulable(ctx: context.Context, name: str) -> str:
    """Wait for the end of the unschedulable taint, some milliseconds after the cordon; returns a note if it stays."""
    until = ctx.clock.now() + 10.0
    while ctx.clock.now() < until:
        try:
            node = objects.Node.of(ctx.cluster.send(verbs.get(kinds.NODES, name)))
        except errors.ClusterError:
            # It was given back, even if it cannot be read now.
            return ""
        if node.unschedulable or not any(x.get("key") == names.UNSCHEDULABLE_TAINT for x in node.taints):
            return ""
        ctx.clock.sleep(0.02)
    return f"; the taint {names.UNSCHEDULABLE_TAINT} is still there, is the node lifecycle controller running?"
