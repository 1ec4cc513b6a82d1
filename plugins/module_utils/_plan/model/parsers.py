# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The kinds that a snapshot may hold, and how an object of each is parsed."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, sharing

SERVICE, HEADLESS = "kubernetes.io/service-name", "service.kubernetes.io/headless"
"""The label by which an EndpointSlice names its Service."""
UNREADY: objects.Raw = {"ready": False}
DEVICES = ("device_claims", "device_slices", "device_classes", "device_rules")
UNPARSED = (
    "daemon_sets",
    "claims",
    "volumes",
    "quotas",
    "limits",
    "leases",
    "attachments",
    "eviction_requests",
    "csi_nodes",
    "storage_classes",
    "namespaces",
    *DEVICES,
    "pod_groups",
    "virtual_machines",
    "kubevirts",
)


def _slice(raw: objects.Raw, share: sharing.Shared = sharing.APART) -> objects.Raw:
    """An EndpointSlice with what is asked of it: its Service, and which endpoints it lists and which are not ready."""
    meta = raw["metadata"]
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key in (SERVICE, HEADLESS)}
    return {
        "metadata": {"namespace": share.text(meta.get("namespace", "")), "name": meta["name"], "labels": labels},
        "addressType": raw.get("addressType", ""),
        "endpoints": [_endpoint(endpoint) for endpoint in raw.get("endpoints") or ()],
    }


def _endpoint(raw: objects.Raw) -> objects.Raw:
    uid = (raw.get("targetRef") or {}).get("uid")
    kept: objects.Raw = {"targetRef": {"uid": uid}} if uid else {"addresses": raw.get("addresses") or []}
    unready = (raw.get("conditions") or {}).get("ready") is False
    return {**kept, "conditions": UNREADY} if unready else kept


PARSERS: t.Mapping[str, t.Callable[[objects.Raw], t.Any]] = {
    "nodes": objects.Node.of,
    "pods": objects.Pod.of,
    "budgets": objects.Budget.of,
    "deployments": functools.partial(objects.Workload.of, api_version="apps/v1", kind="Deployment"),
    "replica_sets": functools.partial(objects.Workload.of, api_version="apps/v1", kind="ReplicaSet"),
    "stateful_sets": functools.partial(objects.Workload.of, api_version="apps/v1", kind="StatefulSet"),
    "rollouts": functools.partial(objects.Workload.of, api_version="argoproj.io/v1alpha1", kind="Rollout"),
    "clone_sets": functools.partial(objects.Workload.of, api_version="apps.kruise.io/v1alpha1", kind="CloneSet"),
    "scales": objects.Workload.of,
    "autoscalers": objects.Autoscaler.of,
    "slices": _slice,
    **dict.fromkeys(UNPARSED, lambda raw: raw),
}
"""How an object of each kind that a snapshot may hold is parsed."""


def parser(name: str, share: sharing.Shared) -> t.Callable[[objects.Raw], t.Any]:
    """How one of many objects of the kind is parsed: as in ``PARSERS``, but equal parts of them are kept once."""
    return PARSERS[name] if name in UNPARSED else functools.partial(t.cast("t.Any", PARSERS[name]), share=share)
