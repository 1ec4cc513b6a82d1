# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What was seen of Services, when, and when nobody looked."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report import model, read


def services(calls: t.Sequence[read.Call]) -> tuple[model.ServiceLine, ...]:
    """The Services that changed, or were dark in a wave of an earlier start."""
    watches = collections.defaultdict[tuple[str, str], list[model.Watch]](list)
    replicas: dict[tuple[str, str], int] = {}
    for call in calls:
        for raw in call.services:
            if call.end is not None and (samples := read.samples_of(raw)):
                place = (read.text(raw.get("namespace")), read.text(raw.get("name")))
                watches[place].append(model.Watch(samples, call.end))
                replicas[place] = read.whole(raw.get("replicas")) or replicas.get(place, 0)
    before = _dark_before(calls)
    return tuple(
        _service(
            *place,
            replicas.get(place, 0),
            sorted(watches.get(place, ()), key=lambda watch: watch.start),
            before.get(place, []),
        )
        for place in sorted({*watches, *before})
    )


def _dark_before(calls: t.Sequence[read.Call]) -> dict[tuple[str, str], list[model.Span]]:
    """When Services were dark in waves of earlier starts."""
    found = collections.defaultdict[tuple[str, str], list[model.Span]](list)
    for raw in read.listed(read.earlier(calls).get("dark")):
        if isinstance(raw, (list, tuple)) and len(raw) == 4:
            start, end = read.instant(raw[2]), read.instant(raw[3])
            if start is not None and end is not None:
                found[read.text(raw[0]), read.text(raw[1])].append(model.Span("dark", start, end))
    return found


def _service(
    namespace: str, name: str, replicas: int, watches: t.Sequence[model.Watch], before: t.Sequence[model.Span]
) -> model.ServiceLine:
    dark, below = list(before), 0.0
    counts: list[int] = []
    steps = [(*step, watch.end) for watch in watches for step in watch.steps()]
    first, last = (steps[0][2], steps[-1][2]) if steps else (1, 1)
    # Where the workload is unknown the count at the end matters too: watching begins when the replacements of swaps are
    # ready already.
    goal = replicas or min(first, last) or first
    for start, end, ready, watched_to in steps:
        if ready or counts:
            counts.append(ready)
            below += end - start if ready < goal else 0.0
            if ready == 0:
                dark.append(model.Span("dark", start, end, open=end == watched_to))
    return model.ServiceLine(
        namespace=namespace,
        name=name,
        desired=goal,
        watches=tuple(watches),
        served=bool(counts or before),
        lowest=0 if before else min(counts, default=0),
        highest=max(counts, default=0),
        dark=tuple(dark),
        below_seconds=round(below, 3),
    )


def watched(calls: t.Iterable[read.Call]) -> tuple[model.Span, ...]:
    """The periods in which Services were watched; those that overlap or touch are joined."""
    found: list[model.Span] = []
    for start, end in sorted(call.watched for call in calls if call.watched):
        if found and start <= found[-1].end + 1.0:
            last = found.pop()
            start, end = last.start, max(end, last.end)
        found.append(model.Span("watched", start, end))
    return tuple(found)


def seconds_of(spans: t.Iterable[tuple[float, float]]) -> float:
    """How long the periods, from start to end, are together; what is in several of them counts once."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
