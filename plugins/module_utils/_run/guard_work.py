# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What both states of ``pdb_guard`` share: the call's findings, its locks, its loop and its lines."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import guards
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Budget, Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.record import Record
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.snapshot import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.surge import Surge
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.lock import Locks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.observe import Live, lists
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.surging import Surging

TICK = 0.5
"""Longest pause of the loop; every change in the cluster ends it early."""
TELL_EVERY = 10.0
PACE = 1.0
"""Least seconds between two lines about one workload; its controllers pass through many states in that."""
UNDO_WITHIN = 60.0
"""Seconds for taking surges back after the call's own time is up."""

RAISED = frozenset({"raised", "already_raised"})


@dataclass
class Site:
    """One node of the call."""

    name: str
    record: Record | None = None
    outcome: str = ""
    message: str = ""

    @property
    def open(self) -> bool:
        """Whether its outcome is not decided yet."""
        return not self.outcome

    def shown(self) -> dict[str, t.Any]:
        """As results have it."""
        return {"name": self.name, "outcome": self.outcome, "message": self.message}


@dataclass
class Work:
    """What the call found and did."""

    ctx: Context
    sites: dict[str, Site]
    found: dict[str, list[t.Any]]
    workloads: list[dict[str, t.Any]] = field(default_factory=list)
    findings: list[dict[str, t.Any]] = field(default_factory=list)
    _locks: list[Locks] = field(default_factory=list)
    _told: dict[str, tuple[str, float]] = field(default_factory=dict)
    _told_at: float = 0.0

    def __post_init__(self) -> None:
        self.snapshot = Snapshot.of(self.found)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that are still to be served."""
        return tuple(name for name, site in self.sites.items() if site.open)

    def read(self, *wanted: str) -> None:
        """Read more kinds, each once."""
        self.found.update(lists(self.ctx.cluster, [name for name in wanted if name not in self.found]))
        self.snapshot = Snapshot.of(self.found)

    def add(self, name: str, objects: list[t.Any]) -> None:
        """Take in a kind that was read in another way than by a list."""
        self.found[name] = objects
        self.snapshot = Snapshot.of(self.found)

    def identity(self, nodes: t.Iterable[str]) -> Run:
        """In whose name the call acts on the nodes: that of their record, else its own."""
        record = next((record for name in nodes if (record := self.sites[name].record)), None)
        return Run(record.run, record.nonce) if record else self.ctx.run or Run("none")

    # -- locks ----------------------------------------------------------------------------------------

    def lock(self, nodes: t.Collection[str]) -> bool:
        """Lock the nodes; all or none, because a surge may serve several of them."""
        places = {name: record.lease for name in nodes if (record := self.sites[name].record)}
        if not places:
            return True
        locks = Locks(self.ctx, self.identity(nodes), places)
        refused = locks.take(borrowed=self.ctx.run is None or not self.ctx.run.nonce)
        self._locks.append(locks)
        if not refused:
            return True
        why = "; ".join(held.message for held in refused.values())
        for name in nodes:
            self.sites[name].outcome = "held"
            self.sites[name].message = refused[name].message if name in refused else f"Node {name} waits: {why}"
        self.unlock()
        return False

    def unlock(self) -> None:
        """Leave the locks for the next call of the run."""
        for locks in self._locks:
            locks.leave()
        self._locks.clear()

    def fence(self, nodes: t.Collection[str] | None = None) -> None:
        """Prove that these nodes (``None``: all of the call) are still ours."""
        for locks in self._locks:
            locks.fence(nodes)

    # -- the loop -------------------------------------------------------------------------------------

    def loop(self, surging: Surging, live: Live, budgets: t.Collection[Ref], limit: float | None) -> None:
        """Step the surges and wait for the budgets until all of it is decided, or time is up.

        What is not ready in time is taken back, for which there is a minute more.
        """
        ctx, late = self.ctx, False
        self._told_at = ctx.clock.now()
        deadline = ctx.clock.now() + limit if limit is not None else float("inf")
        while True:
            snapshot = live.snapshot()
            surging.step(snapshot)
            pending = [] if late else _unobserved(snapshot, budgets)
            if surging.done and not pending:
                return
            if ctx.clock.now() >= deadline:
                if late:
                    return
                late, deadline = True, ctx.clock.now() + UNDO_WITHIN
                for name in pending:
                    text = f"The status of {name} was not computed in time."
                    self.find("budget_not_observed", name, text, "Look at kube-controller-manager.")
                surging.fail_open("timed_out", f"not ready after {limit:g} s")
                continue
            self._tell_progress(surging, pending)
            live.wait(TICK)

    def _tell_progress(self, surging: Surging, pending: list[str]) -> None:
        """A line when something changed, and one every ten seconds."""
        now = self.ctx.clock.now()
        waiting = [case for case in surging.cases if case.open and case.waiting]
        for case in waiting:
            text, at = self._told.setdefault(case.workload.uid, ("", now))
            if text != case.waiting and now - at >= PACE:
                self._told[case.workload.uid], self._told_at = (case.waiting, now), now
                where = {"namespace": case.workload.namespace, "name": case.workload.name}
                node = case.nodes[0] if case.nodes else ""
                self.ctx.tell("waiting", f"waiting: {case.waiting}", node=node, **where)
        if now - self._told_at >= TELL_EVERY:
            texts = [*(case.waiting for case in waiting), *(f"{name} to be observed" for name in pending)]
            more = f" (and {len(texts) - 3} more)" if len(texts) > 3 else ""
            self._told_at = now
            self.ctx.tell("waiting", "still waiting: " + "; ".join(texts[:3]) + more)

    # -- what is shown --------------------------------------------------------------------------------

    def find(self, code: str, subject: str, message: str, remedy: str, severity: str = "blocker") -> None:
        """Add a finding."""
        self.findings.append(
            {"code": code, "severity": severity, "object": subject, "message": message, "remedy": remedy}
        )

    def show_surge(self, surge: Surge, outcome: str, message: str = "") -> None:
        """Add a workload's line about its surge."""
        leaving = (pod for uid in surge.leaving if (pod := self.snapshot.pod(uid)))
        over = [budget.name for pod in leaving for budget in self.snapshot.budgets_of(pod)]
        during = surge.target if outcome in RAISED else surge.prior_replicas
        self._show(surge.workload, surge.prior_replicas, during, over[:1], outcome, surge.nodes, message)

    def show_guard(self, guard: guards.Guard) -> None:
        """Add a workload's line about its guard."""
        outcome, message, budget = "guarded" if guard.change else "already_guarded", "", guard.budget
        if guard.instead:
            outcome, budget = "not_guarded", guard.instead
            message = f"{guard.instead} covers pods of the same selector, and two budgets would hold them for good."
            self.find("guard_overlaps", str(guard.workload), message, "Its pods go without a floor.", "info")
        self._show(guard.workload, guard.replicas, guard.replicas, [budget.name], outcome, guard.nodes, message)

    def show_unguarded(self, budget: Budget, nodes: t.Iterable[str]) -> None:
        """Add the line about a guard that was given back; its workload may be gone."""
        found = self.snapshot.workload(guards.workload_uid(budget))
        ref = found.ref if found else Ref("", "", budget.namespace)
        count = found.replicas if found else 0
        self._show(ref, count, count, [budget.name], "unguarded", nodes, "")

    def _show(
        self,
        workload: Ref,
        before: int,
        during: int,
        budgets: t.Sequence[str],
        outcome: str,
        nodes: t.Iterable[str],
        message: str,
    ) -> None:
        self.workloads.append(
            {
                "kind": workload.kind,
                "namespace": workload.namespace,
                "name": workload.name,
                "replicas_before": before,
                "replicas_during": during,
                "budget": budgets[0] if budgets else None,
                "outcome": outcome,
                "nodes": sorted(nodes),
                "message": message,
            }
        )


def _unobserved(snapshot: Snapshot, budgets: t.Collection[Ref]) -> list[str]:
    """Guards whose status is not computed yet, or that the watch has not brought yet."""
    seen = {(b.namespace, b.name): b.observed for b in snapshot.budgets}
    return [str(ref) for ref in budgets if not seen.get((ref.namespace, ref.name))]
