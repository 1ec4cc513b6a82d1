# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node conditions of a maintenance over whole runs: killed anywhere, beside heartbeats, after a notice."""

from __future__ import annotations

import functools
import itertools
import json
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context, Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_drain import DrainOptions, drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions, State
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning.run_plan import PlanOptions, make_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain, recover
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, Saved, World

THEIRS: list[Raw] = [
    {"type": "GPUHealthy", "status": "True", "reason": "Checked"},
    {"type": "Drained", "status": "False", "lastTransitionTime": "2025-12-01T00:00:00Z", "reason": "Back", "x": 1},
]
NOTICE = 600.0
STATUS = "nodes/status"


@pytest.fixture(scope="module")
def saved() -> Saved:
    with World(manifests.usual()) as world:
        beat(world, "n1", extra=THEIRS)
        return world.saved()


def conditions(world: World, name: str = "n1") -> list[Raw]:
    return list(world.get(kinds.NODES, name)["status"]["conditions"])


def beat(world: World, name: str = "n1", extra: t.Sequence[Raw] = ()) -> None:
    """A heartbeat: a kubelet writes its own conditions and leaves the others."""
    now = world.objects.wall()
    beaten = [{**c, "lastHeartbeatTime": now} if c["type"] == "Ready" else c for c in conditions(world, name)]
    world.patch(kinds.NODES, name, {"status": {"conditions": [*beaten, *extra]}}, subresource="status")


def true(world: World) -> list[str]:
    return [c["type"] for c in conditions(world) if c["type"] in names.LIFECYCLE and c["status"] == "True"]


def run(world: World, name: str = "me", **options: t.Any) -> Outcome:
    """The command, until it ends or dies."""
    me = world.process(name)
    given = Input(("n1",), **{"work": work, "node_conditions": True, **options})
    task = me.spawn(lambda: maintain(me, given))
    world.machine.run_until(lambda: not task.alive)
    return Outcome(wrong=["killed"]) if me.process.dead else t.cast("Outcome", task.value())


def work(actor: Actor, name: str) -> None:
    assert true(actor.world) == ["Drained", "MaintenanceInProgress"]
    actor.clock.sleep(5.0)


def status_writes(world: World) -> list[Raw]:
    return [dict(sent.request.body or {}) for sent in world.log if sent.request.resource == STATUS]


def test_a_run_shows_each_condition_in_turn_and_leaves_none(saved: Saved) -> None:
    with World.of(saved) as world:
        before, seen = conditions(world), list[list[str]]()

        def look() -> None:
            if [true(world)] != seen[-1:]:
                seen.append(true(world))

        world.machine.on_step.append(look)
        assert run(world).ok
        assert conditions(world) == before
        assert seen == [
            [],
            ["MaintenancePlanned"],
            ["MaintenancePlanned", "DrainInProgress"],
            ["Drained", "MaintenancePlanned"],
            ["Drained", "MaintenanceInProgress"],
            ["Drained"],
            [],
        ]
        # The lifecycle controller's taint comes between the cordon and the first of them.
        assert 6 <= len(status_writes(world)) <= 7


def test_who_does_not_ask_for_it_pays_nothing(saved: Saved) -> None:
    with World.of(saved) as world:
        plain = World.of(saved)
        with plain:
            assert run(plain, work=lambda actor, _name: actor.clock.sleep(5.0), node_conditions=False).ok
            asked = [(sent.request.verb, sent.request.resource) for sent in plain.log]
        assert run(world).ok
        shown = [(sent.request.verb, sent.request.resource) for sent in world.log]
    assert ("patch", STATUS) not in asked
    nodes = ("get", "nodes")
    assert shown.count(nodes) - asked.count(nodes) <= 2


def node_write(ordinal: int) -> t.Callable[[Request], bool]:
    count = itertools.count(1)
    return lambda request: request.writes and request.resource in ("nodes", STATUS) and next(count) == ordinal


@pytest.mark.parametrize("when", ["killed before", "killed after"])
@pytest.mark.parametrize("ordinal", range(1, 14))
@pytest.mark.parametrize("then", ["the same command", "without conditions", "recover"])
def test_a_run_that_is_killed_at_any_write_of_the_node_leaves_nothing(
    saved: Saved, ordinal: int, when: t.Any, then: str
) -> None:
    with World.of(saved) as world:
        before = conditions(world)
        world.process("me").faults.when(node_write(ordinal), Fault(when))
        assert run(world).wrong == ["killed"]
        world.machine.run_for(200.0)
        if then == "recover":
            ann = world.process("ann")
            named = [record["run"] for record in records(world)]
            wrong = ann.spawn(lambda: recover(ann, named[0] if named else ""))
            world.machine.run_until(lambda: not wrong.alive)
            assert wrong.value() == []
        else:
            options: Raw = {}
            if then == "without conditions":
                options = {"work": lambda *_all: None, "node_conditions": False}
            if any(record["step"] == "out" for record in records(world)):
                # Tasks may still run on the host: only its run, by name, takes such a node.
                options["run"] = records(world)[0]["run"]
            outcome = run(world, **options)
            assert (outcome.failed, outcome.wrong) == ({}, [])
        assert conditions(world) == before
        assert names.RECORD not in (world.get(kinds.NODES, "n1")["metadata"].get("annotations") or {})


def records(world: World) -> list[Raw]:
    found = [world.get(kinds.NODES, "n1")["metadata"].get("annotations") or {}]
    return [json.loads(each[names.RECORD]) for each in found if names.RECORD in each]


def test_thirteen_are_all_writes_of_the_node(saved: Saved) -> None:
    with World.of(saved) as world:
        assert run(world).ok
        writes = [sent.request for sent in world.log if sent.request.writes]
        assert len([request for request in writes if request.resource in ("nodes", STATUS)]) == 13


@pytest.mark.parametrize("what", ["lost", "in doubt", "conflict", "error", "throttled"])
@pytest.mark.parametrize("ordinal", range(1, 7))
def test_a_write_of_the_conditions_that_fails_is_made_good(saved: Saved, ordinal: int, what: t.Any) -> None:
    count = itertools.count(1)
    with World.of(saved) as world:
        before = conditions(world)
        world.process("me").faults.when(lambda r: r.resource == STATUS and next(count) == ordinal, Fault(what))
        assert run(world).ok
        assert conditions(world) == before


def test_a_heartbeat_between_each_read_and_write_is_kept(saved: Saved) -> None:
    with World.of(saved) as world:
        me = world.process("me")
        beats: list[Raw] = []

        def overtake() -> None:
            beat(world)
            beats[:] = [c for c in conditions(world) if c["type"] == "Ready"]

        for _each in range(6):
            me.faults.overtaken(lambda request: request.resource == STATUS, overtake)
        before = conditions(world)
        assert run(world).ok
        after = conditions(world)
    assert after[0] == beats[0] != before[0]
    assert after[1:] == before[1:]


def bring(state: State, ctx: Context, **options: t.Any) -> Result:
    return cordon(ctx, CordonOptions(state, ("n1",), **options))


def _with(ctx: Context, call: t.Callable[[Context], Result], _other: Context) -> Result:
    return call(ctx)


def test_check_mode_names_exactly_what_is_done(saved: Saved) -> None:
    """Each call by itself: what it would do to the node as it is, and then does."""
    emptied = functools.partial(drain, options=DrainOptions(("n1",), DrainPolicy()))
    calls: list[t.Callable[[Context], Result]] = [
        functools.partial(bring, "cordoned", node_conditions=True, planned_notice=NOTICE),
        emptied,
        functools.partial(bring, "out"),
        functools.partial(bring, "parked"),
        functools.partial(bring, "returning"),
        functools.partial(bring, "uncordoned"),
    ]
    with World([manifests.node("n1"), manifests.node("n2")]) as world:
        for number, call in enumerate(calls):
            told: list[list[str]] = []
            for check in (True, False):
                me = world.process(f"me-{number}-{check}")
                ctx = me.ctx(check=check)
                before = len(status_writes(world))
                result = me.run(functools.partial(_with, ctx, call))
                assert not result.failed, result.message
                shows = any(change.verb == "status" for change in ctx.changes)
                assert (len(status_writes(world)) > before) is (shows and not check)
                told.append([change.sentence for change in ctx.changes])
            assert told[0] == told[1] != []
        assert true(world) == []


def notified(world: World, planned: float = NOTICE) -> tuple[Outcome, float]:
    """The run, and for how long others knew before the drain began."""
    moments: dict[str, float] = {}

    def look() -> None:
        for kind in true(world):
            moments.setdefault(kind, world.machine.now)

    world.machine.on_step.append(look)
    outcome = run(world, planned_notice=planned)
    return outcome, moments.get("DrainInProgress", 0.0) - moments["MaintenancePlanned"]


def test_others_have_time_to_react_before_the_first_pod_moves(saved: Saved) -> None:
    with World.of(saved) as world:
        outcome, waited = notified(world)
        assert outcome.ok
        assert NOTICE - 1.0 <= waited < NOTICE + 30.0


@pytest.mark.parametrize("after", [0.0, 100.0, 500.0, 900.0])
def test_after_a_kill_only_the_rest_of_the_notice_is_waited_for(saved: Saved, after: float) -> None:
    """By the API server's clock: the next run's own is an hour behind."""
    with World.of(saved) as world:
        me = world.process("me")
        task = me.spawn(lambda: maintain(me, Input(("n1",), node_conditions=True, planned_notice=NOTICE)))
        world.machine.run_until(lambda: "MaintenancePlanned" in true(world))
        began = world.machine.now
        world.machine.run_for(50.0)
        me.process.kill()
        world.machine.run_until(lambda: not task.alive)
        world.machine.run_for(after)
        ann = world.process("ann", skew=-3600.0)
        given = Input(("n1",), node_conditions=True, planned_notice=NOTICE)
        task = ann.spawn(lambda: maintain(ann, given))
        world.machine.run_until(lambda: "DrainInProgress" in true(world), within=4000.0)
        waited = world.machine.now - began
        world.machine.run_until(lambda: not task.alive)
        assert t.cast("Outcome", task.value()).ok
        assert waited >= NOTICE - 1.0
        assert waited < max(NOTICE, 50.0 + after) + 80.0
        assert true(world) == []


@pytest.mark.parametrize("kind", ["MaintenancePlanned", "Drained"])
def test_what_somebody_else_has_set_outlives_the_run(saved: Saved, kind: str) -> None:
    theirs = {"type": kind, "status": "True", "reason": "Firmware", "message": "theirs"}
    with World.of(saved) as world:
        others = [c for c in conditions(world) if c["type"] != kind]
        world.patch(kinds.NODES, "n1", {"status": {"conditions": [*others, theirs]}}, subresource="status")
        before = conditions(world)
        assert run(world, work=lambda actor, _name: actor.clock.sleep(1.0)).ok
        assert conditions(world) == before


def test_a_node_that_somebody_else_works_on_is_left_alone(saved: Saved) -> None:
    theirs = {"type": "MaintenanceInProgress", "status": "True", "reason": "Firmware", "message": "theirs"}
    with World.of(saved) as world:
        beat(world, extra=[theirs])
        before = world.get(kinds.NODES, "n1")
        outcome = run(world)
        assert ["Firmware: theirs" in wrong for wrong in outcome.wrong] == [True]
        assert world.get(kinds.NODES, "n1") == before


@pytest.mark.parametrize("wanted", [True, False])
def test_the_plan_asks_for_the_permission_only_where_it_is_needed(saved: Saved, wanted: bool) -> None:
    with World.of(saved) as world:
        world.server.denied.add(("patch", STATUS))
        me = world.process("me")
        result = me.run(lambda ctx: make_plan(ctx, PlanOptions(("n1",), node_conditions=wanted)))
        told = [finding["message"] for finding in result.data["findings"] if finding["code"] == "missing_permission"]
        assert told == (["These credentials may not patch nodes/status in the whole cluster."] if wanted else [])


def test_the_plan_for_a_node_that_has_conditions_asks_for_it_too_and_the_notice_is_forecast(saved: Saved) -> None:
    with World.of(saved) as world:
        me = world.process("me")
        plan = functools.partial(make_plan, options=PlanOptions(("n1",)))
        short = me.run(plan).data["estimate_seconds"]
        options = PlanOptions(("n1",), node_conditions=True, planned_notice=NOTICE)
        assert me.run(lambda ctx: make_plan(ctx, options)).data["estimate_seconds"] == short + NOTICE
        steps: tuple[State, ...] = ("cordoned", "parked")
        for state in steps:
            me.run(functools.partial(bring, state, node_conditions=True))
        world.server.denied.add(("patch", STATUS))
        codes = [finding["code"] for finding in me.run(plan).data["findings"]]
        assert "missing_permission" in codes


@pytest.mark.parametrize("state", ["cordoned", "uncordoned"])
def test_who_may_not_write_the_status_is_told_and_the_record_stays(saved: Saved, state: t.Any) -> None:
    with World.of(saved) as world:
        me = world.process("me")
        if state == "uncordoned":
            assert not me.run(functools.partial(bring, "cordoned", node_conditions=True)).failed
        world.server.denied.add(("patch", STATUS))
        result = me.run(functools.partial(bring, state, node_conditions=True))
        assert result.failed
        assert "nodes/status" in result.message
        assert len(records(world)) == 1
        world.server.denied.clear()
        assert not me.run(functools.partial(bring, "uncordoned")).failed
        assert (records(world), true(world)) == ([], [])
