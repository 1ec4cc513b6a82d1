# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What the caller of a drain allows, and the resulting route of a pod."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    migration_controller,
    pod_rules,
)

Route = t.Literal["skip", "surge", "replace", "evict", "job", "wait", "refuse"]
MOVING: frozenset[Route] = frozenset({"evict", "surge", "replace", "job"})
"""The routes by which the collection ends a pod, which gets a successor on another node."""
KOORDINATOR = (
    "koordinator_namespace",
    "koordinator_deployment",
    "koordinator_config_map",
    "koordinator_key",
)
"""Options that name what is not searched, in the order of ``installation.Location``."""


@dataclass(frozen=True, slots=True)
class DrainPolicy:
    """What the caller allows; named as the options of ``node_drain``.

    ``pod_selector`` is a label selector as text, ``namespaces`` empty for all. ``self_pod`` is the
    pod that this play runs in, by its environment (an empty namespace or uid is unknown).
    ``fenced`` are the nodes that the caller vouches are off. The ``koordinator_`` ones name
    koord-descheduler's objects, empty where these are found. ``controller`` is Koordinator's live
    MigrationController, ``None`` if PodMigrationJobs are not possible or not wanted; ``fallback``
    is for the pods that ``backend`` ``koordinator`` cannot move by one, ``job_wait`` the seconds
    for which a pod that could be evicted waits for its job. ``operator_budget_wait`` are those for
    which one waits for its operator. ``node_autoscaler``: nodes are added for pods that fit
    nowhere. ``method`` is one of ``pod_rules.METHODS``; ``load_balancer_wait`` are the seconds for
    which a pod that is replaced first is out of its Services before it ends.
    """

    backend: str = "auto"
    fallback: str = "eviction"
    job_wait: float = 60.0
    force: bool = False
    delete_emptydir_data: bool = False
    ignore_daemonsets: bool = True
    disable_eviction: bool = False
    allow_interruption: bool = False
    method: str = "surge"
    load_balancer_wait: float = 0.0
    node_autoscaler: bool = False
    pod_selector: str = ""
    namespaces: tuple[str, ...] = ()
    reactive_budgets: tuple[str, ...] = ()
    rules: tuple[pod_rules.Rule, ...] = ()
    operator_budget_wait: float = 600.0
    self_pod: objects.Ref | None = None
    fenced: tuple[str, ...] = ()
    koordinator_namespace: str = ""
    koordinator_deployment: str = ""
    koordinator_config_map: str = ""
    koordinator_key: str = ""
    controller: migration_controller.Controller | None = None


BUDGET_FORBIDS = frozenset({"budget_allows_nothing", "two_budgets", "unhealthy_blocked"})
"""Codes of pods whose budget does not allow their eviction however long one waits."""


@dataclass(frozen=True, slots=True)
class PodPlan:
    """A pod's route with the reason for it.

    ``workload`` is the top controller, or the pod's own if that is unknown. ``budgets`` are those
    that the API server checks for an eviction; ``guarded``: there is none, and a guard of ours has
    to exist first. ``tolerant``: neither cordon nor taint keeps the pod from coming back.
    ``policy`` is what rules say of how it leaves. ``interruption``: whether the only pod of a
    workload, which is surged, may be evicted where no second one comes to serve.
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
    policy: pod_rules.PodPolicy = pod_rules.NONE
    interruption: t.Literal["", "possible", "allowed"] = ""

    @property
    def why(self) -> reasons.Reason:
        """Why it has this route, and how to change it."""
        return reasons.Reason(self.code, self.reason, self.remedy)


def by_wave(
    plans: t.Iterable[PodPlan], waves: t.Iterable[t.Collection[str]]
) -> t.Iterator[tuple[t.Collection[str], list[PodPlan]]]:
    """Each wave with the plans of its pods, in their order; a node is in one wave at most."""
    waves = list(waves)
    number = {name: index for index, wave in enumerate(waves) for name in wave}
    found: list[list[PodPlan]] = [[] for _wave in waves]
    for plan in plans:
        if plan.pod.node in number:
            found[number[plan.pod.node]].append(plan)
    return zip(waves, found, strict=True)
