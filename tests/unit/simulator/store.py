# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What etcd and the watch cache are to a cluster: objects, one counter for all their versions, and their history.

Objects are never changed in place: a write puts a new one where the old one was. So a state of the store is
kept by keeping its dictionaries, and an object that was handed out stays what it was.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, field

Raw = dict[str, t.Any]
Key = tuple[str, str]
"""Namespace (empty without one) and name."""

What = t.Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True)
class Event:
    """One change of one object; `before` is what it was, `raw` what it is (for DELETED: was at last)."""

    what: What
    resource: str
    version: int
    raw: Raw
    before: Raw | None


@dataclass
class State:
    """All that a store holds at one moment; `encoded` are the objects as JSON by version, for all that begin there."""

    version: int
    count: int
    objects: dict[str, dict[Key, Raw]]
    encoded: dict[str, bytes]


@dataclass
class Store:
    """Objects by resource (`pods`, `deployments.apps`). `listeners` hear of every change, in order.

    `compacted` is the version up to which history is forgotten: who asks for older gets 410.
    """

    version: int = 100
    count: int = 0
    compacted: int = 0
    objects: dict[str, dict[Key, Raw]] = field(default_factory=dict)
    history: dict[str, list[Event]] = field(default_factory=dict)
    listeners: list[t.Callable[[Event], None]] = field(default_factory=list)
    _encoded: dict[str, bytes] = field(default_factory=dict)
    _known: dict[str, bytes] = field(default_factory=dict)
    _begun: int = 0

    def of(self, resource: str) -> dict[Key, Raw]:
        """All objects of a resource; read only."""
        found = self.objects.get(resource)
        if found is None:
            found = self.objects[resource] = {}
        return found

    def get(self, resource: str, namespace: str, name: str) -> Raw | None:
        return self.of(resource).get((namespace, name))

    def number(self) -> int:
        """One that was never given before, for UIDs and generated names."""
        self.count += 1
        return self.count

    def put(self, resource: str, raw: Raw) -> Raw:
        """Store a new state of an object; its resourceVersion is set in it."""
        self.version += 1
        meta = raw["metadata"]
        meta["resourceVersion"] = str(self.version)
        key = (meta.get("namespace") or "", meta["name"])
        objects = self.of(resource)
        before = objects.get(key)
        objects[key] = raw
        self._tell(Event("ADDED" if before is None else "MODIFIED", resource, self.version, raw, before))
        return raw

    def remove(self, resource: str, raw: Raw) -> Raw:
        """Take an object away; its last state has a resourceVersion of its own."""
        self.version += 1
        meta = raw["metadata"]
        last = {**raw, "metadata": {**meta, "resourceVersion": str(self.version)}}
        del self.of(resource)[meta.get("namespace") or "", meta["name"]]
        self._tell(Event("DELETED", resource, self.version, last, raw))
        return last

    def since(self, resource: str, version: int) -> list[Event]:
        """What happened after that version."""
        history = self.history.get(resource, [])
        at = len(history)
        while at and history[at - 1].version > version:
            at -= 1
        return history[at:]

    def compact(self) -> None:
        """Forget all history up to now."""
        self.compacted = self.version
        self.history.clear()

    def encoded(self, raw: Raw) -> bytes:
        """An object as JSON; the same bytes for the same version."""
        version = raw["metadata"]["resourceVersion"]
        found = self._encoded.get(version) or self._known.get(version)
        if found is None:
            found = self._encoded[version] = encoded(raw)
            if int(version) <= self._begun:
                self._known[version] = found
        return found

    def state(self) -> State:
        """To go back to it, or to begin another store with it."""
        return State(self.version, self.count, {name: dict(objects) for name, objects in self.objects.items()}, {})

    def restore(self, state: State) -> None:
        """Begin with that state; its history is not known."""
        self.version, self.count, self.compacted = state.version, state.count, state.version
        self.objects = {name: dict(objects) for name, objects in state.objects.items()}
        self.history = {}
        self._known, self._begun = state.encoded, state.version

    def _tell(self, event: Event) -> None:
        self.history.setdefault(event.resource, []).append(event)
        for listener in self.listeners:
            listener(event)


_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def encoded(raw: Raw) -> bytes:
    """As it goes over the wire."""
    return _ENCODER.encode(raw).encode()


def merged(target: t.Any, patch: t.Any) -> t.Any:
    """RFC 7386; nothing of `target` is changed in place."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def field_of(raw: Raw, path: str) -> str:
    """The value of a field selector's path, as text."""
    found: t.Any = raw
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if isinstance(found, bool):
        return str(found).lower()
    return "" if found is None else str(found)
