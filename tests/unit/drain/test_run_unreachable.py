# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a drain gives a lost node up, and what becomes of the evacuation of a fenced one.

Of the node in question there are pods, a lease of its kubelet and attached volumes; nothing works on it.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, node_taints
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node, Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted, Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_watch_cache import WatchCache
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import unreachable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_node_drain import NodeDrain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_unreachable import (
    ALL_ENDING_SECONDS,
    LISTEN_SECONDS,
    NO_PROGRESS_SECONDS,
    STALLED_SECONDS,
    Evacuation,
    KubeletWatch,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.run_pod_drain import PodDrain, State
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record, record_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, nodes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

VOLUME, OTHER = "pv-data", "pv-of-a-pod-that-stays"
FOREVER = float("inf")


@pytest.fixture
def world() -> t.Iterator[World]:
    """A node in maintenance whose kubelet is gone, and whose pods nobody but a test deletes."""
    with World([manifests.node("n1"), *_around()]) as made:
        made.cordon("n1")
        made.set_node_ready("n1", "Unknown")
        record = Record(
            "r1", "x", "me", "", "2026-01-01T00:00:00Z", "cordoned", "", "ns/node-n1", {"unschedulable": False}
        )
        record = replace(record, node_uid=made.get(kinds.NODES, "n1")["metadata"]["uid"])
        made.patch(kinds.NODES, "n1", {"metadata": {"annotations": {names.RECORD: record.dump()}}})
        made.controller(nodes.TaintEvictions).stop()
        made.machine.run_for(1.0)
        yield made


def _around() -> list[Raw]:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": manifests.SHOP},
        "spec": {"volumeName": VOLUME, "accessModes": ["ReadWriteOnce"]},
    }
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "n1", "namespace": unreachable.LEASES},
        "spec": {"holderIdentity": "n1", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40},
    }
    return [claim, lease]


def attach(world: World, volume: str) -> None:
    spec = {"attacher": "csi.example", "nodeName": "n1", "source": {"persistentVolumeName": volume}}
    meta = {"name": f"on-n1-{volume}"}
    world.apply({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": meta, "spec": spec})


def detach(world: World, volume: str) -> None:
    world.delete(kinds.VOLUME_ATTACHMENTS, f"on-n1-{volume}")


def clear(world: World) -> None:
    """The pods go, as the garbage collector lets them."""
    for raw in world.pods(on="n1"):
        world.delete(kinds.PODS, raw["metadata"]["name"], gracePeriodSeconds=0)


def taints(world: World) -> list[str]:
    """Of those that no controller of the cluster sets."""
    found = world.get(kinds.NODES, "n1")["spec"].get("taints") or []
    return [x["key"] for x in found if x["key"] in (node_taints.OUT_OF_SERVICE["key"], names.TAINT_KEY)]


def record(world: World) -> dict[str, t.Any]:
    text = world.get(kinds.NODES, "n1")["metadata"]["annotations"][names.RECORD]
    return t.cast("dict[str, t.Any]", json.loads(text))


def after(world: World, seconds: float, what: Callable[[], t.Any]) -> None:
    world.machine.after(seconds, what, "happens")


def node_drain(world: World, *states: State, grace: int = 30) -> NodeDrain:
    """The node with a pod in each state."""
    node = Node.of(world.get(kinds.NODES, "n1"))
    made = NodeDrain("n1", node, record_of(node))
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    for number, state in enumerate(states):
        spec = manifests.template("web", nodeName="n1", volumes=volumes, terminationGracePeriodSeconds=grace)["spec"]
        meta = {"name": f"p{number}", "namespace": manifests.SHOP}
        world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        seen = Pod.of(world.get(kinds.PODS, f"p{number}"))
        move = PodDrain(PodPlan(seen, "wait", unreachable.FENCED, "why", None), state, world.machine.now)
        move.left_at = world.machine.now if state == "leaving" else None
        made.moves[seen.uid] = move
    return made


def given_up_after(
    world: World, here: NodeDrain, most: float = 200.0, *, hangs: bool = False
) -> tuple[float | None, str]:
    def watch(ctx: Context) -> tuple[float | None, str]:
        silence, began = KubeletWatch(ctx, {"n1": here}, lambda: None), ctx.clock.now()
        while ctx.clock.now() - began < most:
            raw = world.get(kinds.NODES, "n1")
            if not hangs and here.node and raw["metadata"]["resourceVersion"] != here.node.resource_version:
                here.node = Node.of(raw)
            if why := silence.given_up(here):
                return ctx.clock.now() - began, why
            ctx.clock.sleep(0.5)
        return None, ""

    return world.process("me").run(watch)


@pytest.mark.parametrize(
    ("states", "seconds"),
    [
        (("leaving", "leaving"), ALL_ENDING_SECONDS),
        (("leaving", "waiting"), STALLED_SECONDS),
        (("waiting",), STALLED_SECONDS),
        (("gone",), None),
        (("asked",), None),
    ],
)
def test_a_lost_node_is_given_up(world: World, states: tuple[State, ...], seconds: float | None) -> None:
    passed, why = given_up_after(world, node_drain(world, *states))
    assert passed == seconds
    assert ("-e maintain_fenced=n1" in why) is (seconds is not None)


@pytest.mark.parametrize(("hangs", "seconds"), [(False, 12.0), (True, 38.5)])
def test_a_node_that_dies_in_the_middle_is_noticed_by_the_watch_or_by_what_is_overdue(
    world: World, hangs: bool, seconds: float
) -> None:
    world.set_node_ready("n1")
    here = node_drain(world, "leaving", grace=30)
    after(world, 10, lambda: world.set_node_ready("n1", "Unknown"))
    passed, why = given_up_after(world, here, hangs=hangs)
    assert passed == seconds
    assert "Pod shop/p0 is terminating" in why


@pytest.mark.parametrize("ready", ["True", "False"])
def test_a_node_that_answers_is_waited_for(world: World, ready: str) -> None:
    world.set_node_ready("n1", ready)
    assert given_up_after(world, node_drain(world, "leaving"))[0] is None


def test_a_node_that_comes_back_in_time_is_waited_for(world: World) -> None:
    here = node_drain(world, "waiting")
    after(world, STALLED_SECONDS - 3, lambda: world.set_node_ready("n1"))
    assert given_up_after(world, here)[0] is None


def evacuated(world: World, here: NodeDrain, timeout: float = FOREVER) -> list[NodeDrain]:
    def work(ctx: Context) -> list[NodeDrain]:
        with WatchCache(ctx, ("pods",)) as live:
            live.fetch(("claims",))
            return Evacuation(ctx, live, lambda node: None, ctx.clock.now() + timeout).work([here])

    return world.process("me").run(work)


def test_pods_and_volumes_are_waited_for(world: World) -> None:
    attach(world, VOLUME)
    attach(world, OTHER)
    here, began = node_drain(world, "waiting"), world.machine.now
    after(world, LISTEN_SECONDS + 20, lambda: clear(world))
    after(world, LISTEN_SECONDS + 40, lambda: detach(world, VOLUME))
    assert evacuated(world, here) == [here]
    assert world.machine.now - began >= LISTEN_SECONDS + 40
    assert [move.outcome for move in here.moves.values()] == ["let_go"]
    assert node_taints.OUT_OF_SERVICE["key"] in taints(world)
    assert record(world)["added"] == [node_taints.OUT_OF_SERVICE]


def renew(world: World) -> None:
    body = {"spec": {"renewTime": "2026-01-01T00:00:10.000000Z"}}
    world.patch(kinds.LEASES, "n1", body, unreachable.LEASES)


@pytest.mark.parametrize(
    ("what", "outcome"),
    [
        (renew, "not_dead"),
        (lambda w: w.set_node_ready("n1"), "not_dead"),
        (lambda w: w.delete(kinds.NODES, "n1"), "gone"),
    ],
)
def test_a_sign_of_life_while_we_listen_ends_it(world: World, what: Callable[[World], None], outcome: str) -> None:
    here = node_drain(world, "waiting")
    after(world, 6, lambda: what(world))
    assert evacuated(world, here) == []
    assert here.outcome == outcome
    assert world.find(kinds.NODES, "n1") is None or taints(world) == []


def test_a_living_node_is_refused_at_once(world: World) -> None:
    world.set_node_ready("n1")
    here, began = node_drain(world, "waiting"), world.machine.now
    assert evacuated(world, here) == []
    assert (here.outcome, world.machine.now - began <= 0.5, taints(world)) == ("not_dead", True, [])


def test_the_taint_is_set_on_what_the_node_is_now(world: World) -> None:
    def writes_node(request: Request) -> bool:
        return (request.method, request.resource) == ("PATCH", "nodes")

    theirs: list[str] = []

    def write(label: str) -> None:
        world.patch(kinds.NODES, "n1", {"metadata": {"labels": {label: "theirs"}}})
        theirs.append(label)

    for label in ("a", "b"):
        world.process("me").faults.overtaken(writes_node, partial(write, label))
    here = node_drain(world, "waiting")
    after(world, LISTEN_SECONDS + 5, lambda: clear(world))
    assert evacuated(world, here) == [here]
    assert theirs == ["a", "b"]
    assert node_taints.OUT_OF_SERVICE["key"] in taints(world)


def register_again(world: World) -> None:
    """Another node of that name, cordoned and with the record that somebody copied."""
    known = world.get(kinds.NODES, "n1")
    world.delete(kinds.NODES, "n1")
    world.apply(known)


@pytest.mark.parametrize(
    ("what", "outcome"),
    [
        pytest.param(lambda w: w.cordon("n1", False), "uncordoned", id="uncordoned"),
        pytest.param(register_again, "replaced", id="registered again"),
    ],
)
def test_an_evacuation_ends_when_the_node_is_no_longer_out(
    world: World, what: Callable[[World], None], outcome: str
) -> None:
    here, began = node_drain(world, "waiting"), world.machine.now
    after(world, LISTEN_SECONDS + 10, lambda: what(world))
    assert evacuated(world, here) == []
    assert here.outcome == outcome
    assert world.machine.now - began < LISTEN_SECONDS + 15


def test_a_node_that_another_run_took_over_is_left_to_it(world: World) -> None:
    here = node_drain(world, "waiting")
    assert here.record
    theirs = replace(here.record, nonce="y").dump()
    world.patch(kinds.NODES, "n1", {"metadata": {"annotations": {names.RECORD: theirs}}})
    assert evacuated(world, here) == []
    assert (here.outcome, taints(world)) == ("adopted_by", [])


def test_the_return_of_the_kubelet_lifts_the_taint(world: World) -> None:
    here = node_drain(world, "waiting")
    after(world, LISTEN_SECONDS + 10, lambda: world.set_node_ready("n1"))
    assert evacuated(world, here) == []
    assert (here.outcome, taints(world)) == ("came_back", [])
    assert record(world)["added"] == []


@pytest.mark.parametrize(("timeout", "seconds"), [(FOREVER, NO_PROGRESS_SECONDS), (50.0, 50.0)])
def test_what_never_goes_is_not_waited_for_for_ever(world: World, timeout: float, seconds: float) -> None:
    here, began = node_drain(world, "waiting"), world.machine.now
    assert evacuated(world, here, timeout) == []
    assert here.outcome == "timed_out"
    assert world.machine.now - began < LISTEN_SECONDS + seconds + 5
    assert node_taints.OUT_OF_SERVICE["key"] in taints(world)


def test_check_mode_predicts_the_taint_and_writes_nothing(world: World) -> None:
    me, began = world.process("me"), world.machine.now

    def predicted(here: NodeDrain) -> Context:
        ctx = me.ctx(check=True)
        live = WatchCache(ctx, ())
        me.run(lambda _ctx: Evacuation(ctx, live, lambda node: None, FOREVER).predict([here]))
        return ctx

    here = node_drain(world, "waiting")
    assert [change.sentence for change in predicted(here).changes] == [
        "Set node.kubernetes.io/out-of-service=kubeops.node_maintenance:NoExecute on node n1"
    ]
    assert (here.open, taints(world), world.machine.now) == (True, [], began)
    world.set_node_ready("n1")
    here = node_drain(world)
    predicted(here)
    assert here.outcome == "not_dead"


def test_without_the_right_to_read_leases_nothing_is_done(world: World) -> None:
    world.server.denied.add(("list", kinds.LEASES.resource))
    with pytest.raises(CallAborted, match="kubelet is alive is not known"):
        evacuated(world, node_drain(world, "waiting"))
    assert taints(world) == []


def test_a_kubelet_that_is_back_right_before_the_taint_is_set_gets_none(world: World) -> None:
    here = node_drain(world, "waiting")

    def back(_nodes: t.Collection[str]) -> None:
        world.set_node_ready("n1")

    def work(ctx: Context) -> list[NodeDrain]:
        with WatchCache(ctx, ("pods",)) as live:
            return Evacuation(ctx, live, back, FOREVER).work([here])

    assert world.process("me").run(work) == []
    assert (here.outcome, taints(world)) == ("not_dead", [])
