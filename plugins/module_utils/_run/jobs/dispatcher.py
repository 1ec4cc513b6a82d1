# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""PodMigrationJobs as a part of the drain's loop: created at the rate of their admission, followed, cleaned up.

A job is its own record: its name is derived from its pod's UID, and it carries the run, node and pod. A run that
takes over finds it by these, so that no pod is moved twice.
"""

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
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, pod_moves, writing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import (
    job_view,
    job_writes,
    leftovers,
    tracker,
)

LOOK_EVERY = 0.25
"""Seconds between two checks of which jobs may start: few of the many changes make room for one."""
HOPELESS = 2
"""No more jobs are created after this many in a row whose Reservation no scheduler handled."""
OVERDUE = 60.0
"""Seconds after a job's ttl: its controller would have ended it by then if it were there."""
TRIES = writing.HICCUPS + 1
"""How often the creation of a job is tried at once: the other moves wait in the meantime."""


@dataclass
class Flight(tracker.Tracked):
    """One job under way. ``move`` is ``None`` where the pod left before this call began.

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
    runs: t.Mapping[str, str]
    grace_seconds: int | None
    deadline: float
    prior: t.Mapping[str, int]
    flights: dict[str, Flight] = field(default_factory=dict)
    broken: str = ""
    _taken: dict[causes.Key, list[float]] = field(default_factory=dict)
    _held_since: dict[str, float] = field(default_factory=dict)
    _next: float = 0.0

    def view(self, snapshot: snapshots.Snapshot, jobs: t.Mapping[str, migration_jobs.Job]) -> verdict.View:
        """What is known beside a job."""
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
        """Create jobs for the moves that need one and can be admitted now."""
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
        controller = t.cast(migration_controller.Controller, self.choices.controller)
        traffic = self._traffic(view.jobs, now)
        start, held = feed.admit(view.snapshot, [move.plan for move in by_uid.values()], controller, traffic)
        for uid, why in held.items():
            self._hold(by_uid[uid], why, now)
        pause = 1.0 / controller.evict_qps
        for plan in start:
            if now < self._next:
                return
            # An eviction beyond evictQPS is tried again at once, then after a growing pause: a few do no harm.
            self._next = now + pause if pause > LOOK_EVERY else 0.0
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
        by_pod = {job.pod.uid: job for job in view.jobs.values() if not job.ended and not job.deleting and job.pod.uid}
        line: list[pod_moves.Move] = []
        for move in moves:
            if move.pod.uid in flying:
                continue
            job = by_pod.get(move.pod.uid)
            if job is None or (job.paused and not job.ours):
                line.append(move)
                continue
            # Another creator's job may be one that nothing carries out: it is not given its whole ttl.
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
            # Whether it may still be created is decided again; one that was created is seen on the watch.
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
        controller = t.cast(migration_controller.Controller, self.choices.controller)
        pod = move.pod
        options = {} if self.grace_seconds is None else {"gracePeriodSeconds": self.grace_seconds}
        direct = controller.default_job_mode == "EvictDirectly"
        wish = migration_jobs.Wish(
            # The controller takes any other text for ReservationFirst, too.
            mode="EvictDirectly" if direct else "ReservationFirst",
            ttl=ttl,
            delete_options=options,
            reason=f"maintenance of node {pod.node}",
            run=self.runs.get(pod.node, ""),
        )
        name = migration_jobs.name_of(pod.ref, wish, attempt)
        body = migration_jobs.manifest(name, pod.ref, wish)
        # Budgets are respected, whatever the controller's policy is.
        body["metadata"]["labels"][job_route.POLICY] = "Eviction"
        body["metadata"]["annotations"][names.SERVES_NODES] = pod.node
        target = migration_jobs.ref_of(name)
        return api_changes.Change("create", target, f"Create {target} for {pod.ref} on node {pod.node}", body=body)


class JobDispatcher:
    """All jobs of a drain. ``fence`` is called right before each request, ``wake`` on news of a job.

    ``runs`` are the ids of the runs that hold the nodes, by node. ``deadline`` is when the drain ends at the latest.
    ``prior`` is what workloads with a surge want without it, by their UID.
    """

    def __init__(
        self,
        ctx: context.Context,
        choices: pod_plan.Choices,
        fence: act.Fence,
        wake: t.Callable[[], None],
        runs: t.Mapping[str, str],
        grace_seconds: int | None = None,
        deadline: float = float("inf"),
        prior: t.Mapping[str, int] | None = None,
    ) -> None:
        self.ctx = ctx
        self._view = job_view.JobView(ctx, wake) if choices.controller else None
        self._tracker = tracker.JobTracker(ctx, fence)
        self._cleanup = leftovers.JobCleanup(ctx, fence)
        self._starter = JobStarter(ctx, choices, self._tracker, runs, grace_seconds, deadline, prior or {})
        self._flights = self._starter.flights
        self._looked = float("-inf")
        self._hopeless = 0

    def start(self) -> None:
        """Start to watch the jobs; without a controller there is nothing to do, ever."""
        if self._view:
            self._view.start()
            self._starter.recall(self._view.jobs().values())

    def stop(self) -> None:
        """Stop watching; jobs under way continue."""
        if self._view:
            self._view.stop()

    def step(self, snapshot: snapshots.Snapshot, moves: t.Sequence[pod_moves.Move]) -> None:
        """Do what can be done now, without waiting; ``moves`` are those of nodes that still have to be drained.

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
            if job.name not in self._flights and not job.ended and leftovers.serves(job, node):
                flight = Flight(job.pod, None, job.name, node=node, until=self.ctx.clock.now() + job.ttl)
                self._flights[job.name] = flight
                self._tracker.adopt(flight, job)
        return not self.flying(node) and self._cleanup.done_with(node, jobs)

    def abandon(self, node: str, why: str) -> None:
        """Give up the jobs of a node that is not drained after all: they would move its pods later.

        Jobs that have evicted their pod already are left to end.
        """
        if self._view is None:
            return
        flights = [flight for flight in self._flights.values() if flight.node == node]
        unseen = [flight.name for flight in flights if not flight.over and not flight.seen]
        fresh = {name: job for name in unseen if (job := job_writes.reread(self.ctx, name))}
        for job in {**self._view.jobs(), **fresh}.values():
            if leftovers.serves(job, node) and not (job.evicting and not job.ended):
                self._tracker.give_up(job, why)
        for flight in flights:
            flight.over = True

    def predicted(self, move: pod_moves.Move) -> None:
        """Note the job that would be created, for check mode."""
        self.ctx.changed(self._starter.change(move, 0, 0.0))

    def _follow(self, flight: Flight, view: verdict.View) -> None:
        state = self._tracker.follow(flight, view.jobs, view.snapshot)
        job, move = flight.job, flight.move
        if job is None or state == "unseen":
            return
        flight.over = state != "under way"
        waits = move is not None and move.state == "waiting"
        if job.evicting and not flight.evicted and state != "deleted":
            self._evicted(flight, job)
        if state == "deleted" and waits:
            self._fall_back(flight, "the job was deleted by another client.")
        elif state == "ended":
            self._hopeless = 0 if job.condition("ReservationScheduled") else self._hopeless
            if waits and not job.succeeded:
                self._failed(flight, job, view)
        elif state == "under way" and self.ctx.clock.now() > flight.until + OVERDUE:
            # A job that has evicted its pod ends without us; the drain's own deadline holds for the pod.
            flight.over = move is None or (waits and not flight.evicted)
            if flight.over and waits:
                self._overdue(flight, job, view)

    def _evicted(self, flight: Flight, job: migration_jobs.Job) -> None:
        flight.evicted = True
        if flight.move is None:
            return
        pod = flight.move.pod
        flight.move.blocked_by = None
        self._starter.took(pod)
        place = f" for node {job.node}" if job.node else ""
        said = f"PodMigrationJob {job.name} evicts {pod.ref}{place}"
        self.ctx.note(phases.What.EVICTED, said, node=pod.node, namespace=pod.namespace, name=pod.name)

    def _failed(self, flight: Flight, job: migration_jobs.Job, view: verdict.View) -> None:
        found = verdict.verdict(job, view)
        why = found.message if found else job.message or job.reason
        created, answered = job.condition("ReservationCreated"), job.condition("ReservationScheduled")
        if job.reason == "Timeout" and created.get("status") == "True" and not answered:
            self._hopeless += 1
            if self._hopeless >= HOPELESS:
                self._starter.broken = f"{self._hopeless} jobs in a row got no answer from their scheduler."
        self._fall_back(flight, why)

    def _overdue(self, flight: Flight, job: migration_jobs.Job, view: verdict.View) -> None:
        why = f"PodMigrationJob {job.name}, which another creator made for it, does not move it."
        if flight.ours:
            found = verdict.verdict(job, view)
            silent = f"koord-descheduler does not end PodMigrationJob {job.name}, after its ttl."
            if verdict.unanswered(job, view.jobs.values()):
                self._starter.broken = silent
            why = " ".join(part for part in (silent, found.message if found else "") if part)
            self._tracker.give_up(job, why)
        self._fall_back(flight, why)

    def _fall_back(self, flight: Flight, why: str) -> None:
        move = t.cast("pod_moves.Move", flight.move)
        said = f"PodMigrationJob {flight.name} did not move it: {why}"
        self.ctx.tell(phases.What.JOB_FAILED, said, node=flight.node, namespace=move.pod.namespace, name=move.pod.name)
        self._starter.instead(move, why)
