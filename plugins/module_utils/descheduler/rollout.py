# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A rollout of a descheduler's configuration: what it writes, whether it restarts,
and when it is complete.

Restarts depend on state: the pod template is annotated with a digest of the configuration's
*meaning* with which its pods started. If it differs from the digest of the desired configuration,
they must restart. A changed comment or order of keys therefore changes the ConfigMap, if the
configuration was given as text, but restarts nothing; given as keys and values, it does not even
change the ConfigMap.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    installation,
)

DIGEST = f"{names.PREFIX}/descheduler-config"
"""Annotation of the pod template: the digest of the configuration with which its pods start."""

RESTARTED = f"{names.PREFIX}/restarted-at"
"""Annotation of the pod template: the time of a restart that the digest would not cause."""

PENDING = f"{names.PREFIX}/restart-pending"
"""Annotation of the ConfigMap: the digest of a configuration that we wrote without a restart."""

Marks = t.Mapping[str, "str | None"]
"""Our annotations of a pod template, ``None`` if missing."""

Drifted = t.Literal["config_map", "template", "running"]
"""What somebody else changed: the ConfigMap, the pod template's digest, or what the pods run."""

LOOPING_RESTARTS = 3
"""Restarts of a new pod's container, the last with CrashLoopBackOff, that make a rollout fail."""


def digest(config: t.Any) -> str:
    """A digest of what a configuration means, not how it is written; ``null`` counts as absent."""
    text = json.dumps(
        _bare(config), sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str
    )
    return "sha256-" + hashlib.sha256(text.encode()).hexdigest()


def _bare(value: t.Any) -> t.Any:
    if isinstance(value, dict):
        return {str(key): _bare(inner) for key, inner in value.items() if inner is not None}
    return [_bare(inner) for inner in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class DesiredConfig:
    """A configuration: its meaning, its text, and whether the user wrote that text."""

    config: t.Mapping[str, t.Any]
    text: str
    as_text: bool = False

    @property
    def digest(self) -> str:
        return digest(self.config)

    def instead_of(self, present: str | None, means: t.Any) -> str | None:
        """The text to replace ``present``, which parses to ``means``; ``None`` if it may stay."""
        if present == self.text or (
            present is not None and not self.as_text and digest(means) == self.digest
        ):
            return None
        return self.text


def annotations_of(workload: objects.Raw) -> objects.Raw:
    """The annotations of the pod template."""
    return (installation.template_of(workload).get("metadata") or {}).get("annotations") or {}


def marks_of(workload: objects.Raw) -> Marks:
    """Both annotations of the workload's pod template."""
    found = annotations_of(workload)
    return {name: found.get(name) for name in (DIGEST, RESTARTED)}


def mark_of(workload: objects.Raw) -> str | None:
    """The digest of the configuration with which the pods started, ``None`` if unknown."""
    return marks_of(workload)[DIGEST]


def noted(config_map: objects.Raw | None) -> str:
    """The digest of what we wrote to the ConfigMap without a restart."""
    found = ((config_map or {}).get("metadata") or {}).get("annotations") or {}
    return str(found.get(PENDING, ""))


def marking(marks: Marks, *, bare: bool = False, replicas: int | None = None) -> dict[str, t.Any]:
    """The patch of a Deployment's spec that sets our annotations, and its replicas if given.

    ``bare``: the template had no annotations at all, and is to have none again.
    """
    annotations = None if bare and not any(marks.values()) else dict(marks)
    template = {"metadata": {"annotations": annotations}}
    return (
        {"template": template} if replicas is None else {"template": template, "replicas": replicas}
    )


def with_dry_run(text: str, value: bool = True) -> str:
    """The configuration's text with ``dryRun`` at its top level, otherwise unchanged."""
    line = f"dryRun: {str(value).lower()}"
    changed, found = re.subn(r"(?m)^dryRun:.*?([ \t]+#.*)?$", rf"{line}\1", text, count=1)
    end = "" if not text or text.endswith("\n") else "\n"
    return changed if found else f"{text}{end}{line}\n"


@dataclass(frozen=True, slots=True)
class TerminatedContainer:
    """A terminated container of a new pod; ``words`` is its termination message.

    ``previous``: its log is the one of the container's previous instance.
    """

    pod: str
    container: str
    restarts: int
    looping: bool
    words: str
    previous: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a Deployment; ``waiting`` says what is missing until new pods are ready."""

    waiting: str
    pods: tuple[objects.Raw, ...]
    dead: tuple[TerminatedContainer, ...]

    @property
    def crash_looping(self) -> bool:
        """Whether a new pod crashes again and again."""
        return any(dead.looping and dead.restarts >= LOOPING_RESTARTS for dead in self.dead)


def progress(deployment: objects.Raw, pods: t.Iterable[objects.Raw]) -> Progress:
    """The progress of the Deployment with its present pod template."""
    marks = marks_of(deployment)
    new: list[objects.Raw] = []
    old: list[objects.Raw] = []
    for pod in pods:
        if (pod.get("status") or {}).get("phase") not in ("Failed", "Succeeded"):
            (new if _carries(pod, marks) else old).append(pod)
    dead = tuple(itertools.chain.from_iterable(map(_dead, new)))
    return Progress(_waiting(deployment, new, old), tuple(new), dead)


def _waiting(
    deployment: objects.Raw, new: t.Sequence[objects.Raw], old: t.Sequence[objects.Raw]
) -> str:
    spec = deployment["spec"]
    status = deployment.get("status") or {}
    wanted = spec.get("replicas", 1)
    ready = sum(_ready(pod) for pod in new)
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 0):
        return "the Deployment's controller has not processed the change yet"
    if status.get("updatedReplicas", 0) < wanted:
        return f"{status.get('updatedReplicas', 0)} of {wanted} new pods are created"
    if ready < wanted:
        return f"{ready} of {wanted} new pods are ready"
    if status.get("availableReplicas", 0) < wanted:
        return f"{status.get('availableReplicas', 0)} of {wanted} pods are available"
    if old or status.get("replicas", 0) > wanted:
        return (
            "old pods still exist: "
            f"{', '.join(pod['metadata']['name'] for pod in old) or 'not listed yet'}"
        )
    return ""


def restarts(pods: t.Iterable[objects.Raw]) -> list[tuple[str, int]]:
    """Each pod's name and the restarts of its containers; unchanged as long as none terminates."""
    found = []
    for pod in pods:
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        count = sum(status.get("restartCount", 0) for status in statuses)
        found.append((pod["metadata"]["name"], count))
    return sorted(found)


def _carries(pod: objects.Raw, marks: Marks) -> bool:
    found = pod["metadata"].get("annotations") or {}
    return all(found.get(name) == value for name, value in marks.items())


def _ready(pod: objects.Raw) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def _dead(pod: objects.Raw) -> t.Iterator[TerminatedContainer]:
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        now, last = status.get("state") or {}, status.get("lastState") or {}
        ended = now.get("terminated") or last.get("terminated")
        looping = (now.get("waiting") or {}).get("reason") == "CrashLoopBackOff"
        if ended or looping:
            yield TerminatedContainer(
                pod["metadata"]["name"],
                container=status.get("name", ""),
                restarts=status.get("restartCount", 0),
                looping=looping,
                words=(ended or {}).get("message") or "",
                previous=not now.get("terminated") and bool(now.get("running")),
            )


def last_words(text: str) -> str:
    """The line of a container's output that says why it terminated.

    A Go panic says so in its first line; cobra prints the error before the usage and again as the
    last line; klog puts a header before its message.
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


def leadership(lease: objects.Raw, deployment: str, pods: t.Collection[objects.Raw]) -> str:
    """Why none of the pods is the Lease's holder; the empty string if one is.

    If host names are not the pods' names (on the host's network, without a container), only times
    can tell: a leader that took over after the first of the pods had started is one of them.
    """
    spec = lease.get("spec") or {}
    holder = spec.get("holderIdentity") or ""
    if not holder:
        return "the lease has no holder yet"
    # The holder is <host name>_<id>.
    host = holder.rpartition("_")[0] or holder
    if any(host in _hosts(pod) for pod in pods):
        return ""
    starts = [str((pod.get("status") or {}).get("startTime") or "") for pod in pods]
    acquired = str(spec.get("acquireTime") or "")[:19]
    if holder.startswith(f"{deployment}-") or not all(starts) or acquired < min(starts)[:19]:
        return f"the lease is still held by {holder}"
    return ""


def _hosts(pod: objects.Raw) -> set[str | None]:
    """The host names that the pod's processes may see; on its host's network, the node's."""
    spec = pod.get("spec") or {}
    return {
        pod["metadata"]["name"],
        spec.get("hostname"),
        spec.get("nodeName") if spec.get("hostNetwork") else None,
    }


def pending(mark: str | None, desired: DesiredConfig, before: str, *, changes: bool) -> str:
    """The digest to note as written without a restart, if nothing is restarted;
    ``before`` is the one that is noted.

    The other arguments are those of ``restart_reason``.
    """
    if not changes:
        return before
    return desired.digest if mark != desired.digest else ""


def restart_reason(
    mark: str | None,
    desired: DesiredConfig,
    *,
    changes: bool,
    conflicts: t.Sequence[str] | None,
    asked: bool = False,
) -> str:
    """Why the pods must restart, or the empty string. ``mark`` is the digest on the pod template.

    ``changes``: the meaning of the ConfigMap's text changes. ``conflicts``: how the running
    configuration differs from the desired one, ``None`` if that is unknown.
    """
    if asked:
        return "a restart was requested"
    if conflicts:
        return f"another configuration runs ({conflicts[0]})"
    if mark == desired.digest:
        drifted = changes and conflicts is None
        if drifted:
            return (
                "its ConfigMap was changed by someone else, and its pods may have started with that"
            )
        return ""
    if mark is not None:
        return "its pods started with another configuration"
    if changes:
        return "the configuration changes"
    return "the configuration with which its pods started is unknown" if conflicts is None else ""


def drifted(
    mark: str | None, desired: DesiredConfig, *, changes: bool, conflicts: t.Sequence[str] | None
) -> tuple[Drifted, ...]:
    """What no longer is as a rollout of the desired configuration left it;
    arguments as for ``restart_reason``.

    The first rollout of a configuration finds no drift, whatever it replaces.
    """
    rolled_out = mark == desired.digest
    found: dict[Drifted, bool] = {
        "config_map": rolled_out and changes,
        "template": not rolled_out and mark is not None and not changes,
        "running": bool(conflicts) and (rolled_out or not changes),
    }
    return tuple(what for what, is_so in found.items() if is_so)
