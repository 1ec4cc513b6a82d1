# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A Reservation that exists before its job: whether it can serve the pod, and how to create one."""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    objects,
    selectors,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    migration_jobs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons

KIND = "Reservation"


def ref_of(name: str, uid: str = "") -> objects.Ref:
    """A Reservation's coordinates."""
    return objects.Ref(KIND, name, "", uid, migration_jobs.API_VERSION)


def phase(raw: objects.Raw) -> str:
    """``Pending`` where it has none yet."""
    return (raw.get("status") or {}).get("phase") or "Pending"


def node(raw: objects.Raw) -> str:
    """The node on which it reserves, empty before it is scheduled."""
    return (raw.get("status") or {}).get("nodeName") or ""


def unplaced(raw: objects.Raw) -> str:
    """What the scheduler said when it found no place; empty where it did not say so."""
    for condition in (raw.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Scheduled" and condition.get("reason") == "Unschedulable":
            return condition.get("message") or "Unschedulable"
    return ""


def used(name: str) -> reasons.Reason:
    """The Reservation is used up."""
    remedy = "Create a new one: a Reservation serves one pod."
    return reasons.Reason("reservation_used", f"Another pod has taken Reservation {name}.", remedy)


def same_node(name: str) -> reasons.Reason:
    """The Reservation would not move the pod."""
    remedy = "Exclude that node in the Reservation's node affinity."
    return reasons.Reason("same_node", f"Reservation {name} is on the pod's own node.", remedy)


def unusable(raw: objects.Raw, pod: objects.Pod) -> reasons.Reason | None:
    """Why a job could not move the pod with this Reservation, now or once it is scheduled."""
    name = raw["metadata"]["name"]
    spec = raw.get("spec") or {}
    status = raw.get("status") or {}
    owners = spec.get("owners") or ()
    if phase(raw) == "Succeeded" or status.get("currentOwners"):
        return used(name)
    if phase(raw) == "Failed":
        return reasons.Reason(
            "reservation_expired", f"Reservation {name} has failed or expired.", "Create a new one."
        )
    if node(raw) and node(raw) == pod.node:
        return same_node(name)
    if spec.get("allocateOnce") is False:
        return reasons.Reason(
            "reservation_shared",
            f"Reservation {name} has allocateOnce: false: "
            "the job would take an earlier owner for its pod.",
            "Make one with allocateOnce: true.",
        )
    if owners and all(set(owner) == {"object"} for owner in owners):
        return reasons.Reason(
            "object_owner",
            f"The owners of Reservation {name} are objects alone: "
            "the job would end without moving anything.",
            "Name the pod's controller or a labelSelector as owner.",
        )
    if not any(_serves(owner, pod) for owner in owners):
        remedy = "Name its labels as owner."
        if pod.owner:
            remedy = f"Name its controller ({pod.owner}) or its labels as owner."
        return reasons.Reason(
            "not_for_pod",
            f"None of the owners of Reservation {name} matches {pod.ref}: "
            "its successor would not take it.",
            remedy,
        )
    wanted = ((spec.get("template") or {}).get("spec") or {}).get(
        "schedulerName"
    ) or "default-scheduler"
    if wanted != (pod.scheduler or "default-scheduler"):
        return reasons.Reason(
            "other_scheduler",
            f"Reservation {name} is for scheduler {wanted}, the pod's is "
            f"{pod.scheduler or 'default-scheduler'}.",
            "Give both the same schedulerName.",
        )
    return None


def _serves(owner: objects.Raw, pod: objects.Pod) -> bool:
    """Whether all that the owner says is true of the pod."""
    controller = owner.get("controller")
    labels = owner.get("labelSelector")
    thing = owner.get("object")
    if controller:
        if not pod.owner or controller.get("uid") != pod.owner.uid:
            return False
        if controller.get("namespace") not in (None, "", pod.namespace):
            return False
    if labels is not None and not selectors.matches(labels, pod.labels):
        return False
    if thing:
        wanted = (
            thing.get("namespace") or pod.namespace,
            thing.get("name") or pod.name,
            thing.get("uid") or pod.uid,
        )
        if wanted != (pod.namespace, pod.name, pod.uid):
            return False
    return bool(controller or thing or labels is not None)


def manifest(
    name: str, pod_raw: objects.Raw, template: objects.Raw, ttl: float | None, run: str = ""
) -> dict[str, t.Any]:
    """A Reservation for the pod's successor, completed as the controller completes its own.

    What ``template`` (``metadata`` and ``spec``) leaves out comes from the pod: the pod template,
    its controller as owner, the scheduler. It never lands on the pod's own node.
    """
    pod = objects.Pod.of(pod_raw)
    found = copy.deepcopy(dict(template))
    metadata, spec = dict(found.get("metadata") or {}), dict(found["spec"])
    given = spec.get("template") or {}
    inner = dict(given.get("spec") or copy.deepcopy(dict(pod_raw["spec"])))
    if not (given.get("spec") or {}).get("nodeName"):
        inner.pop("nodeName", None)
        inner["affinity"] = _elsewhere(inner.get("affinity") or {}, pod.node)
    inner.setdefault("schedulerName", pod.scheduler)
    labels = {"metadata": {"labels": dict(pod.labels)}}
    spec["template"] = {
        **labels,
        **{key: item for key, item in given.items() if item},
        "spec": inner,
    }
    spec["allocateOnce"] = True
    if not spec.get("owners"):
        spec["owners"] = [_owner(pod)]
    if spec.get("ttl") is None and spec.get("expires") is None and ttl:
        spec["ttl"] = migration_jobs.go_duration(ttl)
    metadata["name"] = name
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
    }
    if run:
        metadata["labels"][migration_jobs.RUN_LABEL] = run
    return {
        "apiVersion": migration_jobs.API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": spec,
    }


def _owner(pod: objects.Pod) -> dict[str, t.Any]:
    if pod.owner is None:
        return {"labelSelector": {"matchLabels": dict(pod.labels)}}
    owner = pod.owner
    known = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
    }
    return {"controller": {**known, "controller": True, "namespace": pod.namespace}}


def _elsewhere(affinity: objects.Raw, node_name: str) -> dict[str, t.Any]:
    """The affinity with the demand for another node in each of its required terms."""
    if not node_name:
        return dict(affinity)
    other = {"key": "metadata.name", "operator": "NotIn", "values": [node_name]}
    nodes = dict(affinity.get("nodeAffinity") or {})
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = (nodes.get(required) or {}).get("nodeSelectorTerms") or [{}]
    nodes[required] = {
        "nodeSelectorTerms": [
            {**term, "matchFields": [*(term.get("matchFields") or ()), other]} for term in terms
        ]
    }
    return {**affinity, "nodeAffinity": nodes}
