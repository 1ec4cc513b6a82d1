# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an empty lab has beside other worlds: nodes whose kubelet is simulated, accounts, and adoption.

`World(more=labs.CONTROLLERS)`.
"""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.controllers import (
    Controller,
    condition,
    key_of,
    owner_reference,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Key, Raw

SWITCH = "lab.kubeops.io/node"
_READY = {"not-ready": "False", "down": "Unknown"}
_BAD = ("MemoryPressure", "DiskPressure", "PIDPressure")


class FakeNodes(Controller):
    """The conditions of new nodes, some seconds after they came: what the switch says, else all well."""

    name = "fake nodes"
    watches = (kinds.NODES.resource,)
    seconds = 2.0

    def take(self, event: Event) -> None:
        if event.what == "ADDED":
            self.later(key_of(event.raw), self.seconds)

    def sync(self, key: Key) -> None:
        raw, now = self.store.of(kinds.NODES.resource)[key], self.objects.wall()
        switch = (raw["metadata"].get("annotations") or {}).get(SWITCH, "")
        ready = {**condition("Ready", True, "", "", now), "status": _READY.get(switch, "True")}
        told = [ready, *(condition(what, False, "", "", now) for what in _BAD)]
        self.objects.replace(kinds.NODES, raw, {**raw, "status": {**raw["status"], "conditions": told}}, "status")


class Accounts(Controller):
    """The default service account of each namespace."""

    name = "accounts"
    watches = (kinds.NAMESPACES.resource,)

    def sync(self, key: Key) -> None:
        namespace = key[1]
        if self.store.get(kinds.SERVICE_ACCOUNTS.resource, namespace, "default") is None:
            self.objects.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace)


class Adoption(Controller):
    """A new controller takes what it selects and nobody controls, before it makes any of its own.

    A StatefulSet has a revision, and ends pods that are not of it.
    """

    name = "adoption"
    watches = tuple(kind.resource for kind in (kinds.DEPLOYMENTS, kinds.REPLICA_SETS, kinds.STATEFUL_SETS, kinds.JOBS))

    def take(self, event: Event) -> None:
        if event.what != "ADDED":
            return
        kind = kinds.KINDS[event.raw["apiVersion"], event.raw["kind"]]
        below = kinds.REPLICA_SETS if kind is kinds.DEPLOYMENTS else kinds.PODS
        space, owner = event.raw["metadata"]["namespace"], owner_reference(kind, event.raw)
        if kind is kinds.STATEFUL_SETS:
            self.set_status(kind, event.raw, updateRevision=revision(event.raw))
        for (where, name), raw in list(self.store.of(below.resource).items()):
            if where != space or raw["metadata"].get("ownerReferences") or not _selects(event.raw, raw):
                continue
            self.objects.patch(below, name, {"metadata": {"ownerReferences": [owner]}}, where)
            if kind is kinds.STATEFUL_SETS and revision(event.raw) != raw["metadata"]["labels"].get(REVISION):
                self.objects.delete(below, name, where)

    def sync(self, key: Key) -> None:
        """Nothing is left to do after the event."""


REVISION = "controller-revision-hash"
CONTROLLERS: tuple[type[Controller], ...] = (Adoption, FakeNodes, Accounts)


def revision(raw: Raw) -> str:
    """Of a StatefulSet: a function of its template, and nothing that its creator could know."""
    return f"{raw['metadata']['name']}-{len(str(raw['spec']['template'])):x}"


def _selects(owner: Raw, raw: Raw) -> bool:
    return selectors.matches(owner["spec"].get("selector"), raw["metadata"].get("labels") or {})
