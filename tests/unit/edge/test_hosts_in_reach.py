# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Before the first write, ``maintain`` tries on each host what its tasks and its reboot need there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import ansible_collections.kubeops.node_maintenance as collection

HERE = Path(next(iter(collection.__path__)))
PLAY = "Check that the hosts are reachable"
PROGRAMS = {
    "id": "case $WHO in root) echo 0;; *) echo 1000;; esac",
    "sudo": 'while [ "$1" != root ]; do shift; done; shift; exec "$@"',
}


def checked(folder: Path, reboot: str, *given: str) -> dict[str, str]:
    """What is said of each host: of ``root``'s own, and of two of a plain user, one of whom becomes nobody else.

    ``given`` are more words for ``ansible-playbook``.
    """
    for name, script in PROGRAMS.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    play: Any = next(p for p in yaml.safe_load((HERE / "playbooks/maintain.yml").read_text()) if p["name"] == PLAY)
    play["environment"] = {"WHO": "{{ inventory_hostname }}", "PATH": f"{folder}:{os.environ['PATH']}"}
    said = {"ansible.builtin.copy": {"dest": f"{folder}/{{{{ inventory_hostname }}}}.said", "mode": "0600"}}
    said["ansible.builtin.copy"]["content"] = "{{ _maintain_out_of_reach }}"
    told: Any = {"hosts": "_maintain_hosts", "gather_facts": False, "tasks": [said]}
    (folder / "play.yml").write_text(yaml.safe_dump([play, told], sort_keys=False))
    hosts = {"root": "false", "plain": "false", "able": f"{folder}/sudo"}
    known = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "_maintain_out_of_reach": "untold",
    }
    group = {host: {**known, "ansible_become_exe": program} for host, program in hosts.items()}
    everybody = {"localhost": {"_maintain_input": {"reboot": reboot}}}
    inventory = {"all": {"hosts": everybody, "children": {"_maintain_hosts": {"hosts": group}}}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    environ = {
        **os.environ,
        "ANSIBLE_HOME": str(folder / "home"),
        # Otherwise nobody becomes root where the tests run as root.
        "ANSIBLE_BECOME_ALLOW_SAME_USER": "true",
    }
    command = [
        sys.executable,
        "-m",
        "ansible",
        "playbook",
        "-i",
        str(folder / "hosts.yml"),
        str(folder / "play.yml"),
        *given,
    ]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=180, check=False)
    assert given or done.returncode == 0, json.dumps([done.stdout, done.stderr])
    files = {host: folder / f"{host}.said" for host in hosts}
    return {host: file.read_text() if file.exists() else "untold" for host, file in files.items()}


@pytest.mark.parametrize(("reboot", "strict"), [("always", ["plain"]), ("", [])])
def test_becoming_root_is_tried_where_a_reboot_needs_it(reboot: str, strict: list[str], tmp_path: Path) -> None:
    found = {host: text for host, text in checked(tmp_path, reboot).items() if text}
    assert [*found] == strict
    assert all(f"Host {host} answers, but nobody becomes root there" in text for host, text in found.items())


def test_a_host_whose_check_fails_in_every_way_is_not_taken_for_reached(tmp_path: Path) -> None:
    # An extra variable is stronger than what a task says of itself.
    found = checked(tmp_path, "always", "-e", "ansible_become=true")
    assert found["able"] == ""
    assert found["plain"] == "untold"
