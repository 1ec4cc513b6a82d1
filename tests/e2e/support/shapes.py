# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Manifests of the workloads that the tests use. Pure: words in, API objects out."""

from __future__ import annotations

from typing import Any

from witness.log import Json

START = "lab.kubeops.io/start"
STOP = "lab.kubeops.io/stop"
ARENA = "lab.kubeops.io/arena"


def merged(base: Json, extra: Json | None) -> Json:
    """`extra` laid over `base`, maps merged, everything else replaced."""
    out = dict(base)
    for key, value in (extra or {}).items():
        known = out.get(key)
        out[key] = merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return out


def pod_spec(arena: str, extra: Json | None = None) -> Json:
    """One container; kept to the arena's nodes, free to move among them."""
    base = {
        "nodeSelector": {ARENA: arena},
        "terminationGracePeriodSeconds": 30,
        "containers": [{"name": "main", "image": "registry.invalid/app:1"}],
    }
    return merged(base, extra)


def template(arena: str, name: str, start: str, stop: str, pod: Json | None, notes: Json | None) -> Json:
    times = {START: start, STOP: stop}
    return {
        "metadata": {"labels": {"app": name}, "annotations": {**times, **(notes or {})}},
        "spec": pod_spec(arena, pod),
    }


def workload(kind: str, name: str, made: Json, replicas: int | None, extra: Json | None) -> Json:
    """A Deployment, StatefulSet, ReplicaSet or DaemonSet over a pod template."""
    spec: Json = {"selector": {"matchLabels": {"app": name}}, "template": made}
    if replicas is not None:
        spec["replicas"] = replicas
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": merged(spec, extra),
    }


def service(name: str, app: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": app}, "ports": [{"port": 80}]},
    }


def budget(name: str, app: str, **rule: Any) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": app}}, **rule},
    }


def hpa(name: str, lowest: int, highest: int, usage: int) -> Json:
    """Scales the Deployment of the same name by its pods' CPU (percent of the request)."""
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": lowest,
            "maxReplicas": highest,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": usage},
                    },
                }
            ],
        },
    }


def node(name: str, arena: str, labels: Json | None = None) -> Json:
    room = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    known = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", ARENA: arena}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**known, **(labels or {})},
            "annotations": {
                "kwok.x-k8s.io/node": "fake",
                "metrics.k8s.io/resource-metrics-path": f"/metrics/nodes/{name}/metrics/resource",
            },
        },
        # The IP answers to nobody: a test that wants a host says how it is reached. By the DNS name
        # the metrics server finds the lab's numbers.
        "status": {
            "allocatable": room,
            "capacity": room,
            "addresses": [
                {"type": "InternalIP", "address": "127.0.9.1"},
                {"type": "Hostname", "address": name},
                {"type": "InternalDNS", "address": "localhost"},
            ],
        },
    }
