# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What of Koordinator is in the cluster: its jobs, and the configuration of the controller that works on them."""

from __future__ import annotations

import typing as t
from contextlib import suppress
from dataclasses import dataclass

with suppress(ImportError):  # the `kubernetes` package brings it; the connection reports both
    import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import limits, migration_jobs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    migration_controller,
    objects,
    option,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context

CONFIG = "koord-descheduler-config"
"""The ConfigMap and its key, in the chart as in ACK."""

SCHEDULER = "koord-scheduler"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an installation has its parts."""

    namespace: str
    descheduler: str


PLACES = (Place("koordinator-system", "koord-descheduler"), Place("kube-system", "ack-koord-descheduler"))
"""Koordinator's chart, and ACK's add-on."""


@dataclass(frozen=True, slots=True)
class Koordinator:
    """What was found.

    ``missing`` has a finding for each part that is not there: ``no_crd``, ``no_controller``, ``no_scheduler``.
    ``controller`` is ``None`` where its configuration cannot be read, and ``doubt`` says why, or why it is not all.
    """

    jobs: tuple[migration_jobs.Job, ...] = ()
    controller: migration_controller.Controller | None = None
    source: str = ""
    doubt: str = ""
    missing: tuple[reasons.Finding, ...] = ()


def look(ctx: context.Context, namespace: str = "", *, reserves: bool = True) -> Koordinator:
    """Look for Koordinator's parts; ``reserves``: whether places shall be reserved, which needs its scheduler.

    A part counts as missing when it surely is: its kind is unknown, or its Deployment is not there or has no
    ready pod. A scheduler that runs in another way than as the chart's Deployment is believed to be there.

    Raises:
        ClusterError: the API server cannot be reached, or PodMigrationJobs may not be listed.
    """
    missing: list[reasons.Finding] = []
    try:
        listed = ctx.cluster.items(kinds.PODMIGRATIONJOBS, patience=act.PATIENCE).items
        jobs = tuple(migration_jobs.Job.of(raw) for raw in listed)
        # Also EvictDirectly needs it: without this kind the controller's caches never fill.
        ctx.cluster.send(verbs.list_page(kinds.RESERVATIONS, limit=1), patience=act.PATIENCE)
    except errors.NotFound as error:
        resource = error.request.resource if error.request else kinds.PODMIGRATIONJOBS.resource
        return Koordinator(missing=(_no_crd(resource),))
    places = [place for place in PLACES if namespace in ("", place.namespace)] or [
        Place(namespace, place.descheduler) for place in PLACES
    ]
    found = next(
        ((place, raw) for place in places if (raw := _deployment(ctx, place.namespace, place.descheduler))), None
    )
    if found is None or not _ready(found[1]):
        missing.append(_no_controller(places, found[0] if found else None))
    place = found[0] if found else places[0]
    if reserves and found:
        scheduler = _deployment(ctx, place.namespace, SCHEDULER)
        if scheduler and not _ready(scheduler):
            missing.append(_no_scheduler(place.namespace))
    controller, doubt = _controller(ctx, place.namespace)
    return Koordinator(jobs, controller, f"ConfigMap {place.namespace}/{CONFIG}", doubt, tuple(missing))


def _deployment(ctx: context.Context, namespace: str, name: str) -> objects.Raw | None:
    """The Deployment; one that may not be read is believed to be there and ready."""
    try:
        return ctx.cluster.send(verbs.get(kinds.DEPLOYMENTS, name, namespace), patience=act.PATIENCE)
    except errors.NotFound:
        return None
    except errors.Forbidden:
        return {"status": {"readyReplicas": 1}}


def _ready(deployment: objects.Raw) -> bool:
    return bool((deployment.get("status") or {}).get("readyReplicas"))


def _controller(ctx: context.Context, namespace: str) -> tuple[migration_controller.Controller | None, str]:
    where = f"ConfigMap {namespace}/{CONFIG}"
    try:
        raw = ctx.cluster.send(verbs.get(kinds.CONFIGMAPS, CONFIG, namespace), patience=act.PATIENCE)
    except errors.NotFound:
        return None, f"There is no {where}."
    except errors.Forbidden as error:
        return None, f"{where} may not be read: {error}"
    data = raw.get("data") or {}
    if CONFIG not in data:
        return None, f"{where} has no key {CONFIG}."
    try:
        controller = limits.controller(yaml.safe_load(data[CONFIG]))
    except yaml.YAMLError as error:
        return None, f"{where} is no YAML: {str(error).splitlines()[0]}."
    except limits.UnreadableError as error:
        return None, f"{where} cannot be used: {error}."
    said = migration_controller.several(controller)
    return controller, f"{said} The limits are those of the first." if said else ""


def _no_crd(resource: str) -> reasons.Finding:
    return reasons.Finding(
        "no_crd",
        f"The cluster knows no {resource}: Koordinator's CustomResourceDefinitions are not installed.",
        "Install Koordinator 1.7 or later (its chart brings them), or let node_drain move pods by eviction: "
        f"{option.options(backend='eviction')}.",
        "blocker",
        f"CustomResourceDefinition {resource}",
    )


def _no_controller(places: t.Sequence[Place], place: Place | None) -> reasons.Finding:
    if place is None:
        names = " or ".join(f"{one.namespace}/{one.descheduler}" for one in places)
        said = f"There is no Deployment {names}: nothing works on PodMigrationJobs."
        remedy = "Install koord-descheduler, or give the namespace it is in as koordinator_namespace."
    else:
        said = (
            f"No pod of Deployment {place.namespace}/{place.descheduler} is ready: nothing works on PodMigrationJobs."
        )
        remedy = f"Look at its pods and their log: kubectl -n {place.namespace} get pods."
    where = place or places[0]
    return reasons.Finding(
        "no_controller", said, remedy, "blocker", f"Deployment {where.namespace}/{where.descheduler}"
    )


def _no_scheduler(namespace: str) -> reasons.Finding:
    return reasons.Finding(
        "no_scheduler",
        f"No pod of Deployment {namespace}/{SCHEDULER} is ready: no place can be reserved.",
        "Look at its pods and their log, or say mode: EvictDirectly, which reserves nothing.",
        "blocker",
        f"Deployment {namespace}/{SCHEDULER}",
    )
