# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""PodMigrationJobs at the rate that koord-descheduler admits them, as a part of the drain's loop.

A job is its own record: it is created under a name that follows from its pod's UID, and carries run, node and
pod. A run that takes over finds it by these, so nobody is moved twice. Before arbitration a job is never
written, because any update would carry it past the arbitration; it is deleted only after its end, because
the arbitrator never forgets a job that vanished while it waited.
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
    pod_plan,
    reasons,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import job_route
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, pod_moves, writing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import job_work, sweeping, watch

LOOK_EVERY = 0.25
"""Seconds between two looks at who may start: many things change, and few of them make room."""
HOPELESS = 2
"""Jobs in a row whose Reservation no scheduler looked at for their whole ttl; then no more are made."""
TRIES = writing.HICCUPS + 1
"""How often a job's creation is decided at one look: the other moves wait meanwhile."""


@dataclass
class Flight:
    """One job under way. Times are of the context's monotonic clock; ``job`` is it as last seen."""

    move: pod_moves.Move
    name: str
    born: float
    ttl: float
    news: float
    job: migration_jobs.Job | None = None
    ours: bool = True
    evicted: bool = False
    freed: bool = False
    over: bool = False


@dataclass
class JobFeed:
    """All jobs of a drain. ``fence`` is asked right before each request, ``wake`` called on news of a job.

    ``runs`` are the ids of the runs that hold the nodes, by node. ``deadline`` is when the drain ends at the latest.
    ``prior`` is what workloads with a surge want without it, by their UID.
    """

    ctx: context.Context
    choices: pod_plan.Choices
    fence: t.Callable[[], None]
    wake: t.Callable[[], None]
    runs: t.Mapping[str, str]
    grace_seconds: int | None = None
    deadline: float = float("inf")
    prior: t.Mapping[str, int] = field(default_factory=dict)
    _flights: dict[str, Flight] = field(default_factory=dict)
    _taken: dict[feed.Key, list[float]] = field(default_factory=dict)
    _held_since: dict[str, float] = field(default_factory=dict)
    _watch: watch.JobWatch | None = None
    _looked: float = float("-inf")
    _next: float = 0.0
    _hopeless: int = 0
    _broken: str = ""

    def __post_init__(self) -> None:
        """What is left is swept on the same conditions."""
        self._sweep = sweeping.Sweep(self.ctx, self.fence)

    def start(self) -> None:
        """Begin to watch the jobs; without a controller there is nothing to do, ever."""
        if self.choices.controller is None:
            return
        self._watch = watch.JobWatch(self.ctx, self.wake)
        self._watch.start()
        raws, _jobs = self._watch.look()
        now, wall = self.ctx.clock.now(), causes.seconds_of(self.ctx.clock.server())
        for key, times in causes.evictions(raws).items():
            self._taken[key] = [now - max(0.0, wall - at) for at in times]

    def stop(self) -> None:
        """Stop watching; jobs that are under way go on."""
        if self._watch:
            self._watch.stop()

    def step(self, snapshot: snapshots.Snapshot, moves: t.Sequence[pod_moves.Move]) -> None:
        """Do what can be done now, without waiting; ``moves`` are those of nodes that are still to be emptied.

        Raises:
            StopRun: jobs cannot be watched any more, or the lock was lost.
        """
        if self._watch is None or self.choices.controller is None:
            return
        raws, jobs = self._watch.look()
        now = self.ctx.clock.now()
        for flight in self._flights.values():
            if not flight.over:
                self._follow(flight, jobs, raws, snapshot, now)
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            line = [m for m in moves if m.plan.route == "job" and m.state == "waiting" and not self._has_job(m)]
            self._adopt(line, jobs, now)
            self._admit(line, raws, snapshot, now, self.choices.controller)

    def flying(self, node: str) -> bool:
        """Whether jobs for pods of the node are under way."""
        return any(not f.over for f in self._flights.values() if f.move.pod.node == node)

    def done_with(self, node: str) -> bool:
        """Whether nothing is left of the node's jobs; deletes those that have ended, and their Reservations."""
        if self._watch is None:
            return True
        if self.flying(node):
            return False
        return self._sweep.done_with(node, self._watch.look()[1], {flight.name for flight in self._flights.values()})

    def abandon(self, node: str, why: str) -> None:
        """Give up the jobs of a node that is not emptied after all: they would move its pods later on.

        Those that have evicted their pod already end by themselves.
        """
        if self._watch is None:
            return
        unseen = [f.name for f in self._flights.values() if f.move.pod.node == node and not f.over and f.job is None]
        jobs = {**self._watch.look()[1], **{name: job for name in unseen if (job := job_work.reread(self.ctx, name))}}
        for job in jobs.values():
            if sweeping.serves(job, node) and not (job.evicting and not job.ended):
                self._sweep.give_up(job, why)
        for flight in self._flights.values():
            flight.over |= flight.move.pod.node == node

    def predicted(self, move: pod_moves.Move) -> None:
        """Note the job that would be created, for check mode."""
        self.ctx.changed(self._change(move, 0, 0.0))

    # -- following ----------------------------------------------------------------------------------

    def _has_job(self, move: pod_moves.Move) -> bool:
        return move.pod.uid in self._flights

    def _follow(
        self,
        flight: Flight,
        jobs: t.Mapping[str, migration_jobs.Job],
        raws: tuple[objects.Raw, ...],
        snapshot: snapshots.Snapshot,
        now: float,
    ) -> None:
        job = jobs.get(flight.name)
        here = flight.move.state == "waiting"
        if job is None:
            if flight.job is None and now - flight.born < sweeping.OVERDUE:
                return
            flight.over = True
            if here:
                self._came_to_nothing(flight, "the job was deleted by somebody.")
            return
        if flight.job is None or job.resource_version != flight.job.resource_version:
            flight.news, flight.job = now, job
        if job.evicting and not flight.evicted:
            self._evicted(flight, job, now)
        if job.ended:
            flight.over = True
            self._hopeless = 0 if job.condition("ReservationScheduled") else self._hopeless
            if here and not job.succeeded:
                self._failed(flight, job, raws, snapshot)
            return
        if here and not flight.evicted and now > flight.born + flight.ttl + sweeping.OVERDUE:
            flight.over = True
            why = self._overdue(flight, job, raws, snapshot)
            if flight.ours:
                self._sweep.give_up(job, why)
            self._came_to_nothing(flight, why)
            return
        if flight.ours and job.passed:
            self._remind(flight, job, now)

    def _evicted(self, flight: Flight, job: migration_jobs.Job, now: float) -> None:
        pod = flight.move.pod
        flight.evicted, flight.move.blocked_by = True, None
        for key in feed.keys_of(pod):
            self._taken.setdefault(key, []).append(now)
        place = f" for node {job.node}" if job.node else ""
        said = f"PodMigrationJob {job.name} evicts {pod.ref}{place}"
        self.ctx.note("evicted", said, node=pod.node, namespace=pod.namespace, name=pod.name)

    def _failed(
        self, flight: Flight, job: migration_jobs.Job, raws: tuple[objects.Raw, ...], snapshot: snapshots.Snapshot
    ) -> None:
        found = verdict.verdict(job, verdict.View(snapshot, self.choices.controller, raws, self.ctx.clock.server()))
        why = found.message if found else job.message or job.reason
        created, answered = job.condition("ReservationCreated"), job.condition("ReservationScheduled")
        if job.reason == "Timeout" and created.get("status") == "True" and not answered:
            self._hopeless += 1
            if self._hopeless >= HOPELESS:
                self._broken = f"{self._hopeless} jobs in a row got no answer from their scheduler."
        self._came_to_nothing(flight, why)

    def _overdue(
        self, flight: Flight, job: migration_jobs.Job, raws: tuple[objects.Raw, ...], snapshot: snapshots.Snapshot
    ) -> str:
        if not flight.ours:
            return f"PodMigrationJob {job.name}, which somebody else made for it, does not move it."
        found = verdict.verdict(job, verdict.View(snapshot, self.choices.controller, raws, self.ctx.clock.server()))
        held = f" {found.message}" if found else ""
        self._broken = f"koord-descheduler does not end PodMigrationJob {job.name}, whose ttl is over."
        return f"{self._broken}{held}"

    def _came_to_nothing(self, flight: Flight, why: str) -> None:
        pod = flight.move.pod
        said = f"PodMigrationJob {flight.name} came to nothing: {why}"
        self.ctx.tell("job_failed", said, node=pod.node, namespace=pod.namespace, name=pod.name)
        self._instead(flight.move, why)

    def _instead(self, move: pod_moves.Move, why: str) -> None:
        """Evict the pod, or let its move fail: ``fallback``."""
        if self.choices.backend == "koordinator" and self.choices.fallback == "fail":
            move.block("PodMigrationJob", move.pod.namespace, move.pod.name, why)
            move.end("failed", outcomes.PodOutcome.JOB_FAILED, self.ctx.clock.now(), f"{why} fallback is fail.")
            return
        move.plan = job_route.without_job(move.plan, why)
        move.reason, move.blocked_by = move.plan.reason, None
        pod = move.pod
        self.ctx.note("fallback", move.reason, node=pod.node, namespace=pod.namespace, name=pod.name)

    def _remind(self, flight: Flight, job: migration_jobs.Job, now: float) -> None:
        """Bring the job before its controller again; it has passed arbitration, so an update does no harm.

        A successor of the same name meets the object limiter that its own eviction has filled: the job is let
        off it, now that its eviction is counted.
        """
        gone = flight.move.done
        if gone and flight.evicted and not flight.freed and feed.keeps_name(flight.move.pod):
            flight.freed = True
            self._sweep.remind(job, unlimited=True)
        elif now - flight.news >= sweeping.SILENT and not job.paused:
            flight.news = now
            self._sweep.remind(job, unlimited=False)

    # -- starting -----------------------------------------------------------------------------------

    def _adopt(self, line: list[pod_moves.Move], jobs: t.Mapping[str, migration_jobs.Job], now: float) -> None:
        """Take up jobs that are there for a pod already: of a run that was killed, or of somebody else."""
        by_pod = {job.pod.uid: job for job in jobs.values() if not job.ended and not job.deleting and job.pod.uid}
        for move in list(line):
            job = by_pod.get(move.pod.uid)
            if job is None or (job.paused and not job.ours):
                continue
            # Somebody else's job may be one that nobody carries out: it is not waited for as long as its ttl.
            ttl = job.ttl if job.ours else 0.0
            self._flights[move.pod.uid] = Flight(move, job.name, now, ttl, now, job, ours=job.ours)
            self._flights[move.pod.uid].news = now - sweeping.SILENT + sweeping.SOON
            line.remove(move)

    def _admit(
        self,
        line: list[pod_moves.Move],
        raws: tuple[objects.Raw, ...],
        snapshot: snapshots.Snapshot,
        now: float,
        controller: migration_controller.Controller,
    ) -> None:
        if self._broken:
            for move in line:
                self._instead(move, self._broken)
            return
        leaving = {uid for uid, flight in self._flights.items() if flight.evicted}
        line = [move for move in line if self._others_serve(move, leaving, snapshot, now)]
        if not line:
            return
        by_uid = {move.pod.uid: move for move in line}
        admission = feed.admit(snapshot, [move.plan for move in line], controller, self._traffic(raws, now))
        for uid, why in admission.held.items():
            self._hold(by_uid[uid], why, now)
        pause = 1.0 / controller.evict_qps
        for plan in admission.start:
            if now < self._next:
                return
            # An eviction beyond evictQPS is tried again at once, then after a growing pause: a few do no harm.
            self._next = now + pause if pause > LOOK_EVERY else 0.0
            self._create(by_uid[plan.pod.uid], feed.ttl_of(snapshot, plan, controller), raws, now)

    def _traffic(self, raws: tuple[objects.Raw, ...], now: float) -> feed.Traffic:
        seen = {raw["metadata"]["name"] for raw in raws}
        under_way = [raw for raw in raws if not migration_jobs.Job.of(raw).ended]
        flights = [flight for flight in self._flights.values() if not flight.over]
        unseen = [
            migration_jobs.manifest(f.name, f.move.pod.ref, migration_jobs.Wish())
            for f in flights
            if f.name not in seen
        ]
        evicting = {flight.move.pod.uid for flight in flights if flight.evicted}
        return feed.Traffic([*under_way, *unseen], self._taken, now, evicting)

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
            self._instead(move, why.message)

    def _create(self, move: pod_moves.Move, ttl: float, raws: tuple[objects.Raw, ...], now: float) -> None:
        ttl = max(feed.STEPS, min(ttl, self.deadline - now))
        before = sum(1 for job in map(migration_jobs.Job.of, raws) if job.ended and job.pod.uid == move.pod.uid)
        change = self._change(move, before, ttl)
        pod = move.pod
        try:
            writing.write(
                self.ctx,
                change.target,
                lambda found: None if found else change,
                known=None,
                fence=self.fence,
                patience=0.0,
                tries=TRIES,
            )
        except writing.PASSING as error:
            # Whether it may still be made is decided anew; one that was made is seen on the watch.
            self._next = now + max(1.0, error.retry_after or 0.0)
            return
        except (errors.Forbidden, errors.NotFound) as error:
            self._broken = f"{error}."
            return
        except (errors.Invalid, errors.DeniedByWebhook, errors.ServerError) as error:
            self._instead(move, str(error))
            return
        move.blocked_by = None
        self._flights[pod.uid] = Flight(move, change.target.name, now, ttl, now)
        self.ctx.note("job_created", change.sentence, node=pod.node, namespace=pod.namespace, name=pod.name)

    def _change(self, move: pod_moves.Move, attempt: int, ttl: float) -> api_changes.Change:
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
        target = objects.Ref(migration_jobs.KIND, name, api_version=migration_jobs.API_VERSION)
        return api_changes.Change("create", target, f"Create {target} for {pod.ref} on node {pod.node}", body=body)
