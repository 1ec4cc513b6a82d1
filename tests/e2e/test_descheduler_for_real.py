# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deschedule and balance plugins at work: the real koord-descheduler, configured and restarted by our modules."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml
from support import descheduling, shapes
from support.arena import Arena
from support.descheduling import CYCLE, events, here, moves
from support.koordinator import KEY
from support.lab import Lab
from support.plays import Player
from support.waiting import until
from witness import objects as o
from witness.api import JSON_PATCH
from witness.log import Json

TAINTS = "RemovePodsViolatingNodeTaints"

STRESS = {
    "containers": [
        {
            "args": ["--vm", "2", "--vm-bytes", "1600M", "-c", "2", "--vm-hang", "2"],
            "command": ["stress"],
            "image": "registry-cn-beijing.ack.aliyuncs.com/acs/stress:v1.0.4",
            "imagePullPolicy": "Always",
            "name": "stress",
            "resources": {"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "2", "memory": "4Gi"}},
        }
    ],
    "restartPolicy": "Always",
}


@pytest.fixture(scope="module")
def lab(koord: Lab) -> Lab:
    return koord


@pytest.fixture(autouse=True)
def as_found(lab: Lab, arena: Arena) -> Iterator[None]:
    with descheduling.as_found(lab, arena):
        yield


def uids(arena: Arena, app: str, node: str) -> set[str]:
    return {str(o.uid(pod)) for pod in arena.pods(app, on=node)}


def test_the_three_nodes_of_the_document(lab: Lab, arena: Arena, play: Player) -> None:
    kept, left, other = arena.nodes(3)
    stress = arena.deployment("stress-demo", 3, on=[kept, left, other], pod=STRESS, service=False)
    arena.settle()
    before = {node: uids(arena, "stress-demo", node) for node in (kept, left, other)}
    (leaving,) = [o.name(pod) for pod in arena.pods("stress-demo", on=left)]

    printed = here(yaml.safe_load(descheduling.DOCUMENT["data"][KEY]), arena, as_printed=True)
    run = play.module("descheduler_config", config=yaml.safe_dump(printed, sort_keys=False))
    assert run.ok, run.text
    (warned,) = [one for one in run.answer["findings"] if one["rule"] == "left_out"]
    assert " scheduler (" in warned["message"]
    for node, value in ((kept, "not-allow"), (left, "allow")):
        taint = {"key": "deschedule", "value": value, "effect": "NoSchedule"}
        assert play.module("node_taint", nodes=[node], taints=[taint]).changed
    time.sleep(3 * CYCLE)
    assert moves(lab, arena) == {}, "as its document prints it, it moves no pod of the default scheduler"

    config = here(yaml.safe_load(descheduling.DOCUMENT["data"][KEY]), arena)
    run = play.module("descheduler_config", config=yaml.safe_dump(config, sort_keys=False))
    assert run.ok, run.text
    assert not [one for one in run.answer["findings"] if " scheduler (" in one["message"]]

    until(lambda: moves(lab, arena).get((TAINTS, arena.namespace, "stress-demo")) == "Succeeded", 40, "the pod moved")
    arena.settle()
    time.sleep(2 * CYCLE)
    assert stress.nodes() == sorted([kept, other, other])
    assert uids(arena, "stress-demo", kept) == before[kept]
    assert uids(arena, "stress-demo", other) > before[other]
    assert moves(lab, arena) == {(TAINTS, arena.namespace, "stress-demo"): "Succeeded"}
    pod = f"{arena.namespace}/{leaving}"
    evicted = f'Pod "{pod}" evicted from node "{left}" by the reason "{TAINTS}"'
    assert evicted in events(lab, "default", "Evicting")
    assert f'Pod "{pod}" has been evicted' in events(lab, "default", "EvictComplete")
    assert f'Pod evicted from node "{left}" by the reason "{TAINTS}"' in events(lab, arena.namespace, "Descheduled")


PLUGINS: Sequence[tuple[str, str, Json]] = (
    ("deschedule", "RemovePodsHavingTooManyRestarts", {"podRestartThreshold": 3}),
    ("deschedule", "RemoveFailedPods", {"minPodLifetimeSeconds": 0, "reasons": ["Evicted"]}),
    (
        "deschedule",
        "RemovePodsViolatingNodeAffinity",
        {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]},
    ),
    ("deschedule", "RemovePodsViolatingInterPodAntiAffinity", {}),
    ("balance", "RemovePodsViolatingTopologySpreadConstraint", {"constraints": ["DoNotSchedule"]}),
)


def profile(name: str, ground: str, plugins: Sequence[tuple[str, str, Json]]) -> Json:
    """A profile for the nodes of one ground."""
    return {
        "name": name,
        "nodeSelector": {"matchLabels": {"ground": ground}},
        "plugins": {
            point: {"enabled": [{"name": plugin} for where, plugin, _args in plugins if where == point]}
            for point in ("deschedule", "balance")
        },
        "pluginConfig": [{"name": plugin, "args": args} for _where, plugin, args in plugins],
    }


class Grounds:
    """Nodes of three kinds in an arena, and workloads of which each gives one plugin something to do."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.common = arena.nodes(3, {"ground": "common", "zone": "a", "color": "green"})
        self.twins = arena.add_namespace(f"{arena.name}-twins")
        self.other = arena.add_namespace(f"{arena.name}-other")
        self.low = arena.nodes(2, {"ground": "low"})
        self.high = arena.nodes(2, {"ground": "high"})

    def spread(self, name: str, pod: Json | None = None, labels: Json | None = None, on: str = "") -> None:
        """A workload with a pod on each of the common nodes, or three on one."""
        spec = {"template": {"metadata": {"labels": {"app": name, **(labels or {})}}}}
        nodes = [on] * 3 if on else self.common
        self.arena.deployment(name, 3, on=nodes, pod={**_on("common"), **(pod or {})}, service=False, spec=spec)

    def elsewhere(
        self, namespace: str, name: str, node: str, labels: Json | None = None, pod: Json | None = None
    ) -> None:
        """A workload of another namespace whose three pods begin on one node."""
        made = shapes.template(self.arena.name, name, "0s", "0s", {**_on("common"), **(pod or {})}, None)
        made["metadata"]["labels"] |= labels or {}
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        pods = f"/api/v1/namespaces/{namespace}/pods"
        with self.arena.placing(node):
            self.arena.api.create(path, shapes.workload("Deployment", name, made, 3, None))
            until(lambda: sum(o.ready(each) for each in self.arena.api.items(pods)) >= 3, 30, f"{name} runs")

    def first(self, app: str, node: str) -> str:
        """The path of the workload's pod on the node."""
        return self.arena.path("Pod", o.name(self.arena.pods(app, on=node)[0]))


def _on(ground: str) -> Json:
    return {"nodeSelector": {"ground": ground}}


def _asking(cpu: str, ground: str) -> Json:
    return {
        **_on(ground),
        "containers": [{"name": "main", "image": "registry.invalid/app:1", "resources": {"requests": {"cpu": cpu}}}],
    }


def _affinity(kind: str, rule: Any) -> Json:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": rule}}}


def one_for_each_plugin(lab: Lab, arena: Arena) -> Grounds:
    """Pods of which each violates what one plugin is for, and only that; the taints are still to come."""
    ground = Grounds(arena)
    one, two, three = ground.common
    green = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "color", "operator": "In", "values": ["green"]}]}]}
    shy = [{"labelSelector": {"matchLabels": {"role": "loud"}}, "topologyKey": "kubernetes.io/hostname"}]
    even: list[Any] = [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "even"}},
        }
    ]
    for name, node in (("hard", one), ("soft", two), ("reserved", three)):
        ground.spread(name, labels={"move": "yes"}, on=node)
    ground.spread("unasked")
    ground.spread("old", labels={"life": "short"})
    ground.spread("restless")
    ground.spread("broken")
    ground.spread("green", pod=_affinity("nodeAffinity", green))
    ground.spread("loud")
    ground.spread("shy", pod=_affinity("podAntiAffinity", shy))
    ground.spread("even", pod={"topologySpreadConstraints": even})
    ground.elsewhere(ground.twins, "twins", three)
    ground.elsewhere(ground.other, "hard", one, {"move": "yes"})
    arena.deployment("heavy", 3, on=ground.low[0], pod=_asking("8", "low"), service=False)
    arena.deployment("light", 3, on=[ground.high[0], *[ground.high[1]] * 2], pod=_asking("4", "high"), service=False)
    arena.settle()
    arena.nodes(1, {"ground": "common", "zone": "b", "color": "green"})

    api = lab.api
    worn = ground.first("restless", two)
    api.patch(
        f"{worn}/status",
        [{"op": "replace", "path": "/status/containerStatuses/0/restartCount", "value": 5}],
        JSON_PATCH,
    )
    api.patch(f"{ground.first('broken', two)}/status", {"status": {"phase": "Failed", "reason": "Evicted"}})
    api.patch(arena.path("Node", two), {"metadata": {"labels": {"color": "red"}}})
    api.patch(ground.first("loud", three), {"metadata": {"labels": {"role": "loud"}}})
    return ground


def with_all_plugins(ground: Grounds, arena: Arena) -> dict[str, Any]:
    """The configuration that has each plugin in a profile for its nodes."""
    taints = {
        "excludedTaints": ["reserved"],
        "includePreferNoSchedule": True,
        "namespaces": {"include": [arena.namespace]},
        "labelSelector": {"matchLabels": {"move": "yes"}},
    }
    life = {
        "maxPodLifeTimeSeconds": 1,
        "labelSelector": {"matchLabels": {"life": "short"}},
        "namespaces": {"exclude": [ground.other]},
    }
    common = [
        *PLUGINS,
        ("deschedule", TAINTS, taints),
        ("deschedule", "PodLifeTime", life),
        ("balance", "RemoveDuplicates", {"namespaces": {"include": [ground.twins]}}),
    ]
    thresholds = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "profiles": [
            profile("common", "common", common),
            profile("low", "low", [("balance", "LowNodeUtilization", thresholds)]),
            profile("high", "high", [("balance", "HighNodeUtilization", {"thresholds": {"cpu": 20}})]),
        ],
    }


@pytest.mark.whole
def test_every_plugin_once(lab: Lab, arena: Arena, play: Player) -> None:
    ground = one_for_each_plugin(lab, arena)
    one, two, three = ground.common
    for node, key, effect in (
        (one, "hard", "NoSchedule"),
        (two, "soft", "PreferNoSchedule"),
        (three, "reserved", "NoSchedule"),
    ):
        lab.api.patch(arena.path("Node", node), {"spec": {"taints": [{"key": key, "value": "x", "effect": effect}]}})
    run = play.module("descheduler_config", config=here(with_all_plugins(ground, arena), arena))
    assert run.ok, run.text

    wanted = {
        (TAINTS, arena.namespace, "hard"),
        (TAINTS, arena.namespace, "soft"),
        ("PodLifeTime", arena.namespace, "old"),
        ("RemovePodsHavingTooManyRestarts", arena.namespace, "restless"),
        ("RemoveFailedPods", arena.namespace, "broken"),
        ("RemovePodsViolatingNodeAffinity", arena.namespace, "green"),
        ("RemovePodsViolatingInterPodAntiAffinity", arena.namespace, "shy"),
        ("RemovePodsViolatingTopologySpreadConstraint", arena.namespace, "even"),
        ("RemoveDuplicates", ground.twins, "twins"),
        ("LowNodeUtilization", arena.namespace, "heavy"),
        ("HighNodeUtilization", arena.namespace, "light"),
    }

    def done() -> bool:
        return wanted <= {key for key, phase in moves(lab, arena).items() if phase == "Succeeded"}

    until(done, 60, "every plugin moved a pod", every=0.5)
    time.sleep(2 * CYCLE)
    assert moves(lab, arena).keys() == wanted
