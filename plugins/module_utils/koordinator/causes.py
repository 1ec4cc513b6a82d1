# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Why koord-descheduler refuses a PodMigrationJob or lets it wait, which it does not say itself.

The rules and their order are those of
``pkg/descheduler/controllers/migration/arbitrator/filter.go`` and
``pkg/descheduler/evictions/evictions.go`` of koordinator v1.7.0 (the same in
v1.8.0, but for its gates).
"""

from __future__ import annotations

import datetime
import itertools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    selectors,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    migration_jobs,
    object_limiter,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    migration_controller,
)

EVICTION_COST = "scheduling.koordinator.sh/eviction-cost"
NEVER_EVICT = 2**31 - 1
CONFIG_SOURCE = "kubernetes.io/config.source"
SYSTEM_CRITICAL = 2_000_000_000
SCALABLE = ("Deployment", "ReplicaSet", "StatefulSet", "CloneSet", "Rollout")
UNCOUNTED_GATES = ("ExpectedReplicas", "MaxMigratingPerWorkload", "MaxUnavailablePerWorkload")
"""Gates of v1.8.0 whose filters count a workload's replicas."""


def forbidden(
    snapshot: snapshots.Snapshot, pod: objects.Pod, controller: migration_controller.Controller
) -> reasons.Reason | None:
    """Why arbitration fails a job of the pod at once (``ForbiddenMigratePod``) or ``None``."""
    if migration_jobs.EVICT in pod.annotations:
        return None
    refusals = itertools.chain(_excluded(pod, controller), _protected(pod, controller))
    return next(refusals, None) or _replicas(snapshot, pod, controller)


def unserved(
    pod: objects.Pod, controller: migration_controller.Controller | None
) -> reasons.Reason | None:
    """Why no place can be reserved for the pod: because of its scheduler,
    or because it requests nothing.

    Nothing in Koordinator checks this for jobs that are created by hand: they end by Timeout. A
    Reservation of nothing never gets into koord-scheduler's cache (v1.7.0, seen in the lab): the
    pod is evicted, its successor does not take the Reservation,
    and the job waits for that until its ttl.
    """
    if controller is None or pod.scheduler in controller.scheduler_names:
        if any(str(amount).strip("0.") for amount in pod.requests.values()):
            return None
        return reasons.Reason(
            "no_requests",
            "Its containers request no resources, and a Reservation of nothing is never taken.",
            "Give its containers resource requests, or use a job with mode: EvictDirectly.",
        )
    known = " or ".join(controller.scheduler_names)
    return reasons.Reason(
        "scheduler",
        f"Its schedulerName {pod.scheduler or 'default-scheduler'} has no Reservation plugin.",
        f"Set schedulerName: {known} in its pod template, or add its scheduler to "
        "schedulerNames of the MigrationController if it has the plugin.",
    )


def waiting(
    snapshot: snapshots.Snapshot,
    pod: objects.Pod,
    controller: migration_controller.Controller,
    jobs: t.Collection[migration_jobs.Job],
    now: str = "",
) -> reasons.Reason | None:
    """What holds a job for the pod now: a filter that koord-descheduler retries,
    or the object limiter.

    ``jobs`` are all PodMigrationJobs of the cluster. The object limiter is checked only if ``now``
    (RFC 3339) is given.
    """
    others = [job for job in jobs if job.migrating and job.pod.uid != pod.uid]
    # Owners of other kinds are not read for a job that somebody else made.
    known = snapshot.workload_of(pod) or (pod.owner and pod.owner.kind == "Job")
    reason = (
        (_uncounted(snapshot, pod, controller) if known else None)
        or _crowded(snapshot, pod, others, controller)
        or _of_workload(snapshot, pod, others, controller)
    )
    if reason and migration_jobs.EVICT not in pod.annotations:
        return reason
    if not now or any(
        migration_jobs.EVICT in job.annotations for job in jobs if job.pod.uid == pod.uid
    ):
        return None
    taken = object_limiter.by_key(object_limiter.evictions(jobs, snapshot.pods))
    return object_limiter.limited(snapshot, pod, controller, taken, seconds_of(now))


def seconds_of(moment: str) -> float:
    """An RFC 3339 time as seconds since the epoch."""
    return datetime.datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def _excluded(
    pod: objects.Pod, controller: migration_controller.Controller
) -> t.Iterator[reasons.Reason]:
    if controller.include and pod.namespace not in controller.include:
        listed = ", ".join(controller.include)
        yield reasons.Reason(
            "namespace_excluded",
            f"Namespace {pod.namespace} is not among those that the MigrationController "
            f"includes ({listed}).",
            "Add it to namespaces.include of the MigrationController.",
        )
    if pod.namespace in controller.exclude:
        yield reasons.Reason(
            "namespace_excluded",
            f"The MigrationController excludes namespace {pod.namespace}.",
            "Remove it from namespaces.exclude of the MigrationController.",
        )
    if pod.annotations.get(EVICTION_COST) == str(NEVER_EVICT):
        yield reasons.Reason(
            "eviction_cost",
            f"Its annotation {EVICTION_COST} is {NEVER_EVICT}: never evict.",
            "Lower the cost if it may be moved.",
        )
    if pod.owner and pod.owner.kind == "DaemonSet":
        yield reasons.Reason("daemonset", f"{pod.owner} owns it: such pods stay.")
    if pod.mirror or pod.annotations.get(CONFIG_SOURCE, "api") != "api":
        yield reasons.Reason("mirror", "It is a static pod: only its kubelet can end it.")
    if pod.deleting:
        yield reasons.Reason("terminating", "It is terminating already.")


def _protected(
    pod: objects.Pod, controller: migration_controller.Controller
) -> t.Iterator[reasons.Reason]:
    allowed = controller.evict_all_bare_pods or (
        controller.evict_failed_bare_pods and pod.phase == "Failed"
    )
    if not pod.owner and not allowed:
        yield reasons.Reason(
            "bare_pod",
            "No controller owns it.",
            "Set evictAllBarePods: true in the MigrationController; nothing creates the pod again.",
        )
    limit = None if controller.evict_system_critical_pods else controller.priority_threshold
    if pod.priority >= SYSTEM_CRITICAL and not controller.evict_system_critical_pods:
        yield reasons.Reason(
            "system_critical",
            f"Its priority {pod.priority} is system critical.",
            "Set evictSystemCriticalPods: true in the MigrationController.",
        )
    if limit is not None and pod.priority >= limit:
        yield reasons.Reason(
            "priority",
            f"Its priority {pod.priority} reaches priorityThreshold {limit}.",
            "Raise priorityThreshold.value of the MigrationController.",
        )
    local = [v["name"] for v in pod.volumes if "emptyDir" in v or "hostPath" in v]
    if local and not controller.evict_local_storage_pods:
        yield reasons.Reason(
            "local_storage",
            f"It has local volumes (emptyDir or hostPath): {', '.join(local)}.",
            "Set evictLocalStoragePods: true in the MigrationController.",
        )
    claims = [v["name"] for v in pod.volumes if v.get("persistentVolumeClaim")]
    if claims and controller.ignore_pvc_pods:
        yield reasons.Reason(
            "pvc",
            f"It mounts claims ({', '.join(claims)}), and ignorePvcPods is true.",
            "Set ignorePvcPods: false in the MigrationController.",
        )
    if controller.label_selector and not selectors.matches(controller.label_selector, pod.labels):
        yield reasons.Reason(
            "label_selector",
            f"The labelSelector {selectors.as_query(controller.label_selector)} of the "
            "MigrationController does not match it.",
            "Change the selector or the pod's labels.",
        )


def _replicas(
    snapshot: snapshots.Snapshot, pod: objects.Pod, controller: migration_controller.Controller
) -> reasons.Reason | None:
    """``filterExpectedReplicas``; a workload that is not found has 0 replicas, which is refused."""
    if pod.owner is None:
        return None
    workload = snapshot.workload_of(pod)
    if found := _uncounted(snapshot, pod, controller):
        return found
    if workload is None or controller.skip_check_expected_replicas:
        return None
    if workload.kind not in SCALABLE:
        return _unknown(
            str(workload.ref),
            "Grant koord-descheduler the right to get its scale and set "
            "skipCheckExpectedReplicas: true, or let node_drain evict the pod without a job.",
        )
    count = workload.replicas
    if count == 1:
        return reasons.Reason(
            "single_replica",
            f"{workload.ref} has one replica.",
            "Run two, or set skipCheckExpectedReplicas: true in the MigrationController.",
        )
    most, unavailable = migration_controller.per_workload(controller, count)
    for name, limit in (
        ("maxMigratingPerWorkload", most),
        ("maxUnavailablePerWorkload", unavailable),
    ):
        if limit == count:
            return reasons.Reason(
                "all_replicas",
                f"{name} lets all {count} replicas of {workload.ref} go at once.",
                f"Lower {name} below {count} in the MigrationController, or run more replicas.",
            )
    return None


def _uncounted(
    snapshot: snapshots.Snapshot, pod: objects.Pod, controller: migration_controller.Controller
) -> reasons.Reason | None:
    """A pod whose workload counts 0 replicas, such as a batch Job's:
    0 of 0 are already as many as may be unavailable.

    ``skipCheckExpectedReplicas`` only turns the refusal into a wait that never ends. v1.8.0 admits
    the pod if all filters that count replicas are skipped; if it may not read the
    scale, it needs all three.
    """
    workload = snapshot.workload_of(pod)
    if (
        pod.owner is None
        or (workload and workload.replicas)
        or controller.skipped.issuperset(UNCOUNTED_GATES)
    ):
        return None
    return _unknown(
        str(workload.ref if workload else pod.owner),
        "Let node_drain evict the pod without a job. koord-descheduler admits it only with the "
        f"annotation {migration_jobs.EVICT} on the pod or, since v1.8.0, with "
        f"skipEvictionGates: [{', '.join(UNCOUNTED_GATES)}]; "
        "skipCheckExpectedReplicas does not help.",
    )


def _unknown(owner: str, remedy: str) -> reasons.Reason:
    message = (
        f"koord-descheduler reads no replica count of {owner}, or counts 0 replicas, "
        "and admits no job for its pods."
    )
    return reasons.Reason("unknown_workload", message, remedy)


def _crowded(
    snapshot: snapshots.Snapshot,
    pod: objects.Pod,
    others: list[migration_jobs.Job],
    controller: migration_controller.Controller,
) -> reasons.Reason | None:
    uids = {job.pod.uid for job in others}
    named = {(job.pod.namespace, job.pod.name) for job in others}
    beside: list[objects.Pod] = []
    if pod.node:
        beside = [found for found in snapshot.pods_on({pod.node}) if found.uid != pod.uid]
    on_node = sum(found.uid in uids or (found.namespace, found.name) in named for found in beside)
    in_namespace = sum(job.pod.namespace == pod.namespace for job in others)
    return (
        _full("max_migrating_globally", len(others), "in the cluster", controller)
        or _full("max_migrating_per_node", on_node, f"from node {pod.node}", controller)
        or _full(
            "max_migrating_per_namespace", in_namespace, f"in namespace {pod.namespace}", controller
        )
    )


def _full(
    code: str, count: int, where: str, controller: migration_controller.Controller
) -> reasons.Reason | None:
    limit = int(getattr(controller, code))
    if not 0 < limit <= count:
        return None
    name = migration_controller.argument(code)
    return reasons.Reason(
        code, f"{count} pods migrate {where} already: {name} is {limit}.", "Wait for them."
    )


def _of_workload(
    snapshot: snapshots.Snapshot,
    pod: objects.Pod,
    others: list[migration_jobs.Job],
    controller: migration_controller.Controller,
) -> reasons.Reason | None:
    """``filterMaxMigratingOrUnavailablePerWorkload``: migrating pods have the same direct owner."""
    workload = snapshot.workload_of(pod)
    if pod.owner is None or workload is None:
        return None
    found: t.Iterable[objects.Pod] = snapshot.pods
    if workload.selector:
        found = snapshot.selected(workload.namespace, workload.selector)
    # Pods that have ended are among them: they count as unavailable.
    pods = [
        pod for pod in found if (owner := snapshot.workload_of(pod)) and owner.uid == workload.uid
    ]
    named = {(job.pod.namespace, job.pod.name) for job in others}
    moving = {
        p.uid
        for p in pods
        if (p.namespace, p.name) in named and p.owner and p.owner.uid == pod.owner.uid
    }
    most, unavailable = migration_controller.per_workload(controller, workload.replicas)
    if "MaxMigratingPerWorkload" not in controller.skipped and moving and len(moving) >= most:
        return reasons.Reason(
            "max_migrating_per_workload",
            f"{len(moving)} pods of {workload.ref} migrate already: {most} of "
            f"{workload.replicas} may.",
            "Wait for them.",
        )
    down = moving | {p.uid for p in pods if not p.ready or p.deleting or p.finished}
    if "MaxUnavailablePerWorkload" in controller.skipped or len(down) < unavailable:
        return None
    return reasons.Reason(
        "max_unavailable_per_workload",
        f"{len(down)} pods of {workload.ref} are unavailable or migrate: {unavailable} of "
        f"{workload.replicas} may.",
        "Wait, or look why they are not Ready.",
    )


# PodMigrationJobs that nobody processes any more, although their phase is still Running.
#
# From Koordinator v1.7.0 and v1.8.0 (``pkg/descheduler/controllers/migration/controller.go``): a
# process draws a UID at its start and ignores jobs that bear another one's; it fails a job whose
# ttl is over, and looks at each job that it processes every three seconds. A paused job is not
# looked at, and is left to whom paused it.


CREATED_BY = "koordinator.sh/job-created-by"
"""Annotation of jobs that koord-descheduler created: the UID of the process."""

LATE_SECONDS = 10.0
"""Seconds after the end of its ttl in which a job's controller would have failed it."""

GONE_SECONDS = 7.0
"""Seconds after its pod's end in which a job's controller, which checks every three, ends it."""


def running(job: migration_jobs.Job) -> bool:
    """Whether a restart of the controller may strand the job; nobody processes a paused one."""
    return job.phase == "Running" and not job.paused


def forgotten(job: migration_jobs.Job, controllers: t.Collection[str]) -> bool:
    """Whether the job is older than every process; ``controllers`` are the times at which
    their pods were created.

    A process that starts looks at no job that is Running already.
    """
    return bool(controllers) and job.created < min(controllers)


def why(
    job: migration_jobs.Job, now: float, controllers: t.Collection[str], gone_for: float
) -> str:
    """Why nobody processes a running job, as the end of a sentence that begins with its name;
    empty if somebody may.

    ``now`` is the API server's time in seconds, ``gone_for`` for how many seconds the
    pod has not existed.
    """
    age = now - seconds_of(job.created)
    if age > (job.ttl or migration_jobs.KEPT_WITHOUT_TTL) + LATE_SECONDS:
        limit = f"the {migration_jobs.KEPT_WITHOUT_TTL:.0f} s of such jobs"
        if job.ttl:
            limit = f"its ttl of {job.ttl:.0f} s"
        return f"has outlived {limit}"
    if CREATED_BY in job.annotations and forgotten(job, controllers):
        return "was created by an earlier process of koord-descheduler, and later ones ignore it"
    # With a Reservation it waits for the new pod after the old one's end.
    if gone_for > GONE_SECONDS and not (job.evicting and job.reservation):
        return f"has nothing to do: its pod {job.pod.namespace}/{job.pod.name} is gone"
    return ""
