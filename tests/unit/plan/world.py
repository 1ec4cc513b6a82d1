# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Deployment with its controllers in a few lines, so that a swap can be played to its end.

Changes are applied as the API server does (merge patch, resourceVersion as a condition); the
ReplicaSet's controller ends pods in its own order: not ready, lowest deletion cost, youngest.
"""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.change import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.migrate import Choices, routes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import PARSERS
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.snapshot import Snapshot
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.objects import (
    Raw,
    budget,
    deployment,
    node,
    owned,
    pod,
)

LISTS = {
    "Deployment": "deployments",
    "HorizontalPodAutoscaler": "autoscalers",
    "Lease": "leases",
    "Pod": "pods",
    "PodDisruptionBudget": "budgets",
}


class Conflict(Exception):
    """The resourceVersion is another one by now."""


def merged(target: t.Any, patch: t.Any) -> t.Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class World:
    """Deployment `web` in namespace `shop`, its pods on the given nodes, its Service, node n9 with room."""

    def __init__(self, on: t.Sequence[str], *, bounds: tuple[int, int] | None = None, rule: Raw | None = None) -> None:
        self.objects: dict[str, list[Raw]] = deployment("web", len(on), annotations={})
        self.version, self.clock = 100, 0
        self.down: list[str] = []
        self.ended: list[str] = []
        self.least_ready = len(on)
        self.objects["nodes"] = [node(name) for name in sorted({*on, "n9"})]
        self.objects["pods"] = [pod(f"web-{i}", name, owned("ReplicaSet", "web")) for i, name in enumerate(on)]
        self.objects.update(autoscalers=[], leases=[], budgets=[])
        if bounds:
            self.objects["autoscalers"].append(
                {
                    "metadata": {"name": "web", "namespace": "shop", "uid": "uid-hpa", "resourceVersion": "1"},
                    "spec": {
                        "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                        "minReplicas": bounds[0],
                        "maxReplicas": bounds[1],
                    },
                }
            )
        if rule is not None:
            self.objects["budgets"].append(budget("web", 0, healthy=len(on), desired=len(on), rule=rule))
        self.at_first = self.kept()

    @property
    def top(self) -> Raw:
        return self.objects["deployments"][0]

    @property
    def replica_set(self) -> Raw:
        return self.objects["replica_sets"][0]

    @property
    def pods(self) -> list[Raw]:
        return self.objects["pods"]

    def names(self) -> list[str]:
        return sorted(p["metadata"]["name"] for p in self.pods)

    def kept(self) -> Raw:
        """What has to be as before in the end: specs and costs, not names and versions."""
        parts = {kind: [x["spec"] for x in self.objects[kind]] for kind in ("deployments", "autoscalers", "budgets")}
        costs = [p["metadata"]["annotations"] for p in self.pods if p["metadata"]["annotations"]]
        return copy.deepcopy({**parts, "leases": self.objects["leases"], "costs": costs})

    def snapshot(self) -> Snapshot:
        found = {**self.objects, "slices": [self.slice()]}
        found = copy.deepcopy(found)
        return Snapshot.of({kind: [PARSERS[kind](raw) for raw in raws] for kind, raws in found.items()})

    def slice(self) -> Raw:
        endpoints = [
            {"conditions": {"ready": self.is_ready(p)}, "targetRef": {"uid": p["metadata"]["uid"]}} for p in self.pods
        ]
        labels = {"kubernetes.io/service-name": "web"}
        meta = {"name": "web-x", "namespace": "shop", "labels": labels}
        return {"metadata": meta, "addressType": "IPv4", "endpoints": endpoints}

    def plans(self, *nodes: str, **choices: t.Any) -> t.Any:
        return routes(self.snapshot(), nodes, Choices(**choices))

    @staticmethod
    def is_ready(raw: Raw) -> bool:
        return bool(raw["status"]["conditions"][0]["status"] == "True")

    def set_ready(self, name: str, ready: bool) -> None:
        raw = next(p for p in self.pods if p["metadata"]["name"] == name)
        raw["status"]["conditions"][0]["status"] = "True" if ready else "False"

    def apply(self, change: Change) -> None:
        """Make one change as the API server would."""
        self.version += 1
        found = self.objects[LISTS[change.target.kind]]
        if change.verb == "create":
            raw = merged({}, change.body)
            raw["metadata"] |= {"uid": f"uid-{raw['metadata']['name']}", "creationTimestamp": self.now()}
            raw["metadata"]["resourceVersion"] = str(self.version)
            found.append(raw)
            return
        here = next(x for x in found if x["metadata"]["name"] == change.target.name)
        if change.resource_version not in ("", here["metadata"]["resourceVersion"]):
            raise Conflict(str(change.target))
        found.remove(here)
        if change.verb == "delete":
            return
        after = merged(here, change.body)
        after["metadata"]["resourceVersion"] = str(self.version)
        if change.target.kind == "Deployment":
            after["metadata"]["generation"] += 1
        found.append(after)

    def now(self) -> str:
        return f"2026-01-01T00:{self.clock // 60:02}:{self.clock % 60:02}Z"

    def act(self) -> None:
        """One round of the controllers: pods made last round become Ready, the count is brought about."""
        self.clock += 1
        for raw in self.pods:
            if raw["metadata"]["name"] not in self.down:
                raw["status"]["conditions"][0]["status"] = "True"
        count = self.top["spec"]["replicas"]
        while len(self.pods) < count:
            name = f"web-{self.version}-{len(self.pods)}"
            self.version += 1
            made = pod(name, "n9", owned("ReplicaSet", "web"), ready=False, created=self.now())
            self.pods.append(made)
        while len(self.pods) > count:
            doomed = min(self.pods, key=self.rank)
            self.pods.remove(doomed)
            self.ended.append(doomed["metadata"]["name"])
        self.replica_set["spec"]["replicas"] = count
        ready = sum(map(self.is_ready, self.pods))
        self.least_ready = min(self.least_ready, ready)
        for raw in (self.top, self.replica_set):
            raw["status"] = {
                "observedGeneration": raw["metadata"]["generation"],
                "replicas": len(self.pods),
                "readyReplicas": ready,
                "availableReplicas": ready,
            }

    def rank(self, raw: Raw) -> tuple[bool, int, list[int]]:
        cost = int(raw["metadata"]["annotations"].get(names.DELETION_COST, "0"))
        youth = [-ord(c) for c in raw["metadata"]["creationTimestamp"]]
        return self.is_ready(raw), cost, youth
