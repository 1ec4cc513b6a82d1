# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What others changed before or during a run is noticed, kept and reported."""

from __future__ import annotations

from support.arena import Arena
from support.plays import Player
from support.waiting import until
from support.watching import Watch
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


def test_a_foreign_uncordon_during_the_run_lets_no_pod_in_and_is_kept(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, there = arena.nodes(2)
    slow_run(arena, here)
    arena.settle()
    arena.cordon(here)
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[here])
        running.until_begun("node_drain")
        until(lambda: len(arena.pods("slow", on=here)) < 2, 120, "the first pod is on its way")
        arena.cordon(here, False)
        run = running.wait()
        assert run.ok, run.text
    unschedulable = Foreign("Node", "", here, ("spec", "unschedulable"), None)
    taints = Foreign("Node", "", here, ("spec", "taints"), None)
    seen.all_held(foreign=[unschedulable, taints])
    assert not arena.is_cordoned(here)
    assert "uncordon" in run.text, "it is told"
    assert {pod["spec"]["nodeName"] for pod in arena.pods("slow")} == {there}, "the taint held the node"


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


def test_a_workload_that_somebody_scaled_during_its_surge_keeps_that_count(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here, start="3s")
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[here])
        until(lambda: web.read()["spec"]["replicas"] == 2, 120, "the surge is there")
        web.scale(4)
        run = running.wait()
        arena.settle()
    seen.all_held(foreign=[Foreign(*web.ref, ("spec", "replicas"), 4)], resumable=True)
    assert seen.dark_seconds(web) == 0
    assert "web" in run.text


def test_a_surge_that_somebody_takes_back_fails_closed(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here, start="4s")
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[here], maintain_timeout=30)
        until(lambda: web.read()["spec"]["replicas"] == 2, 120, "the surge is there")
        web.scale(1)
        run = running.wait()
    assert not run.ok
    assert "web" in run.text
    seen.all_held(resumable=True)
    assert seen.dark_seconds(web) == 0
    assert web.nodes() == [here], "the newcomer went, not the one that serves"
    assert not arena.is_cordoned(here)


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
        run = play("maintain", maintain_nodes=[here], maintain_timeout=15)
    assert not run.ok
    seen.all_held(resumable=True)
    assert cost.items() <= (arena.find("Pod", pod) or {})["metadata"]["annotations"].items()
