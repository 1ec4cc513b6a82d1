# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is new in Kubernetes 1.37: autoscalers that scale to zero and act at once, requests for evictions, PodGroups.

In a lab of its own, whose binaries take minutes to build once: `make test-kubernetes` and `make test-whole`.
"""

from __future__ import annotations

import os
import time

import pytest
from support import metrics
from support.arena import Arena, Workload
from support.lab import Lab
from support.operators.base import apart
from support.plays import Player
from support.waiting import until
from support.watching import Watch
from witness.log import Json

VERSION = "v1.37.1"
REQUESTS = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/{}/evictionrequests"
RESPONDERS = [{"name": "acme.io/db", "priority": 10000}]

pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(os.environ.get("LAB_KUBERNETES", VERSION) != VERSION, reason=f"asks for {VERSION}"),
]


@pytest.fixture(scope="module")
def lab(kubernetes_next: Lab) -> Lab:
    return kubernetes_next


# -- autoscalers ---------------------------------------------------------------------------------------


def scaled_to_zero(arena: Arena, name: str) -> Workload:
    """An autoscaler by an external metric, one pod for each; 0 is its minimum."""
    made = {
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 0,
            "maxReplicas": 2,
            "metrics": [
                {
                    "type": "External",
                    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1"}},
                }
            ],
        },
    }
    return arena.create("HorizontalPodAutoscaler", made)


def replicas(workload: Workload) -> int:
    return int(workload.read()["spec"]["replicas"])


def test_a_single_replica_that_its_autoscaler_may_scale_to_zero_is_replaced(
    lab: Lab, arena: Arena, play: Player, watching: Watch
) -> None:
    here, there = arena.nodes(2)
    web = arena.deployment("web", on=here, start="2s")
    with metrics.external(lab.api) as queue:
        scaler = scaled_to_zero(arena, "web")
        arena.wait_for_autoscaler("web")
        with watching() as seen:
            run = play("maintain", maintain_nodes=[here], within=240)
            assert run.ok, run.text
            arena.settle()
        seen.all_held()
        assert seen.dark_seconds(web) == 0
        assert seen.values(scaler, "spec", "minReplicas") == [0]
        assert seen.counts(web) == [1]
        assert len(seen.new_pods(web)) == 1

        queue.value = 0
        until(lambda: replicas(web) == 0, 120, "the autoscaler has scaled to zero", every=0.5)
        until(lambda: not web.pods(), 30, "its pod is gone")
        again = play("maintain", maintain_nodes=[there], within=240)
        assert again.ok, again.text
        assert replicas(web) == 0
        assert arena.find("HorizontalPodAutoscaler", "web")["spec"]["minReplicas"] == 0  # type: ignore[index]
        queue.value = 1
        until(lambda: replicas(web) == 1, 120, "it is scaled up again, by the autoscaler", every=0.5)


def test_new_bounds_make_the_autoscaler_act_at_once(arena: Arena) -> None:
    """Its generation tells them from a status since 1.37 (HPAGeneration); before, it came round every 15 s."""
    arena.nodes(1)
    web = arena.deployment("web", pod=CPU, service=False)
    arena.hpa("web", 1, 3)
    arena.wait_for_autoscaler("web")
    took = []
    for least in (2, 3):
        began = time.monotonic()
        arena.patch("HorizontalPodAutoscaler", "web", {"spec": {"minReplicas": least}})
        until(lambda least=least: replicas(web) == least, 40, "it has", every=0.05)  # type: ignore[misc]
        took.append(time.monotonic() - began)
    scaler = arena.find("HorizontalPodAutoscaler", "web") or {}
    assert scaler["metadata"]["generation"] == 3
    assert max(took) < 5, took


CPU = {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}]}


# -- requests for evictions ----------------------------------------------------------------------------


def wanted_gone(arena: Arena, pod: Json) -> str:
    """Somebody else requests the eviction of a pod; the path of the request. No controller answers in 1.37.1."""
    meta = pod["metadata"]
    spec = {"target": {"pod": {"name": meta["name"], "uid": meta["uid"]}}, "requester": "acme.io/nodes"}
    made = {"metadata": {"name": "away"}, "spec": {**spec, "intent": "Eviction"}}
    path = REQUESTS.format(arena.namespace)
    arena.api.create(path, {"apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest", **made})
    return f"{path}/away"


def test_a_pod_is_left_to_somebody_elses_request_until_that_is_withdrawn(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    db = arena.deployment("db", 3, on=here, budget={"maxUnavailable": 1}, pod={"evictionResponders": RESPONDERS})
    arena.settle()
    pod = sorted(db.pods(), key=lambda one: str(one["metadata"]["name"]))[0]
    assert pod["spec"]["evictionResponders"] == RESPONDERS
    request = wanted_gone(arena, pod)
    planned = play("plan", maintain_nodes=[here])
    assert planned.ok, planned.text
    assert "acme.io/db" in planned.finding("eviction_responders")["message"]
    assert "acme.io/nodes" in planned.finding("eviction_requested")["message"]
    with watching() as seen:
        begun = play.start("maintain", maintain_nodes=[here])
        until(lambda: len([p for p in db.pods() if p["spec"].get("nodeName") == here]) == 1, 120, "two have left")
        begun.until_says("EvictionRequest", after=0)
        time.sleep(5)
        assert [p["metadata"]["uid"] for p in arena.pods("db", on=here)] == [pod["metadata"]["uid"]]
        arena.api.patch(request, {"spec": {"intent": "Withdrawn"}})
        run = begun.wait(120)
        assert run.ok, run.text
        arena.settle()
    seen.all_held()
    assert seen.least_ready(db) == 2
    listed = [one for one in seen.requests if one.resource == "evictionrequests"]
    assert {one.verb for one in listed} == {"list"}
    assert len(listed) >= 2, "the plan's, and those of the drain"


def test_pods_without_responders_cost_no_request_though_the_api_is_there(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", 2, on=here, budget={"maxUnavailable": 1})
    arena.settle()
    wanted_gone(arena, web.pods()[0])
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
        assert run.ok, run.text
    seen.all_held()
    assert [one for one in seen.requests if "evictionrequest" in str(one.resource)] == []


# -- pod groups ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "waves"), [("all", 1), ("single", 3)])
def test_a_pod_group_that_is_disrupted_as_a_whole_is_interrupted_once(
    arena: Arena, play: Player, watching: Watch, mode: str, waves: int
) -> None:
    """Scheduled as a gang by the scheduler itself, which knows each of its pods by their PodGroup."""
    here = arena.nodes(3)
    spec: Json = {"schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": {mode: {}}}
    groups = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{arena.namespace}/podgroups"
    arena.api.create(groups, {"metadata": {"name": "train"}, "spec": spec})
    train = arena.statefulset(
        "train",
        3,
        pod={"schedulingGroup": {"podGroupName": "train"}, **apart({"app": "train"})},
        spec={"podManagementPolicy": "Parallel"},
        start="8s",
    )
    arena.settle()
    assert train.nodes() == here
    arena.nodes(3)
    with watching() as seen:
        run = play("maintain", maintain_nodes=here)
    assert run.ok == (mode == "single"), run.text
    if mode == "all":
        found = run.finding("gang")
        assert (found["severity"], found["object"]) == ("blocker", f"PodGroup {arena.namespace}/train")
        assert f"train (3 pods on {', '.join(here)})" in found["message"]
        assert seen.writes == []
        with watching() as seen:
            run = play("maintain", maintain_nodes=here, maintain_allow_interruption=True)
            assert run.ok, run.text
    seen.all_held(interruptible=[train] if mode == "all" else [])
    assert len(run.of("maintenance_plan")[0]["waves"]) == waves
    assert len(seen.evictions()) == len(seen.new_pods(train)) == 3
    assert ("gang" in {finding["code"] for finding in run.findings}) == (mode == "all")
