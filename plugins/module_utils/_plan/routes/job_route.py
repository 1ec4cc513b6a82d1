# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which evictions are left to a PodMigrationJob, decided from the live MigrationController.

A job evicts as well, once resources for the successor are reserved: so it replaces the route ``evict`` only, never
that of pods that are swapped, refused or skipped. A single replica that can be swapped is swapped with every backend,
because a job deletes the old pod before the new one serves.

``koordinator`` uses a job wherever arbitration would admit it, and ``fallback`` for the rest. ``auto`` uses one only if
it reserves resources (mode ReservationFirst) and the object limiter delays the pod for at most ``job_wait`` seconds.
We evict all others.
"""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import causes, object_limiter
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    decoding,
    migration_controller,
    option,
    pod_plan,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import cases

JOBBED = frozenset({"replicas", "guarded", "interruption_allowed"})
"""Codes of evictions that a job could do. The others are of pods that do not serve, or are not replaced."""

RESERVES = "ReservationFirst"
POLICY = "koordinator.sh/evict-policy"
"""A pod's label that overrides the policy of the job and of the controller."""


def by_job(case: cases.Case, plan: pod_plan.PodPlan) -> pod_plan.PodPlan:
    """The plan, turned into a job if one is admitted, or refused if it has to be a job."""
    controller, choices = case.choices.controller, case.choices
    if controller is None or choices.disable_eviction:
        return plan
    if plan.route != "evict" or plan.code not in JOBBED or plan.tolerant:
        return plan
    why = _not_admitted(case, controller) or (_not_worth(case, controller) if choices.backend == "auto" else None)
    if why is None:
        reserves = controller.default_job_mode == RESERVES
        when = "once its resources are reserved" if reserves else "as soon as arbitration admits it"
        return replace(plan, route="job", reason=f"{plan.reason} A PodMigrationJob moves it {when}.")
    if choices.backend == "koordinator" and choices.fallback == "fail":
        reason = f"{why.message} So no PodMigrationJob can move it, and fallback is fail."
        remedy = f"{why.remedy} Or allow an eviction: {option.options(fallback='eviction')}.".strip()
        return replace(plan, route="refuse", code="no_job", reason=reason, remedy=remedy)
    return replace(plan, reason=f"{plan.reason} It is evicted without a PodMigrationJob: {why.message}")


def without_job(plan: pod_plan.PodPlan, why: str) -> pod_plan.PodPlan:
    """The plan of a pod that is evicted because no job has moved it."""
    return replace(plan, route="evict", reason=f"{plan.reason} That did not happen: {why} So it is evicted.")


def _not_admitted(case: cases.Case, controller: migration_controller.Controller) -> reasons.Reason | None:
    policy = case.pod.labels.get(POLICY, "Eviction")
    if policy != "Eviction":
        return reasons.Reason(
            "eviction_policy",
            f"Its label {POLICY} is {policy}: a job would not ask its budgets, or never evict it.",
            "Remove the label.",
        )
    reserves = controller.default_job_mode == RESERVES
    return causes.forbidden(case.context.snapshot, case.pod, controller) or (
        causes.unserved(case.pod, controller) if reserves else None
    )


def _not_worth(case: cases.Case, controller: migration_controller.Controller) -> reasons.Reason | None:
    if controller.default_job_mode != RESERVES:
        return reasons.Reason(
            "mode", f"The MigrationController's mode is {controller.default_job_mode}: it reserves nothing."
        )
    seconds = _limiter_wait(case, controller)
    if seconds <= case.choices.job_wait:
        return None
    return reasons.Reason("object_limiter", f"The object limiter would delay it for {seconds:.0f} s.")


def _limiter_wait(case: cases.Case, controller: migration_controller.Controller) -> float:
    """Seconds until the limiters admit this pod after its siblings on the leaving nodes, and after others before."""
    replicas = case.workload.replicas if case.workload else 0
    moment = decoding.moment(case.context.now)
    waits = [0.0]
    for scope, key in object_limiter.keys_of(case.pod):
        gap, burst = migration_controller.interval(controller, scope, replicas)
        if gap:
            taken = case.context.evictions.get((scope, key), ()) if moment else ()
            count = case.context.place_in_line(scope, key, case.pod) + 1
            start = moment.timestamp() if moment else 0.0
            waits.append(object_limiter.departures(taken, gap, burst, count, start)[-1] - start)
    return max(waits)
