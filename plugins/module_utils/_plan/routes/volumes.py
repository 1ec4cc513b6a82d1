# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Volumes that cannot follow a pod to another node."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, snapshots
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import scheduling


def bound_here(snapshot: snapshots.Snapshot, pod: objects.Pod) -> str:
    """Why the pod can run nowhere but on its node, ``""`` when none of its claims holds it there.

    A claim holds it when its volume is ``local`` or ``hostPath``, or when the volume's node affinity
    matches no other node of the cluster. An inline hostPath volume of the pod is not counted: it asks
    for the path of whatever node the pod is on. Claims and volumes that the snapshot lacks hold nothing.
    """
    for name in pod.claims:
        volume = _volume_of(snapshot, pod.namespace, name)
        if volume is None:
            continue
        spec, shown = volume["spec"], f"PersistentVolume {volume['metadata']['name']} of claim {name}"
        for source in ("local", "hostPath"):
            if source in spec:
                path = (spec[source] or {}).get("path", "")
                return f"{shown} is a {source} volume ({path}) of this node"
        required: objects.Raw | None = (spec.get("nodeAffinity") or {}).get("required")
        others = (node for node in snapshot.nodes.values() if node.name != pod.node)
        if required is not None and not any(scheduling.node_matches(required, node) for node in others):
            return f"{shown} has a node affinity that no other node satisfies"
    return ""


def _volume_of(snapshot: snapshots.Snapshot, namespace: str, claim: str) -> objects.Raw | None:
    for found in snapshot.claims:
        meta = found["metadata"]
        if (meta.get("namespace"), meta["name"]) == (namespace, claim):
            wanted = (found.get("spec") or {}).get("volumeName")
            return next((v for v in snapshot.volumes if wanted and v["metadata"]["name"] == wanted), None)
    return None


def claimants(pods: t.Iterable[objects.Pod]) -> bool:
    """Whether claims and volumes have to be read at all to judge these pods."""
    return any(pod.claims for pod in pods)
