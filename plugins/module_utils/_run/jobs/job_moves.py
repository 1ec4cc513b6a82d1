# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Pods on their way: a job is made when the controller would admit it, and followed to its end.

A job is made once and not written again. Its ttl runs from its creation, also while a limit holds it, so it is
made no earlier than it can be admitted: what holds it is computed from the controller's own configuration.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import causes, migration_jobs, verdict
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    migration_controller,
    outcomes,
    phases,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import job_view, job_work, tracker

EXPLAIN = 5.0
"""Seconds in one stage after which it is asked what holds the job."""


@dataclass
class Moves:
    """The works of a call, its wish, and the limits of the controller (``None``: unreadable)."""

    ctx: context.Context
    works: t.Sequence[job_work.Work]
    wish: migration_jobs.Wish
    controller: migration_controller.Controller | None = None

    def __post_init__(self) -> None:
        """The jobs are followed as those of a drain are."""
        self.tracker = tracker.JobTracker(self.ctx)

    def start(self) -> None:
        """Make every job at once; nobody waits for them."""
        for work in self.works:
            if work.state == "queued":
                self._create(work)
            if work.state == "following":
                self._leave(work)

    def predict(self, wait: bool) -> None:
        """Check mode: remember the jobs that would be made, and what would become of the pods."""
        for work in self.works:
            if work.state == "queued":
                self._create(work)
            if work.state == "following":
                without = outcomes.JobOutcome.PAUSED if self.wish.paused else outcomes.JobOutcome.CREATED
                outcome = outcomes.JobOutcome.MOVED if wait and not self.wish.paused else without
                work.close(outcome, f"Job {work.name} would move {work.target}.")

    def follow(self, board: job_view.Board, deadline: float) -> None:
        """Create the jobs as they can be admitted, and wait until each has ended, at most until ``deadline``."""
        for view in board.looks(deadline):
            for work in self.works:
                self._step(work, view)
            if all(work.state == "done" for work in self.works):
                return
        for work in self.works:
            if work.state != "done":
                self._give_up(work, view)

    def _step(self, work: job_work.Work, view: verdict.View) -> None:
        if work.state == "queued":
            held = self._held(work, view)
            if held is None:
                self._create(work)
            elif held.message != work.told:
                work.told = held.message
                self._tell(work, f"no job yet: {held.message}")
        if work.state == "following":
            self._follow(work, view)
        if work.state == "replacing":
            self._replacing(work, view)

    def _held(self, work: job_work.Work, view: verdict.View) -> reasons.Reason | None:
        """What would hold a new job now."""
        pod = view.snapshot.pod(work.target.uid)
        if pod is None or self.controller is None:
            return None
        ours = {other.name: other.job for other in self.works if other.job and other.state == "following"}
        jobs = {**ours, **view.jobs}
        # Those of this call count from their creation, before arbitration has passed them.
        jobs |= {name: replace(jobs[name], phase="Running") for name in ours if not jobs[name].ended}
        return causes.waiting(view.snapshot, pod, self.controller, jobs.values(), view.now)

    def _create(self, work: job_work.Work) -> None:
        body = migration_jobs.manifest(work.name, work.target, self.wish)
        ref = migration_jobs.ref_of(work.name)
        after = {"spec": body["spec"]}
        how = ", paused" if self.wish.paused else ""
        sentence = f"Create {ref} for {work.target} ({self.wish.mode}{how})"
        change = api_changes.Change("create", ref, sentence, body=body, before={}, after=after)
        try:
            self.tracker.create(work, change)
        except errors.ClusterError as error:
            work.close(outcomes.JobOutcome.FAILED, f"{work.target}: {error}")
            return
        work.state, work.created = "following", True
        work.told, work.told_at = "", self.ctx.clock.now()
        if not self.ctx.check:
            ttl = f", ttl {migration_jobs.go_duration(self.wish.ttl)}" if self.wish.ttl else ""
            self._tell(work, f"job {work.name} created ({self.wish.mode}{how}{ttl})", phases.What.JOB_CREATED)

    def _follow(self, work: job_work.Work, view: verdict.View) -> None:
        state, job = self.tracker.follow(work, view.jobs, view.snapshot), t.cast("migration_jobs.Job", work.job)
        match state:
            case "deleted":
                self._deleted(work, view)
            case "pod gone":
                work.close(outcomes.JobOutcome.GONE, work.too_late)
            case "ended":
                self._ended(work, job, view)
            case "under way":
                silent = self.ctx.clock.now() - work.told_at > EXPLAIN
                why = verdict.verdict(job, view) if silent else None
                if why or verdict.stage(job) not in work.told:
                    job_work.tell_stage(self.ctx, work, why)

    def _deleted(self, work: job_work.Work, view: verdict.View) -> None:
        job = work.job
        said = f"Job {work.name} was deleted before its end"
        if job and job.paused:
            said += "; a paused one is deleted five minutes after its ttl"
        if view.snapshot.pod(work.target.uid) is None:
            work.close(outcomes.JobOutcome.GONE, f"{said}, and {work.target} is gone.")
        else:
            work.close(outcomes.JobOutcome.DELETED, f"{said}. {work.target} is where it was. Run again.")

    def _ended(self, work: job_work.Work, job: migration_jobs.Job, view: verdict.View) -> None:
        work.ended = self.ctx.clock.server()
        job_work.tell_stage(self.ctx, work)
        if not job.succeeded:
            why = verdict.verdict(job, view)
            if why and why.code == "pod_gone":
                work.close(outcomes.JobOutcome.GONE, work.too_late)
            else:
                work.close(outcomes.JobOutcome.FAILED, f"Job {job.name} has failed; {work.target}:", why)
        elif job.new_pod is None and work.pod and work.pod.owner:
            work.state, work.told_at = "replacing", self.ctx.clock.now()
        else:
            work.close(outcomes.JobOutcome.MOVED, _moved(work, job))

    def _replacing(self, work: job_work.Work, view: verdict.View) -> None:
        """EvictDirectly ends with the old pod; the move ends when the workload has another one that is Ready."""
        owner = work.pod.owner if work.pod else None
        for pod in view.snapshot.pods:
            mine = owner and pod.owner and pod.owner.uid == owner.uid
            if mine and pod.uid not in work.siblings and pod.ready and not pod.deleting:
                work.new_pod = pod.ref
                work.close(
                    outcomes.JobOutcome.MOVED,
                    f"Job {work.name} evicted {work.target}; {pod.ref} is ready on node {pod.node}.",
                )
                self._tell(work, f"{pod.namespace}/{pod.name} is ready on node {pod.node}")
                return

    def _give_up(self, work: job_work.Work, view: verdict.View) -> None:
        if work.state == "queued":
            why = self._held(work, view)
            work.close(outcomes.JobOutcome.TIMEOUT, f"{work.target} has no job yet:", why)
            return
        if work.state == "replacing":
            work.close(
                outcomes.JobOutcome.NOT_READY,
                f"Job {work.name} evicted {work.target}; no new pod of {_owner(work)} is ready.",
            )
            return
        job = work.job
        why = verdict.verdict(job, view) if job else None
        going = f"Job {work.name} {verdict.stage(job)}" if job else f"Job {work.name} has not ended"
        work.close(outcomes.JobOutcome.TIMEOUT, f"{going}; it goes on without us.", why)

    def _leave(self, work: job_work.Work) -> None:
        job = work.job
        if job and job.succeeded:
            work.close(outcomes.JobOutcome.ALREADY_MOVED, f"Job {job.name} has moved {work.target} already.")
            return
        if job and job.ended:
            work.close(
                outcomes.JobOutcome.FAILED, f"Job {job.name} has failed ({job.reason or job.phase}): {job.message}"
            )
            return
        paused = job.paused if job else self.wish.paused
        there = outcomes.JobOutcome.CREATED if work.created else outcomes.JobOutcome.EXISTS
        outcome = outcomes.JobOutcome.PAUSED if paused else there
        words = "waits for approval to move" if paused else "moves"
        work.close(outcome, f"Job {work.name} {words} {work.target}.")

    def _tell(self, work: job_work.Work, text: str, what: outcomes.Outcome = phases.What.JOB) -> None:
        node = work.pod.node if work.pod else ""
        self.ctx.tell(what, text, node=node, namespace=work.target.namespace, name=work.target.name)


def _owner(work: job_work.Work) -> str:
    return str(work.pod.owner) if work.pod and work.pod.owner else "its owner"


def _moved(work: job_work.Work, job: migration_jobs.Job) -> str:
    if job.new_pod is None:
        return f"Job {job.name} evicted {work.target}."
    return f"Job {job.name} moved {work.target} to node {job.node}: {job.new_pod}."
