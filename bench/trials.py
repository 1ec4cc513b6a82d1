# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Single measurements, and their medians. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

OURS = "kubeops.node_maintenance"
KUBECTL = "kubectl drain"
K8S_DRAIN = "kubernetes.core.k8s_drain"
BARE = "bare eviction loop"

Summary = dict[str, dict[str, dict[str, Any]]]
"""scene -> tool -> {repetitions, outcomes, numbers: {name: {median, min, max}}}."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One measurement: the scene, the tool, its numbers by name, and what cannot be a median.

    `busy` are the cores that were at work just before it, when everything of the
    benchmark stood still.
    """

    scene: str
    tool: str
    repetition: int
    outcome: str
    numbers: dict[str, float]
    requests: dict[str, int]
    busy: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def summed_up(trials: Iterable[Trial]) -> Summary:
    """Medians, least and most of every number, by scene and tool, in the order of the trials."""
    groups: dict[str, dict[str, list[Trial]]] = {}
    for trial in trials:
        groups.setdefault(trial.scene, {}).setdefault(trial.tool, []).append(trial)
    return {
        scene: {tool: _group(known) for tool, known in tools.items()}
        for scene, tools in groups.items()
    }


def _group(trials: Sequence[Trial]) -> dict[str, Any]:
    names = dict.fromkeys(name for trial in trials for name in trial.numbers)
    outcomes: dict[str, int] = {}
    for trial in trials:
        outcomes[trial.outcome] = outcomes.get(trial.outcome, 0) + 1
    numbers = {}
    for name in names:
        values = [trial.numbers[name] for trial in trials if name in trial.numbers]
        numbers[name] = {
            "median": round(statistics.median(values), 3),
            "min": min(values),
            "max": max(values),
        }
    return {"repetitions": len(trials), "outcomes": outcomes, "numbers": numbers}


def median(summary: Summary, scene: str, tool: str, name: str) -> float | None:
    """A median, or None where that was not measured."""
    found = summary.get(scene, {}).get(tool, {}).get("numbers", {}).get(name)
    return float(found["median"]) if found else None


def best_bare(summary: Summary, scene: str) -> str | None:
    """The bare loop whose number of threads evicted fastest, or None where none was measured."""
    rates = {
        tool: median(summary, scene, tool, "pods_per_second") for tool in summary.get(scene, {})
    }
    loops = {
        tool: rate for tool, rate in rates.items() if tool.startswith(BARE) and rate is not None
    }
    return max(loops, key=lambda tool: loops[tool]) if loops else None
