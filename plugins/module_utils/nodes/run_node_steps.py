# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What ``node_cordon`` does with one node and its conditions, or why it is refused."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    decoding,
    objects,
    run_context,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import unreachable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import clocks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    cordon,
    node_conditions,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import pod_rules
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records

State = t.Literal["cordoned", "out", "returning", "parked", "uncordoned"]


@dataclass(frozen=True, slots=True)
class CordonOptions:
    """Options of the module.

    ``stored``: ``cordoned`` refuses nodes that the caller's run, as stored, has finished.
    ``lease_duration``: seconds for which the lock lasts after ``cordoned`` and ``out``, for work
    during which nobody renews it. ``planned_notice``: seconds that others have to react to the
    condition MaintenancePlanned, of nodes that are taken out with ``node_conditions``. ``rules``
    are those by which the nodes were drained, for ``out``.
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
        wanted = {
            "load_balancers": self.exclude_from_load_balancers,
            "autoscalers": self.hold_autoscalers,
            "remediation": self.hold_remediation,
        }
        return [name for name, is_wanted in wanted.items() if is_wanted]


@dataclass
class Task:
    """One node's part of the call.

    ``raw`` is the node as it was last read, ``shown`` the change of its conditions, ``line`` what
    to tell of its own. ``complete``: what waited for the node, which is back in service, runs
    again, or was waited for long enough. ``newcomer`` takes out a node that nobody holds; it is the
    same for all nodes of a call, so that later calls take their locks together.
    """

    name: str
    raw: objects.Raw | None
    newcomer: run_context.Run
    record: node_records.Record | None = None
    change: api_changes.Change | None = None
    shown: api_changes.Change | None = None
    wanted: node_records.Record | None = None
    complete: bool = False
    lease: str = ""
    identity: run_context.Run | None = None
    outcome: outcomes.CordonOutcome | None = None
    message: str = ""
    line: str = ""
    kept: tuple[str, ...] = ()

    @property
    def node(self) -> objects.Node | None:
        return objects.Node.of(self.raw) if self.raw else None

    @property
    def failed(self) -> bool:
        return self.outcome is not None and self.outcome.failed

    @property
    def awaited(self) -> tuple[node_records.Awaited, ...]:
        """The workloads that still wait for the node, which is back in service."""
        with contextlib.suppress(node_records.BadRecordError):
            record = node_records.record_of(self.node) if self.node and not self.failed else None
            return record.awaits if record and record.step == "back" else ()
        return ()

    def to_dict(self, clock: clocks.Clock) -> dict[str, t.Any]:
        known = self.record or self.wanted
        since = decoding.moment(known.since) if known else None
        moved_before: int | None = 0
        if known:
            moved_before = None if known.leaving else known.moved
        return {
            **outcomes.entry(self.name, self.outcome, self.message),
            "kept": list(self.kept),
            "record": self.wanted.public() if self.wanted else None,
            "out_since": clock.here(since.timestamp()) if since else None,
            "moved_before": moved_before,
        }


def decide(ctx: run_context.Context, options: CordonOptions, task: Task) -> None:
    """Decide the change of one node by ``task.raw``, and fill the task with it. Called before the
    lock is taken, and again under it with the node as it is then.
    """
    _decide_step(ctx, options, task)
    task.shown = None
    record = task.record if options.state == "uncordoned" else task.wanted
    if task.raw and record and not task.failed:
        phase: node_conditions.Phase = "back" if options.state == "uncordoned" else record.step
        task.shown = node_conditions.change(task.raw, record, phase, ctx.clock.server())


def _decide_step(ctx: run_context.Context, options: CordonOptions, task: Task) -> None:
    """The change of the node itself, with its record."""
    node = task.node
    task.change = None
    task.kept = ()
    if node is None:
        task.outcome = outcomes.CordonOutcome.GONE
        task.message = f"Node {task.name} no longer exists."
        return
    try:
        task.record = record = node_records.record_of(node)
    except node_records.BadRecordError as error:
        task.outcome = outcomes.CordonOutcome.FAILED
        task.message = str(error)
        return
    if record is None or (record.step == "back" and options.state in ("out", "parked")):
        _decide_unrecorded(ctx, options, task, node)
        return
    task.lease = record.lease
    task.wanted = record
    run_id, nonce = ctx.caller
    mine = not record.foreign_to(run_id, nonce)
    if not mine and not _may_adopt(options, record, run_id):
        task.outcome = outcomes.CordonOutcome.ADOPTED_BY
        task.message = _why_not_ours(node.name, record, options)
        return
    task.identity = run_context.Run(record.run, nonce)
    if options.state in ("returning", "uncordoned") and (
        why := unreachable.stays_out(node, record)
    ):
        task.outcome = outcomes.CordonOutcome.STILL_DEAD
        task.message = why
        return
    if options.state == "uncordoned" and record.step == "back" and not task.complete:
        task.outcome = outcomes.CordonOutcome.UNCORDONED
        task.message = f"Node {node.name} is in service again."
        return
    ours = replace(record, nonce=task.identity.nonce)
    if not mine:
        ours = replace(ours, by=ctx.by, reason=options.reason or record.reason)
    task.kept = cordon.foreign_changes(node, record)
    if options.state == "uncordoned":
        task.change, task.kept = cordon.give_back(node, ours)
        task.wanted = None
    elif options.state == "cordoned":
        task.wanted, task.change = _cordoned(ctx, options, node, ours, mine=mine)
    else:
        reached: node_records.Step = "back" if record.step == "back" else options.state
        task.wanted = ours.at(reached)
        task.change = cordon.at_step(node, ours, reached)
    _set_outcome(options, task)


def _set_outcome(options: CordonOptions, task: Task) -> None:
    if task.change:
        task.outcome = outcomes.CordonOutcome(options.state)
        task.message = task.change.sentence
    else:
        task.outcome = outcomes.CordonOutcome(f"already_{options.state}")
        task.message = f"Node {task.name} is {options.state} already."


def _cordoned(
    ctx: run_context.Context,
    options: CordonOptions,
    node: objects.Node,
    ours: node_records.Record,
    *,
    mine: bool,
) -> tuple[node_records.Record, api_changes.Change | None]:
    if ours.step == "back":
        return _taken_out(options, node, replace(ours, since=ctx.clock.server(), hooks={}))
    if ours.step in ("cordoned", "drained") and mine:
        return ours, None
    return ours.at("cordoned"), cordon.at_step(node, ours, "cordoned")


def _decide_unrecorded(
    ctx: run_context.Context, options: CordonOptions, task: Task, node: objects.Node
) -> None:
    if options.state == "uncordoned":
        kept = " Somebody else cordoned it, and it stays so." if node.unschedulable else ""
        task.outcome = outcomes.CordonOutcome.NOT_IN_MAINTENANCE
        task.message = f"Node {node.name} has no record, so there is nothing of ours to undo.{kept}"
        return
    if options.state != "cordoned":
        task.outcome = outcomes.CordonOutcome.NOT_IN_MAINTENANCE_YET
        task.message = (
            f"Node {node.name} has no record: take it out of service first with state=cordoned."
        )
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
    task.wanted, task.change = _taken_out(options, node, draft)
    task.outcome = outcomes.CordonOutcome.CORDONED
    task.message = task.change.sentence
    if node.unschedulable:
        task.kept = (
            f"node {node.name} was cordoned before by somebody else and stays so afterwards",
        )


def mark_if_replaced(task: Task, lock: objects.Raw) -> None:
    """Say of a node without a record that it was registered again after its lock was taken."""
    created = decoding.moment((task.raw or {}).get("metadata", {}).get("creationTimestamp", ""))
    taken = decoding.moment((lock.get("spec") or {}).get("acquireTime", ""))
    if created and taken and created > taken:
        task.outcome = outcomes.CordonOutcome.REPLACED
        task.message = f"Node {task.name} was registered again while it was out, so it is as new."


def _taken_out(
    options: CordonOptions, node: objects.Node, draft: node_records.Record
) -> tuple[node_records.Record, api_changes.Change]:
    return cordon.take_out(
        node, draft, taint=options.taint, marks=options.marks, conditions=options.node_conditions
    )


def _may_adopt(options: CordonOptions, record: node_records.Record, run_id: str) -> bool:
    """Whether the record of another start may be taken over at all;
    the lock decides whether it may be now.

    A call that names no run, or the record's, may. A node that is out is the exception: nobody
    renews its lock, so an expired one does not mean that the tasks on the host are over.
    """
    if options.adopt or record.step in ("out", "parked"):
        return options.adopt or record.step == "parked"
    return run_id in ("", record.run) or options.state in ("cordoned", "returning")


def _why_not_ours(name: str, record: node_records.Record, options: CordonOptions) -> str:
    if record.step == "out":
        text = f"Node {name} is out of service for the tasks of {record.whose}"
        text = f"{text}, which may still be running on the host."
        return f"{text} {node_records.once_over(record.run)}"
    may_not = f"a call of another start may not bring it to {options.state}"
    return f"Node {name} belongs to {record.whose}; {may_not}."
