# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Scenes with nodes and workloads of their own, made anew for each measurement:
drains, and whole rolls.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from support.arena import Arena, arena_name
from support.lab import Lab
from support.waiting import until
from witness import audit

from bench import machine, measure, scenes
from bench.targets import EVACUATE_AGAIN
from bench.tools import Ended, Ours
from bench.trials import Trial

DRAIN = "node_drain"
Act = Callable[[Sequence[str]], Ended]
ROOM = {"resources": {"requests": {"cpu": "500m"}}}
"""64 of these pods fit on a node of an arena, which has 32 CPUs."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """`leaving` nodes full of pods, and `staying` ones that are empty; times in seconds.

    `budget` is the `maxUnavailable` of each Deployment's budget.
    """

    leaving: int
    staying: int
    deployments: int
    replicas: int
    budget: str | int
    start: int = 0
    stop: int = 0

    @property
    def pods(self) -> int:
        return self.deployments * self.replicas

    @property
    def turn(self) -> int:
        """Seconds from the eviction of a pod until it is gone and its replacement ready."""
        return max(self.start, self.stop)

    def bound(self, nodes: int) -> float:
        """Seconds that the budgets demand of whoever evicts all pods of so
        many full nodes at once.
        """
        text = str(self.budget)
        at_once = (
            math.ceil(self.replicas * int(text[:-1]) / 100) if text.endswith("%") else int(text)
        )
        return math.ceil(self.replicas * nodes / self.leaving / at_once) * self.turn

    def settled(self, arena: Arena) -> tuple[list[str], list[str]]:
        """Make everything; returns the nodes that are full, and those that are empty,
        once nothing moves any more.
        """
        nodes = arena.nodes(self.leaving + self.staying)
        leaving, staying = nodes[: self.leaving], nodes[self.leaving :]
        for node in staying:
            arena.cordon(node)
        pod = {"containers": [{"name": "main", "image": "registry.invalid/app:1", **ROOM}]}
        start, stop = f"{self.start}s", f"{self.stop}s"
        for number in range(1, self.deployments + 1):
            budget = {"maxUnavailable": self.budget}
            name = f"app-{number:03d}"
            arena.deployment(
                name, self.replicas, budget=budget, service=False, start=start, stop=stop, pod=pod
            )
        arena.settle(within=600)
        for node in staying:
            arena.cordon(node, on=False)
        return leaving, staying


def drain(
    lab: Lab,
    scene: str,
    fleet: Fleet,
    name: str,
    act: Act,
    repetition: int,
    only: int | None = None,
) -> Trial:
    """The full nodes, or the first `only` of them, are drained onto the others."""
    arena = Arena(lab.api, arena_name("drain"))
    try:
        leaving = fleet.settled(arena)[0][:only]
        pods = sum(pod["spec"].get("nodeName") in leaving for pod in arena.all("Pod"))
        ended, start, spent, busy = _measured(lab, act, leaving)
        # One that gave up leaves pods behind.
        until(lambda: not _ending(arena, leaving), 120, "all evicted pods are gone")
        known = scenes.logged(lab, start)
        found = measure.drained(known, len(leaving))
        numbers = {
            "pods": pods,
            **scenes.drain_numbers(ended, found),
            "cpu_seconds": round(spent, 2),
        }
        numbers |= {"bound_seconds": fleet.bound(len(leaving)), **_evictions(known)}
        return Trial(scene, name, repetition, ended.outcome, numbers, dict(found.requests), busy)
    finally:
        arena.clear()


def roll(
    lab: Lab, scene: str, fleet: Fleet, name: str, act: Act, repetition: int, at_once: int = 1
) -> Trial:
    """All full nodes go out of service and back; the empty ones only take pods.

    Seconds count from the first write to the last answer. `turns_seconds` is what each wave waits
    at least: for a pod to stop and for its replacement to start.
    """
    arena = Arena(lab.api, arena_name("roll"))
    try:
        leaving, _staying = fleet.settled(arena)
        ended, start, spent, busy = _measured(lab, act, leaving)
        known = scenes.logged(lab, start)
        client = [request for request in known if not request.by_the_system]
        found = measure.drained(known, len(leaving))
        seconds = max(r.ended for r in client) - min(r.at for r in client if r.writes)
        waves = math.ceil(fleet.leaving / at_once)
        numbers = {
            "pods": fleet.pods,
            "moves_per_pod": round(found.gone / fleet.pods, 3),
            "seconds": round(seconds, 1),
            "waves": waves,
            "turns_seconds": waves * fleet.turn,
            "pods_per_second": round(fleet.pods / seconds, 2),
            "requests": len(client),
            "requests_per_pod": round(len(client) / fleet.pods, 3),
            "refusals": found.refused,
            "wall_seconds": round(ended.wall, 1),
            "cpu_seconds": round(spent, 1),
            **ended.memory,
            **_beside(ended, waves),
        }
        return Trial(scene, name, repetition, ended.outcome, numbers, measure.by_kind(client), busy)
    finally:
        arena.clear()


def evacuated_again(lab: Lab, fleet: Fleet, ours: Ours, repetition: int) -> Trial:
    """`evacuate` of nodes that are out of service and empty."""
    arena = Arena(lab.api, arena_name("evacuate"))
    try:
        leaving, _staying = fleet.settled(arena)
        ended = ours.evacuate(leaving)
        if ended.outcome != "drained":
            raise RuntimeError(f"the nodes could not be evacuated: {ended.outcome}")
        trial = scenes.again(
            lab, EVACUATE_AGAIN, ours.name, lambda: ours.evacuate(leaving), repetition
        )
        ours.playbook("release", leaving)
        return replace(trial, numbers={**trial.numbers, "nodes": fleet.leaving})
    finally:
        arena.clear()


def _beside(ended: Ended, waves: int) -> dict[str, float]:
    """What a wave took beside its drain, on average of the whole run,
    and how large the largest results are.
    """
    if DRAIN not in ended.tasks:
        return {}
    beside = (ended.wall - ended.tasks[DRAIN]) / waves
    kb = {name: round(size / 1000, 1) for name, size in ended.results.items()}
    plan = kb.pop("maintenance_plan", 0.0)
    return {
        "wave_seconds_beside_drain": round(beside, 2),
        "plan_result_kb": plan,
        "other_result_kb": max(kb.values()),
    }


def _measured(lab: Lab, act: Act, nodes: Sequence[str]) -> tuple[Ended, int, float, float]:
    """How it ended, where its requests begin in the log, its seconds of processor,
    and how busy the machine was.
    """
    busy, start, spent = scenes.resting(lab), scenes.mark(lab), machine.processor()
    ended = act(nodes)
    return ended, start, machine.processor() - spent, busy


def _ending(arena: Arena, nodes: Sequence[str]) -> list[str]:
    ending = [pod for pod in arena.all("Pod") if pod["metadata"].get("deletionTimestamp")]
    return [pod["metadata"]["name"] for pod in ending if pod["spec"].get("nodeName") in nodes]


def _evictions(requests: Sequence[audit.Request]) -> dict[str, float]:
    """Seconds that accepted evictions took to be answered."""
    took = [
        request.ended - request.at for request in requests if request.evicts and request.accepted
    ]
    if not took:
        return {}
    return {
        "eviction_median": round(statistics.median(took), 4),
        "eviction_worst": round(max(took), 4),
    }
