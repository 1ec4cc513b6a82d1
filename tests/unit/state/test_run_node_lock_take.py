# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a lock is taken at once, when after a watch, and when not; and for how long it proves something."""

from __future__ import annotations

import datetime
import functools
import re
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, run_context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    run_heartbeats,
    run_locks,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_node_lock import (
    HELD_REMEDY,
    LostLockError,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
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
    with World([manifests.namespace(names.NAMESPACE), manifests.namespace(WHERE)], settle=False) as made:
        yield made


@pytest.fixture
def unkept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that renews gets no turn for an hour."""
    monkeypatch.setattr(run_locks, "RENEW_EVERY_SECONDS", 3600.0)


def requests(world: World, since: int = 0) -> list[str]:
    """Verb and what it is about, of each request."""
    return [f"{sent.request.verb} {sent.request.name or sent.request.namespace}" for sent in world.log[since:]]


@pytest.mark.parametrize(
    ("me", "seconds", "how", "after"),
    [
        pytest.param("r1/n1", 15, {}, 0, id="a killed call of the same start"),
        pytest.param("r1/n1", 15, {"borrowed": True}, 15, id="an identity from the record: a call may be at work"),
        pytest.param("r1/n1", 16, {"borrowed": True}, 0, id="an identity from the record, between two calls"),
        pytest.param("r1/n2", 15, {}, 15, id="another start"),
        pytest.param("r1/n2", 60, {}, 60, id="another start, between two calls"),
        pytest.param("r1/n2", 61, {}, None, id="another start, during tasks"),
        pytest.param("r1/n2", 60, {"adopt": True}, 60, id="adopted between two calls: somebody may still come"),
        pytest.param("r1/n2", 61, {"adopt": True}, 0, id="adopted during tasks"),
        pytest.param("r2/n1", 61, {"adopt": True}, None, id="another run's tasks are not adopted"),
        pytest.param("r2/n1", None, {}, 0, id="a lease without a duration has run out"),
    ],
)
def test_when_a_silent_lock_is_taken(
    world: World, me: str, seconds: int | None, how: dict[str, bool], after: float | None
) -> None:
    held(world, "r1/n1")
    rewrite(world, leaseDurationSeconds=seconds)
    actor, began = world.process("me"), world.machine.now
    refused = done(actor, lambda: locks(actor, me).take(**how))
    assert set(refused) == (set() if after is not None else {"a"})
    assert world.machine.now - began == pytest.approx(after or 0)
    assert lease(world)["holderIdentity"] == (me if after is not None else "r1/n1")


@pytest.mark.parametrize(("patient", "after"), [(False, 5.0), (True, 60.0)])
def test_a_living_lock_is_refused_at_its_first_renewal_or_after_a_minute(
    world: World, patient: bool, after: float
) -> None:
    tina, me = world.process("tina"), world.process("me")
    assert done(tina, locks(tina, "r1/n1").take) == {}
    world.machine.run_for(0.5)
    began = world.machine.now
    refused = done(me, lambda: locks(me, "r1/n2").take(patient=patient))
    assert refused["a"].startswith("Node a is held by run r1 of tina@sim since 2026-")
    assert refused["a"].endswith(f"(Lease {WHERE}/node-a). {HELD_REMEDY}")
    assert world.machine.now - began == after
    (event,) = me.told
    assert (event.node, event.message) == ("a", "lock held by r1; watching whether it is alive")


def test_a_lock_whose_holder_gave_it_up_is_free(world: World) -> None:
    held(world, "r1/n1")
    rewrite(world, holderIdentity=None, leaseDurationSeconds=3600)
    me, began = world.process("me"), world.machine.now
    assert done(me, locks(me, "r2/n2").take) == {}
    assert world.machine.now == began


@pytest.mark.parametrize(
    ("who", "ago", "taken"),
    [
        pytest.param("node-healthcheck", 3700.0, True, id="an operator's, over by its own times"),
        pytest.param("node-healthcheck", 3630.0, False, id="an operator's, over just now by whatever clock"),
        pytest.param("node-healthcheck", 60.0, False, id="an operator's"),
        pytest.param("r2/n1", 3700.0, False, id="a run's: tasks may take longer than planned"),
    ],
)
def test_an_operators_lease_is_over_when_it_says_so(world: World, who: str, ago: float, taken: bool) -> None:
    world.machine.run_for(4000.0)
    since = datetime.datetime.fromisoformat(world.process("me").clock.server()) - datetime.timedelta(seconds=ago)
    spec = {
        "holderIdentity": who,
        "leaseDurationSeconds": 3600,
        "renewTime": since.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    meta: dict[str, t.Any] = {"name": "node-a", "namespace": WHERE}
    if "/" in who:
        meta["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    world.apply({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})
    me = world.process("me")
    refused = done(me, locks(me, "r1/n1").take)
    assert refused == ({} if taken else refused)
    assert lease(world)["holderIdentity"] == ("r1/n1" if taken else who)
    if not taken:
        by, again = ("run r2", "maintain_run=r2") if "/" in who else (who, "")
        assert refused["a"].startswith(f"Node a is held by {by} (Lease {WHERE}/node-a)")
        assert again in refused["a"]
        assert ("recover" in refused["a"]) == bool(again), "no run of ours to be resumed"


def test_what_a_taker_writes_into_a_lease(world: World) -> None:
    tina, me = world.process("tina"), world.process("me")
    mine = locks(tina, "r1/n1")
    done(tina, mine.take)
    first = lease(world)
    assert (first["holderIdentity"], first["leaseDurationSeconds"]) == ("r1/n1", 15)
    assert first["acquireTime"] == first["renewTime"]
    assert "leaseTransitions" not in first
    world.machine.run_for(1.0)
    done(tina, locks(tina, "r1/n1").take)
    again = lease(world)
    assert again["acquireTime"] == first["acquireTime"] < again["renewTime"], "it never was another's"
    for count in (1, 2):
        world.machine.kill(world.process("tina").process)
        world.machine.kill(me.process)
        me = world.process("me")
        done(me, locks(me, f"r2/{count}").take)
        now = lease(world)
        assert now["leaseTransitions"] == count
        assert now["acquireTime"] == now["renewTime"]
    meta = world.get(kinds.LEASES, "node-a", WHERE)["metadata"]
    assert meta["annotations"] == {names.LOCK_DETAILS: "me@sim"}
    assert meta["labels"] == {names.MANAGED_BY_LABEL: names.MANAGED_BY}


def test_a_lease_is_renewed_every_five_seconds(world: World) -> None:
    me = world.process("me")
    done(me, locks(me, "r1/n1").take)
    since = len(world.log)
    world.machine.run_for(60.5)
    assert requests(world, since) == ["patch node-a"] * 12


def test_the_locks_of_one_namespace_are_listed_together(world: World) -> None:
    me = world.process("me")
    world.apply(manifests.namespace("other"))
    places = {"a": "other/node-a", "b": f"{WHERE}/node-b", "c": "other/node-c"}
    assert done(me, run_locks.Locks(me.ctx(), Run("r1", "n1"), places).take) == {}
    creations = ["create node-a", "create node-b", "create node-c"]
    assert requests(world) == [f"list {WHERE}", "list other", *creations, f"get {names.FENCE_MAP}"]


def test_a_lock_that_may_not_be_written_is_refused_alone(world: World) -> None:
    me = world.process("me")
    me.faults.when(
        lambda request: of_leases("POST")(request) and (request.body or {})["metadata"]["name"] == "node-a",
        Fault("forbidden"),
        times=99,
    )
    refused = done(me, locks(me, "r1/n1", "a", "b").take)
    assert set(refused) == {"a"}
    assert refused["a"].startswith("Node a could not be locked: ")
    assert leases(world) == {"node-b"}


def test_who_cannot_go_on_watching_leaves_what_it_has_taken(world: World) -> None:
    held(world, "r9/n9")
    me = world.process("me")
    world.machine.after(3.5, lambda: world.server.denied.add(("list", "leases.coordination.k8s.io")), "deny")
    with pytest.raises(errors.Forbidden):
        done(me, locks(me, "r1/n1", "a", "b").take)
    assert lease(world, "b")["leaseDurationSeconds"] == 60
    since = len(world.log)
    world.machine.run_for(60.0)
    assert requests(world, since) == [], "nobody renews them any more"


def test_only_the_locks_of_the_nodes_in_question_are_proven_and_none_that_was_refused(world: World) -> None:
    held(world, "r9/n9", "c")
    rewrite(world, "c", leaseDurationSeconds=3600)
    me = world.process("me")
    mine = locks(me, "r1/n1", "a", "b", "c")
    assert set(done(me, mine.take)) == {"c"}
    rewrite(world, "a", holderIdentity="r2/n2")
    world.machine.run_for(6.0)
    assert set(mine.lost()) == {"a"}
    free: tuple[list[str], ...] = (["b"], ["c"], [])
    for nodes in free:
        done(me, functools.partial(mine.prove, nodes))
    for asked in (["a"], ["b", "a"], None):
        with pytest.raises(LostLockError, match="Node a was taken over: Node a is held by run r2") as lost:
            done(me, functools.partial(mine.prove, asked))
        assert "the node's record holds it all" in lost.value.reason.remedy


@pytest.mark.usefixtures("unkept")
@pytest.mark.parametrize(("age", "renewed"), [(14.0, 0), (14.5, 1)])
def test_a_lock_proves_something_until_a_second_before_its_end(world: World, age: float, renewed: int) -> None:
    me = world.process("me")
    mine = locks(me, "r1/n1")
    done(me, mine.take)
    world.machine.run_for(age)
    since = len(world.log)
    done(me, mine.prove)
    assert requests(world, since) == ["patch node-a"] * renewed


@pytest.mark.usefixtures("unkept")
def test_a_lock_that_cannot_be_renewed_is_tried_each_second_for_a_minute(world: World) -> None:
    me = world.process("me")
    mine = locks(me, "r1/n1")
    done(me, mine.take)
    world.machine.run_for(20.0)
    me.faults.when(of_leases("PATCH"), Fault("throttled"), times=999)
    since, began = len(world.log), world.machine.now
    with pytest.raises(CallAborted, match="could not be renewed") as stopped:
        done(me, mine.prove)
    assert stopped.value.reason.code == "lock_unsure"
    assert world.machine.now - began == 61.0
    assert requests(world, since) == ["patch node-a"] * 61


@pytest.mark.usefixtures("unkept")
@pytest.mark.parametrize(("conflicts", "rounds"), [(2, 1), (3, 2)])
def test_one_renewal_is_three_tries_among_others_who_write(world: World, conflicts: int, rounds: int) -> None:
    me = world.process("me")
    mine = locks(me, "r1/n1")
    done(me, mine.take)
    world.machine.run_for(20.0)
    me.faults.when(of_leases("PATCH"), Fault("conflict"), times=conflicts)
    began = world.machine.now
    done(me, mine.prove)
    assert 1 + int(world.machine.now - began) == rounds, "a second between two renewals"


def test_a_lease_that_lost_its_holder_is_lost_and_nobody_is_named(world: World) -> None:
    me = world.process("me")
    mine = locks(me, "r1/n1")
    done(me, mine.take)
    rewrite(world, holderIdentity=None)
    world.machine.run_for(6.0)
    assert mine.lost()["a"].startswith("Node a is held by run nobody of me@sim since ")


def test_the_others_are_entered_into_the_servers_fence_where_one_lock_is_lost_meanwhile(world: World) -> None:
    fence = {"name": names.FENCE_MAP, "namespace": names.NAMESPACE}
    world.apply({"apiVersion": names.FENCE_API, "kind": "NodeFence", "metadata": fence})
    me, taker = world.process("me"), world.process("taker")
    me.faults.when(lambda r: r.method == "PATCH" and r.name == names.FENCE_MAP, Fault("frozen", 300.0))
    mine = locks(me, "r1/n1", "a", "b")
    taking = me.spawn(mine.take)
    world.machine.run_for(1.0)
    assert done(taker, locks(taker, "r2/n2").take) == {}
    world.machine.run_until(lambda: not taking.alive)
    assert world.get(kinds.NODE_FENCES, names.FENCE_MAP, names.NAMESPACE)["held"] == {
        "node-a": "r2/n2",
        "node-b": "r1/n1",
    }


def test_the_lock_of_another_object_names_that_and_is_no_business_of_the_servers_fence(world: World) -> None:
    fence = {"name": names.FENCE_MAP, "namespace": names.NAMESPACE}
    world.apply({"apiVersion": names.FENCE_API, "kind": "NodeFence", "metadata": fence})
    held(world, "r1/n1")
    me, place = world.process("me"), {"shop/web": f"{WHERE}/node-a"}
    mine = run_locks.Locks(me.ctx(), Run("r2", "n2"), place, "Deployment")
    world.log.clear()
    assert done(me, mine.take) == {}
    (event,) = me.told
    assert (event.node, event.namespace, event.name) == ("", "shop", "web")
    rewrite(world, holderIdentity="r3/n3")
    world.machine.run_for(6.0)
    said = "Deployment shop/web was taken over: Deployment shop/web is held by run r3"
    with pytest.raises(LostLockError, match=said) as lost:
        done(me, mine.prove)
    assert "the Deployment's stored state holds it all" in lost.value.reason.remedy
    done(me, lambda: mine.leave(drop=["shop/web"]))
    assert not [sent for sent in world.log if sent.request.name == names.FENCE_MAP]


RECORD = Record("r1", "n1", "tina", "", "2026-01-01T00:00:00Z", "cordoned", "", f"{WHERE}/node-a", {})


@pytest.mark.parametrize(("run", "after"), [("", 15), ("r1", 15), ("/n1", 0), ("r1/n1", 0)])
def test_a_call_without_a_nonce_borrows_that_of_the_record(world: World, run: str, after: float) -> None:
    held(world, "r1/n1")
    me, began = world.process("me"), world.machine.now
    assert done(me, lambda: run_locks.Locks(me.ctx(run)).take_recorded({"a": RECORD})) == {}
    assert world.machine.now - began == pytest.approx(after)


def test_without_records_nothing_is_asked(world: World) -> None:
    me = world.process("me")
    assert done(me, lambda: run_locks.Locks(me.ctx("r1/n1")).take_recorded({})) == {}
    assert world.log == []


@pytest.mark.parametrize(
    ("wanted", "there", "found", "asked"),
    [("mine", True, "mine", 0), (None, True, names.MEDIK8S_NAMESPACE, 1), ("", False, names.NAMESPACE, 1)],
)
def test_locks_are_where_medik8s_keeps_its_own(
    world: World, wanted: str | None, there: bool, found: str, asked: int
) -> None:
    if not there:
        world.delete(kinds.NAMESPACES, WHERE)
    assert world.process("me").run(lambda ctx: run_locks.lease_namespace(ctx, wanted)) == found
    assert len(world.log) == asked


@pytest.mark.parametrize(("age", "asked"), [(0.0, 0), (2 * run_context.FRESH_SECONDS, 1)])
@pytest.mark.parametrize("where", [names.MEDIK8S_NAMESPACE, names.NAMESPACE])
def test_namespaces_that_a_step_has_just_listed_tell_where_locks_are(
    world: World, where: str, age: float, asked: int
) -> None:
    there = [raw for raw in [manifests.namespace(WHERE), manifests.namespace("shop")] if where == WHERE]
    if not there:
        world.delete(kinds.NAMESPACES, WHERE)

    def found(ctx: run_context.Context) -> str:
        ctx.recent["namespaces"] = run_context.RecentList(there, "1", ctx.clock.now())
        ctx.clock.sleep(age)
        return run_locks.lease_namespace(ctx, None)

    assert world.process("me").run(found) == where
    assert len(world.log) == asked


def test_who_may_not_see_whether_medik8s_has_its_namespace_locks_nothing(world: World) -> None:
    """Else two accounts, of which one may, would lock a node in two places."""
    world.server.denied.add(("get", "namespaces"))
    with pytest.raises(errors.Forbidden):
        world.process("me").run(lambda ctx: run_locks.lease_namespace(ctx, None))


def test_a_thousand_writes_of_one_millisecond_are_told_apart() -> None:
    moments = {run_heartbeats.moment("2026-01-01T00:00:00.123Z", f"{number:08x}") for number in range(1000)}
    assert len(moments) == 1000
    assert all(re.fullmatch(r"2026-01-01T00:00:00\.123\d{3}Z", each) for each in moments)
    assert len(run_heartbeats.moment("2026-01-01T00:00:00.123Z", "000003e8")) == len("2026-01-01T00:00:00.123456Z")
