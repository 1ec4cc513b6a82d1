# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""PodMigrationJobs as a part of the drain's loop: created at the rate of their admission, followed, cleaned up.

A job is its own record: its name is derived from its pod's UID, and it carries the run, node and pod. A run that
takes over finds it by these, so that no pod is moved twice.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import migration_jobs, verdict
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    phases,
    pod_plan,
    reasons,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, pod_moves
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import (
    abandoned,
    job_view,
    job_writes,
    leftovers,
    starter,
    tracker,
)

HOPELESS = 2
"""No more jobs are created after this many in a row whose Reservation no scheduler handled."""
OVERDUE = 60.0
"""Seconds after a job's ttl: its controller would have ended it by then if it were there."""
EXPLAIN = 5.0
"""Seconds without news of a job after which it is said what holds it."""


class JobDispatcher:
    """All jobs of a drain. ``fence`` is called right before each request, ``wake`` on news of a job.

    ``runs`` are the ids of the runs that hold the nodes, by node. ``deadline`` is when the drain ends at the latest.
    ``prior`` is what workloads with a surge want without it, by their UID. ``waited_for`` says for which jobs the drain
    waits after their pods have gone.
    """

    def __init__(
        self,
        ctx: context.Context,
        choices: pod_plan.Choices,
        fence: act.Fence,
        wake: t.Callable[[], None],
        runs: t.Mapping[str, str],
        grace_seconds: int | None,
        deadline: float,
        prior: t.Mapping[str, int],
    ) -> None:
        self.ctx = ctx
        self._view = job_view.JobView(ctx, wake) if choices.controller else None
        self._tracker = tracker.JobTracker(ctx, fence)
        self._cleanup = leftovers.JobCleanup(ctx, fence)
        self._starter = starter.JobStarter(ctx, choices, self._tracker, runs, grace_seconds, deadline, prior)
        self._flights = self._starter.flights
        self._abandoned = abandoned.AbandonedJobs(ctx, self._tracker, self._flights)
        self.waited_for: list[str] = []
        self._looked = float("-inf")
        self._hopeless = 0

    def start(self) -> None:
        """Start to watch the jobs; without a controller there is nothing to do, ever."""
        if self._view:
            self._view.start()

    def stop(self) -> None:
        """Stop watching, once abandoned jobs have passed arbitration or had time for it; jobs under way continue."""
        if self._view:
            try:
                self._abandoned.let_pass(self._view)
            finally:
                self._view.stop()

    def step(self, snapshot: snapshots.Snapshot, moves: t.Sequence[pod_moves.Move]) -> None:
        """Do what can be done now, without waiting; ``moves`` are those of nodes that still have to be drained.

        Raises:
            StopRun: jobs cannot be watched any more, or the lock was lost.
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
        if now - self._looked >= starter.LOOK_EVERY:
            self._looked = now
            self._starter.start(moves, view)

    def flying(self, node: str) -> bool:
        """Whether jobs for pods of the node are under way."""
        return any(not flight.over for flight in self._flights.values() if flight.node == node)

    def done_with(self, node: str) -> bool:
        """Whether nothing is left of the node's jobs; deletes those that have ended, and their Reservations."""
        if self._view is None:
            return True
        jobs = self._view.jobs()
        for job in jobs.values():
            # Its pod left before this call began: the job is of a run that was killed, as its controller may be.
            if job.name not in self._flights and not job.ended and leftovers.serves(job, node):
                flight = starter.InFlightJob(job.pod, None, job.name, node=node, until=self.ctx.clock.now() + job.ttl)
                self._flights[job.name] = flight
                self._tracker.adopt(flight, job)
        return not self.flying(node) and self._cleanup.done_with(node, jobs)

    def abandon(self, node: str, why: str) -> None:
        """Give up the jobs of a node that is not drained after all: they would move its pods later.

        Jobs that have evicted their pod already are left to end, paused ones to the person who paused them.
        """
        if self._view is None:
            return
        flights = [flight for flight in self._flights.values() if flight.node == node]
        unseen = [flight.name for flight in flights if not flight.over and not flight.seen]
        fresh = {name: job for name in unseen if (job := job_writes.reread(self.ctx, name))}
        for flight in flights:
            flight.over = True
        for job in {**self._view.jobs(), **fresh}.values():
            if not leftovers.serves(job, node) or (not job.ended and (job.evicting or job.paused)):
                continue
            if job.waiting:
                flight = starter.InFlightJob(job.pod, None, job.name, job, node=node, abandoned=why)
                self._flights[job.name] = flight
            else:
                self._tracker.give_up(job, why)

    def predicted(self, move: pod_moves.Move) -> None:
        """Note the job that would be created, for check mode."""
        self.ctx.changed(self._starter.change(move, 0, 0.0))

    def _follow(self, flight: starter.InFlightJob, view: verdict.View) -> None:
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
            self._hopeless = 0 if job.condition("ReservationScheduled") else self._hopeless
            if flight.waited_for and not job.succeeded:
                self._failed(flight, job, view)
        elif state == "under way":
            self._wait(flight, job, view)

    def _wait(self, flight: starter.InFlightJob, job: migration_jobs.Job, view: verdict.View) -> None:
        """Say what holds the job, and go on without it when it has had its time."""
        now, move = self.ctx.clock.now(), flight.move
        overdue = now > flight.until + OVERDUE and not job.paused
        if move is None or not flight.waited_for or flight.evicted:
            # A job that has evicted its pod ends without us; the drain's own deadline holds for the pod.
            if overdue and (move is None or move.done):
                flight.over, why = True, f"koord-descheduler does not end PodMigrationJob {job.name}, after its ttl."
                self.ctx.tell(phases.What.JOB_FAILED, why, node=flight.node)
                self._tracker.give_up(job, why)
            elif now - flight.news >= EXPLAIN:
                self.waited_for.append(verdict.told(job, view))
            return
        waits, others = self._starter.waits, job.paused or not flight.ours
        limited = others or self._starter.choices.backend == "auto"
        if now - flight.news >= EXPLAIN:
            message = waits.ending(verdict.told(job, view), limited=limited)
            move.block(migration_jobs.KIND, "", job.name, message)
        if overdue and not others:
            self._overdue(flight, job, view)
        elif limited and waits.over(move, view.snapshot, self._starter.leaving, now):
            # One that waits for arbitration is not written: without its pod it passes, and ends.
            flight.over = others or not job.waiting
            why = verdict.told(job, view)
            if flight.over and not others:
                self._tracker.give_up(job, why)
            self._fall_back(flight, why)

    def _evicted(self, flight: starter.InFlightJob, job: migration_jobs.Job) -> None:
        flight.evicted = True
        if flight.move is None:
            return
        pod = flight.move.pod
        flight.move.blocked_by = None
        place = f" for node {job.node}" if job.node else ""
        message = f"PodMigrationJob {job.name} evicts {pod.ref}{place}"
        self.ctx.note(phases.What.EVICTED, message, node=pod.node, namespace=pod.namespace, name=pod.name)

    def _failed(self, flight: starter.InFlightJob, job: migration_jobs.Job, view: verdict.View) -> None:
        why = t.cast(reasons.Reason, verdict.verdict(job, view)).message
        created, answered = job.condition("ReservationCreated"), job.condition("ReservationScheduled")
        if job.reason == "Timeout" and created.get("status") == "True" and not answered:
            self._hopeless += 1
            if self._hopeless >= HOPELESS:
                self._starter.broken = f"{self._hopeless} jobs in a row got no answer from their scheduler."
        self._fall_back(flight, why)

    def _overdue(self, flight: starter.InFlightJob, job: migration_jobs.Job, view: verdict.View) -> None:
        silent = f"koord-descheduler does not end PodMigrationJob {job.name}, after its ttl."
        found = verdict.verdict(job, view)
        if verdict.unanswered(job, view.jobs.values()):
            self._starter.broken = silent
        why = " ".join(part for part in (silent, found.message if found else "") if part)
        flight.over = not job.waiting
        if flight.over:
            self._tracker.give_up(job, why)
        self._fall_back(flight, why)

    def _fall_back(self, flight: starter.InFlightJob, why: str) -> None:
        move = t.cast("pod_moves.Move", flight.move)
        message = f"PodMigrationJob {flight.name} did not move it: {why}"
        self.ctx.tell(
            phases.What.JOB_FAILED, message, node=flight.node, namespace=move.pod.namespace, name=move.pod.name
        )
        self._starter.instead(move, why)
