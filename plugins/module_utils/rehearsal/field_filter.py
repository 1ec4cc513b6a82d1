# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a snapshot keeps of each kind of object, as allow-lists:
what is not named here never reaches the file.

Secrets and ConfigMaps are not read at all.
"""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    names,
    objects,
    pod_specs,
)

# What a snapshot keeps of pods and pod templates: what decides where they run, how they may be
# moved, and how long they take. Images, commands, arguments, environments, probes, and volumes with
# a content are left out.

Raw = objects.Raw
Json = dict[str, t.Any]

SPEC = (
    "affinity",
    "hostNetwork",
    "nodeName",
    "nodeSelector",
    "priorityClassName",
    "readinessGates",
    "restartPolicy",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
)
"""Fields of a pod's spec that are kept as they are."""
LAB = "lab.kubeops.io/"
OWN_STATE = frozenset(
    {names.RECORD, names.LOCK_DETAILS, names.FENCE, names.PLANNED, names.SURGE, names.SERVES_NODES}
)
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
"""Annotations that are kept, besides those by which owners say how their pods may be moved. The
lab's own are there if the cluster is a lab itself: they are what is known of how long its pods take
to stop and to complete.
"""


def kept_annotations(raw: Raw) -> dict[str, str]:
    """Values that others wrote into known keys are theirs to make public."""
    found = (raw.get("metadata") or {}).get("annotations") or {}
    return {
        key: str(value)
        for key, value in found.items()
        if key in KEPT_NOTES or (key.startswith(f"{names.PREFIX}/") and key not in OWN_STATE)
    }


def template(raw: Raw) -> Json:
    """A pod template."""
    labels = dict((raw.get("metadata") or {}).get("labels") or {})
    meta = {"labels": labels, "annotations": kept_annotations(raw)}
    return {"metadata": meta, "spec": pod_spec(raw.get("spec") or {})}


def pod_spec(raw: Raw) -> Json:
    """``preStopSeconds`` is how long a container sleeps before it is told to stop."""
    found = _fields(raw, SPEC)
    if raw.get("resources"):
        found["resources"] = _resources(raw)
    for key in ("containers", "initContainers"):
        if raw.get(key):
            found[key] = [_container(one) for one in raw[key]]
    if volumes := [kept for volume in raw.get("volumes") or () if (kept := _pod_volume(volume))]:
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


def pod_status(raw: Raw) -> Json:
    """What is kept of a pod's status; ``start`` are the seconds from bound to ready,
    ``None`` if that is not known.

    A Ready condition that changed after the start (a restart, a failing probe) tells nothing about
    the start, so only pods whose containers have never restarted are asked.
    """
    found = raw.get("status") or {}
    conditions = {c["type"]: c for c in found.get("conditions") or ()}
    ready = (conditions.get("Ready") or {}).get("status") == "True"
    restarts = sum(one.get("restartCount") or 0 for one in found.get("containerStatuses") or ())
    bound = (conditions.get("PodScheduled") or {}).get("lastTransitionTime")
    bound = bound or raw["metadata"].get("creationTimestamp")
    since = (conditions.get("Ready") or {}).get("lastTransitionTime")
    seconds = _between(bound, since) if ready and not restarts else None
    return {"phase": found.get("phase", ""), "ready": ready, "start": seconds}


def _between(first: str | None, last: str | None) -> float | None:
    began, ended = decoding.moment(first or ""), decoding.moment(last or "")
    if began is None or ended is None or ended < began:
        return None
    return (ended - began).total_seconds()


def _container(raw: Raw) -> Json:
    found: Json = {"name": raw.get("name", "")}
    if raw.get("resources"):
        found["resources"] = _resources(raw)
    if raw.get("ports"):
        keys = ("containerPort", "hostPort", "protocol")
        found["ports"] = [{key: port[key] for key in keys if key in port} for port in raw["ports"]]
    if raw.get("restartPolicy"):
        found["restartPolicy"] = raw["restartPolicy"]
    return found


def _resources(raw: Raw) -> Json:
    found = raw["resources"]
    return {key: dict(found[key]) for key in ("requests", "limits") if found.get(key)}


def _pod_volume(raw: Raw) -> Json | None:
    """A volume that a decision depends on: scratch space, a claim, or a folder of the node."""
    name = {"name": raw.get("name", "")}
    if "emptyDir" in raw:
        return {**name, "emptyDir": _fields(raw["emptyDir"] or {}, ("medium", "sizeLimit"))}
    if source := raw.get("persistentVolumeClaim"):
        return {**name, "persistentVolumeClaim": {"claimName": source.get("claimName", "")}}
    return {**name, "hostPath": {"path": "/copy"}} if raw.get("hostPath") else None


_PASSING_TAINTS = frozenset(
    {
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/pid-pressure",
        "node.kubernetes.io/network-unavailable",
        names.TAINT_KEY,
        names.WAITING,
    }
)
"""Taints that Kubernetes or a run sets by itself, as it will in the copy."""
_POD_SECURITY = "pod-security.kubernetes.io/"
_WORKLOAD = {
    "deployments": (
        "minReadySeconds",
        "paused",
        "progressDeadlineSeconds",
        "replicas",
        "selector",
        "strategy",
    ),
    "replica_sets": ("minReadySeconds", "replicas", "selector"),
    "stateful_sets": (
        "minReadySeconds",
        "ordinals",
        "podManagementPolicy",
        "replicas",
        "selector",
        "serviceName",
        "updateStrategy",
    ),
    "daemon_sets": ("minReadySeconds", "selector", "updateStrategy"),
    "jobs": ("backoffLimit", "completionMode", "completions", "parallelism", "selector", "suspend"),
}
_SPEC = {
    "budgets": ("maxUnavailable", "minAvailable", "selector", "unhealthyPodEvictionPolicy"),
    "autoscalers": ("maxReplicas", "minReplicas", "scaleTargetRef"),
    "claims": ("accessModes", "resources", "storageClassName", "volumeMode", "volumeName"),
    "volumes": ("accessModes", "capacity", "nodeAffinity", "storageClassName", "volumeMode"),
    "quotas": ("hard", "scopeSelector", "scopes"),
    "limits": ("limits",),
    "csi_nodes": ("drivers",),
}
_WHOLE = {
    "storage_classes": ("allowedTopologies", "provisioner", "reclaimPolicy", "volumeBindingMode"),
    "priority_classes": ("globalDefault", "preemptionPolicy", "value"),
    "runtime_classes": ("handler", "overhead", "scheduling"),
}


def slim(kind: str, raw: Raw) -> Json | None:
    """What is kept of an object; ``None`` for one that the copy does without."""
    if _is_ours(raw) or raw["metadata"].get("deletionTimestamp"):
        return None
    return _SLIMMED[kind](kind, raw)


def notes(kind: str, raw: Raw) -> list[str]:
    """Codes of what the copy lacks of this object, see ``notes.TEXTS``."""
    if kind == "nodes" and names.RECORD in (raw["metadata"].get("annotations") or {}):
        return ["record"]
    if kind != "pods":
        return []
    if (raw.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return ["finished"]
    found = dropped(raw.get("spec") or {})
    return [*found, "terminating"] if raw["metadata"].get("deletionTimestamp") else found


def _is_ours(raw: Raw) -> bool:
    """Whether it is state of this collection, which a run on the copy makes by itself."""
    meta = raw["metadata"]
    ours = (meta.get("labels") or {}).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY
    return names.NAMESPACE in (meta.get("namespace"), meta["name"]) or (
        ours and raw.get("kind") != "Pod"
    )


def _pod(kind: str, raw: Raw) -> Json | None:
    del kind
    spec = raw.get("spec") or {}
    status = pod_status(raw)
    if status["phase"] in ("Succeeded", "Failed"):
        return None
    return {"metadata": _meta(raw), "spec": pod_spec(spec), "status": status}


def _meta(raw: Raw, labels: bool = True) -> Json:
    meta = raw["metadata"]
    found: Json = {key: meta[key] for key in ("namespace", "name", "uid") if meta.get(key)}
    if labels and meta.get("labels"):
        found["labels"] = dict(meta["labels"])
    if kept := kept_annotations(raw):
        found["annotations"] = kept
    if owner := objects.controller_of(raw):
        kind = {"apiVersion": owner.api_version, "kind": owner.kind}
        found["owner"] = {**kind, "name": owner.name, "uid": owner.uid}
    return found


def _workload(kind: str, raw: Raw) -> Json | None:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    if kind == "replica_sets" and not spec.get("replicas", 1) and not status.get("replicas"):
        return None
    if kind == "jobs" and not status.get("active"):
        return None
    found = _fields(spec, _WORKLOAD[kind])
    found["template"] = template(spec.get("template") or {})
    if kind == "stateful_sets" and spec.get("volumeClaimTemplates"):
        found["volumeClaimTemplates"] = list(map(_claim_template, spec["volumeClaimTemplates"]))
    return {"metadata": _meta(raw), "spec": found}


def _claim_template(raw: Raw) -> Json:
    name = raw["metadata"]["name"]
    return {"metadata": {"name": name}, "spec": _fields(raw.get("spec") or {}, _SPEC["claims"])}


def _fields(raw: Raw, wanted: t.Iterable[str]) -> Json:
    return {key: raw[key] for key in wanted if raw.get(key) is not None}


def _with_spec(kind: str, raw: Raw) -> Json:
    return {"metadata": _meta(raw), "spec": _fields(raw.get("spec") or {}, _SPEC[kind])}


def _whole(kind: str, raw: Raw) -> Json:
    return {"metadata": _meta(raw, labels=False), **_fields(raw, _WHOLE[kind])}


def _claim(kind: str, raw: Raw) -> Json:
    found = _with_spec(kind, raw)
    found["bound"] = (raw.get("status") or {}).get("phase") == "Bound"
    return found


def _volume(kind: str, raw: Raw) -> Json:
    """With the driver that attaches it; of other volumes only where they can be used is kept."""
    found = _with_spec(kind, raw)
    spec = raw.get("spec") or {}
    if spec.get("csi"):
        found["driver"] = spec["csi"].get("driver", "")
    found["local"] = bool(spec.get("local"))
    if spec.get("claimRef"):
        found["claim"] = {key: spec["claimRef"].get(key, "") for key in ("namespace", "name")}
    return found


def _namespace(kind: str, raw: Raw) -> Json:
    del kind
    labels = raw["metadata"].get("labels") or {}
    labels = {key: value for key, value in labels.items() if not key.startswith(_POD_SECURITY)}
    return {"metadata": {"name": raw["metadata"]["name"], "labels": labels}}


def _service(kind: str, raw: Raw) -> Json | None:
    """``None`` without a selector. Ports keep numbers only: their names are those of containers."""
    del kind
    spec = raw.get("spec") or {}
    if not spec.get("selector"):
        return None
    ports = []
    for i, port in enumerate(spec.get("ports") or ()):
        protocol = port.get("protocol") or "TCP"
        ports.append({"name": f"p{i}", "port": port["port"], "protocol": protocol})
    found: Json = {"selector": dict(spec["selector"]), "headless": spec.get("clusterIP") == "None"}
    found["publishNotReadyAddresses"] = bool(spec.get("publishNotReadyAddresses"))
    return {"metadata": _meta(raw), "spec": {**found, "ports": ports}}


def _node(kind: str, raw: Raw) -> Json:
    """A node as it is outside of maintenances: what a run has added is left out, its cordon too."""
    del kind
    spec = raw.get("spec") or {}
    status = raw.get("status") or {}
    meta = raw["metadata"]
    unschedulable = bool(spec.get("unschedulable"))
    with contextlib.suppress(*decoding.MISREAD):
        record = decoding.json_of((meta.get("annotations") or {}).get(names.RECORD) or "null")
        unschedulable = bool(record["prior"].get("unschedulable")) if record else unschedulable
    taints = [
        _fields(taint, ("key", "value", "effect"))
        for taint in spec.get("taints") or ()
        if taint["key"] not in _PASSING_TAINTS
    ]
    conditions = [_fields(c, ("type", "status", "reason")) for c in status.get("conditions") or ()]
    info = status.get("nodeInfo") or {}
    labels = dict(meta.get("labels") or {})
    return {
        "metadata": {"name": meta["name"], "uid": meta.get("uid", ""), "labels": labels},
        "spec": {"taints": taints, "unschedulable": unschedulable},
        "status": {
            **{key: dict(status.get(key) or {}) for key in ("allocatable", "capacity")},
            "conditions": [c for c in conditions if c["type"] not in names.LIFECYCLE],
            "nodeInfo": _fields(info, ("architecture", "kubeletVersion", "operatingSystem")),
        },
    }


_SLIMMED: t.Mapping[str, t.Callable[[str, Raw], Json | None]] = {
    "nodes": _node,
    "namespaces": _namespace,
    "pods": _pod,
    "services": _service,
    "claims": _claim,
    "volumes": _volume,
    **dict.fromkeys(_WORKLOAD, _workload),
    **dict.fromkeys(_WHOLE, _whole),
    **{kind: _with_spec for kind in _SPEC if kind not in ("claims", "volumes")},
}
KINDS = tuple(_SLIMMED)
"""The kinds of a snapshot."""
