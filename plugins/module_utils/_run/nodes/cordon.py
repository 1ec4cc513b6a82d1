# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``node_cordon``: take nodes through the steps of their maintenance, many at once.

Every state is planned from one list of the nodes. Only if there is something to do, the node's lock is taken, the node
read again, and the patch sent on the condition that nobody changed the node in between.
"""

from __future__ import annotations

import contextlib
import functools
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    names,
    node_records,
    objects,
    outcomes,
    pod_plan,
    pod_rules,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import cordon as plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import lifecycle
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import dead, migrate
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import (
    act,
    conditions,
    context,
    handshakes,
    life,
    locking,
    node_locks,
    observe,
    stored_runs,
    writing,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.nodes import others, reading

State = t.Literal["cordoned", "out", "returning", "parked", "uncordoned"]

DONE: t.Mapping[State, str] = {
    "cordoned": "cordoned",
    "out": "handed over to the tasks on its host",
    "returning": "our taint removed, still cordoned",
    "parked": "left out of service",
    "uncordoned": "uncordoned",
}


@dataclass(frozen=True, slots=True)
class CordonOptions:
    """Options of the module.

    ``stored``: ``cordoned`` refuses nodes that the caller's run, as stored, has finished. ``lease_duration``: seconds
    for which the lock lasts after ``cordoned`` and ``out``, for work during which nobody renews it. ``planned_notice``:
    seconds that others have to react to the condition MaintenancePlanned, of nodes that are taken out with
    ``node_conditions``. ``rules`` are those by which the nodes were drained, for ``out``.
    """

    state: State
    nodes: tuple[str, ...]
    reason: str = ""
    taint: bool = True
    exclude_from_load_balancers: bool = True
    hold_autoscalers: bool = True
    hold_remediation: bool = True
    node_conditions: bool = False
    planned_notice: float | None = None
    lease_namespace: str | None = None
    lease_duration: float | None = None
    adopt: bool = False
    stored: bool = False
    rules: tuple[pod_rules.Rule, ...] = ()

    @property
    def marks(self) -> list[str]:
        """Which marks for other controllers a node gets when it is taken out."""
        wanted = {
            "load_balancers": self.exclude_from_load_balancers,
            "autoscalers": self.hold_autoscalers,
            "remediation": self.hold_remediation,
        }
        return [name for name, is_wanted in wanted.items() if is_wanted]


@dataclass
class _Task:
    """One node's part of the call.

    ``raw`` is the node as it was last read, ``shown`` the change of its conditions. ``newcomer`` takes out a node that
    nobody holds; it is the same for all nodes of a call, so that later calls take their locks together.
    """

    name: str
    raw: objects.Raw | None
    newcomer: context.Run
    record: node_records.Record | None = None
    change: api_changes.Change | None = None
    shown: api_changes.Change | None = None
    wanted: node_records.Record | None = None
    lease: str = ""
    identity: context.Run | None = None
    outcome: outcomes.CordonOutcome | None = None
    message: str = ""
    kept: tuple[str, ...] = ()

    @property
    def node(self) -> objects.Node | None:
        return objects.Node.of(self.raw) if self.raw else None

    @property
    def failed(self) -> bool:
        return self.outcome is not None and self.outcome.failed

    def to_dict(self) -> dict[str, t.Any]:
        record = self.wanted.public() if self.wanted else None
        return {**outcomes.entry(self.name, self.outcome, self.message), "kept": list(self.kept), "record": record}


def cordon(ctx: context.Context, options: CordonOptions) -> context.Result:
    """Bring every node to the state.

    Raises:
        StopRun: an unknown node, or a namespace that is missing and may not be created.
        ClusterError: the API server cannot be reached or refuses to be read.
    """
    found, _among = reading.nodes(ctx, options.nodes)
    if options.state in ("cordoned", "out"):
        reading.refuse_unknown({name: objects.Node.of(raw) for name, raw in found.items()}, options.nodes)
    run_id, nonce = ctx.caller
    newcomer = context.Run(run_id or ctx.clock.token(), nonce)
    tasks = [_Task(name, found.get(name), newcomer) for name in dict.fromkeys(options.nodes)]
    for task in tasks:
        _plan(ctx, options, task)
    # To make the lock last longer it is taken even if the node needs no change.
    stretch = options.state == "cordoned" and options.lease_duration
    todo = [task for task in tasks if task.change or task.shown or _notice_left(ctx, options, task)]
    todo += [task for task in tasks if stretch and task.identity and not task.failed and task not in todo]
    if todo and not ctx.check:
        _act(ctx, options, todo)
    elif todo:
        for task in todo:
            if options.state == "uncordoned":
                handshakes.take_back(ctx, task.record)
            first_shown = options.state == "uncordoned"
            both = (task.shown, task.change) if first_shown else (task.change, task.shown)
            for change in (change for change in both if change):
                act.apply(ctx, change)
    # A start that was killed right after its last patch of a node has left the lock behind.
    free = [task.name for task in tasks if not task.raw or task.outcome is outcomes.CordonOutcome.NOT_IN_MAINTENANCE]
    if free and ctx.run and options.state == "uncordoned":
        for lock in life.left_locks(ctx, ctx.run, free, locking.lease_namespace(ctx, options.lease_namespace)):
            handshakes.take_back_on(ctx, life.node_of(lock))
            life.drop(ctx, lock)
    return reading.result([task.to_dict() for task in tasks])


def _plan(ctx: context.Context, options: CordonOptions, task: _Task) -> None:
    """Decide the change; fills everything but the lock."""
    _plan_steps(ctx, options, task)
    task.shown, record = None, task.record if options.state == "uncordoned" else task.wanted
    if task.raw and record and not task.failed:
        phase: lifecycle.Phase = "back" if options.state == "uncordoned" else record.step
        task.shown = lifecycle.change(task.raw, record, phase, ctx.clock.server())


def _plan_steps(ctx: context.Context, options: CordonOptions, task: _Task) -> None:
    """The change of the node itself, with its record."""
    node = task.node
    task.change, task.kept = None, ()
    if node is None:
        task.outcome, task.message = outcomes.CordonOutcome.GONE, f"Node {task.name} no longer exists."
        return
    try:
        task.record = record = node_records.record_of(node)
    except node_records.BadRecordError as error:
        task.outcome, task.message = outcomes.CordonOutcome.FAILED, str(error)
        return
    if record is None:
        _plan_unrecorded(ctx, options, task, node)
        return
    task.lease, task.wanted = record.lease, record
    run_id, nonce = ctx.caller
    mine = not record.foreign_to(run_id, nonce)
    if not mine and not _may_adopt(options, record, run_id):
        task.outcome, task.message = outcomes.CordonOutcome.ADOPTED_BY, _refusal(node.name, record, options)
        return
    task.identity = context.Run(record.run, nonce)
    if options.state in ("returning", "uncordoned") and (why := dead.stays_out(node, record)):
        task.outcome, task.message = outcomes.CordonOutcome.STILL_DEAD, why
        return
    held = replace(record, nonce=task.identity.nonce)
    if not mine:
        held = replace(held, by=ctx.by, reason=options.reason or record.reason)
    match options.state:
        case "cordoned":
            keep = record.step in ("cordoned", "drained") and mine
            task.change = None if keep else plan.at_step(node, held, "cordoned")
            task.wanted = held if keep else held.at("cordoned")
        case "uncordoned":
            (task.change, task.kept), task.wanted = plan.give_back(node, record), None
        case step:
            task.change, task.wanted = plan.at_step(node, held, step), held.at(step)
    task.outcome = outcomes.CordonOutcome(options.state if task.change else f"already_{options.state}")
    task.message = task.change.sentence if task.change else f"Node {task.name} is {options.state} already."
    if options.state != "uncordoned":
        task.kept = plan.foreign_changes(node, record)


def _plan_unrecorded(ctx: context.Context, options: CordonOptions, task: _Task, node: objects.Node) -> None:
    if options.state == "uncordoned":
        kept = " Somebody else cordoned it, and it stays so." if node.unschedulable else ""
        task.outcome = outcomes.CordonOutcome.NOT_IN_MAINTENANCE
        task.message = f"Node {node.name} has no record, so there is nothing of ours to undo.{kept}"
        return
    if options.state != "cordoned":
        task.outcome = outcomes.CordonOutcome.NOT_IN_MAINTENANCE_YET
        task.message = f"Node {node.name} has no record: take it out of service first with state=cordoned."
        if ctx.check:
            task.outcome = outcomes.CordonOutcome(options.state)
            task.message = f"Node {node.name} would be cordoned by then."
        return
    task.identity = task.identity or task.newcomer
    draft = node_records.Record(
        run=task.identity.id,
        nonce=task.identity.nonce,
        by=ctx.by,
        reason=options.reason,
        since=ctx.clock.server(),
        step="cordoned",
        node_uid=node.uid,
        lease=task.lease,
        prior={},
    )
    task.wanted, task.change = plan.take_out(
        node, draft, taint=options.taint, marks=options.marks, conditions=options.node_conditions
    )
    task.outcome, task.message = outcomes.CordonOutcome.CORDONED, task.change.sentence
    if node.unschedulable:
        task.kept = (f"node {node.name} was cordoned before by somebody else and stays so afterwards",)


def _may_adopt(options: CordonOptions, record: node_records.Record, run_id: str) -> bool:
    """Whether the record of another start may be taken over at all; the lock decides whether it may be now.

    A call that names no run, or the record's, may. A node that is out is the exception: nobody renews its lock, so
    an expired one does not mean that the tasks on the host are over.
    """
    if options.adopt or record.step in ("out", "parked"):
        return options.adopt or record.step == "parked"
    return run_id in ("", record.run) or options.state in ("cordoned", "returning")


def _refusal(name: str, record: node_records.Record, options: CordonOptions) -> str:
    where = f"run {record.run} of {record.by} (since {record.since}, step {record.step})"
    if record.step == "out":
        return (
            f"Node {name} is out of service for the tasks of {where}, which may still be running on the host. "
            f"If they are not: run the playbook again with -e maintain_run={record.run}, "
            f"or `ansible-playbook kubeops.node_maintenance.recover -e recover_run={record.run}`."
        )
    return f"Node {name} belongs to {where}; a call of another start may not bring it to {options.state}."


def _act(ctx: context.Context, options: CordonOptions, todo: list[_Task]) -> None:
    namespace = "" if all(task.lease for task in todo) else locking.lease_namespace(ctx, options.lease_namespace)
    for task in todo:
        task.lease = task.lease or f"{namespace}/{names.node_lease_name(task.name)}"
    for me in dict.fromkeys(task.identity for task in todo if task.identity):
        group = [task for task in todo if task.identity == me]
        locks = locking.Locks(ctx, me, {task.name: task.lease for task in group})
        given_up: list[str] = []
        try:
            patient = ctx.run is not None and ctx.run.id == me.id and any(task.record for task in group)
            for node, why in locks.take(patient=patient, borrowed=not me.nonce, adopt=options.adopt).items():
                task = next(x for x in group if x.name == node)
                task.outcome, task.wanted = outcomes.CordonOutcome.HELD, task.record
                task.message = f"{why}. Wait until it ends, or inspect it with the recover playbook."
            if options.state == "cordoned" and options.stored:
                given_up += _refuse_done(ctx, [task for task in group if not task.failed])
            if options.state == "out":
                _refuse_undrained(ctx, [task for task in group if not task.failed], options.rules)
            with ctx.clock.pool(act.AT_ONCE, "node") as pool:
                list(pool.map(functools.partial(_write, ctx, options, locks), [x for x in group if not x.failed]))
            if options.state == "out":
                done = [task for task in group if not task.failed]
                others.let_balancers_settle(ctx, {task.name: task.record for task in done if task.record})
            if options.state == "cordoned":
                others.await_notice(ctx, {task.name: _notice_left(ctx, options, task) for task in group})
            over = options.state in ("uncordoned", "parked")
            # Somebody may have given a node back in the meantime: nobody else would delete its lock.
            left = (outcomes.CordonOutcome.GONE, outcomes.CordonOutcome.NOT_IN_MAINTENANCE_YET)
            given_up += [task.name for task in group if task.outcome in left or (over and not task.failed)]
        finally:
            stays = options.lease_duration if options.state in ("out", "cordoned") else None
            locks.leave(stays or locking.IDLE, drop=given_up)


def _write(ctx: context.Context, options: CordonOptions, locks: locking.Locks, task: _Task) -> None:
    """Write one node under its lock; whoever held that before may have changed the node since it was read."""
    planned = task.change
    kept: tuple[str, ...] = ()

    def decide(raw: objects.Raw | None) -> api_changes.Change | None:
        nonlocal kept
        task.raw = raw
        _plan(ctx, options, task)
        if task.change is None:
            return None
        kept = task.kept
        if options.state == "uncordoned":
            handshakes.take_back(ctx, task.record, fence)
        return task.change

    # If somebody else has written the first record in the meantime, this patch is refused.
    first = ctx.run is not None and task.record is None and planned is not None
    target, fence = objects.Ref("Node", task.name, api_version="v1"), functools.partial(locks.fence, [task.name])
    known: objects.Raw | writing.Unread | None = task.raw if first else writing.UNREAD
    try:
        if options.state == "uncordoned" and task.record and task.record.conditions:
            own = functools.partial(_still_to_give_back, ctx, options, task)
            known = conditions.show(ctx, task.name, "back", own, fence)
        written = writing.write(ctx, target, decide, known=known, fence=fence)
        change = written.change
        if task.wanted and task.wanted.conditions and not task.failed and options.state != "uncordoned":
            own = functools.partial(_held_by, task.wanted.nonce)
            task.raw = conditions.show(ctx, task.name, task.wanted.step, own, fence, known=written.object)
    except node_locks.LostLockError as error:
        task.outcome, task.message = outcomes.CordonOutcome.ADOPTED_BY, error.reason.sentence
    except (context.StopRun, errors.ClusterError) as error:
        task.outcome, task.message = outcomes.CordonOutcome.FAILED, f"Node {task.name}: {error}"
    else:
        if change is not None:
            task.outcome, task.message, task.kept = outcomes.CordonOutcome(options.state), change.sentence, kept
            note = ""
            if options.state == "uncordoned":
                task.wanted = None
                note = others.await_schedulable(ctx, task.name)
            task.message += note
            ctx.tell(task.outcome, _done(options.state, change) + note, node=task.name)


def _still_to_give_back(
    ctx: context.Context, options: CordonOptions, task: _Task, raw: objects.Raw
) -> node_records.Record | None:
    """The record of the node, planned anew under its lock."""
    task.raw = raw
    _plan(ctx, options, task)
    return None if task.failed else task.record


def _held_by(nonce: str, raw: objects.Raw) -> node_records.Record | None:
    """The record of the node, if it was not taken over since it was written."""
    with contextlib.suppress(node_records.BadRecordError):
        record = node_records.record_of(objects.Node.of(raw))
        return record if record and record.nonce == nonce else None
    return None


def _notice_left(ctx: context.Context, options: CordonOptions, task: _Task) -> float:
    """For how long others may still react to the planned maintenance of the node, in seconds."""
    if not options.planned_notice or options.state != "cordoned" or not task.node or not task.wanted or task.failed:
        return 0.0
    return lifecycle.notice_left(task.node, task.wanted, options.planned_notice, ctx.clock.server())


def _done(state: State, change: api_changes.Change) -> str:
    """The line of progress for a node that ``change`` has brought to the state."""
    if state == "cordoned" and "step" in (change.before or {}):
        return "maintenance resumed"
    if state == "uncordoned" and (change.after or {}).get("unschedulable"):
        return "given back, cordoned as before"
    return DONE[state]


def _refuse_done(ctx: context.Context, tasks: list[_Task]) -> list[str]:
    """Refuse, and return, the nodes that another start of the run has finished while this one stood still.

    Checked under the locks: a finished node is noted before its lock is deleted.
    """
    run_id, _nonce = ctx.caller
    if not (run_id and tasks):
        return []
    outcome = outcomes.CordonOutcome.ADOPTED_BY
    try:
        why = stored_runs.not_to_do(ctx, run_id, [task.name for task in tasks])
    except (errors.ClusterError, node_records.BadRecordError) as error:
        text = f"run {run_id} as stored cannot be read, so it is unknown whether the node is still to be done: {error}"
        why, outcome = {task.name: f"Node {task.name}: {text}" for task in tasks}, outcomes.CordonOutcome.FAILED
    for task in tasks:
        if task.name in why:
            task.outcome, task.message, task.wanted = outcome, why[task.name], task.record
    return list(why)


def _refuse_undrained(ctx: context.Context, tasks: list[_Task], rules: tuple[pod_rules.Rule, ...]) -> None:
    """Prove once more that the nodes are drained, right before the user's tasks; a few lists for all of them.

    What ``rules`` leave on the nodes does not count.
    """
    nodes = [task.name for task in tasks]
    there, among = reading.nodes(ctx, nodes)
    pods = observe.pods_of(ctx.cluster, nodes, among)
    known: dict[str, list[t.Any]] = {"nodes": list(map(objects.Node.of, there.values())), "pods": pods}
    found = {**known, **observe.lists(ctx.cluster, ("leases", *observe.owners_of(pods)))}
    left = migrate.left_to_move(snapshots.Snapshot.of(found), nodes, pod_plan.Choices(rules=rules))
    for task in tasks:
        mine = [pod for pod in left if pod.node == task.name]
        step = task.record.step if task.record else "none"
        if step in ("drained", "out", "parked") and not mine:
            continue
        where = ", ".join(str(pod.ref) for pod in mine[:5]) or f"its record says {step}"
        task.outcome, task.change = outcomes.CordonOutcome.NOT_DRAINED, None
        text = f"is not drained ({where}); no task may run on it. Drain it again with node_drain."
        task.message = f"Node {task.name} {text}"
