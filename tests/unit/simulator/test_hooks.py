# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hooks of pods while nodes are drained: what they hold back, what is told, and what a kill at any point leaves."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_drain import DrainOptions, drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks.run_hook_calls import (
    MAX_PARALLEL,
    NoAnswerError,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import pod_rules
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import run_recovery
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, nodes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.hooked import (
    AFTER,
    BEFORE,
    HANDSHAKE,
    NODES,
    RUN,
    Make,
    Scene,
    outcome,
    rule,
    scenes,
    states,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

PODS = kinds.PODS.resource
HOOKS: tuple[hook_definitions.Hook, ...] = ("before_pod", "after_pod")


@pytest.fixture
def scene() -> t.Iterator[Make]:
    with scenes() as make:
        yield make


def test_a_pod_is_called_before_it_is_evicted_and_after_it_has_gone(scene: Make) -> None:
    one = scene(BEFORE, AFTER)
    result = one.ended(one.drain(one.begin()))
    assert outcome(result)[0] == "drained"
    calls = {(told["hook"], told["name"]): (at, url, told) for at, url, told in one.calls}
    assert len(calls) == len(one.calls) == 4, "once for each pod of the rule, before and after"
    for at, name in one.evicted():
        if name.startswith("web-"):
            assert calls["before_pod", name][0] < at < calls["after_pod", name][0]
            assert calls["before_pod", name][1] == f"http://{name}.example/drain"
            assert calls["before_pod", name][2] == {
                "hook": "before_pod",
                "rule": "web-http",
                "node": "n1",
                "again": False,
                "namespace": "shop",
                "name": name,
                "uid": calls["before_pod", name][2]["uid"],
                "owner": "Deployment/web",
                "ip": calls["before_pod", name][2]["ip"],
            }
            assert calls["after_pod", name][2]["moved"] is True
    assert states(result) == {("before_pod", "done"), ("after_pod", "done")}


def test_as_many_pods_are_called_at_once_as_can_be_sent_and_the_others_follow(scene: Make) -> None:
    one = scene(BEFORE, replicas=MAX_PARALLEL + 2)
    me, told = one.begin(), list[int]()

    def answer(count: int) -> int:
        me.clock.sleep(10.0)
        told.append(sum(event.message.endswith(": called") for event in me.told))
        return 200

    one.answer = answer
    assert outcome(one.ended(one.drain(me)))[0] == "drained"
    began = sorted(at - one.calls[0][0] for at, _url, _told in one.calls)
    assert [at // 10.0 for at in began] == [0.0] * MAX_PARALLEL + [1.0] * 2
    assert told[0] == MAX_PARALLEL, "whoever waits for a place is not said to be called"


def test_every_call_is_in_the_record_before_it_is_made(scene: Make) -> None:
    one = scene(BEFORE, AFTER)
    seen: list[str] = []

    def answer(count: int) -> int:
        told = one.calls[-1][2]
        key = f"{BEFORE.key if told['hook'] == 'before_pod' else AFTER.key}/{told['uid']}"
        seen.append(one.record().partition(f'"{key}":')[2].partition('"state":"')[2].partition('"')[0])
        assert told["hook"] == "after_pod" or f'"{AFTER.key}/{told["uid"]}"' in one.record(), "what follows is due"
        return 200

    one.answer = answer
    assert outcome(one.ended(one.drain(one.begin())))[0] == "drained"
    assert seen == ["begun"] * 4


def test_an_application_is_waited_for_and_its_agreement_to_an_earlier_maintenance_does_not_count(
    scene: Make,
) -> None:
    one = scene(HANDSHAKE)
    for pod in one.world.pods(app="web"):
        old = {"metadata": {"annotations": {names.READY_TO_MOVE: "2025-01-01T00:00:00.000Z"}}}
        one.world.patch(kinds.PODS, pod["metadata"]["name"], old)
    me = one.begin()
    began = one.world.machine.now
    task = one.drain(me)
    one.world.machine.run_until(lambda: one.world.machine.now > began + 20, within=60)
    web = {pod["metadata"]["name"] for pod in one.world.pods(app="web", on="n1")}
    assert len(web) == 2, "they stay, and the others go"
    assert not [name for _at, name in one.evicted() if name in web]
    assert len([name for _at, name in one.evicted()]) == 2
    for pod in one.world.pods(app="web", on="n1"):
        since = pod["metadata"]["annotations"][names.PLANNED]
        one.world.patch(
            kinds.PODS, pod["metadata"]["name"], {"metadata": {"annotations": {names.READY_TO_MOVE: since}}}
        )
    assert outcome(one.ended(task))[0] == "drained"


def test_without_an_agreement_the_pod_stays_and_nothing_of_ours_is_left_on_it(scene: Make) -> None:
    one = scene(HANDSHAKE, replicas=3)
    before = {pod["metadata"]["name"]: pod["metadata"].get("annotations") for pod in one.world.pods(app="web")}
    me = one.begin()
    result = one.ended(one.drain(me))
    word, message = outcome(result)
    assert word == "failed"
    for text in (
        "hook before_pod",
        "rule web-annotation",
        "Pod shop/web-",
        "within 60 s",
        "run the same command again",
    ):
        assert text in message
    assert {pod["metadata"]["name"] for pod in one.world.pods(app="web", on="n1")} == set(before)
    assert not me.run(lambda ctx: guard(ctx, GuardOptions("absent", ("n1",))), RUN).failed
    assert not me.run(lambda ctx: cordon(ctx, CordonOptions("uncordoned", ("n1",))), RUN).failed
    after = {pod["metadata"]["name"]: pod["metadata"].get("annotations") for pod in one.world.pods(app="web")}
    assert {name: notes or None for name, notes in after.items()} == {n: notes or None for n, notes in before.items()}


def registered_again(world: World) -> None:
    """By a kubelet that was started anew after somebody had deleted the Node: its pods still run."""
    world.delete(kinds.NODES, "n1")
    world.apply(manifests.node("n1"))


def announced(one: Scene) -> list[str]:
    pods_ = one.world.pods(app="web", on="n1")
    return [pod["metadata"]["name"] for pod in pods_ if names.PLANNED in (pod["metadata"].get("annotations") or {})]


def test_pods_of_a_node_that_is_registered_again_are_no_longer_told_of_a_maintenance(
    scene: Make,
) -> None:
    one = scene(HANDSHAKE, replicas=3)
    task = one.drain(one.begin())
    one.world.machine.run_until(lambda: len(announced(one)) == 3, within=60)
    registered_again(one.world)
    assert outcome(one.ended(task))[0] == "replaced"
    assert (len(one.world.pods(app="web", on="n1")), announced(one)) == (3, [])


@pytest.mark.parametrize("way", ["uncordoned", "recover"])
def test_after_a_kill_too_whoever_ends_the_run_takes_its_announcements_back(scene: Make, way: str) -> None:
    one = scene(HANDSHAKE, replicas=3)
    me = one.begin()
    one.drain(me)
    one.world.machine.run_until(lambda: len(announced(one)) == 3, within=60)
    me.process.kill()
    registered_again(one.world)
    again = one.world.process("me")
    if way == "recover":
        assert not again.run(lambda ctx: run_recovery.recover(ctx, finished=False, parked=False)).failed
    else:
        assert not again.run(lambda ctx: cordon(ctx, CordonOptions("uncordoned", ("n1",))), RUN).failed
    assert (len(one.world.pods(app="web", on="n1")), announced(one)) == (3, [])
    assert one.world.store.of(kinds.LEASES.resource) == {}, "nor is its lock left"


@pytest.mark.parametrize(
    ("answers", "outcome_", "count"),
    [
        pytest.param([200], "drained", 1, id="expected"),
        pytest.param([503, NoAnswerError("refused"), 202, 200], "drained", 4, id="repeated until it is there"),
        pytest.param([404], "failed", 1, id="unexpected"),
        pytest.param([503], "failed", 14, id="never"),
    ],
)
def test_what_a_pod_answers(scene: Make, answers: list[int | Exception], outcome_: str, count: int) -> None:
    one = scene(BEFORE, replicas=1)

    def answer(number: int) -> int:
        given = answers[min(number, len(answers)) - 1]
        if isinstance(given, Exception):
            raise given
        return given

    one.answer = answer
    result = one.ended(one.drain(one.begin()))
    assert outcome(result)[0] == outcome_
    assert len(one.calls) == count
    assert [told["again"] for _at, _url, told in one.calls] == [False] + [True] * (count - 1)
    surged = [pod for pod in one.world.pods(app="web") if pod["spec"]["nodeName"] == "n1"]
    assert bool(surged) == (outcome_ == "failed")


def test_a_surge_is_not_ended_before_the_hook_is_done_and_its_new_pod_serves_by_then(
    scene: Make,
) -> None:
    one = scene(BEFORE, AFTER, replicas=1)
    serving: list[int] = []

    def answer(count: int) -> int:
        serving.append(one.world.serving("web"))
        return 503 if count < 5 else 200

    one.answer = answer
    result = one.ended(one.drain(one.begin()))
    (pod,) = [pod for pod in result.data["nodes"][0]["pods"] if pod["name"].startswith("web-")]
    assert (pod["route"], pod["outcome"]) == ("surge", "surged")
    assert serving[:5] == [2] * 5


def test_a_pod_whose_task_file_has_not_run_is_not_moved_and_nothing_else_is_begun(
    scene: Make,
) -> None:
    tasks = rule("before_pod", "tasks")
    one = scene(tasks, rule("before_pod", "http", "other"))
    result = one.ended(one.drain(one.begin()))
    word, message = outcome(result)
    assert (word, one.calls, one.evicted()) == ("failed", [], [])
    assert "task file has not run" in message
    assert "/tasks.yml" in message


def test_check_mode_calls_nothing_and_says_what_it_would_call(scene: Make) -> None:
    one = scene(BEFORE, AFTER, rule("before_pod", "tasks"))
    me = one.begin()
    record = one.record()
    result = one.ended(one.drain(me, check=True))
    assert outcome(result)[0] == "drained"
    assert (one.calls, one.record()) == ([], record)
    assert states(result) == {("before_pod", "due"), ("after_pod", "due")}
    due = [hook for hook in result.data["nodes"][0]["hooks"] if hook["action"] == "tasks"]
    assert [(hook["tasks"], hook["again"], hook["deadline"]) for hook in due] == [("/tasks.yml", False, 60)] * 2


def writes(world: World) -> int:
    """How many requests of the drain write nodes or pods: each is a point to be killed at."""
    return sum(s.request.writes and s.request.resource in (NODES, PODS) for s in world.log)


@pytest.mark.parametrize("fault", [Fault("killed before"), Fault("killed after")], ids=str)
@pytest.mark.parametrize("nth", range(1, 9))
def test_killed_at_any_write_it_is_resumed_and_whoever_is_called_twice_is_told(
    scene: Make, fault: Fault, nth: int
) -> None:
    one = scene(BEFORE, rule("before_pod", "annotation", deadline=120), AFTER)
    one.agree(5.0)
    me, count = one.begin(), 0

    def chosen(request: t.Any) -> bool:
        nonlocal count
        count += request.writes and request.resource in (NODES, PODS)
        return bool(count == nth and request.writes and request.resource in (NODES, PODS))

    me.faults.when(chosen, fault)
    task = one.drain(me)
    one.world.machine.run_until(lambda: not task.alive or bool(me.faults.met), within=900)
    if task.alive:
        one.world.machine.run_until(lambda: not task.alive, within=60)
    assert me.faults.met, "there is such a write"
    again = one.world.process("me")
    result = one.ended(one.drain(again))
    assert outcome(result)[0] == "drained"
    assert not one.world.pods(app="web", on="n1")
    called: dict[tuple[str, str], list[bool]] = {}
    for _at, _url, told in one.calls:
        called.setdefault((told["hook"], told["name"]), []).append(told["again"])
    assert {hook for hook, _name in called} == {"before_pod", "after_pod"}
    assert len(called) == 4
    for again_ in called.values():
        assert again_[1:] == [True] * (len(again_) - 1), "a second call is told that it is one"


def test_killed_while_a_pod_is_called_it_is_called_again_and_told_so(scene: Make) -> None:
    one = scene(BEFORE, replicas=1)
    me = one.begin()

    def answer(count: int) -> int:
        if count == 1:
            me.process.kill()
        return 200

    one.answer = answer
    task = one.drain(me)
    one.world.machine.run_until(lambda: not task.alive, within=120)
    result = one.ended(one.drain(one.world.process("me")))
    assert outcome(result)[0] == "drained"
    assert [told["again"] for _at, _url, told in one.calls] == [False, True]


def test_a_run_that_stood_still_calls_nobody_once_another_has_its_node(scene: Make) -> None:
    one, callers = scene(rule("before_pod", "http", deadline=900.0), replicas=1), list[str]()

    def answer(count: int) -> int:
        del count
        current = one.world.machine.current
        callers.append(current.process.name if current else "")
        return 503 if callers == ["me"] else 200

    one.answer = answer
    me = one.begin()
    task = one.drain(me)
    one.world.machine.run_until(lambda: bool(callers), within=60)
    me.process.freeze(400.0)
    one.world.machine.run_for(20.0)
    other = one.world.process("other")
    options = DrainOptions(("n1",), DrainPolicy(), hooks=one.rules, send=one.send)
    assert not other.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", ("n1",))), "r1/second").failed
    assert not other.run(lambda ctx: drain(ctx, options), "r1/second").failed
    assert callers == ["me", "other"]
    result = one.ended(task)
    assert outcome(result)[0] == "adopted_by"
    assert callers == ["me", "other"], "what it was about to repeat is another run's by now"


def test_a_pod_that_started_meanwhile_is_called_before_it_leaves(scene: Make) -> None:
    """It has nobody to ask while it starts; by the time that it is its turn, it serves."""
    one = scene(rule("before_pod", "http", "late"), rule("after_pod", "http", "late"))
    world = one.world
    for name in ("n8", "n9"):
        world.cordon(name)
    world.apply(manifests.deployment("late", 2, annotations={nodes.START: "30s"}))
    world.apply(manifests.deployment("slow", 2, annotations={nodes.STOP: "50s"}, terminationGracePeriodSeconds=60))
    world.machine.run_for(5.0)
    for name in ("n8", "n9"):
        world.cordon(name, False)
    late = {pod["metadata"]["name"] for pod in world.pods(app="late", on="n1")}
    assert [pod["status"]["phase"] for pod in world.pods(app="late", on="n1")] == ["Pending", "Pending"]
    last, faults = pod_rules.read([{"name": "last", "pods": "app=late", "last": True}])
    assert faults == []
    me = one.begin()
    options = DrainOptions(("n1",), DrainPolicy(rules=last), hooks=one.rules, send=one.send)
    assert outcome(one.ended(me.call(lambda ctx: drain(ctx, options), RUN)))[0] == "drained"
    called_ = {(told["hook"], told["name"]): at for at, _url, told in one.calls}
    gone = {name: at for at, name in one.evicted() if name in late}
    assert set(gone) == late
    assert set(called_) == {(hook, name) for hook in ("before_pod", "after_pod") for name in late}
    assert all(called_["before_pod", name] < at for name, at in gone.items())


def test_progress_names_no_hook_that_is_done(scene: Make) -> None:
    """Pods wait on, for the budget of others: by then their own hooks are over."""
    one = scene(BEFORE)
    one.world.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 0}})
    one.world.settle()
    one.rules = hook_definitions.Rules((rule("before_pod", "http", "slow"),), ())
    for name in ("n8", "n9"):
        one.world.cordon(name)
    one.world.apply(manifests.deployment("slow", 3, annotations={nodes.START: "30s"}))
    one.world.machine.run_for(40.0)
    for name in ("n8", "n9"):
        one.world.cordon(name, False)
    me = one.begin()
    assert outcome(one.ended(one.drain(me)))[0] == "drained"
    said = [event.message for event in me.told]
    done = [place for place, text in enumerate(said) if text.endswith(": done")]
    assert len(done) == 3
    lines = [event.message for event in me.told[done[-1] :] if event.what == phases.What.PROGRESS]
    assert any("pods left" in text for text in lines)
    assert [text for text in lines if "slow-http" in text] == []


def test_only_pods_that_were_asked_to_go_are_told_that_they_stay(scene: Make) -> None:
    """The first ones say no, so the node is given up before the others are asked."""
    one = scene(BEFORE, AFTER, replicas=MAX_PARALLEL + 2, answer=lambda count: 404 if count <= MAX_PARALLEL else 200)
    assert outcome(one.ended(one.drain(one.begin())))[0] == "failed"
    told = {hook: {told["name"]: told for _at, _url, told in one.calls if told["hook"] == hook} for hook in HOOKS}
    assert len(told["before_pod"]) == MAX_PARALLEL
    assert told["after_pod"].keys() == told["before_pod"].keys()
    assert {call["moved"] for call in told["after_pod"].values()} == {False}
