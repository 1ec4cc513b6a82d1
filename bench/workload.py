# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is drained: 1,000 pods of 100 Deployments with budgets, spread evenly over 20 nodes.

A drain leaves its nodes empty and the others fuller. So that every tool starts from the same
picture, `level` moves the surplus back between two measurements;
it does so with the benchmark's own user agent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from support import shapes
from support.waiting import until
from witness import objects as o
from witness.api import Api, ApiError
from witness.log import Json

NAMESPACE = "bench"
NODES = 20
DEPLOYMENTS = 100
REPLICAS = 10
BUDGET = 3
"""`maxUnavailable` of every budget."""
SURPLUS = 4
"""So many pods above the average are left on a node when the pods are levelled."""

NODES_PATH = "/api/v1/nodes"
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
APPS_PATH = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
BUDGETS_PATH = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"


def deploy(api: Api) -> None:
    """Make everything; returns when all pods are ready and all budgets have their room."""
    api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    until(lambda: api.find(account), 30, "the namespace has its account")
    for number in range(1, DEPLOYMENTS + 1):
        name = f"app-{number:03d}"
        # No lab annotations: such pods are ready and gone at once.
        template = {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "registry.invalid/app:1"}]},
        }
        api.create(BUDGETS_PATH, shapes.budget(name, name, maxUnavailable=BUDGET))
        api.create(APPS_PATH, shapes.workload("Deployment", name, template, REPLICAS, None))
    settle(api)


def settle(api: Api) -> None:
    """Until nothing moves any more: all pods ready, all budgets untouched."""
    until(
        lambda: _at_rest(api), 180, "all pods are ready and all budgets have their room", every=0.5
    )


def _at_rest(api: Api) -> bool:
    budgets = api.items(BUDGETS_PATH)
    return all(
        _fresh(budget)
        and budget["status"]["disruptionsAllowed"] == BUDGET
        and budget["status"]["currentHealthy"] == REPLICAS
        for budget in budgets
    ) and all(
        _fresh(app) and app["status"].get("readyReplicas") == REPLICAS
        for app in api.items(APPS_PATH)
    )


def _fresh(obj: Json) -> bool:
    return bool(obj.get("status", {}).get("observedGeneration") == obj["metadata"]["generation"])


def pods_by_node(api: Api) -> dict[str, list[Json]]:
    """Living pods of the workload by the node they are on; only nodes that have any."""
    found: dict[str, list[Json]] = defaultdict(list)
    for pod in api.items(PODS_PATH):
        if not pod["metadata"].get("deletionTimestamp"):
            found[pod["spec"].get("nodeName", "")].append(pod)
    return dict(found)


def pods_there(api: Api, nodes: list[str]) -> set[str]:
    """Names of the workload's pods on these nodes, those that are ending too."""
    return {o.name(pod) for pod in api.items(PODS_PATH) if pod["spec"].get("nodeName") in nodes}


def fullest(api: Api, count: int) -> list[str]:
    """The nodes with most pods, by name."""
    crowds = pods_by_node(api)
    return sorted(sorted(crowds, key=lambda node: (-len(crowds[node]), node))[:count])


def shut(api: Api, nodes: Collection[str]) -> None:
    """Make exactly these nodes unschedulable, and all others take pods,
    also after tools that only cordon.
    """
    for node in api.items(NODES_PATH):
        wanted = o.name(node) in nodes
        if bool(node["spec"].get("unschedulable")) is not wanted:
            api.patch(f"{NODES_PATH}/{o.name(node)}", {"spec": {"unschedulable": wanted or None}})
    until(
        lambda: all(
            bool(node["spec"].get("taints")) is (o.name(node) in nodes)
            for node in api.items(NODES_PATH)
        ),
        30,
        "the nodes are shut and open as wanted",
    )


def level(api: Api) -> None:
    """Spread the pods evenly again: surplus pods end, and only nodes below the
    average take new ones.
    """
    average = DEPLOYMENTS * REPLICAS // NODES
    settle(api)
    for _attempt in range(10):
        crowds = pods_by_node(api)
        surplus = [
            pod
            for pods in crowds.values()
            if len(pods) > average + SURPLUS
            for pod in _last(pods, average)
        ]
        if not surplus:
            return
        shut(api, {node for node, pods in crowds.items() if len(pods) >= average})
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda pod: _end(api, pod), surplus))
        settle(api)
        shut(api, ())
    raise AssertionError("the pods do not spread evenly")


def _last(pods: list[Json], keep: int) -> list[Json]:
    """All but `keep` of the pods, from those workloads first that have most of them here."""
    crowd: Counter[str] = Counter()
    ranked: list[tuple[int, str, Json]] = []
    for pod in pods:
        app = o.labels(pod)["app"]
        crowd[app] += 1
        ranked.append((-crowd[app], o.name(pod), pod))
    ranked.sort(key=lambda entry: entry[:2])
    return [pod for _rank, _name, pod in ranked[: len(pods) - keep]]


def _end(api: Api, pod: Json) -> None:
    options: dict[str, Any] = {"gracePeriodSeconds": 0, "preconditions": {"uid": o.uid(pod)}}
    try:
        api.delete(f"{PODS_PATH}/{o.name(pod)}", **options)
    except ApiError as error:
        if error.status != 409:
            raise
