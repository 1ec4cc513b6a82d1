# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Order and patience by rules, on real controllers."""

from __future__ import annotations

from support.arena import Arena
from support.plays import Player
from support.watching import Watch
from witness.log import Json

RULES: list[Json] = [
    {"name": "batch", "owners": ["Job"], "wait": "finished", "deadline": "2m"},
    {"name": "front", "pods": "app=front", "before": ["store"]},
    {"name": "store", "owners": ["StatefulSet/store"], "grace_period": 3},
    {"owners": "Pod/keep*", "skip": True},
    {"owners": ["DaemonSet"], "last": True},
]


def test_pods_leave_by_rules(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused, _third = arena.nodes(3)
    arena.deployment("front", 3, on=here)
    arena.statefulset("store", 2, on=here)
    arena.job("batch", here, lasting="25s")
    arena.pod("keep", here)
    arena.daemonset("agent")
    arena.daemonset("net", pod={"tolerations": [{"operator": "Exists"}]})
    arena.settle()
    tasks = play.tasks({"name": "Work", "ansible.builtin.command": "true"})
    given: Json = {"maintain_nodes": [here], "maintain_rules": RULES, "maintain_tasks": tasks}
    with watching() as seen:
        run = play("maintain", inventory=play.hosts([here]), **given)
        assert run.ok, run.text
    seen.all_held(may_stay=[(arena.namespace, "keep")])
    (node,) = run.of("node_drain")[-1]["nodes"]
    found = {pod["name"].split("-")[0]: pod["outcome"] for pod in node["pods"]}
    assert found["keep"] == "left_by_rule"
    assert found["net"] == "daemonset"
    assert (found["front"], found["store"], found["agent"]) == ("evicted",) * 3
    assert run.finding("left_by_rule")["severity"] == "warning"
    order = [request.name.split("-")[0] for request in seen.evictions()]
    assert order[-1] == "agent", "after the Job has finished"
    assert [name for name in order if name in ("front", "store")] == ["front"] * 3 + ["store"] * 2
    assert (arena.find("Job", "batch") or {})["status"].get("succeeded") == 1
    assert len(arena.pods("keep", on=here)) == 1
    arena.settle()
    assert len(arena.pods("agent", on=here)) == 1, "its DaemonSet has recreated it"


def test_contradicting_rules_stop_before_the_first_request(arena: Arena, play: Player, watching: Watch) -> None:
    (here,) = arena.nodes(1)
    wrong = [{"name": "a", "after": ["b"]}, {"name": "b", "after": ["a"], "skip": True, "grace": 3}]
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_rules=wrong)
    assert not run.ok
    assert "maintain_rules[1].grace" in run.text
    assert "skip without after" in run.text
    assert seen.writes == []
