# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Logs made by hand: a story of object states, told in the order in which they happened."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any

from witness.log import Event, Json, Log, log_of

NS = "shop"


def meta(name: str, uid: str = "", **more: Any) -> Json:
    return {"name": name, "namespace": NS, "uid": uid or f"uid-{name}", **more}


def deployment(name: str = "web", replicas: int = 1, notes: dict[str, str] | None = None) -> Json:
    labels = {"app": name}
    return {
        "metadata": meta(name, annotations=notes) if notes else meta(name),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}},
        },
    }


def replica_set(of: str = "web", replicas: int = 1) -> Json:
    labels = {"app": of}
    owner = {"kind": "Deployment", "name": of, "controller": True}
    return {
        "metadata": meta(f"{of}-rs", ownerReferences=[owner]),
        "spec": {"replicas": replicas, "template": {"metadata": {"labels": labels}}},
    }


def pod(
    name: str,
    of: str = "web",
    node: str = "n1",
    ready: bool = True,
    ending: bool = False,
    uid: str = "",
    owner: tuple[str, str] | None = None,
    **more: Any,
) -> Json:
    kind, owned_by = owner or ("ReplicaSet", f"{of}-rs")
    made = meta(
        name,
        uid,
        labels={"app": of},
        ownerReferences=[{"kind": kind, "name": owned_by, "controller": True}],
        annotations=more.pop("annotations", {}),
    )
    if ending:
        made["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status = {"phase": more.pop("phase", "Running"), "conditions": [condition]}
    return {"metadata": made, "spec": {"nodeName": node, **more}, "status": status}


def service(name: str = "web") -> Json:
    return {"metadata": meta(name), "spec": {"selector": {"app": name}}}


def endpoints(*ready: str, of: str = "web", not_ready: Iterable[str] = ()) -> Json:
    known = {**dict.fromkeys(ready, True), **dict.fromkeys(not_ready, False)}
    return {
        "metadata": meta(f"{of}-slice", labels={"kubernetes.io/service-name": of}),
        "endpoints": [
            {"conditions": {"ready": is_ready}, "targetRef": {"uid": f"uid-{name}"}} for name, is_ready in known.items()
        ],
    }


def budget(name: str = "web", **spec: Any) -> Json:
    chosen = {"selector": {"matchLabels": {"app": "web"}}, **spec}
    return {"metadata": meta(name), "spec": chosen}


def node(name: str = "n1", step: str = "", **spec: Any) -> Json:
    notes = {"maintenance.kubeops.io/record": json.dumps({"step": step})} if step else {}
    made: Json = {"name": name, "uid": f"uid-{name}", "annotations": notes}
    return {"metadata": made, "spec": spec}


class Story:
    """`before` sets the scene; `at(second)` tells what changed; `end()` gives the log."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._rv = 1
        self._world: dict[tuple[str, str], Json] = {}

    def _tell(self, kind: str, what: str, second: float, obj: Json) -> None:
        self._events.append(Event(kind, what, self._rv, 100.0 + second, 5000.0 + second, copy.deepcopy(obj)))

    def before(self, **objects: Json | list[Json]) -> Story:
        for kind, given in objects.items():
            for obj in given if isinstance(given, list) else [given]:
                self._world[kind, obj["metadata"]["name"]] = obj
                self._tell(kind, "BEFORE", -0.01, obj)
        self._tell("", "READY", 0.0, {})
        return self

    def at(self, second: float, **objects: Json | list[Json]) -> Story:
        for kind, given in objects.items():
            for obj in given if isinstance(given, list) else [given]:
                self._rv += 1
                key = (kind, obj["metadata"]["name"])
                what = "MODIFIED" if key in self._world else "ADDED"
                self._world[key] = obj
                self._tell(kind, what, second, obj)
        return self

    def gone(self, second: float, kind: str, name: str) -> Story:
        self._rv += 1
        self._tell(kind, "DELETED", second, self._world.pop((kind, name)))
        return self

    def end(self, second: float = 60.0) -> Log:
        self._rv += 1
        for (kind, _unused), obj in self._world.items():
            self._tell(kind, "AFTER", second, obj)
        self._tell("", "END", second, {})
        return log_of(self._events)
