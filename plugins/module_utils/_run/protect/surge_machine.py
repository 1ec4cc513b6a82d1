# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Raising surges and taking them back: one small machine for each workload, stepped by a loop.

``plan`` (nothing is written yet) -> ``held`` (another run has it) -> ``raise`` -> ``wait`` -> ``ready``,
and from anywhere ``undo`` -> ``undone``, after which a surge that was only in the way is planned anew.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    outcomes,
    serving,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import surge_records, swap
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import (
    context,
    hands,
    node_locks,
    writing,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.protect import (
    surge_case,
    surge_lease,
    surge_nodes,
)

GRACE = 2.0
"""Seconds a refused or unplaced newcomer is given: a scheduler or a quota may be just behind."""
PATIENT_WITH = frozenset({"surge_refused", "surge_unschedulable"})


class Surging:
    """The machines of one call.

    ``planner`` gives the surges wanted now, by the UID of the workload; ``leaving`` are the nodes that
    this call empties, where no newcomer may be.
    """

    def __init__(
        self,
        ctx: context.Context,
        me: context.Run,
        settle: float,
        planner: surge_case.Planner,
        fence: surge_lease.NodesFence,
        leaving: t.Collection[str],
        cases: list[surge_case.Case],
    ) -> None:
        self._ctx, self._me, self._settle, self._planner = ctx, me, settle, planner
        self._leaving, self._lost = frozenset(leaving), set[str]()
        self._leases = surge_lease.SurgeLeases(ctx, str(me), fence)
        self._hands = hands.Hands(ctx, lambda: fence(self._leaving))
        self.cases = cases

    @property
    def done(self) -> bool:
        """Whether no machine has a step left."""
        return not any(case.open for case in self.cases)

    def step(self, snapshot: snapshots.Snapshot) -> None:
        """Do for every workload what can be done now."""
        look = surge_case.Look(snapshot, self._planner)
        for case in self.cases:
            try:
                if case.open:
                    self._step(case, look)
            except node_locks.LostLockError as lost:
                self._lose(case, lost)
            except surge_lease.LostSurgeError as error:
                self._end(
                    case,
                    outcomes.WorkloadOutcome.ADOPTED_BY,
                    str(error),
                    "Look at the other run; it goes on with the surge.",
                )
            except context.StopRun as stop:
                self._end(case, outcomes.WorkloadOutcome.FAILED, stop.reason.message, stop.reason.remedy)
            except surge_records.BadSurgeError as error:
                self._end(case, outcomes.WorkloadOutcome.BAD_SURGE, str(error), "")
            except writing.PASSING as error:
                case.waiting = str(error)
            except errors.ClusterError as error:
                self._refused(case, error)

    def close(self) -> None:
        """Renew no lease any more."""
        self._leases.close()

    def fail_open(self, outcome: outcomes.WorkloadOutcome, message: str) -> None:
        """Give up what is not ready, and take it back."""
        for case in self.cases:
            if not case.open or case.state == "undo":
                continue
            waited = f"{case.workload} was {message}"
            waited += f": {case.waiting}." if case.waiting else "."
            self._give_up(case, outcome, waited, "Look at what it waited for, then run again.")

    # -- the steps ----------------------------------------------------------------------------------

    def _lose(self, case: surge_case.Case, lost: node_locks.LostLockError) -> None:
        """Go on for the other nodes that the surge serves."""
        self._lost.add(lost.node)
        case.nodes = tuple(node for node in case.nodes if node not in self._lost)
        if case.surge:
            case.surge, case.fewer = surge_nodes.without(case.surge, self._lost), True
        if not (case.surge.nodes if case.surge else case.nodes):
            self._end(case, outcomes.WorkloadOutcome.ADOPTED_BY, lost.reason.message, lost.reason.remedy)

    def _step(self, case: surge_case.Case, look: surge_case.Look) -> None:
        if case.fewer and case.state in ("raise", "wait") and not self._let_go(case, look.snapshot):
            return
        match case.state:
            case "plan" | "held":
                self._plan(case, look)
            case "raise":
                self._raise(case, look.snapshot)
            case "wait":
                self._wait(case, look.snapshot, look.endpoints)
            case "undo":
                self._undo(case, look.snapshot)

    def _let_go(self, case: surge_case.Case, snapshot: snapshots.Snapshot) -> bool:
        """Let the pods of lost nodes stay: whether that is done, and the view shows it."""
        surge = t.cast("surge_records.Surge", case.surge)
        smaller = surge_nodes.let_go(self._leases, self._hands, snapshot, surge)
        if smaller is None:
            case.waiting = f"the changes to {surge.workload} to be seen"
            return False
        case.surge, case.fewer = smaller, False
        self._tell("note", case, f"the surge of {surge.workload} goes on for {', '.join(sorted(smaller.nodes))}")
        return True

    def _plan(self, case: surge_case.Case, look: surge_case.Look) -> None:
        """Find out whose the workload is, and write our record if it is nobody's."""
        if bad := look.unreadable.get(case.workload.uid):
            raise bad
        found = look.recorded.get(case.workload.uid)
        if found and found.lease_uid == case.forgotten:
            found = None
        if found is None:
            self._begin(case, look)
        elif found.run == self._me.id or self._silent(case, found):
            self._take(case, found, look)
        else:
            case.state = "held"
            case.waiting = f"run {found.run} of {found.by} to end its surge of {found.workload} (since {found.since})"

    def _begin(self, case: surge_case.Case, look: surge_case.Look) -> None:
        wanted = look.wanted.get(case.workload.uid)
        if wanted is None and (why := swap.restless(look.snapshot, case.workload.uid)):
            # What is still moving is refused for now; an undo of a moment ago looks like that, too.
            case.state, case.waiting = "plan", why
            return
        if wanted is None:
            case.state, case.outcome = "undone", outcomes.WorkloadOutcome.ENDED
            case.message = f"No pod of {case.workload} has to leave by a swap any more."
            return
        try:
            case.surge = self._leases.write(wanted)
        except errors.AlreadyExists:
            case.waiting = f"the record of another surge of {case.workload}"
            return
        case.claimed, case.state, case.waiting = True, "raise", ""
        self._raise(case, look.snapshot)

    def _silent(self, case: surge_case.Case, found: surge_records.Surge) -> bool:
        """Whether a foreign lease stayed as it is for its duration, on our own clock."""
        now = self._ctx.clock.now()
        if case.foreign != found.resource_version:
            case.foreign, case.foreign_since = found.resource_version, now
        return now - case.foreign_since >= found.duration

    def _take(self, case: surge_case.Case, found: surge_records.Surge, look: surge_case.Look) -> None:
        """Go on with our own run's surge where it fits, else take it back and plan anew."""
        try:
            case.fewer = not self._lost.isdisjoint(found.nodes) or surge_nodes.strays(look.snapshot, found)
            case.surge, case.claimed, case.waiting = self._leases.hold(surge_nodes.without(found, self._lost)), True, ""
        except surge_lease.LostSurgeError:
            # It was not silent after all, or ended at this moment.
            case.state, case.waiting = "held", f"a fresh view of the surge of {found.workload}"
            return
        wanted = look.wanted.get(case.workload.uid)
        fits = wanted is not None and wanted.leaving.keys() <= found.leaving.keys()
        if found.run == self._me.id and fits:
            case.surge = replace(case.surge, stage="raising")
            case.state = "raise"
        else:
            case.state, case.again = "undo", True

    def _raise(self, case: surge_case.Case, snapshot: snapshots.Snapshot) -> None:
        surge = t.cast("surge_records.Surge", case.surge)
        workload = snapshot.workload(surge.uid)
        if workload is None:
            self._give_up(case, outcomes.WorkloadOutcome.ENDED, f"{surge.workload} is gone.", "")
            return
        if self._hands.behind(workload.ref, workload.resource_version):
            return
        changes = swap.raising(snapshot, surge)
        if changes and not self._do(surge, changes):
            case.waiting = f"a fresh view of {surge.workload}"
            return
        case.state = "wait"
        for change in changes:
            if change.target.kind == "PodDisruptionBudget":
                self._tell("pinned", case, change.sentence)
        if any(change.verb == "scale" for change in changes):
            extra = surge.target - surge.prior_replicas
            self._tell(
                "raised", case, f"{surge.prior_replicas} -> {surge.target} replicas, {extra} to replace the leaving"
            )

    def _wait(self, case: surge_case.Case, snapshot: snapshots.Snapshot, endpoints: serving.Endpoints) -> None:
        surge, now = t.cast("surge_records.Surge", case.surge), self._ctx.clock.now()
        workload = snapshot.workload(surge.uid)
        if workload and self._hands.behind(workload.ref, workload.resource_version):
            return
        if other := swap.rebased(snapshot, surge):
            case.surge, case.state, case.serving_since = self._leases.hold(other), "raise", None
            self._tell("note", case, f"somebody set {surge.workload} to {other.prior_replicas} replicas: so be it")
            return
        case.waiting = swap.waiting_for(snapshot, surge, endpoints, self._leaving)
        ended = workload is not None and not swap.alive(snapshot, surge)
        if ended and not case.waiting:
            self._ready(case, outcomes.WorkloadOutcome.ENDED, f"the leaving pods of {surge.workload} are gone already")
            return
        blocked = None if ended else swap.blocked(snapshot, surge, self._leaving)
        if blocked:
            case.blocked_since = case.blocked_since or now
            # A count that was put back takes a moment to end a pod, and it may be a leaving one.
            acting = blocked.code == "surge_reverted" and swap.settled(snapshot, surge)
            patient = blocked.code in PATIENT_WITH and now - case.blocked_since < GRACE
            if not acting and not patient:
                gone = blocked.code == "workload_gone"
                outcome = outcomes.WorkloadOutcome.ENDED if gone else outcomes.WorkloadOutcome(blocked.code)
                self._give_up(case, outcome, blocked.message, blocked.remedy)
            return
        case.blocked_since = None
        if case.waiting:
            case.serving_since = None
            return
        case.serving_since = now if case.serving_since is None else case.serving_since
        if now - case.serving_since >= self._settle:
            self._ready(
                case,
                outcomes.WorkloadOutcome.RAISED,
                f"{surge.workload} serves with {workload and workload.replicas} pods",
            )
        else:
            case.waiting = f"the new pods of {surge.workload} to serve for {self._settle:g} s"

    def _ready(self, case: surge_case.Case, outcome: outcomes.WorkloadOutcome, message: str) -> None:
        surge = t.cast("surge_records.Surge", case.surge)
        case.surge = self._leases.hold(replace(surge, stage="ready"))
        case.state, case.outcome, case.message, case.waiting = "ready", outcome, message, ""
        self._tell("ready", case, message)

    def _undo(self, case: surge_case.Case, snapshot: snapshots.Snapshot) -> None:
        surge = t.cast("surge_records.Surge", case.surge)
        if not case.claimed or case.fewer:
            # What is given back as a whole gives the pods of a lost node their costs back, too.
            case.surge = surge = self._leases.hold(surge)
            case.claimed, case.fewer = True, False
        workload = snapshot.workload(surge.uid)
        if workload and self._hands.behind(workload.ref, workload.resource_version):
            return
        if case.shrunk:
            self._shrink(case, snapshot, surge, case.shrunk)
            return
        undo = swap.giving_back(snapshot, surge)
        case.kept = tuple(dict.fromkeys((*case.kept, *undo.kept)))
        if undo.changes:
            self._do(surge, undo.changes)
            case.waiting = undo.waiting or f"the changes to {surge.workload} to be seen"
            return
        case.waiting = undo.waiting
        if not undo.waiting:
            self._leases.forget(surge)
            case.forgotten = surge.lease_uid
            self._undone(case)

    def _shrink(
        self,
        case: surge_case.Case,
        snapshot: snapshots.Snapshot,
        surge: surge_records.Surge,
        smaller: surge_records.Surge,
    ) -> None:
        """Give back the part of the nodes that need it no more."""
        changes = swap.shrinking(snapshot, surge, smaller)
        if changes:
            self._do(surge, changes)
            case.waiting = f"the changes to {surge.workload} to be seen"
            return
        self._leases.hold(surge.with_record_of(smaller))
        case.state, case.outcome, case.waiting = "undone", outcomes.WorkloadOutcome.GIVEN_BACK_IN_PART, ""
        case.message = f"the surge of {case.workload} goes on for {', '.join(sorted(smaller.nodes))}"

    def _undone(self, case: surge_case.Case) -> None:
        self._tell("given_back", case, f"{case.workload} is as it was before its surge")
        for what in case.kept:
            self._tell("kept", case, what)
        case.surge, case.claimed, case.waiting = None, False, ""
        if case.again:
            case.again, case.state = False, "plan"
            return
        case.state = "undone"
        case.outcome = case.outcome or outcomes.WorkloadOutcome.GIVEN_BACK
        case.message = case.message or f"{case.workload} is as it was before its surge"

    # -- ends ---------------------------------------------------------------------------------------

    def _refused(self, case: surge_case.Case, error: errors.ClusterError) -> None:
        """A change that the server refuses for good ends the surge; one of an undo stays recorded."""
        if case.state == "undo":
            self._end(
                case,
                outcomes.WorkloadOutcome.UNDO_FAILED,
                f"{case.message} {error}".strip(),
                "Mend that, then run recover -e recover_state=undone.",
            )
        else:
            self._give_up(case, outcomes.WorkloadOutcome.SURGE_DENIED, str(error), "")

    def _give_up(self, case: surge_case.Case, outcome: outcomes.WorkloadOutcome, message: str, remedy: str) -> None:
        self._tell("failed" if outcome.failed else "note", case, message)
        case.outcome, case.message, case.remedy, case.again = outcome, message, remedy, False
        case.state = "undo" if case.surge and case.claimed else "undone"

    def _end(self, case: surge_case.Case, outcome: outcomes.WorkloadOutcome, message: str, remedy: str) -> None:
        self._tell("failed", case, message)
        case.outcome, case.message, case.remedy, case.state = outcome, message, remedy, "undone"

    def _do(self, surge: surge_records.Surge, changes: t.Iterable[api_changes.Change]) -> bool:
        return self._hands.do(changes, lambda: self._leases.prove(surge))

    def _tell(self, what: str, case: surge_case.Case, message: str) -> None:
        node = case.nodes[0] if case.nodes else ""
        self._ctx.tell(what, message, node=node, namespace=case.workload.namespace, name=case.workload.name)
