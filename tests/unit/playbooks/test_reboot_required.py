# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tasks that ask a host whether it has to be rebooted, on real files of hosts in folders of their own."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import ansible_collections.kubeops.node_maintenance as collection
from ansible_collections.kubeops.node_maintenance.plugins.filter import maintain_summary

TREE = next(iter(collection.__path__)).removesuffix("/ansible_collections/kubeops/node_maintenance")
SUMMED = maintain_summary.FilterModule().filters()["maintain_summary"]
CHOOSE = "ansible_collections/kubeops/node_maintenance/playbooks/plays/choose.yml"
RUNNING = platform.release()
NEWER = f"9{RUNNING}"
OLDER = f"kernel {RUNNING} runs, and "
TRAP = f"{NEWER}.{{{{ 7*191 }}}}"
"""A kernel's name that is no template, whoever says so."""
BEFORE = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: kubeops.node_maintenance.preflight, tasks_from: reboot_required}

- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact:
        _maintain_input: {asks_hosts: true}
        _maintain_listed: {}
"""
AFTER = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.copy:
        content: "{{ {'chosen': _maintain_chosen, 'hosts': dict(hosts | zip(answers))} | to_json }}"
        dest: "{{ playbook_dir }}/answer.json"
      vars:
        hosts: "{{ groups['_maintain_asked'] }}"
        answers: "{{ hosts | map('extract', hostvars, 'preflight_reboot') }}"
      check_mode: false
"""


def kernel(root: Path, release: str, *, removed: bool = False) -> None:
    folder = root / "lib/modules" / release
    folder.mkdir(parents=True)
    (folder / ("modules.dep" if removed else "modules.builtin")).touch()


def command(root: Path, name: str, words: str, code: int) -> None:
    """An executable that has this exit code if it is called with these words."""
    path = root / "usr/bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n[ "$*" = "{words}" ] && exit {code}\nexit 99\n')
    path.chmod(0o755)


def prepared(folder: Path) -> dict[str, tuple[Path, dict[str, Any], str]]:
    """Hosts, each with its root, its variables, and what is said of it (nothing if it need not be rebooted)."""
    hosts: dict[str, tuple[Path, dict[str, Any], str]] = {}

    def host(name: str, said: str, **variables: Any) -> Path:
        root = folder / name
        root.mkdir()
        hosts[name] = root, variables, said
        return root

    every = host(
        "every", f"/var/run/reboot-required exists and needs-restarting says so and {OLDER}{NEWER} is installed"
    )
    (every / "var/run").mkdir(parents=True)
    (every / "var/run/reboot-required").touch()
    command(every, "needs-restarting", "-r", 1)
    kernel(every, RUNNING)
    kernel(every, NEWER)
    trap = host("trap", f"/etc/please exists and needs-restarting says so and {OLDER}{TRAP} is installed")
    hosts["trap"][1]["preflight_reboot_files"] = ["/etc/please"]
    (trap / "etc").mkdir()
    (trap / "etc/please").touch()
    command(trap, "dnf5", "needs-restarting", 1)
    kernel(trap, RUNNING)
    kernel(trap, TRAP)
    current = host("current", "")
    command(current, "needs-restarting", "-r", 0)
    kernel(current, RUNNING)
    kernel(current, NEWER, removed=True)
    host("bare", "")
    kernel(host("not-asked", "", preflight_reboot_checks=["file"]), NEWER)
    return hosts


def test_each_host_says_whether_and_why_in_check_mode_too(tmp_path: Path) -> None:
    hosts = prepared(tmp_path)
    known = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = {
        name: {**known, "preflight_reboot_root": str(root), **variables}
        for name, (root, variables, _said) in hosts.items()
    }
    (tmp_path / "hosts.json").write_text(json.dumps({"_maintain_asked": {"hosts": inventory}}))
    choose = yaml.safe_load(Path(TREE, CHOOSE).read_text(encoding="utf-8"))[-1]
    plays = [*yaml.safe_load(BEFORE), choose, *yaml.safe_load(AFTER)]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(plays, sort_keys=False))
    (tmp_path / "ansible.cfg").touch()
    environ = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": TREE,
        "ANSIBLE_HOME": str(tmp_path / "home"),
        "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
        "ANSIBLE_INVENTORY_ENABLED": "yaml",
        "ANSIBLE_PIPELINING": "1",
    }
    words = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.json", "play.yml", "--check"]
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    changed = dict(re.findall(r"^([\w-]+) +: .*changed=(\d+)", done.stdout, re.MULTILINE))
    assert changed == {**dict.fromkeys(hosts, "0"), "localhost": "1"}, "nothing but the file with the answer"
    answer = json.loads((tmp_path / "answer.json").read_text())
    for name, (_root, _variables, said) in hosts.items():
        whether = f"has to be rebooted: {said}." if said else "does not have to be rebooted."
        assert answer["hosts"][name] == {"required": bool(said), "message": f"Host {name} {whether}"}
    assert "Host trap has to be rebooted." in answer["chosen"]["lines"]
    assert str(7 * 191) not in done.stdout, "what a host says was evaluated"


ASKED = {"a": True, "b": False, "c": None}


def test_nodes_whose_hosts_need_no_reboot_are_left_out_and_named() -> None:
    found = SUMMED({"listed": {}}, "choice", {"asked": ASKED})
    assert found["nodes"] == ["a", "c"], "who cannot be asked is not left out"
    assert found["lines"] == [
        "Host a has to be rebooted.",
        "Host b does not have to be rebooted. Its node is not taken out of service.",
        "Host c could not be asked.",
    ]


@pytest.mark.parametrize(("run", "nodes"), [("ab12", ["a", "b", "c"]), ("ef56", ["a", "c"])])
def test_a_node_that_the_resumed_run_has_left_out_is_not_left_there(run: str, nodes: list[str]) -> None:
    traces = [{"kind": kind, "run": of, "nodes": ["b"]} for kind, of in (("Node", "ab12"), ("Lease", "ef56"))]
    listed = {"resumable": {"run": run, "finished": []}, "traces": traces}
    assert SUMMED({"listed": listed}, "choice", {"asked": ASKED})["nodes"] == nodes
