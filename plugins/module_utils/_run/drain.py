# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``node_drain``: empty nodes and prove that they are empty.

The call plans every pod first and writes nothing where a node cannot be emptied. Then one loop serves
all nodes: it ends the prepared swaps, feeds the evictor, follows every pod by UID until it is gone,
waits for replacements and volumes, and writes the drained proof of each node as soon as it holds.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import Conflict, NotFound
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import cordon as node_steps
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import guards, migrate
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.change import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Node, Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.record import Record, record_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.snapshot import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.surge import Surge, surges_for
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.act import PATIENCE, apply
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, Result, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.dead import Evacuation, Silence
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.evict import Evictor, Move
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.hands import Hands
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.job_feed import JobFeed
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.lock import Locks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.observe import Live, gather, surged
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.replaced import Replacements
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.routing import Routing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.services import Services
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.sites import Site, result_of, too_late
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.swaps import Swaps

QUIET = 1.0
"""Seconds without any change among a node's pods before it may be called drained."""
TICK = 0.5
"""Longest pause of the loop; every change in the cluster ends it early."""
TELL_EVERY = 10.0

WaitFor = t.Literal["gone", "replacement", "volumes"]


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """Options of the module; times in seconds, ``None`` without a limit."""

    nodes: tuple[str, ...]
    choices: migrate.Choices
    grace_period: int | None = None
    order: str = "priority"
    parallel: int = 8
    timeout: float | None = None
    pod_timeout: float | None = None
    wait_for: tuple[WaitFor, ...] = ("gone", "replacement", "volumes")


def drain(ctx: Context, options: DrainOptions) -> Result:
    """Empty the nodes.

    Raises:
        StopRun: something that concerns the whole call, such as a watch that may not be opened.
        ClusterError: the API server cannot be reached or refuses to be read.
    """
    began, requests = ctx.clock.now(), ctx.cluster.requests
    before = gather(ctx.cluster, ("nodes", "leases"))
    sites = {name: Site(name, before.nodes.get(name)) for name in dict.fromkeys(options.nodes)}
    for site in sites.values():
        site.read_record(ctx)
    surges = list(surges_for(before, sites.keys()))
    watched = ("pods", "budgets", "slices", *surged(surges))
    with Live(ctx, watched) as live:
        live.seed({"nodes": list(before.nodes.values()), "leases": list(before.leases)})
        work = _Drain(ctx, options, live, sites, surges)
        work.routing.plan()
        work.swaps.leave(work.routing.passed_over())
        work.run()
    now = ctx.clock.now()
    return result_of(
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
        ctx: Context,
        options: DrainOptions,
        live: Live,
        sites: dict[str, Site],
        surges: list[Surge],
    ) -> None:
        self.ctx, self.options, self.live, self.sites = ctx, options, live, sites
        self.swaps = Swaps(ctx, surges, self._fence)
        self.services = Services(ctx)
        self.replacements = Replacements(ctx, frozenset(sites), options.wait_for)
        prepared = {surge.uid: surge for surge in surges}
        self.routing = Routing(ctx, options.choices, live, sites, prepared, self.replacements)
        self.locks: list[Locks] = []
        self.evictor: Evictor | None = None
        self.hands = Hands(ctx, self._fence)
        self.budgets: frozenset[tuple[str, str]] = frozenset()
        self.told: dict[str, tuple[str, float]] = {}
        self.silence = Silence(ctx)

    # -- the loop -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Do the work; in check mode only say it."""
        todo = [site for site in self.sites.values() if site.open]
        if not todo:
            return
        self.jobs = self._feed()
        if self.ctx.check:
            self._fenced(todo)
            self._predict([site for site in todo if site.open])
            return
        self._lock(todo)
        try:
            self.swaps.hold()
            self._fenced(todo)
            self.evictor = Evictor(
                self.ctx,
                self._fence,
                self.live.nudge,
                self.options.parallel,
                self.options.grace_period,
                self.options.choices.disable_eviction,
                {site.name: site.record.fence for site in todo if site.record},
                self._regain,
            )
            try:
                self.jobs.start()
                self._loop()
            finally:
                self.jobs.stop()
                self.evictor.close()
        finally:
            self.swaps.close()
            vanished = [name for name, site in self.sites.items() if site.outcome == "gone"]
            for locks in self.locks:
                locks.drop(vanished)
                locks.leave()

    def _fenced(self, todo: list[Site]) -> None:
        """First those whose machines are off: their pods and volumes only have to be let go."""
        sites = [site for site in todo if site.open and site.name in self.options.choices.fenced]
        evacuation = Evacuation(self.ctx, self.live, self._fence, self.options.timeout)
        if self.ctx.check:
            evacuation.predict(sites)
        elif sites:
            for site in evacuation.work(sites):
                self._prove(site)

    def _loop(self) -> None:
        evictor = t.cast("Evictor", self.evictor)
        limit = self.options.timeout
        deadline = self.ctx.clock.now() + limit if limit is not None else float("inf")
        while any(site.open for site in self.sites.values()) or not evictor.idle:
            snapshot = self.live.snapshot()
            self.services.sample(snapshot.slices)
            evictor.settle()
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
                    self._judge(site, snapshot, deadline)
            self._tell_progress()
            self.live.wait(TICK)

    def _yield_guards(self, snapshot: Snapshot) -> None:
        """A guard of ours goes when somebody lays a budget over its pods: two would hold them for good."""
        present = frozenset((b.namespace, b.name) for b in snapshot.budgets)
        if present - self.budgets and not self.hands.do(guards.yielding(snapshot)):
            return
        self.budgets = present

    def _feed(self) -> JobFeed:
        limit = self.options.timeout
        return JobFeed(
            self.ctx,
            self.routing.choices,
            self._fence,
            self.live.nudge,
            {name: site.record.run for name, site in self.sites.items() if site.record},
            self.options.grace_period,
            self.ctx.clock.now() + limit if limit is not None else float("inf"),
        )

    def _queue(self) -> list[Move]:
        """What may start now; of a node that has failed nothing does."""
        moves: list[Move] = []
        for site in self.sites.values():
            if site.open and not any(move.state == "failed" for move in site.moves.values()):
                moves += [move for move in site.moves.values() if move.state == "waiting"]
        if self.options.order == "priority":
            moves.sort(key=lambda move: move.pod.priority)
        return moves

    def _follow(self, snapshot: Snapshot) -> None:
        """Bring every move up to what the watch says, and take up pods that came late."""
        now = self.ctx.clock.now()
        here: dict[str, dict[str, Pod]] = {name: {} for name in self.sites}
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
            self.routing.adopt(snapshot, stale)
            for name in stale:
                self.routing.refuse_late(self.sites[name])

    def _gone(self, move: Move, now: float) -> None:
        outcome = {"swap": "swapped", "job": "migrated"}.get(move.plan.route, "gone")
        if move.ours:
            outcome = "deleted" if self.options.choices.disable_eviction else "evicted"
        if move.plan.tolerant:
            outcome = "tolerates_maintenance"
        move.end("gone", outcome, now)
        pod = move.pod
        self.ctx.note("gone", outcome, node=pod.node, namespace=pod.namespace, name=pod.name)

    def _fail_swaps(self) -> None:
        for uid, why in self.swaps.failures.items():
            for site in self.sites.values():
                for move in site.left():
                    if move.plan.route == "swap" and move.plan.workload and move.plan.workload.uid == uid:
                        move.block(move.plan.workload.kind, move.pod.namespace, move.plan.workload.name, why)
                        move.end("failed", "swap_failed", self.ctx.clock.now(), why)

    def _judge(self, site: Site, snapshot: Snapshot, deadline: float) -> None:
        """Decide whether a node is through, has failed, or goes on."""
        now = self.ctx.clock.now()
        failed = [move for move in site.moves.values() if move.state == "failed"]
        if failed:
            if any(move.state == "asked" for move in site.moves.values()):
                return
            self._close(site, "failed", "; ".join(f"{m.pod.ref}: {m.reason}" for m in failed[:10]))
            return
        if why := self.silence.given_up(site):
            self.routing.look_again(site, snapshot)
            self._close(site, "unreachable", why)
            return
        left = site.left()
        late = [m for m in left if self._too_late(m, now)]
        if now >= deadline or late:
            self.routing.look_again(site, snapshot)
            self._close(site, "timed_out", too_late(late or left, self.replacements.missing(snapshot)))
            return
        if left or now - site.quiet_since < QUIET or self.live.quiet_for("pods") == 0:
            return
        if why := self.swaps.failed_for(site.name):
            self._close(site, "failed", why)
            return
        if not self.swaps.done_with(site.name):
            return
        if self.replacements.missing(snapshot) or not self.jobs.done_with(site.name):
            return
        if site.selected_only:
            site.outcome = "selected_gone"
            site.message = f"The selected pods of node {site.name} are gone; for the others it is not drained."
        elif self._listed_empty(site):
            self._prove(site)
        else:
            site.quiet_since = now

    def _listed_empty(self, site: Site) -> bool:
        """The truth from a list once more: a watch that hangs looks like one with nothing to tell."""
        found = self.ctx.cluster.items(kinds.PODS, fields=f"spec.nodeName={site.name}", patience=PATIENCE).items
        moves = [site.moves.get(item["metadata"]["uid"]) for item in found]
        return all(move is not None and move.state == "skipped" for move in moves)

    def _too_late(self, move: Move, now: float) -> bool:
        limit = self.options.pod_timeout
        return limit is not None and now - (move.left_at or move.since) > limit

    def _close(self, site: Site, outcome: str, message: str) -> None:
        if outcome != "adopted_by":
            self.jobs.abandon(site.name, f"Node {site.name} is not emptied after all: {message}")
        site.close(outcome, f"Node {site.name}: {message}", self.ctx.clock.now())
        self.ctx.tell(outcome, site.message, node=site.name)

    def _prove(self, site: Site) -> None:
        """Write ``drained`` into the record, on the condition that nobody changed the node."""
        for _attempt in range(5):
            node, record = site.node, site.record
            if node is None or record is None:
                return
            site.kept = node_steps.foreign_changes(node, record)
            change = node_steps.at_step(node, record, "drained")
            try:
                if change is not None:
                    apply(self.ctx, change, fence=self._fence)
                site.outcome, site.message = "drained", f"Node {site.name} is drained."
                self.ctx.tell("drained", site.message, node=site.name)
                return
            except NotFound:
                site.outcome, site.message = "gone", f"Node {site.name} was deleted meanwhile."
                return
            except Conflict:
                site.node = Node.of(self.ctx.cluster.send(verbs.get(kinds.NODES, site.name), patience=PATIENCE))
                fresh = record_of(site.node)
                if fresh is None or fresh.nonce != record.nonce:
                    self._close(site, "adopted_by", "its record was taken over by another run")
                    return
        self._close(site, "failed", "somebody else writes the node all the time; run again")

    # -- locks --------------------------------------------------------------------------------------

    def _lock(self, sites: list[Site]) -> None:
        groups: dict[str, list[Site]] = {}
        for site in sites:
            record = t.cast(Record, site.record)
            groups.setdefault(f"{record.run}/{record.nonce}", []).append(site)
        borrowed = self.ctx.run is None or not self.ctx.run.nonce
        for identity, group in groups.items():
            places = {site.name: t.cast(Record, site.record).lease for site in group}
            locks = Locks(self.ctx, t.cast("Run", Run.parse(identity)), places)
            self.locks.append(locks)
            for name, held in locks.take(borrowed=borrowed).items():
                self.sites[name].outcome, self.sites[name].message = "held", held.message

    def _fence(self, nodes: t.Collection[str] | None = None) -> None:
        for locks in self.locks:
            locks.fence(nodes)

    def _regain(self, node: str) -> None:
        for locks in self.locks:
            locks.regain(node)

    # -- telling ------------------------------------------------------------------------------------

    def _tell_progress(self) -> None:
        now = self.ctx.clock.now()
        for site in self.sites.values():
            if not site.open:
                continue
            left = site.left()
            total = sum(1 for move in site.moves.values() if move.state != "skipped")
            leaving = sum(1 for move in left if move.state == "leaving")
            text = f"{len(left)} of {total} pods left, {leaving} ending"
            blocked = {move.blocked_by["message"] for move in left if move.blocked_by}
            blocked |= set(self.swaps.waiting.values())
            if not left:
                text = f"all {total} pods gone"
                blocked |= set(self.replacements.waited_for)
            if blocked:
                text += "; waiting: " + "; ".join(sorted(blocked)[:3])
            elif not left:
                text += ", making sure"
            last, at = self.told.get(site.name, ("", 0.0))
            if (text != last and now - at >= 2.0) or now - at >= TELL_EVERY:
                self.told[site.name] = (text, now)
                self.ctx.tell("progress", text, node=site.name)

    def _predict(self, sites: list[Site]) -> None:
        """What the real run would write, and nothing else."""
        for site in sites:
            for move in site.left():
                pod = move.pod
                if move.plan.route == "evict":
                    verb: t.Literal["evict", "delete"] = "evict"
                    if self.options.choices.disable_eviction:
                        verb = "delete"
                    sentence = f"{verb.capitalize()} {pod.ref} from node {pod.node}"
                    apply(self.ctx, Change(verb, pod.ref, sentence, grace_seconds=self.options.grace_period))
                    move.outcome = "deleted" if verb == "delete" else "evicted"
                else:
                    move.outcome = {"swap": "swapped", "job": "migrated", "wait": "gone"}[move.plan.route]
                    if move.plan.route == "job":
                        self.jobs.predicted(move)
            if site.node and site.record and not site.selected_only:
                change = node_steps.at_step(site.node, site.record, "drained")
                if change:
                    apply(self.ctx, change)
            site.outcome, site.message = "drained", f"Node {site.name} would be drained."
            if site.selected_only:
                site.outcome, site.message = "selected_gone", f"Node {site.name} would lose the selected pods."
        self.swaps.predict(self.live.snapshot())
