# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a rollout of a descheduler's configuration writes, whether it restarts, and when it has come through.

A restart is decided by state. The pod template carries a digest of the configuration's *meaning* that its pods
were started with: where it is another one than that of the configuration that is wanted, they have to be
restarted. A comment or another order of keys therefore changes the ConfigMap, if the text was given as text, and
restarts nobody; a configuration given as keys and values does not even rewrite a ConfigMap that means the same.
"""

from __future__ import annotations

import hashlib
import json
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import places
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names, objects

DIGEST = f"{names.PREFIX}/descheduler-config"
"""Annotation of the pod template: the digest of the configuration that its pods start with."""

RESTARTED = f"{names.PREFIX}/restarted-at"
"""Annotation of the pod template: when a restart was asked for that no digest would cause."""

LOOPING = 3
"""So many ends of a new pod's container, the last with CrashLoopBackOff, and nobody waits any longer."""


def digest(config: t.Any) -> str:
    """A name for what a configuration means, not for how it is written: ``null`` is as good as no value."""
    text = json.dumps(_bare(config), sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return "sha256-" + hashlib.sha256(text.encode()).hexdigest()


def _bare(value: t.Any) -> t.Any:
    if isinstance(value, dict):
        return {str(key): _bare(inner) for key, inner in value.items() if inner is not None}
    return [_bare(inner) for inner in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Wish:
    """A configuration: what it means, how it is written, and whether the user wrote that text."""

    config: t.Mapping[str, t.Any]
    text: str
    as_text: bool = False

    @property
    def digest(self) -> str:
        return digest(self.config)

    def written(self, present: str | None, means: t.Any) -> str | None:
        """The text to write in place of ``present`` (which means ``means``), or ``None`` where that may stay."""
        if present == self.text or (present is not None and not self.as_text and digest(means) == self.digest):
            return None
        return self.text


def annotations_of(workload: objects.Raw) -> objects.Raw:
    """Those of the pod template."""
    return (places.template_of(workload).get("metadata") or {}).get("annotations") or {}


def marks_of(workload: objects.Raw) -> dict[str, str | None]:
    """Our two annotations as they are, ``None`` where one is missing."""
    found = annotations_of(workload)
    return {name: found.get(name) for name in (DIGEST, RESTARTED)}


def marking(marks: t.Mapping[str, str | None], *, bare: bool = False, replicas: int | None = None) -> dict[str, t.Any]:
    """The patch of a Deployment that sets our annotations, and its replicas with them.

    ``bare``: the template had no annotations at all, and has none again afterwards.
    """
    annotations = None if bare and not any(marks.values()) else dict(marks)
    spec: dict[str, t.Any] = {"template": {"metadata": {"annotations": annotations}}}
    if replicas is not None:
        spec["replicas"] = replicas
    return {"spec": spec}


def with_dry_run(text: str) -> str:
    """The configuration's text with ``dryRun: true`` at its top level, everything else as it is."""
    lines = text.splitlines(keepends=True)
    for index, line in enumerate(lines):
        if line.startswith("dryRun:"):
            comment = line.partition("#")[2].rstrip("\n")
            lines[index] = "dryRun: true" + (f" #{comment}" if comment else "") + "\n"
            return "".join(lines)
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{end}dryRun: true\n"


@dataclass(frozen=True, slots=True)
class Dead:
    """A container of a new pod that ended: where, how often, and its last words as far as the pod tells them."""

    pod: str
    container: str
    restarts: int
    code: int | None
    looping: bool
    words: str
    previous: bool
    """Whether its log is that of the container's life before."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a Deployment is: ``waiting`` says for what, the empty text means that its new pods are ready."""

    waiting: str
    pods: tuple[objects.Raw, ...]
    dead: tuple[Dead, ...]

    @property
    def hopeless(self) -> bool:
        """Whether a new pod ends again and again."""
        return any(dead.looping and dead.restarts >= LOOPING for dead in self.dead)


def progress(deployment: objects.Raw, pods: t.Iterable[objects.Raw]) -> Progress:
    """How far the Deployment is with the template that it has now."""
    marks = marks_of(deployment)
    all_pods = [pod for pod in pods if not _gone(pod)]
    mine = tuple(pod for pod in all_pods if _carries(pod, marks))
    dead = tuple(found for pod in mine for found in _dead(pod))
    spec, status = deployment["spec"], deployment.get("status") or {}
    wanted = spec.get("replicas", 1)
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 0):
        return Progress("the Deployment's controller has not looked at it yet", mine, dead)
    if status.get("updatedReplicas", 0) < wanted:
        return Progress(f"{status.get('updatedReplicas', 0)} of {wanted} new pods are made", mine, dead)
    ready = sum(_ready(pod) for pod in mine)
    if ready < wanted:
        return Progress(f"{ready} of {wanted} new pods are ready", mine, dead)
    if status.get("availableReplicas", 0) < wanted:
        return Progress(f"{status.get('availableReplicas', 0)} of {wanted} pods are available", mine, dead)
    old = [pod["metadata"]["name"] for pod in all_pods if not _carries(pod, marks)]
    if old or status.get("replicas", 0) > wanted:
        return Progress(f"old pods are still there: {', '.join(old) or 'not listed yet'}", mine, dead)
    return Progress("", mine, dead)


def lives(pods: t.Iterable[objects.Raw]) -> tuple[tuple[str, int], ...]:
    """Each pod with how often its containers were started again: the same as before where none has ended."""
    found = []
    for pod in pods:
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        found.append((str(pod["metadata"]["name"]), sum(status.get("restartCount", 0) for status in statuses)))
    return tuple(sorted(found))


def _carries(pod: objects.Raw, marks: t.Mapping[str, str | None]) -> bool:
    found = pod["metadata"].get("annotations") or {}
    return all(found.get(name) == value for name, value in marks.items())


def _gone(pod: objects.Raw) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def _ready(pod: objects.Raw) -> bool:
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _dead(pod: objects.Raw) -> t.Iterator[Dead]:
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        now, last = status.get("state") or {}, status.get("lastState") or {}
        ended = now.get("terminated") or last.get("terminated")
        waiting = now.get("waiting") or {}
        if ended or waiting.get("reason") == "CrashLoopBackOff":
            yield Dead(
                pod["metadata"]["name"],
                status.get("name", ""),
                status.get("restartCount", 0),
                (ended or {}).get("exitCode"),
                waiting.get("reason") == "CrashLoopBackOff",
                (ended or {}).get("message") or "",
                not now.get("terminated") and bool(now.get("running")),
            )


def last_words(text: str) -> str:
    """Of a container's output the line that says why it ended.

    A Go panic says it in its first line; cobra prints the error before the usage and once more as the last line;
    klog puts a header before its message.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if line.startswith(("panic:", "fatal error:")):
            return line
    if not lines:
        return ""
    last = lines[-1]
    if last[:1] in "EF" and "] " in last:
        last = last.partition("] ")[2]
    return last.removeprefix("Error: ")


def leads(holder: str, pods: t.Iterable[objects.Raw]) -> bool:
    """Whether a Lease's holder, ``<host name>_<id>``, is one of the pods; a pod on its host's network has its name."""
    host = holder.rpartition("_")[0] or holder
    for pod in pods:
        spec = pod.get("spec") or {}
        hosts = {pod["metadata"]["name"], spec.get("hostname")}
        if spec.get("hostNetwork"):
            hosts.add(spec.get("nodeName"))
        if host in hosts:
            return True
    return False


def leadership(lease: objects.Raw, deployment: str, pods: t.Collection[objects.Raw]) -> str:
    """Why the Lease's holder is none of the pods; the empty text where it is one.

    Where host names are not those of pods (a pod on its host's network, a process without a container) only the
    times can tell: a leader that took over after the first of the pods had started is one of them.
    """
    spec = lease.get("spec") or {}
    holder = spec.get("holderIdentity") or ""
    if not holder:
        return "nobody holds the lease yet"
    if leads(holder, pods):
        return ""
    starts = [str((pod.get("status") or {}).get("startTime") or "") for pod in pods]
    if (
        holder.startswith(f"{deployment}-")
        or not all(starts)
        or str(spec.get("acquireTime") or "")[:19] < min(starts)[:19]
    ):
        return f"the lease is still held by {holder}"
    return ""


def restart_reason(
    workload: objects.Raw, wish: Wish, *, changes: bool, conflicts: t.Sequence[str] | None, asked: bool = False
) -> str:
    """Why the pods have to start anew, or the empty text.

    ``changes``: the meaning of what the ConfigMap holds changes. ``conflicts``: how what runs differs from the wish,
    ``None`` where nobody could tell.
    """
    mark = marks_of(workload)[DIGEST]
    if asked:
        return "a restart was asked for"
    if conflicts:
        return f"another configuration runs ({conflicts[0]})"
    if mark == wish.digest:
        return ""
    if mark is not None:
        return "its pods started with another configuration"
    if changes:
        return "the configuration changes"
    if conflicts is None:
        return "nothing tells which configuration its pods started with"
    return ""
