# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What half of the generated clusters have beside room and rules: pods that preempt, and pods that only wait.

Priorities with budgets, pods in the middle of a resize, scheduling gates, a scheduler that nobody runs, and, where the
API server knows them, tolerations that compare numbers.
"""

from __future__ import annotations

import random

from witness.log import Json

from support.forecasts.clusters import GPU, MARK, Cluster

LOW, MIDDLE, HIGH, POLITE = "forecast-low", "forecast-middle", "forecast-high", "forecast-polite"
PRIORITIES: list[Json] = [
    {"metadata": {"name": LOW}, "value": -10},
    {"metadata": {"name": MIDDLE}, "value": 100},
    {"metadata": {"name": HIGH}, "value": 1000},
    {"metadata": {"name": POLITE}, "value": 1000, "preemptionPolicy": "Never"},
]
GATE = "forecast.example.com/approval"
MEMORY = "example.com/memory-gb"
IDLE = "nobody-runs-it"


def press(made: Cluster, seed: int, *, numbers: bool) -> None:
    """Changes the cluster, or leaves it as it is, as the seed wants it; `numbers`: taints and tolerations with them."""
    dice = random.Random(f"pressure {seed}")
    if numbers:
        _number(made, dice)
    if dice.random() < 0.5:
        return
    for pod in made.fills:
        pod["spec"]["priorityClassName"] = dice.choice([LOW, LOW, LOW, MIDDLE, HIGH])
        if dice.random() < 0.8:
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = dice.choice(["500m", "700m", "900m"])
    for space in {pod["metadata"]["namespace"] for pod in made.fills}:
        apps = sorted({pod["metadata"]["labels"]["app"] for pod in made.fills if pod["metadata"]["namespace"] == space})
        made.budgets.append(_budget(space, dice.choice(apps), dice.choice([0, 1, 2, 99])))
    _resize(made, dice)
    for pod in made.probes:
        dice.choice([_urgent, _urgent, _urgent, _polite, _gated, _unserved, _as_it_is])(pod)
        if dice.random() < 0.5 and "resources" not in pod["spec"]:
            requests = pod["spec"]["containers"][0]["resources"].setdefault("requests", {})
            requests["cpu"] = dice.choice(["900m", "1400m", "1900m"])
    # By this pod a plan can tell that nobody looks at such pods.
    made.idle.append(_waiting(made))


def _budget(space: str, app: str, least: int) -> Json:
    spec = {"minAvailable": least, "selector": {"matchLabels": {"app": app}}}
    return {"metadata": {"name": f"of-{app}", "namespace": space}, "spec": spec}


def _number(made: Cluster, dice: random.Random) -> None:
    for node in made.nodes:
        if dice.random() < 0.2:
            taint = {"key": MEMORY, "value": dice.choice(["8", "16", "0", "large"]), "effect": "NoSchedule"}
            node["spec"]["taints"].append(taint)
    for pod in made.probes:
        if dice.random() < 0.3:
            toleration = {"key": MEMORY, "operator": dice.choice(["Gt", "Lt"]), "value": dice.choice(["0", "8", "12"])}
            pod["spec"].setdefault("tolerations", []).append(toleration)


def _resize(made: Cluster, dice: random.Random) -> None:
    """Some fills are wanted larger or smaller than they are, or larger than can be."""
    for pod in made.fills:
        container = pod["spec"]["containers"][0]
        if dice.random() < 0.25 and GPU not in container["resources"]["requests"]:
            meta = pod["metadata"]
            wanted = dice.choice(["100m", "300m", "900m"])
            made.resized[meta["namespace"], meta["name"]] = wanted, dice.choice(["", "Deferred", "Infeasible"])


def _waiting(made: Cluster) -> Json:
    meta = {"name": "idle", "namespace": made.namespaces[0]["metadata"]["name"], "labels": {MARK: made.name}}
    container = {"name": "c", "image": "none"}
    spec = {"schedulerName": IDLE, "automountServiceAccountToken": False, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**spec, "terminationGracePeriodSeconds": 0}}


def _urgent(pod: Json) -> None:
    pod["spec"]["priorityClassName"] = HIGH


def _polite(pod: Json) -> None:
    pod["spec"]["priorityClassName"] = POLITE


def _gated(pod: Json) -> None:
    pod["spec"]["schedulingGates"] = [{"name": GATE}]


def _unserved(pod: Json) -> None:
    pod["spec"]["schedulerName"] = IDLE


def _as_it_is(pod: Json) -> None:
    """Of no priority of its own, which lies between those of others."""
    assert "priorityClassName" not in pod["spec"]
