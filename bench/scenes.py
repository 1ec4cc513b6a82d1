# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is measured: each scene is one tool doing one thing once, judged from the outside."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from support.arena import Arena, arena_name
from support.lab import Lab
from support.plays import NAMESPACE
from support.waiting import until
from support.watching import Watching
from witness import audit
from witness import objects as o

from bench import machine, measure, targets, workload
from bench.tools import Ended, Ours, Tool
from bench.trials import BARE, OURS, Trial

SINGLES = 5
"""Single-replica Deployments in the scene of the surge."""
WAY_PODS, WAY_START = 12, "1s"
"""Pods of the node in the scene of the backends, and how long their successors take to start."""
NO_OP_CALLS = 10
START = "5s"
"""How long a pod of theirs takes to start."""
SETTLE = 2.0
"""Seconds that a new pod of ours has to serve before the old one may end, by default."""


def resting(lab: Lab, attempts: int = 20) -> float:
    """Cores that others than the lab keep busy, in a moment of quiet if there is one soon."""
    busy = 0.0
    for _attempt in range(attempts):
        busy = machine.busy_with_others(str(lab.audit_log.parent.parent))
        if busy <= targets.QUIET:
            break
    return busy


def mark(lab: Lab) -> int:
    """Where the audit log ends now; a lab's log is never rotated."""
    return lab.audit_log.stat().st_size


def logged(lab: Lab, start: int) -> list[audit.Request]:
    """The requests since that place."""
    return audit.read(lab.audit_log, start, mark(lab))


def drain(lab: Lab, tool: Tool, count: int, scene: str, repetition: int) -> list[Trial]:
    """`count` of the fullest nodes, drained by one tool, and asked again where that succeeded."""
    workload.level(lab.api)
    nodes = workload.fullest(lab.api, count)
    pods = workload.pods_there(lab.api, nodes)
    busy, start, spent = resting(lab), mark(lab), machine.processor()
    ended = tool.drain(nodes)
    spent = machine.processor() - spent
    until(lambda: not _ending(lab, nodes), 60, "all evicted pods are gone")
    found = measure.drained(logged(lab, start), count)
    left = len(pods & workload.pods_there(lab.api, nodes))
    numbers = {
        "pods": len(pods),
        "left": left,
        **drain_numbers(ended, found),
        "cpu_seconds": round(spent, 2),
    }
    trials = [
        Trial(scene, tool.name, repetition, ended.outcome, numbers, dict(found.requests), busy)
    ]
    if ended.outcome == "drained" and count == 1 and not tool.name.startswith(BARE):
        trials.append(again(lab, "a second call", tool.name, lambda: tool.drain(nodes), repetition))
    tool.give_back(nodes)
    workload.shut(lab.api, ())
    return trials


def _ending(lab: Lab, nodes: Sequence[str]) -> list[str]:
    return [
        o.name(pod)
        for pod in lab.api.items(workload.PODS_PATH)
        if pod["metadata"].get("deletionTimestamp") and pod["spec"].get("nodeName") in nodes
    ]


def drain_numbers(ended: Ended, found: measure.Drained) -> dict[str, float]:
    """What a drain cost, by the audit log and by its processes."""
    numbers: dict[str, float] = {
        "evicted": found.evicted,
        "seconds": round(found.seconds, 3),
        "pods_per_second": round(found.rate, 2),
        "requests": found.total,
        "requests_per_pod": round(found.per_pod, 3),
        "refusals": found.refused,
        "wall_seconds": round(ended.wall, 2),
        **ended.memory,
    }
    numbers |= {f"{name}_seconds": seconds for name, seconds in ended.tasks.items()}
    if call := found.call:
        numbers |= {
            "call_requests": call.total,
            "call_bound": call.bound,
            "call_evictions": call.evictions,
            "call_refusals": call.refusals,
            "call_lease_renewals": call.renewals,
            "call_rest": call.rest,
        }
    return numbers


def again(lab: Lab, scene: str, tool: str, act: Callable[[], Ended], repetition: int) -> Trial:
    """A call that finds nothing to do: what it costs."""
    busy, start = resting(lab), mark(lab)
    ended = act()
    client = [request for request in logged(lab, start) if not request.by_the_system]
    numbers: dict[str, float] = {
        "requests": len(client),
        "writes": sum(request.writes for request in client),
        "wall_seconds": round(ended.wall, 2),
    }
    if ended.tasks:
        numbers["task_seconds"] = round(sum(ended.tasks.values()), 3)
    numbers |= {f"{name}_seconds": seconds for name, seconds in ended.tasks.items()}
    return Trial(scene, tool, repetition, ended.outcome, numbers, measure.by_kind(client), busy)


def release(lab: Lab, ours: Ours, repetition: int) -> Trial:
    """`release` for all nodes, when nothing is to do."""
    nodes = [o.name(node) for node in lab.api.items("/api/v1/nodes")]
    scene = f"release of {len(nodes)} nodes, nothing to do"
    return again(lab, scene, OURS, lambda: ours.playbook("release", nodes), repetition)


def no_ops(
    lab: Lab, name: str, act: Callable[[Sequence[str], int], Ended], repetition: int
) -> Trial:
    """Ten calls in a row that change nothing."""
    nodes = [o.name(lab.api.items("/api/v1/nodes")[0])]
    return again(lab, targets.NO_OPS, name, lambda: act(nodes, NO_OP_CALLS), repetition)


def surge(
    lab: Lab, folder: Path, name: str, act: Callable[[Sequence[str]], Ended], repetition: int
) -> Trial:
    """Single-replica Deployments that take a while to start leave their node: who goes dark?

    It has nodes and a namespace of its own; the witness of the tests watches the Services.
    """
    arena = Arena(lab.api, arena_name(f"surge-{name.replace('.', '-')}"))
    try:
        leaving, _staying = arena.nodes(2)
        with arena.placing(leaving):
            apps = [arena.deployment(f"single-{n}", start=START) for n in range(1, SINGLES + 1)]
        arena.settle()
        busy = resting(lab)
        before = {o.name(pod) for pod in arena.pods(on=leaving)}
        with Watching(arena, lab, folder) as seen:
            ended = act([leaving])
            arena.settle()
        dark = [seen.dark_seconds(app) for app in apps]
        writes = [request.at for request in seen.writes]
        gone = [
            event.wall
            for event in seen.log.events
            if event.type == "DELETED" and o.name(event.obj) in before
        ]
        span = max(gone) - min(writes)
        numbers = {
            "pods": len(before),
            "seconds": round(span, 2),
            "seconds_per_pod": round(span / len(before), 2),
            "seconds_beside_start": round(span - float(START.rstrip("s")), 2),
            "seconds_beside_start_and_settle": round(span - float(START.rstrip("s")) - SETTLE, 2),
            "dark_seconds_median": round(statistics.median(dark), 2),
            "dark_seconds_worst": round(max(dark), 2),
            "new_pods": sum(len(seen.new_pods(app)) for app in apps),
            "requests": len(seen.requests),
            "requests_per_pod": round(len(seen.requests) / len(before), 2),
            "wall_seconds": round(ended.wall, 2),
        }
        requests = measure.by_kind(seen.requests)
        return Trial("surge", name, repetition, ended.outcome, numbers, requests, busy)
    finally:
        arena.clear()


def backends(lab: Lab, folder: Path, ours: Ours, backend: str, repetition: int) -> Trial:
    """A node whose pods leave in one of our own ways; Koordinator is there,
    configured as its chart has it.

    Each pod is of another Deployment, so that the limit of a workload in five minutes holds nobody.
    """
    arena = Arena(lab.api, arena_name(f"way-{backend}"))
    container = {
        "name": "main",
        "image": "registry.invalid/app:1",
        "resources": {"requests": {"cpu": "10m"}},
    }
    pod = {"schedulerName": "koord-scheduler", "containers": [container]}
    try:
        leaving, *_others = arena.nodes(3)
        with arena.placing(leaving):
            apps = [
                arena.deployment(
                    f"app-{n}",
                    start=WAY_START,
                    pod=pod,
                    service=False,
                    budget={"maxUnavailable": 1},
                )
                for n in range(1, WAY_PODS + 1)
            ]
        arena.cordon(leaving)
        for app in apps:
            app.scale(3)
        arena.settle()
        arena.cordon(leaving, on=False)
        busy, start = resting(lab), mark(lab)
        before = {o.name(pod) for pod in arena.pods(on=leaving)}
        with Watching(arena, lab, folder) as seen:
            ended = ours.by_backend(backend)([leaving])
            arena.settle()
        known = logged(lab, start)
        mine = [request for request in known if request.agent.startswith(NAMESPACE)]
        koord = [
            request for request in known if request.agent.startswith("koord-") and request.writes
        ]
        gone = [
            event.wall
            for event in seen.log.events
            if event.type == "DELETED" and o.name(event.obj) in before
        ]
        span = max(gone) - min(request.at for request in mine if request.writes)
        numbers = {
            "pods": len(before),
            "seconds": round(span, 2),
            "seconds_per_pod": round(span / len(before), 2),
            "requests": len(mine),
            "requests_per_pod": round(len(mine) / len(before), 2),
            "koordinator_writes_per_pod": round(len(koord) / len(before), 2),
            "wall_seconds": round(ended.wall, 2),
        }
        return Trial(
            "backends",
            f"backend {backend}",
            repetition,
            ended.outcome,
            numbers,
            measure.by_kind(mine),
            busy,
        )
    finally:
        arena.clear()
