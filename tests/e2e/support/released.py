# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The patches by which a pod is let go by its ReplicaSet, leaves its Services and is given back; and hostile ones."""

from __future__ import annotations

import copy
import json
from typing import Any

from witness.log import Json

HASH, RELEASED = "pod-template-hash", "maintenance.kubeops.io/released"
UNSERVED, SINCE = "maintenance.kubeops.io/out-of-services", "2026-11-21T05:31:00.000Z"
OTHER = "00000000-0000-0000-0000-000000000000"


def text(**mark: Any) -> str:
    """An annotation as the collection writes it."""
    return json.dumps({**mark, "v": 1}, sort_keys=True, separators=(",", ":"))


def mark_of(pod: Json, deployment: Json) -> dict[str, Any]:
    """What the annotation says."""
    meta = pod["metadata"]
    (owner,) = (one for one in meta["ownerReferences"] if one.get("controller"))
    return {
        "run": "r1",
        "nonce": "n1",
        "node": pod["spec"]["nodeName"],
        "since": "2026-11-21T05:30:00Z",
        "deployment": deployment["metadata"]["uid"],
        "name": deployment["metadata"]["name"],
        "replica_set": owner["uid"],
        "hash": meta["labels"][HASH],
    }


def letting_go(pod: Json, deployment: Json) -> Json:
    """What takes the label off."""
    mark = mark_of(pod, deployment)
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": mark["name"], "uid": mark["deployment"]}
    owners = [*pod["metadata"]["ownerReferences"], {**owner, "controller": False, "blockOwnerDeletion": False}]
    labels = {HASH: None, RELEASED: mark["run"]}
    return {"metadata": {"labels": labels, "annotations": {RELEASED: text(**mark)}, "ownerReferences": owners}}


def leaving(label: str = "app=web", said: str = "") -> Json:
    """What takes a pod that was let go out of its Services."""
    labels = {label.partition("=")[0]: None}
    return {"metadata": {"labels": labels, "annotations": {UNSERVED: said or f"{SINCE},{label}"}}}


def coming_back() -> Json:
    """What puts it back into them."""
    return {"metadata": {"labels": {"app": "web"}, "annotations": {UNSERVED: None}}}


def giving_back(pod: Json) -> Json:
    """What puts it back, of a pod that was let go."""
    mark = json.loads(pod["metadata"]["annotations"][RELEASED])
    owners = [one for one in pod["metadata"].get("ownerReferences") or () if one["uid"] != mark["deployment"]]
    _since, *taken = pod["metadata"]["annotations"].get(UNSERVED, "").split(",")
    labels = {HASH: mark["hash"], RELEASED: None, **dict(one.split("=") for one in taken)}
    notes = {RELEASED: None, UNSERVED: None}
    return {"metadata": {"labels": labels, "annotations": notes, "ownerReferences": owners or None}}


def _with(body: Json, **parts: Any) -> Json:
    """The patch with other entries in maps of its metadata, or another ``spec``."""
    found: Json = copy.deepcopy(body)
    for name, value in parts.items():
        if name == "spec":
            found["spec"] = value
        elif isinstance(value, dict):
            found["metadata"][name] = {**(found["metadata"].get(name) or {}), **value}
        else:
            found["metadata"][name] = value
    return found


def hostile(pod: Json, deployment: Json) -> dict[str, Json]:
    """Patches of a pod that its ReplicaSet owns, by what is wrong with them."""
    good, mark = letting_go(pod, deployment), mark_of(pod, deployment)
    meta, image = pod["metadata"], [{**pod["spec"]["containers"][0], "image": "acme.io/thief"}]
    *owners, own = good["metadata"]["ownerReferences"]

    def said(**other: Any) -> Json:
        return _with(good, annotations={RELEASED: text(**{**mark, **other})})

    def owned(**other: Any) -> Json:
        return _with(good, ownerReferences=[*owners, {**own, **other}])

    def lacking(part: str) -> Json:
        found: Json = copy.deepcopy(good)
        del found["metadata"][part]
        return found

    return {
        "with another image": _with(good, spec={"containers": image}),
        "with a deadline": _with(good, spec={"activeDeadlineSeconds": 1}),
        "out of its Service": _with(good, labels={"app": "none"}),
        "with another label": _with(good, labels={"acme.io/role": "db"}),
        "with another annotation": _with(good, annotations={"acme.io/secret": "x"}),
        "with a finalizer": _with(good, finalizers=["acme.io/kept"]),
        "without a record": lacking("annotations"),
        "without its Deployment": lacking("ownerReferences"),
        "without our label": _with(lacking("labels"), labels={HASH: None}),
        "the label alone": {"metadata": {"labels": {HASH: None}}},
        "the record alone": {"metadata": {"annotations": good["metadata"]["annotations"]}},
        "our label alone": {"metadata": {"labels": {RELEASED: "r1"}}},
        "an owner alone": {"metadata": {"ownerReferences": good["metadata"]["ownerReferences"]}},
        "still with the hash": _with(lacking("labels"), labels={RELEASED: "r1"}),
        "with another hash": _with(good, labels={HASH: "abcde"}),
        "into another revision": {"metadata": {"labels": {HASH: "abcde"}}},
        "taken from its ReplicaSet": _with(good, ownerReferences=[own]),
        "taken from all owners": _with(good, ownerReferences=None),
        "to a StatefulSet": owned(kind="StatefulSet"),
        "to another API": owned(apiVersion="acme.io/v1"),
        "to another Deployment": owned(uid=OTHER),
        "to a Deployment of another name": owned(name="other"),
        "to another Deployment, as its record says": _with(
            good,
            annotations={RELEASED: text(**{**mark, "deployment": OTHER, "name": "other"})},
            ownerReferences=[*owners, {**own, "name": "other", "uid": OTHER}],
        ),
        "to a Deployment that controls it": _with(
            good,
            ownerReferences=[*({**one, "controller": False} for one in owners), {**own, "controller": True}],
        ),
        "with its ReplicaSet blocking its end no more": _with(
            good, ownerReferences=[*({**one, "blockOwnerDeletion": False} for one in owners), own]
        ),
        "with another name for its siblings": _with(good, generateName="thief-"),
        "with a record of a long run": _with(good, annotations={RELEASED: text(**{**mark, "nonce": "n" * 5000})}),
        "to tolerate everything": _with(
            good, spec={"tolerations": [*pod["spec"]["tolerations"], {"operator": "Exists"}]}
        ),
        "into no revision": _with(good, labels={HASH: ""}),
        "with an empty run": _with(good, labels={RELEASED: ""}),
        "with the run of another": _with(good, labels={RELEASED: "r2"}),
        "with a debug note": _with(good, annotations={"kubectl.kubernetes.io/default-container": "thief"}),
        "kept by its owner": owned(blockOwnerDeletion=True),
        "with one more owner": _with(
            good, ownerReferences=[*owners, own, {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": OTHER}]
        ),
        "with a record of another hash": said(hash="abcde"),
        "with a record of another ReplicaSet": said(replica_set=OTHER),
        "with a record of another Deployment": said(deployment=OTHER),
        "with a record of another node": said(node="other"),
        "with a record of another run": said(run="r2"),
        "with a record of another version": _with(good, annotations={RELEASED: text(**mark).replace('"v":1', '"v":2')}),
        "with one more field": said(x="y"),
        "with a field twice": _with(
            good, annotations={RELEASED: text(**mark).replace(',"v":1', ',"hash":"abcde","v":1')}
        ),
        "with a record in another order": _with(good, annotations={RELEASED: json.dumps({**mark, "v": 1})}),
        "with a record that is none": _with(good, annotations={RELEASED: f"{meta['labels'][HASH]} of {mark['run']}"}),
    }


def of_other(pod: Json, good: Json, like: Json) -> Json:
    """The patch ``good`` of the pod ``like``, for another pod, with a record that says what is expected of it."""
    mark = json.loads(good["metadata"]["annotations"][RELEASED])
    del mark["v"]
    mark["hash"] = pod["metadata"]["labels"][HASH]
    *_owners, own = good["metadata"]["ownerReferences"]
    assert like["spec"]["nodeName"] == pod["spec"]["nodeName"]
    return _with(good, annotations={RELEASED: text(**mark)}, ownerReferences=[own])


def as_json_patch(good: Json) -> list[Json]:
    """The same as a JSON patch, and one more label."""
    meta = good["metadata"]
    return [
        {"op": "remove", "path": f"/metadata/labels/{HASH}"},
        {"op": "add", "path": "/metadata/labels/maintenance.kubeops.io~1released", "value": meta["labels"][RELEASED]},
        {"op": "add", "path": "/metadata/labels/role", "value": "leader"},
        {"op": "add", "path": "/metadata/ownerReferences/-", "value": meta["ownerReferences"][-1]},
        *(
            {"op": "add", "path": f"/metadata/annotations/{key.replace('/', '~1')}", "value": value}
            for key, value in meta["annotations"].items()
        ),
    ]


def disowning(good: Json) -> Json:
    """The same as a strategic merge patch that replaces all owners by the Deployment."""
    *_owners, own = good["metadata"]["ownerReferences"]
    return _with(good, ownerReferences=[{"$patch": "replace"}, own])


def applied(pod: Json) -> Json:
    """A configuration that server-side apply merges: with a label of somebody's choice."""
    meta = {"name": pod["metadata"]["name"], "labels": {"role": "leader"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta}


def hostile_undo(pod: Json) -> dict[str, Json]:
    """Patches of a pod that was let go, by what is wrong with them."""
    good, mark = giving_back(pod), json.loads(pod["metadata"]["annotations"][RELEASED])
    image = [{**pod["spec"]["containers"][0], "image": "acme.io/thief"}]
    thief = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "thief", "uid": OTHER, "controller": True}
    changed = text(**{**{key: value for key, value in mark.items() if key != "v"}, "hash": "abcde"})
    return {
        "back into another revision": _with(good, labels={HASH: "abcde"}),
        "back without a revision": {"metadata": {**good["metadata"], "labels": {RELEASED: None}}},
        "back with its record": {"metadata": {**good["metadata"], "annotations": {}}},
        "back with our label": {"metadata": {**good["metadata"], "labels": {HASH: mark["hash"]}}},
        "back and out of its Services": _with(good, labels={"app": None}, annotations={UNSERVED: f"{SINCE},app=web"}),
        "back with another image": _with(good, spec={"containers": image}),
        "back without its Service": _with(good, labels={"app": "none"}),
        "back with its Deployment": {
            "metadata": {key: part for key, part in good["metadata"].items() if key != "ownerReferences"}
        },
        "back with a finalizer": _with(good, finalizers=["acme.io/kept"]),
        "back with a deadline": _with(good, spec={"activeDeadlineSeconds": 1}),
        "back with another label": _with(good, labels={"role": "leader"}),
        "back with another annotation": _with(good, annotations={"acme.io/secret": "x"}),
        "back to another controller": _with(good, ownerReferences=[thief]),
        "its record changed": {"metadata": {"annotations": {RELEASED: changed}}},
        "its record removed": {"metadata": {"annotations": {RELEASED: None}}},
        "its run changed": {"metadata": {"labels": {RELEASED: "r2"}}},
        "its Deployment removed": {"metadata": {"ownerReferences": None}},
        "taken by another controller": {
            "metadata": {"ownerReferences": [*(pod["metadata"].get("ownerReferences") or ()), thief]}
        },
    }


def hostile_leaving(pod: Json) -> dict[str, Json]:
    """Patches of a pod that was let go, which look as if it left its Services."""
    good, image = leaving(), [{**pod["spec"]["containers"][0], "image": "acme.io/thief"}]
    return {
        "without a record": {"metadata": {"labels": {"app": None}}},
        "with the record alone": {"metadata": {"annotations": good["metadata"]["annotations"]}},
        "with a record of another value": leaving(said=f"{SINCE},app=other"),
        "with a record of one more label": leaving(said=f"{SINCE},app=web,role=leader"),
        "with a record of the label twice": leaving(said=f"{SINCE},app=web,app=web"),
        "with a record of no label": leaving(said=SINCE),
        "with a record of no time": leaving(said="app=web"),
        "with a record of any text": leaving(said="password: x,app=web"),
        "into those of others": _with(good, labels={"app": "db"}),
        "with another label": _with(good, labels={"acme.io/role": "db"}),
        "back into a revision": _with(good, labels={HASH: "abcde"}),
        "of another run": _with(good, labels={RELEASED: "r2"}),
        "with another mark": _with(good, annotations={RELEASED: "{}"}),
        "with another image": _with(good, spec={"containers": image}),
        "with another owner": _with(good, ownerReferences=None),
        "with a finalizer": _with(good, finalizers=["acme.io/kept"]),
    }


def hostile_out(pod: Json) -> dict[str, Json]:
    """Patches of a pod that has left its Services."""
    good = giving_back(pod)
    return {
        "back without its Services": _with(good, labels={"app": None}),
        "back into those of others": _with(good, labels={"app": "db"}),
        "back with the record": {"metadata": {**good["metadata"], "annotations": {RELEASED: None}}},
        "with its labels alone": {"metadata": {"labels": {"app": "web"}}},
        "without the record alone": {"metadata": {"annotations": {UNSERVED: None}}},
        "into the Services of others": _with(coming_back(), labels={"app": "db"}),
        "with more labels": _with(coming_back(), labels={"role": "leader"}),
        "into a revision": _with(coming_back(), labels={HASH: "abcde"}),
        "with another owner": _with(coming_back(), ownerReferences=None),
        "with another mark": _with(coming_back(), annotations={RELEASED: "{}"}),
        "another record": {"metadata": {"annotations": {UNSERVED: f"{SINCE},app=db"}}},
    }
