# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Generated clusters in the lab: what the forecast says of each pod beside what the real scheduler does with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from witness.api import Api, ApiError
from witness.log import Json

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.index_keys import PARSERS
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import filters, forecast, world
from support.forecasts.cases import Case, Foreseen, Sequenced
from support.forecasts.clusters import CLASSES, MARK, Cluster
from support.forecasts.pressure import PRIORITIES
from support.waiting import steadily, until

LISTS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "budgets": "/apis/policy/v1/poddisruptionbudgets",
    "claims": "/api/v1/persistentvolumeclaims",
    "volumes": "/api/v1/persistentvolumes",
    "namespaces": "/api/v1/namespaces",
    "csi_nodes": "/apis/storage.k8s.io/v1/csinodes",
    "storage_classes": "/apis/storage.k8s.io/v1/storageclasses",
    "attachments": "/apis/storage.k8s.io/v1/volumeattachments",
}
CSI_NODES = LISTS["csi_nodes"]
RUNTIMES = "/apis/node.k8s.io/v1/runtimeclasses"
RUNTIME: Json = {"metadata": {"name": "forecast"}, "handler": "none", "overhead": {"podFixed": {"cpu": "250m"}}}
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
PATIENCE = 300.0
LEFT_ALONE = 3.0
"""Seconds after which a pod that nobody looks at is taken to be left alone."""


class Field:
    """Some clusters in the lab at once; `play` compares, `clear` removes them."""

    def __init__(self, api: Api, clusters: Sequence[Cluster]) -> None:
        self.api = api
        self.clusters = clusters
        self.cases: list[Case] = []

    def play(self) -> tuple[list[Case], list[Sequenced]]:
        self._build()
        start = self._snapshot()
        wanted = {made.name: [self._defaulted(probe) for probe in made.probes] for made in self.clusters}
        promised = {name: _all_fit(start, probes) for name, probes in wanted.items()}
        bound: dict[str, int] = {made.name: 0 for made in self.clusters}
        for turn in range(max(len(made.probes) for made in self.clusters)):
            probes = [made.probes[turn] for made in self.clusters if turn < len(made.probes)]
            for case in self._turn(probes):
                self.cases.append(case)
                bound[case.cluster] += bool(case.bound)
        # That a pod is bound is half of a promise: its replacement has to become ready, too.
        until(self._steady, PATIENCE, "all bound pods are ready", every=0.5)
        kept = {made.name: bound[made.name] == len(made.probes) for made in self.clusters}
        return self.cases, [Sequenced(name, promised[name], kept[name]) for name in kept]

    def _turn(self, probes: Sequence[Json]) -> list[Case]:
        """One more pod for each cluster, all at once: they do not know each other."""
        until(self._steady, PATIENCE, "all bound pods are ready and counted by their budgets", every=0.3)
        snapshot, before = self._snapshot(), self._named()
        scheduler = filters.Filters(world.World(snapshot))
        made = list(self._each(self._create_pod, probes))
        foreseen = [_foresee(snapshot, scheduler, raw) for raw in made]
        decided = [self._decided(raw, one, before) for raw, one in zip(made, foreseen, strict=True) if not one.waits]
        waiting = [(raw, one) for raw, one in zip(made, foreseen, strict=True) if one.waits]
        if waiting:
            steadily(
                lambda: all(not self._pod(raw)["spec"].get("nodeName") for raw, _one in waiting), LEFT_ALONE, "alone"
            )
        return [*decided, *(self._case(self._pod(raw), one, None) for raw, one in waiting)]

    def _pod(self, raw: Json) -> Json:
        return self.api.get(_path(raw))

    def _bound(self, raw: Json) -> str:
        return str(self._pod(raw)["spec"].get("nodeName", ""))

    def _decided(self, raw: Json, foreseen: Foreseen, before: dict[str, Json]) -> Case:
        """As soon as the scheduler has bound the pod, or has said that it cannot and preempts nothing for it.

        `before`: all pods by UID, as they were before this one.
        """

        def decided() -> Json | None:
            pod = self._pod(raw)
            said = _condition(pod, "PodScheduled")
            preempting = bool(pod["status"].get("nominatedNodeName")) or foreseen.cost is not None
            return pod if pod["spec"].get("nodeName") or (said and not preempting) else None

        if foreseen.cost is None:
            pod = until(decided, PATIENCE, f"the scheduler has decided on {_path(raw)}", every=0.2)
        else:
            # Not to be bound is an answer then, too: a wrong one, which the test tells.
            with contextlib.suppress(AssertionError):
                until(decided, PATIENCE, f"room is made for {_path(raw)}", every=0.2)
            pod = self._pod(raw)
        assert pod is not None
        gone = before.keys() - self._named().keys()
        return self._case(pod, foreseen, _cost([before[name] for name in gone], pod["spec"].get("nodeName", "")))

    def _named(self) -> dict[str, Json]:
        return {pod["metadata"]["uid"]: pod for pod in self.api.items(LISTS["pods"], labelSelector=MARK)}

    def _case(self, pod: Json, foreseen: Foreseen, cost: tuple[int, ...] | None) -> Case:
        bound, meta = pod["spec"].get("nodeName", ""), pod["metadata"]
        said = _condition(pod, "PodScheduled")
        if not bound:
            self.api.delete(_path(pod))
        name = f"{meta['namespace']}/{meta['name']}"
        message = "" if bound else str(said.get("message", ""))
        return Case(meta["labels"][MARK], name, foreseen, bound, message, str(said.get("reason", "")), cost)

    # -- the lab

    def _build(self) -> None:
        for one in CLASSES:
            self._create(LISTS["storage_classes"], one)
        for one in PRIORITIES:
            self._create(PRIORITY_CLASSES, one)
        self._create(RUNTIMES, RUNTIME)
        nodes = [node for made in self.clusters for node in made.nodes]
        list(self._each(lambda one: self._create(LISTS["namespaces"], one), self._of("namespaces")))
        list(self._each(lambda one: self._create(LISTS["nodes"], one), nodes))
        list(self._each(lambda one: self._create(CSI_NODES, one), self._of("csi_nodes")))
        list(self._each(lambda one: self._create(LISTS["volumes"], one), self._of("volumes")))
        list(self._each(lambda one: self._create(_path(one, "persistentvolumeclaims", ""), one), self._of("claims")))
        until(lambda: self._ready(nodes), PATIENCE, "the nodes are ready", every=0.5)
        list(self._each(self._create_pod, self._of("fills")))
        until(self._claimed, PATIENCE, "the claims with a volume are bound", every=0.5)
        list(self._each(lambda one: self._create(_path(one, "poddisruptionbudgets", ""), one), self._of("budgets")))
        list(self._each(self._create_pod, self._of("idle")))
        until(self._steady, PATIENCE, "the pods are ready", every=0.5)
        for made in self.clusters:
            for (space, name), (cpu, why) in made.resized.items():
                self._resize(f"{LISTS['namespaces']}/{space}/pods/{name}", cpu, why)

    def _of(self, kind: str) -> list[Json]:
        return [one for made in self.clusters for one in getattr(made, kind)]

    def _ready(self, nodes: Iterable[Json]) -> bool:
        """Ready, with the taint of the cordon where there is one, and no taint of the start."""
        closed = {node["metadata"]["name"]: node["spec"]["unschedulable"] for node in nodes}
        found = {node["metadata"]["name"]: node for node in self.api.items(LISTS["nodes"], labelSelector=MARK)}
        for name, is_closed in closed.items():
            keys = {taint["key"] for taint in found[name]["spec"].get("taints") or ()}
            if "node.kubernetes.io/not-ready" in keys or ("node.kubernetes.io/unschedulable" in keys) is not is_closed:
                return False
        return True

    def _steady(self) -> bool:
        """All bound pods are ready, and the budgets' numbers are of these pods."""
        pods = self.api.items(LISTS["pods"], labelSelector=MARK)
        ready = {pod["metadata"]["uid"] for pod in pods if _condition(pod, "Ready").get("status") == "True"}
        if any(pod["metadata"]["uid"] not in ready for pod in pods if pod["spec"].get("nodeName")):
            return False
        for budget in self._of("budgets"):
            meta, labels = budget["metadata"], budget["spec"]["selector"]["matchLabels"]
            status = self.api.get(_path(budget, "poddisruptionbudgets")).get("status") or {}
            here = (pod["metadata"] for pod in pods if pod["metadata"]["namespace"] == meta["namespace"])
            covered = [one["uid"] for one in here if one["labels"].get("app") == labels["app"]]
            seen = (status.get("expectedPods"), status.get("currentHealthy"))
            if seen != (len(covered), len(ready.intersection(covered))):
                return False
        return True

    def _resize(self, path: str, cpu: str, why: str) -> None:
        """As in the middle of a resize: the pod wants `cpu`, has what it had, and waits for `why` if anything."""
        pod = self.api.get(path)
        (container,), (told,) = pod["spec"]["containers"], pod["status"]["containerStatuses"]
        had = container["resources"]["requests"]
        status: Json = {"containerStatuses": [{**told, "resources": {"requests": had}, "allocatedResources": had}]}
        if why:
            pending = {"type": "PodResizePending", "status": "True", "reason": why}
            status["conditions"] = [*pod["status"]["conditions"], pending]
        # First the status, by which the API server knows that the node can resize.
        self.api.patch(f"{path}/status", {"status": status})
        wanted = {"name": container["name"], "resources": {"requests": {**had, "cpu": cpu}}}
        self.api.patch(f"{path}/resize", {"spec": {"containers": [wanted]}}, STRATEGIC_MERGE)

    def _claimed(self) -> bool:
        wanted = {one["metadata"]["name"] for one in self._of("claims") if one["spec"].get("volumeName")}
        done = {one["metadata"]["name"] for one in self.api.items(LISTS["claims"]) if one["status"]["phase"] == "Bound"}
        return wanted <= done

    def _snapshot(self) -> Snapshot:
        return Snapshot.of({kind: [PARSERS[kind](raw) for raw in self.api.items(path)] for kind, path in LISTS.items()})

    def _defaulted(self, probe: Json) -> Json:
        return self.api.request("POST", _path(probe, name=""), probe, query={"dryRun": "All"})

    def _create_pod(self, pod: Json) -> Json:
        def created() -> Json | None:
            try:
                return self.api.create(_path(pod, name=""), pod)
            except ApiError as error:
                # As long as the namespace has no service account.
                if error.status == 403:
                    return None
                raise

        made = until(created, PATIENCE, "the pod is created", every=0.2)
        assert made is not None
        return made

    def _create(self, path: str, obj: Json) -> None:
        try:
            self.api.create(path, obj)
        except ApiError as error:
            if error.status != 409:
                raise

    def _each(self, work: object, things: Iterable[Json]) -> Iterable[Json]:
        assert callable(work)
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(work, things))

    def clear(self) -> None:
        """Everything of these clusters is gone."""
        spaces = [one["metadata"]["name"] for one in self._of("namespaces")]
        for space in spaces:
            self.api.request(
                "DELETE",
                f"/api/v1/namespaces/{space}/pods",
                {"gracePeriodSeconds": 0, "propagationPolicy": "Background"},
            )
        list(
            self._each(lambda one: self._drop(f"/api/v1/namespaces/{one['metadata']['name']}"), self._of("namespaces"))
        )
        list(self._each(lambda one: self._drop(f"{LISTS['nodes']}/{one['metadata']['name']}"), self._of("nodes")))
        list(self._each(lambda one: self._drop(f"{CSI_NODES}/{one['metadata']['name']}"), self._of("csi_nodes")))
        list(self._each(lambda one: self._drop(f"{LISTS['volumes']}/{one['metadata']['name']}"), self._of("volumes")))
        list(self._each(lambda one: self._drop(f"{LISTS['storage_classes']}/{one['metadata']['name']}"), CLASSES))
        list(self._each(lambda one: self._drop(f"{PRIORITY_CLASSES}/{one['metadata']['name']}"), PRIORITIES))
        self._drop(f"{RUNTIMES}/{RUNTIME['metadata']['name']}")

    def _drop(self, path: str) -> None:
        self.api.delete(path)


def _path(raw: Json, plural: str = "pods", name: str | None = None) -> str:
    meta = raw["metadata"]
    group = "apis/policy/v1" if plural == "poddisruptionbudgets" else "api/v1"
    stem = f"/{group}/namespaces/{meta['namespace']}/{plural}"
    last = meta["name"] if name is None else name
    return f"{stem}/{last}" if last else stem


def _guest(raw: Json) -> world.PodInfo:
    return world.PodInfo.successor(Pod.of(raw), {})


def _foresee(snapshot: Snapshot, scheduler: filters.Filters, raw: Json) -> Foreseen:
    unknown = forecast.unforeseen(Pod.of(raw), raw["spec"], forecast.unserved(snapshot))
    if unknown is not None:
        return Foreseen((), unknown.text, waits=True)
    guest = _guest(raw)
    answer = scheduler.answer(guest)
    eviction = None if answer.nodes else forecast.preempted(scheduler, guest)
    return Foreseen(answer.nodes, answer.text, eviction.cost[1:4] if eviction else None)


def _cost(gone: Sequence[Json], node: str) -> tuple[int, ...] | None:
    """What the scheduler weighs of pods that it preempted on the node, as `forecast.Eviction.cost` has it."""
    values = [int(pod["spec"].get("priority") or 0) for pod in gone if pod["spec"].get("nodeName") == node]
    return (max(values), sum(one + forecast.EACH for one in values), len(values)) if values else None


def _condition(pod: Json, kind: str) -> Json:
    found = [one for one in pod["status"].get("conditions") or [] if one["type"] == kind]
    return found[0] if found else {}


def _all_fit(snapshot: Snapshot, probes: Iterable[Json]) -> bool:
    scheduler, idle = filters.Filters(world.World(snapshot)), forecast.unserved(snapshot)
    return all(
        forecast.unforeseen(Pod.of(probe), probe["spec"], idle) is None
        and forecast.place(scheduler, _guest(probe))[0] is not None
        for probe in probes
    )
