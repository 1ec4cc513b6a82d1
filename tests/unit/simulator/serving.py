# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts pods: EndpointSlices, PodDisruptionBudgets and HorizontalPodAutoscalers."""

from __future__ import annotations

import math
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.controllers import (
    PODS,
    Controller,
    condition,
    is_active,
    key_of,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.evictions import is_ready
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.object_rules import seconds_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Key, Raw

DISRUPTED_SECONDS = 120.0
LOAD = "simulator/load"
"""On an HPA: how many pods the load asks for. Without it there are no metrics, and only the bounds count."""
_BY_KIND = {
    kind.kind: kind
    for kind in (kinds.DEPLOYMENTS, kinds.REPLICA_SETS, kinds.STATEFUL_SETS, kinds.CLONE_SETS, kinds.ROLLOUTS)
}


class EndpointSlices(Controller):
    """One slice for each Service with a selector."""

    name = "endpoints"
    watches = (kinds.SERVICES.resource, PODS)

    def keys(self, event: Event) -> t.Iterable[Key]:
        if event.resource == PODS:
            return _selecting(
                self, kinds.SERVICES.resource, event, lambda raw: {"matchLabels": raw["spec"].get("selector")}
            )
        return (key_of(event.raw),)

    def sync(self, key: Key) -> None:
        namespace, name = key
        service = self.store.get(kinds.SERVICES.resource, *key)
        slice_ = self.store.get(kinds.ENDPOINT_SLICES.resource, namespace, f"{name}-slice")
        if service is None or not service["spec"].get("selector"):
            if slice_ is not None:
                self.objects.delete(kinds.ENDPOINT_SLICES, f"{name}-slice", namespace)
            return
        wanted = {"matchLabels": service["spec"]["selector"]}
        endpoints = [
            _endpoint(pod)
            for pod in self.pods_in(namespace)
            if pod["status"].get("podIP")
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
            and selectors.matches(wanted, pod["metadata"].get("labels") or {})
        ]
        if slice_ is not None:
            self.objects.patch(kinds.ENDPOINT_SLICES, f"{name}-slice", {"endpoints": endpoints}, namespace)
            return
        labels = {
            "kubernetes.io/service-name": name,
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }
        meta = {"name": f"{name}-slice", "labels": labels}
        body = {"metadata": meta, "addressType": "IPv4", "endpoints": endpoints, "ports": service["spec"].get("ports")}
        self.objects.create(kinds.ENDPOINT_SLICES, body, namespace)


def _endpoint(pod: Raw) -> Raw:
    meta, ending = pod["metadata"], "deletionTimestamp" in pod["metadata"]
    serving = is_ready(pod)
    return {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {"ready": serving and not ending, "serving": serving, "terminating": ending},
        "nodeName": pod["spec"]["nodeName"],
        "targetRef": {"kind": "Pod", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]},
    }


def _selecting(
    controller: Controller, resource: str, event: Event, selector: t.Callable[[Raw], Raw | None]
) -> t.Iterator[Key]:
    """The objects of a resource that select the pod as it is or as it was."""
    namespace = event.raw["metadata"].get("namespace")
    states = [raw["metadata"].get("labels") or {} for raw in (event.raw, event.before) if raw is not None]
    if len(states) == 2 and states[0] == states[1]:
        states.pop()
    for key, raw in controller.store.of(resource).items():
        if key[0] == namespace and any(selectors.matches(selector(raw), labels) for labels in states):
            yield key


class _NotSyncedError(Exception):
    """How many pods a budget covers cannot be computed."""


class Budgets(Controller):
    """The status of PodDisruptionBudgets, counted when a pod or the budget changes; not for a new count of replicas.

    Upstream, a change of a pod with several budgets is news for one of them at random; here for all.
    """

    name = "budgets"
    watches = (kinds.BUDGETS.resource, PODS)

    def keys(self, event: Event) -> t.Iterable[Key]:
        if event.resource == PODS:
            return _selecting(self, kinds.BUDGETS.resource, event, lambda raw: raw["spec"].get("selector"))
        return (key_of(event.raw),)

    def sync(self, key: Key) -> None:
        budget = self.store.get(kinds.BUDGETS.resource, *key)
        if budget is None or "deletionTimestamp" in budget["metadata"]:
            return
        chosen = budget["spec"].get("selector")
        pods = [p for p in self.pods_in(key[0]) if selectors.matches(chosen, p["metadata"].get("labels") or {})]
        generation = budget["metadata"]["generation"]
        try:
            expected, desired = self._counts(budget, pods)
        except _NotSyncedError as error:
            # As upstream: no other field changes, so that one that never was synced has no observedGeneration.
            told = condition("DisruptionAllowed", False, "SyncFailed", str(error), self.objects.wall())
            self._write(budget, conditions=[told], disruptionsAllowed=0)
            return
        disrupted = self._disrupted(budget, pods, key)
        healthy = len(
            [
                pod
                for pod in pods
                if "deletionTimestamp" not in pod["metadata"]
                and pod["metadata"]["name"] not in disrupted
                and is_ready(pod)
            ]
        )
        allowed = max(healthy - desired, 0) if expected > 0 else 0
        reason = "SufficientPods" if allowed else "InsufficientPods"
        self._write(
            budget,
            currentHealthy=healthy,
            desiredHealthy=desired,
            expectedPods=expected,
            disruptionsAllowed=allowed,
            disruptedPods=disrupted or None,
            observedGeneration=generation,
            conditions=[condition("DisruptionAllowed", bool(allowed), reason, "", self.objects.wall())],
        )

    def _write(self, budget: Raw, **status: t.Any) -> None:
        told, observed = status["conditions"][0], (budget.get("status") or {}).get("observedGeneration")
        if generation := status.get("observedGeneration", observed):
            told["observedGeneration"] = generation
        for was in (budget.get("status") or {}).get("conditions") or ():
            if was["status"] == told["status"]:
                told["lastTransitionTime"] = was["lastTransitionTime"]
        self.set_status(kinds.BUDGETS, budget, **status)

    def _counts(self, budget: Raw, pods: list[Raw]) -> tuple[int, int]:
        """Expected pods, and how many of them are to be healthy."""
        spec = budget["spec"]
        if "maxUnavailable" in spec:
            expected = self._expected(pods)
            return expected, max(expected - _share(spec["maxUnavailable"], expected), 0)
        if "minAvailable" not in spec:
            return 0, 0
        least = spec["minAvailable"]
        if isinstance(least, int):
            return len(pods), least
        expected = self._expected(pods)
        return expected, _share(least, expected)

    def _expected(self, pods: list[Raw]) -> int:
        counts: dict[str, int] = {}
        for pod in pods:
            owner = next((o for o in pod["metadata"].get("ownerReferences") or () if o.get("controller")), None)
            if owner is None or owner["uid"] in counts:
                continue
            if owner["kind"] not in _BY_KIND:
                group, named = owner["apiVersion"].rpartition("/")[0], f"{owner['kind'].lower()}s"
                raise _NotSyncedError(f"{named}.{group} does not implement the scale subresource")
            raw = self.store.get(_BY_KIND[owner["kind"]].resource, pod["metadata"]["namespace"], owner["name"])
            if raw is None or raw["metadata"]["uid"] != owner["uid"]:
                raise _NotSyncedError(f'found no controllers for pod "{pod["metadata"]["name"]}"')
            top = self._top(raw)
            counts[top["metadata"]["uid"]] = top["spec"].get("replicas", 1)
        return sum(counts.values())

    def _top(self, raw: Raw) -> Raw:
        """A ReplicaSet counts for the Deployment that owns it."""
        for owner in raw["metadata"].get("ownerReferences") or ():
            if owner["kind"] in _BY_KIND:
                found = self.store.get(_BY_KIND[owner["kind"]].resource, raw["metadata"]["namespace"], owner["name"])
                if found is not None:
                    return found
        return raw

    def _disrupted(self, budget: Raw, pods: list[Raw], key: Key) -> dict[str, str]:
        """Evictions that have been allowed and are not seen as deletions yet."""
        here = {pod["metadata"]["name"]: pod for pod in pods}
        kept = {}
        for name, since in ((budget.get("status") or {}).get("disruptedPods") or {}).items():
            left = seconds_of(since) + DISRUPTED_SECONDS - self.objects.time()
            if name in here and "deletionTimestamp" not in here[name]["metadata"] and left > 0:
                kept[name] = since
                self.later(key, left)
        return kept


def _share(amount: int | str, of: int) -> int:
    if isinstance(amount, str) and amount.endswith("%"):
        return math.ceil(int(amount[:-1]) * of / 100)
    return int(amount)


class Autoscalers(Controller):
    """HPAs: look every `period` seconds; down only as far as the highest wish of the last `window` seconds."""

    name = "autoscalers"
    watches = (kinds.HPAS.resource,)
    period = 15.0
    window = 300.0

    def __init__(self, *args: t.Any) -> None:
        super().__init__(*args)
        self._wishes: dict[Key, list[tuple[float, int]]] = {}

    def keys(self, event: Event) -> t.Iterable[Key]:
        if event.what == "DELETED":
            self._wishes.pop(key_of(event.raw), None)
            return ()
        # A change of the spec is seen at the next look, as upstream: the queue is rate-limited to the period.
        return (key_of(event.raw),) if event.before is None else ()

    def sync(self, key: Key) -> None:
        hpa = self.store.get(kinds.HPAS.resource, *key)
        if hpa is None:
            return
        self.later(key, self.period)
        reference = hpa["spec"]["scaleTargetRef"]
        kind = _BY_KIND.get(reference["kind"])
        target = self.store.get(kind.resource, key[0], reference["name"]) if kind else None
        if kind is None or target is None:
            return
        current, least, most = target["spec"]["replicas"], hpa["spec"].get("minReplicas", 1), hpa["spec"]["maxReplicas"]
        load = (hpa["metadata"].get("annotations") or {}).get(LOAD)
        if current == 0 and least != 0:
            return
        if current > most:
            wanted = most
        elif current < least:
            wanted = least
        elif load is None:
            return
        else:
            wanted = min(max(self._steady(key, int(load), current), least), most)
        if wanted != current:
            self.objects.patch(kind, reference["name"], {"spec": {"replicas": wanted}}, key[0], "scale")
        since = {"lastScaleTime": self.objects.wall()} if wanted != current else {}
        self.set_status(kinds.HPAS, hpa, currentReplicas=current, desiredReplicas=wanted, **since)

    def _steady(self, key: Key, load: int, current: int) -> int:
        now = self.machine.now
        wishes = self._wishes.setdefault(key, [(now, current)])
        wishes[:] = [(at, count) for at, count in wishes if now - at <= self.window] + [(now, load)]
        return max(count for _at, count in wishes)


def running(pods: t.Iterable[Raw]) -> list[Raw]:
    """Those that serve now."""
    return [pod for pod in pods if is_active(pod) and is_ready(pod)]
