# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A PodMigrationJob as it is read, and as it is written.

Facts are those of Koordinator v1.7.0 (``apis/scheduling/v1alpha1``,
``pkg/descheduler/controllers/migration``). A job that waits for arbitration has an empty phase. Any
update of such a job starts it without arbitration, so a job is created once and not written again
before it has passed.
"""

from __future__ import annotations

import hashlib
import json
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    names,
    objects,
    shapes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import durations

API_VERSION = "scheduling.koordinator.sh/v1alpha1"
KIND = "PodMigrationJob"

Mode = t.Literal["ReservationFirst", "EvictDirectly"]
MODES: tuple[Mode, ...] = ("ReservationFirst", "EvictDirectly")

PASSED = "descheduler.koordinator.sh/passed-arbitration"
REASON = "koordinator.sh/evict-reason"
TRIGGER = "koordinator.sh/evict-trigger"
EVICT = "descheduler.alpha.kubernetes.io/evict"
"""On a job: object limiters let it pass. On a pod: every filter does. The value does not matter."""

POD_UID_LABEL = f"{names.PREFIX}/pod-uid"
RUN_LABEL = f"{names.PREFIX}/run"

ENDED = ("Succeeded", "Succeed", "Failed", "Aborted")
"""Final phases; ``Succeed`` is how documents and early versions say ``Succeeded``."""

KEPT_WITHOUT_TTL = 1800.0
"""Seconds after its creation at which the controller deletes a job without ttl."""


@dataclass(frozen=True, slots=True)
class Job(objects.Object):
    """A PodMigrationJob.

    ``pod`` is what it moves; its UID is what the job's own delete options demand, else what the
    controller filled in when it started the job (until then the pod of that name may be another
    one). ``ttl`` is in seconds, 0 without one. ``node``, ``new_pod`` and ``reservation`` are empty
    until the controller knows them; ``new_pod`` stays so in mode EvictDirectly. ``workloads`` are
    the UIDs of the pod's controllers, which koord-descheduler writes into the Reservation's
    template in the job's spec. ``made_by`` says who created it, as far as it tells.
    ``delete_options`` are without preconditions.
    """

    KIND, API_VERSION = KIND, API_VERSION

    created: str
    pod: objects.Ref
    mode: str
    paused: bool
    ttl: float
    reservation: str
    phase: str
    status: str
    reason: str
    message: str
    node: str
    new_pod: objects.Ref | None
    conditions: tuple[objects.Raw, ...] = ()
    workloads: tuple[str, ...] = ()
    made_by: str = ""
    delete_options: objects.Raw = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether it is in a final phase."""
        return self.phase in ENDED

    @property
    def succeeded(self) -> bool:
        """Whether it has moved its pod."""
        return self.phase in ("Succeeded", "Succeed")

    @property
    def passed(self) -> bool:
        """Whether it has passed arbitration: only then may it be written."""
        return self.annotations.get(PASSED) == "true" or self.phase == "Running" or self.ended

    @property
    def waiting(self) -> bool:
        """Whether it waits for arbitration."""
        return not self.passed

    @property
    def migrating(self) -> bool:
        """Whether limits count it: it is Running, or has passed arbitration and is about to run."""
        return self.phase == "Running" or (
            self.phase in ("", "Pending") and PASSED in self.annotations
        )

    @property
    def evicting(self) -> bool:
        """Whether the eviction of the pod was sent, which cannot be undone."""
        return any(condition.get("type") == "Eviction" for condition in self.conditions)

    @property
    def ours(self) -> bool:
        """Whether this collection created it."""
        return self.labels.get(names.MANAGED_BY_LABEL) == names.MANAGED_BY

    def condition(self, kind: str) -> objects.Raw:
        """The condition of this type, empty without one."""
        return next((found for found in self.conditions if found.get("type") == kind), {})

    @classmethod
    @decoding.lenient
    def of(cls, raw: objects.Raw) -> Job:
        """From the object as the API server sends it."""
        raw = decoding.fitting(raw, shapes.JOB)
        spec, status = raw.get("spec") or {}, raw.get("status") or {}
        pod, arrived = spec.get("podRef") or {}, status.get("podRef") or {}
        guard = ((spec.get("deleteOptions") or {}).get("preconditions") or {}).get("uid", "")
        options = spec.get("reservationOptions") or {}
        owners = ((options.get("template") or {}).get("spec") or {}).get("owners") or ()
        return cls(
            **objects.metadata(raw),
            created=raw["metadata"].get("creationTimestamp", ""),
            pod=_pod(pod, guard),
            mode=spec.get("mode") or "",
            paused=bool(spec.get("paused")),
            ttl=durations.go_seconds(spec.get("ttl")) or 0.0,
            reservation=(options.get("reservationRef") or {}).get("name", ""),
            phase=status.get("phase") or "",
            status=status.get("status") or "",
            reason=status.get("reason") or "",
            message=status.get("message") or "",
            node=status.get("nodeName") or "",
            new_pod=_pod(arrived) if arrived.get("name") else None,
            conditions=tuple(status.get("conditions") or ()),
            workloads=tuple(
                uid for owner in owners if (uid := (owner.get("controller") or {}).get("uid"))
            ),
            made_by=_maker(raw["metadata"]),
            delete_options={
                k: v for k, v in (spec.get("deleteOptions") or {}).items() if k != "preconditions"
            },
        )


def _maker(meta: objects.Raw) -> str:
    """The owner, the run, what asked for it, or the first client that wrote it."""
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    for owner in meta.get("ownerReferences") or ():
        return f"{owner.get('kind')} {owner.get('name')}"
    if run := labels.get(RUN_LABEL):
        return f"run {run}"
    named = (
        annotations.get(TRIGGER)
        or labels.get("app.kubernetes.io/created-by")
        or labels.get(names.MANAGED_BY_LABEL)
    )
    first: objects.Raw = min(
        meta.get("managedFields") or (), key=lambda entry: entry.get("time") or "", default={}
    )
    return named or first.get("manager") or "an unknown client"


def _pod(reference: objects.Raw, uid: str = "") -> objects.Ref:
    return objects.Ref(
        "Pod",
        reference.get("name", ""),
        reference.get("namespace", ""),
        uid or reference.get("uid", ""),
        "v1",
    )


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The specification of a job without its pod. ``ttl`` is in seconds, ``None`` for no ttl.

    ``template`` is the Reservation's ``metadata`` and ``spec`` that the controller is to use;
    ``reservation`` the name of an existing one. ``delete_options`` are those of the API; the pod's
    UID is added to them. ``run`` is the run's id.
    """

    mode: Mode = "ReservationFirst"
    paused: bool = False
    ttl: float | None = 300.0
    reservation: str = ""
    template: objects.Raw | None = None
    delete_options: objects.Raw = field(default_factory=dict)
    reason: str = ""
    trigger: str = ""
    run: str = ""


def ref_of(name: str, uid: str = "") -> objects.Ref:
    """A job's coordinates."""
    return objects.Ref(KIND, name, "", uid, API_VERSION)


def name_of(pod: objects.Ref, settings: JobSettings, attempt: int = 0) -> str:
    """The job's name: the same for the same pod (by UID) and the same way to move it.

    How patiently, why, for which run and whether paused does not make it another job; a further
    ``attempt`` after one that failed does.
    """
    way = [
        pod.namespace,
        pod.name,
        pod.uid,
        settings.mode,
        settings.reservation,
        settings.template,
        settings.delete_options,
    ]
    digest = hashlib.sha256(json.dumps(way, sort_keys=True).encode()).hexdigest()[:10]
    stem = pod.name[:40].rstrip("-.")
    return f"{stem}-{digest}-{attempt + 1}" if attempt else f"{stem}-{digest}"


def go_duration(length: float) -> str:
    """Seconds as Go writes them: ``300s``, ``0.5s``."""
    return f"{length:g}s" if length < 1e6 else f"{length:.0f}s"


def manifest(name: str, pod: objects.Ref, settings: JobSettings) -> dict[str, t.Any]:
    """The object to create. The pod's eviction is bound to its UID, so that no successor is hit.

    Raises:
        ValueError: the pod has no UID.
    """
    if not pod.uid:
        raise ValueError(f"{pod} needs its UID")
    labels = {
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        POD_UID_LABEL: pod.uid,
        RUN_LABEL: settings.run,
    }
    annotations = {REASON: settings.reason, TRIGGER: settings.trigger or names.MANAGED_BY}
    guard = {**(settings.delete_options.get("preconditions") or {}), "uid": pod.uid}
    spec: dict[str, t.Any] = {
        "paused": settings.paused,
        "mode": settings.mode,
        "podRef": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        "deleteOptions": {**settings.delete_options, "preconditions": guard},
    }
    if settings.ttl:
        spec["ttl"] = go_duration(settings.ttl)
    options: dict[str, t.Any] = (
        {"reservationRef": {"name": settings.reservation}} if settings.reservation else {}
    )
    if settings.template is not None:
        options["template"] = settings.template
    if options:
        spec["reservationOptions"] = options
    metadata = {
        "name": name,
        "labels": {key: value for key, value in labels.items() if value},
        "annotations": {key: value for key, value in annotations.items() if value},
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
