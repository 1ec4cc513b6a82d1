# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The koord-descheduler that is at work in the cluster, and the limits with which it runs."""

from __future__ import annotations

import dataclasses
import typing as t
from contextlib import suppress
from dataclasses import dataclass, replace

with suppress(ImportError):  # the `kubernetes` package brings it; the connection reports both
    import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    koordinator,
    places,
    rollout,
    running,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import installations, limits
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    migration_controller,
    objects,
    reasons,
    selectors,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, configz, context, writing

LOOK_EVERY = 1.0
"""Seconds between two looks at whether a Lease was renewed."""
LEASE = 15.0
"""Seconds within which a leader renews its Lease, unless the Lease says otherwise."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The live MigrationController, ``None`` if it is unknown.

    ``doubt`` says why it is unknown or incomplete. ``finding`` says that it may not be, or is not, the ConfigMap's;
    without a controller, that nothing works on jobs.
    """

    controller: migration_controller.Controller | None
    doubt: str = ""
    finding: reasons.Finding | None = None


def deployments(ctx: context.Context, given: places.Place) -> list[objects.Raw] | None:
    """The Deployments that may be Koordinator's; ``None`` if they may not be listed."""
    try:
        return list(ctx.cluster.items(kinds.DEPLOYMENTS, namespace=given.namespace, patience=act.PATIENCE).items)
    except errors.Forbidden:
        return None


def at_work(
    ctx: context.Context, listed: list[objects.Raw] | None, given: places.Place
) -> tuple[installations.Installation | None, reasons.Finding | None]:
    """The koord-descheduler that works on PodMigrationJobs, and why none or more than one does.

    One with a ready pod is at work. If several have one, those are whose leader renews its Lease; if none has,
    something that is no Deployment may: then the Lease tells, too.
    """
    found = _unlisted(ctx, given) if listed is None else installations.installations(listed, given)
    ready = [one for one in found if one.ready]
    match ready:
        case [one]:
            return one, None
        case [_, _, *_]:
            leading = _leading(ctx, ready) or ready
            return leading[0], installations.several(leading) if len(leading) > 1 else None
    hidden = _leading(ctx, [] if found else [installations.Installation(place, {}) for place in _charts(given)])
    if hidden:
        return hidden[0], None
    return next(iter(found), None), installations.none(given, found)


def _charts(given: places.Place) -> list[places.Place]:
    """The places of the charts, as far as the options name no other ones."""
    charts = [chart for chart in installations.CHARTS if given.namespace in ("", chart.namespace)]
    found = [
        replace(given, namespace=given.namespace or chart.namespace, deployment=given.deployment or chart.deployment)
        for chart in charts or installations.CHARTS
    ]
    return [installations.completed(place, {}) for place in found]


def _unlisted(ctx: context.Context, given: places.Place) -> tuple[installations.Installation, ...]:
    """Those of the charts' names, where the Deployments may not be listed. One that may not be read is believed."""
    for place in _charts(given):
        try:
            request = verbs.get(kinds.DEPLOYMENTS, place.deployment, place.namespace)
            raw = ctx.cluster.send(request, patience=act.PATIENCE)
        except errors.NotFound:
            continue
        except errors.Forbidden:
            return (installations.Installation(place, {}),)
        return (
            installations.Installation(
                installations.completed(replace(place, config_map=given.config_map, key=given.key), raw), raw
            ),
        )
    return ()


def _leading(ctx: context.Context, found: t.Sequence[installations.Installation]) -> list[installations.Installation]:
    """Those whose Lease is renewed while it is watched, by a pod of theirs where that can be told.

    A Deployment that elects no leader is at work without a Lease.
    """
    leases = {one.name: _election(ctx, one) for one in found}
    first = {name: _lease(ctx, ref) for name, ref in leases.items() if ref}
    alive = {one.name for one in found if one.workload and leases[one.name] is None}
    deadline = ctx.clock.now() + max([_duration(lease) for lease in first.values() if lease], default=LEASE)
    while any(first[name] and name not in alive for name in first) and ctx.clock.now() < deadline:
        ctx.clock.sleep(LOOK_EVERY)
        for name, before in first.items():
            if name not in alive and installations.renewed(before, _lease(ctx, t.cast("objects.Ref", leases[name]))):
                alive.add(name)
    found = [one for one in found if one.name in alive]
    # Several may share a Lease: the pods of a Deployment are called after it, and holders after their pod.
    holding = {one.name for one in found if _holder(first.get(one.name)).rsplit("-", 2)[0] == one.place.deployment}
    taken = {leases[one.name] for one in found if one.name in holding}
    return [one for one in found if one.name in holding or leases[one.name] not in taken]


def _holder(lease: objects.Raw | None) -> str:
    """The pod that leads, as far as the Lease tells."""
    return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "").partition("_")[0]


def _election(ctx: context.Context, one: installations.Installation) -> objects.Ref | None:
    text, _doubt = _text(ctx, one.place)
    config = _parsed(text)
    return places.election(config if isinstance(config, dict) else {}, one.workload or _BARE, "koordinator")


_BARE: objects.Raw = {"spec": {"template": {}}}


def _lease(ctx: context.Context, ref: objects.Ref) -> objects.Raw | None:
    try:
        return writing.read(ctx, ref)
    except errors.Forbidden:
        return None


def _duration(lease: objects.Raw) -> float:
    return float((lease.get("spec") or {}).get("leaseDurationSeconds") or LEASE)


def limits_of(ctx: context.Context, one: installations.Installation) -> Limits:
    """The limits with which it runs: what a pod says, else the ConfigMap's, with how far they can be believed."""
    text, doubt = _text(ctx, one.place)
    config = _parsed(text)
    kept = Limits(None, doubt) if text is None else _controller(config, one, one.place.map_name)
    told = _told(ctx, one, config if isinstance(config, dict) else {})
    if told.config is None:
        return replace(kept, finding=_unproven(one, config, told.why)) if kept.controller else kept
    live = _controller(running.document(told.config, koordinator.schema(koordinator.VERSIONS[-1])), one, one.name)
    if kept.controller is None or live.controller in (None, kept.controller):
        return live
    return replace(live, finding=_drifted(one, kept.controller, live.controller))


def _text(ctx: context.Context, place: places.Place) -> tuple[str | None, str]:
    """The configuration in the ConfigMap, or why there is none."""
    where = place.map_name
    try:
        raw = ctx.cluster.send(verbs.get(kinds.CONFIGMAPS, place.config_map, place.namespace), patience=act.PATIENCE)
    except errors.NotFound:
        return None, f"There is no {where}."
    except errors.Forbidden as error:
        return None, f"{where} may not be read: {error}"
    data = raw.get("data") or {}
    return (data[place.key], "") if place.key in data else (None, f"{where} has no key {place.key}.")


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


def _told(ctx: context.Context, one: installations.Installation, config: t.Mapping[str, t.Any]) -> configz.Told:
    """What the leading pod says, or where that is unknown the first that answers."""
    if not one.workload:
        return configz.Told("", None, f"Deployment {one.name} may not be read")
    labels = selectors.as_query(one.workload["spec"]["selector"])
    try:
        pods = ctx.cluster.items(kinds.PODS, namespace=one.place.namespace, labels=labels, patience=act.PATIENCE).items
    except errors.Forbidden as error:
        return configz.Told("", None, str(error))
    pods = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
    election = places.election(config, one.workload, "koordinator") if len(pods) > 1 else None
    holder = _holder(_lease(ctx, election) if election else None)
    pods.sort(key=lambda pod: bool(pod["metadata"]["name"] != holder))
    told = configz.Told("", None, f"Deployment {one.name} has no running pod")
    for pod in pods:
        told = configz.told(ctx.cluster, pod, places.port_of(config), _shape)
        if told.config is not None:
            break
    return told


def _shape(text: str) -> t.Any:
    found = _parsed(text)
    return found if isinstance(found, dict) else None


def _unproven(one: installations.Installation, config: t.Any, why: str) -> reasons.Finding | None:
    """What is to be said of limits that only the ConfigMap tells."""
    mark = rollout.marks_of(one.workload or _BARE)[rollout.DIGEST]
    if mark == rollout.digest(config):
        return None
    since = f"{one.place.map_name} was changed since its pods started. " if mark else ""
    return reasons.Finding(
        "limits_unproven",
        f"{since}The limits are those of {one.place.map_name}; whether {one.name} runs with them is unknown: {why}",
        f"Grant get and create on pods/portforward in namespace {one.place.namespace}, or roll the configuration out "
        "with descheduler_config, which marks the pods with it.",
        "warning" if mark else "info",
        f"Deployment {one.name}",
    )


def _drifted(
    one: installations.Installation, kept: migration_controller.Controller, live: migration_controller.Controller
) -> reasons.Finding:
    """The ConfigMap was edited, and its pods were not restarted."""
    pairs = ((each.name, getattr(kept, each.name), getattr(live, each.name)) for each in dataclasses.fields(kept))
    name, wanted, runs = next(pair for pair in pairs if pair[1] != pair[2])
    name = migration_controller.argument(name)
    return reasons.Finding(
        "limits_not_running",
        f"Deployment {one.name} runs with other limits than {one.place.map_name} has ({name} is {runs!r}, not "
        f"{wanted!r}): the ConfigMap was changed without a restart. The running limits count.",
        "Restart it with descheduler_config (state: restarted), or put the ConfigMap back.",
        "warning",
        f"Deployment {one.name}",
    )
