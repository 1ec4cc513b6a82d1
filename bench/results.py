# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From single measurements to medians, and to the table that people read. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from bench.scenes import Trial
from bench.tools import Ours

Summary = dict[str, dict[str, dict[str, Any]]]
"""scene -> tool -> {outcomes, numbers: {name: {median, min, max}}}."""


def summed_up(trials: Iterable[Trial]) -> Summary:
    """Medians, least and most of every number, by scene and tool, in the order of the trials."""
    groups: dict[str, dict[str, list[Trial]]] = {}
    for trial in trials:
        groups.setdefault(trial.scene, {}).setdefault(trial.tool, []).append(trial)
    return {scene: {tool: _group(known) for tool, known in tools.items()} for scene, tools in groups.items()}


def _group(trials: Sequence[Trial]) -> dict[str, Any]:
    names = dict.fromkeys(name for trial in trials for name in trial.numbers)
    outcomes: dict[str, int] = {}
    for trial in trials:
        outcomes[trial.outcome] = outcomes.get(trial.outcome, 0) + 1
    numbers = {}
    for name in names:
        values = [trial.numbers[name] for trial in trials if name in trial.numbers]
        numbers[name] = {"median": round(statistics.median(values), 3), "min": min(values), "max": max(values)}
    return {"repetitions": len(trials), "outcomes": outcomes, "numbers": numbers}


def median(summary: Summary, scene: str, tool: str, name: str) -> float:
    """A median, 0 where that was not measured."""
    found = summary.get(scene, {}).get(tool, {}).get("numbers", {}).get(name, {})
    return float(found.get("median", 0.0))


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
)
SWAPS: tuple[Column, ...] = (
    ("pods", "pods", 0),
    ("seconds", "seconds", 1),
    ("s/pod", "seconds_per_pod", 2),
    ("dark s, median", "dark_seconds_median", 2),
    ("dark s, worst", "dark_seconds_worst", 2),
    ("new pods", "new_pods", 0),
    ("requests/pod", "requests_per_pod", 1),
)
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


def _columns(scene: str) -> tuple[Column, ...]:
    if scene.endswith(("node", "nodes")):
        return DRAINS
    return {"swap": SWAPS, "backends": BACKENDS}.get(scene, NO_OPS)


def table(summary: Summary) -> str:
    """All scenes as Markdown tables, medians with least and most in parentheses."""
    parts = [_scene(scene, tools) for scene, tools in summary.items()]
    return "\n\n".join([*parts, *_ratios(summary), *_calls(summary)]) + "\n"


def _scene(scene: str, tools: dict[str, dict[str, Any]]) -> str:
    columns = _columns(scene)
    rows = [[scene, *(title for title, _name, _digits in columns), "ended well"]]
    for tool, entry in tools.items():
        rows.append([tool, *(_cell(entry, name, digits) for _title, name, digits in columns), _ended(entry)])
    return _markdown(rows)


def _ratios(summary: Summary) -> list[str]:
    rows = [["ours against", "scene", "pods/s", "requests/pod"]]
    for scene, tools in summary.items():
        ours = {name: median(summary, scene, Ours.name, name) for name in ("pods_per_second", "requests_per_pod")}
        if _columns(scene) is not DRAINS or not all(ours.values()):
            continue
        for tool in tools:
            theirs = {name: median(summary, scene, tool, name) for name in ours}
            if tool != Ours.name and all(theirs.values()):
                rows.append([tool, scene, *(f"x {ours[name] / theirs[name]:.2f}" for name in ours)])
    return [_markdown(rows)] if len(rows) > 1 else []


def _calls(summary: Summary) -> list[str]:
    names = ("requests", "bound", "evictions", "refusals", "lease_renewals", "rest")
    rows = [["node_drain call", *(name.replace("_", " ") for name in names)]]
    for scene, tools in summary.items():
        entry = tools.get(Ours.name)
        if entry and "call_requests" in entry["numbers"]:
            rows.append([scene, *(_cell(entry, f"call_{name}", 0) for name in names)])
    return [_markdown(rows)] if len(rows) > 1 else []


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
