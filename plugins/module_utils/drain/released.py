# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A pod that is replaced before it leaves: let go by its ReplicaSet, replaced, then evicted.

Without its label ``pod-template-hash`` its ReplicaSet's selector does not match it any more: the
controller lets it go and starts another one, while it serves on, since Services and budgets select
by other labels. It may end only while the pods that the Deployment still owns are enough without
it. That is counted by owner: a status is old while the controllers are down.
"""

from __future__ import annotations

import functools
import json
import typing as t
from dataclasses import asdict, dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    decoding,
    names,
    objects,
    serving,
    snapshots,
    unready,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import unserved
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import steps

VERSION = 1
CODE = "released"
"""The code of plans of pods that were let go."""
MOST_UNAVAILABLE = "25%"
"""Of a Deployment that does not say it (apps/v1)."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What the annotation of such a pod says: on whose behalf it was let go,
    and how that is undone.

    ``deployment`` and ``replica_set`` are UIDs, ``name`` is that of the Deployment, ``since`` is by
    the API server's clock, ``hash`` the value of the label that was taken off.
    """

    run: str
    nonce: str
    node: str
    since: str
    deployment: str
    name: str
    replica_set: str
    hash: str

    def owner(self, namespace: str) -> objects.Ref:
        """The Deployment of the pod, which is in this namespace."""
        return objects.Ref("Deployment", self.name, namespace, self.deployment, "apps/v1")

    @property
    def text(self) -> str:
        """The annotation, always in this one form: admission policies tell it by that."""
        return json.dumps({"v": VERSION, **asdict(self)}, sort_keys=True, separators=(",", ":"))


def mark_of(pod: objects.Pod) -> Mark | None:
    """The mark of a pod that was let go; ``None`` for any other, and where it cannot be read."""
    text = pod.annotations.get(names.RELEASED)
    return _read(text) if text is not None and names.RELEASED in pod.labels else None


@functools.lru_cache(maxsize=4096)
def _read(text: str) -> Mark | None:
    """Remembered: a drain asks for the mark of each of its pods after every change."""
    try:
        data = decoding.json_of(text)
        return decoding.shaped(Mark, data) if data.pop("v") == VERSION else None
    except decoding.MISREAD:
        return None


Found = objects.Pod | objects.Raw | None
"""A pod as a watch has shown it or as it was read, ``None`` where it does not exist."""


def releasing(found: Found, uid: str, mark: Mark) -> api_changes.Change | None:
    """Take the label off, with what says how to undo it; ``None`` where that is done,
    or the pod is another one now.

    The reference to its ReplicaSet stays: the controller takes it off itself. Taken off by others,
    it may miss the end of a pod and fall asleep. The one to the Deployment lets the garbage
    collector end the pod with that.
    """
    pod = _living(found, uid)
    if pod is None or pod.labels.get(names.HASH) != mark.hash or pod.owner is None:
        return None
    return _letting_go(pod, pod.references, mark) if pod.owner.uid == mark.replica_set else None


def _living(found: Found, uid: str) -> objects.Pod | None:
    """The pod; ``None`` where it is gone, ends, or is another one now."""
    pod = found if found is None or isinstance(found, objects.Pod) else objects.Pod.of(found)
    return None if pod is None or pod.uid != uid or pod.deleting else pod


def trial(
    pod: objects.Pod, deployment: objects.Workload, *, gone: bool = False
) -> api_changes.Change | None:
    """As ``releasing``, to be tried as a dry run: of a pod as it is known without being read again.

    With ``gone`` as it is once its ReplicaSet has taken its reference off,
    which policies may refuse that.
    """
    if pod.owner is None:
        return None
    mark = Mark(
        "",
        nonce="",
        node=pod.node,
        since=pod.created,
        deployment=deployment.uid,
        name=deployment.name,
        replica_set=pod.owner.uid,
        hash=pod.labels[names.HASH],
    )
    above = pod.owner
    owner = {
        "apiVersion": above.api_version,
        "kind": above.kind,
        "name": above.name,
        "uid": above.uid,
    }
    return _letting_go(
        pod, [] if gone else [{**owner, "controller": True, "blockOwnerDeletion": True}], mark
    )


def loosening(pod: objects.Pod, mark: Mark) -> api_changes.Change | None:
    """What its ReplicaSet does with a pod that was let go, to be tried as a dry run; ``None`` where
    that is done.
    """
    if pod.owner is None or pod.owner.uid != mark.replica_set:
        return None
    owners = [owner for owner in pod.references if owner["uid"] != mark.replica_set]
    sentence = f"Take the reference to its ReplicaSet off {pod.ref}"
    return _patch(pod, sentence, {"labels": {}, "ownerReferences": owners})


def _letting_go(
    pod: objects.Pod, owners: t.Sequence[objects.Raw], mark: Mark
) -> api_changes.Change:
    body = {"labels": {names.HASH: None, names.RELEASED: mark.run}}
    sentence = f"Let {pod.ref} go from its ReplicaSet, which starts another one"
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": mark.name,
        "uid": mark.deployment,
    }
    all_of_them = [*owners, {**owner, "controller": False, "blockOwnerDeletion": False}]
    return _patch(
        pod,
        sentence,
        {**body, "annotations": {names.RELEASED: mark.text}, "ownerReferences": all_of_them},
    )


def leaving(found: Found, uid: str, out: unserved.Unserved) -> api_changes.Change | None:
    """Take the labels off by which Services select the pod; ``None`` where that is done,
    or it was given back.
    """
    pod = _living(found, uid)
    if pod is None or mark_of(pod) is None or names.UNSERVED in pod.annotations:
        return None
    return left(pod, out) if out.labels.items() <= pod.labels.items() else None


def left(pod: objects.Pod, out: unserved.Unserved) -> api_changes.Change:
    """The same, whatever the pod is like."""
    body = {"labels": dict.fromkeys(out.labels), "annotations": {names.UNSERVED: out.text}}
    return _patch(pod, f"Take {pod.ref} out of its Services, before it is told to end", body)


def returning(found: Found, uid: str) -> api_changes.Change | None:
    """Put it back into its Services; ``None`` where that is done."""
    pod = _living(found, uid)
    if pod is None or names.UNSERVED not in pod.annotations:
        return None
    body = {"labels": _taken(pod), "annotations": {names.UNSERVED: None}}
    return _patch(pod, f"Put {pod.ref} back into its Services", body)


def _taken(pod: objects.Pod) -> unserved.Labels:
    """The labels that were taken off; what somebody has set meanwhile stays."""
    out = unserved.of(pod)
    return {key: value for key, value in out.labels.items() if key not in pod.labels} if out else {}


def undoing(found: Found, uid: str) -> api_changes.Change | None:
    """Give the pod back to its ReplicaSet, which ends another one; ``None`` where that is done."""
    pod = _living(found, uid)
    mark = mark_of(pod) if pod else None
    if pod is None or mark is None:
        return None
    owners = [owner for owner in pod.references if owner["uid"] != mark.deployment]
    body = {
        "labels": {**_taken(pod), names.HASH: mark.hash, names.RELEASED: None},
        "annotations": {names.RELEASED: None, names.UNSERVED: None},
        "ownerReferences": owners or None,
    }
    return _patch(pod, f"Give {pod.ref} back to its ReplicaSet", body)


def _patch(pod: objects.Pod, sentence: str, metadata: dict[str, t.Any]) -> api_changes.Change:
    after = {
        key: value
        for key, value in {**pod.labels, **metadata["labels"]}.items()
        if value is not None
    }
    body = {"metadata": {**metadata, "uid": pod.uid}}
    return api_changes.patch(pod, sentence, body, {"labels": dict(pod.labels)}, {"labels": after})


def most_at_once(deployment: objects.Workload) -> int:
    """How many of its pods may be let go at a time: with so many less it still counts as
    available, or with one.
    """
    return max(_missing_at_most(deployment), 1)


def shown(deployment: objects.Workload) -> str:
    """What it shows while one of its pods is let go and another starts,
    empty where that is nothing unusual.
    """
    available = _missing_at_most(deployment) > 0
    if deployment.replicas > 1 and available:
        return ""
    counts = (
        f"Meanwhile {deployment.ref} shows {deployment.replicas - 1}/{deployment.replicas} ready"
    )
    return f"{counts}." if available else f"{counts} and Available=False."


def _missing_at_most(deployment: objects.Workload) -> int:
    strategy = (deployment.spec.get("strategy") or {}).get("rollingUpdate") or {}
    most = strategy.get("maxUnavailable", MOST_UNAVAILABLE)
    if isinstance(most, str) and most.endswith("%"):
        # Rounded down, other than those of budgets.
        most = (decoding.whole(most[:-1]) or 0) * deployment.replicas // 100
    return decoding.whole(most) or 0


def owned(snapshot: snapshots.Snapshot, deployment: objects.Workload) -> list[objects.Pod]:
    """The pods that are the Deployment's own, those left out that were let go or end."""
    pods = snapshot.pods_of(deployment)
    return [pod for pod in pods if names.RELEASED not in pod.labels and not pod.deleting]


def lacks(
    snapshot: snapshots.Snapshot, pod: objects.Pod, mark: Mark, leaving: t.Collection[str] = ()
) -> str:
    """Why the others are not enough without this pod, empty if they are.

    ``leaving`` are the UIDs of pods that are being evicted.
    """
    if pod.owner is not None and pod.owner.uid == mark.replica_set:
        return f"{pod.owner} to let {pod.ref} go"
    deployment = snapshot.workload(mark.deployment)
    if deployment is None or deployment.deleting:
        # With it, the pod is the garbage collector's.
        return f"the end of {mark.owner(pod.namespace)}, with which its pods end"
    endpoints = serving.Endpoints(snapshot)
    missing = ""
    ready = 0
    services = snapshot.selectors_by_namespace.get(pod.namespace, {})
    left = unserved.services(snapshot, pod) if names.UNSERVED in pod.annotations else {}
    listed = {place: snapshot.listed(place) for place in left}
    for one in owned(snapshot, deployment):
        if not one.ready or one.uid in leaving:
            continue
        out = (
            f"Service {'/'.join(at)}"
            for at in left
            if services[at].items() <= one.labels.items() and not listed[at].get(one.uid)
        )
        unlisted = endpoints.missing([pod], one) or next(out, "")
        missing = missing or (unlisted and f"{one.ref} is not ready in {unlisted}")
        ready = ready + (not unlisted)
    if ready >= deployment.replicas:
        return ""
    why = missing or unready.why(snapshot, owned(snapshot, deployment), deployment)
    return (
        f"{deployment.ref} has {ready} of {deployment.replicas} ready pods beside "
        f"{pod.ref}{unready.in_brackets(why)}"
    )


def hindrance(
    snapshot: snapshots.Snapshot, mark: Mark, leaving: t.Collection[str]
) -> reasons.Reason | None:
    """Why its replacement cannot come to serve, as far as is known; ``leaving`` are nodes."""
    deployment = snapshot.workload(mark.deployment)
    if deployment is None:
        return None
    newcomers = [
        pod
        for pod in owned(snapshot, deployment)
        if not pod.ready and pod.created >= mark.since[:19]
    ]
    return steps.hindrance(snapshot, deployment, newcomers, leaving)


def taken_by(snapshot: snapshots.Snapshot, pod: objects.Pod) -> objects.Ref | None:
    """The ReplicaSet that is going to adopt the pod, which has no controller."""
    if pod.owner is not None or names.HASH not in pod.labels:
        return None
    return next((found.ref for found in snapshot.adopting(pod.namespace, pod.labels)), None)


def may_return(snapshot: snapshots.Snapshot, mark: Mark) -> bool:
    """Whether its ReplicaSet would take it back; one that was rolled out over
    would end it at once.
    """
    replica_set = snapshot.workload(mark.replica_set)
    return replica_set is not None and not replica_set.deleting and replica_set.replicas > 0
