# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`pdb_guard` on a simulated cluster: what fails fails alone, and what is said to be protected is.

Deployments `a` and `b` have one pod each, on different nodes, and are surged; `web` has no budget and gets a guard.
"""

from __future__ import annotations

import itertools
import json
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import rivals
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, Saved, World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.guarded import (
    ME,
    asks,
    call,
    cordoned_world,
    home_of_record,
    outcomes,
    uid,
)


@pytest.fixture(scope="module")
def cordoned() -> Saved:
    return cordoned_world()


@pytest.fixture
def world(cordoned: Saved) -> t.Iterator[World]:
    with World.of(cordoned) as world:
        yield world


def guard_name(world: World) -> str:
    return names.guard_name(uid(world, "web"))


def left(world: World) -> dict[str, t.Any]:
    """What the call leaves, times and versions aside."""
    return {
        "budgets": sorted(name for _namespace, name in world.store.of(kinds.BUDGETS.resource)),
        "surges": sorted(name for _ns, name in world.store.of(kinds.LEASES.resource) if name.startswith("surge")),
        "replicas": {app: world.get(kinds.DEPLOYMENTS, app)["spec"]["replicas"] for app in ("a", "b", "web")},
        "pods": {app: len(world.pods(app=app)) for app in ("a", "b", "web")},
    }


# -- a guard that others remove ---------------------------------------------------------------------------


def removing(world: World, actor: Actor, times: int) -> None:
    """Somebody removes the guard right before each of our writes to it, and right after we made it."""
    before = itertools.count()
    budgets = kinds.BUDGETS

    def remove(request: Request) -> bool:
        writes = request.resource == budgets.resource and request.verb in ("patch", "create")
        if writes and next(before) < times and world.find(budgets, guard_name(world)):
            world.delete(budgets, guard_name(world))
        return False

    actor.faults.when(remove, Fault("late"))


def shared(world: World) -> None:
    """The guard is there, for a node of another run."""
    mine = {home_of_record(world, "a"), home_of_record(world, "b")}
    other = next(pod["spec"]["nodeName"] for pod in world.pods(app="web") if pod["spec"]["nodeName"] not in mine)
    result = call(world.process("first"), method="evict")
    assert not result.failed
    raw = world.get(kinds.BUDGETS, guard_name(world))
    serves = {other: world.get(kinds.NODES, other)["metadata"]["uid"]}
    text = json.dumps(serves)
    world.patch(kinds.BUDGETS, raw["metadata"]["name"], {"metadata": {"annotations": {names.SERVES_NODES: text}}})
    world.machine.run_for(70.0)


def test_a_shared_guard_that_its_other_user_removes_is_made_again(world: World) -> None:
    shared(world)
    me = world.process("me")
    removing(world, me, 1)
    result = call(me, method="evict")
    assert not result.failed, result.message
    found = world.find(kinds.BUDGETS, guard_name(world))
    assert found is not None
    here = {pod["spec"]["nodeName"] for pod in world.pods(app="web")} & outcomes(result).keys()
    assert json.loads(found["metadata"]["annotations"][names.SERVES_NODES]).keys() == here != set()
    assert set(outcomes(result).values()) == {"protected"}


def test_a_guard_that_is_removed_again_and_again_is_not_said_to_be_there(world: World) -> None:
    me = world.process("me")
    world.on_event.append(lambda event: soon_gone(world) if event.what == "ADDED" else None)
    result = call(me, timeout=30.0)
    assert set(outcomes(result).values()) == {"timed_out"}
    assert result.failed
    assert {w["name"]: w["outcome"] for w in result.data["workloads"]} == {
        "a": "raised",
        "b": "raised",
        "web": "timed_out",
    }


def soon_gone(world: World) -> None:
    world.machine.after(0.0, lambda: gone(world), "remove the guard")


def gone(world: World) -> None:
    if world.find(kinds.BUDGETS, guard_name(world)):
        world.delete(kinds.BUDGETS, guard_name(world))


def test_a_guard_that_may_not_be_made_fails_its_workload_and_nodes_and_no_surge(world: World) -> None:
    me = world.process("me")
    me.faults.when(asks("create", kinds.BUDGETS.resource), Fault("forbidden"), times=100)
    result = call(me)
    here = {pod["spec"]["nodeName"] for pod in world.pods(app="web")}
    assert outcomes(result) == {name: "blocked" if name in here else "protected" for name in outcomes(result)}
    assert "blocked" in outcomes(result).values()
    assert {w["name"]: w["outcome"] for w in result.data["workloads"]} == {
        "a": "raised",
        "b": "raised",
        "web": "guard_denied",
    }


# -- what fails fails alone -------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["forbidden", "error"])
@pytest.mark.parametrize(
    ("verb", "resource", "subject"),
    [
        ("create", "leases.coordination.k8s.io", "surge"),
        ("patch", "deployments.apps/scale", "a"),
        ("patch", "pods", "a-"),
    ],
)
def test_a_write_that_is_refused_fails_one_workload_and_its_node(
    world: World, what: t.Any, verb: str, resource: str, subject: str
) -> None:
    me = world.process("me")
    wanted = names.surge_name(uid(world, "a")) if subject == "surge" else subject
    me.faults.when(asks(verb, resource, wanted), Fault(what), times=100)
    a, b = home_of_record(world, "a"), home_of_record(world, "b")
    result = call(me)
    assert outcomes(result) == {a: "blocked", b: "protected"}
    assert world.get(kinds.DEPLOYMENTS, "a")["spec"]["replicas"] == 1
    assert world.get(kinds.DEPLOYMENTS, "b")["spec"]["replicas"] == 2


@pytest.mark.parametrize("resource", [kinds.BUDGETS.resource, kinds.LEASES.resource, "deployments.apps/scale"])
def test_what_cannot_be_given_back_stands_against_its_own_nodes(world: World, resource: str) -> None:
    a, b = home_of_record(world, "a"), home_of_record(world, "b")
    assert not call(world.process("first")).failed
    world.machine.run_for(70.0)
    me = world.process("me")
    subject = {kinds.BUDGETS.resource: "", kinds.LEASES.resource: names.surge_name(uid(world, "a"))}.get(resource, "a")
    verb = "patch" if resource.endswith("scale") else "delete"
    me.faults.when(asks(verb, resource, subject), Fault("forbidden"), times=100)
    result = call(me, "absent", nodes=(a, b))
    if resource == kinds.BUDGETS.resource:
        here = {pod["spec"]["nodeName"] for pod in world.pods(app="web")} & {a, b}
        assert outcomes(result) == {n: "not_given_back" if n in here else "given_back" for n in (a, b)}
    else:
        assert outcomes(result) == {a: "not_given_back", b: "given_back"}
    assert world.get(kinds.DEPLOYMENTS, "b")["spec"]["replicas"] == 1


def test_the_record_of_one_node_that_nobody_can_read_stands_against_that_node(world: World) -> None:
    a, b = home_of_record(world, "a"), home_of_record(world, "b")
    world.patch(kinds.NODES, a, {"metadata": {"annotations": {names.RECORD: "{"}}})
    result = call(world.process("me"), nodes=(a, b))
    assert outcomes(result) == {a: "bad_record", b: "protected"}


@pytest.mark.parametrize("state", ["present", "absent"])
def test_the_record_of_one_surge_that_nobody_can_read_stands_against_its_nodes(world: World, state: t.Any) -> None:
    a, b = home_of_record(world, "a"), home_of_record(world, "b")
    assert not call(world.process("first")).failed
    world.machine.run_for(70.0)
    lease = names.surge_name(uid(world, "a"))
    raw = world.get(kinds.LEASES, lease, names.NAMESPACE)
    text = raw["metadata"]["annotations"][names.SURGE].replace('"v":1', '"v":99')
    world.patch(kinds.LEASES, lease, {"metadata": {"annotations": {names.SURGE: text}}}, names.NAMESPACE)
    result = call(world.process("me"), state, nodes=(a, b))
    good = "already_protected" if state == "present" else "given_back"
    assert outcomes(result) == {a: "blocked" if state == "present" else "not_given_back", b: good}
    assert world.get(kinds.LEASES, lease, names.NAMESPACE)["metadata"]["annotations"][names.SURGE] == text


def test_a_node_that_is_taken_over_is_lost_alone(world: World) -> None:
    a, b = home_of_record(world, "a"), home_of_record(world, "b")
    me = world.process("me")

    def seize(request: Request) -> bool:
        if asks("patch", "deployments.apps/scale", "a")(request):
            rivals.take_over(world, a, ME)
            return True
        return False

    me.faults.when(seize, Fault("frozen", 20.0))
    result = call(me, nodes=(a, b))
    assert outcomes(result) == {a: "adopted_by", b: "protected"}
    assert world.get(kinds.DEPLOYMENTS, "a")["spec"]["replicas"] == 1


def test_a_node_that_another_run_holds_does_not_hold_up_the_others(world: World) -> None:
    a, b = home_of_record(world, "a"), home_of_record(world, "b")
    other = world.process("other")
    lease = names.node_lease_name(a)

    def hold() -> None:
        for number in itertools.count():
            spec = {"holderIdentity": "other/x", "leaseDurationSeconds": 15, "leaseTransitions": number}
            world.patch(kinds.LEASES, lease, {"spec": spec}, names.NAMESPACE)
            other.clock.sleep(5.0)

    other.spawn(hold)
    result = call(world.process("me"), nodes=(a, b))
    assert outcomes(result) == {a: "held", b: "protected"}
    assert {"a", "b"} & {w["name"] for w in result.data["workloads"]} == {"b"}, (
        "it is planned anew for the nodes that are left"
    )


# -- lost answers and time --------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["present", "absent"])
def test_any_answer_may_be_lost(cordoned: Saved, state: t.Any) -> None:
    with World.of(cordoned) as world:
        nodes = (home_of_record(world, "a"), home_of_record(world, "b"))
        if state == "absent":
            assert not call(world.process("first")).failed
            world.machine.run_for(70.0)
        before = world.saved()
    with World.of(before) as world:
        me = world.process("me")
        assert not call(me, state, nodes=nodes).failed
        world.settle()
        wanted, count = left(world), me.link.count
    assert wanted["surges" if state == "present" else "pods"]
    tried = 0
    for ordinal in range(count):
        with World.of(before) as world:
            me = world.process("me")
            me.faults.at(ordinal, Fault("lost"))
            result = call(me, state, nodes=nodes)
            world.settle()
            assert (ordinal, result.failed, result.message) == (ordinal, False, "")
            assert left(world) == wanted, ordinal
            tried += 1
    assert tried > 15
    print(f"{state}: {tried} requests, each with its answer lost")


def test_waiting_for_another_run_s_surge_is_bounded_and_keeps_our_locks(world: World) -> None:
    a, b = home_of_record(world, "a"), home_of_record(world, "b")
    assert not call(world.process("first")).failed
    lease = names.surge_name(uid(world, "a"))
    raw = world.get(kinds.LEASES, lease, names.NAMESPACE)
    text = raw["metadata"]["annotations"][names.SURGE].replace('"run":"r1"', '"run":"other"')
    world.patch(kinds.LEASES, lease, {"metadata": {"annotations": {names.SURGE: text}}}, names.NAMESPACE)
    other, renewed = world.process("other"), []

    def hold() -> None:
        for number in itertools.count():
            spec = {"holderIdentity": "other/x", "leaseTransitions": number}
            world.patch(kinds.LEASES, lease, {"spec": spec}, names.NAMESPACE)
            other.clock.sleep(15.0)

    other.spawn(hold)
    world.machine.run_for(70.0)
    world.on_event.append(
        lambda event: (
            renewed.append(world.machine.now) if event.raw["metadata"]["name"] == names.heartbeat_name(ME) else None
        )
    )
    me, start = world.process("me"), world.machine.now
    result = call(me, nodes=(a, b), timeout=90.0)
    assert outcomes(result) == {a: "timed_out", b: "already_protected"}
    assert 90.0 <= world.machine.now - start < 120.0
    assert max(later - earlier for earlier, later in itertools.pairwise(renewed)) < 15.0
    assert world.get(kinds.LEASES, lease, names.NAMESPACE)["spec"]["holderIdentity"] == "other/x"
