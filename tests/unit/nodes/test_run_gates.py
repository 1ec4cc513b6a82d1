# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gates of nodes that come back, on a simulated cluster: asked once, or watched until they are passed."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.planned import Build, asked, building, codes, ready


@pytest.fixture
def build() -> t.Iterator[Build]:
    with building() as made:
        yield made


def test_gates_without_waiting_take_one_look(build: Build) -> None:
    found = build()
    found.set_node_ready("n2", "False")
    result = ready(found, nodes=("n1", "n2"), gates=("ready", "pressure", "stable"))
    assert [(n["name"], n["outcome"]) for n in result.data["nodes"]] == [("n1", "passed"), ("n2", "failed")]
    assert result.failed
    assert codes(result) == ["not_ready"]
    assert "list pods" not in asked(found)


def happens(world: World, states: t.Mapping[float, str]) -> None:
    """What the Ready condition of n1 says after so many seconds; with nothing to say the node is gone."""
    for seconds, status in states.items():
        if not seconds:
            world.set_node_ready("n1", status)
            continue

        def change(status: str = status) -> None:
            if status:
                world.set_node_ready("n1", status)
            else:
                world.delete(kinds.NODES, "n1")

        world.machine.after(seconds, change, "a gate")


@pytest.mark.parametrize(
    ("states", "wanted", "timeout", "outcome", "seconds"),
    [
        pytest.param({}, ("ready",), 60, "passed", 0, id="at once"),
        pytest.param({0: "False", 2: "True"}, ("ready",), 60, "passed", 2, id="when it is ready"),
        pytest.param({}, ("ready", "stable"), 60, "passed", 5, id="when it held"),
        pytest.param({3: "False", 4: "True"}, ("ready", "stable"), 60, "passed", 9, id="when it held after a break"),
        pytest.param({0: "False"}, ("ready",), 7, "failed", 7, id="never"),
        pytest.param({}, ("ready", "stable"), 3, "failed", 3, id="not long enough"),
        pytest.param({1: ""}, ("ready", "stable"), 3, "failed", 3, id="it went away"),
    ],
)
def test_gates_are_watched_until_they_are_passed(
    build: Build, states: dict[float, str], wanted: tuple[str, ...], timeout: float, outcome: str, seconds: float
) -> None:
    found = build()
    happens(found, states)
    start = found.machine.now
    result = ready(found, gates=wanted, stable=5.0, wait=True, timeout=timeout)
    assert result.data["nodes"][0]["outcome"] == outcome
    assert found.machine.now - start == pytest.approx(seconds, abs=0.3)
    assert result.failed == (outcome == "failed")


def test_gates_that_are_passed_already_take_one_look_and_no_lock(build: Build) -> None:
    found = build()
    assert not ready(found, "r1/n1", gates=("ready", "daemonsets"), wait=True).failed
    assert sorted(asked(found)) == ["list daemonsets.apps", "list nodes", "list pods"]


def test_what_is_waited_for_is_told_once(build: Build) -> None:
    found = build()
    happens(found, {0: "False", 3: "True"})
    ann = found.process("ann")
    assert not ready(found, gates=("ready",), stable=0.0, wait=True).failed
    assert [event.what for event in ann.told] == ["waiting"]


def test_a_startup_taint_is_waited_for(build: Build) -> None:
    found = build()
    taint = {"key": "readiness.k8s.io/NetworkReady", "value": "pending", "effect": "NoSchedule"}
    found.patch(kinds.NODES, "n1", {"spec": {"taints": [taint]}})
    found.machine.after(3.0, lambda: found.patch(kinds.NODES, "n1", {"spec": {"taints": None}}), "it has started")
    start = found.machine.now
    assert not ready(found, gates=("schedulable",), stable=0.0, wait=True, timeout=60).failed
    assert found.machine.now - start == pytest.approx(3.0, abs=0.3)


def test_a_startup_taint_that_stays_fails_the_call_with_owner_and_remedy(build: Build) -> None:
    found = build()
    found.patch(kinds.NODES, "n1", {"spec": {"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]}})
    result = ready(found, gates=("schedulable",), stable=0.0, wait=True, timeout=4)
    assert codes(result) == ["tainted"]
    assert "karpenter.sh/unregistered:NoExecute" in result.message
    assert "Karpenter" in result.message


def soak(world: World, seconds: float, since: str = "", **options: t.Any) -> t.Any:
    options = {"gates": ("ready",), "soak": seconds, "soak_since": since, **options}
    return ready(world, "r1/abcd", **options)


@pytest.mark.parametrize(
    ("states", "failed", "seconds"),
    [
        pytest.param({}, False, 120, id="they hold"),
        pytest.param({0: "False"}, True, 0, id="not at all"),
        pytest.param({50: "Unknown"}, True, 50, id="not to the end"),
        pytest.param({50: ""}, True, 50, id="the node goes away"),
        pytest.param({121: "False"}, False, 120, id="later is nobody's business"),
    ],
)
def test_in_a_soak_the_gates_have_to_hold_all_the_time(
    build: Build, states: dict[float, str], failed: bool, seconds: float
) -> None:
    found = build()
    happens(found, states)
    start = found.machine.now
    result = soak(found, 120.0, nodes=("n1", "n2"))
    assert result.failed is failed
    assert found.machine.now - start == pytest.approx(seconds, abs=0.3)
    assert {node["name"]: node["failed"] for node in result.data["nodes"]} == {"n1": failed, "n2": False}
    assert not failed or "Node n1" in result.message


def test_a_soak_tells_how_it_stands_and_that_the_run_is_alive(build: Build) -> None:
    found = build()
    told = found.process("ann").told
    assert not soak(found, 600.0).failed
    lines = [event.message for event in told if event.what == "soaking"]
    assert lines[0] == "the gates hold; nodes watched: 1, 600 s left"
    assert len(lines) == 10
    renewals = [sent.request for sent in found.log if sent.request.path.endswith("/leases/run-r1")]
    assert len([request for request in renewals if request.verb != "get"]) == pytest.approx(30, abs=2)


def test_a_soak_by_hand_writes_nothing(build: Build) -> None:
    found = build()
    found.log.clear()
    assert not ready(found, gates=("ready",), soak=60.0).failed
    assert {sent.request.verb for sent in found.log} == {"list", "watch"}


def test_the_time_since_a_soak_began_counts(build: Build) -> None:
    found = build()
    before = found.process("bob").run(lambda ctx: (ctx.cluster.items(kinds.NODES), ctx.clock.server())[1], "")
    found.machine.run_for(80.0)
    start = found.machine.now
    assert not soak(found, 120.0, since=before).failed
    assert found.machine.now - start == pytest.approx(40, abs=1.5)
    found.set_node_ready("n1", "False")
    start = found.machine.now
    assert soak(found, 120.0, since=before).failed, "asked once at least"
    assert found.machine.now == pytest.approx(start, abs=0.5)


def test_a_node_that_is_gone_before_the_soak_is_left_out(build: Build) -> None:
    result = soak(build(), 5.0, nodes=("n1", "n9"))
    assert not result.failed
    assert [node["name"] for node in result.data["nodes"]] == ["n1"]


@pytest.mark.parametrize(("since", "failed"), [(0.0, False), (20.0, True)], ids=["before the soak", "in the soak"])
def test_a_condition_fails_a_soak_if_it_has_become_bad_in_it(build: Build, since: float, failed: bool) -> None:
    found = build()

    def deadlock() -> None:
        status = {"conditions": [{"type": "Ready", "status": "True"}, {"type": "KernelDeadlock", "status": "True"}]}
        found.patch(kinds.NODES, "n1", {"status": status}, subresource="status")

    if since:
        found.machine.after(since, deadlock, "the kernel")
    else:
        deadlock()
    result = soak(found, 60.0, gates=("ready", "conditions"))
    assert result.failed is failed
    assert ("KernelDeadlock" in result.message) is failed


def test_the_gate_rebooted_does_not_apply_to_nodes_that_were_not_rebooted_on_purpose(build: Build) -> None:
    options: dict[str, t.Any] = {"nodes": ("n1", "n2"), "gates": ("ready", "rebooted")}
    result = ready(build(), not_rebooted=("n1",), **options)
    assert [(node["name"], node["failed"]) for node in result.data["nodes"]] == [("n1", False), ("n2", True)]
    assert codes(result) == ["not_rebooted"]
