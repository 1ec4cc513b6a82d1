# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run that is interrupted ends soon, says how to go on, and keeps nobody waiting, wherever that happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from support import sampling
from support.arena import Arena
from support.plays import Player, Run, Running
from support.waiting import until
from support.watching import Watch
from witness.kinds import OWN_NAMESPACE
from witness.log import Json

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import commands

EACH = [
    ("between", "SIGTERM"),
    *((place, "Ctrl-C") for place in ("drain", "between", "tasks", "lock")),
    *((place, "SIGTERM") for place in ("drain", "tasks", "lock")),
    ("drain", "SIGINT"),
    ("between", "SIGHUP"),
]
SCREEN = {"ANSIBLE_STDOUT_CALLBACK": "kubeops.node_maintenance.maintenance"}
WAITED = "waiting"
"""What an event says that tells of a wait for the lock of another."""


def held(arena: Arena) -> list[str]:
    """Leases of runs that somebody who comes would have to watch."""
    leases = arena.all("Lease", OWN_NAMESPACE)
    return [one["metadata"]["name"] for one in leases if one["spec"].get("leaseDurationSeconds", 0) > 1]


def told_once(run: Run, run_id: str) -> None:
    assert not run.ok, run.text
    for words in ("To go on: ", f"To undo it: {commands.undo(run_id)}"):
        assert run.text.count(words) == 1, run.text
    assert "Traceback" not in run.text


def reached(place: str, running: Running, arena: Arena, here: str) -> Callable[[], bool]:
    """Whether the run is there."""
    return {
        "drain": lambda: arena.step(here) == "cordoned" and running.has_started("maintenance_wave"),
        "between": lambda: running.has_done("maintenance_wave"),
        "tasks": lambda: arena.step(here) == "out",
        "lock": lambda: running.has_started("maintenance_wave"),
    }[place]


@pytest.mark.parametrize(("place", "way"), sampling.first(1, EACH))
def test_the_same_command_goes_on_at_once(arena: Arena, play: Player, watching: Watch, place: str, way: str) -> None:
    here, _there = arena.nodes(2)
    slow = arena.deployment("slow", 2, on=here, start="8s", budget={"maxUnavailable": 1})
    asked: dict[str, Any] = {"maintain_nodes": [here], "env": SCREEN if way == "Ctrl-C" else {}}
    if place == "tasks":
        work = play.tasks({"name": "Work on it", "ansible.builtin.command": "sleep 60"})
        asked |= {"maintain_tasks": work, "inventory": play.hosts([here])}
    with watching() as seen:
        if place == "lock":
            killed = play.start("maintain", **asked)
            until(lambda: slow.nodes().count(here) == 1 or killed.over, 120, "it empties the node")
            killed.kill_all()
        running = play.start("maintain", terminal=way == "Ctrl-C", **asked)
        there = reached(place, running, arena, here)
        until(lambda: there() or running.over, 120, "the run gets there", every=0.02)
        time.sleep({"drain": 2.0, "lock": 2.0}.get(place, 0.0))
        assert not running.over, running.text
        run_id = str((arena.record(here) or {})["run"])
        told_once(running.interrupted(way), run_id)
        if place != "lock":
            assert held(arena) == ([f"node-{here}"] if place == "tasks" else [])
        again: Json = {}
        if place == "tasks":
            again = {"maintain_tasks": play.tasks({"ansible.builtin.command": "true"}), "maintain_run": run_id}
        run = play("maintain", **{**asked, **again})
        assert run.ok, run.text
        assert ("PLAY RECAP" in run.text) is (way != "Ctrl-C"), "a summary of ours says how it ended"
        waits = [event for answer in run.of("node_cordon") for event in answer["timeline"] if event["what"] == WAITED]
        assert bool(waits) is (place == "lock"), "nobody waits for a run that has let go"
        arena.settle()
    seen.all_held()
    assert seen.taken_out() == [here]
