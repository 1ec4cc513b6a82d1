# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The parts of Koordinator in the cluster: whether PodMigrationJobs can be carried out, checked before any write."""

from __future__ import annotations

import typing as t
from contextlib import suppress
from dataclasses import dataclass, replace

with suppress(ImportError):  # the `kubernetes` package brings it; the connection reports both
    import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import places
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import limits, migration_jobs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    migration_controller,
    option,
    phases,
    pod_plan,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import job_route
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context

PLACES = (places.PLACES["koordinator"], places.PLACES["ack"])
SCHEDULER = "koord-scheduler"


@dataclass(frozen=True, slots=True)
class Koordinator:
    """What was found.

    ``missing`` has a finding for each missing part: ``no_crd``, ``no_controller``, ``no_scheduler``.
    ``controller`` is ``None`` if its configuration cannot be read. ``doubt`` says why, or why it is incomplete.
    """

    jobs: tuple[migration_jobs.Job, ...] = ()
    controller: migration_controller.Controller | None = None
    source: str = ""
    doubt: str = ""
    missing: tuple[reasons.Finding, ...] = ()


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
        found = look(ctx)
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


def look(ctx: context.Context, namespace: str = "", *, reserves: bool = True) -> Koordinator:
    """Look for the parts; ``reserves``: whether capacity will be reserved, which needs Koordinator's scheduler.

    A part is missing only if that is certain: its kind is unknown, or its Deployment does not exist or has no ready
    pod. A scheduler that is not deployed as the chart's Deployment is assumed to run.

    Raises:
        ClusterError: the API server cannot be reached, or PodMigrationJobs may not be listed.
    """
    missing: list[reasons.Finding] = []
    try:
        listed = ctx.cluster.items(kinds.PODMIGRATIONJOBS, patience=act.PATIENCE).items
        # EvictDirectly needs this kind, too: without it the controller's caches never fill.
        ctx.cluster.send(verbs.list_page(kinds.RESERVATIONS, limit=1), patience=act.PATIENCE)
    except errors.NotFound as error:
        return Koordinator(missing=(_no_crd((error.request or kinds.PODMIGRATIONJOBS).resource),))
    jobs = tuple(migration_jobs.Job.of(raw) for raw in listed)
    asked = [place for place in PLACES if namespace in ("", place.namespace)]
    asked = asked or [replace(place, namespace=namespace) for place in PLACES]
    ready = ((place, _ready(ctx, place.namespace, place.deployment)) for place in asked)
    place, runs = next((found for found in ready if found[1] is not None), (None, None))
    if not runs:
        missing.append(_no_controller(asked, place))
    home = (place or asked[0]).namespace
    if reserves and place and _ready(ctx, home, SCHEDULER) is False:
        missing.append(
            reasons.Finding(
                "no_scheduler",
                f"No pod of Deployment {home}/{SCHEDULER} is ready: no capacity can be reserved.",
                "Check its pods and their log, or set mode: EvictDirectly, which reserves nothing.",
                "blocker",
                f"Deployment {home}/{SCHEDULER}",
            )
        )
    where = f"ConfigMap {home}/{PLACES[0].config_map}"
    controller, doubt = _controller(ctx, home, where)
    return Koordinator(jobs, controller, where, doubt, tuple(missing))


def _ready(ctx: context.Context, namespace: str, name: str) -> bool | None:
    """Whether the Deployment has a ready pod, ``None`` if it does not exist. One that may not be read has."""
    try:
        found = ctx.cluster.send(verbs.get(kinds.DEPLOYMENTS, name, namespace), patience=act.PATIENCE)
    except errors.NotFound:
        return None
    except errors.Forbidden:
        return True
    return bool((found.get("status") or {}).get("readyReplicas"))


def _controller(ctx: context.Context, namespace: str, where: str) -> tuple[migration_controller.Controller | None, str]:
    # The ConfigMap and its key have the same names in the chart and in ACK.
    name, key = PLACES[0].config_map, PLACES[0].key
    try:
        raw = ctx.cluster.send(verbs.get(kinds.CONFIGMAPS, name, namespace), patience=act.PATIENCE)
    except errors.NotFound:
        return None, f"There is no {where}."
    except errors.Forbidden as error:
        return None, f"{where} may not be read: {error}"
    data = raw.get("data") or {}
    if key not in data:
        return None, f"{where} has no key {key}."
    try:
        controller = limits.controller(yaml.safe_load(data[key]))
    except yaml.YAMLError as error:
        return None, f"{where} is not valid YAML: {str(error).splitlines()[0]}."
    except limits.UnreadableError as error:
        return None, f"{where} cannot be used: {error}."
    said = migration_controller.several(controller)
    return controller, f"{said} The limits of the first are used." if said else ""


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
        if not any(finding.code in ("no_crd", "no_controller") for finding in lacking):
            said = f"The limits of koord-descheduler cannot be read: {found.doubt}"
            remedy = "Correct the ConfigMap, or allow these credentials to get it; limits are never guessed."
            lacking.append(reasons.Finding("no_limits", said, remedy, "blocker", found.source))
        return tuple(lacking)
    if controller.default_job_mode != job_route.RESERVES:
        lacking = [finding for finding in lacking if finding.code != "no_scheduler"]
    if said := migration_controller.several(controller):
        remedy = "Keep it in one profile."
        lacking.append(reasons.Finding("several_controllers", said, remedy, "blocker", found.source))
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


def _no_controller(asked: t.Sequence[places.Place], place: places.Place | None) -> reasons.Finding:
    names = [f"{one.namespace}/{one.deployment}" for one in ([place] if place else asked)]
    if place is None:
        said = f"There is no Deployment {' or '.join(names)}: nothing works on PodMigrationJobs."
        remedy = "Install koord-descheduler, or set koordinator_namespace to the namespace it is in."
    else:
        said = f"No pod of Deployment {names[0]} is ready: nothing works on PodMigrationJobs."
        remedy = f"Check its pods and their log: kubectl -n {place.namespace} get pods."
    return reasons.Finding("no_controller", said, remedy, "blocker", f"Deployment {names[0]}")
