# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What must hold whatever happens, judged afterwards from the witness's log. Pure.

Numbers are those of the reliability notes: I1 services stay up, I2 budgets are kept, I3 all is
as before, I4 no pod is moved twice, I7 a drained node stays empty. Each function returns the
violations it finds; an empty list means that the invariant held.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from witness import objects as o
from witness.audit import Request
from witness.log import Json, Log, World

WORKLOADS = ("Deployment", "StatefulSet", "ReplicaSet")
KEPT = ("Node", "PodDisruptionBudget", "HorizontalPodAutoscaler", *WORKLOADS, "DaemonSet")
"""Kinds that are equal before and after (I3)."""
EMPTY: tuple[object, ...] = (None, {}, [])
"""The API leaves out a map or list whose last entry went."""
CHURN = ("resourceVersion", "managedFields", "generation")
TTL = "node.alpha.kubernetes.io/ttl"
"""The node controller sets it on all nodes by their number."""
SIZE: tuple[tuple[str, ...], ...] = (
    ("spec", "replicas"),
    ("metadata", "annotations", "deployment.kubernetes.io/desired-replicas"),
    ("metadata", "annotations", "deployment.kubernetes.io/max-replicas"),
)
"""Where a workload, or the ReplicaSet of a Deployment, says how many pods it is to have."""
PROOF_STEPS = ("drained", "out", "parked")
"""Steps of the record in which a node that was reported drained is still out of service."""

Name = tuple[str, str, str]
"""Kind, namespace and name."""
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Violation:
    """`at` is in seconds since the witness was ready."""

    rule: str
    kind: str
    namespace: str
    name: str
    at: float
    message: str

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.rule} {self.kind} {where} at {self.at:.3f} s: {self.message}"


@dataclass(frozen=True, slots=True)
class Foreign:
    """A change that somebody else made during the run, and that has to be there at the end.

    `value` None means that the field was removed.
    """

    kind: str
    namespace: str
    name: str
    path: Path
    value: object


def i1_services_stay_up(log: Log, interruptible: Collection[Name] = ()) -> list[Violation]:
    """Every Service with desired >= 1 keeps a ready endpoint, and as many as its floor."""
    floors: dict[tuple[str, str], tuple[int, int]] = {}
    broken: set[tuple[str, str]] = set()
    found: list[Violation] = []
    for moment in log.moments():
        world = moment.world
        if moment.event is None:
            for service in world.of("Service"):
                key = (o.namespace(service), o.name(service))
                floor = _floor(service, world, interruptible)
                floors[key] = (floor, o.ready_endpoints(service, world))
            continue
        if moment.event.kind not in ("EndpointSlice", *WORKLOADS):
            continue
        for service in world.of("Service", o.namespace(moment.event.obj)):
            key = (o.namespace(service), o.name(service))
            prior, at_start = floors.get(key, (0, 0))
            floor = min(prior, at_start, _floor(service, world, interruptible))
            serving = o.ready_endpoints(service, world)
            if serving >= floor:
                broken.discard(key)
            elif key not in broken:
                broken.add(key)
                message = f"{serving} ready endpoints, its floor is {floor}"
                found.append(Violation("I1", "Service", *key, moment.at, message))
    return found


def _floor(service: Json, world: World, interruptible: Collection[Name]) -> int:
    """The ready endpoints that a Service is owed: each workload behind it adds its own."""
    where = o.namespace(service)
    owed = 0
    for kind in WORKLOADS:
        for workload in world.of(kind, where):
            if kind == "ReplicaSet" and o.owner(workload) is not None:
                continue
            wanted = workload["spec"].get("template", {}).get("metadata", {}).get("labels") or {}
            if not o.serves(service, wanted) or o.replicas(workload) == 0:
                continue
            if (kind, where, o.name(workload)) in interruptible:
                continue
            if o.notes(workload).get(o.CONSENT) == "true":
                continue
            owed += max(1, _kept_of(workload, wanted, world))
    return owed


def _kept_of(workload: Json, wanted: dict[str, str], world: World) -> int:
    """All but one of a workload, or what its strictest budget of the users' wants."""
    desired = o.replicas(workload)
    budgets = [
        budget
        for budget in world.of("PodDisruptionBudget", o.namespace(workload))
        if o.matches(budget["spec"].get("selector"), wanted) and not _ours(budget)
    ]
    if not budgets:
        return desired - 1
    return max(o.floor_of(budget, desired) for budget in budgets)


def i2_budgets_are_kept(log: Log) -> list[Violation]:
    """Healthy pods of a budget never under min(floor now, floor at the prior replica count).

    The pods are counted by the witness itself: a budget's status lags behind.
    """
    prior: dict[tuple[str, str], int] = {}
    broken: set[tuple[str, str]] = set()
    found: list[Violation] = []
    for moment in log.moments():
        world, event = moment.world, moment.event
        if event is None:
            budgets = world.of("PodDisruptionBudget")
        elif event.kind == "Pod":
            pods_labels = o.labels(event.obj)
            budgets = [
                budget
                for budget in world.of("PodDisruptionBudget", o.namespace(event.obj))
                if o.matches(budget["spec"].get("selector"), pods_labels)
            ]
        elif event.kind == "PodDisruptionBudget" and event.type != "DELETED":
            budgets = [event.obj]
        else:
            continue
        for budget in budgets:
            key = (o.namespace(budget), o.name(budget))
            healthy, expected = _health(budget, world)
            floor = o.floor_of(budget, expected)
            if key not in prior:
                # A budget that is not met when the watching begins is not of our breaking.
                prior[key] = min(floor, healthy)
                continue
            floor = min(floor, prior[key])
            if healthy >= floor:
                broken.discard(key)
            elif key not in broken:
                broken.add(key)
                message = f"{healthy} healthy pods, it wants {floor}"
                found.append(Violation("I2", "PodDisruptionBudget", *key, moment.at, message))
    return found


def _health(budget: Json, world: World) -> tuple[int, int]:
    """Healthy and expected pods of a budget, expected being the counts of their controllers."""
    selector = budget["spec"].get("selector")
    pods = [
        pod
        for pod in world.of("Pod", o.namespace(budget))
        if o.matches(selector, o.labels(pod)) and not o.finished(pod)
    ]
    expected = 0
    for kind, name in {o.top_owner(pod, world) for pod in pods}:
        workload = world.get(kind, o.namespace(budget), name)
        expected += 1 if workload is None else o.replicas(workload)
    return sum(o.ready(pod) for pod in pods), expected


def i3_all_as_before(log: Log, foreign: Collection[Foreign] = ()) -> list[Violation]:
    """Nodes, budgets, HPAs and workloads equal to before, and nothing of ours left behind.

    Versions, managed fields and status aside; changes that others made have to be kept. The
    replica count of a workload under an HPA is the HPA's own.
    """
    before, after, end = log.before, log.after, log.ended - log.began
    found: list[Violation] = []
    for kind in KEPT:
        for old in before.of(kind):
            where, name = o.namespace(old), o.name(old)
            new = after.get(kind, where, name)
            edits = [f for f in foreign if (f.kind, f.namespace, f.name) == (kind, where, name)]
            if kind == "ReplicaSet" and any((f.kind, f.name) in _owner_names(old) for f in foreign):
                # It follows its Deployment, which is judged itself.
                continue
            if new is None:
                if not any(edit.path == () for edit in edits):
                    found.append(Violation("I3", kind, where, name, end, "is gone"))
                continue
            for path, was, now in _differences(_bare(_edited(old, edits)), _bare(new)):
                if path in SIZE and _scaled_by_hpa(kind, old, before):
                    continue
                message = f"{'.'.join(path)} was {was!r}, is {now!r}"
                found.append(Violation("I3", kind, where, name, end, message))
    for pod in after.of("Pod"):
        found += _pod_as_before(pod, before, end)
    found += _leftovers(before, after, end)
    return found


def _bare(obj: Json) -> Json:
    meta = {key: value for key, value in obj.get("metadata", {}).items() if key not in CHURN}
    if TTL in o.notes(obj):
        meta["annotations"] = {key: value for key, value in o.notes(obj).items() if key != TTL}
    # A list leaves kind and apiVersion out of its items, a watch tells them.
    rest = {key: v for key, v in obj.items() if key not in ("status", "kind", "apiVersion")}
    return {**rest, "metadata": meta}


def _edited(obj: Json, edits: Iterable[Foreign]) -> Json:
    """The object with others' changes made to it."""
    changed = copy.deepcopy(obj)
    for edit in edits:
        *way, last = edit.path
        place = changed
        for step in way:
            place = place.setdefault(step, {})
        if edit.value is None:
            place.pop(last, None)
        else:
            place[last] = edit.value
    return changed


def _differences(was: object, now: object, path: Path = ()) -> Iterator[tuple[Path, object, object]]:
    """Every place in which two objects differ; lists are compared whole, with their order."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted(set(was) | set(now)):
            yield from _differences(was.get(key), now.get(key), (*path, key))
    elif (was in EMPTY and now in EMPTY) or (was == now and type(was) is type(now)):
        return
    else:
        yield path, was, now


def _scaled_by_hpa(kind: str, workload: Json, world: World) -> bool:
    return any(
        (hpa["spec"]["scaleTargetRef"]["kind"], hpa["spec"]["scaleTargetRef"]["name"])
        in {(kind, o.name(workload)), *(_owner_names(workload))}
        for hpa in world.of("HorizontalPodAutoscaler", o.namespace(workload))
    )


def _owner_names(workload: Json) -> set[tuple[str, str]]:
    reference = o.owner(workload)
    return {(reference["kind"], reference["name"])} if reference else set()


def _pod_as_before(pod: Json, before: World, end: float) -> list[Violation]:
    """No deletion cost of ours on pods that stay, newcomers included."""
    old = before.get("Pod", o.namespace(pod), o.name(pod))
    known = o.notes(old) if old is not None and o.uid(old) == o.uid(pod) else {}
    was, now = known.get(o.DELETION_COST), o.notes(pod).get(o.DELETION_COST)
    if was == now:
        return []
    message = f"annotation {o.DELETION_COST} was {was!r}, is {now!r}"
    return [Violation("I3", "Pod", o.namespace(pod), o.name(pod), end, message)]


def _ours(obj: Json) -> bool:
    return o.labels(obj).get(o.MANAGED_BY) == o.MANAGER or o.name(obj).startswith(o.GUARD)


def _leftovers(before: World, after: World, end: float) -> list[Violation]:
    """Objects, annotations, labels and taints of ours that are there now and were not before."""
    found: list[Violation] = []
    for kind, known in after.kinds.items():
        for (where, name), obj in known.items():
            new = before.get(kind, where, name) is None
            marks: list[str] = []
            if new and _ours(obj):
                marks.append("the object itself, by its label or name")
            if new and kind in ("Lease", "SharedLease") and name.startswith(("node-", "surge-")):
                marks.append("the lease")
            if new and kind == "ConfigMap" and name.startswith("run-"):
                marks.append("the run's ConfigMap")
            keys = [*o.labels(obj), *o.notes(obj)]
            # A pod that ends may be held by others; what is on it goes with it.
            if kind == "Pod" and "deletionTimestamp" not in obj["metadata"]:
                marks += [mark for mark in (o.RELEASED, o.UNSERVED) if mark in keys]
            if kind == "Node" or new:
                keys += [taint["key"] for taint in obj.get("spec", {}).get("taints") or []]
                marks += [key for key in keys if key.startswith(o.PREFIX) and key != o.CONSENT]
            if marks and not _same_marks(before.get(kind, where, name), obj):
                message = "left behind: " + ", ".join(sorted(set(marks)))
                found.append(Violation("I3", kind, where, name, end, message))
    return found


def _same_marks(old: Json | None, new: Json) -> bool:
    return old is not None and not any(True for _unused in _differences(_bare(old), _bare(new)))


def i4_moved_once(log: Log, requests: Iterable[Request]) -> list[Violation]:
    """At most one accepted eviction or deletion per pod UID.

    `requests` are those of the tool under test, from the audit log; the UID is that of the pod
    which the witness knew by the name at the request's time.
    """
    lives: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for event in log.events:
        if event.kind == "Pod" and event.type in ("BEFORE", "ADDED", "MODIFIED"):
            known = lives.setdefault((o.namespace(event.obj), o.name(event.obj)), [])
            if not known or known[-1][1] != o.uid(event.obj):
                known.append((event.wall, o.uid(event.obj)))
    moves: Counter[tuple[str, str, str]] = Counter()
    last: dict[tuple[str, str, str], float] = {}
    for request in requests:
        if not request.ends_a_pod or not request.accepted:
            continue
        uids = lives.get((request.namespace, request.name), [])
        alive = [given for since, given in uids if since <= request.at]
        key = (request.namespace, request.name, alive[-1] if alive else "")
        moves[key] += 1
        last[key] = request.at
    start = min((event.wall for event in log.events if event.type == "READY"), default=0.0)
    return [
        Violation("I4", "Pod", key[0], key[1], last[key] - start, f"ended {count} times ({key[2]})")
        for key, count in moves.items()
        if count > 1
    ]


def i7_drained_stays_empty(
    log: Log, seconds: float = 30.0, may_stay: Collection[tuple[str, str]] = ()
) -> list[Violation]:
    """A node whose record says `drained` has no pod that had to go for the next seconds.

    Judged until the record says that the node comes back. `may_stay` are pods (namespace, name)
    that the run was told to leave alone.
    """
    since: dict[str, float] = {}
    found: list[Violation] = []
    told: set[tuple[str, str]] = set()
    for moment in log.moments():
        event, world = moment.event, moment.world
        nodes = world.of("Node") if event is None else []
        if event is not None and event.kind == "Node":
            nodes = [event.obj]
            if event.type == "DELETED":
                since.pop(o.name(event.obj), None)
                continue
        for node in nodes:
            step = (o.record(node) or {}).get("step")
            if step == "drained":
                since.setdefault(o.name(node), moment.at)
            elif step not in PROOF_STEPS:
                since.pop(o.name(node), None)
        if event is None or event.kind not in ("Node", "Pod"):
            continue
        of_node = o.name(event.obj) if event.kind == "Node" else event.obj["spec"].get("nodeName")
        if of_node not in since or moment.at - since[of_node] > seconds:
            continue
        for pod in world.of("Pod"):
            key = (o.namespace(pod), o.name(pod))
            if pod["spec"].get("nodeName") != of_node or key in may_stay or key in told:
                continue
            if o.has_to_go(pod, world):
                told.add(key)
                late = moment.at - since[of_node]
                message = f"on {of_node} {late:.3f} s after it was reported drained"
                found.append(Violation("I7", "Pod", *key, moment.at, message))
    return found


def unseen(log: Log) -> list[Violation]:
    """What the witness itself missed: a verdict from a log with holes is worth nothing."""
    found = [
        Violation("W", gap.kind, "", "", gap.mono - log.began, "the watch was lost for a while") for gap in log.gaps
    ]
    if not log.finished:
        found.append(Violation("W", "", "", "", log.ended - log.began, "the log has no end"))
    return found
