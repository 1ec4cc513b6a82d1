# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The ways of nodes and pods through a run, read from events and outcomes.

Events lead where there are some; without them (a call that failed early, an older result) the
outcomes alone still say how everything ended.
"""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report import model, read

PHASES = t.get_args(model.Phase)
PROTECT_WORDS = frozenset({"waiting", "guarded", "raised", "ready", "failed"})
POD_WORDS = frozenset({"refused", "evicted", "gone"})


@dataclass(frozen=True)
class Past:
    """All events in the order of time, by what they are about; ``end`` is the last known moment."""

    events: tuple[read.Event, ...]
    end: float | None
    _nodes: t.Mapping[str, tuple[read.Event, ...]]
    _objects: t.Mapping[tuple[str, str], tuple[read.Event, ...]]

    @classmethod
    def of(cls, calls: t.Iterable[read.Call], end: float | None) -> Past:
        """From all calls of a run."""
        events = sorted((e for call in calls for e in call.events), key=lambda event: event.at)
        nodes, named = collections.defaultdict(list), collections.defaultdict(list)
        for event in events:
            if event.node:
                nodes[event.node].append(event)
            if event.name:
                named[event.namespace, event.name].append(event)
        return cls(
            tuple(events),
            end,
            {key: tuple(found) for key, found in nodes.items()},
            {key: tuple(found) for key, found in named.items()},
        )

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node an event names."""
        return tuple(self._nodes)

    def of_node(self, name: str) -> tuple[read.Event, ...]:
        """What happened on a node."""
        return self._nodes.get(name, ())

    def of_object(self, namespace: str, name: str, node: str = "") -> tuple[read.Event, ...]:
        """What happened to an object; on that node or with no node named, if one is given."""
        found = self._objects.get((namespace, name), ())
        return tuple(e for e in found if not node or e.node in ("", node))


def waves_of(calls: t.Sequence[read.Call]) -> dict[str, int]:
    """The wave of each node from 1: as planned, or in the order in which nodes were emptied."""
    planned = next((call.waves for call in calls if call.waves), ())
    emptied = [[read.text(n["name"]) for n in call.nodes] for call in calls if call.summary]
    found: dict[str, int] = {}
    for index, wave in enumerate(planned or emptied, start=1):
        for node in wave:
            found.setdefault(node, index)
    return found


def node_lines(
    calls: t.Sequence[read.Call], past: Past, pods: t.Iterable[model.PodLane], *, check: bool
) -> tuple[model.NodeLine, ...]:
    """Every node that a call, a wave or an event names, in the order of waves and calls."""
    waves = waves_of(calls)
    named = (read.text(n["name"]) for call in calls for n in call.nodes)
    order = dict.fromkeys((*waves, *named, *past.nodes))
    lanes = by_node(pods)
    found = []
    for name in order:
        outcome, message = _ending(name, calls, past, check=check)
        mine = lanes.get(name, [])
        found.append(
            model.NodeLine(
                name=name,
                wave=waves.get(name, 0),
                outcome=outcome,
                message=message,
                spans=() if check else _spans(past.of_node(name), past.end),
                marks=tuple(
                    model.Mark(e.at, e.what, e.message)
                    for e in past.of_node(name)
                    if not e.name and e.what != "progress"
                ),
                pods_moved=sum(p.moved for p in mine),
                pods_failed=sum(p.failed for p in mine),
                left=left(mine),
            )
        )
    return tuple(sorted(found, key=lambda line: (line.wave == 0, line.wave)))


def stays(pod: model.PodLane) -> bool:
    """Whether the pod was to stay on its node."""
    return not pod.moved and (pod.route == "skip" or pod.outcome == outcomes.PodOutcome.TOLERATES_MAINTENANCE)


def left(pods: t.Iterable[model.PodLane]) -> tuple[tuple[str, int], ...]:
    """How many of the pods stay, by the code that says why; a drain gives it as the outcome."""
    staying = (pod for pod in pods if stays(pod))
    codes = ((p.code if p.outcome in ("planned", "unknown") else p.outcome) or p.route for p in staying)
    return tuple(sorted(collections.Counter(codes).items()))


def by_node(pods: t.Iterable[model.PodLane]) -> dict[str, list[model.PodLane]]:
    """The pods of each node."""
    found = collections.defaultdict(list)
    for pod in pods:
        found[pod.node].append(pod)
    return dict(found)


def _ending(name: str, calls: t.Iterable[read.Call], past: Past, *, check: bool) -> tuple[model.Outcome, str]:
    place, failure, message, seen = "", "", "", False
    for call in calls:
        for raw in call.nodes:
            if read.text(raw["name"]) != name:
                continue
            outcome, said = read.text(raw.get("outcome")), read.text(raw.get("message"))
            seen = seen or outcome != "planned"
            if read.failed_entry(raw, call):
                failure = said or outcome.replace("_", " ")
            elif outcome == "drained":
                failure = ""
            place, message = read.place_of(outcome) or place, said or message
    if not place:
        words = [read.place_of(e.what) for e in past.of_node(name) if not e.name]
        place = next((word for word in reversed(words) if word), "")
    if failure:
        return "failed", failure
    if place != "blocked" and (check or not (seen or place)):
        return "planned", message
    if place in ("back", "parked", "gone", "blocked"):
        return t.cast("model.Outcome", place), message
    return ("unfinished" if place else "unchanged"), message


def _spans(events: t.Iterable[read.Event], end: float | None) -> tuple[model.Span, ...]:
    found: list[model.Span] = []
    phase, since = "", 0.0
    for event in events:
        following = _following(phase, event)
        if following == phase:
            continue
        if phase:
            found.append(model.Span(phase, since, event.at))
        phase, since = following, event.at
    if phase and end is not None:
        found.append(model.Span(phase, since, end, open=True))
    return tuple(found)


def _following(phase: str, event: read.Event) -> str:
    """The phase after an event; what happens to pods tells of phases that nobody announced."""
    if not event.name:
        if event.what in PHASES:
            return event.what
        if event.what == "progress" and phase in ("cordoned", "protecting"):
            return "draining"
        return "" if read.place_of(event.what) in ("back", "gone") else phase
    if phase == "cordoned" and event.what in PROTECT_WORDS:
        return "protecting"
    if phase in ("cordoned", "protecting") and event.what in POD_WORDS:
        return "draining"
    return phase


def pod_lanes(calls: t.Sequence[read.Call], past: Past, swaps: t.Sequence[model.Swap]) -> tuple[model.PodLane, ...]:
    """Every pod that a plan, a drain or an event names, in the order of nodes and names."""
    known: dict[tuple[str, str, str], dict[str, t.Any]] = {}
    for call in calls:
        for raw in call.pods:
            _merge(known, read.text(raw.get("node")), raw, {"planned": True})
        for entry in call.nodes:
            for raw in read.listed(entry.get("pods")):
                if isinstance(raw, t.Mapping):
                    _merge(known, read.text(entry["name"]), raw, {"drained": True})
    workloads = {(swap.namespace, swap.name) for swap in swaps}
    for event in past.events:
        place = (event.namespace, event.name)
        if event.node and event.name and event.what in POD_WORDS and place not in workloads:
            known.setdefault((event.node, *place), {"drained": True})
    return tuple(
        _lane(node, namespace, name, raw, past, workloads)
        for (node, namespace, name), raw in sorted(known.items(), key=lambda item: item[0])
    )


def _merge(known: dict[tuple[str, str, str], dict[str, t.Any]], node: str, raw: objects.Raw, more: objects.Raw) -> None:
    key = (node, read.text(raw.get("namespace")), read.text(raw.get("name")))
    if key[2]:
        merged = known.setdefault(key, {})
        merged.update({k: v for k, v in raw.items() if v not in (None, "", [])})
        merged.update(more)


def _lane(
    node: str,
    namespace: str,
    name: str,
    raw: objects.Raw,
    past: Past,
    workloads: t.Collection[tuple[str, str]],
) -> model.PodLane:
    events = past.of_object(namespace, name, node)
    owner, route, code, outcome = (read.text(raw.get(key)) for key in ("owner", "route", "code", "outcome"))
    refused = [event for event in events if event.what == "refused"]
    end = outcomes.PodOutcome.read(outcome)
    moved = end.moved if end else not outcome and any(e.what == "gone" for e in events)
    blocker, rule = _blocker(raw, refused)
    workload = (namespace, owner.rpartition(" ")[2].rpartition("/")[2])
    handed = past.of_object(*workload) if route == "swap" and workload in workloads else ()
    waited = read.number(raw.get("waited_seconds"))
    spans = _lane_spans(events, handed, waited)
    return model.PodLane(
        namespace=namespace,
        name=name,
        uid=read.text(raw.get("uid")),
        node=node,
        owner=owner,
        route=route,
        code=code,
        outcome=outcome or ("gone" if moved else "planned" if "drained" not in raw else "unknown"),
        reason=read.text(raw.get("reason")),
        waited_seconds=waited,
        held_seconds=next((round(s.seconds, 3) for s in spans if s.phase == "blocked"), None),
        moved=moved,
        failed=end is not None and (end.failed or (end is outcomes.PodOutcome.NOT_MOVED and bool(blocker))),
        refused=len(refused),
        blocked_by=blocker,
        rule=rule,
        remedy=read.text(raw.get("remedy")),
        spans=spans,
        marks=tuple(model.Mark(e.at, e.what, e.message) for e in events),
    )


def _blocker(raw: objects.Raw, refused: t.Sequence[read.Event]) -> tuple[str, str]:
    """What stood in a pod's way, and its rule; both empty where nothing did."""
    found = raw.get("blocked_by")
    if isinstance(found, t.Mapping):
        return read.text(found), read.text(found.get("message")) or (refused[-1].message if refused else "")
    if refused:
        # Evictions are asked of the pod's first budget alone; two budgets are no way at all.
        return next((read.text(b) for b in read.listed(raw.get("budgets"))), ""), refused[-1].message
    end = outcomes.PodOutcome.read(read.text(raw.get("outcome")))
    if read.text(raw.get("route")) == "refuse" or (end and end.failed):
        return "", read.text(raw.get("reason"))
    return "", ""


def _lane_spans(
    events: t.Sequence[read.Event], handed: t.Sequence[read.Event], waited: float | None
) -> tuple[model.Span, ...]:
    """The stretches of a pod's way.

    A swapped pod: ``taking_over`` (newcomers start), ``both`` (old and new serve), ``ending``. An
    evicted one: ``queued``, ``blocked`` (from the first refusal on), ``ending``. ``handed`` are the
    events of the workload that was swapped; of several surges the last one before the pod was gone
    counts, for whichever node it was told. ``waited`` is the time until the pod was gone, as the result tells it.
    """
    gone = next((e.at for e in reversed(events) if e.what == "gone"), None)
    leaving = next((e.at for e in events if e.what == "evicted"), None)
    times = {e.what: e.at for e in handed if gone is None or e.at <= gone}
    if "raised" in times and times.get("ready", 0.0) >= times["raised"]:
        found = [model.Span("taking_over", times["raised"], times["ready"])]
        lowered = max(times.get("lowered", 0.0), times["ready"])
        leaving = lowered if "lowered" in times else leaving or gone
        found += [model.Span("both", times["ready"], leaving)] if leaving is not None else []
    elif events:
        last = gone if gone is not None else events[-1].at
        let_go = leaving if leaving is not None else last
        start = min(last - waited if waited is not None else events[0].at, events[0].at)
        asked = next((e.at for e in events if e.what == "refused"), let_go)
        open_end = gone is None and leaving is None
        found = [model.Span("queued", start, min(asked, let_go), open=open_end and asked == let_go)]
        found += [model.Span("blocked", asked, let_go, open=open_end)] if asked < let_go else []
    else:
        return ()
    if leaving is not None and gone is not None and gone >= leaving:
        found.append(model.Span("ending", leaving, gone))
    return tuple(span for span in found if span.seconds > 0 or span.open)
