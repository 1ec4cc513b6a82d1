# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""For how long pods wait for their PodMigrationJobs although they could be evicted."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    budgets,
    pod_plan,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import pod_moves

APART = 2.0
"""Seconds between two looks at a pod that still count as one wait."""
ENDLESS = frozenset({"max_unavailable_per_workload"})
"""Codes of what holds a job for as long as a pod elsewhere is not Ready. Other limits make room when jobs end, which
their ttl guarantees, or when a window ends: whoever asks for backend ``koordinator`` asks for them.
"""


@dataclass
class Waits:
    """The waits of a drain; ``prior`` is what workloads with a surge want without it, by their UID."""

    choices: pod_plan.Choices
    prior: t.Mapping[str, int]
    _waited: dict[str, tuple[float, float]] = field(default_factory=dict)

    def limited(self, code: str) -> bool:
        """Whether the wait for what the code says is limited by ``job_wait``, and not by a limit's own pace."""
        return self.choices.backend == "auto" or code in ENDLESS

    def ending(self, message: str, *, limited: bool) -> str:
        """What a pod waits for, with the end of its wait if it is ``limited``."""
        return f"{message} It waits for a job for {self.choices.job_wait:g} s at most." if limited else message

    def over(self, move: pod_moves.Move, snapshot: snapshots.Snapshot, leaving: t.Collection[str], now: float) -> bool:
        """Whether the pod may go now and has waited in vain for long enough; to be asked in each turn of its wait.

        Time in which its budget or its siblings would hold an eviction as well does not count. ``leaving`` are the
        UIDs of pods whose eviction was sent.
        """
        waited, last = self._waited.get(move.pod.uid, (0.0, now))
        free = _could_be_evicted(move, snapshot, leaving, self.prior)
        if free:
            waited += min(now - last, APART)
        self._waited[move.pod.uid] = waited, now
        return free and waited >= self.choices.job_wait


def _could_be_evicted(
    move: pod_moves.Move, snapshot: snapshots.Snapshot, leaving: t.Collection[str], prior: t.Mapping[str, int]
) -> bool:
    pod = snapshot.pod(move.pod.uid)
    if pod is None or not budgets.diagnose(snapshot, pod).allowed:
        return False
    return pod_moves.too_few(move, snapshot, leaving, prior) is None
