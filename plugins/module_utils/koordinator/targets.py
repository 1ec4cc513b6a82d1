# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which pods a call is about, and which job each of them has, needs, or must not get."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    selectors,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    migration_jobs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons


@dataclass(frozen=True, slots=True)
class Selection:
    """Pods as options name them: by name (``uid`` may be empty), node, labels, namespaces."""

    pods: tuple[objects.Ref, ...] = ()
    nodes: tuple[str, ...] = ()
    selector: objects.Raw | None = None
    namespaces: tuple[str, ...] = ()

    def takes(self, pod: objects.Pod) -> bool:
        """Whether a pod belongs to it, where pods are not named."""
        return (
            (not self.nodes or pod.node in self.nodes)
            and (self.selector is None or selectors.matches(self.selector, pod.labels))
            and (not self.namespaces or pod.namespace in self.namespaces)
        )


@dataclass(frozen=True, slots=True)
class Target:
    """A pod to move. ``pod`` is ``None`` where the one with that UID is gone.

    ``exact`` says that its UID was given, ``named`` that its name was: then no other name is meant.
    """

    ref: objects.Ref
    pod: objects.Pod | None
    exact: bool = False
    named: bool = False


def targets(
    snapshot: snapshots.Snapshot, selection: Selection
) -> tuple[tuple[Target, ...], tuple[objects.Ref, ...]]:
    """The pods, and those that were named without UID and are not there."""
    if not selection.pods:
        found = [pod for pod in snapshot.pods if selection.takes(pod) and _movable(pod)]
        # By node each pod is meant as it is; by labels alone also what an earlier
        # call has moved there.
        return tuple(Target(pod.ref, pod, bool(selection.nodes)) for pod in found), ()
    by_name = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
    known: list[Target] = []
    unknown: list[objects.Ref] = []
    for ref in selection.pods:
        pod = by_name.get((ref.namespace, ref.name))
        if pod and ref.uid in ("", pod.uid):
            known.append(Target(pod.ref, pod, bool(ref.uid), named=True))
        elif ref.uid:
            known.append(Target(ref, None, True, named=True))
        else:
            unknown.append(ref)
    return tuple(known), tuple(unknown)


def moved(
    refs: t.Iterable[objects.Ref], jobs: t.Iterable[migration_jobs.Job]
) -> tuple[Target, ...]:
    """Those of these pods, now gone, that a job has moved or is moving: named as before."""
    found = []
    by_pod = {
        (job.pod.namespace, job.pod.name): job for job in jobs if job.succeeded or not job.ended
    }
    for ref in refs:
        if job := by_pod.get((ref.namespace, ref.name)):
            found.append(Target(job.pod, None, True, named=True))
    return tuple(found)


def _movable(pod: objects.Pod) -> bool:
    """Whether a pod that is selected by node or label needs a job."""
    daemon = pod.owner is not None and pod.owner.kind == "DaemonSet"
    return not (pod.mirror or daemon or pod.finished or pod.deleting)


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do for a pod: ``create`` a job of this name, ``follow`` the job,
    nothing (``done``), or ``refuse``.

    ``note`` says in what a job that is followed is not as the caller wants it.
    """

    do: t.Literal["create", "follow", "done", "refuse"]
    name: str = ""
    job: migration_jobs.Job | None = None
    cause: reasons.Reason | None = None
    note: str = ""


def choose(
    target: Target,
    jobs: t.Sequence[migration_jobs.Job],
    settings: migration_jobs.JobSettings,
    name: str = "",
) -> Choice:
    """What a pod needs, given all jobs. ``name`` is the job's where a certain one is wanted."""
    mine = [job for job in jobs if _same(job.pod, target.ref)]
    going = [job for job in mine if not job.ended]
    if going:
        return _join(going[0], settings, name)
    done = next((job for job in mine if job.succeeded), None)
    if target.pod is None:
        return Choice("done", job=done)
    if not target.exact and (bringer := _bringer(target.pod, jobs, by_name=target.named)):
        return Choice("done", job=bringer)
    if name:
        taken = next((job for job in jobs if job.name == name), None)
        if taken:
            message = (
                f"Job {name} exists already, for {taken.pod}, and "
                f"{'has ended' if taken.ended else 'is under way'}."
            )
            remedy = "Set another name, or delete it first (state: absent)."
            return Choice("refuse", job=taken, cause=reasons.Reason("name_taken", message, remedy))
        return Choice("create", name)
    taken_names = {job.name for job in jobs}
    for attempt in itertools.count():
        new = migration_jobs.name_of(target.ref, settings, attempt)
        if new not in taken_names:
            break
    return Choice("create", new)


def _same(one: objects.Ref, other: objects.Ref) -> bool:
    return (one.namespace, one.name) == (other.namespace, other.name) and one.uid in ("", other.uid)


def _bringer(
    pod: objects.Pod, jobs: t.Iterable[migration_jobs.Job], *, by_name: bool
) -> migration_jobs.Job | None:
    """The job that brought this pod: under the name of the pod it evicted or, unless the pod is
    meant ``by_name``, as the successor it waited for.
    """
    for job in jobs:
        if not job.succeeded:
            continue
        same_name = (job.pod.namespace, job.pod.name) == (pod.namespace, pod.name)
        if job.new_pod and job.new_pod.uid == pod.uid and (same_name or not by_name):
            return job
        if same_name and job.pod.uid not in ("", pod.uid) and pod.created >= job.created:
            return job
    return None


def _join(job: migration_jobs.Job, settings: migration_jobs.JobSettings, name: str) -> Choice:
    """A job that is under way is the right one, or it stands in the way: it is not rewritten."""
    differences = (
        (
            job.paused and not settings.paused,
            "is paused: approve it (state: approved) or reject it (state: rejected)",
        ),
        (settings.paused and not job.paused, "is not paused"),
        (job.mode not in ("", settings.mode), f"is of mode {job.mode}"),
        (
            settings.reservation not in ("", job.reservation),
            f"uses Reservation {job.reservation or 'of its own'}",
        ),
    )
    other = next((words for differs, words in differences if differs), "")
    if not other:
        return Choice("follow", job.name, job, note=_unlike(job, settings, name))
    message = f"Job {job.name} for the pod is under way and {other}."
    return Choice(
        "refuse",
        job=job,
        cause=reasons.Reason("other_job", message, "Wait for its end, or reject it first."),
    )


def _unlike(job: migration_jobs.Job, settings: migration_jobs.JobSettings, name: str) -> str:
    """In what a job that moves the pod alike is not as wanted; it is not rewritten for that."""
    wanted = {
        key: value for key, value in settings.delete_options.items() if key != "preconditions"
    }
    differences = []
    if name not in ("", job.name):
        differences.append(f"name {job.name}, not {name}")
    if job.ttl != (settings.ttl or 0):
        differences.append(f"ttl {job.ttl:g} s, not {settings.ttl or 0:g} s")
    if wanted and job.delete_options != wanted:
        differences.append(f"deleteOptions {job.delete_options}, not {wanted}")
    if not differences:
        return ""
    return f"The job was under way before, and stays as it is: {'; '.join(differences)}."
