# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One node of a drain and its pods: what ends with it, and what the result says of both."""

from __future__ import annotations

import itertools
import json
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node, Pod, Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_services import Services
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_drain, run_node_drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_node_drain import NodeDrain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import DrainOutcome, PodOutcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import PodPlan, Route
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.pod_rules import PodPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.run_pod_drain import PodDrain, State
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects

BLOCK = ("PodDisruptionBudget", "shop", "web", "Its budget allows nothing.")
NUMBERS = itertools.count()


def move(state: State, outcome: PodOutcome | None = None, route: Route = "evict", **changes: t.Any) -> PodDrain:
    """Of a pod of its own; it began at 10 s."""
    pod = Pod.of(objects.pod(f"p{next(NUMBERS)}"))
    plan = PodPlan(pod, route, changes.pop("code", "replicas"), "it is one of several.", None, remedy="Wait.")
    blocked = changes.pop("blocked", False)
    made = PodDrain(plan, state, 10.0, outcome, **changes)
    if blocked:
        kind, namespace, name, message = BLOCK
        made.block(Ref(kind, name, namespace), message)
    return made


def node_drain(*moves: PodDrain, outcome: DrainOutcome | None = None, **changes: t.Any) -> NodeDrain:
    return NodeDrain("n1", moves={one.pod.uid: one for one in moves}, outcome=outcome, **changes)


@pytest.mark.parametrize(
    ("before", "state", "outcome"),
    [
        ("waiting", "failed", "not_moved"),
        ("leaving", "failed", "still_ending"),
        ("asked", "asked", None),
        ("gone", "gone", None),
        ("skipped", "skipped", None),
    ],
)
def test_what_is_not_over_ends_with_its_node_but_for_requests_under_way(
    before: State, state: str, outcome: str | None
) -> None:
    one = move(before, reason="so it is")
    node_drain(one).end_moves(17.0)
    assert (one.state, one.outcome, one.reason) == (state, outcome, "so it is")
    assert one.ended == (17.0 if outcome else 0.0)


def test_a_node_that_is_closed_says_why_in_its_message_and_in_the_progress() -> None:
    with World() as world:
        me, one, here = world.process("me"), move("waiting"), node_drain()
        here.moves = {one.pod.uid: one}
        assert (here.open, here.failed) == (True, False)
        here.close(me.ctx(), DrainOutcome.TIMED_OUT, "time was up")
        assert (here.open, here.failed, here.message) == (False, True, "Node n1: time was up")
        assert one.outcome == "not_moved"
        assert [(event.node, event.what, event.message) for event in me.told] == [("n1", "timed_out", "time was up")]


@pytest.mark.parametrize(
    ("outcome", "failed"),
    [(None, False), (DrainOutcome.DRAINED, False), (DrainOutcome.GONE, False), (DrainOutcome.REFUSED, True)],
)
def test_a_node_has_failed_by_its_outcome(outcome: DrainOutcome | None, failed: bool) -> None:
    here = node_drain(outcome=outcome, message="m")
    assert here.failed is failed
    word = outcome.value if outcome else ""
    told = {"name": "n1", "outcome": word, "failed": failed, "message": "m", "moved_before": 0, "pods": []}
    assert here.to_dict(0.0) == told


@pytest.mark.parametrize("codes", [[], ["replicas"], ["replicas", "not_selected"]])
def test_a_node_with_pods_that_were_filtered_out_is_known(codes: list[str]) -> None:
    assert node_drain(*(move("waiting", code=code) for code in codes)).selected_only is ("not_selected" in codes)


@pytest.mark.parametrize(
    ("one", "seconds"),
    [
        (move("waiting"), 7.123),
        (move("leaving"), 7.123),
        (move("gone", ended=12.5), 2.5),
        (move("failed", ended=10.0625), 0.062),
        (move("skipped", PodOutcome.DAEMONSET, ended=12.5), 0.0),
    ],
)
def test_a_pod_waited_from_its_plan_to_its_end_or_to_now(one: PodDrain, seconds: float) -> None:
    (shown,) = node_drain(one).to_dict(17.1234)["pods"]
    assert shown["waited_seconds"] == seconds


@pytest.mark.parametrize(
    ("state", "blocked", "shown"),
    [("failed", True, True), ("failed", False, False), ("gone", True, False), ("waiting", True, False)],
)
def test_what_blocked_a_pod_is_shown_where_it_failed(state: State, blocked: bool, shown: bool) -> None:
    (entry,) = node_drain(move(state, blocked=blocked)).to_dict(0.0)["pods"]
    assert ("blocked_by" in entry) is shown
    assert not shown or entry["blocked_by"] == dict(zip(("kind", "namespace", "name", "message"), BLOCK, strict=True))


def test_an_undecided_pod_is_shown_as_not_moved() -> None:
    entries = node_drain(move("asked"), move("gone", PodOutcome.EVICTED, "job", reason="r")).to_dict(0.0)["pods"]
    assert [(e["route"], e["outcome"], e["reason"]) for e in entries] == [
        ("evict", "not_moved", ""),
        ("job", "evicted", "r"),
    ]


def test_the_proof_counts_the_pods_that_left_on_top_of_those_before_however_often_it_is_written() -> None:
    moves = [move("gone", PodOutcome.EVICTED), move("gone", PodOutcome.SURGED), move("skipped", PodOutcome.DAEMONSET)]
    record = Record("r1", "n1", "me", "", "2026-01-01T00:00:00Z", "cordoned", "u", "ns/l", {}, moved=7)
    one = node_drain(*moves, moved=7)
    for known in (record, replace(record, moved=9)):
        proof = one.drained(Node.of(objects.node("n1")), known)
        assert proof is not None
        assert json.loads((proof.body or {})["metadata"]["annotations"][names.RECORD])["moved"] == 9


def test_the_summary_counts_each_kind_of_pod() -> None:
    moves = [
        *(move("gone", PodOutcome.EVICTED, ours=True, refusals=2) for _one in range(4)),
        move("failed", ours=True),
        *(move("gone", PodOutcome.GONE) for _one in range(6)),
        *(move("gone", word) for word in (PodOutcome.SURGED, PodOutcome.MIGRATED, PodOutcome.MIGRATED)),
        *(move("skipped", PodOutcome.DAEMONSET) for _one in range(5)),
        move("failed", PodOutcome.FAILED, refusals=1),
    ]
    with World() as world:
        seen = Services(world.process("me").ctx(), {})
        node_drains = [
            node_drain(*moves[:7], outcome=DrainOutcome.DRAINED, message="fine"),
            node_drain(*moves[7:], outcome=DrainOutcome.FAILED, message="first"),
            node_drain(outcome=DrainOutcome.TIMED_OUT, message="second"),
        ]
        result = run_node_drain.result_of(node_drains, seen, 20.0, {"requests": 9, "seconds": 1.5})
    assert result.data["summary"] == {
        "evicted": 4,
        "migrated": 3,
        "skipped": 5,
        "failed": 2,
        "refusals": 9,
        "services": 0,
        "requests": 9,
        "seconds": 1.5,
    }
    assert (result.failed, result.message) == (True, "first; second")
    assert [entry["outcome"] for entry in result.data["nodes"]] == ["drained", "failed", "timed_out"]


def test_a_result_without_a_failed_node_has_not_failed() -> None:
    with World() as world:
        seen = Services(world.process("me").ctx(), {})
        result = run_node_drain.result_of([node_drain(outcome=DrainOutcome.DRAINED, message="fine")], seen, 0.0, {})
    assert (result.failed, result.message) == (False, "")


@pytest.mark.parametrize("count", [1, 9, 10, 11, 12])
def test_what_was_left_is_named_up_to_ten_pods(count: int) -> None:
    moves = [move("waiting", blocked=number == 0) for number in range(count)]
    first, *rest = (
        run_node_drain.too_late(moves, ["unheard"]).removeprefix(f"timed out with {count} pods left: ").split("; ")
    )
    assert first.startswith(f"{moves[0].pod.ref} (Its budget allows nothing. Wait.)")
    assert len(rest) == min(count, 10) - 1
    assert all(
        f"{one.pod.ref} (it is one of several. Wait.)" in text for one, text in zip(moves[1:10], rest, strict=True)
    )
    assert ("more" in (rest or [first])[-1]) == (count > 10)
    assert count <= 10 or rest[-1].endswith(f" and {count - 10} more")


@pytest.mark.parametrize("count", [1, 5, 6])
def test_without_pods_it_is_told_what_was_missing_up_to_five(count: int) -> None:
    missing = [f"m{number}" for number in range(count)]
    assert run_node_drain.too_late([], missing) == "timed out; " + "; ".join(missing[: min(count, 5)])


def blocked_by(text: str) -> PodDrain:
    made = move("waiting")
    made.block(Ref("Deployment", "web", "shop"), text)
    return made


@pytest.mark.parametrize(
    ("moves", "beside", "missing", "expected"),
    [
        ([], [], [], "all 0 pods gone, verifying"),
        ([move("gone"), move("skipped")], [], [], "all 1 pods gone, verifying"),
        ([move("gone")], [], ["room"], "all 1 pods gone; waiting: room"),
        ([move("gone")], ["a surge"], ["room"], "all 1 pods gone; waiting: a surge; room"),
        ([move("gone", blocked=True)], [], [], "all 1 pods gone, verifying"),
        ([move("waiting")], [], ["room"], "1 of 1 pods left, 0 ending"),
        ([move("leaving"), move("asked"), move("gone"), move("skipped")], [], [], "2 of 3 pods left, 1 ending"),
        ([move("waiting")], ["a surge"], [], "1 of 1 pods left, 0 ending; waiting: a surge"),
        ([blocked_by("b"), blocked_by("a"), blocked_by("b")], [], [], "3 of 3 pods left, 0 ending; waiting: a; b"),
        ([blocked_by(x) for x in "dcba"], [], [], "4 of 4 pods left, 0 ending; waiting: a; b; c"),
    ],
)
def test_the_progress_of_a_node_in_words(
    moves: list[PodDrain], beside: list[str], missing: list[str], expected: str
) -> None:
    with World() as world:
        me = world.process("me")
        run_drain.Progress(me.ctx()).tell([node_drain(*moves)], beside, missing)
        assert [(event.node, event.what, event.message) for event in me.told] == [("n1", "progress", expected)]


def test_of_a_closed_node_no_progress_is_told() -> None:
    with World() as world:
        me = world.process("me")
        run_drain.Progress(me.ctx()).tell([node_drain(outcome=DrainOutcome.FAILED)], [], [])
        assert me.told == []


WEB = Ref("Deployment", "web", "shop", "uid-web", "apps/v1")
DB = Ref("StatefulSet", "db", "shop", "uid-db", "apps/v1")


def ordered(one: PodDrain, order: int, workload: Ref | None = None) -> PodDrain:
    policy = PodPolicy(rule="rules[1]" if order else "", order=order)
    one.plan = replace(one.plan, policy=policy, workload=workload)
    return one


def test_a_pod_of_a_later_order_waits_for_its_turn_and_that_begins_when_the_others_are_gone() -> None:
    first, then = ordered(move("waiting"), 0, WEB), ordered(move("waiting"), 5, DB)
    node = node_drain(first, then)
    assert run_node_drain.set_turns([node], 11.0) == {DB.uid}
    assert [(one.waits_for_turn, one.turn_at) for one in (first, then)] == [(False, 11.0), (True, None)]
    blocked = then.blocked_by or {}
    assert (blocked["kind"], blocked["name"]) == ("Pod", first.pod.name)
    assert blocked["message"] == f"by rules[1] it leaves after {first.pod.ref}, which is still there"
    first.end("gone", PodOutcome.EVICTED, 12.0)
    assert run_node_drain.set_turns([node], 13.0) == frozenset()
    assert (then.waits_for_turn, then.turn_at, then.blocked_by) == (False, 13.0, None)
    then.block(WEB, "Its budget allows nothing.")
    run_node_drain.set_turns([node], 14.0)
    assert then.turn_at == 13.0
    assert then.blocked_by is not None


def test_a_pod_that_is_leaving_goes_on_whoever_would_leave_before_it() -> None:
    first, then = ordered(move("waiting"), 0), ordered(move("leaving"), 5)
    run_node_drain.set_turns([node_drain(first, then)], 11.0)
    assert (then.waits_for_turn, then.turn_at) == (False, 11.0)


def test_nodes_do_not_wait_for_each_other_and_closed_ones_for_nobody() -> None:
    first, then = ordered(move("waiting"), 0), ordered(move("waiting"), 5)
    late, last = ordered(move("waiting"), 0), ordered(move("waiting"), 5)
    closed = node_drain(late, last, outcome=DrainOutcome.TIMED_OUT)
    run_node_drain.set_turns([node_drain(first), node_drain(then), closed], 11.0)
    assert [one.turn_at for one in (first, then, late, last)] == [11.0, 11.0, None, None]


def test_a_pod_waits_for_its_surge_and_its_workload_for_none_of_those_that_may_leave() -> None:
    held, leaving = ordered(move("waiting"), 0, WEB), ordered(move("leaving"), 0, WEB)
    node = node_drain(held)
    assert run_node_drain.set_turns([node], 11.0, {WEB.uid: "no node has room"}) == {WEB.uid}
    assert (held.waits_for_turn, (held.blocked_by or {})["message"]) == (True, "its surge waits: no node has room")
    assert run_node_drain.set_turns([node_drain(held, leaving)], 12.0, {WEB.uid: "it starts"}) == frozenset()
    assert run_node_drain.set_turns([node], 13.0) == frozenset()
    assert (held.waits_for_turn, held.turn_at, held.blocked_by) == (False, 13.0, None)


def test_only_a_pod_whose_turn_it_is_can_be_overdue() -> None:
    policy = PodPolicy(rule="rules[0]", deadline=5.0)
    late, early, waits, free = (move("waiting", turn_at=10.0) for _ in range(4))
    for one in (late, early, waits):
        one.plan = replace(one.plan, policy=policy)
    early.turn_at, waits.waits_for_turn = 10.5, True
    moves = [late, early, waits, free, move("waiting")]
    assert run_node_drain.overdue(moves, 15.0) == []
    assert run_node_drain.overdue(moves, 15.2) == [late]
    run_node_drain.fail([late], 15.2)
    assert (late.state, late.outcome) == ("failed", PodOutcome.DEADLINE)
    assert late.reason == "the deadline of rules[0], 5 s, has passed. it is one of several."
