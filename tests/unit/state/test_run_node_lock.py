# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lock protocol, on processes that live, die, freeze and thaw beside each other."""

from __future__ import annotations

import typing as t
from functools import partial

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Raw, Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_reconcile import reconcile
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_locks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.lock_leases import WORKING
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_locks import (
    IDLE,
    LEAVE_WITHIN_SECONDS,
    RENEW_EVERY_SECONDS,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_node_lock import (
    EARLIER_START_DIES_SECONDS,
    LOOK_EVERY_SECONDS,
    LostLockError,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.locked import done, leases, of_leases
from ansible_collections.kubeops.node_maintenance.tests.unit.support.locked_one_by_one import (
    WHERE,
    held,
    lease,
    locks,
    rewrite,
)


@pytest.fixture
def world() -> t.Iterator[World]:
    nodes = [manifests.node(name) for name in ("a", "b")]
    with World([*nodes, manifests.namespace(names.NAMESPACE), manifests.namespace(WHERE)]) as made:
        yield made


@pytest.fixture
def unkept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that renews gets no turn for an hour: what is renewed is renewed by who needs it."""
    monkeypatch.setattr(run_locks, "RENEW_EVERY_SECONDS", 3600.0)


def renewals(world: World, actor: Actor) -> int:
    """How often that process has written a lease again."""
    chosen = of_leases("PATCH")
    return sum(sent.process == actor.name and sent.status == 200 and chosen(sent.request) for sent in world.log)


def test_a_free_lock_is_taken_and_dropped(world: World) -> None:
    me = world.process("me")
    mine = locks(me, "r1/n1")
    assert done(me, mine.take) == {}
    assert lease(world)["holderIdentity"] == "r1/n1"
    assert lease(world)["leaseDurationSeconds"] == WORKING
    done(me, lambda: mine.leave(drop=["a"]))
    done(me, mine.leave)
    assert leases(world) == set()


def test_between_two_calls_of_a_run_the_lock_waits_a_minute(world: World) -> None:
    me = world.process("me")
    first = locks(me, "r1/n1")
    began = world.machine.now
    done(me, first.take)
    done(me, first.leave)
    assert lease(world)["leaseDurationSeconds"] == IDLE
    assert done(me, locks(me, "r1/n1").take) == {}
    assert world.machine.now == began


def test_a_silent_lock_is_taken_over_after_its_own_duration_and_not_before(world: World) -> None:
    held(world, "r1/n1")
    began = world.machine.now
    taker = world.process("taker")
    assert done(taker, locks(taker, "r2/n2").take) == {}
    assert world.machine.now - began == pytest.approx(WORKING)
    assert lease(world)["holderIdentity"] == "r2/n2"
    assert lease(world)["leaseTransitions"] == 1


def test_a_lock_that_is_renewed_refuses_another_run_and_names_its_holder(world: World) -> None:
    tina, otto = world.process("tina"), world.process("otto")
    done(tina, locks(tina, "r1/n1").take)
    began = world.machine.now
    refused = done(otto, locks(otto, "r2/n2").take)
    assert refused["a"].startswith("Node a is held by run r1 of tina@sim since ")
    assert world.machine.now - began <= RENEW_EVERY_SECONDS + LOOK_EVERY_SECONDS
    assert lease(world)["holderIdentity"] == "r1/n1"


def test_the_same_run_waits_for_its_dying_predecessor(world: World) -> None:
    old, new = world.process("old"), world.process("new")
    done(old, locks(old, "r1/n1").take)
    world.machine.after(3 * RENEW_EVERY_SECONDS + 1.0, old.process.kill, "kill")
    last = world.machine.now + 3 * RENEW_EVERY_SECONDS
    assert done(new, lambda: locks(new, "r1/n2").take(patient=True)) == {}
    assert WORKING <= world.machine.now - last <= WORKING + LOOK_EVERY_SECONDS


def test_the_same_run_refuses_after_a_minute_of_renewals(world: World) -> None:
    old, new = world.process("old"), world.process("new")
    done(old, locks(old, "r1/n1").take)
    began = world.machine.now
    assert "a" in done(new, lambda: locks(new, "r1/n2").take(patient=True))
    assert (
        EARLIER_START_DIES_SECONDS <= world.machine.now - began <= EARLIER_START_DIES_SECONDS + 2 * LOOK_EVERY_SECONDS
    )


def test_an_identity_read_from_the_record_does_not_enter_a_working_call(world: World) -> None:
    works, other = world.process("works"), world.process("other")
    done(works, locks(works, "r1/n1").take)
    assert "a" in done(other, lambda: locks(other, "r1/n1").take(borrowed=True))


def test_a_lock_for_hours_is_refused_at_once(world: World) -> None:
    held(world, "r1/n1")
    rewrite(world, leaseDurationSeconds=3600)
    began = world.machine.now
    me = world.process("me")
    assert "a" in done(me, lambda: locks(me, "r1/n2").take(patient=True))
    assert world.machine.now == began


def test_a_lock_left_for_hours_goes_to_the_one_who_vouches_that_nobody_works(world: World) -> None:
    held(world, "r1/n1")
    rewrite(world, leaseDurationSeconds=3600)
    began = world.machine.now
    me = world.process("me")
    mine = locks(me, "r1/new")
    assert done(me, lambda: mine.take(adopt=True)) == {}
    assert world.machine.now == began
    assert lease(world)["holderIdentity"] == "r1/new"


def test_a_long_lease_of_somebody_else_is_not_adopted(world: World) -> None:
    held(world, "r1/n1")
    rewrite(world, leaseDurationSeconds=3600, holderIdentity="node-healthcheck")
    me = world.process("me")
    assert "a" in done(me, lambda: locks(me, "r1/n2").take(adopt=True))
    assert lease(world)["holderIdentity"] == "node-healthcheck"


def test_a_lock_that_vanishes_while_we_watch_is_ours(world: World) -> None:
    held(world, "r1/n1")
    began = world.machine.now
    world.machine.after(3.0, lambda: world.delete(kinds.LEASES, "node-a", WHERE), "delete")
    me = world.process("me")
    assert done(me, locks(me, "r2/n2").take) == {}
    assert lease(world)["holderIdentity"] == "r2/n2"
    assert world.machine.now - began <= 3.0 + LOOK_EVERY_SECONDS


def test_a_lock_that_was_renewed_while_it_was_taken_stays_with_its_holder(world: World) -> None:
    held(world, "r1/n1")
    me = world.process("me")
    me.faults.overtaken(of_leases("PATCH"), lambda: rewrite(world))
    assert "a" in done(me, locks(me, "r2/n2").take)
    assert lease(world)["holderIdentity"] == "r1/n1"


def frozen(world: World, *nodes: str) -> tuple[Actor, run_locks.Locks]:
    """A process that took the locks of these nodes and stands still."""
    me = world.process("me")
    mine = locks(me, "r1/n1", *nodes)
    assert done(me, mine.take) == {}
    me.process.freeze()
    return me, mine


def test_a_thawed_run_is_fenced_before_its_next_write(world: World) -> None:
    me, mine = frozen(world)
    taker = world.process("taker")
    done(taker, locks(taker, "r2/n2").take)
    world.machine.run_for(1200.0)
    me.process.thaw()
    before = renewals(world, me)
    for _try in range(2):
        with pytest.raises(LostLockError, match="r2"):
            done(me, mine.prove)
    world.machine.run_for(60.0)
    assert renewals(world, me) == before
    assert lease(world)["holderIdentity"] == "r2/n2"


def test_a_thawed_run_that_nobody_replaced_goes_on(world: World) -> None:
    me, mine = frozen(world)
    world.machine.run_for(1200.0)
    me.process.thaw()
    done(me, mine.prove)
    assert lease(world)["holderIdentity"] == "r1/n1"


def test_a_deleted_lock_is_lost(world: World) -> None:
    me, mine = frozen(world)
    world.delete(kinds.LEASES, "node-a", WHERE)
    world.machine.run_for(100.0)
    me.process.thaw()
    with pytest.raises(LostLockError, match="deleted"):
        done(me, mine.prove)


def test_one_nodes_lost_lock_keeps_no_other_from_being_written(world: World) -> None:
    me, mine = frozen(world, "a", "b")
    taker = world.process("taker")
    assert done(taker, locks(taker, "r2/n2", "a").take) == {}
    me.process.thaw()

    def label(node: str) -> None:
        def decide(raw: Raw | None) -> Change | None:
            return Change("patch", target, "Label it", {"metadata": {"labels": {"mine": "yes"}}}) if raw else None

        target = Ref("Node", node, api_version="v1")
        reconcile(me.ctx(), target, decide, prove_lock=partial(mine.prove, [node]))

    with pytest.raises(LostLockError, match="r2"):
        done(me, lambda: label("a"))
    done(me, lambda: label("b"))
    world.machine.run_for(60.0)
    done(me, lambda: label("b"))
    assert [world.get(kinds.NODES, node)["metadata"]["labels"].get("mine") for node in "ab"] == [None, "yes"]
    assert set(mine.lost()) == {"a"}
    done(me, lambda: mine.leave(drop=["a", "b"]))
    assert (leases(world), lease(world)["holderIdentity"]) == ({"node-a"}, "r2/n2")


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
def test_a_lost_answer_is_looked_up_and_not_an_error(world: World, method: str) -> None:
    me = world.process("me")
    me.faults.when(of_leases(method), Fault("lost"))
    mine = locks(me, "r1/n1")
    assert done(me, mine.take) == {}
    assert lease(world)["holderIdentity"] == "r1/n1"
    world.machine.run_for(60.0)
    done(me, mine.prove)
    done(me, lambda: mine.leave(drop=["a"]))
    done(me, mine.leave)
    assert leases(world) == set()
    assert me.faults.met


@pytest.mark.usefixtures("unkept")
def test_freshness_counts_from_when_the_renewal_was_sent(world: World) -> None:
    me = world.process("me")
    me.faults.when(of_leases("POST"), Fault("frozen sent", 40.0))
    mine = locks(me, "r1/n1")
    done(me, mine.take)
    before = renewals(world, me)
    done(me, mine.prove)
    assert renewals(world, me) == before + 1, "the answer was young, but what it answered was not"


@pytest.mark.usefixtures("unkept")
def test_a_machine_that_slept_has_to_renew_although_its_clock_stood_still(world: World) -> None:
    me = world.process("me")
    mine = locks(me, "r1/n1")
    done(me, mine.take)
    before = renewals(world, me)
    done(me, mine.prove)
    assert renewals(world, me) == before
    me.process.skew += 3600.0
    done(me, mine.prove)
    assert renewals(world, me) == before + 1


@pytest.mark.usefixtures("unkept")
def test_a_lock_that_somebody_else_holds_by_now_is_not_deleted(world: World) -> None:
    me, mine = frozen(world)
    taker = world.process("taker")
    done(taker, locks(taker, "r2/n2").take)
    me.process.thaw()
    done(me, lambda: mine.leave(drop=["a"]))
    assert lease(world)["holderIdentity"] == "r2/n2"


@pytest.mark.usefixtures("unkept")
def test_a_lock_that_is_taken_over_while_it_is_deleted_stays(world: World) -> None:
    me = world.process("me")
    mine = locks(me, "r1/n1")
    done(me, mine.take)
    me.faults.overtaken(of_leases("DELETE"), lambda: rewrite(world, holderIdentity="r2/n2"))
    done(me, lambda: mine.leave(drop=["a"]))
    assert lease(world)["holderIdentity"] == "r2/n2"


def written(world: World, node: str = "a") -> list[float]:
    """When the lease of a node was written from now on."""
    moments: list[float] = []

    def note(event: Event) -> None:
        if event.resource == kinds.LEASES.resource and event.raw["metadata"]["name"] == f"node-{node}":
            moments.append(world.machine.now)

    world.on_event.append(note)
    return moments


def test_locks_that_were_taken_are_renewed_while_another_one_is_waited_for(world: World) -> None:
    old, new, rival = world.process("old"), world.process("new"), world.process("rival")
    done(old, locks(old, "r1/n1", "b").take)
    world.machine.after(40.0, old.process.kill, "kill")
    moments, began = written(world), world.machine.now
    mine = locks(new, "r1/n2", "a", "b")
    taking = new.spawn(lambda: mine.take(patient=True))
    world.machine.run_for(20.0)
    assert taking.alive, "it waits for b"
    assert "a" in done(rival, locks(rival, "r2/n3").take)
    world.machine.run_until(lambda: not taking.alive)
    assert taking.value() == {}
    assert world.machine.now - began > 40.0
    ages = [after - before for before, after in zip(moments, [*moments[1:], world.machine.now], strict=True)]
    assert max(ages) <= RENEW_EVERY_SECONDS + LOOK_EVERY_SECONDS
    assert lease(world)["holderIdentity"] == "r1/n2"


def test_a_read_that_fails_after_a_conflict_does_not_end_the_renewing(world: World) -> None:
    me, rival = world.process("me"), world.process("rival")
    mine = locks(me, "r1/n1")
    done(me, mine.take)
    me.faults.when(of_leases("PATCH"), Fault("conflict"))
    me.faults.when(of_leases("GET"), Fault("error"))
    moments = written(world)
    world.machine.run_for(RENEW_EVERY_SECONDS + LOOK_EVERY_SECONDS)
    assert [fault.what for _ordinal, _request, fault in me.faults.met] == ["conflict", "error"]
    assert moments == []
    assert "a" in done(rival, locks(rival, "r2/n2").take)
    world.machine.run_for(60.0)
    assert len(moments) >= 60.0 / RENEW_EVERY_SECONDS
    done(me, mine.prove)


@pytest.mark.parametrize("after", [0.0, RENEW_EVERY_SECONDS + 0.5], ids=["at rest", "while they are renewed"])
def test_the_end_of_a_call_is_bounded_for_all_its_locks_together(world: World, after: float) -> None:
    me = world.process("me")
    mine = locks(me, "r1/n1", "a", "b", "c", "d")
    assert done(me, mine.take) == {}
    me.faults.when(of_leases("PATCH"), Fault("hang"), times=1000)
    world.machine.run_for(after)
    began = world.machine.now
    done(me, mine.leave)
    assert world.machine.now - began <= LEAVE_WITHIN_SECONDS + 1.0
    assert me.faults.met


def test_the_end_of_a_call_is_bounded_where_the_servers_fence_hangs_too(world: World) -> None:
    """Its map, the locks that go and those that stay: one deadline holds for all of them together."""
    fence = {"name": names.FENCE_MAP, "namespace": names.NAMESPACE}
    world.apply({"apiVersion": names.FENCE_API, "kind": "NodeFence", "metadata": fence})
    me = world.process("me")
    mine = locks(me, "r1/n1", "a", "b", "c", "d")
    assert done(me, mine.take) == {}
    me.faults.when(lambda request: request.resource == kinds.NODE_FENCES.resource, Fault("hang"), times=1000)
    began = world.machine.now
    done(me, lambda: mine.leave(drop=["a", "b"]))
    assert world.machine.now - began <= LEAVE_WITHIN_SECONDS
    assert leases(world) == {"node-c", "node-d"}, "what hangs takes the others no time"
    assert lease(world, "c")["leaseDurationSeconds"] == IDLE
    assert any("the fence in the server keeps entries of a, b: no answer" in event.message for event in me.told)
    me.faults.when(of_leases("PATCH"), Fault("hang"), times=1000)
    began = world.machine.now
    done(me, lambda: mine.leave(drop=["c"]))
    assert world.machine.now - began <= LEAVE_WITHIN_SECONDS


def test_the_locks_of_several_runs_are_taken_together_and_left_within_one_deadline(world: World) -> None:
    me = world.process("me")
    held(world, "r9/n", "d")
    recorded = {
        node: Record(f"r{number}", "n", "me", "", "2026-01-01T00:00:00Z", "cordoned", "", f"{WHERE}/node-{node}", {})
        for number, node in enumerate("abcd")
    }
    mine = run_locks.Locks(me.ctx())
    began = world.machine.now
    assert list(done(me, lambda: mine.take_recorded(recorded))) == []
    assert world.machine.now - began <= IDLE
    assert [lease(world, node)["holderIdentity"] for node in "abcd"] == ["r0/n", "r1/n", "r2/n", "r3/n"]
    me.faults.when(lambda request: request.resource == kinds.LEASES.resource, Fault("hang"), times=1000)
    began = world.machine.now
    done(me, lambda: mine.leave(drop=["a"]))
    assert world.machine.now - began <= LEAVE_WITHIN_SECONDS + 1.0
