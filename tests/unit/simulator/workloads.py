# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deployments and ReplicaSets."""

from __future__ import annotations

import hashlib
import json
import math
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.answers import Refused
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.controllers import (
    PODS,
    Controller,
    condition,
    is_active,
    key_of,
    owner_reference,
    pod_from,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.evictions import is_ready
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.object_rules import seconds_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Key, Raw

HASH = "pod-template-hash"
AGAIN = 5.0
"""Seconds after which a pod that was refused is created again; the real pauses grow."""
COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class Deployments(Controller):
    """One ReplicaSet for each template; a new one grows first, then the old ones shrink (maxUnavailable 0)."""

    name = "deployments"
    watches = (kinds.DEPLOYMENTS.resource, kinds.REPLICA_SETS.resource)

    def keys(self, event: Event) -> t.Iterable[Key]:
        if event.resource == kinds.DEPLOYMENTS.resource:
            return (key_of(event.raw),)
        return self.controller_key(event.raw, "Deployment")

    def sync(self, key: Key) -> None:
        top = self.store.get(kinds.DEPLOYMENTS.resource, *key)
        if top is None or "deletionTimestamp" in top["metadata"]:
            return
        wanted = top["spec"]["replicas"]
        sets = self._sets(top)
        new = next((rs for rs in sets if _is_of(rs, top)), None)
        if not top["spec"].get("paused"):
            if new is None:
                new = self._create(top, wanted)
                sets.append(new)
            self._roll(top, sets, new, wanted)
        elif len(alive := [rs for rs in sets if rs["spec"]["replicas"]]) == 1:
            self._scale(alive[0], wanted)
        self._tell(top, self._sets(top), new)

    def _sets(self, top: Raw) -> list[Raw]:
        found = self.index.owned.get(top["metadata"]["uid"], {})
        return [self.store.of(resource)[key] for resource, key in found if resource == kinds.REPLICA_SETS.resource]

    def _create(self, top: Raw, wanted: int) -> Raw:
        mark, meta = template_hash(top), top["metadata"]
        template = top["spec"]["template"]
        labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH: mark}
        selector = {"matchLabels": {**(top["spec"]["selector"].get("matchLabels") or {}), HASH: mark}}
        body = {
            "metadata": {
                "name": f"{meta['name']}-{mark}",
                "labels": labels,
                "annotations": {"deployment.kubernetes.io/revision": "1", **(meta.get("annotations") or {})},
                "ownerReferences": [owner_reference(kinds.DEPLOYMENTS, top)],
            },
            "spec": {
                "replicas": 0 if self._sets(top) else wanted,
                "minReadySeconds": top["spec"].get("minReadySeconds", 0),
                "selector": selector,
                "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
            },
        }
        return self.objects.create(kinds.REPLICA_SETS, body, meta["namespace"])

    def _roll(self, top: Raw, sets: list[Raw], new: Raw, wanted: int) -> None:
        old = [rs for rs in sets if rs["metadata"]["uid"] != new["metadata"]["uid"] and rs["spec"]["replicas"]]
        if not old:
            self._scale(new, wanted)
            return
        recreate = (top["spec"].get("strategy") or {}).get("type") == "Recreate"
        if recreate:
            for rs in old:
                self._scale(rs, 0)
            if not any(self.pods_of(rs) for rs in old):
                self._scale(new, wanted)
            return
        self._scale(new, wanted)
        serving = (self.store.get(kinds.REPLICA_SETS.resource, *key_of(new)) or new)["status"].get(
            "availableReplicas", 0
        )
        spare = max(wanted - serving, 0)
        # Those that serve stay longest.
        for rs in sorted(old, key=lambda rs: -int(rs["status"].get("availableReplicas", 0))):
            self._scale(rs, min(rs["spec"]["replicas"], spare))
            spare -= min(rs["spec"]["replicas"], spare)

    def _scale(self, rs: Raw, wanted: int) -> None:
        if rs["spec"]["replicas"] != wanted:
            self.objects.patch(
                kinds.REPLICA_SETS, rs["metadata"]["name"], {"spec": {"replicas": wanted}}, rs["metadata"]["namespace"]
            )

    def _tell(self, top: Raw, sets: list[Raw], new: Raw | None) -> None:
        def total(field: str, of: t.Iterable[Raw]) -> int:
            return sum(rs["status"].get(field, 0) for rs in of)

        wanted, available = top["spec"]["replicas"], total("availableReplicas", sets)
        newest = [rs for rs in sets if new is not None and rs["metadata"]["uid"] == new["metadata"]["uid"]]
        conditions = [c for c in top["status"].get("conditions") or () if c["type"] != "ReplicaFailure"]
        conditions += [
            c for rs in newest for c in rs["status"].get("conditions") or () if c["type"] == "ReplicaFailure"
        ]
        self.set_status(
            kinds.DEPLOYMENTS,
            top,
            observedGeneration=top["metadata"]["generation"],
            replicas=total("replicas", sets),
            updatedReplicas=total("replicas", newest),
            readyReplicas=total("readyReplicas", sets),
            availableReplicas=available,
            unavailableReplicas=max(wanted - available, 0),
            conditions=conditions or None,
        )


def _is_of(rs: Raw, top: Raw) -> bool:
    """Whether it was made for the Deployment's template, or has it, whatever its label with the hash says."""
    if rs["metadata"]["labels"][HASH] == template_hash(top):
        return True
    mine, wanted = rs["spec"]["template"], top["spec"]["template"]
    labels = {key: value for key, value in (mine["metadata"].get("labels") or {}).items() if key != HASH}
    return bool({**mine, "metadata": {**mine["metadata"], "labels": labels}} == _with_labels(wanted))


def _with_labels(template: Raw) -> Raw:
    meta = template.get("metadata") or {}
    return {**template, "metadata": {**meta, "labels": meta.get("labels") or {}}}


def template_hash(top: Raw) -> str:
    text = json.dumps(top["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:9]


class ReplicaSets(Controller):
    """As many pods as wanted; too many are ended in the order of `ended_first`."""

    name = "replicasets"
    watches = (kinds.REPLICA_SETS.resource, PODS)

    def keys(self, event: Event) -> t.Iterable[Key]:
        if event.resource != PODS:
            return (key_of(event.raw),)
        before = self.controller_key(event.before, "ReplicaSet") if event.before else ()
        wanted = self.selecting(kinds.REPLICA_SETS, event.raw) if event.what != "DELETED" else ()
        return dict.fromkeys((*before, *self.controller_key(event.raw, "ReplicaSet"), *wanted))

    def sync(self, key: Key) -> None:
        rs = self.store.get(kinds.REPLICA_SETS.resource, *key)
        if rs is None or "deletionTimestamp" in rs["metadata"]:
            return
        try:
            pods = [pod for pod in self.claimed(kinds.REPLICA_SETS, rs) if is_active(pod)]
        except Refused:
            # Without an event.
            self.later(key, AGAIN)
            return
        wanted, failure = rs["spec"]["replicas"], None
        if len(pods) < wanted:
            owner = owner_reference(kinds.REPLICA_SETS, rs)
            for _missing in range(wanted - len(pods)):
                body = pod_from(rs["spec"]["template"], owner, f"{rs['metadata']['name']}-")
                try:
                    pods.append(self.objects.create(kinds.PODS, body, rs["metadata"]["namespace"]))
                except Refused as refusal:
                    failure = condition("ReplicaFailure", True, "FailedCreate", str(refusal), self.objects.wall())
                    self.later(key, AGAIN)
                    break
        elif len(pods) > wanted:
            for pod in ended_first(pods, self.objects.time())[: len(pods) - wanted]:
                self.objects.delete(kinds.PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
        self._tell(key, failure)

    def _tell(self, key: Key, failure: Raw | None) -> None:
        rs = self.store.of(kinds.REPLICA_SETS.resource)[key]
        pods = [pod for pod in self.pods_of(rs) if is_active(pod)]
        least = rs["spec"].get("minReadySeconds", 0)
        ages = [age for age in map(self.ready_for, pods) if age >= 0]
        if young := [age for age in ages if age < least]:
            self.later(key, least - max(young))
        was = [c for c in rs["status"].get("conditions") or () if c["type"] == "ReplicaFailure"]
        self.set_status(
            kinds.REPLICA_SETS,
            rs,
            observedGeneration=rs["metadata"]["generation"],
            replicas=len(pods),
            fullyLabeledReplicas=len(pods),
            readyReplicas=len(ages),
            availableReplicas=len([age for age in ages if age >= least]),
            conditions=(was or [failure]) if failure else None,
        )


def ended_first(pods: t.Sequence[Raw], now: float) -> list[Raw]:
    """In the order in which a ReplicaSet's controller ends them (ActivePodsWithRanks)."""
    nodes = [pod["spec"].get("nodeName", "") for pod in pods if is_ready(pod)]

    def rank(pod: Raw) -> tuple[t.Any, ...]:
        meta, status = pod["metadata"], pod["status"]
        ready = is_ready(pod)
        since = next((c["lastTransitionTime"] for c in status.get("conditions") or () if c["type"] == "Ready"), None)
        restarts = max((c.get("restartCount", 0) for c in status.get("containerStatuses") or ()), default=0)
        return (
            bool(pod["spec"].get("nodeName")),
            _PHASES.get(status.get("phase", ""), 2),
            ready,
            int((meta.get("annotations") or {}).get(COST, "0")),
            -nodes.count(pod["spec"].get("nodeName", "")),
            _age(since, now) if ready else 0,
            -restarts,
            _age(meta["creationTimestamp"], now),
            meta["uid"],
        )

    return sorted(pods, key=rank)


def _age(since: str | None, now: float) -> int:
    """The power of two below the seconds since: younger goes first, but only where it is clearly younger."""
    seconds = max(now - seconds_of(since), 0.0) if since else 0.0
    return int(math.log2(seconds)) if seconds >= 1 else -1
