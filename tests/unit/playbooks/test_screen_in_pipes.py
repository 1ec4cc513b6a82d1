# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a reader sees of a run in a pipe or on a terminal, and what becomes of the run once nobody reads it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ansible_collections.kubeops.node_maintenance.tests.unit.playbooks.played import EVENTS, furnished, read


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return furnished(tmp_path)


def told(folder: Path, **more: object) -> str:
    """A task that tells these events, and waits for the file ``go`` then."""
    return f"- name: Tell\n  tell: {json.dumps({'events': EVENTS, 'until': str(folder / 'go'), **more})}\n"


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
def test_a_wait_is_told_while_it_lasts(terminal: bool, folder: Path) -> None:
    def then(text: str, _process: subprocess.Popen[bytes]) -> bool:
        if text.count("n1  5 of 7 pods left") == 3:
            (folder / "go").touch()
        return True

    code, text = read(folder, told(folder), then, terminal=terminal, TELL_QUICKLY="1")
    assert code == 0
    assert "n1  cordoned" in text


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
@pytest.mark.parametrize("callback", ["kubeops.node_maintenance.maintenance", "default"])
def test_a_run_goes_on_when_its_reader_has_left(callback: str, terminal: bool, folder: Path) -> None:
    after = f"- name: Go on\n  ansible.builtin.command: touch {folder}/after"
    many = [["cordoned", f"cordoned {number}"] for number in range(500)]

    def then(text: str, _process: subprocess.Popen[bytes]) -> bool:
        if "n1  cordoned" not in text:
            return True
        (folder / "go").touch()
        return False

    code, _text = read(
        folder, told(folder, then=many) + after, then, terminal=terminal, ANSIBLE_STDOUT_CALLBACK=callback
    )
    assert (code, (folder / "after").exists()) == (0, True)
