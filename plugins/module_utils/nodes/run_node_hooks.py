# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``maintenance_hooks``: the hooks of nodes, and the record of task files that a playbook
runs for nodes and pods.
"""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_context,
    run_reconcile,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import (
    hook_definitions,
    run_hook_calls,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    cordon,
    run_lookup,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    node_records,
    run_locks,
    run_node_lock,
)

UNRUN = "its task file has not run to its end"


@dataclass(frozen=True, slots=True)
class HookOptions:
    """Options of the module.

    ``listed`` and ``called`` work on ``rules``, ``begun``, ``done`` and ``failed`` on ``hooks``, as
    they were listed; meanwhile the locks of all ``nodes`` are kept. ``send`` sends HTTP calls.
    """

    state: t.Literal["listed", "called", "begun", "done", "failed"]
    nodes: tuple[str, ...]
    rules: tuple[hook_definitions.Rule, ...] = ()
    hooks: tuple[t.Mapping[str, t.Any], ...] = ()
    send: run_hook_calls.Send = run_hook_calls.nobody


@dataclass
class _Site:
    """One node: its record, and what came of its hooks."""

    name: str
    node: objects.Node | None
    record: node_records.Record | None = None
    outcome: outcomes.HookOutcome | None = None
    message: str = ""

    @property
    def failed(self) -> bool:
        return self.outcome is not None and self.outcome.failed

    def end(self, outcome: outcomes.HookOutcome, message: str) -> None:
        self.outcome, self.message = outcome, f"Node {self.name}: {message}"


def call_hooks(ctx: run_context.Context, options: HookOptions) -> run_context.Result:
    """List the hooks of nodes, call them, or record how far task files are.

    Raises:
        ClusterError: the API server cannot be reached or refuses to be read.
    """
    found, _among = run_lookup.nodes(ctx, options.nodes)
    node_drains = {name: _site(ctx, name, found.get(name)) for name in dict.fromkeys(options.nodes)}
    due: list[dict[str, t.Any]] = []
    going = [node_drain for node_drain in node_drains.values() if not node_drain.failed]
    if options.state == "listed" or (ctx.check and options.state == "called"):
        due = [told for node_drain in going for told in _due(node_drain, options.rules)]
    if options.state != "listed" and not ctx.check:
        due = _under_locks(ctx, options, {node_drain.name: node_drain for node_drain in going})
    for node_drain in going:
        if node_drain.outcome is None:
            node_drain.end(outcomes.HookOutcome.OK, "nothing of its hooks has failed")
            if node_drain.record is None:
                node_drain.message = (
                    f"{node_drain.message}. {node_records.presumed(node_drain.name)}"
                )
    entries = [
        outcomes.entry(node_drain.name, node_drain.outcome, node_drain.message)
        for node_drain in node_drains.values()
    ]
    return run_lookup.result(entries, hooks=due)


def _site(ctx: run_context.Context, name: str, raw: objects.Raw | None) -> _Site:
    node_drain = _Site(name, objects.Node.of(raw) if raw else None)
    try:
        node_drain.record = node_records.record_of(node_drain.node) if node_drain.node else None
    except node_records.BadRecordError as error:
        node_drain.end(outcomes.HookOutcome.FAILED, str(error))
        return node_drain
    if node_drain.record is None and not ctx.check:
        node_drain.end(
            outcomes.HookOutcome.NOT_IN_MAINTENANCE,
            "it has no record; cordon it with node_cordon first",
        )
    elif node_drain.record and node_drain.record.foreign_to(*ctx.caller, check=ctx.check):
        node_drain.end(outcomes.HookOutcome.ADOPTED_BY, node_drain.record.owner(name))
    return node_drain


def _calls(
    node_drain: _Site, rules: t.Iterable[hook_definitions.Rule]
) -> list[tuple[hook_definitions.Call, str]]:
    """The node's calls that are not done, with their states."""
    if node_drain.node is None:
        return []
    calls = [
        hook_definitions.Call(rule, node_drain.name)
        for rule in rules
        if rule.for_node(node_drain.node)
    ]
    states = [
        hook_definitions.state_of(node_drain.record, call.key) if node_drain.record else ""
        for call in calls
    ]
    return [
        (call, state or "due") for call, state in zip(calls, states, strict=True) if state != "done"
    ]


def _due(node_drain: _Site, rules: t.Iterable[hook_definitions.Rule]) -> list[dict[str, t.Any]]:
    return [call.to_dict(state) for call, state in _calls(node_drain, rules)]


def _under_locks(
    ctx: run_context.Context, options: HookOptions, node_drains: t.Mapping[str, _Site]
) -> list[dict[str, t.Any]]:
    locks = run_locks.Locks(ctx)
    stays = float(run_locks.IDLE)
    try:
        records = {
            name: t.cast("node_records.Record", node_drain.record)
            for name, node_drain in node_drains.items()
        }
        for name, why in locks.take_recorded(records).items():
            node_drains[name].end(outcomes.HookOutcome.HELD, why)
        going = [node_drain for node_drain in node_drains.values() if not node_drain.failed]
        work = _Work(ctx, options, locks, run_hook_calls.HttpCalls(ctx, locks.prove, options.send))
        try:
            with ctx.clock.pool(run_requests.MAX_PARALLEL, "hooks") as pool:
                told = [one for some in pool.map(work.on, going) for one in some]
        finally:
            work.calls.close()
        if options.state == "begun":
            stays += max((float(one.get("deadline", 0)) for one in options.hooks), default=0.0)
        return told
    finally:
        locks.leave(stays)


@dataclass
class _Work:
    ctx: run_context.Context
    options: HookOptions
    locks: run_locks.Locks
    calls: run_hook_calls.HttpCalls

    def on(self, node_drain: _Site) -> list[dict[str, t.Any]]:
        """Do what the call is for on one node; whatever fails fails the node."""
        try:
            return (
                self._call(node_drain) if self.options.state == "called" else self._note(node_drain)
            )
        except run_node_lock.LostLockError as lost:
            node_drain.end(outcomes.HookOutcome.ADOPTED_BY, lost.reason.sentence)
        except (run_context.CallAborted, errors.ClusterError, node_records.BadRecordError) as error:
            node_drain.end(outcomes.HookOutcome.FAILED, str(error))
        return []

    def _call(self, node_drain: _Site) -> list[dict[str, t.Any]]:
        """Make the HTTP calls, one after the other; task files have to have run."""
        told = []
        for call, state in _calls(node_drain, self.options.rules):
            if node_drain.failed:
                told.append(call.to_dict(state))
                continue
            why = UNRUN
            if call.rule.action == "http":
                again = state in ("begun", "failed")
                self._write(
                    node_drain,
                    {call.key: call.entry("begun")},
                    f"Call {call.what} for {call.subject}",
                )
                self._tell(call, "called again, as it was begun before" if again else "called")
                why = self.calls.start(call, again=again).result()
                over: hook_definitions.State = "failed" if why else "done"
                self._write(
                    node_drain,
                    {call.key: call.entry(over)},
                    f"Record {call.what} for {call.subject} as {over}",
                )
                state = over
            if why:
                node_drain.end(outcomes.HookOutcome.FAILED, run_hook_calls.failure(call, why))
            self._tell(call, why or "done")
            told.append(call.to_dict(state))
        return told

    def _note(self, node_drain: _Site) -> list[dict[str, t.Any]]:
        """Record how far the task files are, and say again what they are told."""
        state, told = self.options.state, []
        for one in (one for one in self.options.hooks if one["node"] == node_drain.name):
            record = t.cast("node_records.Record", node_drain.record)
            again = hook_definitions.state_of(record, one["key"]) in ("begun", "failed")
            what = f"hook {one['hook']}, rule {one['rule']} (tasks {one['tasks']})"
            subject = (
                f"Pod {one['namespace']}/{one['name']}"
                if one.get("uid")
                else f"Node {node_drain.name}"
            )
            entry = hook_definitions.entry_of(one, t.cast("hook_definitions.State", state))
            self._write(node_drain, {one["key"]: entry}, f"Record {what} for {subject} as {state}")
            told.append(
                {
                    **one,
                    "again": again if state == "begun" else one.get("again", False),
                    "state": state,
                }
            )
            if state == "failed":
                node_drain.end(
                    outcomes.HookOutcome.FAILED,
                    f"{subject}: {what} failed. {run_hook_calls.REMEDY}",
                )
            done = {"begun": "begun again" if again else "begun"}.get(state, state)
            self.ctx.tell(
                phases.What.HOOK,
                f"{what}: {done}",
                node=node_drain.name,
                namespace=one.get("namespace", ""),
                name=one.get("name", ""),
            )
        return told

    def _write(
        self, node_drain: _Site, entries: t.Mapping[str, t.Mapping[str, str]], sentence: str
    ) -> None:
        decide = functools.partial(
            _decided, node_drain=node_drain, entries=entries, sentence=sentence
        )
        target = objects.Ref("Node", node_drain.name, api_version="v1")
        run_reconcile.reconcile(
            self.ctx, target, decide, prove_lock=lambda: self.locks.prove([node_drain.name])
        )

    def _tell(self, call: hook_definitions.Call, done: str) -> None:
        self.ctx.tell(phases.What.HOOK, f"{call.what}: {done}", node=call.node)


def _decided(
    raw: objects.Raw | None,
    node_drain: _Site,
    entries: t.Mapping[str, t.Mapping[str, str]],
    sentence: str,
) -> api_changes.Change | None:
    node = objects.Node.of(raw) if raw else None
    record = node_records.record_of(node) if node else None
    known = t.cast("node_records.Record", node_drain.record)
    if node is None or record is None or (record.run, record.nonce) != (known.run, known.nonce):
        raise run_node_lock.LostLockError(
            node_drain.name, "it was deleted, given back or taken over meanwhile"
        )
    node_drain.node, node_drain.record = node, cordon.hooked(record, entries)
    return cordon.with_hooks(node, record, entries, sentence)
