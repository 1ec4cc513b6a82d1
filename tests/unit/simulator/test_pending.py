# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods whose successors fit nowhere, come late or never: what is planned, waited for, and given back."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import build
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.nodes import READY, START, Kubelets
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.object_rules import DENIES
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_whole import traces
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain, recover
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

NODES = ("n1", "n2", "n3")


def ready(world: World, name: str = "web") -> int:
    return int(world.get(kinds.DEPLOYMENTS, name)["status"].get("readyReplicas", 0))


def spread(*more: Raw) -> World:
    """The usual shape: one replica on each node, and never two on one."""
    web = manifests.deployment("web", 3, affinity=manifests.apart("web"))
    return World([*map(manifests.node, NODES), web, manifests.service("web"), *more])


def crowded(replicas: int, *, room: int, **options: t.Any) -> World:
    """All replicas are on n1, and n2 has room for so many pods."""
    world = World([manifests.node("n1"), manifests.deployment("web", replicas, **options), manifests.service("web")])
    world.apply(manifests.node("n2", pods=room))
    world.settle()
    return world


def run(world: World, given: Input, name: str = "me", within: float = 1800.0) -> Outcome:
    me = world.process(name)
    task = me.spawn(lambda: maintain(me, given))
    world.machine.run_until(lambda: not task.alive, within=within)
    return Outcome(wrong=["killed"]) if me.process.dead else t.cast("Outcome", task.value())


def drained(outcome: Outcome, name: str = "n1") -> dict[str, t.Any]:
    calls = outcome.steps("migrate")
    return next(node for data in reversed(calls) for node in data["nodes"] if node["name"] == name)


def kept(outcome: Outcome) -> list[str]:
    """What giving the node back says besides."""
    return [text for step in outcome.steps("uncordon", "lost_nodes") for text in step["nodes"][0]["kept"]]


def step(world: World, name: str = "n1") -> str:
    record = node_records.record_of(objects.Node.of(world.get(kinds.NODES, name)))
    return record.step if record else ""


def evictions(world: World) -> int:
    return sum(sent.request.resource == "pods/eviction" and sent.status == 201 for sent in world.log)


def seen_by_tasks() -> tuple[list[int], t.Callable[[Actor, str], None]]:
    """How many pods of web are ready when the tasks begin on a node."""
    seen: list[int] = []
    return seen, lambda actor, _node: seen.append(ready(actor.world))


# -- what fits nowhere -----------------------------------------------------------------------------------


def test_the_usual_shape_is_maintained_with_one_replica_less() -> None:
    seen, work = seen_by_tasks()
    with spread() as world:
        outcome = run(world, Input(NODES, work=work))
        assert (outcome.failed, outcome.wrong) == ({}, [])
        assert seen == [2, 2, 2]
        assert ready(world) == 3
        (short,) = drained(outcome)["pending"]
        assert {key: short[key] for key in ("kind", "namespace", "name", "ready", "wanted")} == {
            "kind": "Deployment",
            "namespace": "shop",
            "name": "web",
            "ready": 2,
            "wanted": 3,
        }
        assert "0/3 nodes are available" in short["reason"]
        assert kept(outcome) == []
        told = build.build_report(outcome.steps()).findings
        assert {(one.code, one.severity, one.object) for one in told} == {
            ("fits_nowhere", "warning", "Deployment shop/web")
        }
        assert any("2 of 3 ready pods" in one.message and "n1 is back" in one.message for one in told)


def test_a_cluster_that_fills_up_meanwhile_is_found_out_by_what_the_scheduler_says() -> None:
    """The plan foresees a place for both; when the drain begins there is only one."""
    with crowded(2, room=10) as world:
        me = world.process("me")
        me.faults.overtaken(
            lambda request: request.resource == "pods/eviction",
            lambda: world.patch(kinds.NODES, "n2", {"status": {"allocatable": {"pods": "1"}}}, subresource="status"),
        )
        outcome = run(world, Input(("n1",)))
        assert outcome.ok, (outcome.failed, outcome.wrong)
        assert [(one["ready"], one["wanted"]) for one in drained(outcome)["pending"]] == [(1, 2)]
        assert ready(world) == 2


def test_pods_that_can_never_leave_for_lack_of_room_give_their_node_back() -> None:
    with crowded(4, room=10) as world:
        me = world.process("me")
        me.faults.overtaken(
            lambda request: request.resource == "pods/eviction",
            lambda: world.patch(kinds.NODES, "n2", {"status": {"allocatable": {"pods": "1"}}}, subresource="status"),
        )
        outcome = run(world, Input(("n1",)))
        assert list(outcome.failed) == ["n1"]
        assert (drained(outcome)["outcome"], evictions(world)) == ("no_room", 2)
        assert (ready(world), step(world)) == (4, "")


def told_of_web(outcome: Outcome) -> dict[str, t.Any]:
    """What the plan says of the Deployment."""
    found = {step["step"]: step.get("findings", ()) for step in outcome.steps()}
    (told,) = [one for one in found["plan"] if one["object"] == "Deployment shop/web"]
    return dict(told)


def consent_is_asked_for(world: World, outcome: Outcome, told: t.Mapping[str, t.Any]) -> None:
    """Before anything is written."""
    assert (told["code"], told["severity"], len(outcome.wrong)) == ("no_room", "blocker", 1)
    assert "maintain_allow_interruption" in told["remedy"]
    assert not any(sent.request.writes for sent in world.log)


@pytest.mark.parametrize("of_owner", [None, False, True])
def test_a_single_replica_that_only_its_node_takes(of_owner: bool | None) -> None:
    """Without consent it is a blocker of the plan, with it the pod is down until its node is back."""
    home = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    web = manifests.deployment("web", 1, **home)
    web["metadata"]["annotations"] = {names.ALLOW_INTERRUPTION: "true"} if of_owner else {}
    seen, work = seen_by_tasks()
    with World([manifests.node("n1"), manifests.node("n2"), web]) as world:
        world.settle()
        outcome = run(world, Input(("n1",), work=work, choices=DrainPolicy(allow_interruption=of_owner is False)))
        told = told_of_web(outcome)
        if of_owner is None:
            consent_is_asked_for(world, outcome, told)
            return
        assert (told["code"], told["severity"]) == ("fits_nowhere", "warning")
        assert outcome.ok, (outcome.failed, outcome.wrong)
        assert (evictions(world), seen, ready(world)) == (1, [0], 1)
        (raised,) = [one for step in outcome.steps("protect") for one in step["workloads"]]
        assert raised["outcome"] == "interruption_allowed"
        assert traces(world) == []


@pytest.mark.parametrize("method", ["surge", "replace"])
@pytest.mark.parametrize("of_owner", [None, False, True])
def test_replicas_that_only_their_node_takes(of_owner: bool | None, method: str) -> None:
    """As those of a pool of one node: with consent all of them are down until it is back."""
    web = manifests.deployment("web", 3, nodeSelector={"kubernetes.io/hostname": "n1"})
    web["metadata"]["annotations"] = {names.ALLOW_INTERRUPTION: "true"} if of_owner else {}
    seen, work = seen_by_tasks()
    choices = DrainPolicy(allow_interruption=of_owner is False, method=method)
    with World([manifests.node("n1"), manifests.node("n2"), web, manifests.service("web")]) as world:
        world.settle()
        outcome = run(world, Input(("n1",), work=work, timeout=300.0, choices=choices))
        told = told_of_web(outcome)
        if of_owner is None:
            consent_is_asked_for(world, outcome, told)
            return
        assert (told["code"], told["severity"]) == ("only_its_node", "warning")
        assert "Service shop/web" in told["objects"]
        assert outcome.ok, (outcome.failed, outcome.wrong)
        assert (evictions(world), seen, ready(world)) == (3, [0], 3)
        assert traces(world) == []


@pytest.mark.parametrize("method", ["surge", "replace"])
@pytest.mark.parametrize(("replicas", "lost"), [(1, 0), (3, 1)])
def test_pods_of_a_scheduler_that_does_not_run_give_their_node_back_soon(replicas: int, lost: int, method: str) -> None:
    """They got their node from a script, as long as that ran."""
    web = manifests.deployment("web", replicas, schedulerName="mine")
    with World([manifests.node("n1"), manifests.node("n2"), web]) as world:
        for pod in world.pods(app="web"):
            world.patch(kinds.PODS, pod["metadata"]["name"], {"spec": {"nodeName": "n1"}})
        world.settle()
        assert ready(world) == replicas
        began = world.machine.now
        outcome = run(world, Input(("n1",), choices=DrainPolicy(method=method)))
        found = next(result.data["findings"] for call, result in outcome.calls if call == "plan")
        (told,) = [one for one in found if one["code"] == "unknown_scheduler"]
        assert (told["severity"], told["object"]) == ("warning", "Scheduler mine")
        assert "schedulerName: mine" in outcome.failed["n1"]
        assert (ready(world), step(world)) == (replicas - lost, "")
        assert world.machine.now - began < 360, "a minute of it for the replacement"


def test_too_little_room_that_is_known_is_a_blocker_before_the_first_write() -> None:
    with crowded(4, room=1) as world:
        outcome = run(world, Input(("n1",)))
        assert (len(outcome.wrong), evictions(world)) == (1, 0)
        assert not any(sent.request.writes for sent in world.log)


def test_what_a_node_autoscaler_adds_is_waited_for() -> None:
    given = Input(("n1",), choices=DrainPolicy(node_autoscaler=True))
    with crowded(4, room=1) as world:
        world.machine.after(90.0, lambda: world.apply(manifests.node("n9")), "add a node")
        outcome = run(world, given)
        assert outcome.ok, (outcome.failed, outcome.wrong)
        assert "pending" not in drained(outcome)
        assert ready(world) == 4


@pytest.mark.parametrize("of_owner", [False, True])
def test_the_second_pod_of_a_surge_waits_for_what_a_node_autoscaler_adds(of_owner: bool) -> None:
    """Consent to an interruption does not hasten one."""
    given = Input(("n1",), choices=DrainPolicy(node_autoscaler=True))
    with crowded(1, room=0) as world:
        consent = {"metadata": {"annotations": {names.ALLOW_INTERRUPTION: str(of_owner).lower()}}}
        world.patch(kinds.DEPLOYMENTS, "web", consent)
        world.machine.after(90.0, lambda: world.apply(manifests.node("n9")), "add a node")
        outcome = run(world, given)
        assert outcome.ok, (outcome.failed, outcome.wrong)
        assert (evictions(world), ready(world), traces(world)) == (0, 1, [])


@pytest.mark.parametrize("consent", [False, True])
def test_a_second_pod_for_which_no_node_is_added_is_given_up_at_the_limit(consent: bool) -> None:
    choices = DrainPolicy(node_autoscaler=True, allow_interruption=consent)
    with crowded(1, room=0) as world:
        outcome = run(world, Input(("n1",), choices=choices, timeout=120.0))
        (raised,) = [one for step in outcome.steps("protect") for one in step["workloads"]]
        assert raised["outcome"] == ("interruption_allowed" if consent else "timed_out")
        assert "0/2 nodes are available" in raised["message"]
        assert (evictions(world), traces(world)) == (consent, [])


def test_a_lonely_pod_that_may_be_interrupted_waits_for_its_node() -> None:
    alone = manifests.stateful_set("alone", 1, nodeSelector={"kubernetes.io/hostname": "n1"})
    alone["metadata"]["annotations"] = {names.ALLOW_INTERRUPTION: "true"}
    with World([*map(manifests.node, NODES), alone]) as world:
        outcome = run(world, Input(("n1",)))
        assert outcome.ok, (outcome.failed, outcome.wrong)
        assert [one["ready"] for one in drained(outcome)["pending"]] == [0]
        assert world.get(kinds.STATEFUL_SETS, "alone")["status"]["readyReplicas"] == 1


# -- what waits for an earlier one of its StatefulSet -------------------------------------------------------


def behind(policy: str = "OrderedReady", least: int = 1) -> World:
    """The first pod of three is not Ready, and a budget lets two be missing; each has a node of its own."""
    stored = manifests.stateful_set("db", 3, {"podManagementPolicy": policy}, affinity=manifests.apart("db"))
    world = World([*map(manifests.node, (*NODES, "n4", "n5")), stored, manifests.budget("db", minAvailable=least)])
    world.settle()
    world.controller(Kubelets).set_ready((manifests.SHOP, "db-0"), False)
    world.settle()
    return world


def node_of(world: World, name: str) -> str:
    return str(world.get(kinds.PODS, name)["spec"]["nodeName"])


def of_order(outcome: Outcome) -> list[tuple[str, str, str]]:
    found = next(result.data["findings"] for call, result in outcome.calls if call == "plan")
    return [(x["code"], x["severity"], x["object"]) for x in found if x["code"] == "successor_waits"]


def test_a_pod_behind_one_that_is_not_ready_is_not_waited_for() -> None:
    with behind() as world:
        home = node_of(world, "db-2")
        outcome = run(world, Input((home,), timeout=120.0))
        assert outcome.ok, (outcome.failed, outcome.wrong)
        assert of_order(outcome) == [("successor_waits", "warning", "StatefulSet shop/db")]
        (short,) = drained(outcome, home)["pending"]
        assert (short["ready"], short["wanted"], "db-0" in short["reason"]) == (1, 2, True)
        told = next(step["findings"] for step in outcome.steps("migrate"))
        assert [one["code"] for one in told] == ["successor_waits"]
        assert kept(outcome) == [], "its node is not what it waits for"
        (line,) = [event.message for event in world.process("me").told if event.what == "drained"]
        assert line.endswith("until Pod shop/db-0 is Ready")
        world.controller(Kubelets).set_ready((manifests.SHOP, "db-0"), True)
        world.settle()
        assert world.get(kinds.STATEFUL_SETS, "db")["status"]["readyReplicas"] == 3


def test_pods_that_are_created_at_once_are_waited_for() -> None:
    with behind("Parallel") as world:
        home = node_of(world, "db-2")
        outcome = run(world, Input((home,), timeout=120.0))
        assert (outcome.ok, of_order(outcome), "pending" in drained(outcome, home)) == (True, [], False)


def test_that_nothing_would_be_left_behind_one_that_is_not_ready_is_a_blocker() -> None:
    with behind(least=0) as world:
        world.patch(kinds.STATEFUL_SETS, "db", {"spec": {"replicas": 2}})
        world.delete(kinds.PODS, "db-2", manifests.SHOP)
        world.settle()
        outcome = run(world, Input((node_of(world, "db-1"),), timeout=120.0))
        assert of_order(outcome) == [("successor_waits", "blocker", "StatefulSet shop/db")]
        assert (len(outcome.wrong), evictions(world)) == (1, 0)


def test_what_can_never_leave_behind_one_that_is_not_ready_gives_its_node_back() -> None:
    """The earlier pod breaks once the drain has begun, and the budget keeps the last one that serves."""
    with World(
        [manifests.node("n1"), manifests.stateful_set("db", 3), manifests.budget("db", minAvailable=1)]
    ) as world:
        world.apply(manifests.node("n2"))
        world.patch(kinds.NODES, "n1", {"spec": {"unschedulable": True}})
        world.delete(kinds.PODS, "db-0", manifests.SHOP)
        world.settle()
        world.patch(kinds.NODES, "n1", {"spec": {"unschedulable": None}})
        assert [node_of(world, f"db-{number}") for number in range(3)] == ["n2", "n1", "n1"]
        world.process("me").faults.overtaken(
            lambda request: request.resource == "pods/eviction",
            lambda: world.controller(Kubelets).set_ready((manifests.SHOP, "db-0"), False),
        )
        outcome = run(world, Input(("n1",)))
        assert (drained(outcome)["outcome"], evictions(world), step(world)) == ("no_room", 1, "")
        assert "Repair Pod shop/db-0" in outcome.failed["n1"]


def test_an_earlier_pod_that_leaves_as_well_holds_nothing_back() -> None:
    with behind() as world:
        homes = (node_of(world, "db-0"), node_of(world, "db-2"))
        assert of_order(run(world, Input(homes, serial=2, timeout=120.0))) == []


# -- what comes late, or never ---------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.5, 2.0, 6.0, 14.0])
def test_the_same_command_waits_for_what_a_killed_one_had_to_wait_for(seconds: float) -> None:
    """Its pods have left the node, so that nothing there tells of them any more."""
    seen, work = seen_by_tasks()
    with World([manifests.node("n1"), manifests.deployment("web", 2)]) as world:
        world.apply({**manifests.node("n2"), "metadata": {"name": "n2", "annotations": {START: "60s"}}})
        world.settle()
        me = world.process("me")
        me.spawn(lambda: maintain(me, Input(("n1",), work=work)))
        world.machine.run_until(lambda: evictions(world) >= 2 and not world.pods(on="n1"), within=300)
        world.machine.run_for(seconds)
        me.process.kill()
        world.machine.run_for(20.0)
        outcome = run(world, Input(("n1",), work=work))
        assert (outcome.failed, outcome.wrong) == ({}, [])
        assert seen == [2]


@pytest.mark.parametrize("never", ["denied", "not ready"])
def test_a_replacement_that_never_serves_is_waited_for_until_the_limit(never: str) -> None:
    with crowded(2, room=10) as world:
        if never == "denied":
            world.patch(kinds.NAMESPACES, "shop", {"metadata": {"annotations": {DENIES: "web"}}})
        else:
            world.patch(kinds.NODES, "n2", {"metadata": {"annotations": {READY: "never"}}})
        outcome = run(world, Input(("n1",), timeout=60.0))
        assert (drained(outcome)["outcome"], evictions(world)) == ("timed_out", 1)
        assert [text for text in kept(outcome) if "1 of 2 ready pods" in text]
        assert step(world) == ""


def test_volumes_that_a_killed_run_had_to_wait_for_are_waited_for() -> None:
    mounts = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    mode = {"accessModes": ["ReadWriteMany"]}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {**mode, "volumeName": "pv-1"}}
    meta = {"name": "data", "namespace": "shop"}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-1"}, "spec": mode}
    spec = {"attacher": "csi.example", "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}}
    attached = {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "a"}, "spec": spec}
    with World([manifests.node("n1"), manifests.deployment("web", 2, volumes=mounts)]) as world:
        world.apply({**claim, "metadata": meta}, volume, attached, manifests.node("n2"))
        me = world.process("me")
        me.spawn(lambda: maintain(me, Input(("n1",))))
        world.machine.run_until(lambda: evictions(world) >= 2 and ready(world) == 2 and not world.pods(on="n1"))
        world.machine.run_for(15.0)
        me.process.kill()
        world.machine.run_for(20.0)
        again = world.process("again")
        task = again.spawn(lambda: maintain(again, Input(("n1",))))
        world.machine.run_for(120.0)
        assert step(world) == "cordoned"
        world.delete(kinds.VOLUME_ATTACHMENTS, "a")
        world.machine.run_until(lambda: not task.alive)
        assert task.value().ok


# -- giving back -----------------------------------------------------------------------------------------


def gives_back(request: Request) -> bool:
    annotations = dict((request.body or {}).get("metadata", {}).get("annotations") or {})
    return request.resource == kinds.NODES.resource and '"step":"back"' in (annotations.get(names.RECORD) or "")


@pytest.mark.parametrize("then", ["the same command", "recover", "recover by name", "another maintenance"])
def test_who_goes_on_after_a_kill_waits_for_what_runs_again(then: str) -> None:
    with spread() as world:
        world.patch(kinds.NODES, "n1", {"metadata": {"annotations": {START: "70s"}}})
        world.process("me").faults.when(gives_back, Fault("killed after"))
        assert run(world, Input(("n1",))).wrong == ["killed"]
        assert (step(world), world.get(kinds.NODES, "n1")["spec"].get("unschedulable")) == ("back", None)
        if then.startswith("recover"):
            ann = world.process("ann")
            run_id = node_records.record_of(objects.Node.of(world.get(kinds.NODES, "n1")))
            assert run_id is not None
            wanted = run_id.run if "name" in then else ""
            world.machine.run_for(20.0)
            wrong = ann.spawn(lambda: recover(ann, wanted))
            world.machine.run_until(lambda: not wrong.alive, within=600)
            assert wrong.value() == []
        else:
            world.machine.run_for(20.0)
            given = Input(("n1",)) if then == "the same command" else Input(("n1", "n2"))
            outcome = run(world, given)
            assert (outcome.failed, outcome.wrong) == ({}, [])
        assert ready(world) == 3
        assert (step(world), world.get(kinds.NODES, "n1")["spec"].get("unschedulable")) == ("", None)


@pytest.mark.parametrize("what", ["frozen", "lost", "in doubt", "conflict", "late"])
def test_a_node_is_not_forgotten_by_the_second_try_of_its_return(what: t.Any) -> None:
    with spread() as world:
        world.process("me").faults.when(gives_back, Fault(what, 90.0))
        outcome = run(world, Input(("n1",)))
        assert outcome.ok, (outcome.failed, outcome.wrong)
        assert (step(world), ready(world), kept(outcome)) == ("", 3, [])


def test_what_does_not_run_again_in_time_is_said() -> None:
    with spread() as world:
        world.patch(kinds.NODES, "n1", {"metadata": {"annotations": {START: "400s"}}})
        outcome = run(world, Input(("n1",)))
        assert outcome.ok
        assert ["Deployment shop/web has 2 of 3 ready pods" in text for text in kept(outcome)] == [True]
        assert (step(world), ready(world)) == ("", 2)


def test_nodes_that_stay_out_are_waited_for_when_they_are_released() -> None:
    with spread() as world:
        given = Input(("n1",), evacuates=True)
        assert run(world, given).ok
        assert (step(world), ready(world)) == ("parked", 2)
        assert run(world, replace(given, evacuates=False)).ok
        assert (step(world), ready(world)) == ("", 3)
