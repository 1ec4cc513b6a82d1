# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a tenant and a kubelet can get past the API server into objects: another node's maintenance does not notice it.

The simulator's `test_hostile` tries every field; here are those of which the API server could have refused the value.
"""

from __future__ import annotations

import json

from support import shapes
from support.arena import Arena
from support.plays import Player
from support.watching import Watch
from witness import objects as o
from witness.log import Json

DEEP = "[" * 100_000
FORGED = "Deployment \x1b[2J\rNever dark."


def odd_objects(arena: Arena, on: str) -> None:
    """Objects in the arena's namespace, with pods on this node; the API server takes them all."""
    guard = shapes.budget("kubeops-guard-x", "odd", maxUnavailable=1)
    guard["metadata"]["labels"] = {o.MANAGED_BY: "kubeops.node_maintenance"}
    guard["metadata"]["annotations"] = {"maintenance.kubeops.io/nodes": DEEP}
    arena.create("PodDisruptionBudget", guard)
    for name, kind, version in (("lost", "Foo", "../healthz"), ("forged", FORGED, "example.com/v1")):
        owner = {"kind": kind, "name": "x/../../y", "apiVersion": version, "uid": name, "controller": True}
        arena.pod(name, on, with_memory("1"), meta={"ownerReferences": [owner]})
    lock = json.dumps({"nodeID": on, "created": "2026-01-01T00:00:00Z", "TTL": 0})
    for name, text in (("deep", DEEP), ("locks", lock)):
        arena.daemonset(name, pod=with_memory("1"), notes={"weave.works/kured-node-lock": text})
    arena.deployment("huge", on=on, pod=with_memory("1"), service=False)
    arena.quota(**{"requests.memory": "1e3000"})
    arena.patch("Deployment", "huge", {"spec": {"paused": True, "template": {"spec": with_memory("1e5000")}}})
    arena.annotate(on, {o.RECORD: DEEP})


def with_memory(text: str) -> Json:
    return {
        "containers": [{"name": "main", "image": "registry.invalid/a:1", "resources": {"requests": {"memory": text}}}]
    }


def test_another_node_is_maintained_and_what_is_odd_is_named(arena: Arena, play: Player, watching: Watch) -> None:
    here, theirs, _spare = arena.nodes(3)
    web = arena.deployment("web", on=here, pod=with_memory("1"))
    odd_objects(arena, theirs)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
    assert run.ok, run.text
    assert not arena.is_cordoned(here)
    assert seen.dark_seconds(web) == 0
    listed = play("recover")
    assert listed.ok, listed.text
    assert theirs in listed.text
    arena.annotate(theirs, {o.RECORD: None})
    plan = play("plan", maintain_nodes=[theirs])
    planned = {pod["name"].split("-")[0]: pod["route"] for pod in plan.of("maintenance_plan")[-1]["pods"]}
    assert planned["lost"] == planned["forged"] == "refuse"
    assert "huge" in planned
    assert "\x1b" not in plan.text
    assert not [line for line in plan.text.splitlines() if line.startswith("Never dark.")]
