# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""PodMigrationJobs as a part of the drain's loop: created at the rate of their admission, followed, cleaned up.

A job is its own record: it is created under a name that follows from its pod's UID, and carries run, node and
pod. A run that takes over finds it by these, so nobody is moved twice.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import migration_jobs, verdict
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import phases, pod_plan, snapshots
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, pod_moves
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import (
    cleanup,
    job_view,
    job_writes,
    starter,
    tracker,
)

LOOK_EVERY = 0.25
"""Seconds between two looks at who may start: many things change, and few of them make room."""
HOPELESS = 2
"""Jobs in a row whose Reservation no scheduler looked at for their whole ttl; then no more are made."""
OVERDUE = 60.0
"""Seconds after a job's ttl: its controller would have ended it by then if it were there."""


class JobDispatcher:
    """All jobs of a drain. ``fence`` is called right before each request, ``wake`` on news of a job.

    ``runs`` are the ids of the runs that hold the nodes, by node. ``deadline`` is when the drain ends at the latest.
    ``prior`` is what workloads with a surge want without it, by their UID.
    """

    def __init__(
        self,
        ctx: context.Context,
        choices: pod_plan.Choices,
        fence: t.Callable[[], None],
        wake: t.Callable[[], None],
        runs: t.Mapping[str, str],
        grace_seconds: int | None = None,
        deadline: float = float("inf"),
        prior: t.Mapping[str, int] | None = None,
    ) -> None:
        self.ctx = ctx
        self._view = job_view.JobView(ctx, wake) if choices.controller else None
        self._tracker = tracker.JobTracker(ctx, fence)
        self._cleanup = cleanup.JobCleanup(ctx, fence)
        self._flights: dict[str, starter.Flight] = {}
        self._starter = starter.JobStarter(
            ctx, choices, self._tracker, self._flights, runs, grace_seconds, deadline, prior or {}
        )
        self._looked = float("-inf")
        self._hopeless = 0

    def start(self) -> None:
        """Start to watch the jobs; without a controller there is nothing to do, ever."""
        if self._view:
            self._view.__enter__()
            self._starter.recall(self._view.jobs().values())

    def stop(self) -> None:
        """Stop watching; jobs that are under way go on."""
        if self._view:
            self._view.__exit__(None, None, None)

    def step(self, snapshot: snapshots.Snapshot, moves: t.Sequence[pod_moves.Move]) -> None:
        """Do what can be done now, without waiting; ``moves`` are those of nodes that are still to be emptied.

        Raises:
            StopRun: jobs cannot be watched any more, or the lock was lost.
        """
        if self._view is None:
            return
        view = self._starter.view(snapshot, self._view.jobs())
        for flight in self._flights.values():
            if not flight.over:
                self._follow(flight, view)
        now = self.ctx.clock.now()
        if now - self._looked >= LOOK_EVERY:
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
            if job.name not in self._flights and not job.ended and cleanup.serves(job, node):
                flight = starter.Flight(job.pod, None, job.name, node=node, until=self.ctx.clock.now() + job.ttl)
                self._flights[job.name] = flight
                self._tracker.adopt(flight, job)
        return not self.flying(node) and self._cleanup.done_with(node, jobs)

    def abandon(self, node: str, why: str) -> None:
        """Give up the jobs of a node that is not emptied after all: they would move its pods later on.

        Those that have evicted their pod already end without us.
        """
        if self._view is None:
            return
        flights = [flight for flight in self._flights.values() if flight.node == node]
        unseen = [flight.name for flight in flights if not flight.over and not flight.seen]
        fresh = {name: job for name in unseen if (job := job_writes.reread(self.ctx, name))}
        for job in {**self._view.jobs(), **fresh}.values():
            if cleanup.serves(job, node) and not (job.evicting and not job.ended):
                self._tracker.give_up(job, why)
        for flight in flights:
            flight.over = True

    def predicted(self, move: pod_moves.Move) -> None:
        """Note the job that would be created, for check mode."""
        self.ctx.changed(self._starter.change(move, 0, 0.0))

    def _follow(self, flight: starter.Flight, view: verdict.View) -> None:
        state = self._tracker.follow(flight, view.jobs, view.snapshot)
        job, move = flight.job, flight.move
        if job is None or state == "unseen":
            return
        flight.over = state != "under way"
        waits = move is not None and move.state == "waiting"
        if job.evicting and not flight.evicted and state != "deleted":
            self._evicted(flight, job)
        if state == "deleted" and waits:
            self._came_to_nothing(flight, "the job was deleted by somebody.")
        elif state == "ended":
            self._hopeless = 0 if job.condition("ReservationScheduled") else self._hopeless
            if waits and not job.succeeded:
                self._failed(flight, job, view)
        elif state == "under way" and self.ctx.clock.now() > flight.until + OVERDUE:
            # A job that has evicted its pod ends without us; the drain's own deadline holds for the pod.
            flight.over = move is None or (waits and not flight.evicted)
            if flight.over and waits:
                self._overdue(flight, job, view)

    def _evicted(self, flight: starter.Flight, job: migration_jobs.Job) -> None:
        flight.evicted = True
        if flight.move is None:
            return
        pod = flight.move.pod
        flight.move.blocked_by = None
        self._starter.took(pod)
        place = f" for node {job.node}" if job.node else ""
        said = f"PodMigrationJob {job.name} evicts {pod.ref}{place}"
        self.ctx.note(phases.What.EVICTED, said, node=pod.node, namespace=pod.namespace, name=pod.name)

    def _failed(self, flight: starter.Flight, job: migration_jobs.Job, view: verdict.View) -> None:
        found = verdict.verdict(job, view)
        why = found.message if found else job.message or job.reason
        created, answered = job.condition("ReservationCreated"), job.condition("ReservationScheduled")
        if job.reason == "Timeout" and created.get("status") == "True" and not answered:
            self._hopeless += 1
            if self._hopeless >= HOPELESS:
                self._starter.broken = f"{self._hopeless} jobs in a row got no answer from their scheduler."
        self._came_to_nothing(flight, why)

    def _overdue(self, flight: starter.Flight, job: migration_jobs.Job, view: verdict.View) -> None:
        why = f"PodMigrationJob {job.name}, which somebody else made for it, does not move it."
        if flight.ours:
            found = verdict.verdict(job, view)
            self._starter.broken = f"koord-descheduler does not end PodMigrationJob {job.name}, whose ttl is over."
            why = " ".join(part for part in (self._starter.broken, found.message if found else "") if part)
            self._tracker.give_up(job, why)
        self._came_to_nothing(flight, why)

    def _came_to_nothing(self, flight: starter.Flight, why: str) -> None:
        move = t.cast("pod_moves.Move", flight.move)
        said = f"PodMigrationJob {flight.name} came to nothing: {why}"
        self.ctx.tell(phases.What.JOB_FAILED, said, node=flight.node, namespace=move.pod.namespace, name=move.pod.name)
        self._starter.instead(move, why)
