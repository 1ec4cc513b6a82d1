# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which evictions under one budget may be sent now: what it allows, who waits, and what is said of it."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.budgets import Verdict
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.operators import selectors_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_evictor import (
    BudgetState,
    BudgetStates,
    OperatorWaits,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.run_pod_drain import PodDrain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects

WEB = ("shop", "web")


def asks(
    budget: Raw,
    line: BudgetState,
    now: float = 100.0,
    *,
    operator: bool = False,
    planned: Raw | None = None,
    seen: Raw | None = None,
    more: tuple[Raw, ...] = (),
) -> tuple[bool, PodDrain]:
    """Whether an eviction under the budget may be sent, and the move of its pod after that."""
    known = seen or objects.pod("p0")
    others = [objects.pod(f"p{number}") for number in range(1, 4)]
    web = objects.deployment("web", 4)
    snapshot = objects.snapshot(web, pods=[*([] if known == {} else [known]), *others], budgets=[budget, *more])
    move = PodDrain(
        PodPlan(Pod.of(planned or objects.pod("p0")), "evict", "replicas", "", None), "waiting", 0.0, budget=WEB
    )
    waits = OperatorWaits(600.0, selectors_of(["app=web"] if operator else []))
    return BudgetStates({WEB: line}).may_ask(snapshot.budgets[0], move, snapshot, now, waits), move


UNREADY = objects.pod("p0", ready=False)


@pytest.mark.parametrize(
    ("allowed", "line", "expected"),
    [
        pytest.param(0, BudgetState(), False, id="nothing is allowed"),
        pytest.param(1, BudgetState(), True, id="one is"),
        pytest.param(1, BudgetState(busy=True), False, id="a request is under way"),
        pytest.param(1, BudgetState(seen="1", taken=1), False, id="that one was taken"),
        pytest.param(2, BudgetState(seen="1", taken=1), True, id="one of two was taken"),
        pytest.param(1, BudgetState(seen="0", taken=1), True, id="it was taken from an older status"),
        pytest.param(1, BudgetState(refused_at="1", ask_again=100.1), False, id="refused by this status a while ago"),
        pytest.param(1, BudgetState(refused_at="1", ask_again=100.0), True, id="refused long ago"),
        pytest.param(1, BudgetState(refused_at="0", ask_again=100.1), True, id="refused by an older status"),
        pytest.param(1, BudgetState(ask_again=100.1), True, id="never refused"),
    ],
)
def test_a_budget_is_asked_for_what_it_allows_and_was_not_taken_yet(
    allowed: int, line: BudgetState, expected: bool
) -> None:
    assert asks(objects.budget("web", allowed), line)[0] is expected


@pytest.mark.parametrize("observed", [True, False])
def test_a_status_that_is_not_computed_allows_nothing(observed: bool) -> None:
    may, move = asks(objects.budget("web", 1, observed=observed), BudgetState())
    assert may is observed
    assert observed or "not computed yet" in (move.blocked_by or {})["message"]


def test_what_was_taken_is_forgotten_with_a_new_status() -> None:
    line = BudgetState(seen="0", taken=2)
    asks(objects.budget("web", 1), line)
    assert (line.seen, line.taken) == ("1", 0)


@pytest.mark.parametrize(
    ("planned", "seen", "expected"),
    [
        pytest.param(None, None, False, id="it serves"),
        pytest.param(None, UNREADY, True, id="it does not serve any more"),
        pytest.param(UNREADY, None, False, id="it serves by now"),
        pytest.param(UNREADY, {}, True, id="the view has lost it: as it was planned"),
    ],
)
def test_a_pod_that_does_not_serve_takes_nothing_of_its_budget(
    planned: Raw | None, seen: Raw | None, expected: bool
) -> None:
    """By its present state; the budget is healthy, and another pod uses up what it allows."""
    budget, line = objects.budget("web", 1), BudgetState(seen="1", taken=1)
    may = BudgetStates({WEB: line})
    listed = [] if seen == {} else [seen or objects.pod("p0")]
    others = [objects.pod(f"p{number}") for number in range(1, 4)]
    snapshot = objects.snapshot(pods=[*listed, *others], budgets=[budget])
    move = PodDrain(
        PodPlan(Pod.of(planned or objects.pod("p0")), "evict", "not_ready", "", None), "waiting", 0.0, budget=WEB
    )
    assert may.may_ask(snapshot.budgets[0], move, snapshot, 100.0, OperatorWaits(600.0)) is expected


@pytest.mark.parametrize(
    ("operator", "line", "expected", "ask_again"),
    [
        pytest.param(True, BudgetState(), True, 0.0, id="never tried"),
        pytest.param(True, BudgetState(ask_again=100.0), True, 100.0, id="its time has come"),
        pytest.param(True, BudgetState(ask_again=100.1), False, 100.1, id="not yet, and that time does not move"),
        pytest.param(False, BudgetState(), False, 110.0, id="waiting is no use: ten seconds are waited"),
    ],
)
def test_a_budget_of_an_operator_is_tried_every_ten_seconds(
    operator: bool, line: BudgetState, expected: bool, ask_again: float
) -> None:
    assert asks(objects.budget("web", 0), line, operator=operator)[0] is expected
    assert line.ask_again == ask_again


@pytest.mark.parametrize(("evicted", "over"), [(False, True), (True, False)])
def test_the_time_of_an_operator_begins_anew_once_it_has_let_a_pod_go(evicted: bool, over: bool) -> None:
    """A pod that is held no longer for another reason says nothing of its operator."""
    waits = OperatorWaits(seconds=60.0)
    one, other = (
        PodDrain(PodPlan(Pod.of(objects.pod(name)), "evict", "replicas", "", None), "waiting", 0.0, budget=WEB)
        for name in ("p0", "p1")
    )
    for move in (one, other):
        waits.block(move, Verdict("operator_budget", "Its operator keeps it."), 0.0)
    waits.forget(one, 30.0, evicted=evicted)
    assert not waits.end_if_late(other, 59.0)
    assert waits.end_if_late(other, 60.0) is over
    assert over or waits.end_if_late(other, 90.0)


def test_a_budget_of_an_operator_is_tried_from_the_beginning() -> None:
    assert asks(objects.budget("web", 0), BudgetState(), 0.0, operator=True)[0]


def test_what_blocks_is_said_and_not_looked_at_again_for_ten_seconds() -> None:
    line = BudgetState()
    _may, move = asks(objects.budget("web", 0, healthy=2), line)
    assert move.blocked_by is not None
    assert (move.blocked_by["kind"], move.blocked_by["namespace"], move.blocked_by["name"]) == (
        "PodDisruptionBudget",
        *WEB,
    )
    assert asks(objects.budget("web", 0, healthy=2), line, 109.9)[1].blocked_by is None
    assert asks(objects.budget("web", 0, healthy=2), line, 110.0)[1].blocked_by is not None


def test_what_was_taken_of_a_budget_is_not_said_to_block() -> None:
    assert asks(objects.budget("web", 1), BudgetState(seen="1", taken=1))[1].blocked_by is None


@pytest.mark.parametrize(
    ("other", "outcome"),
    [(objects.budget("other", 1), "two_budgets"), (objects.guard("ReplicaSet", "web", 1), None)],
    ids=["other", "ours"],
)
def test_of_two_budgets_one_of_ours_is_waited_for(other: Raw, outcome: str | None) -> None:
    may, move = asks(objects.budget("web", 1), BudgetState(), more=(other,))
    assert not may
    assert move.outcome == outcome


def test_every_budget_has_a_line_and_pods_without_one_none() -> None:
    lines, pod = BudgetStates(), Pod.of(objects.pod("p0"))
    plan = PodPlan(pod, "evict", "replicas", "", None)
    lines.of(PodDrain(plan, "waiting", 0.0, budget=WEB)).busy = True
    assert lines.of(PodDrain(plan, "waiting", 0.0, budget=WEB)).busy
    assert not lines.of(PodDrain(plan, "waiting", 0.0, budget=("shop", "other"))).busy
    lines.of(PodDrain(plan, "waiting", 0.0)).busy = True
    assert not lines.of(PodDrain(plan, "waiting", 0.0)).busy


@pytest.mark.parametrize("held", [False, True])
def test_who_waits_behind_another_pod_waits_for_the_operator_only_if_that_one_does(held: bool) -> None:
    _may, move = asks(
        objects.budget("web", 0, healthy=2), BudgetState(busy=True, operator_has_to_act=held), operator=True
    )
    assert (move.blocked_by is not None) == held
    _may, move = asks(objects.budget("web", 0, healthy=2), BudgetState(busy=True), operator=True)
    assert move.blocked_by is None
