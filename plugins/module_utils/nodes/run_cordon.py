# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``node_cordon``: take nodes through the steps of their maintenance, many at once.

Every state is planned from one list of the nodes. Only if there is something to do, the node's lock
is taken, the node read again, and the patch sent on the condition that nobody changed
the node in between.
"""

from __future__ import annotations

import contextlib
import functools
import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    related,
    run_context,
    run_listing,
    run_reconcile,
    run_requests,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    dispositions,
    replacement_conditions,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import (
    hook_definitions,
    run_handshakes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    node_conditions,
    run_external_controllers,
    run_lookup,
    run_node_steps,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    pod_rules,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    node_records,
    run_heartbeats,
    run_lease,
    run_locks,
    run_node_lock,
    run_stored,
)

# Bringing the conditions of a node to a phase of its maintenance.


class Own(t.Protocol):
    """Reads the caller's record of a node."""

    def __call__(self, raw: objects.Raw, /) -> node_records.Record | None:
        """``None`` if it is no longer the caller's."""


def show(
    ctx: run_context.Context,
    name: str,
    phase: node_conditions.Phase,
    own: Own,
    prove_lock: run_requests.ProveLock,
    *,
    known: objects.Raw | run_reconcile.Unread | None = run_reconcile.UNREAD,
) -> objects.Raw | None:
    """Write the node's status, if a condition of it is to change; gives the node as it is now.

    ``known`` is the node as it was read just now. Raises what ``run_reconcile.reconcile`` raises.
    """

    def decide(raw: objects.Raw | None) -> api_changes.Change | None:
        record = own(raw) if raw else None
        if raw and record:
            return node_conditions.change(raw, record, phase, ctx.clock.server())
        return None

    target = objects.Ref("Node", name, api_version="v1")
    return run_reconcile.reconcile(ctx, target, decide, known=known, prove_lock=prove_lock).object


PROGRESS: t.Mapping[run_node_steps.State, str] = {
    "cordoned": "cordoned",
    "out": "handed over to the tasks on its host",
    "returning": "our taint removed, still cordoned",
    "parked": "left out of service",
    "uncordoned": "uncordoned",
}


UNRECORDED = (
    outcomes.CordonOutcome.NOT_IN_MAINTENANCE,
    outcomes.CordonOutcome.NOT_IN_MAINTENANCE_YET,
)


def cordon(ctx: run_context.Context, options: run_node_steps.CordonOptions) -> run_context.Result:
    """Bring every node to the state.

    Raises:
        CallAborted: an unknown node, or a namespace that is missing and may not be created.
        ClusterError: the API server cannot be reached or refuses to be read.
    """
    found, _among = run_lookup.nodes(ctx, options.nodes)
    if options.state in ("cordoned", "out"):
        run_lookup.refuse_unknown(
            {name: objects.Node.of(raw) for name, raw in found.items()}, options.nodes
        )
    run_id, nonce = ctx.caller
    newcomer = run_context.Run(run_id or ctx.clock.token(), nonce)
    tasks = [
        run_node_steps.Task(name, found.get(name), newcomer)
        for name in dict.fromkeys(options.nodes)
    ]
    for task in tasks:
        run_node_steps.decide(ctx, options, task)
    recent = ctx.recent.get("nodes")
    # What may select pods is no other for what is written here.
    beside = {name: ctx.recent[name] for name in replacement_conditions.KINDS if name in ctx.recent}
    todo = [task for task in tasks if _needs_lock(ctx, options, task)]
    if todo and not ctx.check:
        beside |= _act(ctx, options, todo)
    elif todo:
        _predict(ctx, options, todo)
    without = [task for task in tasks if not task.raw or task.outcome in UNRECORDED]
    _drop_left_locks(ctx, options, without)
    ctx.recent = beside
    if recent is not None:
        ctx.recent["nodes"] = replace(recent, items=_as_written(recent.items, tasks))
    return run_lookup.result([task.to_dict(ctx.clock) for task in tasks])


def _as_written(
    listed: t.Sequence[objects.Raw], tasks: t.Iterable[run_node_steps.Task]
) -> list[objects.Raw]:
    """The nodes of a list, those of the tasks as they are after their last patch."""
    now = {task.name: task.raw for task in tasks}
    found = [now.get(raw["metadata"]["name"], raw) for raw in listed]
    return [raw for raw in found if raw is not None]


def _predict(
    ctx: run_context.Context, options: run_node_steps.CordonOptions, todo: list[run_node_steps.Task]
) -> None:
    """For check mode: note the changes in the order in which they would be made."""
    for task in todo:
        changes = [task.change, task.shown]
        if options.state == "uncordoned":
            run_handshakes.take_back(ctx, task.record)
            changes.reverse()
        for change in changes:
            if change:
                run_requests.submit(ctx, change)


def _needs_lock(
    ctx: run_context.Context, options: run_node_steps.CordonOptions, task: run_node_steps.Task
) -> bool:
    if task.change or task.shown or _notice_left(ctx, options, task):
        return True
    if options.state == "uncordoned":
        return bool(task.awaited)
    # To make the lock last longer it is taken even if the node needs no change.
    stretch = options.state == "cordoned" and options.lease_duration
    return bool(stretch and task.identity and not task.failed)


def _drop_left_locks(
    ctx: run_context.Context,
    options: run_node_steps.CordonOptions,
    tasks: list[run_node_steps.Task],
) -> None:
    """Delete the locks of nodes that are gone or have no record: nobody else would.

    A start that was killed right after its last patch of a node has left its lock, and tasks that
    delete a node or register it again leave that of their own start.
    Only the way back is for locks of other starts.
    """
    back, run = options.state == "uncordoned", ctx.run
    if not tasks or run is None or options.state == "cordoned" or not (run.id or back):
        return
    by_name = {task.name: task for task in tasks}
    namespace = run_locks.lease_namespace(ctx, options.lease_namespace)
    left = []
    for lock in run_lease.left_locks(ctx, run, by_name.keys(), namespace):
        if back or run_context.Run.parse(lock.lease["spec"]["holderIdentity"]) == run:
            left.append(lock)
    ended: set[str] = set()
    for lock in left:
        name = run_lease.node_of(lock.lease)
        if options.state == "returning":
            run_node_steps.mark_if_replaced(by_name[name], lock.lease)
        run_handshakes.take_back_on(ctx, name)
        run_lease.release(ctx, lock, ended)
    if left:
        run_heartbeats.sweep(ctx, run.id)


def _act(
    ctx: run_context.Context, options: run_node_steps.CordonOptions, todo: list[run_node_steps.Task]
) -> dict[str, run_context.RecentList]:
    """Brings the nodes to the state, and gives the leases as they were listed under all the locks,
    if they were.
    """
    namespace = ""
    under_locks: dict[str, run_context.RecentList] = {}
    if not all(task.lease for task in todo):
        namespace = run_locks.lease_namespace(ctx, options.lease_namespace)
    for task in todo:
        task.lease = task.lease or f"{namespace}/{names.node_lease_name(task.name)}"
    everyone = dict.fromkeys(task.identity for task in todo if task.identity)
    for me in everyone:
        group = [task for task in todo if task.identity == me]
        locks = run_locks.Locks(ctx, me, {task.name: task.lease for task in group})
        given_up: list[str] = []
        try:
            alone = len(everyone) == 1 and not any(task.record for task in group)
            _lock(ctx, options, locks, me, group, unheld=alone)
            if alone and locks.listed is not None:
                under_locks["leases"] = locks.listed
            if options.state == "cordoned" and options.stored:
                given_up += _refuse_done(ctx, [task for task in group if not task.failed])
            if options.state == "out":
                _refuse_undrained(ctx, [task for task in group if not task.failed], options.rules)
            _write_all(ctx, options, locks, [x for x in group if not x.failed])
            if options.state == "uncordoned":
                _tell_back(ctx, group)
                _await_workloads(ctx, options, locks, group)
            if options.state == "out":
                done = [task for task in group if not task.failed]
                run_external_controllers.let_balancers_settle(
                    ctx, {task.name: task.record for task in done if task.record}
                )
            if options.state == "cordoned":
                run_external_controllers.await_notice(
                    ctx, {task.name: _notice_left(ctx, options, task) for task in group}
                )
            over = options.state in ("uncordoned", "parked")
            # Somebody may have given a node back in the meantime:
            # nobody else would delete its lock.
            left = (outcomes.CordonOutcome.GONE, outcomes.CordonOutcome.NOT_IN_MAINTENANCE_YET)
            given_up += [
                task.name for task in group if task.outcome in left or (over and not task.failed)
            ]
        finally:
            stays = options.lease_duration if options.state in ("out", "cordoned") else None
            locks.leave(stays or run_locks.IDLE, drop=given_up)
    return under_locks


def _lock(
    ctx: run_context.Context,
    options: run_node_steps.CordonOptions,
    locks: run_locks.Locks,
    me: run_context.Run,
    group: t.Sequence[run_node_steps.Task],
    *,
    unheld: bool,
) -> None:
    """Take the locks of one run's nodes; what others hold is HELD."""
    patient = ctx.run is not None and ctx.run.id == me.id and any(task.record for task in group)
    refused = locks.take(patient=patient, borrowed=not me.nonce, adopt=options.adopt, unheld=unheld)
    for task in group:
        if task.name in refused:
            task.outcome = outcomes.CordonOutcome.HELD
            task.wanted = task.record
            task.message = refused[task.name]


def _write_all(
    ctx: run_context.Context,
    options: run_node_steps.CordonOptions,
    locks: run_locks.Locks,
    tasks: list[run_node_steps.Task],
) -> None:
    with ctx.clock.pool(run_requests.MAX_PARALLEL, "node") as pool:
        list(pool.map(functools.partial(_write, ctx, options, locks), tasks))


def _await_workloads(
    ctx: run_context.Context,
    options: run_node_steps.CordonOptions,
    locks: run_locks.Locks,
    group: list[run_node_steps.Task],
) -> None:
    """Wait for the workloads that waited for these nodes, then delete the nodes' records; what does
    not run even then is in the task's ``kept``.
    """
    back = [task for task in group if task.awaited]
    if not back:
        return
    short = run_external_controllers.await_workloads(
        ctx, {task.name: task.awaited for task in back}
    )
    texts = [(task, task.message, (*task.kept, *short[task.name])) for task in back]
    for task in back:
        task.complete = True
    _write_all(ctx, options, locks, back)
    for task, message, kept in texts:
        if task.outcome == outcomes.CordonOutcome.UNCORDONED:
            task.message = message
            task.kept = kept


def _write(
    ctx: run_context.Context,
    options: run_node_steps.CordonOptions,
    locks: run_locks.Locks,
    task: run_node_steps.Task,
) -> None:
    """Write one node under its lock; whoever held that before may have changed the
    node since it was read.
    """
    planned = task.change
    kept: tuple[str, ...] = ()

    def decide(raw: objects.Raw | None) -> api_changes.Change | None:
        nonlocal kept
        task.raw = raw
        run_node_steps.decide(ctx, options, task)
        if task.change is None:
            return None
        kept = task.kept
        if options.state == "uncordoned":
            run_handshakes.take_back(ctx, task.record, prove_lock)
        return task.change

    # If somebody has written the node since it was read, this patch is refused, and decided anew.
    # What is announced on pods is taken back before it, by the record,
    # which is read again for that.
    as_read = planned is not None and not (
        options.state == "uncordoned" and task.record and hook_definitions.planned(task.record)
    )
    target = objects.Ref("Node", task.name, api_version="v1")
    prove_lock = functools.partial(locks.prove, [task.name])
    known: objects.Raw | run_reconcile.Unread | None = task.raw if as_read else run_reconcile.UNREAD
    try:
        if options.state == "uncordoned" and task.record and task.record.conditions:
            own = functools.partial(_still_to_give_back, ctx, options, task)
            known = show(ctx, task.name, "back", own, prove_lock)
        written = run_reconcile.reconcile(ctx, target, decide, known=known, prove_lock=prove_lock)
        change = written.change
        task.raw = written.object or task.raw
        if task.wanted and task.wanted.conditions and not task.failed:
            own = functools.partial(_record_if_ours, task.wanted.nonce)
            task.raw = show(ctx, task.name, task.wanted.step, own, prove_lock, known=written.object)
    except run_node_lock.LostLockError as error:
        task.outcome = outcomes.CordonOutcome.ADOPTED_BY
        task.message = error.reason.sentence
    except (run_context.CallAborted, errors.ClusterError) as error:
        task.outcome = outcomes.CordonOutcome.FAILED
        task.message = f"Node {task.name}: {error}"
    else:
        if change is not None:
            task.kept = kept
            _succeed(ctx, options.state, task, change)


def _succeed(
    ctx: run_context.Context,
    state: run_node_steps.State,
    task: run_node_steps.Task,
    change: api_changes.Change,
) -> None:
    task.outcome = outcomes.CordonOutcome(state)
    task.message = change.sentence
    task.line = _progress(state, change)
    if state != "uncordoned":
        ctx.tell(task.outcome, task.line, node=task.name)


def _tell_back(ctx: run_context.Context, tasks: list[run_node_steps.Task]) -> None:
    """Report the nodes that were given back, once they take pods again."""
    given_back = [task for task in tasks if task.line and task.outcome]
    notes = run_external_controllers.await_schedulable(
        ctx, {task.name: task.raw for task in given_back if task.raw}
    )
    for task in given_back:
        note = notes.get(task.name, "")
        task.message += note
        ctx.tell(t.cast("outcomes.CordonOutcome", task.outcome), task.line + note, node=task.name)


def _still_to_give_back(
    ctx: run_context.Context,
    options: run_node_steps.CordonOptions,
    task: run_node_steps.Task,
    raw: objects.Raw,
) -> node_records.Record | None:
    """The record of the node, planned anew under its lock."""
    task.raw = raw
    run_node_steps.decide(ctx, options, task)
    return None if task.failed else task.record


def _record_if_ours(nonce: str, raw: objects.Raw) -> node_records.Record | None:
    """The record of the node, if it was not taken over since it was written."""
    with contextlib.suppress(node_records.BadRecordError):
        record = node_records.record_of(objects.Node.of(raw))
        return record if record and record.nonce == nonce else None
    return None


def _notice_left(
    ctx: run_context.Context, options: run_node_steps.CordonOptions, task: run_node_steps.Task
) -> float:
    """For how long others may still react to the planned maintenance of the node, in seconds."""
    if (
        not options.planned_notice
        or options.state != "cordoned"
        or not task.node
        or not task.wanted
        or task.failed
    ):
        return 0.0
    return node_conditions.notice_left(
        task.node, task.wanted, options.planned_notice, ctx.clock.server()
    )


def _progress(state: run_node_steps.State, change: api_changes.Change) -> str:
    """The line of progress for a node that ``change`` has brought to the state."""
    if state == "cordoned" and "step" in (change.before or {}):
        return "maintenance resumed"
    if state == "uncordoned" and (change.after or {}).get("unschedulable"):
        return "given back, cordoned as before"
    return PROGRESS[state]


def _refuse_done(ctx: run_context.Context, tasks: list[run_node_steps.Task]) -> list[str]:
    """Refuse, and return, the nodes that another start of the run has finished while
    this one stood still.

    Checked under the locks: a finished node is noted before its lock is deleted.
    """
    run_id, _nonce = ctx.caller
    if not (run_id and tasks):
        return []
    outcome = outcomes.CordonOutcome.ADOPTED_BY
    try:
        why = run_stored.not_to_do(ctx, run_id, [task.name for task in tasks])
    except (errors.ClusterError, node_records.BadRecordError) as error:
        text = (
            f"run {run_id} as stored cannot be read, so it is unknown whether the node is still "
            f"to be done: {error}"
        )
        outcome = outcomes.CordonOutcome.FAILED
        why = {task.name: f"Node {task.name}: {text}" for task in tasks}
    for task in tasks:
        if task.name in why:
            task.outcome = outcome
            task.message = why[task.name]
            task.wanted = task.record
    return list(why)


def _refuse_undrained(
    ctx: run_context.Context, tasks: list[run_node_steps.Task], rules: tuple[pod_rules.Rule, ...]
) -> None:
    """Prove once more that the nodes are drained, right before the user's tasks;
    a few lists for all of them.

    What ``rules`` leave on the nodes does not count.
    """
    nodes = [task.name for task in tasks]
    there, among = run_lookup.nodes(ctx, nodes)
    pods = run_listing.pods_of(ctx.cluster, nodes, among)
    known: dict[str, list[t.Any]] = {
        "nodes": list(map(objects.Node.of, there.values())),
        "pods": pods,
    }
    found = {**known, **run_listing.lists(ctx.cluster, ("leases", *related.owners_of(pods)))}
    left = dispositions.left_to_move(
        snapshots.Snapshot.of(found), nodes, drain_policy.DrainPolicy(rules=rules)
    )
    for task in tasks:
        mine = [pod for pod in left if pod.node == task.name]
        step = task.record.step if task.record else "none"
        if step in ("drained", "out", "parked") and not mine:
            continue
        where = ", ".join(str(pod.ref) for pod in mine[:5]) or f"its record says {step}"
        task.outcome = outcomes.CordonOutcome.NOT_DRAINED
        task.change = None
        text = f"is not drained ({where}); no task may run on it. Drain it again with node_drain."
        task.message = f"Node {task.name} {text}"
