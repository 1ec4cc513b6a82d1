# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the gates read, whose locks are renewed while they are waited for, and what is said of each node."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, run_listing, snapshots
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted, Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import run_gates
from ansible_collections.kubeops.node_maintenance.tests.unit.nodes.test_run_cordon import drained
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


@pytest.fixture
def world() -> t.Iterator[World]:
    made = [drained(step="returning"), manifests.node("b"), manifests.namespace(names.NAMESPACE)]
    with World(made) as world:
        yield world


def judged(world: World, *nodes: str, run: str = "r1/n1", check: bool = False, **options: t.Any) -> Result:
    asked: dict[str, t.Any] = {"gates": ("ready",), "stable": 0.0, "wait": True, "timeout": 30.0, **options}
    me = world.process("me")
    ctx = me.ctx(run, check=check)

    def loop(_ctx: t.Any) -> Result:
        found = snapshots.Snapshot.of(run_listing.lists(ctx.cluster, ("nodes",)))
        world.log.clear()
        return run_gates.judge(ctx, found, run_gates.GateOptions(nodes=nodes or ("a",), **asked))

    return me.run(loop)


def asked(world: World, verb: str) -> list[str]:
    return [sent.request.resource for sent in world.log if sent.request.verb == verb]


def test_a_result_says_of_each_node_what_it_lacks(world: World) -> None:
    world.set_node_ready("b", "False")
    result = judged(world, "a", "b", wait=False)
    data = dict(result.data)
    (finding,) = data.pop("findings")
    assert (finding["code"], finding["object"]) == ("not_ready", "Node b")
    assert data == {
        "feasible": False,
        "pods": [],
        "waves": [],
        "waits": [],
        "wave_seconds": [],
        "wave_ranges": [],
        "wave_parts": [],
        "budgets": [],
        "estimate_seconds": 0,
        "estimate_range": [0, 0],
        "nodes": [
            {
                "name": "a",
                "outcome": "passed",
                "failed": False,
                "message": "Node a passed its gates.",
                "address": "10.0.0.1",
            },
            {"name": "b", "outcome": "failed", "failed": True, "message": finding["message"], "address": "10.0.0.1"},
        ],
    }
    assert (result.failed, result.message) == (True, finding["message"])


@pytest.mark.parametrize(
    ("wanted", "kinds_"),
    [(("ready",), []), (("ready", "daemonsets"), ["pods", "daemonsets.apps"])],
)
@pytest.mark.parametrize(("wait", "stable"), [(False, 1.0), (True, 0.0), (True, 1.0)])
def test_pods_are_read_only_for_the_gate_that_needs_them_and_watched_only_if_it_is_waited_for(
    world: World, wanted: tuple[str, ...], kinds_: list[str], wait: bool, stable: float
) -> None:
    assert not judged(world, gates=(*wanted, "stable"), wait=wait, stable=stable, run="").failed
    # The nodes themselves were read before.
    watched = ["nodes", *kinds_, "endpointslices.discovery.k8s.io"] if wait and stable else []
    assert asked(world, "list") == [*kinds_, *watched]
    assert asked(world, "watch") == watched


def test_a_gate_that_does_not_exist_is_named_with_those_that_do(world: World) -> None:
    with pytest.raises(CallAborted, match=r"There is no gate warm, lucky\.") as stopped:
        judged(world, gates=("ready", "warm", "lucky"))
    assert stopped.value.reason.code == "unknown_gate"
    assert "ready" in stopped.value.reason.remedy
    assert world.log == []


def test_a_node_that_does_not_exist_stops_the_call(world: World) -> None:
    with pytest.raises(CallAborted, match="There is no node nope"):
        judged(world, "a", "nope")


@pytest.mark.parametrize(
    ("run", "step", "check", "kept"),
    [
        pytest.param("r1/n1", "returning", False, True, id="the caller's"),
        pytest.param("r1/n2", "returning", False, False, id="another start's"),
        pytest.param("r1/n1", "out", False, False, id="tasks run: its lock is for as long as they may"),
        pytest.param("r1/n1", "parked", False, False, id="nobody works on it"),
        pytest.param("r1/n1", "returning", True, False, id="check mode writes nothing"),
    ],
)
def test_whose_locks_are_renewed_meanwhile(run: str, step: t.Any, check: bool, kept: bool) -> None:
    with World([drained(step=step), manifests.namespace(names.NAMESPACE)]) as world:
        world.set_node_ready("a", "False")
        assert judged(world, run=run, check=check, timeout=12.0).failed
        writes = [sent.request for sent in world.log if sent.request.writes]
        assert [request.verb for request in writes] == (["create", "create", "patch", "patch", "patch"] if kept else [])
        lease = world.find(kinds.LEASES, names.heartbeat_name("r1/n1"), names.NAMESPACE)
        assert (lease["spec"]["leaseDurationSeconds"] if lease else None) == (60 if kept else None)


def test_a_node_that_another_run_holds_is_not_waited_for(world: World) -> None:
    spec = {"holderIdentity": "r2/n2", "leaseDurationSeconds": 3600}
    meta = {"name": "node-a", "namespace": names.NAMESPACE}
    world.apply({"apiVersion": kinds.LEASES.api_version, "kind": "Lease", "metadata": meta, "spec": spec})
    world.set_node_ready("a", "False")
    began = world.machine.now
    result = judged(world, "a", "b")
    assert world.machine.now - began < 1.0
    assert [(node["name"], node["outcome"]) for node in result.data["nodes"]] == [("a", "failed"), ("b", "passed")]
    (finding,) = result.data["findings"]
    assert finding["code"] == "adopted_by"
    assert finding["message"].startswith("Node a is no longer ours: Node a is held by run r2")


def test_a_record_that_cannot_be_read_fails_its_gates_and_those_of_no_other(world: World) -> None:
    world.patch(kinds.NODES, "a", {"metadata": {"annotations": {names.RECORD: "{"}}})
    result = judged(world, "a", "b", wait=False)
    assert [node["outcome"] for node in result.data["nodes"]] == ["failed", "passed"]
    assert [finding["code"] for finding in result.data["findings"]] == ["bad_record"]


def test_a_node_that_vanishes_is_waited_for_and_said_to_be_gone(world: World) -> None:
    world.machine.after(3.0, lambda: world.delete(kinds.NODES, "b"), "delete")
    began = world.machine.now
    result = judged(world, "b", run="", gates=("ready", "stable"), stable=5.0, timeout=10.0)
    assert world.machine.now - began == pytest.approx(10.0, abs=0.1)
    assert [finding["code"] for finding in result.data["findings"]] == ["unknown_node"]
    assert result.message == "Node b no longer exists."


@pytest.mark.parametrize(("breaks", "seconds"), [((), 5.0), ((3.0,), 9.0)], ids=["at once", "anew after a break"])
def test_the_stable_time_counts_for_each_node_alone(world: World, breaks: tuple[float, ...], seconds: float) -> None:
    for at in breaks:
        world.machine.after(at, lambda: world.set_node_ready("b", "False"), "down")
        world.machine.after(at + 1.0, lambda: world.set_node_ready("b"), "up")
    began = world.machine.now
    assert not judged(world, "a", "b", gates=("ready", "stable"), stable=5.0, run="", timeout=None).failed
    assert world.machine.now - began == pytest.approx(seconds, abs=0.3)


def test_only_what_a_node_lacks_is_told_and_each_news_once(world: World) -> None:
    world.set_node_ready("b", "False")
    world.machine.after(4.0, lambda: world.set_node_ready("b", "Unknown"), "unknown")
    world.machine.after(8.0, lambda: world.set_node_ready("b"), "up")
    assert not judged(world, "a", "b", gates=("ready", "stable"), stable=5.0, run="").failed
    told = [event.message for event in world.process("me").told]
    assert len(told) == 2
    assert all("Node b" in message and "Node a" not in message for message in told)
    assert "stable" not in "".join(told)
