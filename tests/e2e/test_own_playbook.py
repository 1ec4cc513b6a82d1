# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook that a guide offers to those who write their own, exactly as it is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.arena import Arena
from support.lab import ROOT
from support.plays import Player
from support.watching import Watch
from witness.log import Json

PLAYBOOK = ROOT / "playbooks/files/own_playbook.yml"

pytestmark = pytest.mark.whole


def touch(folder: Path) -> Json:
    """Work that shows on which hosts it was done."""
    return {"name": "Touch it", "ansible.builtin.command": f"touch {folder}/{{{{ inventory_hostname }}}}"}


def done(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def worked(tmp_path: Path) -> Path:
    folder = tmp_path / "worked"
    folder.mkdir()
    return folder


def test_it_takes_the_nodes_out_and_back_one_by_one(arena: Arena, play: Player, watching: Watch, worked: Path) -> None:
    first, second, _spare = arena.nodes(3)
    web = arena.deployment("web", on=first, start="1s")
    api = arena.deployment("api", 2, on=[first, second], start="1s")
    with watching() as seen:
        run = play.file(PLAYBOOK, {"workers": [first, second]}, work=play.tasks(touch(worked)))
        assert run.ok, run.text
        arena.settle()
    seen.all_held()
    assert seen.dark_seconds(web) == seen.dark_seconds(api) == 0
    assert done(worked) == sorted([first, second])
    for module, outcome in (("node_drain", "drained"), ("node_cordon", "uncordoned")):
        assert [run.node(name, module)["outcome"] for name in (first, second)] == [outcome, outcome]


def test_a_node_on_which_the_work_fails_returns_to_service_and_the_next_one_is_not_touched(
    arena: Arena, play: Player, watching: Watch, worked: Path
) -> None:
    first, second, third, _spare = arena.nodes(4)
    web = arena.deployment("web", on=second, start="1s")
    api = arena.deployment("api", 2, on=[first, third], start="1s")
    fails: Json = {
        "name": "Patch it",
        "ansible.builtin.fail": {"msg": "no such package"},
        "when": f"inventory_hostname == '{second}'",
    }
    with watching() as seen:
        run = play.file(PLAYBOOK, {"workers": [first, second, third]}, work=play.tasks(touch(worked), fails))
        arena.settle()
    assert not run.ok
    assert "Patch it: no such package" in run.words
    # Nothing is left of it, on no node.
    seen.all_held()
    assert seen.dark_seconds(web) == seen.dark_seconds(api) == 0
    assert done(worked) == sorted([first, second])
    assert [run.node(name, "node_cordon")["outcome"] for name in (first, second)] == ["uncordoned", "uncordoned"]
    assert not [request for request in seen.writes if third in request.name]


def test_blockers_end_it_before_the_first_node_is_touched(arena: Arena, play: Player, watching: Watch) -> None:
    first, second = arena.nodes(2)
    arena.pod("bare", second)
    arena.settle()
    with watching() as seen:
        run = play.file(PLAYBOOK, {"workers": [first, second]}, work=play.tasks())
    assert not run.ok
    assert "bare" in run.words
    assert seen.writes == []
