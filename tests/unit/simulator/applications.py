# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Those who take part in a maintenance: applications, operators, owners of startup taints, and HTTP hooks."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks.run_hook_calls import NoAnswerError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.controllers import (
    PODS,
    Controller,
    is_active,
    key_of,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.evictions import is_ready
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Key, Raw

if t.TYPE_CHECKING:
    from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor

NODES = kinds.NODES.resource
AGREES = "lab.kubeops.io/agrees"
"""Annotation of pods: so many seconds after a maintenance is announced, their application agrees to it (`3s`)."""
STARTUP = "lab.kubeops.io/startup-taint"
"""Annotation of nodes: for so many seconds after each boot a controller keeps pods away."""
STARTUP_TAINT: Raw = {"key": "readiness.k8s.io/NetworkReady", "value": "pending", "effect": "NoSchedule"}
"""As the node-readiness-controller sets it."""
SWITCHES = "lab.kubeops.io/switches-over"
"""Annotation of pods: so many seconds after the node of the master is cordoned, its operator moves that role."""
CLUSTER, ROLE, MASTER, REPLICA = "cluster-name", "spilo-role", "master", "replica"
"""Labels as Zalando's postgres-operator sets them."""
LEADS = "lab.kubeops.io/leads"
"""Annotation of pods: one of their app that is Ready is its leader, and says so by a label that its template lacks."""
LEADER = {"role": "leader"}


def _seconds(raw: Raw, annotation: str) -> float | None:
    text = (raw["metadata"].get("annotations") or {}).get(annotation)
    return None if text is None or text == "never" else float(text.removesuffix("s"))


class Applications(Controller):
    """They answer the announcement of a maintenance on their pods."""

    name = "applications"
    watches = (PODS,)

    def __init__(self, *args: t.Any) -> None:
        super().__init__(*args)
        self._asked: dict[tuple[str, str], float] = {}

    def keys(self, event: Event) -> t.Iterable[Key]:
        notes = event.raw["metadata"].get("annotations") or {}
        asked = AGREES in notes and names.PLANNED in notes and notes[names.PLANNED] != notes.get(names.READY_TO_MOVE)
        return (key_of(event.raw),) if asked and event.what != "DELETED" else ()

    def sync(self, key: Key) -> None:
        pod = self.store.get(PODS, *key)
        notes = (pod["metadata"].get("annotations") or {}) if pod else {}
        planned, after = notes.get(names.PLANNED), _seconds(pod, AGREES) if pod else None
        if pod is None or after is None or planned is None or notes.get(names.READY_TO_MOVE) == planned:
            return
        since = self._asked.setdefault((pod["metadata"]["uid"], planned), self.machine.now)
        if (left := since + after - self.machine.now) > 0:
            self.later(key, left)
        else:
            body = {"metadata": {"annotations": {names.READY_TO_MOVE: planned}}}
            self.objects.patch(kinds.PODS, key[1], body, key[0])


class StartupTaints(Controller):
    """The owner of a taint that keeps pods off a node for a while after it has booted."""

    name = "startup taints"
    watches = (NODES,)

    def __init__(self, *args: t.Any) -> None:
        super().__init__(*args)
        self._boots: dict[str, str] = {}
        self._until: dict[str, float] = {}

    def keys(self, event: Event) -> t.Iterable[Key]:
        noted = STARTUP in (event.raw["metadata"].get("annotations") or {})
        return (key_of(event.raw),) if noted and event.what != "DELETED" else ()

    def sync(self, key: Key) -> None:
        node, name, now = self.store.get(NODES, *key), key[1], self.machine.now
        after = _seconds(node, STARTUP) if node else None
        if node is None or after is None:
            return
        boot, taints = node["status"]["nodeInfo"]["bootID"], node["spec"].get("taints") or []
        others = [taint for taint in taints if taint["key"] != STARTUP_TAINT["key"]]
        if boot != self._boots.setdefault(name, boot):
            self._boots[name] = boot
            self._until[name] = now + after
            self._set(name, [*others, dict(STARTUP_TAINT)])
        elif len(others) < len(taints):
            left = self._until.setdefault(name, now + after) - now
            if left <= 0:
                del self._until[name]
                self._set(name, others)
            else:
                self.later(key, left)

    def _set(self, name: str, taints: list[Raw]) -> None:
        self.objects.patch(kinds.NODES, name, {"spec": {"taints": taints or None}})


class Operators(Controller):
    """An operator of databases: one pod of each cluster is its master, and leaves a node that is cordoned in time."""

    name = "operators"
    watches = (PODS, NODES)

    def __init__(self, *args: t.Any) -> None:
        super().__init__(*args)
        self._since: dict[Key, float] = {}

    def keys(self, event: Event) -> t.Iterable[Key]:
        if event.resource == NODES:
            return list(self._since) if self._since else [_cluster(pod) for pod in self._all() if _cluster(pod)[1]]
        return (_cluster(event.raw),) if _cluster(event.raw)[1] else ()

    def sync(self, key: Key) -> None:
        pods = [pod for pod in self.pods_in(key[0]) if _cluster(pod) == key and is_active(pod)]
        serving = sorted((pod for pod in pods if is_ready(pod)), key=key_of)
        masters = [pod for pod in pods if pod["metadata"]["labels"].get(ROLE) == MASTER]
        if not masters:
            if serving:
                self._role(serving[0], MASTER)
            return
        leaves = self._cordoned(masters[0])
        others = [pod for pod in serving if pod is not masters[0] and not self._cordoned(pod)]
        after = _seconds(masters[0], SWITCHES)
        if not leaves or after is None:
            self._since.pop(key, None)
            return
        since = self._since.setdefault(key, self.machine.now)
        if (left := since + after - self.machine.now) > 0:
            self.later(key, left)
        elif others:
            del self._since[key]
            self._role(others[0], MASTER)
            self._role(masters[0], REPLICA)

    def _all(self) -> t.Iterable[Raw]:
        return self.store.of(PODS).values()

    def _cordoned(self, pod: Raw) -> bool:
        node = self.store.get(NODES, "", pod["spec"].get("nodeName") or "")
        return bool(node and node["spec"].get("unschedulable"))

    def _role(self, pod: Raw, role: str) -> None:
        where, name = key_of(pod)
        self.objects.patch(kinds.PODS, name, {"metadata": {"labels": {ROLE: role}}}, where)


class Leaders(Controller):
    """An application that elects a leader among its pods, and gives that a label."""

    name = "leaders"
    watches = (PODS,)

    def keys(self, event: Event) -> t.Iterable[Key]:
        meta = event.raw["metadata"]
        led = LEADS in (meta.get("annotations") or {})
        return ((meta["namespace"], meta["labels"]["app"]),) if led else ()

    def sync(self, key: Key) -> None:
        pods = [pod for pod in self.pods_in(key[0]) if (pod["metadata"].get("labels") or {}).get("app") == key[1]]
        serving = sorted((pod for pod in pods if is_active(pod) and is_ready(pod)), key=key_of)
        if serving and not any(LEADER.items() <= pod["metadata"]["labels"].items() for pod in serving):
            self.objects.patch(kinds.PODS, serving[0]["metadata"]["name"], {"metadata": {"labels": LEADER}}, key[0])


def _cluster(pod: Raw) -> Key:
    """Its namespace and cluster; without a cluster if no operator of ours has it."""
    meta = pod["metadata"]
    served = SWITCHES in (meta.get("annotations") or {})
    return meta["namespace"], (meta.get("labels") or {}).get(CLUSTER, "") if served else ""


@dataclass(frozen=True)
class Call:
    """One HTTP call of a hook: who made it, and what it told."""

    at: float
    process: str
    told: t.Mapping[str, t.Any]


@dataclass
class Endpoint:
    """The other end of HTTP hooks. The answer to the first call before a pod or node leaves is lost on its way.

    ``listeners`` hear of each call as it arrives.
    """

    calls: list[Call] = field(default_factory=list)
    listeners: list[t.Callable[[Call], None]] = field(default_factory=list)
    takes: float = 0.3

    def sender(self, actor: Actor) -> t.Callable[[hook_definitions.Http, t.Mapping[str, t.Any], float], int]:
        """How that process sends."""

        def send(http: hook_definitions.Http, variables: t.Mapping[str, t.Any], timeout: float) -> int:
            call = Call(actor.world.machine.now, actor.name, dict(variables))
            first = not any(_subject(known) == _subject(call) for known in self.calls)
            self.calls.append(call)
            for listener in self.listeners:
                listener(call)
            actor.clock.sleep(min(self.takes, timeout))
            if first and str(variables["hook"]).startswith("before"):
                raise NoAnswerError(f"{http.shown()}: the connection was cut")
            return 200

        return send


def _subject(call: Call) -> tuple[str, ...]:
    told = call.told
    return str(told["hook"]), str(told["rule"]), str(told["node"]), str(told.get("uid", ""))
