# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rehearsal on a copy in another lab says what the real run comes to, and the cluster sees nothing but reads."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.arena import Arena
from support.lab import lab_playbook
from support.plays import Player, Run
from witness.log import Json

READS = {"get", "list", "watch"}


@pytest.fixture
def copy_lab(tmp_path: Path) -> Iterator[str]:
    """The name of the lab for the copy; gone afterwards, whatever the rehearsal did."""
    name = f"{os.environ.get('LAB_NAME', 'e2e')}-r{secrets.token_hex(2)}"
    yield name
    lab_playbook(tmp_path, name, "absent")


class Rehearsing:
    """Rehearses on the cluster of a player, and reads what came of it."""

    def __init__(self, play: Player, lab: str, folder: Path) -> None:
        self._play, self._lab, self._folder = play, lab, folder

    def __call__(self, **wanted: Any) -> tuple[Run, Json]:
        """The run, and the content of its `rehearsal.json`."""
        own: Json = {"maintain_report_dir": str(self._folder), "rehearse_lab": self._lab}
        run = self._play("rehearse", within=540, **{**own, **wanted})
        path = self.file("rehearsal.json")
        return run, json.loads(path.read_text("utf-8")) if path.exists() else {}

    def file(self, name: str) -> Path:
        return self._folder / "rehearsal" / name

    def beside(self, real: Run) -> dict[str, Json]:
        """The rows of the comparison with a real run, both named as seen from the folder of another run."""
        files = {"compare": self.file("rehearsal.json"), "real": real.folder / "report/report.json"}
        seen = {name: os.path.relpath(file, real.folder.parent) for name, file in files.items()}
        words: Json = {f"rehearse_{name}": f"../{path}" for name, path in seen.items()}
        compared = self._play("rehearse", **words)
        assert compared.ok, compared.text
        rows = json.loads(self.file("comparison.json").read_text("utf-8"))["rows"]
        return {row["what"]: row for row in rows}


@pytest.fixture
def rehearse(play: Player, copy_lab: str, tmp_path: Path) -> Rehearsing:
    return Rehearsing(play, copy_lab, tmp_path / "rehearsed")


def asked(audit_log: Path, mark: int) -> list[tuple[str, str]]:
    """Verb and resource of what cluster_copy has asked for since the mark."""
    with audit_log.open("rb") as file:
        file.seek(mark)
        entries = [json.loads(line) for line in file.read().decode("utf-8").splitlines() if "/cluster_copy" in line]
    return [(entry["verb"], (entry.get("objectRef") or {}).get("resource", "")) for entry in entries]


def like_a_shop(arena: Arena, nodes: Sequence[str]) -> None:
    """One of each kind of workload, most of it on the first node."""
    here, there, third, *_others = nodes
    arena.deployment("single", on=here, start="4s")
    arena.deployment("web", 3, on=[here, there, third], start="3s", budget={"maxUnavailable": 1})
    arena.statefulset("queue", 3, on=[here, there, third], start="2s", stop="2s", budget={"minAvailable": 2})
    arena.daemonset("agent")
    arena.mirror_pod("static", here)


@pytest.mark.whole
def test_a_rehearsal_finds_what_the_real_run_does_and_only_reads(
    arena: Arena, play: Player, rehearse: Rehearsing
) -> None:
    nodes = arena.nodes(4)
    like_a_shop(arena, nodes)
    arena.settle()
    mark = play.lab.audit_log.stat().st_size
    first: Json = {"maintain_nodes": nodes[:2], "maintain_serial": 1}
    run, found = rehearse(**first)
    assert run.ok, run.text
    requests = asked(play.lab.audit_log, mark)
    assert {verb for verb, _resource in requests} <= READS
    resources = {resource for _verb, resource in requests}
    assert {"nodes", "pods", "statefulsets"} <= resources
    assert not resources & {"secrets", "configmaps"}
    assert arena.is_cordoned(nodes[0]) is False
    real = play("maintain", **first)
    assert real.ok, real.text
    rows = rehearse.beside(real)
    assert (found["verdict"], found["waves"]) == ("finished", [[nodes[0]], [nodes[1]]])
    differ = [
        row for what in ("verdict", "waves", "findings", "blockers", "pods moved") if not (row := rows[what])["same"]
    ]
    assert differ == []


@pytest.mark.whole
def test_a_rehearsal_names_what_blocks_and_a_bad_snapshot_is_told(
    arena: Arena, play: Player, rehearse: Rehearsing, tmp_path: Path
) -> None:
    here, _there = arena.nodes(2)
    arena.deployment("web", 2, on=here, budget={"maxUnavailable": 0})
    arena.settle()
    wanted: Json = {"maintain_nodes": [here], "maintain_method": "surge"}
    run, found = rehearse(**wanted)
    assert not run.ok
    real = play("maintain", **wanted)
    assert not real.ok
    rows = rehearse.beside(real)
    assert found["verdict"] == "blocked"
    assert (rows["blockers"]["same"], rows["verdict"]["same"], rows["findings"]["same"]) == (True, True, True), rows
    content = rehearse.file("snapshot.json.gz").read_bytes()
    broken = tmp_path / "broken.json.gz"
    broken.write_bytes(content[: len(content) // 2])
    refused = play.module("cluster_copy", state="rebuilt", path=str(broken))
    assert not refused.ok
    assert "truncated or damaged" in refused.words
    safe = play.module("cluster_copy", state="rebuilt", path=str(rehearse.file("snapshot.json.gz")))
    assert not safe.ok
    assert "only created in an empty lab" in safe.words


@pytest.mark.whole
def test_thirty_nodes_take_as_long_as_rehearsed(arena: Arena, play: Player, rehearse: Rehearsing) -> None:
    nodes = arena.nodes(30)
    for number in range(20):
        on = [nodes[(3 * number + each) % 30] for each in range(3)]
        arena.deployment(f"web-{number}", 3, on=on, start="4s", budget={"maxUnavailable": 1})
    for number in range(6):
        arena.deployment(f"single-{number}", on=nodes[number], start="5s")
    like_a_shop(arena, nodes)
    arena.settle()
    wanted: Json = {"maintain_nodes": nodes[:6], "maintain_serial": 2}
    run, found = rehearse(**wanted)
    assert run.ok, run.text
    real = play("maintain", within=540, **wanted)
    assert real.ok, real.text
    rows = rehearse.beside(real)
    assert len(found["nodes"]) == 6
    names = ("verdict", "waves", "findings", "blockers", "pods moved", "seconds")
    assert [row for what in names if not (row := rows[what])["same"]] == []
