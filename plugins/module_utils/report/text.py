# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A report as JSON data and as text for a terminal."""

from __future__ import annotations

import collections
import datetime
import itertools
import textwrap
import typing as t
from dataclasses import fields, is_dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import model, timeline

WIDTH, LINE = 100, 120
"""Characters of a paragraph's line, and of any line."""
NODES_SHOWN = 20
PODS_SHOWN, PODS_OF_MANY = 30, 10
"""So many pods are all listed, of more than these the first ``PODS_OF_MANY``."""
LINES_SHOWN = 8
CHANGES_SHOWN, CHANGES_OF_MANY = 3, 2
"""Changes that are shown for one object, and for several."""
OBJECTS_SHOWN = 3
SPANS_SHOWN = 5
SERVICES_SHOWN = 5
UNWATCHED_SECONDS = 10.0
"""Seconds, and a tenth of the time, that calls which follow each other may not look."""
ENDS: t.Mapping[model.Outcome, str] = {
    "back": "back in service",
    "parked": "out of service, as asked",
    "unchanged": "already as wanted",
    "failed": "failed",
    "unfinished": "left unfinished",
    "blocked": "blocked by a finding",
    "planned": "not reached",
    "gone": "gone for good",
}
"""How nodes ended, in the order in which it is told."""
INSTANTS = frozenset(
    {
        *("started", "ended", "since", "start", "end", "at"),
        *("first", "last", "raised", "ready", "lowered"),
    }
)
COMPUTED: t.Mapping[type, tuple[str, ...]] = {
    model.NodeLine: ("seconds",),
    model.Report: ("failed",),
    model.ServiceLine: ("dark_seconds",),
    model.Span: ("seconds",),
}
"""What ``report.json`` shows of the properties."""


def rfc3339(at: float | None) -> str | None:
    """An instant in UTC with milliseconds, as results and ``report.json`` show it."""
    if at is None:
        return None
    when = datetime.datetime.fromtimestamp(at, datetime.UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(at: float) -> str:
    """The time of the day in UTC, to the second."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%H:%M:%S")


def day(at: float) -> str:
    """The date in UTC."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%d")


def duration(seconds: float | None) -> str:
    """A length of time for people: ``0.4 s``, ``41 s``, ``2 min 05 s``, ``1 h 07 min``."""
    if seconds is None:
        return "-"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def between(least: float | None, most: float | None) -> str:
    """``14 to 39 s`` of what is known within limits, or ``14 s`` if both are the same."""
    first, last = duration(least), duration(most)
    if first == last:
        return last
    if first.endswith(" s") and "min" not in f"{first}{last}":
        first = first.removesuffix(" s")
    return f"{first} to {last}"


def foreseen(totals: model.Totals) -> str:
    """What the plan foresaw from cordon to drained."""
    return between(*(totals.forecast_range or (totals.forecast_seconds, totals.forecast_seconds)))


def count(number: int, one: str) -> str:
    """A number with its noun: ``1 pod``, ``3 pods``."""
    return f"{number:,} {one if number == 1 else one + 's'}"


def headline(report: model.Report) -> str:
    """The verdict in one sentence."""
    totals = report.totals
    if report.verdict == "never_dark":
        but = f", but {_failure(report)}" if report.failed else ""
        return f"Never dark{_while_watched(report)}{_requests(report)}{but}"
    if report.verdict == "dark":
        worst = max(report.dark, key=lambda s: s.dark_seconds)
        if len(report.dark) == 1:
            return f"{place(worst)} was dark for {duration(worst.dark_seconds)}"
        longest = f"{place(worst)} longest, {duration(worst.dark_seconds)}"
        return f"{count(len(report.dark), 'Service')} went dark ({longest})"
    words: dict[model.Verdict, str] = {
        "stopped": f"Stopped before the first pod: {count(len(report.blockers), 'blocker')}",
        "planned": f"Planned: {count(len(to_move(report)), 'pod')} to move",
        "check": "Check mode: nothing was changed",
        "nothing_to_do": "Nothing to do",
        "no_pod_moved": (
            f"No pod {'was left' if totals.pods_moved or report.moved_unknown else 'had'} to move"
        ),
        "failed": _failed(report),
        "not_watched": f"{count(totals.pods_moved, 'pod')} moved, no Service was watched",
    }
    return words[report.verdict]


def _while_watched(report: model.Report) -> str:
    """A note if nobody watched for a part of the time, empty if that was short."""
    totals = report.totals
    if report.unwatched_seconds <= max(UNWATCHED_SECONDS, totals.out_seconds / 10):
        return ""
    return f" while watched ({duration(totals.watched_seconds)} of {duration(totals.out_seconds)})"


def _requests(report: model.Report) -> str:
    """How many requests failed, empty if none were sent."""
    sent, failed = sent_and_failed(report)
    return f", {failed:,} of {count(sent, 'request')} failed" if sent else ""


def sent_and_failed(report: model.Report) -> tuple[int, int]:
    """The requests of all load generators."""
    return sum(line.sent for line in report.traffic), sum(line.failed for line in report.traffic)


def _failed(report: model.Report) -> str:
    """The headline of a run that failed and moved no pod."""
    if not any(node.emptied for node in report.nodes):
        return "Failed before the first pod moved"
    failure = _failure(report)
    return f"{failure[0].upper()}{failure[1:]}"


def _failure(report: model.Report) -> str:
    failed = report.totals.nodes_failed
    if not failed:
        return "the run failed"
    of = f"{failed} of {count(report.totals.nodes, 'node')}"
    tasks = sum(node.tasks_failed for node in report.nodes)
    return f"your tasks failed on {of}" if tasks == failed else f"{of} failed"


def subline(report: model.Report) -> str:
    """How it ended, in one sentence."""
    totals = report.totals
    if report.planned:
        left = sum(node.outcome == "blocked" for node in report.nodes)
        left = left if report.verdict == "planned" else 0
        size = f"{count(totals.nodes - left, 'node')} in {count(totals.waves, 'wave')}"
        return f"{size} planned{f', {left} left out' if left else ''}."
    if not totals.nodes:
        return "No node took part."
    ends = collections.Counter(node.outcome for node in report.nodes)
    parts = [f"{ends[outcome]} {words}" for outcome, words in ENDS.items() if ends[outcome]]
    took = f" in {duration(totals.seconds)}" if totals.seconds is not None else ""
    moved = f"{count(totals.pods_moved, 'pod')} moved{took}"
    if report.moved_unknown:
        moved = f"at least {moved}"
        if not totals.pods_moved:
            moved = "what was moved before it was interrupted is not known"
    return f"{count(totals.nodes, 'node')}: {', '.join(parts)}; {moved}."


def place(thing: t.Any) -> str:
    """Namespace and name of a Service, pod or workload."""
    return f"{thing.namespace}/{thing.name}"


def summary_text(report: model.Report, *, path: str = "") -> str:
    """The report for a terminal, with what to do at its end, near the prompt."""
    by = f"by {report.by}" if report.by else ""
    facts = {
        "cluster": report.cluster.words,
        "run": ", ".join(part for part in (report.run, by, report.reason) if part),
        "when": when(report),
        "pods": _pods(report),
        "refused": _refused(report),
        "services": _services(report),
        "unwatched": unwatched(report),
        "traffic": _traffic(report),
        "forecast": _forecast(report),
        "report": path,
    }
    shown = [f"  {name:<9} {value}" for name, value in facts.items() if value]
    first = [f"{headline(report)}.", subline(report)]
    if len(" ".join(first)) <= LINE:
        first = [" ".join(first)]
    parts = [*_nodes(report), *_to_move(report), *_todo(report), *_advice(report)]
    return "\n".join([*first, "", *shown, *parts])


def when(report: model.Report) -> str:
    """Start and end of the run, empty if unknown."""
    if report.started is None or report.ended is None:
        return ""
    start, end = day(report.started), day(report.ended)
    until = clock(report.ended) if start == end else f"{end} {clock(report.ended)}"
    return f"{start} {clock(report.started)} to {until} UTC"


def _pods(report: model.Report) -> str:
    totals = report.totals
    if not report.pods:
        return ""
    if report.planned:
        blocked = sum(refused(pod) for pod in report.pods)
        held = f", {blocked:,} blocked" if blocked else ""
        return f"{len(to_move(report)):,} to move{held}, {totals.pods_left:,} left in place"
    first = {"replaced first": totals.pods_replaced, "surged": totals.pods_surged}
    words = ", ".join(f"{n:,} {what}" for what, n in first.items() if n)
    ways = f" ({words})" if words else ""
    others = {"left in place": totals.pods_left, "failed": totals.pods_failed}
    least = "at least " if report.moved_unknown else ""
    parts = [f"{least}{totals.pods_moved:,} moved{ways}"]
    parts += [f"{n:,} {what}" for what, n in others.items() if n]
    parts += [] if totals.requests is None else [f"{totals.requests:,} requests"]
    return ", ".join(parts)


def refused(pod: model.PodLane) -> bool:
    """Whether the plan does not allow the pod to be moved."""
    return pod.route == "refuse" and not pod.moved


def to_move(report: model.Report) -> list[model.PodLane]:
    """The pods that leave their nodes if the plan is carried out, in the order of its waves."""
    order = {node.name: index for index, node in enumerate(report.nodes)}
    left = (timeline.stays, timeline.cleared, refused)
    moving = [pod for pod in report.pods if not any(rule(pod) for rule in left)]
    return sorted(moving, key=lambda pod: order.get(pod.node, len(order)))


def goes_to(pod: model.PodLane) -> str:
    """The node that the plan foresees for its successor; ``-`` if it is not forecast."""
    return pod.target or ("nowhere" if pod.fits is False else "-")


def waves(report: model.Report) -> list[tuple[int, list[str], str]]:
    """Each wave: its number, its nodes, and why these are in no earlier one."""
    found: dict[int, list[model.NodeLine]] = {}
    for node in report.nodes:
        if node.wave:
            found.setdefault(node.wave, []).append(node)
    whys = {number: {node.name: node.waits for node in nodes} for number, nodes in found.items()}
    return [(number, list(why), waiting(why)) for number, why in whys.items()]


def waiting(why: t.Mapping[str, str], most: int | None = None) -> str:
    """Why nodes are in no earlier wave: each reason once, or ``most``, with its nodes."""
    found: dict[str, list[str]] = {}
    for node, reason in why.items():
        if reason:
            found.setdefault(reason, []).append(node)
    if len(found) < 2:
        return next(iter(found), "")
    shown = [f"{', '.join(nodes)}: {reason}" for reason, nodes in found.items()][:most]
    hidden = sum(len(nodes) for nodes in list(found.values())[len(shown) :])
    if hidden:
        shown.append(f"{count(hidden, 'more node')} for such a reason, too")
    return "; ".join(shown)


def _refused(report: model.Report) -> str:
    if not report.refusals or report.planned:
        return ""
    stuck = sum(len(r.stuck) for r in report.refusals)
    longest = held_back(report)
    text = f"{count(report.totals.refusals, 'eviction')} by {count(len(report.refusals), 'rule')}"
    text += f", {count(stuck, 'pod')} still there" if stuck else ", all accepted later"
    return text + (f", {longest}" if longest else "")


def held_back(report: model.Report) -> str:
    """For how long refusals held pods back, empty if unknown."""
    waits = [r.longest_wait for r in report.refusals if r.longest_wait is not None]
    return f"held back {duration(max(waits))} at most" if waits else ""


def _services(report: model.Report) -> str:
    totals = report.totals
    if not report.watched:
        return ""
    changed = [s for s in report.services if s.changed]
    known = "" if totals.services_watched is None else f" of {totals.services_watched:,}"
    text = f"{len(changed):,}{known} changed in {duration(totals.watched_seconds)} of watching, "
    text += f"{totals.services_dark or 'none'} went dark"
    if not totals.services_dark and changed:
        lowest = min(changed, key=lambda s: (s.share, s.lowest))
        text += f"; lowest: {place(lowest)} at {lowest.lowest} of {lowest.desired}"
    return text


def _traffic(report: model.Report) -> str:
    """What became of the requests, and of which Services most of them failed."""
    sent, failed = sent_and_failed(report)
    if not sent:
        return ""
    services = {line.service for line in report.traffic}
    text = f"{count(sent, 'request')} to {count(len(services), 'Service')}, {failed:,} failed"
    by = collections.Counter[str]()
    for line in report.lost:
        by[line.service] += line.failed
    worst = [f"{service} {number:,}" for service, number in by.most_common(SERVICES_SHOWN)]
    more = f", {len(by) - len(worst)} more" if len(by) > len(worst) else ""
    return text + (f" ({', '.join(worst)}{more})" if worst else "")


def unwatched(report: model.Report) -> str:
    """How long nobody looked, and why; empty if that was short, or no Service was watched."""
    if report.planned or not report.totals.watched_seconds:
        return ""
    if report.unwatched_seconds <= UNWATCHED_SECONDS:
        return ""
    spans = itertools.chain.from_iterable(node.spans for node in report.nodes)
    tasks = timeline.seconds_of((span.start, span.end) for span in spans if span.phase == "out")
    part = f"; your tasks took {duration(tasks)}" if tasks else ""
    stayed = ", ".join(one.object for one in report.findings if one.code == "serves_from_node")
    part += f"; {stayed} served from the nodes" if stayed else ""
    return f"{duration(report.unwatched_seconds)} of {duration(report.totals.out_seconds)}{part}"


def _forecast(report: model.Report) -> str:
    totals = report.totals
    if totals.forecast_seconds is None:
        return ""
    took = f", took {duration(totals.moving_seconds)}" if totals.moving_seconds is not None else ""
    return f"{foreseen(totals)} from cordon to drained{took}"


def _nodes(report: model.Report) -> list[str]:
    shown: t.Sequence[model.NodeLine] = report.nodes
    if len(shown) > NODES_SHOWN:
        shown = [n for n in shown if n.troubled][:NODES_SHOWN]
    if not shown or report.planned:
        return []
    width = max(4, *(len(node.name) for node in shown))
    lines = ["", f"  {'node':<{width}}  wave  {'outcome':<10}  {'away':>11}  pods"]
    for node in shown:
        place_in_time = f"{node.wave or '-':>4}  {node.outcome:<10}  {duration(node.seconds):>11}"
        lines.append(f"  {node.name:<{width}}  {place_in_time}  {_known(node.pods_moved):>4}")
    hidden = len(report.nodes) - len(shown)
    return lines + ([f"  … and {count(hidden, 'more node')}"] if hidden else [])


def _known(number: int | None) -> str:
    return "-" if number is None else f"{number}"


def _to_move(report: model.Report) -> list[str]:
    """What a plan would move, and how: the first pods, by node."""
    moving = to_move(report) if report.planned else []
    if not moving:
        return []
    shown = moving if len(moving) <= PODS_SHOWN else moving[:PODS_OF_MANY]
    cells = [
        ("route", "to", "takes"),
        *((pod.route or "-", goes_to(pod), duration(pod.forecast_seconds)) for pod in shown),
    ]
    route, to, takes = (max(map(len, column)) for column in zip(*cells, strict=True))
    rows = [f"      {way:<{route}}  {where:<{to}}  {long:>{takes}}  " for way, where, long in cells]
    lines = ["", "  To move:", f"{rows.pop(0)}pod"]
    known = {node.name: node for node in report.nodes}
    for node, pods in itertools.groupby(shown, lambda pod: pod.node):
        line = known.get(node)
        wave = f", wave {line.wave}" if line and line.wave else ""
        lines.append(f"    {node}{wave}" + (f"; {line.waits}" if line and line.waits else ""))
        for pod in pods:
            lines.append(f"{rows.pop(0)}{place(pod)}{f' ({pod.owner})' if pod.owner else ''}")
    hidden = len(moving) - len(shown)
    return lines + ([f"    … and {count(hidden, 'more pod')}"] if hidden > 0 else [])


def to_look(report: model.Report) -> dict[str, list[tuple[str, str]]]:
    """What someone has to look at, the worst first: subject and message, by what it is."""
    return {
        "Service": [(place(service), _dark(service)) for service in report.dark],
        "problem": [(problem.subject, problem.message) for problem in report.problems],
        "blocker": [(f"{f.code} {f.object}".strip(), f.sentence) for f in report.blockers],
        "Service that was asked": [(line.service, _lost(line)) for line in report.lost],
        "file": [(fault.subject, fault.message) for fault in report.traffic_faults],
    }


def _todo(report: model.Report) -> list[str]:
    entries = list(itertools.chain.from_iterable(to_look(report).values()))
    lines = ["", "  To look at:"] if entries else []
    for subject, message in entries[:LINES_SHOWN]:
        body = textwrap.wrap(message, WIDTH - 8, break_long_words=False, break_on_hyphens=False)
        body = body or [""]
        lines += [f"    {subject}", *(f"      {line}" for line in body)]
    hidden = len(entries) - LINES_SHOWN
    return lines + ([f"    … and {hidden} more, all in the report"] if hidden > 0 else [])


def against(advice: model.Advice) -> str:
    """What the changes of an advice are against, in a line."""
    return f"{', '.join(advice.codes)}: {reasons.listed(advice.objects, OBJECTS_SHOWN)}"


def without(report: model.Report) -> str:
    """That nodes can be left out instead, empty where nothing can go on without them."""
    if not report.skippable:
        return ""
    out = reasons.listed(report.skippable, OBJECTS_SHOWN)
    return f"Or go on without {out}: -e maintain_on_blocked=skip"


def _advice(report: model.Report) -> list[str]:
    """Each change as an item: what to do, and the command for it, which is not wrapped."""
    lines = []
    for one in report.advice if report.planned else ():
        lines += _wrapped(against(one), "    ")
        most = CHANGES_SHOWN if len(one.objects) < 2 else CHANGES_OF_MANY
        for step in one.changes[:most]:
            lines += _wrapped(step.text, "      - ")
            lines += [f"          {step.command}"] if step.command else []
            lines += [f"          afterwards: {step.back}"] if step.back else []
        hidden = len(one.changes) - most
        if hidden > 0:
            lines.append(f"      … and {count(hidden, 'more change')}, all in the report")
    lines += [f"    {left}" for left in [without(report)] if left]
    return ["", "  What would unblock it:", *lines] if lines else []


def _wrapped(text: str, begin: str) -> list[str]:
    indent = " " * (len(begin) if begin.strip() else len(begin) + 2)
    return textwrap.wrap(text, WIDTH, initial_indent=begin, subsequent_indent=indent)


def _dark(service: model.ServiceLine) -> str:
    shown = service.dark[:SPANS_SHOWN]
    spans = ", ".join(f"{clock(x.start)} UTC for {duration(x.seconds)}" for x in shown)
    more = " and later" if len(service.dark) > SPANS_SHOWN else ""
    still = " It was still dark at the last look." if service.dark[-1].open else ""
    return f"No ready endpoint at {spans}{more}.{still}"


def how(line: model.TrafficLine) -> str:
    """By which way and over which connections a Service was asked."""
    return ", ".join(filter(None, (line.via, line.kind)))


def ways(line: model.TrafficLine) -> str:
    """How many requests failed in which way, and from when to when."""
    kinds = collections.Counter[str]()
    for lost in line.failures:
        kinds[lost.kind or "failed"] += lost.count
    if not kinds:
        return ""
    first, last = clock(line.failures[0].at), clock(line.failures[-1].at)
    period = f"at {first}" if first == last else f"{first} to {last}"
    words = [f"{number:,} {kind}" for kind, number in kinds.most_common(SPANS_SHOWN)]
    return ", ".join([*words, f"{period} UTC"])


def _lost(line: model.TrafficLine) -> str:
    by = f" ({how(line)})" if how(line) else ""
    dark = ""
    if line.unanswered_seconds:
        dark = f" No answer for {duration(line.unanswered_seconds)} at most."
    words = f": {ways(line)}" if line.failures else ""
    return f"{line.failed:,} of {count(line.sent, 'request')} failed{by}{words}.{dark}"


def as_json(report: model.Report) -> dict[str, t.Any]:
    """Instants are RFC 3339, durations seconds. The guide to reports lists the fields."""
    return {"version": model.VERSION, **_plain(report), "headline": headline(report)}


def _plain(value: t.Any, key: str = "") -> t.Any:
    """The same as JSON has it; the name of a field says what is an instant."""
    if is_dataclass(value):
        names = (*(field.name for field in fields(value)), *COMPUTED.get(type(value), ()))
        return {name: _plain(getattr(value, name), name) for name in names}
    if key in INSTANTS:
        return rfc3339(value)
    if key == "samples":
        return [[rfc3339(at), ready] for at, ready in value]
    if key == "left":
        return dict(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return round(value, 3) if isinstance(value, float) else value
