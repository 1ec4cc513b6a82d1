# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Jobs of ``pod_migration_job``: each is created when the controller would admit it, and followed to its end.

A job is created once and not written again. Its ttl runs from its creation, also while a limit holds it, so it is
not created before it can be admitted, as computed from the controller's own configuration.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import causes, migration_jobs, verdict
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    migration_controller,
    objects,
    outcomes,
    phases,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import job_view, tracker

EXPLAIN = 5.0
"""Seconds in one stage after which the reason is looked for."""


@dataclass
class Work(tracker.Tracked):
    """One pod and its job. ``state`` is ``queued`` before the job is created, ``done`` once there is an outcome.

    ``siblings`` are the UIDs of the pods that its owner had when the call began.
    """

    state: t.Literal["queued", "following", "replacing", "done"] = "queued"
    outcome: outcomes.JobOutcome | None = None
    message: str = ""
    cause: reasons.Reason | None = None
    new_pod: objects.Ref | None = None
    created: bool = False
    siblings: frozenset[str] = frozenset()
    told: str = ""
    told_at: float = 0.0
    ended: str = ""

    @property
    def failed(self) -> bool:
        """Whether it makes the call fail."""
        return self.outcome is not None and self.outcome.failed

    def close(self, outcome: outcomes.JobOutcome, message: str, cause: reasons.Reason | None = None) -> None:
        """There is an outcome; nothing more is done for this pod."""
        self.state, self.outcome, self.cause = "done", outcome, cause
        self.message = f"{message} {cause.sentence}".strip() if cause else message

    def announce(self, ctx: context.Context, text: str, what: outcomes.Outcome = phases.What.JOB) -> None:
        """Report progress."""
        node = self.pod.node if self.pod else ""
        ctx.tell(what, text, node=node, namespace=self.target.namespace, name=self.target.name)

    def announce_stage(self, ctx: context.Context, cause: reasons.Reason | None = None) -> None:
        """Report where the job stands if that has changed."""
        if self.job is None:
            return
        text = f"job {self.name} {verdict.stage(self.job)}" + (f": {cause.message}" if cause else "")
        if text != self.told:
            self.told, self.told_at = text, ctx.clock.now()
            self.announce(ctx, text)

    def to_dict(self, events: t.Sequence[objects.Raw] = ()) -> dict[str, t.Any]:
        """As the module returns it."""
        job, cause = self.job, self.cause
        new_pod = self.new_pod or (job.new_pod if job else None)
        seconds = None
        if job and job.created and self.ended:
            seconds = round(max(0.0, causes.seconds_of(self.ended) - causes.seconds_of(job.created)), 1)
        known = ("phase", "status", "reason", "node", "reservation", "mode")
        return {
            "name": self.name,
            "outcome": outcomes.word_of(self.outcome),
            "failed": self.failed,
            "message": self.message,
            **{key: getattr(job, key, "") for key in known},
            "cause": cause.to_dict() if cause else None,
            "pod": {**_shown(self.target), "node": self.pod.node if self.pod else ""},
            "new_pod": _shown(new_pod) if new_pod else None,
            "paused": job is not None and job.paused,
            "ttl": job.ttl if job else 0.0,
            "seconds": seconds,
            "conditions": [dict(condition) for condition in job.conditions] if job else [],
            "events": [dict(event) for event in events],
        }


def ended(job: migration_jobs.Job) -> tuple[outcomes.JobOutcome, str]:
    """Outcome and message for a job that ended before this call."""
    if job.succeeded:
        return outcomes.JobOutcome.ALREADY_MOVED, f"Job {job.name} has already moved {job.pod}."
    return outcomes.JobOutcome.FAILED, f"Job {job.name} has failed ({job.reason or job.phase}): {job.message}"


def _shown(ref: objects.Ref) -> dict[str, str]:
    return {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid}


@dataclass
class Moves:
    """The works of a call, its wish, and the limits of the controller (``None``: unreadable)."""

    ctx: context.Context
    works: t.Sequence[Work]
    wish: migration_jobs.Wish
    controller: migration_controller.Controller | None = None

    def start(self) -> None:
        """Create every job at once, without waiting for them."""
        for work in self.works:
            if work.state == "queued":
                self._create(work)
            if work.state == "following":
                self._leave(work)

    def predict(self, wait: bool) -> None:
        """Check mode: note the jobs that would be created, and their outcomes."""
        for work in self.works:
            if work.state == "queued":
                self._create(work)
            if work.state == "following":
                without = outcomes.JobOutcome.PAUSED if self.wish.paused else outcomes.JobOutcome.CREATED
                outcome = outcomes.JobOutcome.MOVED if wait and not self.wish.paused else without
                work.close(outcome, f"Job {work.name} would move {work.target}.")

    def follow(self, looks: job_view.Looks, deadline: float) -> None:
        """Create the jobs as they can be admitted, and wait until each has ended, at most until ``deadline``."""
        for view in looks(deadline):
            for work in self.works:
                self._step(work, view)
            if all(work.state == "done" for work in self.works):
                return
        for work in self.works:
            if work.state != "done":
                self._give_up(work, view)

    def _step(self, work: Work, view: verdict.View) -> None:
        if work.state == "queued":
            held = self._held(work, view)
            if held is None:
                self._create(work)
            elif held.message != work.told:
                work.told = held.message
                work.announce(self.ctx, f"no job yet: {held.message}")
        if work.state == "following":
            self._follow(work, view)
        if work.state == "replacing":
            self._replacing(work, view)

    def _held(self, work: Work, view: verdict.View) -> reasons.Reason | None:
        """What would hold a new job now."""
        pod = view.snapshot.pod(work.target.uid)
        if pod is None or self.controller is None:
            return None
        ours = {other.name: other.job for other in self.works if other.job and other.state == "following"}
        jobs = {**ours, **view.jobs}
        # Those of this call count from their creation, before arbitration has passed them.
        jobs |= {name: replace(jobs[name], phase="Running") for name in ours if not jobs[name].ended}
        return causes.waiting(view.snapshot, pod, self.controller, jobs.values(), view.now)

    def _create(self, work: Work) -> None:
        body = migration_jobs.manifest(work.name, work.target, self.wish)
        ref = migration_jobs.ref_of(work.name)
        after = {"spec": body["spec"]}
        how = ", paused" if self.wish.paused else ""
        sentence = f"Create {ref} for {work.target} ({self.wish.mode}{how})"
        change = api_changes.Change("create", ref, sentence, body=body, before={}, after=after)
        try:
            tracker.JobTracker(self.ctx).create(work, change)
        except errors.ClusterError as error:
            work.close(outcomes.JobOutcome.FAILED, f"{work.target}: {error}")
            return
        work.state, work.created = "following", True
        work.told, work.told_at = "", self.ctx.clock.now()
        if not self.ctx.check:
            ttl = f", ttl {migration_jobs.go_duration(self.wish.ttl)}" if self.wish.ttl else ""
            work.announce(self.ctx, f"job {work.name} created ({self.wish.mode}{how}{ttl})", phases.What.JOB_CREATED)

    def _follow(self, work: Work, view: verdict.View) -> None:
        state = tracker.JobTracker(self.ctx).follow(work, view.jobs, view.snapshot)
        job = t.cast("migration_jobs.Job", work.job)
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
                    work.announce_stage(self.ctx, why)

    def _deleted(self, work: Work, view: verdict.View) -> None:
        job = work.job
        said = f"Job {work.name} was deleted before its end"
        if job and job.paused:
            said += "; a paused one is deleted five minutes after its ttl"
        if view.snapshot.pod(work.target.uid) is None:
            work.close(outcomes.JobOutcome.GONE, f"{said}, and {work.target} is gone.")
        else:
            work.close(outcomes.JobOutcome.DELETED, f"{said}. {work.target} is still in place. Run the task again.")

    def _ended(self, work: Work, job: migration_jobs.Job, view: verdict.View) -> None:
        work.ended = self.ctx.clock.server()
        work.announce_stage(self.ctx)
        if not job.succeeded:
            why = verdict.verdict(job, view)
            if why and why.code == "pod_gone":
                work.close(outcomes.JobOutcome.GONE, work.too_late)
            else:
                work.close(outcomes.JobOutcome.FAILED, f"Job {job.name} has failed; {work.target}:", why)
        elif job.new_pod is None and work.pod and work.pod.owner:
            work.state, work.told_at = "replacing", self.ctx.clock.now()
        else:
            where = f" to node {job.node}: {job.new_pod}" if job.new_pod else ""
            said = f"Job {job.name} {'moved' if where else 'evicted'} {work.target}{where}."
            work.close(outcomes.JobOutcome.MOVED, said)

    def _replacing(self, work: Work, view: verdict.View) -> None:
        """EvictDirectly ends with the old pod; the move ends when the workload has another one that is Ready."""
        owner = work.pod.owner if work.pod else None
        for pod in view.snapshot.pods:
            mine = owner and pod.owner and pod.owner.uid == owner.uid
            if mine and pod.uid not in work.siblings and pod.ready and not pod.deleting:
                work.new_pod = pod.ref
                said = f"Job {work.name} evicted {work.target}; {pod.ref} is ready on node {pod.node}."
                work.close(outcomes.JobOutcome.MOVED, said)
                work.announce(self.ctx, f"{pod.namespace}/{pod.name} is ready on node {pod.node}")
                return

    def _give_up(self, work: Work, view: verdict.View) -> None:
        if work.state == "queued":
            work.close(outcomes.JobOutcome.TIMEOUT, f"{work.target} has no job yet:", self._held(work, view))
        elif work.state == "replacing":
            owner = work.pod.owner if work.pod else None
            said = f"Job {work.name} evicted {work.target}; no new pod of {owner} is ready."
            work.close(outcomes.JobOutcome.NOT_READY, said)
        else:
            job = t.cast("migration_jobs.Job", work.job)
            said = f"Job {work.name} {verdict.stage(job)}; it continues without us."
            work.close(outcomes.JobOutcome.TIMEOUT, said, verdict.verdict(job, view))

    def _leave(self, work: Work) -> None:
        job = work.job
        if job and job.ended:
            work.close(*ended(job))
            return
        paused = job.paused if job else self.wish.paused
        there = outcomes.JobOutcome.CREATED if work.created else outcomes.JobOutcome.EXISTS
        outcome = outcomes.JobOutcome.PAUSED if paused else there
        words = "waits for approval to move" if paused else "moves"
        work.close(outcome, f"Job {work.name} {words} {work.target}.")
