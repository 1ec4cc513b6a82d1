# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nodes of a cluster as an inventory."""

from __future__ import annotations

import json
import sys

import pytest
from support import shapes
from support.arena import Arena
from support.plays import Player
from witness.log import Json

MAINTAINED = "example.com/maintained-at"


@pytest.mark.whole
def test_the_node_that_was_maintained_longest_ago_is_maintained_next(arena: Arena, play: Player) -> None:
    old, new, never = arena.nodes(3, {"node-role.kubernetes.io/storage": ""})
    arena.annotate(old, {MAINTAINED: "2020-01-01T00:00:00Z"})
    arena.annotate(new, {MAINTAINED: "2999-01-01T00:00:00Z"})
    fake = {"ansible_connection": "fake_node", "ansible_python_interpreter": sys.executable}
    config: Json = {
        "node_selector": f"{shapes.ARENA}={arena.name}",
        "maintained_annotation": MAINTAINED,
        "maintain_every": "30d",
        "compose": {name: json.dumps(value) for name, value in fake.items()},
        "keyed_groups": [{"prefix": "ours", "key": f"node_labels['{shapes.ARENA}']"}],
    }
    before = play.hosts_of(config)
    assert before["maintenance_due"]["hosts"] == [never, old]
    assert before["maintenance_not_due"]["hosts"] == [new]
    assert (
        before["role_storage"]["hosts"] == before[f"ours_{arena.name.replace('-', '_')}"]["hosts"] == [never, old, new]
    )
    assert before["ready"]["hosts"] == before["maintenance_none"]["hosts"]
    assert before["_meta"]["hostvars"][old]["node_versions"]["kubelet"].startswith("v1.")
    now = "{{ now(utc=true, fmt='%Y-%m-%dT%H:%M:%SZ') }}"
    words = f"annotate --overwrite node {{{{ inventory_hostname }}}} {MAINTAINED}={now}"
    tasks = play.tasks(play.kubectl_task(words))
    due = "{{ groups['maintenance_due'][:1] }}"
    for node in (never, old):
        run = play("maintain", args=["-i", play.nodes_file(config)], maintain_nodes=due, maintain_tasks=tasks)
        assert run.ok, run.text
        assert [entry["name"] for entry in run.of("node_drain")[-1]["nodes"]] == [node]
    assert play.module("node_cordon", nodes=[old], reason="new disk").ok
    after = play.hosts_of(config)
    assert "maintenance_due" not in after
    assert after["maintenance_cordoned"]["hosts"] == after["unschedulable"]["hosts"] == [old]
    assert after["_meta"]["hostvars"][old]["node_record"]["reason"] == "new disk"
    assert after["_meta"]["hostvars"][old]["node_maintained_ago"] < 600
    assert play.module("node_cordon", nodes=[old], state="uncordoned").ok
