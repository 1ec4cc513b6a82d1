# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hooks of nodes, and the record of task files, those of pods, too."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_hooks import (
    HookOptions,
    call_hooks,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.hooked import (
    NODES,
    RUN,
    Make,
    Scene,
    outcome,
    pods,
    rule,
    scenes,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor


@pytest.fixture
def scene() -> t.Iterator[Make]:
    with scenes() as make:
        yield make


def of_node(
    hook: hook_definitions.Hook, action: hook_definitions.Action, selector: str = "kubernetes.io/hostname"
) -> hook_definitions.Rule:
    http = hook_definitions.Http("http://ceph.example/{node}") if action == "http" else None
    return hook_definitions.Rule(hook, action, action, 60.0, pods(selector), tasks="/t.yml" * (not http), http=http)


def called(
    one: Scene, me: Actor, state: t.Any, *rules: hook_definitions.Rule, listed: t.Any = (), run: str = RUN
) -> Result:
    options = HookOptions(state, ("n1",), rules, tuple(listed), one.send)
    return me.run(lambda ctx: call_hooks(ctx, options), run)


def test_a_node_is_called_once_and_its_record_says_so(scene: Make) -> None:
    one, rule_ = scene(), of_node("before_node", "http")
    me = one.begin()
    first, second = (called(one, me, "called", rule_) for _time in range(2))
    assert (first.failed, second.failed) == (False, False)
    assert [(url, told) for _at, url, told in one.calls] == [
        ("http://ceph.example/n1", {"hook": "before_node", "rule": "http", "node": "n1", "again": False})
    ]
    assert f'"{rule_.key}":{{"action":"http","rule":"http","state":"done"}}' in one.record()
    assert not called(one, me, "called", of_node("before_node", "http", "other")).data["hooks"]


def test_a_node_whose_hook_fails_says_which_and_a_restart_calls_again(scene: Make) -> None:
    one, rule_ = scene(answer=lambda count: 404 if count == 1 else 200), of_node("after_node", "http")
    me = one.begin()
    ((node,), failed) = (result := called(one, me, "called", rule_)).data["nodes"], result.failed
    assert (node["outcome"], failed) == ("failed", True)
    for text in ("Node n1", "hook after_node", "rule http", "404", "run the same command again"):
        assert text in node["message"]
    assert not called(one, me, "called", rule_).failed
    assert [told["again"] for _at, _url, told in one.calls] == [False, True]


def test_a_task_file_is_listed_until_it_is_done_and_told_if_it_may_have_run(scene: Make) -> None:
    one, rule_ = scene(), of_node("before_node", "tasks")
    me = one.begin()
    (due,) = called(one, me, "listed", rule_).data["hooks"]
    assert (due["tasks"], due["again"], due["state"], due["deadline"]) == ("/t.yml", False, "due", 60)
    assert called(one, me, "called", rule_).failed, "it has not run"
    (first,) = called(one, me, "begun", listed=[due]).data["hooks"]
    (second,) = called(one, me, "begun", listed=[due]).data["hooks"]
    assert (first["again"], second["again"]) == (False, True)
    lease = one.world.get(kinds.LEASES, names.node_lease_name("n1"), names.NAMESPACE)
    assert lease["spec"]["leaseDurationSeconds"] == 60 + due["deadline"], "nobody takes the node meanwhile"
    assert called(one, me, "failed", listed=[due]).failed
    assert called(one, me, "listed", rule_).data["hooks"][0]["again"]
    assert not called(one, me, "done", listed=[due]).failed
    assert called(one, me, "listed", rule_).data["hooks"] == []
    assert not called(one, me, "called", rule_).failed
    assert one.calls == []


def test_the_hooks_of_another_run_are_left_alone(scene: Make) -> None:
    one = scene()
    one.begin()
    record = one.record()
    result = called(one, one.world.process("other"), "called", of_node("before_node", "http"), run="r2/x")
    assert result.data["nodes"][0]["outcome"] == "adopted_by"
    assert (one.calls, one.record()) == ([], record)


@pytest.mark.parametrize("fault", [Fault("killed before"), Fault("killed after")], ids=str)
@pytest.mark.parametrize("nth", [1, 2])
def test_a_node_hook_that_is_killed_is_called_again_and_told_so(scene: Make, fault: Fault, nth: int) -> None:
    one, rule_, count = scene(), of_node("before_node", "http"), 0
    me = one.begin()

    def chosen(request: t.Any) -> bool:
        nonlocal count
        count += request.writes and request.resource == NODES
        return bool(count == nth and request.writes and request.resource == NODES)

    me.faults.when(chosen, fault)
    options = HookOptions("called", ("n1",), (rule_,), (), one.send)
    task = me.call(lambda ctx: call_hooks(ctx, options), RUN)
    one.world.machine.run_until(lambda: not task.alive, within=120)
    assert me.faults.met
    assert not called(one, one.world.process("me"), "called", rule_).failed
    told = [call["again"] for _at, _url, call in one.calls]
    assert told in ([False], [True], [False, True])
    assert len(told) == (2 if (nth, fault.what) == (2, "killed before") else 1)


def test_the_task_files_of_pods_are_run_before_and_after_and_then_the_drain_goes_through(
    scene: Make,
) -> None:
    one = scene(rule("before_pod", "tasks"), rule("after_pod", "tasks"))
    me = one.begin()
    due = one.ended(one.drain(me, check=True)).data["nodes"][0]["hooks"]
    before = [hook for hook in due if hook["hook"] == "before_pod"]
    assert len(before) == 2
    assert not called(one, me, "begun", listed=before).failed
    assert not called(one, me, "done", listed=before).failed
    (node,) = one.ended(one.drain(me)).data["nodes"]
    after = [hook for hook in node["hooks"] if hook["hook"] == "after_pod"]
    assert node["outcome"] == "drained"
    assert [(hook["state"], hook["moved"], hook["action"]) for hook in after] == [("due", True, "tasks")] * 2
    assert not called(one, me, "done", listed=after).failed
    (node,) = one.ended(one.drain(me)).data["nodes"]
    assert not [hook for hook in node.get("hooks", []) if hook["hook"] == "after_pod"], "nothing is left to run"


def begins_a_hook(request: t.Any) -> bool:
    return bool(request.resource == NODES and request.writes and '"state":"begun"' in str(request.body))


def test_a_node_hook_is_not_called_by_a_run_that_stood_still(scene: Make) -> None:
    one, rule_ = scene(), replace(of_node("before_node", "http"), deadline=900.0)
    me = one.begin()
    me.faults.when(begins_a_hook, Fault("frozen sent", 400.0))
    options = HookOptions("called", ("n1",), (rule_,), (), one.send)
    task = me.call(lambda ctx: call_hooks(ctx, options), RUN)
    one.world.machine.run_until(lambda: bool(me.faults.met), within=60)
    one.world.machine.run_for(20.0)
    other = one.world.process("other")
    assert not other.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", ("n1",))), "r1/second").failed
    assert not called(one, other, "called", rule_, run="r1/second").failed
    assert len(one.calls) == 1
    result = one.ended(task)
    assert outcome(result)[0] == "adopted_by"
    assert [told["again"] for _at, _url, told in one.calls] == [True]
