# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Every name that this collection writes into a cluster.

The protocol defines them: the record and the taint are on the node, guards beside their workloads,
everything else in one namespace; users' workloads are never annotated. Pods are, with ``PLANNED``,
if a hook asks for it, with ``RELEASED`` and ``UNSERVED`` while they are replaced, and with their
deletion cost while they are surged; ``READY_TO_MOVE`` is theirs to set.
"""

from __future__ import annotations

import functools
import hashlib
import typing as t

PREFIX = "maintenance.kubeops.io"
RECORD = f"{PREFIX}/record"
TAINT_KEY = f"{PREFIX}/in-progress"
WAITING = f"{PREFIX}/waiting"
ALLOW_INTERRUPTION = f"{PREFIX}/allow-interruption"
SURGE = f"{PREFIX}/surge"
SERVES_NODES = f"{PREFIX}/nodes"
LOCK_DETAILS = f"{PREFIX}/lock"
HEARTBEAT = f"{PREFIX}/heartbeat"
FENCE = f"{PREFIX}/fence"
PLANNED = f"{PREFIX}/maintenance-planned"
READY_TO_MOVE = f"{PREFIX}/ready-to-move"
METHOD = f"{PREFIX}/method"
PREVIEW = f"{PREFIX}/descheduler-preview"
"""Label of everything that a preview creates: the UID of the descheduler's workload."""
RELEASED = f"{PREFIX}/released"
"""The label of a pod that its ReplicaSet replaces before it leaves,
and the annotation that says how to undo that.
"""
UNSERVED = f"{PREFIX}/out-of-services"
"""The annotation of such a pod once it was taken out of its Services: since when,
and which labels were removed.
"""

FENCE_POLICY = f"node-fence.{PREFIX}"
FENCE_MAP = "node-fence"
FENCE_API = f"{PREFIX}/v1"
TRIAL = "plan"
"""The holder of the lock that dry runs name, which the fence lets pass."""
MANAGER = "kubeops-node-maintenance"
"""The field manager of all writes; of patches that name a lock ``<manager>/<run>/<nonce>``."""

REPORTING_CONTROLLER = f"{PREFIX}/node-maintenance"
"""Of our Events."""

NAMESPACE = "kubeops-node-maintenance"
MEDIK8S_NAMESPACE = "medik8s-leases"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "kubeops.node_maintenance"

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
REVISION = "controller-revision-hash"
"""Label of pods of StatefulSets, DaemonSets and CloneSets: of which revision they are."""
HASH = "pod-template-hash"
LOWEST_COST = "-2147483648"
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
LIFECYCLE = ("MaintenancePlanned", "DrainInProgress", "Drained", "MaintenanceInProgress")
"""Kubernetes' node conditions for a maintenance (KEP-5683), in its order."""
CONDITION_REASON = "KubeopsNodeMaintenance"
MIRROR = "kubernetes.io/config.mirror"

BALANCERS = "label/node.kubernetes.io/exclude-from-external-load-balancers"
MARKS: t.Mapping[str, t.Mapping[str, str]] = {
    "load_balancers": {BALANCERS: ""},
    "autoscalers": {
        "annotation/cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
        "annotation/karpenter.sh/do-not-disrupt": "true",
    },
    "remediation": {"label/remediation.medik8s.io/exclude-from-remediation": "true"},
}
"""For other controllers while a node is out of service, by what they would do to it.

No traffic from cloud load balancers (service controller, stable since Kubernetes 1.21), no
scale-down (cluster-autoscaler), no voluntary disruption (Karpenter 1), no remediation (Medik8s
NodeHealthCheck and its remediators). A Cluster API MachineHealthCheck reads only the Machine's
annotations (v1.11, ``shouldSkipRemediation``), so nothing on the node would hold it.
"""

GUARD_PREFIX = "kubeops-guard-"
SURGE_PREFIX = "surge-"
RUN_PREFIX = "run-"
NODE_LEASE_PREFIX = "node-"
HEARTBEAT_PREFIX = "heartbeat-"
EVENTS_PREFIX = "events-"
DESCHEDULER_PREFIX = "descheduler-"
"""Of the journal of a rollout to a descheduler, and of its lock."""


def guard_name(workload_uid: str) -> str:
    """Name of the guard of the workload with this UID."""
    return GUARD_PREFIX + workload_uid


def surge_name(workload_uid: str) -> str:
    """Name of the lease that records and locks the surge of the workload with this UID."""
    return SURGE_PREFIX + workload_uid


def run_name(run_id: str) -> str:
    """Name of the ConfigMap with a run's input, plan and finished nodes."""
    return RUN_PREFIX + run_id


def node_lease_name(node: str) -> str:
    """Name of a node's lock; the same as that of Medik8s, so that its operators and
    we exclude each other.
    """
    return NODE_LEASE_PREFIX + node


@functools.lru_cache(maxsize=1024)
def heartbeat_name(identity: str) -> str:
    """Name of the heartbeat of a start ``<run>/<nonce>``, from which nobody reads the nonce."""
    return HEARTBEAT_PREFIX + hashlib.sha256(identity.encode()).hexdigest()[:16]


def events_name(name: str) -> str:
    """Name of the ConfigMap with what a source of events has told."""
    return EVENTS_PREFIX + name
