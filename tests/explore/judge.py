# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What must hold after every step in a simulated cluster, whoever acts and whatever breaks.

The invariants are those of the reliability notes: I1 no service below its floor, I2 no budget of the users broken by an
eviction of ours, I4 no pod evicted twice, I5 nobody acts on a node that another has taken over, I6 no run has more
nodes out than its wave, and one control-plane node at most, I7 a node that was called drained stays empty, I3 all is as
before at the end. What can be asked of a whole run only is in invariants.py; hooks are in promises.py, pods that were
let go in replacements.py.
"""

from __future__ import annotations

import copy
import json
import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.explore import promises
from ansible_collections.kubeops.node_maintenance.tests.explore.budgets import Budgets
from ansible_collections.kubeops.node_maintenance.tests.explore.people import PERSON
from ansible_collections.kubeops.node_maintenance.tests.explore.replacements import Replacements
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.wire import Sent
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

PODS, NODES = kinds.PODS.resource, kinds.NODES.resource
SLICES, LEASES = kinds.ENDPOINT_SLICES.resource, kinds.LEASES.resource
BUDGETS = kinds.BUDGETS.resource
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
KEPT = (
    kinds.NODES,
    kinds.DEPLOYMENTS,
    kinds.STATEFUL_SETS,
    kinds.DAEMON_SETS,
    kinds.HPAS,
    kinds.BUDGETS,
)
"""Kinds that are equal before and after, but for what their controllers write."""
NOTE = "bystander.example/note"
"""The annotation in which bystanders write at any time, whatever they write it to."""
REPORTED = ("lastHeartbeatTime", "lastProbeTime")
"""Times in conditions of nodes and pods that kubelets write again and again."""
CHURN = ("resourceVersion", "generation", "managedFields", NOTE)
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
        self._budgets, self._replacements = Budgets(self.world), Replacements(self.world)
        promises.attend(self.world, self.broken)
        self.world.on_event.append(self._event)
        for (_place, name), lease in self.world.store.of(LEASES).items():
            self._holders[name] = holder_of(lease)

    def check(self) -> None:
        """Raises what was broken so far."""
        if self.broken:
            raise Violation("; ".join(self.broken[:5]))

    def all_as_before(self, but: t.Collection[str] = ()) -> None:
        """Nothing of ours is left, and everything is what it was, but for objects of these kinds (I3)."""
        self.check()
        left = [f"{resource} {key}" for resource, key in ours(self.world)]
        if left:
            raise Violation(f"I3: left behind: {', '.join(left)}")
        self.unchanged(but)

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
            self.broken += self._budgets.gone(event, self._evictions)
            self.broken += self._replacements.gone(event, self._evictions)
        elif event.resource == BUDGETS:
            self._budgets.changed(event)
        elif event.resource == kinds.DEPLOYMENTS.resource:
            self._replacements.changed(event)

    def _note_will(self, event: Event) -> None:
        """Since when a person lets pods onto a node that is in maintenance: what comes then is their will.

        Until they think better of it: a node that is closed as it was may be emptied again. One that is registered
        anew is nobody's.
        """
        name, current = event.raw["metadata"]["name"], self.world.machine.current
        given_back = record(event.raw) is None and record(event.before or {}) is not None
        if event.what == "DELETED":
            self._freed[name] = self.world.machine.now
        elif given_back or (record(event.raw) is not None and closed(event.raw) == WHOLLY_CLOSED):
            self._freed.pop(name, None)
        elif current is not None and current.process.name == PERSON and closed(event.before or {}) > closed(event.raw):
            self._freed.setdefault(name, self.world.machine.now)

    def _fenced(self, event: Event) -> None:
        """A node's record is written by nobody but the holder of its lock (I5)."""
        before, after = record(event.before or {}), record(event.raw)
        if before == after or after is None:
            return
        self._in_wave(before, after)
        if after["step"] == "drained" != (before or {}).get("step"):
            self._empty(event.raw["metadata"]["name"])
        holder = self._holders.get(names.node_lease_name(event.raw["metadata"]["name"]), "")
        writer = f"{after['run']}/{after['nonce']}" if after["nonce"] else after["run"]
        if holder.rpartition("/")[2] != writer.rpartition("/")[2]:
            name = event.raw["metadata"]["name"]
            self.broken.append(f"I5: {writer} wrote the record of {name} while {holder or 'nobody'} held its lock")

    def _in_wave(self, before: Raw | None, after: Raw) -> None:
        """A run has no more nodes out than the greatest of its waves, and of control planes one is out (I6).

        Parked nodes are not counted: they wait for a person. Nor are nodes that single calls take out, without a
        stored run: their wave is what each call names.
        """
        run, found = after["run"], self.world.store.of(NODES).values()
        if not _at_work(after) or (before is not None and before["run"] == run and _at_work(before)):
            return
        out = [(raw, known) for raw in found if (known := record(raw)) and _at_work(known)]
        mine = sorted(raw["metadata"]["name"] for raw, known in out if known["run"] == run)
        stored = self.world.store.get(kinds.CONFIGMAPS.resource, names.NAMESPACE, names.run_name(run))
        wave = max(map(len, json.loads(stored["data"]["plan"])), default=0) if stored else 0
        if wave and len(mine) > wave:
            self.broken.append(f"I6: run {run} has {', '.join(mine)} out at once, and its waves are of {wave}")
        planes = sorted(raw["metadata"]["name"] for raw, _known in out if CONTROL_PLANE in raw["metadata"]["labels"])
        if len(planes) > 1:
            self.broken.append(f"I6: the control planes {', '.join(planes)} are out at once")

    def _evictions(self, meta: Raw) -> t.Iterator[Sent]:
        """The evictions of that pod by processes of ours that are being carried out: one, or none."""
        about = ("pods/eviction", meta["namespace"], meta["name"], self.world.machine.now, 0)
        for sent in reversed(self.world.log[-100:]):
            request = sent.request
            if (request.resource, request.namespace, request.name, sent.arrived, sent.status) == about:
                yield sent

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
        if (event.what != "DELETED" and "deletionTimestamp" not in meta) or self._homeless(before):
            return
        raw = self.world.store.get(NODES, "", node)
        freed = self._freed.get(node)
        if raw is None or (record(raw) is not None and freed is None):
            return
        for sent in self._evictions(meta):
            # Nobody can know what a person did at the very moment at which it leaves.
            if freed is None or sent.left > freed:
                self.broken.append(f"I5: {sent.process} evicted {meta['name']} from {node}, which is in service")

    def _homeless(self, pod: Raw) -> bool:
        """Whether it was let go by its ReplicaSet, which would not take it back: to end it is to give the node back."""
        text = (pod["metadata"].get("annotations") or {}).get(names.RELEASED)
        if text is None:
            return False
        sets = self.world.store.of(kinds.REPLICA_SETS.resource).values()
        mine = (one for one in sets if one["metadata"]["uid"] == json.loads(text)["replica_set"])
        return not any(one["spec"]["replicas"] for one in mine)

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


WHOLLY_CLOSED = 2
"""What `closed` says of a node that is cordoned and has our taint."""


def closed(node: Raw) -> int:
    """How many things keep pods away from it, of those that a maintenance puts there."""
    taints = node["spec"].get("taints") or ()
    return bool(node["spec"].get("unschedulable")) + any(taint["key"] == names.TAINT_KEY for taint in taints)


def _at_work(known: Raw) -> bool:
    """Whether a node with this record counts for its wave."""
    return bool(known["step"] != "parked")


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
            notes = meta.get("annotations") or {}
            noted = any(key.startswith(names.PREFIX) for key in notes) if resource == NODES else names.PLANNED in notes
            marks = {names.RELEASED, names.UNSERVED}
            noted = noted or bool(marks & {**notes, **(meta.get("labels") or {})}.keys())
            if (labelled and resource != kinds.NAMESPACES.resource) or noted:
                yield resource, f"{namespace}/{name}"


def picture(world: World) -> dict[str, t.Any]:
    """What has to be the same afterwards, byte for byte: spec, labels, annotations and conditions of a maintenance."""
    found: dict[str, t.Any] = {}
    for kind in KEPT:
        for (namespace, name), raw in world.store.of(kind.resource).items():
            meta = {key: raw["metadata"].get(key) for key in ("labels", "annotations", "uid")}
            kept = {"spec": copy.deepcopy(raw.get("spec") or {}), "conditions": _shown(raw)}
            found[f"{kind.kind} {namespace}/{name}"] = json.dumps(_bare({**meta, **kept}), sort_keys=True)
    return found


def _shown(raw: Raw) -> list[Raw]:
    """The conditions by which others are told of a maintenance."""
    return [c for c in (raw.get("status") or {}).get("conditions") or () if c["type"] in names.LIFECYCLE]


def _bare(value: t.Any) -> t.Any:
    """Without what is empty: the API leaves a map or a list out whose last entry went."""
    if isinstance(value, dict):
        pairs = {key: _bare(inner) for key, inner in value.items() if key not in CHURN}
        return {key: inner for key, inner in pairs.items() if inner not in EMPTY}
    return [_bare(inner) for inner in value] if isinstance(value, list) else value
