# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""PodMigrationJobs of a drain as they are created: when they are admitted, or not at all."""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    budgets,
    names,
    objects,
    run_context,
    run_reconcile,
    run_requests,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import dispositions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    causes,
    feed,
    job_status,
    migration_jobs,
    object_limiter,
    run_tracker,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    migration_controller,
    run_pod_drain,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import guard_budgets

SAME_WAIT_SECONDS = 2.0
"""Seconds between two looks at a pod that still count as one wait."""
ENDLESS_CODES = frozenset({"max_unavailable_per_workload"})
"""Codes of what holds a job for as long as a pod elsewhere is not Ready. Other limits make room
when jobs end, which their ttl guarantees, or when a window ends: whoever asks for backend
``koordinator`` asks for them.
"""


@dataclass
class Waits:
    """For how long the pods of a drain have waited for their jobs although they could be evicted.

    ``prior`` is what workloads with a surge want without it, by their UID.
    """

    choices: drain_policy.DrainPolicy
    prior: t.Mapping[str, int]
    _waited: dict[str, tuple[float, float]] = field(default_factory=dict)

    def limited(self, code: str) -> bool:
        """Whether this wait is limited by ``job_wait``, and not by a limit's own pace."""
        return self.choices.backend == "auto" or code in ENDLESS_CODES

    def ending(self, message: str, *, limited: bool) -> str:
        """What a pod waits for, with the end of its wait if it is ``limited``."""
        if not limited:
            return message
        return f"{message} It waits for a job for {self.choices.job_wait:g} s at most."

    def over(
        self,
        move: run_pod_drain.PodDrain,
        snapshot: snapshots.Snapshot,
        leaving: t.Collection[str],
        now: float,
    ) -> bool:
        """Whether the pod may go now and has waited in vain for long enough;
        to be asked in each turn of its wait.

        Time in which its budget or its siblings would hold an eviction as well does not count.
        ``leaving`` are the UIDs of pods whose eviction was sent.
        """
        waited, last = self._waited.get(move.pod.uid, (0.0, now))
        free = _could_be_evicted(move, snapshot, leaving, self.prior)
        if free:
            waited += min(now - last, SAME_WAIT_SECONDS)
        self._waited[move.pod.uid] = waited, now
        return free and waited >= self.choices.job_wait


def _could_be_evicted(
    move: run_pod_drain.PodDrain,
    snapshot: snapshots.Snapshot,
    leaving: t.Collection[str],
    prior: t.Mapping[str, int],
) -> bool:
    pod = snapshot.pod(move.pod.uid)
    if pod is None or not budgets.diagnose(snapshot, pod).allowed:
        return False
    return run_pod_drain.too_few(move, snapshot, leaving, prior) is None


LOOK_EVERY_SECONDS = 0.25
"""Seconds between two checks of which jobs may start: few of the many changes make room for one."""
PAUSE_SECONDS = 1.0
"""Seconds without a new job after the server could not make one, unless it asks for more."""
MAX_TRIES = run_reconcile.MAX_SERVER_ERRORS + 1
"""How often the creation of a job is tried at once: the other moves wait in the meantime."""


@dataclass
class InFlightJob(run_tracker.TrackedJob):
    """One job under way. ``move`` is ``None`` where the pod left before this call began.

    ``until`` is when its ttl is over, on the context's monotonic clock. ``abandoned`` is why it has
    to end as soon as it may be written.
    """

    move: run_pod_drain.PodDrain | None = None
    node: str = ""
    until: float = float("inf")
    evicted: bool = False
    over: bool = False
    abandoned: str = ""

    @property
    def waited_for(self) -> bool:
        """Whether its pod waits for it."""
        return (
            self.move is not None and self.move.state == "waiting" and self.move.plan.route == "job"
        )


@dataclass
class JobStarter:
    """Creates the jobs of a drain, or adopts them; for the attributes see ``JobDispatcher``.

    ``flights`` are the jobs by name. ``broken`` is why no more jobs are created.
    """

    ctx: run_context.Context
    choices: drain_policy.DrainPolicy
    tracker: run_tracker.JobTracker
    runs: t.Mapping[str, str]
    grace_seconds: int | None
    deadline: float
    prior: t.Mapping[str, int]
    flights: dict[str, InFlightJob] = field(default_factory=dict)
    broken: str = ""
    _evictions: dict[str, object_limiter.Eviction] = field(default_factory=dict)
    _next: float = 0.0

    def __post_init__(self) -> None:
        self.waits = Waits(self.choices, self.prior)

    def view(
        self, snapshot: snapshots.Snapshot, jobs: t.Mapping[str, migration_jobs.Job]
    ) -> job_status.View:
        """The view of a job with what is known beside it."""
        return job_status.View(snapshot, self.choices.controller, jobs, self.ctx.clock.server())

    def start(self, moves: t.Sequence[run_pod_drain.PodDrain], view: job_status.View) -> None:
        """Create jobs for the moves that need one and can be admitted now."""
        waiting = [move for move in moves if move.plan.route == "job" and move.state == "waiting"]
        without = self._without_jobs(waiting, view)
        if self.broken:
            for move in without:
                self.instead(move, self.broken)
            return
        now = self.ctx.clock.now()
        by_uid = {
            move.pod.uid: move for move in without if self._others_serve(move, view.snapshot, now)
        }
        if not by_uid:
            return
        controller = t.cast(migration_controller.Controller, self.choices.controller)
        self._evictions = object_limiter.evictions(
            view.jobs.values(), view.snapshot.pods, self._evictions
        )
        traffic = self._traffic(view)
        plans = [move.plan for move in by_uid.values()]
        start, not_admitted = feed.admit(view.snapshot, plans, controller, traffic)
        for uid, why in not_admitted.items():
            self._keep_waiting(by_uid[uid], why, view, now)
        pause = 1.0 / controller.evict_qps
        for plan in start:
            if now < self._next:
                return
            # An eviction beyond evictQPS is tried again at once,
            # then after a growing pause: a few do no harm.
            if pause > LOOK_EVERY_SECONDS:
                self._next = now + pause
            ttl = feed.ttl_of(view.snapshot, plan, controller)
            self._create(by_uid[plan.pod.uid], ttl, view.jobs, now)

    def instead(self, move: run_pod_drain.PodDrain, why: str) -> None:
        """Evict the pod without a job, or let its move fail: ``fallback``."""
        if self.choices.backend == "koordinator" and self.choices.fallback == "fail":
            now = self.ctx.clock.now()
            reason = f"{why} fallback is fail."
            move.block(objects.Ref(migration_jobs.KIND, move.pod.name, move.pod.namespace), why)
            move.end("failed", outcomes.PodOutcome.JOB_FAILED, now, reason)
            return
        move.plan = dispositions.without_job(move.plan, why)
        move.reason = move.plan.reason
        move.blocked_by = None
        move.note(self.ctx, phases.What.FALLBACK, move.reason)

    def _without_jobs(
        self, moves: t.Iterable[run_pod_drain.PodDrain], view: job_status.View
    ) -> list[run_pod_drain.PodDrain]:
        """The moves without a job; adopts existing jobs, of a killed run or of another creator."""
        flying = {flight.target.uid for flight in self.flights.values()}
        by_pod: dict[tuple[str, ...], migration_jobs.Job] = {}
        for job in sorted(view.jobs.values(), key=lambda job: job.ours):
            if not job.ended and not job.deleting:
                # Without a UID it is about whichever pod has the name.
                by_pod[(job.pod.uid,) if job.pod.uid else (job.pod.namespace, job.pod.name)] = job
        without: list[run_pod_drain.PodDrain] = []
        for move in moves:
            pod = move.pod
            if pod.uid in flying:
                continue
            found = by_pod.get((pod.uid,)) or by_pod.get((pod.namespace, pod.name))
            if found is None:
                without.append(move)
                continue
            flight = self._flight(move, found.name, found.ttl if found.ours else math.inf)
            flight.ours = found.ours
            self.tracker.adopt(flight, found)
            self.flights[found.name] = flight
        return without

    def _flight(self, move: run_pod_drain.PodDrain, name: str, ttl: float) -> InFlightJob:
        pod = move.pod
        return InFlightJob(
            pod.ref, pod, name, move=move, node=pod.node, until=self.ctx.clock.now() + ttl
        )

    def _traffic(self, view: job_status.View) -> feed.Traffic:
        flights = [flight for flight in self.flights.values() if not flight.over]
        # The watch does not show those that were made just now.
        known = {flight.name: t.cast("migration_jobs.Job", flight.job) for flight in flights}
        known |= view.jobs
        evicting = {flight.target.uid for flight in flights if flight.evicted}
        jobs = [job for job in known.values() if not job.ended]
        taken = object_limiter.by_key(self._evictions)
        return feed.Traffic(jobs, taken, causes.seconds_of(view.now), evicting)

    @property
    def leaving(self) -> set[str]:
        """The UIDs of the pods whose eviction by a job was sent."""
        return {flight.target.uid for flight in self.flights.values() if flight.evicted}

    def _others_serve(
        self, move: run_pod_drain.PodDrain, snapshot: snapshots.Snapshot, now: float
    ) -> bool:
        """Whether enough of its workload serve without the pod: the budget may be gone."""
        if run_pod_drain.stays_as_last(move, snapshot, now):
            return False
        found = run_pod_drain.too_few(move, snapshot, self.leaving, self.prior)
        if found:
            move.block(found.object, found.message)
        return found is None

    def _keep_waiting(
        self, move: run_pod_drain.PodDrain, why: reasons.Reason, view: job_status.View, now: float
    ) -> None:
        """Say why the pod gets no job yet; without hope, or after long enough, it goes without."""
        pod = move.pod
        controller = t.cast("migration_controller.Controller", self.choices.controller)
        refused = causes.forbidden(view.snapshot, pod, controller)
        guarded = any(
            guard_budgets.is_one(view.snapshot, budget) for budget in view.snapshot.budgets_of(pod)
        )
        two = why.code == "budget_two_budgets" and not guarded
        if two or (refused and refused.code != "terminating"):
            self.instead(move, why.message)
            return
        limited = self.waits.limited(why.code)
        message = self.waits.ending(why.message, limited=limited)
        move.block(objects.Ref(migration_jobs.KIND, pod.name, pod.namespace), message)
        if limited and self.waits.over(move, view.snapshot, self.leaving, now):
            self.instead(move, why.message)

    def _create(
        self,
        move: run_pod_drain.PodDrain,
        ttl: float,
        jobs: t.Mapping[str, migration_jobs.Job],
        now: float,
    ) -> None:
        ttl = max(feed.STEPS_SECONDS, min(ttl, self.deadline - now))
        before = [job for job in jobs.values() if job.ended and job.pod.uid == move.pod.uid]
        change = self.change(move, len(before), ttl)
        flight = self._flight(move, change.target.name, ttl)
        try:
            self.tracker.create(flight, change, patience=run_requests.NO_PATIENCE, tries=MAX_TRIES)
        except run_reconcile.PASSING as error:
            # Whether it may still be created is decided again;
            # one that was created is seen on the watch.
            self._next = now + (error.retry_after or PAUSE_SECONDS)
        except (errors.Forbidden, errors.NotFound) as error:
            self.broken = f"{error}."
        except (
            errors.Invalid,
            errors.DeniedByWebhook,
            errors.ServerError,
            run_tracker.NameTaken,
        ) as error:
            self.instead(move, str(error))
        else:
            move.blocked_by = None
            self.flights[flight.name] = flight
            pod = move.pod
            self.ctx.note(
                phases.What.JOB_CREATED,
                change.sentence,
                node=pod.node,
                namespace=pod.namespace,
                name=pod.name,
            )

    def change(self, move: run_pod_drain.PodDrain, attempt: int, ttl: float) -> api_changes.Change:
        """The creation of the pod's job after ``attempt`` ended ones; ``ttl`` is in seconds."""
        controller = t.cast(migration_controller.Controller, self.choices.controller)
        pod = move.pod
        grace = move.plan.policy.grace(pod, self.grace_seconds)
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
        body["metadata"]["labels"][dispositions.POLICY] = "Eviction"
        body["metadata"]["annotations"][names.SERVES_NODES] = pod.node
        target = migration_jobs.ref_of(name)
        return api_changes.Change(
            "create", target, f"Create {target} for {pod.ref} on node {pod.node}", body=body
        )
