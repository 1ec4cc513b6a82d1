# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What the page of a report shows, as plain values for its template.

Everything has a cap, so that 3,000 pods still make a page that opens; what is left out is said, and
is in ``report.json``. What needs a look comes first and is never what is left out.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.report_chart import (
    Axis,
    WatchedAxis,
    goal_height,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report import (
    NodeLine,
    PodLane,
    Refusal,
    Report,
    ServiceLine,
    Swap,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report_read import (
    FAILED_OUTCOMES,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report_show import (
    clock,
    count,
    day,
    duration,
    headline,
    place,
    subline,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report_ways import (
    stays,
    why_left,
)

View = dict[str, t.Any]
T = t.TypeVar("T")

NODES_OPEN, NODES_MOST = 30, 400
SERVICES_OPEN, SERVICES_MOST = 24, 150
LANES_MOST, LANES_PER_NODE = 1200, 120
ROWS_MOST = 150
PODS_NAMED = 3
GROUPS_OPEN = 2

PHASES = {
    "cordoned": "cordoned",
    "protecting": "protecting",
    "draining": "draining",
    "drained": "empty",
    "out": "your tasks",
    "returning": "returning",
    "parked": "parked",
}
LANES = {
    "taking_over": "newcomer starts elsewhere",
    "both": "old and new serve",
    "queued": "waiting for its turn",
    "blocked": "held back by a rule",
    "refused": "refused",
    "ending": "ending",
}
TONES = {"failed": "bad", "unfinished": "warn", "blocker": "bad", "warning": "warn", "kept": "warn"}


def page(report: Report) -> View:
    """All values of the page."""
    head = headline(report)
    tone = {"dark": "bad", "stopped": "bad", "never_dark": "good"}.get(report.verdict, "")
    return {
        "title": f"{head} - node maintenance {report.run}".strip(),
        "run": report.run,
        "headline": head,
        "tone": "bad" if report.failed else tone,
        "subline": subline(report),
        "facts": _facts(report),
        "tiles": _tiles(report),
        "look": _look(report),
        "table": _nodes(report),
        "chart": _services(report),
        "refusals": _refusals(report),
        "swaps": _swaps(report),
        "findings": _findings(report),
        "groups": _groups(report),
        "lane_legend": tuple(LANES.items()),
        "given": _given_back(report),
        "actions": _actions(report),
    }


def words(code: str) -> str:
    """A code of a closed list as people read it."""
    return code.replace("_", " ")


def _capped(items: t.Sequence[T], most: int, noun: str) -> tuple[t.Sequence[T], str]:
    hidden = len(items) - most
    if hidden <= 0:
        return items, ""
    return items[:most], f"{count(hidden, f'more {noun}')}: see report.json."


def _facts(report: Report) -> list[tuple[str, str]]:
    when = ""
    if report.started is not None and report.ended is not None:
        start, end = day(report.started), day(report.ended)
        until = ("" if start == end else f"{end} ") + clock(report.ended)
        when = f"{start} {clock(report.started)} to {until} UTC"
    facts = (("Reason", report.reason), ("By", report.by), ("When", when))
    return [(name, value) for name, value in facts if value]


def _tiles(report: Report) -> list[View]:
    totals = report.totals
    if report.planned:
        going, forecast = len(report.pods) - totals.pods_left, duration(totals.forecast_seconds)
        return [
            _tile("Nodes planned", f"{totals.nodes}", f"in {count(totals.waves, 'wave')}" if totals.waves else ""),
            _tile("Pods to move", f"{going:,}", f"{totals.pods_left:,} left in place"),
            _tile("Emptying nodes", forecast, "forecast" if totals.forecast_seconds is not None else "no forecast"),
        ]
    known = "" if totals.services_watched is None else f" of {totals.services_watched:,}"
    swapped = f"{totals.pods_swapped:,} by swap, " if totals.pods_swapped else ""
    waits = [r.longest_wait for r in report.refusals if r.longest_wait is not None]
    foretold = totals.forecast_seconds
    return [
        _tile(
            "Nodes done",
            f"{totals.nodes_done} of {totals.nodes}",
            f"in {count(totals.waves, 'wave')}" if totals.waves else "",
            "bad" if totals.nodes_failed else "",
        ),
        _tile("Pods moved", f"{totals.pods_moved:,}", f"{swapped}{totals.pods_left:,} left in place"),
        _tile(
            "Services dark",
            f"{totals.services_dark}{known}" if report.watched else "-",
            f"watched for {duration(totals.watched_seconds)}" if report.watched else "nobody looked",
            "bad" if totals.services_dark else "",
        ),
        _tile(
            "Evictions refused",
            f"{totals.refusals:,}",
            f"held back {duration(max(waits))} at most" if waits else "",
        ),
        _tile(
            "Emptying nodes",
            duration(totals.moving_seconds),
            f"forecast {duration(foretold)}" if foretold is not None else "",
        ),
        _tile(
            "Whole run",
            duration(totals.seconds),
            f"{count(totals.requests, 'request')}" if totals.requests is not None else "",
        ),
    ]


def _tile(name: str, value: str, note: str, tone: str = "") -> View:
    return {"name": name, "value": value, "note": note, "tone": tone}


def _look(report: Report) -> list[tuple[str, str, str]]:
    found = [(place(s), _darkness(s), "") for s in report.services if s.dark]
    found += [(problem.subject, problem.message, "") for problem in report.problems]
    found += [
        (f"{f.object} ({words(f.code)})", f.message, f.remedy) for f in report.findings if f.severity == "blocker"
    ]
    shown, more = _capped(found, ROWS_MOST, "thing")
    return [*shown, ("", more, "")] if more else list(shown)


def _darkness(service: ServiceLine) -> str:
    parts = [f"{clock(s.start)} for {duration(s.seconds)}" for s in service.dark[:5]]
    still = " It was still dark at the last look." if service.dark[-1].open else ""
    return f"No ready endpoint at {', '.join(parts)}.{still}"


def _nodes(report: Report) -> View:
    axis = Axis(report.started or 0.0, report.ended or 0.0)
    nodes = [n for n in report.nodes if n.spans or n.outcome not in ("planned", "blocked")]
    if report.started is None or not nodes:
        return {"rows": [], "rest": [], "rest_label": "", "ticks": [], "legend": []}
    first = nodes
    if len(nodes) > NODES_OPEN:
        first = [n for n in nodes if n.outcome in ("failed", "unfinished")][:NODES_OPEN]
    shown = {node.name for node in first}
    rest = [n for n in nodes if n.name not in shown][:NODES_MOST]
    phases = {span.phase for node in nodes for span in node.spans}
    hidden = len(nodes) - len(first) - len(rest)
    more = f" ({hidden} more are in report.json)" if hidden else ""
    return {
        "rows": _node_rows(first, axis),
        "rest": _node_rows(rest, axis),
        "rest_label": f"{count(len(rest), 'node')} without trouble{more}",
        "ticks": axis.ticks(),
        "legend": [(phase, label) for phase, label in PHASES.items() if phase in phases],
    }


def _node_rows(nodes: t.Iterable[NodeLine], axis: Axis) -> list[View]:
    rows: list[View] = []
    wave = -1
    for node in nodes:
        steps = "; ".join(f"{PHASES[s.phase]} {duration(s.seconds)}" for s in node.spans)
        rows.append(
            {
                "name": node.name,
                "first": node.wave != wave,
                "wave": node.wave,
                "outcome": node.outcome,
                "tone": TONES.get(node.outcome, ""),
                "away": duration(node.seconds),
                "moved": node.pods_moved,
                "label": f"{node.name}: {steps}",
                "bars": axis.bars(node.spans, PHASES),
                "marks": axis.marks(node.marks, FAILED_OUTCOMES),
            }
        )
        wave = node.wave
    return rows


def _services(report: Report) -> View:
    lines = [s for s in report.services if s.dark or (s.served and not s.steady)]
    if not report.services or not report.watched:
        return {"total": 0}
    axis = WatchedAxis(report.watched)
    lines.sort(key=lambda s: (not s.dark, -s.dark_seconds, s.lowest / max(s.desired, 1)))
    steady = [place(s) for s in report.services if s.served and s.steady]
    never = [place(s) for s in report.services if not s.served]
    drawn = lines[:SERVICES_MOST]
    first, rest = drawn[:SERVICES_OPEN], drawn[SERVICES_OPEN:]
    hidden = len(lines) - len(drawn)
    listed, more = _capped(steady + [f"{n} (never had one)" for n in never], 500, "Service")
    return {
        "total": len(report.services),
        "note": _watch_note(report, axis),
        "ticks": axis.ticks(),
        "rows": [_service_row(service, axis) for service in first],
        "rest": [_service_row(service, axis) for service in rest],
        "rest_label": f"{count(len(rest), 'more Service')} that never went dark"
        + (f" ({hidden} more are in report.json)" if hidden else ""),
        "steady": ", ".join(listed) + (f" … {more}" if more else ""),
        "steady_label": f"{count(len(steady) + len(never), 'more Service')} that kept what it had",
    }


def _watch_note(report: Report, axis: WatchedAxis) -> str:
    text = f"Watched for {duration(report.totals.watched_seconds)} while pods moved"
    if len(axis.windows) > 1:
        text += f", in {len(axis.windows)} stretches that stand side by side; one is empty where nothing changed"
    return f"{text}. The dashed line is the number that should be ready."


def _service_row(service: ServiceLine, axis: WatchedAxis) -> View:
    dark = f"{duration(service.dark_seconds)}" if service.dark else "never"
    return {
        "name": place(service),
        "lowest": f"{service.lowest} of {service.desired}",
        "below": duration(service.below_seconds) if service.below_seconds else "",
        "dark": dark,
        "tone": "bad" if service.dark else "soft",
        "label": f"{place(service)}: at least {service.lowest} of {service.desired} ready, dark {dark}",
        "steps": axis.steps(service),
        "edges": axis.edges(service),
        "goal": goal_height(service),
    }


def _refusals(report: Report) -> View:
    shown, more = _capped(report.refusals, ROWS_MOST, "row")
    return {"rows": [_refusal_row(refusal) for refusal in shown], "more": more}


def _refusal_row(refusal: Refusal) -> View:
    names = refusal.stuck or refusal.pods
    hidden = len(names) - PODS_NAMED
    pods = ", ".join(names[:PODS_NAMED]) + (f" and {hidden} more" if hidden > 0 else "")
    remedy = refusal.remedy or "The pod is still there: see its node below."
    return {
        "blocker": refusal.blocker or ("the API server" if refusal.count else "the plan"),
        "rule": refusal.rule,
        "count": f"{refusal.count:,}" if refusal.count else "",
        "wait": duration(refusal.longest_wait),
        "pods": pods,
        "remedy": remedy if refusal.stuck else "Nothing, it went through later.",
        "tone": "" if refusal.stuck else "soft",
    }


def _swaps(report: Report) -> View:
    shown, more = _capped(report.swaps, ROWS_MOST, "workload")
    return {"rows": [_swap_row(swap) for swap in shown], "more": more}


def _swap_row(swap: Swap) -> View:
    how = []
    before, during = swap.replicas_before, swap.replicas_during
    if before is not None and during is not None and during != before:
        how.append(f"{before} to {during} replicas")
    if swap.budget:
        how.append(f"budget {swap.budget}")
    known = swap.raised is not None and swap.ready is not None
    took = swap.ready - swap.raised if swap.ready and swap.raised and known else None
    return {
        "name": f"{swap.kind} {place(swap)}",
        "how": ", ".join(how),
        "took": duration(took) if took is not None else "",
        "outcome": ": ".join(part for part in (words(swap.outcome), swap.message) if part),
    }


def _findings(report: Report) -> View:
    shown, more = _capped(report.findings, ROWS_MOST, "finding")
    rows = [
        {
            "severity": f.severity,
            "tone": TONES.get(f.severity, "soft"),
            "object": f.object,
            "code": f.code,
            "message": f.message,
            "remedy": f.remedy,
        }
        for f in shown
    ]
    return {"rows": rows, "more": more}


def _groups(report: Report) -> list[View]:
    by_node: dict[str, list[PodLane]] = {}
    for pod in report.pods:
        by_node.setdefault(pod.node, []).append(pod)
    lines = {node.name: node for node in report.nodes}
    order = [name for name in lines if name in by_node] + sorted(by_node.keys() - lines.keys())
    room = min(LANES_PER_NODE, max(LANES_MOST // max(len(order), 1), 5))
    return [
        {
            **_group(name, lines.get(name), by_node[name], room),
            "grid": f"pods-{index}",
            "open": len(order) <= GROUPS_OPEN,
        }
        for index, name in enumerate(order)
    ]


def _group(name: str, node: NodeLine | None, pods: t.Sequence[PodLane], room: int) -> View:
    going = [pod for pod in pods if not stays(pod)]
    times = [x for p in going for s in p.spans for x in (s.start, s.end)]
    times += [mark.at for pod in going for mark in pod.marks]
    axis = Axis(min(times, default=0.0), max(times, default=0.0), relative=True)
    going.sort(key=lambda p: (not p.failed, p.moved, not p.refused, -(p.waited_seconds or 0.0)))
    shown = sorted(going[:room], key=_first_moment)
    left = collections.Counter(words(why_left(p)) for p in pods if stays(p))
    notes = []
    if len(going) > room:
        notes.append(f"{len(going) - room} more pods had no trouble: see report.json.")
    if left:
        listed = ", ".join(f"{n} {reason}" for reason, n in sorted(left.items()))
        notes.append(f"Left in place: {listed}.")
    return {
        "name": name or "no node",
        "label": _group_label(node, going, axis, bool(times)),
        "ticks": axis.ticks() if times else [],
        "rows": [_lane_row(pod, axis) for pod in shown],
        "note": " ".join(notes),
    }


def _first_moment(pod: PodLane) -> tuple[float, str, str]:
    first = min([s.start for s in pod.spans] + [m.at for m in pod.marks], default=0.0)
    return first, pod.namespace, pod.name


def _group_label(node: NodeLine | None, going: t.Sequence[PodLane], axis: Axis, timed: bool) -> str:
    failed = sum(pod.failed for pod in going)
    refused = sum(pod.refused for pod in going)
    parts = [f"wave {node.wave}"] if node and node.wave else []
    parts += [f"{sum(pod.moved for pod in going)} of {count(len(going), 'pod')} moved"]
    parts += [f"{failed} failed"] if failed else []
    parts += [count(refused, "refusal")] if refused else []
    parts += [f"in {duration(axis.end - axis.start)}"] if timed else []
    return ", ".join(parts)


def _lane_row(pod: PodLane, axis: Axis) -> View:
    kept_by = f"; {pod.blocked_by}: {pod.rule}" if pod.blocked_by and not pod.moved else ""
    outcome = words(pod.outcome)
    return {
        "name": place(pod),
        "find": f"{place(pod)} {pod.route} {outcome} {pod.node}".lower(),
        "route": words(pod.route),
        "outcome": outcome,
        "tone": "bad" if pod.failed else "",
        "reason": pod.reason + kept_by,
        "waited": duration(pod.waited_seconds) if pod.waited_seconds is not None else "",
        "label": f"{place(pod)}: {outcome}, refused {pod.refused} times",
        "bars": axis.bars(pod.spans, LANES),
        "marks": axis.marks(pod.marks, {"refused"}),
    }


def _given_back(report: Report) -> View:
    kept = [g for g in report.given_back if g.kept]
    ordered = kept + [g for g in report.given_back if not g.kept]
    shown, more = _capped(ordered, ROWS_MOST, "change")
    given = len(ordered) - len(kept)
    note = f"{count(given, 'object')} given back"
    note += f", {len(kept)} kept as somebody else had made them." if kept else "."
    rows = [
        {
            "at": clock(g.at) if g.at is not None else "",
            "word": "kept" if g.kept else "given back",
            "tone": "warn" if g.kept else "soft",
            "object": g.object,
            "message": g.message,
        }
        for g in shown
    ]
    return {"rows": rows, "more": more, "note": note}


def _actions(report: Report) -> View:
    shown, more = _capped(report.actions, ROWS_MOST if not report.check else 1000, "change")
    return {
        "rows": list(shown),
        "more": more,
        "open": report.check,
        "title": "What would be changed" if report.check else "Every change",
        "label": count(len(report.actions), "change"),
    }
