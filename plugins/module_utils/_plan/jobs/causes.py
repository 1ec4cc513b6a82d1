# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Why koord-descheduler refuses a PodMigrationJob or lets it wait, which it does not say itself.

The rules and their order are those of ``pkg/descheduler/controllers/migration/arbitrator/filter.go`` and
``pkg/descheduler/evictions/evictions.go`` of koordinator v1.7.0 (the same in v1.8.0, but for its gates); the
object limiter is in ``controllers/migration/controller.go``.
"""

from __future__ import annotations

import datetime
import math
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import migration_jobs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    migration_controller,
    objects,
    reasons,
    selectors,
    snapshots,
)

Key = tuple[str, str]
"""What an object limiter counts by: (``workload``, UID of a pod's controller) or (``namespace``, its name)."""

EVICTION_COST = "scheduling.koordinator.sh/eviction-cost"
NEVER_EVICT = 2**31 - 1
CONFIG_SOURCE = "kubernetes.io/config.source"
SYSTEM_CRITICAL = 2_000_000_000
SCALABLE = ("Deployment", "ReplicaSet", "StatefulSet", "CloneSet", "Rollout")


def forbidden(
    snapshot: snapshots.Snapshot, pod: objects.Pod, controller: migration_controller.Controller
) -> reasons.Reason | None:
    """Why arbitration would fail a job for the pod at once (``ForbiddenMigratePod``); ``None`` if it would not."""
    if migration_jobs.EVICT in pod.annotations:
        return None
    for rule in (_namespace, _cost, _kind, _bare, _priority, _storage, _labels):
        if found := rule(pod, controller):
            return found
    return _replicas(snapshot, pod, controller)


def unserved(pod: objects.Pod, controller: migration_controller.Controller) -> reasons.Reason | None:
    """Why no place can be reserved for the pod: by its own scheduler, or because it requests nothing.

    Nothing in Koordinator checks this for jobs that are made by hand: they end by Timeout. A Reservation of
    nothing never gets into koord-scheduler's cache (v1.7.0, seen in the lab): the pod is evicted, its successor
    does not take the Reservation, and the job waits for that until its ttl.
    """
    if pod.scheduler in controller.scheduler_names and pod.requests:
        return None
    if pod.scheduler in controller.scheduler_names:
        return reasons.Reason(
            "no_requests",
            "Its containers request nothing, and a Reservation of nothing is never taken.",
            "Give its containers resource requests, at least of some CPU.",
        )
    known = " or ".join(controller.scheduler_names)
    return reasons.Reason(
        "scheduler",
        f"Its schedulerName {pod.scheduler or 'default-scheduler'} has no Reservation plugin.",
        f"Set schedulerName: {known} in its pod template, or add its scheduler to schedulerNames of the "
        f"MigrationController if it has the plugin.",
    )


def waiting(
    snapshot: snapshots.Snapshot,
    pod: objects.Pod,
    controller: migration_controller.Controller,
    jobs: t.Collection[migration_jobs.Job],
    now: str = "",
) -> reasons.Reason | None:
    """What holds a job for the pod now: a filter that koord-descheduler retries, or the object limiter.

    ``jobs`` are all PodMigrationJobs of the cluster. The object limiter is checked only if ``now`` (RFC 3339) is given.
    """
    others = [job for job in jobs if counts(job) and job.pod.uid != pod.uid]
    if migration_jobs.EVICT not in pod.annotations:
        for found in (
            _globally(others, controller),
            _on_node(snapshot, pod, others, controller),
            _in_namespace(pod, others, controller),
            _of_workload(snapshot, pod, others, controller),
        ):
            if found:
                return found
    if not now or any(migration_jobs.EVICT in job.annotations for job in jobs if job.pod.uid == pod.uid):
        return None
    taken = evictions(jobs)
    return limited(snapshot, pod, controller, lambda key: taken.get(key, ()), seconds_of(now))


def counts(job: migration_jobs.Job) -> bool:
    """Whether limits count the job: it is Running, or it has passed arbitration and is about to run."""
    return job.phase == "Running" or (job.phase in ("", "Pending") and migration_jobs.PASSED in job.annotations)


def evictions(jobs: t.Iterable[migration_jobs.Job]) -> dict[Key, list[float]]:
    """When jobs evicted pods, as seconds since the epoch."""
    found: dict[Key, list[float]] = {}
    for job in jobs:
        if at := job.condition("Eviction").get("lastTransitionTime"):
            for key in (("namespace", job.pod.namespace), *(("workload", uid) for uid in job.workloads)):
                found.setdefault(key, []).append(seconds_of(at))
    return found


def keys_of(pod: objects.Pod) -> tuple[Key, ...]:
    """What the object limiters count the pod's eviction by."""
    by_namespace = ("namespace", pod.namespace)
    return (("workload", pod.owner.uid), by_namespace) if pod.owner else (by_namespace,)


def limited(
    snapshot: snapshots.Snapshot,
    pod: objects.Pod,
    controller: migration_controller.Controller,
    taken: t.Callable[[Key], t.Iterable[float]],
    now: float,
) -> reasons.Reason | None:
    """The object limiter that holds the pod at ``now``; ``taken`` gives the times at which evictions took a token."""
    workload = snapshot.workload_of(pod)
    for scope, key in keys_of(pod):
        gap, burst = migration_controller.interval(controller, scope, workload.replicas if workload else 0)
        left = next_token(taken((scope, key)), gap, burst) - now if gap else 0.0
        if left > 0:
            what = str(workload.ref if workload else pod.owner) if scope == "workload" else f"namespace {key}"
            # In minutes: a message that is repeated when it changes is not repeated every second.
            minutes = math.ceil(left / 60.0)
            return reasons.Reason(
                "object_limiter",
                f"The object limiter lets one pod of {what} go in {gap:g} s: less than {minutes} min are left.",
                f"Wait, or change objectLimiters.{scope} of the MigrationController.",
            )
    return None


def next_token(times: t.Iterable[float], gap: float, burst: int) -> float:
    """From when on a token bucket of ``burst`` lets one more through, after takings at ``times``; 0 for always."""
    tokens, last = float(burst), 0.0
    for at in sorted(times):
        tokens = min(float(burst), tokens + (at - last) / gap) - 1.0
        last = at
    return last + (1.0 - tokens) * gap if tokens < 1.0 else 0.0


def seconds_of(moment: str) -> float:
    """An RFC 3339 time as seconds since the epoch."""
    return datetime.datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


# -- filters that fail a job ----------------------------------------------------------------------------


def _namespace(pod: objects.Pod, controller: migration_controller.Controller) -> reasons.Reason | None:
    if controller.include and pod.namespace not in controller.include:
        listed = ", ".join(controller.include)
        return reasons.Reason(
            "namespace_excluded",
            f"Namespace {pod.namespace} is not among those that the MigrationController includes ({listed}).",
            "Add it to namespaces.include of the MigrationController.",
        )
    if pod.namespace in controller.exclude:
        return reasons.Reason(
            "namespace_excluded",
            f"The MigrationController excludes namespace {pod.namespace}.",
            "Take it out of namespaces.exclude of the MigrationController.",
        )
    return None


def _cost(pod: objects.Pod, controller: migration_controller.Controller) -> reasons.Reason | None:
    if pod.annotations.get(EVICTION_COST) == str(NEVER_EVICT):
        return reasons.Reason(
            "eviction_cost",
            f"Its annotation {EVICTION_COST} is {NEVER_EVICT}: never evict.",
            "Lower the cost if it may be moved.",
        )
    return None


def _kind(pod: objects.Pod, controller: migration_controller.Controller) -> reasons.Reason | None:
    if pod.owner and pod.owner.kind == "DaemonSet":
        return reasons.Reason("daemonset", f"{pod.owner} owns it: such pods stay.")
    if pod.mirror or pod.annotations.get(CONFIG_SOURCE, "api") != "api":
        return reasons.Reason("mirror", "It is a static pod: only its kubelet can end it.")
    if pod.deleting:
        return reasons.Reason("terminating", "It is ending already.")
    return None


def _bare(pod: objects.Pod, controller: migration_controller.Controller) -> reasons.Reason | None:
    if pod.owner or controller.evict_all_bare_pods or (controller.evict_failed_bare_pods and pod.phase == "Failed"):
        return None
    return reasons.Reason(
        "bare_pod",
        "No controller owns it.",
        "Set evictAllBarePods: true in the MigrationController; nothing makes the pod again.",
    )


def _priority(pod: objects.Pod, controller: migration_controller.Controller) -> reasons.Reason | None:
    if controller.evict_system_critical_pods:
        return None
    if pod.priority >= SYSTEM_CRITICAL:
        return reasons.Reason(
            "system_critical",
            f"Its priority {pod.priority} is system critical.",
            "Set evictSystemCriticalPods: true in the MigrationController.",
        )
    limit = controller.priority_threshold
    if limit is not None and pod.priority >= limit:
        return reasons.Reason(
            "priority",
            f"Its priority {pod.priority} reaches priorityThreshold {limit}.",
            "Raise priorityThreshold.value of the MigrationController.",
        )
    return None


def _storage(pod: objects.Pod, controller: migration_controller.Controller) -> reasons.Reason | None:
    local = [v["name"] for v in pod.volumes if "emptyDir" in v or "hostPath" in v]
    if local and not controller.evict_local_storage_pods:
        return reasons.Reason(
            "local_storage",
            f"It has local volumes (emptyDir or hostPath): {', '.join(local)}.",
            "Set evictLocalStoragePods: true in the MigrationController.",
        )
    claims = [v["name"] for v in pod.volumes if v.get("persistentVolumeClaim")]
    if claims and controller.ignore_pvc_pods:
        return reasons.Reason(
            "pvc",
            f"It mounts claims ({', '.join(claims)}), and ignorePvcPods is true.",
            "Set ignorePvcPods: false in the MigrationController.",
        )
    return None


def _labels(pod: objects.Pod, controller: migration_controller.Controller) -> reasons.Reason | None:
    if not controller.label_selector or selectors.matches(controller.label_selector, pod.labels):
        return None
    return reasons.Reason(
        "label_selector",
        f"The labelSelector {selectors.as_query(controller.label_selector)} of the MigrationController "
        f"does not match it.",
        "Change the selector or the pod's labels.",
    )


def _replicas(
    snapshot: snapshots.Snapshot, pod: objects.Pod, controller: migration_controller.Controller
) -> reasons.Reason | None:
    """``filterExpectedReplicas``; a workload that cannot be found counts as one of 0 replicas, and 0 is refused."""
    if pod.owner is None or controller.skip_check_expected_replicas:
        return None
    workload = snapshot.workload_of(pod)
    if workload is None or workload.kind not in SCALABLE:
        return reasons.Reason(
            "unknown_workload",
            f"koord-descheduler cannot read a replica count of {workload.ref if workload else pod.owner}.",
            "Set skipCheckExpectedReplicas: true in the MigrationController.",
        )
    count = workload.replicas
    if count == 1:
        return reasons.Reason(
            "single_replica",
            f"{workload.ref} has one replica.",
            "Run two, or set skipCheckExpectedReplicas: true in the MigrationController.",
        )
    for limit, name in zip(
        migration_controller.per_workload(controller, count),
        ("maxMigratingPerWorkload", "maxUnavailablePerWorkload"),
        strict=True,
    ):
        if limit == count:
            return reasons.Reason(
                "all_replicas",
                f"{name} lets all {count} replicas of {workload.ref} go at once.",
                f"Lower {name} below {count} in the MigrationController, or run more replicas.",
            )
    return None


# -- filters that are asked again -----------------------------------------------------------------------


def _globally(others: list[migration_jobs.Job], controller: migration_controller.Controller) -> reasons.Reason | None:
    limit = controller.max_migrating_globally
    return _full("max_migrating_globally", "in the cluster", len(others), limit, "maxMigratingGlobally")


def _on_node(
    snapshot: snapshots.Snapshot,
    pod: objects.Pod,
    others: list[migration_jobs.Job],
    controller: migration_controller.Controller,
) -> reasons.Reason | None:
    if not pod.node or controller.max_migrating_per_node <= 0:
        return None
    uids = {job.pod.uid for job in others}
    named = {(job.pod.namespace, job.pod.name) for job in others}
    count = sum(
        1
        for found in snapshot.pods_on({pod.node})
        if found.uid != pod.uid and (found.uid in uids or (found.namespace, found.name) in named)
    )
    limit = controller.max_migrating_per_node
    return _full("max_migrating_per_node", f"from node {pod.node}", count, limit, "maxMigratingPerNode")


def _in_namespace(
    pod: objects.Pod, others: list[migration_jobs.Job], controller: migration_controller.Controller
) -> reasons.Reason | None:
    count = sum(1 for job in others if job.pod.namespace == pod.namespace)
    limit, where = controller.max_migrating_per_namespace, f"in namespace {pod.namespace}"
    return _full("max_migrating_per_namespace", where, count, limit, "maxMigratingPerNamespace")


def _full(code: str, where: str, count: int, limit: int, name: str) -> reasons.Reason | None:
    if limit <= 0 or count < limit:
        return None
    return reasons.Reason(code, f"{count} pods migrate {where} already: {name} is {limit}.", "Wait for them.")


def _of_workload(
    snapshot: snapshots.Snapshot,
    pod: objects.Pod,
    others: list[migration_jobs.Job],
    controller: migration_controller.Controller,
) -> reasons.Reason | None:
    """``filterMaxMigratingOrUnavailablePerWorkload``: migrating pods are those of the same direct owner."""
    workload = snapshot.workload_of(pod)
    if pod.owner is None or workload is None:
        return None
    pods = _pods_of(snapshot, workload)
    named = {(job.pod.namespace, job.pod.name) for job in others}
    moving = {p.uid for p in pods if (p.namespace, p.name) in named and p.owner and p.owner.uid == pod.owner.uid}
    most, unavailable = migration_controller.per_workload(controller, workload.replicas)
    if "MaxMigratingPerWorkload" not in controller.skipped and moving and len(moving) >= most:
        return reasons.Reason(
            "max_migrating_per_workload",
            f"{len(moving)} pods of {workload.ref} migrate already: {most} of {workload.replicas} may.",
            "Wait for them.",
        )
    if "MaxUnavailablePerWorkload" in controller.skipped:
        return None
    down = moving | {p.uid for p in pods if not p.ready or p.deleting or p.finished}
    if len(down) < unavailable:
        return None
    return reasons.Reason(
        "max_unavailable_per_workload",
        f"{len(down)} pods of {workload.ref} are unavailable or migrate: {unavailable} of {workload.replicas} may.",
        "Wait, or look why they are not Ready.",
    )


def _pods_of(snapshot: snapshots.Snapshot, workload: objects.Workload) -> list[objects.Pod]:
    """The workload's pods, those that have ended among them: they count as unavailable."""
    found = snapshot.selected(workload.namespace, workload.selector) if workload.selector else snapshot.pods
    return [pod for pod in found if (owner := snapshot.workload_of(pod)) and owner.uid == workload.uid]
