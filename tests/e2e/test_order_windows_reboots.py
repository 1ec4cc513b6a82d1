# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which nodes leave together and when: zones, the soak between two waves, and maintenance windows."""

from __future__ import annotations

import collections
import datetime
from pathlib import Path

import pytest
from support import nodes as fake
from support.arena import Arena
from support.plays import Player
from support.waiting import until
from support.watching import Seen, Watch
from witness.log import Json

ZONE = "topology.kubernetes.io/zone"
HELD = "the gates hold"


def out_together(seen: Seen) -> set[frozenset[str]]:
    """The sets of nodes that were cordoned at the same time."""
    out: set[str] = set()
    found = set()
    for event in seen.log.events:
        if event.kind == "Node":
            name = event.obj["metadata"]["name"]
            (out.add if event.obj["spec"].get("unschedulable") else out.discard)(name)
            found.add(frozenset(out))
    return found


@pytest.mark.whole
def test_no_wave_takes_more_nodes_of_a_zone_than_allowed(arena: Arena, play: Player, watching: Watch) -> None:
    zones = {name: zone for zone in "ab" for name in arena.nodes(3, {ZONE: zone})}
    arena.nodes(1)
    web = arena.deployment("web", 2)
    with watching() as seen:
        run = play(
            "maintain", maintain_nodes=[*zones], maintain_serial=4, maintain_max_per_zone=1, maintain_order="name"
        )
        assert run.ok, run.text
    seen.all_held()
    together = out_together(seen)
    assert max(len(nodes) for nodes in together) == 2, "one of each zone"
    assert all(max(collections.Counter(zones[node] for node in nodes).values()) == 1 for nodes in together if nodes)
    assert sorted(seen.taken_out()) == sorted(zones)
    assert seen.dark_seconds(web) == 0
    wrong = play("plan", maintain_nodes=[*zones], maintain_max_per_zone=1, maintain_zone_key="example.org/rack")
    assert not wrong.ok
    assert "No node has the label example.org/rack." in wrong.words


@pytest.mark.whole
def test_a_gate_that_fails_in_the_soak_stops_the_run_and_its_rest_follows(
    arena: Arena, play: Player, watching: Watch
) -> None:
    one, two, _unused = arena.nodes(3)
    arguments: Json = {"maintain_nodes": [one, two]}
    running = play.start("maintain", maintain_soak="10m", **arguments)
    running.until_says(HELD)
    fake.switch(arena.api, one, "not-ready")
    run = running.wait(60)
    assert not run.ok
    assert f"A gate failed in the soak: Node {one}: its condition Ready is False." in run.words
    assert (
        f"No further wave starts. Not started: {two}. Once the cause is removed, run the same command again."
        in run.words
    )
    assert not arena.is_cordoned(two)
    fake.switch(arena.api, one, None)
    until(lambda: not arena.node(one)["spec"].get("taints"), 30, "the node is Ready, and its taints are gone")
    # Killed in the rest of the soak, the run knows from what is stored when it began.
    running = play.start("maintain", maintain_soak="10m", **arguments)
    running.until_says(HELD)
    assert "600 s left" not in running.text
    running.kill_all()
    with watching() as seen:
        run = play("maintain", maintain_soak="5s", **arguments)
        assert run.ok, run.text
    assert seen.taken_out() == [two]
    assert "soaking" not in run.text, "the soak was over before it began anew"


@pytest.mark.whole
def test_a_window_that_is_closed_or_too_short_starts_no_wave(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    now = datetime.datetime.now(datetime.UTC)
    clock = [(now + datetime.timedelta(hours=hours)).strftime("%H:%M") for hours in (-1, 1, 2)]
    is_open = {"start": clock[0], "end": clock[1], "tz": "UTC"}
    arguments: Json = {"maintain_nodes": [here], "maintain_reboot": True, "inventory": play.hosts([here])}
    with watching() as seen:
        closed = play("maintain", maintain_window={**is_open, "start": clock[1], "end": clock[2]}, **arguments)
        short = play("maintain", maintain_window=is_open, maintain_tasks_estimate="3h", **arguments)
    for run in (closed, short):
        assert not run.ok
        assert "Nothing was changed." in run.words
        assert run.of("node_cordon") == []
    assert "The maintenance window is closed. It opens" in closed.words
    assert f"{clock[1]} UTC" in closed.words
    assert "No window of the next two weeks is open that long" in short.words
    assert seen.writes == []
    planned = play("plan", maintain_nodes=[here], maintain_window=is_open)
    assert planned.ok
    assert "The maintenance window is open for the first wave." in planned.words


def hosts(play: Player, folder: Path, nodes: list[str], *marked: str) -> dict[str, Json]:
    """Hosts with a root of their own each; those that are ``marked`` have to be rebooted."""
    found: dict[str, Json] = {}
    for node in nodes:
        run = folder / node / "var/run"
        run.mkdir(parents=True)
        if node in marked:
            (run / "reboot-required").touch()
        found |= play.hosts([node], preflight_reboot_root=str(folder / node))
    return found


@pytest.mark.whole
def test_only_hosts_that_have_to_be_are_rebooted(arena: Arena, play: Player, watching: Watch, tmp_path: Path) -> None:
    one, two, _unused = nodes = arena.nodes(3)
    booted = {node: fake.boot_id(arena.api, node) for node in nodes}
    inventory = hosts(play, tmp_path, nodes[:2], two)
    arguments: Json = {"inventory": inventory, "maintain_nodes": [one, two], "maintain_reboot": "if_required"}
    tasks = play.tasks({"name": "Patch it", "ansible.builtin.command": "true"})
    with watching() as seen:
        checked = play("maintain", check=True, **arguments)
        assert checked.ok, checked.text
    assert [node["name"] for node in checked.of("node_cordon")[0]["nodes"]] == [two]
    assert seen.writes == []
    with watching() as seen:
        run = play("maintain", within=180, **arguments)
        assert run.ok, run.text
    seen.all_held()
    assert seen.taken_out() == [two], "there is nothing to do on the other one"
    assert f"Host {one} does not have to be rebooted. Its node is not taken out of service." in run.words
    assert f"Host {two} has to be rebooted: /var/run/reboot-required exists." in run.words
    again = {node: fake.boot_id(arena.api, node) for node in nodes}
    assert [node for node in nodes if again[node] != booted[node]] == [two]
    with watching() as seen:
        run = play("maintain", within=180, maintain_serial=2, maintain_tasks=tasks, **arguments)
        assert run.ok, run.text
    seen.all_held()
    assert sorted(seen.taken_out()) == [one, two], "with tasks both are maintained"
    assert fake.boot_id(arena.api, one) == booted[one]
    assert fake.boot_id(arena.api, two) != again[two]
    assert run.node(one, "node_ready")["outcome"] == run.node(two, "node_ready")["outcome"] == "passed"


@pytest.mark.whole
def test_nodes_are_chosen_by_what_their_hosts_say(arena: Arena, play: Player, watching: Watch, tmp_path: Path) -> None:
    one, two, _unused = nodes = arena.nodes(3, {"pool": "chosen"})
    arguments: Json = {
        "maintain_nodes": "reboot_required",
        "maintain_node_selector": f"pool=chosen,kubernetes.io/hostname in ({', '.join(nodes)})",
    }
    with watching() as seen:
        planned = play("plan", inventory=hosts(play, tmp_path / "1", nodes, one, two), **arguments)
        assert planned.ok, planned.text
        none = play("maintain", inventory=hosts(play, tmp_path / "2", nodes), **arguments)
        assert none.ok, none.text
    assert seen.writes == []
    assert planned.of("maintenance_plan")[-1]["waves"] == [[one], [two]]
    with watching() as seen:
        run = play("evacuate", inventory=hosts(play, tmp_path / "3", nodes, two), **arguments)
        assert run.ok, run.text
    assert seen.taken_out() == [two]
    assert arena.step(two) == "parked"
    assert play("release", maintain_nodes=[two]).ok
