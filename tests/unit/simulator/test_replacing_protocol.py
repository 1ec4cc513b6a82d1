# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is written to a pod that is replaced before it leaves, when, and when not."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import queues
from ansible_collections.kubeops.node_maintenance.tests.explore import people
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, nodes, serving, workloads
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.controllers import controller_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.object_rules import OWNED
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_draining import evictions
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_replacing import (
    ENDING,
    PODS,
    TOP,
    Shop,
    once,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_whole import traces
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.wire import Sent


def written(shop: Shop) -> list[Sent]:
    """The writes of pods that the run sent."""
    return [one for one in shop.world.log if one.process == "me" and is_write(one.request)]


def is_write(request: verbs.Request) -> bool:
    return request.resource == PODS.resource and request.writes


def test_one_patch_lets_a_pod_go_and_says_how_to_undo_that() -> None:
    with Shop(1) as shop:
        (before,) = shop.world.pods(app="web")
        assert shop.run().ok
        (sent,) = written(shop)
        meta, change = before["metadata"], (sent.request.body or {})["metadata"]
        assert sent.request.verb == "patch"
        assert (change["uid"], change["resourceVersion"]) == (meta["uid"], meta["resourceVersion"])
        run = change["labels"][names.RELEASED]
        assert change["labels"] == {names.HASH: None, names.RELEASED: run}
        mark, owner = json.loads(change["annotations"][names.RELEASED]), t.cast("Raw", controller_of(before))
        deployment = controller_of(shop.world.get(kinds.REPLICA_SETS, owner["name"])) or {}
        assert (mark["run"], mark["node"], bool(mark["nonce"])) == (run, "n1", True)
        assert (mark["replica_set"], mark["hash"]) == (owner["uid"], meta["labels"][names.HASH])
        assert mark["deployment"] == deployment["uid"]
        theirs, ours = change["ownerReferences"]
        assert theirs == owner, "its controller takes that off itself"
        assert (ours["kind"], ours["uid"], ours["controller"]) == ("Deployment", deployment["uid"], False)


def test_of_a_lost_answer_the_mark_tells_that_it_is_done() -> None:
    with Shop(1) as shop:
        shop.world.process("me").faults.when(is_write, Fault("lost"))
        assert shop.run().ok
        assert [one.status for one in written(shop)] == [200]


def test_a_pod_that_is_another_one_when_the_patch_arrives_is_not_let_go() -> None:
    """Somebody has written to it since it was read: that is looked at first."""
    with Shop(1) as shop:
        (pod,) = shop.world.pods(app="web")
        me = shop.world.process("me")
        note = {"metadata": {"annotations": {"shop.example/by": "somebody"}}}
        me.faults.overtaken(is_write, lambda: shop.world.patch(PODS, pod["metadata"]["name"], note))
        assert shop.run().ok
        assert [one.status for one in written(shop)] == [409, 200]
        assert shop.least == 1


@pytest.mark.parametrize("seen", [False, True])
def test_a_pod_that_ends_is_not_let_go(seen: bool) -> None:
    """Also one that has begun to end since it was seen last."""
    with Shop(1, terminationGracePeriodSeconds=60) as shop:
        (pod,) = shop.world.pods(app="web")
        me, name = shop.world.process("me"), pod["metadata"]["name"]

        def end() -> None:
            shop.world.delete(PODS, name)

        if seen:
            end()
        else:
            me.faults.overtaken(is_write, end)
        assert shop.run().ok
        assert [one.status for one in written(shop)] == ([] if seen else [409])
        assert evictions(shop.world) == []


def moments(shop: Shop) -> dict[str, float]:
    """When a pod of n1 was let go, and when the first of them was evicted, and when another one came to serve."""
    found: dict[str, float] = {}

    def hear(event: Event) -> None:
        if event.resource == kinds.ENDPOINT_SLICES.resource and shop.world.serving("web") > shop.replicas:
            found.setdefault("listed", shop.world.machine.now)
        if event.resource == PODS.resource and ENDING in event.raw["metadata"]:
            found.setdefault("evicted", shop.world.machine.now)

    shop.world.on_event.append(hear)
    return found


@pytest.mark.parametrize("seconds", [0, 20])
@pytest.mark.parametrize("replicas", [1, 3])
def test_it_ends_once_others_have_served_for_some_time(replicas: int, seconds: int) -> None:
    with Shop(replicas) as shop:
        shop.world.patch(TOP, "web", {"spec": {"minReadySeconds": seconds}})
        found = moments(shop)
        assert shop.run().ok
        assert found["evicted"] - found["listed"] >= max(seconds, queues.SERVING_SECONDS)
        assert shop.least == replicas


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_pod_serves_only_once_it_is_in_all_slices_of_its_services(replicas: int) -> None:
    """Their controller is slow: the new pod is ready long since."""
    with Shop(replicas) as shop:
        slow, found = shop.world.controller(serving.EndpointSlices), moments(shop)
        once(shop, slow.stop, 0.5)
        once(shop, slow.go_on, 30.0)
        began = shop.world.machine.now
        assert shop.run().ok
        assert found["evicted"] - began >= 30.0
        assert shop.least == replicas


@pytest.mark.parametrize("replicas", [1, 3])
def test_where_new_pods_are_denied_it_is_its_replica_sets_again(replicas: int) -> None:
    with Shop(replicas, manifests.budget("web", maxUnavailable=0)) as shop:
        people.deny(shop.world, "web")
        before = {pod["metadata"]["uid"] for pod in shop.world.pods(app="web")}
        outcome = shop.run(within=900.0)
        assert not outcome.ok
        assert {pod["metadata"]["uid"] for pod in shop.world.pods(app="web")} == before
        assert (shop.least, evictions(shop.world), traces(shop.world)) == (replicas, [], [])
        assert shop.whole()


def test_where_a_policy_keeps_pods_from_being_without_a_controller_it_is_asked_for_and_the_pod_evicted() -> None:
    """Its ReplicaSet cannot let go of it then, and no event says so."""
    with Shop(3, manifests.budget("web", maxUnavailable=1)) as shop:
        shop.world.patch(kinds.NAMESPACES, manifests.SHOP, {"metadata": {"annotations": {OWNED: "web"}}})
        began = shop.world.machine.now
        outcome = shop.run(within=900.0)
        assert outcome.ok, outcome
        assert shop.world.machine.now - began < 120.0
        (drained,) = outcome.steps("migrate")
        assert {pod["route"] for node in drained["nodes"] for pod in node["pods"]} == {"evict"}
        (told,) = [event for event in drained["timeline"] if event["what"] == "kept"]
        assert "denied the request" in told["message"]
        assert (shop.least, shop.let_go(), traces(shop.world)) == (2, [], [])
        assert shop.whole()


@pytest.mark.parametrize("later", [False, True])
def test_where_its_replica_set_is_gone_it_serves_until_others_are_enough(later: bool) -> None:
    """Given back, it would be nobody's. Somebody has deleted that, and left its pods to themselves."""
    with Shop(1) as shop:
        down = [shop.world.controller(kind) for kind in (workloads.Deployments, workloads.ReplicaSets)]

        def orphan() -> None:
            for controller in down:
                controller.stop()
            for _place, name in list(shop.world.store.of(kinds.REPLICA_SETS.resource)):
                shop.world.delete(kinds.REPLICA_SETS, name, propagationPolicy="Orphan")

        def go_on() -> None:
            for controller in down:
                controller.go_on()

        once(shop, orphan, 0.5)
        once(shop, go_on, 400.0 if later else 40.0)
        outcome = shop.run()
        assert outcome.ok != later
        if later:
            (pod,) = shop.let_go()
            assert (evictions(shop.world), names.HASH in pod["metadata"]["labels"]) == ([], False)
            shop.world.machine.run_for(400.0)
            shop.recover()
        assert (shop.least, shop.whole()) == (1, True)


def test_before_another_run_ends_such_a_pod_it_looks_at_the_others_under_its_lock() -> None:
    """Its ReplicaSet was rolled out over, so that it cannot be given back; the new pods fail at that moment."""
    with Shop(2) as shop:
        shop.world.process("me").faults.when(
            lambda request: request.resource == "pods/eviction", Fault("killed before")
        )
        assert shop.run().wrong == ["killed"]
        body = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        shop.world.patch(TOP, "web", body)
        shop.world.settle()
        looked: list[str] = []

        def locks(request: verbs.Request) -> bool:
            looked.append(request.resource)
            return kinds.DEPLOYMENTS.resource in looked and request.resource == kinds.LEASES.resource

        def fail() -> None:
            kubelets = shop.world.controller(nodes.Kubelets)
            for pod in shop.world.pods(app="web"):
                if names.RELEASED not in pod["metadata"]["labels"]:
                    kubelets.set_ready((pod["metadata"]["namespace"], pod["metadata"]["name"]), False)

        shop.world.process("recoverer").faults.overtaken(locks, fail)
        shop.recover()
        shop.world.settle()
        assert (evictions(shop.world), len(shop.let_go()), shop.world.serving("web")) == ([], 1, 1)


def test_evictions_name_the_pod_by_its_uid() -> None:
    with Shop(3) as shop:
        before = {pod["metadata"]["uid"] for pod in shop.world.pods(app="web")}
        assert shop.run().ok
        sent = [one.request.body or {} for one in shop.world.log if one.request.resource == "pods/eviction"]
        assert {body["deleteOptions"]["preconditions"]["uid"] for body in sent} == before
