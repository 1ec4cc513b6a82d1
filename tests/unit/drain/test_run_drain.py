# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The loop of a drain: whose turn it is, what check mode predicts, and what a call costs."""

from __future__ import annotations

import collections
import json
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import arguments as drain_arguments
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import DrainOutcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import (
    DrainPolicy,
    PodPlan,
    Route,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.left_out import defaults
from ansible_collections.kubeops.node_maintenance.tests.unit.support.still_drain import RUN, Bench, begun

Make = t.Callable[..., Bench]
LEASES = kinds.LEASES.resource


@pytest.fixture
def bench() -> t.Iterator[Make]:
    made: list[Bench] = []

    def make(**options: t.Any) -> Bench:
        made.append(Bench(**options))
        return made[-1]

    yield make
    for one in made:
        one.world.close()


# -- whose turn it is ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "expected"), [("priority", ["low", "also", "high"]), ("none", ["high", "low", "also"])]
)
def test_pods_of_low_priority_go_first(bench: Make, order: str, expected: list[str]) -> None:
    one = bench(order=order)
    for name, priority in (("high", 9), ("low", 1), ("also", 1)):
        pod = objects.pod(name, priority=priority)
        pod["spec"]["priority"] = priority
        one.move(name, "waiting").plan = PodPlan(objects.snapshot(pods=[pod]).pods[0], "evict", "", "", None)
    assert [move.pod.name for move in one.work._queue()] == expected


def test_only_what_waits_on_an_open_node_without_a_failed_pod_has_a_turn(bench: Make) -> None:
    one = bench()
    one.move("gone", "gone")
    one.move("p0", "waiting")
    one.move("leaving", "leaving")
    other, ending = one.move("p1", "waiting", on="n2"), one.move("p2", "leaving", on="n2")
    assert [move.pod.name for move in one.work._queue()] == ["p0", "p1"]
    ending.state = "failed"
    assert [move.pod.name for move in one.work._queue()] == ["p0"]
    one.node_drain.outcome = DrainOutcome.FAILED
    assert (one.work._queue(), other.state) == ([], "waiting")


@pytest.mark.parametrize(
    ("route", "uid", "state", "failed"),
    [
        ("surge", "uid-web", "waiting", True),
        ("surge", "uid-web", "leaving", True),
        ("surge", "uid-web", "gone", False),
        ("surge", "uid-other", "waiting", False),
        ("evict", "uid-web", "waiting", False),
    ],
)
def test_a_surge_that_failed_fails_the_pods_that_it_would_have_ended(
    bench: Make, route: Route, uid: str, state: t.Any, failed: bool
) -> None:
    one = bench()
    move = one.move("p0", state, on="n2")
    move.plan = PodPlan(move.pod, route, "single", "", Ref("Deployment", "web", "shop", uid))
    one.work.surges.failures["uid-web"] = "it was scaled"
    one.do(one.work._fail_surges)
    assert (move.state, move.outcome) == (("failed", "surge_failed") if failed else (state, None))
    assert not failed or (move.reason, (move.blocked_by or {})["message"]) == ("it was scaled", "it was scaled")


def test_the_locks_of_closed_nodes_are_not_proven(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one, fenced = bench(), list[tuple[str, ...]]()
    monkeypatch.setattr(one.work.locks, "prove", lambda nodes: fenced.append(tuple(nodes)))
    one.work._prove_all()
    one.node_drain.outcome = DrainOutcome.GONE
    one.work._prove_all()
    one.work._prove_lock("n1")
    assert fenced == [("n1", "n2"), ("n2",), ("n1",)]


class Yields:
    """How often guards were looked at, and what became of it."""

    def __init__(self, *answers: object) -> None:
        self.answers, self.count = list(answers), 0

    def __call__(self, _changes: object, _prove_lock: object) -> bool:
        self.count += 1
        for answer in self.answers[:1]:
            del self.answers[0]
            if isinstance(answer, Exception):
                raise answer
            return bool(answer)
        return True


@pytest.mark.parametrize(
    ("answers", "budgets", "looks", "told"),
    [
        pytest.param([True], [["web"], ["web"]], 1, 0, id="once for each budget"),
        pytest.param([True], [[], []], 0, 0, id="none is there"),
        pytest.param([True, True], [["web"], ["web", "new"]], 2, 0, id="another one came"),
        pytest.param([True], [["web", "new"], ["web"]], 1, 0, id="one went"),
        pytest.param([False, True], [["web"], ["web"], ["web"]], 2, 0, id="the view was old"),
        pytest.param([errors.Forbidden("no")], [["web"], ["web"]], 1, 1, id="it may not be removed"),
    ],
)
def test_guards_yield_when_a_budget_appears(
    bench: Make, monkeypatch: pytest.MonkeyPatch, answers: list[object], budgets: list[list[str]], looks: int, told: int
) -> None:
    one, writer = bench(), Yields(*answers)
    monkeypatch.setattr(one.work.writer, "write", writer)
    for there in budgets:
        seen = objects.snapshot(budgets=[objects.budget(name, 1) for name in there])
        one.do(lambda seen=seen: one.work._remove_conflicting_guards(seen))  # type: ignore[misc]
    assert writer.count == looks
    assert len(one.me.told) == told


# -- check mode ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("route", "delete", "outcome", "changes"),
    [
        ("evict", False, "evicted", 1),
        ("evict", True, "deleted", 1),
        ("surge", False, "surged", 0),
        ("wait", False, "gone", 0),
    ],
)
def test_check_mode_says_how_each_pod_would_leave(
    bench: Make, route: Route, delete: bool, outcome: str, changes: int
) -> None:
    one = bench(check=True, choices=DrainPolicy(disable_eviction=delete))
    left, over = one.move("p0", "waiting", route), one.move("p1", "skipped", route)
    one.do(lambda: one.work._predict(one.node_drain))
    assert (left.outcome, over.outcome) == (outcome, None)
    assert (one.node_drain.outcome, one.node_drain.message) == ("drained", "Node n1 would be drained.")
    assert [change.verb for change in one.ctx.changes] == ["delete" if delete else "evict"] * changes + ["patch"] * 2
    assert one.writes() == []


def test_check_mode_predicts_no_job_that_is_not_wanted(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one, jobs = bench(check=True), list[str]()
    monkeypatch.setattr(one.work.jobs, "predicted", lambda move: jobs.append(move.pod.name))
    moves = one.move("p0", "waiting", "job"), one.move("p1", "waiting", "surge")
    one.do(lambda: one.work._predict(one.node_drain))
    assert ([move.outcome for move in moves], jobs) == (["migrated", "surged"], ["p0"])


def test_check_mode_leaves_a_node_alone_of_which_not_all_pods_were_selected(bench: Make) -> None:
    one = bench(check=True)
    one.move("p0", "skipped", "skip", code="not_selected")
    one.do(lambda: one.work._predict(one.node_drain))
    assert (one.node_drain.outcome, one.ctx.changes) == ("selected_gone", [])
    assert "would lose the selected pods" in one.node_drain.message


def drained(world: World, *, check: bool = False, nodes: tuple[str, ...] = ("n1",), **options: t.Any) -> t.Any:
    """The result of a whole call, and its context."""
    me = world.process("me")
    ctx = me.ctx(RUN, check=check)
    wanted = run_drain.DrainOptions(nodes, options.pop("choices", DrainPolicy(method="replace")), **options)
    return me.run(lambda _ctx: run_drain.drain(ctx, wanted)), ctx


def test_check_mode_needs_no_record_and_records_nothing() -> None:
    with World([manifests.node("n1")]) as world:
        result, ctx = drained(world, check=True)
        node = result.data["nodes"][0]
        assert node["outcome"] == "drained"
        assert "not_in_maintenance" in node["message"], "what the real call would do"
        assert (ctx.changes, [sent for sent in world.log if sent.request.writes]) == ([], [])


# -- a whole call --------------------------------------------------------------------------------------


def occupied(*more: t.Any) -> World:
    """Three pods of `web` on n1, with a budget, and room on n9 alone."""
    world = World.of(begun())
    world.cordon("n1", False)
    world.cordon("n9")
    world.apply(manifests.deployment("web", 3), manifests.budget("web", maxUnavailable=1), *more)
    world.settle()
    world.cordon("n1")
    world.cordon("n9", False)
    return world


def test_what_a_drain_costs() -> None:
    with occupied() as world:
        before = len(world.log)
        result, _ctx = drained(world)
        mine = [sent.request for sent in world.log[before:] if sent.process == "me"]
        writes = collections.Counter(f"{one.verb} {one.resource}" for one in mine if one.writes)
        assert writes.pop(f"patch {LEASES}") >= 1, "its heartbeat is left for the next call of the run"
        assert writes == {
            "patch pods": 3,
            "create pods/eviction": 3,
            f"create {LEASES}": 2,
            "patch nodes": 2,
        }, "each is let go first; its lock, its heartbeat"
        summary = result.data["summary"]
        assert 0 < summary["requests"] <= len(mine)
        assert {key: summary[key] for key in ("evicted", "migrated", "skipped", "failed")} == {
            "evicted": 3,
            "migrated": 0,
            "skipped": 0,
            "failed": 0,
        }
        reads = collections.Counter(one.resource for one in mine if one.verb in ("list", "watch"))
        assert all(reads[kind.resource] == 1 for kind in (kinds.BUDGETS, kinds.DEPLOYMENTS, kinds.HPAS))
        assert not any(reads[kind.resource] for kind in (kinds.PVCS, kinds.VOLUME_ATTACHMENTS))


def test_the_seconds_of_a_call_are_told_to_the_millisecond() -> None:
    with World.of(begun()) as world:
        me = world.process("me")
        me.faults.when(lambda request: request.writes, Fault("late", 1.23456))
        options = run_drain.DrainOptions(("n1",), DrainPolicy())

        def timed(ctx: t.Any) -> tuple[t.Any, float]:
            began = ctx.clock.now()
            return run_drain.drain(ctx, options), ctx.clock.now() - began

        result, seconds = me.run(timed, RUN)
        assert result.data["summary"]["seconds"] == round(seconds, 3)
        assert round(seconds, 3) not in (seconds, round(seconds, 2))


def test_check_mode_predicts_that_a_living_node_is_not_evacuated() -> None:
    with World.of(begun()) as world:
        result, ctx = drained(world, check=True, choices=DrainPolicy(fenced=("n1",)))
        assert [node["outcome"] for node in result.data["nodes"]] == ["not_dead"]
        assert ctx.changes == []


def test_what_is_left_out_is_as_documented() -> None:
    with World.of(begun()) as world:
        assert not drained(world)[0].failed, "with the defaults"
    found, wanted = defaults(drain_arguments.SPEC, run_drain.DrainOptions)
    assert found == wanted


def test_a_deletion_asks_no_budget() -> None:
    with occupied(manifests.budget("never", "web", maxUnavailable=0)) as world:
        result, _ctx = drained(world, choices=DrainPolicy(disable_eviction=True))
        assert {pod["outcome"] for pod in result.data["nodes"][0]["pods"]} == {"deleted"}
        assert not [sent for sent in world.log if sent.request.resource == "pods/eviction"]


def test_check_mode_predicts_what_the_real_call_does() -> None:
    with occupied() as world:
        predicted, said = drained(world, check=True)
        assert not [sent for sent in world.log if sent.request.writes]
        real, made = drained(world)
    assert [node["outcome"] for node in predicted.data["nodes"]] == ["drained"]
    shown = [{pod["name"]: pod["outcome"] for pod in one.data["nodes"][0]["pods"]} for one in (predicted, real)]
    assert shown[0] == shown[1]
    assert sorted(change.sentence for change in said.changes) == sorted(change.sentence for change in made.changes)


def test_a_pod_that_has_finished_before_is_cleared_and_does_not_count() -> None:
    with occupied() as world:
        pod, *_others = world.pods(on="n1")
        status = {**pod["status"], "phase": "Failed", "reason": "Terminated", "conditions": []}
        world.objects.replace(kinds.PODS, pod, {**pod, "status": status}, "status")
        predicted, _said = drained(world, check=True)
        real, _made = drained(world)
        record = json.loads(world.get(kinds.NODES, "n1")["metadata"]["annotations"][names.RECORD])
    for result in (predicted, real):
        known = {one["name"]: one["outcome"] for one in result.data["nodes"][0]["pods"]}
        assert (known.pop(pod["metadata"]["name"]), set(known.values())) == ("cleared", {"replaced"})
    assert record["moved"] == len(known)


def test_a_node_that_does_not_exist_holds_up_no_other() -> None:
    with occupied() as world:
        result, _ctx = drained(world, nodes=("n0", "n1"))
        assert [(node["outcome"], node["failed"]) for node in result.data["nodes"]] == [
            ("unknown_node", True),
            ("drained", False),
        ]
        assert result.message == "There is no node n0."


@pytest.mark.parametrize("step", ["cordoned", "drained"])
def test_an_empty_node_is_proven_once(step: t.Any) -> None:
    with World.of(begun(step)) as world:
        result, _ctx = drained(world)
        assert result.data["nodes"][0]["outcome"] == ("drained" if step == "cordoned" else "already_drained")
        writes = [sent.request.resource for sent in world.log if sent.request.writes]
        assert (LEASES in writes, "nodes" in writes) == (step == "cordoned", step == "cordoned")


@pytest.mark.parametrize(("run", "outcome"), [("r2/y", "adopted_by"), ("r1/y", "adopted_by"), (RUN, "drained")])
def test_a_node_of_another_run_is_left_alone(run: str, outcome: str) -> None:
    with World.of(begun()) as world:
        me = world.process("me")
        result = me.run(lambda ctx: run_drain.drain(ctx, run_drain.DrainOptions(("n1",), DrainPolicy())), run)
        assert result.data["nodes"][0]["outcome"] == outcome
        assert (outcome == "drained") == any(sent.request.writes for sent in world.log)


@pytest.mark.parametrize(("outcome", "left"), [("gone", False), ("drained", True)])
def test_the_lock_of_a_node_that_is_gone_goes_too(outcome: str, left: bool) -> None:
    with World.of(begun()) as world:
        me = world.process("me")
        if outcome == "gone":
            me.faults.overtaken(lambda r: r.writes and r.resource == LEASES, lambda: world.delete(kinds.NODES, "n1"))
        result, _ctx = drained(world)
        assert result.data["nodes"][0]["outcome"] == outcome
        assert ((names.NAMESPACE, "node-n1") in world.store.of(LEASES)) is left
        assert bool(world.find(kinds.LEASES, names.heartbeat_name(RUN), names.NAMESPACE)) is left
        if left:
            heartbeat = world.get(kinds.LEASES, names.heartbeat_name(RUN), names.NAMESPACE)
            assert heartbeat["spec"]["leaseDurationSeconds"] == 60
