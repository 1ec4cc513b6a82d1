# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan's `estimate_seconds` beside what the run takes, from the first cordon to the last node given back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from support.arena import Arena
from support.plays import Player
from support.waiting import until
from support.watching import Seen, Watch

WITHIN = 0.20

Made = Mapping[str, Any]
"""The variables of the run; `maintain_nodes` are those to maintain."""


def slow(start: int, stop: int) -> dict[str, Any]:
    """Pods that take so many seconds to be Ready, and their whole grace period to end: it is short because of that."""
    return {"start": f"{start}s", "stop": f"{stop}s", "pod": {"terminationGracePeriodSeconds": stop}}


def guarded(arena: Arena) -> Made:
    node, _one, _two = arena.nodes(3)
    arena.deployment("web", 4, on=node, **slow(10, 6))
    return {"maintain_nodes": [node]}


def budget_of_two(arena: Arena) -> Made:
    node, _one, _two = arena.nodes(3)
    arena.deployment("web", 8, on=node, budget={"maxUnavailable": 2}, **slow(12, 8))
    return {"maintain_nodes": [node]}


def surge(arena: Arena) -> Made:
    node, _one, _two = arena.nodes(3)
    for name in ("one", "two", "three"):
        arena.deployment(name, on=node, **slow(25, 20))
    return {"maintain_nodes": [node]}


def surges_and_evictions(arena: Arena) -> Made:
    node, _one, _two = arena.nodes(3)
    arena.deployment("single", on=node, **slow(20, 10))
    arena.deployment("web", 4, on=node, budget={"maxUnavailable": 1}, **slow(10, 5))
    arena.statefulset("db", 3, on=node, budget={"maxUnavailable": 1}, **slow(8, 4))
    return {"maintain_nodes": [node]}


def slow_ends(arena: Arena) -> Made:
    node, _one, _two = arena.nodes(3)
    arena.deployment("web", 6, on=node, budget={"maxUnavailable": 2}, **slow(8, 30))
    return {"maintain_nodes": [node]}


def stateful(arena: Arena) -> Made:
    node, _one, _two = arena.nodes(3)
    parallel = {"podManagementPolicy": "Parallel"}
    arena.statefulset("db", 3, on=node, budget={"maxUnavailable": 1}, spec=parallel, **slow(8, 8))
    return {"maintain_nodes": [node]}


def stateful_in_order(arena: Arena) -> Made:
    node, _one, _two = arena.nodes(3)
    arena.statefulset("db", 4, on=node, budget={"maxUnavailable": 2}, **slow(14, 8))
    return {"maintain_nodes": [node]}


def two_nodes_of_a_wave(arena: Arena) -> Made:
    one, two, _three, _four = arena.nodes(4)
    arena.deployment("web", 4, on=[one, one, two, two], budget={"maxUnavailable": 1}, **slow(10, 5))
    arena.deployment("single", on=two, **slow(15, 15))
    return {"maintain_nodes": [one, two], "maintain_serial": 2}


def wave_after_wave(arena: Arena) -> Made:
    one, two, three, _four = arena.nodes(4)
    for name, node in (("red", one), ("green", two), ("blue", three)):
        arena.deployment(name, on=node, **slow(10, 12))
    return {"maintain_nodes": [one, two, three], "maintain_serial": 1}


def settled_surges(arena: Arena) -> Made:
    node, _one, _two = arena.nodes(3)
    for name in ("one", "two"):
        arena.deployment(name, on=node, spec={"minReadySeconds": 12}, **slow(12, 20))
    return {"maintain_nodes": [node]}


def early(arena: Arena) -> Made:
    """The usual ones: they have the default grace period, and do not need it."""
    node, _one, _two = arena.nodes(3)
    arena.deployment("web", 4, on=node, start="6s", stop="1s")
    arena.deployment("single", on=node, start="8s", stop="3s")
    return {"maintain_nodes": [node]}


def rolled_out(arena: Arena) -> Made:
    """They tell by their last rollout how much of the default grace period they need."""
    node, _one, _two = arena.nodes(3)
    db = arena.statefulset("db", 3, on=node, budget={"maxUnavailable": 1}, start="5s", stop="12s")
    arena.settle(within=120)
    with arena.placing(node):
        db.patch({"spec": {"template": {"metadata": {"annotations": {"rollout": "1"}}}}})
        until(
            lambda: [pod["metadata"]["annotations"].get("rollout") for pod in db.pods()] == ["1"] * 3, 120, "it is over"
        )
        arena.settle(within=60)
    return {"maintain_nodes": [node]}


CLUSTERS = [
    guarded,
    budget_of_two,
    surge,
    surges_and_evictions,
    slow_ends,
    stateful,
    stateful_in_order,
    two_nodes_of_a_wave,
    wave_after_wave,
    settled_surges,
    early,
    rolled_out,
]
UNKNOWN = (slow_ends,)
"""What nothing tells before: that pods use all of the default grace period."""


def span(seen: Seen, nodes: list[str]) -> float:
    """Seconds from the first cordon to the last node given back."""
    shut = [seen.when("Node", name, lambda node: bool(node["spec"].get("unschedulable"))) for name in nodes]
    back = [
        seen.when("Node", name, lambda node: not node["spec"].get("unschedulable"), after=at)
        for name, at in zip(nodes, shut, strict=True)
    ]
    return max(back) - min(shut)


@pytest.mark.whole
@pytest.mark.parametrize("method", ["replace", "surge"])
@pytest.mark.parametrize("made", CLUSTERS, ids=lambda made: made.__name__)
def test_a_run_takes_as_long_as_its_plan_says(
    arena: Arena, play: Player, watching: Watch, made: Callable[[Arena], Made], method: str
) -> None:
    wanted = made(arena)
    arena.settle(within=120)
    with watching() as seen:
        run = play("maintain", within=400, maintain_method=method, **wanted)
    assert run.ok, run.text
    seen.all_held()
    plan = run.of("maintenance_plan")[0]
    foreseen, (least, most) = plan["estimate_seconds"], plan["estimate_range"]
    took = span(seen, list(wanted["maintain_nodes"]))
    print(
        f"{made.__name__}, {method}: {foreseen} s foreseen of {least} to {most}, {took:.1f} s taken "
        f"({took / foreseen:.2f}): {plan['wave_parts']}"
    )
    assert least * (1 - WITHIN) <= took <= most * (1 + WITHIN)
    assert abs(took / foreseen - 1) <= WITHIN or made in UNKNOWN
