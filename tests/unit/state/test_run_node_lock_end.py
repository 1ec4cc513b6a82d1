# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end of a call's locks: one deadline of ten seconds, and nobody's time taken by somebody else's."""

from __future__ import annotations

import contextlib
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_locks
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.locked import done, leases, of_leases
from ansible_collections.kubeops.node_maintenance.tests.unit.support.locked_one_by_one import WHERE, lease, locks

MAP = kinds.NODE_FENCES.resource


@pytest.fixture
def world() -> t.Iterator[World]:
    with World([manifests.namespace(names.NAMESPACE), manifests.namespace(WHERE)], settle=False) as made:
        yield made


def install(world: World) -> None:
    fence = {"name": names.FENCE_MAP, "namespace": names.NAMESPACE}
    world.apply({"apiVersion": names.FENCE_API, "kind": "NodeFence", "metadata": fence})


def taken(actor: Actor, *nodes: str) -> run_locks.Locks:
    mine = locks(actor, "r1/n1", *nodes)
    assert done(actor, mine.take) == {}
    return mine


def on(node: str, method: str = "PATCH") -> t.Callable[[Request], bool]:
    """Chooses writes of the lock of one node."""
    return lambda request: request.method == method and request.name == f"node-{node}"


def ends_after(world: World, actor: Actor, mine: run_locks.Locks, *drop: str) -> float:
    """How many seconds the end takes."""
    began = world.machine.now
    done(actor, lambda: mine.leave(drop=drop))
    return world.machine.now - began


@contextlib.contextmanager
def sending(world: World, chosen: t.Callable[[Request], bool]) -> t.Iterator[list[tuple[float, str]]]:
    """After how many seconds such requests are made in here, and about which objects."""
    found: list[tuple[float, str]] = []
    before, began = len(world.log), world.machine.now
    yield found
    found += [(each.left - began, each.request.name) for each in world.log[before:] if chosen(each.request)]


def test_for_how_long_a_lock_lasts_during_and_between_calls(world: World) -> None:
    me = world.process("me")
    mine = taken(me, "a", "b")
    assert lease(world)["leaseDurationSeconds"] == 15
    assert ends_after(world, me, mine, "a") == 0.0
    assert lease(world, "b")["leaseDurationSeconds"] == 60
    again = taken(me, "b")
    done(me, lambda: again.leave(900.0))
    assert lease(world, "b")["leaseDurationSeconds"] == 900


def test_nothing_is_renewed_after_the_end(world: World) -> None:
    me = world.process("me")
    mine = taken(me)
    ends_after(world, me, mine)
    with sending(world, of_leases("PATCH")) as renewals:
        world.machine.run_for(60.0)
    assert renewals == []


def test_the_deadline_is_ten_seconds_however_many_locks_hang(world: World) -> None:
    me = world.process("me")
    mine = taken(me, *"abcdefghij")
    me.faults.when(of_leases("PATCH"), Fault("hang"), times=100)
    with sending(world, of_leases("PATCH")) as renewals:
        assert ends_after(world, me, mine) == 10.0
        world.machine.run_for(60.0)
    assert {name for _at, name in renewals} == {f"node-{node}" for node in "abcdefgh"}, "eight at once"


def test_a_renewal_that_hangs_takes_half_of_the_time_at_most(world: World) -> None:
    me = world.process("me")
    mine = taken(me, "a", "b")
    me.faults.when(on("a"), Fault("hang"), times=100)
    world.machine.run_for(run_locks.RENEW_EVERY_SECONDS + 0.5)
    with sending(world, on("b")) as renewals:
        assert ends_after(world, me, mine) == 10.0
    assert renewals == [(5.0, "node-b")]


def test_what_stays_is_renewed_at_once_while_the_servers_fence_hangs_for_what_goes(world: World) -> None:
    install(world)
    me = world.process("me")
    mine = taken(me, "a", "b")
    me.faults.when(lambda request: request.resource == MAP, Fault("hang"), times=100)
    with sending(world, lambda request: request.resource == kinds.LEASES.resource) as writes:
        assert ends_after(world, me, mine, "a") == 5.0
    assert writes == [(0.0, "node-b"), (5.0, "node-a")], "the fence gets half of the time"
    assert leases(world) == {"node-b"}


def test_who_drops_nothing_asks_the_servers_fence_nothing(world: World) -> None:
    install(world)
    me = world.process("me")
    mine = taken(me)
    with sending(world, lambda request: request.resource == MAP) as asked:
        ends_after(world, me, mine)
    assert asked == []


def test_a_process_that_stood_still_while_it_left_ends_at_once(world: World) -> None:
    me = world.process("me")
    mine = taken(me, "a", "b", "c")
    me.faults.when(on("a"), Fault("frozen", 60.0))
    me.faults.when(lambda request: on("b")(request) or on("c")(request), Fault("hang"), times=100)
    assert ends_after(world, me, mine) == 60.0


def test_a_lock_that_was_lost_is_left_alone_at_the_end(world: World) -> None:
    me = world.process("me")
    mine = taken(me, "a", "b")
    world.patch(kinds.LEASES, "node-a", {"spec": {"holderIdentity": "r2/n2"}}, WHERE)
    world.machine.run_for(run_locks.RENEW_EVERY_SECONDS + 1.0)
    assert set(mine.lost()) == {"a"}
    with sending(world, of_leases("PATCH")) as renewals:
        ends_after(world, me, mine)
    assert renewals == [(0.0, "node-b")]
