# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Operators of other projects, emulated: their real object shapes, and what they do when a node is cordoned.

Each is a thread that polls the lab's API server as the administrator, from the making of its objects to the end of
the test. Custom resources get a CRD with an open schema, so that ownerReferences are real and the garbage collector
leaves their owners' pods alone.
"""

from __future__ import annotations

import abc
import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from witness import objects as o
from witness.api import Api, ApiError
from witness.invariants import Violation
from witness.log import Json, Log, World

from support import shapes
from support.arena import Arena
from support.waiting import until

POLL = 0.2
"""Seconds between two looks at the cluster."""
PATIENCE = 60.0


class Kind(NamedTuple):
    """A custom resource as its CRD names it."""

    group: str
    version: str
    kind: str
    plural: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    def path(self, namespace: str, name: str = "") -> str:
        return f"/apis/{self.api_version}/namespaces/{namespace}/{self.plural}/{name}".rstrip("/")


class Denial(NamedTuple):
    """What an admission webhook answers to an eviction that it does not want."""

    code: int
    message: str


@dataclass
class Operator(abc.ABC):
    """One operator with one cluster of its own; start makes it, step is a pass of its controller.

    home is the node that is going to be emptied. least is how many ready endpoints service has to keep, other
    than in the operator's own switching (spans of monotonic seconds).
    """

    arena: Arena
    name: str
    home: str
    switching: list[tuple[float, float]] = field(default_factory=list)

    title: ClassVar[str]
    source: ClassVar[str]
    kinds: ClassVar[tuple[Kind, ...]]
    least: ClassVar[int] = 1

    @property
    def rewrites(self) -> tuple[str, ...]:
        """Names of its budgets, and of what they say how many pods to have of, that it changes itself meanwhile."""
        return ()

    @property
    def api(self) -> Api:
        return self.arena.api

    @property
    def service(self) -> str:
        """The Service that its users connect to."""
        return self.name

    @abc.abstractmethod
    def start(self) -> None:
        """Make the objects, pods included; the nodes that are to get no pod are cordoned meanwhile."""

    @abc.abstractmethod
    def step(self) -> None:
        """Bring the cluster one step nearer to what the operator wants."""

    def clear(self) -> None:
        """After the end: whatever the next cluster in the same namespace could not live beside."""
        return

    def deny(self, pod: Json, dry_run: bool) -> Denial | None:
        """The answer of its webhook to an eviction of a pod; None admits it."""
        return None

    # -- objects

    def install(self) -> None:
        """The CRDs, once per cluster."""
        for kind in self.kinds:
            define(self.api, kind)

    def resource(self, kind: Kind, name: str, spec: Json, owner: Json | None = None) -> Json:
        """Create a custom resource; returns the ownerReference that what it owns carries."""
        meta: Json = {"name": name, **({"ownerReferences": [owner]} if owner else {})}
        made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
        return reference(self.api.create(kind.path(self.arena.namespace), made))

    def budget(self, name: str, labels: Json, least: int, owner: Json | None) -> None:
        """A PodDisruptionBudget with minAvailable, all that a budget over pods of a custom resource can have."""
        meta: Json = {"name": name, "labels": labels, **({"ownerReferences": [owner]} if owner else {})}
        spec = {"minAvailable": least, "selector": {"matchLabels": labels}}
        made = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}
        self.api.create(self.arena.path("PodDisruptionBudget"), made)

    def serve(self, labels: Json) -> None:
        """The Service over the pods with these labels."""
        made = {"metadata": {"name": self.service}, "spec": {"selector": labels, "ports": [{"port": 80}]}}
        self.api.create(self.arena.path("Service"), made)

    def pod(self, name: str, labels: Json, owner: Json, spec: Json | None = None, notes: Json | None = None) -> None:
        """A pod of a custom resource, away from the others with its first label."""
        times = {shapes.START: "1s", shapes.STOP: "1s", **(notes or {})}
        meta = {"name": name, "labels": labels, "annotations": times, "ownerReferences": [owner]}
        self.api.create(
            self.arena.path("Pod"),
            {"metadata": meta, "spec": shapes.pod_spec(self.arena.name, {**apart(labels), **(spec or {})})},
        )

    def stateful(
        self, name: str, labels: Json, owner: Json | None, pod: Json | None = None, notes: Json | None = None
    ) -> None:
        """A StatefulSet of three, all its pods at once and apart; waits until they are ready."""
        times = {shapes.START: "1s", shapes.STOP: "1s", **(notes or {})}
        spec = shapes.pod_spec(self.arena.name, {**apart(labels), **(pod or {})})
        made: Json = {
            "metadata": {"name": name, "labels": labels, **({"ownerReferences": [owner]} if owner else {})},
            "spec": {
                "replicas": 3,
                "serviceName": name,
                "podManagementPolicy": "Parallel",
                "updateStrategy": {"type": "OnDelete"},
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels, "annotations": times}, "spec": spec},
            },
        }
        self.api.create(self.arena.path("StatefulSet"), made)
        self.settle(labels, 3)

    def pods(self, labels: Json) -> list[Json]:
        """The pods with these labels, those that end included."""
        chosen = ",".join(f"{key}={value}" for key, value in labels.items())
        return self.api.items(self.arena.path("Pod"), labelSelector=chosen)

    def label(self, pod: Json, **labels: str | None) -> None:
        self.arena.patch("Pod", o.name(pod), {"metadata": {"labels": labels}})

    def cordoned(self, node: str) -> bool:
        return self.arena.is_cordoned(node)

    def settle(self, labels: Json, count: int) -> list[Json]:
        """Wait for so many ready pods with these labels; returns them."""

        def ready() -> list[Json]:
            found = [pod for pod in self.pods(labels) if o.ready(pod)]
            return found if len(found) == count else []

        return until(ready, PATIENCE, f"{count} pods of {self.name} are ready")

    @contextlib.contextmanager
    def switch(self) -> Iterator[None]:
        """Notes the time of what the operator itself makes dark."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.switching.append((began, time.monotonic()))

    # -- judging

    def dark(self, log: Log) -> list[tuple[float, float]]:
        """Spans (seconds of the log) in which its Service had less than it has to keep."""
        spans: list[tuple[float, float]] = []
        since: float | None = None
        for moment in log.moments():
            short = self._short(moment.world)
            if short and since is None:
                since = moment.at
            elif not short and since is not None:
                spans.append((since, moment.at))
                since = None
        return [*spans, *([(since, log.ended - log.began)] if since is not None else [])]

    def _short(self, world: World) -> bool:
        service = world.get("Service", self.arena.namespace, self.service)
        return service is not None and o.ready_endpoints(service, world) < self.least

    def wrong(self, found: Sequence[Violation]) -> list[Violation]:
        """The violations that are not of its own making."""
        return [violation for violation in found if violation.name not in self.rewrites]

    def foreign_dark(self, log: Log, slack: float) -> list[tuple[float, float]]:
        """Those spans that are in none of its own hand-overs, give and take so many seconds."""
        own = [(start - log.began - slack, end - log.began + slack) for start, end in self.switching]
        return [span for span in self.dark(log) if not any(a <= span[0] and span[1] <= b for a, b in own)]


def apart(labels: Json) -> Json:
    """The anti-affinity of pods that keep away from others with the same first label."""
    key, value = next(iter(labels.items()))
    term = {"labelSelector": {"matchLabels": {key: value}}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def reference(obj: Json) -> Json:
    """The ownerReference of a controller."""
    meta = obj["metadata"]
    known = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {**known, "controller": True, "blockOwnerDeletion": True}


def define(api: Api, kind: Kind) -> None:
    """A CRD with an open schema, established; one that is there stays as it is."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    name = f"{kind.plural}.{kind.group}"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower(), "listKind": f"{kind.kind}List"}
    spec = {"group": kind.group, "names": names, "scope": "Namespaced", "versions": [version]}
    with contextlib.suppress(ApiError):
        api.create(path, {"metadata": {"name": name}, "spec": spec})

    def established() -> bool:
        conditions = (api.get(f"{path}/{name}").get("status") or {}).get("conditions") or []
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    until(established, PATIENCE, f"the CRD {name} is established")


@contextlib.contextmanager
def placed(arena: Arena, home: str, without: Sequence[str]) -> Iterator[None]:
    """What is made inside gets its pods on home and other nodes, but not on these."""
    shut = [node for node in without if node != home and not arena.is_cordoned(node)]
    for node in shut:
        arena.cordon(node)
    # The scheduler hears of the cordons a little later than the API server answers.
    time.sleep(0.1)
    try:
        yield
    finally:
        for node in shut:
            arena.cordon(node, False)


@contextlib.contextmanager
def controlling(operator: Operator) -> Iterator[None]:
    """Its controller runs until the block ends. Requests that meet a change are sent again in the next pass."""
    over = threading.Event()
    wrong: list[BaseException] = []

    def loop() -> None:
        while not over.wait(POLL):
            try:
                operator.step()
            except ApiError as error:
                if error.status not in (404, 409):
                    wrong.append(error)
            except BaseException as error:
                wrong.append(error)
                return

    thread = threading.Thread(target=loop, name=operator.name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE)
    if wrong:
        raise AssertionError(f"the emulated operator {operator.title} failed") from wrong[0]
