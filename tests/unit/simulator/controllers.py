# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all controllers share: they are told of changes, queue keys, and work off one key at a step.

A step sees the store as it is, so a controller of the simulator never acts on an old view; how late it acts is the
machine's choice, or `lag` seconds at least.
"""

from __future__ import annotations

import abc
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.kinds import Kind
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.apiserver import ApiServer
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.evictions import is_ready
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Action
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.object_rules import seconds_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Key, Raw, State

PODS = kinds.PODS.resource
_COUNTS = ("readyReplicas", "availableReplicas", "updatedReplicas", "currentReplicas", "fullyLabeledReplicas")
OMITTED = {
    kinds.DEPLOYMENTS.resource: ("replicas", "unavailableReplicas", *_COUNTS),
    kinds.REPLICA_SETS.resource: _COUNTS,
    kinds.STATEFUL_SETS.resource: ("readyReplicas", "updatedReplicas", "currentReplicas"),
}
"""Fields of a status that the server leaves out where they are 0."""


class Index:
    """Which objects belong to which owner, which pods are bound to which node, and which have no controller."""

    def __init__(self) -> None:
        self.owned: dict[str, dict[tuple[str, Key], None]] = {}
        self.bound: dict[str, dict[Key, None]] = {}
        self.loose: dict[Key, None] = {}

    def take(self, event: Event) -> None:
        key = key_of(event.raw)
        if event.before is not None:
            self._drop(event.resource, key, event.before)
        if event.what != "DELETED":
            self._add(event.resource, key, event.raw)

    def begin(self, state: State) -> None:
        self.owned, self.bound, self.loose = {}, {}, {}
        for resource, objects in state.objects.items():
            for key, raw in objects.items():
                self._add(resource, key, raw)

    def _add(self, resource: str, key: Key, raw: Raw) -> None:
        for owner in raw["metadata"].get("ownerReferences") or ():
            self.owned.setdefault(owner["uid"], {})[resource, key] = None
        if resource == PODS and controller_of(raw) is None:
            self.loose[key] = None
        if resource == PODS and raw["spec"].get("nodeName"):
            self.bound.setdefault(raw["spec"]["nodeName"], {})[key] = None

    def _drop(self, resource: str, key: Key, raw: Raw) -> None:
        for owner in raw["metadata"].get("ownerReferences") or ():
            self.owned.get(owner["uid"], {}).pop((resource, key), None)
        if resource == PODS:
            self.loose.pop(key, None)
        if resource == PODS and raw["spec"].get("nodeName"):
            self.bound.get(raw["spec"]["nodeName"], {}).pop(key, None)


class Controller(abc.ABC):
    """One of them. `watches` are the resources whose changes `keys` turns into keys to `sync`.

    `lag`: seconds at least between a change and the step that it leads to. `stopped`: it does nothing, and later
    catches up.
    """

    name = ""
    watches: tuple[str, ...] = ()

    def __init__(self, server: ApiServer, index: Index) -> None:
        self.server, self.index = server, index
        self.store, self.objects, self.machine = server.store, server.objects, server.machine
        self.lag = 0.0
        self._stopped = False
        self._queue: dict[Key, None] = {}
        self._action = Action(self._step, self.name)
        self._alarms: dict[Key, Action] = {}

    def keys(self, event: Event) -> t.Iterable[Key]:
        """Which keys to look at after this event; of itself the object's own."""
        return (key_of(event.raw),)

    @abc.abstractmethod
    def sync(self, key: Key) -> None:
        """Bring what belongs to the key one step nearer to what is wanted."""

    def take(self, event: Event) -> None:
        for key in self.keys(event):
            self.queue(key)

    def queue(self, key: Key) -> None:
        """Look at the key soon."""
        if key not in self._queue:
            self._queue[key] = None
        if not self._stopped and not self._action.posted:
            if self.lag:
                self.machine.at(self.machine.now + self.lag, self._action)
            else:
                self.machine.post(self._action)

    def later(self, key: Key, seconds: float) -> None:
        """Look at the key in a while; a later call for the same key counts."""
        alarm = self._alarms.get(key)
        if alarm is None:
            alarm = self._alarms[key] = Action(lambda: self.queue(key), f"{self.name} later")
        self.machine.at(self.machine.now + max(seconds, 0.0), alarm)

    def alarms(self) -> tuple[Key, ...]:
        """The keys that it will look at in a while."""
        return tuple(key for key, alarm in self._alarms.items() if self.machine.waits(alarm))

    def stop(self) -> None:
        self._stopped = True

    def go_on(self) -> None:
        self._stopped = False
        if self._queue:
            self.machine.post(self._action)

    def _step(self) -> None:
        if self._stopped or not self._queue:
            return
        key = next(iter(self._queue))
        del self._queue[key]
        self.sync(key)
        if self._queue:
            self.machine.post(self._action)

    # -- what several of them need ---------------------------------------------------------------------

    def pods_of(self, owner: Raw) -> list[Raw]:
        """The pods it controls, in the order in which they became its own."""
        found = self.index.owned.get(owner["metadata"]["uid"], {})
        pods = self.store.of(PODS)
        return [pods[key] for resource, key in found if resource == PODS]

    def claimed(self, kind: Kind, owner: Raw) -> list[Raw]:
        """The pods it controls, after it has let go those that its selector does not match, and taken those it does.

        ``PodControllerRefManager.ClaimPods``: it takes only what has no controller and does not end.
        """
        chosen, mine = owner["spec"].get("selector"), owner["metadata"]["uid"]
        pods = self.store.of(PODS)
        loose = [pods[key] for key in self.index.loose if key[0] == owner["metadata"]["namespace"]]
        for pod in (pod for pod in [*self.pods_of(owner), *loose] if is_active(pod)):
            meta, held = pod["metadata"], controller_of(pod)
            matches = selectors.matches(chosen, meta.get("labels") or {})
            if held is not None and held["uid"] == mine and not matches:
                left = [one for one in meta["ownerReferences"] if one["uid"] != mine]
                self._own(pod, left)
            elif held is None and matches:
                self._own(pod, [*(meta.get("ownerReferences") or ()), owner_reference(kind, owner)])
        return [pod for pod in self.pods_of(owner) if (controller_of(pod) or {}).get("uid") == mine]

    def _own(self, pod: Raw, owners: list[Raw]) -> None:
        meta = pod["metadata"]
        self.objects.patch(kinds.PODS, meta["name"], {"metadata": {"ownerReferences": owners}}, meta["namespace"])

    def selecting(self, kind: Kind, pod: Raw) -> t.Iterable[Key]:
        """The keys of those that would take a pod without a controller."""
        if controller_of(pod) is None:
            for key, raw in self.store.of(kind.resource).items():
                labels = pod["metadata"].get("labels") or {}
                if key[0] == pod["metadata"]["namespace"] and selectors.matches(raw["spec"].get("selector"), labels):
                    yield key

    def pods_in(self, namespace: str) -> list[Raw]:
        return [raw for (where, _name), raw in self.store.of(PODS).items() if where == namespace]

    def set_status(self, kind: Kind, raw: Raw, **status: t.Any) -> Raw:
        """Write these fields of the status, if they are others now; None takes one away, and 0 where it is left out."""
        omitted = OMITTED.get(kind.resource, ())
        status = {key: None if key in omitted and not value else value for key, value in status.items()}
        now = raw.get("status") or {}
        if all(now.get(key) == value for key, value in status.items()):
            return raw
        after = {key: value for key, value in {**now, **status}.items() if value is not None}
        return self.objects.replace(kind, raw, {**raw, "status": after}, "status")

    def controller_key(self, raw: Raw, kind: str) -> t.Iterable[Key]:
        """The key of the controller of this kind that owns the object."""
        for owner in raw["metadata"].get("ownerReferences") or ():
            if owner.get("controller") and owner["kind"] == kind:
                yield raw["metadata"].get("namespace") or "", owner["name"]

    def ready_for(self, pod: Raw) -> float:
        """Seconds since it became Ready; below 0 while it is not.

        The text of a time is rounded, so it may be some microseconds ahead.
        """
        if not is_ready(pod):
            return -1.0
        condition = next(c for c in pod["status"]["conditions"] if c["type"] == "Ready")
        return max(self.objects.time() - seconds_of(condition["lastTransitionTime"]), 0.0)


def controller_of(raw: Raw) -> Raw | None:
    """The reference to its controller."""
    return next((one for one in raw["metadata"].get("ownerReferences") or () if one.get("controller")), None)


def key_of(raw: Raw) -> Key:
    meta = raw["metadata"]
    return meta.get("namespace") or "", meta["name"]


def owner_reference(kind: Kind, raw: Raw) -> Raw:
    """The reference of a controller to put into what it makes."""
    meta = raw["metadata"]
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_from(template: Raw, owner: Raw, name: str) -> Raw:
    """A pod to create; a `name` that ends in a dash is a `generateName`."""
    meta = {key: value for key, value in (template.get("metadata") or {}).items() if key in ("labels", "annotations")}
    meta["generateName" if name.endswith("-") else "name"] = name
    meta["ownerReferences"] = [owner]
    return {"metadata": meta, "spec": dict(template.get("spec") or {})}


def is_active(pod: Raw) -> bool:
    """Whether it counts as one of its controller's replicas."""
    return "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") not in ("Succeeded", "Failed")


def condition(type_: str, status: bool, reason: str, message: str, since: str) -> Raw:
    text = "True" if status else "False"
    return {"type": type_, "status": text, "reason": reason, "message": message, "lastTransitionTime": since}
