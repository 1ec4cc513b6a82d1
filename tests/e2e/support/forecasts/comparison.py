# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Generated clusters in the lab: what the forecast says of each pod beside what the real scheduler does with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from witness.api import Api, ApiError
from witness.log import Json

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.parsers import PARSERS
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import filters, forecast, world
from support.forecasts.clusters import CLASSES, MARK, Cluster
from support.waiting import until

LISTS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
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
PATIENCE = 300.0


@dataclass(frozen=True)
class Case:
    """One pod: the nodes that the forecast leaves with its text, and what the scheduler did."""

    cluster: str
    pod: str
    nodes: tuple[str, ...]
    text: str
    bound: str
    message: str

    @property
    def agrees(self) -> bool:
        if self.bound:
            return self.bound in self.nodes
        # What preemption and the claims of devices add follows.
        return not self.nodes and f"{self.message} ".startswith(f"{self.text} ")

    @property
    def falsely_promised(self) -> bool:
        return bool(self.nodes) and not self.bound


@dataclass(frozen=True)
class Sequenced:
    """All pods of a cluster: whether the forecast, made at the start, places all, and whether all were bound."""

    cluster: str
    promised: bool
    kept: bool


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
        kept = {made.name: bound[made.name] == len(made.probes) for made in self.clusters}
        return self.cases, [Sequenced(name, promised[name], kept[name]) for name in kept]

    def _turn(self, probes: Sequence[Json]) -> list[Case]:
        """One more pod for each cluster, all at once: they do not know each other."""
        snapshot = self._snapshot()
        scheduler = filters.Filters(world.World(snapshot))
        made = list(self._each(self._create_pod, probes))
        answers = [scheduler.answer(_guest(raw)) for raw in made]
        return [self._case(raw, answer) for raw, answer in zip(made, answers, strict=True)]

    def _case(self, raw: Json, answer: filters.Answer) -> Case:
        path = _path(raw)

        def decided() -> Json | None:
            pod = self.api.get(path)
            conditions = pod["status"].get("conditions") or []
            return pod if any(one["type"] == "PodScheduled" for one in conditions) else None

        pod = until(decided, PATIENCE, f"the scheduler has decided on {path}", every=0.2)
        assert pod is not None
        (condition,) = [one for one in pod["status"]["conditions"] if one["type"] == "PodScheduled"]
        bound = pod["spec"].get("nodeName", "")
        message = "" if bound else str(condition.get("message", ""))
        if not bound:
            self.api.delete(path)
        meta = raw["metadata"]
        return Case(
            meta["labels"][MARK], f"{meta['namespace']}/{meta['name']}", answer.nodes, answer.text, bound, message
        )

    # -- the lab

    def _build(self) -> None:
        for one in CLASSES:
            self._create(LISTS["storage_classes"], one)
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
        self._drop(f"{RUNTIMES}/{RUNTIME['metadata']['name']}")

    def _drop(self, path: str) -> None:
        self.api.delete(path)


def _path(raw: Json, plural: str = "pods", name: str | None = None) -> str:
    meta = raw["metadata"]
    stem = f"/api/v1/namespaces/{meta['namespace']}/{plural}"
    last = meta["name"] if name is None else name
    return f"{stem}/{last}" if last else stem


def _guest(raw: Json) -> world.Guest:
    return world.Guest.successor(Pod.of(raw), {})


def _all_fit(snapshot: Snapshot, probes: Iterable[Json]) -> bool:
    scheduler = filters.Filters(world.World(snapshot))
    return all(forecast.place(scheduler, _guest(probe))[0] is not None for probe in probes)


def told(case: Case) -> str:
    """A disagreement, as the test prints it."""
    did = f"bound to {case.bound}" if case.bound else case.message
    return f"{case.cluster} {case.pod}\n  forecast: {list(case.nodes) or case.text}\n  scheduler: {did}"


def report(cases: Sequence[Case], sequences: Sequence[Sequenced]) -> str:
    """The numbers of a comparison."""
    wrong = [case for case in cases if not case.agrees]
    pending = sum(1 for case in cases if not case.bound)
    promised = [one for one in sequences if one.promised]
    broken = [one.cluster for one in promised if not one.kept]
    return (
        f"{len(sequences)} clusters, {len(cases)} pods: {len(cases) - len(wrong)} agree, {pending} fit nowhere; "
        f"{sum(case.falsely_promised for case in cases)} promised in vain; {len(promised)} clusters promised whole, "
        f"{len(broken)} of them not kept {broken}"
    )
