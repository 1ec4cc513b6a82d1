# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Killed anywhere: the same command again finishes, `recover` alone undoes, nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable

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


@pytest.fixture(params=list(KILLS))
def kill(request: pytest.FixtureRequest) -> Kill:
    """SIGKILL to the process group alone (workers of newer cores live on), or to all descendants."""
    return KILLS[request.param]


def scene(arena: Arena, here: str) -> list[Workload]:
    """A workload that is swapped and one that is evicted pod by pod, both slow enough to be met."""
    with arena.placing(here):
        web = arena.deployment("web", start="2s")
        guarded = arena.deployment("guarded", 4, start="1s", budget={"maxUnavailable": 1})
    arena.settle()
    return [web, guarded]


def finishes(arena: Arena, play: Player, watching: Watch, kill: Kill, reached: Callable[[str, Workload], bool]) -> None:
    """Kill a maintain once it has reached a point, run it again, and see that all is well."""
    here, _unused = arena.nodes(2)
    web, guarded = scene(arena, here)
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[here])
        until(lambda: reached(here, guarded) or running.over, 120, "the run gets there", every=0.01)
        assert not running.over, running.text
        kill(running)
        run = play("maintain", maintain_nodes=[here], within=AGAIN)
        assert run.ok, run.text
        arena.settle()
    seen.all_held()
    assert seen.dark_seconds(web) == seen.dark_seconds(guarded) == 0
    assert len(seen.new_pods(web)) <= 2
    assert len(seen.new_pods(guarded)) == 4
    assert here not in web.nodes() + guarded.nodes()


def test_after_the_cordon(arena: Arena, play: Player, watching: Watch, kill: Kill) -> None:
    finishes(arena, play, watching, kill, lambda here, _unused: arena.step(here) == "cordoned")


def test_in_the_middle_of_the_surge(arena: Arena, play: Player, watching: Watch, kill: Kill) -> None:
    finishes(arena, play, watching, kill, lambda *_unused: len(arena.pods("web")) == 2)


def test_in_the_middle_of_the_evictions(arena: Arena, play: Player, watching: Watch, kill: Kill) -> None:
    finishes(arena, play, watching, kill, lambda here, _unused: len(arena.pods("guarded", on=here)) in (2, 3))


def test_before_the_give_back(arena: Arena, play: Player, watching: Watch, kill: Kill) -> None:
    finishes(arena, play, watching, kill, lambda here, _unused: arena.step(here) in ("drained", "returning"))


def test_between_two_waves_nodes_that_are_done_are_not_done_twice(
    arena: Arena, play: Player, watching: Watch, kill: Kill
) -> None:
    one, two, _unused = arena.nodes(3)
    web = arena.deployment("web", on=one)
    api = arena.deployment("api", on=two, start="1s")
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[one, two], maintain_serial=1)
        # The plan chooses which of the two goes first.
        until(lambda: arena.is_cordoned(one) or arena.is_cordoned(two) or running.over, 120, "the first wave")
        first = one if arena.is_cordoned(one) else two
        until(lambda: not arena.is_cordoned(first) or running.over, 120, "the first node is back", every=0.01)
        assert not running.over, running.text
        kill(running)
        run = play("maintain", maintain_nodes=[one, two], maintain_serial=1, within=AGAIN)
        assert run.ok, run.text
        arena.settle()
    seen.all_held()
    assert sorted(seen.taken_out()) == sorted([one, two]), "each node was taken out once"
    assert seen.dark_seconds(web) == seen.dark_seconds(api) == 0


def test_recover_alone_lists_and_undoes(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web, guarded = scene(arena, here)
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[here])
        until(lambda: len(arena.pods("web")) == 2 or running.over, 120, "the surge is under way")
        running.kill_all()
        run = play("recover", within=AGAIN)
        assert run.ok, run.text
        arena.settle()
    assert here in run.text
    assert "web" in run.text
    seen.all_held()
    assert not arena.is_cordoned(here)
    assert seen.dark_seconds(web) == seen.dark_seconds(guarded) == 0
    with watching() as seen:
        run = play("recover")
        assert run.ok, run.text
    assert seen.writes == []


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
        run = play("recover", recover_state="finished")
        assert run.ok, run.text
        assert not arena.is_cordoned(done)
        assert arena.step(todo) == "parked", "its work is not done"
        left = run.node(todo, "maintenance_state")
        assert left["outcome"] == "left"
        assert left["message"] in run.words
        assert arena.find("ConfigMap", f"run-{run_id.partition('/')[0]}", OWN_NAMESPACE), "it can still be resumed"
        run = play("recover")
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
