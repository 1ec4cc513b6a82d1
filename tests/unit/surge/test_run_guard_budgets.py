# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guards as `pdb_guard` writes them: until the watch shows them, or until there is a reason not to."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import WorkloadOutcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import guard_budgets
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_node_lock import LostLockError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard_budgets import (
    GuardBudget,
    GuardBudgets,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, serving
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects

BUDGETS = kinds.BUDGETS.resource


class Scene:
    """Deployments whose pods on n1 and n2 are evicted without a budget; their guards are written to a world."""

    def __init__(self, *apps: str) -> None:
        self.apps = apps or ("web",)
        self.world = World([manifests.namespace("shop")])
        self.me = self.world.process("me")
        self.ctx = self.me.ctx()
        self.lost: list[Exception] = []
        plans = [
            PodPlan(pod, "evict", "guarded", "", Ref("Deployment", app, "shop", f"uid-Deployment-{app}"), guarded=True)
            for app in self.apps
            for pod in self.seen().pods
            if pod.name.startswith(app)
        ]
        self.guards = GuardBudgets(self.ctx, guard_budgets.guards(self.seen(), plans), self.prove_locks)

    def prove_locks(self, nodes: t.Collection[str]) -> None:
        for lost in self.lost:
            if not isinstance(lost, LostLockError) or lost.node in nodes:
                raise lost

    def seen(self, *budgets: Raw) -> Snapshot:
        """What a watch shows: the budgets of the world, and these."""
        there = [raw for _key, raw in sorted(self.world.store.of(BUDGETS).items())]
        parts = [objects.deployment(app, 3) for app in self.apps]
        pods = [
            objects.pod(
                f"{app}-{n}",
                on=f"n{n + 1}",
                owner=objects.owned("ReplicaSet", app),
                labels={"app": app, "pod-template-hash": "1"},
            )
            for app in self.apps
            for n in range(2)
        ]
        return objects.snapshot(*parts, pods=pods, budgets=[*there, *budgets])

    def step(self, seen: Snapshot | None = None, seconds: float = 0.0) -> GuardBudget:
        """A step after so many seconds; the first guard_budget."""
        self.world.machine.run_for(seconds)
        self.me.run(lambda _ctx: self.guards.step(seen or self.seen()))
        return self.guards.budgets[0]

    @property
    def writes(self) -> list[str]:
        return [
            f"{sent.request.verb} {sent.request.resource}"
            for sent in self.world.log
            if sent.request.writes and sent.arrived
        ]

    def told(self) -> list[tuple[str, str, str]]:
        return [(event.what, event.name, event.node) for event in self.me.told]


@pytest.fixture
def scene() -> t.Iterator[t.Callable[..., Scene]]:
    made: list[Scene] = []

    def make(*apps: str) -> Scene:
        made.append(Scene(*apps))
        return made[-1]

    yield make
    for one in made:
        one.world.close()


Make = t.Callable[..., Scene]


def test_a_guard_is_written_and_waited_for_until_the_watch_shows_it(scene: Make) -> None:
    one = scene()
    old = one.seen()
    assert (one.guards.todo, one.guards.done) == (True, False)
    guard_budget = one.step(old)
    name = names.guard_name("uid-Deployment-web")
    assert (guard_budget.there, guard_budget.written, one.guards.done) == (False, True, False)
    assert one.guards.waiting == [f"PodDisruptionBudget shop/{name} to be observed"]
    one.world.machine.run_for(1.0)
    guard_budget = one.step()
    assert (guard_budget.there, guard_budget.written, one.guards.done, one.guards.waiting) == (True, True, True, [])
    assert one.writes == [f"create {BUDGETS}"]
    assert one.told() == [("guarded", "web", "n1")]


def test_a_guard_that_is_not_seen_is_written_again_after_a_second(scene: Make) -> None:
    one = scene()
    old = one.seen()
    one.step(old)
    for (namespace, name), _raw in list(one.world.store.of(BUDGETS).items()):
        one.world.delete(kinds.BUDGETS, name, namespace)
    one.step(old, 0.99)
    assert one.writes == [f"create {BUDGETS}"]
    guard_budget = one.step(old, 0.01)
    assert one.writes == [f"create {BUDGETS}"] * 2
    assert guard_budget.written


def test_a_guard_whose_watch_is_behind_is_not_made_twice(scene: Make) -> None:
    one = scene()
    old = one.seen()
    one.step(old)
    guard_budget = one.step(old, 1.0)
    assert len(one.told()) == 1, "nothing was changed"
    assert (guard_budget.written, guard_budget.outcome) == (True, None)


def test_a_guard_that_is_there_is_not_there_before_its_status_is(scene: Make) -> None:
    one = scene()
    one.world.controller(serving.Budgets).stop()
    one.step()
    assert (one.step(None, 5.0).there, one.guards.done) == (False, False)
    assert one.writes == [f"create {BUDGETS}"], "it is there"
    one.world.controller(serving.Budgets).go_on()
    assert one.step(None, 1.0).there


def test_a_guard_that_cannot_be_counted_is_not_waited_for(scene: Make) -> None:
    """Its controller has told all that it will; the drain removes such a guard."""
    one = scene()
    one.world.controller(serving.Budgets).stop()
    one.step()
    (raw,) = one.world.store.of(BUDGETS).values()
    told = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale"}
    one.world.objects.replace(kinds.BUDGETS, raw, {**raw, "status": {"conditions": [told]}}, "status")
    assert (one.step().there, one.guards.done) == (True, True)


def test_a_guard_that_was_there_and_went_is_not_there(scene: Make) -> None:
    one = scene()
    one.step()
    assert one.step(None, 1.0).there
    one.world.delete(kinds.BUDGETS, names.guard_name("uid-Deployment-web"))
    guard_budget = one.step()
    assert (guard_budget.there, one.guards.done) == (False, False)
    assert "to be observed" in guard_budget.waiting


def test_where_a_budget_came_meanwhile_no_guard_is_written(scene: Make) -> None:
    one = scene()
    guard_budget = one.step(one.seen(objects.budget("foreign", 1)))
    assert str(guard_budget.guard.instead) == "PodDisruptionBudget shop/foreign"
    assert (guard_budget.written, one.guards.done, one.writes) == (False, True, [])
    one.step(None, 5.0)
    assert one.writes == [], "it stays without one"


@pytest.mark.parametrize(
    ("error", "outcome", "what", "words"),
    [
        (errors.Forbidden("no"), "guard_denied", "failed", "no"),
        (errors.NotFound("namespace"), "ended", "note", "Deployment shop/web is gone with its namespace."),
        (CallAborted("held", "stopped", "Go on."), "failed", "failed", "stopped"),
    ],
)
def test_a_guard_that_cannot_be_written_ends_alone(
    scene: Make, error: Exception, outcome: str, what: str, words: str
) -> None:
    one = scene("web", "zoo")
    one.lost = [error]
    one.guards._prove_locks = lambda nodes: None if one.guards.budgets[0].outcome else one.prove_locks(nodes)
    guard_budget = one.step()
    assert guard_budget.outcome == outcome
    assert words in guard_budget.message
    assert (guard_budget.there, guard_budget.settled) == (False, True)
    assert one.told() == [(what, "web", "n1"), ("guarded", "zoo", "n1")]
    one.step(None, 5.0)
    assert one.writes == [f"create {BUDGETS}"], "nothing more is tried for the first one"


def test_a_guard_that_ended_holds_up_no_other(scene: Make) -> None:
    one = scene("web", "zoo")
    one.guards.budgets[0].outcome = WorkloadOutcome.ENDED
    one.step()
    assert one.told() == [("guarded", "zoo", "n1")]


def test_a_remedy_is_passed_on(scene: Make) -> None:
    one = scene()
    one.lost = [CallAborted("held", "stopped", "Go on.")]
    assert one.step().remedy == "Go on."


@pytest.mark.parametrize("passing", [errors.Unreachable("away"), errors.Overloaded("busy"), errors.UnknownOutcome("?")])
def test_what_may_pass_is_waited_for_and_tried_again(scene: Make, passing: Exception) -> None:
    one = scene()
    one.lost = [passing]
    guard_budget = one.step()
    assert (guard_budget.outcome, guard_budget.waiting) == (None, str(passing))
    one.lost = []
    assert one.step(None, 1.0).written


def test_a_guard_goes_on_for_the_nodes_that_are_still_ours(scene: Make) -> None:
    one = scene()
    one.lost = [LostLockError("n1", "r2 has it")]
    guard_budget = one.step()
    assert (guard_budget.outcome, guard_budget.guard.nodes, guard_budget.written) == (None, ("n2",), False)
    assert one.step().written, "at once"
    (raw,) = one.world.store.of(BUDGETS).values()
    assert raw["metadata"]["annotations"][names.SERVES_NODES] == '{"n2":"uid-n2"}'


def test_a_guard_without_a_node_that_is_ours_is_left_to_others(scene: Make) -> None:
    one = scene()
    for node in ("n1", "n2"):
        one.lost = [LostLockError(node, "r2 has it")]
        guard_budget = one.step()
    assert (guard_budget.outcome, guard_budget.written, one.writes) == ("adopted_by", False, [])
    assert "r2 has it" in guard_budget.message


def test_what_is_not_in_place_in_time_is_given_up(scene: Make) -> None:
    one = scene("web", "zoo")
    one.world.controller(serving.Budgets).stop()
    one.me.faults.when(lambda r: r.writes and "zoo" in str(r.body), Fault("forbidden"), times=100)
    one.step()
    one.guards.give_up()
    web, zoo = one.guards.budgets
    assert (web.outcome, zoo.outcome) == ("timed_out", "guard_denied")
    budget = f"PodDisruptionBudget shop/{names.guard_name('uid-Deployment-web')}"
    assert web.message == f"{budget} was not in place in time: {budget} to be observed."
    assert "kube-controller-manager" in web.remedy


def test_what_was_never_looked_at_is_given_up_without_a_reason(scene: Make) -> None:
    one = scene()
    one.guards.give_up()
    assert one.guards.budgets[0].message.endswith(" was not in place in time.")


@pytest.mark.parametrize(
    ("there", "outcome", "settled"),
    [(False, None, False), (True, None, True), (False, WorkloadOutcome.ENDED, True)],
)
def test_a_guard_is_settled_when_it_is_there_or_never_will_be(
    scene: Make, there: bool, outcome: WorkloadOutcome | None, settled: bool
) -> None:
    one = scene("web", "zoo")
    for guard_budget in one.guards.budgets:
        guard_budget.there, guard_budget.outcome, guard_budget.waiting = there, outcome, "it"
    assert (one.guards.done, one.guards.waiting) == (settled, [] if settled else ["it", "it"])
    one.guards.budgets[0].there, one.guards.budgets[0].outcome = True, None
    one.guards.budgets[1].there, one.guards.budgets[1].outcome, one.guards.budgets[1].waiting = False, None, ""
    assert (one.guards.done, one.guards.waiting) == (False, [])


def test_without_a_change_there_is_nothing_to_do(scene: Make) -> None:
    one = scene()
    one.step()
    one.world.machine.run_for(1.0)
    again = guard_budgets.again(one.seen(), one.guards.budgets[0].guard)
    assert not GuardBudgets(one.ctx, [again], one.prove_locks).todo
    assert not GuardBudgets(one.ctx, [], one.prove_locks).todo
    assert GuardBudgets(one.ctx, [], one.prove_locks).done
