# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""I15 in a run that keeps it, and in worlds in which it is broken on purpose."""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks.run_hook_calls import NoAnswerError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds, verbs
from ansible_collections.kubeops.node_maintenance.tests.explore import scenes
from ansible_collections.kubeops.node_maintenance.tests.explore.judge import Judge
from ansible_collections.kubeops.node_maintenance.tests.explore.test_judge import said, sends, stored, taken_out
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import applications
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

SCENE = scenes.participants()
HTTP = next(rule for rule in SCENE.given.hook_rules if rule.hook == "before_node")


@pytest.fixture
def world() -> t.Iterator[World]:
    with SCENE.world() as made:
        yield made


def hooked(world: World, state: str) -> None:
    """The record of n1, in which that is the state of its own hook."""
    entry = {f"before_node/{HTTP.name}": {"rule": HTTP.name, "state": state}}
    text = {"run": "r", "nonce": "", "step": "cordoned", "since": "then", "hooks": entry}
    world.patch(kinds.NODES, "n1", {"metadata": {"annotations": {names.RECORD: json.dumps(text)}}})


def calls(world: World, again: bool = False) -> None:
    """The hook of n1 is called, whatever its record says."""
    me = world.process("me")
    told: Raw = {"hook": "before_node", "rule": HTTP.name, "node": "n1", "again": again}

    def work() -> None:
        with contextlib.suppress(NoAnswerError):
            world.endpoint.sender(me)(t.cast("t.Any", HTTP.http), told, 10.0)

    task = me.spawn(work)
    world.machine.run_until(lambda: not task.alive)
    task.value()


def test_a_run_with_all_who_take_part_keeps_it(world: World) -> None:
    judge, me = Judge(world, {}), world.process("me")
    task = me.spawn(lambda: maintain(me, SCENE.given))
    world.machine.run_until(lambda: not task.alive, within=1200.0)
    outcome = task.value()
    assert outcome.failed == {}
    assert judge.broken == []
    told = [(str(call.told["hook"]), bool(call.told["again"])) for call in world.endpoint.calls]
    first = ["before_node", "before_pod"]
    assert told == [
        *((hook, again) for hook in first for again in (False, True)),
        ("after_pod", False),
        ("after_node", False),
    ]


def test_a_call_that_no_record_tells_of_is_seen(world: World) -> None:
    judge = Judge(world, {})
    taken_out(world, "n1")
    calls(world)
    assert [text.partition(" at ")[0] for text in said(judge, "I15")] == ["I15: me called before_node of n1"]
    assert "calls nothing" in said(judge, "I15")[0]


def test_a_call_of_a_start_that_does_not_hold_the_node_is_seen(world: World) -> None:
    judge = Judge(world, {})
    hooked(world, "begun")
    calls(world)
    assert any("has taken over" in text for text in said(judge, "I15"))


def test_a_repeated_call_has_to_say_so(world: World) -> None:
    judge = Judge(world, {})
    hooked(world, "begun")
    for again in (False, True, False):
        calls(world, again)
    assert len([text for text in said(judge, "I15") if text.endswith("did not say so")]) == 1


def test_what_is_done_is_not_begun_again(world: World) -> None:
    judge = Judge(world, {})
    for state in ("begun", "done", "begun"):
        hooked(world, state)
    assert [text.partition(" of ")[2] for text in said(judge, "I15")] == ["n1 was done, and is begun now"]


def test_a_pod_that_nobody_asked_is_not_evicted(world: World) -> None:
    judge = Judge(world, {})
    hooked(world, "done")
    meta = next(pod["metadata"] for pod in world.pods(app="pair") if pod["spec"]["nodeName"] == "n1")
    sends(world.process("me"), verbs.evict(meta["namespace"], meta["name"], meta["uid"]))
    assert said(judge, "I15") == [f"I15: me evicted {meta['name']} before its hooks were done: unasked"]


def test_a_node_with_a_startup_taint_is_not_finished(world: World) -> None:
    judge = Judge(world, {})
    world.apply(stored("r", ["n1"]))
    world.patch(kinds.NODES, "n1", {"spec": {"taints": [dict(applications.STARTUP_TAINT)]}})
    world.patch(kinds.CONFIGMAPS, names.run_name("r"), {"data": {"finished": json.dumps(["n1"])}}, names.NAMESPACE)
    assert said(judge, "I15") == ["I15: n1 is finished, and nothing may run there yet"]
