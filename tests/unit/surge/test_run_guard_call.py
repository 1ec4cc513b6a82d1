# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What both states of `pdb_guard` share: whose nodes they are, how long is waited, and what the result says."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node, Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_watch_cache import WatchCache
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import (
    GuardOutcome,
    WorkloadOutcome,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import guard_budgets
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.surge_records import Surge
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard_budgets import (
    GuardBudget,
    GuardBudgets,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard_call import (
    GuardCall,
    GuardedNode,
    SurgeTurns,
    claim,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_raise import Surging, WorkloadSurge
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects

RECORD = Record("r1", "x", "me", "", "2026-01-01T00:00:00Z", "cordoned", "uid-n1", "ns/node-n1", {})
WEB = Ref("Deployment", "web", "shop", "uid-Deployment-web", "apps/v1")
SURGE = Surge(
    *("apps/v1", "Deployment", "shop", "web", WEB.uid, 2, 3),
    *("n1", "uid-n1", "p0", "uid-p0", None),
    *("r1", "me", "2026-01-01T00:00:00Z"),
)


@pytest.fixture
def world() -> t.Iterator[World]:
    with World() as made:
        yield made


def work(world: World, *nodes: str, run: str = "", found: t.Any = None) -> GuardCall:
    ctx = world.process("me").ctx(run)
    return GuardCall(ctx, {name: GuardedNode(name) for name in nodes or ("n1", "n2")}, found or {})


# -- one node ------------------------------------------------------------------------------------------


def test_the_first_outcome_of_a_node_stays_and_each_message_is_said_once() -> None:
    node = GuardedNode("n1")
    assert (node.open, node.failed, node.to_dict()["outcome"]) == (True, False, "")
    node.close(GuardOutcome.PROTECTED, "fine")
    assert (node.open, node.failed) == (False, False)
    node = GuardedNode("n1")
    for outcome, message in ((GuardOutcome.HELD, "one"), (GuardOutcome.FAILED, "two"), (GuardOutcome.FAILED, "one")):
        node.close(outcome, message)
    assert node.to_dict() == {"name": "n1", "outcome": "held", "message": "one; two", "failed": True}


@pytest.mark.parametrize(
    ("record", "run", "check", "code"),
    [
        (RECORD.dump(), "r1/x", False, ""),
        (RECORD.dump(), "r1/x", True, ""),
        (RECORD.dump(), "r1/y", False, "adopted_by"),
        (RECORD.dump(), "r2/y", False, "adopted_by"),
        (RECORD.dump(), "r1/y", True, ""),
        (RECORD.dump(), "r2/y", True, "adopted_by"),
        (RECORD.dump(), "", False, "adopted_by"),
        (replace(RECORD, nonce="").dump(), "", False, ""),
        ("{", "r1/x", False, "bad_record"),
        (None, "r1/x", False, "not_in_maintenance"),
        (None, "r1/x", True, ""),
    ],
)
def test_whose_node_it_is_its_record_says(world: World, record: str | None, run: str, check: bool, code: str) -> None:
    annotations = {names.RECORD: record} if record else {}
    found, why = claim(world.process("me").ctx(run, check=check), Node.of(objects.node("n1", annotations=annotations)))
    assert (why.code if why else "") == code
    assert (found is not None) == (record not in (None, "{"))


@pytest.mark.parametrize(
    ("records", "run", "me"),
    [
        ([None, RECORD], "r2/y", "r1/x"),
        ([RECORD, replace(RECORD, run="r3")], "", "r1/x"),
        ([None, None], "r2/y", "r2/y"),
        ([None, None], "", "none"),
        ([None, None], "/y", "none"),
    ],
)
def test_a_call_acts_in_the_name_of_the_record_or_else_in_its_own(
    world: World, records: list[Record | None], run: str, me: str
) -> None:
    one = work(world, run=run)
    for guarded_node, record in zip(one.guarded_nodes.values(), records, strict=True):
        guarded_node.record = record
    assert one.identity(["n1", "n2"]) == Run.parse(me)


def test_only_open_nodes_are_served(world: World) -> None:
    one = work(world, "n1", "n2", "n3")
    one.guarded_nodes["n2"].outcome = GuardOutcome.HELD
    assert one.nodes == ("n1", "n3")


def test_each_kind_is_read_once_and_what_is_known_is_taken(world: World) -> None:
    one, me = work(world), world.process("me")
    world.apply(manifests.node("n1"))
    me.run(lambda _ctx: one.read("nodes", "pods"))
    me.run(lambda _ctx: one.read("nodes", "budgets", scales=[]))
    lists = [sent.request.resource for sent in world.log if sent.request.verb == "list"]
    assert lists == ["nodes", "pods", kinds.BUDGETS.resource]
    assert list(one.snapshot.nodes) == ["n1"]
    assert one.found["scales"] == []


@pytest.mark.parametrize(
    ("raw", "outcome", "words"),
    [
        (objects.node("n1", annotations={names.RECORD: RECORD.dump()}), None, ""),
        (objects.node("n1", annotations={names.RECORD: replace(RECORD, nonce="y").dump()}), "adopted_by", "run r1"),
        (objects.node("n1"), "adopted_by", "Node n1 is not in maintenance any more."),
        (None, "adopted_by", "Node n1 is not in maintenance any more."),
    ],
)
def test_a_node_that_changed_hands_before_it_was_locked_is_closed(
    world: World, raw: Raw | None, outcome: str | None, words: str
) -> None:
    """Those without a record have no owner, and none is asked for."""
    if raw:
        world.apply({"apiVersion": "v1", "kind": "Node", **raw})
    one, me = work(world, "n2", "n1"), world.process("me")
    one.guarded_nodes["n1"].record = RECORD
    me.run(lambda _ctx: one._look_again())
    assert (one.guarded_nodes["n1"].outcome, one.guarded_nodes["n2"].outcome) == (outcome, None)
    assert words in one.guarded_nodes["n1"].message


def test_nodes_without_a_record_need_no_lock(world: World) -> None:
    one, me = work(world), world.process("me")
    one.guarded_nodes["n2"].outcome = GuardOutcome.HELD
    assert me.run(lambda _ctx: one.lock(["n1", "n2"])) == ["n1"]
    assert world.log == []


# -- how long is waited --------------------------------------------------------------------------------


class Stuck(Surging):
    """Surges that are done after so many seconds; `undone` are the reasons for which they were given up."""

    def __init__(self, one: GuardCall, seconds: float) -> None:
        super().__init__(one.ctx, Run("r1", "x"), 0.0, lambda seen: {}, one.prove_locks, ["n1"], [])
        self.until, self.undone, self.steps = one.ctx.clock.now() + seconds, list[tuple[str, str]](), 0

    @property
    def done(self) -> bool:
        return self.ctx.clock.now() >= self.until

    def step(self, snapshot: Snapshot) -> None:
        self.steps += 1

    def fail_open(self, outcome: WorkloadOutcome, message: str, snapshot: Snapshot) -> None:
        self.undone.append((outcome, message))


class Counted(GuardBudgets):
    """Guards that count how often they were looked at."""

    steps = gave_up = 0

    def step(self, snapshot: Snapshot) -> None:
        self.steps += 1

    def give_up(self) -> None:
        self.gave_up += 1


def looped(one: GuardCall, surging: Surging, guards: GuardBudgets, limit: float | None) -> None:
    SurgeTurns(one, surging, guards, limit).run(WatchCache(one.ctx, ()))


@pytest.mark.parametrize(
    ("needed", "limit", "seconds", "given_up"),
    [
        pytest.param(0.0, 10.0, 0.0, False, id="at once"),
        pytest.param(9.5, 10.0, 9.5, False, id="in time"),
        pytest.param(10.5, 10.0, 10.5, True, id="too late, and undone soon"),
        pytest.param(500.0, 10.0, 70.0, True, id="a minute more to undo it"),
        pytest.param(200.0, None, 200.0, False, id="without a limit"),
        pytest.param(500.0, 0.0, 60.0, True, id="no time"),
    ],
)
def test_the_loop_ends_when_all_is_decided_or_a_minute_after_its_limit(
    world: World, needed: float, limit: float | None, seconds: float, given_up: bool
) -> None:
    one, me = work(world), world.process("me")
    surging, guards = Stuck(one, needed), Counted(one.ctx, [], one.prove_locks)
    began = world.machine.now
    me.run(lambda _ctx: looped(one, surging, guards, limit))
    assert world.machine.now - began == seconds
    assert surging.undone == ([("timed_out", f"not ready after {limit:g} s")] if given_up else [])
    assert guards.gave_up == given_up
    # What is given up is not written again.
    assert guards.steps == (int((limit or 0.0) / 0.5) + 1 if given_up else surging.steps)


def test_the_limit_counts_from_the_beginning_of_the_call(world: World) -> None:
    one, me = work(world), world.process("me")
    world.machine.run_for(8.0)
    surging = Stuck(one, 2.5)
    me.run(lambda _ctx: looped(one, surging, Counted(one.ctx, [], one.prove_locks), 10.0))
    assert surging.undone != []


def test_guards_that_are_not_in_place_are_waited_for(world: World) -> None:
    one, me = work(world), world.process("me")
    guards = Counted(one.ctx, [], one.prove_locks)
    guards.budgets = [t.cast("GuardBudget", type("Pending", (), {"settled": False, "waiting": "it"})())]
    began = world.machine.now
    me.run(lambda _ctx: looped(one, Stuck(one, 0.0), guards, 3.0))
    assert world.machine.now - began == 63.0


def progress(world: World, seconds: float, why: t.Callable[[float], t.Sequence[str]], pending: list[str]) -> list[str]:
    """What is told while these cases wait for that; looked at twice a second."""
    one, me = work(world), world.process("me")
    cases = [WorkloadSurge(Ref("Deployment", f"w{n}", "shop", f"uid-{n}"), "n1", "wait") for n in range(5)]
    surging = Surging(one.ctx, Run("r1"), 0.0, lambda seen: {}, one.prove_locks, [], cases)
    turns = SurgeTurns(one, surging, GuardBudgets(one.ctx, (), one.prove_locks), None)
    began = one.ctx.clock.now()
    lines: list[str] = []
    while (now := one.ctx.clock.now() - began) < seconds:
        for case, text in itertools.zip_longest(cases, why(now), fillvalue=""):
            t.cast("WorkloadSurge", case).waiting = text
        turns._tell_progress(pending)
        lines += [f"{now:g} {event.name} {event.message}".replace("  ", " ") for event in me.told[len(lines) :]]
        world.machine.run_for(0.5)
    return lines


def test_a_reason_is_told_after_a_second_and_when_it_changes(world: World) -> None:
    lines = progress(world, 8.0, lambda now: ["a" if now < 5 else "b"], [])
    assert lines == ["1 w0 waiting: a", "5 w0 waiting: b"]


def test_what_flaps_is_told_once_a_second(world: World) -> None:
    lines = progress(world, 5.0, lambda now: [f"{now:g}"], [])
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4"]


def test_guards_that_are_waited_for_are_told_once_three_by_name(world: World) -> None:
    lines = progress(world, 12.0, lambda now: [], [f"guard {n}" for n in range(5)])
    assert lines == ["1 waiting: guard 0, guard 1, guard 2 and 2 more"]


# -- what the result says ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "during"),
    [
        (WorkloadOutcome.RAISED, 3),
        (WorkloadOutcome.ALREADY_RAISED, 3),
        (WorkloadOutcome.GIVEN_BACK, 2),
        (WorkloadOutcome.TIMED_OUT, 2),
    ],
)
def test_a_surge_is_shown_with_its_replicas_and_the_budget_of_its_pods(
    world: World, outcome: WorkloadOutcome, during: int
) -> None:
    seen = objects.snapshot(pods=[objects.pod("p0")], budgets=[objects.budget("web", 1)])
    one = work(world)
    for budget, snapshot in (("web", seen), (None, objects.snapshot())):
        one.snapshot = snapshot
        one.show_surge(SURGE, outcome, "m")
        assert one.workloads[-1] == {
            "kind": "Deployment",
            "namespace": "shop",
            "name": "web",
            "replicas_before": 2,
            "replicas_during": during,
            "budget": budget,
            "outcome": outcome.value,
            "nodes": ["n1"],
            "message": "m",
        }


def guard_budget(**changes: t.Any) -> GuardBudget:
    seen = objects.snapshot(objects.deployment("web", 3))
    workload = seen.workload(WEB.uid)
    assert workload
    return GuardBudget(guard_budgets._guard(seen, workload, ["n1"], {}), **changes)


@pytest.mark.parametrize(
    ("changes", "instead", "outcome", "failed"),
    [
        ({"written": True}, False, "guarded", False),
        ({"written": False}, False, "already_guarded", False),
        ({"written": True}, True, "not_guarded", False),
        ({"written": True, "outcome": WorkloadOutcome.ENDED, "message": "gone"}, False, "ended", False),
        ({"outcome": WorkloadOutcome.GUARD_DENIED, "message": "no", "remedy": "Fix."}, False, "guard_denied", True),
    ],
)
def test_a_guard_is_shown_by_what_became_of_it(
    world: World, changes: Raw, instead: bool, outcome: str, failed: bool
) -> None:
    one, shown = work(world), guard_budget(**changes)
    foreign = Ref("PodDisruptionBudget", "foreign", "shop")
    if instead:
        shown.guard = replace(shown.guard, instead=foreign)
    one.show_guard(shown)
    (line,) = one.workloads
    assert (line["outcome"], line["nodes"], line["replicas_before"], line["replicas_during"]) == (outcome, ["n1"], 3, 3)
    assert line["budget"] == ("foreign" if instead else names.guard_name(WEB.uid))
    assert [(one.code, one.severity) for one in one.findings] == (
        [("guard_overlaps", "info")] if instead else [("guard_denied", "blocker")] if failed else []
    )
    assert (one.guarded_nodes["n1"].outcome, one.guarded_nodes["n2"].outcome) == ("blocked" if failed else None, None)
    assert not failed or one.guarded_nodes["n1"].message == "Node n1: no Fix."


@pytest.mark.parametrize(
    ("what", "outcome"),
    [
        (WorkloadOutcome.TIMED_OUT, "timed_out"),
        (WorkloadOutcome.NOT_GIVEN_BACK, "not_given_back"),
        (WorkloadOutcome.SURGE_DENIED, "blocked"),
    ],
)
def test_a_workload_that_failed_closes_the_nodes_that_this_call_has(
    world: World, what: WorkloadOutcome, outcome: str
) -> None:
    one = work(world)
    one.fail(["n9", "n2"], what, "Deployment shop/web", "It failed.", "Help it.")
    assert (one.guarded_nodes["n1"].outcome, one.guarded_nodes["n2"].outcome) == (None, outcome)
    assert one.guarded_nodes["n2"].message == "Node n2: It failed. Help it."
    (found,) = one.findings
    assert (found.code, found.object, found.severity) == (what.value, "Deployment shop/web", "blocker")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (CallAborted("held", "It stopped.", "Go on."), "held", "It stopped. Go on."),
        (errors.Forbidden("no"), "failed", str(errors.Forbidden("no"))),
    ],
)
def test_what_ends_the_call_closes_its_nodes(
    world: World, error: CallAborted | errors.ClusterError, code: str, message: str
) -> None:
    one = work(world)
    one.stop(["n2"], error)
    assert (one.guarded_nodes["n1"].outcome, one.guarded_nodes["n2"].outcome) == (None, "failed")
    assert one.guarded_nodes["n2"].message == message
    assert [(found.code, found.object) for found in one.findings] == [(code, "the call")]


@pytest.mark.parametrize("there", [True, False])
def test_a_guard_that_was_removed_is_shown_without_its_workload_too(world: World, there: bool) -> None:
    one = work(world)
    one.snapshot = objects.snapshot(objects.deployment("web", 3)) if there else objects.snapshot()
    budget = objects.snapshot(budgets=[objects.budget(names.guard_name(WEB.uid), 1)]).budgets[0]
    one.show_unguarded(budget, ["n2", "n1"])
    (line,) = one.workloads
    assert (line["outcome"], line["nodes"], line["namespace"]) == ("unguarded", ["n1", "n2"], "shop")
    assert (line["name"], line["replicas_before"], line["replicas_during"]) == (("web", 3, 3) if there else ("", 0, 0))
