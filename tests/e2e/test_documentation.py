# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands of the documentation, carried out as they are printed, but for the names of nodes.

Those that need more than nodes and pods have tests of their own: tests/unit/playbooks/test_blocks.py names them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import headlines, rights
from support.arena import Arena
from support.documented import NODE
from support.lab import ROOT, Lab, environment
from support.plays import Player
from support.sampling import first, later

from ansible_collections.kubeops.node_maintenance.tests.unit.ansible import test_examples as documented
from ansible_collections.kubeops.node_maintenance.tests.unit.playbooks.test_blocks import played


@pytest.mark.parametrize("page", first(1, sorted(played(), reverse=True)))
def test_commands_do_as_they_say(page: str, arena: Arena, play: Player) -> None:
    names = sorted({name for words in played()[page] for name in NODE.findall(" ".join(words))})
    real = dict(zip(names, arena.nodes(len(names), {"pool": "blue"}), strict=True))
    arena.nodes(1)
    for name in real.values():
        arena.deployment(f"web-{name[-2:]}", on=name, start="1s")
    arena.settle()
    tasks = play.tasks({"name": "Patch", "ansible.builtin.command": "true"})
    for words in played()[page]:
        mine = [NODE.sub(lambda found: real[found[0]], word).replace("patch.yml", tasks) for word in words]
        playbook = next(word for word in mine if word.startswith(documented.OURS))
        mine.remove(playbook)
        hosts = play.hosts(list(real.values()))
        run = play.start(playbook.removeprefix(documented.OURS), inventory=hosts, args=mine).wait()
        assert run.ok, f"{page}: {words}\n{run.text}"
    if "evacuate" not in playbook:
        assert [arena.record(name) for name in real.values()] == [None] * len(real)


@pytest.mark.parametrize("page", [later("guide_start.rst"), later("guide_start_zh.rst")])
def test_a_newcomer_grants_rights_plans_and_maintains(page: str, arena: Arena, lab: Lab, tmp_path: Path) -> None:
    text = (ROOT / "docs/docsite/rst" / page).read_text(encoding="utf-8")
    blocks = [console or shell for console, shell in documented.BLOCK.findall(text)]
    granting, plan, maintain = ("\n".join(re.findall(r"^ +[$>] (.*)$", block, re.MULTILINE)) for block in blocks[1:4])
    assert [".access " in granting, ".plan " in plan, ".maintain " in maintain] == [True] * 3
    (node,) = arena.nodes(1)
    arena.nodes(1)
    arena.deployment("web", on=node, start="1s")
    arena.settle()
    (tmp_path / "patch.yml").write_text("- name: Patch\n  ansible.builtin.command: uptime\n  changed_when: false\n")
    hosts = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": {node: hosts}}}))
    # The roles are there already, and so is an account of the default name, which other tests use.
    granting = granting.replace(" -e access_dest", " -e access_service_account=newcomer -e access_dest")
    script = f"{granting}\n{plan}\n{maintain}\n".replace("node-001", node)
    env = environment(tmp_path) | {
        "HOME": str(tmp_path),
        "KUBECONFIG": str(lab.kubeconfig),
        "ANSIBLE_INVENTORY": str(tmp_path / "inventory.yml"),
    }
    env["PATH"] = f"{lab.programs}:{Path(env.get('VIRTUAL_ENV', '/')) / 'bin'}:{env['PATH']}"
    try:
        done = subprocess.run(
            ["bash", "-euc", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        rights.holds_its_own_token_alone(tmp_path / ".kube/operator.kubeconfig", "newcomer")
    finally:
        rights.revoke(lab.api, "newcomer")
    assert headlines.never_dark(done.stdout, "1 node: 1 back in service; 1 pod moved"), done.stdout
    assert arena.record(node) is None


def test_commands_are_found() -> None:
    assert len(played()) >= 10
