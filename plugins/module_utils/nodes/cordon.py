# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What is written to a node at each step of its maintenance.

Each function takes the node as it was read and returns the one change that leads to the wanted
step, or ``None`` if there is nothing to do. Record, cordon, taint and marks are written in one
patch, conditional on the resourceVersion that was read, so there is no moment between "saved" and
"changed". Giving back is a three-way merge (prior, ours, now):
what somebody else changed in the meantime is kept.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    decoding,
    names,
    node_taints,
    objects,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    gate_checks,
    node_conditions,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    node_records,
    queue_marks,
)

BALANCERS_SETTLE_SECONDS = 30.0
"""Seconds after a node's cordon until the cloud's load balancers have removed it."""

_SET = {key: ours for marks in names.MARKS.values() for key, ours in marks.items()}


def balanced_for(record: node_records.Record, now: str) -> float:
    """Seconds for which load balancers may still send to it: 0 if it was excluded before us."""
    if names.BALANCERS not in record.marks:
        return 0.0
    since, today = decoding.moment(record.since), decoding.moment(now)
    passed = (today - since).total_seconds() if since and today else 0.0
    return min(max(BALANCERS_SETTLE_SECONDS - passed, 0.0), BALANCERS_SETTLE_SECONDS)


def our_taint(run_id: str) -> objects.Raw:
    """The taint that keeps pods off a node even if somebody uncordons it."""
    return {"key": names.TAINT_KEY, "value": run_id, "effect": "NoSchedule"}


def take_out(
    node: objects.Node,
    record: node_records.Record,
    *,
    taint: bool,
    marks: t.Collection[str] = tuple(names.MARKS),
    conditions: bool = False,
) -> tuple[node_records.Record, api_changes.Change]:
    """Cordon, taint, marks and the record in one patch; ``record`` says who, why and when.

    ``marks`` are keys of ``MARKS``; ``conditions``: the node's conditions tell of the maintenance,
    too. The record that is returned also has the node's prior state.
    """
    added = (our_taint(record.run),) if taint else ()
    set_by_us: dict[str, node_records.Mark] = {}
    for name in marks:
        for key, wanted in names.MARKS[name].items():
            before = _read(node, key)
            if before != wanted:
                set_by_us[key] = node_records.Mark(before, wanted)
    state: node_records.Prior = {"unschedulable": node.unschedulable, "bootID": node.boot_id}
    record = replace(
        record,
        step="cordoned",
        node_uid=node.uid,
        prior={**state, **gate_checks.state_before(node)},
        added=added,
        marks=set_by_us,
        conditions=node_conditions.priors(node) if conditions else {},
    )
    ours = {key: mark.ours for key, mark in record.marks.items()}
    taints = _with(queue_marks.without(node.taints, record.run), added)
    return record, _patch(
        node, f"Cordon node {node.name}", record, taints, unschedulable=True, marks=ours
    )


def at_step(
    node: objects.Node, record: node_records.Record, step: node_records.Step, **changes: t.Any
) -> api_changes.Change | None:
    """Write a step of the record; ``returning`` removes our taint, every other step keeps it."""
    wanted = record.at(step, **changes)
    ours = tuple(filter(_is_ours, record.added))
    taints = _rid(node, record) if step == "returning" else _with(node.taints, ours)
    sentence = {
        "cordoned": f"Resume the maintenance of node {node.name}",
        "drained": f"Record node {node.name} as drained",
        "out": f"Hand node {node.name} over to the tasks on its host",
        "returning": f"Remove our taint from node {node.name}, which stays cordoned",
        "parked": f"Leave node {node.name} out of service",
        "back": f"Go on with the return of node {node.name}",
    }[step]
    return None if _is(node, wanted, taints) else _patch(node, sentence, wanted, taints)


def hooked(
    record: node_records.Record, entries: t.Mapping[str, t.Mapping[str, str]]
) -> node_records.Record:
    """The record with these calls of hooks as they are now."""
    return replace(record, hooks={**record.hooks, **entries})


def with_hooks(
    node: objects.Node,
    record: node_records.Record,
    entries: t.Mapping[str, t.Mapping[str, str]],
    sentence: str,
) -> api_changes.Change | None:
    """Write how far these calls of hooks are, and nothing else."""
    return noted(node, hooked(record, entries), sentence)


def noted(
    node: objects.Node, wanted: node_records.Record, sentence: str
) -> api_changes.Change | None:
    """Write the record, and nothing else of the node."""
    return None if _is(node, wanted, node.taints) else _patch(node, sentence, wanted, node.taints)


def hold_with(
    node: objects.Node, record: node_records.Record, taint: objects.Raw
) -> tuple[node_records.Record, api_changes.Change | None]:
    """Add a taint of ours, also to the record; one that somebody else has set is left to them."""
    ours = _has(record.added, taint)
    if _has(node.taints, taint) and not ours:
        return record, None
    wanted = record if ours else replace(record, added=(*record.added, taint))
    taints = _with(node.taints, (taint,))
    sentence = f"Set {node_taints.in_words(taint)} on node {node.name}"
    return wanted, None if _is(node, wanted, taints) else _patch(node, sentence, wanted, taints)


def let_go_of(
    node: objects.Node, record: node_records.Record, taint: objects.Raw
) -> tuple[node_records.Record, api_changes.Change | None]:
    """The opposite of ``hold_with``; a taint that is not in the record is somebody else's."""
    if not _has(record.added, taint):
        return record, None
    wanted = replace(record, added=_without(record.added, (taint,)))
    sentence = f"Remove {node_taints.in_words(taint)} from node {node.name}"
    return wanted, _patch(node, sentence, wanted, _rid(node, replace(record, added=(taint,))))


def give_back(
    node: objects.Node, record: node_records.Record
) -> tuple[api_changes.Change, tuple[str, ...]]:
    """Undo what the record says is ours, and the record with it;
    also what stays because somebody else changed it.

    A kubelet can write its node's annotations, so the record alone is no proof. Undone is what we
    may have set: keys of ``MARKS``, which a kubelet may set itself, and taints that show that they
    are ours, because it can set none. As long as workloads wait for the node, their part of the
    record stays, at step ``back``.
    """
    if record.step == "back":
        return _patch(node, f"Forget the maintenance of node {node.name}", None, node.taints), ()
    kept: list[str] = []
    unschedulable = node.unschedulable
    if node.unschedulable:
        unschedulable = bool(record.prior.get("unschedulable"))
    elif record.prior.get("unschedulable"):
        kept.append(
            f"node {node.name} was cordoned before, and somebody uncordoned it in the meantime"
        )
    else:
        kept.append(f"somebody uncordoned node {node.name} during the maintenance")
    marks: dict[str, str | None] = {}
    for key, mark in record.marks.items():
        if _SET.get(key) != mark.ours:
            kept.append(
                f"{key} of node {node.name} is in its record, but this collection never sets it so"
            )
        elif _read(node, key) == mark.ours:
            marks[key] = mark.prior
        else:
            kept.append(
                f"{key} of node {node.name} was changed by somebody else to {_read(node, key)!r}"
            )
    sentence = f"Uncordon node {node.name}"
    if unschedulable:
        sentence = f"Give node {node.name} back, cordoned as before"
    taints = _rid(node, record)
    left = None
    foreign = [node_taints.in_words(taint) for taint in taints if _has(record.added, taint)]
    kept += [
        f"taint {taint} of node {node.name} is in its record, but not set by this collection"
        for taint in foreign
    ]
    if record.awaits:
        left = record.at("back", added=(), marks={}, conditions={}, volumes=())
    change = _patch(node, sentence, left, taints, unschedulable=unschedulable, marks=marks)
    return change, tuple(kept)


def foreign_changes(node: objects.Node, record: node_records.Record) -> tuple[str, ...]:
    """What somebody else changed on the node since the record was written, in words."""
    found = []
    if not node.unschedulable and record.step not in ("returning", "back"):
        found.append(f"somebody uncordoned node {node.name}; our taint still keeps pods off it")
    ours = _without(record.added, node.taints)
    if ours and record.step != "returning":
        found.append(f"somebody removed our taint {names.TAINT_KEY} from node {node.name}")
    return tuple(found)


def _read(node: objects.Node, key: str) -> str | None:
    place, _slash, name = key.partition("/")
    return (node.annotations if place == "annotation" else node.labels).get(name)


def _has(taints: t.Iterable[objects.Raw], taint: objects.Raw) -> bool:
    return any(node_taints.same_taint(taint, other) for other in taints)


def _with(
    taints: tuple[objects.Raw, ...], added: tuple[objects.Raw, ...]
) -> tuple[objects.Raw, ...]:
    return taints + tuple(taint for taint in added if not _has(taints, taint))


def _without(
    taints: tuple[objects.Raw, ...], removed: tuple[objects.Raw, ...]
) -> tuple[objects.Raw, ...]:
    return tuple(taint for taint in taints if not _has(removed, taint))


def _is_ours(taint: objects.Raw) -> bool:
    out = node_taints.OUT_OF_SERVICE.items()
    return taint.get("key") == names.TAINT_KEY or taint.items() >= out


def _rid(node: objects.Node, record: node_records.Record) -> tuple[objects.Raw, ...]:
    """The node's taints without those of the record that are ours."""
    return tuple(
        taint for taint in node.taints if not (_has(record.added, taint) and _is_ours(taint))
    )


def _is(node: objects.Node, record: node_records.Record, taints: tuple[objects.Raw, ...]) -> bool:
    """Whether the node has this record and these taints already."""
    return record.dump() == node.annotations.get(names.RECORD) and taints == node.taints


def _patch(
    node: objects.Node,
    sentence: str,
    record: node_records.Record | None,
    taints: tuple[objects.Raw, ...],
    *,
    unschedulable: bool | None = None,
    marks: t.Mapping[str, str | None] | None = None,
) -> api_changes.Change:
    before = node.annotations.get(names.RECORD)
    after = record.dump() if record else None
    unschedulable = node.unschedulable if unschedulable is None else unschedulable
    meta: dict[str, dict[str, str | None]] = {"annotations": {names.RECORD: after}}
    for key, value in (marks or {}).items():
        place, _slash, name = key.partition("/")
        meta.setdefault(f"{place}s", {})[name] = value
    spec: dict[str, t.Any] = {}
    if taints != node.taints:
        # A merge patch replaces the whole list: order and timeAdded of the others
        # are sent back as read.
        spec["taints"] = [dict(x) for x in taints] or None
    if unschedulable != node.unschedulable:
        spec["unschedulable"] = unschedulable or None
    return api_changes.Change(
        "patch",
        objects.Ref("Node", node.name, uid=node.uid, api_version="v1"),
        sentence,
        body={"metadata": meta, **({"spec": spec} if spec else {})},
        before=_shown(node, before, node.taints, node.unschedulable, {}),
        after=_shown(node, after, taints, unschedulable, marks or {}),
        resource_version=node.resource_version,
    )


def _shown(
    node: objects.Node,
    record: str | None,
    taints: tuple[objects.Raw, ...],
    unschedulable: bool,
    marks: t.Mapping[str, str | None],
) -> objects.Raw:
    """What a diff shows of the node; not the whole record, because its nonce is a right."""
    present = {key: marks[key] if key in marks else _read(node, key) for key in _SET}
    shown: dict[str, t.Any] = {key: value for key, value in present.items() if value is not None}
    if record is not None:
        record_fields = json.loads(record)
        shown["step"] = record_fields["step"]
        if hooks := record_fields.get("hooks"):
            shown["hooks"] = {key: entry["state"] for key, entry in hooks.items()}
        if awaits := record_fields.get("awaits"):
            shown["awaits"] = [one["workload"]["name"] for one in awaits]
    return {
        "unschedulable": unschedulable,
        "taints": [node_taints.in_words(x) for x in taints],
        **shown,
    }
