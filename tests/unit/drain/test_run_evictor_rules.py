# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which moves the evictor queues and sends, and what it makes of the answers: rule by rule."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.budgets import Verdict
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.operators import selectors_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_evictor import (
    BudgetState,
    OperatorWaits,
    again_after,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.run_pod_drain import PodDrain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, serving
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.evicting import (
    Make,
    Scene,
    of_evictions,
    pods,
    scenes,
)

WEB = ("shop", "web")


@pytest.fixture
def scene() -> t.Iterator[Make]:
    with scenes() as make:
        yield make


# -- which moves are queued ----------------------------------------------------------------------------


def test_twelve_requests_are_queued_for_eight_workers(scene: Make) -> None:
    many = scene(*pods(14))
    many.me.faults.when(of_evictions, Fault("late", 1.0), times=14)
    many.step()
    assert many.states() == ["asked"] * 12 + ["waiting"] * 2
    many.settle()
    many.step()
    assert many.states() == ["leaving"] * 12 + ["asked"] * 2
    many.settle()


def another_route(many: Scene) -> None:
    plan = many.moves[0].plan
    many.moves[0].plan = PodPlan(plan.pod, "wait", plan.code, "", None)


def on_its_way(many: Scene) -> None:
    many.moves[0].state = "leaving"


def too_early(many: Scene) -> None:
    many.moves[0].not_before = many.me.clock.now() + 0.1


@pytest.mark.parametrize("why", [another_route, on_its_way, too_early])
def test_a_move_whose_turn_it_is_not_is_passed_over(scene: Make, why: Callable[[Scene], None]) -> None:
    two = scene(*pods(2))
    why(two)
    two.turn()
    assert [request.name for request in two.asked] == ["p01"]


def test_a_pause_ends_at_its_second(scene: Make) -> None:
    one = scene(*pods(1))
    one.moves[0].not_before = one.me.clock.now()
    one.step()
    assert one.states() == ["asked"]
    one.settle()


@pytest.mark.parametrize("held", ["budget", "count", "last"])
def test_a_pod_that_has_to_stay_holds_up_no_other(scene: Make, held: str) -> None:
    """Those of `web` stay; `zoo` has pods of its own."""
    web = {"budget": 3, "count": 2, "last": 1}[held]
    budget = [manifests.budget("web", minAvailable=3)] if held == "budget" else []
    both = scene(manifests.deployment("web", web), manifests.deployment("zoo", 2), *budget)
    if held == "count":
        unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        both.world.patch(kinds.PODS, both.moves[0].pod.name, unready, subresource="status")
        both.moves[:2] = both.moves[1:2]
        both.seen = both.look()
    both.turn()
    assert [request.name.partition("-")[0] for request in both.asked] == ["zoo"]
    assert both.moves[0].blocked_by is not None or both.moves[0].outcome == "needs_surge"


@pytest.mark.parametrize("what", ["budget", "last", "count"])
def test_a_deletion_asks_no_budget_and_counts_nobody(scene: Make, what: str) -> None:
    """`disable_eviction` is for those who know better."""
    count = 1 if what == "last" else 2
    budget = [manifests.budget("web", minAvailable=count)] if what == "budget" else []
    web = scene(manifests.deployment("web", count), *budget, delete=True)
    web.step()
    web.settle()
    assert web.states() == ["leaving"] * count
    assert web.asked == []
    deleted = [
        sent.request for sent in web.world.log if (sent.request.verb, sent.request.resource) == ("delete", "pods")
    ]
    assert len(deleted) == count


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed", "Running"])
def test_a_pod_that_has_not_begun_or_has_ended_asks_no_budget(scene: Make, phase: str) -> None:
    one = scene(*pods(1), manifests.budget("web", minAvailable=1))
    (raw,) = one.world.pods()
    raw = {**raw, "status": {**raw["status"], "phase": phase}}
    one.seen = objects.snapshot(pods=[raw], budgets=[one.world.get(kinds.BUDGETS, "web")])
    one.moves = [PodDrain(PodPlan(one.seen.pods[0], "evict", "pending", "", None), "waiting", 0.0)]
    one.step()
    assert one.moves[0].budget == (WEB if phase == "Running" else None)
    assert one.states() == ["waiting" if phase == "Running" else "asked"]
    one.settle()


# -- right before the first byte -----------------------------------------------------------------------


def hesitating(scene: Make, **options: t.Any) -> tuple[Scene, Callable[[], None]]:
    """Two of four pods of `web`: the first one is queued, and its lock is proven when that is called."""

    def hesitant(_node: str) -> None:
        proven.wait()

    web = scene(manifests.deployment("web", 4), prove_lock=hesitant, **options)
    proven = web.me.clock.event()
    web.moves = web.moves[:1]
    web.step()
    web.world.machine.run_for(0.01)

    def go_on() -> None:
        proven.set()
        web.settle()

    return web, go_on


@pytest.mark.parametrize(("seconds", "sent"), [(1.98, 1), (2.0, 0)])
def test_a_decision_is_acted_on_for_two_seconds(scene: Make, seconds: float, sent: int) -> None:
    web, go_on = hesitating(scene)
    web.world.machine.run_for(seconds)
    go_on()
    assert len(web.asked) == sent


def test_a_request_that_was_withdrawn_is_no_try_and_is_queued_anew(scene: Make) -> None:
    web, go_on = hesitating(scene)
    web.world.machine.run_for(3.0)
    go_on()
    (move,) = web.moves
    assert (move.state, move.tries, move.blocked_by, move.not_before) == ("waiting", 0, None, 0.0)
    web.turn()
    assert (move.state, move.tries) == ("leaving", 1)


@pytest.mark.parametrize("delete", [False, True])
def test_the_last_pod_of_what_was_scaled_down_meanwhile_is_not_evicted(scene: Make, delete: bool) -> None:
    web, go_on = hesitating(scene, delete=delete)
    web.world.controller(serving.Budgets).stop()
    for other in web.world.pods():
        if other["metadata"]["uid"] != web.moves[0].pod.uid:
            web.world.delete(kinds.PODS, other["metadata"]["name"], gracePeriodSeconds=0)
    parts = objects.deployment("web", 1)
    owner = objects.owned("ReplicaSet", "web")
    raw = {**web.world.pods()[0]}
    raw["metadata"] = {**raw["metadata"], "ownerReferences": owner, "uid": web.moves[0].pod.uid}
    web.seen = objects.snapshot(parts, pods=[raw])
    web.step([])
    go_on()
    assert web.states() == ["leaving" if delete else "waiting"]


# -- the answers ---------------------------------------------------------------------------------------


def test_all_answers_that_came_in_are_taken_at_once(scene: Make) -> None:
    three = scene(*pods(3))
    three.fails("webhook", times=1)
    three.step()
    three.world.machine.run_for(1.0)
    assert not three.evictor.idle
    three.me.run(lambda _ctx: three.evictor.settle())
    assert three.evictor.idle
    assert sorted(three.states()) == ["leaving", "leaving", "waiting"]


def test_an_eviction_that_was_accepted_is_ours(scene: Make) -> None:
    one = scene(*pods(1))
    one.turn()
    (move,) = one.moves
    assert (move.ours, move.unsure) == (True, None)
    assert move.left_at == pytest.approx(one.me.clock.now(), abs=0.1)
    told = [(event.what, event.node, event.namespace) for event in one.evictor.ctx.timeline]
    assert told == [("evicted", "n1", "shop")]


@pytest.mark.parametrize("what", ["in doubt", "unreachable"])
def test_a_request_without_an_answer_was_ours_if_its_pod_is_gone(scene: Make, what: t.Any) -> None:
    """`unreachable`: it never left, so whoever ended the pod, it was not us."""
    one = scene(*pods(1))
    one.fails(what)
    one.turn()
    (move,) = one.moves
    assert move.state == "waiting"
    one.world.delete(kinds.PODS, "p00", gracePeriodSeconds=0) if one.world.pods() else None
    one.world.machine.run_for(10.0)
    one.turn()
    assert (move.state, move.outcome, move.ours) == ("gone", "already_gone", what == "in doubt")
    assert len(one.evictor.ctx.changes) == (what == "in doubt")


def test_a_refusal_by_the_budget_is_counted_and_blocks_under_its_name(scene: Make) -> None:
    two = scene(*pods(2), manifests.budget("web", minAvailable=1))
    two.world.controller(serving.Budgets).stop()
    spent = {"status": {"disruptionsAllowed": 0, "currentHealthy": 1}}
    two.overtaken(lambda: two.world.patch(kinds.BUDGETS, "web", spent, subresource="status"))
    two.step(two.moves[:1])
    two.settle()
    (move, _other) = two.moves
    assert (move.state, move.refusals, move.not_before) == ("waiting", 1, 0.0)
    assert move.blocked_by == {
        "kind": "PodDisruptionBudget",
        "namespace": "shop",
        "name": "web",
        "message": "The disruption budget web needs 1 healthy pods and has 1 currently",
    }


def refused(
    kind: type[errors.ClusterError], message: str = "", retry_after: float | None = None
) -> errors.ClusterError:
    return kind(message, retry_after=retry_after)


@pytest.mark.parametrize(
    ("error", "pauses"),
    [
        (refused(errors.Conflict), [1.0] * 8),
        (refused(errors.TwoBudgets), [1.0] * 8),
        (refused(errors.Overloaded), [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]),
        (refused(errors.Overloaded, retry_after=5.0), [5.0, 5.0, 5.0, 8.0, 16.0, 30.0, 30.0, 30.0]),
        (refused(errors.Overloaded, retry_after=40.0), [40.0] * 8),
        (refused(errors.DeniedByWebhook, "somebody's"), [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]),
        (refused(errors.DeniedByWebhook, f"policy '{names.FENCE_POLICY}'"), [None] * 8),
        (refused(errors.Forbidden), [None] * 8),
        (refused(errors.Invalid), [None] * 8),
    ],
)
def test_a_refused_eviction_is_tried_again_after_pauses_that_grow_to_half_a_minute(
    error: errors.ClusterError, pauses: list[float | None]
) -> None:
    assert [again_after(error, tries) for tries in range(1, 9)] == pauses


@pytest.mark.parametrize(
    "error", [errors.NamespaceTerminating, errors.Unreachable, errors.ServerError, errors.UnknownOutcome]
)
def test_what_says_nothing_about_the_pod_may_pass(error: type[errors.ClusterError]) -> None:
    assert again_after(refused(error), 1) == 1.0


@pytest.mark.parametrize(("what", "held"), [("webhook", True), ("throttled", False), ("fenced", False)])
def test_only_a_webhook_that_denies_an_eviction_is_how_an_operator_takes_notice(
    scene: Make, what: t.Any, held: bool
) -> None:
    one = scene(*pods(1), waits=OperatorWaits(600.0, selectors_of(["app=web"])))
    one.fails(what, times=2)
    one.turn()
    assert (one.evictor.waits.verdict_of(one.moves[0]) is not None) == held


@pytest.mark.parametrize(("operator", "pause"), [(True, 10.0), (False, 30.0)])
def test_a_pod_whose_operator_took_notice_is_tried_again_every_ten_seconds(
    scene: Make, operator: bool, pause: float
) -> None:
    """It may let the pod go without a sign; without an operator the pauses grow as after any refusal."""
    one = scene(*pods(1), waits=OperatorWaits(600.0, selectors_of(["app=web"] if operator else [])))
    (move,) = one.moves
    move.tries = 7
    one.fails("webhook")
    one.turn()
    assert move.not_before == pytest.approx(one.me.clock.now() + pause, abs=0.1)


@pytest.mark.parametrize(
    ("labels", "held"),
    [
        pytest.param(None, True, id="the view has lost it: as it was planned"),
        pytest.param({"app": "web"}, True, id="still an operator's"),
        pytest.param({"app": "other"}, False, id="nobody's any more"),
    ],
)
def test_whether_a_pod_has_an_operator_is_known_by_what_it_is_now(
    scene: Make, labels: dict[str, str] | None, held: bool
) -> None:
    one = scene(*pods(1), waits=OperatorWaits(600.0, selectors_of(["app=web"])))
    one.fails("webhook")
    one.step()
    (raw,) = one.world.pods()
    one.seen = objects.snapshot(pods=[{**raw, "metadata": {**raw["metadata"], "labels": labels}}] if labels else [])
    one.step([])
    one.settle()
    assert (one.evictor.waits.verdict_of(one.moves[0]) is not None) == held


@pytest.mark.parametrize(("allowed", "kind"), [(0, "PodDisruptionBudget"), (1, "Pod")])
def test_a_webhook_is_what_keeps_a_pod_whose_budget_would_let_it_go(scene: Make, allowed: int, kind: str) -> None:
    one = scene(*pods(1), waits=OperatorWaits(600.0, selectors_of(["app=web"])))
    one.fails("webhook")
    one.step()
    one.seen = objects.snapshot(pods=one.world.pods(), budgets=[objects.budget("web", allowed)])
    one.step([])
    one.settle()
    assert (one.moves[0].blocked_by or {})["kind"] == kind


def test_an_eviction_that_was_accepted_shows_that_the_operator_works(scene: Make) -> None:
    """The time of its other pods begins anew, and they are not said to wait for it before they are asked for."""
    two = scene(*pods(2), manifests.budget("web", minAvailable=1), waits=OperatorWaits(60.0))
    first, second = two.moves
    lines, now = two.evictor._states, two.me.clock.now()
    lines[WEB] = BudgetState(operator_has_to_act=True)
    second.budget = WEB
    two.evictor.waits.block(second, Verdict("operator_budget", "Its operator keeps it."), now)
    two.world.machine.run_for(30.0)
    two.step([first])
    two.settle()
    assert (first.state, lines[WEB].operator_has_to_act) == ("leaving", False)
    assert not two.evictor.waits.end_if_late(second, now + 60.0)
    assert two.evictor.waits.end_if_late(second, now + 95.0)


@pytest.mark.parametrize(("allowed", "state"), [(0, "asked"), (1, "waiting")])
def test_an_operator_is_asked_though_too_few_serve_but_not_for_what_its_budget_allows(
    scene: Make, allowed: int, state: str
) -> None:
    """It knows better than we do whether a pod may go, but a budget that allows it says nothing of the operator."""
    one = scene(*pods(1), waits=OperatorWaits(60.0, selectors_of(["app=web"])))
    owner = objects.owned("ReplicaSet", "web")
    listed = [objects.pod("p0", owner=owner), objects.pod("p1", owner=owner, ready=False)]
    one.seen = objects.snapshot(
        objects.deployment("web", 2), pods=listed, budgets=[objects.budget("web", allowed, healthy=1, desired=1)]
    )
    plan, other = (PodPlan(pod, "evict", "replicas", "", None) for pod in one.seen.pods)
    one.moves, left = [PodDrain(plan, "waiting", 0.0)], PodDrain(other, "waiting", 0.0, budget=WEB)
    waits, now = one.evictor.waits, one.me.clock.now()
    for move in (one.moves[0], left):
        waits.block(move, Verdict("operator_budget", "Its operator keeps it."), now)
    one.world.machine.run_for(30.0)
    one.step()
    assert one.states() == [state]
    if state == "waiting":
        assert waits.verdict_of(one.moves[0]) is None
        assert waits.end_if_late(left, now + 60.0), "the operator has not let anything go"
    one.settle()
