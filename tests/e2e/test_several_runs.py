# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several runs and several people: one node, one truth, and it is in the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import nodes as fake
from support.arena import Arena
from support.plays import Player
from support.waiting import until
from support.watching import Watch
from witness.kinds import OWN_NAMESPACE

TINA = {"LOGNAME": "tina", "USER": "tina"}
OTTO = {"LOGNAME": "otto", "USER": "otto"}


def test_a_second_run_is_refused_naming_run_person_and_time(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    arena.deployment("slow", 2, on=here)
    arena.settle()
    held = arena.pods("slow")[0]["metadata"]["name"]
    arena.patch("Pod", held, {"metadata": {"finalizers": ["lab.kubeops.io/held"]}})
    with watching() as seen:
        first = play.start("maintain", maintain_nodes=[here], env=TINA)
        until(lambda: arena.step(here) == "cordoned" or first.over, 120, "the first run holds the node")
        record = arena.record(here) or {}
        second = play("evacuate", maintain_nodes=[here], env=OTTO)
        assert not first.over, "the first run is still at it"
        assert not second.ok
        assert record["run"] in second.words
        assert "tina" in second.words
        assert record["since"][:16] in second.words
        assert (arena.record(here) or {})["nonce"] == record["nonce"]
        arena.patch("Pod", held, {"metadata": {"finalizers": None}})
        run = first.wait()
        assert run.ok, run.text
    seen.all_held()


def test_evacuate_today_and_release_tomorrow_by_somebody_else(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here, start="1s")
    with watching() as seen:
        evacuated = play("evacuate", maintain_nodes=[here], maintain_reason="a new disk", env=TINA)
        assert evacuated.ok, evacuated.text
        record = arena.record(here) or {}
        assert (record["step"], record["reason"]) == ("parked", "a new disk")
        assert "tina" in record["by"]
        assert arena.find("Lease", f"node-{here}", OWN_NAMESPACE) is None
        assert arena.is_cordoned(here)
        assert arena.pods("web", on=here) == []
        released = play("release", maintain_nodes=[here], env=OTTO)
        assert released.ok, released.text
    seen.all_held()
    assert seen.dark_seconds(web) == 0
    assert record["run"] in released.text


@pytest.mark.whole
def test_a_release_leaves_a_node_alone_on_which_another_runs_tasks_are(
    arena: Arena, play: Player, watching: Watch, tmp_path: Path
) -> None:
    here, _unused = arena.nodes(2)
    done = tmp_path / "done"
    tasks = play.tasks({"name": "Work on it", "ansible.builtin.wait_for": {"path": str(done), "timeout": 200}})
    with watching() as seen:
        first = play.start(
            "maintain", inventory=play.hosts([here]), maintain_nodes=[here], maintain_tasks=tasks, env=TINA
        )
        until(lambda: arena.step(here) == "out" or first.over, 120, "the tasks run")
        record = arena.record(here) or {}
        released = play("release", maintain_nodes=[here], env=OTTO)
        by_hand = play.module("node_cordon", state="uncordoned", nodes=[here], env=OTTO)
        assert not first.over, "the tasks are still running"
        assert arena.record(here) == record
        assert arena.is_cordoned(here)
        for refused in (released, by_hand):
            assert not refused.ok
            assert record["run"] in refused.words
            assert "tina" in refused.words
            assert record["since"][:16] in refused.words
            assert f"-e maintain_run={record['run']}" in refused.words
            assert f"recover -e recover_run={record['run']}" in refused.words
        assert "To return the node to service" not in released.words
        done.touch()
        run = first.wait()
        assert run.ok, run.text
    seen.all_held()


@pytest.mark.whole
def test_a_parked_node_is_recovered_by_its_runs_name_and_through_the_gates(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    with watching() as seen:
        assert play("evacuate", maintain_nodes=[here], maintain_reason="a new disk", env=TINA).ok
        run_id = (arena.record(here) or {})["run"]
        listed = play("recover")
        assert listed.ok, listed.text
        undone = play("recover", recover_state="undone")
        assert undone.ok, undone.text
        assert "left out of service on purpose" in undone.words
        assert arena.step(here) == "parked"
        fake.switch(arena.api, here, "not-ready")
        until(lambda: fake.ready_condition(arena.node(here)) != "True", 60, "the node is not Ready")
        refused = play("recover", recover_run=run_id, recover_timeout=5)
        assert not refused.ok
        assert "Ready" in refused.words
        assert arena.step(here) == "parked"
        fake.switch(arena.api, here, None)
        until(lambda: fake.is_up(arena.api, here), 60, "the node is Ready")
        run = play("recover", recover_run=run_id)
        assert run.ok, run.text
        assert not arena.is_cordoned(here)
    seen.all_held()


@pytest.mark.whole
def test_a_maintain_takes_up_a_node_that_somebody_evacuated(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    with watching() as seen:
        assert play("evacuate", maintain_nodes=[here], env=TINA).ok
        tasks = play.tasks({"name": "Work on it", "ansible.builtin.command": "true"})
        hosts = play.hosts([here])
        run = play("maintain", inventory=hosts, env=OTTO, maintain_tasks=tasks, maintain_nodes=[here])
        assert run.ok, run.text
    seen.all_held()
    assert seen.taken_out() == [here], "it was out already: nobody cordoned it again"


def test_the_modules_work_on_their_own(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    with arena.placing(here):
        web = arena.deployment("web", start="1s")
        several = arena.deployment("several", 3)
    with watching() as seen:
        cordoned = play.module("node_cordon", nodes=[here], reason="by hand")
        assert cordoned.ok, cordoned.text
        guarded = play.module("pdb_guard", nodes=[here], method="surge")
        assert guarded.ok, guarded.text
        outcomes = {w["name"]: (w["replicas_before"], w["replicas_during"]) for w in guarded.answer["workloads"]}
        assert outcomes["web"] == (1, 2)
        drained = play.module("node_drain", nodes=[here], method="surge")
        assert drained.ok, drained.text
        assert drained.node(here, "node_drain")["outcome"] == "drained"
        assert drained.answer["summary"]["evicted"] == 3
        for state in ("out", "returning"):
            assert play.module("node_cordon", state=state, nodes=[here]).ok
        assert play.module("pdb_guard", state="absent", nodes=[here]).ok
        assert play.module("node_cordon", state="uncordoned", nodes=[here]).ok
    seen.all_held()
    assert seen.dark_seconds(web) == seen.dark_seconds(several) == 0


@pytest.mark.whole
def test_a_drain_of_selected_pods_leaves_the_surges_of_the_others(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    with arena.placing(here):
        first = arena.deployment("first")
        second = arena.deployment("second")
    with watching() as seen:
        assert play.module("node_cordon", nodes=[here]).ok
        assert play.module("pdb_guard", nodes=[here], method="surge").ok
        run = play.module("node_drain", nodes=[here], method="surge", pod_selector="app=first")
        assert run.ok, run.text
        assert run.node(here, "node_drain")["outcome"] == "selected_gone"
        assert here not in first.nodes()
        assert second.read()["spec"]["replicas"] == len(second.pods()) == 2, "prepared, and not ended"
        assert here in second.nodes()
        run = play.module("node_drain", nodes=[here], method="surge")
        assert run.ok, run.text
        assert run.node(here, "node_drain")["outcome"] == "drained"
        assert play.module("pdb_guard", state="absent", nodes=[here]).ok
        assert play.module("node_cordon", state="uncordoned", nodes=[here]).ok
    seen.all_held()
    assert seen.dark_seconds(first) == seen.dark_seconds(second) == 0
    assert seen.counts(first) == seen.counts(second) == [1, 2, 1]


@pytest.mark.whole
def test_modules_without_a_record_say_what_comes_first(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    arena.deployment("web", on=here)
    with watching() as seen:
        for name in ("node_drain", "pdb_guard"):
            run = play.module(name, nodes=[here])
            assert not run.ok
            assert "not_in_maintenance" in run.text
            assert "node_cordon" in run.text
    assert seen.writes == []


@pytest.mark.whole
def test_a_pod_that_needs_a_surge_is_not_evicted_without_one(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here)
    with watching() as seen:
        assert play.module("node_cordon", nodes=[here]).ok
        run = play.module("node_drain", nodes=[here], method="surge")
        assert not run.ok
        assert "needs_surge" in run.text
        assert play.module("node_cordon", state="uncordoned", nodes=[here]).ok
    seen.all_held()
    assert seen.new_pods(web) == []


@pytest.mark.whole
def test_a_call_with_another_nonce_is_stopped(arena: Arena, play: Player) -> None:
    here, _unused = arena.nodes(2)
    assert play.module("node_cordon", nodes=[here], run="mine/abc").ok
    run = play.module("node_drain", nodes=[here], run="mine/xyz")
    assert not run.ok
    assert "adopted_by" in run.text
    assert play.module("node_cordon", state="uncordoned", nodes=[here], run="mine/abc").ok
