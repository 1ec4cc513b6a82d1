# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a behaviour is looked at: a namespace of its own in some cluster, the simulated or a real one.

A behaviour is a function of `Here` that gives what it saw, as JSON: the same from both. What cannot be the same
(UIDs, versions, generated names, the namespace) is made so by `plain`.
"""

from __future__ import annotations

import json
import re
import typing as t
from collections.abc import Callable
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.client import Cluster
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.errors import ClusterError, NotFound
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.kinds import Kind

Raw = dict[str, t.Any]

ARENA = "lab.kubeops.io/arena"
PATIENCE = 60.0
START, STOP, READY = "lab.kubeops.io/start", "lab.kubeops.io/stop", "lab.kubeops.io/ready"

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_POD = re.compile(r"-[a-z0-9]{6,10}-[a-z0-9]{5}\b")
_VERSION = re.compile(r"record \(\d+\)")


@dataclass
class Here:
    """`namespace` is there and empty; `nodes` makes nodes that only its pods may choose."""

    cluster: Cluster
    namespace: str
    nodes: Callable[[int], list[str]]

    # -- requests ------------------------------------------------------------------------------------------

    def send(self, request: verbs.Request) -> Raw:
        return self.cluster.send(request, patience=0.0)

    def told(self, request: verbs.Request) -> Raw:
        """How a request was answered: done, or how it was refused."""
        try:
            self.send(request)
        except ClusterError as error:
            causes = [[cause.reason, cause.message, cause.field] for cause in error.causes]
            said = {"status": error.status, "reason": error.reason, "message": error.message, "causes": causes}
            return {"class": type(error).__name__, **said, "retry_after": error.retry_after}
        return {"class": "done"}

    def make(self, kind: Kind, name: str, **parts: t.Any) -> Raw:
        """Creates an object of these parts; `meta` goes into its metadata."""
        return self.send(self.creation(kind, name, **parts))

    def creation(self, kind: Kind, name: str, *, meta: Raw | None = None, **parts: t.Any) -> verbs.Request:
        about: Raw = {"name": name, **(meta or {})}
        if kind.namespaced:
            about["namespace"] = self.namespace
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": about, **parts}
        return verbs.create(kind, body, namespace=self.namespace)

    def get(self, kind: Kind, name: str) -> Raw:
        return self.send(verbs.get(kind, name, self.namespace if kind.namespaced else ""))

    def find(self, kind: Kind, name: str) -> Raw | None:
        try:
            return self.get(kind, name)
        except NotFound:
            return None

    def patch(self, kind: Kind, name: str, body: Raw, subresource: str = "") -> Raw:
        return self.send(self.patching(kind, name, body, subresource))

    def patching(self, kind: Kind, name: str, body: Raw, subresource: str = "") -> verbs.Request:
        return verbs.merge_patch(kind, name, body, self.namespace if kind.namespaced else "", subresource)

    def deletion(self, kind: Kind, name: str, **options: t.Any) -> verbs.Request:
        return verbs.delete(kind, name, self.namespace if kind.namespaced else "", **options)

    def items(self, kind: Kind, labels: str = "", fields: str = "") -> list[Raw]:
        return self.cluster.items(kind, namespace=self.namespace, labels=labels, fields=fields).items

    # -- workloads -----------------------------------------------------------------------------------------

    def template(self, app: str, *, start: str = "0s", stop: str = "0s", **options: t.Any) -> Raw:
        notes = {START: start, STOP: stop, **options.pop("annotations", {})}
        container = {"name": "c", "image": "registry.invalid/c:1"}
        spec: Raw = {"containers": [container], "nodeSelector": {ARENA: self.namespace}}
        return {"metadata": {"labels": {"app": app}, "annotations": notes}, "spec": {**spec, **options}}

    def workload(self, kind: Kind, name: str, replicas: int | None = None, **options: t.Any) -> Raw:
        spec: Raw = {"selector": {"matchLabels": {"app": name}}, "template": self.template(name, **options)}
        spec |= {} if replicas is None else {"replicas": replicas}
        spec |= {"serviceName": name} if kind is kinds.STATEFUL_SETS else {}
        return self.make(kind, name, spec=spec)

    def running(self, kind: Kind, name: str, replicas: int, **options: t.Any) -> list[Raw]:
        """A workload all of whose pods are Ready."""
        self.workload(kind, name, replicas, **options)
        self.until(lambda: len(self.ready(name)) == replicas, f"{name} has {replicas} ready pods")
        return self.pods(name)

    def pod(self, name: str, *, meta: Raw | None = None, **options: t.Any) -> Raw:
        """A pod of nobody."""
        made = self.template(name, **options)
        return self.make(kinds.PODS, name, meta={**made["metadata"], **(meta or {})}, spec=made["spec"])

    def budget(self, name: str, app: str = "", **spec: t.Any) -> None:
        """A budget, once it is observed."""
        self.make(kinds.BUDGETS, name, spec={"selector": {"matchLabels": {"app": app or name}}, **spec})
        self.until(lambda: "observedGeneration" in (self.get(kinds.BUDGETS, name).get("status") or {}), "observed")

    def evict(self, pod: Raw, **options: t.Any) -> Raw:
        return self.told(verbs.evict(self.namespace, pod["metadata"]["name"], pod["metadata"]["uid"], **options))

    def pods(self, app: str = "") -> list[Raw]:
        return sorted(self.items(kinds.PODS, f"app={app}" if app else ""), key=lambda pod: str(pod["metadata"]["name"]))

    def ready(self, app: str) -> list[Raw]:
        return [pod for pod in self.pods(app) if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]

    # -- time ----------------------------------------------------------------------------------------------

    def until(self, check: Callable[[], t.Any], what: str, within: float = PATIENCE) -> t.Any:
        """The first true answer.

        Raises:
            AssertionError: there was none in time.
        """
        clock = self.cluster.clock
        deadline = clock.now() + within
        while not (answer := check()):
            assert clock.now() < deadline, f"not within {within:g} s: {what}"
            clock.sleep(0.1)
        return answer

    def sleep(self, seconds: float) -> None:
        self.cluster.clock.sleep(seconds)


def is_ready(pod: Raw) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def plain(seen: t.Any, here: Here) -> t.Any:
    """What was seen, without what differs between any two clusters."""
    text = json.dumps(seen, sort_keys=True).replace(here.namespace, "NAMESPACE")
    return json.loads(_POD.sub("-POD", _VERSION.sub("record (VERSION)", _UID.sub("UID", text))))


Behaviour = Callable[[Here], t.Any]
BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(function: Behaviour) -> Behaviour:
    """One of those that both clusters are asked for."""
    assert function.__name__ not in BEHAVIOURS
    BEHAVIOURS[function.__name__] = function
    return function
