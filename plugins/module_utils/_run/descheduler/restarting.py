# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Restarting a descheduler: what has to be over before, the two ways to do it, and the way back."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import journaling, rollout
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import migration_jobs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    objects,
    outcomes,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.descheduler import sites

POLL = 1.0
"""Seconds between two looks."""


def wait_for_jobs(site: sites.Site, how: str, timeout: float) -> None:
    """See that no PodMigrationJob is under way, as ``running_jobs`` says: a restart forgets those that run.

    Raises:
        StopRun: some still run.
    """
    ctx = site.ctx
    if site.flavor == "sigs" or how == "ignore":
        return
    deadline = ctx.clock.now() + timeout
    told = False
    while running := _running(ctx):
        names = ", ".join(job.name for job in running[:5])
        if how == "refuse" or ctx.check or ctx.clock.now() >= deadline:
            if ctx.check:
                return
            waited = "" if how == "refuse" else f" after {timeout:.0f} s"
            raise context.StopRun(
                "jobs_running",
                f"{len(running)} PodMigrationJobs still run{waited} ({names}); a restart would strand them.",
                "Wait for them and run again, or say running_jobs: ignore. Nothing was written.",
                f"PodMigrationJob {running[0].name}",
            )
        if not told:
            say(phases.What.WAITING, f"Waiting for {len(running)} PodMigrationJobs: {names}.", site)
            told = True
        ctx.clock.sleep(POLL)


def _running(ctx: context.Context) -> list[migration_jobs.Job]:
    try:
        found = ctx.cluster.items(kinds.PODMIGRATIONJOBS, patience=act.PATIENCE).items
    except errors.NotFound:
        return []
    return [job for job in map(migration_jobs.Job.of, found) if job.phase == "Running"]


def restart(site: sites.Site, digest: str, why: str, *, scale: bool, idle: bool, timeout: float) -> None:
    """Give the Deployment's template the digest, so that its pods start anew; ``idle``: it has none.

    ``scale`` ends the old pods first; then, and after a call that was killed there, the count comes back as well.
    """
    journal = t.cast("journaling.Journal", site.journal)
    if scale and not idle:
        _scale_down(site, why, timeout)
    count = journal.replicas if not site.replicas or scale else None
    if idle:
        count = None
    marks: dict[str, str | None] = {rollout.DIGEST: digest}
    if rollout.marks_of(site.workload)[rollout.DIGEST] == digest:
        marks[rollout.RESTARTED] = site.ctx.clock.wall()
    verb = "Note the configuration at" if idle else "Restart"
    scaled = f" and scale it to {count} again" if count is not None else ""
    sentence = f"{verb} {site.ref}{scaled}: {why}"

    def planned(workload: objects.Raw) -> api_changes.Change | None:
        found = {**rollout.marks_of(workload), "replicas": workload["spec"].get("replicas", 1)}
        wanted = {**found, **marks, "replicas": count if count is not None else found["replicas"]}
        if found == wanted and not site.ctx.check:
            return None
        body = rollout.marking(marks, replicas=count)
        return site.change(workload, body, sentence, _shown(found), _shown(wanted))

    site.settle(planned)
    say(outcomes.ConfigOutcome.RESTARTED, f"{sentence}.", site)


def _scale_down(site: sites.Site, why: str, timeout: float) -> None:
    ctx = site.ctx

    def planned(workload: objects.Raw) -> api_changes.Change | None:
        count = workload["spec"].get("replicas", 1)
        if not count:
            return None
        sentence = f"Scale {site.ref} from {count} to 0: {why}"
        before, after = {"replicas": count}, {"replicas": 0}
        return site.change(workload, {"spec": {"replicas": 0}}, sentence, before, after)

    if site.settle(planned):
        say(phases.What.SCALED, f"{site.ref} is scaled to 0.", site)
    deadline = ctx.clock.now() + timeout
    while not ctx.check and (left := site.pods()):
        if ctx.clock.now() >= deadline:
            raise context.StopRun(
                "pods_stay",
                f"{len(left)} pods of {site.ref} did not end within {timeout:.0f} s.",
                "Look why they do not end, then run again: it goes on where it stopped.",
                str(site.ref),
            )
        ctx.clock.sleep(POLL)
    if not ctx.check:
        site.reread()


def unmark(site: sites.Site, journal: journaling.Journal) -> None:
    """Give the template back its annotations, and the Deployment its replicas where we scaled it to 0."""
    sentence = f"Restore {site.ref}"

    def planned(workload: objects.Raw) -> api_changes.Change | None:
        found = {**rollout.marks_of(workload), "replicas": workload["spec"].get("replicas", 1)}
        count = journal.replicas if journal.replicas is not None and not found["replicas"] else None
        wanted = {**found, **journal.marks, "replicas": found["replicas"] if count is None else count}
        if found == wanted:
            return None
        body = rollout.marking(journal.marks, bare=journal.bare, replicas=count)
        return site.change(workload, body, sentence, _shown(found), _shown(wanted))

    site.settle(planned)


def unsuspended(site: sites.Site) -> t.Callable[[objects.Raw], api_changes.Change | None]:
    """Let a CronJob run again that we had suspended."""

    def planned(workload: objects.Raw) -> api_changes.Change | None:
        if not workload["spec"].get("suspend"):
            return None
        body = {"spec": {"suspend": False}}
        return site.change(workload, body, f"Let {site.ref} run again", {"suspend": True}, {"suspend": False})

    return planned


def _shown(found: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {key: value for key, value in found.items() if value is not None}


def say(what: outcomes.Outcome, message: str, site: sites.Site) -> None:
    """Tell what was really done; check mode does nothing."""
    if not site.ctx.check:
        site.ctx.tell(what, message, namespace=site.place.namespace, name=site.place.deployment)
