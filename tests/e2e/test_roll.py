# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A roll through all nodes, one after the other: how often pods move."""

from __future__ import annotations

import pytest
from support.arena import Arena, Workload
from support.plays import Player
from support.watching import Seen, Watch

PODS_PER_NODE = 20
ROOM = {"resources": {"requests": {"cpu": "1400m"}}}
"""22 of these pods fit on a node of the arena, which has 32 CPUs."""


def fleet(arena: Arena, count: int, per_node: int = PODS_PER_NODE) -> list[Workload]:
    """As many Deployments as a node has pods, each with as many pods as there are nodes."""
    pod = {"containers": [{"name": "main", "image": "registry.invalid/app:1", **ROOM}]}
    budget = {"maxUnavailable": "10%"}
    made = [
        arena.deployment(f"app-{number}", count, pod=pod, budget=budget, service=False, start="1s", stop="1s")
        for number in range(per_node)
    ]
    arena.settle(within=300)
    return made


def moves(seen: Seen, workloads: list[Workload]) -> int:
    """Each move brings one new pod."""
    return sum(len(seen.new_pods(workload)) for workload in workloads)


@pytest.mark.whole
@pytest.mark.parametrize("count", [20, 100])
def test_with_a_spare_node_each_pod_moves_once(arena: Arena, play: Player, watching: Watch, count: int) -> None:
    *nodes, spare = arena.nodes(count + 1)
    arena.cordon(spare)
    workloads = fleet(arena, count)
    arena.cordon(spare, False)
    with watching() as seen:
        run = play("maintain", within=40 * count, maintain_nodes=nodes, maintain_serial=1)
    moved = moves(seen, workloads)
    print(f"{moved} moves of {count * PODS_PER_NODE} pods on {count} nodes, with a spare one")
    assert run.ok, run.text
    seen.all_held()
    assert moved == count * PODS_PER_NODE


@pytest.mark.whole
def test_without_a_spare_node_only_the_pods_of_the_first_move_again(
    arena: Arena, play: Player, watching: Watch
) -> None:
    nodes = arena.nodes(20)
    workloads = fleet(arena, len(nodes))
    pods = len(nodes) * PODS_PER_NODE
    with watching() as seen:
        run = play("maintain", within=800, maintain_nodes=nodes, maintain_serial=1)
    moved = moves(seen, workloads)
    print(f"{moved} moves of {pods} pods on {len(nodes)} nodes, without a spare one")
    assert run.ok, run.text
    seen.all_held()
    assert moved <= pods * (1 + 1 / len(nodes))


@pytest.mark.whole
def test_where_the_scheduler_looks_at_a_part_of_the_nodes_few_pods_move_twice(
    arena: Arena, play: Player, watching: Watch
) -> None:
    """With more than 100 nodes it stops after 100 that have room, which may leave out the nodes that are done."""
    *nodes, spare = arena.nodes(131)
    arena.cordon(spare)
    workloads = fleet(arena, len(nodes), per_node=4)
    arena.cordon(spare, False)
    with watching() as seen:
        run = play("maintain", within=1200, maintain_nodes=nodes, maintain_serial=10)
    moved, pods = moves(seen, workloads), 4 * len(nodes)
    print(f"{moved} moves of {pods} pods on {len(nodes)} nodes with room, {moved / pods:.3f} for each")
    assert run.ok, run.text
    seen.all_held()
    assert moved <= 1.1 * pods
