# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Pausing a descheduler's evictions, and resuming them.

Koordinator's is paused by ``dryRun: true`` in its configuration: its plugins evict nothing, while
PodMigrationJobs, with which nodes are drained, are still processed; scaled to 0 it would not
process them. The descheduler of sigs.k8s.io has neither: its Deployment is scaled to 0,
its CronJob suspended.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    run_context,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    check,
    rollback_record,
    rollout,
    run_configuration,
    run_targets,
    schemas,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes

CHANGED, UNCHANGED = outcomes.ConfigOutcome.CHANGED, outcomes.ConfigOutcome.UNCHANGED


def pause(
    ctx: run_context.Context, options: run_configuration.DeschedulerOptions
) -> run_context.Result:
    """Stop the descheduler's own evictions until ``resume``.

    Raises:
        CallAborted: it does not exist, its configuration cannot be read, or another call holds its
            lock; nothing was written.
    """

    def work(target: run_targets.DeschedulerTarget) -> run_context.Result | None:
        fitted = run_configuration.fit(options, target)
        if isinstance(fitted, run_context.Result):
            return fitted
        if options.flavor == "sigs":
            return _stop(target, fitted)
        present = replace(fitted, state="present", desired=None)
        return run_configuration.Rollout(ctx, present, target, intent="pause").run()

    return run_targets.one_at_a_time(ctx, options.flavor, options.place, work)


def resume(
    ctx: run_context.Context, options: run_configuration.DeschedulerOptions, *, everywhere: bool
) -> run_context.Result:
    """Resume this descheduler, with a configuration if given, or ``everywhere`` all paused ones."""
    if options.always_invalid:
        return options.unwritten
    if not everywhere:
        return _resume(ctx, options)
    done = []
    for kept in _paused(ctx):
        flavor = t.cast("schemas.Flavor", kept.flavor)
        schema = check.schema_of(flavor)
        of_it = replace(options, flavor=flavor, place=kept.place, schema=schema)
        done.append(_resume(ctx, of_it))
    if not done:
        return options.result(UNCHANGED, "No descheduler is paused.")
    failed = [result for result in done if result.failed]
    results = failed or done
    message = " ".join(result.message for result in results)
    return run_context.Result(results[-1].data, bool(failed), message)


def _paused(ctx: run_context.Context) -> list[rollback_record.Journal]:
    labels = f"{rollback_record.LABEL}=paused"
    try:
        found = ctx.cluster.items(kinds.CONFIGMAPS, namespace=names.NAMESPACE, labels=labels)
        return [rollback_record.Journal.of(raw) for raw in found.items]
    except errors.NotFound:
        return []
    except errors.Forbidden as error:
        raise run_context.CallAborted(
            "not_allowed", f"Paused deschedulers cannot be listed: {error}"
        ) from error
    except rollback_record.BadJournalError as error:
        raise run_context.CallAborted("bad_journal", str(error)) from error


def _resume(
    ctx: run_context.Context, options: run_configuration.DeschedulerOptions
) -> run_context.Result:
    def work(target: run_targets.DeschedulerTarget) -> run_context.Result | None:
        fitted = run_configuration.fit(options, target)
        if isinstance(fitted, run_context.Result):
            return fitted
        journal, ref = target.journal, target.ref
        if journal is None or not journal.paused:
            if fitted.desired is None:
                return fitted.result(UNCHANGED, f"{ref} is not paused.")
            return run_configuration.Rollout(ctx, replace(fitted, state="present"), target).run()
        if journal.paused == "dry_run":
            return _resumed(target, journal, fitted)
        if not target.locked:
            run_targets.permit(target, writes=False, restarts=True)
        if not target.may_write:
            return None
        if journal.paused == "suspend":
            target.switch("suspend", False, f"Resume {ref}")
        else:
            count = journal.replicas or 1
            target.switch("replicas", count, f"Scale {ref} to {count} again")
        run_targets.forget(target)
        if fitted.desired is None:
            return fitted.result(CHANGED, f"{ref} is resumed.")
        return run_configuration.Rollout(ctx, replace(fitted, state="present"), target).run()

    return run_targets.one_at_a_time(ctx, options.flavor, options.place, work)


def _resumed(
    target: run_targets.DeschedulerTarget,
    journal: rollback_record.Journal,
    options: run_configuration.DeschedulerOptions,
) -> run_context.Result | None:
    """Roll out the given configuration, or else the one without the pause,
    or else what somebody else made of it.
    """
    text = journal.without_pause
    desired = options.desired
    note = ""
    present = None if target.text is None else options.parse(target.text)
    before = None if text is None else options.parse(text)
    if desired is None and text is not None and isinstance(before, dict):
        ours = (*journal.ours, rollout.digest(before), rollout.digest({**before, "dryRun": True}))
        if present is None or rollout.digest(present) in ours:
            desired = rollout.DesiredConfig(before, text, as_text=True)
    if desired is None and target.text is not None and isinstance(present, dict):
        note = "Someone else changed the configuration meanwhile; it was kept."
        desired = rollout.DesiredConfig(present, target.text, as_text=True)
        desired = run_configuration.dry_run(desired, options.parse, options.place, False)
    resumed = replace(options, state="present", desired=desired)
    return run_configuration.Rollout(target.ctx, resumed, target, intent="resume", note=note).run()


def _stop(
    target: run_targets.DeschedulerTarget, options: run_configuration.DeschedulerOptions
) -> run_context.Result | None:
    ref = target.ref
    count = target.replicas
    kept = target.journal
    if target.workload["spec"].get("suspend") if target.is_cron else not count:
        return options.result(UNCHANGED, f"{ref} is paused already.")
    options = run_configuration.taking(
        options,
        target,
        target.workload,
        str(ref),
        "spec",
        "suspend" if target.is_cron else "replicas",
    )
    if not target.locked:
        run_targets.permit(target, writes=False, restarts=True)
    if not target.may_write:
        return None
    journal = kept if kept and not kept.settled else replace(target.snapshot(), settled=True)
    if target.is_cron:
        run_targets.keep(target, replace(journal, paused="suspend", suspended=False))
        target.switch("suspend", True, f"Suspend {ref}")
    else:
        run_targets.keep(target, replace(journal, paused="scale", replicas=count))
        target.switch("replicas", 0, f"Scale {ref} from {count} to 0")
    return options.result(CHANGED, f"{ref} is paused: it evicts nothing until it is resumed.")
