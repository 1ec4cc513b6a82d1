# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What must hold after every step in a simulated cluster, whoever acts and whatever breaks.

The invariants are those of the reliability notes: I1 no service below its floor, which is what a budget of the users
allows where they have one (I2), I4 no pod evicted twice, I5 nobody acts on a node that another has taken over, I7 a
node that was called drained stays empty, I3 all is as before at the end.
"""

from __future__ import annotations

import copy
import json
import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import names
from ansible_collections.kubeops.node_maintenance.tests.explore.people import PERSON
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

PODS, NODES = kinds.PODS.resource, kinds.NODES.resource
SLICES, LEASES = kinds.ENDPOINT_SLICES.resource, kinds.LEASES.resource
KEPT = (
    kinds.NODES,
    kinds.DEPLOYMENTS,
    kinds.STATEFUL_SETS,
    kinds.DAEMON_SETS,
    kinds.HPAS,
    kinds.BUDGETS,
)
"""Kinds that are equal before and after, but for what their controllers write."""
CHURN = ("resourceVersion", "generation", "managedFields")
EMPTY: tuple[t.Any, ...] = (None, {}, [])


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass
class Judge:
    """Watches one world from its beginning; ``floors`` maps a Service to its least number of ready endpoints.

    ``foreign`` are paths ``(kind, name, field, ...)`` that somebody else changed meanwhile.
    """

    world: World
    floors: t.Mapping[str, int]
    broken: list[str] = field(default_factory=list)
    _holders: dict[str, str] = field(default_factory=dict)
    _freed: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.before = picture(self.world)
        self.world.on_event.append(self._event)
        for (_place, name), lease in self.world.store.of(LEASES).items():
            self._holders[name] = holder_of(lease)

    def check(self) -> None:
        """Raises what was broken so far."""
        if self.broken:
            raise Violation("; ".join(self.broken[:5]))

    def all_as_before(self) -> None:
        """Nothing of ours is left, and everything is what it was (I3)."""
        self.check()
        left = [f"{resource} {key}" for resource, key in ours(self.world)]
        if left:
            raise Violation(f"I3: left behind: {', '.join(left)}")
        self.unchanged()

    def unchanged(self, but: t.Collection[str] = ()) -> None:
        """Everything is what it was, but for objects of these kinds (I3)."""
        now = picture(self.world)
        every = self.before.keys() | now.keys()
        wrong = [key for key in every if self.before.get(key) != now.get(key) and key.partition(" ")[0] not in but]
        if wrong:
            told = [f"{key}: {self.before.get(key)} -> {now.get(key)}" for key in sorted(wrong)]
            raise Violation(f"I3: not as before: {'; '.join(told)}"[:3000])

    def evicted_once(self) -> None:
        """No pod was evicted twice (I4)."""
        accepted = Counter(
            str(((sent.request.body or {}).get("deleteOptions") or {}).get("preconditions", {}).get("uid"))
            for sent in self.world.log
            if sent.request.resource == "pods/eviction" and sent.status == 201
        )
        twice = [uid for uid, count in accepted.items() if count > 1]
        if twice:
            raise Violation(f"I4: evicted more than once: {twice}")

    def _event(self, event: Event) -> None:
        if event.resource == SLICES:
            service = (event.raw["metadata"].get("labels") or {}).get("kubernetes.io/service-name", "")
            floor = self.floors.get(service, 0)
            ready = self.world.serving(service)
            if ready < floor:
                self.broken.append(
                    f"I1: {service} has {ready} ready endpoints of {floor} at {self.world.machine.now:.2f} s"
                )
        elif event.resource == LEASES:
            self._holders[event.raw["metadata"]["name"]] = "" if event.what == "DELETED" else holder_of(event.raw)
        elif event.resource == NODES and event.before is not None:
            self._note_will(event)
            self._fenced(event)
        elif event.resource == PODS:
            self._stays_empty(event)
            self._in_service(event)

    def _note_will(self, event: Event) -> None:
        """Whether a person lets pods onto a node that is in maintenance: what comes then is their will."""
        name, current = event.raw["metadata"]["name"], self.world.machine.current
        if record(event.raw) is None or event.what == "DELETED":
            self._freed.pop(name, None)
        elif current is not None and current.process.name == PERSON and closed(event.before or {}) > closed(event.raw):
            self._freed.setdefault(name, self.world.machine.now)

    def _fenced(self, event: Event) -> None:
        """A node's record is written by nobody but the holder of its lock (I5)."""
        before, after = record(event.before or {}), record(event.raw)
        if before == after or after is None:
            return
        if after["step"] == "drained" != (before or {}).get("step"):
            self._empty(event.raw["metadata"]["name"])
        holder = self._holders.get(names.node_lease_name(event.raw["metadata"]["name"]), "")
        writer = f"{after['run']}/{after['nonce']}" if after["nonce"] else after["run"]
        if holder.rpartition("/")[2] != writer.rpartition("/")[2]:
            name = event.raw["metadata"]["name"]
            self.broken.append(f"I5: {writer} wrote the record of {name} while {holder or 'nobody'} held its lock")

    def _empty(self, node: str) -> None:
        """What is called drained is empty, but for what DaemonSets run there (I7)."""
        if node in self._freed:
            return
        for pod in self.world.pods(on=node):
            owners = pod["metadata"].get("ownerReferences") or ()
            if not any(owner.get("kind") == "DaemonSet" for owner in owners):
                self.broken.append(f"I7: {node} is called drained while {pod['metadata']['name']} is on it")

    def _in_service(self, event: Event) -> None:
        """Nothing is evicted from a node that nobody has in maintenance, or that a person lets pods onto (I5)."""
        before, meta, node = event.before, event.raw["metadata"], event.raw["spec"].get("nodeName")
        if before is None or "deletionTimestamp" in before["metadata"] or not node:
            return
        if event.what != "DELETED" and "deletionTimestamp" not in meta:
            return
        raw = self.world.store.get(NODES, "", node)
        freed = self._freed.get(node)
        if raw is None or (record(raw) is not None and freed is None):
            return
        now = self.world.machine.now
        for sent in reversed(self.world.log[-100:]):
            request = sent.request
            about = (request.resource, request.namespace, request.name)
            mine = about == ("pods/eviction", meta["namespace"], meta["name"])
            # Nobody can know what a person did at the very moment at which it leaves.
            if mine and (sent.arrived, sent.status) == (now, 0) and (freed is None or sent.left > freed):
                self.broken.append(f"I5: {sent.process} evicted {meta['name']} from {node}, which is in service")

    def _stays_empty(self, event: Event) -> None:
        """What was proven empty gets no pod that has to leave it (I7); DaemonSets come back when they may.

        A pod without an owner was put there by a person, past the scheduler.
        """
        node, owners = event.raw["spec"].get("nodeName"), event.raw["metadata"].get("ownerReferences") or ()
        was = (event.before or {}).get("spec", {}).get("nodeName")
        if not node or node == was or not owners or any(owner.get("kind") == "DaemonSet" for owner in owners):
            return
        raw = self.world.store.get(NODES, "", node)
        known = record(raw) if raw else None
        if known and known["step"] in ("drained", "out", "parked") and node not in self._freed:
            self.broken.append(f"I7: {event.raw['metadata']['name']} came to {node}, whose record says {known['step']}")


def closed(node: Raw) -> int:
    """How many things keep pods away from it, of those that a maintenance puts there."""
    taints = node["spec"].get("taints") or ()
    return bool(node["spec"].get("unschedulable")) + any(taint["key"] == names.TAINT_KEY for taint in taints)


def holder_of(lease: Raw) -> str:
    """Who holds a lease."""
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def record(node: Raw) -> dict[str, t.Any] | None:
    """The record of a node as data."""
    text = (node["metadata"].get("annotations") or {}).get(names.RECORD)
    return json.loads(text) if text else None


def ours(world: World) -> t.Iterator[tuple[str, str]]:
    """Every object that carries our label, but for the namespace; and nodes with something of ours."""
    for resource, objects in world.store.objects.items():
        for (namespace, name), raw in objects.items():
            meta = raw["metadata"]
            labelled = (meta.get("labels") or {}).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY
            noted = any(key.startswith(names.PREFIX) for key in meta.get("annotations") or {})
            if (labelled and resource != kinds.NAMESPACES.resource) or (noted and resource == NODES):
                yield resource, f"{namespace}/{name}"


def picture(world: World) -> dict[str, t.Any]:
    """What has to be the same afterwards, byte for byte: spec, labels and annotations."""
    found: dict[str, t.Any] = {}
    for kind in KEPT:
        for (namespace, name), raw in world.store.of(kind.resource).items():
            meta = {key: raw["metadata"].get(key) for key in ("labels", "annotations", "uid")}
            spec = copy.deepcopy(raw.get("spec") or {})
            found[f"{kind.kind} {namespace}/{name}"] = json.dumps(_bare({**meta, "spec": spec}), sort_keys=True)
    return found


def _bare(value: t.Any) -> t.Any:
    """Without what is empty: the API leaves a map or a list out whose last entry went."""
    if isinstance(value, dict):
        pairs = {key: _bare(inner) for key, inner in value.items() if key not in CHURN}
        return {key: inner for key, inner in pairs.items() if inner not in EMPTY}
    return [_bare(inner) for inner in value] if isinstance(value, list) else value
