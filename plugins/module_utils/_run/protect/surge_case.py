# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The surges of one call: the state of each, and what all of them read from one snapshot of the cluster."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    objects,
    outcomes,
    phases,
    serving,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import surge_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context

State = t.Literal["plan", "held", "raise", "wait", "ready", "undo", "undone"]
RESTORED = "restored to its state before the surge"
Planner = t.Callable[[snapshots.Snapshot], t.Mapping[str, surge_records.Surge]]


@dataclass(kw_only=True)
class Tracked:
    """What both halves of a swap know of one surge.

    ``claimed``: its lease carries our name. ``fewer``: it lost one of its nodes, which is not recorded yet.
    ``serving_since`` is of the context's monotonic clock.
    """

    surge: surge_records.Surge | None = None
    claimed: bool = False
    fewer: bool = False
    serving_since: float | None = None
    waiting: str = ""
    kept: tuple[str, ...] = ()

    @property
    def held(self) -> surge_records.Surge:
        """The surge, once there is one."""
        return t.cast("surge_records.Surge", self.surge)

    def served(self, now: float) -> float:
        """Seconds for which the new pods have served without a break, up to ``now``."""
        self.serving_since = now if self.serving_since is None else self.serving_since
        return now - self.serving_since


@dataclass
class Case(Tracked):
    """One workload of a call of ``pdb_guard``.

    ``again``: its present surge only blocks the wanted one, which is planned once this one is undone. ``shrunk``:
    what the surge becomes where some of its nodes still need it. ``forgotten`` is the UID of the lease that was
    deleted last, ``foreign`` the resourceVersion of another run's lease and ``foreign_since`` when it was seen first.
    """

    workload: objects.Ref
    nodes: tuple[str, ...]
    state: State
    again: bool = False
    shrunk: surge_records.Surge | None = None
    forgotten: str = ""
    foreign: str = ""
    foreign_since: float = 0.0
    blocked_since: float | None = None
    outcome: outcomes.WorkloadOutcome | None = None
    message: str = ""
    remedy: str = ""

    @property
    def open(self) -> bool:
        """Whether it still needs steps."""
        return self.state not in ("ready", "undone")

    @property
    def failed(self) -> bool:
        """Whether it ended without the protection that was wanted."""
        return self.outcome is not None and self.outcome.failed

    def give_up(self, ctx: context.Context, outcome: outcomes.WorkloadOutcome, message: str, remedy: str = "") -> None:
        """Decide that it will not be ready; what was changed for it is undone."""
        self._decide(ctx, phases.What.FAILED if outcome.failed else phases.What.NOTE, outcome, message, remedy)
        self.again, self.state = False, "undo" if self.surge and self.claimed else "undone"

    def end(self, ctx: context.Context, outcome: outcomes.WorkloadOutcome, message: str, remedy: str = "") -> None:
        """Decide that nothing more is written for it."""
        self._decide(ctx, phases.What.FAILED, outcome, message, remedy)
        self.state = "undone"

    def _decide(
        self, ctx: context.Context, what: phases.What, outcome: outcomes.WorkloadOutcome, message: str, remedy: str
    ) -> None:
        self.outcome, self.message, self.remedy = outcome, message, remedy
        tell(ctx, what, message, self.workload, self.nodes)


def tell(
    ctx: context.Context, what: outcomes.Outcome, message: str, workload: objects.Ref, nodes: t.Collection[str]
) -> None:
    """Tell something about a workload, with the first of the nodes that it concerns."""
    ctx.tell(what, message, node=min(nodes, default=""), namespace=workload.namespace, name=workload.name)


class Look:
    """What the cases read from one snapshot, each worked out once."""

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
