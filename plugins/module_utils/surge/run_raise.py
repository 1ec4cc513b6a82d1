# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Raising surges and undoing them: one small state machine for each workload, stepped by a loop.

``plan`` (nothing is written yet) -> ``of_other_run`` -> ``raise`` -> ``wait`` ->
``ready``, and from anywhere ``undo`` -> ``undone``, after which a surge that only blocked
another is planned anew.
"""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    run_context,
    run_reconcile,
    serving,
    snapshots,
    unready,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    run_node_lock,
    surge_records,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import (
    run_surge_lease,
    steps,
)

GRACE_SECONDS = 2.0
"""Seconds a refused or unplaced new pod is given: the scheduler or a quota may be just behind."""
SECONDS_BY_CODE = {
    "surge_refused": GRACE_SECONDS,
    "surge_unschedulable": GRACE_SECONDS,
    "surge_not_starting": 60.0,
    "surge_not_scheduled": 60.0,
}
"""For how many seconds a reason has to last. Kubelets try again,
a registry or a scheduler may be away for a moment.
"""
CONSENT_IS_NO_HELP = frozenset({"surge_not_scheduled"})
"""Reasons for which the pod's successor would not run again on its own node either."""
State = t.Literal["plan", "of_other_run", "raise", "wait", "ready", "undo", "undone"]
Planner = t.Callable[[snapshots.Snapshot], t.Mapping[str, surge_records.Surge]]


@dataclass
class WorkloadSurge(run_surge_lease.TrackedSurge):
    """One workload of a call of ``pdb_guard``.

    ``again``: its present surge only blocks the wanted one, which is planned once this one is
    undone. ``forgotten`` is the UID of the lease that was deleted last, ``foreign`` the
    resourceVersion of another run's lease and ``foreign_since`` when it was seen first.
    """

    workload: objects.Ref
    node: str
    state: State
    again: bool = False
    forgotten: str = ""
    foreign: str = ""
    foreign_since: float = 0.0
    blocked_by: str = ""
    blocked_since: float | None = None
    kept: tuple[str, ...] = ()
    outcome: outcomes.WorkloadOutcome | None = None
    message: str = ""
    remedy: str = ""

    @property
    def open(self) -> bool:
        return self.state not in ("ready", "undone")

    @property
    def failed(self) -> bool:
        """Whether it ended without the protection that was wanted."""
        return self.outcome is not None and self.outcome.failed

    def silent(self, snapshot: snapshots.Snapshot) -> objects.Ref | None:
        """The object of which Events alone may say why a new pod does not serve."""
        workload = snapshot.workload(self.workload.uid) if self.state == "wait" else None
        return unready.silent(snapshot, snapshot.pods_of(workload), workload) if workload else None

    def end(
        self,
        ctx: run_context.Context,
        what: outcomes.WorkloadOutcome,
        message: str,
        remedy: str = "",
        undo: bool = False,
    ) -> None:
        """Decide the outcome; with ``undo`` what was changed for it is undone,
        else nothing more is written.
        """
        self.outcome = what
        self.message = message
        self.remedy = remedy
        self.again = False
        self.state = "undo" if undo and self.surge and self.claimed else "undone"
        self.tell(ctx, phases.What.FAILED if what.failed else phases.What.NOTE, message)

    def leave(self) -> None:
        """Leave the surge as it is recorded, as its node is not emptied any more."""
        self.state = "undone"
        self.outcome = outcomes.WorkloadOutcome.ENDED
        self.message = f"Node {self.node} is not emptied any more."

    def tell(self, ctx: run_context.Context, what: phases.What, message: str) -> None:
        run_surge_lease.tell(ctx, what, message, self.workload, self.node)


@dataclass
class Look:
    """What the cases read from one snapshot; ``recorded`` only while one is planned,
    by the UIDs of workloads.
    """

    snapshot: snapshots.Snapshot
    endpoints: serving.Endpoints
    recorded: t.Mapping[str, surge_records.Surge | surge_records.BadSurgeError]
    planner: Planner

    @functools.cached_property
    def wanted(self) -> t.Mapping[str, surge_records.Surge]:
        """By the UIDs of workloads. A case that waits for another run, for minutes maybe, needs no
        plan in each turn.
        """
        return self.planner(self.snapshot)

    def ahead(self) -> None:
        """Work out what is wanted now, before several threads ask for it."""
        len(self.wanted)


@dataclass
class Surging:
    """The surges of one call, each stepped until it is ready or undone.

    ``planner`` gives the surges wanted now, by the UID of the workload; ``leaving`` are the nodes
    that this call empties, where no new pod may be. ``allow_interruption``: where no second pod
    comes to serve, the drain may interrupt the workload instead, as its owner may allow, too.
    ``node_autoscaler``: a node is added for a pod that fits nowhere.
    """

    ctx: run_context.Context
    me: run_context.Run
    settle: float
    planner: Planner
    prove_locks: run_surge_lease.ProveLocks
    leaving: t.Collection[str]
    cases: list[WorkloadSurge]
    allow_interruption: bool = False
    node_autoscaler: bool = False

    def __post_init__(self) -> None:
        leases = run_surge_lease.SurgeLeases(self.ctx, str(self.me), self.prove_locks)
        self.writer = run_surge_lease.SurgeWriter(self.ctx, leases)
        leaving = frozenset(self.leaving)
        allowed, grows = self.allow_interruption, self.node_autoscaler
        self._raising = _Raising(
            self.ctx, self.me, self.settle, leaving, self.writer, allowed, grows
        )

    @property
    def done(self) -> bool:
        return not any(case.open for case in self.cases)

    @property
    def begun(self) -> bool:
        """Whether every surge is decided, or recorded and raised, and only has to serve."""
        return all(case.state in ("wait", "ready", "undone") for case in self.cases)

    @property
    def planning(self) -> bool:
        """Whether a case is still to be planned, such as one that another run has."""
        return any(case.state in ("plan", "of_other_run") for case in self.cases)

    @property
    def seconds_left(self) -> float:
        """Seconds until the first of the new pods have served for long
        enough, if nothing changes.
        """
        return min(
            (self._settling(case) for case in self.cases if case.state == "wait"),
            default=float("inf"),
        )

    def step(self, snapshot: snapshots.Snapshot) -> None:
        """Called by the loop in each turn: do what can be done now for every case, in parallel for
        those that may write.
        """
        recorded = surge_records.recorded(snapshot) if self.planning else {}
        look = Look(snapshot, serving.Endpoints(snapshot), recorded, self.planner)
        going = [case for case in self.cases if case.open]
        if any(case.state == "plan" for case in going):
            look.ahead()
        quiet = [case for case in going if case.state == "wait" and self._settling(case) > 0]
        for case in quiet:
            self._try(case, look)
        run_surge_lease.in_parallel(
            self.ctx,
            [case for case in going if case not in quiet],
            lambda case: self._try(case, look),
        )

    def _settling(self, case: WorkloadSurge) -> float:
        """Seconds for which the new pods of a case still have to serve."""
        since = case.serving_since
        return float("inf") if since is None else self.settle - (self.ctx.clock.now() - since)

    def _try(self, case: WorkloadSurge, look: Look) -> None:
        try:
            self._step(case, look)
        except run_node_lock.LostLockError as lost:
            why = lost.reason
            case.end(self.ctx, outcomes.WorkloadOutcome.ADOPTED_BY, why.message, why.remedy)
        except run_surge_lease.LostSurgeError as error:
            remedy = "Look at the other run: it continues the surge."
            case.end(self.ctx, outcomes.WorkloadOutcome.ADOPTED_BY, str(error), remedy)
        except run_context.CallAborted as stop:
            case.end(
                self.ctx, outcomes.WorkloadOutcome.FAILED, stop.reason.message, stop.reason.remedy
            )
        except surge_records.BadSurgeError as error:
            case.end(self.ctx, outcomes.WorkloadOutcome.BAD_SURGE, str(error))
        except run_reconcile.PASSING as error:
            case.waiting = str(error)
        except errors.ClusterError as error:
            self._refused(case, error, look.snapshot)

    def close(self) -> None:
        self.writer.leases.close()

    def fail_open(
        self, outcome: outcomes.WorkloadOutcome, message: str, snapshot: snapshots.Snapshot
    ) -> None:
        """Give up what is not ready, and undo it."""
        for case in self.cases:
            if case.open and case.state != "undo":
                waited = f"{case.workload} was {message}"
                waited += f": {case.waiting}." if case.waiting else "."
                allowed = case.blocked_since is not None and self._raising.may_interrupt(
                    case, snapshot
                )
                ended = outcomes.WorkloadOutcome.INTERRUPTION_ALLOWED if allowed else outcome
                case.end(
                    self.ctx,
                    ended,
                    waited,
                    "Look at what it waited for, then run again.",
                    undo=True,
                )

    def _step(self, case: WorkloadSurge, look: Look) -> None:
        match case.state:
            case "plan" | "of_other_run":
                self._raising.plan(case, look)
            case "raise":
                self._raising.scale(case, look.snapshot)
            case "wait":
                self._raising.wait(case, look)
            case "undo":
                self._undo(case, look.snapshot)

    def _undo(self, case: WorkloadSurge, snapshot: snapshots.Snapshot) -> None:
        """One step on the way back."""
        surge = case.current
        if not case.claimed:
            case.surge = surge = self.writer.leases.claim(surge)
            case.claimed = True
        if self.writer.behind(snapshot.workload(surge.uid)):
            return
        undo = steps.giving_back(snapshot, surge)
        case.kept = tuple(dict.fromkeys((*case.kept, *undo.kept)))
        if undo.changes:
            self.writer.do(surge, undo.changes)
            case.waiting = undo.waiting or run_surge_lease.unseen(surge)
            return
        case.waiting = undo.waiting
        if not undo.waiting and case.outcome is outcomes.WorkloadOutcome.INTERRUPTION_ALLOWED:
            # The drain learns it from the record, which goes when the nodes are given back.
            case.surge = self.writer.leases.claim(replace(surge, stage="reverted"))
            case.state = "undone"
            case.tell(
                self.ctx,
                phases.What.NOTE,
                f"{run_surge_lease.RESTORED}; its pods may be interrupted",
            )
        elif not undo.waiting:
            self.writer.leases.forget(surge)
            case.forgotten = surge.lease_uid
            case.tell(self.ctx, phases.What.GIVEN_BACK, run_surge_lease.RESTORED)
            for kept in case.kept:
                case.tell(self.ctx, phases.What.KEPT, kept)
            case.surge = None
            case.claimed = False
            if case.again:
                case.again = False
                case.state = "plan"
            else:
                case.state = "undone"
                case.outcome = case.outcome or outcomes.WorkloadOutcome.GIVEN_BACK
                case.message = case.message or run_surge_lease.RESTORED

    def _refused(
        self, case: WorkloadSurge, error: errors.ClusterError, snapshot: snapshots.Snapshot
    ) -> None:
        """A change that the server refuses for good ends the surge;
        one of an undo stays recorded.
        """
        if case.state == "undo":
            message = f"{case.message} {error}".strip()
            remedy = "Fix that, then run recover -e recover_state=undone."
            case.end(self.ctx, outcomes.WorkloadOutcome.UNDO_FAILED, message, remedy)
        else:
            outcome = outcomes.WorkloadOutcome.SURGE_DENIED
            if self._raising.may_interrupt(case, snapshot):
                outcome = outcomes.WorkloadOutcome.INTERRUPTION_ALLOWED
            case.end(self.ctx, outcome, str(error), undo=True)


@dataclass
class _Raising:
    """The way of a workload from its plan to a surge that serves."""

    _ctx: run_context.Context
    _me: run_context.Run
    _settle: float
    _leaving: frozenset[str]
    _writer: run_surge_lease.SurgeWriter
    _allow_interruption: bool
    _node_autoscaler: bool

    def plan(self, case: WorkloadSurge, look: Look) -> None:
        """Find out who has the workload, and write our record if nobody has."""
        found = look.recorded.get(case.workload.uid)
        if isinstance(found, surge_records.BadSurgeError):
            raise found
        if found is None or found.lease_uid == case.forgotten:
            self._begin(case, look)
        elif found.run == self._me.id or self._silent(case, found):
            self._take(case, found, look)
        else:
            case.state = "of_other_run"
            case.waiting = (
                f"run {found.run} of {found.by} to end its surge of {found.workload} "
                f"(since {found.since})"
            )

    def _begin(self, case: WorkloadSurge, look: Look) -> None:
        wanted = look.wanted.get(case.workload.uid)
        if why := steps.not_at_rest(look.snapshot, case.workload.uid):
            # What is still moving is refused for now, or has a pod too many;
            # so has an undo of a moment ago.
            case.state = "plan"
            case.waiting = why
            return
        if wanted is None:
            case.state = "undone"
            case.outcome = outcomes.WorkloadOutcome.ENDED
            case.message = f"No pod of {case.workload} has to leave by a surge any more."
            return
        try:
            case.surge = self._writer.leases.write(wanted)
        except errors.AlreadyExists:
            case.waiting = f"the record of another surge of {case.workload}"
            return
        case.claimed = True
        case.state = "raise"
        case.waiting = ""
        self.scale(case, look.snapshot)

    def _silent(self, case: WorkloadSurge, found: surge_records.Surge) -> bool:
        """Whether a foreign lease has not changed for its duration, on our own clock."""
        now = self._ctx.clock.now()
        if case.foreign != found.resource_version:
            case.foreign = found.resource_version
            case.foreign_since = now
        return now - case.foreign_since >= found.duration

    def _take(self, case: WorkloadSurge, found: surge_records.Surge, look: Look) -> None:
        """Go on with our own run's surge where it fits, else undo it and plan anew."""
        try:
            surge = self._writer.leases.claim(found)
        except run_surge_lease.LostSurgeError:
            # It was not silent after all, or ended at this moment.
            case.state = "of_other_run"
            case.waiting = f"a fresh view of the surge of {found.workload}"
            return
        case.surge = surge
        case.claimed = True
        case.waiting = ""
        wanted = look.wanted.get(case.workload.uid)
        if found.run == self._me.id and wanted is not None and wanted.pod_uid == found.pod_uid:
            case.surge = replace(surge, stage="raising")
            case.state = "raise"
        else:
            case.state = "undo"
            case.again = True

    def scale(self, case: WorkloadSurge, snapshot: snapshots.Snapshot) -> None:
        """Raise the count, with all that has to be changed before it."""
        surge = case.current
        workload = snapshot.workload(surge.uid)
        if workload is None:
            case.end(
                self._ctx, outcomes.WorkloadOutcome.ENDED, f"{surge.workload} is gone.", undo=True
            )
            return
        if self._writer.behind(workload):
            return
        changes = steps.raising(snapshot, surge)
        if changes and not self._writer.do(surge, changes):
            case.waiting = run_surge_lease.unseen(surge)
            return
        case.state = "wait"
        if any(change.verb == "scale" for change in changes):
            message = (
                f"scaled from {surge.prior_replicas} to {surge.target}: "
                "the extra pod replaces the one being moved"
            )
            case.tell(self._ctx, phases.What.RAISED, message)

    def wait(self, case: WorkloadSurge, look: Look) -> None:
        """Look whether the new pods serve, or never will."""
        snapshot = look.snapshot
        surge = case.current
        now = self._ctx.clock.now()
        workload = snapshot.workload(surge.uid)
        if self._writer.behind(workload):
            return
        if self._writer.rebase(case, snapshot):
            case.state = "raise"
            return
        case.waiting = steps.waiting_for(snapshot, surge, look.endpoints, self._leaving)
        ended = workload is not None and steps.leaving(snapshot, surge) is None
        if ended and not case.waiting:
            self._ready(
                case, outcomes.WorkloadOutcome.ENDED, "the pods to be replaced are gone already"
            )
            return
        if blocked := None if ended else steps.blocked(snapshot, surge, self._leaving):
            self._blocked(case, blocked, snapshot)
            return
        case.blocked_since = None
        if case.waiting:
            case.serving_since = None
        elif case.served(now) >= self._settle:
            ready = f"serving with {workload and workload.replicas} pods"
            self._ready(case, outcomes.WorkloadOutcome.RAISED, ready)
        else:
            case.waiting = f"the new pods of {surge.workload} to serve for {self._settle:g} s"

    def _blocked(
        self, case: WorkloadSurge, why: reasons.Reason, snapshot: snapshots.Snapshot
    ) -> None:
        """Give up, unless it may only be a moment's."""
        now = self._ctx.clock.now()
        if case.blocked_since is None or case.blocked_by != why.code:
            case.blocked_by = why.code
            case.blocked_since = now
            case.serving_since = None
        # A count that was put back takes a moment to end a pod, and it may be a leaving one.
        acting = why.code == "surge_reverted" and steps.not_applied(snapshot, case.current)
        patient = now - case.blocked_since < SECONDS_BY_CODE.get(why.code, 0.0)
        # It is the pod without a place for which a node is added, however long that takes.
        patient = patient or (self._node_autoscaler and why.code == "surge_unschedulable")
        if not acting and not patient:
            gone = why.code == "workload_gone"
            outcome = outcomes.WorkloadOutcome.ENDED if gone else outcomes.WorkloadOutcome(why.code)
            if outcome.failed and self.may_interrupt(case, snapshot):
                outcome = outcomes.WorkloadOutcome.INTERRUPTION_ALLOWED
            case.end(self._ctx, outcome, why.message, why.remedy, undo=True)

    def may_interrupt(self, case: WorkloadSurge, snapshot: snapshots.Snapshot) -> bool:
        """Whether its pods may be evicted where no second one comes to serve;
        its record then tells the drain so.
        """
        if not case.surge or not case.claimed or case.surge.prior_replicas != 1:
            return False
        if case.blocked_since is not None and case.blocked_by in CONSENT_IS_NO_HELP:
            return False
        workload = snapshot.workload(case.workload.uid)
        return workload is not None and (self._allow_interruption or workload.interruptible)

    def _ready(self, case: WorkloadSurge, outcome: outcomes.WorkloadOutcome, message: str) -> None:
        case.surge = self._writer.leases.claim(replace(case.current, stage="ready"))
        case.state = "ready"
        case.outcome = outcome
        case.message = message
        case.waiting = ""
        case.tell(self._ctx, phases.What.READY, message)
