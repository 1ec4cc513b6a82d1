# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers from the witness's log: how long dark, how many new pods, which values. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from witness import objects as o
from witness.log import Json, Log, Moment, World


def dark_spans(log: Log, namespace: str, service: str) -> list[tuple[float, float]]:
    """Spans (seconds since the log's beginning) in which a Service had no ready endpoint.

    Only while a workload behind it wants a pod; a span that lasts until the end ends there.
    """
    spans: list[tuple[float, float]] = []
    dark_since: float | None = None
    for moment in log.moments():
        if moment.event is not None and o.namespace(moment.event.obj) != namespace:
            continue
        dark = _dark(moment.world, namespace, service)
        if dark and dark_since is None:
            dark_since = moment.at
        elif not dark and dark_since is not None:
            spans.append((dark_since, moment.at))
            dark_since = None
    if dark_since is not None:
        spans.append((dark_since, log.ended - log.began))
    return spans


def _dark(world: World, namespace: str, service: str) -> bool:
    found = world.get("Service", namespace, service)
    if found is None or o.ready_endpoints(found, world) > 0:
        return False
    return any(
        o.replicas(workload) > 0 and o.serves(found, workload["spec"]["template"]["metadata"].get("labels") or {})
        for kind in ("Deployment", "StatefulSet", "ReplicaSet")
        for workload in world.of(kind, namespace)
    )


def dark_seconds(log: Log, namespace: str, service: str) -> float:
    return sum(end - start for start, end in dark_spans(log, namespace, service))


def new_pods(log: Log, kind: str, namespace: str, name: str) -> list[str]:
    """Names of the pods that a workload got during the watch, each pod (UID) once."""
    known: set[str] = set()
    found: list[str] = []
    for moment in log.moments():
        for pod in _pods_of(moment, namespace):
            if o.uid(pod) not in known:
                known.add(o.uid(pod))
                if moment.event is not None and o.top_owner(pod, moment.world) == (kind, name):
                    found.append(o.name(pod))
    return found


def _pods_of(moment: Moment, namespace: str) -> Iterator[Json]:
    if moment.event is None:
        yield from moment.world.of("Pod", namespace)
    elif moment.event.kind == "Pod" and o.namespace(moment.event.obj) == namespace:
        yield moment.event.obj


def least_ready(log: Log, kind: str, namespace: str, name: str) -> int:
    """The fewest pods of a workload that were ready at any moment."""
    counts = [
        sum(
            o.ready(pod) and o.top_owner(pod, moment.world) == (kind, name) for pod in moment.world.of("Pod", namespace)
        )
        for moment in log.moments()
        if moment.event is None or moment.event.kind == "Pod"
    ]
    return min(counts)


def least_serving(log: Log, namespace: str, service: str) -> int:
    """The fewest ready endpoints that a Service had at any moment."""
    return min(
        o.ready_endpoints(found, moment.world)
        for moment in log.moments()
        if (found := moment.world.get("Service", namespace, service))
        and (moment.event is None or moment.event.kind == "EndpointSlice")
    )


def values(log: Log, kind: str, namespace: str, name: str, *path: str) -> list[object]:
    """The values that a field went through, each once per change; None where it is absent."""
    found: list[object] = []
    for moment in log.moments():
        if moment.event is not None and moment.event.key != (kind, namespace, name):
            continue
        place: object = moment.world.get(kind, namespace, name)
        for step in path:
            place = place.get(step) if isinstance(place, dict) else None
        if not found or found[-1] != place:
            found.append(place)
    return found


def appeared(log: Log, kind: str) -> list[Json]:
    """Objects of a kind that came during the watch, as first seen, each (UID) once."""
    known: set[str] = set()
    found: list[Json] = []
    for moment in log.moments():
        if moment.event is None:
            known |= {o.uid(obj) for obj in moment.world.of(kind)}
        elif moment.event.kind == kind and o.uid(moment.event.obj) not in known:
            known.add(o.uid(moment.event.obj))
            found.append(moment.event.obj)
    return found


def taken_out(log: Log) -> list[str]:
    """Nodes in the order in which they were cordoned during the watch."""
    found: list[str] = []
    cordoned: set[str] = set()
    for moment in log.moments():
        nodes = moment.world.of("Node") if moment.event is None else []
        if moment.event is not None and moment.event.kind == "Node":
            nodes = [moment.event.obj]
        for node in nodes:
            if not node["spec"].get("unschedulable"):
                cordoned.discard(o.name(node))
            elif o.name(node) not in cordoned:
                cordoned.add(o.name(node))
                if moment.event is not None:
                    found.append(o.name(node))
    return found


def emptied_in(log: Log, node: str) -> float | None:
    """Seconds from a node's first cordon until no pod is on it that had to go; None if one stayed while it lasted."""
    shut: float | None = None
    empty: float | None = None
    for moment in log.moments():
        if moment.event is not None and moment.event.kind not in ("Node", "Pod"):
            continue
        cordoned = bool((moment.world.get("Node", "", node) or {"spec": {}})["spec"].get("unschedulable"))
        if shut is None and cordoned:
            shut = moment.at
        if shut is not None and not cordoned:
            break
        here = [pod for pod in moment.world.of("Pod") if pod["spec"].get("nodeName") == node]
        if any(o.has_to_go(pod, moment.world) for pod in here):
            empty = None
        elif empty is None:
            empty = moment.at
    return None if shut is None or empty is None else max(empty, shut) - shut
