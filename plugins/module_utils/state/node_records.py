# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A node's record: what was changed, by which run, and the original state.

The record is an annotation on the node, written in the same request as the change it describes. It
tells the state of the node; the lock (a lease) only tells who works on it now.
"""

from __future__ import annotations

import functools
import json
import typing as t
from dataclasses import asdict, dataclass, field, fields, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    names,
    objects,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import commands

VERSION = 1
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))

Step = t.Literal["cordoned", "drained", "out", "returning", "parked", "back"]
"""``back``: the node takes pods again, and what had to wait for it does not run yet."""


class BadRecordError(decoding.BadStateError):
    """The annotation is there but cannot be parsed, and must not be guessed."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A label or annotation that we set while the node is out;
    ``prior`` is ``None`` if it was absent.
    """

    prior: str | None
    ours: str


class Prior(t.TypedDict, total=False):
    """A node before its maintenance.

    The gates compare it with ``taints`` (``key:effect`` of those that kept pods away),
    ``conditions`` (types of those that were bad) and, once it is drained, ``daemonsets``
    (``<namespace>/<name>`` of those without a Ready pod on it).
    """

    unschedulable: bool
    bootID: str
    taints: list[str]
    conditions: list[str]
    daemonsets: list[str]


@dataclass(frozen=True, slots=True)
class Awaited:
    """A workload of which pods leave the node: ``ready`` pods served before,
    and have to serve again.

    ``here``: the node alone has what they need, so nothing of it serves elsewhere
    before that is back.
    """

    workload: objects.Ref
    ready: int
    here: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """The durable state of a maintenance.

    ``added`` has the taints we added; the keys of ``marks`` are ``annotation/<key>`` or
    ``label/<key>``; ``lease`` is ``<namespace>/<name>`` of the lock; ``since`` is RFC 3339.
    ``conditions`` are the node conditions that we may set, by type, as they were before (``None``:
    not there); empty if none is to be set. ``hooks`` says how far calls of hooks are, see
    ``hook_definitions.Call``. ``moved`` is how many pods have left the node by the drains that
    emptied it, ``leaving`` how many had to when the drain began that has not. ``awaits`` are the
    workloads and ``volumes`` the names of those that have to follow the pods that leave: written
    before the first of these goes, so that whoever continues waits for the same. At step
    ``drained`` only what the node has to come back for is left of them. Whoever knows the ``nonce``
    may act.
    """

    run: str
    nonce: str
    by: str
    reason: str
    since: str
    step: Step
    node_uid: str
    lease: str
    prior: Prior
    added: tuple[t.Mapping[str, str], ...] = ()
    marks: t.Mapping[str, Mark] = field(default_factory=dict)
    conditions: t.Mapping[str, objects.Raw | None] = field(default_factory=dict)
    hooks: t.Mapping[str, t.Mapping[str, str]] = field(default_factory=dict)
    moved: int = 0
    leaving: int = 0
    awaits: tuple[Awaited, ...] = ()
    volumes: tuple[str, ...] = ()

    def at(self, step: Step, **changes: t.Any) -> Record:
        return replace(self, step=step, **changes)

    def foreign_to(self, run: str, nonce: str, *, check: bool = False) -> bool:
        """Whether the node belongs to another run than the caller's,
        or to another start of the same run.

        The nonce is the right to act: a run that adopts a parked node keeps the record's id, with a
        nonce of its own. Calls by hand have no nonce, and only records without one are theirs. An
        empty ``run`` means the record's own. In check mode the record is not rewritten, although
        the real run would have adopted it by now.
        """
        named = run in ("", self.run)
        if check:
            return not named and nonce != self.nonce and self.step != "parked"
        return nonce != self.nonce or not (nonce or named)

    @property
    def whose(self) -> str:
        """The run that has the node, in words."""
        return f"run {self.run} of {self.by} (since {self.since}, step {self.step})"

    def owner(self, node: str) -> str:
        """Who has the node, for a caller that does not have it."""
        return (
            f"Node {node} belongs to {self.whose}. Once nobody works on it, adopt it with "
            f"node_cordon, state returning or cordoned, or with `{commands.undo(self.run)}`."
        )

    @property
    def lock(self) -> str:
        """What evictions on behalf of this record carry: ``<lease>=<run>/<nonce>``."""
        holder = f"{self.run}/{self.nonce}" if self.nonce else self.run
        return f"{self.lease.rpartition('/')[2]}={holder}"

    def dump(self) -> str:
        """The annotation's value; equal records give equal text."""
        return _ENCODER.encode({"v": VERSION, **self._plain()})

    def public(self) -> dict[str, t.Any]:
        """What results show: all but the nonce, which is the right to act."""
        return {key: value for key, value in self._plain().items() if key != "nonce"}

    def _plain(self) -> dict[str, t.Any]:
        """Every field as in JSON; those of ``_LATER`` only where there is something in them."""
        found = {name: getattr(self, name) for name in _FIELDS}
        found |= {"awaits": [asdict(one) for one in self.awaits], "volumes": list(self.volumes)}
        data = {name: value for name, value in found.items() if value or name not in _LATER}
        marks = {key: {"prior": mark.prior, "ours": mark.ours} for key, mark in self.marks.items()}
        return {
            **data,
            "prior": dict(self.prior),
            "added": [dict(x) for x in self.added],
            "marks": marks,
        }


def once_over(run: str) -> str:
    """How to go on with a run whose tasks may still be at work on a host,
    or to undo it, once they are not.
    """
    return (
        f"If they are not: run the playbook again with {commands.resume(run)}, or "
        f"`{commands.undo(run)}`."
    )


_FIELDS = tuple(one.name for one in fields(Record))
_LATER = ("conditions", "hooks", "moved", "leaving", "awaits", "volumes")


def presumed(name: str) -> str:
    """What check mode adds for a node without a record, which an earlier task may
    only have predicted.
    """
    return (
        f"Node {name} is not cordoned yet: without node_cordon before it, this call would fail "
        "(not_in_maintenance)."
    )


def record_of(node: objects.Node) -> Record | None:
    """The node's record, ``None`` without one.

    Raises:
        BadRecordError: the annotation is not a record of a version this code knows.
    """
    text = node.annotations.get(names.RECORD)
    return None if text is None else _read(node.name, text)


@functools.lru_cache(maxsize=4096)
def _read(name: str, text: str) -> Record:
    """Remembered: a drain asks for the record of each of its nodes after every change."""
    try:
        data = decoding.json_of(text)
        version = data.pop("v")
        if version != VERSION:
            raise BadRecordError(
                f"Node {name}: annotation {names.RECORD} has version {version}, this "
                f"collection knows {VERSION}. Use the collection that wrote it, or remove the "
                "annotation by hand."
            )
        record = decoding.shaped(Record, data)
        if any("state" not in entry for entry in record.hooks.values()):
            raise decoding.UnreadableError("a hook has no state")
        namespace, _slash, lease = record.lease.partition("/")
        if record.lease and not (decoding.host(namespace) and lease == names.node_lease_name(name)):
            raise decoding.UnreadableError("its lock is not the node's")
        return record
    except BadRecordError:
        raise
    except decoding.MISREAD as error:
        raise BadRecordError(
            f"Node {name}: annotation {names.RECORD} cannot be read ({error}). It is the "
            "only record of the original state: repair it, or remove it and "
            "uncordon the node by hand."
        ) from error


def records(nodes: t.Iterable[objects.Node]) -> tuple[dict[str, Record], dict[str, str]]:
    """The records by node, and why the others cannot be read."""
    found: dict[str, Record] = {}
    bad: dict[str, str] = {}
    for node in nodes:
        try:
            if record := record_of(node):
                found[node.name] = record
        except BadRecordError as error:
            bad[node.name] = str(error)
    return found, bad
