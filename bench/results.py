# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Medians as the tables that people read. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import targets
from bench.trials import BARE, OURS, Summary, best_bare, median


def _cell(entry: dict[str, Any], name: str, digits: int) -> str:
    found = entry["numbers"].get(name)
    if not found:
        return ""
    text = f"{found['median']:.{digits}f}"
    if found["min"] != found["max"]:
        text += f" ({found['min']:.{digits}f}-{found['max']:.{digits}f})"
    return text


def _ended(entry: dict[str, Any]) -> str:
    fine = entry["outcomes"].get("drained", 0)
    return f"{fine} of {entry['repetitions']}"


BACKENDS_SCENE = "backends"
Column = tuple[str, str, int]
DRAINS: tuple[Column, ...] = (
    ("pods", "pods", 0),
    ("moved", "evicted", 0),
    ("pods/s", "pods_per_second", 1),
    ("requests/pod", "requests_per_pod", 2),
    ("429", "refusals", 0),
    ("seconds", "seconds", 1),
    ("wall", "wall_seconds", 1),
    ("processor", "cpu_seconds", 1),
    ("MB", "peak_mb", 0),
)
ROLLS: tuple[Column, ...] = (
    ("pods", "pods", 0),
    ("moves/pod", "moves_per_pod", 2),
    ("pods/s", "pods_per_second", 1),
    ("requests/pod", "requests_per_pod", 2),
    ("429", "refusals", 0),
    ("seconds", "seconds", 0),
    ("processor", "cpu_seconds", 1),
    ("MB", "peak_mb", 0),
    ("s/wave beside drain", "wave_seconds_beside_drain", 1),
    ("KB, plan", "plan_result_kb", 0),
    ("KB, others", "other_result_kb", 0),
)
SURGES: tuple[Column, ...] = (
    ("pods", "pods", 0),
    ("seconds", "seconds", 1),
    ("s/pod", "seconds_per_pod", 2),
    ("dark s, median", "dark_seconds_median", 2),
    ("dark s, worst", "dark_seconds_worst", 2),
    ("new pods", "new_pods", 0),
    ("requests/pod", "requests_per_pod", 1),
)
REQUESTS: tuple[Column, ...] = (
    ("sent", "sent", 0),
    ("failed", "failed", 0),
    ("dark s, worst", "dark_seconds_worst", 1),
    ("wall", "wall_seconds", 1),
)
AWAY: tuple[Column, ...] = (("seconds away", "away_seconds", 1), ("wall", "wall_seconds", 1))
BACKENDS: tuple[Column, ...] = (
    ("pods", "pods", 0),
    ("seconds", "seconds", 1),
    ("s/pod", "seconds_per_pod", 2),
    ("requests/pod", "requests_per_pod", 2),
    ("Koordinator's writes/pod", "koordinator_writes_per_pod", 1),
    ("wall", "wall_seconds", 1),
)
NO_OPS: tuple[Column, ...] = (
    ("requests", "requests", 0),
    ("writes", "writes", 0),
    ("seconds in tasks", "task_seconds", 2),
    ("wall", "wall_seconds", 2),
)


PLANS: tuple[Column, ...] = (
    ("pods", "pods", 0),
    ("lists, processor", "lists_cpu_seconds", 1),
    ("processor", "cpu_seconds", 1),
    ("requests", "requests", 0),
    ("MB", "peak_mb", 0),
)
CALLS: tuple[Column, ...] = (
    ("requests", "requests", 0),
    ("writes", "writes", 0),
    ("objects read", "objects", 0),
    ("MB read", "megabytes", 1),
    ("processor", "cpu_seconds", 2),
    ("MB", "peak_mb", 0),
)
FLEETS: tuple[Column, ...] = (
    ("clusters", "clusters", 0),
    ("wall", "wall_seconds", 1),
    ("processor", "cpu_seconds", 1),
    ("each more", "cpu_seconds_each_more", 2),
    ("MB", "peak_mb", 0),
)
BY_BEGINNING = {"plan of all": PLANS, targets.FLEET: FLEETS}


def _columns(scene: str) -> tuple[Column, ...]:
    if scene in targets.DRAINS:
        return DRAINS
    if scene in (targets.ROLL, targets.ROLL_WAVES, targets.ROLL_LARGE):
        return ROLLS
    if scene.endswith(f" of {targets.LARGE} nodes") and ": " in scene:
        return CALLS
    for beginning, columns in BY_BEGINNING.items():
        if scene.startswith(beginning):
            return columns
    if scene in targets.REQUESTS:
        return REQUESTS
    return {targets.AWAY: AWAY, targets.SURGE: SURGES, BACKENDS_SCENE: BACKENDS}.get(scene, NO_OPS)


def table(summary: Summary, *compared: Summary) -> str:
    """Targets, then all scenes, as Markdown tables; medians with least and most in parentheses.

    A target is about scenes of one of the summaries that are `compared`, by default about any.
    """
    rows = [row for one in compared or [summary] for row in targets.verdicts(one)]
    wanted = _markdown([["target", "limit", "measured", "verdict"], *rows])
    parts = [_scene(scene, tools) for scene, tools in summary.items()]
    return "\n\n".join([wanted, *parts, *_ratios(summary), *_calls(summary)]) + "\n"


def _scene(scene: str, tools: dict[str, dict[str, Any]]) -> str:
    columns = _columns(scene)
    rows = [[scene, *(title for title, _name, _digits in columns), "ended well"]]
    for tool, entry in tools.items():
        rows.append(
            [tool, *(_cell(entry, name, digits) for _title, name, digits in columns), _ended(entry)]
        )
    return _markdown(rows)


def _ratios(summary: Summary) -> list[str]:
    rows = [["ours against", "scene", "pods/s", "requests/pod"]]
    for scene, tools in summary.items():
        best = best_bare(summary, scene)
        for tool in tools:
            if tool == OURS or (tool.startswith(BARE) and tool != best):
                continue
            ratios = [
                _ratio(summary, scene, tool, name)
                for name in ("pods_per_second", "requests_per_pod")
            ]
            if all(ratios):
                rows.append([tool, scene, *ratios])
    return [_markdown(rows)] if len(rows) > 1 else []


def _ratio(summary: Summary, scene: str, tool: str, name: str) -> str:
    ours, theirs = median(summary, scene, OURS, name), median(summary, scene, tool, name)
    return f"x {ours / theirs:.2f}" if ours and theirs else ""


def _calls(summary: Summary) -> list[str]:
    names = ("requests", "bound", "evictions", "refusals", "lease_renewals", "rest")
    rows = [["node_drain call", *(name.replace("_", " ") for name in names)]]
    for scene, tools in summary.items():
        entry = tools.get(OURS)
        if entry and "call_requests" in entry["numbers"]:
            rows.append([scene, *(_cell(entry, f"call_{name}", 0) for name in names)])
    return [_markdown(rows)] if len(rows) > 1 else []


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
