# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What the page of a report shows, as plain values for its template.

The head and the drawings are here, the tables in tables.py. Everything has a cap, so that 3,000
pods still make a page that opens; what is left out is said, and is in ``report.json``. What needs a
look comes first and is never what is left out.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.report_page import tables
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.report_page.chart import (
    Axis,
    WatchedAxis,
    goal_height,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.report_page.tables import (
    TONES,
    View,
    capped,
    words,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report.model import (
    NodeLine,
    PodLane,
    Report,
    ServiceLine,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report.read import FAILED_OUTCOMES
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report.text import (
    clock,
    count,
    day,
    duration,
    headline,
    place,
    subline,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report.timeline import stays, why_left

NODES_OPEN, NODES_MOST = 30, 400
SERVICES_OPEN, SERVICES_MOST = 24, 150
LANES_MOST, LANES_PER_NODE = 1200, 120
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
        "look": tables.look(report),
        "table": _nodes(report),
        "chart": _services(report),
        "refusals": tables.refusals(report),
        "swaps": tables.swaps(report),
        "findings": tables.findings(report),
        "groups": _groups(report),
        "lane_legend": tuple(LANES.items()),
        "given": tables.given_back(report),
        "actions": tables.actions(report),
    }


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
    listed, more = capped(steady + [f"{n} (never had one)" for n in never], 500, "Service")
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
