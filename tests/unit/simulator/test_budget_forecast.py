# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan says of budgets against what a drain of the same cluster comes to."""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_drain import DrainOptions, drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning.run_plan import PlanOptions, make_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import answers, evictions, manifests, nodes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

EXAMPLES = 200 if os.environ.get("WHOLE") else 50
RUN = "r1/first"
TIER = "tier"
LONG = 300.0
"""Seconds after which a drain that still waits waits for ever: here pods start in two seconds and end in one."""
BY_RULE = ("budget_allows_nothing", "two_budgets")
"""Codes of pods that no budget of theirs lets go, not even when all pods are healthy."""


@dataclass(frozen=True)
class App:
    """A workload; ``unready`` of its pods stop serving before the maintenance."""

    name: str
    stateful: bool
    replicas: int
    unready: int

    @property
    def manifest(self) -> Raw:
        make = manifests.stateful_set if self.stateful else manifests.deployment
        found = make(self.name, self.replicas)
        found["spec"]["template"]["metadata"]["labels"][TIER] = "shop"
        return found


@dataclass(frozen=True)
class Case:
    """``together``: all pods are on the node that leaves; otherwise the scheduler spreads them."""

    apps: tuple[App, ...]
    budgets: tuple[Raw, ...]
    together: bool

    def world(self) -> World:
        others = [manifests.node(name) for name in ("n8", "n9")]
        objects = [*(app.manifest for app in self.apps), *self.budgets]
        world = World([manifests.node("n1"), *([] if self.together else others), *objects])
        if self.together:
            world.apply(*others)
        for app in self.apps:
            for pod in world.pods(app=app.name)[: app.unready]:
                set_ready(world, pod, False)
        world.settle()
        return world


def set_ready(world: World, pod: Raw, ready: bool) -> None:
    world.controller(nodes.Kubelets).set_ready((pod["metadata"]["namespace"], pod["metadata"]["name"]), ready)


RULES = ("minAvailable", "maxUnavailable")
AMOUNTS = st.integers(0, 5) | st.sampled_from(["0%", "1%", "34%", "50%", "67%", "99%", "100%"])


def over(whose: str, **rule: t.Any) -> Raw:
    """A budget of one app or of all."""
    found = manifests.budget(f"{whose}-{'-'.join(rule)}".lower(), whose, **rule)
    if whose == TIER:
        found["spec"]["selector"] = {"matchLabels": {TIER: "shop"}}
    return found


@st.composite
def budgets(draw: st.DrawFn) -> Raw:
    found = over(draw(st.sampled_from(["a", "b", TIER])), **{draw(st.sampled_from(RULES)): draw(AMOUNTS)})
    if policy := draw(st.sampled_from(["", "IfHealthyBudget", "AlwaysAllow"])):
        found["spec"]["unhealthyPodEvictionPolicy"] = policy
    return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    apps = []
    for name in ("a", "b")[: draw(st.integers(1, 2))]:
        replicas, stateful = draw(
            st.sampled_from([(1, False), (2, False), (3, False), (4, False), (2, True), (3, True)])
        )
        unready = draw(st.sampled_from([0, 0, 1, replicas]))
        apps.append(App(name, stateful, replicas, min(unready, replicas)))
    named = {raw["metadata"]["name"]: raw for raw in draw(st.lists(budgets(), max_size=2))}
    return Case(tuple(apps), tuple(named.values()), draw(st.booleans()))


def short_of(whose: str, **rule: t.Any) -> Case:
    """Three pods, of which one does not serve, under a budget that lets such pods go."""
    budget = over(whose, **rule)
    budget["spec"]["unhealthyPodEvictionPolicy"] = "AlwaysAllow"
    return Case((App("a", False, 3, 1),), (budget,), True)


def planned(world: World) -> dict[str, t.Any]:
    return dict(world.process("me").run(lambda ctx: make_plan(ctx, PlanOptions(nodes=("n1",)))).data)


def drained(world: World) -> dict[str, t.Any]:
    """What a drain comes to for the node."""
    me, wanted = world.process("me"), ("n1",)
    me.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", wanted)), RUN)
    me.run(lambda ctx: guard(ctx, GuardOptions("present", wanted)), RUN)
    options = DrainOptions(wanted, drain_policy.DrainPolicy(), timeout=LONG)
    (found,) = me.run(lambda ctx: drain(ctx, options), RUN).data["nodes"]
    return t.cast("dict[str, t.Any]", found)


def heal(world: World) -> None:
    """All pods serve, wherever they are."""
    for pod in world.pods():
        if not evictions.is_ready(pod):
            set_ready(world, pod, True)
    world.settle()


def assert_refused(world: World, pods: t.Iterable[dict[str, t.Any]]) -> None:
    """They are still there, and the server refuses their evictions for the budget that the plan names."""
    for pod in pods:
        with pytest.raises(answers.Refused) as refusal:
            evictions.evict(world.objects, pod["namespace"], pod["name"], {})
        named = [budget.rpartition("/")[2] for budget in pod["budgets"]]
        said = str(refusal.value.body)
        assert (
            "more than one PodDisruptionBudget" in said if len(named) > 1 else f"disruption budget {named[0]} " in said
        )


@settings(max_examples=EXAMPLES, derandomize=True)
@given(cases())
@example(short_of("a", minAvailable=5))
@example(short_of("a", minAvailable="99%"))
@example(short_of("a", minAvailable=2))
@example(short_of(TIER, maxUnavailable="1%"))
def test_what_is_forecast_of_budgets_comes_so(case: Case) -> None:
    """What blocks stays, for that budget; what may wait waits only for what is named; all else finishes."""
    with case.world() as world:
        plan = planned(world)
        stuck = [pod for pod in plan["pods"] if pod["code"] in drain_policy.BUDGET_FORBIDS]
        blocking = {held["name"] for held in plan["budgets"] if held["blocks"]}
        waiting = {held["name"] for held in plan["budgets"] if not held["allowed"]} - blocking
        assert blocking == {pod["budgets"][0].rpartition("/")[2] for pod in stuck}
        assert plan["feasible"] == (not stuck)
        result = drained(world)
        left = [pod for pod in result["pods"] if pod["outcome"] == "not_moved"]
        if stuck:
            assert result["outcome"] in ("refused", "timed_out")
            assert_refused(world, stuck)
        elif left:
            assert result["outcome"] == "timed_out"
            assert {pod["blocked_by"]["name"] for pod in left if "blocked_by" in pod} <= waiting
            assert any("blocked_by" in pod for pod in left)
        else:
            assert result["outcome"] == "drained"
        heal(world)
        assert_refused(world, [pod for pod in stuck if pod["code"] in BY_RULE])
        if not stuck:
            assert drained(world)["outcome"] in ("drained", "already_drained")
