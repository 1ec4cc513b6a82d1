# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Pausing what a descheduler evicts, and giving it back.

Koordinator's is paused by ``dryRun: true`` in its configuration: its plugins evict nothing, while PodMigrationJobs,
with which nodes are drained, are still carried out. Scaling it to 0 would stop those too. The one of sigs.k8s.io has
no such word and carries out nothing for others: its Deployment is scaled to 0, its CronJob suspended.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    check,
    journaling,
    rollout,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    names,
    objects,
    outcomes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.descheduler import (
    configuring,
    restarting,
    sites,
)


def pause(ctx: context.Context, options: configuring.DeschedulerOptions) -> context.Result:
    """Let the descheduler evict nothing until ``resume``.

    Raises:
        StopRun: it is not there, or its configuration cannot be read; nothing was written.
    """
    site = sites.Site.read(ctx, options.flavor, options.place)
    if options.flavor == "sigs":
        return _stop(ctx, site, options)
    text = site.text
    config = None if text is None else options.means(text)
    if text is None or not isinstance(config, dict):
        raise context.StopRun("no_config", f"{site.ref} has no configuration that could be paused.", "", str(site.ref))
    unfinished = site.journal is not None and site.journal.paused and rollout.digest(config) in site.journal.ours
    if config.get("dryRun") is True and not unfinished:
        return configuring.plainly(
            ctx, options, outcomes.ConfigOutcome.UNCHANGED, f"{site.ref} evicts nothing already (dryRun: true)."
        )
    wish = rollout.Wish({**config, "dryRun": True}, rollout.with_dry_run(text), as_text=True)
    if options.means(wish.text) != wish.config:
        raise context.StopRun(
            "no_config",
            f"dryRun cannot be set in the text of ConfigMap {site.place.namespace}/{site.place.config_map}.",
            "Write it as plain YAML, one key in each line.",
            str(site.ref),
        )
    return configuring.Rollout(ctx, replace(options, state="present", wish=wish), site, pausing=True).run()


def resume(ctx: context.Context, options: configuring.DeschedulerOptions, *, everywhere: bool) -> context.Result:
    """Give back what was paused: this descheduler, or ``everywhere`` each one of the cluster."""
    if not everywhere:
        site = sites.Site.read(ctx, options.flavor, options.place)
        return _resume(ctx, options, site)
    done = [
        _resume(ctx, replace(options, flavor=flavor, place=kept.place, schema=check.schema_of(flavor)), None)
        for kept in _paused(ctx)
        for flavor in (t.cast("check.Flavor", kept.flavor),)
    ]
    if not done:
        return configuring.plainly(ctx, options, outcomes.ConfigOutcome.UNCHANGED, "No descheduler is paused.")
    failed = [result for result in done if result.failed]
    last = (failed or done)[-1]
    return context.Result(last.data, bool(failed), " ".join(result.message for result in failed or done))


def _paused(ctx: context.Context) -> list[journaling.Journal]:
    try:
        found = ctx.cluster.items(
            kinds.CONFIGMAPS, namespace=names.NAMESPACE, labels=f"{journaling.LABEL}=paused", patience=act.PATIENCE
        ).items
    except errors.NotFound:
        return []
    except errors.Forbidden as error:
        raise context.StopRun("not_allowed", f"Whether a descheduler is paused cannot be seen: {error}") from error
    try:
        return [journaling.Journal.of(raw) for raw in found]
    except journaling.BadJournalError as error:
        raise context.StopRun("bad_journal", str(error)) from error


def _resume(ctx: context.Context, options: configuring.DeschedulerOptions, found: sites.Site | None) -> context.Result:
    site = found or sites.Site.read(ctx, options.flavor, options.place)
    journal = site.journal
    if journal is None or not journal.paused:
        return configuring.plainly(ctx, options, outcomes.ConfigOutcome.UNCHANGED, f"{site.ref} is not paused.")
    if journal.paused != "dry_run":
        site.settle(restarting.unsuspended(site) if journal.paused == "suspend" else _scaled(site, journal))
        site.forget()
        return configuring.plainly(ctx, options, outcomes.ConfigOutcome.CHANGED, f"{site.ref} evicts again.")
    means = None if site.text is None else options.means(site.text)
    before = None if journal.config is None else options.means(journal.config)
    if not isinstance(before, dict) or rollout.digest(means) not in (*journal.ours, rollout.digest(before)):
        site.forget()
        return configuring.plainly(
            ctx,
            options,
            outcomes.ConfigOutcome.UNCHANGED,
            f"Somebody else configured {site.ref} meanwhile; that was kept.",
        )
    wish = rollout.Wish(before, t.cast("str", journal.config), as_text=True)
    return configuring.Rollout(ctx, replace(options, state="present", wish=wish), site).run()


def _stop(ctx: context.Context, site: sites.Site, options: configuring.DeschedulerOptions) -> context.Result:
    how = "suspend" if site.is_cron else "scale"
    spec = site.workload["spec"]
    if spec.get("suspend") if site.is_cron else not site.replicas:
        return configuring.plainly(
            ctx, options, outcomes.ConfigOutcome.UNCHANGED, f"{site.ref} evicts nothing already."
        )
    journal = replace(site.as_it_is(), paused=how)
    site.keep(replace(journal, suspended=False) if site.is_cron else replace(journal, replicas=site.replicas))
    before = {"suspend": False} if site.is_cron else {"replicas": site.replicas}
    after: dict[str, t.Any] = {"suspend": True} if site.is_cron else {"replicas": 0}
    sentence = f"Suspend {site.ref}" if site.is_cron else f"Scale {site.ref} from {site.replicas} to 0"

    def planned(workload: objects.Raw) -> api_changes.Change | None:
        name, value = next(iter(after.items()))
        if workload["spec"].get(name) == value:
            return None
        return site.change(workload, {"spec": after}, sentence, before, after)

    site.settle(planned)
    return configuring.plainly(
        ctx, options, outcomes.ConfigOutcome.CHANGED, f"{site.ref} evicts nothing until it is resumed."
    )


def _scaled(site: sites.Site, journal: journaling.Journal) -> t.Callable[[objects.Raw], api_changes.Change | None]:
    """Give the count back, unless somebody else has changed it since."""
    count = journal.replicas or 1

    def planned(workload: objects.Raw) -> api_changes.Change | None:
        if workload["spec"].get("replicas", 1):
            return None
        body = {"spec": {"replicas": count}}
        return site.change(workload, body, f"Scale {site.ref} to {count} again", {"replicas": 0}, {"replicas": count})

    return planned
