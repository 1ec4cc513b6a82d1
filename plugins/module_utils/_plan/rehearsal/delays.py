# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""How long the pods of a workload take to start and to stop on the copy, from what the real pods did."""

from __future__ import annotations

import collections
import statistics
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects

STOP = "lab.kubeops.io/stop"
START = "lab.kubeops.io/start"
READY = "lab.kubeops.io/ready"
SHORTEST = 1.0
"""Seconds a copy takes to stop at least. A pod of a StatefulSet that ends at once counts as disrupted for two minutes:
its successor has its name, and the controller of budgets knows evicted pods by their names."""

Key = tuple[str, str, str]
"""Namespace, kind and name of a workload."""


def text(seconds: float) -> str:
    """As the lab's annotations have it."""
    return f"{round(seconds * 1000)}ms"


def starts(pods: t.Iterable[objects.Raw], key_of: t.Callable[[objects.Raw], Key | None]) -> dict[Key, float]:
    """Seconds from bound to ready by workload: the median of its pods, whose times have a resolution of a second."""
    known = collections.defaultdict[Key, list[float]](list)
    for pod in pods:
        key, seconds = key_of(pod), pod["status"].get("start")
        if key and seconds is not None:
            known[key].append(seconds)
    return {key: statistics.median(found) for key, found in known.items()}


def never_ready(pods: t.Iterable[objects.Raw], key_of: t.Callable[[objects.Raw], Key | None]) -> set[Key]:
    """Workloads whose pods run, and none of which is ready: nor will their successors be."""
    known = collections.defaultdict[Key, list[bool]](list)
    for pod in pods:
        if (key := key_of(pod)) and pod["status"].get("phase") == "Running":
            known[key].append(bool(pod["status"].get("ready")))
    return {key for key, found in known.items() if not any(found)}


def stop(meta: objects.Raw, spec: objects.Raw, usual: float) -> str:
    """How long a pod takes to stop: as a lab says, else what it sleeps before, else and besides the usual time."""
    if told := (meta.get("annotations") or {}).get(STOP):
        short = told in ("0s", "0ms", "0m")
        return text(SHORTEST) if short else str(told)
    return text(max(usual, SHORTEST) + float(spec.get("preStopSeconds") or 0))
