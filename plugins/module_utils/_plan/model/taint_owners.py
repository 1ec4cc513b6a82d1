# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whose taints are whose: controllers that set a taint on a node and remove it again on their own.

Such a taint on a node that comes back means that something on the node is not ready yet. ``node_taint`` with ``exact``
leaves them all to their owners.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names


@dataclass(frozen=True, slots=True)
class Owner:
    """A controller by its name and what to look at when its taint stays; ``keys`` may end in ``*``."""

    keys: tuple[str, ...]
    name: str
    remedy: str


OWNERS: tuple[Owner, ...] = (
    # k8s.io/api core/v1 well_known_taints.go.
    Owner(("node.kubernetes.io/*",), "Kubernetes", "Check the node's conditions and its kubelet."),
    # k8s.io/cloud-provider api/well_known_taints.go: uninitialized, shutdown.
    Owner(
        ("node.cloudprovider.kubernetes.io/*",),
        "the cloud controller manager",
        "Check that the cloud controller manager runs and knows this machine.",
    ),
    # Cilium, Documentation/installation/taints.rst: agent-not-ready.
    Owner(("node.cilium.io/*",), "Cilium", "Check the cilium pod on this node and cilium-operator."),
    # Karpenter, pkg/apis/v1/taints.go: disrupted, unregistered.
    Owner(("karpenter.sh/*",), "Karpenter", "Check the node's NodeClaim: kubectl get nodeclaims."),
    # Cluster API, api/core/v1beta2/common_types.go: uninitialized, outdated-revision.
    Owner(("node.cluster.x-k8s.io/*",), "Cluster API", "Check the node's Machine in the management cluster."),
    # node-readiness-controller v0.4.1: the taint of a NodeReadinessRule has to start like this.
    Owner(
        ("readiness.k8s.io/*",),
        "node-readiness-controller",
        "Check the node's conditions that its rule asks for: kubectl get nodereadinessrules -o yaml.",
    ),
    # Gardener, pkg/apis/core/v1beta1/constants: critical-components-not-ready.
    Owner(("node.gardener.cloud/*",), "Gardener", "Check the node's critical DaemonSet pods in kube-system."),
    # cluster-autoscaler/utils/taints/taints.go.
    Owner(
        (
            "ToBeDeletedByClusterAutoscaler",
            "DeletionCandidateOfClusterAutoscaler",
            "ignore-taint.cluster-autoscaler.kubernetes.io/*",
            "startup-taint.cluster-autoscaler.kubernetes.io/*",
            "status-taint.cluster-autoscaler.kubernetes.io/*",
        ),
        "cluster-autoscaler or an agent that it waits for",
        "Check the log of cluster-autoscaler, and the DaemonSet that removes a startup taint.",
    ),
    # aws-ebs-csi-driver and aws-efs-csi-driver: the startup taint of their node pods.
    Owner(
        ("ebs.csi.aws.com/agent-not-ready", "efs.csi.aws.com/agent-not-ready"),
        "the AWS CSI driver",
        "Check the driver's pod on this node.",
    ),
    Owner((f"{names.PREFIX}/*",), "this collection", "Release the node."),
)


def owner_of(key: str) -> Owner | None:
    """Who sets and removes the taint with this key; ``None`` for one that people set."""
    return next((owner for owner in OWNERS if among(key, owner.keys)), None)


def among(key: str, patterns: t.Iterable[str]) -> bool:
    """Whether a key is one of these; a pattern that ends in ``*`` is every key that starts like it."""
    return any(key.startswith(one[:-1]) if one.endswith("*") else key == one for one in patterns)
