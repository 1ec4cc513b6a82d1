# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The EXAMPLES of every plugin, carried out as they are printed.

Other words than printed are those of ``words``: names of nodes, and addresses for which servers on loopback stand.
Those that need Koordinator or a descheduler are in test_examples_koordinator.py, the rulebook of the event source is
in test_event_driven.py.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support import rights
from support.arena import Arena
from support.documented import NODE, Anyone, carried_out, examples, source
from support.lab import Lab, ansible, lab_playbook
from support.plays import Player
from support.sampling import first
from witness.log import Json

MODULES = {
    "node_taint": (),
    "maintenance_plan": (),
    "node_ready": (),
    "maintenance_report": (),
    "maintenance_state": ("Undo what one run left",),
    "node_cordon": (),
    "node_drain": ("Take a node out of service", "Drain it by PodMigrationJobs, and leave what they cannot move"),
    "pdb_guard": (),
}
"""Modules whose examples need nodes and pods only, with the tasks that need Koordinator or a killed run."""


def planned(node: str) -> Json:
    """A task that sets what the examples take for granted."""
    module = "kubeops.node_maintenance.maintenance_plan"
    return {"name": "Plan", module: {"nodes": [node]}, "register": "preflight_result"}


@pytest.fixture
def anyone() -> Iterator[Anyone]:
    made = Anyone()
    yield made
    made.close()


@pytest.mark.parametrize("module", first(1, list(MODULES)))
def test_examples_do_as_they_say(module: str, arena: Arena, play: Player) -> None:
    text = source(module)
    names = sorted(set(NODE.findall(text)))
    nodes = arena.nodes(max(1, len(names)), {"pool": "blue", "hardware": "gpu"})
    arena.nodes(1)
    arena.deployment("web", on=nodes[0], start="1s")
    arena.settle()
    real = dict(zip(names, nodes, strict=False))
    tasks = examples(module, NODE.sub(lambda found: real[found[0]], text), MODULES[module])
    carried_out(play, nodes, tasks)
    assert [arena.record(name) for name in nodes] == [None] * len(nodes)


@pytest.mark.whole
def test_accounts(lab: Lab, play: Player, tmp_path: Path) -> None:
    """As the administrator. The account is another, because the lab has one of the default name."""
    name = "kubeops.node_maintenance.maintenance_access"
    tasks = examples("maintenance_access", source("maintenance_access"))
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


@pytest.mark.whole
def test_an_announcement(arena: Arena, play: Player, anyone: Anyone) -> None:
    """The plan it announces is one of a node here, and the chat is on loopback."""
    here, _there = arena.nodes(2)
    arena.deployment("web", on=here)
    arena.settle()
    tasks = [planned(here), *examples("maintenance_event", source("maintenance_event"))]
    carried_out(play, [], tasks, chat_webhook=f"{anyone.address}/chat")
    ((method, path, body),) = anyone.asked
    assert (method, path) == ("POST", "/chat")
    assert "kernel update" in json.loads(body)["text"]


@pytest.mark.whole
def test_a_hook(arena: Arena, play: Player, anyone: Anyone) -> None:
    here, _there = arena.nodes(2, {"node-role.kubernetes.io/storage": ""})
    words = {"worker-1": here, "https://storage.example.com": anyone.address}
    carried_out(play, [], examples("maintenance_hooks", source("maintenance_hooks", words=words)))
    assert [(method, path) for method, path, _body in anyone.asked] == [("PUT", f"/nodes/{here}/noout")]


@pytest.mark.whole
def test_a_copy_of_the_cluster(arena: Arena, play: Player, tmp_path: Path) -> None:
    """Into a lab of its own, with the fact that the role ``lab`` sets."""
    (here,) = arena.nodes(1)
    arena.deployment("web", on=here)
    arena.settle()
    name = f"{os.environ.get('LAB_NAME', 'e2e')}-c{secrets.token_hex(2)}"
    try:
        made = lab_playbook(tmp_path, name, "present", lab_nodes=0)
        carried_out(play, [], examples("cluster_copy", source("cluster_copy")), lab_result=made)
        words = ["--kubeconfig", made["kubeconfig"], "get", "deployment", "web", "-n", arena.name, "-o", "name"]
        found = subprocess.run([str(play.lab.kubectl), *words], capture_output=True, text=True, timeout=60, check=False)
        assert found.stdout == "deployment.apps/web\n", found.stderr
    finally:
        lab_playbook(tmp_path, name, "absent")


def test_the_filters_of_input_and_summary(arena: Arena, play: Player) -> None:
    """The plan is one of a node with a pod that nobody would start again."""
    here, _there = arena.nodes(2)
    arena.pod("bare", on=here)
    arena.settle()
    tasks = [planned(here), *examples("maintain_input", source("maintain_input", "filter"))]
    tasks += examples("maintain_summary", source("maintain_summary", "filter"))
    shown = [found.result["msg"] for found in carried_out(play, [], tasks).results[1:]]
    assert shown[0]["nodes"] == ["worker-1", "worker-2"]
    assert any("bare" in blocker for blocker in shown[1])


def test_the_inventory(arena: Arena, play: Player, tmp_path: Path) -> None:
    """With the kubeconfig that it names in a home directory of its own, and the command that it names."""
    blue, bare = arena.nodes(2, {"node.kubernetes.io/instance-type": "m5.large"})
    play.lab.run_kubectl("label", "node", blue, "example.com/pool=blue")
    home = tmp_path / "admin"
    (home / ".kube").mkdir(parents=True)
    config = yaml.safe_load(play.lab.operator.read_text(encoding="utf-8"))
    config["contexts"][0]["name"] = config["current-context"] = "prod-admin"
    (home / ".kube/prod").write_text(yaml.safe_dump(config), encoding="utf-8")
    text = source("cluster_nodes", "inventory")
    command = text.partition("see the result with: ")[2].partition("\n")[0].split()
    (tmp_path / command[2]).write_text(text, encoding="utf-8")
    shown = subprocess.run(
        [ansible(command[0]), *command[1:]],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    groups = {block.partition(":")[0]: block for block in shown.stdout.split("--@")}
    assert blue in groups["pool_blue"]
    assert bare in groups["pool_none"]
    assert any("instance_type" in name and blue in block and bare in block for name, block in groups.items()), groups
    assert len(list((home / ".cache/cluster_nodes").iterdir())) == 1
