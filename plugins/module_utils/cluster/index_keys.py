# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""By what the objects of a cluster are asked for."""

from __future__ import annotations

import contextlib
import functools
import json
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    names,
    objects,
    shapes,
    sharing,
)

# The kinds that a snapshot may hold, and how an object of each is parsed.


SERVICE, HEADLESS = "kubernetes.io/service-name", "service.kubernetes.io/headless"
"""The label by which an EndpointSlice names its Service."""
ENDED = ("Complete", "Failed")
"""The conditions of a Job that is over."""
SOFT = "ScheduleAnyway"
"""Where topology spread is only wished for."""
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


def _slice(raw: objects.Raw, share: sharing.Interner = sharing.NO_INTERNING) -> objects.Raw:
    """An EndpointSlice with what is asked of it: its Service, and which endpoints it lists and
    which are not ready.
    """
    return decoding.readable(functools.partial(_trimmed, share), raw)


def _trimmed(share: sharing.Interner, raw: objects.Raw) -> objects.Raw:
    meta = decoding.fitting(raw, shapes.ENDPOINT_SLICE)["metadata"]
    labels = {
        key: value
        for key, value in (meta.get("labels") or {}).items()
        if key in (SERVICE, HEADLESS)
    }
    return {
        "metadata": {
            "namespace": share.text(meta.get("namespace", "")),
            "name": meta["name"],
            "labels": labels,
        },
        "addressType": raw.get("addressType", ""),
        "endpoints": [_endpoint(endpoint) for endpoint in raw.get("endpoints") or ()],
    }


def _endpoint(raw: objects.Raw) -> objects.Raw:
    uid = (raw.get("targetRef") or {}).get("uid")
    kept: objects.Raw = (
        {"targetRef": {"uid": uid}} if uid else {"addresses": raw.get("addresses") or []}
    )
    unready = (raw.get("conditions") or {}).get("ready") is False
    return {**kept, "conditions": UNREADY} if unready else kept


def custom(
    raw: objects.Raw, api_version: str, kind: str, share: sharing.Interner = sharing.NO_INTERNING
) -> objects.Workload | None:
    """A workload of a custom kind; ``None`` if it cannot be understood,
    so that nothing is known of it.
    """
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
    """A Job that may take pods by a selector of its own; those of others name their UID,
    and ended ones take none.
    """
    job = _as_it_is({**shapes.ANY, **shapes.RAW["selecting_jobs"]}, raw)
    conditions = (job.get("status") or {}).get("conditions") or ()
    ended = any(one.get("type") in ENDED and one.get("status") == "True" for one in conditions)
    return job if (job.get("spec") or {}).get("manualSelector") and not ended else None


PARSERS: t.Mapping[str, t.Callable[[objects.Raw], t.Any]] = {
    "nodes": objects.Node.of,
    "pods": objects.Pod.of,
    "budgets": objects.Budget.of,
    "deployments": functools.partial(objects.Workload.of, api_version="apps/v1", kind="Deployment"),
    "replica_sets": functools.partial(
        objects.Workload.of, api_version="apps/v1", kind="ReplicaSet"
    ),
    "stateful_sets": functools.partial(
        objects.Workload.of, api_version="apps/v1", kind="StatefulSet"
    ),
    "rollouts": functools.partial(custom, api_version="argoproj.io/v1alpha1", kind="Rollout"),
    "clone_sets": functools.partial(custom, api_version="apps.kruise.io/v1alpha1", kind="CloneSet"),
    "scales": objects.Workload.of,
    "autoscalers": objects.Autoscaler.of,
    "slices": _slice,
    **{
        name: functools.partial(_as_it_is, {**shapes.ANY, **shapes.RAW.get(name, {})})
        for name in UNPARSED
    },
    "selecting_jobs": _selecting,
    "virtual_machines": functools.partial(_of_shape, shapes.VIRTUAL_MACHINE),
    "kubevirts": functools.partial(_of_shape, shapes.KUBEVIRT),
}
"""How an object of each kind that a snapshot may hold is parsed; ``None`` leaves it out."""


def parser(name: str, share: sharing.Interner) -> t.Callable[[objects.Raw], t.Any]:
    """How one of many objects of the kind is parsed: as in ``PARSERS``,
    but equal parts of them are kept once.
    """
    if name in UNPARSED:
        return PARSERS[name]
    return functools.partial(t.cast("t.Any", PARSERS[name]), share=share)


def unless_superseded(
    owners: t.Container[str], parse: t.Callable[[objects.Raw], t.Any], raw: objects.Raw
) -> t.Any:
    """A ReplicaSet; ``None`` for an earlier revision that is none of these owners of pods."""
    with contextlib.suppress(*decoding.MISREAD):
        if raw["metadata"]["uid"] not in owners and objects.superseded(raw):
            return None
    return parse(raw)


NamespacedName = tuple[str, str]
"""Namespace and name."""


def _selected(
    one: objects.Budget | objects.Workload, rare: str = ""
) -> tuple[tuple[str, str, str], ...]:
    """Namespace and a label of its selector: ``rare`` if it has that, or the first;
    empty texts without any.
    """
    exact: objects.Raw = (one.selector or {}).get("matchLabels") or {}
    if rare and rare in exact:
        return ((one.namespace, rare, exact[rare]),)
    return ((one.namespace, *next(iter(exact.items()), ("", ""))),)


def _adopting(workload: objects.Workload) -> tuple[tuple[str, str, str], ...]:
    """The keys of a ReplicaSet that takes pods; earlier revisions are kept without a selector."""
    taking = workload.kind == "ReplicaSet" and workload.selector is not None
    return _selected(workload, names.HASH) if taking else ()


def names_hash(value: t.Any) -> bool:
    """Whether the label is named in it, as a key of a selector or in a list of keys."""
    return f'"{names.HASH}"' in json.dumps(value)


def _of_revisions(policy: objects.Raw) -> tuple[str, ...]:
    return (names.HASH,) if names_hash(policy.get("spec")) else ()


def _placed_by_revisions(workload: objects.Workload) -> tuple[str, ...]:
    required = list(_required(workload.pod_spec))
    return (workload.uid,) if required and names_hash(required) else ()


def _required(spec: objects.Raw) -> t.Iterator[objects.Raw]:
    """Where its pods must run beside others. What is only wished for counts the new pod as it
    counts any successor.
    """
    yield from (
        one
        for one in spec.get("topologySpreadConstraints") or ()
        if one.get("whenUnsatisfiable") != SOFT
    )
    for one in (spec.get("affinity") or {}).values():
        yield (one or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}


def _choosing_revisions(budget: objects.Budget) -> tuple[str, ...]:
    return (budget.namespace,) if names_hash(budget.selector) else ()


def peers(spec: objects.Raw) -> t.Iterator[objects.Raw]:
    """The peers with which a NetworkPolicy lets its pods talk."""
    for direction, side in (("ingress", "from"), ("egress", "to")):
        for rule in spec.get(direction) or ():
            yield from rule.get(side) or ()


def _reaching(policy: objects.Raw) -> tuple[str, ...]:
    """Its namespace, and an empty text where it may select pods of others."""
    far = any("namespaceSelector" in peer for peer in peers(policy.get("spec") or {}))
    return (policy["metadata"]["namespace"], *([""] if far else []))


def _owner(one: objects.Object) -> tuple[str, ...]:
    return (one.owner.uid,) if one.owner else ()


def _where_unreadable(one: objects.Object) -> tuple[str, ...]:
    return (one.namespace,) if one.unreadable else ()


def _place(raw: objects.Raw) -> tuple[NamespacedName, ...]:
    return ((raw["metadata"].get("namespace", ""), raw["metadata"]["name"]),)


def service_of(piece: objects.Raw) -> tuple[NamespacedName, ...]:
    """The Service of an EndpointSlice, if it has one."""
    name = (piece["metadata"].get("labels") or {}).get(SERVICE)
    return ((piece["metadata"].get("namespace", ""), name),) if name else ()


def ready_in(piece: objects.Raw, uid: str) -> bool:
    """Whether the pod with this UID is a ready endpoint of an EndpointSlice."""
    of_pod = (
        one
        for one in piece.get("endpoints") or ()
        if (one.get("targetRef") or {}).get("uid") == uid
    )
    return any(ready(endpoint) for endpoint in of_pod)


def ready(endpoint: objects.Raw) -> bool:
    """Whether an endpoint is ready; a condition that is not given means that
    it is (discovery/v1).
    """
    return (endpoint.get("conditions") or {}).get("ready") is not False


def _targets(piece: objects.Raw) -> t.Iterable[str]:
    """The UIDs of the pods behind an EndpointSlice of a Service."""
    found = (endpoint.get("targetRef") or {} for endpoint in piece.get("endpoints") or ())
    if service_of(piece):
        return dict.fromkeys(target["uid"] for target in found if target.get("uid"))
    return ()


def _uid(raw: objects.Raw) -> tuple[str, ...]:
    return (raw["metadata"]["uid"],)


Keys = t.Callable[[t.Any], t.Iterable[t.Any]]

_KEYS: t.Mapping[str, tuple[str, Keys]] = {
    "pods by uid": ("pods", lambda pod: (pod.uid,)),
    "pods by node": ("pods", lambda pod: (pod.node,)),
    "pods by owner": ("pods", _owner),
    "pods by namespace": ("pods", lambda pod: (pod.namespace,)),
    "budgets by label": ("budgets", _selected),
    "budgets of revisions": ("budgets", _choosing_revisions),
    "budgets by place": ("budgets", lambda budget: ((budget.namespace, budget.name),)),
    "unreadable budgets": ("budgets", _where_unreadable),
    "workloads by uid": ("workloads", lambda workload: (workload.uid,)),
    "workloads placed by revisions": ("workloads", _placed_by_revisions),
    "workloads by owner": ("workloads", _owner),
    "replica sets by label": ("workloads", _adopting),
    "policies of revisions": ("network_policies", _of_revisions),
    "policies by namespace": ("network_policies", _reaching),
    "autoscalers by target": (
        "autoscalers",
        lambda one: ((one.namespace, one.target_kind, one.target_name),),
    ),
    "unreadable autoscalers": ("autoscalers", _where_unreadable),
    "slices by service": ("slices", service_of),
    "slices by pod": ("slices", _targets),
    "daemon_sets by uid": ("daemon_sets", _uid),
    "claims by place": ("claims", _place),
    "volumes by place": ("volumes", _place),
    "device_claims by place": ("device_claims", _place),
    "virtual_machines by uid": ("virtual_machines", _uid),
}
"""By what is asked for: of which field it is, and the keys of one object."""


def keys(name: str) -> tuple[str, Keys]:
    """Of which field of a snapshot an index is, and the keys of one object; ``label <key>``:
    pods with this label.
    """
    what, _space, label = name.partition(" ")
    return ("pods", functools.partial(_by_label, label)) if what == "label" else _KEYS[name]


def _by_label(key: str, pod: objects.Pod) -> tuple[tuple[str, str], ...]:
    return ((pod.namespace, pod.labels[key]),) if key in pod.labels else ()
