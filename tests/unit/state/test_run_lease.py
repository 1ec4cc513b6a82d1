# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run's sign of life: how long it holds, who takes it away, and when a lease counts as silent."""

from __future__ import annotations

import functools
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import lock_leases, run_lease, run_leases
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.locked import rewrite

OURS = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
ME = Run("r1", "n1")
STAMP = "2026-01-01T00:00:00.000000Z"
"""When the worlds begin."""


def a_lease(name: str, holder: str = "r1/n1", seconds: int | None = 15, *, ours: bool = True, **spec: t.Any) -> Raw:
    meta = {"name": name, "namespace": names.NAMESPACE, "labels": OURS if ours else None}
    body = {"holderIdentity": holder or None, "leaseDurationSeconds": seconds, "renewTime": STAMP, **spec}
    return {"apiVersion": kinds.LEASES.api_version, "kind": "Lease", "metadata": meta, "spec": body}


def there(world: World, name: str = "run-r1") -> Raw | None:
    return world.find(kinds.LEASES, name, names.NAMESPACE)


@pytest.fixture
def world() -> t.Iterator[World]:
    with World([manifests.namespace(names.NAMESPACE)], settle=False) as made:
        yield made


def requests(world: World) -> list[str]:
    return [f"{sent.request.verb} {sent.request.name}".strip() for sent in world.log]


def in_check_mode(world: World, loop: t.Callable[[Context], t.Any]) -> None:
    me = world.process("me")
    ctx = me.ctx(check=True)
    me.run(lambda _ctx: loop(ctx))


def test_a_sign_is_made_once_and_renewed_then(world: World) -> None:
    me = world.process("me")
    me.run(lambda ctx: run_lease.renew(ctx, ME))
    first = (there(world) or {})["spec"]
    assert (first["holderIdentity"], first["leaseDurationSeconds"]) == ("r1/n1", 60)
    assert first["acquireTime"] == first["renewTime"]
    world.machine.run_for(30.0)
    me.run(lambda ctx: run_lease.renew(ctx, Run("r1", "n2"), 900.7))
    now = (there(world) or {})["spec"]
    assert (now["holderIdentity"], now["leaseDurationSeconds"]) == ("r1/n2", 900)
    assert now["acquireTime"] == first["acquireTime"] < now["renewTime"]
    assert requests(world) == ["get run-r1", "create run-r1", "get run-r1", "patch run-r1"]
    assert all(not ctx.changes for ctx in me.contexts), "a sign of life is no change of the call's"


def test_a_sign_whose_answer_was_lost_is_not_written_twice(world: World) -> None:
    me = world.process("me")
    for method in ("POST", "PATCH"):
        me.faults.when(lambda request, method=method: request.method == method, Fault("lost"))  # type: ignore[misc]
        world.machine.run_for(10.0)
        me.run(lambda ctx: run_lease.renew(ctx, ME))
    assert requests(world) == ["get run-r1", "create run-r1", "get run-r1"] + [
        "get run-r1",
        "patch run-r1",
        "get run-r1",
    ]


def test_check_mode_shows_and_hides_nothing(world: World) -> None:
    world.apply(a_lease("run-r1"))
    in_check_mode(world, lambda ctx: run_lease.renew(ctx, ME))
    in_check_mode(world, lambda ctx: run_lease.delete(ctx, "r1"))
    assert requests(world) == []


@pytest.mark.parametrize(
    ("lease", "age", "alive"),
    [
        pytest.param(a_lease("run-r1", seconds=60), 60, True, id="until its end"),
        pytest.param(a_lease("run-r1", seconds=60), 61, False, id="past its end"),
        pytest.param(a_lease("run-r1", seconds=None), 0, True, id="no duration, just renewed"),
        pytest.param(a_lease("run-r1", seconds=None), 1, False, id="no duration"),
        pytest.param(a_lease("run-r1", seconds=60, renewTime=None), 0, False, id="never renewed"),
        pytest.param(a_lease("run-r1", seconds=60, ours=False), 0, False, id="somebody else's"),
        pytest.param(a_lease("node-r1", seconds=60), 0, False, id="a lock"),
    ],
)
def test_a_run_is_alive_until_its_sign_ends_on_the_servers_clock(
    world: World, lease: Raw, age: float, alive: bool
) -> None:
    world.machine.run_for(age)
    found = world.process("me", skew=5000.0).run(lambda ctx: asked(ctx) and run_lease.live_runs(ctx, [lease]))
    assert found == ({"r1"} if alive else set())


def asked(ctx: Context) -> bool:
    """The server's time is known from its answers."""
    run_leases.leases_in(ctx, [names.NAMESPACE])
    return True


@pytest.mark.parametrize(
    ("holder", "nonce", "gone"),
    [("r1/n1", "", True), ("r1/n1", "n1", True), ("r1/n2", "n1", False), ("r2/n1", "n1", False), ("", "n1", False)],
)
def test_a_start_hides_the_sign_that_it_was_the_last_to_give(world: World, holder: str, nonce: str, gone: bool) -> None:
    world.apply(a_lease("run-r1", holder))
    world.process("me").run(lambda ctx: run_lease.delete(ctx, "r1", nonce))
    assert (there(world) is None) is gone
    assert world.process("me").told == []


def test_a_sign_that_is_gone_needs_no_hiding(world: World) -> None:
    world.process("me").run(lambda ctx: run_lease.delete(ctx, "r1", "n1"))
    assert requests(world) == ["get run-r1"]


def attempts(world: World, what: What) -> list[float]:
    """When deletions of a run's sign were asked for, if each of them meets this."""
    world.apply(a_lease("run-r1"))
    me = world.process("me")
    me.faults.when(lambda request: request.method == "DELETE", Fault(what), times=99)
    me.run(lambda ctx: run_lease.delete(ctx, "r1"))
    (event,) = me.told
    assert "Lease kubeops-node-maintenance/run-r1 could not be deleted, so run r1 looks alive" in event.message
    return [each.left for each in world.log if each.request.verb == "delete"]


def test_a_sign_is_tried_to_be_deleted_again_after_one_second_and_after_three(world: World) -> None:
    moments = attempts(world, "error")
    first, within = moments[:4], moments[3]
    assert first[0] == 0.0
    second = [at + within + 1.0 for at in first]
    third = [at + second[3] + 3.0 for at in first]
    assert moments == pytest.approx([*first, *second, *third])


def test_a_refusal_to_delete_a_sign_is_one(world: World) -> None:
    moments = attempts(world, "forbidden")
    assert (len(moments), world.machine.now) == (2, moments[-1]), "the client has asked once more, as for all of them"


def test_leases_of_a_namespace_that_does_not_exist_are_none(world: World) -> None:
    world.apply(a_lease("node-a"))
    places = ["nowhere", names.NAMESPACE, names.NAMESPACE]
    found = world.process("me").run(lambda ctx: run_leases.leases_in(ctx, places))
    assert [lock_leases.place_of(lease) for lease in found] == [(names.NAMESPACE, "node-a")]
    assert len(world.log) == 2


def silent(world: World, *leases: Raw, until: float = 120.0) -> tuple[set[str], float]:
    """Which are silent, and how long it took to know."""
    world.apply(*leases)
    world.machine.run_for(0.5)
    me, began = world.process("me"), world.machine.now
    known = [raw for _place, raw in sorted(world.store.of(kinds.LEASES.resource).items())]
    found = me.run(lambda ctx: asked(ctx) and run_lease.expired(ctx, known), within=until)
    return {name for _namespace, name in t.cast("set[lock_leases.NamespacedName]", found)}, world.machine.now - began


@pytest.mark.parametrize(
    ("lease", "age", "dead", "seconds"),
    [
        pytest.param(a_lease("node-a", seconds=15), 0, True, 15, id="its duration"),
        pytest.param(a_lease("node-a", seconds=60), 0, True, 60, id="between two calls"),
        pytest.param(a_lease("node-a", seconds=61), 0, False, 0, id="somebody's tasks"),
        pytest.param(a_lease("node-a", seconds=61), 3600, False, 0, id="tasks that may still run"),
        pytest.param(a_lease("node-a", "", seconds=3600), 0, True, 0, id="nobody's"),
        pytest.param(a_lease("node-a", seconds=None), 0, True, 0, id="without a duration"),
        pytest.param(a_lease("run-r1", seconds=60), 0, True, 60, id="a sign, watched as a lock"),
        pytest.param(a_lease("run-r1", seconds=61), 50, False, 0, id="a sign that holds"),
        pytest.param(a_lease("run-r1", seconds=61), 70, True, 60, id="a sign that ran out"),
        pytest.param(a_lease("run-r1", seconds=61, ours=False), 70, False, 0, id="somebody else's"),
    ],
)
def test_how_long_a_lease_is_watched_until_it_counts_as_silent(
    world: World, lease: Raw, age: float, dead: bool, seconds: float
) -> None:
    world.machine.run_for(age)
    found, took = silent(world, lease)
    assert bool(found) is dead
    assert took == seconds


@pytest.mark.parametrize("how", ["renewed", "deleted"])
def test_what_is_written_during_the_watch_is_alive_and_the_others_are_watched_on(world: World, how: str) -> None:
    def change() -> None:
        if how == "deleted":
            world.delete(kinds.LEASES, "node-a", names.NAMESPACE)
        else:
            rewrite(world)

    world.machine.after(10.2, change, how)
    assert silent(world, a_lease("node-a"), a_lease("node-b"), a_lease("node-c", seconds=20)) == (
        {"node-b", "node-c"},
        20.0,
    )


def test_nothing_is_asked_about_no_leases(world: World) -> None:
    assert world.process("me").run(lambda ctx: run_lease.expired(ctx, [])) == {}
    assert world.log == []


@pytest.mark.parametrize(
    ("run", "found"),
    [("r1", {"node-a", "node-c"}), ("r2", {"node-b"}), ("", {"node-a", "node-b"})],
    ids=["of any start of the run", "of another run", "by hand: ours that nobody renews"],
)
def test_which_locks_are_left(world: World, run: str, found: set[str]) -> None:
    world.apply(
        a_lease("node-a", "r1/n1"),
        a_lease("node-b", "r2/n1"),
        a_lease("node-c", "r1/n2", ours=False),
        a_lease("node-d", "r1/n1"),
    )
    me = world.process("me")
    left = me.run(lambda ctx: run_lease.left_locks(ctx, Run(run, "x"), ["a", "b", "c"], names.NAMESPACE))
    assert {seen.lease["metadata"]["name"] for seen in left} == found


def install(world: World, **held: str) -> None:
    fence = {"name": names.FENCE_MAP, "namespace": names.NAMESPACE}
    world.apply({"apiVersion": names.FENCE_API, "kind": "NodeFence", "metadata": fence, "held": held})


def fenced(world: World) -> dict[str, str]:
    return dict(world.get(kinds.NODE_FENCES, names.FENCE_MAP, names.NAMESPACE).get("held") or {})


@pytest.mark.parametrize(
    ("holder", "written", "gone", "entry"),
    [("r1/n1", False, True, False), ("r1/n1", True, False, True), ("", False, True, True)],
    ids=["as it was seen", "renewed since", "nobody's, so its entry is another's"],
)
def test_a_leftover_lock_goes_with_its_entry_unless_it_was_written_since(
    world: World, holder: str, written: bool, gone: bool, entry: bool
) -> None:
    world.apply(a_lease("node-a", holder))
    install(world, **{"node-a": "r1/n1"})
    seen = lock_leases.Seen(t.cast("Raw", there(world, "node-a")))
    if written:
        rewrite(world)
    me = world.process("me")
    me.run(functools.partial(run_lease.release, seen=seen, ended=set()))
    assert (there(world, "node-a") is None) is gone
    assert bool(fenced(world)) is entry
    assert [change.sentence for ctx in me.contexts for change in ctx.changes] == (
        ["Delete the leftover lock of node a"] if gone else []
    )


def test_check_mode_drops_no_lock_and_tells_so(world: World) -> None:
    world.apply(a_lease("node-a"))
    install(world, **{"node-a": "r1/n1"})
    seen = lock_leases.Seen(t.cast("Raw", there(world, "node-a")))
    in_check_mode(world, functools.partial(run_lease.release, seen=seen, ended=set()))
    assert there(world, "node-a") is not None
    assert fenced(world) == {"node-a": "r1/n1"}
    assert max(len(ctx.changes) for ctx in world.process("me").contexts) == 1


@pytest.mark.parametrize(
    ("spec", "holder", "seconds"),
    [({}, "", 0.0), (None, "", 0.0), ({"holderIdentity": "r1/n1", "leaseDurationSeconds": 15}, "r1", 15.0)],
)
def test_a_lease_says_who_and_for_how_long(spec: Raw | None, holder: str, seconds: float) -> None:
    assert (run_leases.holder_of({"spec": spec}), lock_leases.duration_of({"spec": spec})) == (holder, seconds)
