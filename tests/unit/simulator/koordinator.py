# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Koordinator 1.7 as far as a drain by jobs meets it, with its default arguments.

Reservations are placed like pods; a PodMigrationJob waits for arbitration (twice a second), then is worked off:
reserve, evict, wait for the newcomer. The limits are the controller's defaults.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import evictions
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.answers import Refused
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.controllers import PODS, Controller, key_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.object_rules import seconds_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Key, Raw

HOME, CONFIG = "koordinator-system", "koord-descheduler-config"
GROUP = "scheduling.koordinator.sh"
PASSED = "descheduler.koordinator.sh/passed-arbitration"
ANYWAY = "descheduler.alpha.kubernetes.io/evict"
"""On a pod: no filter counts. On a job: the limiter does not."""
PER_NODE = 2
LIMITER_SECONDS = 300.0
"""How long the object limiter remembers, where `args` of the configuration say nothing else."""
ARBITRATION_SECONDS = 0.5
REQUEUE_SECONDS = 3.0
KEPT_SECONDS, KEPT_WITHOUT_TTL = 300.0, 1800.0
ENDED = ("Succeeded", "Failed")


class Migrations(Controller):
    """The migration controller of koord-descheduler."""

    name = "migrations"
    watches = (kinds.PODMIGRATIONJOBS.resource, kinds.RESERVATIONS.resource, PODS)

    def __init__(self, *args: t.Any) -> None:
        super().__init__(*args)
        self._forced: set[str] = set()
        self._reserved: dict[Key, str] = {}
        self._evicted_at: dict[str, list[float]] = {}

    def keys(self, event: Event) -> t.Iterable[Key]:
        jobs = self.store.of(kinds.PODMIGRATIONJOBS.resource)
        if event.resource == kinds.PODMIGRATIONJOBS.resource:
            if event.what == "MODIFIED" and event.before is not None and event.before["spec"] != event.raw["spec"]:
                # Any update but the arbitrator's own starts a job, without arbitration.
                self._forced.add(event.raw["metadata"]["uid"])
            return (key_of(event.raw),)
        if event.resource == PODS:
            return [key for key, job in jobs.items() if _is_about(job, event.raw)]
        name = event.raw["metadata"]["name"]
        return [key for key, job in jobs.items() if _reservation(job) == name]

    def sync(self, key: Key) -> None:
        job = self.store.get(kinds.PODMIGRATIONJOBS.resource, *key)
        if job is None:
            self._drop_reservation(self._reserved.pop(key, ""))
            return
        meta, spec, status = job["metadata"], job["spec"], job["status"]
        ttl = float(spec["ttl"].removesuffix("s")) if spec.get("ttl") else 0.0
        age = self.objects.time() - seconds_of(meta["creationTimestamp"])
        kept = ttl + KEPT_SECONDS if ttl else KEPT_WITHOUT_TTL
        if age >= kept:
            self.objects.delete(kinds.PODMIGRATIONJOBS, meta["name"])
            return
        self.later(key, kept - age)
        if status.get("phase") in ENDED:
            return
        passed = (meta.get("annotations") or {}).get(PASSED) == "true" or meta["uid"] in self._forced
        if not passed and not status.get("phase"):
            self._arbitrate(key, job, age)
            return
        if spec.get("paused"):
            return
        if ttl and age >= ttl:
            self._drop_reservation(_reservation(job))
            self._fail(job, "Timeout", "Abort job caused by timeout")
            return
        self.later(key, min(REQUEUE_SECONDS, ttl - age) if ttl else REQUEUE_SECONDS)
        if not status.get("phase"):
            self._start(job)
        elif spec.get("mode") == "EvictDirectly":
            self._evict_directly(job)
        else:
            self._reserve_first(key, job)

    # -- arbitration ---------------------------------------------------------------------------------------

    def _arbitrate(self, key: Key, job: Raw, age: float) -> None:
        if age < ARBITRATION_SECONDS:
            self.later(key, ARBITRATION_SECONDS - age)
            return
        pod = self._pod(job)
        if pod is not None and ANYWAY not in (pod["metadata"].get("annotations") or {}):
            if not self._may_ever(pod):
                where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                said = f'Pod "{where}" is forbidden to migrate because it does not meet the requirements'
                self._fail(job, "ForbiddenMigratePod", said)
                return
            if not self._may_now(job, pod):
                self.later(key, ARBITRATION_SECONDS)
                return
        self.objects.patch(kinds.PODMIGRATIONJOBS, key[1], {"metadata": {"annotations": {PASSED: "true"}}})

    def _may_ever(self, pod: Raw) -> bool:
        owner = _owner(pod)
        if owner is None or owner["kind"] not in ("ReplicaSet", "StatefulSet"):
            return False
        if "deletionTimestamp" in pod["metadata"] or pod["metadata"]["namespace"] in (
            "kube-system",
            "koordinator-system",
        ):
            return False
        if any("emptyDir" in volume or "hostPath" in volume for volume in pod["spec"].get("volumes") or ()):
            return False
        replicas = self._replicas(pod, owner)
        return replicas not in (0, 1, _most(replicas))

    def _may_now(self, job: Raw, pod: Raw) -> bool:
        others = []
        for other in self.store.of(kinds.PODMIGRATIONJOBS.resource).values():
            started = other["status"].get("phase") == "Running" or PASSED in (
                other["metadata"].get("annotations") or {}
            )
            moved = self._pod(other)
            ended = other["status"].get("phase") in ENDED
            if other is not job and started and not ended and moved is not None:
                others.append(moved)
        if len([o for o in others if o["spec"].get("nodeName") == pod["spec"].get("nodeName")]) >= PER_NODE:
            return False
        owner = t.cast("Raw", _owner(pod))
        most = _most(self._replicas(pod, owner))
        migrating = {o["metadata"]["uid"] for o in others if (_owner(o) or {}).get("uid") == owner["uid"]}
        if len(migrating) >= most:
            return False
        siblings = self.pods_of({"metadata": owner})
        missing = {p["metadata"]["uid"] for p in siblings if not evictions.is_ready(p)} | migrating
        return len(missing) < most

    def _replicas(self, pod: Raw, owner: Raw) -> int:
        kind = kinds.REPLICA_SETS if owner["kind"] == "ReplicaSet" else kinds.STATEFUL_SETS
        raw = self.store.get(kind.resource, pod["metadata"]["namespace"], owner["name"])
        return int(raw["spec"]["replicas"]) if raw else 0

    # -- the reconciler --------------------------------------------------------------------------------------

    def _start(self, job: Raw) -> None:
        pod = self._pod(job)
        if pod is None:
            self._fail(job, "MissingPod", "Abort job caused by missing Pod")
            return
        reference = {**job["spec"]["podRef"], "uid": pod["metadata"]["uid"]}
        job = self.objects.patch(kinds.PODMIGRATIONJOBS, job["metadata"]["name"], {"spec": {"podRef": reference}})
        self.set_status(kinds.PODMIGRATIONJOBS, job, phase="Running")

    def _evict_directly(self, job: Raw) -> None:
        pod = self._pod(job)
        if not _condition(job, "Eviction"):
            self._evict(job, pod)
        elif pod is None:
            reference = job["spec"]["podRef"]
            told = self._told(job, "Eviction", True, "EvictComplete")
            said = f'Pod "{reference["namespace"]}/{reference["name"]}" has been evicted'
            self.set_status(
                kinds.PODMIGRATIONJOBS, job, phase="Succeeded", status="Complete", message=said, conditions=told
            )

    def _reserve_first(self, key: Key, job: Raw) -> None:
        pod, name = self._pod(job), _reservation(job)
        if not name:
            if pod is None:
                self._fail(job, "MissingPod", "Abort job caused by missing Pod")
                return
            self._reserve(key, job, pod)
            return
        self._reserved[key] = name
        reservation = self.store.get(kinds.RESERVATIONS.resource, "", name)
        if reservation is None:
            self._fail(job, "MissingReservation", "Abort job caused by missing Reservation")
            return
        status = reservation["status"]
        if not status.get("nodeName"):
            return
        if not _condition(job, "ReservationScheduled"):
            if pod is not None and status["nodeName"] == pod["spec"].get("nodeName"):
                said = "Scheduler assignes the Reservation on the same node as the Pod"
                self._fail(job, "ForbiddenMigratePod", said)
                return
            told = self._told(job, "ReservationScheduled", True, "")
            job = self.set_status(kinds.PODMIGRATIONJOBS, job, nodeName=status["nodeName"], conditions=told)
        if not _condition(job, "Eviction"):
            self._evict(job, pod)
        elif pod is None:
            self._await_newcomer(job, status, name)

    def _reserve(self, key: Key, job: Raw, pod: Raw) -> None:
        owner = t.cast("Raw", _owner(pod))
        own = {"key": "metadata.name", "operator": "NotIn", "values": [pod["spec"]["nodeName"]]}
        terms = {"nodeSelectorTerms": [{"matchFields": [own]}]}
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        name = job["metadata"]["uid"]
        body = {
            "metadata": {"name": name, "labels": {"app.kubernetes.io/created-by": "koord-descheduler"}},
            "spec": {
                "allocateOnce": True,
                "owners": [{"controller": {**owner, "namespace": pod["metadata"]["namespace"]}}],
                "template": {"metadata": {"labels": pod["metadata"].get("labels") or {}}, "spec": spec},
                "ttl": job["spec"].get("ttl", "24h"),
            },
        }
        if self.store.get(kinds.RESERVATIONS.resource, "", name) is None:
            self.objects.create(kinds.RESERVATIONS, body)
        self._reserved[key] = name
        options = {**(job["spec"].get("reservationOptions") or {}), "reservationRef": {"name": name}}
        job = self.objects.patch(
            kinds.PODMIGRATIONJOBS, job["metadata"]["name"], {"spec": {"reservationOptions": options}}
        )
        self.set_status(kinds.PODMIGRATIONJOBS, job, conditions=self._told(job, "ReservationCreated", True, ""))

    def _evict(self, job: Raw, pod: Raw | None) -> None:
        if pod is None:
            self._fail(job, "MissingPod", "Abort job caused by missing Pod")
            return
        owner = (_owner(pod) or {}).get("uid", "")
        if self._limited(job, pod, owner):
            return
        meta = pod["metadata"]
        options = job["spec"].get("deleteOptions") or {}
        try:
            evictions.evict(self.objects, meta["namespace"], meta["name"], {"deleteOptions": options})
        except Refused:
            return
        self._evicted_at.setdefault(owner, []).append(self.machine.now)
        told = self._told(job, "Eviction", False, "Evicting")
        self.set_status(kinds.PODMIGRATIONJOBS, job, conditions=told)

    def _limited(self, job: Raw, pod: Raw, owner: str) -> bool:
        """A bucket for each workload: one at once, then its limit within five minutes."""
        if ANYWAY in (job["metadata"].get("annotations") or {}):
            return False
        recent = self._evicted_at.get(owner, [])
        every = self._limiter_seconds() / max(_most(self._replicas(pod, t.cast("Raw", _owner(pod)))), 1)
        return bool(recent) and self.machine.now - recent[-1] < every

    def _await_newcomer(self, job: Raw, reservation: Raw, name: str) -> None:
        told = self._told(job, "Eviction", True, "EvictComplete")
        owners = reservation.get("currentOwners") or ()
        if not owners:
            self.set_status(kinds.PODMIGRATIONJOBS, job, conditions=told)
            return
        reference = {key: owners[0][key] for key in ("namespace", "name", "uid")}
        newcomer = self.store.get(PODS, reference["namespace"], reference["name"])
        where = f"{reference['namespace']}/{reference['name']}"
        if newcomer is None or evictions.is_ready(newcomer):
            said = f'Bind Pod "{where}" in Reservation "{name}"'
            self.set_status(
                kinds.PODMIGRATIONJOBS,
                job,
                phase="Succeeded",
                status="Complete",
                message=said,
                podRef=reference,
                conditions=told,
            )
            return
        self.set_status(kinds.PODMIGRATIONJOBS, job, podRef=reference, conditions=told)

    def _limiter_seconds(self) -> float:
        config = self.store.get(kinds.CONFIGMAPS.resource, HOME, CONFIG)
        profiles = json.loads(config["data"][CONFIG])["profiles"] if config else []
        for plugin in (plugin for profile in profiles for plugin in profile["pluginConfig"]):
            duration = ((plugin["args"].get("objectLimiters") or {}).get("workload") or {}).get("duration")
            if duration is not None:
                return float(duration.removesuffix("s"))
        return LIMITER_SECONDS

    # -- little helpers --------------------------------------------------------------------------------------

    def _pod(self, job: Raw) -> Raw | None:
        """The pod it moves, as long as that is there."""
        reference = job["spec"].get("podRef") or {}
        pod = self.store.get(PODS, reference.get("namespace", ""), reference.get("name", ""))
        if pod is None or reference.get("uid", "") not in ("", pod["metadata"]["uid"]):
            return None
        return pod

    def _told(self, job: Raw, what: str, done: bool, reason: str) -> list[Raw]:
        """The job's conditions with this one."""
        others = [c for c in job["status"].get("conditions") or () if c["type"] != what]
        known = _condition(job, what)
        if known and (known["status"], known.get("reason", "")) == (str(done), reason):
            return list(job["status"]["conditions"])
        told = {"type": what, "status": str(done), "lastTransitionTime": self.objects.wall()}
        return [*others, told | ({"reason": reason} if reason else {})]

    def _fail(self, job: Raw, reason: str, message: str) -> None:
        self.set_status(kinds.PODMIGRATIONJOBS, job, phase="Failed", reason=reason, message=message)

    def _drop_reservation(self, name: str) -> None:
        if name and self.store.get(kinds.RESERVATIONS.resource, "", name) is not None:
            self.objects.delete(kinds.RESERVATIONS, name)


def _is_about(job: Raw, pod: Raw) -> bool:
    meta = pod["metadata"]
    named = (meta.get("namespace"), meta["name"])
    references = (job["spec"].get("podRef") or {}, job["status"].get("podRef") or {})
    return any((reference.get("namespace"), reference.get("name")) == named for reference in references)


def _reservation(job: Raw) -> str:
    options = job["spec"].get("reservationOptions") or {}
    return str((options.get("reservationRef") or {}).get("name", ""))


def _condition(job: Raw, what: str) -> Raw | None:
    return next((c for c in job["status"].get("conditions") or () if c["type"] == what), None)


def _owner(pod: Raw) -> Raw | None:
    return next((o for o in pod["metadata"].get("ownerReferences") or () if o.get("controller")), None)


def _most(replicas: int) -> int:
    """How many pods of a workload may migrate, or be missing, at a time."""
    if replicas < 4:
        return min(1, replicas)
    return 2 if replicas <= 10 else replicas // 10
