# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The pods of a copy and their controllers."""

from __future__ import annotations

import collections
import copy
import statistics
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import (
    notes,
    snapshot_files,
)

# How long the pods of a workload take to start and to stop on the copy,
# from what the real pods did.


STOP = "lab.kubeops.io/stop"
START = "lab.kubeops.io/start"
READY = "lab.kubeops.io/ready"
SHORTEST_SECONDS = 1.0
"""Seconds a copy takes to stop at least. A pod of a StatefulSet that ends at once counts as
disrupted for two minutes: its successor has its name, and the controller of budgets knows evicted
pods by their names.
"""

Key = tuple[str, str, str]
"""Namespace, kind and name of a workload."""


def text(seconds: float) -> str:
    """As the lab's annotations have it."""
    return f"{round(seconds * 1000)}ms"


def starts(
    pods: t.Iterable[objects.Raw], key_of: t.Callable[[objects.Raw], Key | None]
) -> dict[Key, float]:
    """Seconds from bound to ready by workload: the median of its pods."""
    known = collections.defaultdict[Key, list[float]](list)
    for pod in pods:
        key = key_of(pod)
        seconds = pod["status"].get("start")
        if key and seconds is not None:
            known[key].append(seconds)
    return {key: statistics.median(found) for key, found in known.items()}


def never_ready(
    pods: t.Iterable[objects.Raw], key_of: t.Callable[[objects.Raw], Key | None]
) -> set[Key]:
    """Workloads whose pods run, and none of which is ready: nor will their successors be."""
    known = collections.defaultdict[Key, list[bool]](list)
    for pod in pods:
        if (key := key_of(pod)) and pod["status"].get("phase") == "Running":
            known[key].append(bool(pod["status"].get("ready")))
    return {key for key, found in known.items() if not any(found)}


def stop_delay(meta: objects.Raw, spec: objects.Raw, usual: float) -> str:
    """As a lab says, else what it sleeps before and the usual time."""
    if given := (meta.get("annotations") or {}).get(STOP):
        short = given in ("0s", "0ms", "0m")
        return text(SHORTEST_SECONDS) if short else str(given)
    return text(max(usual, SHORTEST_SECONDS) + float(spec.get("preStopSeconds") or 0))


Json = dict[str, t.Any]
Raw = objects.Raw

IMAGE = "registry.invalid/copy"
SERVED = frozenset({"", "default-scheduler"})
"""Schedulers that the copy has."""
STAND_IN = "lab.kubeops.io/stands-for"
"""Label of pods whose controller the copy lacks: its UID, by which a ReplicaSet selects."""
JOB_FINALIZER = "batch.kubernetes.io/job-tracking"
COMPLETE = "lab.kubeops.io/complete"
_API = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
}
_LISTS = {
    "ReplicaSet": "replica_sets",
    "StatefulSet": "stateful_sets",
    "DaemonSet": "daemon_sets",
    "Job": "jobs",
}
"""Controllers of pods that the copy has, too, and the lists they are in."""


def meta(raw: Raw) -> Json:
    """The metadata of a copy: no UIDs and no owners."""
    kept = ("namespace", "name", "labels", "annotations")
    found = {key: raw["metadata"].get(key) for key in kept}
    return copy.deepcopy({key: value for key, value in found.items() if value})


def about(kind: str, raw: Raw) -> str:
    """An object in words."""
    return str(objects.Ref(kind, raw["metadata"]["name"], raw["metadata"].get("namespace", "")))


class Workloads:
    """The pods of a snapshot and what controls them; ``gaps`` gets what the copy lacks."""

    def __init__(
        self, found: t.Mapping[str, list[Json]], stop: float, gaps: list[snapshot_files.Note]
    ) -> None:
        self._found = found
        self._stop = stop
        self._gaps = gaps
        self._by_uid: dict[str, Json] = {}
        for kind in (*_LISTS.values(), "deployments"):
            self._by_uid |= {raw["metadata"].get("uid"): raw for raw in found[kind]}
        bound = [raw for raw in found["pods"] if raw["spec"].get("nodeName")]
        self._copied = [raw for raw in bound if self._kind(raw) != "DaemonSet"]
        self._starts = starts(found["pods"], self._key)
        self._never = never_ready(found["pods"], self._key)
        self._nodes = {raw["metadata"]["name"] for raw in found["nodes"]}
        classes = (*found["priority_classes"], *found["runtime_classes"])
        self._classes = {raw["metadata"]["name"] for raw in classes}

    def pods(self) -> list[Json]:
        """All bound pods but those of DaemonSets, without owners; a mirror pod has its node."""
        return [self._pod(raw) for raw in self._copied if raw["spec"]["nodeName"] in self._nodes]

    def ready(self) -> frozenset[tuple[str, str]]:
        """The pods that are ready in the cluster, and so in the copy."""
        here = [raw for raw in self._copied if raw["spec"]["nodeName"] in self._nodes]
        ready = [raw["metadata"] for raw in here if raw["status"].get("ready")]
        return frozenset((place["namespace"], place["name"]) for place in ready)

    def members(self) -> dict[tuple[str, str], frozenset[str]]:
        """Names of the pods of each StatefulSet, by its namespace and name."""
        found = collections.defaultdict[tuple[str, str], set[str]](set)
        for raw in self._copied:
            if self._kind(raw) == "StatefulSet" and not self._foreign(raw):
                place = raw["metadata"]
                found[place["namespace"], place["owner"]["name"]].add(place["name"])
        return {place: frozenset(names_) for place, names_ in found.items()}

    def daemons(self) -> list[Json]:
        return [self._controller("DaemonSet", raw) for raw in self._found["daemon_sets"]]

    def owners(self) -> list[Json]:
        """ReplicaSets before their Deployments, which adopt them; then the others."""
        made = [self._controller("ReplicaSet", raw) for raw in self._found["replica_sets"]]
        made += self._stand_ins()
        made += [self._controller("Deployment", raw) for raw in self._found["deployments"]]
        made += [self._controller("StatefulSet", raw) for raw in self._found["stateful_sets"]]
        for raw in self._found["jobs"]:
            job = self._controller("Job", raw)
            job["spec"]["manualSelector"] = True
            self._gaps.append(notes.note("job", about("Job", raw)))
            made.append(job)
        for raw in self._found["replica_sets"]:
            owner = raw["metadata"].get("owner")
            if owner and owner["uid"] not in self._by_uid:
                self._gaps.append(notes.note("owner", about("ReplicaSet", raw), owner["kind"]))
        return made

    # -- who controls whom

    def _kind(self, pod: Raw) -> str:
        owner = pod["metadata"].get("owner") or {}
        return str(owner.get("kind", ""))

    def _foreign(self, pod: Raw) -> bool:
        owner = pod["metadata"].get("owner")
        return bool(owner) and owner["kind"] != "Node" and owner["uid"] not in self._by_uid

    def _key(self, raw: Raw) -> Key | None:
        """The topmost workload of a pod or of a controller."""
        owner = raw["metadata"].get("owner")
        if owner is None or owner.get("kind") == "Node":
            return None
        above = (self._by_uid.get(owner["uid"]) or {"metadata": {}})["metadata"].get("owner")
        top = above if above and above["uid"] in self._by_uid else owner
        return raw["metadata"].get("namespace", ""), top["kind"], top["name"]

    # -- copies

    def _pod(self, raw: Raw) -> Json:
        spec = self._spec(raw["spec"], about("Pod", raw))
        spec.pop("schedulingGates", None)
        place = meta(raw)
        annotations = self._notes(raw["metadata"], raw["spec"], None)
        place["annotations"] = annotations
        if not raw["status"].get("ready"):
            annotations[READY] = "never"
        owner = raw["metadata"].get("owner") or {}
        if owner.get("kind") == "Node":
            node = {"apiVersion": "v1", "kind": "Node", "name": owner["name"]}
            place["ownerReferences"] = [{**node, "controller": True}]
        elif owner.get("kind") == "Job" and not self._foreign(raw):
            place["finalizers"] = [JOB_FINALIZER]
            annotations.setdefault(COMPLETE, "never")
        elif self._foreign(raw):
            place.setdefault("labels", {})[STAND_IN] = owner["uid"]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": place, "spec": spec}

    def _controller(self, kind: str, raw: Raw) -> Json:
        owner = raw["metadata"].get("owner")
        key = (raw["metadata"]["namespace"], kind, raw["metadata"]["name"])
        if kind == "ReplicaSet" and owner and owner["uid"] in self._by_uid:
            key = (key[0], owner["kind"], owner["name"])
        spec = {name: value for name, value in raw["spec"].items() if name != "template"}
        template, of_job = raw["spec"]["template"], kind == "Job"
        spec["template"] = self._template(template, key, about(kind, raw), of_job)
        return {"apiVersion": _API[kind], "kind": kind, "metadata": meta(raw), "spec": spec}

    def _template(self, raw: Raw, key: Key, where: str, of_job: bool = False) -> Json:
        made = {
            "labels": dict(raw["metadata"].get("labels") or {}),
            "annotations": self._notes(raw["metadata"], raw["spec"], key),
        }
        if of_job:
            made["annotations"].setdefault(COMPLETE, "never")
        return {"metadata": made, "spec": self._spec(raw["spec"], where)}

    def _notes(self, raw: Raw, spec: Raw, key: Key | None) -> dict[str, str]:
        """With the time to stop and, of successors (``key``), to start; copies begin running."""
        found = {**(raw.get("annotations") or {}), STOP: stop_delay(raw, spec, self._stop)}
        if key in self._starts:
            found[START] = text(self._starts[key])
        if key in self._never:
            found[READY] = "never"
        return found

    def _spec(self, raw: Raw, where: str) -> Json:
        made = {name: value for name, value in raw.items() if name != "preStopSeconds"}
        for kind in ("containers", "initContainers"):
            if kind in made:
                made[kind] = [{**one, "image": IMAGE} for one in made[kind]]
        made["automountServiceAccountToken"] = False
        if made.get("schedulerName", "") not in SERVED:
            self._gaps.append(notes.note("scheduler", where, made.pop("schedulerName")))
        for field in ("priorityClassName", "runtimeClassName"):
            name = made.get(field)
            if name and name not in self._classes and not str(name).startswith("system-"):
                del made[field]
        return made

    def _stand_ins(self) -> t.Iterator[Json]:
        """A ReplicaSet for each controller of pods that the copy lacks."""
        groups = collections.defaultdict[str, list[Raw]](list)
        for raw in self._copied:
            if self._foreign(raw) and raw["spec"]["nodeName"] in self._nodes:
                groups[raw["metadata"]["owner"]["uid"]].append(raw)
        for uid, pods in groups.items():
            first, owner = pods[0], pods[0]["metadata"]["owner"]
            place = f"{first['metadata']['namespace']}/{owner['name']}"
            self._gaps.append(notes.note("owner", f"{owner['kind']} {place}"))
            labels = {**(first["metadata"].get("labels") or {}), STAND_IN: uid}
            annotations = first["metadata"].get("annotations") or {}
            template = {"metadata": {"labels": labels, "annotations": annotations}}
            template["spec"] = {k: v for k, v in first["spec"].items() if k != "nodeName"}
            key = (first["metadata"]["namespace"], owner["kind"], owner["name"])
            spec = {
                "replicas": len(pods),
                "selector": {"matchLabels": {STAND_IN: uid}},
                "template": self._template(template, key, f"{owner['kind']} {owner['name']}"),
            }
            meta_ = {"namespace": key[0], "name": owner["name"]}
            meta_ = {**meta_, "labels": {names.MANAGED_BY_LABEL: "rehearsal"}}
            yield {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta_, "spec": spec}
