# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The two things a surge writes: a pod's deletion cost and a workload's replicas."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import api_changes, names, objects


def template_cost(workload: objects.Workload) -> str | None:
    """The deletion cost that the workload's template gives to every new pod."""
    meta = workload.template.get("metadata") or {}
    return t.cast("str | None", (meta.get("annotations") or {}).get(names.DELETION_COST))


def cost(pod: objects.Pod, value: str | None) -> api_changes.Change:
    """Set or (``None``) remove the pod's deletion cost."""
    before = pod.annotations.get(names.DELETION_COST)
    return api_changes.patch(
        pod,
        f"Set the deletion cost of {pod.ref} to {value}" if value else f"Remove the deletion cost of {pod.ref}",
        {"metadata": {"annotations": {names.DELETION_COST: value}}},
        {names.DELETION_COST: before} if before is not None else {},
        {names.DELETION_COST: value} if value is not None else {},
    )


def scale(workload: objects.Workload, replicas: int) -> api_changes.Change:
    """Set the replicas through the scale subresource."""
    before, after = {"replicas": workload.replicas}, {"replicas": replicas}
    verb = "Raise" if replicas > workload.replicas else "Lower"
    sentence = f"{verb} {workload.ref} from {workload.replicas} to {replicas} replicas"
    return api_changes.patch(workload, sentence, {"spec": after}, before, after, verb="scale")
