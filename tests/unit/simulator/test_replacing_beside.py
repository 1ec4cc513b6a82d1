# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens beside pods that are replaced: the node of the old or of the new one is lost, or nobody opens a
readiness gate of the new one.
"""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, nodes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_replacing import Shop, once, routes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Outcome


def lose(shop: Shop, node: str) -> None:
    """Its kubelet falls silent, and its pods are marked, as by the node lifecycle controller."""
    shop.world.set_node_ready(node, "Unknown")
    kubelets = shop.world.controller(nodes.Kubelets)
    for pod in shop.world.pods(on=node):
        if pod["status"].get("phase") == "Running":
            kubelets.set_ready((pod["metadata"]["namespace"], pod["metadata"]["name"]), False)


def lose_replacement(shop: Shop) -> None:
    (node, *_more) = {
        pod["spec"]["nodeName"] for pod in shop.world.pods(app="web") if pod["spec"].get("nodeName", "n1") != "n1"
    }
    lose(shop, node)


def words(outcome: Outcome) -> str:
    return " ".join(outcome.failed.values())


def test_what_a_kubelet_reports_while_its_node_is_cordoned_hides_no_record_from_the_drain() -> None:
    """A watch that begins at the cordon's list tells of the report first, then of the cordon."""
    with Shop(2) as shop:
        me = shop.world.process("me")
        me.link.one_by_one = True

        def report() -> None:
            found = shop.world.get(kinds.NODES, "n1")["status"]["conditions"]
            told = [{**one, "lastHeartbeatTime": "2026-01-02T00:00:00Z"} for one in found]
            shop.world.patch(kinds.NODES, "n1", {"status": {"conditions": told}}, subresource="status")

        me.faults.overtaken(lambda request: (request.verb, request.resource) == ("patch", "nodes"), report)
        outcome = shop.run()
        assert outcome.ok, words(outcome)
        assert shop.whole()


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("replicas", [1, 3])
def test_a_pod_that_was_let_go_on_a_node_that_is_lost_leaves_nothing_behind(replicas: int, again: bool) -> None:
    """Kubernetes deletes it as any other pod there, and its replacement serves long since."""
    with Shop(replicas) as shop:
        me = shop.world.process("me")
        me.faults.when(lambda request: request.resource == "pods/eviction", Fault("killed before"))
        assert shop.run().wrong == ["killed"]
        lose(shop, "n1")
        shop.world.machine.run_for(1)
        assert shop.world.serving("web") == 1, "its replacement"
        if again:
            assert "its kubelet has not responded" in words(shop.run())
        else:
            shop.recover()
        shop.world.machine.run_for(400)
        assert shop.world.serving("web") == replicas
        shop.world.set_node_ready("n1")
        shop.recover()
        assert shop.whole()


@pytest.mark.parametrize("after", [1.0, 5.5])
@pytest.mark.parametrize("replicas", [1, 3])
def test_while_the_node_of_a_replacement_is_lost_the_old_pod_serves_on(replicas: int, after: float) -> None:
    with Shop(replicas, manifests.budget("web", maxUnavailable=0)) as shop:
        once(shop, lambda: lose_replacement(shop), after)
        outcome = shop.run()
        assert "its node n2 is not ready" in words(outcome)
        assert (shop.least, shop.let_go()) == (replicas, [])


@pytest.mark.parametrize("replicas", [1, 3])
def test_once_kubernetes_gives_the_lost_replacement_up_another_one_comes(replicas: int) -> None:
    with Shop(replicas) as shop:
        once(shop, lambda: lose_replacement(shop), 1.0)
        outcome = shop.run(within=1200.0)
        assert outcome.ok, outcome
        assert shop.least == replicas
        assert routes(outcome) == [("replace", "replaced")] * replicas
        owned = [pod for pod in shop.world.pods(app="web") if "deletionTimestamp" not in pod["metadata"]]
        assert {pod["spec"]["nodeName"] for pod in owned} == {"n3"}


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_pod_that_another_controller_takes_all_the_same_is_evicted_in_its_time(replicas: int) -> None:
    """One that was created meanwhile, and keeps the pod."""
    taker = manifests.replica_set("taker", 1)
    taker["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    taker["spec"]["template"]["metadata"]["labels"] = {"app": "web"}
    with Shop(replicas) as shop:
        once(shop, lambda: shop.world.apply(taker), 0.5)
        outcome = shop.run(within=300.0)
        assert outcome.ok, outcome
        assert (shop.least, shop.let_go()) == (replicas, [])
        assert shop.world.pods(on="n1", app="web") == []


GATE = "target-health.elbv2.k8s.aws/web"


def shut(shop: Shop) -> None:
    """The kubelet says of a pod whose containers are ready that a gate is shut: its controller is down."""

    def hear(event: Event) -> None:
        found = event.raw["status"].get("conditions") or () if event.resource == kinds.PODS.resource else ()
        if any(one["type"] == "Ready" and one["status"] == "False" and not one.get("reason") for one in found):
            shop.world.machine.after(0.1, lambda: say(event.raw["metadata"]["name"]), "kubelet")

    def say(name: str) -> None:
        pod = shop.world.find(kinds.PODS, name)
        if pod is None:
            return
        text = f'corresponding condition of pod readiness gate "{GATE}" does not exist.'
        told = {"Ready": {"reason": "ReadinessGatesNotReady", "message": text}, "ContainersReady": {"status": "True"}}
        conditions = [{**one, **told.get(one["type"], {})} for one in pod["status"]["conditions"]]
        states = [{**one, "ready": True} for one in pod["status"]["containerStatuses"]]
        kubelets = shop.world.controller(nodes.Kubelets)
        kubelets.set_status(kinds.PODS, pod, conditions=conditions, containerStatuses=states)

    shop.world.on_event.append(hear)


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_gate_that_nobody_opens_is_named_when_the_replacement_is_given_up(replicas: int) -> None:
    """As of a load balancer whose controller is down: the new pod runs, and is not ready."""
    node = manifests.node("n2")
    node["metadata"]["annotations"] = {nodes.READY: "never"}
    with Shop(replicas, manifests.budget("web", maxUnavailable=0), others=[node]) as shop:
        shut(shop)
        outcome = shop.run(within=1200.0)
        assert GATE in words(outcome)
        assert shop.least == replicas
        assert shop.whole()
