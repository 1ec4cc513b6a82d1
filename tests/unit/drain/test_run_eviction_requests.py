# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pod with responders is left to somebody else's EvictionRequest for a while; other pods cost no request."""

from __future__ import annotations

import itertools
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import eviction_requests
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_drain import DrainOptions, drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.planned import codes, plan
from ansible_collections.kubeops.node_maintenance.tests.unit.support.still_drain import RUN, begun

REQUESTS = kinds.EVICTION_REQUESTS
EVICTIONS = "pods/eviction"


def occupied(responders: t.Sequence[str] = ("acme.io/db",)) -> World:
    """Three pods of `web` on n1, with a budget and these responders, and room on n9 alone."""
    world = World.of(begun())
    world.cordon("n1", False)
    world.cordon("n9")
    web = manifests.deployment("web", 3)
    web["spec"]["template"]["spec"]["evictionResponders"] = [{"name": name, "priority": 10000} for name in responders]
    world.apply(web, manifests.budget("web", maxUnavailable=1))
    world.settle()
    world.cordon("n1")
    world.cordon("n9", False)
    return world


def wanted_gone(world: World, number: int = 0) -> str:
    """Somebody requests the eviction of one of the pods; its name."""
    meta = sorted((pod["metadata"] for pod in world.pods(app="web")), key=lambda meta: meta["name"])[number]
    spec = {"target": {"pod": {"name": meta["name"], "uid": meta["uid"]}}, "requester": "acme.io/nodes"}
    made = {"metadata": {"name": "away", "namespace": manifests.SHOP}, "spec": {**spec, "intent": "Eviction"}}
    world.apply({"apiVersion": REQUESTS.api_version, "kind": REQUESTS.kind, **made})
    return str(meta["name"])


def draining(world: World) -> Task:
    return world.process("me").call(lambda ctx: drain(ctx, DrainOptions(("n1",), DrainPolicy())), RUN)


def evicted(world: World) -> list[str]:
    return [sent.request.name for sent in world.log if sent.request.resource == EVICTIONS and sent.status == 201]


def lists(world: World) -> list[float]:
    """When the requests were listed."""
    return [sent.arrived for sent in world.log if sent.request.resource == REQUESTS.resource]


def shown(task: Task, name: str) -> Raw:
    (node,) = t.cast("t.Any", task.value()).data["nodes"]
    return next(pod for pod in node["pods"] if pod["name"] == name)


@pytest.mark.parametrize(
    "over",
    [
        {"spec": {"intent": "Withdrawn"}},
        {"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "EvictionFailed"}]}},
    ],
)
def test_the_pod_is_left_to_the_request_until_it_is_over_and_others_go_on(over: Raw) -> None:
    with occupied() as world:
        name = wanted_gone(world)
        task = draining(world)
        world.machine.run_for(60.0)
        assert task.alive
        assert len(evicted(world)) == 2
        assert name not in evicted(world)
        world.patch(REQUESTS, "away", over)
        world.machine.run_for(30.0)
        assert not task.alive
        assert evicted(world)[-1] == name
        assert shown(task, name)["outcome"] == "evicted"


def test_after_ten_minutes_the_pod_is_evicted_all_the_same_and_the_result_says_so() -> None:
    with occupied() as world:
        name = wanted_gone(world)
        task = draining(world)
        world.machine.run_for(eviction_requests.WAIT_SECONDS - 10.0)
        assert name not in evicted(world)
        world.machine.run_for(60.0)
        assert not task.alive
        assert evicted(world)[-1] == name
        assert "EvictionRequest shop/away was not over after 10 minutes" in shown(task, name)["reason"]


def test_a_pod_that_its_responders_move_is_gone_without_an_eviction_of_ours() -> None:
    with occupied() as world:
        name = wanted_gone(world)
        task = draining(world)
        world.machine.run_for(20.0)
        world.delete(kinds.PODS, name)
        world.machine.run_for(60.0)
        assert not task.alive
        assert name not in evicted(world)
        assert shown(task, name)["outcome"] == "gone"


def test_requests_are_listed_every_three_seconds_while_pods_wait_and_no_faster() -> None:
    with occupied() as world:
        wanted_gone(world)
        draining(world)
        world.machine.run_for(60.0)
        times = lists(world)
        assert 10 <= len(times) <= 21
        assert min(later - sooner for sooner, later in itertools.pairwise(times)) >= 2.9


def test_without_responders_nothing_is_asked_and_no_request_is_waited_for() -> None:
    with occupied(()) as world:
        wanted_gone(world)
        task = draining(world)
        world.machine.run_for(60.0)
        assert not task.alive
        assert len(evicted(world)) == 3
        assert "eviction_responders" not in codes(plan(world))
        assert lists(world) == []


@pytest.mark.parametrize("there", [True, False])
def test_a_plan_lists_the_requests_once(there: bool) -> None:
    with occupied() as world:
        if there:
            wanted_gone(world)
        found = codes(plan(world))
        assert len(lists(world)) == 1
        assert "eviction_responders" in found
        assert ("eviction_requested" in found) is there


def test_a_missing_right_to_list_them_stops_the_plan() -> None:
    with occupied() as world:
        world.server.denied.add(("list", REQUESTS.resource))
        (missing,) = [one for one in plan(world).data["findings"] if one["code"] == "missing_permission"]
        assert "list evictionrequests.lifecycle.k8s.io" in missing["message"]
