# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""PodMigrationJobs of a drain as they are created: at the rate of their admission, or not at all."""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import (
    causes,
    feed,
    migration_jobs,
    object_limiter,
    verdict,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    migration_controller,
    names,
    outcomes,
    phases,
    pod_plan,
    reasons,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import job_route
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import guards
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, pod_moves, writing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import tracker, waits

LOOK_EVERY = 0.25
"""Seconds between two checks of which jobs may start: few of the many changes make room for one."""
PAUSE = 1.0
"""Seconds without a new job after the server could not make one, unless it asks for more."""
TRIES = writing.HICCUPS + 1
"""How often the creation of a job is tried at once: the other moves wait in the meantime."""


@dataclass
class InFlightJob(tracker.Tracked):
    """One job under way. ``move`` is ``None`` where the pod left before this call began.

    ``until`` is when its ttl is over, on the context's monotonic clock. ``abandoned`` is why it has to end as soon as
    it may be written.
    """

    move: pod_moves.Move | None = None
    node: str = ""
    until: float = float("inf")
    evicted: bool = False
    over: bool = False
    abandoned: str = ""

    @property
    def waited_for(self) -> bool:
        """Whether its pod waits for it."""
        return self.move is not None and self.move.state == "waiting" and self.move.plan.route == "job"


@dataclass
class JobStarter:
    """Creates the jobs of a drain, or adopts them; for the attributes see ``JobDispatcher``.

    ``flights`` are the jobs by name. ``broken`` is why no more jobs are created.
    """

    ctx: context.Context
    choices: pod_plan.Choices
    tracker: tracker.JobTracker
    runs: t.Mapping[str, str]
    grace_seconds: int | None
    deadline: float
    prior: t.Mapping[str, int]
    flights: dict[str, InFlightJob] = field(default_factory=dict)
    broken: str = ""
    _evictions: dict[str, object_limiter.Eviction] = field(default_factory=dict)
    _next: float = 0.0

    def __post_init__(self) -> None:
        self.waits = waits.Waits(self.choices, self.prior)

    def view(self, snapshot: snapshots.Snapshot, jobs: t.Mapping[str, migration_jobs.Job]) -> verdict.View:
        """What is known beside a job."""
        return verdict.View(snapshot, self.choices.controller, jobs, self.ctx.clock.server())

    def start(self, moves: t.Sequence[pod_moves.Move], view: verdict.View) -> None:
        """Create jobs for the moves that need one and can be admitted now."""
        line = self._without_jobs(
            [move for move in moves if move.plan.route == "job" and move.state == "waiting"], view
        )
        if self.broken:
            for move in line:
                self.instead(move, self.broken)
            return
        now = self.ctx.clock.now()
        by_uid = {move.pod.uid: move for move in line if self._others_serve(move, view.snapshot, now)}
        if not by_uid:
            return
        controller = t.cast(migration_controller.Controller, self.choices.controller)
        self._evictions = object_limiter.evictions(view.jobs.values(), view.snapshot.pods, self._evictions)
        traffic = self._traffic(view)
        start, held = feed.admit(view.snapshot, [move.plan for move in by_uid.values()], controller, traffic)
        for uid, why in held.items():
            self._hold(by_uid[uid], why, view, now)
        pause = 1.0 / controller.evict_qps
        for plan in start:
            if now < self._next:
                return
            # An eviction beyond evictQPS is tried again at once, then after a growing pause: a few do no harm.
            if pause > LOOK_EVERY:
                self._next = now + pause
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
        """The moves without a job; adopts existing jobs, of a killed run or of another creator."""
        flying = {flight.target.uid for flight in self.flights.values()}
        by_pod: dict[tuple[str, ...], migration_jobs.Job] = {}
        for job in sorted(view.jobs.values(), key=lambda job: job.ours):
            if not job.ended and not job.deleting:
                # Without a UID it is about whichever pod has the name.
                by_pod[(job.pod.uid,) if job.pod.uid else (job.pod.namespace, job.pod.name)] = job
        line: list[pod_moves.Move] = []
        for move in moves:
            pod = move.pod
            if pod.uid in flying:
                continue
            found = by_pod.get((pod.uid,)) or by_pod.get((pod.namespace, pod.name))
            if found is None:
                line.append(move)
                continue
            flight = self._flight(move, found.name, found.ttl if found.ours else math.inf)
            flight.ours = found.ours
            self.tracker.adopt(flight, found)
            self.flights[found.name] = flight
        return line

    def _flight(self, move: pod_moves.Move, name: str, ttl: float) -> InFlightJob:
        pod = move.pod
        return InFlightJob(pod.ref, pod, name, move=move, node=pod.node, until=self.ctx.clock.now() + ttl)

    def _traffic(self, view: verdict.View) -> feed.Traffic:
        flights = [flight for flight in self.flights.values() if not flight.over]
        # The watch does not show those that were made just now.
        known = {flight.name: t.cast("migration_jobs.Job", flight.job) for flight in flights} | dict(view.jobs)
        evicting = {flight.target.uid for flight in flights if flight.evicted}
        jobs = [job for job in known.values() if not job.ended]
        taken = object_limiter.by_key(self._evictions)
        return feed.Traffic(jobs, taken, causes.seconds_of(view.now), evicting)

    @property
    def leaving(self) -> set[str]:
        """The UIDs of the pods whose eviction by a job was sent."""
        return {flight.target.uid for flight in self.flights.values() if flight.evicted}

    def _others_serve(self, move: pod_moves.Move, snapshot: snapshots.Snapshot, now: float) -> bool:
        """Whether enough of its workload serve without the pod: its controller asks a budget, which may be gone."""
        if pod_moves.stays_as_last(move, snapshot, now):
            return False
        found = pod_moves.too_few(move, snapshot, self.leaving, self.prior)
        if found:
            move.block(found.object.kind, found.object.namespace, found.object.name, found.message)
        return found is None

    def _hold(self, move: pod_moves.Move, why: reasons.Reason, view: verdict.View, now: float) -> None:
        """Say why the pod gets no job yet; one that will never get any, or has waited long enough, goes without."""
        pod = move.pod
        controller = t.cast("migration_controller.Controller", self.choices.controller)
        refused = causes.forbidden(view.snapshot, pod, controller)
        ours = (guards.is_one(view.snapshot, budget) for budget in view.snapshot.budgets_of(pod))
        two = why.code == "budget_two_budgets" and not any(ours)
        if two or (refused and refused.code != "terminating"):
            self.instead(move, why.message)
            return
        limited = self.waits.limited(why.code)
        move.block("PodMigrationJob", pod.namespace, pod.name, self.waits.ending(why.message, limited=limited))
        if limited and self.waits.over(move, view.snapshot, self.leaving, now):
            self.instead(move, why.message)

    def _create(self, move: pod_moves.Move, ttl: float, jobs: t.Mapping[str, migration_jobs.Job], now: float) -> None:
        ttl = max(feed.STEPS, min(ttl, self.deadline - now))
        before = [job for job in jobs.values() if job.ended and job.pod.uid == move.pod.uid]
        change = self.change(move, len(before), ttl)
        flight = self._flight(move, change.target.name, ttl)
        try:
            self.tracker.create(flight, change, patience=act.NO_PATIENCE, tries=TRIES)
        except writing.PASSING as error:
            # Whether it may still be created is decided again; one that was created is seen on the watch.
            self._next = now + (error.retry_after or PAUSE)
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
        controller = t.cast(migration_controller.Controller, self.choices.controller)
        pod = move.pod
        grace = move.plan.manner.grace(pod, self.grace_seconds)
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        direct = controller.default_job_mode == "EvictDirectly"
        settings = migration_jobs.JobSettings(
            # The controller takes any other text for ReservationFirst, too.
            mode="EvictDirectly" if direct else "ReservationFirst",
            ttl=ttl,
            delete_options=options,
            reason=f"maintenance of node {pod.node}",
            run=self.runs.get(pod.node, ""),
        )
        name = migration_jobs.name_of(pod.ref, settings, attempt)
        body = migration_jobs.manifest(name, pod.ref, settings)
        # Budgets are respected, whatever the controller's policy is.
        body["metadata"]["labels"][job_route.POLICY] = "Eviction"
        body["metadata"]["annotations"][names.SERVES_NODES] = pod.node
        target = migration_jobs.ref_of(name)
        return api_changes.Change("create", target, f"Create {target} for {pod.ref} on node {pod.node}", body=body)
