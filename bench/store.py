# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Groups whose measurements prove something, one file each, of which the published
results are put together.

So a run may measure some groups, and another one the rest. Only what one machine has measured since
it was booted is put together: the next one may be twice as fast, and look the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from bench.trials import Trial

T = TypeVar("T", str, int)


@dataclass(frozen=True, slots=True)
class Measured:
    """A group: when and where it was measured, what took part, and all its measurements."""

    group: str
    date: str
    boot: str
    machine: dict[str, Any]
    versions: dict[str, str]
    trials: Sequence[Trial]

    @property
    def rounds(self) -> int:
        return 1 + max(trial.repetition for trial in self.trials)


def keep(folder: Path, measured: Measured) -> None:
    """Write a group's file, in the place of an earlier one."""
    (folder / f"{measured.group}.json").write_text(
        json.dumps(asdict(measured)) + "\n", encoding="utf-8"
    )


def kept(folder: Path, groups: Iterable[str], boot: str) -> list[Measured]:
    """Those of the groups that were measured since the machine was booted, in this order."""
    paths = [folder / f"{group}.json" for group in groups]
    found = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    return [
        Measured(**{**one, "trials": [Trial(**trial) for trial in one["trials"]]})
        for one in found
        if one["boot"] == boot
    ]


def published(known: Sequence[Measured], summary: dict[str, Any]) -> dict[str, Any]:
    """What results.json holds."""
    versions: dict[str, str] = {}
    for one in known:
        versions |= one.versions
    return {
        "machine": {
            name: value for name, value in known[0].machine.items() if name != "load_at_start"
        },
        "versions": versions,
        "groups": {
            one.group: {
                "date": one.date,
                "rounds": one.rounds,
                "load_at_start": one.machine["load_at_start"],
            }
            for one in known
        },
        "summary": summary,
        "trials": [trial.to_dict() for one in known for trial in one.trials],
    }


def caption(known: Sequence[Measured]) -> str:
    """When and where the groups were measured, and how often."""
    dates, rounds = _span({one.date for one in known}), _span({one.rounds for one in known})
    return f"{dates}, {known[0].machine['cores']} cores, medians of {rounds} rounds, least to most"


def _span(values: set[T]) -> str:
    """The least and the most, or the only one."""
    least, most = min(values), max(values)
    return f"{least}" if least == most else f"{least} to {most}"
