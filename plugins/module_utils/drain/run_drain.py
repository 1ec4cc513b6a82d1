# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``node_drain``: empty nodes and prove that they are empty.

The call plans every pod first and writes nothing to a node that cannot be emptied. Then one loop
serves all nodes: it ends the prepared surges, feeds the evictor, follows every pod by UID until it
is gone, waits for replacements and volumes, and records each node as drained as
soon as that is proven.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    indexes,
    objects,
    operators,
    related,
    run_change_writer,
    run_context,
    run_listing,
    run_object_events,
    run_requests,
    run_services,
    run_targeted_reads,
    run_watch_cache,
    scopes,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    run_alarms,
    run_coming,
    run_dispositions,
    run_evictor,
    run_node_drain,
    run_outcome,
    run_pod_hooks,
    run_replace,
    run_replacement_wait,
    run_unreachable,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import (
    hook_definitions,
    run_hook_calls,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    run_dispatcher,
    run_installed,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    run_pod_drain,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    guard_budgets,
    node_records,
    run_locks,
    run_node_lock,
    surge_records,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import (
    run_guard_call,
    run_lower,
)

LOOP_PAUSE_SECONDS = 0.5
"""Longest pause between two turns of the loop; every change in the cluster ends it early."""
REST_FACTOR, MAX_REST_SECONDS = 3, 0.25
"""After a turn the loop rests for so many times as long as the turn took, but not longer than so
many seconds. Without that, a loop over thousands of pods would take the interpreter from the
threads that send the requests and read the watches.
"""
SECONDS_BETWEEN_LINES = 2.0
"""Seconds between two progress lines for one node."""
NOTHING: t.Mapping[str, t.Sequence[str]] = {}
PODS_NAMED = 3
"""How many evicted pods a line names."""


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """Options of the module; times in seconds, ``None`` without a limit.

    ``send`` sends the HTTP calls of hooks. For ``alarm_after`` and ``announce`` see
    ``run_alarms.Alarms``. ``turns`` are those of surges that do not serve yet, in a wave.
    """

    nodes: tuple[str, ...]
    choices: drain_policy.DrainPolicy
    grace_period: int | None = None
    order: str = "priority"
    parallel: int = 32
    timeout: float | None = 86400.0
    pod_timeout: float | None = None
    wait_for: tuple[t.Literal["gone", "replacement", "volumes"], ...] = (
        "gone",
        "replacement",
        "volumes",
    )
    hooks: hook_definitions.Rules = hook_definitions.NO_RULES
    send: run_hook_calls.Send = run_hook_calls.nobody
    alarm_after: float = 600.0
    announce: run_alarms.Announce | None = None
    turns: run_guard_call.SurgeTurns | None = None


def drain(ctx: run_context.Context, options: DrainOptions) -> run_context.Result:
    """Empty the nodes.

    Raises:
        CallAborted: something that concerns the whole call, such as a watch that may not be opened.
        ClusterError: the API server cannot be reached or refuses to be read.
    """
    began = ctx.clock.now()
    requests = ctx.cluster.requests
    deadline = began + options.timeout if options.timeout is not None else float("inf")
    before = snapshots.Snapshot.of(run_listing.recent_lists(ctx, ("leases",)))
    wanted = dict.fromkeys(options.nodes)
    recorded = surge_records.surges_for(before, wanted)
    surges = {surge.uid: surge for surge in recorded if surge.stage != "reverted"}
    choices = run_installed.required(ctx, options.choices)
    scope = None
    # Jobs and lost nodes concern pods anywhere in the cluster.
    if choices.controller is None and not choices.fenced:
        scope = scopes.narrow(wanted, run_targeted_reads.count_nodes(ctx))
    with run_watch_cache.WatchCache(ctx, ("nodes",), scope, raws=wanted) as live:
        live.seed({"leases": list(before.leases)})
        nodes = live.snapshot().nodes
        live.follow(
            ("pods", "budgets", "slices", *related.surged(surge.kind for surge in surges.values()))
        )
        node_drains = {name: run_node_drain.NodeDrain(name, nodes.get(name)) for name in wanted}
        for node_drain in node_drains.values():
            node_drain.read_record(ctx)
        replacements = run_replacement_wait.ReplacementWait(
            ctx, options.wait_for, live.nudge, choices
        )
        for node_drain in node_drains.values():
            if node_drain.record:
                replacements.resume(node_drain.name, node_drain.record)
        routes = run_dispositions.Routing(ctx, choices, live, node_drains, surges, replacements)
        routes.take_in(run_replacement_wait.watch_awaited(ctx, live, replacements))
        run_outcome.check_start(ctx, routes, routes.plan())
        work = _Drain(ctx, options, routes, deadline)
        work.run()
    now = ctx.clock.now()
    spent = {"requests": ctx.cluster.requests - requests, "seconds": round(now - began, 3)}
    return run_node_drain.result_of(
        node_drains.values(), work.services, now, spent, work.hooks.to_dicts
    )


class _Drain:
    """The loop. Each turn (``_turn``) looks at the watch cache once, and calls all that takes part
    in the drain in a fixed order: what one of them decides binds those after it.
    """

    def __init__(
        self,
        ctx: run_context.Context,
        options: DrainOptions,
        routes: run_dispositions.Routing,
        deadline: float,
    ) -> None:
        self.ctx = ctx
        self.options = options
        self.routing = routes
        self.deadline = deadline
        self.live = routes.live
        self.node_drains = routes.node_drains
        prior = {uid: surge.prior_replicas for uid, surge in routes.surges.items()}
        self.locks = run_locks.Locks(ctx)
        self.services = run_services.Services(ctx, prior)
        self.writer = run_change_writer.ChangeWriter(ctx)
        self.budgets: indexes.Index[tuple[str, str], objects.Budget] | None = None
        self.progress = Progress(ctx, "deleted" if options.choices.disable_eviction else "evicted")
        wake, grace = self.live.nudge, options.grace_period
        sender = run_hook_calls.HttpCalls(ctx, self.locks.prove, options.send, wake)
        self.hooks = run_pod_hooks.PodHooks(
            ctx, options.hooks, self.node_drains, sender, self.locks.prove
        )
        self.surges = self._surges()
        events = run_object_events.Events(ctx, self.live)
        self.coming = run_coming.ComingSurges(options.turns, routes, self.surges, events)
        records = {name: one.record for name, one in self.node_drains.items() if one.record}
        self.jobs = run_dispatcher.JobDispatcher(
            ctx,
            choices=routes.choices,
            prove_lock=self._prove_all,
            wake=wake,
            runs={name: record.run for name, record in records.items()},
            grace_seconds=grace,
            deadline=deadline,
            prior=prior,
        )
        selectors = operators.selectors_of(options.choices.reactive_budgets)
        self.evictor = run_evictor.Evictor(
            ctx,
            prove_lock=self._prove_lock,
            wake=wake,
            parallel=options.parallel,
            grace_seconds=grace,
            delete=options.choices.disable_eviction,
            waits=run_evictor.OperatorWaits(options.choices.operator_budget_wait, selectors),
            lock_names={name: record.lock for name, record in records.items()},
            regain=self.locks.regain,
            prior=prior,
        )
        self.replacing = run_replace.Replacing(
            ctx, routes, self.locks.prove, wake, self.locks.regain
        )
        self.awaited = run_replacement_wait.AwaitedRecords(
            ctx, self.live, self.node_drains, routes.replacements, self.locks.prove
        )
        self.alarms = run_alarms.Alarms(
            ctx,
            after=options.alarm_after,
            announce=options.announce,
            look_again=routes.look_again,
            events=events,
            silent=routes.replacements.silent,
            wake=wake,
        )
        most = options.pod_timeout if options.pod_timeout is not None else float("inf")
        self.node_outcomes = run_outcome.NodeOutcomes(
            ctx,
            routing=routes,
            surges=self.surges,
            jobs=self.jobs,
            evictor=self.evictor,
            locks=self.locks,
            hooks=self.hooks,
            awaited=self.awaited,
            deadline=deadline,
            pod_timeout=most,
        )

    def _surges(self) -> run_lower.Surges:
        """The surges that serve the nodes, and those that do not serve yet."""
        turns = self.options.turns
        return run_lower.Surges(
            self.ctx,
            self.routing.ended(),
            self.locks.prove,
            hooks_of=self.hooks.waits_for,
            leases=self.live.snapshot().leases,
            coming=run_coming.coming(turns),
            writer=turns.surging.writer if turns else None,
        )

    def run(self) -> None:
        """Do the work; in check mode only predict it."""
        todo = [node_drain for node_drain in self.node_drains.values() if node_drain.open]
        if not todo:
            return
        if self.ctx.check:
            self._evacuate(todo)
            for node_drain in todo:
                if node_drain.open:
                    self._predict(node_drain)
            self.surges.predict(self.live.snapshot())
            return
        try:
            records = {node_drain.name: node_drain.taken for node_drain in todo}
            for name, why in self.locks.take_recorded(records).items():
                node_drain = self.node_drains[name]
                node_drain.outcome = outcomes.DrainOutcome.HELD
                node_drain.message = why
                self.surges.lose(name, why)
            if not self.locks.held_before:
                # What the watches know is from before the locks, and they may be far behind.
                found, _whole = run_targeted_reads.nodes_of(self.ctx.cluster, self.node_drains)
                self.node_outcomes.check_ours(
                    {name: objects.Node.of(raw) for name, raw in found.items()}
                )
            self.node_outcomes.begin()
            self._record_awaited()
            self.surges.claim()
            self._evacuate(todo)
            try:
                self.jobs.start()
                self._loop()
            finally:
                self.coming.leave()
                self.jobs.stop()
                self.evictor.close()
                self.replacing.close()
                self.node_outcomes.close()
                self.routing.replacements.close()
                self.hooks.close()
                self.alarms.close()
        finally:
            self.surges.close()
            self.locks.leave(drop=self.node_outcomes.left_to_others())

    def _predict(self, node_drain: run_node_drain.NodeDrain) -> None:
        self.hooks.predict(node_drain)
        presumed = "" if node_drain.record else f" {node_records.presumed(node_drain.name)}"
        delete = self.options.choices.disable_eviction
        for move in node_drain.left():
            if move.plan.route == "replace":
                self.replacing.predict(move)
                run_requests.submit(self.ctx, self.evictor.change(move))
                move.outcome = outcomes.PodOutcome.REPLACED
            elif move.plan.route == "evict":
                run_requests.submit(self.ctx, self.evictor.change(move))
                move.outcome = run_node_drain.evicted(move, delete=delete)
            else:
                move.outcome = run_node_drain.MOVED_BY.get(
                    move.plan.route, outcomes.PodOutcome.GONE
                )
                if move.plan.route == "job":
                    self.jobs.predicted(move)
        if node_drain.selected_only:
            node_drain.outcome = outcomes.DrainOutcome.SELECTED_GONE
            node_drain.message = f"Node {node_drain.name} would lose the selected pods.{presumed}"
            return
        proven = None
        if node_drain.node and node_drain.record:
            proven = node_drain.drained(node_drain.node, node_drain.record)
        shown = run_node_drain.predicted(self.ctx, node_drain, self.live.raw_node(node_drain.name))
        for change in (*shown[:-1], self.awaited.predicted(node_drain), proven, *shown[-1:]):
            if change:
                run_requests.submit(self.ctx, change)
        node_drain.outcome = outcomes.DrainOutcome.DRAINED
        node_drain.message = f"Node {node_drain.name} would be drained.{presumed}"

    def _evacuate(self, todo: list[run_node_drain.NodeDrain]) -> None:
        """Before the loop, the nodes whose machines are off: no eviction could end there, as no
        kubelet stops the pods; they and their volumes only have to be released.
        """
        off = [
            node_drain
            for node_drain in todo
            if node_drain.open and node_drain.name in self.options.choices.fenced
        ]
        evacuation = run_unreachable.Evacuation(
            self.ctx, self.live, self.locks.prove, self.deadline
        )
        if self.ctx.check:
            evacuation.predict(off)
        elif off:
            for node_drain in evacuation.work(off):
                self.node_outcomes.prove(node_drain)

    def _loop(self) -> None:
        while self._open() or not (self.evictor.idle and self.hooks.idle):
            began = self.ctx.clock.now()
            snapshot = self.live.snapshot()
            self.services.sample(snapshot)
            try:
                self._turn(snapshot)
            except run_node_lock.LostLockError as lost:
                self.node_outcomes.taken_over(lost.node, lost.why)
            rest = min(REST_FACTOR * (self.ctx.clock.now() - began), MAX_REST_SECONDS)
            self.live.wait(min(LOOP_PAUSE_SECONDS, self.coming.seconds_left), pause=rest)
        self.node_outcomes.finish()

    def _turn(self, snapshot: snapshots.Snapshot) -> None:
        """One turn of the loop, by one look at the cluster. A LostLockError, raised where another
        run took over a node, ends the turn; the other nodes go on in the next one.
        """
        self.node_outcomes.check_ours(snapshot.nodes)
        self.evictor.settle()
        self.node_outcomes.finish()
        self.routing.follow(snapshot)
        self._record_awaited()
        self._remove_conflicting_guards(snapshot)
        self.progress.tell_moved(self.node_drains.values())
        not_yet = self._set_turns(snapshot)
        for node_drain, lost in self.hooks.step(snapshot):
            self.node_outcomes.unrecorded(node_drain, lost)
        if not self.surges.done:
            self.surges.step(snapshot, not_yet)
        self._fail_surges()
        queue = self._queue()
        self.jobs.step(snapshot, queue)
        self.replacing.step(queue, snapshot)
        self.evictor.step(queue, snapshot)
        for node_drain in self._open():
            self.node_outcomes.decide(node_drain, snapshot)
        missing = [*self.routing.replacements.waited_for, *self.jobs.waited_for]
        for node_drain in self._open():
            missing += self.hooks.missing(node_drain.name)
        waiting = {**self.surges.waiting, **self.coming.waiting}
        self.alarms.step(self.node_drains.values(), snapshot, waiting, missing)
        self.progress.tell(self.node_drains.values(), waiting.values(), missing, self.alarms.why)

    def _set_turns(self, snapshot: snapshots.Snapshot) -> frozenset[str]:
        """Which surges serve by now, and whose turn it is to leave; returns the UIDs of workloads
        of which no pod may leave yet.
        """
        self.coming.step(snapshot)
        now = self.ctx.clock.now()
        coming = self.coming.waiting
        if coming and self.options.timeout is not None:
            # The time for the pods to leave begins once all of them may.
            self.node_outcomes.deadline = now + self.options.timeout
        return run_node_drain.set_turns(self.node_drains.values(), now, coming)

    def _record_awaited(self) -> None:
        for node_drain, lost in self.awaited.write():
            self.node_outcomes.unrecorded(node_drain, lost)

    def _remove_conflicting_guards(self, snapshot: snapshots.Snapshot) -> None:
        """Delete a guard of ours that keeps its pods: the API server evicts no pod that two budgets
        select, and none under a budget whose pods it cannot count.
        """
        present, known = snapshot.places_of_budgets, self.budgets
        changed = False
        for place in present.differing(known):
            new = known is None or not known.get(place)
            changed = changed or new
            changed = changed or any(one.ours and one.sync_failed for one in present.get(place))
        try:
            if changed and not self.writer.write(
                guard_budgets.conflicting(snapshot), self._prove_all
            ):
                return
        except errors.ClusterError as error:
            # Its pods are blocked by two budgets then, as their own messages say; the others go on.
            self.ctx.tell(phases.What.KEPT, f"guard kept beside another budget: {error}")
        self.budgets = present

    def _queue(self) -> list[run_pod_drain.PodDrain]:
        """The moves that may start now: none of a node with a failed one."""
        queue: list[run_pod_drain.PodDrain] = []
        for node_drain in self.node_drains.values():
            moves = node_drain.moves.values()
            if not node_drain.open or any(move.state == "failed" for move in moves):
                continue
            for move in moves:
                if (
                    move.state == "waiting"
                    and not move.waits_for_turn
                    and not self.hooks.waits_for(move.pod)
                ):
                    queue.append(move)
        if self.options.order == "priority":
            queue.sort(key=lambda move: move.pod.priority)
        return queue

    def _fail_surges(self) -> None:
        for node_drain in self.node_drains.values():
            for move in node_drain.left():
                workload = move.plan.workload
                if workload is None or move.plan.route != "surge":
                    continue
                why = self.surges.failures.get(workload.uid)
                if why is not None:
                    move.block(workload, why)
                    move.end("failed", outcomes.PodOutcome.SURGE_FAILED, self.ctx.clock.now(), why)

    def _prove_lock(self, node: str) -> None:
        self.locks.prove((node,))

    def _prove_all(self) -> None:
        """Called before a write that concerns several nodes. Not the locks of closed nodes: one
        that was lost would stop the others.
        """
        self.locks.prove([node_drain.name for node_drain in self._open()])

    def _open(self) -> list[run_node_drain.NodeDrain]:
        return [node_drain for node_drain in self.node_drains.values() if node_drain.open]


class Progress:
    """The progress lines of a drain: one for each node when what it waits for has changed, and one
    for the pods that were evicted.
    """

    def __init__(self, ctx: run_context.Context, verb: str = "evicted") -> None:
        self._ctx = ctx
        self._verb = verb
        self._lines: dict[str, tuple[str, float]] = {}
        self._named: dict[tuple[phases.What, str], float] = {}
        self._pods: set[tuple[phases.What, str]] = set()

    def tell_moved(self, node_drains: t.Iterable[run_node_drain.NodeDrain]) -> None:
        """Name the pods that were let go or evicted since the last line that named some."""
        for node_drain in node_drains:
            more = any(move.state in ("waiting", "asked") for move in node_drain.moves.values())
            let_go = {uid: move for uid, move in node_drain.moves.items() if move.let_go}
            self._name(phases.What.RELEASED, "replacing", node_drain.name, let_go, more=more)
            left = {uid: move for uid, move in node_drain.moves.items() if move.ours}
            self._name(phases.What.EVICTED, self._verb, node_drain.name, left, more=more)

    def _name(
        self,
        what: phases.What,
        verb: str,
        node: str,
        moves: t.Mapping[str, run_pod_drain.PodDrain],
        *,
        more: bool,
    ) -> None:
        now = self._ctx.clock.now()
        found = {(what, uid): move for uid, move in moves.items() if (what, uid) not in self._pods}
        # The last ones are named at once, as no later line would.
        passed = now - self._named.get((what, node), float("-inf"))
        if found and (not more or passed >= SECONDS_BETWEEN_LINES):
            self._named[what, node] = now
            self._pods.update(found)
            self._ctx.show(what, f"{verb} {_places([*found.values()])}", node=node)

    def tell(
        self,
        node_drains: t.Iterable[run_node_drain.NodeDrain],
        beside: t.Collection[str],
        missing: t.Collection[str],
        still: t.Mapping[str, t.Sequence[str]] = NOTHING,
    ) -> None:
        """Show a line for each open node of which there is something new.

        ``beside`` is waited for while pods are left on it, ``missing`` after that; ``still`` is all
        that nodes without progress wait for, by their names.
        """
        now = self._ctx.clock.now()
        for node_drain in node_drains:
            last, at = self._lines.get(node_drain.name, ("", float("-inf")))
            if not node_drain.open or now - at < SECONDS_BETWEEN_LINES:
                continue
            text = _words(node_drain, beside, missing, still)
            if text != last:
                self._lines[node_drain.name] = (text, now)
                self._ctx.tell(phases.What.PROGRESS, text, node=node_drain.name)


def _places(moves: t.Sequence[run_pod_drain.PodDrain]) -> str:
    """The pods, the first ones by name."""
    named = ", ".join(f"{move.pod.namespace}/{move.pod.name}" for move in moves[:PODS_NAMED])
    more = len(moves) - PODS_NAMED
    if more <= 0:
        return named
    return f"{named} and {more} more {'pod' if more == 1 else 'pods'}"


def _words(
    node_drain: run_node_drain.NodeDrain,
    beside: t.Collection[str],
    missing: t.Collection[str],
    still: t.Mapping[str, t.Sequence[str]] = NOTHING,
) -> str:
    left = node_drain.left()
    total = sum(1 for move in node_drain.moves.values() if move.state != "skipped")
    leaving = sum(1 for move in left if move.state == "leaving")
    text = f"{len(left)} of {total} pods left, {leaving} ending"
    if waiting := sum(1 for move in left if move.waits_for_turn):
        text += f", {waiting} held until it is their turn"
    blocked = {move.blocked_by["message"] for move in left if move.blocked_by} | set(beside)
    if left:
        blocked |= set(still.get(node_drain.name, ()))
    else:
        text = f"all {total} pods gone"
        blocked |= set(missing)
    if blocked:
        return text + "; waiting: " + "; ".join(sorted(blocked)[:3])
    return text if left else f"{text}, verifying"
