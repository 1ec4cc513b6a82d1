# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The objects that decisions read, as plain frozen data: dicts as the API server sends them come in.

An object keeps only what a decision reads. Kinds of which a decision reads a field or two stay raw.
"""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names, selectors

Raw = t.Mapping[str, t.Any]


@dataclass(frozen=True, slots=True)
class Ref:
    """An object by its coordinates; ``uid`` is empty where only the name is known."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = ""

    def __str__(self) -> str:
        """Kind and place as messages show them: ``Deployment shop/web``."""
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {place}"


def controller_of(raw: Raw) -> Ref | None:
    """The owner reference that has ``controller: true``."""
    meta = raw.get("metadata") or {}
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return Ref(
                kind=owner.get("kind", ""),
                name=owner.get("name", ""),
                namespace=meta.get("namespace", ""),
                uid=owner.get("uid", ""),
                api_version=owner.get("apiVersion", ""),
            )
    return None


def _message(status: Raw, kind: str, state: str, reason: str) -> str:
    """The message of a condition in this state for this reason; the reason where it has no message."""
    for condition in status.get("conditions") or ():
        found = (condition.get("type"), condition.get("status"), condition.get("reason"))
        if found == (kind, state, reason):
            return condition.get("message") or reason
    return ""


def _number(generation: t.Any) -> int:
    """An observedGeneration: Argo Rollouts writes it as text, its early versions as a hash (never current)."""
    return int(generation) if str(generation or "").isdigit() else 0


@dataclass(frozen=True, slots=True)
class Node:
    """A node; ``ready`` is the Ready condition's ``True``; taints keep their order and all fields.

    ``ready_since`` is when that condition last changed.
    """

    name: str
    uid: str
    resource_version: str
    labels: t.Mapping[str, str]
    annotations: t.Mapping[str, str]
    taints: tuple[Raw, ...]
    unschedulable: bool
    conditions: t.Mapping[str, str]
    boot_id: str
    address: str
    ready_since: str = ""

    @property
    def ready(self) -> bool:
        """Whether the kubelet reports the node as Ready."""
        return self.conditions.get("Ready") == "True"

    @classmethod
    def of(cls, raw: Raw) -> Node:
        """From a core/v1 Node."""
        meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
        addresses = {a.get("type"): a.get("address", "") for a in status.get("addresses") or ()}
        changed = {c["type"]: c.get("lastTransitionTime") for c in status.get("conditions") or ()}
        return cls(
            name=meta["name"],
            uid=meta.get("uid", ""),
            resource_version=meta.get("resourceVersion", ""),
            labels=meta.get("labels") or {},
            annotations=meta.get("annotations") or {},
            taints=tuple(spec.get("taints") or ()),
            unschedulable=bool(spec.get("unschedulable")),
            conditions={c["type"]: c.get("status", "") for c in status.get("conditions") or ()},
            boot_id=(status.get("nodeInfo") or {}).get("bootID", ""),
            address=addresses.get("InternalIP") or addresses.get("Hostname") or "",
            ready_since=changed.get("Ready") or "",
        )


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod; ``finished`` is phase Succeeded or Failed, ``deleting`` a set deletionTimestamp.

    ``deadline`` is that timestamp: the moment at which the pod's grace ends. ``unschedulable`` is what
    the scheduler said when it found no place, ``nominated`` the node where it preempts others for it.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    node: str
    labels: t.Mapping[str, str]
    annotations: t.Mapping[str, str]
    owner: Ref | None
    phase: str
    ready: bool
    deleting: bool
    finalizers: tuple[str, ...]
    created: str
    grace_seconds: int
    scheduler: str
    priority: int
    tolerations: tuple[Raw, ...]
    volumes: tuple[Raw, ...]
    requests: t.Mapping[str, str]
    deadline: str = ""
    unschedulable: str = ""
    nominated: str = ""

    @property
    def ref(self) -> Ref:
        """The pod's coordinates."""
        return Ref("Pod", self.name, self.namespace, self.uid, "v1")

    @property
    def finished(self) -> bool:
        """Whether its containers have ended for good."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def mirror(self) -> bool:
        """Whether it is the API's picture of a static pod, which only its kubelet can end."""
        return names.MIRROR in self.annotations

    @property
    def claims(self) -> tuple[str, ...]:
        """Names of the PersistentVolumeClaims it mounts (generic ephemeral ones included)."""
        found = [v["persistentVolumeClaim"]["claimName"] for v in self.volumes if v.get("persistentVolumeClaim")]
        return tuple(found + [f"{self.name}-{v['name']}" for v in self.volumes if v.get("ephemeral")])

    @property
    def empty_dirs(self) -> tuple[str, ...]:
        """Names of its emptyDir volumes, whose data goes with the pod."""
        return tuple(v["name"] for v in self.volumes if "emptyDir" in v)

    @classmethod
    def of(cls, raw: Raw) -> Pod:
        """From a core/v1 Pod."""
        meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
        conditions = {c["type"]: c.get("status") for c in status.get("conditions") or ()}
        unplaced = _message(status, "PodScheduled", "False", "Unschedulable")
        requests: dict[str, str] = {}
        for index, container in enumerate(spec.get("containers") or ()):
            for resource, amount in ((container.get("resources") or {}).get("requests") or {}).items():
                requests[f"{index}/{resource}"] = amount
        return cls(
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            uid=meta.get("uid", ""),
            resource_version=meta.get("resourceVersion", ""),
            node=spec.get("nodeName", ""),
            labels=meta.get("labels") or {},
            annotations=meta.get("annotations") or {},
            owner=controller_of(raw),
            phase=status.get("phase", ""),
            ready=conditions.get("Ready") == "True",
            deleting=bool(meta.get("deletionTimestamp")),
            finalizers=tuple(meta.get("finalizers") or ()),
            created=meta.get("creationTimestamp", ""),
            grace_seconds=spec.get("terminationGracePeriodSeconds", 30),
            scheduler=spec.get("schedulerName", ""),
            priority=spec.get("priority") or 0,
            tolerations=tuple(spec.get("tolerations") or ()),
            volumes=tuple(spec.get("volumes") or ()),
            requests=requests,
            deadline=meta.get("deletionTimestamp") or "",
            unschedulable=unplaced,
            nominated=status.get("nominatedNodeName") or "",
        )


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget; ``observed`` says that its status is of its present generation.

    ``sync_failed`` is why its controller cannot compute that status, empty when it can.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: t.Mapping[str, str]
    annotations: t.Mapping[str, str]
    selector: Raw | None
    min_available: int | str | None
    max_unavailable: int | str | None
    unhealthy_policy: str
    observed: bool
    allowed: int
    healthy: int
    desired: int
    expected: int
    disrupted: t.Mapping[str, str]
    sync_failed: str = ""

    @property
    def ref(self) -> Ref:
        """The budget's coordinates."""
        return Ref("PodDisruptionBudget", self.name, self.namespace, self.uid, "policy/v1")

    @property
    def ours(self) -> bool:
        """Whether this collection made it."""
        return self.labels.get(names.MANAGED_BY_LABEL) == names.MANAGED_BY and self.name.startswith(names.GUARD_PREFIX)

    def covers(self, pod: Pod) -> bool:
        """Whether the budget selects the pod."""
        return self.namespace == pod.namespace and selectors.matches(self.selector, pod.labels)

    @classmethod
    def of(cls, raw: Raw) -> Budget:
        """From a policy/v1 PodDisruptionBudget."""
        meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
        return cls(
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            uid=meta.get("uid", ""),
            resource_version=meta.get("resourceVersion", ""),
            labels=meta.get("labels") or {},
            annotations=meta.get("annotations") or {},
            selector=spec.get("selector"),
            min_available=spec.get("minAvailable"),
            max_unavailable=spec.get("maxUnavailable"),
            unhealthy_policy=spec.get("unhealthyPodEvictionPolicy") or "IfHealthyBudget",
            observed=status.get("observedGeneration", -1) >= meta.get("generation", 0),
            allowed=status.get("disruptionsAllowed", 0),
            healthy=status.get("currentHealthy", 0),
            desired=status.get("desiredHealthy", 0),
            expected=status.get("expectedPods", 0),
            disrupted=status.get("disruptedPods") or {},
            sync_failed=_message(status, "DisruptionAllowed", "False", "SyncFailed"),
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """Something with a replica count: Deployment, ReplicaSet, StatefulSet, or an unknown owner's Scale.

    ``observed`` says that the controller has seen the present generation; ``spec`` is kept whole
    because the routes read a dozen of its fields. ``failure`` is why it cannot make a pod it wants
    (a quota, a LimitRange, a webhook), empty when it can.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    annotations: t.Mapping[str, str]
    owner: Ref | None
    replicas: int
    ready: int
    available: int
    current: int
    observed: bool
    spec: Raw
    failure: str = ""
    deleting: bool = False

    @property
    def ref(self) -> Ref:
        """The workload's coordinates."""
        return Ref(self.kind, self.name, self.namespace, self.uid, self.api_version)

    @property
    def selector(self) -> Raw | None:
        """Its pod selector."""
        return t.cast("Raw | None", self.spec.get("selector"))

    @classmethod
    def of(cls, raw: Raw, api_version: str = "", kind: str = "") -> Workload:
        """From an object with ``spec.replicas``; list items carry no kind, so it is given."""
        meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
        return cls(
            api_version=raw.get("apiVersion") or api_version,
            kind=raw.get("kind") or kind,
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            uid=meta.get("uid", ""),
            resource_version=meta.get("resourceVersion", ""),
            annotations=meta.get("annotations") or {},
            owner=controller_of(raw),
            replicas=spec.get("replicas", 1),
            ready=status.get("readyReplicas", 0),
            available=status.get("availableReplicas", 0),
            current=status.get("replicas", 0),
            observed=_number(status.get("observedGeneration")) >= meta.get("generation", 0),
            spec=spec,
            failure=_message(status, "ReplicaFailure", "True", "FailedCreate"),
            deleting=bool(meta.get("deletionTimestamp")),
        )


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """A HorizontalPodAutoscaler; ``owner`` is set where something else (KEDA) writes it."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner: Ref | None
    target_kind: str
    target_name: str
    minimum: int
    maximum: int

    @property
    def ref(self) -> Ref:
        """The autoscaler's coordinates."""
        return Ref("HorizontalPodAutoscaler", self.name, self.namespace, self.uid, "autoscaling/v2")

    @classmethod
    def of(cls, raw: Raw) -> Autoscaler:
        """From an autoscaling/v2 HorizontalPodAutoscaler."""
        meta, spec = raw["metadata"], raw.get("spec") or {}
        target = spec.get("scaleTargetRef") or {}
        return cls(
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            uid=meta.get("uid", ""),
            resource_version=meta.get("resourceVersion", ""),
            owner=controller_of(raw),
            target_kind=target.get("kind", ""),
            target_name=target.get("name", ""),
            minimum=spec.get("minReplicas", 1),
            maximum=spec.get("maxReplicas", 1),
        )


def _raw(raw: Raw) -> Raw:
    return raw


PARSERS: t.Mapping[str, t.Callable[[Raw], t.Any]] = {
    "nodes": Node.of,
    "pods": Pod.of,
    "budgets": Budget.of,
    "deployments": functools.partial(Workload.of, api_version="apps/v1", kind="Deployment"),
    "replica_sets": functools.partial(Workload.of, api_version="apps/v1", kind="ReplicaSet"),
    "stateful_sets": functools.partial(Workload.of, api_version="apps/v1", kind="StatefulSet"),
    "rollouts": functools.partial(Workload.of, api_version="argoproj.io/v1alpha1", kind="Rollout"),
    "clone_sets": functools.partial(Workload.of, api_version="apps.kruise.io/v1alpha1", kind="CloneSet"),
    "scales": Workload.of,
    "autoscalers": Autoscaler.of,
    "daemon_sets": _raw,
    "claims": _raw,
    "volumes": _raw,
    "quotas": _raw,
    "limits": _raw,
    "slices": _raw,
    "leases": _raw,
    "attachments": _raw,
}
"""How an object of each kind that a snapshot may hold is read."""
