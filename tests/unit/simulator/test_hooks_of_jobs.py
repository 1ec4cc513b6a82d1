# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hooks of pods that PodMigrationJobs move, and what hooks cost whoever has none."""

from __future__ import annotations

import collections
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_drain import DrainOptions, drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import koordinator, manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.hooked import (
    AFTER,
    BEFORE,
    RUN,
    Scene,
    outcome,
    rule,
    sorted_by_hook,
    states,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

JOBS = kinds.PODMIGRATIONJOBS.resource


@pytest.fixture
def moved() -> t.Iterator[t.Callable[..., Scene]]:
    """A node whose pods all leave by jobs, and the application's side of its hooks."""
    made: list[World] = []

    def make(*rules: hook_definitions.Rule, **more: t.Any) -> Scene:
        web = manifests.deployment("web", 2, schedulerName="koord-scheduler")
        world = World([*manifests.koordinator("0s"), manifests.node("n1"), web], add_ons=[koordinator.GROUP])
        world.apply(manifests.service("web"), manifests.node("n8"), manifests.node("n9"))
        made.append(world)
        return Scene(world, sorted_by_hook(rules), **more)

    yield make
    for world in made:
        world.close()


def created(one: Scene) -> list[float]:
    """When jobs were created."""
    return [s.arrived for s in one.world.log if s.request.resource == JOBS and s.request.method == "POST"]


def drained(one: Scene) -> t.Any:
    me = one.begin()
    options = DrainOptions(("n1",), DrainPolicy(backend="koordinator"), hooks=one.rules, send=one.send)
    return one.ended(me.call(lambda ctx: drain(ctx, options), RUN))


def test_a_job_is_created_after_its_pod_has_agreed_and_the_pod_is_told_once_it_has_gone(
    moved: t.Callable[..., Scene],
) -> None:
    one = moved(BEFORE, AFTER, answer=lambda count: 503 if count <= 6 else 200)
    there: list[bool] = []
    one.world.on_event.append(
        lambda event: there.append(len(one.calls) >= 7) if (event.resource, event.what) == (JOBS, "ADDED") else None
    )
    result = drained(one)
    assert outcome(result)[0] == "drained"
    (node,) = result.data["nodes"]
    assert [(pod["route"], pod["outcome"]) for pod in node["pods"]] == [("job", "migrated")] * 2
    assert there == [True, True], "no job before the application has agreed"
    assert states(result) == {("before_pod", "done"), ("after_pod", "done")}
    told = [(call["hook"], call["name"], call.get("moved")) for _at, _url, call in one.calls]
    names = {pod["name"] for pod in node["pods"]}
    assert {name for hook, name, _moved in told if hook == "before_pod"} == names
    assert [(name, moved_) for hook, name, moved_ in told if hook == "after_pod"] == [
        (name, True) for hook, name, _moved in told if hook == "after_pod"
    ]
    assert collections.Counter(name for hook, name, _moved in told if hook == "after_pod") == dict.fromkeys(names, 1)


def test_a_pod_that_never_agrees_gets_no_job(moved: t.Callable[..., Scene]) -> None:
    one = moved(rule("before_pod", "annotation"))
    result = drained(one)
    word, message = outcome(result)
    assert (word, created(one)) == ("failed", [])
    assert "rule web-annotation" in message
    assert len(one.world.pods(app="web", on="n1")) == 2


def test_agreement_by_annotation_comes_before_the_job(moved: t.Callable[..., Scene]) -> None:
    one = moved(rule("before_pod", "annotation"))
    one.agree(5.0)
    began = one.world.machine.now
    assert outcome(drained(one))[0] == "drained"
    assert len(created(one)) == 2
    assert min(created(one)) >= began + 5.0
    assert not one.world.pods(app="web", on="n1")
