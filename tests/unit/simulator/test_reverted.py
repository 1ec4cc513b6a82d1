# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deployments of one replica that an operator owns, which sets their count whenever somebody else does.

`kubectl drain` empties their nodes, with a gap. We try without one first.
"""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.nodes import START
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_draining import evictions
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_whole import traces
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

OWNER = {"apiVersion": "apps.example.com/v1", "kind": "Shop", "name": "front", "uid": "c1", "controller": True}


class Operator:
    """Of the Deployment `web`, whose count it sets to one so many seconds after it is another."""

    def __init__(self, after: float, consent: bool = False) -> None:
        web = manifests.deployment("web", 1, annotations={START: "4s"})
        web["metadata"]["ownerReferences"] = [OWNER]
        web["metadata"]["annotations"] = {names.ALLOW_INTERRUPTION: "true"} if consent else {}
        self.world = World([manifests.node("n1"), web, manifests.service("web")])
        self.world.apply(manifests.node("n8"), manifests.node("n9"))
        self.after, self.raised, self.least = after, 0, self.world.serving("web")
        self.world.on_event.append(self.hear)
        self.world.machine.on_step.append(self.look)

    def look(self) -> None:
        self.least = min(self.least, self.world.serving("web"))

    @property
    def count(self) -> int:
        return int(self.world.get(kinds.DEPLOYMENTS, "web")["spec"]["replicas"])

    def hear(self, event: Event) -> None:
        if event.resource != kinds.DEPLOYMENTS.resource or not event.before:
            return
        if event.raw["spec"]["replicas"] > event.before["spec"]["replicas"]:
            self.raised += 1
            self.world.machine.after(self.after, self.reset, "reset")

    def reset(self) -> None:
        if self.count != 1:
            self.world.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 1}})

    def run(self, **choices: t.Any) -> Outcome:
        me = self.world.process("me")
        task = me.spawn(lambda: maintain(me, Input(("n1",), choices=DrainPolicy(**choices))))
        self.world.machine.run_until(lambda: not task.alive, within=3000)
        return t.cast("Outcome", task.value())

    def moved(self) -> bool:
        return [pod["spec"]["nodeName"] for pod in self.world.pods(app="web")] in (["n8"], ["n9"])


@pytest.fixture
def operated() -> t.Iterator[t.Callable[..., Operator]]:
    made: list[Operator] = []

    def make(after: float, consent: bool = False) -> Operator:
        made.append(Operator(after, consent))
        return made[-1]

    yield make
    for one in made:
        one.world.close()


Make = t.Callable[..., Operator]


def test_one_that_resets_at_once_is_named_and_its_pod_goes_on_serving(operated: Make) -> None:
    shop = operated(0.5)
    outcome = shop.run()
    message = outcome.failed["n1"]
    for text in (
        "reset Deployment shop/web to 1",
        "Shop shop/front (apps.example.com/v1)",
        "Set 2 replicas in Shop shop/front",
        "maintain_allow_interruption",
    ):
        assert text in message
    assert (shop.least, shop.count, shop.raised, evictions(shop.world)) == (1, 1, 1, [])
    assert traces(shop.world) == []
    assert not shop.world.get(kinds.NODES, "n1")["spec"].get("unschedulable")


@pytest.mark.parametrize("after", [4.2, 9.0])
def test_one_that_resets_after_the_new_pod_serves_is_never_dark(operated: Make, after: float) -> None:
    """The pod that leaves has the lowest deletion cost by then."""
    shop = operated(after)
    outcome = shop.run()
    assert outcome.ok, (outcome.failed, outcome.wrong)
    assert (shop.least, shop.count, shop.moved(), traces(shop.world)) == (1, 1, True, [])


@pytest.mark.parametrize("of_owner", [False, True])
def test_with_consent_its_pod_is_evicted_once_a_second_one_was_tried(operated: Make, of_owner: bool) -> None:
    shop = operated(0.5, of_owner)
    outcome = shop.run(allow_interruption=not of_owner)
    assert outcome.ok, (outcome.failed, outcome.wrong)
    assert (shop.raised, len(evictions(shop.world)), shop.moved(), shop.count) == (1, 1, True, 1)
    assert traces(shop.world) == []
    (told,) = [w for step in outcome.steps("protect") for w in step["workloads"]]
    assert told["outcome"] == "interruption_allowed"
    assert "Shop shop/front" in told["message"]


def test_with_consent_one_that_does_not_reset_is_never_dark(operated: Make) -> None:
    shop = operated(10_000.0)
    outcome = shop.run(allow_interruption=True)
    assert outcome.ok, (outcome.failed, outcome.wrong)
    assert (shop.least, shop.count, shop.moved(), evictions(shop.world)) == (1, 1, True, [])


def test_a_run_that_is_killed_after_the_reset_goes_on_and_another_run_tries_anew(operated: Make) -> None:
    shop = operated(0.5)
    first = shop.world.process("me")
    first.spawn(lambda: maintain(first, Input(("n1",), choices=DrainPolicy(allow_interruption=True))))
    shop.world.machine.run_until(lambda: any('"reverted"' in lease for lease in leases(shop.world)), within=120)
    first.process.kill()
    assert shop.raised == 1
    outcome = shop.run(allow_interruption=True)
    assert outcome.ok, (outcome.failed, outcome.wrong)
    assert (shop.raised, len(evictions(shop.world)), shop.moved()) == (1, 1, True)
    assert traces(shop.world) == []


def leases(world: World) -> list[str]:
    """The records of surges."""
    found = world.store.of(kinds.LEASES.resource).values()
    return [str((lease["metadata"].get("annotations") or {}).get(names.SURGE, "")) for lease in found]
