# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waves: one bad node never blames or drops the others."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from support.arena import Arena
from support.plays import Player, Run
from support.receiver import Chat
from support.watching import Watch
from witness.invariants import Foreign
from witness.log import Json, Log

TOUCH = {"name": "Work on it", "ansible.builtin.command": "true"}


def reported(run: Run, *names: str) -> None:
    """The last play has reported on all nodes, and the run tells its failure by its exit code."""
    assert not run.ok
    for name in names:
        assert name in str(run.report)


def hold(arena: Arena, on: str) -> str:
    """A pod on the node that will never go; returns its name."""
    arena.deployment("held", 2, on=on)
    arena.settle()
    pod = str(arena.pods("held")[0]["metadata"]["name"])
    arena.patch("Pod", pod, {"metadata": {"finalizers": ["lab.kubeops.io/held"]}})
    return pod


def test_one_of_three_fails_in_its_drain(arena: Arena, play: Player, watching: Watch) -> None:
    bad, two, three, _unused = arena.nodes(4)
    web = arena.deployment("web", on=two)
    pod = hold(arena, bad)
    with watching() as seen:
        run = play(
            "maintain",
            maintain_nodes=[bad, two, three],
            maintain_serial=3,
            maintain_max_failures=3,
            maintain_timeout=20,
        )
    reported(run, bad, two, three)
    assert pod in run.node(bad, "node_drain")["message"] + str(run.node(bad, "node_drain")["pods"])
    assert run.node(two, "node_drain")["outcome"] == run.node(three, "node_drain")["outcome"] == "drained"
    assert pod not in run.node(two, "node_drain")["message"]
    assert sorted(seen.taken_out()) == sorted([bad, two, three])
    seen.all_held(resumable=True)
    assert seen.dark_seconds(web) == 0


@pytest.mark.whole
def test_no_further_wave_starts_after_a_failure_unless_it_is_allowed(
    arena: Arena, play: Player, watching: Watch
) -> None:
    one, two, _unused = arena.nodes(3)
    hold(arena, one)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[one, two], maintain_serial=1, maintain_timeout=10)
    assert not run.ok
    seen.all_held(resumable=True)
    order = seen.taken_out()
    assert order in ([one], [two, one]), "nothing was begun after the failure"


@pytest.mark.whole
def test_one_of_three_fails_in_the_users_tasks(arena: Arena, play: Player, watching: Watch) -> None:
    bad, two, three, _unused = arena.nodes(4)
    web = arena.deployment("web", on=two)
    failing = {
        "name": "Patch it",
        "ansible.builtin.fail": {"msg": "the patch does not apply"},
        "when": f"inventory_hostname == '{bad}'",
    }
    with watching() as seen:
        run = play(
            "maintain",
            inventory=play.hosts([bad, two, three]),
            maintain_nodes=[bad, two, three],
            maintain_serial=3,
            maintain_max_failures=3,
            maintain_tasks=play.tasks(failing, TOUCH),
        )
    reported(run, bad, two, three)
    assert arena.step(bad) == "parked"
    assert arena.is_cordoned(bad)
    assert arena.step(two) == arena.step(three) == ""
    assert not arena.is_cordoned(two)
    assert not arena.is_cordoned(three)
    assert "the patch does not apply" in run.text
    seen.all_held(left=True)
    assert seen.dark_seconds(web) == 0
    assert play("release", maintain_nodes=[bad]).ok
    assert not arena.is_cordoned(bad)


@pytest.mark.whole
def test_what_is_blocked_is_left_out_and_done_by_the_same_command(
    arena: Arena, play: Player, watching: Watch, chat: Chat
) -> None:
    """Of three nodes one has a pod that nothing recreates, and the tasks cannot run on the host of another."""
    blocked, unreached, fine, _unused = arena.nodes(4)
    web = arena.deployment("web", 2, on=fine)
    arena.pod("alone", on=blocked)
    names = [blocked, unreached, fine]
    wanted: Json = {"maintain_nodes": names, "maintain_tasks": play.tasks(TOUCH)}
    hosts = play.hosts(names)
    bare = {**hosts[unreached], "ansible_python_interpreter": "/nowhere/python3"}
    with watching() as seen:
        some = {**hosts, unreached: bare}
        run = play("maintain", inventory=some, maintain_on_blocked="skip", **wanted, **chat.input)
        assert not run.ok
        assert chat.moments == ["planned", "started", "failed"]
        assert [[node["name"] for node in told["nodes"]] for told in chat.got[:2]] == [[fine], [fine]]
        assert {node["name"]: node["outcome"] for node in run.report["nodes"]} == {
            blocked: "blocked",
            unreached: "blocked",
            fine: "back",
        }
        assert f"Node {blocked} cannot be taken out: bare_pod" in run.words
        assert f"Host {unreached} answers, but no module" in run.words
        assert not any(map(arena.is_cordoned, names))
        arena.delete("Pod", "alone")
        again = play("maintain", inventory=hosts, maintain_on_blocked="skip", **wanted)
    assert again.ok, again.text
    assert seen.taken_out() == [fine, blocked, unreached]
    seen.all_held()
    assert seen.dark_seconds(web) == 0


@pytest.mark.whole
def test_one_of_three_becomes_unreachable(arena: Arena, play: Player, watching: Watch) -> None:
    bad, two, three, _unused = arena.nodes(4)
    unplug = play.kubectl_task(f"annotate node {bad} lab.kubeops.io/node=down")
    vanish = {**unplug, "when": f"inventory_hostname == '{bad}'"}
    with watching() as seen:
        run = play(
            "maintain",
            inventory=play.hosts([bad, two, three]),
            maintain_nodes=[bad, two, three],
            maintain_serial=3,
            maintain_max_failures=3,
            maintain_tasks=play.tasks(vanish, TOUCH),
        )
    reported(run, bad, two, three)
    assert arena.is_cordoned(bad)
    assert arena.record(bad)
    assert arena.step(two) == arena.step(three) == ""
    assert not arena.is_cordoned(two)
    assert not arena.is_cordoned(three)
    seen.all_held(left=True)


def lifted(log: Log, node: str) -> float:
    """When (monotonic seconds) our taint was lifted from a node."""
    held = False
    for event in log.events:
        if event.kind != "Node" or event.type != "MODIFIED" or event.obj["metadata"]["name"] != node:
            continue
        taints = [taint["key"] for taint in event.obj["spec"].get("taints") or []]
        if held and "maintenance.kubeops.io/in-progress" not in taints:
            return event.mono
        held = "maintenance.kubeops.io/in-progress" in taints
    raise AssertionError(f"{node} was never held by our taint")


@pytest.mark.whole
def test_handlers_have_run_before_the_node_takes_pods(
    arena: Arena, play: Player, watching: Watch, tmp_path: Path
) -> None:
    here, _unused = arena.nodes(2)
    told = tmp_path / "handler-ran"
    role = tmp_path / "patching"
    note = f"import time; open({str(told)!r}, 'w').write(str(time.monotonic()))"
    handler = {"name": "Restart it", "ansible.builtin.command": {"argv": ["python3", "-c", note]}}
    task = {"name": "Patch it", "ansible.builtin.command": "true", "notify": "Restart it"}
    for folder, content in (("handlers", handler), ("tasks", task)):
        (role / folder).mkdir(parents=True)
        (role / folder / "main.yml").write_text(yaml.safe_dump([content]), encoding="utf-8")
    tasks = play.tasks({"name": "Patch", "ansible.builtin.include_role": {"name": str(role)}})
    with watching() as seen:
        run = play("maintain", inventory=play.hosts([here]), maintain_nodes=[here], maintain_tasks=tasks)
        assert run.ok, run.text
    seen.all_held()
    assert float(told.read_text(encoding="utf-8")) < lifted(seen.log, here)


@pytest.mark.whole
def test_a_node_that_somebody_deleted_meanwhile_fails_alone(arena: Arena, play: Player, watching: Watch) -> None:
    gone, two, _unused = arena.nodes(3)
    arena.deployment("slow", 2, on=gone, stop="5s")
    web = arena.deployment("web", on=two)
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[gone, two], maintain_serial=2, maintain_max_failures=2)
        running.until_begun("node_drain")
        arena.delete("Node", gone)
        run = running.wait()
    assert gone in run.text
    assert not arena.is_cordoned(two)
    seen.all_held(foreign=[Foreign("Node", "", gone, (), None)], resumable=True)
    assert seen.dark_seconds(web) == 0


@pytest.mark.whole
def test_each_pod_of_a_roll_moves_once_where_there_is_a_spare_node(arena: Arena, play: Player, watching: Watch) -> None:
    """The scheduler prefers other nodes to those that wait for their wave; a pod that lands there would move again."""
    one, two, three, _spare = arena.nodes(4)
    for node in (one, two, three):
        with arena.placing(node):
            for number in range(3):
                arena.deployment(f"{node[-2:]}-web-{number}", 2, budget={"maxUnavailable": 1}, service=False)
    arena.taint(one, {"key": "lab.kubeops.io/rack", "value": "7", "effect": "PreferNoSchedule"})
    before = {name: arena.node(name)["spec"].get("taints") for name in (one, two, three)}
    with watching() as seen:
        run = play("maintain", maintain_nodes=[one, two, three])
        assert run.ok, run.text
    seen.all_held()
    assert len(seen.evictions()) == 18, "each of the pods once"
    assert {name: arena.node(name)["spec"].get("taints") for name in (one, two, three)} == before
