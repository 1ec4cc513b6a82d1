# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods with a label that was set while they ran, and Services that select it: no new pod has it."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import applications, manifests, serving
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


def led() -> World:
    """A single pod on n1, behind one Service by its app and behind another as the leader it was made."""
    leader = manifests.service("leader")
    leader["spec"]["selector"] = {"app": "single", **applications.LEADER}
    led = manifests.deployment("single", 1, annotations={applications.LEADS: "yes"})
    world = World([manifests.node("n1"), led, manifests.service("single"), leader])
    world.apply(manifests.node("n2"))
    world.settle()
    assert (world.serving("single"), world.serving("leader")) == (1, 1)
    return world


def run(world: World) -> Outcome:
    me = world.process("me")
    task = me.spawn(lambda: maintain(me, Input(("n1",), gates=("ready",), timeout=60.0)))
    world.machine.run_until(lambda: not task.alive, within=600.0)
    outcome: Outcome = task.value()
    return outcome


def lists(world: World) -> list[str]:
    return [sent.request.namespace for sent in world.log if sent.request.resource == kinds.SERVICES.resource]


def test_a_service_that_selects_a_label_of_run_time_holds_up_no_surge() -> None:
    with led() as world:

        def look() -> None:
            assert world.serving("single") >= 1, f"dark at {world.machine.now}"

        world.machine.on_step.append(look)
        outcome = run(world)
        assert (outcome.ok, outcome.failed, outcome.wrong) == (True, {}, [])
        assert len(lists(world)) == 2, "once by the guard and once by the drain"


def test_a_service_that_selects_the_new_pod_is_waited_for_all_the_same() -> None:
    with led() as world:
        world.controller(serving.EndpointSlices).stop()
        outcome = run(world)
        assert "Service shop/single" in outcome.failed["n1"]
        assert len(world.pods(on="n1", app="single")) == 1


def test_who_may_not_read_services_waits_for_all() -> None:
    with led() as world:
        world.process("me").faults.when(lambda r: r.resource == kinds.SERVICES.resource, Fault("forbidden"), times=9)
        outcome = run(world)
        assert "Service shop/leader" in outcome.failed["n1"]
