# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which workloads may be surged.

A surge (one more pod, wait for it, delete the leaving one) is decided from the specification alone:
a volume that only one node can mount, a workload that must never run twice or a rollout in progress
would look fine until it does harm.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons

SURGEABLE: t.Collection[tuple[str, str]] = frozenset(
    {
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("argoproj.io", "Rollout"),
        ("apps.kruise.io", "CloneSet"),
    }
)
"""Groups and kinds that are known to delete the pod with the lowest deletion cost first."""

WITH_REPLICA_SETS = frozenset({"Deployment", "Rollout"})
SINGLE_NODE_MODES = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})
SINGLE_NODE_VOLUMES = (
    "awsElasticBlockStore",
    "azureDisk",
    "cinder",
    "fc",
    "gcePersistentDisk",
    "iscsi",
    "rbd",
    "vsphereVolume",
)
"""Volume sources of a pod that attach to one node at a time unless they are read-only."""

ACCEPT = f"accept the interruption with {reasons.options(allow_interruption=True)}"
AGREE = (
    "It is down while its pod restarts: allow that for the run with "
    f"{reasons.options(allow_interruption=True)}, "
    f'or on the workload with the annotation {names.ALLOW_INTERRUPTION}: "true".'
)


def refusal(snapshot: snapshots.Snapshot, workload: objects.Workload) -> reasons.Reason | None:
    """Why the specification of a workload of one replica does not allow one more pod for a while,
    and what its owner can do.
    """
    checks = (_kind, _recreate, volumes, _autoscaler, _rollout)
    return next((found for check in checks if (found := check(snapshot, workload))), None)


def _kind(snapshot: snapshots.Snapshot, workload: objects.Workload) -> reasons.Reason | None:
    if workload.kind == "StatefulSet":
        why = (
            f"{workload.ref} has one pod with a fixed identity; "
            "a second one would be another member."
        )
        return reasons.Reason("stateful_single", why, AGREE)
    ref = workload.ref
    if workload.kind == "ReplicaSet" and workload.owner:
        why = (
            f"{ref} belongs to {workload.owner} ({workload.owner.api_version}), "
            "which would undo a change to it."
        )
        remedy = f"Scale its owner by hand, or {ACCEPT}."
    elif (ref.api_version.partition("/")[0], ref.kind) not in SURGEABLE:
        why = (
            f"{ref} ({ref.api_version}) is of a kind that may delete any pod when "
            "it is scaled down."
        )
        remedy = f"Scale it by hand, or {ACCEPT}."
    else:
        return None
    return reasons.Reason("not_surgeable", why, remedy)


def _recreate(snapshot: snapshots.Snapshot, workload: objects.Workload) -> reasons.Reason | None:
    strategy = (workload.spec.get("strategy") or {}).get("type")
    if strategy != "Recreate":
        return None
    why = (
        f"{workload.ref} has one replica and the strategy Recreate, "
        "so two of its pods may never run at once."
    )
    return reasons.Reason("recreate", why, AGREE)


def volumes(snapshot: snapshots.Snapshot, workload: objects.Workload) -> reasons.Reason | None:
    """Why no second pod could mount the workload's volumes."""
    # Those of the template and of the pods: a Rollout may keep its template elsewhere.
    of_pods = snapshot.volumes_of(workload)
    for volume in (*(workload.pod_spec.get("volumes") or ()), *of_pods):
        if found := tied(snapshot, volume, workload.namespace):
            why = (
                f"{workload.ref} mounts {found}, which a second pod on another node cannot attach."
            )
            remedy = f"Move the data to a ReadWriteMany volume, or {ACCEPT}."
            return reasons.Reason("volume_single_node", why, remedy)
    return None


def tied(snapshot: snapshots.Snapshot, volume: objects.Raw, namespace: str) -> str:
    """What ties a pod with this volume to one node at a time, as text; empty where nothing does."""
    for source in SINGLE_NODE_VOLUMES:
        if source in volume and not (volume[source] or {}).get("readOnly"):
            return f"the {source} volume {volume.get('name')}"
    mounted = volume.get("persistentVolumeClaim")
    if not mounted:
        return ""
    name = mounted.get("claimName", "")
    claim = snapshot.claim(namespace, name)
    if claim is None:
        return f"the claim {name}, which cannot be read"
    modes = set((claim.get("spec") or {}).get("accessModes") or ())
    if "ReadWriteMany" in modes or ("ReadOnlyMany" in modes and mounted.get("readOnly")):
        return ""
    if modes & SINGLE_NODE_MODES:
        return f"the claim {name} ({', '.join(sorted(modes))})"
    return ""


def _autoscaler(snapshot: snapshots.Snapshot, workload: objects.Workload) -> reasons.Reason | None:
    """An autoscaler lowers the count again before the second pod has served,
    unless its minimum holds that.
    """
    scaler = snapshot.autoscaler_of(workload)
    wanted = workload.replicas + 1
    if scaler is None or scaler.minimum >= wanted:
        return None
    why = (
        f"{scaler.ref} sets the count of {workload.ref}, and would lower it to "
        f"{workload.replicas} again."
    )
    before = {"minReplicas": scaler.minimum}
    if scaler.maximum < wanted:
        before["maxReplicas"] = scaler.maximum
    patch = f"kubectl patch hpa {scaler.name} -n {scaler.namespace} --type=merge -p"
    raise_it = (
        f"{patch} '{_spec_of(dict.fromkeys(before, wanted))}', "
        f"and after it: {patch} '{_spec_of(before)}'"
    )
    if scaler.owner:
        why = (
            f"{scaler.ref} sets the count of {workload.ref}, "
            f"and {scaler.owner} manages its minimum."
        )
        raise_it = f"in {scaler.owner} (KEDA: minReplicaCount)"
    remedy = f"Raise its minimum to {wanted} for the maintenance: {raise_it}; or {ACCEPT}."
    return reasons.Reason("autoscaler_owned", why, remedy)


def _spec_of(limits: t.Mapping[str, int]) -> str:
    return json.dumps({"spec": limits}, separators=(",", ":"))


def _rollout(snapshot: snapshots.Snapshot, workload: objects.Workload) -> reasons.Reason | None:
    if not (why := rollout(snapshot, workload)):
        return None
    remedy = (
        "Wait for the rollout to complete, or roll it back; a surge could delete a pod that serves."
    )
    return reasons.Reason(
        "rollout_in_progress", f"{workload.ref} is being rolled out: {why}.", remedy
    )


def rollout(snapshot: snapshots.Snapshot, workload: objects.Workload) -> str:
    """Why the workload is not at rest, empty where it is.

    At rest: its controller has seen the specification, and exactly one ReplicaSet has pods, made
    from the current template unless the Deployment is paused; or none has and none is wanted.
    """
    if not workload.observed:
        return "its controller has not seen the latest specification yet"
    if workload.kind == "CloneSet":
        # It marks its pods with the revision that they were created from.
        pods = (pod for pod in snapshot.pods_of(workload) if not pod.deleting)
        revisions = {pod.labels.get(names.REVISION) for pod in pods}
        return "its pods are of several revisions" if len(revisions) > 1 else ""
    if workload.kind not in WITH_REPLICA_SETS:
        return ""
    sets = [
        w
        for w in snapshot.owned_by(workload)
        if w.kind == "ReplicaSet" and (w.replicas or w.current)
    ]
    if not sets and not workload.replicas:
        return ""
    if len(sets) != 1:
        return (
            f"{len(sets)} of its ReplicaSets have replicas "
            f"({', '.join(s.name for s in sets) or 'none'})"
        )
    if (
        workload.kind == "Deployment"
        and not workload.spec.get("paused")
        and _differs(workload, sets[0])
    ):
        return f"ReplicaSet {sets[0].name} is not of the current template"
    return ""


def _differs(workload: objects.Workload, replica_set: objects.Workload) -> bool:
    """Whether the ReplicaSet's template is another one, apart from its hash label."""
    ours, theirs = workload.template, replica_set.template
    return bool(ours and theirs and _without_hash(ours) != _without_hash(theirs))


def _without_hash(template: objects.Raw) -> tuple[objects.Raw, objects.Raw, t.Any]:
    meta = template.get("metadata") or {}
    labels = {k: v for k, v in (meta.get("labels") or {}).items() if k != names.HASH}
    return labels, meta.get("annotations") or {}, template.get("spec")
