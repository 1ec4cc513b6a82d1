# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a pod's kubelet says of containers that do not start or are not ready."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import printable

Raw = t.Mapping[str, t.Any]

NORMAL = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons for which every new container waits."""
FAILED_PULL = "ErrImagePull"
"""Kubelets name the last attempt while they wait for the next one (ImagePullBackOff)."""
RESTARTS = 3
"""Restarts after which a container that runs for the moment counts as one that does not start."""
LONGEST = 300
"""Characters of one message; a container writes its own."""


class Trouble(t.NamedTuple):
    """What keeps a pod from being ready; ``stuck``: its kubelet has tried to
    start it, and could not.
    """

    text: str = ""
    stuck: bool = False


NONE = Trouble()


def trouble(status: Raw) -> Trouble:
    """Nothing for a pod that is ready, or whose containers are being made."""
    ready: Raw = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), {})
    if ready.get("status") == "True":
        return NONE
    begun = status.get("initContainerStatuses") or ()
    containers = status.get("containerStatuses") or ()
    for one in (*begun, *containers):
        if text := _stuck(one):
            return Trouble(f"container {one.get('name')}: {text}", stuck=True)
    for one in begun:
        if "running" in (one.get("state") or {}) and not one.get("ready"):
            return Trouble(f"init container {one.get('name')} is running")
    for one in containers:
        if "running" in (one.get("state") or {}) and not one.get("ready"):
            probe = "its startup probe" if one.get("started") is False else "being ready"
            return Trouble(f"container {one.get('name')} is running, without {probe} so far")
    gates = ready.get("message") if ready.get("reason") == "ReadinessGatesNotReady" else ""
    return Trouble(printable.line(gates or status.get("message") or "", LONGEST))


def _stuck(container: Raw) -> str:
    """Why the container does not start, in the words of its kubelet and of the container itself.

    They stay the same from one attempt to the next, so that a wait for it is told once.
    """
    waiting = (container.get("state") or {}).get("waiting") or {}
    ended = (container.get("lastState") or {}).get("terminated") or {}
    reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    if (
        ended
        and not container.get("ready")
        and (reason or (container.get("restartCount") or 0) >= RESTARTS)
    ):
        how = f"{ended.get('reason') or 'ended'}, exit code {ended.get('exitCode')}"
        return _line(reason or "CrashLoopBackOff", how, str(ended.get("message") or ""))
    if reason in NORMAL:
        return ""
    _pause, attempt, error = message.partition(f"{FAILED_PULL}: ")
    return _line(FAILED_PULL if attempt else reason, error or message)


def _line(*words: str) -> str:
    return printable.line(": ".join(filter(None, words)), LONGEST)
