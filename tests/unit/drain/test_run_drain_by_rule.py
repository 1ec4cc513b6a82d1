# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes are emptied in the order, and with the patience, that rules ask for."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_drain import DrainOptions, drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import pod_rules
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.nodes import COMPLETE, START, STOP
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

RUN = "r1/first"
SLOW = {START: "1s", STOP: "3s"}


class Node:
    """Node n1 with the pods of these objects, in maintenance by `me`; `gone` are the apps of the pods that went."""

    def __init__(self, *objects: Raw, rules: t.Sequence[dict[str, t.Any]], **options: t.Any) -> None:
        self.world = World([manifests.node("n1", pods=60), *objects])
        self.world.apply(manifests.node("n8", pods=60), manifests.node("n9", pods=60))
        self.world.settle()
        self.rules, faults = pod_rules.read(rules)
        assert not faults
        self.choices = DrainPolicy(rules=self.rules, method="replace", **options)
        self.gone: list[str] = []
        self.world.on_event.append(self._heard)
        self.me = self.world.process("me")
        assert not self.me.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", ("n1",))), RUN).failed
        assert not self.me.run(
            lambda ctx: guard(ctx, GuardOptions("present", ("n1",), method="replace", rules=self.rules)), RUN
        ).failed

    def _heard(self, event: Event) -> None:
        spec, labels = event.raw.get("spec") or {}, event.raw["metadata"].get("labels") or {}
        if event.what == "DELETED" and event.resource == kinds.PODS.resource and spec.get("nodeName") == "n1":
            self.gone.append(labels["app"])

    def draining(self, me: Actor | None = None) -> Task:
        return (me or self.me).call(lambda ctx: drain(ctx, DrainOptions(("n1",), self.choices)), RUN)

    def drained(self, task: Task | None = None, within: float = 600.0) -> Result:
        task = task or self.draining()
        self.world.machine.run_until(lambda: not task.alive, within=within)
        return t.cast("Result", task.value())

    def evicted(self) -> list[str]:
        sent = [s for s in self.world.log if s.request.resource == "pods/eviction" and s.status == 201]
        return [one.request.name.partition("-")[0] for one in sent]


def outcomes(result: Result) -> dict[str, str]:
    (node,) = result.data["nodes"]
    return {pod["name"].partition("-")[0]: pod["outcome"] for pod in node["pods"]} | {"": node["outcome"]}


def bare(name: str, **annotations: str) -> Raw:
    meta = {"name": name, "namespace": "shop", "labels": {"app": name}, "annotations": annotations}
    spec = {"containers": [{"name": "c", "image": "registry.example/c:1"}], "restartPolicy": "Never", "nodeName": "n1"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def web(name: str, replicas: int = 2, **options: t.Any) -> Raw:
    return manifests.deployment(name, replicas, annotations=SLOW, **options)


def test_a_band_starts_when_the_pods_of_the_earlier_are_gone() -> None:
    rules: list[dict[str, t.Any]] = [{"pods": "app=front", "order": -1}, {"pods": "app=store", "order": 5}]
    node = Node(web("store"), web("front"), web("other"), rules=rules)
    with node.world:
        assert outcomes(node.drained())[""] == "drained"
        assert node.gone == ["front"] * 2 + ["other"] * 2 + ["store"] * 2


def test_a_rule_comes_before_and_another_after() -> None:
    rules: list[dict[str, t.Any]] = [
        {"name": "store", "pods": "app=store"} | {"grace_period": 5},
        {"name": "front", "pods": "app=front", "before": ["store"]},
        {"pods": "app=log", "after": ["store", "front"]},
    ]
    node = Node(web("store"), web("log"), web("front"), web("other"), rules=rules)
    with node.world:
        node.drained()
        ordered = [name for name in node.gone if name != "other"]
        assert ordered == ["front"] * 2 + ["store"] * 2 + ["log"] * 2
        assert node.gone.index("other") < 4, "whom no rule names waits for nobody"


def test_a_surge_waits_for_its_turn_too() -> None:
    node = Node(
        web("single", 1), web("other", 3), rules=[{"owners": "Deployment/single", "order": 1, "method": "surge"}]
    )
    with node.world:
        assert outcomes(node.drained())["single"] == "surged"
        assert node.gone == ["other"] * 3 + ["single"]


def test_a_drain_that_is_resumed_keeps_the_order() -> None:
    rules: list[dict[str, t.Any]] = [{"pods": "app=front", "order": -1}, {"pods": "app=store", "order": 5}]
    node = Node(web("store", 3), web("front", 3), rules=rules)
    with node.world:
        task = node.draining()
        node.world.machine.run_until(lambda: node.gone.count("front") >= 1, within=60)
        node.me.process.kill()
        again = node.world.process("me")
        node.drained(node.draining(again))
        assert not task.alive
        assert node.gone == ["front"] * 3 + ["store"] * 3


def test_what_a_rule_leaves_stays_and_the_node_is_drained_and_handed_over() -> None:
    node = Node(web("single", 1), web("other"), rules=[{"owners": ["Deployment/single"], "skip": True}])
    with node.world:
        result = node.drained()
        assert outcomes(result) == {"": "drained", "single": "left_by_rule", "other": "replaced"}
        assert [pod["metadata"]["labels"]["app"] for pod in node.world.pods(on="n1")] == ["single"]
        assert len(node.world.pods(app="single")) == 1, "no surge for a pod that stays"
        call = CordonOptions("out", ("n1",))
        assert node.me.run(lambda ctx: cordon(ctx, call), RUN).failed, "without the rules a pod is left that has to go"
        call = CordonOptions("out", ("n1",), rules=node.rules)
        assert not node.me.run(lambda ctx: cordon(ctx, call), RUN).failed


def test_pods_are_left_to_finish() -> None:
    node = Node(bare("batch", **{COMPLETE: "90s"}), web("other"), rules=[{"owners": "Pod", "wait": "finished"}])
    with node.world:
        began = node.world.machine.now
        assert outcomes(node.drained())[""] == "drained"
        assert node.gone[-1] == "batch"
        assert node.world.machine.now - began > 50


@pytest.mark.parametrize(("order", "others"), [(0, 2), (-1, 0)])
def test_a_deadline_that_passes_fails_its_node_and_names_the_rule(order: int, others: int) -> None:
    rule = {"name": "batch", "owners": "Pod", "wait": "finished", "deadline": "20s", "order": order}
    node = Node(bare("batch", **{COMPLETE: "600s"}), web("other"), rules=[rule])
    with node.world:
        began = node.world.machine.now
        result = node.drained()
        found = outcomes(result)
        assert (found[""], found["batch"]) == ("timed_out", "deadline")
        assert "by rule batch" in result.message.lower()
        assert 20 <= node.world.machine.now - began < 25
        assert node.evicted().count("other") == others, "who comes later is not touched"
        assert "batch" not in node.gone
        me = node.me.run(lambda ctx: cordon(ctx, CordonOptions("uncordoned", ("n1",))), RUN)
        assert not me.failed


def test_a_deadline_counts_from_when_it_is_the_pods_turn() -> None:
    rules: list[dict[str, t.Any]] = [{"pods": "app=slow", "order": -1}, {"pods": "app=other", "deadline": "15s"}]
    slow = manifests.deployment("slow", 1, annotations={STOP: "30s"}, terminationGracePeriodSeconds=60)
    node = Node(slow, web("other"), rules=rules)
    with node.world:
        assert outcomes(node.drained())[""] == "drained"
        assert node.gone == ["slow", "other", "other"]


def test_pods_of_a_daemonset_leave_last_and_come_back_with_the_node() -> None:
    rules: list[dict[str, t.Any]] = [{"owners": "DaemonSet/agent", "last": True}]
    everywhere = [{"operator": "Exists"}]
    node = Node(
        manifests.daemon_set("agent"), manifests.daemon_set("net", tolerations=everywhere), web("other"), rules=rules
    )
    with node.world:
        found = outcomes(node.drained())
        assert found == {"": "drained", "agent": "evicted", "net": "daemonset", "other": "replaced"}
        assert node.gone == ["other", "other", "agent"]
        node.world.settle()
        assert [pod["metadata"]["labels"]["app"] for pod in node.world.pods(on="n1")] == ["net"], (
            "our taint keeps it out"
        )
        assert not node.me.run(lambda ctx: cordon(ctx, CordonOptions("uncordoned", ("n1",))), RUN).failed
        node.world.settle()
        assert {pod["metadata"]["labels"]["app"] for pod in node.world.pods(on="n1")} == {"net", "agent"}


def test_the_grace_period_of_a_rule_goes_with_the_eviction() -> None:
    rules: list[dict[str, t.Any]] = [{"pods": "app=web", "grace_period": 1}, {"bands": [{"priority": 0, "seconds": 2}]}]
    node = Node(web("web"), web("other"), rules=rules)
    with node.world:
        node.drained()
        bodies = [s.request for s in node.world.log if s.request.resource == "pods/eviction" and s.status == 201]
        given = {r.name.partition("-")[0]: dict(r.body or {})["deleteOptions"]["gracePeriodSeconds"] for r in bodies}
        assert given == {"web": 1, "other": 2}
