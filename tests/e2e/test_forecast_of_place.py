# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a plan says of the places of all pods beside the real run, up to replacements that serve.

That the scheduler binds and refuses what is forecast is shown by `test_placement.py`, in generated clusters.
"""

from __future__ import annotations

from collections import Counter

import pytest
from support.arena import Arena
from support.plays import Player
from support.watching import Watch
from witness.log import Json

HALF = "14"
"""CPUs of which two pods fit on a node of the arena, which has 32."""


def asking(cpu: str, **more: Json) -> Json:
    container = {"name": "main", "image": "registry.invalid/app:1", "resources": {"requests": {"cpu": cpu}}}
    return {"containers": [container], **more}


def apart(app: str) -> Json:
    terms = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.whole
def test_where_all_pods_are_said_to_fit_all_replacements_become_ready(
    arena: Arena, play: Player, watching: Watch
) -> None:
    """The room is exact: each of the two other nodes takes two of the four big pods, and nothing else of their size."""
    one, two, *others = arena.nodes(4)
    big = arena.deployment("big", 4, on=[one, one, two, two], pod=asking(HALF), budget={"maxUnavailable": 1})
    quorum = arena.deployment("quorum", 2, on=[one, others[0]], pod=asking("1", affinity=apart("quorum")))
    single = arena.deployment("single", on=two, pod=asking("1"))
    arena.settle()
    planned = play.module("maintenance_plan", nodes=[one, two], max_parallel=2, goal="evacuated")
    assert planned.ok, planned.text
    pods = [pod for pod in planned.answer["pods"] if pod["route"] in ("evict", "surge", "replace")]
    assert len(pods) == 6
    assert [pod["name"] for pod in pods if not pod["fits"]] == []
    targets = Counter(pod["target"] for pod in pods if pod["name"].startswith("big"))
    assert targets == dict.fromkeys(others, 2)
    with watching() as seen:
        run = play("evacuate", maintain_nodes=[one, two], maintain_serial=2)
    assert run.ok, run.text
    seen.all_held(left=True)
    assert [len(seen.new_pods(workload)) for workload in (big, quorum, single)] == [4, 1, 1]
    assert Counter(big.nodes()) == targets
    serving = {
        pod["metadata"]["name"]
        for pod in arena.pods()
        for condition in pod["status"]["conditions"]
        if condition["type"] == "Ready" and condition["status"] == "True"
    }
    assert len(serving) == 7
    assert len({pod["metadata"]["name"] for pod in arena.pods()}) == 7


@pytest.mark.whole
def test_nodes_whose_pods_need_the_same_room_leave_one_after_the_other(
    arena: Arena, play: Player, watching: Watch
) -> None:
    """There is room for the pods of one node: out together, they would leave half of the pods waiting for ever."""
    one, two, _spare = arena.nodes(3)
    big = arena.deployment("big", 4, on=[one, one, two, two], pod=asking(HALF), budget={"maxUnavailable": 1})
    arena.settle()
    with watching() as seen:
        run = play("maintain", maintain_nodes=[one, two], maintain_serial=2)
    assert run.ok, run.text
    plan = run.of("maintenance_plan")[0]
    assert plan["waves"] == [[one], [two]]
    assert [wait["reason"] for wait in plan["waits"]] == [f"wave 1 has {one} with pods that need the same room"]
    assert all(pod["fits"] for pod in plan["pods"] if pod["route"] == "evict")
    seen.all_held()
    assert seen.taken_out() == [one, two]
    assert len(seen.new_pods(big)) == 4
