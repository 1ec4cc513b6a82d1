# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What is stored of a run, and what earlier runs left in the cluster.

A run is resumed by its fingerprint: the same playbook on the same nodes with the same work. Reason,
timeouts and directories are not part of it, so they may be changed before a run is resumed.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
import typing as t
from dataclasses import asdict, dataclass, field, fields

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    names,
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    guard_budgets,
    lock_leases,
    node_records,
    queue_marks,
    surge_records,
)

FINGERPRINTED = ("playbook", "nodes", "node_selector", "tasks", "reboot", "backend", "taints")
RESUMABLE = datetime.timedelta(hours=24)
"""Within this time the same command resumes a run; after it, it starts a new one."""


def fingerprint(given: t.Mapping[str, t.Any]) -> str:
    """Sixteen hex digits, equal for inputs that mean the same work."""
    kept = {key: given[key] for key in FINGERPRINTED if given.get(key) not in (None, "", [], {})}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


MAX_DARK_SPANS = 20
"""Dark spans that are kept, the longest ones."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Of waves: pods that were moved, seconds in which nodes were out,
    and in which Services were watched meanwhile.

    ``dark`` are the spans in which Services were dark, each as namespace, name, start and end (RFC
    3339); ``mark`` names the wave that was added last.
    """

    pods_moved: int = 0
    out_seconds: float = 0.0
    watched_seconds: float = 0.0
    dark: tuple[tuple[str, ...], ...] = ()
    mark: str = ""

    def plus(self, other: Sums) -> Sums:
        """Both; the ``mark`` is that of the other."""
        return Sums(
            self.pods_moved + other.pods_moved,
            round(self.out_seconds + other.out_seconds, 3),
            round(self.watched_seconds + other.watched_seconds, 3),
            longest((*self.dark, *other.dark)),
            other.mark,
        )


NOTHING = Sums()


def longest(dark: t.Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """The dark spans that are kept."""
    return tuple(sorted(dark, key=_length, reverse=True)[:MAX_DARK_SPANS])


def _length(span: tuple[str, ...]) -> float:
    """Seconds of a dark span, 0 if it cannot be read."""
    if len(span) != 4:
        return 0.0
    begun, ended = decoding.moment(span[2]), decoding.moment(span[3])
    return (ended - begun).total_seconds() if begun and ended else 0.0


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The content of ``run-<id>``; times are RFC 3339, ``plan`` is a list of waves.

    ``noted`` is when the last of the ``finished`` nodes was noted, ``ended`` when the run ended
    with failures, both by the API server's clock. ``so_far`` is for the report of a start that
    resumes it; ``lost``: a start was killed, so it may lack what that did.
    """

    id: str
    by: str
    since: str
    fingerprint: str
    given: objects.Raw
    plan: tuple[tuple[str, ...], ...] = ()
    finished: tuple[str, ...] = ()
    noted: str = ""
    ended: str = ""
    so_far: Sums = NOTHING
    lost: bool = False
    resource_version: str = ""

    def to_config_map(self) -> dict[str, t.Any]:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": names.run_name(self.id),
                "namespace": names.NAMESPACE,
                "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
            },
            "data": self.data(),
        }

    def data(self) -> dict[str, str]:
        return {
            "by": self.by,
            "since": self.since,
            "fingerprint": self.fingerprint,
            "input": json.dumps(self.given, sort_keys=True),
            "plan": json.dumps(self.plan),
            "finished": json.dumps(self.finished),
            "noted": self.noted,
            "ended": self.ended,
            "so_far": json.dumps(asdict(self.so_far)),
            "lost": "true" if self.lost else "",
        }

    @property
    def waves_done(self) -> int:
        """How many of its waves are finished, one after the other from the first."""
        done = set(self.finished)
        return sum(1 for _wave in itertools.takewhile(done.issuperset, self.plan))

    def resumable(self, now: str) -> bool:
        """Whether it is recent enough for the same command to resume it."""
        return _time(now) - _time(self.since) <= RESUMABLE


def stored_run(raw: objects.Raw) -> StoredRun | None:
    """From a ConfigMap; ``None`` if that is not a run of ours.
    Raises BadRecordError if it cannot be read.
    """
    meta = raw["metadata"]
    data = raw.get("data") or {}
    if not meta["name"].startswith(names.RUN_PREFIX) or "fingerprint" not in data:
        return None
    try:
        kept = {key: decoding.json_of(text) for key in _JSON if (text := data.get(key))}
        lists = decoding.shaped(_Lists, kept)
        return StoredRun(
            id=meta["name"].removeprefix(names.RUN_PREFIX),
            by=data.get("by", ""),
            since=data.get("since", ""),
            fingerprint=data["fingerprint"],
            given=lists.input,
            plan=lists.plan,
            finished=lists.finished,
            noted=data.get("noted", ""),
            ended=data.get("ended", ""),
            so_far=lists.so_far,
            lost=bool(data.get("lost")),
            resource_version=meta.get("resourceVersion", ""),
        )
    except decoding.UnreadableError as error:
        raise node_records.BadRecordError(
            f"ConfigMap {names.NAMESPACE}/{meta['name']} cannot be read ({error}), so its run "
            "cannot be resumed. Delete it by hand once its nodes are back in service."
        ) from error


@dataclass(frozen=True, slots=True)
class _Lists:
    """The fields of a stored run that are JSON."""

    input: objects.Raw = field(default_factory=dict)
    plan: tuple[tuple[str, ...], ...] = ()
    finished: tuple[str, ...] = ()
    so_far: Sums = NOTHING


_JSON = tuple(one.name for one in fields(_Lists))


@dataclass(frozen=True, slots=True)
class Trace:
    """Something that a run left: ``what`` describes the object,
    ``nodes`` are those it concerns.

    ``step`` is that of a node's record.
    """

    object: objects.Ref
    what: str
    nodes: tuple[str, ...] = ()
    run: str = ""
    by: str = ""
    since: str = ""
    step: str = ""

    def to_dict(self, *, alive: bool) -> dict[str, t.Any]:
        about = {"object": str(self.object), "kind": self.object.kind}
        return {**asdict(self), **about, "nodes": list(self.nodes), "alive": alive}


def traces(snapshot: snapshots.Snapshot, runs: t.Iterable[StoredRun]) -> tuple[Trace, ...]:
    """The traces of runs: records, taints of ours, budgets, leases, stored runs."""
    found: list[Trace] = []
    for node in snapshot.nodes.values():
        found += _of_node(node)
    found += _waiting(snapshot)
    for budget in snapshot.budgets:
        if budget.ours:
            served = tuple(guard_budgets.nodes_of(budget))
            found.append(Trace(budget.ref, "a guard budget of ours", served))
    for lease in snapshot.leases:
        found += _of_lease(lease)
    for pod in snapshot.pods:
        if names.RELEASED in pod.labels:
            what, run_id = "let go by its ReplicaSet, to be replaced", pod.labels[names.RELEASED]
            found.append(Trace(pod.ref, what, (pod.node,), run_id))
    for run in runs:
        done = f"{len(run.finished)} of {sum(map(len, run.plan))} nodes finished"
        state = f"ended {run.ended} with failures" if run.ended else "not ended"
        what = f"a stored run, {done}, {state}"
        place = objects.Ref("ConfigMap", names.run_name(run.id), names.NAMESPACE)
        nodes = tuple(itertools.chain.from_iterable(run.plan))
        found.append(Trace(place, what=what, nodes=nodes, run=run.id, by=run.by, since=run.since))
    return tuple(found)


def _of_node(node: t.Any) -> list[Trace]:
    try:
        record = node_records.record_of(node)
    except node_records.BadRecordError as error:
        return [Trace(node.ref, str(error), (node.name,))]
    if record:
        what = f"out of service at step {record.step}"
        if record.reason:
            what += f": {record.reason}"
        if record.step == "back":
            what = "in service again, with workloads that waited for it"
        about = record.run, record.by, record.since, record.step
        return [Trace(node.ref, what, (node.name,), *about)]
    return [
        Trace(node.ref, "our taint without a record", (node.name,), str(taint.get("value", "")))
        for taint in node.taints
        if taint.get("key") == names.TAINT_KEY
    ]


def _waiting(snapshot: snapshots.Snapshot) -> list[Trace]:
    marked: dict[str, list[str]] = {}
    for node in snapshot.nodes.values():
        for run in queue_marks.runs_of(node):
            marked.setdefault(run, []).append(node.name)
    place = objects.Ref("Taint", names.WAITING)
    return [
        Trace(place, f"the mark of {len(some)} nodes that wait for their wave", tuple(some), run)
        for run, some in marked.items()
    ]


def _of_lease(lease: objects.Raw) -> list[Trace]:
    meta = lease["metadata"]
    spec = lease.get("spec") or {}
    if (meta.get("labels") or {}).get(names.MANAGED_BY_LABEL) != names.MANAGED_BY:
        return []
    run = (spec.get("holderIdentity") or "").partition("/")[0]
    by = (meta.get("annotations") or {}).get(names.LOCK_DETAILS, "")
    since = spec.get("acquireTime") or meta.get("creationTimestamp", "")
    what, node = _purpose(lease, run)
    place = objects.Ref("Lease", meta["name"], meta["namespace"])
    return [Trace(place, what=what, nodes=(node,) if node else (), run=run, by=by, since=since)]


def _purpose(lease: objects.Raw, run: str) -> tuple[str, str]:
    """What a lease of ours is for, and the node that it is about; empty if it is about none."""
    name = lease["metadata"]["name"]
    if name.startswith(names.SURGE_PREFIX):
        try:
            surge = surge_records.Surge.from_lease(lease)
        except surge_records.BadSurgeError as error:
            return "a surge whose record cannot be read", error.node
        if surge is None:
            return "a surge without a record", ""
        return f"the surge of {surge.workload}", surge.node
    if name.startswith(names.RUN_PREFIX):
        return f"the sign of life of run {run}", ""
    if lock_leases.is_heartbeat(lease):
        return f"the heartbeat of run {run}", ""
    if name.startswith(names.DESCHEDULER_PREFIX):
        return "the lock of a rollout to a descheduler", ""
    node = name.removeprefix(names.NODE_LEASE_PREFIX)
    return f"the lock of node {node}", node


def _time(text: str) -> datetime.datetime:
    """The time in a text; one before all others if there is none."""
    return decoding.moment(text) or datetime.datetime.min.replace(tzinfo=datetime.UTC)
