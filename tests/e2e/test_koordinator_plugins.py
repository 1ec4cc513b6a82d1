# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Koordinator's own balance plugins at work: LowNodeLoad in both versions, CustomPriority in the newer one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pytest
from support import descheduling, koordinator, sampling
from support.arena import Arena
from support.descheduling import CYCLE, here, moves
from support.lab import Lab
from support.plays import Player
from support.waiting import until
from witness import objects as o
from witness.log import Json

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Lab:
    return koordinator.chosen(request)


@pytest.fixture(autouse=True)
def as_found(lab: Lab, arena: Arena) -> Iterator[None]:
    with descheduling.as_found(lab, arena):
        yield


def using(cpu: str) -> Json:
    return {"usage": {"resources": {"cpu": cpu, "memory": "1Gi"}}}


class Metrics:
    """What koordlet would tell of nodes and their pods."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.api = arena.api

    def tell(self, node: str, pods: Mapping[str, str]) -> None:
        """The CPU that each pod on the node uses; the node uses their sum and one more."""
        path = f"{METRICS}/{node}"
        if self.api.find(path) is None:
            self.api.create(METRICS, {**self._kind(), "metadata": {"name": node}, "spec": {}})
        told = [
            {"namespace": self.arena.namespace, "name": pod, "podUsage": using(cpu)["usage"]}
            for pod, cpu in pods.items()
        ]
        total = str(1 + sum(int(cpu) for cpu in pods.values()))
        status = {
            "updateTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "nodeMetric": {"nodeUsage": using(total)["usage"], "systemUsage": using("1")["usage"]},
            "podsMetric": told,
        }
        self.api.patch(f"{path}/status", {"status": status})

    @staticmethod
    def _kind() -> Json:
        return {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric"}

    def clear(self) -> None:
        for found in self.api.items(METRICS):
            if o.name(found).startswith(self.arena.name):
                self.api.delete(f"{METRICS}/{o.name(found)}")


@pytest.fixture
def metrics(arena: Arena) -> Iterator[Metrics]:
    made = Metrics(arena)
    try:
        yield made
    finally:
        made.clear()


def balancing(plugin: str, args: Json) -> Json:
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "profiles": [
            {
                "name": "koord-descheduler",
                "plugins": {"balance": {"enabled": [{"name": plugin}]}},
                "pluginConfig": [{"name": plugin, "args": args}],
            }
        ],
    }


@pytest.mark.whole
@sampling.koordinator("v1.7.0")
def test_low_node_load_cools_a_hot_node(lab: Lab, arena: Arena, play: Player, metrics: Metrics) -> None:
    hot, cold = arena.nodes(2)
    busy = arena.deployment("busy", 3, on=hot, service=False)
    quiet = arena.deployment("quiet", 2, on=cold, service=False)
    arena.settle()
    assert arena.node(hot)["status"]["allocatable"]["cpu"] == "32"
    # 28 of 32 are 88 %; without one pod of nine it would be 59 %.
    metrics.tell(hot, dict.fromkeys((o.name(pod) for pod in busy.pods()), "9"))
    metrics.tell(cold, dict.fromkeys((o.name(pod) for pod in quiet.pods()), "1"))
    args = {
        "lowThresholds": {"cpu": 30},
        "highThresholds": {"cpu": 60},
        "anomalyCondition": {"consecutiveAbnormalities": 2},
        "detectorCacheTimeout": "1m",
    }
    run = play.module("descheduler_config", config=here(balancing("LowNodeLoad", args), arena))
    assert run.ok, run.text

    def one_less() -> bool:
        return busy.nodes().count(hot) == 2

    until(one_less, 60, "a pod left the hot node")
    metrics.tell(hot, dict.fromkeys((o.name(pod) for pod in arena.pods("busy", on=hot)), "9"))
    arena.settle()
    time.sleep(4 * CYCLE)
    assert busy.nodes() == sorted([hot, hot, cold])
    assert moves(lab, arena) == {("LowNodeLoad", arena.namespace, "busy"): "Succeeded"}


@pytest.mark.whole
@sampling.koordinator("v1.8.0")
def test_custom_priority_moves_pods_to_the_cheap_node(lab: Lab, arena: Arena, play: Player) -> None:
    (dear,), (cheap,) = arena.nodes(1, {"price": "high"}), arena.nodes(1, {"price": "low"})
    web = arena.deployment("web", 3, on=dear, service=False)
    arena.settle()
    order = [{"name": price, "nodeSelector": {"matchLabels": {"price": price}}} for price in ("high", "low")]
    config = here(balancing("CustomPriority", {"evictionOrder": order}), arena)
    run = play.module("descheduler_config", config=config)
    assert not run.ok
    assert "CustomPriority was added in version 1.8.0" in run.text
    if "next" in lab.name:
        run = play.module("descheduler_config", config=config, version="1.8.0")
        assert run.ok, run.text
        until(lambda: cheap in web.nodes(), 60, f"a pod went to {cheap}")
        moved = ("CustomPriority", arena.namespace, "web")
        until(lambda: moves(lab, arena) == {moved: "Succeeded"}, 30, "its job is over")
