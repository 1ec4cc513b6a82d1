# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Module results as they come out of a play.

A report matters most after a failure, so whatever is missing, cut short or malformed is left out,
never an error. Only known keys are read: invocations, diffs and nonces are not.
"""

from __future__ import annotations

import datetime
import itertools
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
    printable,
)

KNOWN_OUTCOMES = frozenset(outcome.value for kind in outcomes.OF_NODES for outcome in kind)
FAILED_OUTCOMES = frozenset(
    outcome.value for kind in outcomes.OF_NODES for outcome in kind if outcome.failed
).difference(phases.PHASE_AFTER, {outcomes.PlanOutcome.BLOCKED})
"""Failures in some call, but for words that say where a node is: elsewhere they are none."""

PHASES = frozenset(phase.value for phase in phases.Phase)

LATEST_SECONDS = 4102444800.0
"""The year 2100: anything later is not an instant of a run."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event, about the node if it has no name. ``phase`` is the one that it begins."""

    phase: phases.Phase | None
    at: float
    node: str
    namespace: str
    name: str
    what: str
    message: str


@dataclass(frozen=True, slots=True)
class Call:
    """One module's result; ``start`` and ``end`` are its first and last known moment.

    ``cluster`` has ``context`` and ``server``, ``earlier`` what earlier starts of the run had done.

    ``watched`` is from when to when it watched Services, ``services`` are those that changed.
    ``waits`` is why nodes are in no earlier wave, by node. ``starts``: it begins a run,
    and has done nothing else.
    """

    run: str
    by: str
    reason: str
    cluster: objects.Raw
    earlier: objects.Raw
    failed: bool
    message: str
    nodes: tuple[objects.Raw, ...]
    pods: tuple[objects.Raw, ...]
    workloads: tuple[objects.Raw, ...]
    findings: tuple[objects.Raw, ...]
    advice: tuple[objects.Raw, ...]
    services: tuple[objects.Raw, ...]
    watched: tuple[float, float] | None
    actions: tuple[str, ...]
    waves: tuple[tuple[str, ...], ...]
    waits: t.Mapping[str, str]
    summary: objects.Raw
    starts: bool
    estimate: float | None
    estimate_range: tuple[float, float] | None
    feasible: bool | None
    events: tuple[Event, ...]
    start: float | None
    end: float | None


def text(value: t.Any) -> str:
    """A value as one line of text; an object (kind, namespace, name) as ``Kind namespace/name``."""
    if value is None:
        return ""
    if isinstance(value, t.Mapping):
        place = "/".join(text(value[k]) for k in ("namespace", "name") if value.get(k))
        return f"{text(value.get('kind'))} {place}".strip()
    if isinstance(value, (list, tuple)):
        return ", ".join(text(item) for item in value)
    return printable.line(" ".join(str(value).split()))


def texts(raw: objects.Raw, *keys: str) -> tuple[str, ...]:
    """The values of these keys as text."""
    return tuple(text(raw.get(key)) for key in keys)


RETURN_SECONDS = 2.0
"""Seconds of a wave's ``steps`` that come after its nodes are drained."""


def _after(parts: t.Iterable[t.Mapping[str, t.Any]]) -> float:
    """Seconds that the return of all waves takes together."""
    return sum(min(number(wave.get("steps")) or 0.0, RETURN_SECONDS) for wave in parts)


def number(value: t.Any) -> float | None:
    """A finite number, ``None`` for anything else (``true`` is not a number)."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if abs(found) < 1e15 else None


def whole(value: t.Any) -> int | None:
    """A whole number, ``None`` for anything else."""
    found = number(value)
    return None if found is None else int(found)


def instant(value: t.Any) -> float | None:
    """RFC 3339 to seconds since the epoch; ``None`` if it is no such text."""
    if not isinstance(value, str):
        return None
    try:
        when = datetime.datetime.fromisoformat(value)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    seconds = round(when.timestamp(), 3)
    return seconds if 0 <= seconds < LATEST_SECONDS else None


def read(results: t.Iterable[t.Any]) -> tuple[Call, ...]:
    """The calls in the order of the results.

    Loops are flattened, waves are the calls that they consist of; skipped tasks are left out.
    """
    return tuple(map(_call, itertools.chain.from_iterable(map(_flat, results))))


def earlier(calls: t.Iterable[Call]) -> objects.Raw:
    """What earlier starts of the run had done; empty unless it was resumed."""
    return next((call.earlier for call in calls if call.earlier), {})


def samples_of(service: objects.Raw) -> tuple[tuple[float, int], ...]:
    """A Service's samples in the order of time, the last one of each instant."""
    found: dict[float, int] = {}
    for sample in listed(service.get("samples")):
        if isinstance(sample, (list, tuple)) and len(sample) == 2:
            at = instant(sample[0])
            ready = whole(sample[1])
            if at is not None and ready is not None:
                found[at] = max(ready, 0)
    return tuple(sorted(found.items()))


def failed_entry(entry: objects.Raw, call: Call) -> bool:
    """Whether a node's entry reports a failure.

    Its ``failed`` decides, else its outcome; an unknown word counts as a failure if the call
    failed. ``blocked`` is the plan's: nothing was tried, and a finding says why.
    """
    outcome = text(entry.get("outcome"))
    if outcome == outcomes.PlanOutcome.BLOCKED:
        return False
    if isinstance(entry.get("failed"), bool):
        return t.cast("bool", entry["failed"])
    if outcome in FAILED_OUTCOMES:
        return True
    return call.failed and bool(outcome) and outcome not in KNOWN_OUTCOMES


def _flat(result: t.Any) -> t.Iterator[objects.Raw]:
    if not isinstance(result, t.Mapping) or result.get("skipped") is True:
        return
    for parts in ("results", "steps"):
        if isinstance(result.get(parts), (list, tuple)):
            for item in result[parts]:
                yield from _flat(item)
            return
    yield result


def listed(value: t.Any) -> t.Sequence[t.Any]:
    """The items of a list, none of anything else."""
    return value if isinstance(value, (list, tuple)) else ()


def strings(value: t.Any) -> tuple[str, ...]:
    """The items of a list as text."""
    return tuple(text(item) for item in listed(value))


def mapping(value: t.Any) -> objects.Raw:
    """A mapping, an empty one instead of anything else."""
    return value if isinstance(value, t.Mapping) else {}


def mappings(value: t.Any) -> tuple[objects.Raw, ...]:
    """The mappings of a list, none of anything else."""
    return tuple(item for item in listed(value) if isinstance(item, t.Mapping))


def _call(raw: objects.Raw) -> Call:
    record = _record(raw)
    events = tuple(sorted(_events(raw.get("timeline")), key=lambda event: event.at))
    services = mappings(raw.get("services"))
    watched = _watched(raw)
    sampled: list[float] = []
    for service in services:
        sampled += [at for at, _ready in samples_of(service)]
    times = [*(event.at for event in events), *sampled, *(watched or ())]
    if "watched" not in raw and times and isinstance(raw.get("services"), (list, tuple)):
        watched = min(sampled or times), max(times)
    feasible = raw.get("feasible")
    return Call(
        # What follows the slash is the nonce: the right to act for this run.
        run=(text(raw.get("run")) or text(record.get("run"))).partition("/")[0],
        by=text(raw.get("by")) or text(record.get("by")),
        reason=text(raw.get("reason")) or text(record.get("reason")),
        cluster=mapping(raw.get("cluster")),
        earlier=mapping(raw.get("earlier")),
        failed=raw.get("failed") is True,
        message=text(raw.get("msg")),
        nodes=tuple(n for n in mappings(raw.get("nodes")) if text(n.get("name"))),
        pods=mappings(raw.get("pods")),
        workloads=mappings(raw.get("workloads")),
        findings=mappings(raw.get("findings")),
        advice=mappings(raw.get("advice")),
        services=services,
        watched=watched,
        actions=strings(raw.get("actions")),
        waves=tuple(strings(wave) for wave in listed(raw.get("waves"))),
        waits={
            text(wait.get("node")): text(wait.get("reason")) for wait in mappings(raw.get("waits"))
        },
        summary=mapping(raw.get("summary")),
        starts=isinstance(raw.get("resumed"), bool),
        estimate=_emptying(raw),
        estimate_range=_range(raw),
        feasible=feasible if isinstance(feasible, bool) else None,
        events=events,
        start=min(times, default=None),
        end=max(times, default=None),
    )


def _watched(raw: objects.Raw) -> tuple[float, float] | None:
    times = [instant(at) for at in listed(raw.get("watched"))]
    known = [at for at in times if at is not None]
    return (min(known), max(known)) if known else None


def _record(raw: objects.Raw) -> objects.Raw:
    for node in mappings(raw.get("nodes")):
        if isinstance(node.get("record"), t.Mapping):
            return t.cast("objects.Raw", node["record"])
    return {}


def _events(value: t.Any) -> t.Iterator[Event]:
    for raw in mappings(value):
        at = instant(raw.get("at"))
        if at is not None:
            phase = text(raw.get("phase"))
            words = texts(raw, "node", "namespace", "name", "what", "message")
            yield Event(phases.Phase(phase) if phase in PHASES else None, at, *words)


def _range(raw: t.Mapping[str, t.Any]) -> tuple[float, float] | None:
    """The fewest and the most seconds of the same."""
    after = _after(mappings(raw.get("wave_parts")))
    found = raw.get("estimate_range")
    known = [number(each) for each in found] if isinstance(found, list) else []
    match known:
        case [float(least), float(most)]:
            return least - after, most - after
    return None


def _emptying(raw: t.Mapping[str, t.Any]) -> float | None:
    """Seconds that a plan foresees from the cordon of each wave until it is drained."""
    parts = mappings(raw.get("wave_parts"))
    if not parts:
        return number(raw.get("estimate_seconds"))
    total = 0.0
    for wave in parts:
        total += sum(number(seconds) or 0.0 for seconds in wave.values())
    return total - _after(parts)
