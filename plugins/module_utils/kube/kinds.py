# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""The kinds of objects that this collection reads and writes, with their fixed paths.

No discovery is needed to address them: Kubernetes' own have been stable since 1.25 at the latest
(autoscaling/v2 since 1.23, policy/v1 and CronJobs in batch/v1 since 1.21), except admission
policies, which are stable since 1.30, and devices, stable since 1.34 (DeviceTaintRules since 1.37).
EvictionRequests exist since 1.37 where their gate is on, NodeFences where `maintenance_access` has
installed them, and Argo's Rollouts, Kruise's kinds, KubeVirt's and Koordinator's kinds where these
projects are installed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource of the API: `group` is empty for the core group, `plural` is the path segment.

    `api_version` is as in an object's `apiVersion` (`v1`, `apps/v1`), `resource` as people and RBAC
    rules name it (`pods`, `deployments.apps`).
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    api_version: str = field(init=False, repr=False, compare=False)
    resource: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        set_ = object.__setattr__  # of a frozen one
        set_(self, "api_version", f"{self.group}/{self.version}" if self.group else self.version)
        set_(self, "resource", f"{self.plural}.{self.group}" if self.group else self.plural)


_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_DEVICES = "resource.k8s.io"
_KOORDINATOR = "scheduling.koordinator.sh"
_of_cluster = functools.partial(Kind, namespaced=False)

NODES = _of_cluster("", "v1", "nodes", "Node")
PODS = Kind("", "v1", "pods", "Pod")
NAMESPACES = _of_cluster("", "v1", "namespaces", "Namespace")
PVCS = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PVS = _of_cluster("", "v1", "persistentvolumes", "PersistentVolume")
SERVICES = Kind("", "v1", "services", "Service")
EVENTS = Kind("", "v1", "events", "Event")
NEW_EVENTS = Kind("events.k8s.io", "v1", "events", "Event")
CONFIGMAPS = Kind("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount")
SECRETS = Kind("", "v1", "secrets", "Secret")
CLUSTER_ROLES = _of_cluster(_RBAC, "v1", "clusterroles", "ClusterRole")
CLUSTER_ROLE_BINDINGS = _of_cluster(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding")
ROLE_BINDINGS = Kind(_RBAC, "v1", "rolebindings", "RoleBinding")
RESOURCE_QUOTAS = Kind("", "v1", "resourcequotas", "ResourceQuota")
LIMIT_RANGES = Kind("", "v1", "limitranges", "LimitRange")
REPLICATION_CONTROLLERS = Kind("", "v1", "replicationcontrollers", "ReplicationController")
NETWORK_POLICIES = Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Kind("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS = Kind("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SETS = Kind("apps", "v1", "daemonsets", "DaemonSet")
ROLLOUTS = Kind("argoproj.io", "v1alpha1", "rollouts", "Rollout")
CLONE_SETS = Kind("apps.kruise.io", "v1alpha1", "clonesets", "CloneSet")
KRUISE_DAEMON_SETS = Kind("apps.kruise.io", "v1alpha1", "daemonsets", "DaemonSet")
JOBS = Kind("batch", "v1", "jobs", "Job")
CRON_JOBS = Kind("batch", "v1", "cronjobs", "CronJob")
BUDGETS = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
EVICTION_REQUESTS = Kind("lifecycle.k8s.io", "v1alpha1", "evictionrequests", "EvictionRequest")
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease")
HPAS = Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
ENDPOINT_SLICES = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
VOLUME_ATTACHMENTS = _of_cluster("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment")
STORAGE_CLASSES = _of_cluster("storage.k8s.io", "v1", "storageclasses", "StorageClass")
CSI_NODES = _of_cluster("storage.k8s.io", "v1", "csinodes", "CSINode")
RESOURCE_CLAIMS = Kind(_DEVICES, "v1", "resourceclaims", "ResourceClaim")
RESOURCE_SLICES = _of_cluster(_DEVICES, "v1", "resourceslices", "ResourceSlice")
DEVICE_CLASSES = _of_cluster(_DEVICES, "v1", "deviceclasses", "DeviceClass")
DEVICE_TAINT_RULES = _of_cluster(_DEVICES, "v1", "devicetaintrules", "DeviceTaintRule")
DEVICE_TAINT_RULES_BETA = _of_cluster(_DEVICES, "v1beta2", "devicetaintrules", "DeviceTaintRule")
PRIORITY_CLASSES = _of_cluster("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass")
RUNTIME_CLASSES = _of_cluster("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass")
POD_GROUPS = Kind("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
VIRTUAL_MACHINES = Kind("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance")
KUBEVIRTS = Kind("kubevirt.io", "v1", "kubevirts", "KubeVirt")
PODMIGRATIONJOBS = _of_cluster(_KOORDINATOR, "v1alpha1", "podmigrationjobs", "PodMigrationJob")
RESERVATIONS = _of_cluster(_KOORDINATOR, "v1alpha1", "reservations", "Reservation")
ADMISSION_POLICIES = _of_cluster(
    _ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy"
)
VALIDATING_WEBHOOKS = _of_cluster(
    _ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"
)
MUTATING_WEBHOOKS = _of_cluster(
    _ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"
)
ADMISSION_BINDINGS = _of_cluster(
    _ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"
)
DEFINITIONS = _of_cluster(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"
)
NODE_FENCES = Kind("maintenance.kubeops.io", "v1", "nodefences", "NodeFence")
SELF_SUBJECT_ACCESS_REVIEWS = _of_cluster(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"
)
SELF_SUBJECT_REVIEWS = _of_cluster(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview"
)

KINDS: Mapping[tuple[str, str], Kind] = {
    (value.api_version, value.kind): value
    for value in tuple(globals().values())
    if isinstance(value, Kind)
}
"""All of the above by `apiVersion` and `kind`, as objects name them."""
