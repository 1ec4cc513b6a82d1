# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which changes of node conditions are news, compared with what has been told before."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    names,
    objects,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records

POSITIVE = "Ready"
"""The condition of Kubernetes that is true on a healthy node; its others are false on one."""

Reported = dict[str, dict[str, tuple[str, str]]]
"""By UID and type of a condition: the status that was told last, and since when it holds."""

Event = dict[str, t.Any]
"""As a rulebook gets it."""


@dataclass(frozen=True, slots=True)
class WatchedCondition:
    """A condition to watch, and its status on a healthy node."""

    type: str
    healthy: str

    @classmethod
    def of(cls, text: str) -> WatchedCondition:
        """From ``Type`` or ``Type=Status``, where the status is that of a healthy node."""
        name, _sign, status = text.partition("=")
        return cls(name, status or ("True" if name == POSITIVE else "False"))


@dataclass(slots=True)
class Account:
    """What was told, up to which version of the API's history; empty before the first list."""

    version: str = ""
    reported: Reported = field(default_factory=dict)

    @classmethod
    def read(cls, raw: objects.Raw | None) -> Account:
        """From its ConfigMap. What cannot be read counts as not told: better twice than never."""
        data = (raw or {}).get("data") or {}
        reported: Reported = {}
        try:
            for uid, conditions in decoding.json_of(data.get("told") or "{}").items():
                known = reported[str(uid)] = {}
                for name, (status, since) in conditions.items():
                    known[str(name)] = (str(status), str(since))
        except (ValueError, AttributeError, TypeError):
            return cls()
        return cls(str(data.get("version") or ""), reported)

    def data(self) -> dict[str, str]:
        return {
            "version": self.version,
            "told": json.dumps(self.reported, sort_keys=True, separators=(",", ":")),
        }


def news(raw: objects.Raw, wanted: t.Iterable[WatchedCondition], account: Account) -> list[Event]:
    """The events of a node: each wanted condition that was not told as it is now,
    which brings the account up to date.

    A condition that has never been told is news only if it is not healthy.
    """
    node = objects.Node.of(raw)
    known = account.reported.setdefault(node.uid, {})
    events = []
    for want, condition in _found(raw, wanted):
        before = known.get(want.type)
        now = _state(condition)
        known[want.type] = now
        if before != now and (before or now[0] != want.healthy):
            events.append(_event(node, want, condition, previous=before[0] if before else ""))
    return events


def standing(
    raw: objects.Raw, wanted: t.Iterable[WatchedCondition], account: Account
) -> list[Event]:
    """The events that were told before and still hold, of conditions that are not healthy."""
    node = objects.Node.of(raw)
    known = account.reported.get(node.uid) or {}
    return [
        _event(node, want, condition, previous=want.healthy, repeated=True)
        for want, condition in _found(raw, wanted)
        if known.get(want.type) == _state(condition) and condition.get("status") != want.healthy
    ]


def _found(
    raw: objects.Raw, wanted: t.Iterable[WatchedCondition]
) -> t.Iterator[tuple[WatchedCondition, objects.Raw]]:
    conditions = {one["type"]: one for one in (raw.get("status") or {}).get("conditions") or ()}
    return ((want, conditions[want.type]) for want in wanted if want.type in conditions)


def _state(condition: objects.Raw) -> tuple[str, str]:
    return str(condition.get("status") or ""), str(condition.get("lastTransitionTime") or "")


def _event(
    node: objects.Node,
    want: WatchedCondition,
    condition: objects.Raw,
    *,
    previous: str,
    repeated: bool = False,
) -> Event:
    status, since = _state(condition)
    return {
        "node": node.name,
        "uid": node.uid,
        "condition": want.type,
        "status": status,
        "healthy": status == want.healthy,
        "previous": previous,
        "repeated": repeated,
        "since": since,
        "reason": str(condition.get("reason") or ""),
        "message": str(condition.get("message") or ""),
        "labels": dict(node.labels),
        "schedulable": not node.unschedulable,
        "in_maintenance": _in_maintenance(node),
    }


def forget(raw: objects.Raw, account: Account) -> None:
    """A node that was deleted."""
    account.reported.pop(str(raw["metadata"].get("uid")), None)


def forget_others(raws: t.Iterable[objects.Raw], account: Account) -> None:
    """Forget what was told of nodes that are not among these."""
    there = {str(raw["metadata"].get("uid")) for raw in raws}
    account.reported = {
        uid: conditions for uid, conditions in account.reported.items() if uid in there
    }


def _in_maintenance(node: objects.Node) -> bool:
    """Whether this collection has it out of service; so it counts if the record cannot be read."""
    try:
        return node_records.record_of(node) is not None
    except node_records.BadRecordError:
        return True


def kept(raw: objects.Raw) -> dict[str, t.Any]:
    """The fields of a node that are needed."""
    metadata = raw["metadata"]
    spec = raw.get("spec") or {}
    status = raw.get("status") or {}
    record = (metadata.get("annotations") or {}).get(names.RECORD)
    fields = ("name", "uid", "resourceVersion", "labels")
    return {
        "metadata": {
            **{key: metadata[key] for key in fields if key in metadata},
            "annotations": {names.RECORD: record} if record is not None else {},
        },
        "spec": {"unschedulable": spec.get("unschedulable") or False},
        "status": {"conditions": status.get("conditions") or []},
    }
