# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a snapshot keeps of pods and pod templates: what decides where they run, how they may be moved, and how long
they take. Images, commands, arguments, environments, probes, and volumes with a content are left out.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    decoding,
    names,
    objects,
    pod_specs,
)

Raw = objects.Raw
Made = dict[str, t.Any]

SPEC = (
    *("affinity", "hostNetwork", "nodeName", "nodeSelector", "priorityClassName", "readinessGates", "restartPolicy"),
    *("runtimeClassName", "schedulerName", "schedulingGates", "terminationGracePeriodSeconds", "tolerations"),
    "topologySpreadConstraints",
)
"""Fields of a pod's spec that are kept as they are."""
LAB = "lab.kubeops.io/"
OWN_STATE = frozenset({names.RECORD, names.LOCK_DETAILS, names.FENCE, names.PLANNED, names.SURGE, names.SERVES_NODES})
KEPT_NOTES = frozenset(
    {
        names.DELETION_COST,
        names.MIRROR,
        "kubernetes.io/config.source",
        "batch.kubernetes.io/job-completion-index",
        f"{LAB}stop",
        f"{LAB}complete",
    }
)
"""Annotations that are kept, besides those by which owners say how their pods may be moved. The lab's own are there if
the cluster is a lab itself: they are what is known of how long its pods take to stop and to complete."""


def kept_annotations(raw: Raw) -> dict[str, str]:
    """The annotations that are kept; values that others wrote into known keys are theirs to make public."""
    found = (raw.get("metadata") or {}).get("annotations") or {}
    return {
        key: str(value)
        for key, value in found.items()
        if key in KEPT_NOTES or (key.startswith(f"{names.PREFIX}/") and key not in OWN_STATE)
    }


def template(raw: Raw) -> Made:
    """A pod template."""
    meta: Made = {"labels": dict((raw.get("metadata") or {}).get("labels") or {}), "annotations": kept_annotations(raw)}
    return {"metadata": meta, "spec": spec(raw.get("spec") or {})}


def spec(raw: Raw) -> Made:
    """The spec of a pod; ``preStopSeconds`` is how long a container sleeps before it is told to stop."""
    found: Made = {key: raw[key] for key in SPEC if raw.get(key) is not None}
    if raw.get("resources"):
        found["resources"] = _resources(raw)
    for key in ("containers", "initContainers"):
        if raw.get(key):
            found[key] = [_container(one) for one in raw[key]]
    if volumes := [kept for volume in raw.get("volumes") or () if (kept := _volume(volume))]:
        found["volumes"] = volumes
    if slept := pod_specs.sleeps(raw):
        found["preStopSeconds"] = slept
    return found


def dropped(raw: Raw) -> list[str]:
    """Codes of what the spec had and the copy will not have, see ``notes``."""
    found = []
    if raw.get("resourceClaims"):
        found.append("devices")
    if (raw.get("schedulingGroup") or {}).get("podGroupName"):
        found.append("gang")
    if any(volume.get("ephemeral") for volume in raw.get("volumes") or ()):
        found.append("ephemeral_volume")
    return found


def status(raw: Raw) -> Made:
    """What is kept of a pod's status; ``start`` are the seconds from bound to ready, ``None`` if that is not known.

    A Ready condition that changed after the start (a restart, a failing probe) tells nothing about the start, so only
    pods whose containers have never restarted are asked.
    """
    found = raw.get("status") or {}
    conditions = {c["type"]: c for c in found.get("conditions") or ()}
    ready = (conditions.get("Ready") or {}).get("status") == "True"
    restarts = sum(one.get("restartCount") or 0 for one in found.get("containerStatuses") or ())
    bound = (conditions.get("PodScheduled") or {}).get("lastTransitionTime") or raw["metadata"].get("creationTimestamp")
    since = (conditions.get("Ready") or {}).get("lastTransitionTime")
    seconds = _between(bound, since) if ready and not restarts else None
    return {"phase": found.get("phase", ""), "ready": ready, "start": seconds}


def _between(first: str | None, last: str | None) -> float | None:
    began, ended = decoding.moment(first or ""), decoding.moment(last or "")
    if began is None or ended is None or ended < began:
        return None
    return (ended - began).total_seconds()


def _container(raw: Raw) -> Made:
    found: Made = {"name": raw.get("name", "")}
    if raw.get("resources"):
        found["resources"] = _resources(raw)
    if ports := [
        {k: p[k] for k in ("containerPort", "hostPort", "protocol") if k in p} for p in raw.get("ports") or ()
    ]:
        found["ports"] = ports
    if raw.get("restartPolicy"):
        found["restartPolicy"] = raw["restartPolicy"]
    return found


def _resources(raw: Raw) -> Made:
    return {key: dict(raw["resources"][key]) for key in ("requests", "limits") if raw["resources"].get(key)}


def _volume(raw: Raw) -> Made | None:
    """A volume that a decision depends on: scratch space, a claim, or a folder of the node."""
    name = {"name": raw.get("name", "")}
    if "emptyDir" in raw:
        kept = {key: value for key, value in (raw["emptyDir"] or {}).items() if key in ("medium", "sizeLimit")}
        return {**name, "emptyDir": kept}
    if raw.get("persistentVolumeClaim"):
        return {**name, "persistentVolumeClaim": {"claimName": raw["persistentVolumeClaim"].get("claimName", "")}}
    return {**name, "hostPath": {"path": "/copy"}} if raw.get("hostPath") else None
