# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``node_drain``: empty nodes and prove that they are empty.

The call plans every pod first and writes nothing where a node cannot be emptied. Then one loop serves
all nodes: it ends the prepared swaps, feeds the evictor, follows every pod by UID until it is gone,
waits for replacements and volumes, and writes the drained proof of each node as soon as it holds.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    node_records,
    objects,
    outcomes,
    phases,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import standing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import guards, surge_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import (
    act,
    context,
    hands,
    locking,
    node_locks,
    observe,
    pod_moves,
    services,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain import (
    dead_nodes,
    drain_options,
    evict,
    node_sites,
    prediction,
    progress,
    proof,
    replaced,
    routing,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import dispatcher
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.protect import swaps

QUIET = 1.0
"""Seconds without any change among a node's pods before it may be called drained."""
NOT_OURS = (outcomes.DrainOutcome.ADOPTED_BY, outcomes.DrainOutcome.UNCORDONED, outcomes.DrainOutcome.UNTAINTED)
"""Outcomes of nodes that others have now; what is still there stays, also what was to leave by a swap."""
NOT_TO_LOCK = (outcomes.DrainOutcome.GONE, outcomes.DrainOutcome.REPLACED, outcomes.DrainOutcome.ADOPTED_BY)
"""Outcomes of nodes that nobody of our run comes back for: a lock on them that is still ours goes."""
TICK = 0.5
"""Longest pause of the loop; every change in the cluster ends it early."""


def drain(ctx: context.Context, options: drain_options.DrainOptions) -> context.Result:
    """Empty the nodes.

    Raises:
        StopRun: something that concerns the whole call, such as a watch that may not be opened.
        ClusterError: the API server cannot be reached or refuses to be read.
    """
    began, requests = ctx.clock.now(), ctx.cluster.requests
    deadline = began + options.timeout if options.timeout is not None else float("inf")
    before = observe.gather(ctx.cluster, ("leases",))
    wanted = dict.fromkeys(options.nodes)
    surges = list(surge_records.surges_for(before, wanted))
    with observe.Live(ctx, ("nodes", "pods", "budgets", "slices", *observe.surged(surges))) as live:
        live.seed({"leases": list(before.leases)})
        nodes = live.snapshot().nodes
        sites = {name: node_sites.Site(name, nodes.get(name)) for name in wanted}
        for site in sites.values():
            site.read_record(ctx)
        work = _Drain(ctx, options, live, sites, surges, deadline)
        work.routing.plan()
        work.swaps.leave(work.routing.passed_over())
        work.run()
    now = ctx.clock.now()
    return node_sites.result_of(
        sites.values(),
        work.services.shown(),
        now,
        services=work.services.watched,
        requests=ctx.cluster.requests - requests,
        seconds=round(now - began, 3),
    )


class _Drain:
    """The loop's state: what is open, and who does what."""

    def __init__(
        self,
        ctx: context.Context,
        options: drain_options.DrainOptions,
        live: observe.Live,
        sites: dict[str, node_sites.Site],
        surges: list[surge_records.Surge],
        deadline: float,
    ) -> None:
        self.ctx, self.options, self.live, self.sites, self.deadline = ctx, options, live, sites, deadline
        self.swaps = swaps.Swaps(ctx, surges, self._fence_nodes)
        self.services = services.Services(ctx)
        self.replacements = replaced.Replacements(ctx, frozenset(sites), options.wait_for)
        prepared = {surge.uid: surge for surge in surges}
        self.routing = routing.Routing(ctx, options.choices, live, sites, prepared, self.replacements)
        self.prior = {uid: surge.prior_replicas for uid, surge in prepared.items()}
        self.locks = locking.Locks(ctx)
        self.evictor: evict.Evictor | None = None
        self.hands = hands.Hands(ctx, self._fence_all)
        self.budgets: frozenset[tuple[str, str]] = frozenset()
        self.progress = progress.Progress(ctx)
        self.silence = dead_nodes.Silence(ctx)

    # -- the loop -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Do the work; in check mode only say it."""
        todo = [site for site in self.sites.values() if site.open]
        if not todo:
            return
        self.jobs = self._dispatcher()
        if self.ctx.check:
            self._fenced(todo)
            prediction.predict(self.ctx, self.options, [site for site in todo if site.open], self.jobs.predicted)
            self.swaps.predict(self.live.snapshot())
            return
        try:
            for name, why in self.locks.take_recorded(
                {site.name: t.cast(node_records.Record, site.record) for site in todo}
            ).items():
                self.sites[name].outcome, self.sites[name].message = outcomes.DrainOutcome.HELD, why
                self.swaps.lose(name, why)
            # What the watches know is from before the locks, and they may be far behind.
            self._stand({node.name: node for node in observe.lists(self.ctx.cluster, ("nodes",))["nodes"]})
            self.swaps.hold()
            self._fenced(todo)
            self.evictor = evict.Evictor(
                self.ctx,
                self._fence,
                self.live.nudge,
                self.options.parallel,
                self.options.grace_period,
                self.options.choices.disable_eviction,
                {site.name: site.record.fence for site in todo if site.record},
                self.locks.regain,
                self.prior,
            )
            try:
                self.jobs.start()
                self._loop(self.evictor)
            finally:
                self.jobs.stop()
                self.evictor.close()
        finally:
            self.swaps.close()
            self.locks.leave(drop=[name for name, site in self.sites.items() if site.outcome in NOT_TO_LOCK])

    def _fenced(self, todo: list[node_sites.Site]) -> None:
        """First those whose machines are off: their pods and volumes only have to be let go."""
        sites = [site for site in todo if site.open and site.name in self.options.choices.fenced]
        evacuation = dead_nodes.Evacuation(self.ctx, self.live, self._fence, self.deadline)
        if self.ctx.check:
            evacuation.predict(sites)
        elif sites:
            for site in evacuation.work(sites):
                self._prove(site)

    def _loop(self, evictor: evict.Evictor) -> None:
        while any(site.open for site in self.sites.values()) or not evictor.idle:
            snapshot = self.live.snapshot()
            self.services.sample(snapshot.slices)
            try:
                self._turn(evictor, snapshot)
            except node_locks.LostLockError as lost:
                self._adopted(lost.node, lost.why)
            self.live.wait(TICK)
        self._wind_up()

    def _turn(self, evictor: evict.Evictor, snapshot: snapshots.Snapshot) -> None:
        """One look at everything, and all that follows from it.

        Raises:
            LostLockError: somebody took a node over; the others go on in the next turn.
        """
        self._stand(snapshot.nodes)
        evictor.settle()
        self._wind_up()
        self._follow(snapshot)
        self._yield_guards(snapshot)
        if not self.swaps.done:
            self.swaps.step(snapshot)
            self._fail_swaps()
        queue = self._queue()
        self.jobs.step(snapshot, queue)
        evictor.step(queue, snapshot)
        for site in self.sites.values():
            if site.open:
                self._judge(site, snapshot)
        self.progress.tell(self.sites.values(), self.swaps.waiting.values(), self.replacements.waited_for)

    def _stand(self, nodes: t.Mapping[str, objects.Node]) -> None:
        """Stop at once for a node that is no longer ours to empty: taken over, gone, or given back by somebody."""
        for name, why in self.locks.lost().items():
            self._adopted(name, why)
        for site in self.sites.values():
            if not site.open:
                continue
            site.node = nodes.get(site.name)
            if fallen := standing.fallen(site.node, t.cast(node_records.Record, site.record)):
                self._close(site, fallen.outcome, fallen.message)

    def _wind_up(self) -> None:
        """Of a node that is decided the requests under way are all that is left; here are their answers."""
        for site in self.sites.values():
            if not site.open:
                site.end_moves(self.ctx.clock.now())

    def _yield_guards(self, snapshot: snapshots.Snapshot) -> None:
        """A guard of ours goes when somebody lays a budget over its pods: two would hold them for good."""
        present = frozenset((b.namespace, b.name) for b in snapshot.budgets)
        try:
            if present - self.budgets and not self.hands.do(guards.yielding(snapshot)):
                return
        except errors.ClusterError as error:
            # Its pods are blocked by two budgets then, which their own messages say; the others go on.
            self.ctx.tell(phases.What.KEPT, f"a guard of ours stays where a foreign budget is: {error}")
        self.budgets = present

    def _dispatcher(self) -> dispatcher.JobDispatcher:
        return dispatcher.JobDispatcher(
            self.ctx,
            self.routing.choices,
            self._fence_all,
            self.live.nudge,
            {name: site.record.run for name, site in self.sites.items() if site.record},
            self.options.grace_period,
            self.deadline,
            self.prior,
        )

    def _queue(self) -> list[pod_moves.Move]:
        """What may start now; of a node that has failed nothing does."""
        moves: list[pod_moves.Move] = []
        for site in self.sites.values():
            if site.open and not any(move.state == "failed" for move in site.moves.values()):
                moves += [move for move in site.moves.values() if move.state == "waiting"]
        if self.options.order == "priority":
            moves.sort(key=lambda move: move.pod.priority)
        return moves

    def _follow(self, snapshot: snapshots.Snapshot) -> None:
        """Bring every move up to what the watch says, and take up pods that came late."""
        now = self.ctx.clock.now()
        here: dict[str, dict[str, objects.Pod]] = {name: {} for name in self.sites}
        for pod in snapshot.pods:
            if pod.node in here:
                here[pod.node][pod.uid] = pod
        stale: set[str] = set()
        for name, site in self.sites.items():
            if not site.open:
                continue
            present = here[name]
            for uid, move in site.moves.items():
                if move.state == "asked" or move.done:
                    continue
                found = present.get(uid)
                if found is None:
                    self._gone(move, now)
                elif found.deleting and move.state == "waiting":
                    move.state, move.left_at = "leaving", now
                elif found.finished and move.plan.route == "wait":
                    stale.add(name)
            if present.keys() - site.moves.keys():
                stale.add(name)
            if frozenset(present) != site.present:
                site.present, site.quiet_since = frozenset(present), now
        if stale:
            self.routing.take_up(snapshot, stale)
        self.routing.refresh()

    def _gone(self, move: pod_moves.Move, now: float) -> None:
        outcome = node_sites.MOVED_BY.get(move.plan.route, outcomes.PodOutcome.GONE)
        move.came_true(self.ctx)
        if move.ours:
            outcome = (
                outcomes.PodOutcome.DELETED if self.options.choices.disable_eviction else outcomes.PodOutcome.EVICTED
            )
        if move.plan.tolerant:
            outcome = outcomes.PodOutcome.TOLERATES_MAINTENANCE
        move.end("gone", outcome, now)
        pod = move.pod
        self.ctx.note(phases.What.GONE, outcome.value, node=pod.node, namespace=pod.namespace, name=pod.name)

    def _fail_swaps(self) -> None:
        for uid, why in self.swaps.failures.items():
            for site in self.sites.values():
                for move in site.left():
                    if move.plan.route == "swap" and move.plan.workload and move.plan.workload.uid == uid:
                        move.block(move.plan.workload.kind, move.pod.namespace, move.plan.workload.name, why)
                        move.end("failed", outcomes.PodOutcome.SWAP_FAILED, self.ctx.clock.now(), why)

    def _judge(self, site: node_sites.Site, snapshot: snapshots.Snapshot) -> None:
        """Decide whether a node is through, has failed, or goes on."""
        now = self.ctx.clock.now()
        failed = [move for move in site.moves.values() if move.state == "failed"]
        if failed:
            if any(move.state == "asked" for move in site.moves.values()):
                return
            self._close(site, outcomes.DrainOutcome.FAILED, "; ".join(f"{m.pod.ref}: {m.reason}" for m in failed[:10]))
            return
        if why := self.silence.given_up(site):
            self.routing.look_again(site, snapshot)
            self._close(site, outcomes.DrainOutcome.UNREACHABLE, why)
            return
        left = site.left()
        late = [m for m in left if self._too_late(m, now)]
        if now >= self.deadline or late:
            self.routing.look_again(site, snapshot)
            self._close(
                site,
                outcomes.DrainOutcome.TIMED_OUT,
                node_sites.too_late(late or left, self.replacements.missing(snapshot)),
            )
            return
        if left or now - site.quiet_since < QUIET or self.live.quiet_for("pods") == 0:
            return
        if why := self.swaps.failed_for(site.name):
            self._close(site, outcomes.DrainOutcome.FAILED, why)
            return
        if not self.swaps.done_with(site.name):
            return
        if self.replacements.missing(snapshot) or not self.jobs.done_with(site.name):
            return
        if site.selected_only:
            site.outcome = outcomes.DrainOutcome.SELECTED_GONE
            site.message = f"The selected pods of node {site.name} are gone; for the others it is not drained."
        elif self._listed_empty(site):
            self._prove(site)
        else:
            site.quiet_since = now

    def _listed_empty(self, site: node_sites.Site) -> bool:
        """The truth from a list once more: a watch that hangs looks like one with nothing to tell."""
        found = self.ctx.cluster.items(kinds.PODS, fields=f"spec.nodeName={site.name}", patience=act.PATIENCE).items
        moves = [site.moves.get(item["metadata"]["uid"]) for item in found]
        return all(move is not None and move.state == "skipped" for move in moves)

    def _too_late(self, move: pod_moves.Move, now: float) -> bool:
        limit = self.options.pod_timeout
        return limit is not None and now - (move.left_at or move.since) > limit

    # -- ends ---------------------------------------------------------------------------------------

    def _close(self, site: node_sites.Site, outcome: outcomes.DrainOutcome, message: str) -> None:
        if self.evictor:
            self.evictor.withdraw(site.name)
        if outcome in NOT_OURS:
            self.swaps.lose(site.name, message)
        site.close(outcome, f"Node {site.name}: {message}", self.ctx.clock.now())
        self.ctx.tell(outcome, site.message, node=site.name)
        if outcome not in (outcomes.DrainOutcome.ADOPTED_BY, outcomes.DrainOutcome.DRAINED):
            self.jobs.abandon(site.name, f"Node {site.name} is not emptied after all: {message}")

    def _adopted(self, node: str, why: str) -> None:
        if self.sites[node].open:
            message = f"it was taken over ({why}), and nothing more is sent for it"
            self._close(self.sites[node], outcomes.DrainOutcome.ADOPTED_BY, message)

    def _prove(self, site: node_sites.Site) -> None:
        """Write ``drained`` into the record, on the condition that the node is still out."""
        known = self.live.raw("nodes", site.name)
        try:
            why = proof.write_node(self.ctx, site, proof.drained, lambda: self._fence(site.name), known=known)
        except node_locks.LostLockError as lost:
            self._adopted(lost.node, lost.why)
        except errors.ClusterError as error:
            self._close(
                site, outcomes.DrainOutcome.FAILED, f"it is empty, and that could not be recorded: {error} Run again."
            )
        else:
            if why:
                self._close(site, why.outcome, why.message)
                return
            site.outcome, site.message = outcomes.DrainOutcome.DRAINED, f"Node {site.name} is drained."
            self.ctx.tell(outcomes.DrainOutcome.DRAINED, site.message, node=site.name)

    # -- locks --------------------------------------------------------------------------------------

    def _fence(self, node: str) -> None:
        self.locks.fence((node,))

    def _fence_nodes(self, nodes: t.Collection[str]) -> None:
        self.locks.fence(nodes)

    def _fence_all(self) -> None:
        """For what serves several nodes: those that are lost already were closed and are left out."""
        self.locks.fence([site.name for site in self.sites.values() if site.open])
