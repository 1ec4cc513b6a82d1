# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whether pods can leave by PodMigrationJobs in this cluster, asked before the first write."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    migration_controller,
    option,
    phases,
    pod_plan,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import job_route
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import koordinator


def prepared(ctx: context.Context, choices: pod_plan.Choices) -> tuple[pod_plan.Choices, tuple[reasons.Finding, ...]]:
    """The choices with the live MigrationController where jobs can be made, and what there is to say.

    With backend ``koordinator`` everything that is missing is a blocker; ``auto`` evicts then, and says so only
    where there is a part of Koordinator.

    Raises:
        ClusterError: the API server cannot be reached, or with backend ``koordinator`` jobs may not be listed.
    """
    if choices.backend == "eviction" or choices.disable_eviction:
        return choices, ()
    try:
        found = koordinator.look(ctx)
    except errors.Forbidden as error:
        if choices.backend == "koordinator":
            raise
        return choices, (_unused([str(error)]),) if _installed(ctx) else ()
    lacking = _lacking(found)
    if not lacking:
        return replace(choices, controller=found.controller), ()
    if choices.backend == "koordinator":
        return choices, lacking
    if any(finding.code == "no_crd" for finding in lacking):
        return choices, ()
    return choices, (_unused([finding.message for finding in lacking]),)


def required(ctx: context.Context, choices: pod_plan.Choices) -> pod_plan.Choices:
    """The same for a call that is about to write.

    Raises:
        StopRun: backend is ``koordinator``, and something is missing.
    """
    choices, findings = prepared(ctx, choices)
    missing = [finding for finding in findings if finding.severity == "blocker"]
    if missing:
        first = missing[0]
        raise context.StopRun(first.code, " ".join(f.message for f in missing), first.remedy, first.object)
    for finding in findings:
        ctx.note(phases.What.NOTE, finding.message)
    return choices


def _installed(ctx: context.Context) -> bool:
    """Whether there is such a kind; who may not list a kind is told so before anybody looks whether it exists."""
    try:
        ctx.cluster.send(verbs.api_resources(kinds.PODMIGRATIONJOBS.api_version), patience=act.PATIENCE)
    except (errors.NotFound, errors.Forbidden):
        return False
    return True


def _lacking(found: koordinator.Koordinator) -> tuple[reasons.Finding, ...]:
    controller = found.controller
    lacking = list(found.missing)
    if controller is None and not any(finding.code in ("no_crd", "no_controller") for finding in lacking):
        lacking.append(
            reasons.Finding(
                "no_limits",
                f"The limits of koord-descheduler cannot be read: {found.doubt}",
                "Mend the ConfigMap, or let these credentials get it; limits are never guessed.",
                "blocker",
                found.source,
            )
        )
    if controller and controller.default_job_mode != job_route.RESERVES:
        lacking = [finding for finding in lacking if finding.code != "no_scheduler"]
    if controller and (said := migration_controller.several(controller)):
        lacking.append(
            reasons.Finding(
                "several_controllers",
                said,
                "Leave it in one profile.",
                "blocker",
                found.source,
            )
        )
    return tuple(lacking)


def _unused(messages: list[str]) -> reasons.Finding:
    return reasons.Finding(
        "koordinator_unused",
        f"Pods are evicted without PodMigrationJobs: {' '.join(messages)}",
        f"Nothing to do, if that is meant. {option.options(backend='koordinator')} insists on jobs.",
        "info",
        "backend auto",
    )
