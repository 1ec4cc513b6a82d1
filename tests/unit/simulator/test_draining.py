# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What others do while nodes are emptied: to the nodes, to guards and owners, to clocks and locks."""

from __future__ import annotations

import typing as t
from collections.abc import Callable
from functools import partial

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_drain import DrainOptions, drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_gates import ReadyOptions, check_ready
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning.run_plan import PlanOptions, make_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, rivals
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.nodes import START, STOP
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

SLOW = {START: "4s", STOP: "1s"}
RUN = "r1/first"


def world_of(*objects: Raw, leaving: tuple[str, ...] = ("n1",), more: tuple[str, ...] = ("n8", "n9")) -> World:
    """All pods are on the leaving nodes, and there is room for them on others."""
    world = World([*(manifests.node(name, pods=60) for name in leaving), *objects])
    world.apply(*(manifests.node(name, pods=60) for name in more))
    return world


def begun(world: World, *nodes: str, **options: t.Any) -> tuple[Actor, Task]:
    """A process that has taken the nodes out and protected them, and is about to drain them."""
    me = world.process("me")
    wanted = nodes or ("n1",)
    assert not me.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", wanted)), RUN).failed
    assert not me.run(lambda ctx: guard(ctx, GuardOptions("present", wanted)), RUN).failed
    return me, draining(me, *wanted, **options)


def draining(me: Actor, *nodes: str, **options: t.Any) -> Task:
    given = {"choices": DrainPolicy(), "timeout": None, **options}
    return me.call(lambda ctx: drain(ctx, DrainOptions(nodes, **given)), RUN)


def ended(world: World, task: Task, within: float = 600.0) -> Result:
    """The drain's result; it has to come."""
    world.machine.run_until(lambda: not task.alive, within=within)
    assert not task.alive, "the call does not end"
    return t.cast("Result", task.value())


def evictions(world: World) -> list[tuple[float, str]]:
    """When each accepted eviction was carried out, and of which pod."""
    found = [sent for sent in world.log if sent.request.resource == "pods/eviction" and sent.status == 201]
    return [(sent.arrived, sent.request.name) for sent in found]


def said(result: Result, node: str = "n1") -> tuple[str, str]:
    (shown,) = [shown for shown in result.data["nodes"] if shown["name"] == node]
    return shown["outcome"], shown["message"]


def until_evicted(world: World, count: int) -> None:
    world.machine.run_until(lambda: len(evictions(world)) >= count, within=120)
    assert len(evictions(world)) >= count


# -- the node ------------------------------------------------------------------------------------------


def registered_again(world: World) -> None:
    world.delete(kinds.NODES, "n1")
    world.apply(manifests.node("n1", pods=60))


def untainted(world: World) -> None:
    world.patch(kinds.NODES, "n1", {"spec": {"taints": None}})


def given_back(world: World) -> None:
    world.patch(kinds.NODES, "n1", {"metadata": {"annotations": {names.RECORD: None}}, "spec": {"taints": None}})
    world.cordon("n1", False)


def test_a_node_that_was_given_back_before_it_was_locked_is_left_alone_without_a_lock() -> None:
    with world_of(manifests.deployment("web", 4)) as world:
        me, task = begun(world)
        locking = kinds.LEASES.resource
        me.faults.overtaken(lambda r: r.writes and r.resource == locking, lambda: given_back(world))
        result = ended(world, task)
        assert (said(result)[0], evictions(world)) == ("adopted_by", [])
        assert world.store.of(locking) == {}


@pytest.mark.parametrize(
    ("what", "outcome", "failed"),
    [
        pytest.param(lambda world: world.cordon("n1", False), "uncordoned", True, id="uncordoned"),
        pytest.param(untainted, "untainted", True, id="untainted"),
        pytest.param(registered_again, "replaced", True, id="registered again"),
        pytest.param(lambda world: world.delete(kinds.NODES, "n1"), "gone", False, id="deleted"),
    ],
)
def test_a_node_that_is_no_longer_out_is_left_alone_at_once(
    what: Callable[[World], None], outcome: str, failed: bool
) -> None:
    with world_of(manifests.deployment("web", 12, annotations=SLOW)) as world:
        _me, task = begun(world)
        until_evicted(world, 2)
        what(world)
        before, at = len(evictions(world)), world.machine.now
        result = ended(world, task, within=60)
        found, message = said(result)
        assert found == outcome
        assert result.failed == failed
        assert message.startswith("Node n1: ")
        late = [(when - at, name) for when, name in evictions(world)[before:]]
        assert all(when < 0.5 for when, _name in late), "what was on its way, and nothing more"
        assert len(late) <= 1


def test_what_a_person_did_to_the_node_stays_when_it_is_given_back() -> None:
    with world_of(manifests.deployment("web", 6, annotations=SLOW)) as world:
        me, task = begun(world)
        until_evicted(world, 1)
        world.cordon("n1", False)
        ended(world, task)
        back = me.run(lambda ctx: cordon(ctx, CordonOptions("uncordoned", ("n1",))), RUN)
        assert not back.failed
        node = world.get(kinds.NODES, "n1")
        assert not node["spec"].get("unschedulable")
        assert names.RECORD not in (node["metadata"].get("annotations") or {})


def test_the_other_nodes_go_on() -> None:
    with world_of(manifests.deployment("web", 12, annotations=SLOW), leaving=("n1", "n2")) as world:
        _me, task = begun(world, "n1", "n2")
        until_evicted(world, 1)
        world.cordon("n1", False)
        result = ended(world, task)
        assert (said(result)[0], said(result, "n2")[0]) == ("uncordoned", "drained")
        assert world.pods(on="n2") == []


def test_a_lock_that_was_taken_over_ends_its_node_alone() -> None:
    with world_of(manifests.deployment("web", 12, annotations=SLOW), leaving=("n1", "n2")) as world:
        _me, task = begun(world, "n1", "n2")
        until_evicted(world, 1)
        lease = names.node_lease_name("n1")
        world.patch(kinds.LEASES, lease, {"spec": {"holderIdentity": "other/x"}}, namespace=names.NAMESPACE)
        result = ended(world, task)
        assert said(result)[0] == "adopted_by"
        assert "other" in said(result)[1]
        assert said(result, "n2")[0] == "drained"


def test_a_record_that_nobody_can_read_fails_its_node_alone() -> None:
    with world_of(manifests.deployment("web", 4, annotations=SLOW), leaving=("n1", "n2")) as world:
        me = world.process("me")
        assert not me.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", ("n1", "n2"))), RUN).failed
        assert not me.run(lambda ctx: guard(ctx, GuardOptions("present", ("n1", "n2"))), RUN).failed
        world.patch(kinds.NODES, "n1", {"metadata": {"annotations": {names.RECORD: "{"}}})
        result = ended(world, draining(me, "n1", "n2"))
        assert (said(result)[0], said(result, "n2")[0]) == ("failed", "drained")
        assert names.RECORD in said(result)[1]


# -- what serves ---------------------------------------------------------------------------------------


def test_a_guard_that_goes_in_the_middle_changes_nothing() -> None:
    with world_of(manifests.deployment("web", 5, annotations=SLOW), manifests.service("web")) as world:
        least = [5]
        world.machine.on_step.append(lambda: least.append(world.serving("web")))
        _me, task = begun(world)
        until_evicted(world, 2)
        for (namespace, name), _raw in list(world.store.of(kinds.BUDGETS.resource).items()):
            world.delete(kinds.BUDGETS, name, namespace)
        assert said(ended(world, task))[0] == "drained"
        assert min(least) == 4


# -- what is wanted ------------------------------------------------------------------------------------


def attachments(world: World) -> int:
    """How often somebody asked which volumes are attached."""
    return sum(sent.request.resource == kinds.VOLUME_ATTACHMENTS.resource for sent in world.log)


@pytest.mark.parametrize(("wait_for", "ready"), [(("gone",), 5), (("gone", "replacement"), 6)])
def test_the_last_replacement_is_waited_for_where_that_is_wanted(wait_for: tuple[str, ...], ready: int) -> None:
    with world_of(manifests.deployment("web", 6, annotations=SLOW)) as world:
        _me, task = begun(world, wait_for=wait_for)
        assert said(ended(world, task))[0] == "drained"
        assert world.get(kinds.DEPLOYMENTS, "web")["status"]["readyReplicas"] == ready
        assert attachments(world) == 0, "nobody asked for volumes"


def test_no_volumes_are_looked_for_where_no_pod_has_one() -> None:
    with world_of(manifests.deployment("web", 2, annotations=SLOW)) as world:
        _me, task = begun(world)
        assert said(ended(world, task))[0] == "drained"
        assert attachments(world) == 0


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(lambda world: world.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 2}}), id="scaled down"),
        pytest.param(
            lambda world: world.delete(kinds.DEPLOYMENTS, "web", propagationPolicy="Background"), id="deleted"
        ),
    ],
)
def test_no_replacement_is_waited_for_that_nobody_wants(what: Callable[[World], object]) -> None:
    with world_of(manifests.deployment("web", 6, annotations=SLOW)) as world:
        _me, task = begun(world)
        until_evicted(world, 2)
        what(world)
        assert said(ended(world, task, within=300))[0] == "drained"


def test_the_last_pod_of_what_was_scaled_down_meanwhile_stays() -> None:
    with world_of(manifests.deployment("web", 2, annotations=SLOW), manifests.service("web")) as world:
        _me, task = begun(world)
        served: list[int] = []
        world.on_event.append(lambda event: served.append(world.serving("web")))
        until_evicted(world, 1)
        world.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 1}}, subresource="scale")
        outcome, message = said(ended(world, task))
        assert (outcome, min(served)) == ("failed", 1)
        assert "Deployment shop/web was scaled down to one meanwhile" in message
        assert "Run the same command again" in message


def test_an_owner_of_the_meantime_is_read() -> None:
    with world_of(manifests.deployment("web", 5, annotations=SLOW)) as world:
        _me, task = begun(world)
        until_evicted(world, 1)
        world.apply(manifests.daemon_set("agent", tolerations=[{"operator": "Exists"}]))
        result = ended(world, task)
        assert said(result)[0] == "drained"
        assert [pod["metadata"]["labels"]["app"] for pod in world.pods(on="n1")] == ["agent"]


def volume(name: str, claim: str, node: str) -> list[Raw]:
    """A claim that is bound to a volume, which is attached to the node."""
    space = {"name": manifests.SHOP, "namespace": manifests.SHOP}
    mode = {"accessModes": ["ReadWriteMany"]}
    ref = {"kind": "PersistentVolumeClaim", "namespace": manifests.SHOP, "name": claim}
    attached = {"attacher": "csi.example", "nodeName": node, "source": {"persistentVolumeName": name}}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**space, "name": claim},
            "spec": {**mode, "volumeName": name},
        },
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {**mode, "claimRef": ref}},
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": f"csi-{name}-{node}"},
            "spec": attached,
            "status": {"attached": True},
        },
    ]


@pytest.mark.parametrize("stays", [True, False])
def test_a_volume_is_not_waited_for_as_long_as_a_pod_that_stays_uses_it(stays: bool) -> None:
    mounts = [{"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}]
    own = {"volumes": mounts} if stays else {}
    objects = (manifests.daemon_set("agent", **own), manifests.deployment("web", 2, volumes=mounts, annotations=SLOW))
    with world_of(*volume("pv-1", "shared", "n1"), *objects) as world:
        _me, task = begun(world)
        world.machine.run_for(120.0)
        assert task.alive != stays
        world.delete(kinds.VOLUME_ATTACHMENTS, "csi-pv-1-n1")
        assert said(ended(world, task))[0] == "drained"


# -- the gates -----------------------------------------------------------------------------------------


def waiting_at_the_gates(world: World, *nodes: str) -> tuple[Actor, Task]:
    """A run whose node does not become Ready again."""
    me = world.process("me")
    for step in (CordonOptions("cordoned", nodes), CordonOptions("returning", nodes)):
        assert not me.run(partial(cordon, options=step), RUN).failed
    world.set_node_ready(nodes[0], "False")
    options = ReadyOptions(nodes=nodes, gates=("ready",), wait=True, stable=0.0, timeout=300.0)
    return me, me.call(lambda ctx: check_ready(ctx, options), RUN)


def heartbeat(world: World) -> Raw:
    return world.get(kinds.LEASES, names.heartbeat_name(RUN), names.NAMESPACE)


def test_who_waits_at_the_gates_is_alive() -> None:
    with world_of() as world:
        _me, task = waiting_at_the_gates(world, "n1")
        for _minute in range(3):
            before = heartbeat(world)["metadata"]["resourceVersion"]
            world.machine.run_for(20.0)
            assert heartbeat(world)["metadata"]["resourceVersion"] != before
        world.set_node_ready("n1")
        assert not ended(world, task).failed
        assert heartbeat(world)["spec"]["leaseDurationSeconds"] == 60


def test_a_node_that_was_taken_over_fails_its_gates_alone() -> None:
    with world_of(leaving=("n1", "n2")) as world:
        _me, task = waiting_at_the_gates(world, "n1", "n2")
        world.machine.run_for(10.0)
        lease = names.node_lease_name("n1")
        world.patch(kinds.LEASES, lease, {"spec": {"holderIdentity": "other/x"}}, namespace=names.NAMESPACE)
        before = world.machine.now
        result = ended(world, task)
        assert world.machine.now - before < 30, "it is not waited for"
        assert (said(result)[0], said(result, "n2")[0]) == ("failed", "passed")
        assert [found["code"] for found in result.data["findings"]] == ["adopted_by"]


# -- time ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("skew", [-600.0, 0.0, 600.0])
def test_a_pod_that_tolerates_all_is_moved_once_whatever_our_clock_says(skew: float) -> None:
    stubborn = manifests.deployment(
        "stubborn",
        2,
        annotations=SLOW,
        tolerations=[{"operator": "Exists"}],
        nodeSelector={"kubernetes.io/hostname": "n1"},
    )
    with world_of(stubborn) as world:
        world.process("me", skew=skew)
        _me, task = begun(world)
        assert said(ended(world, task, within=120))[0] == "drained"
        assert len(evictions(world)) == 2
        again = draining(world.process("me"), "n1")
        assert said(ended(world, again))[0] in ("drained", "already_drained")
        assert len(evictions(world)) == 2


def test_the_timeout_counts_from_the_beginning_of_the_call() -> None:
    """Also for what is done with fenced nodes before the others come to their turn."""
    stuck = manifests.deployment("stuck", 2, annotations={STOP: "90s"}, terminationGracePeriodSeconds=120)
    with world_of(stuck, leaving=("n1", "n2")) as world:
        world.set_node_ready("n2", "Unknown")
        began = world.machine.now
        _me, task = begun(world, "n1", "n2", choices=DrainPolicy(fenced=("n2",), force=True), timeout=40.0)
        before = world.machine.now
        ended(world, task)
        assert world.machine.now - before < 45, (began, before)


def test_what_was_decided_before_a_freeze_is_not_sent_after_it() -> None:
    with world_of(manifests.deployment("web", 12, annotations=SLOW)) as world:
        me, task = begun(world)
        until_evicted(world, 2)
        me.process.freeze(30.0)
        frozen_at = world.machine.now
        world.machine.after(20.0, lambda: rivals.take_over(world, "n1", RUN), "take over")
        assert said(ended(world, task))[0] == "adopted_by"
        assert [when for when, _name in evictions(world) if when > frozen_at + 5] == []


@pytest.mark.parametrize("skew", [-3600.0, 3600.0])
def test_the_plan_knows_who_is_alive_whatever_the_holders_clock_says(skew: float) -> None:
    with world_of(manifests.deployment("web", 12, annotations=SLOW)) as world:
        world.process("me", skew=skew)
        me, _task = begun(world)
        until_evicted(world, 2)
        choices = PlanOptions(nodes=("n1",), choices=DrainPolicy())

        def codes(name: str) -> set[str]:
            found = world.process(name).run(lambda ctx: make_plan(ctx, choices)).data["findings"]
            return {finding["code"] for finding in found}

        assert "held" in codes("ann")
        me.process.kill()
        world.machine.run_for(90)
        assert codes("bob") & {"held", "abandoned"} == {"abandoned"}


def failed(world: World, name: str) -> None:
    """The kubelet ends the pod for good, as it does under pressure."""
    pod = world.get(kinds.PODS, name)
    status = {**pod["status"], "phase": "Failed", "reason": "Evicted", "conditions": []}
    world.objects.replace(kinds.PODS, pod, {**pod, "status": status}, "status")


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize(("replicas", "method"), [(1, "surge"), (3, "surge"), (1, "replace"), (3, "replace")])
def test_a_pod_that_fails_on_its_node_meanwhile_goes_like_one_that_has_finished(
    replicas: int, method: str, seconds: float
) -> None:
    with world_of(manifests.deployment("web", replicas, annotations=SLOW)) as world:
        leaving = [pod["metadata"]["name"] for pod in world.pods(on="n1")]
        _me, task = begun(world, choices=DrainPolicy(method=method))
        world.machine.run_for(seconds)
        if left := [name for name in leaving if world.find(kinds.PODS, name)]:
            failed(world, left[-1])
        assert said(ended(world, task))[0] == "drained"
        assert world.pods(on="n1") == []
        assert world.get(kinds.DEPLOYMENTS, "web")["spec"]["replicas"] == replicas


def test_a_pod_that_fails_as_its_surge_ends_goes_as_well() -> None:
    with world_of(manifests.deployment("web", 1, annotations=SLOW)) as world:
        (leaving,) = (pod["metadata"]["name"] for pod in world.pods(on="n1"))
        _me, task = begun(world)

        def lowered(event: Event) -> None:
            if event.resource == kinds.DEPLOYMENTS.resource and event.raw["spec"]["replicas"] == 1:
                world.on_event.remove(lowered)
                failed(world, leaving)

        world.on_event.append(lowered)
        assert said(ended(world, task))[0] == "drained"
        assert world.pods(on="n1") == []
