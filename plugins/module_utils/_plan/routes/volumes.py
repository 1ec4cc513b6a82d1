# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Volumes that cannot follow a pod to another node."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, snapshots
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import scheduling


def bound_here(snapshot: snapshots.Snapshot, pod: objects.Pod) -> str:
    """Why the pod can run on its node only, empty if none of its claims holds it there.

    A claim holds it if its volume is ``local`` or ``hostPath``, or if the volume's node affinity matches no other
    node. An inline hostPath volume does not: it is the path of whatever node the pod is on. Claims and volumes that
    are not in the snapshot hold nothing.
    """
    for name in pod.claims:
        bound = ((snapshot.claim(pod.namespace, name) or {}).get("spec") or {}).get("volumeName") or ""
        volume = snapshot.volume(bound)
        if volume is None:
            continue
        spec, shown = volume["spec"], f"PersistentVolume {bound} of claim {name}"
        for source in ("local", "hostPath"):
            if source in spec:
                path = (spec[source] or {}).get("path", "")
                return f"{shown} is a {source} volume ({path}) of this node"
        required: objects.Raw | None = (spec.get("nodeAffinity") or {}).get("required")
        others = (node for node in snapshot.nodes.values() if node.name != pod.node)
        if required is not None and not any(scheduling.node_matches(required, node) for node in others):
            return f"{shown} has a node affinity that no other node satisfies"
    return ""


def claimants(pods: t.Iterable[objects.Pod]) -> bool:
    """Whether claims and volumes are needed to judge these pods."""
    return any(pod.claims for pod in pods)


def attaching(pods: t.Iterable[objects.Pod]) -> bool:
    """Whether it matters to these pods how many volumes a node takes, and so which ones others have there."""
    return any(pod.attaches for pod in pods)
