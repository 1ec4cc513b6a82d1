# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""From module results to a report."""

from __future__ import annotations

import collections
import itertools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import (
    model,
    read,
    text,
    timeline,
    traffic,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import stored_objects

GIVEN_BACK = frozenset(
    {phases.What.GIVEN_BACK, phases.What.RESTORED, outcomes.CordonOutcome.UNCORDONED}
)
UNTIL_DRAINED = (phases.Phase.CORDONED, phases.Phase.PROTECTING, phases.Phase.DRAINING)
NOTHING = model.Earlier(None, (), 0, 0.0, 0.0, whole=True)
OTHER_TIME = model.Failure(
    "requests", "Those that were sent at another time than that of this run are left out."
)
SEVERITIES = ("blocker", "warning", "info")


def build_report(
    results: t.Iterable[t.Any],
    *,
    check: bool = False,
    sent: t.Collection[model.TrafficLine] = (),
    unread: t.Iterable[model.Failure] = (),
) -> model.Report:
    """The report of one run, from what the modules returned, in its order; ``check``:
    they are predictions.

    ``sent`` is what load generators say of their requests, ``unread`` why some of that is missing.
    """
    calls = read.read(results)
    starts = [call.start for call in calls if call.start is not None]
    ends = [call.end for call in calls if call.end is not None]
    ended = max(ends) if ends and not check else None
    past = timeline.Past(calls, ended)
    surges = _surges(calls, past)
    pods = timeline.pod_lanes(calls, past, surges)
    nodes = timeline.node_lines(calls, past, pods, check=check)
    earlier = _earlier(calls)
    starts += [node.spans[0].start for node in nodes if node.spans]
    starts += [earlier.since] if earlier and earlier.since is not None else []
    started = min(starts) if ended is not None else None
    services = timeline.services(calls)
    watched = timeline.watched(calls)
    refusals = _refusals(pods)
    moved = any(pod.moved for pod in pods) or bool(earlier and earlier.pods_moved)
    asked = traffic.of_run(sent, started, ended)
    faults = [*unread, *([OTHER_TIME] if len(asked) < len(sent) else [])]
    seen = bool(watched) or bool(earlier and earlier.watched_seconds)
    totals = _totals(calls, nodes, pods, services, watched, refusals, earlier, started, ended)
    cluster: t.Mapping[str, t.Any] = next((c.cluster for c in calls if c.cluster), {})
    return model.Report(
        run=next((c.run for c in calls if c.run), ""),
        by=next((c.by for c in calls if c.by), ""),
        reason=next((c.reason for c in calls if c.reason), ""),
        cluster=model.Cluster(*read.texts(cluster, "context", "server")),
        earlier=earlier,
        check=check,
        verdict=_verdict(calls, totals, watched=seen, moved=moved, check=check),
        started=started,
        ended=ended,
        nodes=nodes,
        pods=pods,
        surges=surges,
        services=services,
        watched=watched,
        traffic=asked,
        traffic_faults=tuple(faults),
        refusals=refusals,
        problems=_problems(calls),
        findings=_findings(calls),
        advice=_advice(calls),
        given_back=_given_back(calls, past),
        actions=tuple(action for call in calls for action in call.actions),
        totals=totals,
    )


def _earlier(calls: t.Sequence[read.Call]) -> model.Earlier | None:
    raw = read.earlier(calls)
    if not raw:
        return None
    return model.Earlier(
        since=read.instant(raw.get("since")),
        finished=tuple(itertools.chain.from_iterable(timeline.finished_by(raw))),
        pods_moved=read.whole(raw.get("pods_moved")) or 0,
        out_seconds=read.number(raw.get("out_seconds")) or 0.0,
        watched_seconds=read.number(raw.get("watched_seconds")) or 0.0,
        whole=raw.get("whole") is True,
    )


def sums_of_wave(report: model.Report, mark: str) -> stored_objects.Sums:
    """What the report of a wave alone adds, kept for the report of a start that resumes the run.

    They are sums, because a run may have thousands of nodes. Of a node that stays out, its own
    record says since when, and how many pods have left it.
    """
    out = [node for node in report.nodes if node.spans and node.spans[-1].open]
    dark = []
    for service in report.services:
        for span in service.dark:
            start, end = (str(text.rfc3339(at)) for at in (span.start, span.end))
            dark.append((service.namespace, service.name, start, end))
    return stored_objects.Sums(
        pods_moved=report.totals.pods_moved - sum(node.pods_moved or 0 for node in out),
        # Their time goes on, and counts when they are back.
        out_seconds=0.0 if out else report.totals.out_seconds,
        watched_seconds=report.totals.watched_seconds,
        dark=stored_objects.longest(dark),
        mark=mark,
    )


def _surges(calls: t.Sequence[read.Call], past: timeline.Past) -> tuple[model.Surge, ...]:
    known = collections.defaultdict[tuple[str, ...], dict[str, t.Any]](dict)
    for call in calls:
        for raw in call.workloads:
            merged = known[read.texts(raw, "kind", "namespace", "name")]
            # Giving back reports the counts as they are then; the surge is the highest of all.
            during = max(read.whole(raw.get("replicas_during")) or 0, merged.get("during", 0))
            merged.update({k: v for k, v in raw.items() if v not in (None, "")}, during=during)
    found = []
    for (kind, namespace, name), raw in sorted(known.items(), key=lambda item: item[0][1:]):
        before = read.whole(raw.get("replicas_before"))
        during = raw["during"] or None
        budget, outcome, message = read.texts(raw, "budget", "outcome", "message")
        place, words = (kind, namespace, name), (budget, outcome, message)
        moments = past.surge_of(namespace, name)
        found.append(model.Surge(*place, before, during, *words, *moments))
    return tuple(found)


def _refusals(pods: t.Iterable[model.PodLane]) -> tuple[model.Refusal, ...]:
    groups = collections.defaultdict[tuple[str, str], list[model.PodLane]](list)
    for pod in pods:
        if pod.refused or pod.blocked_by or pod.rule:
            groups[pod.blocked_by, "" if pod.blocked_by else pod.rule].append(pod)
    found = []
    for (blocker, _rule), lanes in groups.items():
        marks: list[float] = []
        for lane in lanes:
            marks += [mark.at for mark in lane.marks if mark.what == "refused"]
        waits = [lane.held_seconds for lane in lanes if lane.held_seconds is not None]
        found.append(
            model.Refusal(
                blocker=blocker,
                rule=next((lane.rule for lane in reversed(lanes) if lane.rule), ""),
                remedy=next((lane.remedy for lane in lanes if lane.remedy), ""),
                count=sum(lane.refused for lane in lanes),
                first=min(marks, default=None),
                last=max(marks, default=None),
                pods=tuple(f"{lane.namespace}/{lane.name}" for lane in lanes),
                stuck=tuple(f"{x.namespace}/{x.name}" for x in lanes if not x.moved),
                longest_wait=max(waits, default=None),
            )
        )
    return tuple(sorted(found, key=lambda r: (not r.stuck, -r.count, r.blocker, r.rule)))


def _problems(calls: t.Sequence[read.Call]) -> tuple[model.Failure, ...]:
    found: dict[model.Failure, None] = {}
    for call in calls:
        entries = [raw for raw in call.nodes if read.failed_entry(raw, call)]
        for raw in entries:
            outcome = read.text(raw.get("outcome")).replace("_", " ")
            message = read.text(raw.get("message")) or outcome
            found[model.Failure(f"node {read.text(raw['name'])}", message)] = None
        blocked = any(read.text(raw.get("severity")) == "blocker" for raw in call.findings)
        if call.failed and not entries and not blocked:
            found[model.Failure("run", call.message or "A call failed and said nothing.")] = None
    return tuple(found)


def _findings(calls: t.Sequence[read.Call]) -> tuple[model.Finding, ...]:
    """Each once: what is planned again before a wave finds some of it again."""
    keys = ("code", "message", "remedy", "severity", "object")
    found: dict[model.Finding, None] = {}
    for raw in itertools.chain.from_iterable(call.findings for call in calls):
        one = model.Finding(*read.texts(raw, *keys), objects=read.strings(raw.get("objects")))
        if not any(_has(other, one) for other in found):
            found[one] = None
    rank = {severity: index for index, severity in enumerate(SEVERITIES)}
    return tuple(sorted(found, key=lambda f: rank.get(f.severity, len(rank))))


def _has(other: model.Finding, one: model.Finding) -> bool:
    same = (other.code, other.severity, other.remedy) == (one.code, one.severity, one.remedy)
    return other == one or (same and bool(one.objects) and {*one.objects} <= {*other.objects})


def _advice(calls: t.Sequence[read.Call]) -> tuple[model.Advice, ...]:
    """What the last plan advised: it is made of the cluster as it is now."""
    last = next((call for call in reversed(calls) if call.feasible is not None), None)
    keys = ("code", "kind", "namespace", "name", "text", "command", "back")
    found = []
    for raw in last.advice if last else ():
        changes = read.mappings(raw.get("changes"))
        steps = tuple(model.Step(*read.texts(step, *keys)) for step in changes)
        if steps:
            codes, subjects = read.strings(raw.get("codes")), read.strings(raw.get("objects"))
            found.append(model.Advice(codes, subjects, steps))
    return tuple(found)


def _given_back(calls: t.Sequence[read.Call], past: timeline.Past) -> tuple[model.GivenBack, ...]:
    kept = {}
    for call in calls:
        for raw in call.nodes:
            for message in read.listed(raw.get("kept")):
                kept[f"Node {read.text(raw['name'])}", read.text(message)] = call.end
    found = [model.GivenBack(at, node, True, message) for (node, message), at in kept.items()]
    for event in past.events:
        if event.what in GIVEN_BACK or event.what == phases.What.KEPT:
            named = read.text({"namespace": event.namespace, "name": event.name})
            place = named or f"Node {event.node}"
            kept_it = event.what == phases.What.KEPT
            found.append(model.GivenBack(event.at, place, kept_it, event.message))
    for call in calls:
        for raw in call.workloads:
            if read.text(raw.get("outcome")) == outcomes.WorkloadOutcome.UNGUARDED:
                known = {**raw, "kind": "PodDisruptionBudget", "name": raw.get("budget")}
                budget = read.text(known)
                found.append(model.GivenBack(call.end, budget, False, "removed"))
    return tuple(found)


def _totals(
    calls: t.Sequence[read.Call],
    nodes: t.Sequence[model.NodeLine],
    pods: t.Sequence[model.PodLane],
    services: t.Sequence[model.ServiceLine],
    watched: t.Sequence[model.Span],
    refusals: t.Sequence[model.Refusal],
    earlier: model.Earlier | None,
    started: float | None,
    ended: float | None,
) -> model.Totals:
    requests, evicted = _sum(calls, "requests"), _sum(calls, "evicted")
    names = {node.name for node in nodes}
    before = earlier or NOTHING
    moved = sum(node.pods_moved or 0 for node in nodes)
    moved += sum(pod.moved for pod in pods if pod.node not in names)
    forecast = next((c for c in calls if c.waves and c.estimate is not None), None)
    looked = [read.whole(call.summary.get("services")) for call in calls]
    out = timeline.seconds_of((n.spans[0].start, n.spans[-1].end) for n in nodes if n.spans)
    return model.Totals(
        nodes=len(nodes),
        nodes_done=sum(n.outcome in ("back", "parked", "unchanged") for n in nodes),
        nodes_failed=sum(n.outcome == "failed" for n in nodes),
        waves=max((n.wave for n in nodes), default=0),
        pods_moved=moved + before.pods_moved,
        pods_surged=sum(p.moved and p.route == "surge" for p in pods),
        pods_replaced=sum(p.moved and p.route == "replace" for p in pods),
        pods_left=sum(count for n in nodes for _reason, count in n.left),
        pods_failed=sum(p.failed for p in pods),
        evictions=int(evicted or 0),
        refusals=int(_sum(calls, "refusals") or 0) or sum(r.count for r in refusals),
        requests=None if requests is None else int(requests),
        services_watched=max(filter(None, looked), default=None),
        services_changed=len(services),
        services_dark=sum(bool(s.dark) for s in services),
        dark_seconds=sum(s.dark_seconds for s in services),
        watched_seconds=sum(span.seconds for span in watched) + before.watched_seconds,
        out_seconds=out + before.out_seconds,
        seconds=None if started is None or ended is None else ended - started,
        moving_seconds=_moving(nodes),
        forecast_seconds=forecast.estimate if forecast else None,
        forecast_range=forecast.estimate_range if forecast else None,
    )


def _sum(calls: t.Iterable[read.Call], key: str) -> float | None:
    found = [n for call in calls if (n := read.number(call.summary.get(key))) is not None]
    return sum(found) if found else None


def _moving(nodes: t.Iterable[model.NodeLine]) -> float | None:
    """From the cordon of each wave's first node until its last is drained or given up."""
    waves: dict[int | str, list[tuple[float, float]]] = {}
    for node in nodes:
        before = [*itertools.takewhile(lambda span: span.phase in UNTIL_DRAINED, node.spans)]
        if before:
            waves.setdefault(node.wave or node.name, []).append((before[0].start, before[-1].end))
    if not waves:
        return None
    total = 0.0
    for found in waves.values():
        total += max(end for _start, end in found) - min(start for start, _end in found)
    return total


def _verdict(
    calls: t.Sequence[read.Call], totals: model.Totals, *, watched: bool, moved: bool, check: bool
) -> model.Verdict:
    """``moved``: pods have moved in this run, not only before it."""
    # A plan that is feasible leaves out the nodes that its blockers are about.
    blocked = any(call.feasible is False or _has_blocker(call) for call in calls)
    only_planned = bool(calls) and all(call.feasible is not None or call.starts for call in calls)
    if totals.services_dark and not check:
        return "dark"
    if blocked and not totals.pods_moved:
        return "stopped"
    if only_planned and any(call.waves for call in calls):
        return "planned"
    if check:
        return "check"
    if moved or totals.services_changed:
        return "never_dark" if watched else "not_watched"
    if totals.nodes_failed or any(call.failed for call in calls):
        return "failed"
    return "no_pod_moved" if any(c.actions or c.events for c in calls) else "nothing_to_do"


def _has_blocker(call: read.Call) -> bool:
    severities = [read.text(finding.get("severity")) for finding in call.findings]
    return call.feasible is None and "blocker" in severities
