# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Order and patience by rules, on real controllers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import pytest
from support.arena import Arena
from support.plays import Player
from support.watching import Watch
from witness import objects as o
from witness.log import Json

PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CLASSES = {"regular": 0, "c": 1000, "b": 10000, "a": 100000}
# Both as in the documentation of Kubernetes 1.36: concepts/cluster-administration/node-shutdown.
BANDS: list[Json] = [
    {"priority": 100000, "shutdownGracePeriodSeconds": 10},
    {"priority": 10000, "shutdownGracePeriodSeconds": 180},
    {"priority": 1000, "shutdownGracePeriodSeconds": 120},
    {"priority": 0, "shutdownGracePeriodSeconds": 60},
]
RULES: list[Json] = [
    {"name": "batch", "owners": ["Job"], "wait": "finished", "deadline": "2m"},
    {"name": "front", "pods": "app=front", "before": ["store"]},
    {"name": "store", "owners": ["StatefulSet/store"], "grace_period": 3},
    {"owners": "Pod/keep*", "skip": True},
    {"owners": ["DaemonSet"], "last": True},
]


@pytest.mark.whole
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
    assert (found["front"], found["store"], found["agent"]) == ("replaced", "evicted", "evicted")
    assert run.finding("left_by_rule")["severity"] == "warning"
    order = [request.name.split("-")[0] for request in seen.evictions()]
    assert order[-1] == "agent", "after the Job has finished"
    assert [name for name in order if name in ("front", "store")] == ["front"] * 3 + ["store"] * 2
    assert (arena.find("Job", "batch") or {})["status"].get("succeeded") == 1
    assert len(arena.pods("keep", on=here)) == 1
    arena.settle()
    assert len(arena.pods("agent", on=here)) == 1, "its DaemonSet has recreated it"


@pytest.mark.whole
def test_contradicting_rules_stop_before_the_first_request(arena: Arena, play: Player, watching: Watch) -> None:
    (here,) = arena.nodes(1)
    wrong = [{"name": "a", "after": ["b"]}, {"name": "b", "after": ["a"], "skip": True, "grace": 3}]
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_rules=wrong)
    assert not run.ok
    assert "maintain_rules[1].grace" in run.text
    assert "skip without after" in run.text
    assert seen.writes == []


@contextlib.contextmanager
def priority_classes(arena: Arena, values: Mapping[str, int]) -> Iterator[None]:
    """PriorityClasses, named after the arena."""
    for name, value in values.items():
        arena.api.create(PRIORITIES, {"metadata": {"name": f"{arena.name}-{name}"}, "value": value})
    try:
        yield
    finally:
        for name in values:
            arena.api.delete(f"{PRIORITIES}/{arena.name}-{name}")


@pytest.mark.whole
def test_pods_leave_in_the_bands_of_a_kubelets_graceful_shutdown(arena: Arena, play: Player, watching: Watch) -> None:
    here, _there = arena.nodes(2)
    with priority_classes(arena, CLASSES):
        for name in CLASSES:
            wanted = {"priorityClassName": f"{arena.name}-{name}", "terminationGracePeriodSeconds": 90}
            arena.deployment(name, 2, on=here, stop="1s", pod=wanted)
        with watching() as seen:
            run = play("maintain", maintain_nodes=[here], maintain_rules=[{"bands": BANDS}])
            assert run.ok, run.text
    seen.all_held()
    told: list[tuple[str, str]] = []
    graces: dict[str, int] = {}
    for moment in seen.log.moments():
        event = moment.event
        if event is None or event.kind != "Pod" or o.namespace(event.obj) != arena.namespace:
            continue
        band = o.name(event.obj).split("-")[0]
        if event.type == "DELETED":
            told.append((band, "gone"))
        elif event.obj["metadata"].get("deletionTimestamp") and (band, "ends") not in told:
            told.append((band, "ends"))
            graces[band] = event.obj["metadata"]["deletionGracePeriodSeconds"]
    assert told == [(band, what) for band in CLASSES for what in ("ends", "gone", "gone")], "one band after the other"
    assert graces == {"regular": 60, "c": 90, "b": 90, "a": 10}, "the band's seconds, or the pod's own"
