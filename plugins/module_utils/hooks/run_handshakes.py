# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Taking back what hooks have announced on pods that stay after all."""

from __future__ import annotations

import functools

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    objects,
    run_context,
    run_reconcile,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records


def take_back(
    ctx: run_context.Context,
    record: node_records.Record | None,
    prove_lock: run_requests.ProveLock | None = None,
) -> None:
    """Remove what was announced because of the record, which has to go after that."""
    if record is None:
        return
    for uid, (namespace, name) in hook_definitions.planned(record).items():
        decide = functools.partial(hook_definitions.taking_back, uid=uid, since=record.since)
        run_reconcile.reconcile(
            ctx, objects.Ref("Pod", name, namespace, uid, "v1"), decide, prove_lock=prove_lock
        )


def take_back_on(ctx: run_context.Context, node: str) -> None:
    """Remove what was announced on the pods of a node without a record.

    Its record went with the Node object: a kubelet that registers anew still has its pods.
    """
    for raw in ctx.cluster.items(kinds.PODS, fields=f"spec.nodeName={node}").items:
        pod = objects.Pod.of(raw)
        if since := pod.annotations.get(names.PLANNED):
            decide = functools.partial(hook_definitions.taking_back, uid=pod.uid, since=since)
            run_reconcile.reconcile(
                ctx, objects.Ref("Pod", pod.name, pod.namespace, pod.uid, "v1"), decide
            )
