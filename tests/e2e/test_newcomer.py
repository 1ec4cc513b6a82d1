# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A newcomer with the README: the archive into an empty environment, an account, a plan, a maintenance.

The commands are those of the README, with the archive in place of the collection's name, and the nodes' names; what
the README leaves to the start guide, the environment, is of that guide. Nothing of this checkout, and
no other Python package or collection, is to be seen by them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import headlines, rights
from support.arena import Arena
from support.lab import ROOT, Lab
from witness import audit

ACCOUNT = "newcomer"

pytestmark = pytest.mark.whole


def archive(folder: Path) -> Path:
    built = ["ansible-galaxy", "collection", "build", "--output-path", str(folder), str(ROOT)]
    subprocess.run(built, check=True, capture_output=True)
    (found,) = folder.glob("*.tar.gz")
    return found


def from_readme() -> list[str]:
    """The commands under "Start", but for ``make``."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = text.partition("## Start\n\n```console\n")[2].partition("```")[0].splitlines()
    assert [line.split()[0] for line in lines] == [
        *("pip", "ansible-galaxy", "pip", "ansible-playbook", "export", "ansible-playbook", "ansible-playbook")
    ]
    return lines


def from_guide(after: str) -> list[str]:
    """The commands of the first block of the start guide behind a heading."""
    text = (ROOT / "docs/docsite/rst/guide_start.rst").read_text(encoding="utf-8")
    block = text.partition(f"\n{after}\n---")[2].partition(".. code-block:: console\n\n")[2].partition("\n\n")[0]
    return re.findall(r"^ +[$>] (.*)$", block, re.MULTILINE)


def script(built: Path, nodes: list[str]) -> str:
    pip, install, requirements, granting, *using = from_readme()
    environment = from_guide("Install")
    assert environment[2:] == [pip, install, requirements], "the guide installs as the README does"
    account = from_guide("Rights")
    assert account[0] == granting, "the guide grants as the README does"
    granting = granting.replace(" -e access_dest", f" -e access_service_account={ACCOUNT} -e access_dest")
    lines = [*environment[:2], pip, install.replace("kubeops.node_maintenance", str(built)), requirements, granting]
    text = "\n".join([*lines, *using, "ansible-galaxy collection list", "pip list", ""])
    return text.replace("worker-1", nodes[0]).replace("worker-2", nodes[1])


def environ(lab: Lab, folder: Path) -> dict[str, str]:
    """As the machine gives it to everybody, without what the tests run in."""
    strange = ("ANSIBLE", "K8S_AUTH", "KUBECONFIG", "PYTHON", "VIRTUAL_ENV", "XDG_", "LAB_", "PYTEST")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(strange)}
    paths = [path for path in kept["PATH"].split(os.pathsep) if not Path(path).is_relative_to(ROOT)]
    return {
        **kept,
        "PATH": os.pathsep.join([str(lab.programs), str(Path(sys.base_prefix) / "bin"), *paths]),
        "HOME": str(folder),
        "KUBECONFIG": str(lab.kubeconfig),
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
        # Only the index of Python packages is to be asked.
        "ANSIBLE_GALAXY_SERVER": "http://127.0.0.1:9/",
        "ANSIBLE_INVENTORY": str(folder / "inventory.yml"),
    }


def test_the_readme_is_all_that_a_newcomer_needs(arena: Arena, lab: Lab, tmp_path: Path) -> None:
    nodes = arena.nodes(3)
    web, api = arena.deployment("web", on=nodes[0], start="1s"), arena.deployment("api", 2, on=nodes[:2])
    arena.settle()
    home = tmp_path / "home"
    home.mkdir()
    host = {"ansible_connection": "local", "ansible_python_interpreter": str(home / "ansible/bin/python")}
    (home / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": dict.fromkeys(nodes, host)}}))
    (home / "patch.yml").write_text("- name: Patch\n  ansible.builtin.command: uptime\n  changed_when: false\n")
    mark = lab.audit_log.stat().st_size
    try:
        done = subprocess.run(
            ["bash", "-euc", script(archive(tmp_path), nodes)],
            cwd=home,
            env=environ(lab, home),
            capture_output=True,
            text=True,
            timeout=480,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        rights.holds_its_own_token_alone(home / ".kube/operator.kubeconfig", ACCOUNT)
    finally:
        rights.revoke(lab.api, ACCOUNT)
    assert headlines.never_dark(done.stdout, "2 nodes: 2 back in service"), done.stdout
    assert str(ROOT) not in said.replace(str(tmp_path), ""), "nothing of this checkout was seen"
    assert [arena.record(node) for node in nodes] == [None] * 3
    assert {*web.nodes(), *api.nodes()} <= {*nodes}
    asked = [one for one in audit.read(lab.audit_log, mark) if one.evicts and one.accepted]
    assert {one.user for one in asked} == {rights.account(ACCOUNT)}
    assert rights.refusals(lab.audit_log, mark, ACCOUNT) == []
    installed = done.stdout.partition("# ")[2]
    collections = re.findall(r"^[a-z_]+\.[a-z_]+(?= )", installed, re.MULTILINE)
    # ansible-core brings one of its own.
    assert {*collections} - {"ansible._protomatter"} == {"kubeops.node_maintenance"}, "no other collection"
    assert re.search(r"^kubernetes +\d", installed, re.MULTILINE)
