# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The judge can say no: each invariant in a world in which it is broken on purpose."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod, Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import released
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.phases import What
from ansible_collections.kubeops.node_maintenance.tests.explore import invariants, people, scenes
from ansible_collections.kubeops.node_maintenance.tests.explore.judge import CONTROL_PLANE, Judge, Violation, record
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, serving
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

CROWD = scenes.crowd()


@pytest.fixture
def world() -> t.Iterator[World]:
    with CROWD.world() as made:
        yield made


def sends(actor: Actor, *requests: verbs.Request) -> None:
    """These requests, one after the other, without a loop of ours that would think about them."""

    def work() -> None:
        cluster = actor.cluster()
        for request in requests:
            cluster.send(request)
        cluster.close()

    task = actor.spawn(work)
    actor.world.machine.run_until(lambda: not task.alive)
    task.value()


def evictions(world: World, count: int) -> list[verbs.Request]:
    metas = [pod["metadata"] for pod in world.pods(app="trio")[:count]]
    return [verbs.evict(meta["namespace"], meta["name"], meta["uid"]) for meta in metas]


def lenient(world: World) -> None:
    """The server believes that all of the trio may go, and nobody tells it anything else."""
    raw = world.get(kinds.BUDGETS, "trio")
    world.objects.replace(kinds.BUDGETS, raw, {**raw, "status": {**raw["status"], "disruptionsAllowed": 3}}, "status")
    world.controller(serving.Budgets).stop()


def said(judge: Judge, invariant: str) -> list[str]:
    return [text for text in judge.broken if text.startswith(invariant)]


def test_an_eviction_that_a_budget_cannot_bear_is_seen(world: World) -> None:
    judge, me = Judge(world, {}), world.process("me")
    lenient(world)
    first, second = evictions(world, 2)
    sends(me, first)
    assert said(judge, "I2") == []
    sends(me, second)
    ready = "and 1 ready pods are left of the 2 that budget trio demands"
    assert said(judge, "I2") == [f"I2: me evicted {second.name}, {ready}"]


def test_what_a_person_deletes_in_that_moment_is_not_held_against_a_run(world: World) -> None:
    judge = Judge(world, {})
    lenient(world)
    second = evictions(world, 2)[1]
    people.delete_pod(world, "trio")
    sends(world.process("me"), second)
    assert second.name not in {pod["metadata"]["name"] for pod in world.pods(app="trio") if alive(pod)}
    assert said(judge, "I2") == []


def alive(pod: Raw) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def let_go(world: World) -> verbs.Request:
    """The single pod is let go; gives its eviction."""
    (raw,) = world.pods(app="single")
    pod, above = Pod.of(raw), world.get(kinds.DEPLOYMENTS, "single")["metadata"]["uid"]
    assert pod.owner
    mark = released.Mark("r", "", pod.node, pod.created, above, "single", pod.owner.uid, pod.labels[names.HASH])
    change = released.releasing(raw, pod.uid, mark)
    assert change
    assert change.body
    world.patch(kinds.PODS, pod.name, dict(change.body))
    world.machine.run_for(0.1)
    return verbs.evict(pod.namespace, pod.name, pod.uid)


@pytest.mark.parametrize(
    ("meanwhile", "broken"),
    [
        (lambda world: people.stop_controllers(world), True),
        (lambda _world: None, False),
        (lambda world: people.scale(world, "single", 0), False),
    ],
    ids=["no replacement", "replaced", "nobody wants one"],
)
def test_the_end_of_a_pod_that_was_let_go_before_others_are_enough_is_seen(
    meanwhile: t.Callable[[World], None], broken: bool
) -> None:
    with scenes.replaced().world() as world:
        judge = Judge(world, {})
        meanwhile(world)
        evicted = let_go(world)
        world.machine.run_for(30)
        sends(world.process("me"), evicted)
        assert bool(said(judge, "I16")) == broken


def record_of(run: str, step: str = "cordoned") -> Raw:
    """A patch that puts a record of that run on a node."""
    return {"metadata": {"annotations": {names.RECORD: json.dumps({"run": run, "nonce": "", "step": step})}}}


def stored(run: str, *waves: list[str]) -> Raw:
    meta = {"name": names.run_name(run), "namespace": names.NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"plan": json.dumps(waves)}}


def taken_out(world: World, node: str, step: str = "cordoned") -> None:
    """As a run leaves it: cordoned, with our taint and a record, whose lock is held."""
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "r"}}
    world.apply({**lease, "metadata": {"name": names.node_lease_name(node), "namespace": names.NAMESPACE}})
    ours = {"taints": [{"key": names.TAINT_KEY, "value": "r", "effect": "NoSchedule"}], "unschedulable": True}
    world.patch(kinds.NODES, node, {**record_of("r", step), "spec": ours})


def does(world: World, *acts: people.Act) -> None:
    """A person does this, one thing after the other."""
    task = people.person(world, *acts)
    world.machine.run_until(lambda: not task.alive)


def opened(world: World) -> None:
    world.cordon("n1", False)


def closed_again(world: World) -> None:
    world.cordon("n1")


@pytest.mark.parametrize(
    ("acts", "wrong"),
    [((), False), ((opened,), True), ((opened, closed_again), False)],
    ids=["out", "opened by a person", "opened and closed again"],
)
def test_an_eviction_from_a_node_that_a_person_opened_is_seen(
    world: World, acts: tuple[t.Callable[[World], None], ...], wrong: bool
) -> None:
    for node in ("n1", "n2", "n3"):
        taken_out(world, node)
    judge, pod = Judge(world, {}), next(pod for pod in world.pods(app="trio") if pod["spec"]["nodeName"] == "n1")
    does(world, *(lambda act=act: act(world) for act in acts))
    world.machine.run_for(1.0)
    sends(world.process("me"), verbs.evict("shop", pod["metadata"]["name"], pod["metadata"]["uid"]))
    name = pod["metadata"]["name"]
    assert said(judge, "I5") == ([f"I5: me evicted {name} from n1, which is in service"] if wrong else [])


def test_an_eviction_from_a_node_that_nobody_took_out_is_seen(world: World) -> None:
    judge, request = Judge(world, {}), evictions(world, 1)[0]
    sends(world.process("me"), request)
    assert len(said(judge, f"I5: me evicted {request.name} from ")) == 1


def test_a_record_that_somebody_without_the_lock_writes_is_seen(world: World) -> None:
    taken_out(world, "n1")
    judge = Judge(world, {})
    world.patch(kinds.NODES, "n1", record_of("other"))
    assert said(judge, "I5") == ["I5: other wrote the record of n1 while r held its lock"]


def test_a_service_below_its_floor_is_seen(world: World) -> None:
    judge = Judge(world, {"trio": 3})
    sends(world.process("me"), evictions(world, 1)[0])
    assert said(judge, "I1")[0].startswith("I1: trio has 2 ready endpoints of 3 at ")


def test_a_pod_that_is_evicted_twice_is_seen(world: World) -> None:
    judge, me, request = Judge(world, {}), world.process("me"), evictions(world, 1)[0]
    sends(me, request)
    judge.evicted_once()
    sends(me, request)
    with pytest.raises(Violation, match="I4: evicted more than once"):
        judge.evicted_once()


def test_a_node_that_is_called_drained_too_early_is_seen(world: World) -> None:
    judge, pod = Judge(world, {}), world.pods(app="trio")[0]
    node = pod["spec"]["nodeName"]
    taken_out(world, node)
    world.patch(kinds.NODES, node, record_of("r", "drained"))
    assert f"I7: {node} is called drained while {pod['metadata']['name']} is on it" in judge.broken


@pytest.mark.parametrize("step", ["cordoned", "parked"])
def test_more_nodes_out_than_the_wave_has_are_seen(world: World, step: str) -> None:
    judge = Judge(world, {})
    world.apply(stored("r", ["n1"], ["n2"]))
    for node in ("n1", "n2"):
        world.patch(kinds.NODES, node, record_of("r", step))
    assert said(judge, "I6") == (
        [] if step == "parked" else ["I6: run r has n1, n2 out at once, and its waves are of 1"]
    )


def test_two_control_planes_out_at_once_are_seen(world: World) -> None:
    judge = Judge(world, {})
    for node in ("n1", "n2"):
        world.patch(kinds.NODES, node, {"metadata": {"labels": {CONTROL_PLANE: ""}}})
        world.patch(kinds.NODES, node, record_of(node))
    assert "I6: the control planes n1, n2 are out at once" in judge.broken


def test_a_run_takes_out_as_many_nodes_as_its_wave_has_and_no_more() -> None:
    most = 0
    with World([manifests.node(name) for name in ("n1", "n2", "n3", "n4")]) as world:
        judge, me = Judge(world, {}), world.process("me")
        task = me.spawn(lambda: maintain(me, Input(("n1", "n2", "n3"), serial=2, gates=("ready",))))

        def count() -> None:
            nonlocal most
            most = max(most, sum(record(raw) is not None for raw in world.store.of("nodes").values()))

        world.machine.on_step.append(count)
        invariants.ended(world, lambda: not task.alive, 3600.0)
        assert task.value().ok, (task.value().failed, task.value().wrong)
        judge.check()
    assert most == 2


def test_who_never_ends_is_named_with_what_it_waits_for(world: World) -> None:
    me = world.process("me")

    def work() -> None:
        sends_once = me.cluster()
        sends_once.send(verbs.get(kinds.NODES, "n1"))
        me.clock.sleep(1e6)

    task = me.spawn(work)
    with pytest.raises(Violation, match=r"I9: no end: .*me sent get nodes n1 at"):
        invariants.ended(world, lambda: not task.alive, 60.0)


def test_a_write_in_check_mode_is_seen(world: World) -> None:
    me = world.process("me")
    body = {"spec": {"unschedulable": True}}
    sends(me, verbs.get(kinds.NODES, "n1"))
    invariants.only_looked(world, "me")
    sends(me, verbs.merge_patch(kinds.NODES, "n1", body))
    with pytest.raises(Violation, match="I10: check mode sent patch nodes n1"):
        invariants.only_looked(world, "me")


def test_a_change_that_was_not_foretold_is_seen(world: World) -> None:
    looked, did = world.process("looked"), world.process("did")
    for actor, told in ((looked, ["n1"]), (did, ["n1", "n2"])):
        ctx = actor.ctx()
        for name in told:
            ctx.changed(Change("patch", Ref("Node", name), f"Cordon {name}"))
    with pytest.raises(Violation, match=r"I10: check mode alone told of \[\], the run alone of .*'n2'"):
        invariants.foretold(looked, did)


def test_a_run_that_asks_without_end_is_seen() -> None:
    invariants.few_requests(230, 215)
    with pytest.raises(Violation, match="I11: 500 requests, and 215 without the fault"):
        invariants.few_requests(500, 215)


def told_in_an_event(world: World) -> list[Outcome]:
    world.process("me").ctx().tell(What.WAITING, f"env PASSWORD={scenes.CANARY}")
    return []


def told_in_a_diff(world: World) -> list[Outcome]:
    before, after = {"env": scenes.CANARY}, {"env": ""}
    world.process("me").ctx().changed(Change("patch", Ref("Node", "n1"), "Cordon", before=before, after=after))
    return []


def stored_in_an_object(world: World) -> list[Outcome]:
    body = {"metadata": {"annotations": {"note": scenes.CANARY}}}
    sends(world.process("me"), verbs.merge_patch(kinds.NODES, "n1", body))
    return []


@pytest.mark.parametrize(
    ("leak", "where"),
    [
        (told_in_an_event, "the timeline of me"),
        (told_in_a_diff, "the changes of me"),
        (stored_in_an_object, "patch nodes"),
        (lambda world: [Outcome(failed={"n1": f"Pod {scenes.CANARY}"})], "an outcome"),
    ],
)
def test_a_secret_that_gets_out_is_seen(world: World, leak: t.Callable[[World], list[Outcome]], where: str) -> None:
    invariants.no_secrets(world)
    outcomes = leak(world)
    with pytest.raises(Violation, match=f"I12: a secret is in {where}"):
        invariants.no_secrets(world, outcomes)


def test_a_write_that_nobody_tells_of_is_seen(world: World) -> None:
    me = world.process("me")
    sends(me, verbs.merge_patch(kinds.NODES, "n1", {"spec": {"unschedulable": True}}))
    with pytest.raises(Violation, match=r"I13: me did \('patch', 'Node', '', 'n1'\), and does not tell of it"):
        invariants.all_told(world)
    me.ctx().changed(Change("patch", Ref("Node", "n1"), "Cordon Node n1"))
    invariants.all_told(world)


def test_an_eviction_without_an_event_is_seen(world: World) -> None:
    me = world.process("me")
    request = evictions(world, 1)[0]
    sends(me, request)
    ctx = me.ctx()
    ctx.changed(Change("evict", Ref("Pod", request.name, request.namespace), "Evict"))
    with pytest.raises(Violation, match=f"I13: me evicted {request.name}, and no event says so"):
        invariants.all_told(world)
    ctx.note(What.EVICTED, "", namespace=request.namespace, name=request.name)
    invariants.all_told(world)


@pytest.mark.parametrize("message", ["", "It did not come through.", "Traceback (most recent call last): n1"])
def test_a_failure_that_names_nothing_is_seen(world: World, message: str) -> None:
    invariants.says_why(world, Outcome(failed={"n1": "Node n1 is held by another run."}))
    with pytest.raises(Violation, match="I14: the message of a failure names nothing"):
        invariants.says_why(world, Outcome(failed={"n1": message}))
