# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A surge that others meet on its way: what it waits for, what stops it, what it leaves alone."""

from __future__ import annotations

import types
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.serving import Endpoints
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.surge_records import (
    BadSurgeError,
    Surge,
    surges_for,
    surges_in,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import steps
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard_call import GuardCall, surges
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, serving, workloads
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import owned, workload
from ansible_collections.kubeops.node_maintenance.tests.unit.support.play import (
    NOW,
    Hand,
    prepare,
    recorded,
    undo_all,
    wanted,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.world import WAVE, Listed, World

# -- others on the way ------------------------------------------------------------------------------


def test_a_count_that_somebody_else_set_is_kept_and_reported() -> None:
    world = World(["n1"])
    prepare(world, Hand(world), "n1")
    world.scale(5)
    world.act()
    assert steps.lowering(world.snapshot(), recorded(world)) == ()
    kept = undo_all(world, Hand(world))
    assert world.replicas == 5
    assert kept == ("somebody else set Deployment shop/web to 5 replicas; left as is",)


def test_a_workload_that_is_gone_leaves_nothing_of_the_surge() -> None:
    world = World(["n1"])
    prepare(world, Hand(world), "n1")
    surge = recorded(world)
    world.sim.delete(kinds.DEPLOYMENTS, "web")
    seen = world.snapshot(lambda listed: listed["replica_sets"].clear())
    undo = steps.giving_back(seen, surge)
    assert {c.target.kind for c in undo.changes} == {"Pod"}
    assert not undo.waiting
    blocked = steps.blocked(seen, surge, ["n1"])
    assert blocked is not None
    assert blocked.code == "workload_gone"


def test_a_rollout_that_began_meanwhile_ends_before_the_count_is_lowered() -> None:
    world = World(["n1"])
    prepare(world, Hand(world), "n1")
    surge = recorded(world)

    def began(listed: Listed) -> None:
        owner = [{**owned("Deployment", "web")[0], "uid": world.uid}]
        listed["replica_sets"].append(workload("ReplicaSet", "web-2", 1, owner))

    seen = world.snapshot(began)
    assert "ReplicaSets have replicas" in steps.waiting_for(seen, surge, Endpoints(seen), ["n1"], lowering=True)
    undo = steps.giving_back(seen, surge)
    assert undo.changes == ()
    assert "ReplicaSets have replicas" in undo.waiting


# -- waiting and blocked ------------------------------------------------------------------------------


def raised_world(on: t.Sequence[str] = ("n1",)) -> World:
    world = World(on)
    prepare(world, Hand(world), "n1")
    return world


def nobody(listed: Listed) -> None:
    """Nothing is other than it is."""


def why(world: World, *, lowering: bool = False, but: t.Callable[[Listed], None] = nobody) -> str:
    seen = world.snapshot(but)
    return steps.waiting_for(seen, recorded(world), Endpoints(seen), ["n1"], lowering=lowering)


def test_waiting_names_what_is_missing() -> None:
    world = raised_world()
    assert why(world) == ""
    name = world.newcomer()["metadata"]["name"]
    world.set_ready(name, False)
    assert why(world) == f"Pod shop/{name} is not ready"
    world.set_ready(name, True)
    world.act()
    assert why(world) == ""

    def fewer(listed: Listed) -> None:
        for raw in (*listed["deployments"], *listed["replica_sets"]):
            raw["status"]["availableReplicas"] = 1

    assert why(world, but=fewer) == "1 of 2 pods are available (minReadySeconds 0)"

    def young(listed: Listed) -> None:
        fewer(listed)
        for raw in (*listed["deployments"], *listed["replica_sets"]):
            raw["spec"]["minReadySeconds"] = 30

    assert why(world, but=young) == "1 of 2 pods are available (minReadySeconds 30)"
    world.sim.controller(workloads.Deployments).stop()
    world.sim.patch(kinds.DEPLOYMENTS, "web", {"spec": {"paused": True}})
    assert why(world) == "the controller of Deployment shop/web has not seen its count of 2 yet"


def test_waiting_for_the_endpoints_of_every_service_and_family() -> None:
    world = raised_world()
    seen = world.snapshot()
    old = recorded(world).pod_uid
    six = {
        "metadata": {"name": "web-6", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv6",
        "endpoints": [{"targetRef": {"uid": old}}],
    }
    found = steps.waiting_for(seen, recorded(world), Endpoints(replace(seen, slices=[*seen.slices, six])), ["n1"])
    assert found.endswith("is not ready in Service shop/web (IPv6)")


def test_a_pod_that_will_be_evicted_holds_up_the_lowering_and_not_the_raising() -> None:
    world = World(["n1", "n1", "n9"])
    world.sim.controller(serving.Budgets).stop()
    world.set_ready("web-0", False)
    surge = wanted(world, "n1")
    world.apply(surge.writing("r1/x", NOW))
    for change in steps.raising(world.snapshot(), surge):
        world.apply(change)
    world.act(5.0)
    assert world.alias(recorded(world).pod) == "web-1"
    assert why(world) == ""
    assert why(world, lowering=True) == f"Pod shop/{world.first[0]} is not ready"


def test_a_count_not_yet_brought_about_is_never_lowered_again() -> None:
    """Killed right after lowering: the controller has not acted, and the leaving pod still lives."""
    world = raised_world()
    for change in steps.lowering(world.snapshot(), recorded(world)):
        world.apply(change)
    seen = world.snapshot()
    assert steps.leaving(seen, recorded(world))
    assert why(world, lowering=True)
    assert steps.lowering(seen, recorded(world)) == ()


def found(listed: Listed, kind: str, name: str) -> t.Any:
    return next(raw for raw in listed[kind] if raw["metadata"]["name"] == name)


def refused_creation(world: World, listed: Listed) -> None:
    listed["pods"].remove(found(listed, "pods", world.newcomer()["metadata"]["name"]))
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: pods"}
    listed["replica_sets"][0]["status"].update(replicas=1, conditions=[failure])


def unplaced(world: World, listed: Listed) -> None:
    raw = found(listed, "pods", world.newcomer()["metadata"]["name"])
    raw["spec"]["nodeName"] = ""
    raw["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    ]


def preempting(world: World, listed: Listed) -> None:
    unplaced(world, listed)
    about_to_bind(world, listed)


def about_to_bind(world: World, listed: Listed) -> None:
    found(listed, "pods", world.newcomer()["metadata"]["name"])["status"]["nominatedNodeName"] = "n9"


def on_leaving_node(world: World, listed: Listed) -> None:
    found(listed, "pods", world.newcomer()["metadata"]["name"])["spec"]["nodeName"] = "n1"


def on_cordoned_node(world: World, listed: Listed) -> None:
    found(listed, "nodes", "n9")["spec"]["unschedulable"] = True


def put_back(world: World, listed: Listed) -> None:
    listed["deployments"][0]["spec"]["replicas"] = 1


def nothing(world: World, listed: Listed) -> None:
    """All is well."""


@pytest.mark.parametrize(
    ("event", "code", "words"),
    [
        (refused_creation, "surge_refused", "exceeded quota: pods"),
        (unplaced, "surge_unschedulable", "0/3 nodes"),
        (preempting, "surge_preempts", "preempt other pods"),
        (about_to_bind, "", ""),
        (on_leaving_node, "surge_on_leaving_node", "scheduled to n1"),
        (on_cordoned_node, "surge_on_leaving_node", "scheduled to n9"),
        (put_back, "surge_reverted", "to 1 replicas while 2"),
        (nothing, "", ""),
    ],
)
def test_what_stands_in_the_way(event: t.Callable[[World, Listed], None], code: str, words: str) -> None:
    world = raised_world()
    blocked = steps.blocked(world.snapshot(lambda listed: event(world, listed)), recorded(world), ["n1"])
    assert (blocked.code if blocked else "") == code
    assert blocked is None or (words in blocked.message and blocked.remedy)


# -- the record -----------------------------------------------------------------------------------------


def test_the_record_survives_its_lease() -> None:
    world = World(["n1"], rule={"maxUnavailable": 0})
    surge = wanted(world, *WAVE)
    world.apply(surge.writing("r1/x", NOW))
    found = recorded(world)
    assert found == surge
    assert (found.holder, found.duration) == ("r1/x", 60)
    spec = world.leases[0]["spec"]
    assert spec["renewTime"] == "2026-01-01T00:00:00.000000Z"
    renewed = found.renewing("r1/y", NOW)
    world.apply(renewed)
    assert recorded(world).holder == "r1/y"


def test_other_leases_are_no_surges() -> None:
    world = World(["n1"])
    seen = world.snapshot(lambda listed: listed["leases"].append({"metadata": {"name": "node-n1"}, "spec": {}}))
    assert len(seen.leases) == 1
    assert surges_in(seen) == ()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"v":2}', '{"v":1}', '{"v":1,"node":{}}'])
def test_a_record_that_cannot_be_read_is_never_guessed(text: str) -> None:
    raw = {"metadata": {"name": "surge-x", "annotations": {names.SURGE: text}}}
    with pytest.raises(BadSurgeError, match="restore the workload's replicas by hand"):
        Surge.from_lease(raw)


def test_surges_are_found_by_node_and_as_orphans() -> None:
    world = raised_world()
    seen = world.snapshot()
    assert len(surges_for(seen, ["n1", "n5"])) == 1
    assert surges_for(seen, ["n9"]) == ()
    assert not served(seen, "n9")
    world.sim.delete(kinds.NODES, "n1")
    world.sim.apply(manifests.node("n1"))
    assert served(world.snapshot(), "n9") == [recorded(world)]


def served(seen: Snapshot, node: str) -> list[Surge]:
    """Those that a call about this node undoes."""
    return surges(t.cast("GuardCall", types.SimpleNamespace(snapshot=seen)), frozenset({node}))
