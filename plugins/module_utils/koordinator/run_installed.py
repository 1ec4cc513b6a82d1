# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The koord-descheduler that is at work in the cluster, and the limits with which it runs."""

from __future__ import annotations

import dataclasses
import typing as t
from contextlib import suppress
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    run_context,
    run_reconcile,
    selectors,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    installation,
    koordinator,
    rollout,
    running,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import dispositions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    installations,
    limits,
    migration_jobs,
    run_configz,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    errors,
    kinds,
    verbs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    phases,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    migration_controller,
)

with suppress(ImportError):  # the `kubernetes` package brings it; the connection reports both
    import yaml


LOOK_EVERY_SECONDS = 1.0
"""Seconds between two looks at whether a Lease was renewed."""
LEASE_SECONDS = 15.0
"""Seconds within which a leader renews its Lease, unless the Lease says otherwise."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The live MigrationController, ``None`` if it is unknown.

    ``doubt`` says why it is unknown or incomplete. ``finding`` says that it may not be, or is not,
    the ConfigMap's; without a controller, that nothing works on jobs.
    """

    controller: migration_controller.Controller | None
    doubt: str = ""
    finding: reasons.Finding | None = None


def descheduler_deployments(
    ctx: run_context.Context, given: installation.Location
) -> list[objects.Raw] | None:
    """The Deployments that may be Koordinator's; ``None`` if they may not be listed."""
    try:
        return list(ctx.cluster.items(kinds.DEPLOYMENTS, namespace=given.namespace).items)
    except errors.Forbidden:
        return None


def at_work(
    ctx: run_context.Context, listed: list[objects.Raw] | None, given: installation.Location
) -> tuple[installations.Installation | None, reasons.Finding | None]:
    """The koord-descheduler that works on PodMigrationJobs, and why none or more than one does.

    One with a ready pod is at work. If several have one, those are whose leader renews its Lease;
    if none has, something that is no Deployment may: then the Lease tells, too.
    """
    found = _unlisted(ctx, given) if listed is None else installations.installations(listed, given)
    ready = [one for one in found if one.ready]
    match ready:
        case [one]:
            return one, None
        case [_, _, *_]:
            leading = _leading(ctx, ready) or ready
            return leading[0], installations.several(leading) if len(leading) > 1 else None
    hidden = _leading(
        ctx, [] if found else [installations.Installation(place, {}) for place in _charts(given)]
    )
    if hidden:
        return hidden[0], None
    return next(iter(found), None), installations.none(given, found)


def _charts(given: installation.Location) -> list[installation.Location]:
    """The places of the charts, as far as the options name no other ones."""
    charts = [chart for chart in installations.CHARTS if given.namespace in ("", chart.namespace)]
    places = []
    for chart in charts or installations.CHARTS:
        place = replace(
            given,
            namespace=given.namespace or chart.namespace,
            deployment=given.deployment or chart.deployment,
        )
        places.append(installations.completed(place, {}))
    return places


def _unlisted(
    ctx: run_context.Context, given: installation.Location
) -> tuple[installations.Installation, ...]:
    """Those of the charts' names, if none may be listed. One that may not be read is believed."""
    for place in _charts(given):
        try:
            request = verbs.get(kinds.DEPLOYMENTS, place.deployment, place.namespace)
            raw = ctx.cluster.send(request)
        except errors.NotFound:
            continue
        except errors.Forbidden:
            return (installations.Installation(place, {}),)
        place = replace(place, config_map=given.config_map, key=given.key)
        return (installations.Installation(installations.completed(place, raw), raw),)
    return ()


def _leading(
    ctx: run_context.Context, found: t.Sequence[installations.Installation]
) -> list[installations.Installation]:
    """Those whose Lease is renewed while it is watched, by a pod of theirs where that can be told.

    A Deployment that elects no leader is at work without a Lease.
    """
    leases = {one.name: _election(ctx, one) for one in found}
    first = {name: _lease(ctx, ref) for name, ref in leases.items() if ref}
    alive = {one.name for one in found if one.workload and leases[one.name] is None}
    specs = [lease.get("spec") or {} for lease in first.values() if lease]
    lasting = [float(spec.get("leaseDurationSeconds") or LEASE_SECONDS) for spec in specs]
    deadline = ctx.clock.now() + max(lasting, default=LEASE_SECONDS)
    while any(first[name] and name not in alive for name in first) and ctx.clock.now() < deadline:
        ctx.clock.sleep(LOOK_EVERY_SECONDS)
        for name, before in first.items():
            if name not in alive and installations.renewed(
                before, _lease(ctx, t.cast("objects.Ref", leases[name]))
            ):
                alive.add(name)
    found = [one for one in found if one.name in alive]
    # Several may share a Lease: the pods of a Deployment are called after it,
    # and holders after their pod.
    holding = {
        one.name
        for one in found
        if _holder(first.get(one.name)).rsplit("-", 2)[0] == one.place.deployment
    }
    taken = {leases[one.name] for one in found if one.name in holding}
    return [one for one in found if one.name in holding or leases[one.name] not in taken]


def _holder(lease: objects.Raw | None) -> str:
    """The pod that leads, as far as the Lease tells."""
    return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "").partition("_")[0]


def _election(ctx: run_context.Context, one: installations.Installation) -> objects.Ref | None:
    text, _doubt = _text(ctx, one.place)
    config = _parsed(text)
    return installation.election(
        config if isinstance(config, dict) else {}, one.workload or _BARE, "koordinator"
    )


_BARE: objects.Raw = {"spec": {"template": {}}}


def _lease(ctx: run_context.Context, ref: objects.Ref) -> objects.Raw | None:
    try:
        return run_reconcile.read(ctx, ref)
    except errors.Forbidden:
        return None


def limits_of(ctx: run_context.Context, one: installations.Installation) -> Limits:
    """The limits with which it runs: a pod's, else the ConfigMap's, and how far to believe them."""
    text, doubt = _text(ctx, one.place)
    config = _parsed(text)
    kept = Limits(None, doubt) if text is None else _controller(config, one, one.place.map_name)
    says = _running(ctx, one, config if isinstance(config, dict) else {})
    if says.config is None:
        return replace(kept, finding=_unproven(one, config, says.why)) if kept.controller else kept
    live = _controller(
        running.document(says.config, koordinator.schema(koordinator.VERSIONS[-1])), one, one.name
    )
    if kept.controller is None or live.controller in (None, kept.controller):
        return live
    return replace(live, finding=_drifted(one, kept.controller, live.controller))


def _text(ctx: run_context.Context, place: installation.Location) -> tuple[str | None, str]:
    """The configuration in the ConfigMap, or why there is none."""
    where = place.map_name
    try:
        raw = ctx.cluster.send(verbs.get(kinds.CONFIGMAPS, place.config_map, place.namespace))
    except errors.NotFound:
        return None, f"There is no {where}."
    except errors.Forbidden as error:
        return None, f"{where} may not be read: {error}"
    data = raw.get("data") or {}
    return (
        (data[place.key], "") if place.key in data else (None, f"{where} has no key {place.key}.")
    )


def _parsed(text: str | None) -> t.Any:
    """The document, or the error that it has."""
    try:
        return yaml.safe_load(text) if text is not None else None
    except yaml.YAMLError as error:
        return error


def _controller(config: t.Any, one: installations.Installation, where: str) -> Limits:
    if isinstance(config, Exception):
        return Limits(None, f"{where} is not valid YAML: {str(config).splitlines()[0]}.")
    try:
        controller = limits.controller(config)
    except limits.UnreadableError as error:
        idle = installations.idle(one, str(error)) if isinstance(error, limits.IdleError) else None
        return Limits(None, f"{where} cannot be used: {error}.", idle)
    message = migration_controller.several(controller)
    return Limits(controller, f"{message} The limits of the first are used." if message else "")


def _running(
    ctx: run_context.Context, one: installations.Installation, config: t.Mapping[str, t.Any]
) -> run_configz.RunningConfiguration:
    """What the leading pod says, or where that is unknown the first that answers."""
    if not one.workload:
        return run_configz.RunningConfiguration("", None, f"Deployment {one.name} may not be read")
    labels = selectors.as_query(one.workload["spec"]["selector"])
    try:
        pods = ctx.cluster.items(kinds.PODS, namespace=one.place.namespace, labels=labels).items
    except errors.Forbidden as error:
        return run_configz.RunningConfiguration("", None, str(error))
    pods = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
    election = installation.election(config, one.workload, "koordinator") if len(pods) > 1 else None
    holder = _holder(_lease(ctx, election) if election else None)
    pods.sort(key=lambda pod: bool(pod["metadata"]["name"] != holder))
    says = run_configz.RunningConfiguration("", None, f"Deployment {one.name} has no running pod")
    for pod in pods:
        says = run_configz.ask(ctx.cluster, pod, installation.port_of(config), _parsed)
        if says.config is not None:
            break
    return says


def _unproven(one: installations.Installation, config: t.Any, why: str) -> reasons.Finding | None:
    """What is to be said of limits that only the ConfigMap tells."""
    mark = rollout.marks_of(one.workload or _BARE)[rollout.DIGEST]
    if mark == rollout.digest(config):
        return None
    since = f"{one.place.map_name} was changed since its pods started. " if mark else ""
    return reasons.Finding(
        "limits_unproven",
        f"{since}The limits are those of {one.place.map_name}; whether {one.name} runs with "
        f"them is unknown: {why}",
        f"Grant get and create on pods/portforward in namespace {one.place.namespace}, or roll "
        "the configuration out with descheduler_config, which marks the pods with it.",
        "warning" if mark else "info",
        f"Deployment {one.name}",
    )


def _drifted(
    one: installations.Installation,
    kept: migration_controller.Controller,
    live: migration_controller.Controller,
) -> reasons.Finding:
    """The ConfigMap was edited, and its pods were not restarted."""
    pairs = (
        (each.name, getattr(kept, each.name), getattr(live, each.name))
        for each in dataclasses.fields(kept)
    )
    name, wanted, runs = next(pair for pair in pairs if pair[1] != pair[2])
    name = migration_controller.argument(name)
    return reasons.Finding(
        "limits_not_running",
        f"Deployment {one.name} runs with other limits than {one.place.map_name} has ({name} "
        f"is {runs!r}, not {wanted!r}): the ConfigMap was changed without a restart. The "
        "running limits count.",
        "Restart it with descheduler_config (state: restarted), or put the ConfigMap back.",
        "warning",
        f"Deployment {one.name}",
    )


# The parts of Koordinator in the cluster: whether PodMigrationJobs can be carried out,
# checked before any write.


@dataclass(frozen=True, slots=True)
class Koordinator:
    """What was found.

    ``missing`` has a finding for each missing part: ``no_crd``, ``no_controller``,
    ``no_scheduler``, or ``several_koordinators``. ``controller`` is ``None`` if its configuration
    cannot be read. ``doubt`` says why, or why it is incomplete. ``unsure`` has findings about
    limits that may not be those with which koord-descheduler runs.
    """

    jobs: tuple[migration_jobs.Job, ...] = ()
    controller: migration_controller.Controller | None = None
    source: str = ""
    doubt: str = ""
    missing: tuple[reasons.Finding, ...] = ()
    unsure: tuple[reasons.Finding, ...] = ()


def prepared(
    ctx: run_context.Context, choices: drain_policy.DrainPolicy
) -> tuple[drain_policy.DrainPolicy, tuple[reasons.Finding, ...]]:
    """The choices of a drain with the live MigrationController if jobs can be
    created, and findings.

    With backend ``koordinator`` every missing part is a blocker; ``auto`` then evicts, and reports
    it only if a part of Koordinator is installed.

    Raises:
        ClusterError: the API server cannot be reached, or with backend ``koordinator``
            jobs may not be listed.
    """
    if choices.backend == "eviction" or choices.disable_eviction:
        return choices, ()
    try:
        given = installation.Location(*(getattr(choices, key) for key in drain_policy.KOORDINATOR))
        found = look(ctx, given, reserves=True)
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


def required(
    ctx: run_context.Context, choices: drain_policy.DrainPolicy
) -> drain_policy.DrainPolicy:
    """The same for a call that is about to write.

    Raises:
        CallAborted: backend is ``koordinator``, and something is missing.
    """
    choices, findings = prepared(ctx, choices)
    missing = [finding for finding in findings if finding.severity == "blocker"]
    if missing:
        first = missing[0]
        raise run_context.CallAborted(
            first.code, " ".join(f.message for f in missing), first.remedy, first.object
        )
    for finding in findings:
        ctx.note(phases.What.NOTE, finding.message)
    return choices


def listed(ctx: run_context.Context) -> tuple[migration_jobs.Job, ...]:
    """All jobs."""
    found = ctx.cluster.items(kinds.PODMIGRATIONJOBS).items
    return tuple(map(migration_jobs.Job.of, found))


def look(ctx: run_context.Context, given: installation.Location, *, reserves: bool) -> Koordinator:
    """Look for the parts; ``reserves``: whether capacity will be reserved, which needs
    Koordinator's scheduler.

    A part is missing only if that is certain: its kind is unknown, or nothing runs it, or it has no
    ready pod. A scheduler that no Deployment runs is assumed to run.

    Raises:
        ClusterError: the API server cannot be reached, or PodMigrationJobs may not be listed.
    """
    try:
        jobs = listed(ctx)
        # EvictDirectly needs this kind, too: without it the controller's caches never fill.
        ctx.cluster.send(verbs.list_page(kinds.RESERVATIONS, limit=1))
    except errors.NotFound as error:
        return Koordinator(missing=(_no_crd((error.request or kinds.PODMIGRATIONJOBS).resource),))
    deployments = descheduler_deployments(ctx, given)
    one, wrong = at_work(ctx, deployments, given)
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
    found = limits_of(ctx, one)
    unsure = (found.finding,) if found.finding and found.controller else ()
    if found.finding and not unsure:
        missing.append(found.finding)
    return Koordinator(
        jobs,
        controller=found.controller,
        source=one.place.map_name,
        doubt=found.doubt,
        missing=tuple(missing),
        unsure=unsure,
    )


def _silent_scheduler(
    ctx: run_context.Context, deployments: list[objects.Raw] | None, home: str
) -> str:
    """The Deployment of koord-scheduler if it exists and has no ready pod; else empty."""
    if deployments is None:
        with suppress(errors.NotFound, errors.Forbidden):
            request = verbs.get(kinds.DEPLOYMENTS, installations.SCHEDULER, home)
            deployments = [ctx.cluster.send(request)]
    return installations.silent_scheduler(deployments or (), home)


def _installed(ctx: run_context.Context) -> bool:
    """Whether the kind exists: the API server checks the right to list it before it checks that."""
    try:
        ctx.cluster.send(verbs.api_resources(kinds.PODMIGRATIONJOBS.api_version))
    except (errors.NotFound, errors.Forbidden):
        return False
    return True


def _lacking(found: Koordinator) -> tuple[reasons.Finding, ...]:
    """What a drain by jobs lacks."""
    controller = found.controller
    lacking = list(found.missing)
    if controller is None:
        if not any(
            finding.code in ("no_crd", "no_controller", "several_koordinators")
            for finding in lacking
        ):
            message = f"The limits of koord-descheduler cannot be read: {found.doubt}"
            remedy = (
                "Correct the ConfigMap, or allow these credentials to get it; "
                "limits are never guessed."
            )
            lacking.append(reasons.Finding("no_limits", message, remedy, "blocker", found.source))
        return tuple(lacking)
    if controller.default_job_mode != dispositions.RESERVES:
        lacking = [finding for finding in lacking if finding.code != "no_scheduler"]
    if message := migration_controller.several(controller):
        remedy = "Keep it in one profile."
        lacking.append(
            reasons.Finding("several_controllers", message, remedy, "blocker", found.source)
        )
    return tuple(lacking)


def _unused(messages: list[str]) -> reasons.Finding:
    return reasons.Finding(
        "koordinator_unused",
        f"Pods are evicted without PodMigrationJobs: {' '.join(messages)}",
        "Nothing to do if that is intended. "
        f"{reasons.options(backend='koordinator')} requires jobs.",
        "info",
        "backend auto",
    )


def _no_crd(resource: str) -> reasons.Finding:
    return reasons.Finding(
        "no_crd",
        f"The cluster has no {resource}: Koordinator's CustomResourceDefinitions "
        "are not installed.",
        "Install Koordinator 1.7 or later (its chart contains them), or let node_drain evict "
        f"the pods: {reasons.options(backend='eviction')}.",
        "blocker",
        f"CustomResourceDefinition {resource}",
    )
