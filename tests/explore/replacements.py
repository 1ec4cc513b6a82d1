# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""I16: a pod that was let go by its ReplicaSet is evicted only while those that it still owns are enough alone."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.explore.budgets import LAG, serves
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.wire import Sent
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


@dataclass
class Replacements:
    """What has changed just now by others, or because we let a pod go, counts as it was: nobody can know it."""

    world: World
    _lost: list[tuple[float, Raw]] = field(default_factory=list)
    _wanted: list[tuple[float, str, int]] = field(default_factory=list)

    def changed(self, event: Event) -> None:
        """A Deployment wants another number of pods."""
        if event.before is not None and event.raw["spec"]["replicas"] != event.before["spec"]["replicas"]:
            before = event.before
            self._wanted.append((self.world.machine.now, before["metadata"]["uid"], before["spec"]["replicas"]))

    def gone(self, event: Event, evictions: t.Callable[[Raw], t.Iterator[Sent]]) -> t.Iterator[str]:
        """What is wrong with the end of a pod's service; ``evictions`` are those of ours that are carried out now."""
        before, now = event.before, self.world.machine.now
        if before is None or not serves(before):
            return
        ends = event.what == "DELETED" or not serves(event.raw)
        sent = next(evictions(before["metadata"]), None) if ends else None
        if not sent and _owner(before) and (ends or not _owner(event.raw)):
            self._lost = [*((at, pod) for at, pod in self._lost if now - at <= LAG), (now, before)]
        mark = (before["metadata"].get("annotations") or {}).get(names.RELEASED)
        if sent and mark:
            yield from self._too_few(before, json.loads(mark), sent)

    def _too_few(self, pod: Raw, mark: Raw, sent: Sent) -> t.Iterator[str]:
        uid, now = mark["deployment"], self.world.machine.now
        deployment = self._of(kinds.DEPLOYMENTS, uid)
        if deployment is None or "deletionTimestamp" in deployment["metadata"]:
            return
        lately = [count for at, whose, count in self._wanted if whose == uid and now - at <= LAG]
        wanted = min([deployment["spec"]["replicas"], *lately])
        pods = [raw for raw in self.world.store.of(kinds.PODS.resource).values() if serves(raw)]
        pods += [raw for at, raw in self._lost if now - at <= LAG]
        mine = {raw["metadata"]["uid"] for raw in pods if self._deployment(raw) == uid} - {pod["metadata"]["uid"]}
        if len(mine) < wanted:
            name = deployment["metadata"]["name"]
            yield (
                f"I16: {sent.process} evicted {pod['metadata']['name']}, which was let go, and {len(mine)} ready pods "
                f"are left of the {wanted} that {name} wants"
            )

    def _deployment(self, pod: Raw) -> str:
        replica_set = self._of(kinds.REPLICA_SETS, _owner(pod))
        return _owner(replica_set) if replica_set else ""

    def _of(self, kind: kinds.Kind, uid: str) -> Raw | None:
        return next((raw for raw in self.world.store.of(kind.resource).values() if raw["metadata"]["uid"] == uid), None)


def _owner(raw: Raw) -> str:
    """The UID of its controller; empty for a pod that was let go, whether or not that has been seen."""
    meta = raw["metadata"]
    if names.RELEASED in (meta.get("labels") or {}):
        return ""
    return next((owner["uid"] for owner in meta.get("ownerReferences") or () if owner.get("controller")), "")
