# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Killed anywhere: the same command again finishes, `recover` alone undoes, nothing is left behind."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from support.arena import Arena, Workload
from support.plays import Player, Running
from support.waiting import until
from support.watching import Watch
from witness.kinds import OWN_NAMESPACE
from witness.log import Json

AGAIN = 300.0
"""Seconds for a run that first has to see that the lease of the dead one is not renewed."""

Kill = Callable[[Running], object]
KILLS: dict[str, Kill] = {"group": Running.kill_group, "all": Running.kill_all}
"""SIGKILL to the process group alone (workers of newer cores live on), or to all descendants."""


@dataclass
class Lane:
    """A part of the arena from which no pod leaves, and a run in it that is killed in its own way.

    Both ways are tried side by side, because most of their time passes in waiting for a dead run's lease.
    """

    way: str
    nodes: list[str]

    @classmethod
    def made(cls, arena: Arena, way: str, nodes: int) -> Lane:
        return cls(way, arena.nodes(nodes, labels={"lane": way}))

    def deployment(self, arena: Arena, name: str, replicas: int = 1, **more: Any) -> Workload:
        return arena.deployment(f"{name}-{self.way}", replicas, pod={"nodeSelector": {"lane": self.way}}, **more)

    def killed(self, play: Player, reached: Callable[[], bool], **arguments: Any) -> None:
        """Start a maintain and kill it once it has reached a point."""
        running = play.start("maintain", **arguments)
        until(lambda: reached() or running.over, 120, "the run gets there", every=0.01)
        assert not running.over, running.text
        KILLS[self.way](running)


def scene(arena: Arena, lane: Lane) -> tuple[Workload, Workload]:
    """A workload that is surged and one that is evicted pod by pod, both slow enough to be met."""
    with arena.placing(lane.nodes[0]):
        web = lane.deployment(arena, "web", start="2s")
        guarded = lane.deployment(arena, "guarded", 4, start="1s", budget={"maxUnavailable": 1})
    return web, guarded


def let_go(arena: Arena) -> list[str]:
    """The pods that are not their ReplicaSet's for now."""
    return [
        pod["metadata"]["name"]
        for pod in arena.pods()
        if "maintenance.kubeops.io/released" in pod["metadata"]["labels"]
    ]


Reached = Callable[[str, Workload, Workload], bool]
"""Whether a run has come so far: by its node, the workload that is surged, and the one that is evicted."""


def finishes(arena: Arena, play: Player, watching: Watch, reached: Reached) -> None:
    """Kill a maintain at a point in both ways, run it again, and see that all is well."""
    lanes = [Lane.made(arena, way, 2) for way in KILLS]
    scenes = [scene(arena, lane) for lane in lanes]
    with watching() as seen:
        for lane, (web, guarded) in zip(lanes, scenes, strict=True):
            here = lane.nodes[0]
            lane.killed(play, functools.partial(reached, here, web, guarded), maintain_nodes=[here])
        again = [play.start("maintain", maintain_nodes=lane.nodes[:1]) for lane in lanes]
        for running in again:
            run = running.wait(AGAIN)
            assert run.ok, run.text
        arena.settle()
    seen.all_held()
    for lane, (web, guarded) in zip(lanes, scenes, strict=True):
        assert seen.dark_seconds(web) == seen.dark_seconds(guarded) == 0
        assert len(seen.new_pods(web)) <= 2
        assert len(seen.new_pods(guarded)) == 4
        assert lane.nodes[0] not in web.nodes() + guarded.nodes()


@pytest.mark.whole
def test_after_the_cordon(arena: Arena, play: Player, watching: Watch) -> None:
    finishes(arena, play, watching, lambda here, *_unused: arena.step(here) == "cordoned")


@pytest.mark.whole
def test_in_the_middle_of_the_surge(arena: Arena, play: Player, watching: Watch) -> None:
    finishes(arena, play, watching, lambda _here, web, _unused: len(web.pods()) == 2)


def test_in_the_middle_of_the_evictions(arena: Arena, play: Player, watching: Watch) -> None:
    finishes(arena, play, watching, lambda here, _web, guarded: guarded.nodes().count(here) in (2, 3))


@pytest.mark.whole
def test_in_the_wait_for_replacements_the_next_start_waits_for_the_same(
    arena: Arena, play: Player, watching: Watch
) -> None:
    """One comes late, and one has no place while its node is out. The reports tell of all that was done since."""
    nodes = arena.nodes(3)
    here = nodes[0]
    term = {"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": "kubernetes.io/hostname"}
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    apart = arena.deployment("apart", 3, on=nodes, pod={"affinity": rules}, budget={"minAvailable": 2})
    late = arena.deployment("late", 3, on=nodes, start="3s", budget={"maxUnavailable": 1})
    usual = {pod["metadata"]["name"] for pod in late.pods()}

    def new() -> list[str]:
        return [name for pod in late.pods() if (name := pod["metadata"]["name"]) not in usual]

    def ready(name: str, value: str | None) -> None:
        arena.patch("Pod", name, {"metadata": {"annotations": {"lab.kubeops.io/ready": value}}})

    # Pods that are replaced leave only once others serve in their place.
    evicts: dict[str, Any] = {"maintain_nodes": [here], "maintain_method": "surge"}
    with watching() as seen:
        running = play.start("evacuate", **evicts)
        until(lambda: new() or running.over, 120, "there is a successor", every=0.02)
        ready(new()[0], "never")
        until(lambda: not arena.pods(on=here) or running.over, 60, "all pods have left")
        time.sleep(1.0)
        owed = {(one["workload"]["name"], one["ready"]) for one in (arena.record(here) or {})["awaits"]}
        assert owed == {(apart.name, 3), (late.name, 3)}
        assert arena.step(here) == "cordoned"
        running.kill_all()
        again = play.start("evacuate", **evicts)
        again.until_begun("node_drain", AGAIN)
        time.sleep(20.0)
        assert not again.over, "it waits for the one that comes late"
        assert arena.step(here) == "cordoned"
        ready(new()[0], None)
        run = again.wait(AGAIN)
        assert run.ok, run.text
        drained = run.node(here, "node_drain")
        assert [(one["name"], one["ready"], one["wanted"]) for one in drained["pending"]] == [(apart.name, 2, 3)]
        evacuated = time.monotonic()
        time.sleep(5.0)
        released = play("release", maintain_nodes=[here])
        assert released.ok, released.text
        assert apart.read()["status"]["readyReplicas"] == 3, "its return has waited for it"
        arena.settle()
    seen.all_held()
    out = seen.when("Node", here, lambda node: bool(node["spec"].get("unschedulable")))
    back = seen.when("Node", here, lambda node: not node["spec"].get("unschedulable"), out)
    for told, until_then in ((run, evacuated - seen.log.began), (released, back)):
        totals = told.report["totals"]
        assert totals["pods_moved"] == 2
        assert totals["out_seconds"] == pytest.approx(until_then - out, abs=5.0)
        assert totals["dark_seconds"] == 0


@pytest.mark.whole
def test_between_the_patch_and_the_eviction_of_a_pod_that_is_replaced(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", 2, on=here, start="3s", budget={"maxUnavailable": 0})
    asked: Json = {"maintain_nodes": [here], "maintain_method": "replace"}
    with watching() as seen:
        running = play.start("maintain", **asked)
        until(lambda: let_go(arena) or running.over, 120, "a pod is let go", every=0.01)
        assert not running.over, running.text
        running.kill_all()
        assert not any(request.evicts for request in seen.until_now())
        run = play("maintain", within=AGAIN, **asked)
        assert run.ok, run.text
        arena.settle()
    seen.all_held()
    assert (seen.least_serving(web), len(seen.new_pods(web)), len(seen.evictions())) == (2, 2, 2)
    assert let_go(arena) == []
    assert here not in web.nodes()


@pytest.mark.whole
def test_before_the_give_back(arena: Arena, play: Player, watching: Watch) -> None:
    finishes(arena, play, watching, lambda here, *_unused: arena.step(here) in ("drained", "returning"))


@pytest.mark.whole
def test_between_two_waves_nodes_that_are_done_are_not_done_twice(arena: Arena, play: Player, watching: Watch) -> None:
    lanes = [Lane.made(arena, way, 3) for way in KILLS]
    made = [
        (lane.deployment(arena, "web", on=lane.nodes[0]), lane.deployment(arena, "api", on=lane.nodes[1], start="1s"))
        for lane in lanes
    ]

    def one_is_back(one: str, two: str, was: set[str]) -> bool:
        # The plan chooses which of the two goes first.
        was |= {name for name in (one, two) if arena.is_cordoned(name)}
        return any(not arena.is_cordoned(name) for name in was)

    with watching() as seen:
        for lane in lanes:
            one, two, _unused = lane.nodes
            asked: Json = {"maintain_nodes": [one, two], "maintain_serial": 1}
            lane.killed(play, functools.partial(one_is_back, one, two, set()), **asked)
        again = [play.start("maintain", maintain_nodes=lane.nodes[:2], maintain_serial=1) for lane in lanes]
        for running in again:
            run = running.wait(AGAIN)
            assert run.ok, run.text
        arena.settle()
    seen.all_held()
    assert sorted(seen.taken_out()) == sorted(n for lane in lanes for n in lane.nodes[:2]), "each was taken out once"
    assert sum(seen.dark_seconds(workload) for pair in made for workload in pair) == 0


def test_recover_alone_lists_and_undoes(arena: Arena, play: Player, watching: Watch) -> None:
    lane = Lane.made(arena, "all", 2)
    here = lane.nodes[0]
    web, guarded = scene(arena, lane)
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[here])
        until(lambda: len(web.pods()) == 2 or running.over, 120, "the surge is under way")
        running.kill_all()
        with watching() as looking:
            listed = play("recover")
            assert listed.ok, listed.text
        assert looking.writes == [], "it lists, and nobody asked for more"
        run = play("recover", within=AGAIN, recover_state="undone")
        assert run.ok, run.text
        arena.settle()
    for said in (listed.text, run.text):
        assert here in said
        assert web.name in said
    seen.all_held()
    assert not arena.is_cordoned(here)
    assert seen.dark_seconds(web) == seen.dark_seconds(guarded) == 0
    with watching() as seen:
        run = play("recover", recover_state="undone")
        assert run.ok, run.text
    assert seen.writes == []


@pytest.mark.whole
def test_recover_with_finished_gives_back_only_nodes_whose_work_was_done(
    arena: Arena, play: Player, watching: Watch
) -> None:
    """What a run leaves that could not give a node back after its work, and did not come to the other one."""
    done, todo, _unused = arena.nodes(3)
    arena.deployment("web", on=todo)
    asked = {"playbook": "maintain", "nodes": [done, todo]}
    with watching() as seen:
        started = play.module("maintenance_state", state="started", input=asked, plan={"waves": [[done], [todo]]})
        run_id = str(started.answer["run"])
        for state in ("cordoned", "parked"):
            assert play.module("node_cordon", state=state, nodes=[done, todo], run=run_id).ok
        assert play.module("maintenance_state", state="noted", nodes=[done], run=run_id).ok
        name = run_id.partition("/")[0]
        run = play("recover", recover_state="finished", recover_run=name)
        assert run.ok, run.text
        assert not arena.is_cordoned(done)
        assert arena.step(todo) == "parked", "its work is not done"
        left = run.node(todo, "maintenance_state")
        assert left["outcome"] == "left"
        assert left["message"] in run.words
        assert arena.find("ConfigMap", f"run-{name}", OWN_NAMESPACE), "it can still be resumed"
        run = play("recover", recover_run=name)
        assert run.ok, run.text
    seen.all_held()


def test_a_run_that_died_in_the_users_tasks_is_only_resumed_by_name(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    arena.deployment("web", on=here)
    tasks = play.tasks({"name": "Work on it", "ansible.builtin.command": "sleep 60"})
    arguments: Json = {"maintain_nodes": [here], "maintain_tasks": tasks, "inventory": play.hosts([here])}
    with watching() as seen:
        running = play.start("maintain", **arguments)
        until(lambda: arena.step(here) == "out" or running.over, 120, "the tasks run")
        running.kill_all()
        run_id = str((arena.record(here) or {})["run"])
        refused = play("maintain", within=AGAIN, **arguments)
        assert not refused.ok
        assert f"maintain_run={run_id}" in refused.words, refused.text
        assert arena.step(here) == "out"
        quick = play.tasks({"name": "Nothing more to do", "ansible.builtin.command": "true"})
        run = play("maintain", within=AGAIN, **{**arguments, "maintain_tasks": quick}, maintain_run=run_id)
        assert run.ok, run.text
    seen.all_held()
    assert seen.taken_out() == [here]
