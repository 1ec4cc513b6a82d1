# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What others changed before or during a run is noticed, kept and reported."""

from __future__ import annotations

import time

import pytest
from support import shapes
from support.arena import Arena
from support.plays import Player
from support.waiting import until
from support.watching import Seen, Watch
from witness.invariants import Foreign
from witness.log import Json

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def test_a_node_that_was_cordoned_before_stays_cordoned(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here)
    arena.settle()
    arena.cordon(here)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
        assert run.ok, run.text
    seen.all_held()
    assert arena.is_cordoned(here)
    assert seen.dark_seconds(web) == 0
    assert "cordoned" in run.text


@pytest.mark.whole
def test_foreign_taints_keep_their_order_and_the_time_they_were_added(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    arena.deployment("web", on=here)
    arena.settle()
    taints = [
        {"key": "z.example/slow", "effect": "PreferNoSchedule", "timeAdded": "2025-01-02T03:04:05Z"},
        {"key": "a.example/old", "value": "1", "effect": "PreferNoSchedule"},
        {"key": "m.example/hot", "effect": "PreferNoSchedule", "timeAdded": "2024-01-02T03:04:05Z"},
    ]
    arena.taint(here, *taints)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
        assert run.ok, run.text
    seen.all_held()
    assert arena.node(here)["spec"]["taints"] == taints


def slow_run(arena: Arena, here: str) -> None:
    """A workload whose drain takes some seconds, in which others can act."""
    arena.deployment("slow", 2, on=here, stop="6s")


def late_evictions(seen: Seen, at: float) -> list[str]:
    """Pods that were evicted after a moment, without what was on its way then."""
    return [request.name for request in seen.evictions() if request.at > at + 1.0]


@pytest.mark.whole
def test_a_node_that_a_person_uncordons_is_not_emptied_any_further(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    arena.deployment("slow", 8, on=here, start="2s")
    arena.settle()
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[here])
        running.until_begun("node_drain")
        until(lambda: any(r.evicts for r in seen.until_now()), 120, "the first pod is on its way")
        arena.cordon(here, False)
        uncordoned = time.time()
        run = running.wait()
    assert not run.ok
    assert run.node(here, "node_drain")["outcome"] == "uncordoned"
    assert late_evictions(seen, uncordoned) == []
    assert not arena.is_cordoned(here), "their will is kept"
    assert arena.record(here) is None
    assert arena.node(here)["spec"].get("taints", []) == []


@pytest.mark.whole
def test_a_node_that_is_registered_again_is_not_emptied(arena: Arena, play: Player, watching: Watch) -> None:
    here, there = arena.nodes(2)
    arena.deployment("slow", 8, on=here, start="2s")
    arena.settle()
    assert play.module("node_cordon", nodes=[here]).ok
    assert play.module("pdb_guard", nodes=[here]).ok
    with watching() as seen:
        running = play.module_start("node_drain", nodes=[here])
        until(lambda: any(r.evicts for r in seen.until_now()), 120, "the first pod is on its way")
        arena.delete("Node", here)
        arena.api.create("/api/v1/nodes", shapes.node(here, arena.name))
        registered = time.time()
        run = running.wait(60)
    assert run.node(here, "node_drain")["outcome"] in ("replaced", "gone")
    assert late_evictions(seen, registered) == []
    assert not arena.is_cordoned(here)
    assert {pod["spec"]["nodeName"] for pod in arena.pods("slow")} <= {here, there}


@pytest.mark.whole
def test_a_guard_that_somebody_deletes_leaves_no_service_dark(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", 4, on=here, start="3s")
    arena.settle()
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[here], maintain_method="surge")
        running.until_begun("node_drain")
        until(lambda: any(r.evicts for r in seen.until_now()), 120, "the first pod is on its way")
        (guard,) = arena.all("PodDisruptionBudget")
        arena.delete("PodDisruptionBudget", guard["metadata"]["name"])
        run = running.wait()
        assert run.ok, run.text
    assert seen.least_ready(web) >= 3


@pytest.mark.whole
def test_a_foreign_taint_and_label_of_the_meantime_are_kept_and_told(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    slow_run(arena, here)
    theirs: Json = {"key": "other.example/hold", "value": "x", "effect": "PreferNoSchedule"}
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[here])
        running.until_begun("node_drain")
        until(lambda: arena.is_cordoned(here), 120, "the node is out")
        arena.taint(here, theirs)
        arena.patch("Node", here, {"metadata": {"labels": {"other.example/label": "new"}}})
        run = running.wait()
        assert run.ok, run.text
    kept = [
        Foreign("Node", "", here, ("spec", "taints"), [theirs]),
        Foreign("Node", "", here, ("metadata", "labels", "other.example/label"), "new"),
    ]
    seen.all_held(foreign=kept)


@pytest.mark.whole
def test_a_workload_that_somebody_scaled_during_its_surge_keeps_that_count(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here, start="3s")
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[here], maintain_method="surge")
        until(lambda: web.read()["spec"]["replicas"] == 2, 120, "the surge is there")
        web.scale(4)
        run = running.wait()
        arena.settle()
    seen.all_held(foreign=[Foreign(*web.ref, ("spec", "replicas"), 4)], resumable=True)
    assert seen.dark_seconds(web) == 0
    assert "web" in run.text


@pytest.mark.whole
def test_a_surge_that_somebody_takes_back_fails_closed(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here, start="4s")
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[here], maintain_method="surge", maintain_timeout=30)
        until(lambda: web.read()["spec"]["replicas"] == 2, 120, "the surge is there")
        web.scale(1)
        run = running.wait()
    assert not run.ok
    assert "web" in run.text
    seen.all_held(resumable=True)
    assert seen.dark_seconds(web) == 0
    assert web.nodes() == [here], "the newcomer went, not the one that serves"
    assert not arena.is_cordoned(here)


@pytest.mark.whole
def test_a_foreign_deletion_cost_is_put_back_on_a_pod_that_stays(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here)
    arena.settle()
    pod = web.pods()[0]["metadata"]["name"]
    cost = {"controller.kubernetes.io/pod-deletion-cost": "7"}
    arena.patch("Pod", pod, {"metadata": {"annotations": cost}})
    arena.quota(pods="1")
    until(lambda: (arena.all("ResourceQuota")[0].get("status") or {}).get("used"), 30, "the quota is counted")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_method="surge", maintain_timeout=15)
    assert not run.ok
    seen.all_held(resumable=True)
    assert cost.items() <= (arena.find("Pod", pod) or {})["metadata"]["annotations"].items()
