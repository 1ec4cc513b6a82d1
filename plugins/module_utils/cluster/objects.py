# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The objects that decisions read, as frozen data made from what the API server sends.

An object keeps only what a decision reads. Kinds of which a decision reads a field or two stay raw.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    names,
    pod_specs,
    pod_status,
    selectors,
    shapes,
    sharing,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import printable

Raw = t.Mapping[str, t.Any]

LONGEST_NAME = 253
"""Characters of a name; an owner reference may have longer ones."""
_KIND, _NAME = re.compile("[A-Za-z][A-Za-z0-9]*"), re.compile("[A-Za-z0-9][A-Za-z0-9._:-]*")


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
        kind = printable.clipped(self.kind, LONGEST_NAME)
        name = printable.clipped(self.name, LONGEST_NAME)
        return f"{kind} {self.namespace}/{name}" if self.namespace else f"{kind} {name}"

    @classmethod
    def read(cls, words: str) -> t.Self | None:
        """What ``str`` of it shows, read back; ``None`` if that is nothing."""
        kind, _space, place = words.partition(" ")
        namespace, _slash, name = place.rpartition("/")
        return cls(kind, name, namespace) if name else None

    @property
    def possible(self) -> bool:
        """Whether a cluster can have it; of what is in an owner reference an API server checks
        only that it is set.
        """
        return bool(_KIND.fullmatch(self.kind) and _NAME.fullmatch(self.name))


def controller_of(raw: Raw) -> Ref | None:
    """The owner reference that has ``controller: true``."""
    meta, owners = _owners(raw)
    return next((_owner(meta, one) for one in owners if one.get("controller")), None)


def _owners(raw: Raw) -> tuple[Raw, t.Sequence[Raw]]:
    meta = raw.get("metadata") or {}
    return meta, decoding.fitting(meta.get("ownerReferences") or (), shapes.OWNERS)


def _owner(meta: Raw, owner: Raw) -> Ref:
    return Ref(
        owner.get("kind", ""),
        owner.get("name", ""),
        meta.get("namespace", ""),
        owner.get("uid", ""),
        owner.get("apiVersion", ""),
    )


def find(raws: t.Iterable[Raw], namespace: str, name: str) -> Raw | None:
    """The object with this namespace (empty if it has none) and name."""
    places = ((raw, raw["metadata"]) for raw in raws)
    return next(
        (raw for raw, m in places if (m.get("namespace", ""), m["name"]) == (namespace, name)), None
    )


@dataclass(frozen=True, slots=True)
class Object:
    """What every kind has; ``owner`` is the controller,
    ``deleting`` says that a deletionTimestamp is set.

    ``unreadable`` names the parts that are left out, because they cannot be read.
    """

    KIND: t.ClassVar[str]
    API_VERSION: t.ClassVar[str]

    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: t.Mapping[str, str]
    annotations: t.Mapping[str, str]
    owner: Ref | None
    deleting: bool
    unreadable: str

    @property
    def ref(self) -> Ref:
        return Ref(self.KIND, self.name, self.namespace, self.uid, self.API_VERSION)

    @property
    def interruptible(self) -> bool:
        """Whether its owner allows that it is down for a while."""
        return self.annotations.get(names.ALLOW_INTERRUPTION) == "true"


def metadata(raw: Raw, share: sharing.Interner = sharing.NO_INTERNING) -> dict[str, t.Any]:
    """The fields of ``Object``."""
    meta = raw["metadata"]
    owner = controller_of(raw)
    return {
        "namespace": share.text(meta.get("namespace", "")),
        "name": meta["name"],
        "uid": meta.get("uid", ""),
        "resource_version": meta.get("resourceVersion", ""),
        "labels": share.part(meta.get("labels") or {}, shapes.TEXTS),
        "annotations": share.part(meta.get("annotations") or {}, shapes.TEXTS),
        "owner": share.same(owner, owner),
        "deleting": bool(meta.get("deletionTimestamp")),
        "unreadable": raw.get("unreadable", ""),
    }


@dataclass(frozen=True, slots=True)
class Node(Object):
    """A node; taints keep their order and all fields;
    ``ready_since`` is when the Ready condition last changed.

    ``address`` is empty where its kubelet reports nothing that is an IP address or a DNS name: SSH
    gets it. ``lifecycle`` are the raw conditions that tell of a maintenance.
    """

    KIND, API_VERSION = "Node", "v1"

    taints: tuple[Raw, ...]
    unschedulable: bool
    conditions: t.Mapping[str, str]
    boot_id: str
    address: str
    ready_since: str = ""
    lifecycle: tuple[Raw, ...] = ()
    allocatable: t.Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return self.conditions.get("Ready") == "True"

    @classmethod
    @decoding.lenient
    def of(cls, raw: Raw, share: sharing.Interner = sharing.NO_INTERNING) -> Node:
        """From a core/v1 Node."""
        spec, status = raw.get("spec") or {}, raw.get("status") or {}
        addresses = {
            a.get("type"): decoding.host(a.get("address", ""))
            for a in status.get("addresses") or ()
        }
        changed = {c["type"]: c.get("lastTransitionTime") for c in status.get("conditions") or ()}
        return cls(
            **metadata(raw, share),
            taints=share.part(tuple(spec.get("taints") or ()), shapes.TAINTS),
            unschedulable=bool(spec.get("unschedulable")),
            conditions=share.part(
                {c["type"]: c.get("status", "") for c in status.get("conditions") or ()},
                shapes.TEXTS,
            ),
            boot_id=(status.get("nodeInfo") or {}).get("bootID", ""),
            address=addresses.get("InternalIP") or addresses.get("Hostname") or "",
            ready_since=changed.get("Ready") or "",
            lifecycle=share.part(
                tuple(c for c in status.get("conditions") or () if c["type"] in names.LIFECYCLE),
                shapes.CONDITIONS,
            ),
            allocatable=share.part(status.get("allocatable") or {}, shapes.AMOUNTS),
        )


@dataclass(frozen=True, slots=True)
class Pod(Object):
    """A pod; ``deadline`` is its deletionTimestamp, the moment its grace period ends.

    ``unschedulable`` is the scheduler's message when it found no node, ``nominated`` the node on
    which it preempts other pods for this one or, without that message, binds it soon (since
    Kubernetes 1.35, where volumes or devices are allocated first). ``device_claims`` are names of
    ResourceClaims, each with whether the pod names it and so may share it; the others were made for
    it. ``group`` is the PodGroup of its scheduling group (Kubernetes 1.36). ``responders`` are the
    names in its ``evictionResponders``. ``placed`` is what decides where it fits (``pod_specs``),
    ``looked_at`` says that a scheduler has seen it. It got its node at ``scheduled``, its kubelet
    began with it at ``started``, and it last became Ready at ``ready_since``; ``restarted`` says
    that a container was started again. ``scratch`` says of emptyDirs why their data seldom has to
    last. ``trouble`` is what keeps it from being ready, by its kubelet, and ``stuck`` says that a
    container does not start. ``references`` are all of its ownerReferences.
    """

    KIND, API_VERSION = "Pod", "v1"

    node: str
    phase: str
    ready: bool
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
    device_claims: tuple[tuple[str, bool], ...] = ()
    group: str = ""
    responders: tuple[str, ...] = ()
    ip: str = ""
    placed: Raw = dataclasses.field(default_factory=dict)
    looked_at: bool = False
    scheduled: str = ""
    started: str = ""
    ready_since: str = ""
    restarted: bool = False
    scratch: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    trouble: str = ""
    stuck: bool = False
    references: tuple[Raw, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether all of its containers have terminated for good."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def mirror(self) -> bool:
        """Whether it is the mirror of a static pod, which only its kubelet can stop."""
        return names.MIRROR in self.annotations

    @property
    def overlooked(self) -> str:
        """That no scheduler has looked at it yet; a gated pod is known to the API server as
        not to be scheduled.
        """
        if self.node or self.looked_at or self.finished:
            return ""
        return f"no scheduler has looked at it (schedulerName: {self.scheduler})"

    @property
    def claims(self) -> tuple[str, ...]:
        """Names of the PersistentVolumeClaims it mounts (generic ephemeral ones included)."""
        found = [
            v["persistentVolumeClaim"]["claimName"]
            for v in self.volumes
            if v.get("persistentVolumeClaim")
        ]
        return tuple(
            found + [f"{self.name}-{v['name']}" for v in self.volumes if v.get("ephemeral")]
        )

    @property
    def attaches(self) -> bool:
        """Whether it has volumes that may be attached to its node: claims,
        or disks of before CSI.
        """
        return bool(self.claims) or any(
            volume.get(kind) for volume in self.volumes for kind in shapes.DISKS
        )

    @property
    def empty_dirs(self) -> tuple[str, ...]:
        """Names of its emptyDir volumes, whose data is lost with the pod."""
        return tuple(v["name"] for v in self.volumes if "emptyDir" in v)

    @classmethod
    @decoding.lenient
    def of(cls, raw: Raw, share: sharing.Interner = sharing.NO_INTERNING) -> Pod:
        """From a core/v1 Pod."""
        meta = raw["metadata"]
        spec = raw.get("spec") or {}
        status = raw.get("status") or {}
        conditions = {c["type"]: c for c in status.get("conditions") or ()}
        ready, scheduled = conditions.get("Ready") or {}, conditions.get("PodScheduled") or {}
        requests: dict[str, str] = {}
        trouble = pod_status.trouble(status)
        for index, container in enumerate(spec.get("containers") or ()):
            for resource, amount in (
                (container.get("resources") or {}).get("requests") or {}
            ).items():
                requests[f"{index}/{resource}"] = amount
        return cls(
            **metadata(raw, share),
            node=share.text(spec.get("nodeName", "")),
            phase=share.text(status.get("phase", "")),
            ready=ready.get("status") == "True",
            finalizers=decoding.fitting(tuple(meta.get("finalizers") or ()), shapes.NAMES),
            created=share.text(meta.get("creationTimestamp", "")),
            grace_seconds=spec.get("terminationGracePeriodSeconds", 30),
            scheduler=share.text(spec.get("schedulerName", "")),
            priority=spec.get("priority") or 0,
            tolerations=share.part(
                tuple(spec.get("tolerations") or ()), shapes.POD_SPEC["tolerations"]
            ),
            volumes=share.part(
                tuple(share.part(one, shapes.VOLUME) for one in pod_specs.volumes(spec))
            ),
            requests=share.part(requests, shapes.AMOUNTS),
            deadline=meta.get("deletionTimestamp") or "",
            unschedulable=_message(status, "PodScheduled", "False", "Unschedulable"),
            nominated=status.get("nominatedNodeName") or "",
            device_claims=_device_claims(spec, status),
            group=(spec.get("schedulingGroup") or {}).get("podGroupName") or "",
            responders=decoding.fitting(
                tuple(one.get("name", "") for one in spec.get("evictionResponders") or ()),
                shapes.NAMES,
            ),
            ip=status.get("podIP") or "",
            placed=share.part(pod_specs.trimmed(spec, status), shapes.PLACED),
            looked_at="PodScheduled" in conditions,
            scheduled=scheduled.get("lastTransitionTime") or "",
            started=share.text(status.get("startTime") or ""),
            ready_since=ready.get("lastTransitionTime") or "",
            restarted=any(one.get("restartCount") for one in status.get("containerStatuses") or ()),
            scratch=share.part(pod_specs.scratch(spec), shapes.TEXTS),
            trouble=trouble.text,
            stuck=trouble.stuck,
            references=share.part(tuple(meta.get("ownerReferences") or ()), shapes.OWNERS),
        )


def _message(status: Raw, kind: str, state: str, reason: str) -> str:
    """The message of a condition in this state for this reason;
    the reason where it has no message.
    """
    for condition in status.get("conditions") or ():
        found = (condition.get("type"), condition.get("status"), condition.get("reason"))
        if found == (kind, state, reason):
            return condition.get("message") or reason
    return ""


def _device_claims(spec: Raw, status: Raw) -> tuple[tuple[str, bool], ...]:
    made = list(status.get("resourceClaimStatuses") or ())
    extended = status.get("extendedResourceClaimStatus")
    if extended:
        made.append(extended)
    found = [(one.get("resourceClaimName"), True) for one in spec.get("resourceClaims") or ()]
    found += [(one.get("resourceClaimName"), False) for one in made]
    return tuple((decoding.fitting(name, str), shared) for name, shared in found if name)


@dataclass(frozen=True, slots=True)
class Budget(Object):
    """A PodDisruptionBudget; ``observed`` says that its status is of its current generation.

    ``sync_failed`` is why its controller cannot compute that status, empty when it can. ``owners``
    are all that its references name: operators do not always mark theirs as the controller.
    """

    KIND, API_VERSION = "PodDisruptionBudget", "policy/v1"

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
    owners: tuple[Ref, ...] = ()

    @property
    def ours(self) -> bool:
        """Whether this collection made it."""
        return self.labels.get(names.MANAGED_BY_LABEL) == names.MANAGED_BY and self.name.startswith(
            names.GUARD_PREFIX
        )

    @property
    def unruled(self) -> bool:
        """Whether it has neither minAvailable nor maxUnavailable,
        which is valid and allows nothing.
        """
        return self.min_available is None and self.max_unavailable is None

    def covers(self, pod: Pod) -> bool:
        return self.namespace == pod.namespace and selectors.matches(self.selector, pod.labels)

    @classmethod
    @decoding.lenient
    def of(cls, raw: Raw, share: sharing.Interner = sharing.NO_INTERNING) -> Budget:
        """From a policy/v1 PodDisruptionBudget."""
        meta = raw["metadata"]
        spec = raw.get("spec") or {}
        status = raw.get("status") or {}
        return cls(
            **metadata(raw, share),
            selector=share.part(spec.get("selector"), shapes.SELECTOR),
            min_available=spec.get("minAvailable"),
            max_unavailable=spec.get("maxUnavailable"),
            unhealthy_policy=spec.get("unhealthyPodEvictionPolicy") or "IfHealthyBudget",
            observed=status.get("observedGeneration", -1) >= meta.get("generation", 0),
            allowed=status.get("disruptionsAllowed", 0),
            healthy=status.get("currentHealthy", 0),
            desired=status.get("desiredHealthy", 0),
            expected=status.get("expectedPods", 0),
            disrupted=decoding.fitting(status.get("disruptedPods") or {}, shapes.TEXTS),
            sync_failed=_message(status, "DisruptionAllowed", "False", "SyncFailed"),
            owners=tuple(_owner(meta, one) for one in _owners(raw)[1]),
        )


def superseded(raw: Raw) -> bool:
    """Whether a ReplicaSet is an earlier revision, without pods; a Deployment keeps ten of them."""
    pods = (raw.get("spec") or {}).get("replicas", 1) or (raw.get("status") or {}).get("replicas")
    return not pods and bool(raw["metadata"].get("ownerReferences"))


@dataclass(frozen=True, slots=True)
class Workload(Object):
    """An object with a replica count: Deployment, ReplicaSet, StatefulSet,
    or an unknown owner's Scale.

    ``observed`` says that the controller has seen the current generation; ``spec`` is kept whole
    because the routes read a dozen of its fields. ``generation`` counts its changes from 1 on.
    ``failure`` is why its controller cannot create a pod (a quota, a LimitRange, a webhook), empty
    when it can.
    """

    api_version: str
    kind: str
    replicas: int
    ready: int
    available: int
    current: int
    observed: bool
    spec: Raw
    failure: str = ""
    generation: int = 0

    @property
    def ref(self) -> Ref:
        return Ref(self.kind, self.name, self.namespace, self.uid, self.api_version)

    @property
    def selector(self) -> Raw | None:
        return t.cast("Raw | None", self.spec.get("selector"))

    @property
    def template(self) -> Raw:
        """Its pod template; empty where it has none, as a Rollout that refers
        to another workload.
        """
        return self.spec.get("template") or {}

    @property
    def pod_spec(self) -> Raw:
        return self.template.get("spec") or {}

    @property
    def ordered(self) -> bool:
        """Whether it creates a pod only once all with lower numbers are Ready,
        as StatefulSets do by default.
        """
        return self.kind == "StatefulSet" and self.spec.get("podManagementPolicy") != "Parallel"

    @classmethod
    @decoding.lenient
    def of(
        cls,
        raw: Raw,
        api_version: str = "",
        kind: str = "",
        share: sharing.Interner = sharing.NO_INTERNING,
    ) -> Workload:
        """From an object with ``spec.replicas``; list items carry no kind, so it is given."""
        meta = raw["metadata"]
        spec = raw.get("spec") or {}
        status = raw.get("status") or {}
        kind = raw.get("kind") or kind
        if kind == "ReplicaSet" and superseded(raw):
            # Nobody asks what its pods were.
            spec = {"replicas": 0}
        return cls(
            **metadata(raw, share),
            api_version=raw.get("apiVersion") or api_version,
            kind=kind,
            replicas=spec.get("replicas", 1),
            ready=status.get("readyReplicas", 0),
            available=status.get("availableReplicas", 0),
            current=status.get("replicas", 0),
            # Argo Rollouts writes it as text, its early versions as a hash, which is never current.
            observed=(decoding.whole(status.get("observedGeneration")) or 0)
            >= meta.get("generation", 0),
            generation=meta.get("generation", 0),
            spec=share.workload_spec(spec),
            failure=_message(status, "ReplicaFailure", "True", "FailedCreate"),
        )


@dataclass(frozen=True, slots=True)
class Autoscaler(Object):
    """A HorizontalPodAutoscaler; ``owner`` is set where something else (KEDA) writes it."""

    KIND, API_VERSION = "HorizontalPodAutoscaler", "autoscaling/v2"

    target_kind: str
    target_name: str
    minimum: int
    maximum: int

    @classmethod
    @decoding.lenient
    def of(cls, raw: Raw, share: sharing.Interner = sharing.NO_INTERNING) -> Autoscaler:
        """From an autoscaling/v2 HorizontalPodAutoscaler."""
        spec = raw.get("spec") or {}
        target = spec.get("scaleTargetRef") or {}
        return cls(
            **metadata(raw, share),
            target_kind=target.get("kind", ""),
            target_name=target.get("name", ""),
            minimum=spec.get("minReplicas", 1),
            maximum=spec.get("maxReplicas", 1),
        )
