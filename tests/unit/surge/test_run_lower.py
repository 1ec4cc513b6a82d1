# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The second half of surges as `node_drain` runs them, on a simulated cluster: each fails alone, and none for ever."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_drain import DrainOptions, drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
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
def raised() -> Saved:
    """Both nodes are protected, and the run goes on with its next call."""
    with World.of(cordoned_world()) as world:
        assert not call(world.process("first")).failed
        world.machine.run_for(5.0)
        return world.saved()


@pytest.fixture
def world(raised: Saved) -> t.Iterator[World]:
    with World.of(raised) as world:
        yield world


def emptied(actor: Actor, nodes: tuple[str, ...], timeout: float | None = None) -> Result:
    options = DrainOptions(nodes, DrainPolicy(method="surge"), timeout=timeout)
    return actor.run(lambda ctx: drain(ctx, options), ME)


def replicas(world: World) -> tuple[int, int]:
    a, b = (world.get(kinds.DEPLOYMENTS, app)["spec"]["replicas"] for app in ("a", "b"))
    return a, b


def test_surges_end_and_leave_nothing(world: World) -> None:
    a, b = home_of_record(world, "a"), home_of_record(world, "b")
    assert outcomes(emptied(world.process("me"), (a, b))) == {a: "drained", b: "drained"}
    assert replicas(world) == (1, 1)


@pytest.mark.parametrize("what", ["forbidden", "error"])
def test_a_surge_that_cannot_be_lowered_fails_its_own_node(world: World, what: t.Any) -> None:
    a, b = home_of_record(world, "a"), home_of_record(world, "b")
    me = world.process("me")
    me.faults.when(asks("patch", "deployments.apps/scale", "a"), Fault(what), times=100)
    assert outcomes(emptied(me, (a, b))) == {a: "failed", b: "drained"}
    assert replicas(world) == (2, 1)


def test_a_record_that_cannot_be_deleted_fails_its_own_node_and_is_not_waited_for(world: World) -> None:
    a, b = home_of_record(world, "a"), home_of_record(world, "b")
    me = world.process("me")
    lease = names.surge_name(uid(world, "a"))
    me.faults.when(asks("delete", kinds.LEASES.resource, lease), Fault("forbidden"), times=100)
    assert outcomes(emptied(me, (a, b))) == {a: "failed", b: "drained"}


def test_any_answer_of_a_surge_may_be_lost(raised: Saved) -> None:
    with World.of(raised) as world:
        a, b = home_of_record(world, "a"), home_of_record(world, "b")
        me = world.process("me")
        emptied(me, (a, b))
        count = me.link.count
        writes = [
            sent.ordinal
            for sent in world.log
            if sent.process == "me" and sent.request.writes and sent.request.resource not in ("pods/eviction", "nodes")
        ]
    assert len(writes) >= 7
    for ordinal in writes:
        with World.of(raised) as world:
            me = world.process("me")
            me.faults.at(ordinal, Fault("lost"))
            result = emptied(me, (a, b))
            assert (ordinal, outcomes(result)) == (ordinal, {a: "drained", b: "drained"}), result.message
            assert replicas(world) == (1, 1)
            assert not [n for _ns, n in world.store.of(kinds.LEASES.resource) if n.startswith(names.SURGE_PREFIX)]
    print(f"{len(writes)} of {count} requests are writes of surges and locks, each with its answer lost")


def test_a_workload_that_somebody_scales_in_mid_surge_keeps_their_count(world: World) -> None:
    a, b = home_of_record(world, "a"), home_of_record(world, "b")
    me = world.process("me")
    seen = iter([True])

    def scale(request: Request) -> bool:
        if asks("patch", "deployments.apps/scale", "a")(request) and next(seen, False):
            world.patch(kinds.DEPLOYMENTS, "a", {"spec": {"replicas": 4}})
        return False

    me.faults.when(scale, Fault("late"))
    assert outcomes(emptied(me, (a, b))) == {a: "drained", b: "drained"}
    world.settle()
    assert replicas(world) == (4, 1)
    assert not [pod for pod in world.pods(app="a") if pod["spec"]["nodeName"] == a]
