# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated API server behind the engine's own client: errors by class, watches, and every fault."""

from __future__ import annotations

import datetime
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.client import Cluster
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.watch import Reflector
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, serving
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Action
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World


@pytest.fixture
def world() -> t.Iterator[World]:
    with World(
        [manifests.node("n1"), manifests.deployment("web", 2), manifests.budget("web", minAvailable=1)]
    ) as found:
        yield found


@pytest.fixture
def me(world: World) -> Actor:
    return world.process("me")


def config(name: str, **data: str) -> Raw:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "data": data}


def send(me: Actor, request: verbs.Request, *, patience: float = 0.0, **options: t.Any) -> Raw:
    """One request, from its sending to its answer."""
    return me.run(lambda ctx: ctx.cluster.send(request, patience=patience, **options))


def create(name: str, **data: str) -> verbs.Request:
    return verbs.create(kinds.CONFIGMAPS, config(name, **data))


def patch(name: str, **data: str) -> verbs.Request:
    return verbs.merge_patch(kinds.CONFIGMAPS, name, {"data": data}, namespace="shop")


def there(world: World, name: str) -> dict[str, str] | None:
    found = world.find(kinds.CONFIGMAPS, name)
    return None if found is None else found["data"]


def test_what_is_heard_of_the_servers_clock_fits_the_times_of_its_objects(world: World, me: Actor) -> None:
    world.machine.run_for(0.5)
    made = send(me, create("new"))
    assert me.clock.server()[:19] == made["metadata"]["creationTimestamp"][:19]


def test_the_engine_reads_the_refusals_as_those_of_a_server(world: World, me: Actor) -> None:
    pods = world.pods(app="web")
    names = [pod["metadata"]["name"] for pod in pods]
    uids = [pod["metadata"]["uid"] for pod in pods]
    stale = {"metadata": {"resourceVersion": "1"}}
    for kind, request in (
        (errors.NotFound, verbs.get(kinds.PODS, "gone", "shop")),
        (errors.NotFound, verbs.list_page(kinds.ROLLOUTS)),
        (errors.NotFound, verbs.create(kinds.CONFIGMAPS, config("a"), namespace="nowhere")),
        (errors.Conflict, verbs.merge_patch(kinds.DEPLOYMENTS, "web", stale, namespace="shop")),
        (errors.Conflict, verbs.delete(kinds.PODS, names[0], "shop", uid="another")),
        (errors.Conflict, verbs.evict("shop", names[0], "another")),
        (errors.Invalid, verbs.merge_patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": -1}}, namespace="shop")),
        (errors.Invalid, verbs.list_page(kinds.PODS, fields="spec.nope=1")),
    ):
        with pytest.raises(kind):
            send(me, request)
    send(me, verbs.evict("shop", names[0], uids[0]))
    with pytest.raises(errors.BudgetSpent):
        send(me, verbs.evict("shop", names[1], uids[1]))


def test_a_budget_that_is_not_observed_and_two_of_them(world: World, me: Actor) -> None:
    pod = world.pods(app="web")[0]["metadata"]
    world.controller(serving.Budgets).stop()
    world.apply(manifests.deployment("slow", 1), manifests.budget("slow", minAvailable=0))
    world.machine.run_for(5)
    slow = world.pods(app="slow")[0]["metadata"]
    with pytest.raises(errors.BudgetNotObserved):
        send(me, verbs.evict("shop", slow["name"], slow["uid"]))
    world.apply(manifests.budget("second", "web", minAvailable=1))
    with pytest.raises(errors.TwoBudgets):
        send(me, verbs.evict("shop", pod["name"], pod["uid"]))


@pytest.mark.parametrize(
    ("fault", "kind", "done"),
    [
        (Fault("lost"), errors.UnknownOutcome, True),
        (Fault("in doubt"), errors.UnknownOutcome, True),
        (Fault("conflict"), errors.Conflict, False),
        (Fault("throttled"), errors.Overloaded, False),
        (Fault("throttled with time"), errors.Overloaded, False),
        (Fault("error"), errors.ServerError, False),
        (Fault("forbidden"), errors.Forbidden, False),
        (Fault("down", 5.0), errors.Overloaded, False),
    ],
    ids=lambda value: value.what if isinstance(value, Fault) else "",
)
def test_a_fault_is_told_as_such_and_the_next_request_is_free_of_it(
    world: World, me: Actor, fault: Fault, kind: type[Exception], done: bool
) -> None:
    me.faults.at(0, fault)
    with pytest.raises(kind):
        send(me, create("a"))
    assert (there(world, "a") is not None) == done
    world.machine.run_for(5.0)
    assert send(me, create("b"))["metadata"]["name"] == "b"


def test_what_was_refused_for_a_moment_is_sent_again_by_the_patient(world: World, me: Actor) -> None:
    me.faults.at(0, Fault("down", 20.0))
    send(me, create("a", key="x"), patience=60.0)
    assert world.machine.now > 20
    assert there(world, "a") == {"key": "x"}


@pytest.mark.parametrize(("what", "done"), [("killed before", False), ("killed after", True)])
def test_a_process_is_killed_around_a_request(world: World, me: Actor, what: t.Any, done: bool) -> None:
    me.faults.when(lambda request: request.name == "b", Fault(what))

    def both(cluster: Cluster) -> None:
        for name in "abc":
            cluster.send(create(name, key=""))

    task = me.call(lambda ctx: both(ctx.cluster))
    world.machine.run_until(lambda: not task.alive)
    assert me.process.dead
    assert [name for name in "abc" if there(world, name)] == (["a", "b"] if done else ["a"])
    assert world.process("me") is not me


def test_a_process_is_frozen_before_its_fence_and_after_its_answer(world: World, me: Actor) -> None:
    seen: list[float] = []
    me.faults.at(0, Fault("frozen", 90.0))
    me.faults.at(1, Fault("frozen sent", 30.0))

    def both(cluster: Cluster) -> None:
        for name in "ab":
            cluster.send(create(name), timeout=300.0, before_send=lambda: seen.append(world.machine.now))

    start = world.machine.now
    me.run(lambda ctx: both(ctx.cluster))
    assert [time - start for time in seen] == [90.0, 90.0]
    assert world.log[1].arrived - start == 90.0
    assert world.machine.now - start == 120.0


def test_a_late_write_arrives_after_its_fence_has_closed(world: World, me: Actor) -> None:
    me.faults.at(0, Fault("late", 8.0))
    send(me, create("a"))
    assert (world.log[0].arrived - world.log[0].left) == 8.0


@pytest.mark.parametrize("end", ["freeze", "kill"])
def test_what_has_left_arrives_whatever_becomes_of_its_sender(world: World, me: Actor, end: str) -> None:
    """What no fence of a client can prevent."""
    task = me.call(
        lambda ctx: ctx.cluster.send(create("a"), before_send=lambda: world.machine.post(Action(stop, "stop")))
    )

    def stop() -> None:
        me.process.freeze() if end == "freeze" else me.process.kill()

    world.machine.run_for(5)
    assert there(world, "a") == {}
    assert task.alive == (end == "freeze")


class Watched:
    """A reflector of ConfigMaps and what it saw."""

    def __init__(self, me: Actor, **options: t.Any) -> None:
        self.events: list[str] = []
        self.wake = me.clock.condition()
        self.reflector = Reflector(
            me.cluster(), kinds.CONFIGMAPS, namespaces=["shop"], wake=self.wake, on_event=self.note, **options
        )
        me.process.spawn(self.reflector.start, "start")

    def note(self, what: str, obj: Raw) -> None:
        self.events.append(f"{what} {obj['metadata']['name']} {(obj.get('data') or {}).get('key', '')}".strip())


def test_a_watch_tells_of_changes_in_order_and_of_what_leaves_its_selection(world: World, me: Actor) -> None:
    world.apply(config("a", key="0"))
    watched = Watched(me)
    labelled = Watched(me, labels="app=x")
    world.machine.run_for(1)
    for number in (1, 2):
        world.patch(kinds.CONFIGMAPS, "a", {"data": {"key": str(number)}, "metadata": {"labels": {"app": "x"}}})
    world.patch(kinds.CONFIGMAPS, "a", {"metadata": {"labels": None}})
    world.delete(kinds.CONFIGMAPS, "a")
    world.machine.run_for(1)
    assert watched.events == ["ADDED a 0", "MODIFIED a 1", "MODIFIED a 2", "MODIFIED a 2", "DELETED a 2"]
    assert labelled.events == ["ADDED a 1", "MODIFIED a 2", "DELETED a 2"]


def test_a_quiet_watch_lives_by_its_bookmarks_and_a_cut_or_expired_one_begins_anew(world: World, me: Actor) -> None:
    watched = Watched(me)
    world.machine.run_for(280)
    assert watched.reflector.trouble is None
    assert [sent.request.verb for sent in world.log] == ["watch"]
    me.faults.when(lambda request: request.verb == "watch", Fault("down", 10.0))
    world.machine.run_for(12)
    world.store.compact()
    world.apply(config("late"))
    world.machine.run_for(60)
    assert watched.events == ["ADDED late"]
    assert watched.reflector.trouble is None


def test_lists_come_in_pages_of_one_moment(world: World, me: Actor) -> None:
    world.apply(*(config(f"c{number}") for number in range(5)))

    def read(cluster: Cluster) -> list[str]:
        return [item["metadata"]["name"] for item in cluster.items(kinds.CONFIGMAPS, namespace="shop", limit=2).items]

    me.faults.when(lambda request: "continue" in dict(request.query), Fault("down", 1.0))
    task = me.call(lambda ctx: ctx.cluster.items(kinds.CONFIGMAPS, limit=2, patience=30.0).items)
    world.machine.run_for(0.5)
    world.delete(kinds.CONFIGMAPS, "c4")
    world.machine.run_until(lambda: not task.alive)
    assert [item["metadata"]["name"] for item in task.value()] == ["c0", "c1", "c2", "c3", "c4"]
    assert me.run(lambda ctx: read(ctx.cluster)) == ["c0", "c1", "c2", "c3"]


@pytest.mark.parametrize("skew", [-600.0, 0.0, 600.0])
def test_clients_learn_the_servers_clock_from_its_answers(skew: float) -> None:
    with World([manifests.namespace("shop")], skew=skew) as world:
        me = world.process("me", skew=30.0)
        made = send(me, create("a"))["metadata"]["creationTimestamp"]
        world.machine.run_for(3600.0)
        told = datetime.datetime.fromisoformat(me.clock.server()) - datetime.datetime.fromisoformat(made)
        assert told.total_seconds() == pytest.approx(3600.0, abs=1.0)


def test_a_saved_state_is_where_other_worlds_begin(world: World) -> None:
    saved = world.saved()
    with World.of(saved) as other:
        other.delete(kinds.PODS, other.pods(app="web")[0]["metadata"]["name"])
        other.settle()
        assert other.pods() != world.pods()
        assert len(other.pods()) == 2
    with World.of(saved) as again:
        again.settle()
        assert again.pods() == world.pods()
