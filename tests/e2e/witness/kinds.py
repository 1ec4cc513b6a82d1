# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is watched, and where the API serves it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

OWN_NAMESPACE = "kubeops-node-maintenance"
SHARED_LEASES = "medik8s-leases"

PATHS: Mapping[str, str] = MappingProxyType(
    {
        "Node": "/api/v1/nodes",
        "Pod": "/api/v1/pods",
        "Service": "/api/v1/services",
        "EndpointSlice": "/apis/discovery.k8s.io/v1/endpointslices",
        "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
        "Deployment": "/apis/apps/v1/deployments",
        "ReplicaSet": "/apis/apps/v1/replicasets",
        "StatefulSet": "/apis/apps/v1/statefulsets",
        "DaemonSet": "/apis/apps/v1/daemonsets",
        "HorizontalPodAutoscaler": "/apis/autoscaling/v2/horizontalpodautoscalers",
        "Lease": f"/apis/coordination.k8s.io/v1/namespaces/{OWN_NAMESPACE}/leases",
        "SharedLease": f"/apis/coordination.k8s.io/v1/namespaces/{SHARED_LEASES}/leases",
        "ConfigMap": f"/api/v1/namespaces/{OWN_NAMESPACE}/configmaps",
    }
)
EVENTS_PATH = "/api/v1/events"
