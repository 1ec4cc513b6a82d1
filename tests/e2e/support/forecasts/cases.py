# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was foreseen of a pod beside what became of it, and how often the two agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Foreseen:
    """The nodes that the forecast leaves, with its text.

    `cost` is that of the pods that would be preempted, if any: the highest priority, the sum as the scheduler adds them
    up, and the number. `waits`: the pod is expected to be bound by nobody.
    """

    nodes: tuple[str, ...]
    text: str
    cost: tuple[int, ...] | None = None
    waits: bool = False


@dataclass(frozen=True)
class Case:
    """One pod: what was foreseen, and what the scheduler did; `cost` is that of the pods that it preempted."""

    cluster: str
    pod: str
    foreseen: Foreseen
    bound: str
    message: str
    reason: str
    cost: tuple[int, ...] | None = None

    @property
    def agrees(self) -> bool:
        if self.foreseen.waits:
            return not self.bound and self.reason in ("", "SchedulingGated")
        if self.cost != self.foreseen.cost:
            return False
        if self.bound:
            return self.bound in self.foreseen.nodes or self.cost is not None
        # What preemption and the claims of devices add follows.
        return not self.foreseen.nodes and f"{self.message} ".startswith(f"{self.foreseen.text} ")

    @property
    def falsely_promised(self) -> bool:
        return bool(self.foreseen.nodes or self.foreseen.cost) and not self.bound


@dataclass(frozen=True)
class Sequenced:
    """All pods of a cluster: whether the forecast, made at the start, places all, and whether all became ready."""

    cluster: str
    promised: bool
    kept: bool


def told(case: Case) -> str:
    """A disagreement, as the test prints it."""
    did = f"bound to {case.bound}" if case.bound else case.message
    expected = (
        f"preempts {case.foreseen.cost}" if case.foreseen.cost else list(case.foreseen.nodes) or case.foreseen.text
    )
    did += f", preempted {case.cost}" if case.cost else ""
    return f"{case.cluster} {case.pod}\n  forecast: {expected}\n  scheduler: {did}"


def report(cases: Sequence[Case], sequences: Sequence[Sequenced]) -> str:
    """The numbers of a comparison."""
    wrong = [case for case in cases if not case.agrees]
    pending = sum(1 for case in cases if not case.bound)
    preempted = sum(1 for case in cases if case.cost)
    waiting = sum(case.foreseen.waits for case in cases)
    promised = [one for one in sequences if one.promised]
    broken = [one.cluster for one in promised if not one.kept]
    return (
        f"{len(sequences)} clusters, {len(cases)} pods: {len(cases) - len(wrong)} agree, {pending} fit nowhere, "
        f"{preempted} preempt, {waiting} only wait; "
        f"{sum(case.falsely_promised for case in cases)} promised in vain; {len(promised)} clusters promised whole, "
        f"{len(broken)} of them not kept {broken}"
    )
