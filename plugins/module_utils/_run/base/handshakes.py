# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Taking back what hooks have announced on pods that stay after all, so that their applications serve on as before."""

from __future__ import annotations

import functools

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    hooks,
    names,
    node_records,
    objects,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import handshake
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, writing


def take_back(ctx: context.Context, record: node_records.Record | None, fence: act.Fence | None = None) -> None:
    """Remove what was announced because of the record; as it names the pods, it has to go after that."""
    if record is None:
        return
    for uid, (namespace, name) in hooks.planned(record).items():
        decide = functools.partial(handshake.taking_back, uid=uid, since=record.since)
        writing.write(ctx, objects.Ref("Pod", name, namespace, uid, "v1"), decide, fence=fence)


def take_back_on(ctx: context.Context, node: str) -> None:
    """Remove what was announced on the pods of a node without a record.

    Its record went with the Node object: a kubelet that registers anew still has its pods.
    """
    for raw in ctx.cluster.items(kinds.PODS, fields=f"spec.nodeName={node}", patience=act.PATIENCE).items:
        pod = objects.Pod.of(raw)
        if since := pod.annotations.get(names.PLANNED):
            decide = functools.partial(handshake.taking_back, uid=pod.uid, since=since)
            writing.write(ctx, objects.Ref("Pod", pod.name, pod.namespace, pod.uid, "v1"), decide)
