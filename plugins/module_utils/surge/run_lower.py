# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The second half of a surge: end the leaving pods by lowering the count,
and undo the rest of the surge.

Steps are taken by a loop that has other things to do: ``step`` never waits. It works from the surge
records alone, so the first half may have been another process, on another day,
or killed in between.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    run_context,
    run_reconcile,
    serving,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    run_node_lock,
    surge_records,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import (
    run_surge_lease,
    steps,
)

SETTLE_SECONDS = 2.0
"""Seconds the new pods have to serve where no record says that they did."""

LASTING = (
    run_surge_lease.LostSurgeError,
    run_context.CallAborted,
    surge_records.BadSurgeError,
    errors.ClusterError,
)
"""Failures that another step would meet again."""


@dataclass
class _Surge(run_surge_lease.TrackedSurge):
    """One surge on its way to the end; ``lost``: its node is not ours to empty any more."""

    state: t.Literal["open", "lowered", "done", "failed"] = "open"
    raising: bool = False
    lost: bool = False

    @property
    def over(self) -> bool:
        return self.state in ("done", "failed")


@dataclass
class Surges:
    """All surges of a drain; each is ended as a whole or not at all.

    ``failures`` maps the UID of a workload whose surge cannot be ended to the reason. A failed
    surge stays recorded: ``pdb_guard`` with ``state: absent`` undoes it. ``hooks_of`` says for
    which hooks a pod still waits, ``leases`` are those that the surges were read from.
    ``coming`` are surges that do not serve yet, as the nodes by the UIDs of workloads: they are
    added with ``add`` once they do, and written for with ``writer``, which has them.
    """

    ctx: run_context.Context
    surges: t.Sequence[surge_records.Surge]
    prove_locks: run_surge_lease.ProveLocks = lambda nodes: None
    failures: dict[str, str] = field(default_factory=dict)
    hooks_of: t.Callable[[objects.Pod], str] = lambda pod: ""
    leases: t.Iterable[objects.Raw] = ()
    coming: dict[str, str] = field(default_factory=dict)
    writer: run_surge_lease.SurgeWriter | None = None

    def __post_init__(self) -> None:
        run = self.ctx.run
        holder = str(run) if run and run.id and run.nonce else ""
        leases = run_surge_lease.SurgeLeases(self.ctx, holder, self.prove_locks, self.leases)
        self._writer = self.writer or run_surge_lease.SurgeWriter(self.ctx, leases)
        self._surges = {
            surge.uid: _Surge(surge=surge) for surge in self.surges if surge.uid not in self.coming
        }

    @property
    def done(self) -> bool:
        return all(one.over for one in self._surges.values())

    @property
    def waiting(self) -> dict[str, str]:
        """What the surges that go on wait for, by the UID of their workload."""
        return {
            uid: one.waiting
            for uid, one in self._surges.items()
            if one.waiting and uid not in self.failures
        }

    def done_with(self, node: str) -> bool:
        """Whether no surge serves the node any more."""
        coming = node in self.coming.values()
        return not coming and all(one.state == "done" for one in self._of(node))

    def add(self, surge: surge_records.Surge) -> None:
        """A surge that was coming serves; its lease has our name."""
        del self.coming[surge.uid]
        self._surges[surge.uid] = _Surge(surge=surge, claimed=True)

    def step(self, snapshot: snapshots.Snapshot, not_yet: t.Container[str] = ()) -> None:
        """Do what can be done now for every surge; one that is refused for good fails alone.

        ``not_yet`` are the UIDs of workloads of which no pod may leave yet.
        """
        endpoints = serving.Endpoints(snapshot)

        def work(one: _Surge) -> None:
            self._claim(one)
            if one.state == "open" and one.current.uid in not_yet:
                return
            self._step(one, snapshot, endpoints)

        self._each(work)

    def claim(self) -> None:
        """Make every lease ours now; they are renewed until ``close``,
        whatever else is done first.
        """
        self._each(self._claim)

    def _each(self, work: t.Callable[[_Surge], None]) -> None:
        """Do the work for all surges that are not over, at once."""

        def try_(one: _Surge) -> None:
            try:
                work(one)
            except run_node_lock.LostLockError as lost:
                self._lose(one, str(lost))
            except run_reconcile.PASSING as error:
                one.waiting = str(error)
            except LASTING as error:
                self._fail(one, str(error))

        run_surge_lease.in_parallel(
            self.ctx, [one for one in self._surges.values() if not one.over], try_
        )

    def lose(self, node: str, why: str) -> None:
        """The node is not ours to empty any more: its pods stay."""
        for one in self._of(node):
            if not one.over:
                self._lose(one, why)

    def close(self) -> None:
        if self.writer is None:
            self._writer.leases.close()

    def failed_for(self, node: str) -> str:
        """Why a surge that serves the node could not be ended, empty where none failed."""
        found = (self.failures.get(one.current.uid) for one in self._of(node))
        return "; ".join(why for why in found if why)

    def predict(self, snapshot: snapshots.Snapshot) -> None:
        """Note the changes that ending the surges will take, for check mode."""
        for one in self._surges.values():
            for change in (*steps.lowering(snapshot, one.current), one.current.forgetting()):
                self.ctx.changed(change)

    def _claim(self, one: _Surge) -> None:
        if not one.claimed:
            one.surge = self._writer.leases.claim(one.current)
            one.claimed = True

    def _of(self, node: str) -> list[_Surge]:
        return [one for one in self._surges.values() if node == one.current.node and not one.lost]

    def _lose(self, one: _Surge, why: str) -> None:
        one.lost = True
        self._fail(one, why)

    def _step(
        self, one: _Surge, snapshot: snapshots.Snapshot, endpoints: serving.Endpoints
    ) -> None:
        workload = snapshot.workload(one.current.uid)
        if self._writer.behind(workload):
            return
        ended = steps.leaving(snapshot, one.current) is None
        recounted = workload is not None and workload.replicas != one.current.target
        if one.state == "open" and workload and not (ended and recounted):
            self._lower(one, snapshot, workload, endpoints)
        elif workload and not ended:
            self._verify(one, snapshot, workload)
        else:
            self._finish(one, snapshot)

    def _lower(
        self,
        one: _Surge,
        snapshot: snapshots.Snapshot,
        workload: objects.Workload,
        endpoints: serving.Endpoints,
    ) -> None:
        if self._rebased(one, snapshot) or (one.raising and not self._raise(one, snapshot)):
            return
        surge = one.current
        leaving = steps.leaving(snapshot, surge)
        hooks = self.hooks_of(leaving) if leaving else ""
        one.waiting = steps.not_applied(snapshot, surge) or hooks
        if one.waiting:
            return
        if workload.replicas != surge.target:
            why = (
                f"{workload.ref} has {workload.replicas} replicas instead of the surge's "
                f"{surge.target}: somebody else changed the count, so its pods on the leaving "
                "nodes cannot be surged"
            )
            self._fail(one, why)
            return
        one.waiting = steps.waiting_for(snapshot, surge, endpoints, (surge.node,), lowering=True)
        if one.waiting:
            one.serving_since = None
            return
        if one.served(self.ctx.clock.now()) < SETTLE_SECONDS and surge.stage != "ready":
            one.waiting = f"the new pods of {workload.ref} to serve for {SETTLE_SECONDS:g} s"
            return
        if self._writer.do(surge, steps.lowering(snapshot, surge)):
            one.state = "lowered"
            counts = f"from {surge.target} to {surge.prior_replicas}"
            self._tell(phases.What.LOWERED, one, f"scaled {counts}, which ends {surge.pod}")

    def _rebased(self, one: _Surge, snapshot: snapshots.Snapshot, *, lowered: bool = False) -> bool:
        if not self._writer.rebase(one, snapshot, lowered=lowered):
            return False
        one.state = "open"
        one.raising = True
        return True

    def _raise(self, one: _Surge, snapshot: snapshots.Snapshot) -> bool:
        """Raise a count that somebody else set, once: whether it was, and the view shows it."""
        changes = steps.raising(snapshot, one.current)
        if changes:
            one.raising = not self._writer.do(one.current, changes)
            one.waiting = run_surge_lease.unseen(one.current)
            return False
        one.raising = False
        return True

    def _verify(
        self, one: _Surge, snapshot: snapshots.Snapshot, workload: objects.Workload
    ) -> None:
        """Verify that after lowering the leaving pods end, and no other."""
        if self._rebased(one, snapshot, lowered=True):
            return
        one.waiting = steps.not_applied(snapshot, one.current)
        if not one.waiting:
            stayed = f"{one.current.pod} stayed while another pod ended"
            self._fail(one, f"after {workload.ref} was scaled down, {stayed}")

    def _finish(self, one: _Surge, snapshot: snapshots.Snapshot) -> None:
        undo = steps.giving_back(snapshot, one.current, lowered=True)
        one.waiting = undo.waiting
        if undo.changes:
            self._writer.do(one.current, undo.changes)
            return
        if undo.waiting:
            return
        self._writer.leases.forget(one.current)
        one.state = "done"
        one.waiting = ""
        self._tell(phases.What.RESTORED, one, run_surge_lease.RESTORED)

    def _fail(self, one: _Surge, why: str) -> None:
        one.state = "failed"
        self.failures[one.current.uid] = why
        self._tell(phases.What.FAILED, one, why)

    def _tell(self, what: phases.What, one: _Surge, message: str) -> None:
        run_surge_lease.tell(self.ctx, what, message, one.current.workload, one.current.node)
