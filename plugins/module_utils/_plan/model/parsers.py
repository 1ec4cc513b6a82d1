# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The kinds that a snapshot may hold, and how an object of each is parsed."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    decoding,
    objects,
    shapes,
    sharing,
)

SERVICE, HEADLESS = "kubernetes.io/service-name", "service.kubernetes.io/headless"
"""The label by which an EndpointSlice names its Service."""
ENDED = ("Complete", "Failed")
"""The conditions of a Job that is over."""
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
    "selecting_services",
    "network_policies",
    "replication_controllers",
    "kruise_daemon_sets",
    "selecting_jobs",
)


def _slice(raw: objects.Raw, share: sharing.Shared = sharing.APART) -> objects.Raw:
    """An EndpointSlice with what is asked of it: its Service, and which endpoints it lists and which are not ready."""
    return decoding.readable(functools.partial(_trimmed, share), raw)


def _trimmed(share: sharing.Shared, raw: objects.Raw) -> objects.Raw:
    meta = decoding.fitting(raw, shapes.ENDPOINT_SLICE)["metadata"]
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


def custom(
    raw: objects.Raw, api_version: str, kind: str, share: sharing.Shared = sharing.APART
) -> objects.Workload | None:
    """A workload of a custom kind; ``None`` if it cannot be understood, so that nothing is known of it."""
    try:
        fits = decoding.fits(raw, shapes.WORKLOAD)
        return objects.Workload.of(raw, api_version, kind, share) if fits else None
    except decoding.MISREAD:
        return None


def _as_it_is(shape: decoding.Shape, raw: objects.Raw) -> objects.Raw:
    """The object, without the parts that are of another shape."""
    return decoding.readable(lambda raw: decoding.fitting(raw, shape), raw)


service = functools.partial(_as_it_is, shapes.SERVICE)


def _of_shape(shape: decoding.Shape, raw: objects.Raw) -> objects.Raw | None:
    """The object as it is, ``None`` if it is of another shape."""
    return raw if decoding.fits(raw, shape) else None


def _selecting(raw: objects.Raw) -> objects.Raw | None:
    """A Job that may take pods by a selector of its own; those of others name their UID, and ended ones take none."""
    job = _as_it_is({**shapes.ANY, **shapes.RAW["selecting_jobs"]}, raw)
    conditions = (job.get("status") or {}).get("conditions") or ()
    ended = any(one.get("type") in ENDED and one.get("status") == "True" for one in conditions)
    return job if (job.get("spec") or {}).get("manualSelector") and not ended else None


PARSERS: t.Mapping[str, t.Callable[[objects.Raw], t.Any]] = {
    "nodes": objects.Node.of,
    "pods": objects.Pod.of,
    "budgets": objects.Budget.of,
    "deployments": functools.partial(objects.Workload.of, api_version="apps/v1", kind="Deployment"),
    "replica_sets": functools.partial(objects.Workload.of, api_version="apps/v1", kind="ReplicaSet"),
    "stateful_sets": functools.partial(objects.Workload.of, api_version="apps/v1", kind="StatefulSet"),
    "rollouts": functools.partial(custom, api_version="argoproj.io/v1alpha1", kind="Rollout"),
    "clone_sets": functools.partial(custom, api_version="apps.kruise.io/v1alpha1", kind="CloneSet"),
    "scales": objects.Workload.of,
    "autoscalers": objects.Autoscaler.of,
    "slices": _slice,
    **{name: functools.partial(_as_it_is, {**shapes.ANY, **shapes.RAW.get(name, {})}) for name in UNPARSED},
    "selecting_jobs": _selecting,
    "virtual_machines": functools.partial(_of_shape, shapes.VIRTUAL_MACHINE),
    "kubevirts": functools.partial(_of_shape, shapes.KUBEVIRT),
}
"""How an object of each kind that a snapshot may hold is parsed; ``None`` leaves it out."""


def parser(name: str, share: sharing.Shared) -> t.Callable[[objects.Raw], t.Any]:
    """How one of many objects of the kind is parsed: as in ``PARSERS``, but equal parts of them are kept once."""
    return PARSERS[name] if name in UNPARSED else functools.partial(t.cast("t.Any", PARSERS[name]), share=share)
