# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The node conditions by which Kubernetes lets others know of a maintenance
(KEP-5683, k8s.io/api v0.37).

Kubernetes leaves them to the administrator: no code of it writes or reads them, at any version. A
node's record says which of them are ours to set and what each was before; that is written with the
cordon, so before the first of them. A condition that is set is ours by its reason, and is exchanged
for what was there before when it no longer holds. What somebody else has set to True, or changed
since the record was written, is neither overwritten nor cleared.

The list of conditions is sent as a whole, on the condition that the node is as it was read: the
kubelet's heartbeat is either in it, or makes the API server refuse it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    decoding,
    names,
    objects,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records

PLANNED, DRAINING, DRAINED, IN_PROGRESS = names.LIFECYCLE

Phase = t.Literal["cordoned", "draining", "drained", "out", "returning", "parked", "back"]
"""A step of the record, ``draining`` after ``cordoned``, and ``back`` before the record goes."""

SHOWN: t.Mapping[Phase, t.Mapping[str, bool]] = {
    "cordoned": {PLANNED: True, DRAINED: False, IN_PROGRESS: False},
    "draining": {PLANNED: True, DRAINING: True, DRAINED: False},
    "drained": {PLANNED: True, DRAINING: False, DRAINED: True},
    "out": {PLANNED: False, DRAINING: False, DRAINED: True, IN_PROGRESS: True},
    "parked": {PLANNED: False, DRAINING: False, IN_PROGRESS: True},
    "returning": {PLANNED: False, DRAINING: False, IN_PROGRESS: False},
    "back": dict.fromkeys(names.LIFECYCLE, False),
}
"""Which conditions are set and which are cleared; one that is not named stays as it is.

A drain that is resumed is still in progress. A node that is parked may have been drained or not;
somebody works on it by hand, or will. One that is returning is still drained, but its DaemonSet
pods are to come back.
"""


def priors(node: objects.Node) -> dict[str, objects.Raw | None]:
    """For the record: each condition that may be set, as it is now (``None``: it is not there)."""
    now = {condition["type"]: condition for condition in node.lifecycle}
    found: dict[str, objects.Raw | None] = {}
    for kind in names.LIFECYCLE:
        condition = now.get(kind)
        if condition is None or is_ours(condition):
            found[kind] = None
        elif condition.get("status") != "True":
            found[kind] = condition
    return found


def is_ours(condition: objects.Raw) -> bool:
    """Whether this collection has set it."""
    wanted = ("True", names.CONDITION_REASON)
    return (condition.get("status"), condition.get("reason")) == wanted


def foreign(node: objects.Node) -> list[objects.Raw]:
    """The conditions that somebody else has set to True."""
    found = [condition for condition in node.lifecycle if condition.get("status") == "True"]
    return [condition for condition in found if not is_ours(condition)]


def change(
    raw: objects.Raw, record: node_records.Record, phase: Phase, now: str
) -> api_changes.Change | None:
    """What brings the conditions of the node, as it was read, to the phase; ``now`` is RFC 3339.

    Returns:
        The patch of the node's status; ``None`` if all is as it should be,
        or no condition is ours to set.
    """
    old: t.Sequence[objects.Raw] = (raw.get("status") or {}).get("conditions") or ()
    found = {condition["type"]: condition for condition in old}
    new: dict[str, objects.Raw | None] = {}
    for kind in (kind for kind in names.LIFECYCLE if kind in record.conditions):
        prior = record.conditions[kind]
        condition = found.get(kind)
        wanted = SHOWN[phase].get(kind)
        mine = condition is not None and is_ours(condition)
        if wanted and _beaten(condition) == _beaten(prior):
            new[kind] = _set(kind, record, now)
        elif wanted is False and mine:
            new[kind] = prior
    if not new:
        return None
    kept = [new.get(condition["type"], condition) for condition in old]
    added = [condition for kind, condition in new.items() if kind not in found]
    after = [condition for condition in (*kept, *added) if condition]
    name = raw["metadata"]["name"]
    return api_changes.Change(
        "status",
        # Without the UID the diff shows it apart from the node's other changes,
        # which have other fields.
        objects.Ref("Node", name, api_version="v1"),
        f"{_sentence(new)} of node {name}",
        body={"status": {"conditions": after}},
        before=_shown(old),
        after=_shown(after),
        resource_version=raw["metadata"].get("resourceVersion", ""),
    )


def after(raw: objects.Raw, made: api_changes.Change | None) -> objects.Raw:
    """The node as the change leaves it."""
    return {**raw, "status": {**raw["status"], **(made.body or {})["status"]}} if made else raw


def notice_left(node: objects.Node, record: node_records.Record, notice: float, now: str) -> float:
    """For how many seconds more others may react to the planned maintenance,
    before the first pod is moved.

    Counted by the API server's clock from when the condition was set; where somebody else had set
    it before, from when the node was cordoned. 0 once the drain has begun.
    """
    set_ = {one["type"]: one for one in node.lifecycle if one.get("status") == "True"}
    planned = set_.get(PLANNED)
    if planned is None or not record.conditions or record.step != "cordoned":
        return 0.0
    if DRAINING in set_ and is_ours(set_[DRAINING]):
        return 0.0
    begun = planned.get("lastTransitionTime") if is_ours(planned) else record.since
    since = decoding.moment(begun or "")
    today = decoding.moment(now)
    passed = (today - since).total_seconds() if since and today else 0.0
    return min(max(notice - passed, 0.0), notice)


def _beaten(condition: objects.Raw | None) -> objects.Raw | None:
    """The condition without its heartbeat, which changes nothing."""
    return condition and {k: v for k, v in condition.items() if k != "lastHeartbeatTime"}


def _set(kind: str, record: node_records.Record, now: str) -> objects.Raw:
    moment, whose = f"{now[:19]}Z", f"Run {record.run} of {record.by}"
    return {
        "type": kind,
        "status": "True",
        "lastHeartbeatTime": moment,
        "lastTransitionTime": moment,
        "reason": names.CONDITION_REASON,
        "message": f"{whose}: {record.reason}" if record.reason else whose,
    }


def _sentence(new: t.Mapping[str, objects.Raw | None]) -> str:
    on = [kind for kind, condition in new.items() if condition and is_ours(condition)]
    off = [kind for kind in new if kind not in on]
    if not on:
        return f"Clear {', '.join(off)}"
    return f"Set {', '.join(on)}{' and clear ' if off else ''}{', '.join(off)}"


def _shown(conditions: t.Iterable[objects.Raw]) -> objects.Raw:
    """What a diff shows: each of these conditions with its status."""
    shown = [one for one in conditions if one["type"] in names.LIFECYCLE]
    return {"conditions": {one["type"]: one.get("status") for one in shown}}
