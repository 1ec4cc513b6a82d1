# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Jobs of ``pod_migration_job``: each is created when the controller would admit it,
and followed to its end.

A job is created once and not written again. Its ttl runs from its creation, also while a limit
holds it, so it is not created before it can be admitted, as computed from the
controller's own configuration.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_context,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    causes,
    job_status,
    migration_jobs,
    run_job_cache,
    run_tracker,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    migration_controller,
)

EXPLAIN_SECONDS = 5.0
"""Seconds in one stage after which the reason is looked for."""


@dataclass
class JobMove(run_tracker.TrackedJob):
    """One pod and its job. ``state`` is ``queued`` before the job is created,
    ``done`` once there is an outcome.

    ``siblings`` are the UIDs of the pods that its owner had when the call began, ``mode`` is that
    of a job to be created. ``note`` ends its message.
    """

    state: t.Literal["queued", "following", "replacing", "done"] = "queued"
    outcome: outcomes.JobOutcome | None = None
    message: str = ""
    cause: reasons.Reason | None = None
    new_pod: objects.Ref | None = None
    new_node: str = ""
    note: str = ""
    created: bool = False
    siblings: frozenset[str] = frozenset()
    mode: str = ""
    announced: str = ""
    announced_at: float = float("-inf")
    ended: str = ""

    @property
    def failed(self) -> bool:
        """Whether it makes the call fail; also a rejection by others, which has a cause."""
        rejected = self.outcome is outcomes.JobOutcome.REJECTED and self.cause is not None
        return rejected or (self.outcome is not None and self.outcome.failed)

    def close(
        self, outcome: outcomes.JobOutcome, message: str, cause: reasons.Reason | None = None
    ) -> None:
        """There is an outcome; nothing more is done for this pod."""
        self.state = "done"
        self.outcome = outcome
        self.cause = cause
        self.message = " ".join(filter(None, (message, cause.sentence if cause else "", self.note)))

    def announce(
        self, ctx: run_context.Context, text: str, what: outcomes.Outcome = phases.What.JOB
    ) -> None:
        """Report progress."""
        node = self.pod.node if self.pod else ""
        ctx.tell(what, text, node=node, namespace=self.target.namespace, name=self.target.name)

    def announce_stage(self, ctx: run_context.Context, cause: reasons.Reason | None = None) -> None:
        """Report where the job stands if that has changed."""
        if self.job is None:
            return
        text = f"job {self.name} {job_status.stage(self.job)}" + (
            f": {cause.message}" if cause else ""
        )
        if text != self.announced:
            self.announced = text
            self.announced_at = ctx.clock.now()
            self.announce(ctx, text)

    def to_dict(self, events: t.Sequence[objects.Raw] = ()) -> dict[str, t.Any]:
        """As the module returns it."""
        job, cause = self.job, self.cause
        new_pod = self.new_pod or (job.new_pod if job else None)
        seconds = None
        if job and job.created and self.ended:
            seconds = round(
                max(0.0, causes.seconds_of(self.ended) - causes.seconds_of(job.created)), 1
            )
        known = ("phase", "status", "reason", "node", "reservation")
        newcomer = None
        if new_pod:
            node = self.new_node or (job.node if job else "")
            newcomer = {**_shown(new_pod), "node": node}
        return {
            "name": self.name,
            "outcome": outcomes.word_of(self.outcome),
            "failed": self.failed,
            "message": self.message,
            **{key: getattr(job, key, "") for key in known},
            "cause": cause.to_dict() if cause else None,
            "pod": {**_shown(self.target), "node": self.pod.node if self.pod else ""},
            "new_pod": newcomer,
            "mode": job.mode if job else self.mode,
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
    message = f"Job {job.name} {job_status.stage(job)}" + (
        f": {job.message}" if job.message else "."
    )
    return outcomes.JobOutcome.FAILED, message


def _shown(ref: objects.Ref) -> dict[str, str]:
    return {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid}


@dataclass
class JobMoves:
    """The moves of a call, its settings, and the controller's limits (``None``: unreadable)."""

    ctx: run_context.Context
    moves: t.Sequence[JobMove]
    settings: migration_jobs.JobSettings
    controller: migration_controller.Controller | None = None

    def start(self) -> None:
        """Create every job at once, without waiting for them."""
        for move in self.moves:
            if move.state == "queued":
                self._create(move)
            if move.state == "following":
                self._leave(move)

    def predict(self, wait: bool) -> None:
        """Check mode: note the jobs that would be created, and their outcomes."""
        for move in self.moves:
            if move.state == "queued":
                self._create(move)
            if move.state == "following":
                outcome = outcomes.JobOutcome.CREATED
                if self.settings.paused:
                    outcome = outcomes.JobOutcome.PAUSED
                elif wait:
                    outcome = outcomes.JobOutcome.MOVED
                move.close(outcome, f"Job {move.name} would move {move.target}.")

    def follow(self, looks: run_job_cache.Looks, deadline: float) -> None:
        """Create the jobs as they can be admitted, and wait until each has ended,
        at most until ``deadline``.
        """
        for view in looks(deadline):
            for move in self.moves:
                self._step(move, view)
            if all(move.state == "done" for move in self.moves):
                return
        for move in self.moves:
            if move.state != "done":
                self._give_up(move, view)

    def _step(self, move: JobMove, view: job_status.View) -> None:
        if move.state == "queued":
            reason = self._held_by(move, view)
            if reason is None:
                self._create(move)
            elif reason.message != move.announced:
                move.announced = reason.message
                move.announce(self.ctx, f"no job yet: {reason.message}")
        if move.state == "following":
            self._follow(move, view)
        if move.state == "replacing":
            self._replacing(move, view)

    def _held_by(self, move: JobMove, view: job_status.View) -> reasons.Reason | None:
        """The reason that would hold a new job now."""
        pod = view.snapshot.pod(move.target.uid)
        if pod is None or self.controller is None:
            return None
        ours = {
            other.name: other.job
            for other in self.moves
            if other.job and other.state == "following"
        }
        jobs = {**ours, **view.jobs}
        # Those of this call count from their creation, before arbitration has passed them.
        jobs |= {
            name: replace(jobs[name], phase="Running") for name in ours if not jobs[name].ended
        }
        return causes.waiting(view.snapshot, pod, self.controller, jobs.values(), view.now)

    def _create(self, move: JobMove) -> None:
        body = migration_jobs.manifest(move.name, move.target, self.settings)
        ref = migration_jobs.ref_of(move.name)
        after = {"spec": body["spec"]}
        how = ", paused" if self.settings.paused else ""
        sentence = f"Create {ref} for {move.target} ({self.settings.mode}{how})"
        change = api_changes.Change("create", ref, sentence, body=body, before={}, after=after)
        try:
            run_tracker.JobTracker(self.ctx).create(move, change)
        except errors.ClusterError as error:
            move.close(outcomes.JobOutcome.FAILED, f"{move.target}: {error}")
            return
        move.state = "following"
        move.created = True
        move.announced = ""
        move.announced_at = self.ctx.clock.now()
        if not self.ctx.check:
            ttl = ""
            if self.settings.ttl:
                ttl = f", ttl {migration_jobs.go_duration(self.settings.ttl)}"
            move.announce(
                self.ctx,
                f"job {move.name} created ({self.settings.mode}{how}{ttl})",
                phases.What.JOB_CREATED,
            )

    def _follow(self, move: JobMove, view: job_status.View) -> None:
        state = run_tracker.JobTracker(self.ctx).follow(move, view.jobs, view.snapshot)
        job = t.cast("migration_jobs.Job", move.job)
        match state:
            case "deleted":
                self._deleted(move, job, view)
            case "pod gone":
                move.close(outcomes.JobOutcome.GONE, move.too_late)
            case "ended":
                self._ended(move, job, view)
            case "under way":
                silent = self.ctx.clock.now() - move.announced_at > EXPLAIN_SECONDS
                why = job_status.verdict(job, view) if silent else None
                if why or job_status.stage(job) not in move.announced:
                    move.announce_stage(self.ctx, why)

    def _deleted(self, move: JobMove, job: migration_jobs.Job, view: job_status.View) -> None:
        message = f"Job {move.name} was deleted before its end"
        if job.paused:
            message += "; a paused one is deleted five minutes after its ttl"
        if view.snapshot.pod(move.target.uid) is None:
            move.close(outcomes.JobOutcome.GONE, f"{message}, and {move.target} is gone.")
        else:
            move.close(
                outcomes.JobOutcome.DELETED,
                f"{message}. {move.target} is still in place. Run the task again.",
            )

    def _ended(self, move: JobMove, job: migration_jobs.Job, view: job_status.View) -> None:
        move.ended = self.ctx.clock.server()
        move.announce_stage(self.ctx)
        if not job.succeeded:
            why = job_status.verdict(job, view)
            if why and why.code == "pod_gone":
                move.close(outcomes.JobOutcome.GONE, move.too_late)
            elif why and why.code == "rejected":
                message = f"Job {job.name} was rejected, and {move.target} stays where it is."
                move.close(outcomes.JobOutcome.REJECTED, message, why)
            else:
                move.close(
                    outcomes.JobOutcome.FAILED, f"Job {job.name} has failed; {move.target}:", why
                )
        elif job.new_pod is None and move.pod and move.pod.owner:
            move.state = "replacing"
            move.announced_at = self.ctx.clock.now()
        else:
            where = f" to node {job.node}: {job.new_pod}" if job.new_pod else ""
            message = f"Job {job.name} {'moved' if where else 'evicted'} {move.target}{where}."
            move.close(outcomes.JobOutcome.MOVED, message)

    def _replacing(self, move: JobMove, view: job_status.View) -> None:
        """EvictDirectly ends with the old pod, the move when the workload has another Ready one."""
        owner = move.pod.owner if move.pod else None
        for pod in view.snapshot.pods:
            mine = owner and pod.owner and pod.owner.uid == owner.uid
            if mine and pod.uid not in move.siblings and pod.ready and not pod.deleting:
                move.new_pod = pod.ref
                move.new_node = pod.node
                message = (
                    f"Job {move.name} evicted {move.target}; {pod.ref} is ready on node {pod.node}."
                )
                move.close(outcomes.JobOutcome.MOVED, message)
                move.announce(self.ctx, f"{pod.namespace}/{pod.name} is ready on node {pod.node}")
                return

    def _give_up(self, move: JobMove, view: job_status.View) -> None:
        if move.state == "queued":
            move.close(
                outcomes.JobOutcome.TIMEOUT,
                f"{move.target} has no job yet:",
                self._held_by(move, view),
            )
        elif move.state == "replacing":
            owner = move.pod.owner if move.pod else None
            message = f"Job {move.name} evicted {move.target}; no new pod of {owner} is ready."
            move.close(outcomes.JobOutcome.NOT_READY, message)
        else:
            job = t.cast("migration_jobs.Job", move.job)
            message = f"Job {move.name} {job_status.stage(job)}; it continues without us."
            move.close(outcomes.JobOutcome.TIMEOUT, message, job_status.verdict(job, view))

    def _leave(self, move: JobMove) -> None:
        job = move.job
        if job and job.ended:
            move.close(*ended(job))
            return
        paused = job.paused if job else self.settings.paused
        there = outcomes.JobOutcome.CREATED if move.created else outcomes.JobOutcome.EXISTS
        outcome = outcomes.JobOutcome.PAUSED if paused else there
        words = "waits for approval to move" if paused else "moves"
        move.close(outcome, f"Job {move.name} {words} {move.target}.")
