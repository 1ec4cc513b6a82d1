# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the gates read, whose locks are renewed while they are waited for, and what is said of each node."""

from __future__ import annotations

import typing as t

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import option_values, specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    node_taints,
    run_targeted_reads,
    scopes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted, Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import arguments_ready, run_gates
from ansible_collections.kubeops.node_maintenance.tests.unit.nodes.test_run_cordon import drained
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.left_out import defaults


@pytest.fixture
def world() -> t.Iterator[World]:
    made = [drained(step="returning"), manifests.node("b"), manifests.namespace(names.NAMESPACE)]
    with World(made) as world:
        yield world


def checked(world: World, *nodes: str, run: str = "r1/n1", check: bool = False, **options: t.Any) -> Result:
    asked: dict[str, t.Any] = {"gates": ("ready",), "stable": 0.0, "wait": True, "timeout": 30.0, **options}
    me = world.process("me")
    ctx = me.ctx(run, check=check)
    of = () if "node_selector" in asked else nodes or ("a",)
    return me.run(lambda _ctx: run_gates.check_ready(ctx, run_gates.ReadyOptions(nodes=of, **asked)))


def asked(world: World, verb: str) -> list[str]:
    return [sent.request.resource for sent in world.log if sent.request.verb == verb]


def test_a_result_says_of_each_node_what_it_lacks(world: World) -> None:
    world.set_node_ready("b", "False")
    result = checked(world, "a", "b", wait=False)
    data = dict(result.data)
    (finding,) = data.pop("findings")
    assert (finding["code"], finding["object"]) == ("not_ready", "Node b")
    assert data == {
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
def test_pods_are_read_once_for_the_gate_that_needs_them_and_watched_only_if_it_is_waited_for(
    world: World, wanted: tuple[str, ...], kinds_: list[str], wait: bool, stable: float
) -> None:
    assert not checked(world, gates=(*wanted, "stable"), wait=wait, stable=stable, run="").failed
    watched = ["nodes", *kinds_, "endpointslices.discovery.k8s.io"] if wait and stable else []
    assert asked(world, "list") == ["nodes", *kinds_]
    assert sorted(asked(world, "watch")) == sorted(watched)


def test_a_node_that_does_not_exist_stops_the_call(world: World) -> None:
    with pytest.raises(CallAborted, match="There is no node nope"):
        checked(world, "a", "nope")


@pytest.mark.parametrize(
    ("run", "step", "kept"),
    [
        pytest.param("r1/n1", "returning", True, id="the caller's"),
        pytest.param("r1/n2", "returning", False, id="another start's"),
        pytest.param("r1/n1", "out", False, id="tasks run: its lock is for as long as they may"),
        pytest.param("r1/n1", "parked", False, id="nobody works on it"),
    ],
)
def test_whose_locks_are_renewed_meanwhile(run: str, step: t.Any, kept: bool) -> None:
    with World([drained(step=step), manifests.namespace(names.NAMESPACE)]) as world:
        world.set_node_ready("a", "False")
        assert checked(world, run=run, timeout=12.0).failed
        writes = [sent.request for sent in world.log if sent.request.writes]
        assert [request.verb for request in writes] == (["create", "create", "patch", "patch", "patch"] if kept else [])
        lease = world.find(kinds.LEASES, names.heartbeat_name("r1/n1"), names.NAMESPACE)
        assert (lease["spec"]["leaseDurationSeconds"] if lease else None) == (60 if kept else None)


@pytest.mark.parametrize("status", ["True", "False"])
@pytest.mark.parametrize("asked_for", [{"wait": True, "gates": ("ready", "stable"), "stable": 5.0}, {"soak": 600.0}])
def test_check_mode_looks_once_and_writes_nothing(world: World, status: str, asked_for: dict[str, t.Any]) -> None:
    world.set_node_ready("a", status)
    began = world.machine.now
    assert checked(world, check=True, **asked_for).failed is (status == "False")
    assert world.machine.now - began < 1.0
    assert {sent.request.verb for sent in world.log} <= {"list", "watch"}


def test_nodes_are_found_by_their_labels(world: World) -> None:
    world.patch(kinds.NODES, "b", {"metadata": {"labels": {"pool": "blue"}}})
    result = checked(world, node_selector="pool=blue", wait=False)
    assert [(node["name"], node["outcome"]) for node in result.data["nodes"]] == [("b", "passed")]
    with pytest.raises(CallAborted) as stopped:
        checked(world, node_selector="pool=red", wait=False)
    assert stopped.value.reason.code == "selector_matches_nothing"


@pytest.mark.parametrize("options", [{"wait": False}, {"wait": True}, {"soak": 1.0}])
def test_of_no_node_nothing_is_said(world: World, options: dict[str, t.Any]) -> None:
    world.set_node_ready("a", "False")
    asked_for = run_gates.ReadyOptions(nodes=(), gates=("ready",), **options)
    assert world.process("me").run(lambda ctx: run_gates.check_ready(ctx, asked_for)).data["nodes"] == []


@pytest.mark.parametrize("options", [{"wait": False}, {"soak": 1.0}], ids=["once", "a soak"])
def test_of_a_large_cluster_only_its_own_nodes_are_read(
    world: World, options: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopes, "PAGE_OF_NODES", 1)
    world.apply(*(manifests.node(f"n{number:02}") for number in range(run_targeted_reads.NODES_PER_REQUEST)))
    assert not checked(world, "b", **options).failed
    lists = [dict(sent.request.query) for sent in world.log if sent.request.verb == "list"]
    assert [query.get("limit") for query in lists[:1]] == ["1"]
    assert {query.get("fieldSelector") for query in lists[1:]} == {"metadata.name=b"}


@pytest.mark.parametrize("gates", [("ready", "rebooted"), ("rebooted",)])
@pytest.mark.parametrize("status", ["True", "False"])
def test_a_soak_asks_for_no_reboot_of_nodes_in_service(world: World, gates: tuple[str, ...], status: str) -> None:
    world.set_node_ready("b", status)
    codes = [finding["code"] for finding in checked(world, "b", gates=gates, soak=5.0).data["findings"]]
    assert codes == ([] if status == "True" else ["not_ready"])


def test_a_node_that_another_run_holds_is_not_waited_for(world: World) -> None:
    spec = {"holderIdentity": "r2/n2", "leaseDurationSeconds": 3600}
    meta = {"name": "node-a", "namespace": names.NAMESPACE, "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY}}
    world.apply({"apiVersion": kinds.LEASES.api_version, "kind": "Lease", "metadata": meta, "spec": spec})
    world.set_node_ready("a", "False")
    began = world.machine.now
    result = checked(world, "a", "b")
    assert world.machine.now - began < 1.0
    assert [(node["name"], node["outcome"]) for node in result.data["nodes"]] == [("a", "failed"), ("b", "passed")]
    (finding,) = result.data["findings"]
    assert finding["code"] == "adopted_by"
    assert finding["message"].startswith("Node a is no longer ours: Node a is held by run r2")


def test_a_record_that_cannot_be_read_fails_its_gates_and_those_of_no_other(world: World) -> None:
    world.patch(kinds.NODES, "a", {"metadata": {"annotations": {names.RECORD: "{"}}})
    result = checked(world, "a", "b", wait=False)
    assert [node["outcome"] for node in result.data["nodes"]] == ["failed", "passed"]
    assert [finding["code"] for finding in result.data["findings"]] == ["bad_record"]


def test_a_node_that_vanishes_is_waited_for_and_said_to_be_gone(world: World) -> None:
    world.machine.after(3.0, lambda: world.delete(kinds.NODES, "b"), "delete")
    began = world.machine.now
    result = checked(world, "b", run="", gates=("ready", "stable"), stable=5.0, timeout=10.0)
    assert world.machine.now - began == pytest.approx(10.0, abs=0.1)
    assert [finding["code"] for finding in result.data["findings"]] == ["unknown_node"]
    assert result.message == "Node b no longer exists."


@pytest.mark.parametrize(("breaks", "seconds"), [((), 5.0), ((3.0,), 9.0)], ids=["at once", "anew after a break"])
def test_the_stable_time_counts_for_each_node_alone(world: World, breaks: tuple[float, ...], seconds: float) -> None:
    for at in breaks:
        world.machine.after(at, lambda: world.set_node_ready("b", "False"), "down")
        world.machine.after(at + 1.0, lambda: world.set_node_ready("b"), "up")
    began = world.machine.now
    assert not checked(world, "a", "b", gates=("ready", "stable"), stable=5.0, run="", timeout=None).failed
    assert world.machine.now - began == pytest.approx(seconds, abs=0.3)


def test_only_what_a_node_lacks_is_told_and_each_news_once(world: World) -> None:
    world.set_node_ready("b", "False")
    world.machine.after(4.0, lambda: world.set_node_ready("b", "Unknown"), "unknown")
    world.machine.after(8.0, lambda: world.set_node_ready("b"), "up")
    assert not checked(world, "a", "b", gates=("ready", "stable"), stable=5.0, run="").failed
    *lacks, last = (event.message for event in world.process("me").told)
    assert len(lacks) == 2
    assert all("Node b" in message and "Node a" not in message for message in lacks)
    assert "5 s" in last, "what a node lacked does not stand once it is there"


# -- the options ---------------------------------------------------------------------------------------


def prepared(**arguments: t.Any) -> dict[str, t.Any]:
    """What the engine gets for these arguments of a task."""
    spec = arguments_ready.SPEC
    of = {} if "node_selector" in arguments else {"nodes": "a"}
    validation = ArgumentSpecValidator(spec.argument_spec, **spec.rules).validate({**of, **arguments})
    assert validation.error_messages == []
    return spec.prepare(spec.converted(validation.validated_parameters))


def test_what_is_left_out_is_as_documented() -> None:
    found, wanted = defaults(arguments_ready.SPEC, run_gates.ReadyOptions, nodes=(), node_selector="", not_rebooted=())
    assert found == wanted
    assert specs.from_params(run_gates.ReadyOptions, prepared()) == run_gates.ReadyOptions(nodes=("a",))


def test_what_is_expected_is_read_as_other_modules_read_it() -> None:
    given = {"taints": ["pool=gpu:NoSchedule", {"key": "old", "state": "absent"}], "conditions": {"Net": True}}
    expected = specs.from_params(run_gates.ReadyOptions, prepared(**given)).expected
    assert [node_taints.words(taint) for taint in expected.taints] == ["pool=gpu:NoSchedule", "old-"]
    assert expected.conditions == {"Net": "True"}


@pytest.mark.parametrize(
    "given",
    [
        {"soak": "5m", "soak_since": "yesterday"},
        {"taints": ["pool=gpu"]},
        {"conditions": {"Net": "maybe"}},
        {"node_selector": "a==b==c"},
        {"timeout": "soon"},
    ],
)
def test_an_option_that_cannot_be_used_is_named(given: dict[str, t.Any]) -> None:
    with pytest.raises(option_values.BadOption) as refused:
        prepared(**given)
    assert str(refused.value).startswith(list(given)[-1])
