# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One surge for the pods of several nodes: a node that is lost is lost alone, and its pods stay.

Deployment `web` has a pod on n1 and one on n2, and a budget that allows nothing.
"""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.pod_plan import Choices
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.context import Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain.drain import DrainOptions, drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.nodes.cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.nodes.node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.protect.guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.tests.unit.run.guarded import ME, asks, outcomes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, rivals
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, Saved, World

NODES = ("n1", "n2")
SCALES = asks("patch", "deployments.apps/scale", "web")


@pytest.fixture(scope="module")
def cordoned() -> Saved:
    objects = [manifests.node("n1"), manifests.node("n2"), manifests.deployment("web", 2), manifests.service("web")]
    with World([*objects, manifests.budget("web", minAvailable=2)]) as world:
        world.apply(*(manifests.node(name) for name in ("n8", "n9")))
        assert [len(world.pods(on=name)) for name in NODES] == [1, 1]
        assert not world.process("first").run(lambda ctx: cordon(ctx, CordonOptions("cordoned", NODES)), ME).failed
        world.machine.run_for(70.0)
        return world.saved()


@pytest.fixture
def world(cordoned: Saved) -> t.Iterator[World]:
    with World.of(cordoned) as world:
        yield world


def guarded(actor: Actor, state: t.Literal["present", "absent"] = "present") -> Result:
    return actor.run(lambda ctx: guard(ctx, GuardOptions(state, NODES, method="surge", swap_blocked=True)), ME)


def drained(actor: Actor) -> Result:
    options = DrainOptions(NODES, Choices(method="surge", swap_blocked=True), timeout=120.0)
    return actor.run(lambda ctx: drain(ctx, options), ME)


def seized(world: World, request: Request) -> bool:
    """Right before the count is written somebody takes n1 over, while we stand still."""
    if not SCALES(request):
        return False
    rivals.take_over(world, "n1", ME)
    return True


def replicas(world: World) -> int:
    return int(world.get(kinds.DEPLOYMENTS, "web")["spec"]["replicas"])


def costs(world: World) -> list[str]:
    """The pods that would be ended before others."""
    noted = ((p["metadata"]["name"], p["metadata"].get("annotations") or {}) for p in world.pods(app="web"))
    return [name for name, annotations in noted if names.DELETION_COST in annotations]


def surges(world: World) -> list[str]:
    return [name for _ns, name in world.store.of(kinds.LEASES.resource) if name.startswith(names.SURGE_PREFIX)]


def stayed(world: World, uid: str) -> None:
    """Only the pod of n2 was moved, and nothing of the surge is left."""
    world.settle()
    assert [pod["metadata"]["uid"] for pod in world.pods(on="n1", app="web")] == [uid]
    assert not world.pods(on="n2", app="web")
    assert (replicas(world), world.serving("web"), costs(world), surges(world)) == (2, 2, [], [])


def pod_of(world: World, node: str) -> str:
    (pod,) = world.pods(on=node, app="web")
    return str(pod["metadata"]["uid"])


def test_a_node_that_is_taken_over_during_the_first_half_is_lost_alone(world: World) -> None:
    uid, me = pod_of(world, "n1"), world.process("me")
    me.faults.when(lambda request: seized(world, request), Fault("frozen", 20.0))
    assert outcomes(guarded(me)) == {"n1": "adopted_by", "n2": "protected"}
    assert [name for name in costs(world) if name in {p["metadata"]["name"] for p in world.pods(on="n1")}] == []
    world.machine.run_for(5.0)
    assert outcomes(drained(me))["n2"] == "drained"
    stayed(world, uid)


def test_a_node_that_is_taken_over_during_the_second_half_is_lost_alone(world: World) -> None:
    uid, me = pod_of(world, "n1"), world.process("me")
    assert not guarded(me).failed
    me.faults.when(lambda request: seized(world, request), Fault("frozen", 20.0))
    assert outcomes(drained(me)) == {"n1": "adopted_by", "n2": "drained"}
    stayed(world, uid)


def test_the_pod_of_a_node_that_a_person_uncordons_stays(world: World) -> None:
    uid, me = pod_of(world, "n1"), world.process("me")
    assert not guarded(me).failed
    beats = asks("patch", kinds.LEASES.resource, names.heartbeat_name(ME))
    me.faults.overtaken(beats, lambda: world.cordon("n1", False))
    assert outcomes(drained(me)) == {"n1": "uncordoned", "n2": "drained"}
    stayed(world, uid)


def test_a_node_that_is_taken_over_while_its_surge_is_given_back_is_lost_alone(world: World) -> None:
    me = world.process("me")
    before = {pod_of(world, node) for node in NODES}
    assert not guarded(me).failed
    me.faults.when(lambda request: seized(world, request), Fault("frozen", 20.0))
    assert outcomes(guarded(me, "absent")) == {"n1": "adopted_by", "n2": "given_back"}
    world.settle()
    assert {pod["metadata"]["uid"] for pod in world.pods(app="web")} == before
    assert (replicas(world), costs(world), surges(world)) == (2, [], [])


@pytest.mark.parametrize("after", range(6))
def test_a_run_that_is_killed_while_it_lets_a_node_go_goes_on(cordoned: Saved, after: int) -> None:
    with World.of(cordoned) as world:
        uid, me = pod_of(world, "n1"), world.process("me")
        assert not guarded(me).failed
        me.faults.when(lambda request: seized(world, request), Fault("frozen", 20.0))
        writes = iter(range(100))

        def late(request: Request) -> bool:
            lock = world.get(kinds.LEASES, names.node_lease_name("n1"), names.NAMESPACE)
            return lock["spec"]["holderIdentity"] == "other/x" and request.writes and next(writes) == after

        me.faults.when(late, Fault("killed after"))
        task = me.call(
            lambda ctx: drain(ctx, DrainOptions(NODES, Choices(method="surge", swap_blocked=True), timeout=120.0)), ME
        )
        world.machine.run_until(lambda: not task.alive)
        world.patch(
            kinds.LEASES, names.node_lease_name("n1"), {"spec": {"leaseDurationSeconds": 3600}}, names.NAMESPACE
        )
        assert outcomes(drained(world.process("me"))) == {"n1": "held", "n2": "drained"}
        world.settle()
        stayed(world, uid)
