# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Pausing a descheduler's evictions, and resuming them.

Koordinator's is paused by ``dryRun: true`` in its configuration: its plugins evict nothing, while PodMigrationJobs,
with which nodes are drained, are still processed; scaled to 0 it would not process them. The descheduler of
sigs.k8s.io has neither: its Deployment is scaled to 0, its CronJob suspended.
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
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names, outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.descheduler import configuring, targets

CHANGED, UNCHANGED = outcomes.ConfigOutcome.CHANGED, outcomes.ConfigOutcome.UNCHANGED


def pause(ctx: context.Context, options: configuring.DeschedulerOptions) -> context.Result:
    """Stop the descheduler's own evictions until ``resume``.

    Raises:
        StopRun: it does not exist, or its configuration cannot be read; nothing was written.
    """
    target = targets.DeschedulerTarget.read(ctx, options.flavor, options.place)
    if options.flavor == "sigs":
        return _stop(target, options)
    text = target.text
    config = None if text is None else options.parse(text)
    if text is None or not isinstance(config, dict):
        raise context.StopRun("no_config", f"{target.ref} has no configuration to pause.", "", str(target.ref))
    desired = rollout.DesiredConfig({**config, "dryRun": True}, rollout.with_dry_run(text), as_text=True)
    if options.parse(desired.text) != desired.config:
        message = f"dryRun cannot be set in the text of {target.place.map_name}."
        raise context.StopRun("no_config", message, "Write it as plain YAML, one key per line.", str(target.ref))
    return configuring.Rollout(ctx, replace(options, state="present", desired=desired), target, pausing=True).run()


def resume(ctx: context.Context, options: configuring.DeschedulerOptions, *, everywhere: bool) -> context.Result:
    """Resume this descheduler, or ``everywhere`` every paused one of the cluster."""
    if not everywhere:
        return _resume(ctx, options)
    done = []
    for kept in _paused(ctx):
        flavor = t.cast("check.Flavor", kept.flavor)
        done.append(_resume(ctx, replace(options, flavor=flavor, place=kept.place, schema=check.schema_of(flavor))))
    if not done:
        return options.result(UNCHANGED, "No descheduler is paused.")
    failed = [result for result in done if result.failed]
    told = failed or done
    return context.Result(told[-1].data, bool(failed), " ".join(result.message for result in told))


def _paused(ctx: context.Context) -> list[journaling.Journal]:
    labels = f"{journaling.LABEL}=paused"
    try:
        found = ctx.cluster.items(kinds.CONFIGMAPS, namespace=names.NAMESPACE, labels=labels, patience=act.PATIENCE)
        return [journaling.Journal.of(raw) for raw in found.items]
    except errors.NotFound:
        return []
    except errors.Forbidden as error:
        raise context.StopRun("not_allowed", f"Paused deschedulers cannot be listed: {error}") from error
    except journaling.BadJournalError as error:
        raise context.StopRun("bad_journal", str(error)) from error


def _resume(ctx: context.Context, options: configuring.DeschedulerOptions) -> context.Result:
    target = targets.DeschedulerTarget.read(ctx, options.flavor, options.place)
    journal, ref = target.journal, target.ref
    if journal is None or not journal.paused:
        return options.result(UNCHANGED, f"{ref} is not paused.")
    if journal.paused != "dry_run":
        if journal.paused == "suspend":
            target.switch("suspend", False, f"Resume {ref}")
        else:
            count = journal.replicas or 1
            target.switch("replicas", count, f"Scale {ref} to {count} again")
        target.forget()
        return options.result(CHANGED, f"{ref} is resumed.")
    present = None if target.text is None else options.parse(target.text)
    before = None if journal.config is None else options.parse(journal.config)
    if not isinstance(before, dict) or rollout.digest(present) not in (*journal.ours, rollout.digest(before)):
        target.forget()
        return options.result(UNCHANGED, f"Someone else changed the configuration of {ref} meanwhile; it was kept.")
    desired = rollout.DesiredConfig(before, t.cast("str", journal.config), as_text=True)
    return configuring.Rollout(ctx, replace(options, state="present", desired=desired), target).run()


def _stop(target: targets.DeschedulerTarget, options: configuring.DeschedulerOptions) -> context.Result:
    ref, count = target.ref, target.replicas
    if target.workload["spec"].get("suspend") if target.is_cron else not count:
        return options.result(UNCHANGED, f"{ref} is paused already.")
    journal = target.snapshot()
    if target.is_cron:
        target.keep(replace(journal, paused="suspend", suspended=False))
        target.switch("suspend", True, f"Suspend {ref}")
    else:
        target.keep(replace(journal, paused="scale", replicas=count))
        target.switch("replicas", 0, f"Scale {ref} from {count} to 0")
    return options.result(CHANGED, f"{ref} is paused: it evicts nothing until it is resumed.")
