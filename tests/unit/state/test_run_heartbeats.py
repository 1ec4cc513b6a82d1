# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One heartbeat for all nodes of a start: what it saves, who may end it, and what its owner does then."""

from __future__ import annotations

import collections
import functools
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Raw
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    lock_leases,
    run_heartbeats,
    run_lease,
    run_locks,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_locks import IDLE, Locks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_node_lock import (
    HEARTBEAT_LEASE_SECONDS,
    LOOK_EVERY_SECONDS,
    LostLockError,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.locked import (
    done,
    held,
    lease,
    leases,
    locks,
    of_leases,
    rewrite,
)

NODES = "abcdefghij"
BEAT = names.heartbeat_name("r1/n1")


@pytest.fixture
def world() -> t.Iterator[World]:
    with World([manifests.namespace(names.NAMESPACE)], settle=False) as made:
        yield made


@pytest.fixture
def unkept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that renews gets no turn for an hour."""
    monkeypatch.setattr(run_locks, "RENEW_EVERY_SECONDS", 3600.0)


def writes(world: World, since: int = 0) -> dict[str, int]:
    """How often each lease was written."""
    found = [sent.request for sent in world.log[since:] if sent.request.writes]
    its = [request for request in found if of_leases(request.method)(request)]
    named = [request.name or (request.body or {})["metadata"]["name"] for request in its]
    return dict(collections.Counter(named))


def beat(world: World) -> Raw | None:
    return world.find(kinds.LEASES, BEAT, names.NAMESPACE)


def taken(actor: Actor, run: str, *nodes: str) -> Locks:
    mine = locks(actor, run, *nodes)
    assert done(actor, mine.take) == {}
    return mine


def frozen(world: World, *nodes: str) -> tuple[Actor, Locks]:
    """A process that holds these nodes and stands still."""
    me = world.process("me")
    mine = taken(me, "r1/n1", *nodes)
    me.process.freeze()
    return me, mine


def test_calls_of_one_start_write_each_lease_when_they_take_it_first_and_when_they_give_it_back(world: World) -> None:
    me = world.process("me")
    for _call in range(5):
        mine = taken(me, "r1/n1", *NODES)
        world.machine.run_for(4.0)
        done(me, mine.leave)
    last = taken(me, "r1/n1", *NODES)
    done(me, lambda: last.leave(drop=NODES))
    assert writes(world) == {**{f"node-{node}": 2 for node in NODES}, BEAT: 12}
    assert leases(world) == set()


@pytest.mark.parametrize("nodes", ["a", NODES])
def test_what_is_renewed_does_not_grow_with_the_nodes(world: World, nodes: str) -> None:
    me = world.process("me")
    taken(me, "r1/n1", *nodes)
    since = len(world.log)
    world.machine.run_for(60.5)
    assert writes(world, since) == {BEAT: 12}
    assert len(world.log) - since == 12 + 4, "and each third time one list"


@pytest.mark.parametrize("tasks", [False, True])
def test_a_whole_wave_writes_each_nodes_lease_twice_and_twice_more_around_tasks(tasks: bool) -> None:
    """At its ends; while tasks run it holds by itself."""
    objects = [manifests.node("z"), *map(manifests.node, NODES), manifests.deployment("web", 6)]

    def work(actor: Actor, name: str) -> None:
        actor.clock.sleep(3.0)

    with World(objects) as world:
        me = world.process("me")
        task = me.spawn(lambda: maintain(me, Input(tuple(NODES), serial=10, work=work if tasks else None)))
        world.machine.run_until(lambda: not task.alive)
        assert task.value().ok
        assert leases(world) == set()
        found = writes(world)
        assert {found.pop(f"node-{node}") for node in NODES} == {4 if tasks else 2}
        (beats,) = (count for name, count in found.items() if name.startswith(names.HEARTBEAT_PREFIX))
        assert beats <= 40, "for two writes in each of the calls, and one every five seconds"


def test_what_the_leases_say(world: World) -> None:
    me = world.process("me")
    mine = taken(me, "r1/n1", "a")
    found = t.cast("Raw", beat(world))
    assert (found["spec"]["holderIdentity"], found["spec"]["leaseDurationSeconds"]) == ("r1/n1", 15)
    assert found["metadata"]["labels"] == {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    assert "n1" not in BEAT, "the nonce is nobody's business"
    spec = lease(world)
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("r1/n1", HEARTBEAT_LEASE_SECONDS)
    node = world.get(kinds.LEASES, "node-a", names.NAMESPACE)
    assert node["metadata"]["annotations"][names.HEARTBEAT] == f"{BEAT}/{found['metadata']['uid']}"
    done(me, mine.leave)
    assert t.cast("Raw", beat(world))["spec"]["leaseDurationSeconds"] == IDLE


@pytest.mark.parametrize(("left", "after"), [(False, 15), (True, IDLE)], ids=["in a call", "between two calls"])
def test_the_nodes_of_a_silent_start_are_taken_after_its_heartbeat_has_gone(
    world: World, left: bool, after: float
) -> None:
    old, new = world.process("old"), world.process("new")
    mine = taken(old, "r1/n1", "a", "b")
    if left:
        done(old, mine.leave)
    world.machine.kill(old.process)
    began, since = world.machine.now, len(world.log)
    taken(new, "r2/n2", "a", "b")
    assert world.machine.now - began == pytest.approx(after)
    assert lease(world)["holderIdentity"] == lease(world, "b")["holderIdentity"] == "r2/n2"
    sent = [(each.request.method, each.request.name) for each in world.log[since:] if each.request.writes]
    assert ("DELETE", BEAT) in sent
    assert sent.index(("DELETE", BEAT)) < min(sent.index(("PATCH", f"node-{node}")) for node in "ab")
    assert sent.count(("DELETE", BEAT)) == 1


@pytest.mark.parametrize("run", ["r2/n2", "r1/n2", "r1"])
def test_a_start_whose_heart_beats_keeps_all_its_nodes(world: World, run: str) -> None:
    me, other = world.process("me"), world.process("other")
    taken(me, "r1/n1", "a", "b")
    world.machine.run_for(300.0)
    began = world.machine.now
    refused = done(other, locks(other, run, "b").take)
    assert refused["b"].startswith("Node b is held by run r1 of me@sim since ")
    assert world.machine.now - began <= run_locks.RENEW_EVERY_SECONDS + LOOK_EVERY_SECONDS


def test_a_heartbeat_that_is_renewed_at_the_last_moment_ends_the_taking(world: World) -> None:
    me, mine = frozen(world)
    taker = world.process("taker")

    def renewed() -> None:
        me.process.thaw()
        world.patch(kinds.LEASES, BEAT, {"spec": {"renewTime": "2026-02-02T00:00:00.000000Z"}}, names.NAMESPACE)

    taker.faults.overtaken(lambda request: request.method == "DELETE" and request.name == BEAT, renewed)
    assert set(done(taker, locks(taker, "r2/n2").take)) == {"a"}
    done(me, mine.prove)
    assert lease(world)["holderIdentity"] == "r1/n1"


def test_a_thawed_start_loses_what_was_taken_and_keeps_the_others(world: World) -> None:
    me, mine = frozen(world, "a", "b", "c")
    taker = world.process("taker")
    taken(taker, "r2/n2", "a")
    me.process.thaw()
    with pytest.raises(LostLockError, match="r2"):
        done(me, lambda: mine.prove(["a"]))
    done(me, lambda: mine.prove(["b"]))
    world.machine.run_for(60.0)
    since = len(world.log)
    done(me, lambda: mine.prove(["b", "c"]))
    assert (set(mine.lost()), len(world.log) - since) == ({"a"}, 0)
    other = world.process("other")
    assert set(done(other, locks(other, "r3/n3", "b", "c").take)) == {"b", "c"}
    done(me, lambda: mine.leave(drop=["b", "c"]))
    assert leases(world) == {"node-a", *map(names.heartbeat_name, ("r2/n2", "r3/n3"))}


@pytest.mark.usefixtures("unkept")
def test_a_start_that_thaws_between_the_end_of_its_heartbeat_and_the_taking_wins_or_loses_by_the_lease(
    world: World,
) -> None:
    me, mine = frozen(world)
    taker = world.process("taker")
    taker.faults.when(lambda request: request.method == "PATCH" and request.name == "node-a", Fault("frozen", 9.0))
    taking = taker.spawn(locks(taker, "r2/n2").take)
    world.machine.run_until(lambda: bool(taker.faults.met))
    assert beat(world) is None
    me.process.thaw()
    done(me, mine.prove)
    world.machine.run_until(lambda: not taking.alive)
    assert set(taking.value()) == {"a"}
    assert lease(world)["holderIdentity"] == "r1/n1"


def test_a_taker_that_finds_no_heartbeat_gives_its_holder_the_time_to_make_another(world: World) -> None:
    me, taker = world.process("me"), world.process("taker")
    mine = taken(me, "r1/n1")
    world.delete(kinds.LEASES, BEAT, names.NAMESPACE)
    began = world.machine.now
    assert set(done(taker, locks(taker, "r2/n2").take)) == {"a"}
    assert world.machine.now - began <= run_locks.RENEW_EVERY_SECONDS + LOOK_EVERY_SECONDS
    done(me, mine.prove)
    world.machine.kill(me.process)
    world.delete(kinds.LEASES, BEAT, names.NAMESPACE)
    began = world.machine.now
    taken(taker, "r2/n2")
    assert world.machine.now - began == pytest.approx(lock_leases.WORKING)


def test_two_takers_of_a_dead_start_do_not_take_each_other_for_it(world: World) -> None:
    held(world, "r1/n1", "a", "b")
    one, two = world.process("one"), world.process("two")
    first = one.spawn(locks(one, "r2/n2", "a").take)
    world.machine.run_for(3.0)
    second = two.spawn(locks(two, "r3/n3", "b").take)
    world.machine.run_until(lambda: not (first.alive or second.alive))
    assert (first.value(), second.value()) == ({}, {})


def test_two_calls_of_one_start_share_its_heartbeat(world: World) -> None:
    one, two, rival = world.process("one"), world.process("two"), world.process("rival")
    mine, others = taken(one, "r1/n1", "a"), taken(two, "r1/n1", "b")
    world.machine.run_for(61.0)
    done(one, mine.prove)
    done(two, others.prove)
    done(one, lambda: mine.leave(drop=["a"]))
    assert leases(world) == {"node-b", BEAT}, "what another call needs is left"
    world.machine.run_for(61.0)
    assert set(done(rival, locks(rival, "r2", "b").take)) == {"b"}
    done(two, others.prove)
    assert others.lost() == {}
    done(two, lambda: others.leave(drop=["b"]))
    assert leases(world) == set()


def test_a_heartbeat_that_another_call_deleted_is_made_anew_for_the_nodes_that_need_it(world: World) -> None:
    me = world.process("me")
    mine = taken(me, "r1/n1", "a", "b")
    before = t.cast("Raw", beat(world))["metadata"]["uid"]
    world.delete(kinds.LEASES, BEAT, names.NAMESPACE)
    world.machine.run_for(run_locks.RENEW_EVERY_SECONDS + 1.0)
    now = t.cast("Raw", beat(world))["metadata"]["uid"]
    assert now != before
    for node in "ab":
        found = world.get(kinds.LEASES, f"node-{node}", names.NAMESPACE)
        assert lock_leases.heartbeat_of(found) == (BEAT, now)
    since = len(world.log)
    done(me, mine.prove)
    assert len(world.log) == since


def test_a_lease_that_a_person_deletes_is_missed_after_a_few_renewals(world: World) -> None:
    me = world.process("me")
    mine = taken(me, "r1/n1", "a", "b")
    world.delete(kinds.LEASES, "node-a", names.NAMESPACE)
    world.machine.run_for(run_locks.RENEWALS_PER_LOOK * run_locks.RENEW_EVERY_SECONDS + 1.0)
    assert mine.lost() == {"a": "its lease was deleted"}
    done(me, lambda: mine.prove(["b"]))


def test_a_lease_that_holds_for_tasks_holds_by_itself(world: World) -> None:
    me, other = world.process("me"), world.process("other")
    mine = taken(me, "r1/n1", "a", "b")
    done(me, lambda: mine.leave(900.0))
    assert leases(world) == {"node-a", "node-b"}, "no lease names the heartbeat any more"
    assert lease(world)["leaseDurationSeconds"] == 900
    assert names.HEARTBEAT not in world.get(kinds.LEASES, "node-a", names.NAMESPACE)["metadata"]["annotations"]
    began = world.machine.now
    assert set(done(other, locks(other, "r2/n2").take)) == {"a"}
    assert done(other, lambda: locks(other, "r1/n2").take(adopt=True)) == {}
    taken(me, "r1/n1", "b")
    assert world.machine.now == began
    assert lock_leases.heartbeat_of(world.get(kinds.LEASES, "node-b", names.NAMESPACE))[0] == BEAT


def test_who_vouches_that_tasks_are_over_still_waits_for_a_heartbeat(world: World) -> None:
    held(world, "r1/n1")
    me, began = world.process("me"), world.machine.now
    assert done(me, lambda: locks(me, "r1/n2").take(adopt=True)) == {}
    assert world.machine.now - began == pytest.approx(lock_leases.WORKING)


def test_an_earlier_release_that_takes_a_lease_leaves_an_annotation_that_means_nothing(world: World) -> None:
    me, taker = world.process("me"), world.process("taker")
    mine = taken(me, "r1/n1", "a", "b")
    rewrite(world, holderIdentity="r9/n9", leaseDurationSeconds=15)
    began = world.machine.now
    taken(taker, "r2/n2")
    assert world.machine.now - began == pytest.approx(lock_leases.WORKING)
    done(me, lambda: mine.prove(["b"]))


def test_where_a_policy_forbids_heartbeats_leases_are_renewed_one_by_one(world: World) -> None:
    me = world.process("me")

    def forbidden(request: Request) -> bool:
        return bool(request.method == "POST" and (request.body or {})["metadata"]["name"] == BEAT)

    me.faults.when(forbidden, Fault("forbidden"), times=9)
    mine = taken(me, "r1/n1", "a", "b")
    since = len(world.log)
    world.machine.run_for(run_locks.RENEW_EVERY_SECONDS + 0.5)
    assert writes(world, since) == {"node-a": 1, "node-b": 1}
    assert any("their heartbeat was refused" in event.message for event in me.told)
    done(me, lambda: mine.leave(drop=["a", "b"]))
    assert leases(world) == set()


def test_a_heartbeat_that_cannot_be_written_locks_none_of_its_nodes(world: World) -> None:
    me = world.process("me")
    me.faults.when(of_leases("POST"), Fault("throttled"), times=999)
    refused = done(me, locks(me, "r1/n1", "a", "b").take)
    assert set(refused) == {"a", "b"}
    assert refused["a"].startswith("Node a could not be locked: ")


@pytest.mark.usefixtures("unkept")
def test_a_heartbeat_that_cannot_be_renewed_proves_nothing_after_a_minute(world: World) -> None:
    me = world.process("me")
    mine = taken(me, "r1/n1", "a", "b")
    world.machine.run_for(20.0)
    me.faults.when(of_leases("PATCH"), Fault("throttled"), times=999)
    with pytest.raises(CallAborted, match="could not be renewed"):
        done(me, mine.prove)


@pytest.mark.usefixtures("unkept")
def test_freshness_counts_from_when_the_heartbeat_was_sent(world: World) -> None:
    me = world.process("me")
    me.faults.when(of_leases("POST"), Fault("frozen sent", 40.0))
    mine = taken(me, "r1/n1")
    since = len(world.log)
    done(me, mine.prove)
    assert writes(world, since) == {BEAT: 1}, "the answer was young, but what it answered was not"


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
def test_a_lost_answer_is_looked_up(world: World, method: str) -> None:
    me = world.process("me")
    me.faults.when(of_leases(method), Fault("lost"), times=2)
    mine = taken(me, "r1/n1")
    world.machine.run_for(61.0)
    done(me, mine.prove)
    done(me, lambda: mine.leave(drop=["a"]))
    assert leases(world) == set()
    assert me.faults.met


def test_the_lock_of_a_start_that_lives_is_not_left_over(world: World) -> None:
    me, other = world.process("me"), world.process("other")
    taken(me, "r1/n1")
    assert other.run(lambda ctx: run_lease.left_locks(ctx, Run("r1", "n2"), ["a"], names.NAMESPACE)) == []
    assert leases(world) == {"node-a", BEAT}


def test_a_leftover_lock_is_not_deleted_if_its_start_wakes_up(world: World) -> None:
    me, other = world.process("me"), world.process("other")
    taken(me, "r1/n1")
    me.faults.when(of_leases("PATCH"), Fault("frozen", 25.0))
    (seen,) = other.run(lambda ctx: run_lease.left_locks(ctx, Run("r1", "n2"), ["a"], names.NAMESPACE))
    world.machine.run_until(lambda: not me.process.frozen, within=60.0)
    world.machine.run_for(run_locks.RENEW_EVERY_SECONDS + 1.0)
    other.run(lambda ctx: run_lease.release(ctx, seen, set()))
    assert leases(world) == {"node-a", BEAT}


def test_two_leftover_locks_of_one_start_go_with_its_heartbeat(world: World) -> None:
    held(world, "r1/n1", "a", "b")
    other = world.process("other")
    found = other.run(lambda ctx: run_lease.left_locks(ctx, Run("r1", "n2"), ["a", "b"], names.NAMESPACE))
    ended: set[str] = set()
    for seen in found:
        other.run(functools.partial(run_lease.release, seen=seen, ended=ended))
    assert leases(world) == set()


def test_a_heartbeat_made_anew_while_its_call_ends_goes_with_the_locks_that_are_lost(world: World) -> None:
    me, other = world.process("me"), world.process("other")
    mine = taken(me, "r1/n1")
    me.faults.when(of_leases("PATCH"), Fault("frozen", 120.0))
    world.machine.run_for(run_locks.RENEW_EVERY_SECONDS + 1.0)
    theirs = taken(other, "r1/n2", "a")
    done(other, lambda: theirs.leave(drop=["a"]))
    assert leases(world) == set()
    world.machine.run_until(lambda: not me.process.frozen, within=300.0)
    done(me, mine.leave)
    world.settle()
    assert leases(world) == set()


def test_locks_of_a_silent_start_are_told_from_those_of_a_living_one(world: World) -> None:
    held(world, "r1/n1", "a", "b")
    taken(world.process("me"), "r2/n2", "c")
    known = [raw for _place, raw in sorted(world.store.of(kinds.LEASES.resource).items())]
    began = world.machine.now
    found = world.process("other").run(
        lambda ctx: run_lease.expired(ctx, [x for x in known if not lock_leases.is_heartbeat(x)])
    )
    assert {name for _namespace, name in found} == {"node-a", "node-b"}
    assert world.machine.now - began <= lock_leases.WORKING + 2 * LOOK_EVERY_SECONDS


@pytest.mark.parametrize(("run", "left"), [("", {"r9/n9"}), ("r1", {"r2/n1", "r9/n9"})])
def test_heartbeats_that_no_lease_names_are_swept(world: World, run: str, left: set[str]) -> None:
    for holder in ("r1/n1", "r1/n2", "r2/n1"):
        meta = {"name": names.heartbeat_name(holder), "namespace": names.NAMESPACE}
        meta["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}  # type: ignore[assignment]
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
        world.apply({"apiVersion": kinds.LEASES.api_version, "kind": "Lease", "metadata": meta, "spec": spec})
    held(world, "r9/n9", "z")
    me = world.process("me")
    me.run(lambda ctx: run_heartbeats.sweep(ctx, run))
    assert leases(world) == {"node-z", *map(names.heartbeat_name, left)}


@pytest.mark.parametrize(
    ("killed", "beside", "lists", "left"),
    [("", "", 1, set()), ("r1/n0", "", 2, set()), ("", "r1/n1", 2, {"node-b", BEAT})],
    ids=["it was the only one", "a killed start has left another", "another call of the start needs it"],
)
def test_a_heartbeat_goes_without_a_list_where_it_is_the_only_one(
    world: World, killed: str, beside: str, lists: int, left: set[str]
) -> None:
    if killed:
        held(world, killed, "z")
        world.delete(kinds.LEASES, "node-z", names.NAMESPACE)
    if beside:
        taken(world.process("other"), beside, "b")
    me = world.process("me")
    mine = taken(me, "r1/n1", "a")
    done(me, lambda: mine.leave(drop=["a"]))
    asked = [sent.request for sent in world.log if sent.process == "me"]
    assert sum(request.verb == "list" for request in asked if of_leases("GET")(request)) == lists
    assert leases(world) == left


def test_a_heartbeat_that_another_call_has_renewed_since_is_kept(world: World) -> None:
    one, two = world.process("one"), world.process("two")
    mine = taken(one, "r1/n1", "a")
    others = taken(two, "r1/n1", "b")
    done(one, lambda: mine.leave(drop=["a"]))
    assert leases(world) == {"node-b", BEAT}
    done(two, lambda: others.leave(drop=["b"]))
    assert leases(world) == set()
