# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What objects have to look like to be read (``decoding.fits``);
only what is read of them is named here.

The definitions of custom resources may allow anything. The API server checks the types of built-in
kinds: the shapes of these are for whatever else goes wrong.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    pod_specs,
    quantities,
)

TEXTS = {...: str}
AMOUNTS = {...: quantities.readable}
_REQUIREMENTS = [{"key": str, "operator": str, "values": [str]}]
SELECTOR = {"matchLabels": TEXTS, "matchExpressions": _REQUIREMENTS}
_NODES = {"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS}
_NEIGHBOURS = {
    "labelSelector": SELECTOR,
    "namespaceSelector": SELECTOR,
    "namespaces": [str],
    "topologyKey": str,
    "matchLabelKeys": [str],
    "mismatchLabelKeys": [str],
}
_BESIDE = {
    "requiredDuringSchedulingIgnoredDuringExecution": [_NEIGHBOURS],
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": int, "podAffinityTerm": _NEIGHBOURS}
    ],
}
NAMES = [str]
OWNERS = [dict.fromkeys(("kind", "name", "uid", "apiVersion"), str)]
TAINTS = [dict.fromkeys(("key", "value", "effect"), str)]
_RESOURCES = {"requests": AMOUNTS, "limits": AMOUNTS}
_MODES = {"accessModes": [str], "storageClassName": str, "volumeMode": str}
DISKS: dict[str, dict[str, type]] = {
    "awsElasticBlockStore": {"volumeID": str},
    "azureDisk": {"diskURI": str},
    "cinder": {"volumeID": str},
    "gcePersistentDisk": {"pdName": str},
    "portworxVolume": {"volumeID": str},
}
"""Disks of before CSI, by what names them: in a PersistentVolume, or in a pod itself."""
VOLUME: decoding.Shape = {
    "name": str,
    "persistentVolumeClaim": {"claimName": str},
    "ephemeral": {"volumeClaimTemplate": {"spec": {**_MODES, "resources": _RESOURCES}}},
    **DISKS,
    "iscsi": {"iqn": str},
    "rbd": {"monitors": [str], "pool": str, "image": str},
    ...: (str, dict),
}
_PORTS = [{"hostPort": int, "hostIP": str, "protocol": str}]
CONTAINER: decoding.Shape = {
    "name": str,
    "resources": _RESOURCES,
    "ports": _PORTS,
    "restartPolicy": str,
    "readinessProbe": {"initialDelaySeconds": int},
    "lifecycle": {"preStop": {"sleep": {"seconds": int}, "exec": {"command": [str]}}},
}
CONDITIONS = [{"type": str, "status": str, "reason": str, "message": str}]

POD_SPEC: decoding.Shape = {
    "containers": [CONTAINER],
    "initContainers": [CONTAINER],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_NODES]},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": int, "preference": _NODES}
            ],
        },
        "podAffinity": _BESIDE,
        "podAntiAffinity": _BESIDE,
    },
    "nodeSelector": TEXTS,
    "overhead": AMOUNTS,
    "resources": _RESOURCES,
    "resourceClaims": [TEXTS],
    "tolerations": [
        {"key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int}
    ],
    "topologySpreadConstraints": [
        {
            "maxSkew": int,
            "minDomains": int,
            "topologyKey": str,
            "labelSelector": SELECTOR,
            "matchLabelKeys": [str],
        }
    ],
    "volumes": [VOLUME],
    "priorityClassName": str,
    "preemptionPolicy": str,
    "schedulerName": str,
    "schedulingGates": [{"name": str}],
    "priority": int,
}
_KEPT = [{"name": str, "requests": AMOUNTS, "ports": _PORTS, "restartPolicy": str}]
PLACED: decoding.Shape = {
    **{key: POD_SPEC[key] for key in pod_specs.WHOLE if key in POD_SPEC},
    "containers": _KEPT,
    "initContainers": _KEPT,
    "counted": {...: [AMOUNTS]},
    "countedWhole": [AMOUNTS],
    "declared": [str],
}
"""What is kept of a pod's spec (``pod_specs.trimmed``)."""
TEMPLATE: decoding.Shape = {"metadata": {"labels": TEXTS, "annotations": TEXTS}, "spec": POD_SPEC}
WORKLOAD: decoding.Shape = {
    "spec": {
        "replicas": int,
        "minReadySeconds": int,
        "progressDeadlineSeconds": int,
        "podManagementPolicy": str,
        "ordinals": {"start": int},
        "selector": SELECTOR,
        "strategy": {"type": str},
        "template": TEMPLATE,
    },
    "status": {
        "replicas": int,
        "readyReplicas": int,
        "availableReplicas": int,
        "conditions": CONDITIONS,
    },
}
VIRTUAL_MACHINE: decoding.Shape = {
    "spec": {"evictionStrategy": str},
    "status": {"conditions": CONDITIONS},
}
KUBEVIRT: decoding.Shape = {"spec": {"configuration": {"evictionStrategy": str}}}
JOB: decoding.Shape = {
    "spec": {
        "podRef": TEXTS,
        "mode": str,
        "reservationOptions": {
            "reservationRef": {"name": str},
            "template": {"spec": {"owners": [{"controller": {"uid": str}}]}},
        },
        "deleteOptions": {"preconditions": {"uid": str}},
    },
    "status": {
        "podRef": {"name": str, "namespace": str, "uid": str},
        "conditions": [
            {"type": str, "status": str, "reason": str, "message": str, "lastTransitionTime": str}
        ],
        **dict.fromkeys(("phase", "status", "reason", "message", "nodeName"), str),
    },
}
_TERMS = [{"matchLabelExpressions": [{"key": str, "values": [str]}]}]
ANY: decoding.Shape = {
    "metadata": {"labels": TEXTS, "annotations": TEXTS, "ownerReferences": OWNERS}
}
ENDPOINT_SLICE: decoding.Shape = {
    **ANY,
    "addressType": str,
    "endpoints": [{"addresses": [str], "conditions": dict, "targetRef": {"uid": str}}],
}
SERVICE: decoding.Shape = {"spec": {"selector": TEXTS, "type": str}}
RAW: t.Mapping[str, dict[str, decoding.Shape]] = {
    "daemon_sets": WORKLOAD,
    "kruise_daemon_sets": WORKLOAD,
    "selecting_jobs": {
        "spec": {"manualSelector": bool, "selector": SELECTOR},
        "status": {"conditions": CONDITIONS},
    },
    "claims": {
        "spec": {**_MODES, "resources": _RESOURCES, "volumeName": str, "selector": SELECTOR}
    },
    "volumes": {
        "spec": {
            **_MODES,
            "capacity": AMOUNTS,
            "claimRef": {"namespace": str, "name": str, "uid": str},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [_NODES]}},
            "csi": {"driver": str, "volumeHandle": str},
            **DISKS,
            ...: (str, dict, list),
        }
    },
    "quotas": {
        "spec": {
            "hard": AMOUNTS,
            "scopes": [str],
            "scopeSelector": {
                "matchExpressions": [{"scopeName": str, "operator": str, "values": [str]}]
            },
        },
        "status": {"hard": AMOUNTS, "used": AMOUNTS},
    },
    "limits": {
        "spec": {
            "limits": [
                {"type": str, **dict.fromkeys(("max", "min", "default", "defaultRequest"), AMOUNTS)}
            ]
        }
    },
    "leases": {
        "spec": {
            "holderIdentity": str,
            "renewTime": str,
            "acquireTime": str,
            "leaseDurationSeconds": int,
        }
    },
    "attachments": {
        "spec": {"nodeName": str, "attacher": str, "source": {"persistentVolumeName": str}}
    },
    "csi_nodes": {
        "spec": {"drivers": [{"name": str, "allocatable": {"count": int}, "topologyKeys": [str]}]}
    },
    "storage_classes": {"provisioner": str, "volumeBindingMode": str, "allowedTopologies": _TERMS},
    "namespaces": {"status": {"phase": str}},
}
"""By kind, of what a decision reads as it is."""
