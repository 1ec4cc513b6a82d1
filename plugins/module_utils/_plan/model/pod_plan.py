# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What the caller of a drain allows, and the route that one pod takes because of it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    migration_controller,
    objects,
    reasons,
)

Route = t.Literal["skip", "swap", "evict", "job", "wait", "refuse"]


@dataclass(frozen=True, slots=True)
class Choices:
    """What the caller allows; named as the options of ``node_drain``.

    ``pod_selector`` is a label selector as text, ``namespaces`` empty for all. ``self_pod`` is the pod
    that this very play runs in, as far as its environment tells (an empty namespace or uid is unknown).
    ``fenced``: the nodes whose machines are off, as the caller vouches.
    ``controller`` is Koordinator's live MigrationController, ``None`` where no PodMigrationJob can be made or
    none is wanted; ``fallback`` says what becomes of pods that ``backend`` ``koordinator`` cannot move by one.
    """

    backend: str = "auto"
    fallback: str = "eviction"
    force: bool = False
    delete_emptydir_data: bool = False
    ignore_daemonsets: bool = True
    disable_eviction: bool = False
    allow_interruption: bool = False
    swap_blocked: bool = False
    pod_selector: str = ""
    namespaces: tuple[str, ...] = ()
    reactive_budgets: tuple[str, ...] = ()
    self_pod: objects.Ref | None = None
    fenced: tuple[str, ...] = ()
    controller: migration_controller.Controller | None = None


@dataclass(frozen=True, slots=True)
class PodPlan:
    """A pod's route with the reason for it.

    ``workload`` is the top controller, or the pod's own controller where nothing is known of it.
    ``budgets`` are those the API server will ask for an eviction; ``guarded`` says that there is none and
    that a guard of ours has to be there first. ``tolerant``: neither cordon nor taint keeps the pod from
    coming back. ``fits`` and ``target`` belong to the placement forecast and stay ``None`` without one.
    """

    pod: objects.Pod
    route: Route
    code: str
    reason: str
    workload: objects.Ref | None
    budgets: tuple[objects.Ref, ...] = ()
    remedy: str = ""
    guarded: bool = False
    tolerant: bool = False
    fits: bool | None = None
    target: str | None = None

    @property
    def why(self) -> reasons.Reason:
        """Why its route is what it is, and what would make it another one."""
        return reasons.Reason(self.code, self.reason, self.remedy)
