# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The second half of a swap: end the leaving pods by lowering the count, and give the rest back.

Steps are taken by a loop that has other things to do: ``step`` never waits. It works from the surge
records alone, so the first half may have been another process, on another day, or killed in between.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    objects,
    serving,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import pins, surge_records, swap
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import (
    context,
    hands,
    node_locks,
    writing,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.protect import surge_lease, surge_nodes

SETTLE = 2.0
"""Seconds the newcomers have to serve where nobody has recorded that they did."""


@dataclass
class _Swap:
    """One surge on its way to the end."""

    surge: surge_records.Surge
    state: t.Literal["open", "lowered", "done", "failed"] = "open"
    claimed: bool = False
    fewer: bool = False
    """It lost a node of several, which is not written down yet."""
    raising: bool = False
    serving_since: float | None = None
    waiting: str = ""
    kept: tuple[str, ...] = ()


@dataclass
class Swaps:
    """All swaps of a drain.

    ``failures`` maps the UID of a workload whose swap cannot be ended to the reason, ``waiting`` that
    of one that goes on to what it waits for. A failed surge stays recorded: ``pdb_guard`` with
    ``state: absent`` gives it back.
    """

    ctx: context.Context
    surges: t.Sequence[surge_records.Surge]
    fence: surge_lease.NodesFence = lambda nodes: None
    failures: dict[str, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        run = self.ctx.run
        self._leases = surge_lease.SurgeLeases(self.ctx, str(run) if run and run.id and run.nonce else "", self.fence)
        self._hands = hands.Hands(self.ctx)
        self._swaps = {surge.uid: _Swap(surge) for surge in self.surges}

    @property
    def done(self) -> bool:
        """Whether nothing is left to do, be it that all swaps ended or that the others failed."""
        return all(one.state in ("done", "failed") for one in self._swaps.values())

    @property
    def waiting(self) -> dict[str, str]:
        """What the swaps that go on wait for, by the UID of their workload."""
        return {uid: one.waiting for uid, one in self._swaps.items() if one.waiting and uid not in self.failures}

    def done_with(self, node: str) -> bool:
        """Whether no surge serves the node any more."""
        return all(one.state == "done" for one in self._swaps.values() if node in one.surge.nodes)

    def leave(self, workloads: t.Collection[str]) -> None:
        """Let these workloads, named by UID, keep their surge; a swap is ended as a whole or not at all."""
        for uid in workloads:
            self._swaps.pop(uid, None)

    def step(self, snapshot: snapshots.Snapshot) -> None:
        """Do what can be done now for every swap; one that is refused for good fails alone."""
        endpoints = serving.Endpoints(snapshot.slices)
        for one in self._swaps.values():
            if one.state in ("done", "failed"):
                continue
            try:
                self._hold(one)
                one.fewer = one.fewer or surge_nodes.strays(snapshot, one.surge)
                if not one.fewer or self._let_go(one, snapshot):
                    self._step(one, snapshot, endpoints)
            except node_locks.LostLockError as lost:
                self._lose(one, lost.node, str(lost))
            except writing.PASSING as error:
                one.waiting = str(error)
            except (
                surge_lease.LostSurgeError,
                context.StopRun,
                surge_records.BadSurgeError,
                errors.ClusterError,
            ) as error:
                self._fail(one, str(error))

    def hold(self) -> None:
        """Put our name into every lease now; they are renewed until ``close``, whatever else is done first."""
        for one in self._swaps.values():
            try:
                self._hold(one)
            except node_locks.LostLockError as lost:
                self._lose(one, lost.node, str(lost))
            except writing.PASSING:
                # ``step`` tries again, and tells for what it waits.
                continue
            except (
                surge_lease.LostSurgeError,
                context.StopRun,
                surge_records.BadSurgeError,
                errors.ClusterError,
            ) as error:
                self._fail(one, str(error))

    def lose(self, node: str, why: str) -> None:
        """The node is not ours to empty any more: its pods stay, and its surges go on for their other nodes."""
        for one in self._swaps.values():
            if node in one.surge.nodes and one.state not in ("done", "failed"):
                self._lose(one, node, why)

    def close(self) -> None:
        """Renew no lease any more."""
        self._leases.close()

    def failed_for(self, node: str) -> str:
        """Why a surge that serves the node could not be ended, empty where none failed."""
        found = (self.failures.get(uid) for uid, one in self._swaps.items() if node in one.surge.nodes)
        return "; ".join(why for why in found if why)

    def predict(self, snapshot: snapshots.Snapshot) -> None:
        """Note the changes that ending the swaps will take, for check mode."""
        for one in self._swaps.values():
            unpinned, _kept = pins.unpinning(snapshot, one.surge)
            for change in (*swap.lowering(snapshot, one.surge), *unpinned, one.surge.forgetting()):
                self.ctx.changed(change)

    def _hold(self, one: _Swap) -> None:
        if not one.claimed:
            one.surge, one.claimed = self._leases.hold(one.surge), True

    def _lose(self, one: _Swap, node: str, why: str) -> None:
        one.surge, one.fewer = surge_nodes.without(one.surge, [node]), True
        if not one.surge.nodes:
            self._fail(one, why)

    def _let_go(self, one: _Swap, snapshot: snapshots.Snapshot) -> bool:
        """Let the pods of lost nodes stay: whether that is done, and the view shows it."""
        smaller = surge_nodes.let_go(self._leases, self._hands, snapshot, one.surge)
        if smaller is None:
            one.waiting = f"the changes to {one.surge.workload} to be seen"
            return False
        one.surge, one.fewer = smaller, False
        self._tell("note", one, f"the surge of {smaller.workload} goes on for {', '.join(sorted(smaller.nodes))}")
        return True

    def _step(self, one: _Swap, snapshot: snapshots.Snapshot, endpoints: serving.Endpoints) -> None:
        workload = snapshot.workload(one.surge.uid)
        if workload and self._hands.behind(workload.ref, workload.resource_version):
            return
        ended = not swap.alive(snapshot, one.surge)
        if one.state == "open" and workload and not (ended and workload.replicas != one.surge.target):
            self._lower(one, snapshot, workload, endpoints)
        elif workload and not ended:
            self._verify(one, snapshot, workload)
        else:
            self._finish(one, snapshot)

    def _lower(
        self, one: _Swap, snapshot: snapshots.Snapshot, workload: objects.Workload, endpoints: serving.Endpoints
    ) -> None:
        surge, now = one.surge, self.ctx.clock.now()
        if self._rebase(one, snapshot) or (one.raising and not self._raise(one, snapshot)):
            return
        one.waiting = swap.settled(snapshot, surge)
        if one.waiting:
            return
        count = swap.lowered_count(snapshot, surge, workload)
        if count is None or count >= workload.replicas:
            self._fail(
                one,
                f"{workload.ref} has {workload.replicas} replicas where the surge asked for {surge.target}: "
                "somebody else changed the count, so its pods on the leaving nodes cannot be swapped",
            )
            return
        one.waiting = swap.waiting_for(snapshot, surge, endpoints, surge.nodes, lowering=True)
        if one.waiting:
            one.serving_since = None
            return
        one.serving_since = one.serving_since or now
        if surge.stage != "ready" and now - one.serving_since < SETTLE:
            one.waiting = f"the new pods of {workload.ref} to serve for {SETTLE:g} s"
            return
        leaving = ", ".join(pod.name for pod in swap.alive(snapshot, surge))
        if self._do(surge, swap.lowering(snapshot, surge)):
            one.state = "lowered"
            self._tell("lowered", one, f"{workload.ref} goes from {workload.replicas} to {count}: {leaving} ends")

    def _rebase(self, one: _Swap, snapshot: snapshots.Snapshot, *, lowered: bool = False) -> bool:
        """Whether somebody else set the count, so that the swap begins anew on theirs."""
        other = swap.rebased(snapshot, one.surge, lowered=lowered)
        if other is None:
            return False
        one.surge, one.state, one.raising, one.serving_since = self._leases.hold(other), "open", True, None
        self._tell("note", one, f"somebody set {other.workload} to {other.prior_replicas} replicas: so be it")
        return True

    def _raise(self, one: _Swap, snapshot: snapshots.Snapshot) -> bool:
        """Raise a count that somebody else set, once: whether it was, and the view shows it."""
        changes = swap.raising(snapshot, one.surge)
        if changes:
            one.raising = not self._do(one.surge, changes)
            one.waiting = f"the changes to {one.surge.workload} to be seen"
            return False
        one.raising = False
        return True

    def _do(self, surge: surge_records.Surge, changes: t.Iterable[api_changes.Change]) -> bool:
        return self._hands.do(changes, lambda: self._leases.prove(surge))

    def _verify(self, one: _Swap, snapshot: snapshots.Snapshot, workload: objects.Workload) -> None:
        """After lowering the leaving pods have to end, and no other."""
        if self._rebase(one, snapshot, lowered=True):
            return
        one.waiting = swap.settled(snapshot, one.surge)
        if not one.waiting:
            stayed = ", ".join(pod.name for pod in swap.alive(snapshot, one.surge))
            self._fail(one, f"{workload.ref} was lowered, and {stayed} stayed while another pod ended")

    def _finish(self, one: _Swap, snapshot: snapshots.Snapshot) -> None:
        undo = swap.giving_back(snapshot, one.surge, lowered=True)
        one.waiting, one.kept = undo.waiting, undo.kept
        if undo.changes:
            self._do(one.surge, undo.changes)
            return
        if undo.waiting:
            return
        self._leases.forget(one.surge)
        one.state, one.waiting = "done", ""
        for what in one.kept:
            self.kept.append(what)
            self._tell("kept", one, what)
        self._tell("restored", one, f"{one.surge.workload} is as it was before its surge")

    def _fail(self, one: _Swap, why: str) -> None:
        one.state = "failed"
        self.failures[one.surge.uid] = why
        self._tell("failed", one, why)

    def _tell(self, what: str, one: _Swap, message: str) -> None:
        nodes = sorted(one.surge.nodes)
        self.ctx.tell(what, message, node=nodes[0] if nodes else "", namespace=one.surge.namespace, name=one.surge.name)
