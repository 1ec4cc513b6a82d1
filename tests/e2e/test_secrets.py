# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is secret in the input and the credentials of a run stands nowhere else, whether it ends or is killed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support import rights
from support.arena import Arena
from support.plays import Player
from support.receiver import CANARY, Chat
from support.waiting import until
from witness.log import Json

PASSWORD = "e4c9-variable-canary"
NEEDLESS = "bookkeeping, not secret"


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Where Ansible puts logs, facts and temporary files, as an environment."""
    names = {
        "TMPDIR": "tmp",
        "ANSIBLE_HOME": "home",
        "ANSIBLE_LOCAL_TEMP": "home/tmp",
        "ANSIBLE_REMOTE_TEMP": "home/remote",
        "ANSIBLE_CACHE_PLUGIN_CONNECTION": "facts",
        "ANSIBLE_LOG_PATH": "log/ansible.log",
    }
    for name in names.values():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "tmp").mkdir()
    found = {variable: str(tmp_path / name) for variable, name in names.items()}
    return {**found, "ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile"}


def showing(folders: list[Path], secrets: Mapping[str, str]) -> Iterator[str]:
    """Which file shows what."""
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        yield from (f"{name} in {path.name}" for name, secret in secrets.items() if secret.encode() in content)


@pytest.mark.whole
def test_a_killed_run_and_the_one_that_ends_it_show_no_secret(
    arena: Arena, play: Player, chat: Chat, places: dict[str, str], tmp_path: Path
) -> None:
    here, there = arena.nodes(2)
    with arena.placing(here):
        web = arena.deployment("web", start="2s")
    secrets = {"the token": rights.token(play.lab.operator), "the webhook": CANARY, "a variable": PASSWORD}
    told: Json = {
        "maintain_nodes": [here],
        "maintain_announce_events": True,
        "site_password": PASSWORD,
        "site_words": NEEDLESS,
        **chat.input,
    }
    tasks = play.tasks({"name": "Use the password", "ansible.builtin.debug": {"msg": "{{ site_words }}"}})
    told |= {"maintain_tasks": tasks}
    killed = play.start("maintain", args=["-vvvv"], diff=True, env=places, inventory=play.hosts([here]), **told)
    until(lambda: len(web.pods()) > 1 or killed.over, 120, "the pod is being replaced", every=0.02)
    assert not killed.over, killed.text
    killed.kill_all()
    folders = [killed.folder, *(tmp_path / name for name in ("tmp", "home", "facts", "log"))]
    assert list(showing(folders, secrets)) == [], "after the kill"
    run = play("maintain", args=["-vvvv"], diff=True, env=places, inventory=play.hosts([here]), within=300.0, **told)
    assert run.ok, run.text
    assert web.nodes() == [there]
    assert NEEDLESS in run.text
    assert list(showing([*folders, run.folder], secrets)) == []
    assert {"it in output", "it in ansible.log"} <= set(showing([*folders, run.folder], {"it": NEEDLESS}))
    assert chat.moments.count("ended") == 1
