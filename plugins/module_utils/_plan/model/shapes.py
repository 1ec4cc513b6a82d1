# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What custom resources have to look like to be read: their definitions may allow anything (``decoding.fits``).

The API server checks the types of built-in kinds. Of custom ones only what is read of them is named here.
"""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import decoding, quantities

_TEXTS = {...: str}
_AMOUNTS = {...: quantities.readable}
_REQUIREMENTS = [{"key": str, "operator": str, "values": [str]}]
_SELECTOR = {"matchLabels": _TEXTS, "matchExpressions": _REQUIREMENTS}
_NODES = {"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS}
_NEIGHBOURS = {
    "labelSelector": _SELECTOR,
    "namespaceSelector": _SELECTOR,
    "namespaces": [str],
    "topologyKey": str,
    "matchLabelKeys": [str],
    "mismatchLabelKeys": [str],
}
_BESIDE = {
    "requiredDuringSchedulingIgnoredDuringExecution": [_NEIGHBOURS],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": int, "podAffinityTerm": _NEIGHBOURS}],
}
_RESOURCES = {"requests": _AMOUNTS, "limits": _AMOUNTS}
_CONTAINERS = [
    {
        "name": str,
        "resources": _RESOURCES,
        "ports": [{"hostPort": int, "hostIP": str, "protocol": str}],
        "restartPolicy": str,
        "readinessProbe": {"initialDelaySeconds": int},
    }
]
_CONDITIONS = [{"type": str, "status": str, "reason": str, "message": str}]

POD_SPEC: decoding.Shape = {
    "containers": _CONTAINERS,
    "initContainers": _CONTAINERS,
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_NODES]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": int, "preference": _NODES}],
        },
        "podAffinity": _BESIDE,
        "podAntiAffinity": _BESIDE,
    },
    "nodeSelector": _TEXTS,
    "overhead": _AMOUNTS,
    "resources": _RESOURCES,
    "resourceClaims": [_TEXTS],
    "tolerations": [{"key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int}],
    "topologySpreadConstraints": [
        {"maxSkew": int, "minDomains": int, "topologyKey": str, "labelSelector": _SELECTOR, "matchLabelKeys": [str]}
    ],
    "volumes": [{"name": str, "persistentVolumeClaim": {"claimName": str}, ...: (str, dict)}],
    "priorityClassName": str,
    "preemptionPolicy": str,
    "schedulerName": str,
    "priority": int,
}
WORKLOAD: decoding.Shape = {
    "spec": {
        "replicas": int,
        "minReadySeconds": int,
        "progressDeadlineSeconds": int,
        "podManagementPolicy": str,
        "selector": _SELECTOR,
        "strategy": {"type": str},
        "template": {"metadata": {"labels": _TEXTS, "annotations": _TEXTS}, "spec": POD_SPEC},
    },
    "status": {"replicas": int, "readyReplicas": int, "availableReplicas": int, "conditions": _CONDITIONS},
}
VIRTUAL_MACHINE: decoding.Shape = {"spec": {"evictionStrategy": str}, "status": {"conditions": _CONDITIONS}}
KUBEVIRT: decoding.Shape = {"spec": {"configuration": {"evictionStrategy": str}}}
JOB: decoding.Shape = {
    "spec": {
        "podRef": _TEXTS,
        "mode": str,
        "reservationOptions": {
            "reservationRef": {"name": str},
            "template": {"spec": {"owners": [{"controller": {"uid": str}}]}},
        },
        "deleteOptions": {"preconditions": {"uid": str}},
    },
    "status": {
        "podRef": {"name": str, "namespace": str, "uid": str},
        "conditions": [{"type": str, "status": str, "reason": str, "message": str, "lastTransitionTime": str}],
        **dict.fromkeys(("phase", "status", "reason", "message", "nodeName"), str),
    },
}
