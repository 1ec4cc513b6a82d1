# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""PodMigrationJobs as a part of the drain's loop: created at the rate of their admission,
followed, cleaned up.

A job is its own record: its name is derived from its pod's UID, and it carries the run, node and
pod. A run that takes over finds it by these, so that no pod is moved twice.
"""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    run_context,
    run_requests,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    job_status,
    migration_jobs,
    run_job_cache,
    run_job_writes,
    run_leftovers,
    run_starter,
    run_tracker,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    phases,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    run_pod_drain,
)

# Jobs of nodes that are not drained after all: each is ended as soon as it has passed arbitration.


@dataclass
class AbandonedJobs:
    """Those of a drain's ``flights`` whose ``abandoned`` says why they have to end."""

    ctx: run_context.Context
    tracker: run_tracker.JobTracker
    flights: t.Mapping[str, run_starter.InFlightJob]

    def end(self, jobs: t.Mapping[str, migration_jobs.Job]) -> list[run_starter.InFlightJob]:
        """End those that have passed; returns the others. One that has evicted its pod goes on."""
        left = [flight for flight in self.flights.values() if flight.abandoned and not flight.over]
        for flight in left:
            if job := jobs.get(flight.name):
                flight.job = job
                flight.seen = True
                flight.over = not job.waiting
                if flight.over and (job.ended or not job.evicting):
                    self.tracker.give_up(job, flight.abandoned)
            elif flight.seen:
                flight.over = True
        return [flight for flight in left if not flight.over]

    def let_pass(self, view: run_job_cache.JobView) -> None:
        """Wait until all have passed and ended, for ``PASSES_SECONDS``; give the rest up."""
        with contextlib.suppress(run_context.CallAborted):
            for late in self.ctx.poll(run_starter.LOOK_EVERY_SECONDS, run_tracker.PASSES_SECONDS):
                left = self.end(view.jobs())
                if not left:
                    return
                if late:
                    for flight in left:
                        self.tracker.give_up(
                            t.cast("migration_jobs.Job", flight.job), flight.abandoned
                        )


MAX_UNANSWERED_JOBS = 2
"""After so many jobs in a row whose Reservation no scheduler handled, no more are created."""
OVERDUE_SECONDS = 60.0
"""Seconds after a job's ttl: its controller would have ended it by then if it were there."""
EXPLAIN_SECONDS = 5.0
"""Seconds without news of a job after which a message says what holds it."""


class JobDispatcher:
    """All PodMigrationJobs of a drain: creates, follows and deletes them, and evicts their pods
    instead where they fail. ``prove_lock`` is called right before each request, ``wake`` when a
    job has changed.

    ``runs`` are the ids of the runs that hold the nodes, by node. ``deadline`` is when the drain
    ends at the latest. ``prior`` is what workloads with a surge want without it, by their UID.
    ``waited_for`` says for which jobs the drain waits after their pods have gone.
    """

    def __init__(
        self,
        ctx: run_context.Context,
        choices: drain_policy.DrainPolicy,
        prove_lock: run_requests.ProveLock,
        wake: t.Callable[[], None],
        runs: t.Mapping[str, str],
        grace_seconds: int | None,
        deadline: float,
        prior: t.Mapping[str, int],
    ) -> None:
        self.ctx = ctx
        self._view = run_job_cache.JobView(ctx, wake) if choices.controller else None
        self._tracker = run_tracker.JobTracker(ctx, prove_lock)
        self._cleanup = run_leftovers.JobCleanup(ctx, prove_lock)
        self._starter = run_starter.JobStarter(
            ctx, choices, self._tracker, runs, grace_seconds, deadline, prior
        )
        self._flights = self._starter.flights
        self._abandoned = AbandonedJobs(ctx, self._tracker, self._flights)
        self.waited_for: list[str] = []
        self._looked = float("-inf")
        self._unanswered = 0

    def start(self) -> None:
        """Start to watch the jobs; without a controller there is nothing to do, ever."""
        if self._view:
            self._view.start()

    def stop(self) -> None:
        """Stop watching, once abandoned jobs had time to pass arbitration; others continue."""
        if self._view:
            try:
                self._abandoned.let_pass(self._view)
            finally:
                self._view.stop()

    def step(self, snapshot: snapshots.Snapshot, moves: t.Sequence[run_pod_drain.PodDrain]) -> None:
        """Do what can be done now, without waiting; ``moves`` are those of nodes that
        still have to be drained.

        Raises:
            CallAborted: jobs cannot be watched any more, or the lock was lost.
        """
        if self._view is None:
            return
        view = self._starter.view(snapshot, self._view.jobs())
        self._abandoned.end(view.jobs)
        self.waited_for = []
        for flight in self._flights.values():
            if not flight.over and not flight.abandoned:
                self._follow(flight, view)
        now = self.ctx.clock.now()
        if now - self._looked >= run_starter.LOOK_EVERY_SECONDS:
            self._looked = now
            self._starter.start(moves, view)

    def flying(self, node: str) -> bool:
        """Whether jobs for pods of the node are under way."""
        return any(not flight.over for flight in self._flights.values() if flight.node == node)

    def done_with(self, node: str) -> bool:
        """Whether nothing is left of the node's jobs; deletes ended ones and their Reservations."""
        if self._view is None:
            return True
        jobs = self._view.jobs()
        for job in jobs.values():
            # Its pod left before this call began: the job is of a run that was killed,
            # as its controller may be.
            if job.name not in self._flights and not job.ended and run_leftovers.serves(job, node):
                flight = run_starter.InFlightJob(
                    job.pod, None, job.name, node=node, until=self.ctx.clock.now() + job.ttl
                )
                self._flights[job.name] = flight
                self._tracker.adopt(flight, job)
        return not self.flying(node) and self._cleanup.done_with(node, jobs)

    def abandon(self, node: str, why: str) -> None:
        """Give up the jobs of a node that is not drained after all: they would move its pods later.

        Jobs that have evicted their pod already are left to end,
        paused ones to the person who paused them.
        """
        if self._view is None:
            return
        flights = [flight for flight in self._flights.values() if flight.node == node]
        unseen = [flight.name for flight in flights if not flight.over and not flight.seen]
        fresh = {name: job for name in unseen if (job := run_job_writes.reread(self.ctx, name))}
        for flight in flights:
            flight.over = True
        for job in {**self._view.jobs(), **fresh}.values():
            goes_on = not job.ended and (job.evicting or job.paused)
            if goes_on or not run_leftovers.serves(job, node):
                continue
            if job.waiting:
                flight = run_starter.InFlightJob(
                    job.pod, None, job.name, job, node=node, abandoned=why
                )
                self._flights[job.name] = flight
            else:
                self._tracker.give_up(job, why)

    def predicted(self, move: run_pod_drain.PodDrain) -> None:
        """Note the job that would be created, for check mode."""
        self.ctx.changed(self._starter.change(move, 0, 0.0))

    def _follow(self, flight: run_starter.InFlightJob, view: job_status.View) -> None:
        state = self._tracker.follow(flight, view.jobs, view.snapshot)
        job = t.cast("migration_jobs.Job", flight.job)
        if state == "unseen":
            return
        flight.over = state != "under way"
        if job.evicting and not flight.evicted and state != "deleted":
            self._evicted(flight, job)
        if state == "deleted" and flight.waited_for:
            self._fall_back(flight, "the job was deleted by another client.")
        elif state == "ended":
            if job.condition("ReservationScheduled"):
                self._unanswered = 0
            if flight.waited_for and not job.succeeded:
                self._failed(flight, job, view)
        elif state == "under way":
            self._wait(flight, job, view)

    def _wait(
        self, flight: run_starter.InFlightJob, job: migration_jobs.Job, view: job_status.View
    ) -> None:
        """Say what holds the job, and go on without it when it has had its time."""
        now = self.ctx.clock.now()
        move = flight.move
        overdue = now > flight.until + OVERDUE_SECONDS and not job.paused
        if move is None or not flight.waited_for or flight.evicted:
            # A job that has evicted its pod ends without us; the drain's own
            # deadline holds for the pod.
            if overdue and (move is None or move.done):
                flight.over = True
                why = f"koord-descheduler does not end PodMigrationJob {job.name}, after its ttl."
                self.ctx.tell(phases.What.JOB_FAILED, why, node=flight.node)
                self._tracker.give_up(job, why)
            elif now - flight.news >= EXPLAIN_SECONDS:
                self.waited_for.append(job_status.described(job, view))
            return
        waits = self._starter.waits
        others = job.paused or not flight.ours
        limited = others or self._starter.choices.backend == "auto"
        if now - flight.news >= EXPLAIN_SECONDS:
            message = waits.ending(job_status.described(job, view), limited=limited)
            move.block(job.ref, message)
        if overdue and not others:
            self._overdue(flight, job, view)
        elif limited and waits.over(move, view.snapshot, self._starter.leaving, now):
            # One that waits for arbitration is not written: without its pod it passes, and ends.
            flight.over = others or not job.waiting
            why = job_status.described(job, view)
            if flight.over and not others:
                self._tracker.give_up(job, why)
            self._fall_back(flight, why)

    def _evicted(self, flight: run_starter.InFlightJob, job: migration_jobs.Job) -> None:
        flight.evicted = True
        if flight.move is None:
            return
        pod = flight.move.pod
        flight.move.blocked_by = None
        place = f" for node {job.node}" if job.node else ""
        message = f"PodMigrationJob {job.name} evicts {pod.ref}{place}"
        self.ctx.note(
            phases.What.EVICTED, message, node=pod.node, namespace=pod.namespace, name=pod.name
        )

    def _failed(
        self, flight: run_starter.InFlightJob, job: migration_jobs.Job, view: job_status.View
    ) -> None:
        why = t.cast(reasons.Reason, job_status.verdict(job, view)).message
        reserves = job.condition("ReservationCreated").get("status") == "True"
        if job.reason == "Timeout" and reserves and not job.condition("ReservationScheduled"):
            self._unanswered += 1
            if self._unanswered >= MAX_UNANSWERED_JOBS:
                self._starter.broken = (
                    f"{self._unanswered} jobs in a row got no answer from their scheduler."
                )
        self._fall_back(flight, why)

    def _overdue(
        self, flight: run_starter.InFlightJob, job: migration_jobs.Job, view: job_status.View
    ) -> None:
        silent = f"koord-descheduler does not end PodMigrationJob {job.name}, after its ttl."
        found = job_status.verdict(job, view)
        if job_status.unanswered(job, view.jobs.values()):
            self._starter.broken = silent
        why = " ".join(part for part in (silent, found.message if found else "") if part)
        flight.over = not job.waiting
        if flight.over:
            self._tracker.give_up(job, why)
        self._fall_back(flight, why)

    def _fall_back(self, flight: run_starter.InFlightJob, why: str) -> None:
        move = t.cast("run_pod_drain.PodDrain", flight.move)
        message = f"PodMigrationJob {flight.name} did not move it: {why}"
        self.ctx.tell(
            phases.What.JOB_FAILED,
            message,
            node=flight.node,
            namespace=move.pod.namespace,
            name=move.pod.name,
        )
        self._starter.instead(move, why)
