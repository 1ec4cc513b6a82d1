# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The parts of Koordinator in the cluster: whether PodMigrationJobs can be carried out, checked before any write."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import places
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import installations, migration_jobs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    migration_controller,
    objects,
    option,
    phases,
    pod_plan,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import job_route
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import installed


@dataclass(frozen=True, slots=True)
class Koordinator:
    """What was found.

    ``missing`` has a finding for each missing part: ``no_crd``, ``no_controller``, ``no_scheduler``, or
    ``several_koordinators``. ``controller`` is ``None`` if its configuration cannot be read. ``doubt`` says why, or why
    it is incomplete. ``unsure`` has findings about limits that may not be those with which koord-descheduler runs.
    """

    jobs: tuple[migration_jobs.Job, ...] = ()
    controller: migration_controller.Controller | None = None
    source: str = ""
    doubt: str = ""
    missing: tuple[reasons.Finding, ...] = ()
    unsure: tuple[reasons.Finding, ...] = ()


def prepared(ctx: context.Context, choices: pod_plan.Choices) -> tuple[pod_plan.Choices, tuple[reasons.Finding, ...]]:
    """The choices of a drain with the live MigrationController if jobs can be created, and findings.

    With backend ``koordinator`` every missing part is a blocker; ``auto`` then evicts, and reports it only if a part
    of Koordinator is installed.

    Raises:
        ClusterError: the API server cannot be reached, or with backend ``koordinator`` jobs may not be listed.
    """
    if choices.backend == "eviction" or choices.disable_eviction:
        return choices, ()
    try:
        found = look(ctx, _given(choices), reserves=True)
    except errors.Forbidden as error:
        if choices.backend == "koordinator":
            raise
        return choices, (_unused([str(error)]),) if _installed(ctx) else ()
    lacking = _lacking(found)
    if not lacking:
        return replace(choices, controller=found.controller), found.unsure
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


def _given(choices: pod_plan.Choices) -> places.Place:
    """What the caller names of koord-descheduler's objects."""
    return places.Place(*(getattr(choices, name) for name in installations.OPTIONS))


def look(ctx: context.Context, given: places.Place, *, reserves: bool) -> Koordinator:
    """Look for the parts; ``reserves``: whether capacity will be reserved, which needs Koordinator's scheduler.

    A part is missing only if that is certain: its kind is unknown, or nothing runs it, or it has no ready pod. A
    scheduler that no Deployment runs is assumed to run.

    Raises:
        ClusterError: the API server cannot be reached, or PodMigrationJobs may not be listed.
    """
    try:
        listed = ctx.cluster.items(kinds.PODMIGRATIONJOBS, patience=act.PATIENCE).items
        # EvictDirectly needs this kind, too: without it the controller's caches never fill.
        ctx.cluster.send(verbs.list_page(kinds.RESERVATIONS, limit=1), patience=act.PATIENCE)
    except errors.NotFound as error:
        return Koordinator(missing=(_no_crd((error.request or kinds.PODMIGRATIONJOBS).resource),))
    jobs = tuple(migration_jobs.Job.of(raw) for raw in listed)
    deployments = installed.deployments(ctx, given)
    one, wrong = installed.at_work(ctx, deployments, given)
    missing = [wrong] if wrong else []
    if one is None:
        return Koordinator(jobs, missing=tuple(missing))
    home = one.place.namespace
    if reserves and (scheduler := _silent_scheduler(ctx, deployments, home)):
        missing.append(
            reasons.Finding(
                "no_scheduler",
                f"No pod of Deployment {scheduler} is ready: no capacity can be reserved.",
                "Check its pods and their log, or set mode: EvictDirectly, which reserves nothing.",
                "blocker",
                f"Deployment {scheduler}",
            )
        )
    found = installed.limits_of(ctx, one)
    unsure = (found.finding,) if found.finding and found.controller else ()
    if found.finding and not unsure:
        missing.append(found.finding)
    return Koordinator(jobs, found.controller, one.place.map_name, found.doubt, tuple(missing), unsure)


def _silent_scheduler(ctx: context.Context, deployments: list[objects.Raw] | None, home: str) -> str:
    """The Deployment of koord-scheduler if it has no ready pod; empty if it has, or if there is none."""
    if deployments is None:
        with suppress(errors.NotFound, errors.Forbidden):
            request = verbs.get(kinds.DEPLOYMENTS, installations.SCHEDULER, home)
            deployments = [ctx.cluster.send(request, patience=act.PATIENCE)]
    return installations.silent_scheduler(deployments or (), home)


def _installed(ctx: context.Context) -> bool:
    """Whether the kind exists: the API server checks the right to list it before it checks that."""
    try:
        ctx.cluster.send(verbs.api_resources(kinds.PODMIGRATIONJOBS.api_version), patience=act.PATIENCE)
    except (errors.NotFound, errors.Forbidden):
        return False
    return True


def _lacking(found: Koordinator) -> tuple[reasons.Finding, ...]:
    """What a drain by jobs lacks."""
    controller, lacking = found.controller, list(found.missing)
    if controller is None:
        if not any(finding.code in ("no_crd", "no_controller", "several_koordinators") for finding in lacking):
            message = f"The limits of koord-descheduler cannot be read: {found.doubt}"
            remedy = "Correct the ConfigMap, or allow these credentials to get it; limits are never guessed."
            lacking.append(reasons.Finding("no_limits", message, remedy, "blocker", found.source))
        return tuple(lacking)
    if controller.default_job_mode != job_route.RESERVES:
        lacking = [finding for finding in lacking if finding.code != "no_scheduler"]
    if message := migration_controller.several(controller):
        remedy = "Keep it in one profile."
        lacking.append(reasons.Finding("several_controllers", message, remedy, "blocker", found.source))
    return tuple(lacking)


def _unused(messages: list[str]) -> reasons.Finding:
    return reasons.Finding(
        "koordinator_unused",
        f"Pods are evicted without PodMigrationJobs: {' '.join(messages)}",
        f"Nothing to do if that is intended. {option.options(backend='koordinator')} requires jobs.",
        "info",
        "backend auto",
    )


def _no_crd(resource: str) -> reasons.Finding:
    return reasons.Finding(
        "no_crd",
        f"The cluster has no {resource}: Koordinator's CustomResourceDefinitions are not installed.",
        "Install Koordinator 1.7 or later (its chart contains them), or let node_drain evict the pods: "
        f"{option.options(backend='eviction')}.",
        "blocker",
        f"CustomResourceDefinition {resource}",
    )
