# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Budgets whose controller cannot count their pods: one of them is of a Job or of a DaemonSet."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning.run_plan import PlanOptions, make_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.nodes import START
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


def agent(name: str, app: str) -> Raw:
    """A DaemonSet whose pods have the labels of another app and one more."""
    found = manifests.daemon_set(name)
    labels = {"app": app, "part": name}
    found["spec"] |= {"selector": {"matchLabels": labels}}
    found["spec"]["template"]["metadata"]["labels"] = labels
    return found


def world_of(*objects: Raw, others: t.Iterable[Raw] = ()) -> World:
    """All pods of the objects are on n1; the others come when n2 and n3 are there, too."""
    world = World([manifests.node("n1"), *objects])
    world.apply(manifests.node("n2"), manifests.node("n3"), *others)
    world.settle()
    return world


def run(world: World, within: float = 120.0) -> Outcome:
    me = world.process("me")
    task = me.spawn(lambda: maintain(me, Input(("n1",), gates=("ready",), timeout=600.0)))
    world.machine.run_until(lambda: not task.alive, within=within)
    assert not task.alive, "the run does not end"
    return t.cast("Outcome", task.value())


def protected(outcome: Outcome) -> list[tuple[str, str]]:
    (step,) = outcome.steps("protect")
    return [(one["name"], one["outcome"]) for one in step["workloads"]]


def guards(world: World) -> list[str]:
    return [name for _namespace, name in world.store.of(kinds.BUDGETS.resource) if name.startswith("kubeops-guard-")]


def watch(world: World, app: str, least: int) -> None:
    def look() -> None:
        assert world.serving(app) >= least, f"{app} at {world.machine.now}"

    world.machine.on_step.append(look)


@pytest.mark.parametrize(
    "beside",
    [manifests.job("report", "web", "n2"), manifests.job("report", "web", complete="3600s"), agent("agent", "web")],
    ids=["a finished Job", "a Job that runs", "a DaemonSet"],
)
@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_guard_covers_no_pod_of_another_kind(kind: str, beside: Raw) -> None:
    top = (manifests.deployment if kind == "Deployment" else manifests.stateful_set)("web", 3)
    with world_of(top, manifests.service("web"), others=[beside]) as world:
        outcome = run(world)
        assert (outcome.ok, outcome.failed, outcome.wrong) == (True, {}, [])
        assert protected(outcome) == [("web", "guarded")]
        assert guards(world) == []


def test_a_guard_that_cannot_be_counted_holds_up_nothing() -> None:
    objects = (manifests.replica_set("web", 3), manifests.service("web"))
    with world_of(*objects, others=[manifests.job("report", "web", "n2")]) as world:
        watch(world, "web", 2)
        outcome = run(world)
        assert (outcome.ok, outcome.failed, outcome.wrong) == (True, {}, [])


def test_a_guard_that_can_no_longer_be_counted_is_withdrawn_in_the_drain() -> None:
    objects = (manifests.replica_set("web", 5, annotations={START: "5s"}), manifests.service("web"))
    with world_of(*objects) as world:
        watch(world, "web", 4)
        seen: list[int] = []

        def later() -> None:
            if not seen and len(world.pods(on="n1", app="web")) == 3:
                seen.append(len(guards(world)))
                world.apply(manifests.job("report", "web", "n2", complete="3600s"))

        world.machine.on_step.append(later)
        outcome = run(world)
        assert (outcome.ok, outcome.failed, outcome.wrong) == (True, {}, [])
        assert seen == [1], "it was guarded until then"


@pytest.mark.parametrize(
    ("rule", "beside"),
    [
        pytest.param({"maxUnavailable": 1}, manifests.job("report", "web", "n2"), id="a finished Job elsewhere"),
        pytest.param({"minAvailable": "50%"}, agent("agent", "web"), id="a DaemonSet"),
        pytest.param({}, None, id="no rule"),
    ],
)
def test_a_budget_that_never_allows_anything_is_a_blocker(rule: Raw, beside: Raw | None) -> None:
    objects = (manifests.deployment("web", 3), manifests.budget("web", **rule))
    with world_of(*objects, others=[beside] if beside else ()) as world:
        options = PlanOptions(nodes=("n1",), choices=DrainPolicy())
        result = world.process("me").run(lambda ctx: make_plan(ctx, options))
        blockers = [one["code"] for one in result.data["findings"] if one["severity"] == "blocker"]
        assert blockers == ["budget_allows_nothing"]
        first = result.data["advice"][0]["changes"]
        assert first[0]["code"] == "relax_budget"


def test_a_finished_pod_that_goes_with_the_node_is_no_blocker() -> None:
    objects = (manifests.deployment("web", 3), manifests.budget("web", maxUnavailable=1), manifests.service("web"))
    with world_of(*objects, manifests.job("report", "web")) as world:
        watch(world, "web", 2)
        outcome = run(world)
        assert (outcome.ok, outcome.failed, outcome.wrong) == (True, {}, [])
