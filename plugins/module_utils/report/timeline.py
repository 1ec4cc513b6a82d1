# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What happened to nodes and pods during a run, from events and outcomes.

Without events (a call that failed early) the outcomes alone still say how everything ended.
"""

from __future__ import annotations

import collections
import itertools
import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import model, read

OF_PODS = frozenset(
    {phases.What.RELEASED, phases.What.REFUSED, phases.What.EVICTED, phases.What.GONE}
)
SURGE = (phases.What.RAISED, phases.What.READY, phases.What.LOWERED)
SKEW_SECONDS = 2.0
"""Seconds: what a node's record says is by the API server's clock, which it tells to the second."""
FINISHED = "finished"
"""The code of the route of pods that have finished."""
ENDS = frozenset({phases.Phase.BACK, phases.Phase.PARKED, phases.Phase.GONE})


class Past:
    """All events of a run by time, by node and by object; ``end`` is the last known moment."""

    def __init__(self, calls: t.Iterable[read.Call], end: float | None) -> None:
        events = itertools.chain.from_iterable(call.events for call in calls)
        self.events = sorted(events, key=lambda event: event.at)
        self.end = end
        self.nodes: dict[str, list[read.Event]] = {}
        self._objects = collections.defaultdict[tuple[str, str], list[read.Event]](list)
        for event in self.events:
            if event.node:
                self.nodes.setdefault(event.node, []).append(event)
            self._objects[event.namespace, event.name].append(event)

    def of_object(self, namespace: str, name: str, node: str = "") -> list[read.Event]:
        """What happened to an object; on that node or with no node named, if one is given."""
        found = self._objects.get((namespace, name), ())
        return [event for event in found if not node or event.node in ("", node)]

    def surge_of(
        self, namespace: str, name: str
    ) -> tuple[float | None, float | None, float | None]:
        """When it was raised, ready and lowered; of several surges first raise, last lowering."""
        first: dict[str, float] = {}
        last: dict[str, float] = {}
        for event in self.of_object(namespace, name):
            first.setdefault(event.what, event.at)
            last[event.what] = event.at
        raised, ready, lowered = SURGE
        return first.get(raised), first.get(ready), last.get(lowered)


def finished_by(earlier: objects.Raw) -> list[list[str]]:
    """The nodes that earlier starts had finished, by wave."""
    waves = read.listed(earlier.get("waves"))
    return [list(map(read.text, read.listed(wave))) for wave in waves]


def node_lines(
    calls: t.Sequence[read.Call], past: Past, pods: t.Iterable[model.PodLane], *, check: bool
) -> tuple[model.NodeLine, ...]:
    """Every node that a call, a wave or an event names, in the order of waves and calls."""
    waves = _waves(calls)
    since = _since(calls)
    before = _before(calls)
    waits = next((call.waits for call in calls if call.waves), {})
    order = dict.fromkeys(waves)
    for call in calls:
        order |= dict.fromkeys(read.text(raw["name"]) for raw in call.nodes)
    order |= dict.fromkeys(past.nodes)
    finished = set(itertools.chain.from_iterable(finished_by(read.earlier(calls))))
    lanes = by_node(pods)
    found = []
    for name in order:
        outcome, message, failure = _ending(name, calls, past, check=check)
        over = outcome in ("planned", "unchanged") and name in finished
        if over:
            outcome, message = "back", "An earlier start of this run has finished it."
        mine = lanes.get(name, [])
        spans = () if check else _spans(past.nodes.get(name, ()), past.end, since.get(name))
        # Of a drain that was not ended, only the next one finds out what it has moved.
        known = before.get(name, 0)
        moved = (known or 0) + sum(p.moved for p in mine)
        found.append(
            model.NodeLine(
                name=name,
                wave=waves.get(name, 0),
                outcome=outcome,
                message=message,
                spans=spans,
                marks=_marks(e for e in past.nodes.get(name, ()) if _of_node(e)),
                pods_moved=None if (known is None or over) and not moved else moved,
                pods_failed=sum(p.failed for p in mine),
                left=left(mine),
                waits=waits.get(name, ""),
                tasks_failed=failure == outcomes.PlaybookOutcome.FAILED_TASKS,
            )
        )
    return tuple(sorted(found, key=lambda line: (line.wave == 0, line.wave)))


def _waves(calls: t.Sequence[read.Call]) -> dict[str, int]:
    """The wave of each node from 1: as planned, or in the order in which nodes were emptied.

    Those of a run that was resumed come after the waves that earlier starts had finished.
    """
    planned = next((call.waves for call in calls if call.waves), ())
    emptied = [[read.text(n["name"]) for n in call.nodes] for call in calls if call.summary]
    earlier = read.earlier(calls)
    found: dict[str, int] = {}
    for index, nodes in enumerate(finished_by(earlier), start=1):
        found |= dict.fromkeys(nodes, index)
    done = read.whole(earlier.get("waves_done")) or 0
    for index, wave in enumerate(planned or emptied, start=1 + done):
        for node in wave:
            found.setdefault(node, index)
    return found


def _since(calls: t.Iterable[read.Call]) -> dict[str, float | None]:
    """Since when each node was out when it was first seen."""
    found: dict[str, float | None] = {}
    for call in calls:
        for raw in call.nodes:
            if "out_since" in raw:
                found.setdefault(read.text(raw["name"]), read.instant(raw["out_since"]))
    return found


def _before(calls: t.Iterable[read.Call]) -> dict[str, int | None]:
    """How many pods had left each node before the first call that knew it."""
    found: dict[str, int | None] = {}
    for call in calls:
        for raw in call.nodes:
            name = read.text(raw["name"])
            if "moved_before" in raw and found.get(name) is None:
                found[name] = read.whole(raw["moved_before"])
    return found


def stays(pod: model.PodLane) -> bool:
    """Whether the pod was to stay on its node."""
    tolerates = pod.outcome == outcomes.PodOutcome.TOLERATES_MAINTENANCE
    return not pod.moved and (pod.route == "skip" or tolerates)


def cleared(pod: model.PodLane) -> bool:
    """Whether it had finished before: only its object is deleted, which moves nothing."""
    return pod.outcome == outcomes.PodOutcome.CLEARED or pod.code == FINISHED


def left(pods: t.Iterable[model.PodLane]) -> tuple[tuple[str, int], ...]:
    """How many of the pods stay, by the code that says why; a drain gives it as the outcome."""
    codes = collections.Counter[str]()
    for pod in filter(stays, pods):
        code = pod.code if pod.outcome in ("planned", "unknown") else pod.outcome
        codes[code or pod.route] += 1
    return tuple(sorted(codes.items()))


def _of_node(event: read.Event) -> bool:
    """Whether it is a mark of its node; hooks of pods are, because they hold the node up."""
    return event.what == phases.What.HOOK or (not event.name and event.what != phases.What.PROGRESS)


def _marks(events: t.Iterable[read.Event]) -> tuple[model.Mark, ...]:
    return tuple(model.Mark(event.at, event.what, event.message) for event in events)


def by_node(pods: t.Iterable[model.PodLane]) -> dict[str, list[model.PodLane]]:
    """The pods of each node."""
    found = collections.defaultdict(list)
    for pod in pods:
        found[pod.node].append(pod)
    return dict(found)


def _ending(
    name: str, calls: t.Iterable[read.Call], past: Past, *, check: bool
) -> tuple[model.Outcome, str, str]:
    """How it ended, what is said of that, and of a failed node the outcome that said so last."""
    phase: phases.Phase | None = None
    failure, failed_by, message, seen, blocked = "", "", "", False, False
    for call in calls:
        for raw in call.nodes:
            if read.text(raw["name"]) != name:
                continue
            outcome, words = read.text(raw.get("outcome")), read.text(raw.get("message"))
            seen = seen or outcome != outcomes.PlanOutcome.PLANNED
            blocked = blocked or outcome == outcomes.PlanOutcome.BLOCKED
            if read.failed_entry(raw, call):
                failure = words or outcome.replace("_", " ")
                failed_by = outcome
            elif outcome == outcomes.DrainOutcome.DRAINED:
                failure = ""
            phase = phases.PHASE_AFTER.get(outcome, phase)
            message = words or message
    phase = phase or next((e.phase for e in reversed(past.nodes.get(name, ())) if e.phase), None)
    if failure:
        return "failed", failure, failed_by
    if blocked and not phase:
        return "blocked", message, ""
    if check or not (seen or phase):
        return "planned", message, ""
    if phase in ENDS:
        return t.cast("model.Outcome", phase.value), message, ""
    return ("unfinished" if phase else "unchanged"), message, ""


def _spans(
    events: t.Sequence[read.Event], end: float | None, since: float | None = None
) -> tuple[model.Span, ...]:
    """From the cordon to the return; what was before, from ``since`` on, is one span."""
    found: list[model.Span] = []
    phase: phases.Phase | None = None
    begun, back = 0.0, False

    def earlier(until: float, *, still: bool = False) -> list[model.Span]:
        before = not found and phase is None and since is not None and since < until - SKEW_SECONDS
        return [model.Span("earlier", t.cast("float", since), until, open=still)] if before else []

    for event in events:
        following = _following(phase, event.phase)
        back = event.phase in (phases.Phase.BACK, phases.Phase.GONE)
        if following or back:
            found += earlier(event.at)
        if following == phase:
            continue
        if phase:
            found.append(model.Span(phase.value, begun, event.at))
        phase, begun = following, event.at
    if end is not None and phase:
        found.append(model.Span(phase.value, begun, end, open=True))
    elif end is not None and not back:
        found += earlier(end, still=True)
    return tuple(found)


def _following(phase: phases.Phase | None, begun: phases.Phase | None) -> phases.Phase | None:
    """The later phase: what happens to pods moves a cordoned node on, never back."""
    if begun in (phases.Phase.PROTECTING, phases.Phase.DRAINING):
        order = list(phases.Phase)
        return begun if phase and order.index(phase) < order.index(begun) else phase
    if begun in (phases.Phase.BACK, phases.Phase.GONE):
        return None
    return begun or phase


def pod_lanes(
    calls: t.Sequence[read.Call], past: Past, surges: t.Sequence[model.Surge]
) -> tuple[model.PodLane, ...]:
    """Every pod that a plan, a drain or an event names, in the order of nodes and names."""
    known: dict[tuple[str, str, str], dict[str, t.Any]] = {}
    for call in calls:
        for raw in call.pods:
            _merge(known, read.text(raw.get("node")), raw, {"planned": True})
        for entry in call.nodes:
            for raw in read.listed(entry.get("pods")):
                if isinstance(raw, t.Mapping):
                    _merge(known, read.text(entry["name"]), raw, {"drained": True})
    workloads = {(surge.namespace, surge.name) for surge in surges}
    for event in past.events:
        place = (event.namespace, event.name)
        if event.node and event.name and event.what in OF_PODS and place not in workloads:
            known.setdefault((event.node, *place), {"drained": True})
    return tuple(
        _lane(node, namespace, name, raw, past, workloads)
        for (node, namespace, name), raw in sorted(known.items(), key=lambda item: item[0])
    )


def _merge(
    known: dict[tuple[str, str, str], dict[str, t.Any]],
    node: str,
    raw: objects.Raw,
    more: objects.Raw,
) -> None:
    namespace, name = read.texts(raw, "namespace", "name")
    if name:
        merged = known.setdefault((node, namespace, name), {})
        merged.update({k: v for k, v in raw.items() if v not in (None, "", [])}, **more)


def _lane(
    node: str,
    namespace: str,
    name: str,
    raw: objects.Raw,
    past: Past,
    workloads: t.Collection[tuple[str, str]],
) -> model.PodLane:
    events = past.of_object(namespace, name, node)
    uid, owner, route, code, outcome, reason, remedy = read.texts(
        raw, "uid", "owner", "route", "code", "outcome", "reason", "remedy"
    )
    refused = [event for event in events if event.what == phases.What.REFUSED]
    end = outcomes.PodOutcome.read(outcome)
    moved = end.moved if end else not outcome and any(e.what == phases.What.GONE for e in events)
    blocker, rule = _blocker(raw, refused)
    workload = (namespace, owner.rpartition(" ")[2].rpartition("/")[2])
    handed = past.of_object(*workload) if route == "surge" and workload in workloads else ()
    waited = read.number(raw.get("waited_seconds"))
    spans = _lane_spans(events, handed, waited)
    return model.PodLane(
        namespace=namespace,
        name=name,
        uid=uid,
        node=node,
        owner=owner,
        route=route,
        code=code,
        outcome=outcome or _unsaid(raw, moved=moved),
        reason=reason,
        waited_seconds=waited,
        held_seconds=next((s.seconds for s in spans if s.phase == "blocked"), None),
        moved=moved,
        failed=bool(end and (end.failed or (end is outcomes.PodOutcome.NOT_MOVED and blocker))),
        refused=len(refused),
        blocked_by=blocker,
        rule=rule,
        remedy=remedy,
        fits=raw["fits"] if isinstance(raw.get("fits"), bool) else None,
        target=read.text(raw.get("target")),
        forecast_seconds=read.number(raw.get("seconds")),
        spans=spans,
        marks=_marks(events),
    )


def _unsaid(raw: objects.Raw, *, moved: bool) -> str:
    """The outcome of a pod in a plan, or in a call that was killed."""
    if moved:
        return "gone"
    return "unknown" if "drained" in raw else "planned"


def _blocker(raw: objects.Raw, refused: t.Sequence[read.Event]) -> tuple[str, str]:
    """What blocked a pod, and its rule; both are empty if nothing did."""
    found = raw.get("blocked_by")
    said = refused[-1].message if refused else ""
    if isinstance(found, t.Mapping):
        return read.text(found), read.text(found.get("message")) or said
    if refused:
        # An eviction is judged by the pod's only budget; with two budgets none ever succeeds.
        return next((read.text(b) for b in read.listed(raw.get("budgets"))), ""), said
    end = outcomes.PodOutcome.read(read.text(raw.get("outcome")))
    if read.text(raw.get("route")) == "refuse" or (end and end.failed):
        return "", read.text(raw.get("reason"))
    return "", ""


def _lane_spans(
    events: t.Sequence[read.Event], handed: t.Sequence[read.Event], waited: float | None
) -> tuple[model.Span, ...]:
    """The spans of a pod.

    A surged pod: ``taking_over`` (the replacement starts), ``both`` (old and new serve),
    ``ending``. An evicted one: ``queued``, ``released`` (let go, while its replacement starts),
    ``blocked`` (from the first refusal on), ``ending``. ``handed`` are the events of the workload
    that was surged; of several surges the last one before the pod was gone counts. ``waited`` is
    the time until the pod was gone, as the result has it.
    """
    gone = next((e.at for e in reversed(events) if e.what == phases.What.GONE), None)
    leaving = next((e.at for e in events if e.what == phases.What.EVICTED), None)
    times = {e.what: e.at for e in handed if gone is None or e.at <= gone}
    raised, ready, lowered = (times.get(what) for what in SURGE)
    if raised is not None and ready is not None and ready >= raised:
        found = [model.Span("taking_over", raised, ready)]
        leaving = max(lowered, ready) if lowered is not None else leaving or gone
        found += [model.Span("both", ready, leaving)] if leaving is not None else []
    elif events:
        last = gone if gone is not None else events[-1].at
        let_go = leaving if leaving is not None else last
        begun = events[0].at if waited is None else min(last - waited, events[0].at)
        steps = [("queued", begun)]
        for name, what in (("released", phases.What.RELEASED), ("blocked", phases.What.REFUSED)):
            steps += [(name, e.at) for e in events if e.what == what and e.at < let_go][:1]
        ends = [*(at for _name, at in steps[1:]), let_go]
        found = [model.Span(name, at, until) for (name, at), until in zip(steps, ends, strict=True)]
        found[-1] = replace(found[-1], open=gone is None and leaving is None)
    else:
        return ()
    if leaving is not None and gone is not None and gone >= leaving:
        found.append(model.Span("ending", leaving, gone))
    return tuple(span for span in found if span.seconds > 0 or span.open)


# What was seen of Services, when, and when nobody looked.


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
    lines = []
    for place in sorted({*watches, *before}):
        watched = sorted(watches.get(place, ()), key=lambda watch: watch.start)
        lines.append(_service(*place, replicas.get(place, 0), watched, before.get(place, [])))
    return tuple(lines)


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
    namespace: str,
    name: str,
    replicas: int,
    watches: t.Sequence[model.Watch],
    before: t.Sequence[model.Span],
) -> model.ServiceLine:
    dark = list(before)
    below = 0.0
    counts: list[int] = []
    steps: list[tuple[float, float, int, float]] = []
    for watch in watches:
        steps += [(*step, watch.end) for step in watch.steps()]
    first, last = (steps[0][2], steps[-1][2]) if steps else (1, 1)
    # Where the workload is unknown the count at the end matters too: watching begins when the
    # replacements of surges are ready already.
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
        below_seconds=below,
    )


def watched(calls: t.Iterable[read.Call]) -> tuple[model.Span, ...]:
    """The periods in which Services were watched; those that overlap or touch are joined."""
    found: list[model.Span] = []
    for start, end in sorted(call.watched for call in calls if call.watched):
        if found and start <= found[-1].end + 1.0:
            last = found.pop()
            start = last.start
            end = max(end, last.end)
        found.append(model.Span("watched", start, end))
    return tuple(found)


def seconds_of(spans: t.Iterable[tuple[float, float]]) -> float:
    """How long the periods are together; what is in several of them counts once."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
