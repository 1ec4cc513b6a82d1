# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""StatefulSets, DaemonSets and Jobs."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import scheduling
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.answers import Refused
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.controllers import (
    PODS,
    Controller,
    is_active,
    key_of,
    owner_reference,
    pod_from,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.evictions import is_ready
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Key, Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.workloads import AGAIN


class StatefulSets(Controller):
    """Pods by number; one after another, unless `podManagementPolicy` is Parallel."""

    name = "statefulsets"
    watches = (kinds.STATEFUL_SETS.resource, PODS)

    def keys(self, event: Event) -> t.Iterable[Key]:
        if event.resource == PODS:
            return self.controller_key(event.raw, "StatefulSet")
        return (key_of(event.raw),)

    def sync(self, key: Key) -> None:
        top = self.store.get(kinds.STATEFUL_SETS.resource, *key)
        if top is None or "deletionTimestamp" in top["metadata"]:
            return
        self._act(top)
        pods = [pod for pod in self.pods_of(top) if is_active(pod)]
        ready = len([pod for pod in pods if is_ready(pod)])
        self.set_status(
            kinds.STATEFUL_SETS,
            self.store.of(kinds.STATEFUL_SETS.resource)[key],
            observedGeneration=top["metadata"]["generation"],
            replicas=len(self.pods_of(top)),
            readyReplicas=ready,
            availableReplicas=ready,
            currentReplicas=len(pods),
            updatedReplicas=len(pods),
        )

    def _act(self, top: Raw) -> None:
        meta, wanted = top["metadata"], top["spec"]["replicas"]
        at_once = top["spec"].get("podManagementPolicy") == "Parallel"
        by_number = {int(pod["metadata"]["name"].rpartition("-")[2]): pod for pod in self.pods_of(top)}
        for number in range(wanted):
            pod = by_number.get(number)
            if pod is not None and pod["status"].get("phase") in ("Succeeded", "Failed"):
                self.objects.delete(kinds.PODS, pod["metadata"]["name"], meta["namespace"])
                pod = None
            if pod is None:
                body = pod_from(
                    top["spec"]["template"], owner_reference(kinds.STATEFUL_SETS, top), f"{meta['name']}-{number}"
                )
                labels = {
                    **(body["metadata"].get("labels") or {}),
                    "statefulset.kubernetes.io/pod-name": f"{meta['name']}-{number}",
                    "apps.kubernetes.io/pod-index": str(number),
                }
                body["metadata"]["labels"] = labels
                try:
                    self.objects.create(kinds.PODS, body, meta["namespace"])
                except Refused as refusal:
                    # Such a controller says it nowhere else.
                    self._record(top, f"create Pod {body['metadata']['name']} failed error: {refusal}")
                    self.later(key_of(top), AGAIN)
                    return
                if not at_once:
                    return
            elif not at_once and (not is_ready(pod) or not is_active(pod)):
                return
        for number in sorted((n for n in by_number if n >= wanted), reverse=True):
            pod = by_number[number]
            if is_active(pod):
                self.objects.delete(kinds.PODS, pod["metadata"]["name"], meta["namespace"])
            if not at_once:
                return

    def _record(self, top: Raw, message: str) -> None:
        meta = top["metadata"]
        about = {"kind": "StatefulSet", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
        name, seen = f"{meta['name']}.failed", {"message": message, "lastTimestamp": self.objects.wall()}
        if self.store.get(kinds.EVENTS.resource, meta["namespace"], name):
            self.objects.patch(kinds.EVENTS, name, seen, meta["namespace"])
            return
        body = {"metadata": {"name": name}, "involvedObject": about, "type": "Warning", "reason": "FailedCreate"}
        self.objects.create(kinds.EVENTS, {**body, **seen}, meta["namespace"])


class DaemonSets(Controller):
    """A pod on every node that it may run on; the scheduler binds it there."""

    name = "daemonsets"
    watches = (kinds.DAEMON_SETS.resource, PODS, kinds.NODES.resource)

    def keys(self, event: Event) -> t.Iterable[Key]:
        if event.resource == PODS:
            wanted = self.selecting(kinds.DAEMON_SETS, event.raw) if event.what != "DELETED" else ()
            return dict.fromkeys((*self.controller_key(event.raw, "DaemonSet"), *wanted))
        if event.resource == kinds.DAEMON_SETS.resource:
            return (key_of(event.raw),)
        if event.before is not None and _place(event.before) == _place(event.raw):
            return ()
        return list(self.store.of(kinds.DAEMON_SETS.resource))

    def sync(self, key: Key) -> None:
        top = self.store.get(kinds.DAEMON_SETS.resource, *key)
        if top is None or "deletionTimestamp" in top["metadata"]:
            return
        nodes = self.store.of(kinds.NODES.resource)
        here: dict[str, list[Raw]] = {}
        for pod in self.claimed(kinds.DAEMON_SETS, top):
            here.setdefault(_target(pod), []).append(pod)
        template = top["spec"]["template"]
        probe = {"metadata": template.get("metadata") or {}, "spec": _tolerant(template.get("spec") or {})}
        should, ready, current = 0, 0, 0
        for (_where, name), node in nodes.items():
            fits = scheduling.selected(probe, node)
            runs = fits and not scheduling.untolerated(probe, node, ("NoSchedule", "NoExecute"))
            stays = fits and not scheduling.untolerated(probe, node, ("NoExecute",))
            pods = here.pop(name, [])
            should += runs
            active = [pod for pod in pods if is_active(pod)]
            for pod in pods:
                if is_active(pod) and stays and pod is active[0]:
                    continue
                if "deletionTimestamp" not in pod["metadata"]:
                    self.objects.delete(kinds.PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
            if runs and not pods:
                active = [self._create(top, probe["spec"], name)]
            current += bool(active)
            ready += any(map(is_ready, active))
        self.set_status(
            kinds.DAEMON_SETS,
            self.store.of(kinds.DAEMON_SETS.resource)[key],
            observedGeneration=top["metadata"]["generation"],
            desiredNumberScheduled=should,
            currentNumberScheduled=current,
            updatedNumberScheduled=current,
            numberReady=ready,
            numberAvailable=ready,
            numberMisscheduled=0,
        )

    def _create(self, top: Raw, spec: Raw, node: str) -> Raw:
        body = pod_from(top["spec"]["template"], owner_reference(kinds.DAEMON_SETS, top), f"{top['metadata']['name']}-")
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        body["spec"] = {**spec, "affinity": affinity}
        return self.objects.create(kinds.PODS, body, top["metadata"]["namespace"])


def _place(node: Raw) -> tuple[t.Any, ...]:
    """What of a node decides whether a DaemonSet runs there."""
    return node["spec"].get("taints"), node["spec"].get("unschedulable"), node["metadata"].get("labels")


def _target(pod: Raw) -> str:
    """The node a DaemonSet's pod was made for; one that it adopted was placed before."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def _tolerant(spec: Raw) -> Raw:
    """With the tolerations that the DaemonSet controller adds."""
    added = [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}
        for name, effect in (
            ("not-ready", "NoExecute"),
            ("unreachable", "NoExecute"),
            ("disk-pressure", "NoSchedule"),
            ("memory-pressure", "NoSchedule"),
            ("pid-pressure", "NoSchedule"),
            ("unschedulable", "NoSchedule"),
        )
    ]
    return {**spec, "tolerations": [*(spec.get("tolerations") or ()), *added]}


class Jobs(Controller):
    """Up to `parallelism` pods until `completions` have succeeded or `backoffLimit` is exceeded."""

    name = "jobs"
    watches = (kinds.JOBS.resource, PODS)

    def keys(self, event: Event) -> t.Iterable[Key]:
        if event.resource == PODS:
            return self.controller_key(event.raw, "Job")
        return (key_of(event.raw),)

    def sync(self, key: Key) -> None:
        job = self.store.get(kinds.JOBS.resource, *key)
        if job is None or "deletionTimestamp" in job["metadata"] or job["status"].get("conditions"):
            return
        spec, pods = job["spec"], self.pods_of(job)
        succeeded = len([pod for pod in pods if pod["status"].get("phase") == "Succeeded"])
        failed = len([pod for pod in pods if pod["status"].get("phase") == "Failed"])
        active = [pod for pod in pods if is_active(pod)]
        wanted = spec.get("completions", 1)
        conditions = None
        if succeeded >= wanted or failed > spec.get("backoffLimit", 6):
            what = "Complete" if succeeded >= wanted else "Failed"
            conditions = [{"type": what, "status": "True", "lastTransitionTime": self.objects.wall()}]
        else:
            owner = owner_reference(kinds.JOBS, job)
            for _one in range(min(spec.get("parallelism", 1), wanted - succeeded) - len(active)):
                body = pod_from(spec["template"], owner, f"{job['metadata']['name']}-")
                active.append(self.objects.create(kinds.PODS, body, job["metadata"]["namespace"]))
        ready = len([pod for pod in active if is_ready(pod)])
        self.set_status(
            kinds.JOBS,
            job,
            active=len(active) if conditions is None else None,
            ready=ready,
            succeeded=succeeded or None,
            failed=failed or None,
            conditions=conditions,
        )
