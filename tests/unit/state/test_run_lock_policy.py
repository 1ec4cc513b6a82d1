# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who is written into the server's fence, and when; what its policy makes of that is shown on the lab."""

from __future__ import annotations

import functools
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Raw, Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_requests import request_for
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.errors import Forbidden, from_answer
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_locks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_lock_policy import (
    LockPolicy,
    by_the_fence,
    forget,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_node_lock import LostLockError
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.locked import done, held, leases, locks, rewrite

MAP = kinds.NODE_FENCES.resource


@pytest.fixture
def bare() -> t.Iterator[World]:
    """Without the fence."""
    with World([manifests.namespace(names.NAMESPACE)]) as made:
        yield made


@pytest.fixture
def world(bare: World) -> World:
    install(bare)
    return bare


def install(world: World) -> None:
    meta = {"name": names.FENCE_MAP, "namespace": names.NAMESPACE}
    world.apply({"apiVersion": names.FENCE_API, "kind": "NodeFence", "metadata": meta})


def map_of(world: World) -> Raw:
    return world.get(kinds.NODE_FENCES, names.FENCE_MAP, names.NAMESPACE)


def entries(world: World) -> dict[str, str]:
    return dict(map_of(world).get("held") or {})


def put(world: World, entered: t.Mapping[str, str | None]) -> None:
    """Somebody writes the map."""
    world.patch(kinds.NODE_FENCES, names.FENCE_MAP, {"held": dict(entered)}, names.NAMESPACE)


def both(actor: Actor, run: str) -> run_locks.Locks:
    """Of nodes `a` and `b`."""
    return locks(actor, run, "a", "b")


def writes_map(request: Request) -> bool:
    return request.method == "PATCH" and request.resource == MAP


def told(actor: Actor) -> list[str]:
    return [event.message for event in actor.told]


def deny(world: World, *verbs: str) -> None:
    world.server.denied |= {(verb, MAP) for verb in verbs}


def test_who_takes_a_lock_is_written_in_and_who_drops_it_is_taken_out(world: World) -> None:
    me = world.process("me")
    mine = both(me, "r1/n1")
    assert done(me, mine.take) == {}
    assert entries(world) == {"node-a": "r1/n1", "node-b": "r1/n1"}
    done(me, lambda: mine.leave(drop=["a"]))
    assert entries(world) == {"node-b": "r1/n1"}
    done(me, mine.leave)
    assert entries(world) == {"node-b": "r1/n1"}, "the next call of the run goes on with it"


def test_without_a_map_nothing_is_written_and_it_is_asked_for_once(bare: World) -> None:
    me = bare.process("me")
    mine = both(me, "r1/n1")
    done(me, mine.take)
    install(bare)
    done(me, lambda: mine.leave(drop=["a", "b"]))
    done(me, mine.leave)
    assert entries(bare) == {}
    asked = [sent.request.verb for sent in bare.log if sent.request.resource == MAP]
    assert asked == ["get"], "a map that came later is nothing to give back to"


def test_the_next_call_of_a_run_only_reads(world: World) -> None:
    me = world.process("me")
    first = both(me, "r1/n1")
    done(me, first.take)
    done(me, first.leave)
    was = map_of(world)
    second = both(me, "r1/n1")
    done(me, second.take)
    done(me, second.leave)
    assert map_of(world) == was


def test_who_takes_a_node_over_stands_in_the_fence_before_it_acts(world: World) -> None:
    held(world, "r1/n1", "a", "b")
    taker = world.process("taker")
    assert done(taker, both(taker, "r2/n2").take) == {}
    assert entries(world) == {"node-a": "r2/n2", "node-b": "r2/n2"}


def test_a_refused_lock_is_not_written_in(world: World) -> None:
    held(world, "r1/n1", "a", "b")
    world.machine.after(5.0, lambda: rewrite(world), "renew")
    other = world.process("other")
    assert set(done(other, both(other, "r2/n2").take)) == {"a"}
    assert entries(world) == {"node-a": "r1/n1", "node-b": "r2/n2"}


@pytest.mark.parametrize("what", ["frozen", "late"])
def test_a_process_that_was_frozen_before_its_entry_does_not_write_over_the_taker(world: World, what: What) -> None:
    """Neither where it is thawed before the fence of its write, nor where the write itself arrives that late."""
    slow, taker = world.process("slow"), world.process("taker")
    slow.faults.when(writes_map, Fault(what, 600.0))
    frozen = both(slow, "r1/n1")
    taking = slow.spawn(frozen.take)
    world.machine.run_for(1.0)
    assert entries(world) == {}
    slow.process.freeze(600.0)
    taken = both(taker, "r2/n2")
    assert done(taker, taken.take) == {}
    done(taker, taken.leave)
    world.machine.run_until(lambda: not taking.alive)
    assert entries(world) == {"node-a": "r2/n2", "node-b": "r2/n2"}
    assert slow.faults.met
    with pytest.raises(LostLockError):
        done(slow, frozen.prove)


def test_entries_of_others_written_meanwhile_stay(world: World) -> None:
    me = world.process("me")
    me.faults.overtaken(writes_map, lambda: put(world, {"node-z": "r9/n9"}))
    mine = both(me, "r1/n1")
    done(me, mine.take)
    assert entries(world) == {"node-a": "r1/n1", "node-b": "r1/n1", "node-z": "r9/n9"}
    done(me, lambda: mine.leave(drop=["a", "b"]))
    done(me, mine.leave)
    assert entries(world) == {"node-z": "r9/n9"}


def test_a_lost_answer_of_the_map_is_looked_up(world: World) -> None:
    me = world.process("me")
    me.faults.when(writes_map, Fault("lost"))
    mine = both(me, "r1/n1")
    done(me, mine.take)
    done(me, mine.leave)
    assert entries(world) == {"node-a": "r1/n1", "node-b": "r1/n1"}
    assert me.faults.met
    assert me.told == []


def test_a_map_that_may_not_be_written_is_told_and_no_failure(world: World) -> None:
    deny(world, "patch")
    me = world.process("me")
    mine = both(me, "r1/n1")
    assert done(me, mine.take) == {}
    done(me, lambda: mine.leave(drop=["a", "b"]))
    done(me, mine.leave)
    assert leases(world) == set()
    assert any("fence in the server could not be written" in text for text in told(me))


def test_a_map_that_may_not_be_read_is_as_good_as_none(world: World) -> None:
    deny(world, "get", "patch")
    me = world.process("me")
    mine = both(me, "r1/n1")
    assert done(me, mine.take) == {}
    done(me, mine.leave)
    assert told(me) == []


def test_who_is_refused_and_holds_the_lock_is_written_in_again(bare: World) -> None:
    me = bare.process("me")
    mine = both(me, "r1/n1")
    done(me, mine.take)
    install(bare)
    done(me, lambda: mine.regain("a"))
    assert entries(bare) == {"node-a": "r1/n1"}
    done(me, lambda: mine.leave(drop=["a"]))
    assert entries(bare) == {}


def test_who_is_refused_and_lost_the_lock_learns_who_has_it_and_writes_nothing(world: World) -> None:
    me = world.process("me")
    mine = both(me, "r1/n1")
    done(me, mine.take)
    # Against the protocol, so that the lease still looks fresh to its first holder.
    rewrite(world, holderIdentity="r2/n2")
    put(world, {"node-a": "r2/n2"})
    with pytest.raises(LostLockError, match="r2"):
        done(me, lambda: mine.regain("a"))
    assert entries(world) == {"node-a": "r2/n2", "node-b": "r1/n1"}
    done(me, lambda: mine.regain("b"))


def test_who_is_refused_and_may_not_write_the_map_hears_that(world: World) -> None:
    me = world.process("me")
    mine = both(me, "r1/n1")
    done(me, mine.take)
    put(world, {"node-a": None})
    deny(world, "patch")
    with pytest.raises(Forbidden):
        done(me, lambda: mine.regain("a"))


def test_what_a_killed_start_left_is_taken_out_with_its_lock_and_nothing_of_others(world: World) -> None:
    put(world, {"node-a": "r1/n1", "node-b": "r2/n1"})
    for left in ("node-a", "node-b", "node-c"):
        world.process("me").run(functools.partial(forget, lease=left, run_id="r1"))
    assert entries(world) == {"node-b": "r2/n1"}


def test_only_the_entry_of_the_lock_in_question_is_taken_out(world: World) -> None:
    put(world, {"node-a": "r1/n1", "node-b": "r1/n1"})
    world.process("me").run(functools.partial(forget, lease="node-a", run_id="r1"))
    assert entries(world) == {"node-b": "r1/n1"}


def test_an_entry_that_cannot_be_taken_out_is_told(world: World) -> None:
    put(world, {"node-a": "r1/n1"})
    deny(world, "patch")
    me = world.process("me")
    me.run(functools.partial(forget, lease="node-a", run_id="r1"))
    (message,) = told(me)
    assert message.startswith("the fence in the server keeps the entry of node-a: ")


@pytest.mark.parametrize("known", [True, False])
def test_a_map_that_may_not_be_read_is_told_where_it_is_known_to_be_there(world: World, known: bool) -> None:
    fence, me = LockPolicy(world.process("me").ctx()), world.process("me")
    if known:
        done(me, lambda: fence.hold({"node-a": "r1/n1"}, nobody))
    deny(world, "get")
    done(me, lambda: fence.try_to_hold({"node-b": "r1/n1"}, nobody))
    assert len(told(world.process("me"))) == int(known)


def nobody() -> None:
    """A proof that nobody asks for."""


def test_a_patch_names_the_holder_of_its_lock_as_its_manager_for_nothing_of_it_may_stay() -> None:
    pod = Ref("Pod", "web-1", "shop", "u1", "v1")
    for lock, manager in (("node-a=r1/n1", f"{names.MANAGER}/r1/n1"), ("", names.MANAGER)):
        request = request_for(Change("patch", pod, "", {"metadata": {}}, lock=lock))
        assert request.query == (("fieldManager", manager),)
        assert request.body == {"metadata": {}}
    longest = f"{names.MANAGER}/{'r' * 63}/{'n' * 8}"
    assert len(longest) <= 128, "as long as a field manager may be"


def test_an_eviction_names_its_lock_and_nothing_else_does() -> None:
    pod = Ref("Pod", "web-1", "shop", "u1", "v1")
    body = request_for(Change("evict", pod, "", lock="node-a=r1/n1")).body
    assert body is not None
    assert body["metadata"]["annotations"] == {"maintenance.kubeops.io/fence": "node-a=r1/n1"}
    plain = request_for(Change("evict", pod, "")).body
    assert plain is not None
    assert "annotations" not in plain["metadata"]


def denied(policy: str) -> t.Any:
    words = f"pods \"web\" is forbidden: ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: x"
    status = {"kind": "Status", "reason": "Forbidden", "code": 403, "message": words}
    return from_answer(None, 403, status)


def test_our_policy_is_told_from_others() -> None:
    assert by_the_fence(denied(names.FENCE_POLICY))
    assert not by_the_fence(denied("no-evictions-on-fridays"))
    assert not by_the_fence(Forbidden(f"pods/eviction is forbidden '{names.FENCE_POLICY}'", status=403))
