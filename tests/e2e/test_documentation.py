# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands and examples of the documentation, carried out as they are printed, but for the names of nodes.

Those that need more than nodes and pods have tests of their own: ELSEWHERE names them.
"""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from support import rights
from support.arena import Arena
from support.lab import ROOT, Lab, environment
from support.plays import Player, Run
from support.sampling import first, later
from witness.log import Json

from ansible_collections.kubeops.node_maintenance.tests.unit.edge import test_examples as documented
from ansible_collections.kubeops.node_maintenance.tests.unit.edge.test_documentation import MODULES as ALL_MODULES
from ansible_collections.kubeops.node_maintenance.tests.unit.edge.test_documentation import PLUGINS

NODE = re.compile(r"\b(?:worker|node|gpu)-0*\d\b")
"""The name of a node in the documentation."""
ELSEWHERE = {
    "dead_nodes.rst": "test_dead_nodes.py",
    "descheduler_rollout.rst": "test_descheduler_fleet.py",
    "playbook_descheduler.rst": "test_descheduler_fleet.py",
    "playbook_fence.rst": "test_fence.py",
    "guide_kernel.rst": "test_order_windows_reboots.py",
    "guide_own_playbook.rst": "test_own_playbook.py",
    "guide_rehearse.rst": "test_rehearsal.py",
    "playbook_rehearse.rst": "test_rehearsal.py",
    "playbook_lab.rst": "test_lab.py",
}
"""Pages whose commands are carried out by other tests, with clusters that they need."""
PLAYED = ("plan", "maintain", "evacuate", "release", "recover", "fence")
MODULES = {
    "node_taint": (),
    "maintenance_plan": (),
    "maintenance_report": (),
    "maintenance_state": ("Undo what one run left",),
    "node_cordon": (),
    "node_drain": ("Take a node out of service", "Drain it by PodMigrationJobs, and leave what they cannot move"),
    "pdb_guard": (),
}
"""Modules whose examples need nodes and pods only, with the tasks that need Koordinator or a killed run."""
MODULES_ELSEWHERE = {
    "cluster_copy": "test_rehearsal.py",
    "descheduler_config": "test_descheduler_config.py",
    "maintenance_event": "test_announce.py",
    "maintenance_hooks": "test_hooks.py",
    "pod_migration_job": "test_pod_migration_job.py",
}
"""Modules whose examples need a second cluster, a descheduler, a server or Koordinator."""


def played() -> dict[str, list[list[str]]]:
    """By page: the words behind ``ansible-playbook`` of the commands that need nodes only, in their order."""
    found: dict[str, list[list[str]]] = {}
    for page, command in documented.commands():
        words = shlex.split(command, comments=True)[1:]
        name = next((word for word in words if word.startswith(documented.OURS)), "")
        # A file of variables, a killed run and Koordinator are of other tests.
        apart = "@" in command or "koordinator" in command or re.search(r"_run=[0-9a-f]{8}", command)
        if page not in ELSEWHERE and name.removeprefix(documented.OURS) in PLAYED and not apart:
            found.setdefault(page, []).append(words)
    return found


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


def examples(module: str, source: str, left_out: Sequence[str] = ()) -> list[Json]:
    tasks: list[Json] = yaml.safe_load(source)
    wanted = [task for task in tasks if task["name"] not in left_out]
    assert len(wanted) == len(tasks) - len(left_out), module
    return wanted


def carried_out(play: Player, nodes: Sequence[str], tasks: Sequence[Json], env: dict[str, str] | None = None) -> Run:
    file = play.folder / "examples.yml"
    plays = [{"name": "Examples", "hosts": "localhost", "gather_facts": False, "tasks": tasks}]
    file.write_text(yaml.safe_dump(plays, sort_keys=False))
    run = play.file(file, {"nodes": nodes}, env=env)
    assert run.ok, run.text
    assert run.text.count("TASK [") == len(tasks)
    assert "skipping:" not in run.text
    return run


@pytest.mark.parametrize("module", first(1, list(MODULES)))
def test_examples_do_as_they_say(module: str, arena: Arena, play: Player) -> None:
    source = importlib.import_module(f"{PLUGINS}.modules.{module}").EXAMPLES
    names = sorted(set(NODE.findall(source)))
    nodes = arena.nodes(max(1, len(names)), {"pool": "blue"})
    arena.nodes(1)
    arena.deployment("web", on=nodes[0], start="1s")
    arena.settle()
    real = dict(zip(names, nodes, strict=False))
    tasks = examples(module, NODE.sub(lambda found: real[found[0]], source), MODULES[module])
    carried_out(play, nodes, tasks)
    assert [arena.record(name) for name in nodes] == [None] * len(nodes)


@pytest.mark.whole
def test_examples_of_accounts_do_as_they_say(lab: Lab, play: Player, tmp_path: Path) -> None:
    """As the administrator. The account is another, because the lab has one of the default name."""
    name = "kubeops.node_maintenance.maintenance_access"
    tasks = examples("maintenance_access", importlib.import_module(f"{PLUGINS}.modules.maintenance_access").EXAMPLES)
    tasks[0][name] |= {"service_account": "documented"}
    undo = [{**tasks[at], name: {**tasks[at][name], "state": "absent"}} for at in (3, 0)]
    env = {"K8S_AUTH_KUBECONFIG": str(lab.kubeconfig), "HOME": str(tmp_path)}
    written = tmp_path / ".kube/operator.kubeconfig"
    written.parent.mkdir()
    try:
        carried_out(play, [], tasks, env)
        assert rights.may(written, "create", "", "pods/eviction")
    finally:
        carried_out(play, [], undo, env)
    assert not written.exists()


@pytest.mark.parametrize("page", [later("guide_start.rst"), later("guide_start_zh.rst")])
def test_a_newcomer_grants_rights_plans_and_maintains(page: str, arena: Arena, lab: Lab, tmp_path: Path) -> None:
    text = (ROOT / "docs/docsite/rst" / page).read_text(encoding="utf-8")
    blocks = [console or shell for console, shell in documented.BLOCK.findall(text)]
    granting, plan, maintain = ("\n".join(re.findall(r"^ +[$>] (.*)$", block, re.MULTILINE)) for block in blocks[1:4])
    assert ["kubectl apply" in granting, ".plan " in plan, ".maintain " in maintain] == [True] * 3
    (node,) = arena.nodes(1)
    arena.nodes(1)
    arena.deployment("web", on=node, start="1s")
    arena.settle()
    (tmp_path / "patch.yml").write_text("- name: Patch\n  ansible.builtin.command: uptime\n  changed_when: false\n")
    hosts = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": {node: hosts}}}))
    # The roles are there already, and so is an account of that name, which other tests use.
    script = f"{granting}\n{plan}\n{maintain}\n".replace("operator", "newcomer").replace("node-001", node)
    script = script.replace("~/.ansible/collections/ansible_collections/kubeops/node_maintenance", str(ROOT))
    env = environment(tmp_path) | {
        "KUBECONFIG": str(lab.kubeconfig),
        "ANSIBLE_INVENTORY": str(tmp_path / "inventory.yml"),
    }
    env["PATH"] = f"{lab.programs}:{Path(env.get('VIRTUAL_ENV', '/')) / 'bin'}:{env['PATH']}"
    try:
        done = subprocess.run(
            ["bash", "-euc", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240, check=False
        )
    finally:
        for role in ("read", "nodes", "evict", "guard", "surge"):
            lab.run_kubectl("delete", "clusterrolebinding", f"newcomer-{role}")
        lab.run_kubectl("-n", "kubeops-node-maintenance", "delete", "rolebinding", "newcomer-locks", "newcomer-runs")
        lab.run_kubectl("-n", "kubeops-node-maintenance", "delete", "serviceaccount", "newcomer")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Never dark. 1 node: 1 back in service; 1 pod moved" in done.stdout
    assert arena.record(node) is None


def test_what_is_not_carried_out_here_is_carried_out_elsewhere() -> None:
    tests = [*ELSEWHERE.values(), *MODULES_ELSEWHERE.values()]
    assert [test for test in tests if not (ROOT / "tests/e2e" / test).is_file()] == []
    assert {*MODULES, *MODULES_ELSEWHERE, "maintenance_access"} == {*ALL_MODULES}
    assert len(played()) >= 10
