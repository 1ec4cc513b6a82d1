# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run prints with Ansible's own callback: progress below its task, and little else if one asks for little."""

from __future__ import annotations

import re

import pytest
from support import headlines
from support.arena import Arena
from support.plays import Player

pytestmark = pytest.mark.whole

PROGRESS = re.compile(r"^\d\d:\d\d:\d\d  \S+  .*", re.MULTILINE)
OUT, BACK = "Take the wave out of service", "Return the wave to service"
BELOW = {
    "cordoned": OUT,
    "replacing": OUT,
    "drained": OUT,
    "handed over": OUT,
    "our taint removed": BACK,
    "uncordoned": BACK,
}
"""The task below whose header a line of progress is expected."""
FEW = {"ANSIBLE_DISPLAY_OK_HOSTS": "false", "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false"}


def below(text: str) -> dict[str, str]:
    """Each line of progress, with the last header before it."""
    found, header = {}, ""
    for line in text.splitlines():
        if line.startswith(("TASK [", "PLAY [")):
            header = line
        elif PROGRESS.match(line):
            found[line] = header
    return found


@pytest.mark.parametrize("asked", [{}, FEW], ids=["everything", "few"])
def test_progress_is_below_its_task_and_housekeeping_is_quiet(
    asked: dict[str, str], arena: Arena, play: Player
) -> None:
    here, _there = arena.nodes(2)
    arena.deployment("web", on=here, start="1s")
    arena.settle()
    tasks = play.tasks({"name": "Patch", "ansible.builtin.command": "echo patched"})
    run = play("maintain", maintain_nodes=[here], maintain_tasks=tasks, inventory=play.hosts([here]), env=asked)
    assert run.ok, run.text
    headers = below(run.text)
    for said, task in BELOW.items():
        places = [header for line, header in headers.items() if line.rpartition("  ")[2].startswith(said)]
        assert len(places) == 1, f"{said}\n{run.text}"
        assert task in places[0]
    assert "Validating arguments" not in run.text
    assert headlines.never_dark(run.text, "1 node: 1 back in service"), run.text
    if asked:
        quiet = [line for line in run.text.splitlines() if line.startswith(("ok:", "skipping:"))]
        assert quiet == []
        assert "changed: [" in run.text
        assert len([line for line in run.text.splitlines() if not PROGRESS.match(line)]) < 92
