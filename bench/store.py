# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Groups whose measurements prove something, one file each, of which the published
results are put together.

So a run may measure some groups, and another one the rest. A group that was not measured since the
machine was booted stays as it was published, with its date. It is not compared with others then:
the machine of that day may have been twice as fast, and looked the same.
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


def kept(folder: Path, before: dict[str, Any], groups: Iterable[str], boot: str) -> list[Measured]:
    """The groups in this order: measured since the machine was booted, else as published before."""
    found = []
    for group in groups:
        path = folder / f"{group}.json"
        one = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if one.get("boot") != boot:
            one = before.get("groups", {}).get(group)
        if one:
            known = [Trial(**trial) for trial in one["trials"]]
            found.append(Measured(**{**one, "group": group, "trials": known}))
    return found


def published(known: Sequence[Measured], summary: dict[str, Any]) -> dict[str, Any]:
    """What results.json holds."""
    return {"groups": {one.group: asdict(one) for one in known}, "summary": summary}


def by_boot(known: Sequence[Measured]) -> list[list[Measured]]:
    """What may be compared: the groups that were measured between the same starts of a machine."""
    boots = dict.fromkeys(one.boot for one in known)
    return [[one for one in known if one.boot == boot] for boot in boots]


def days(known: Sequence[Measured]) -> str:
    """Which groups were measured when."""
    dates = dict.fromkeys(one.date for one in known)
    return "; ".join(
        f"{date}: {', '.join(one.group for one in known if one.date == date)}" for date in dates
    )


def caption(known: Sequence[Measured]) -> str:
    """When and where the groups were measured, and how often."""
    dates, rounds = _span({one.date for one in known}), _span({one.rounds for one in known})
    return f"{dates}, {known[0].machine['cores']} cores, medians of {rounds} rounds, least to most"


def _span(values: set[T]) -> str:
    """The least and the most, or the only one."""
    least, most = min(values), max(values)
    return f"{least}" if least == most else f"{least} to {most}"
