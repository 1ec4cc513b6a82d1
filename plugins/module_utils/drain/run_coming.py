# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Surges that do not serve yet when the drain of a wave begins: the other pods leave meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    run_object_events,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    run_dispositions,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import (
    run_guard_call,
    run_lower,
    run_raise,
)


def coming(turns: run_guard_call.SurgeTurns | None) -> dict[str, str]:
    """The nodes that surges are for which do not serve yet, by the UIDs of their workloads."""
    cases = turns.surging.cases if turns else []
    return {case.workload.uid: case.node for case in cases if case.open}


@dataclass
class ComingSurges:
    """Takes the turns of these surges, and hands each over to ``surges`` when it serves.

    One that fails fails its pods, and so their node; it is undone by its own rules meanwhile.
    Where its pod may be interrupted instead, or needs no surge any more, it has another route from
    then on.
    """

    turns: run_guard_call.SurgeTurns | None
    routing: run_dispositions.Routing
    surges: run_lower.Surges
    events: run_object_events.Events

    def __post_init__(self) -> None:
        cases = self.turns.surging.cases if self.turns else []
        self._cases = [case for case in cases if case.workload.uid in self.surges.coming]

    @property
    def seconds_left(self) -> float:
        """Seconds until the first of them has served for long enough, if nothing changes."""
        if self.turns is None or not self._cases:
            return float("inf")
        return self.turns.surging.seconds_left

    @property
    def waiting(self) -> dict[str, str]:
        """What they wait for, by the UIDs of their workloads."""
        return {case.workload.uid: case.waiting or "it begins" for case in self._cases}

    def step(self, snapshot: snapshots.Snapshot) -> None:
        """Called in each turn of the drain, before anything that moves pods."""
        if self.turns is None or not self._cases:
            return
        self.turns.turn(snapshot, self.events)
        for case in list(self._cases):
            self._look(case)

    def leave(self) -> None:
        """The drain has ended: what still comes stays as it is recorded."""
        for case in self._cases:
            if case.open and case.state != "undo":
                case.leave()

    def _look(self, case: run_raise.WorkloadSurge) -> None:
        uid = case.workload.uid
        node_drain = self.routing.node_drains.get(case.node)
        going = node_drain is not None and node_drain.open
        if case.failed:
            self.surges.failures[uid] = case.message
        elif case.open and case.state != "undo" and not going:
            case.leave()
        if case.open:
            return
        if case.state == "ready" and going:
            self._cases.remove(case)
            self.surges.add(case.current)
        elif not going or case.failed or self.routing.without_surge(uid, case.node):
            self._cases.remove(case)
            del self.surges.coming[uid]
