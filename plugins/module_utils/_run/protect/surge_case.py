# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""One workload on its way to a surge and back, and what all of them see in one look at the cluster."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    objects,
    outcomes,
    serving,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import surge_records

State = t.Literal["plan", "held", "raise", "wait", "ready", "undo", "undone"]
Planner = t.Callable[[snapshots.Snapshot], t.Mapping[str, surge_records.Surge]]


@dataclass
class Case:
    """One workload.

    ``again`` says that its present surge is only in the way of the wanted one, ``shrunk`` what the
    surge becomes where some of its nodes still need it, ``fewer`` that it lost a node of several, which is not
    written down yet.
    """

    workload: objects.Ref
    nodes: tuple[str, ...]
    state: State
    surge: surge_records.Surge | None = None
    again: bool = False
    shrunk: surge_records.Surge | None = None
    fewer: bool = False
    claimed: bool = False
    forgotten: str = ""
    foreign: str = ""
    foreign_since: float = 0.0
    serving_since: float | None = None
    blocked_since: float | None = None
    outcome: outcomes.WorkloadOutcome | None = None
    message: str = ""
    remedy: str = ""
    waiting: str = ""
    kept: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        """Whether it still needs steps."""
        return self.state not in ("ready", "undone")

    @property
    def failed(self) -> bool:
        """Whether it ended without the protection it was asked for."""
        return self.outcome is not None and self.outcome.failed


class Look:
    """What all cases ask of one view of the cluster, each found out once."""

    def __init__(self, snapshot: snapshots.Snapshot, planner: Planner) -> None:
        self.snapshot, self._planner = snapshot, planner

    @functools.cached_property
    def endpoints(self) -> serving.Endpoints:
        return serving.Endpoints(self.snapshot.slices)

    @functools.cached_property
    def recorded(self) -> t.Mapping[str, surge_records.Surge]:
        return {surge.uid: surge for surge in surge_records.surges_in(self.snapshot)}

    @functools.cached_property
    def unreadable(self) -> t.Mapping[str, surge_records.BadSurgeError]:
        return surge_records.unreadable(self.snapshot)

    @functools.cached_property
    def wanted(self) -> t.Mapping[str, surge_records.Surge]:
        return self._planner(self.snapshot)
