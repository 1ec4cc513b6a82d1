# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scheduler: node selector and affinity, taints, cordon, pods that shun others, room by number of pods.

The emptiest node wins.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.controllers import (
    PODS,
    Controller,
    condition,
    key_of,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Key, Raw

UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
NAMES = frozenset({"default-scheduler", "koord-scheduler"})


class Scheduler(Controller):
    """Binds pods that have no node."""

    name = "scheduler"
    watches = (PODS, kinds.NODES.resource, kinds.RESERVATIONS.resource)

    def keys(self, event: Event) -> t.Iterable[Key]:
        if event.resource == PODS and event.what != "DELETED":
            return (key_of(event.raw),) if self._waits(event.raw) else ()
        if event.resource == PODS and not event.raw["spec"].get("nodeName"):
            return ()
        if (
            event.resource == kinds.NODES.resource
            and event.before is not None
            and _looks(event.before) == _looks(event.raw)
        ):
            return ()
        return [key for key, pod in self.store.of(PODS).items() if self._waits(pod)]

    def sync(self, key: Key) -> None:
        pod = self.store.get(PODS, *key)
        if pod is None or not self._waits(pod):
            return
        name, why = self.choose(pod)
        if not name:
            placed = [c for c in pod["status"].get("conditions") or () if c["type"] == "PodScheduled"]
            if placed and placed[0].get("message") == why:
                return
            told = condition("PodScheduled", False, "Unschedulable", why, self.objects.wall())
            self.set_status(kinds.PODS, pod, conditions=[told])
            return
        bound = {**pod, "spec": {**pod["spec"], "nodeName": name}}
        reservation = self._reserved(pod)
        if reservation is not None and reservation["status"]["nodeName"] == name:
            allocated = json.dumps({key: reservation["metadata"][key] for key in ("name", "uid")})
            notes = {**(pod["metadata"].get("annotations") or {}), ALLOCATED: allocated}
            bound["metadata"] = {**pod["metadata"], "annotations": notes}
            owner = {key: pod["metadata"][key] for key in ("namespace", "name", "uid")}
            self.set_status(kinds.RESERVATIONS, reservation, phase="Succeeded", currentOwners=[owner])
        bound = self.objects.replace(kinds.PODS, pod, bound)
        told = condition("PodScheduled", True, "", "", self.objects.wall())
        self.set_status(kinds.PODS, bound, conditions=[told])

    def choose(self, pod: Raw) -> tuple[str, str]:
        """The node for it, or why there is none."""
        nodes = self.store.of(kinds.NODES.resource)
        reservation = self._reserved(pod)
        if reservation is not None:
            reserved = nodes.get(("", reservation["status"]["nodeName"]))
            if reserved is not None and not refusal(pod, reserved):
                return str(reserved["metadata"]["name"]), ""
        load: dict[str, int] = {}
        reasons: dict[str, int] = {}
        rules = self._rules(pod)
        for (_where, name), node in nodes.items():
            why = refusal(pod, node) or self._shunned(pod, node, rules)
            if not why:
                here = len(self.index.bound.get(name, {})) + self._reservations_on(name)
                if here >= int((node["status"].get("allocatable") or {}).get("pods", 110)):
                    why = "Too many pods"
                else:
                    load[name] = here
            if why:
                reasons[why] = reasons.get(why, 0) + 1
        if load:
            return min(load, key=lambda name: (load[name], name)), ""
        text = ", ".join(f"{count} {why}" for why, count in sorted(reasons.items()))
        return "", f"0/{len(nodes)} nodes are available: {text}."

    def _rules(self, pod: Raw) -> list[tuple[Raw, Raw, str]]:
        """Which pods in a node's domain are in this one's way: one of each pair, the term of the other, and why not."""
        own = [(pod, term, "node(s) didn't match pod anti-affinity rules") for term in shuns(pod)]
        why = "node(s) didn't satisfy existing pods anti-affinity rules"
        theirs = ((other, term) for other in self.store.of(PODS).values() for term in shuns(other))
        return [*own, *((other, term, why) for other, term in theirs if _meant(term, other, pod))]

    def _shunned(self, pod: Raw, node: Raw, rules: t.Iterable[tuple[Raw, Raw, str]]) -> str:
        """Why pods in the node's domain and this one may not be together, by the required rules of either."""
        for owner, term, why in rules:
            beside = self._beside(node, term["topologyKey"])
            if any(other is owner or (owner is pod and _meant(term, pod, other)) for other in beside):
                return why
        return ""

    def _beside(self, node: Raw, key: str) -> t.Iterator[Raw]:
        """The pods on nodes with the same value of this label."""
        value = (node["metadata"].get("labels") or {}).get(key)
        for (_where, name), other in self.store.of(kinds.NODES.resource).items():
            if value is not None and (other["metadata"].get("labels") or {}).get(key) == value:
                yield from (self.store.of(PODS)[at] for at in self.index.bound.get(name, {}))

    def _waits(self, pod: Raw) -> bool:
        return (
            not pod["spec"].get("nodeName")
            and "deletionTimestamp" not in pod["metadata"]
            and pod["spec"].get("schedulerName", "default-scheduler") in NAMES
            and not pod["spec"].get("schedulingGates")
        )

    def _reserved(self, pod: Raw) -> Raw | None:
        """The Reservation that keeps a place for a pod of this owner."""
        owners = {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()}
        for reservation in self.store.of(kinds.RESERVATIONS.resource).values():
            status = reservation.get("status") or {}
            for owner in reservation["spec"].get("owners") or ():
                if status.get("phase") == "Available" and (owner.get("controller") or {}).get("uid") in owners:
                    return reservation
        return None

    def _reservations_on(self, name: str) -> int:
        return sum(
            (raw.get("status") or {}).get("phase") == "Available" and raw["status"].get("nodeName") == name
            for raw in self.store.of(kinds.RESERVATIONS.resource).values()
        )


class Reservations(Scheduler):
    """Finds Reservations a node, as if they were their pods."""

    name = "reservations"
    watches = (kinds.RESERVATIONS.resource, kinds.NODES.resource, PODS)

    def keys(self, event: Event) -> t.Iterable[Key]:
        if event.resource == kinds.RESERVATIONS.resource:
            return (key_of(event.raw),)
        return [
            key
            for key, raw in self.store.of(kinds.RESERVATIONS.resource).items()
            if (raw.get("status") or {}).get("phase", "Pending") == "Pending"
        ]

    def sync(self, key: Key) -> None:
        raw = self.store.get(kinds.RESERVATIONS.resource, *key)
        if raw is None or raw["status"].get("phase", "Pending") != "Pending":
            return
        name, why = self.choose({"metadata": {}, "spec": raw["spec"]["template"]["spec"]})
        now = self.objects.wall()
        if name:
            told = condition("Scheduled", True, "Scheduled", "", now)
            self.set_status(kinds.RESERVATIONS, raw, phase="Available", nodeName=name, conditions=[told])
        elif not raw["status"]:
            told = condition("Scheduled", False, "Unschedulable", why, now)
            self.set_status(kinds.RESERVATIONS, raw, phase="Pending", conditions=[told])


def shuns(pod: Raw) -> t.Sequence[Raw]:
    """The required terms of its podAntiAffinity."""
    affinity = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    return t.cast("t.Sequence[Raw]", affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ())


def _meant(term: Raw, owner: Raw, pod: Raw) -> bool:
    """Whether the term of the owner, which is about pods of its own namespace, means the pod."""
    same = owner["metadata"].get("namespace") == pod["metadata"].get("namespace")
    finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return same and not finished and selectors.matches(term.get("labelSelector"), pod["metadata"].get("labels") or {})


def _looks(node: Raw) -> tuple[t.Any, ...]:
    """What of a node may let a pod in that found no place before."""
    return node["spec"].get("taints"), node["spec"].get("unschedulable"), node["metadata"].get("labels")


def refusal(pod: Raw, node: Raw) -> str:
    """Why the pod may not be put there, empty when it may."""
    if not selected(pod, node):
        return "node(s) didn't match Pod's node affinity/selector"
    if node["spec"].get("unschedulable") and not _tolerated(pod, UNSCHEDULABLE):
        return "node(s) were unschedulable"
    taint = untolerated(pod, node, ("NoSchedule", "NoExecute"))
    return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}" if taint else ""


def selected(pod: Raw, node: Raw) -> bool:
    """Whether the pod's node selector and its required node affinity choose this node."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    name = {"metadata.name": node["metadata"]["name"]}
    return any(
        selectors.matches({"matchExpressions": term.get("matchExpressions")}, labels)
        and selectors.matches({"matchExpressions": term.get("matchFields")}, name)
        for term in required["nodeSelectorTerms"]
    )


def untolerated(pod: Raw, node: Raw, effects: t.Collection[str]) -> Raw | None:
    """The first taint with one of these effects that the pod does not tolerate."""
    for taint in node["spec"].get("taints") or ():
        if taint["effect"] in effects and not _tolerated(pod, taint):
            return t.cast("Raw", taint)
    return None


def toleration_of(pod: Raw, taint: Raw) -> Raw | None:
    """The first toleration that lets the pod bear the taint."""
    for toleration in pod["spec"].get("tolerations") or ():
        if toleration.get("effect") not in (None, "", taint["effect"]):
            continue
        if toleration.get("key") not in (None, "", taint["key"]):
            continue
        if toleration.get("operator", "Equal") == "Exists" or toleration.get("value", "") == taint.get("value", ""):
            return t.cast("Raw", toleration)
    return None


def _tolerated(pod: Raw, taint: Raw) -> bool:
    return toleration_of(pod, taint) is not None
