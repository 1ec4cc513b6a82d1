# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What the collection may have to be allowed, in small roles:
the only place where a right is granted.

``maintenance_access`` installs them, and ``docs/rights.py`` writes them as files.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, objects

Places = t.Literal[
    "cluster",
    "workloads",
    "announced",
    "locks",
    "home",
    "descheduler",
    "kubelets",
    "default",
    "pods",
]
"""Where a role is bound.

``workloads``: in the whole cluster, or in the namespaces whose pods move; ``announced``: there and
in ``default``; ``pods``: in the whole cluster, to the account of the pods that
preview a descheduler.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """Verbs on resources of one API group, of objects ``named``, if any; lists split by spaces."""

    group: str
    resources: str
    verbs: str
    named: str = ""

    @property
    def manifest(self) -> dict[str, list[str]]:
        """The rule as RBAC has it."""
        found = {"apiGroups": [self.group], "resources": self.resources.split()}
        if self.named:
            found["resourceNames"] = self.named.split()
        return {**found, "verbs": self.verbs.split()}


@dataclass(frozen=True, slots=True)
class Role:
    """The rights of one step, and where they are needed."""

    step: str
    places: Places
    rules: tuple[Rule, ...]

    @property
    def name(self) -> str:
        """The name of the ClusterRole."""
        return f"{names.NAMESPACE}-{self.step}"

    @property
    def everywhere(self) -> bool:
        """Whether it is bound in the whole cluster unless somebody names namespaces."""
        return self.places in ("cluster", "workloads", "announced", "pods")

    @property
    def manifest(self) -> objects.Raw:
        """The ClusterRole; an annotation says where it belongs."""
        return {
            "apiVersion": RBAC,
            "kind": "ClusterRole",
            "metadata": {
                "name": self.name,
                "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
                "annotations": {BIND_IN: BOUND_IN.get(self.places, "*")},
            },
            "rules": [rule.manifest for rule in self.rules],
        }


RBAC = "rbac.authorization.k8s.io/v1"
BIND_IN = f"{names.PREFIX}/bind-in"
KOORDINATOR = "koordinator-system"
"""Where a descheduler lives unless somebody says otherwise."""
BOUND_IN: t.Mapping[str, str] = {
    "locks": f"{names.NAMESPACE} {names.MEDIK8S_NAMESPACE}",
    "home": names.NAMESPACE,
    "descheduler": KOORDINATOR,
    "kubelets": "kube-node-lease",
    "default": "default",
}

_READ = "get list watch"
_KEEP = f"{_READ} create patch delete"
_COORDINATION = "coordination.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
_POLICIES = "validatingadmissionpolicies validatingadmissionpolicybindings"
_WEBHOOKS = "validatingwebhookconfigurations mutatingwebhookconfigurations"
_FENCES = f"nodefences.{names.PREFIX}"
_WORKLOADS = "deployments replicasets statefulsets daemonsets"
_SCHEDULING = "scheduling.koordinator.sh"


def _role(step: str, places: Places, *rules: Rule) -> Role:
    return Role(step, places, rules)


ROLES: tuple[Role, ...] = (
    _role(
        "read",
        "cluster",
        Rule("", "nodes pods", _READ),
        Rule("", "namespaces", "get list"),
        Rule(
            "",
            "services persistentvolumeclaims persistentvolumes resourcequotas limitranges",
            "list",
        ),
        Rule("", "replicationcontrollers replicationcontrollers/scale", "get"),
        Rule("", "replicationcontrollers", "list"),
        Rule("apps", "deployments replicasets statefulsets", _READ),
        Rule("apps", "daemonsets", "list watch"),
        Rule("batch", "jobs", "list"),
        Rule("autoscaling", "horizontalpodautoscalers", "list"),
        Rule("policy", "poddisruptionbudgets", "list watch"),
        Rule("discovery.k8s.io", "endpointslices", "list watch"),
        Rule("networking.k8s.io", "networkpolicies", "list"),
        Rule("storage.k8s.io", "volumeattachments csinodes storageclasses", "list"),
        Rule(
            "resource.k8s.io",
            "resourceclaims resourceslices deviceclasses devicetaintrules",
            "list",
        ),
        Rule("scheduling.k8s.io", "podgroups", "list"),
        Rule("lifecycle.k8s.io", "evictionrequests", "list"),
        Rule("kubevirt.io", "virtualmachineinstances kubevirts", "list"),
        Rule("argoproj.io", "rollouts", _READ),
        Rule("argoproj.io", "rollouts/scale", "get"),
        Rule("apps.kruise.io", "clonesets", _READ),
        Rule("apps.kruise.io", "clonesets/scale", "get"),
        Rule("apps.kruise.io", "daemonsets", "list"),
        Rule(_SCHEDULING, "podmigrationjobs reservations", "list"),
        Rule(_ADMISSION, f"{_WEBHOOKS} validatingadmissionpolicies", "list"),
        Rule(_ADMISSION, _POLICIES, "get", names.FENCE_POLICY),
        Rule(*_DEFINITIONS, "get", _FENCES),
    ),
    _role(
        "rehearse",
        "cluster",
        Rule("scheduling.k8s.io", "priorityclasses", "list"),
        Rule("node.k8s.io", "runtimeclasses", "list"),
    ),
    _role(
        "look",
        "locks",
        Rule(_COORDINATION, "leases", "list"),
        Rule("", "configmaps", "get list"),
        Rule(names.PREFIX, "nodefences", "get"),
    ),
    _role(
        "locks",
        "locks",
        Rule(_COORDINATION, "leases", _KEEP),
        Rule(names.PREFIX, "nodefences", "get patch"),
    ),
    _role("runs", "home", Rule("", "configmaps", "get list create patch delete")),
    _role("nodes", "cluster", Rule("", "nodes", "patch")),
    _role("conditions", "cluster", Rule("", "nodes/status", "patch")),
    _role("evict", "workloads", Rule("", "pods/eviction", "create"), Rule("", "events", "list")),
    _role("guard", "workloads", Rule("policy", "poddisruptionbudgets", "get create patch delete")),
    _role(
        "surge",
        "workloads",
        Rule("", "pods", "patch"),
        Rule("apps", "deployments/scale replicasets/scale", "patch"),
        Rule("argoproj.io", "rollouts/scale", "patch"),
        Rule("apps.kruise.io", "clonesets/scale", "patch"),
    ),
    _role("replace", "workloads", Rule("", "pods", "patch")),
    _role("hooks", "workloads", Rule("", "pods", "patch")),
    _role("announce", "announced", Rule("events.k8s.io", "events", "get create")),
    _role(
        "jobs",
        "cluster",
        Rule(_SCHEDULING, "podmigrationjobs", "get watch create patch delete"),
        Rule(_SCHEDULING, "podmigrationjobs/status", "patch"),
        Rule(_SCHEDULING, "reservations", "get create delete"),
    ),
    _role(
        "koordinator",
        "descheduler",
        Rule("", "configmaps", "get"),
        Rule("", "pods/portforward", "get create"),
        Rule("", "pods/log", "get"),
        Rule(_COORDINATION, "leases", "get"),
    ),
    _role("kubelets", "kubelets", Rule(_COORDINATION, "leases", "get list")),
    _role(
        "descheduler",
        "descheduler",
        Rule("apps", "deployments", "get list patch"),
        Rule("batch", "cronjobs", "get list patch"),
        Rule("", "configmaps", "get create patch delete"),
        Rule("", "pods", "list"),
        Rule("", "pods/portforward", "get create"),
        Rule("", "pods/log", "get"),
        Rule(_COORDINATION, "leases", "get"),
    ),
    _role(
        "preview",
        "descheduler",
        Rule("", "serviceaccounts", "get"),
        Rule("", "pods", "create delete"),
        Rule("", "pods/log", "get"),
        Rule("", "configmaps", "get create delete"),
    ),
    _role(
        "dry-run",
        "pods",
        Rule("", "nodes pods namespaces services", _READ),
        Rule("", "persistentvolumeclaims persistentvolumes", _READ),
        Rule("", "replicationcontrollers", _READ),
        Rule("apps", _WORKLOADS, _READ),
        Rule("batch", "jobs cronjobs", _READ),
        Rule("policy", "poddisruptionbudgets", _READ),
        Rule("scheduling.k8s.io", "priorityclasses", _READ),
        Rule("metrics.k8s.io", "nodes pods", "get list"),
        Rule("apps.kruise.io", "clonesets statefulsets", _READ),
        Rule("scheduling.sigs.k8s.io", "podgroups", _READ),
        Rule(_SCHEDULING, "podmigrationjobs reservations", _READ),
        Rule("slo.koordinator.sh", "nodemetrics", _READ),
    ),
    _role("events", "default", Rule("", "events", "list")),
    _role("delete-pods", "workloads", Rule("", "pods", "delete")),
    _role("namespace", "cluster", Rule("", "namespaces", "create")),
    _role(
        "fence",
        "cluster",
        Rule(_ADMISSION, _POLICIES, "create"),
        Rule(_ADMISSION, _POLICIES, "get patch delete", names.FENCE_POLICY),
        Rule(*_DEFINITIONS, "create"),
        Rule(*_DEFINITIONS, "get patch delete", _FENCES),
        Rule(names.PREFIX, "nodefences", "get create delete"),
    ),
)
"""In the order of the guide."""
ADD_ONS = frozenset(
    "argoproj.io apps.kruise.io kubevirt.io lifecycle.k8s.io resource.k8s.io scheduling.k8s.io "
    f"scheduling.koordinator.sh storage.k8s.io {names.PREFIX}".split()
)
"""Groups that are read or written only where there is something of them."""
BY_STEP: t.Mapping[str, Role] = {role.step: role for role in ROLES}
STEPS = tuple(BY_STEP)
MAINTAIN = ("read", "locks", "runs", "nodes", "evict", "guard", "surge")
"""What ``maintain``, ``evacuate``, ``release`` and ``recover`` need in every cluster."""


def steps_with(verb: str, group: str, resource: str) -> list[str]:
    """The steps whose role allows this verb on this resource."""
    steps = []
    for role in ROLES:
        for rule in role.rules:
            named = resource in rule.resources.split() and verb in rule.verbs.split()
            if named and rule.group == group:
                steps.append(role.step)
    return steps
