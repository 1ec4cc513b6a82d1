# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When the drain of a node ends, and as what: each rule alone, at its bounds."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod, Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_outcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import DrainOutcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import PodPlan
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.still_drain import Bench

Make = t.Callable[..., Bench]


@pytest.fixture
def bench() -> t.Iterator[Make]:
    made: list[Bench] = []

    def make(**options: t.Any) -> Bench:
        made.append(Bench(**options))
        return made[-1]

    yield make
    for one in made:
        one.world.close()


def stays(bench: Bench, name: str) -> Raw:
    """A pod that runs on n1."""
    raw = manifests.template("web", nodeName="n1")
    meta = {"name": name, "namespace": manifests.SHOP, **raw["metadata"]}
    bench.world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": raw["spec"]})
    return bench.world.get(kinds.PODS, name)


# -- the end -------------------------------------------------------------------------------------------


def test_a_node_without_pods_is_drained_and_its_record_says_so(bench: Make) -> None:
    one = bench().watch()
    assert one.decide() == "drained"
    assert (one.step_of("n1"), one.step_of("n2")) == ("drained", "cordoned")
    assert one.node_drain.message == "Node n1 is drained."
    assert [(event.what, event.node) for event in one.me.told] == [("drained", "n1")]


@pytest.mark.parametrize(("seconds", "outcome"), [(0.99, ""), (1.0, "drained")])
def test_its_pods_have_to_be_quiet_for_a_second(bench: Make, seconds: float, outcome: str) -> None:
    one = bench().watch()
    one.node_drain.quiet_since = one.ctx.clock.now()
    one.world.machine.run_for(seconds)
    assert one.decide() == outcome


def test_an_interrupted_watch_proves_nothing(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench().watch()
    monkeypatch.setattr(one.live, "quiet_for", lambda name: 0.0)
    assert one.decide() == ""
    monkeypatch.setattr(one.live, "quiet_for", lambda name: 0.5)
    assert one.decide() == "drained"


@pytest.mark.parametrize("state", ["waiting", "asked", "leaving"])
def test_a_node_with_pods_that_are_left_goes_on(bench: Make, state: t.Any) -> None:
    one = bench().watch()
    one.move("p0", state)
    assert one.decide() == ""


def test_what_the_other_parts_wait_for_is_waited_for(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench().watch()
    for part in (one.work.surges, one.work.jobs):
        with monkeypatch.context() as patch:
            patch.setattr(part, "done_with", lambda node: node != "n1")
            assert one.decide() == ""
    with monkeypatch.context() as patch:
        patch.setattr(one.replacements, "missing", lambda seen: ["a pod"])
        assert one.decide() == ""
    assert one.decide() == "drained"


def test_a_surge_that_failed_fails_its_node(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench().watch()
    monkeypatch.setattr(one.work.surges, "failed_for", lambda node: f"surge of {node}")
    assert (one.decide(), one.node_drain.message) == ("failed", "Node n1: surge of n1")


def test_pods_that_were_not_selected_are_no_drained_node(bench: Make) -> None:
    one = bench().watch()
    one.move("p0", "skipped", "skip", code="not_selected")
    assert one.decide() == "selected_gone"
    assert one.step_of("n1") == "cordoned"


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        pytest.param(None, "", id="a pod that nobody knew"),
        pytest.param("gone", "", id="a pod that was gone"),
        pytest.param("skipped", "drained", id="a pod that may stay"),
    ],
)
def test_a_fresh_list_of_the_node_proves_that_it_is_empty(bench: Make, state: t.Any, outcome: str) -> None:
    one = bench()
    raw = stays(one, "p0")
    one.watch()
    if state:
        one.move("p0", state).plan = PodPlan(Pod.of(raw), "evict", "replicas", "", None)
        one.node_drain.moves = {raw["metadata"]["uid"]: one.node_drain.moves["uid-p0"]}
    assert one.decide() == outcome
    assert (one.node_drain.quiet_since == one.ctx.clock.now()) == (not outcome), "it has to be quiet again"
    listed = [sent.request for sent in one.world.log if (sent.request.verb, sent.request.resource) == ("list", "pods")]
    assert "spec.nodeName" in str(listed[-1]), "not of the whole cluster"


# -- what fails ----------------------------------------------------------------------------------------


def test_a_pod_that_failed_fails_its_node_and_is_named_up_to_ten(bench: Make) -> None:
    one = bench().watch()
    for number in range(11):
        one.move(f"p{number:02}", "failed", reason=f"why {number}.")
    assert one.decide() == "failed"
    wanted = "; ".join(f"Pod shop/p{number:02}: why {number}." for number in range(10))
    assert one.node_drain.message == f"Node n1: {wanted}"


def test_a_request_that_is_under_way_is_waited_for_before_a_node_fails(bench: Make) -> None:
    one = bench(timeout=0.1).watch()
    one.move("p0", "failed")
    asked = one.move("p1", "asked")
    assert one.decide() == ""
    asked.state = "leaving"
    assert one.decide() == "failed"
    assert asked.outcome == "still_ending"


@pytest.mark.parametrize(("seconds", "outcome"), [(59.9, ""), (60.0, "timed_out"), (60.1, "timed_out")])
def test_a_drain_ends_at_its_deadline(bench: Make, seconds: float, outcome: str) -> None:
    one = bench(timeout=60.0)
    one.move("p0", "waiting")
    one.world.machine.run_for(seconds)
    assert one.decide() == outcome
    assert not outcome or one.node_drain.message.startswith("Node n1: timed out with 1 pods left: Pod shop/p0 (")


def test_without_pods_a_drain_times_out_with_what_is_missing(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench(timeout=60.0)
    monkeypatch.setattr(one.replacements, "missing", lambda seen: ["a replacement"])
    one.world.machine.run_for(60.0)
    assert (one.decide(), one.node_drain.message) == ("timed_out", "Node n1: timed out; a replacement")


@pytest.mark.parametrize(
    ("left_at", "seconds", "outcome"),
    [(None, 30.0, ""), (None, 30.01, "timed_out"), (5.0, 35.0, ""), (5.0, 35.01, "timed_out")],
)
def test_a_pod_has_its_own_time_from_when_it_left(
    bench: Make, left_at: float | None, seconds: float, outcome: str
) -> None:
    one = bench(pod_timeout=30.0)
    late, other = one.move("p0", "leaving"), one.move("p1", "waiting")
    late.left_at = None if left_at is None else late.since + left_at
    other.since += 1000.0
    one.world.machine.run_for(seconds)
    assert one.decide() == outcome
    assert not outcome or "p0" in one.node_drain.message
    assert "p1" not in one.node_drain.message, "it is not late"


def test_a_node_whose_kubelet_is_gone_is_given_up(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench()
    one.move("p0", "leaving")
    monkeypatch.setattr(one.node_outcomes._kubelets, "given_up", lambda node_drain: f"{node_drain.name} is silent")
    assert (one.decide(), one.node_drain.message) == ("unreachable", "Node n1: n1 is silent")


# -- whose node it is ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "lost", "abandoned"),
    [
        (DrainOutcome.ADOPTED_BY, True, False),
        (DrainOutcome.UNCORDONED, True, True),
        (DrainOutcome.UNTAINTED, True, True),
        (DrainOutcome.TIMED_OUT, False, True),
        (DrainOutcome.GONE, False, True),
    ],
)
def test_what_ends_with_a_node_depends_on_whose_it_is_now(
    bench: Make, monkeypatch: pytest.MonkeyPatch, outcome: DrainOutcome, lost: bool, abandoned: bool
) -> None:
    one, done = bench(), list[str]()
    monkeypatch.setattr(one.work.surges, "lose", lambda node, why: done.append(f"lost {node}: {why}"))
    monkeypatch.setattr(one.work.jobs, "abandon", lambda node, why: done.append(why))
    one.do(lambda: one.node_outcomes._close(one.node_drain, outcome, "so it is"))
    told = ["lost n1: so it is"] if lost else []
    assert done == [*told, *(["Node n1 is not emptied after all: so it is"] if abandoned else [])]


def test_a_node_is_taken_over_once_and_alone(bench: Make) -> None:
    one = bench()
    for why in ("by r2", "by r3"):
        one.do(lambda why=why: one.node_outcomes.taken_over("n1", why))  # type: ignore[misc]
    assert one.node_drain.outcome == "adopted_by"
    assert one.node_drain.message == "Node n1: it was taken over (by r2); nothing more is sent for it"
    assert one.node_drains["n2"].open


def test_a_lock_that_was_lost_closes_its_node(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench()
    nodes = {name: node_drain.node for name, node_drain in one.node_drains.items() if node_drain.node}
    monkeypatch.setattr(one.work.locks, "lost", lambda: {"n2": "by r2"})
    one.do(lambda: one.node_outcomes.check_ours(nodes))
    assert (one.node_drain.outcome, one.node_drains["n2"].outcome) == (None, "adopted_by")


def test_the_nodes_are_looked_at_as_they_are_now_and_closed_ones_no_more(bench: Make) -> None:
    one = bench()
    one.node_drains["n2"].outcome = DrainOutcome.FAILED
    one.move("p0", "waiting")
    one.do(lambda: one.node_outcomes.check_ours({}))
    assert (one.node_drain.outcome, one.node_drains["n2"].outcome) == ("gone", "failed")
    assert one.node_drain.node is None


def test_only_closed_nodes_are_wound_up(bench: Make) -> None:
    one = bench()
    open_, closed = one.move("p0", "leaving"), one.move("p1", "leaving", on="n2")
    one.node_drains["n2"].outcome = DrainOutcome.FAILED
    one.do(one.node_outcomes.finish)
    assert (open_.state, closed.outcome) == ("leaving", "still_ending")


@pytest.mark.parametrize("what", ["uncordoned", "failed"])
def test_a_proof_is_written_only_while_the_node_is_out(bench: Make, what: str) -> None:
    one = bench().watch()
    if what == "uncordoned":
        one.world.cordon("n1", False)
        one.world.machine.run_for(1.0)
    else:
        one.world.server.denied.add(("patch", "nodes"))
    one.do(lambda: one.node_outcomes.prove(one.node_drain))
    assert one.node_drain.outcome == what
    assert one.step_of("n1") == "cordoned"
    assert one.node_drain.failed


# -- at first ------------------------------------------------------------------------------------------


def at_first(one: Bench, **kinds_: list[Raw]) -> tuple[str, str]:
    one.do(lambda: run_outcome.check_start(one.ctx, one.routing, objects.snapshot(**kinds_)))
    return (one.node_drain.outcome.value if one.node_drain.outcome else "", one.node_drain.message)


def test_a_pod_that_may_not_be_moved_keeps_its_whole_node_as_it_is(bench: Make) -> None:
    one = bench()
    moves = [one.move(f"p{n:02}", "waiting", "refuse", reason=f"no {n}.") for n in range(11)]
    other = one.move("q", "waiting")
    outcome, message = at_first(one)
    assert outcome == "refused"
    assert message.count("shop/") == 10
    assert message.startswith("Node n1 is left as it is: Pod shop/p00: no 0. Pod shop/p01: no 1. ")
    assert {(move.state, move.outcome) for move in moves} == {("failed", "refused")}
    assert (other.state, one.node_drains["n2"].outcome) == ("waiting", None)


GUARDED: Raw = {"guarded": True}


@pytest.mark.parametrize(
    ("route", "changes", "budgets", "check", "outcome", "words"),
    [
        ("surge", {}, [], False, "needs_surge", "leaves by a surge, which is not prepared"),
        ("surge", {}, [], True, "", ""),
        ("evict", GUARDED, [], False, "needs_guard", "has no budget and no guard"),
        ("evict", GUARDED, [], True, "", ""),
        ("evict", GUARDED, [objects.budget("web", 1)], False, "", ""),
        ("evict", {}, [], False, "", ""),
        ("skip", GUARDED, [], False, "", ""),
    ],
)
def test_what_pdb_guard_has_to_do_first_is_not_done_without_it(
    bench: Make, route: t.Any, changes: Raw, budgets: list[Raw], check: bool, outcome: str, words: str
) -> None:
    one = bench(check=check)
    moves = [one.move(f"p{number:02}", "waiting", route, **changes) for number in range(11)]
    found, message = at_first(one, budgets=budgets)
    assert found == outcome
    assert {move.outcome for move in moves} == {outcome or None}
    assert not outcome or message.endswith(". Call pdb_guard with state=present first.")
    assert not outcome or message.count(words) == 10


@pytest.mark.parametrize("prepared", [True, False])
def test_a_surge_is_prepared_by_the_surge_of_its_workload(bench: Make, prepared: bool) -> None:
    one = bench()
    move = one.move("p0", "waiting", "surge")
    workload = Ref("Deployment", "web", "shop", "uid-web")
    move.plan = PodPlan(move.pod, "surge", "single", "", workload)
    one.routing.surges = t.cast("t.Any", {"uid-web" if prepared else "uid-other": None})
    assert at_first(one)[0] == ("" if prepared else "needs_surge")


@pytest.mark.parametrize(
    ("step", "code", "check", "outcome"),
    [
        ("drained", "daemonset", False, "already_drained"),
        ("cordoned", "daemonset", False, ""),
        ("drained", "daemonset", True, ""),
        ("drained", "not_selected", False, "selected_gone"),
        ("cordoned", "not_selected", False, "selected_gone"),
        ("cordoned", "not_selected", True, ""),
    ],
)
def test_a_node_with_nothing_to_do_is_done(bench: Make, step: t.Any, code: str, check: bool, outcome: str) -> None:
    one = bench(step=step, check=check)
    one.move("p0", "skipped", "skip", code=code)
    assert at_first(one)[0] == outcome
    assert one.node_drain.failed is False


def test_the_locks_of_nodes_that_the_run_will_not_come_back_for_are_left(bench: Make) -> None:
    one = bench()
    one.node_drains["n2"].outcome = DrainOutcome.GONE
    assert one.do(one.node_outcomes.left_to_others) == ["n2"]
    one.node_drain.outcome = DrainOutcome.ADOPTED_BY
    assert one.do(one.node_outcomes.left_to_others) == ["n1", "n2"]
    one.node_drain.outcome = DrainOutcome.FAILED
    assert one.do(one.node_outcomes.left_to_others) == ["n2"]


@pytest.mark.parametrize(("first", "second"), [("surge", "evict"), ("evict", "surge")])
def test_of_several_pods_that_lack_something_the_first_names_the_outcome_and_all_are_told(
    bench: Make, first: t.Any, second: t.Any
) -> None:
    one = bench()
    moves = [one.move(f"p{n}", "waiting", route, guarded=True) for n, route in enumerate((first, second))]
    outcome, message = at_first(one)
    lacks = {"surge": "needs_surge", "evict": "needs_guard"}
    assert outcome == lacks[first]
    assert [move.outcome for move in moves] == [lacks[first], lacks[second]]
    assert message.index("Pod shop/p0") < message.index("Pod shop/p1")
