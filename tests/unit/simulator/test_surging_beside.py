# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A wave with a surge that starts slowly: the other pods leave meanwhile, and its own one only when it serves."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import hooked, manifests, nodes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_draining import world_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_whole import traces
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

SLOW_SECONDS = 120.0
SLOW = {nodes.START: f"{SLOW_SECONDS:g}s"}
SURGE = DrainPolicy(method="surge")


def slow() -> dict[str, t.Any]:
    """A single replica whose pods need two minutes to start."""
    return manifests.deployment("slow", 1, annotations=SLOW)


def scene(*more: t.Any, leaving: tuple[str, ...] = ("n1",)) -> World:
    """A slow single replica and ten pods that need no surge."""
    world = world_of(slow(), manifests.service("slow"), manifests.deployment("web", 10), *more, leaving=leaving)
    world.machine.run_until(lambda: world.serving("slow") == 1)
    world.machine.on_step.append(lambda: never_dark(world))
    return world


def never_dark(world: World) -> None:
    assert world.serving("slow") >= 1, f"dark at {world.machine.now}"


def begun(world: World, *leaving: str, **given: t.Any) -> tuple[Actor, Task]:
    me = world.process("me")
    wanted = Input(leaving or ("n1",), **{"choices": SURGE, "serial": len(leaving) or 1, **given})
    return me, me.spawn(lambda: maintain(me, wanted))


def ended(world: World, task: Task) -> Outcome:
    world.machine.run_until(lambda: not task.alive)
    return t.cast("Outcome", task.value())


def left(world: World, app: str, on: str = "n1") -> int:
    return len(world.pods(on=on, app=app))


def replicas(world: World, name: str = "slow") -> int:
    return int(world.get(kinds.DEPLOYMENTS, name)["spec"]["replicas"])


def surging(world: World) -> bool:
    return len(world.pods(app="slow")) == 2


def said(outcome: Outcome, step: str = "protect") -> dict[str, t.Any]:
    (found,) = outcome.steps(step)
    return found


def test_pods_that_need_no_surge_leave_while_one_starts() -> None:
    with scene() as world:
        me, task = begun(world)
        world.machine.run_until(lambda: surging(world))
        raised = world.machine.now
        world.machine.run_until(lambda: left(world, "web") == 0)
        assert world.machine.now - raised < SLOW_SECONDS / 2
        assert (left(world, "slow"), replicas(world)) == (1, 2), "it waits for its surge"
        world.machine.run_until(lambda: left(world, "slow") == 0)
        assert world.machine.now - raised >= SLOW_SECONDS
        outcome = ended(world, task)
        assert (outcome.ok, outcome.failed, replicas(world), traces(world)) == (True, {}, 1, [])
        (workload,) = [line for line in said(outcome)["workloads"] if line["name"] == "slow"]
        assert (workload["outcome"], workload["replicas_during"]) == ("raised", 2)
        order = [step["step"] for step in outcome.steps("protect", "migrate")]
        assert order == ["protect", "migrate"]
        for ctx in me.contexts:
            times = [event.at for event in ctx.timeline]
            assert times == sorted(times)


def test_a_surge_that_does_not_start_fails_its_node_as_ever_while_others_have_left() -> None:
    with scene() as world:
        _me, task = begun(world)
        world.controller(nodes.Kubelets).without_images = {"n8", "n9"}
        world.machine.run_until(lambda: surging(world))
        world.machine.run_until(lambda: left(world, "slow") == 0 or not task.alive)
        outcome = ended(world, task)
        assert list(outcome.failed) == ["n1"]
        protect = said(outcome)
        (finding,) = [one for one in protect["findings"] if one["severity"] == "blocker"]
        assert finding["code"] == "surge_not_starting"
        assert finding["remedy"].startswith("Repair what keeps it from starting there")
        assert [node["outcome"] for node in protect["nodes"]] == ["blocked"]
        assert finding["message"] in outcome.failed["n1"]
        assert finding["remedy"] in outcome.failed["n1"]
        assert (replicas(world), left(world, "slow"), left(world, "web") < 10) == (1, 1, True)
        assert not world.get(kinds.NODES, "n1", "")["spec"].get("unschedulable")


def test_a_surge_that_is_not_ready_in_time_is_undone_and_its_node_times_out() -> None:
    with scene() as world:
        _me, task = begun(world, timeout=40.0)
        outcome = ended(world, task)
        protect = said(outcome)
        assert [node["outcome"] for node in protect["nodes"]] == ["timed_out"]
        assert "not ready after 40 s" in outcome.failed["n1"]
        assert (replicas(world), left(world, "slow")) == (1, 1)


@pytest.mark.parametrize("within", [5.0, 60.0, 119.0, 126.0])
def test_a_run_that_is_killed_while_a_surge_starts_is_resumed_and_nothing_is_doubled(within: float) -> None:
    with scene() as world:
        me, task = begun(world)
        world.machine.run_until(lambda: surging(world))
        world.machine.run_for(within)
        me.process.kill()
        world.machine.run_for(1.0)
        most = 0

        def count() -> None:
            nonlocal most
            most = max(most, replicas(world))

        world.machine.on_step.append(count)
        _me, task = begun(world)
        outcome = ended(world, task)
        assert (outcome.ok, outcome.failed, replicas(world), traces(world)) == (True, {}, 1, [])
        assert most <= 2


def test_of_two_nodes_the_one_whose_surge_fails_is_given_back_and_the_other_is_drained() -> None:
    other = manifests.deployment("other", 1)
    other["spec"]["template"]["spec"]["affinity"] = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "slow"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    with scene(other, leaving=("n1", "n2")) as world:
        (pod,) = world.pods(app="slow")
        first = pod["spec"]["nodeName"]
        second = {"n1": "n2", "n2": "n1"}[first]
        assert left(world, "other", second) == 1
        _me, task = begun(world, "n1", "n2", timeout=60.0)
        outcome = ended(world, task)
        assert list(outcome.failed) == [first]
        drained = {node["name"]: node["outcome"] for node in said(outcome, "migrate")["nodes"]}
        assert drained == {first: "failed", second: "drained"}
        assert (left(world, "other", second), replicas(world)) == (0, 1)
        assert {line["name"]: line["outcome"] for line in said(outcome)["workloads"] if line["name"] != "web"} == {
            "slow": "timed_out",
            "other": "raised",
        }


def test_a_pod_that_may_be_interrupted_is_evicted_once_its_surge_is_given_up() -> None:
    with scene() as world:
        world.machine.on_step.clear()
        world.controller(nodes.Kubelets).without_images = {"n8", "n9"}
        _me, task = begun(world, choices=DrainPolicy(method="surge", allow_interruption=True))
        world.machine.run_until(lambda: surging(world))
        world.machine.run_until(lambda: left(world, "slow") == 0)
        assert left(world, "web") <= 10
        world.controller(nodes.Kubelets).without_images = set()
        outcome = ended(world, task)
        (line,) = [one for one in said(outcome)["workloads"] if one["name"] == "slow"]
        assert line["outcome"] == "interruption_allowed"
        assert (outcome.failed, replicas(world), traces(world)) == ({}, 1, [])


def test_somebody_who_returns_the_node_keeps_the_pod_and_its_surge_is_undone() -> None:
    with scene() as world:
        _me, task = begun(world)
        world.machine.run_until(lambda: surging(world))
        world.machine.run_for(30.0)
        world.cordon("n1", False)
        outcome = ended(world, task)
        assert list(outcome.failed) == ["n1"]
        assert (left(world, "slow"), replicas(world)) == (1, 1)


def test_check_mode_predicts_the_same_steps() -> None:
    with scene() as world:
        before = len([sent for sent in world.log if sent.request.writes])
        _me, task = begun(world, check=True)
        outcome = ended(world, task)
        assert [step["step"] for step in outcome.steps("protect", "migrate")] == ["protect", "migrate"]
        assert len([sent for sent in world.log if sent.request.writes]) == before
        assert outcome.ok


@pytest.mark.parametrize("what", ["killed before", "killed after", "lost"])
@pytest.mark.parametrize("ordinal", range(40, 100, 5))
def test_a_fault_at_any_request_is_overcome(ordinal: int, what: t.Any) -> None:
    with scene() as world:
        world.process("me").faults.at(ordinal, Fault(what))
        me, task = begun(world)
        world.machine.run_until(lambda: not task.alive)
        if me.process.dead:
            _me, task = begun(world)
        outcome = ended(world, task)
        assert (outcome.ok, outcome.failed, replicas(world), traces(world)) == (True, {}, 1, [])


def test_the_hook_of_a_surged_pod_is_not_begun_before_its_new_pod_serves() -> None:
    with scene() as world:
        (old,) = [pod["metadata"]["name"] for pod in world.pods(on="n1", app="slow")]
        serving: list[int] = []

        def look() -> None:
            found = world.find(kinds.PODS, old)
            announced = ((found or {}).get("metadata", {}).get("annotations") or {}).get(names.PLANNED)
            if announced and not serving:
                serving.append(world.serving("slow"))
                ready = {"metadata": {"annotations": {names.READY_TO_MOVE: announced}}}
                world.machine.after(1.0, lambda: world.patch(kinds.PODS, old, ready), "agree")

        world.machine.on_step.append(look)
        _me, task = begun(world, hook_rules=(hooked.rule("before_pod", "annotation", "slow"),))
        world.machine.run_until(lambda: left(world, "web") == 0)
        assert (serving, left(world, "slow")) == ([], 1)
        assert ended(world, task).ok
        assert serving == [2]
