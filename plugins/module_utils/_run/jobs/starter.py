# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which pods of a drain get a PodMigrationJob now, and what becomes of those that get none."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import (
    causes,
    feed,
    migration_jobs,
    verdict,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    migration_controller,
    names,
    objects,
    outcomes,
    phases,
    pod_plan,
    reasons,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import job_route
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, pod_moves, writing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import tracker

SHORT = 0.25
"""Seconds; a longer pause between two evictions by ``evictQPS`` is kept between two creations, too."""
TRIES = writing.HICCUPS + 1
"""How often a job's creation is decided at one look: the other moves wait meanwhile."""


@dataclass
class Flight(tracker.Tracked):
    """One job under job_route. ``move`` is ``None`` where the pod left before this call began.

    ``until`` is when its ttl is over, on the context's monotonic clock.
    """

    move: pod_moves.Move | None = None
    node: str = ""
    until: float = 0.0
    evicted: bool = False
    over: bool = False


@dataclass
class JobStarter:
    """Creates the jobs of a drain, or adopts them; for the attributes see ``JobDispatcher``.

    ``flights`` are the jobs by name. ``broken`` is why no more jobs are created.
    """

    ctx: context.Context
    choices: pod_plan.Choices
    tracker: tracker.JobTracker
    flights: dict[str, Flight]
    runs: t.Mapping[str, str]
    grace_seconds: int | None
    deadline: float
    prior: t.Mapping[str, int]
    broken: str = ""
    _taken: dict[causes.Key, list[float]] = field(default_factory=dict)
    _held_since: dict[str, float] = field(default_factory=dict)
    _next: float = 0.0

    def view(self, snapshot: snapshots.Snapshot, jobs: t.Mapping[str, migration_jobs.Job]) -> verdict.View:
        """What a verdict on a job is made from."""
        return verdict.View(snapshot, self.choices.controller, jobs, self.ctx.clock.server())

    def recall(self, jobs: t.Iterable[migration_jobs.Job]) -> None:
        """Count the evictions by jobs before this call against the object limiters."""
        ago = causes.seconds_of(self.ctx.clock.server()) - self.ctx.clock.now()
        for key, times in causes.evictions(jobs).items():
            self._taken[key] = [min(at - ago, self.ctx.clock.now()) for at in times]

    def took(self, pod: objects.Pod) -> None:
        """Count an eviction by a job just now."""
        for key in causes.keys_of(pod):
            self._taken.setdefault(key, []).append(self.ctx.clock.now())

    def start(self, moves: t.Sequence[pod_moves.Move], view: verdict.View) -> None:
        """Create jobs for those of the moves that need one and can be admitted now."""
        line = self._without_jobs(
            [move for move in moves if move.plan.route == "job" and move.state == "waiting"], view
        )
        if self.broken:
            for move in line:
                self.instead(move, self.broken)
            return
        now = self.ctx.clock.now()
        leaving = {flight.target.uid for flight in self.flights.values() if flight.evicted}
        by_uid = {move.pod.uid: move for move in line if self._others_serve(move, leaving, view.snapshot, now)}
        if not by_uid:
            return
        controller = t.cast("migration_controller.Controller", self.choices.controller)
        traffic = self._traffic(view.jobs, now)
        admission = feed.admit(view.snapshot, [move.plan for move in by_uid.values()], controller, traffic)
        for uid, why in admission.held.items():
            self._hold(by_uid[uid], why, now)
        pause = 1.0 / controller.evict_qps
        for plan in admission.start:
            if now < self._next:
                return
            # An eviction beyond evictQPS is tried again at once, then after a growing pause: a few do no harm.
            self._next = now + pause if pause > SHORT else 0.0
            self._create(by_uid[plan.pod.uid], feed.ttl_of(view.snapshot, plan, controller), view.jobs, now)

    def instead(self, move: pod_moves.Move, why: str) -> None:
        """Evict the pod without a job, or let its move fail: ``fallback``."""
        if self.choices.backend == "koordinator" and self.choices.fallback == "fail":
            move.block("PodMigrationJob", move.pod.namespace, move.pod.name, why)
            move.end("failed", outcomes.PodOutcome.JOB_FAILED, self.ctx.clock.now(), f"{why} fallback is fail.")
            return
        move.plan = job_route.without_job(move.plan, why)
        move.reason, move.blocked_by = move.plan.reason, None
        pod = move.pod
        self.ctx.note(phases.What.FALLBACK, move.reason, node=pod.node, namespace=pod.namespace, name=pod.name)

    def _without_jobs(self, moves: t.Iterable[pod_moves.Move], view: verdict.View) -> list[pod_moves.Move]:
        """The moves without a job; adopts jobs that exist already, of a killed run or of somebody else."""
        flying = {flight.target.uid for flight in self.flights.values()}
        by_pod = {job.pod.uid: job for job in view.jobs.values() if not job.ended and not job.deleting and job.pod.uid}
        line: list[pod_moves.Move] = []
        for move in moves:
            if move.pod.uid in flying:
                continue
            job = by_pod.get(move.pod.uid)
            if job is None or (job.paused and not job.ours):
                line.append(move)
                continue
            # Somebody else's job may be one that nobody carries out: it is not waited for as long as its ttl.
            flight = self._flight(move, job.name, job.ttl if job.ours else 0.0)
            flight.ours = job.ours
            self.tracker.adopt(flight, job)
            self.flights[job.name] = flight
        return line

    def _flight(self, move: pod_moves.Move, name: str, ttl: float) -> Flight:
        pod = move.pod
        return Flight(pod.ref, pod, name, move=move, node=pod.node, until=self.ctx.clock.now() + ttl)

    def _traffic(self, jobs: t.Mapping[str, migration_jobs.Job], now: float) -> feed.Traffic:
        flights = [flight for flight in self.flights.values() if not flight.over]
        unseen = [flight.job for flight in flights if flight.job and flight.name not in jobs]
        evicting = {flight.target.uid for flight in flights if flight.evicted}
        return feed.Traffic([*(job for job in jobs.values() if not job.ended), *unseen], self._taken, now, evicting)

    def _others_serve(
        self, move: pod_moves.Move, leaving: t.Collection[str], snapshot: snapshots.Snapshot, now: float
    ) -> bool:
        """Whether enough of its workload serve without the pod: its controller asks a budget, which may be gone."""
        if pod_moves.stays_as_last(move, snapshot, now):
            return False
        found = pod_moves.too_few(move, snapshot, leaving, self.prior)
        if found:
            move.block(found.object.kind, found.object.namespace, found.object.name, found.message)
        return found is None

    def _hold(self, move: pod_moves.Move, why: reasons.Reason, now: float) -> None:
        move.block("PodMigrationJob", move.pod.namespace, move.pod.name, why.message)
        since = self._held_since.setdefault(move.pod.uid, now)
        if self.choices.backend == "auto" and why.code == "object_limiter" and now - since > job_route.PATIENCE:
            self.instead(move, why.message)

    def _create(self, move: pod_moves.Move, ttl: float, jobs: t.Mapping[str, migration_jobs.Job], now: float) -> None:
        ttl = max(feed.STEPS, min(ttl, self.deadline - now))
        before = sum(1 for job in jobs.values() if job.ended and job.pod.uid == move.pod.uid)
        change = self.change(move, before, ttl)
        flight = self._flight(move, change.target.name, ttl)
        try:
            self.tracker.create(flight, change, patience=0.0, tries=TRIES)
        except writing.PASSING as error:
            # Whether it may still be made is decided anew; one that was made is seen on the watch.
            self._next = now + max(1.0, error.retry_after or 0.0)
        except (errors.Forbidden, errors.NotFound) as error:
            self.broken = f"{error}."
        except (errors.Invalid, errors.DeniedByWebhook, errors.ServerError, tracker.NameTaken) as error:
            self.instead(move, str(error))
        else:
            move.blocked_by = None
            self.flights[flight.name] = flight
            pod = move.pod
            self.ctx.note(
                phases.What.JOB_CREATED, change.sentence, node=pod.node, namespace=pod.namespace, name=pod.name
            )

    def change(self, move: pod_moves.Move, attempt: int, ttl: float) -> api_changes.Change:
        """The creation of the pod's job, after ``attempt`` others that have ended; ``ttl`` is in seconds."""
        controller = t.cast("migration_controller.Controller", self.choices.controller)
        pod = move.pod
        options = {} if self.grace_seconds is None else {"gracePeriodSeconds": self.grace_seconds}
        # Any other text is ReservationFirst for the controller too.
        mode: migration_jobs.Mode = (
            "EvictDirectly" if controller.default_job_mode == "EvictDirectly" else "ReservationFirst"
        )
        wish = migration_jobs.Wish(
            mode=mode,
            ttl=ttl,
            delete_options=options,
            reason=f"maintenance of node {pod.node}",
            run=self.runs.get(pod.node, ""),
        )
        name = migration_jobs.name_of(pod.ref, wish, attempt)
        body = migration_jobs.manifest(name, pod.ref, wish)
        # Whatever the controller's policy is: budgets are asked.
        body["metadata"]["labels"][job_route.POLICY] = "Eviction"
        body["metadata"]["annotations"][names.SERVES_NODES] = pod.node
        target = migration_jobs.ref_of(name)
        return api_changes.Change("create", target, f"Create {target} for {pod.ref} on node {pod.node}", body=body)
