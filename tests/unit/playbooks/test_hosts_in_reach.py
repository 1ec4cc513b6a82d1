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

import yaml

import ansible_collections.kubeops.node_maintenance as collection

HERE = Path(next(iter(collection.__path__)))
PLAY = "Check that the hosts are reachable"
PROGRAMS = {
    "id": "case $WHO in root) echo 0;; *) echo 1000;; esac",
    "sudo": 'while [ "$1" != root ]; do shift; done; shift; exec "$@"',
    "hung": 'while [ -e "$0" ]; do sleep 0.5; done',
}


UNTOLD = "untold"


def checked(folder: Path, reboots: list[str], *given: str) -> list[dict[str, str]]:
    """What is said before each of these reboots: of ``root``'s own host, and of two of a plain user.

    ``able`` becomes root, ``plain`` becomes nobody else; a connection to ``hung`` works, and nothing is answered on it.
    ``given`` are more words for ``ansible-playbook``.
    """
    for name, script in PROGRAMS.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    answers = [folder / f"{number}.json" for number in range(len(reboots))]
    plays = [play for reboot, answer in zip(reboots, answers, strict=True) for play in asked(folder, reboot, answer)]
    (folder / "play.yml").write_text(yaml.safe_dump(plays, sort_keys=False))
    programs = {"root": "false", "plain": "false", "able": f"{folder}/sudo", "localhost": f"{folder}/sudo"}
    known = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {host: {**known, "ansible_become_exe": program} for host, program in programs.items()}
    hosts["hung"] = {**known, "ansible_shell_executable": f"{folder}/hung"}
    group = dict.fromkeys(host for host in hosts if host != "localhost")
    inventory = {"all": {"hosts": hosts, "children": {"_maintain_hosts": {"hosts": group}}}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    environ = {
        **os.environ,
        "ANSIBLE_HOME": str(folder / "home"),
        # Otherwise nobody becomes root where the tests run as root.
        "ANSIBLE_BECOME_ALLOW_SAME_USER": "true",
    }
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.yml", "play.yml", *given]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, timeout=180, check=False
        )
    finally:
        # What hangs ends with it.
        (folder / "hung").unlink()
    assert given or done.returncode == 0, json.dumps([done.stdout, done.stderr])
    return [json.loads(answer.read_text()) for answer in answers]


def asked(folder: Path, reboot: str, answer: Path) -> list[dict[str, Any]]:
    """Plays: the one of ``maintain`` before such a reboot, on hosts of which nothing was said, and its answer."""
    check: Any = next(p for p in yaml.safe_load((HERE / "playbooks/plays/start.yml").read_text()) if p["name"] == PLAY)
    check["environment"] = {"WHO": "{{ inventory_hostname }}", "PATH": f"{folder}:{os.environ['PATH']}"}
    (wait,) = (task for task in check["tasks"][1]["block"] if "ansible.builtin.wait_for_connection" in task)
    # Nobody comes up later here: one attempt is enough.
    wait["ansible.builtin.wait_for_connection"]["timeout"] = 1
    check["tasks"][1]["timeout"] //= 10
    facts = {"_maintain_out_of_reach": UNTOLD, "_maintain_input": {"reboot": reboot}}
    said = "map('extract', hostvars, '_maintain_out_of_reach')"
    content = f"{{{{ dict(groups._maintain_hosts | zip(groups._maintain_hosts | {said})) | to_json }}}}"
    told = {"ansible.builtin.copy": {"dest": str(answer), "content": content, "mode": "0600"}}
    return [
        {"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.set_fact": facts}]},
        check,
        {"hosts": "localhost", "gather_facts": False, "tasks": [told]},
    ]


def test_becoming_root_is_tried_where_a_reboot_needs_it(tmp_path: Path) -> None:
    before_a_reboot, without = checked(tmp_path, ["always", ""])
    assert "Host plain answers, but nobody becomes root there" in before_a_reboot.pop("plain")
    for found in (before_a_reboot, without):
        assert "Host hung takes connections, but does not answer on them in time." in found.pop("hung")
    assert before_a_reboot == {"root": "", "able": ""}
    assert without == {"root": "", "able": "", "plain": ""}


def test_a_host_whose_check_fails_in_every_way_is_not_taken_for_reached(tmp_path: Path) -> None:
    # An extra variable is stronger than what a task says of itself.
    (found,) = checked(tmp_path, ["always"], "-e", "ansible_become=true")
    assert found["able"] == ""
    # Which part of the check fails first depends on the version of Ansible.
    assert found["plain"] != ""
