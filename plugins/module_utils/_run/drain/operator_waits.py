# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""How long the pods of a drain have waited for their operators, and when that is too long.

Nothing of it is stored: a drain that is run again waits anew, and the operator goes on meanwhile.
"""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    budgets,
    objects,
    outcomes,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import pod_moves


@dataclass
class OperatorWaits:
    """``seconds`` is how long one pod waits at most; ``wanted`` are the caller's selectors of pods with operators."""

    seconds: float
    wanted: t.Sequence[objects.Raw] = ()
    _held: dict[str, tuple[float, budgets.Verdict]] = field(default_factory=dict)
    _acted: dict[tuple[str, str], float] = field(default_factory=dict)

    def diagnose(self, snapshot: snapshots.Snapshot, pod: objects.Pod) -> budgets.Verdict:
        return budgets.diagnose(snapshot, pod, self.wanted)

    def hold(self, move: pod_moves.Move, verdict: budgets.Verdict, now: float) -> None:
        """The operator keeps the pod, since now or since the last call for it; the move says for how long still."""
        since, _old = self._held.get(move.pod.uid, (now, verdict))
        self._held[move.pod.uid] = since, verdict
        held = verdict.budget or move.pod.ref
        left = f"Waited for {_minutes(self._until(move) - now)} more at most."
        move.block(held.kind, held.namespace, held.name, f"{verdict.message} {left}", verdict.remedy)

    def hold_too(self, move: pod_moves.Move, snapshot: snapshots.Snapshot, now: float) -> None:
        """The same for a pod under a budget of which another pod is asked for first."""
        verdict = self.holds(move) or self.diagnose(snapshot, snapshot.pod(move.pod.uid) or move.pod)
        if verdict.code == "operator_budget":
            self.hold(move, verdict, now)

    def holds(self, move: pod_moves.Move) -> budgets.Verdict | None:
        """Why the operator keeps the pod, ``None`` if it does not."""
        return self._held[move.pod.uid][1] if move.pod.uid in self._held else None

    def let_go(self, move: pod_moves.Move, now: float, *, evicted: bool) -> None:
        """The operator keeps the pod no longer; ``evicted``: it works, so the time of its other pods begins anew."""
        self._held.pop(move.pod.uid, None)
        if evicted and move.budget:
            self._acted[move.budget] = now

    def end_if_late(self, move: pod_moves.Move, now: float) -> bool:
        """End the move if its operator has not acted in time."""
        verdict = self.holds(move)
        if verdict is None or now < self._until(move):
            return False
        told = f"Waited {_minutes(self.seconds)} in vain: {verdict.sentence}"
        move.end("failed", outcomes.PodOutcome.OPERATOR_BUDGET, now, told)
        return True

    def _until(self, move: pod_moves.Move) -> float:
        since = self._held[move.pod.uid][0]
        return max(since, self._acted.get(move.budget, since) if move.budget else since) + self.seconds


def _minutes(seconds: float) -> str:
    """Whole minutes, rounded up so that a progress line changes once a minute."""
    return f"{math.ceil(seconds / 60)} min" if seconds > 60 else f"{max(math.ceil(seconds / 10), 1) * 10} s"
