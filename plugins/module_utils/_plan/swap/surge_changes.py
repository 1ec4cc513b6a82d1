# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The three things a surge writes: a pod's deletion cost, an autoscaler's bounds, a workload's count."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import api_changes, names, objects


def template_cost(workload: objects.Workload) -> str | None:
    """The deletion cost that the workload's template gives to every new pod."""
    meta = (workload.spec.get("template") or {}).get("metadata") or {}
    return t.cast("str | None", (meta.get("annotations") or {}).get(names.DELETION_COST))


def cost(pod: objects.Pod, value: str | None) -> api_changes.Change:
    """Set or (``None``) remove the pod's deletion cost."""
    before = pod.annotations.get(names.DELETION_COST)
    return api_changes.Change(
        "patch",
        pod.ref,
        f"Set the deletion cost of {pod.ref} to {value}" if value else f"Remove the deletion cost of {pod.ref}",
        body={"metadata": {"annotations": {names.DELETION_COST: value}}},
        before={names.DELETION_COST: before} if before is not None else {},
        after={names.DELETION_COST: value} if value is not None else {},
        resource_version=pod.resource_version,
    )


def bounds(scaler: objects.Autoscaler, minimum: int, maximum: int, verb: str) -> list[api_changes.Change]:
    """Set both bounds; nothing where they are so already."""
    now = {"minReplicas": scaler.minimum, "maxReplicas": scaler.maximum}
    then = {"minReplicas": minimum, "maxReplicas": maximum}
    wanted = {key: value for key, value in then.items() if now[key] != value}
    if not wanted:
        return []
    return [
        api_changes.Change(
            "patch",
            scaler.ref,
            f"{verb} the bounds of {scaler.ref} to {minimum}..{maximum}",
            body={"spec": wanted},
            before=now,
            after=then,
            resource_version=scaler.resource_version,
        )
    ]


def scale(workload: objects.Workload, replicas: int) -> api_changes.Change:
    """Set the count through the scale subresource."""
    verb = "Raise" if replicas > workload.replicas else "Lower"
    return api_changes.Change(
        "scale",
        workload.ref,
        f"{verb} {workload.ref} from {workload.replicas} to {replicas} replicas",
        body={"spec": {"replicas": replicas}},
        before={"replicas": workload.replicas},
        after={"replicas": replicas},
        resource_version=workload.resource_version,
    )
