# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A second time changes nothing, check mode writes nothing and tells the truth."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.arena import Arena
from support.plays import Player, Run
from support.watching import Watch
from witness.log import Json


def changes_nothing(watching: Watch, call: Callable[[], Run], *, lives: bool = False) -> None:
    """Nothing is written; but for the lease by which a run says that it lives, where ``lives``."""
    with watching() as seen:
        run = call()
    assert run.ok, run.text
    assert not run.changed, [found.task for found in run.results if found.result.get("changed")]
    assert [write for write in seen.writes if not (lives and write.resource == "leases")] == []


def workloads(arena: Arena, here: str) -> None:
    with arena.placing(here):
        arena.deployment("web")
        arena.deployment("several", 3)
        arena.deployment("guarded", 2, budget={"maxUnavailable": 1})


@pytest.mark.whole
def test_a_second_evacuate_and_a_second_release_change_nothing(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    workloads(arena, here)
    with watching() as seen:
        assert play("evacuate", maintain_nodes=[here]).ok
    seen.all_held(left=True)
    changes_nothing(watching, lambda: play("evacuate", maintain_nodes=[here]))
    foreseen = play("maintain", check=True, maintain_nodes=[here])
    assert foreseen.ok, "another run may take up a parked node, and may ask first"
    assert play("release", maintain_nodes=[here]).ok
    changes_nothing(watching, lambda: play("release", maintain_nodes=[here]))


STEPS: list[tuple[str, dict[str, Any]]] = [
    ("maintenance_plan", {}),
    ("node_cordon", {"state": "cordoned"}),
    ("pdb_guard", {"state": "present"}),
    ("node_drain", {}),
    ("node_cordon", {"state": "out"}),
    ("node_cordon", {"state": "returning"}),
    ("node_ready", {"gates": ["ready", "pressure", "schedulable", "conditions"]}),
    ("node_cordon", {"state": "parked"}),
    ("pdb_guard", {"state": "absent"}),
    ("node_cordon", {"state": "uncordoned"}),
]


def told(answer: Json) -> list[str]:
    """What a module says it changes, in any order: its sentences and its diff, times and run ids aside."""
    lines = [*answer["actions"], *(json.dumps(entry, sort_keys=True) for entry in answer["diff"])]
    varies = r"[0-9]{4}-[0-9-]+T[0-9:.]+Z|(=|run[ -])[0-9a-f]{8}\b"
    return sorted(re.sub(varies, r"\1*", line) for line in lines)


def test_check_mode_names_what_each_module_changes_and_a_second_call_changes_nothing(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    workloads(arena, here)
    arena.settle()
    for name, arguments in STEPS:
        calls = [{"check_mode": True, "diff": True}, {"diff": True}, {}]
        with watching() as seen:
            run = play.modules([(name, {"nodes": [here], **arguments}, call) for call in calls])
        assert run.ok, run.text
        foreseen, real, again = run.of(name)
        assert foreseen.get("changed") == real.get("changed"), name
        if name != "maintenance_plan":
            assert told(foreseen) == told(real), name
        assert not again.get("changed"), name
        after_check, after_call, _end = run.ended_at(name)
        assert [write for write in seen.writes if not after_check < write.at < after_call] == [], name
        arena.settle()
    changes_nothing(watching, lambda: play.module("maintenance_state", state="listed"))


@pytest.mark.whole
def test_the_memory_of_a_run_is_foreseen_and_written_once(arena: Arena, play: Player, watching: Watch) -> None:
    here, there = arena.nodes(2)
    asked = {"playbook": "maintain", "nodes": [here, there], "tasks": arena.name}
    steps: list[dict[str, Any]] = [
        {"state": "started", "input": asked, "plan": {"waves": [[here], [there]]}},
        {"state": "noted", "nodes": [here]},
        {"state": "ended", "failed": True},
        {"state": "undone"},
    ]
    run_id = ""
    for arguments in steps:
        given = {**arguments, **({"run": run_id} if run_id else {})}
        with watching() as seen:
            foreseen = play.module("maintenance_state", check=True, diff=True, **given)
        assert foreseen.ok, foreseen.text
        assert seen.writes == []
        real = play.module("maintenance_state", diff=True, **given)
        assert real.ok, real.text
        assert real.changed
        assert told(foreseen.answer) == told(real.answer), arguments
        if given["state"] == "started":
            # The same command given again notes once that the start before it did not come to its end.
            assert play.module("maintenance_state", **given).ok
        changes_nothing(watching, functools.partial(play.module, "maintenance_state", **given), lives=True)
        run_id = run_id or real.answer["run"]


@pytest.mark.whole
def test_an_equal_report_is_written_once(play: Player, tmp_path: Path) -> None:
    results = [{"nodes": [{"name": "node-1", "outcome": "uncordoned", "failed": False, "message": ""}]}]
    first = play.module("maintenance_report", results=results, dest=str(tmp_path))
    assert first.ok, first.text
    assert first.changed
    assert not play.module("maintenance_report", results=results, dest=str(tmp_path)).changed


def test_check_mode_of_a_maintain_writes_nothing_and_goes_through(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    workloads(arena, here)
    arena.settle()
    pods = [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in arena.pods(on=here)]
    tasks = play.tasks({"name": "Patch it", "ansible.builtin.command": "touch /nonexistent/x"})
    with watching() as seen:
        run = play(
            "maintain",
            check=True,
            diff=True,
            inventory=play.hosts([here]),
            maintain_nodes=[here],
            maintain_method="surge",
            maintain_tasks=tasks,
        )
    assert run.ok, run.text
    assert seen.writes == []
    seen.all_held()
    assert run.changed
    for step in ("node_cordon", "pdb_guard", "node_drain"):
        assert any(answer.get("changed") for answer in run.of(step)), step
    assert not any("touch" in str(found.result.get("cmd")) for found in run.results), "no task of the user ran"
    assert len(pods) == 6
    assert [pod for pod in pods if pod not in run.text] == [], "it names each pod that would move"


def test_diff_shows_what_is_changed(arena: Arena, play: Player) -> None:
    here, _unused = arena.nodes(2)
    arena.deployment("web", on=here)
    arena.settle()
    run = play("maintain", diff=True, maintain_nodes=[here], maintain_method="surge")
    assert run.ok, run.text
    shown = [line for line in run.text.splitlines() if line.startswith(("+", "-"))]
    assert any("unschedulable" in line for line in shown)
    assert any("replicas" in line for line in shown)


@pytest.mark.whole
def test_a_node_already_at_its_goal_joins_no_wave(arena: Arena, play: Player, watching: Watch) -> None:
    one, two, _unused = arena.nodes(3)
    arena.deployment("web", on=one)
    arena.settle()
    assert play("evacuate", maintain_nodes=[one]).ok
    with watching() as seen:
        run = play("evacuate", maintain_nodes=[one, two])
        assert run.ok, run.text
    assert seen.taken_out() == [two]
    assert play("release", maintain_nodes=[one, two]).ok
    assert not arena.is_cordoned(one)
    assert not arena.is_cordoned(two)
