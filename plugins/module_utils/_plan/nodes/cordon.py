# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a node's steps write: out of service, parked, returning, back.

Each function takes the node as it was read and gives the one change that leads to the wanted step, or
``None`` where the node is there already. Record, cordon, taint and marks travel in one patch that
holds only for the resourceVersion that was read, so there is no moment between "saved" and "changed".
Giving back is a three-way merge (prior, ours, now): what somebody else changed meanwhile is kept.
"""

from __future__ import annotations

import datetime
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    names,
    node_records,
    node_taints,
    objects,
)

BALANCERS = "label/node.kubernetes.io/exclude-from-external-load-balancers"
BALANCERS_SETTLE = 30.0
"""Seconds from a node's cordon in which the cloud's load balancers learn that it has left them."""

MARKS: t.Mapping[str, str] = {
    "annotation/cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
    "annotation/karpenter.sh/do-not-disrupt": "true",
    "annotation/cluster.x-k8s.io/skip-remediation": "",
    BALANCERS: "",
}
"""What other controllers read while a node is out: no scale-down (cluster-autoscaler), no disruption
(Karpenter), no remediation (Cluster API MachineHealthCheck), no traffic from cloud load balancers
(service controller, stable since Kubernetes 1.21)."""


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The change that gives a node back, and what it leaves alone because somebody else wrote it."""

    change: api_changes.Change | None
    kept: tuple[str, ...] = ()


def balanced_for(record: node_records.Record, now: str) -> float:
    """Seconds for which load balancers may still send to the node: none where it had left them before us."""
    if BALANCERS not in record.marks:
        return 0.0
    passed = datetime.datetime.fromisoformat(now) - datetime.datetime.fromisoformat(record.since)
    return min(max(BALANCERS_SETTLE - passed.total_seconds(), 0.0), BALANCERS_SETTLE)


def our_taint(run_id: str) -> objects.Raw:
    """The taint that holds a node even when somebody lifts the cordon."""
    return {"key": names.TAINT_KEY, "value": run_id, "effect": "NoSchedule"}


def take_out(
    node: objects.Node, record: node_records.Record, *, taint: bool
) -> tuple[node_records.Record, api_changes.Change]:
    """Cordon, taint, marks and the record in one patch; ``record`` brings who, why and when.

    The prior state is read from the node and becomes part of the record that is returned.
    """
    added = (our_taint(record.run),) if taint else ()
    record = replace(
        record,
        step="cordoned",
        node_uid=node.uid,
        prior={"unschedulable": node.unschedulable, "bootID": node.boot_id},
        added=added,
        marks={
            key: node_records.Mark(_read(node, key), ours) for key, ours in MARKS.items() if _read(node, key) != ours
        },
    )
    return record, _patch(
        node,
        f"Take node {node.name} out of service",
        record=record,
        unschedulable=True,
        taints=_with(node.taints, added),
        marks={key: mark.ours for key, mark in record.marks.items()},
    )


def at_step(
    node: objects.Node, record: node_records.Record, step: node_records.Step, **changes: t.Any
) -> api_changes.Change | None:
    """Write a step of the record; ``returning`` lifts our taint, every other step holds it."""
    wanted = record.at(step, **changes)
    taints = _without(node.taints, record.added) if step == "returning" else _with(node.taints, record.added)
    if wanted.dump() == node.annotations.get(names.RECORD) and taints == node.taints:
        return None
    sentence = {
        "cordoned": f"Take up the maintenance of node {node.name}",
        "drained": f"Record node {node.name} as drained",
        "out": f"Record that work on node {node.name} begins",
        "returning": f"Lift our taint from node {node.name}, still cordoned",
        "parked": f"Leave node {node.name} out of service with nobody working on it",
    }[step]
    return _patch(node, sentence, record=wanted, taints=taints)


def hold_with(
    node: objects.Node, record: node_records.Record, taint: objects.Raw
) -> tuple[node_records.Record, api_changes.Change | None]:
    """One more taint of ours, in the record as well; one that somebody else has set is left to them."""
    if any(node_taints.same_taint(taint, x) for x in node.taints) and not any(
        node_taints.same_taint(taint, x) for x in record.added
    ):
        return record, None
    added = record.added if any(node_taints.same_taint(taint, x) for x in record.added) else (*record.added, taint)
    wanted = replace(record, added=added)
    taints = _with(node.taints, (taint,))
    if wanted.dump() == node.annotations.get(names.RECORD) and taints == node.taints:
        return wanted, None
    return wanted, _patch(node, f"Set {node_taints.in_words(taint)} on node {node.name}", record=wanted, taints=taints)


def let_go_of(
    node: objects.Node, record: node_records.Record, taint: objects.Raw
) -> tuple[node_records.Record, api_changes.Change | None]:
    """The opposite of ``hold_with``; a taint that is not in the record is somebody else's and stays."""
    if not any(node_taints.same_taint(taint, x) for x in record.added):
        return record, None
    wanted = replace(record, added=_without(record.added, (taint,)))
    taints = _without(node.taints, (taint,))
    return wanted, _patch(
        node, f"Lift {node_taints.in_words(taint)} from node {node.name}", record=wanted, taints=taints
    )


def give_back(node: objects.Node, record: node_records.Record) -> GivenBack:
    """Undo what the record says is ours, and the record with it."""
    kept: list[str] = []
    unschedulable = node.unschedulable
    if node.unschedulable:
        unschedulable = bool(record.prior.get("unschedulable"))
    elif record.prior.get("unschedulable"):
        kept.append(f"node {node.name} was cordoned before, and somebody uncordoned it meanwhile")
    else:
        kept.append(f"somebody uncordoned node {node.name} during the maintenance")
    marks: dict[str, str | None] = {}
    for key, mark in record.marks.items():
        if _read(node, key) == mark.ours:
            marks[key] = mark.prior
        else:
            kept.append(f"{key} of node {node.name} was changed by somebody else to {_read(node, key)!r}")
    change = _patch(
        node,
        f"Give node {node.name} back" + (", still cordoned as it was before" if unschedulable else ""),
        record=None,
        unschedulable=unschedulable,
        taints=_without(node.taints, record.added),
        marks=marks,
    )
    return GivenBack(change, tuple(kept))


def foreign_changes(node: objects.Node, record: node_records.Record) -> tuple[str, ...]:
    """What somebody else did to the node since the record was written, in words."""
    found = []
    if not node.unschedulable and record.step != "returning":
        found.append(f"somebody uncordoned node {node.name}; our taint still holds it")
    ours = _without(record.added, node.taints)
    if ours and record.step != "returning":
        found.append(f"somebody removed our taint {names.TAINT_KEY} from node {node.name}")
    return tuple(found)


def _read(node: objects.Node, key: str) -> str | None:
    place, _slash, name = key.partition("/")
    return (node.annotations if place == "annotation" else node.labels).get(name)


def _with(taints: tuple[objects.Raw, ...], added: tuple[objects.Raw, ...]) -> tuple[objects.Raw, ...]:
    return taints + tuple(a for a in added if not any(node_taints.same_taint(a, x) for x in taints))


def _without(taints: tuple[objects.Raw, ...], removed: tuple[objects.Raw, ...]) -> tuple[objects.Raw, ...]:
    return tuple(x for x in taints if not any(node_taints.same_taint(x, r) for r in removed))


def _patch(
    node: objects.Node,
    sentence: str,
    *,
    record: node_records.Record | None,
    taints: tuple[objects.Raw, ...],
    unschedulable: bool | None = None,
    marks: t.Mapping[str, str | None] | None = None,
) -> api_changes.Change:
    meta: dict[str, dict[str, str | None]] = {"annotations": {names.RECORD: record.dump() if record else None}}
    for key, value in (marks or {}).items():
        place, _slash, name = key.partition("/")
        meta.setdefault(f"{place}s", {})[name] = value
    spec: dict[str, t.Any] = {}
    if taints != node.taints:
        # A merge patch replaces the list as a whole: order and timeAdded of the others are sent back as read.
        spec["taints"] = [dict(x) for x in taints] or None
    if unschedulable is not None and unschedulable != node.unschedulable:
        spec["unschedulable"] = unschedulable or None
    body: dict[str, t.Any] = {"metadata": meta}
    if spec:
        body["spec"] = spec
    return api_changes.Change(
        "patch",
        objects.Ref("Node", node.name, uid=node.uid, api_version="v1"),
        sentence,
        body=body,
        before=_shown(node, node.annotations.get(names.RECORD), node.taints, node.unschedulable, {}),
        after=_shown(
            node,
            record.dump() if record else None,
            taints,
            node.unschedulable if unschedulable is None else unschedulable,
            marks or {},
        ),
        resource_version=node.resource_version,
    )


def _shown(
    node: objects.Node,
    record: str | None,
    taints: tuple[objects.Raw, ...],
    unschedulable: bool,
    marks: t.Mapping[str, str | None],
) -> objects.Raw:
    """The node's parts a diff shows; of the record only its step, because the nonce is a right."""
    shown: dict[str, t.Any] = {
        "unschedulable": unschedulable,
        "taints": [node_taints.in_words(x) for x in taints],
    }
    for key in MARKS:
        value = marks[key] if key in marks else _read(node, key)
        if value is not None:
            shown[key] = value
    if record is not None:
        shown["step"] = _step(record)
    return shown


def _step(record: str) -> str:
    _before, _key, rest = record.partition('"step":"')
    return rest.partition('"')[0]
