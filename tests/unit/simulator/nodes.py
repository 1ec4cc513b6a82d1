# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens on and to nodes: kubelets, the lifecycle controller's taints, eviction by taint, and collection."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import scheduling
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.controllers import (
    PODS,
    Controller,
    condition,
    key_of,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.object_rules import seconds_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Key, Raw

START, READY, STOP, COMPLETE = (f"lab.kubeops.io/{name}" for name in ("start", "ready", "stop", "complete"))
"""Annotations of pods, as in the lab: seconds to start (`5s`, `500ms`), to stop, to complete; `ready: never`.

Of nodes, for all pods that have no such annotation: those of START and READY.
"""
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
SILENT_SECONDS = 40.0
ORPHAN_SECONDS = 40.0


def _owners(raw: Raw) -> list[Raw]:
    return raw["metadata"].get("ownerReferences") or []


class Kubelets(Controller):
    """Starts the pods of living nodes, makes them Ready, ends them.

    `dead` are nodes whose kubelet does nothing, `without_images` those that can pull none.
    """

    name = "kubelets"
    watches = (PODS,)
    start_seconds = 2.0
    stop_seconds = 1.0

    def __init__(self, *args: t.Any) -> None:
        super().__init__(*args)
        self.dead: set[str] = set()
        self.without_images: set[str] = set()
        self._addresses: dict[str, str] = {}
        self._starting: dict[str, float] = {}

    def keys(self, event: Event) -> t.Iterable[Key]:
        return (key_of(event.raw),) if event.what != "DELETED" else ()

    def sync(self, key: Key) -> None:
        pod = self.store.get(PODS, *key)
        if pod is None or not pod["spec"].get("nodeName") or pod["spec"]["nodeName"] in self.dead:
            return
        if ("", pod["spec"]["nodeName"]) not in self.store.of(kinds.NODES.resource):
            return
        if "deletionTimestamp" in pod["metadata"]:
            self._end(key, pod)
        elif pod["status"].get("phase") == "Pending":
            self._start(key, pod)
        elif pod["status"].get("phase") == "Running" and (after := _seconds(pod, COMPLETE)) is not None:
            self._complete(key, pod, after)

    def set_ready(self, key: Key, ready: bool) -> None:
        """Change a running pod's readiness, as a probe would."""
        pod = self.store.of(PODS)[key]
        now = self.objects.wall()
        conditions = [c for c in pod["status"].get("conditions") or () if c["type"] not in ("Ready", "ContainersReady")]
        conditions += [condition(what, ready, "", "", now) for what in ("Ready", "ContainersReady")]
        self.set_status(kinds.PODS, pod, conditions=conditions)

    def _start(self, key: Key, pod: Raw) -> None:
        scheduled = next((c for c in pod["status"].get("conditions") or () if c["type"] == "PodScheduled"), None)
        uid = pod["metadata"]["uid"]
        host = self.store.of(kinds.NODES.resource)["", pod["spec"]["nodeName"]]
        if uid not in self._starting:
            seconds = _seconds(pod if START in (pod["metadata"].get("annotations") or {}) else host, START)
            takes = self.start_seconds if seconds is None else seconds
            self._starting[uid] = self.machine.now + takes
            self.set_status(kinds.PODS, pod, startTime=self.objects.wall(), hostIP="10.0.0.1")
            self.later(key, takes)
            return
        if self.machine.now < self._starting[uid]:
            return
        if pod["spec"]["nodeName"] in self.without_images:
            self._wait_for_images(key, pod)
            return
        del self._starting[uid]
        ready = all((one["metadata"].get("annotations") or {}).get(READY) != "never" for one in (pod, host))
        now = self.objects.wall()
        names = [container.get("name", "c") for container in pod["spec"].get("containers") or ()]
        address = self._addresses.setdefault(
            uid, f"10.1.{len(self._addresses) // 250}.{len(self._addresses) % 250 + 1}"
        )
        self.set_status(
            kinds.PODS,
            pod,
            phase="Running",
            podIP=address,
            podIPs=[{"ip": address}],
            conditions=[
                *([scheduled] if scheduled else []),
                condition("Initialized", True, "", "", now),
                condition("Ready", ready, "", "", now),
                condition("ContainersReady", ready, "", "", now),
            ],
            containerStatuses=[
                {
                    "name": name,
                    "ready": ready,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now}},
                }
                for name in names
            ],
        )
        if words := self.server.program.start(pod):
            self.crash(key, words)

    def _wait_for_images(self, key: Key, pod: Raw) -> None:
        """Tried every ten seconds, as kubelets do at first; in between they say that they wait."""
        waited = [one["state"]["waiting"]["reason"] for one in pod["status"].get("containerStatuses") or ()]
        failed = not waited or waited[0] != "ErrImagePull"
        images = [container.get("image", "") for container in pod["spec"].get("containers") or ()]
        pull = f'failed to pull and unpack image "{images[0]}": dial tcp: lookup registry.example: no such host'
        states = [
            {
                "name": container.get("name", "c"),
                "ready": False,
                "started": False,
                "restartCount": 0,
                "lastState": {},
                "state": {
                    "waiting": {
                        "reason": "ErrImagePull" if failed else "ImagePullBackOff",
                        "message": pull if failed else f'Back-off pulling image "{images[0]}": ErrImagePull: {pull}',
                    }
                },
            }
            for container in pod["spec"].get("containers") or ()
        ]
        self.set_status(kinds.PODS, pod, containerStatuses=states)
        pause = 1.0 if failed else 10.0
        self._starting[pod["metadata"]["uid"]] = self.machine.now + pause
        self.later(key, pause)

    def crash(self, key: Key, words: str) -> None:
        """The containers of a running pod end with these words, whenever they are started again."""
        if key not in self.store.of(PODS):
            return
        self.set_ready(key, False)
        pod, now = self.store.of(PODS)[key], self.objects.wall()
        ended = {"exitCode": 1, "reason": "Error", "message": words, "startedAt": now, "finishedAt": now}
        loop = {"waiting": {"reason": "CrashLoopBackOff"}}
        states = [
            {**container, "ready": False, "started": False, "restartCount": container["restartCount"] + 3}
            | {"state": loop, "lastState": {"terminated": ended}}
            for container in pod["status"]["containerStatuses"]
        ]
        self.set_status(kinds.PODS, pod, containerStatuses=states)

    def _end(self, key: Key, pod: Raw) -> None:
        meta = pod["metadata"]
        grace = meta.get("deletionGracePeriodSeconds", 0)
        wanted = _seconds(pod, STOP)
        takes = min(self.stop_seconds if wanted is None else wanted, grace)
        left = seconds_of(meta["deletionTimestamp"]) - grace + takes - self.objects.time()
        if left > 0:
            self.later(key, left)
            return
        if meta.get("finalizers"):
            if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                self.set_status(kinds.PODS, pod, phase="Failed", conditions=[])
            pod = self.store.of(PODS)[key]
            if grace:
                self.objects.delete(kinds.PODS, meta["name"], meta["namespace"], {"gracePeriodSeconds": 0})
            return
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        self.objects.delete(kinds.PODS, meta["name"], meta["namespace"], options)

    def _complete(self, key: Key, pod: Raw, after: float) -> None:
        left = seconds_of(pod["status"]["startTime"]) + after - self.objects.time()
        if left > 0:
            self.later(key, left)
            return
        self.set_status(kinds.PODS, pod, phase="Succeeded", conditions=[])


def _seconds(pod: Raw, annotation: str) -> float | None:
    text = (pod["metadata"].get("annotations") or {}).get(annotation)
    if text is None or text == "never":
        return None
    return float(text[:-2]) / 1000 if text.endswith("ms") else float(text.removesuffix("s"))


class Lifecycle(Controller):
    """The unschedulable taint follows the cordon; the not-ready and unreachable taints follow the Ready condition."""

    name = "lifecycle"
    watches = (kinds.NODES.resource,)

    def sync(self, key: Key) -> None:
        node = self.store.get(kinds.NODES.resource, *key)
        if node is None:
            return
        ready = next((c["status"] for c in node["status"].get("conditions") or () if c["type"] == "Ready"), "Unknown")
        wanted = [scheduling.UNSCHEDULABLE] if node["spec"].get("unschedulable") else []
        if ready != "True":
            name = NOT_READY if ready == "False" else UNREACHABLE
            wanted += [{"key": name, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        keys = {scheduling.UNSCHEDULABLE["key"], NOT_READY, UNREACHABLE}
        taints = node["spec"].get("taints") or []
        kept = [x for x in taints if x["key"] not in keys or {"key": x["key"], "effect": x["effect"]} in wanted]
        there = [{"key": x["key"], "effect": x["effect"]} for x in kept]
        kept = kept + [{**x, "timeAdded": self.objects.wall()} for x in wanted if x not in there]
        if kept != taints:
            self.objects.patch(kinds.NODES, key[1], {"spec": {"taints": kept or None}})


class TaintEvictions(Controller):
    """NoExecute taints delete the pods that do not tolerate them, or not for longer."""

    name = "tainteviction"
    watches = (kinds.NODES.resource, PODS)

    def __init__(self, *args: t.Any) -> None:
        super().__init__(*args)
        self._due: dict[str, float] = {}

    def keys(self, event: Event) -> t.Iterable[Key]:
        if event.what == "DELETED":
            return ()
        if event.resource == PODS:
            name = event.raw["spec"].get("nodeName")
            bound = name and (event.before is None or not event.before["spec"].get("nodeName"))
            return (key_of(event.raw),) if bound else ()
        if event.before is not None and event.before["spec"].get("taints") == event.raw["spec"].get("taints"):
            return ()
        return list(self.index.bound.get(event.raw["metadata"]["name"], {}))

    def sync(self, key: Key) -> None:
        pod = self.store.get(PODS, *key)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        node = self.store.get(kinds.NODES.resource, "", pod["spec"].get("nodeName", ""))
        taints = [x for x in (node or {"spec": {}})["spec"].get("taints") or () if x["effect"] == "NoExecute"]
        uid = pod["metadata"]["uid"]
        if not taints:
            self._due.pop(uid, None)
            return
        borne = [scheduling.toleration_of(pod, taint) for taint in taints]
        if all(found is not None for found in borne):
            limits = [found["tolerationSeconds"] for found in borne if found and "tolerationSeconds" in found]
            if not limits:
                return
            due = self._due.setdefault(uid, self.machine.now + min(limits))
            if self.machine.now < due:
                self.later(key, due - self.machine.now)
                return
        self._due.pop(uid, None)
        self.objects.delete(kinds.PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])


class Collector(Controller):
    """Deletes what has lost its owners, what is in namespaces that end, and the pods of nodes that are gone."""

    name = "collector"
    watches = (*(kind.resource for kind in kinds.KINDS.values()),)

    def keys(self, event: Event) -> t.Iterable[Key]:
        if event.resource == kinds.NAMESPACES.resource and event.what != "DELETED":
            return (("namespace", event.raw["metadata"]["name"]),)
        if event.resource == kinds.NODES.resource and event.what == "DELETED":
            for key in self.index.bound.get(event.raw["metadata"]["name"], {}):
                self.later(key, ORPHAN_SECONDS)
        if event.what == "DELETED":
            keys = [("uid", event.raw["metadata"]["uid"])]
            namespace = self.store.get(kinds.NAMESPACES.resource, "", event.raw["metadata"].get("namespace") or "")
            if namespace is not None and "deletionTimestamp" in namespace["metadata"]:
                keys.append(("namespace", namespace["metadata"]["name"]))
            return [key for key in keys if key[0] != "uid" or self.index.owned.get(key[1])]
        if event.what == "ADDED":
            # After its own start, what belongs to it may have gone before.
            if event.resource == PODS and event.raw["spec"].get("nodeName") and not self._on_a_node(event.raw):
                self.later(key_of(event.raw), ORPHAN_SECONDS)
            return [("uid", owner["uid"]) for owner in _owners(event.raw) if not self._lives(event.raw, owner)]
        return ()

    def sync(self, key: Key) -> None:
        what, name = key
        if what == "uid":
            for resource, where in list(self.index.owned.get(name, {})):
                raw = self.store.get(resource, *where)
                if raw is not None and not any(self._lives(raw, owner) for owner in _owners(raw)):
                    self._delete(resource, where)
        elif what == "namespace":
            self._empty(name)
        else:
            self._bury(key)

    def _lives(self, raw: Raw, owner: Raw) -> bool:
        """Whether an owner of the object is there; one of a kind that is not served is taken for alive."""
        kind = kinds.KINDS.get((owner["apiVersion"], owner["kind"]))
        if kind is None:
            return True
        namespace = raw["metadata"].get("namespace") or "" if kind.namespaced else ""
        found = self.store.get(kind.resource, namespace, owner["name"])
        return found is not None and found["metadata"]["uid"] == owner["uid"]

    def _bury(self, key: Key) -> None:
        """A pod of a node that is gone."""
        pod = self.store.get(PODS, *key)
        if pod is not None and not self._on_a_node(pod):
            self.objects.delete(kinds.PODS, key[1], key[0], {"gracePeriodSeconds": 0})

    def _on_a_node(self, pod: Raw) -> bool:
        return ("", pod["spec"].get("nodeName", "")) in self.store.of(kinds.NODES.resource)

    def _delete(self, resource: str, where: Key) -> None:
        kind = next(kind for kind in kinds.KINDS.values() if kind.resource == resource)
        if self.store.get(resource, *where) is not None:
            self.objects.delete(kind, where[1], where[0])

    def _empty(self, name: str) -> None:
        namespace = self.store.get(kinds.NAMESPACES.resource, "", name)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return
        left = [
            (resource, key) for resource, objects in self.store.objects.items() for key in objects if key[0] == name
        ]
        for resource, key in left:
            if "deletionTimestamp" not in self.store.of(resource)[key]["metadata"]:
                self._delete(resource, key)
        if not any(key[0] == name for objects in self.store.objects.values() for key in objects):
            self.store.remove(kinds.NAMESPACES.resource, namespace)
