# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the evictor does with each answer an API server can give, on a simulated cluster."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.operators import selectors_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_evictor import OperatorWaits
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_node_lock import LostLockError
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, nodes, serving
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.support.evicting import (
    Make,
    Scene,
    of_evictions,
    pods,
    scenes,
)


@pytest.fixture
def scene() -> t.Iterator[Make]:
    with scenes() as make:
        yield make


def test_one_budget_has_one_request_in_flight(scene: Make) -> None:
    five = scene(*pods(5), manifests.budget("web", minAvailable=2))
    five.step()
    five.step()
    assert five.states() == ["asked", "waiting", "waiting", "waiting", "waiting"]
    five.settle()
    assert len(five.asked) == 1


def test_a_budget_of_an_operator_is_asked_though_it_allows_nothing(scene: Make) -> None:
    """Some operators act only when somebody tries."""
    waits = OperatorWaits(600.0, selectors_of(["app=web"]))
    one = scene(*pods(1), manifests.budget("web", minAvailable=1), waits=waits)
    one.turn()
    (move,) = one.moves
    assert (len(one.asked), move.state, move.refusals) == (1, "waiting", 1)
    one.step()
    assert len(one.asked) == 1, "not again at once"
    one.world.machine.run_for(60.0)
    one.world.controller(serving.Budgets).stop()
    lifted = {"status": {"disruptionsAllowed": 1, "desiredHealthy": 0}}
    one.overtaken(lambda: one.world.patch(kinds.BUDGETS, "web", lifted, subresource="status"))
    one.turn()
    assert (len(one.asked), move.state) == (2, "leaving")


def test_all_pods_under_a_budget_of_an_operator_wait_and_are_given_up_at_once(scene: Make) -> None:
    """Though only one of them is asked for: the others may be on nodes of their own, which wait as long."""
    waits = OperatorWaits(60.0, selectors_of(["app=web"]))
    two = scene(*pods(2), manifests.budget("web", minAvailable=2), waits=waits)
    two.turn()
    two.step()
    assert all("Waited for" in (move.blocked_by or {}).get("message", "") for move in two.moves)
    while two.world.machine.now < 75.0 and two.states() != ["failed", "failed"]:
        two.world.machine.run_for(5.0)
        two.turn()
    assert [move.outcome for move in two.moves] == ["operator_budget"] * 2
    assert len(two.asked) in (6, 7)


def test_no_more_are_asked_than_a_budget_allows_until_its_status_changes(scene: Make) -> None:
    five = scene(*pods(5), manifests.budget("web", minAvailable=3))
    for _turn in range(5):
        five.turn()
    assert len(five.asked) == 2
    five.world.machine.run_for(10.0)
    five.world.patch(kinds.BUDGETS, "web", {"spec": {"minAvailable": 2}})
    five.world.machine.run_for(1.0)
    five.seen = five.look()
    five.turn()
    assert len(five.asked) == 3


def test_what_was_taken_counts_until_the_status_changes(scene: Make) -> None:
    """The budget allows one although its pods would do with less, as while others of it are being evicted."""
    five = scene(*pods(5), manifests.budget("web", minAvailable=1))
    five.world.controller(serving.Budgets).stop()
    five.world.patch(kinds.BUDGETS, "web", {"status": {"disruptionsAllowed": 1}}, subresource="status")
    five.seen = five.look()
    for _turn in range(3):
        five.turn()
    assert len(five.asked) == 1


def test_pods_without_a_budget_go_in_parallel(scene: Make) -> None:
    twelve = scene(*pods(12))
    twelve.me.faults.when(of_evictions, Fault("late", 1.0), times=12)
    twelve.step()
    twelve.world.machine.run_for(0.5)
    assert sum(of_evictions(sent.request) for sent in twelve.world.log) == 8
    assert twelve.asked == [], "they are under way"
    twelve.settle()


def test_at_the_end_what_is_under_way_is_waited_for_and_nothing_more_is_sent(scene: Make) -> None:
    twelve = scene(*pods(12))
    twelve.me.faults.when(of_evictions, Fault("late", 1.0), times=12)
    twelve.step()
    twelve.world.machine.run_for(0.5)
    twelve.me.run(lambda _ctx: twelve.evictor.close())
    assert len(twelve.asked) == 8
    twelve.world.machine.run_for(5.0)
    assert len(twelve.asked) == 8


def test_evictions_carry_the_uid_of_the_pod(scene: Make) -> None:
    one = scene(*pods(1))
    one.turn()
    assert one.body()["deleteOptions"]["preconditions"] == {"uid": one.moves[0].pod.uid}


def test_a_refused_budget_is_asked_again_when_it_changes_and_not_before(scene: Make) -> None:
    five = scene(*pods(5), manifests.budget("web", minAvailable=4))
    first = five.moves[:1]
    disruption = five.world.controller(serving.Budgets)
    disruption.stop()
    spent = {"status": {"disruptionsAllowed": 0, "currentHealthy": 4}}
    five.overtaken(lambda: five.world.patch(kinds.BUDGETS, "web", spent, subresource="status"))
    five.step(first)
    five.settle()
    assert first[0].state == "waiting"
    assert first[0].blocked_by is not None
    assert "has 4" in first[0].blocked_by["message"]
    five.step(first)
    assert len(five.asked) == 1
    disruption.go_on()
    five.world.machine.run_for(1.0)
    five.seen = five.look()
    five.step(first)
    five.settle()
    assert [move.state for move in first] == ["leaving"]
    assert first[0].blocked_by is None


def test_a_budget_that_refuses_with_403_is_waited_for(scene: Make) -> None:
    """Its evictions are not confirmed: no missing permission, and the pod does not fail."""
    five = scene(*pods(5), manifests.budget("web", minAvailable=4))
    first = five.moves[:1]
    disruption = five.world.controller(serving.Budgets)
    disruption.stop()
    unconfirmed = {"status": {"disruptedPods": {f"gone-{n}": "2026-01-01T00:00:00Z" for n in range(2001)}}}
    five.overtaken(lambda: five.world.patch(kinds.BUDGETS, "web", unconfirmed, subresource="status"))
    five.step(first)
    five.settle()
    (move,) = first
    assert (move.state, move.refusals, len(five.asked)) == ("waiting", 1, 1)
    assert move.blocked_by is not None
    assert move.blocked_by["kind"] == "PodDisruptionBudget"
    assert "not confirmed" in move.blocked_by["message"]
    disruption.go_on()
    five.world.patch(kinds.BUDGETS, "web", {"status": {"disruptedPods": None}}, subresource="status")
    five.world.machine.run_for(15.0)
    five.seen = five.look()
    five.turn()
    assert move.state == "leaving"


def test_a_pod_that_is_not_there_any_more_has_left(scene: Make) -> None:
    one = scene(*pods(1))
    one.overtaken(lambda: one.world.delete(kinds.PODS, "p00", gracePeriodSeconds=0))
    one.turn()
    assert (one.moves[0].state, one.moves[0].outcome) == ("gone", "already_gone")


def test_a_conflict_does_not_say_that_a_pod_has_left(scene: Make) -> None:
    one = scene(*pods(1))
    one.fails("conflict")
    one.turn()
    (move,) = one.moves
    assert (move.state, move.blocked_by) == ("waiting", None)
    one.step()
    assert move.state == "waiting"
    one.world.machine.run_for(1.0)
    one.turn()
    assert (move.state, move.tries) == ("leaving", 2)


def again_after_pauses(one: Scene) -> None:
    """The first two tries were in vain, the third one is not."""
    (move,) = one.moves
    for pause in (1.0, 2.0):
        one.turn()
        assert move.state == "waiting"
        assert move.not_before - one.me.clock.now() == pytest.approx(pause)
        one.step()
        assert move.state == "waiting"
        one.world.machine.run_for(pause)
    one.turn()
    assert move.state == "leaving"
    assert move.tries == 3


FAULTS: tuple[What, ...] = ("webhook", "error", "lost", "in doubt", "unreachable", "throttled")


@pytest.mark.parametrize("what", FAULTS)
def test_what_may_pass_is_tried_again_after_a_growing_pause(scene: Make, what: What) -> None:
    one = scene(*pods(1, terminationGracePeriodSeconds=60, annotations={nodes.STOP: "50s"}))
    one.fails(what, times=2)
    again_after_pauses(one)


def test_in_a_namespace_that_ends_is_tried_again_after_a_growing_pause(scene: Make) -> None:
    """Evictions are refused there, and its pods end by themselves; here one that a finalizer holds."""
    (raw,) = pods(1)
    raw["metadata"]["finalizers"] = ["example.org/held"]
    one = scene(raw)
    one.world.delete(kinds.NAMESPACES, manifests.SHOP)
    for pause in (1.0, 2.0, 4.0):
        one.turn()
        (move,) = one.moves
        assert move.state == "waiting"
        assert move.blocked_by is not None
        assert "is being terminated" in move.blocked_by["message"]
        assert move.not_before - one.me.clock.now() == pytest.approx(pause)
        one.world.machine.run_for(pause)


def test_a_missing_permission_ends_the_move(scene: Make) -> None:
    one = scene(*pods(1))
    one.fails("forbidden")
    one.turn()
    assert one.states() == ["failed"]


def test_two_foreign_budgets_are_never_asked(scene: Make) -> None:
    both = [manifests.budget(name, "web", minAvailable=0) for name in ("web", "other")]
    one = scene(*pods(1), *both)
    one.step()
    assert one.asked == []
    (move,) = one.moves
    assert move.outcome == "two_budgets"
    assert "shop/web" in move.reason
    assert "shop/other" in move.reason


def test_a_status_that_the_pods_contradict_is_not_believed(scene: Make) -> None:
    five = scene(*pods(5), manifests.budget("web", minAvailable=2))
    five.world.controller(serving.Budgets).stop()
    five.world.controller(nodes.Kubelets).stop()
    for number in range(1, 5):
        unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        five.world.patch(kinds.PODS, f"p{number:02}", unready, subresource="status")
    five.seen = five.look()
    assert next(iter(five.seen.budgets)).allowed == 3
    five.step(five.moves[:1])
    assert five.asked == []


def test_without_a_budget_no_more_than_one_is_missing(scene: Make) -> None:
    web = scene(manifests.deployment("web", 4))
    for _turn in range(3):
        web.turn()
    assert len(web.asked) == 1
    assert web.moves[1].blocked_by == {
        "kind": "Deployment",
        "namespace": "shop",
        "name": "web",
        "message": "Deployment shop/web needs 3 ready pods beside this one and has 2. "
        "It has no budget, so one goes at a time.",
    }


def nothing(web: Scene) -> None:
    """All stays as it is."""


def another_unready(web: Scene) -> None:
    web.world.controller(nodes.Kubelets).stop()
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    web.world.patch(kinds.PODS, web.moves[1].pod.name, unready, subresource="status")
    web.seen = web.look()
    web.step([])


def in_service_again(web: Scene) -> None:
    web.evictor.withdraw("n1")


def time_passes(web: Scene) -> None:
    web.world.machine.run_for(5.0)


@pytest.mark.parametrize(
    ("what", "sent"),
    [
        pytest.param(nothing, 1, id="nothing"),
        pytest.param(another_unready, 0, id="another pod is not ready any more"),
        pytest.param(in_service_again, 0, id="the node is in service again"),
        pytest.param(time_passes, 0, id="nobody has looked since"),
    ],
)
def test_what_was_decided_has_to_hold_when_the_first_byte_would_leave(
    scene: Make, what: t.Callable[[Scene], None], sent: int
) -> None:
    asked: list[str] = []

    def hesitant(node: str) -> None:
        """The lock of a node, which is proven only when the test says so."""
        asked.append(node)
        proven.wait()

    web = scene(manifests.deployment("web", 4), prove_lock=hesitant)
    proven = web.me.clock.event()
    first = web.moves[:1]
    web.step(first)
    web.world.machine.run_for(0.01)
    assert asked == ["n1"]
    what(web)
    proven.set()
    web.settle()
    assert len(web.asked) == sent
    assert first[0].state == ("leaving" if sent else "waiting")


def test_a_request_is_sent_once_and_then_decided_anew(scene: Make) -> None:
    web = scene(manifests.deployment("web", 4))
    web.me.faults.when(of_evictions, Fault("down", 30.0))
    web.step(web.moves[:1])
    web.settle()
    assert len(web.asked) == 1
    assert web.moves[0].state == "waiting"
    web.world.machine.run_for(60.0)
    assert len(web.asked) == 1, "nothing is sent that was decided a while ago"


def test_a_lost_lock_stops_everything(scene: Make) -> None:
    def prove_lock(node: str) -> None:
        raise LostLockError(node, "by somebody")

    one = scene(*pods(1), prove_lock=prove_lock)
    one.step()
    with pytest.raises(LostLockError, match="n1 was taken over"):
        one.settle()
    assert one.asked == []


def test_grace_period_zero_is_zero(scene: Make) -> None:
    one = scene(*pods(1), grace=0)
    one.turn()
    assert one.body()["deleteOptions"]["gracePeriodSeconds"] == 0
    assert one.world.pods() == [], "the server took it so"


def test_evictions_name_the_lock_of_their_node(scene: Make) -> None:
    one = scene(*pods(1), lock_names={"n1": "node-a=r1/n1"})
    one.turn()
    assert one.body()["metadata"]["annotations"] == {names.FENCE: "node-a=r1/n1"}


def test_the_servers_fence_is_asked_again_once_where_the_lock_is_ours(scene: Make) -> None:
    regained: list[str] = []
    one = scene(*pods(1), regain=regained.append)
    one.fails("fenced")
    one.turn()
    assert regained == ["n1"]
    assert one.states() == ["leaving"]
    assert len(one.asked) == 2


def test_the_servers_fence_ends_a_run_whose_lock_is_lost(scene: Make) -> None:
    def regain(node: str) -> None:
        raise LostLockError(node, "run r2 has it")

    one = scene(*pods(1), regain=regain)
    one.fails("fenced")
    with pytest.raises(LostLockError) as stopped:
        one.turn()
    assert stopped.value.reason.code == "adopted_by"
    assert len(one.asked) == 1, "it is not sent again"


def test_a_fence_that_refuses_its_own_holder_fails_the_pod_and_says_so(scene: Make) -> None:
    one = scene(*pods(1))
    one.fails("fenced", times=2)
    one.turn()
    assert one.states() == ["failed"]
    assert names.FENCE_POLICY in one.moves[0].reason
