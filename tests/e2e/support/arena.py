# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A corner of the lab for one test: its own nodes and namespaces, made and cleared in seconds.

Everything in an arena is kept to the arena's nodes by a label and free to move among them, so a
test neither sees nor disturbs another one. Workloads start where `on` says, by cordoning the
arena's other nodes while their pods are placed: nothing in their spec ties them to it.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from witness import objects as o
from witness.api import MERGE_PATCH, Api, ApiError
from witness.kinds import OWN_NAMESPACE
from witness.log import Json

from support import nodes as fake
from support import shapes
from support.waiting import until

PLURALS: Mapping[str, str] = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
}
PATIENCE = 60.0
OF_RUNS = ("node-", "heartbeat-", "surge-", "run-")
"""How the names begin of what runs keep in our namespace."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A handle on something that a test made; `ref` is its kind, namespace and name."""

    arena: Arena
    kind: str
    name: str

    @property
    def ref(self) -> tuple[str, str, str]:
        return self.kind, self.arena.namespace, self.name

    def read(self) -> Json:
        return self.arena.api.get(self.arena.path(self.kind, self.name))

    def pods(self) -> list[Json]:
        """Its living pods, by their `app` label."""
        return self.arena.pods(self.name)

    def nodes(self) -> list[str]:
        return sorted(pod["spec"].get("nodeName", "") for pod in self.pods())

    def scale(self, replicas: int) -> None:
        self.patch({"spec": {"replicas": replicas}})

    def patch(self, body: Any) -> None:
        self.arena.patch(self.kind, self.name, body)


class Arena:
    """Makes nodes and workloads, disturbs them, waits for them, clears them away."""

    def __init__(self, api: Api, name: str) -> None:
        self.api = api
        self.name = self.namespace = name
        self._nodes: list[str] = []
        self._made: list[Workload] = []
        self.namespaces: list[str] = []
        self._placing = False
        self.add_namespace(name)

    # -- the ground

    def add_namespace(self, name: str, labels: Json | None = None) -> str:
        made = {"metadata": {"name": name, "labels": {shapes.ARENA: self.name, **(labels or {})}}}
        self.api.create("/api/v1/namespaces", made)
        self.namespaces.append(name)
        # A bare pod is refused as long as its namespace has no service account.
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        until(lambda: self.api.find(account), PATIENCE, f"namespace {name} has its account")
        return name

    def nodes(self, count: int, labels: Json | None = None) -> list[str]:
        """`count` more nodes, Ready."""
        new = [f"{self.name}-n{len(self._nodes) + i + 1}" for i in range(count)]
        for name in new:
            self.api.create("/api/v1/nodes", shapes.node(name, self.name, labels))
        self._nodes += new
        for name in new:
            until(lambda name=name: self._fresh(name), PATIENCE, f"node {name} is ready")  # type: ignore[misc]
        return new

    def _fresh(self, name: str) -> bool:
        node = self.node(name)
        return fake.ready_condition(node) == "True" and not node["spec"].get("taints")

    def node(self, name: str) -> Json:
        return self.api.get(fake.path(name))

    def record(self, name: str) -> Json | None:
        """The maintenance record on a node."""
        return o.record(self.node(name))

    def step(self, name: str) -> str:
        return str((self.record(name) or {}).get("step", ""))

    def is_cordoned(self, name: str) -> bool:
        return bool(self.node(name)["spec"].get("unschedulable"))

    def cordon(self, name: str, on: bool = True) -> None:
        """As another admin would; waits for the taint that the node controller adds or removes."""
        self.api.patch(fake.path(name), {"spec": {"unschedulable": on or None}})

        def settled() -> bool:
            taints = self.node(name)["spec"].get("taints") or []
            return any(taint["key"] == o.UNSCHEDULABLE for taint in taints) is on

        until(settled, PATIENCE, f"the cordon of {name} shows in its taints")

    def taint(self, name: str, *taints: Json) -> None:
        """Put these in front of the node's taints."""
        spec = self.node(name)["spec"]
        self.api.patch(fake.path(name), {"spec": {"taints": [*taints, *(spec.get("taints") or [])]}})

    def annotate(self, name: str, notes: Json) -> None:
        self.api.patch(fake.path(name), {"metadata": {"annotations": notes}})

    # -- objects

    def path(self, kind: str, name: str = "", namespace: str = "") -> str:
        if kind == "Node":
            return fake.path(name)
        base = PLURALS[kind].format(namespace or self.namespace)
        return f"{base}/{name}" if name else base

    def create(self, kind: str, obj: Json) -> Workload:
        made = {**obj, "kind": kind}
        self.api.create(self.path(kind), made)
        handle = Workload(self, kind, obj["metadata"]["name"])
        self._made.append(handle)
        return handle

    def patch(self, kind: str, name: str, body: Any, content_type: str = MERGE_PATCH) -> None:
        self.api.patch(self.path(kind, name), body, content_type)

    def delete(self, kind: str, name: str, **options: Any) -> None:
        self.api.delete(self.path(kind, name), **options)

    def find(self, kind: str, name: str, namespace: str = "") -> Json | None:
        return self.api.find(self.path(kind, name, namespace))

    def all(self, kind: str, namespace: str = "") -> list[Json]:
        return self.api.items(self.path(kind, namespace=namespace))

    def pods(self, app: str = "", on: str = "") -> list[Json]:
        """Living pods of a workload, or on a node, or all."""
        query = {"labelSelector": f"app={app}"} if app else {}
        found = self.api.items(self.path("Pod"), **query)
        return [
            pod
            for pod in found
            if on in ("", pod["spec"].get("nodeName")) and not pod["metadata"].get("deletionTimestamp")
        ]

    # -- workloads

    @contextlib.contextmanager
    def placing(self, on: str) -> Iterator[None]:
        """What is made inside starts on this node; done when all its pods are placed."""
        shut = [name for name in self._nodes if name != on and not self.is_cordoned(name)]
        for name in shut:
            self.cordon(name)
        # The scheduler hears of the cordons a little later than the API server answers.
        time.sleep(0.1)
        first = len(self._made)
        self._placing = True
        try:
            yield
            for handle in self._made[first:]:
                if handle.kind in ("Deployment", "StatefulSet", "ReplicaSet", "Job"):
                    spec = handle.read()["spec"]
                    count = spec.get("parallelism") or spec.get("replicas") or 0
                    self._placed(handle, [on] * count)
        finally:
            self._placing = False
            for name in shut:
                self.cordon(name, False)

    def _placed(self, handle: Workload, on: Sequence[str]) -> None:
        def done() -> bool:
            pods = handle.pods()
            for pod in pods:
                if pod["spec"].get("nodeName", on[0]) not in on and handle.kind != "Job":
                    self.delete("Pod", o.name(pod), gracePeriodSeconds=0)
            return len([pod for pod in pods if pod["spec"].get("nodeName") in on]) >= len(on)

        until(done, PATIENCE, f"all pods of {handle.name} are placed")
        assert handle.nodes() == sorted(on), f"{handle.name} is on {handle.nodes()}, not {on}"

    def _make(self, kind: str, on: str | Sequence[str], build: Json) -> Workload:
        """Make a workload whose pods start on `on`: one node for all, or a node for each."""
        if kind == "DaemonSet" or self._placing or not on:
            return self.create(kind, build)
        spread = [on] * build["spec"]["replicas"] if isinstance(on, str) else list(on)
        first, *others = dict.fromkeys(spread)
        placed = [node for node in spread if node == first]
        with self.placing(first):
            made = self.create(kind, shapes.merged(build, {"spec": {"replicas": len(placed)}}))
        for node in others:
            placed += [each for each in spread if each == node]
            with self.placing(node):
                made.scale(len(placed))
                self._placed(made, placed)
        return made

    def workload(
        self,
        kind: str,
        name: str,
        replicas: int | None = 1,
        *,
        on: str | Sequence[str] = "",
        start: str = "0s",
        stop: str = "0s",
        budget: Json | None = None,
        service: bool = True,
        pod: Json | None = None,
        spec: Json | None = None,
        notes: Json | None = None,
        pod_notes: Json | None = None,
    ) -> Workload:
        """`start` and `stop` are how long its pods take to be ready and to be gone."""
        made = shapes.template(self.name, name, start, stop, pod, pod_notes)
        obj = shapes.workload(kind, name, made, replicas, spec)
        obj["metadata"]["annotations"] = notes or {}
        if budget is not None:
            self.create("PodDisruptionBudget", shapes.budget(name, name, **budget))
        handle = self._make(kind, on, obj)
        if service:
            self.create("Service", shapes.service(name, name))
        return handle

    def deployment(self, name: str, replicas: int = 1, **more: Any) -> Workload:
        return self.workload("Deployment", name, replicas, **more)

    def statefulset(self, name: str, replicas: int = 1, **more: Any) -> Workload:
        return self.workload("StatefulSet", name, replicas, **more)

    def daemonset(self, name: str, **more: Any) -> Workload:
        return self.workload("DaemonSet", name, None, service=False, **more)

    def job(self, name: str, on: str, lasting: str = "never") -> Workload:
        notes = {"lab.kubeops.io/complete": lasting}
        made = shapes.template(self.name, name, "0s", "0s", {"restartPolicy": "Never"}, notes)
        job = {
            "apiVersion": "batch/v1",
            "metadata": {"name": name},
            "spec": {"template": made, "backoffLimit": 0},
        }
        with self.placing(on):
            return self.create("Job", job)

    def pod(self, name: str, on: str, pod: Json | None = None, meta: Json | None = None, stop: str = "0s") -> Workload:
        """A bare pod, bound to its node at once."""
        notes = {shapes.START: "0s", shapes.STOP: stop}
        known = {"name": name, "labels": {"app": name}, "annotations": notes}
        spec = shapes.merged(shapes.pod_spec(self.name, pod), {"nodeName": on})
        made = {"apiVersion": "v1", "metadata": shapes.merged(known, meta), "spec": spec}
        return self.create("Pod", made)

    def mirror_pod(self, name: str, on: str) -> Workload:
        owner = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": on,
            "uid": self.node(on)["metadata"]["uid"],
            "controller": True,
        }
        notes = {o.MIRROR: "0123", "kubernetes.io/config.source": "file"}
        return self.pod(name, on, meta={"annotations": notes, "ownerReferences": [owner]})

    def budget(self, name: str, app: str, **rule: Any) -> Workload:
        return self.create("PodDisruptionBudget", shapes.budget(name, app, **rule))

    def hpa(self, name: str, lowest: int, highest: int, usage: int = 50) -> Workload:
        made = shapes.hpa(name, lowest, highest, usage)
        return self.create("HorizontalPodAutoscaler", made)

    def claim(self, mode: str) -> Json:
        """A volume of this access mode with its claim; returns what mounts it in a pod's spec."""
        spec = {"accessModes": [mode], "storageClassName": "none"}
        volume = {
            "metadata": {"name": f"pv-{self.name}", "labels": {shapes.ARENA: self.name}},
            "spec": {
                **spec,
                "capacity": {"storage": "1Gi"},
                "csi": {"driver": "lab.kubeops.io", "volumeHandle": self.name},
                "claimRef": {"namespace": self.namespace, "name": "data"},
            },
        }
        self.api.create("/api/v1/persistentvolumes", volume)
        wanted = {**spec, "volumeName": f"pv-{self.name}", "resources": {"requests": {"storage": "1Gi"}}}
        made = {"apiVersion": "v1", "metadata": {"name": "data"}, "spec": wanted}
        self.create("PersistentVolumeClaim", made)
        return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}

    def quota(self, **hard: str) -> Workload:
        made = {"apiVersion": "v1", "metadata": {"name": "quota"}, "spec": {"hard": hard}}
        return self.create("ResourceQuota", made)

    # -- waiting

    def settle(self, within: float = 60.0) -> None:
        """Until nothing moves: pods ready, endpoints with them, budgets counted, nodes open."""
        until(lambda: not self._unsettled(), within, f"{self._unsettled()} settled")

    def _unsettled(self) -> list[str]:
        open_ends: list[str] = []
        pods = self.pods()
        for handle in self._made:
            obj = self.find(handle.kind, handle.name)
            if obj is None or obj["metadata"].get("deletionTimestamp"):
                continue
            if not self._is_settled(handle.kind, obj, pods):
                open_ends.append(f"{handle.kind} {handle.name}")
        return open_ends

    def _is_settled(self, kind: str, obj: Json, pods: list[Json]) -> bool:
        spec, status = obj.get("spec", {}), obj.get("status", {})
        fresh: bool = status.get("observedGeneration") == obj["metadata"].get("generation")
        never = "lab.kubeops.io/ready" in o.notes(spec.get("template", obj))
        if kind in ("Deployment", "StatefulSet", "ReplicaSet"):
            wanted = spec["replicas"]
            if any(
                "lab.kubeops.io/ready" in o.notes(pod) for pod in pods if o.matches(spec["selector"], o.labels(pod))
            ):
                # Told to be not ready: its workload never comes to rest.
                return fresh
            counted: bool = status.get("replicas", 0) == wanted
            return fresh and counted and (never or bool(status.get("availableReplicas", 0) == wanted))
        if kind == "DaemonSet":
            wanted = status.get("desiredNumberScheduled", 0)
            return fresh and 0 < wanted == int(status.get("numberReady", 0))
        if kind == "PodDisruptionBudget":
            matched = [pod for pod in pods if o.matches(spec["selector"], o.labels(pod))]
            return fresh and status.get("currentHealthy", 0) == sum(o.ready(pod) for pod in matched)
        if kind == "Service":
            selector = spec.get("selector") or {}
            alive = [pod for pod in pods if o.serves(obj, o.labels(pod)) and o.ready(pod)]
            slices = self.api.items(
                self.path("EndpointSlice"), labelSelector=f"kubernetes.io/service-name={o.name(obj)}"
            )
            ready = [e for s in slices for e in s.get("endpoints") or [] if e["conditions"].get("ready")]
            return not selector or len(ready) == len(alive)
        if kind == "Pod":
            return never or o.ready(obj) or o.finished(obj)
        return True

    def wait_for_autoscaler(self, name: str) -> None:
        """Until an autoscaler has seen metrics and acts on them."""
        said: list[str] = []

        def acting() -> bool:
            found = self.find("HorizontalPodAutoscaler", name) or {}
            conditions = (found.get("status") or {}).get("conditions") or []
            said[:] = [f"{c['type']}={c['status']} ({c['reason']}: {c.get('message', '')})" for c in conditions]
            return any(c["type"] == "ScalingActive" and c["status"] == "True" for c in conditions)

        try:
            until(acting, 90, f"autoscaler {name} has metrics", every=0.5)
        except AssertionError as late:
            raise AssertionError(f"{late}; it says {said or 'nothing, so nobody looks at it'}") from late

    # -- the end

    def clear(self, alone: bool = True) -> None:
        """Take everything away, held by a finalizer or not, and what runs left of it.

        Without `alone` other arenas of this lab are in use: what runs left of those stays.
        """
        for name in self.namespaces:
            self.api.delete(f"/api/v1/namespaces/{name}")
            pods = f"/api/v1/namespaces/{name}/pods"
            for pod in self.api.items(pods):
                if pod["metadata"].get("finalizers"):
                    self.api.patch(f"{pods}/{o.name(pod)}", {"metadata": {"finalizers": None}})
            # Of thousands of pods this may take longer than a request may; the namespace takes them along anyway.
            with contextlib.suppress(ApiError, TimeoutError):
                self.api.request("DELETE", pods, {"gracePeriodSeconds": 0})
        for name in self._nodes:
            self.api.delete(fake.path(name))
        self.api.delete(f"/api/v1/persistentvolumes/pv-{self.name}")
        for kind in ("Lease", "ConfigMap"):
            for obj in self.all(kind, OWN_NAMESPACE):
                if o.name(obj).startswith(OF_RUNS) and (alone or self.name in str(obj)):
                    self.api.delete(self.path(kind, o.name(obj), OWN_NAMESPACE))


def arena_name(test: str) -> str:
    """A short name that no other arena of this lab has."""
    words = "".join(c if c.isalnum() else "-" for c in test.lower()).split("-")
    kept = "-".join(word for word in words if word not in ("test", "", "the", "a", "is", "of"))
    return f"{kept[:24].strip('-')}-{secrets.token_hex(3)}"
