# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``maintenance_hooks``: hooks of nodes, and the record of task files that a playbook runs."""

from __future__ import annotations

import functools
import itertools
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

NOT_RUN = "its task file has not run to its end"


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
class _NodeHooks:
    """One node with its record; ``outcome`` and ``message`` say how its hooks ended."""

    name: str
    node: objects.Node | None
    record: node_records.Record | None = None
    outcome: outcomes.HookOutcome | None = None
    message: str = ""

    @property
    def failed(self) -> bool:
        return self.outcome is not None and self.outcome.failed

    def end(self, outcome: outcomes.HookOutcome, message: str) -> None:
        self.outcome = outcome
        self.message = f"Node {self.name}: {message}"


def call_hooks(ctx: run_context.Context, options: HookOptions) -> run_context.Result:
    """List the hooks of nodes, call them, or record how far task files are.

    Raises:
        ClusterError: the API server cannot be reached or refuses to be read.
    """
    found, _among = run_lookup.nodes(ctx, options.nodes)
    by_name = {name: _read(ctx, name, found.get(name)) for name in dict.fromkeys(options.nodes)}
    due: list[dict[str, t.Any]] = []
    going = [node_hooks for node_hooks in by_name.values() if not node_hooks.failed]
    if options.state == "listed" or (ctx.check and options.state == "called"):
        for node_hooks in going:
            due += [call.to_dict(state) for call, state in _calls(node_hooks, options.rules)]
    if options.state != "listed" and not ctx.check:
        due = _under_locks(ctx, options, {node_hooks.name: node_hooks for node_hooks in going})
    for node_hooks in going:
        if node_hooks.outcome is None:
            node_hooks.end(outcomes.HookOutcome.OK, "nothing of its hooks has failed")
            if node_hooks.record is None:
                node_hooks.message += f". {node_records.presumed(node_hooks.name)}"
    entries = [outcomes.entry(one.name, one.outcome, one.message) for one in by_name.values()]
    return run_lookup.result(entries, hooks=due)


def _read(ctx: run_context.Context, name: str, raw: objects.Raw | None) -> _NodeHooks:
    node_hooks = _NodeHooks(name, objects.Node.of(raw) if raw else None)
    try:
        node_hooks.record = node_records.record_of(node_hooks.node) if node_hooks.node else None
    except node_records.BadRecordError as error:
        node_hooks.end(outcomes.HookOutcome.FAILED, str(error))
        return node_hooks
    if node_hooks.record is None and not ctx.check:
        node_hooks.end(
            outcomes.HookOutcome.NOT_IN_MAINTENANCE,
            "it has no record; cordon it with node_cordon first",
        )
    elif node_hooks.record and node_hooks.record.foreign_to(*ctx.caller, check=ctx.check):
        node_hooks.end(outcomes.HookOutcome.ADOPTED_BY, node_hooks.record.owner(name))
    return node_hooks


def _calls(
    node_hooks: _NodeHooks, rules: t.Iterable[hook_definitions.Rule]
) -> list[tuple[hook_definitions.Call, str]]:
    if node_hooks.node is None:
        return []
    calls = []
    for rule in rules:
        if not rule.for_node(node_hooks.node):
            continue
        call = hook_definitions.Call(rule, node_hooks.name)
        state = ""
        if node_hooks.record:
            state = hook_definitions.state_of(node_hooks.record, call.key)
        if state != "done":
            calls.append((call, state or "due"))
    return calls


def _under_locks(
    ctx: run_context.Context, options: HookOptions, by_name: t.Mapping[str, _NodeHooks]
) -> list[dict[str, t.Any]]:
    locks = run_locks.Locks(ctx)
    stays = float(run_locks.IDLE)
    try:
        known = {name: node_hooks.record for name, node_hooks in by_name.items()}
        records = t.cast("dict[str, node_records.Record]", known)
        for name, why in locks.take_recorded(records).items():
            by_name[name].end(outcomes.HookOutcome.HELD, why)
        going = [node_hooks for node_hooks in by_name.values() if not node_hooks.failed]
        work = _Work(ctx, options, locks, run_hook_calls.HttpCalls(ctx, locks.prove, options.send))
        try:
            with ctx.clock.pool(run_requests.MAX_PARALLEL, "hooks") as pool:
                hooks = list(itertools.chain.from_iterable(pool.map(work.on, going)))
        finally:
            work.calls.close()
        if options.state == "begun":
            # The locks have to last while the playbook runs the task files, which no call renews.
            stays += max((float(hook.get("deadline", 0)) for hook in options.hooks), default=0.0)
        return hooks
    finally:
        locks.leave(stays)


@dataclass
class _Work:
    ctx: run_context.Context
    options: HookOptions
    locks: run_locks.Locks
    calls: run_hook_calls.HttpCalls

    def on(self, node_hooks: _NodeHooks) -> list[dict[str, t.Any]]:
        """Do what the call is for on one node; whatever fails fails the node."""
        try:
            if self.options.state == "called":
                return self._call(node_hooks)
            return self._record(node_hooks)
        except run_node_lock.LostLockError as lost:
            node_hooks.end(outcomes.HookOutcome.ADOPTED_BY, lost.reason.sentence)
        except (run_context.CallAborted, errors.ClusterError, node_records.BadRecordError) as error:
            node_hooks.end(outcomes.HookOutcome.FAILED, str(error))
        return []

    def _call(self, node_hooks: _NodeHooks) -> list[dict[str, t.Any]]:
        """Make the HTTP calls, one after the other; task files have to have run."""
        shown = []
        for call, state in _calls(node_hooks, self.options.rules):
            if node_hooks.failed:
                shown.append(call.to_dict(state))
                continue
            why = NOT_RUN
            if call.rule.action == "http":
                again = state in ("begun", "failed")
                about = f"{call.what} for {call.subject}"
                self._write(node_hooks, {call.key: call.entry("begun")}, f"Call {about}")
                self._tell(call, "called again, as it was begun before" if again else "called")
                why = self.calls.start(call, again=again).result()
                over: hook_definitions.State = "failed" if why else "done"
                entry = {call.key: call.entry(over)}
                self._write(node_hooks, entry, f"Record {about} as {over}")
                state = over
            if why:
                node_hooks.end(outcomes.HookOutcome.FAILED, run_hook_calls.failure(call, why))
            self._tell(call, why or "done")
            shown.append(call.to_dict(state))
        return shown

    def _record(self, node_hooks: _NodeHooks) -> list[dict[str, t.Any]]:
        """Record how far the task files are; returns the hooks with their new states."""
        state, shown = self.options.state, []
        for one in self.options.hooks:
            if one["node"] != node_hooks.name:
                continue
            record = t.cast("node_records.Record", node_hooks.record)
            again = hook_definitions.state_of(record, one["key"]) in ("begun", "failed")
            what = f"hook {one['hook']}, rule {one['rule']} (tasks {one['tasks']})"
            subject = f"Node {node_hooks.name}"
            if one.get("uid"):
                subject = f"Pod {one['namespace']}/{one['name']}"
            entry = hook_definitions.entry_of(one, t.cast("hook_definitions.State", state))
            self._write(node_hooks, {one["key"]: entry}, f"Record {what} for {subject} as {state}")
            begun_before = again if state == "begun" else one.get("again", False)
            shown.append({**one, "again": begun_before, "state": state})
            if state == "failed":
                why = f"{subject}: {what} failed. {run_hook_calls.REMEDY}"
                node_hooks.end(outcomes.HookOutcome.FAILED, why)
            done = {"begun": "begun again" if again else "begun"}.get(state, state)
            self.ctx.tell(
                phases.What.HOOK,
                f"{what}: {done}",
                node=node_hooks.name,
                namespace=one.get("namespace", ""),
                name=one.get("name", ""),
            )
        return shown

    def _write(
        self, node_hooks: _NodeHooks, entries: t.Mapping[str, t.Mapping[str, str]], sentence: str
    ) -> None:
        decide = functools.partial(
            _decided, node_hooks=node_hooks, entries=entries, sentence=sentence
        )
        target = objects.Ref("Node", node_hooks.name, api_version="v1")
        run_reconcile.reconcile(
            self.ctx, target, decide, prove_lock=lambda: self.locks.prove([node_hooks.name])
        )

    def _tell(self, call: hook_definitions.Call, done: str) -> None:
        self.ctx.tell(phases.What.HOOK, f"{call.what}: {done}", node=call.node)


def _decided(
    raw: objects.Raw | None,
    node_hooks: _NodeHooks,
    entries: t.Mapping[str, t.Mapping[str, str]],
    sentence: str,
) -> api_changes.Change | None:
    node = objects.Node.of(raw) if raw else None
    record = node_records.record_of(node) if node else None
    known = t.cast("node_records.Record", node_hooks.record)
    if node is None or record is None or (record.run, record.nonce) != (known.run, known.nonce):
        raise run_node_lock.LostLockError(
            node_hooks.name, "it was deleted, given back or taken over meanwhile"
        )
    node_hooks.node = node
    node_hooks.record = cordon.hooked(record, entries)
    return cordon.with_hooks(node, record, entries, sentence)
