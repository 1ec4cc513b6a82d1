# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The hooks of a drain's pods: what holds a pod back, and what follows once it has gone.

Every step is in the node's record before it is taken, so a call that is killed leaves at worst a
hook that was begun and never carried out; the next call carries it out, and says that it may be the
second time. Task files run in the playbook before the drain;
here a pod whose task file has not run is not moved.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_context,
    run_reconcile,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_node_drain
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
    ownership,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    run_pod_drain,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import run_surge_lease

# One call of a pod's hook, and how it is carried out: an HTTP call,
# or the handshake by annotations.


@dataclass
class PodHook:
    """One call; ``state`` is that of the record, ``until`` the deadline of one that is under way.

    ``again``: it was begun before. ``moved``: after the move, whether the pod has gone.
    """

    call: hook_definitions.Call
    state: str
    again: bool
    moved: bool | None
    until: float = 0.0
    answer: concurrent.futures.Future[t.Any] | None = None
    failure: str = ""

    @property
    def over(self) -> bool:
        return self.state == "done" or bool(self.failure)


@dataclass
class Actions:
    """Carries the calls of hooks out: HTTP by ``calls``, annotations by a thread of its own.

    ``prove_locks`` proves the locks of nodes before a write.
    """

    ctx: run_context.Context
    calls: run_hook_calls.HttpCalls
    prove_locks: run_surge_lease.ProveLocks
    _pool: concurrent.futures.Executor | None = None

    def close(self) -> None:
        """Begin nothing more; a call that is under way is waited for,
        and stays recorded as begun.
        """
        self.calls.close()
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, hook: PodHook, record: node_records.Record, pod: objects.Pod | None) -> None:
        """Carry the hook out; the node's record has to say already that it was begun, as a killed
        call would else be repeated without a sign that it may have been carried out.
        """
        hook.until = self.ctx.clock.now() + hook.call.rule.deadline
        hook.state = "begun"
        self.tell(hook, "called again, as it was begun before" if hook.again else "called")
        if hook.call.rule.action == "http":
            hook.answer = self.calls.start(hook.call, again=hook.again, moved=hook.moved)
        elif pod is not None:
            if self._pool is None:
                self._pool = self.ctx.clock.pool(run_hook_calls.MAX_PARALLEL, "announce")
            hook.answer = self._pool.submit(self._announce, pod, record)

    def _announce(self, pod: objects.Pod, record: node_records.Record) -> str:
        decide = functools.partial(hook_definitions.announcing, uid=pod.uid, record=record)
        run_reconcile.reconcile(
            self.ctx, pod.ref, decide, prove_lock=lambda: self.prove_locks((pod.node,))
        )
        self.calls.wake()
        return ""

    def follow(
        self, hook: PodHook, record: node_records.Record, snapshot: snapshots.Snapshot
    ) -> None:
        """Look whether a hook that was begun has ended: by its answer, by the pod's annotation, or
        at its deadline.
        """
        if hook.answer is not None and hook.answer.done():
            error = hook.answer.exception()
            expected = (errors.ClusterError, run_context.CallAborted)
            if error is not None and not isinstance(error, expected):
                raise error
            why = str(error) if error else hook.answer.result()
            hook.answer = None
            if why:
                hook.failure = run_hook_calls.failure(hook.call, why)
            elif hook.call.rule.action == "http":
                hook.state = "done"
        if hook.call.rule.action != "annotation" or hook.over:
            return
        pod = snapshot.pod(hook.call.uid)
        if pod is not None and hook_definitions.agreed(pod, record):
            hook.state = "done"
        elif self.ctx.clock.now() >= hook.until:
            seconds = f"{hook.call.rule.deadline:g} s"
            wanted = (
                f"its application did not set the annotation to {record.since!r} within {seconds}"
            )
            hook.failure = run_hook_calls.failure(hook.call, wanted)

    def tell(self, hook: PodHook, what: str) -> None:
        """A line of progress, and an event for the report."""
        call, message = hook.call, f"{hook.call.what}: {what}"
        self.ctx.tell(
            phases.What.HOOK, message, node=call.node, namespace=call.namespace, name=call.name
        )


NOT_RUN = "its task file has not run to its end, or the pod came after it was time for that"


@dataclass
class PodHooks:
    """All hooks of a drain. ``prove_locks`` proves the lock of nodes before a write."""

    ctx: run_context.Context
    rules: hook_definitions.Rules
    node_drains: t.Mapping[str, run_node_drain.NodeDrain]
    calls: run_hook_calls.HttpCalls
    prove_locks: run_surge_lease.ProveLocks
    _before: dict[str, list[PodHook]] = field(default_factory=dict)
    _after: dict[str, list[PodHook]] = field(default_factory=dict)
    _lost: set[str] = field(default_factory=set)
    _closed: set[str] = field(default_factory=set)
    _starting: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._actions = Actions(self.ctx, self.calls, self.prove_locks)
        self.close = self._actions.close

    def waits_for(self, pod: objects.Pod) -> str:
        """What a pod that is to leave still waits for; empty if nothing."""
        for hook in self._before.get(pod.uid, ()):
            if hook.state != "done":
                return f"{hook.call.subject}: {hook.call.what}"
        new = self.rules and not pod.deleting and pod.uid not in self._before
        if new and pod.node in self.node_drains and self.node_drains[pod.node].open:
            return f"the hooks of {pod.ref}"
        return ""

    @property
    def idle(self) -> bool:
        """Whether the hooks of closed nodes have ended, too. Each of these nodes has to have been
        looked at once after it was closed: only then its pods that stay are known.
        """
        if not self.rules:
            return True
        for node_drain in self.node_drains.values():
            looked_at = node_drain.name in self._closed
            if not node_drain.open and (not looked_at or self._unfinished(node_drain)):
                return False
        return True

    def missing(self, node: str) -> list[str]:
        """What a node without pods still waits for."""
        unfinished = self._unfinished(self.node_drains[node])
        return [f"{hook.call.subject}: {hook.call.what}" for hook in unfinished]

    def failed_for(self, node: str) -> str:
        """Why hooks of the node's pods failed; empty if none did."""
        found = self._on(node)
        return "; ".join(f"{hook.call.subject}: {hook.failure}" for hook in found if hook.failure)

    def _on(self, node: str) -> list[PodHook]:
        every = (*self._before.values(), *self._after.values())
        return [hook for hooks in every for hook in hooks if hook.call.node == node]

    def step(
        self, snapshot: snapshots.Snapshot
    ) -> list[tuple[run_node_drain.NodeDrain, ownership.NodeLost]]:
        """Begin, follow and record what can be now; returns the nodes whose record
        could not be written.
        """
        if not self.rules:
            return []
        self._closed = {
            name for name, node_drain in self.node_drains.items() if not node_drain.open
        }
        lost = []
        for name, node_drain in self.node_drains.items():
            if node_drain.record is None or name in self._lost:
                continue
            self._look(node_drain, snapshot)
            if (why := self._record(node_drain, snapshot)) is None:
                continue
            self._lost.add(name)
            if node_drain.open:
                lost.append((node_drain, why))
        return lost

    def to_dicts(self, node_drain: run_node_drain.NodeDrain) -> list[dict[str, t.Any]]:
        """The hooks of the node's pods with their states, and the task files
        that are left to run.
        """
        shown = []
        for hook in self._on(node_drain.name):
            state = "failed" if hook.failure else hook.state
            shown.append(hook.call.to_dict(state, moved=hook.moved))
        for call, state, moved in self._tasks_after(node_drain):
            shown.append(call.to_dict(state, moved=moved))
        return shown

    def predict(self, node_drain: run_node_drain.NodeDrain) -> None:
        """Say which hooks the pods of the node have, for check mode."""
        entries: dict[str, dict[str, str]] = {}
        for move in node_drain.left():
            found = [
                _recorded(node_drain, call)
                for call in hook_definitions.calls_for(self.rules.before, move.plan)
            ]
            self._before[move.pod.uid] = found
            after = [
                _recorded(node_drain, call, moved=True)
                for call in hook_definitions.calls_for(self.rules.after, move.plan)
            ]
            self._after.setdefault(node_drain.name, []).extend(after)
            for hook in (*found, *after):
                if hook.state != "done":
                    entries[hook.call.key] = hook.call.entry("done")
                    self._actions.tell(hook, "would be called")
        node = t.cast("objects.Node", node_drain.node)
        if node_drain.record and (
            change := cordon.with_hooks(node, node_drain.record, entries, "Call the hooks")
        ):
            self.ctx.changed(change)

    # -- what is to be done

    def _look(self, node_drain: run_node_drain.NodeDrain, snapshot: snapshots.Snapshot) -> None:
        """Take in new pods, what was answered, and pods that have gone."""
        asked = self._before.keys() - self._starting
        new = [move for move in node_drain.left() if node_drain.open and move.pod.uid not in asked]
        for move in new:
            if (
                move.state == "waiting"
                and not move.waits_for_turn
                and move.plan.route in drain_policy.MOVING
            ):
                plan = _as_it_is(move, snapshot)
                self._before[move.pod.uid] = [
                    _recorded(node_drain, call)
                    for call in hook_definitions.calls_for(self.rules.before, plan)
                ]
                # A pod that does not run has no application to ask, and may leave so; if it starts
                # before it leaves, it is asked.
                if plan.pod.phase == "Running":
                    self._starting.discard(move.pod.uid)
                else:
                    self._starting.add(move.pod.uid)
        record = node_drain.taken
        known = {hook.call.key for hook in self._after.get(node_drain.name, ())}
        http = [rule for rule in self.rules.after if rule.action == "http"]
        for call in hook_definitions.left(http, node_drain.name, record):
            if call.key in known:
                continue
            if (moved := self._over(node_drain, call, snapshot)) is not None:
                self._after.setdefault(node_drain.name, []).append(
                    _recorded(node_drain, call, moved=moved)
                )
        for hook in self._on(node_drain.name):
            if hook.until and not hook.over:
                self._actions.follow(hook, record, snapshot)

    def _over(
        self,
        node_drain: run_node_drain.NodeDrain,
        call: hook_definitions.Call,
        snapshot: snapshots.Snapshot,
    ) -> bool | None:
        """Whether the pod has gone (``True``), or stays because its node was given up
        after it was asked to go.
        """
        if snapshot.pod(call.uid) is None:
            return True
        if not node_drain.open and self._asked(call.uid):
            return False
        return None

    def _asked(self, uid: str) -> bool:
        """Whether the pod was asked to go, now or by an earlier call."""
        hooks = self._before.get(uid, ())
        return any(hook.until or hook.again or hook.state == "done" for hook in hooks)

    # -- what is written

    def _record(
        self, node_drain: run_node_drain.NodeDrain, snapshot: snapshots.Snapshot
    ) -> ownership.NodeLost | None:
        """Write how far the hooks are, then begin those that are written as begun."""
        record = node_drain.taken
        entries: dict[str, dict[str, str]] = {}
        if node_drain.open:
            for move in node_drain.left():
                _refuse(move, self._before.get(move.pod.uid, ()))
                for call in hook_definitions.calls_for(self.rules.after, _as_it_is(move, snapshot)):
                    if move.state == "waiting" and not hook_definitions.state_of(record, call.key):
                        entries[call.key] = call.entry("due")
        begin = self._next(node_drain)
        ended = []
        for hook in self._on(node_drain.name):
            state: hook_definitions.State = "failed" if hook.failure else "done"
            if (
                hook.over
                and hook.until
                and hook_definitions.state_of(record, hook.call.key) != state
            ):
                entries[hook.call.key] = hook.call.entry(state)
                ended.append(hook)
        entries |= {hook.call.key: hook.call.entry("begun") for hook in begin}
        if entries and (why := self._write(node_drain, entries, begin, ended)) is not None:
            return why
        for hook in begin:
            self._actions.begin(hook, node_drain.taken, snapshot.pod(hook.call.uid))
        for hook in ended:
            self._actions.tell(hook, hook.failure or "done")
        self._fail(node_drain)
        return None

    def _write(
        self,
        node_drain: run_node_drain.NodeDrain,
        entries: t.Mapping[str, t.Mapping[str, str]],
        begin: t.Sequence[PodHook],
        ended: t.Sequence[PodHook],
    ) -> ownership.NodeLost | None:
        steps = [f"call {hook.call.what} for {hook.call.subject}" for hook in begin]
        for hook in ended:
            state = "failed" if hook.failure else "done"
            steps.append(f"record it as {state} for {hook.call.subject}")
        sentence = "; ".join(steps) or f"record the hooks that are due on node {node_drain.name}"

        def wanted(node: objects.Node, record: node_records.Record) -> api_changes.Change | None:
            return cordon.with_hooks(node, record, entries, sentence[0].upper() + sentence[1:])

        why, _made = node_drain.write(self.ctx, wanted, self.prove_locks)
        if why is None:
            node_drain.record = cordon.hooked(node_drain.taken, entries)
        return why

    def _next(self, node_drain: run_node_drain.NodeDrain) -> list[PodHook]:
        """The hooks to begin: of each pod one after the other,
        HTTP calls only as many as can be sent at once.
        """
        going = node_drain.open and not self.failed_for(node_drain.name)
        lanes = [self._before.get(uid, []) for uid in node_drain.moves] if going else []
        after: dict[str, list[PodHook]] = {}
        for hook in self._after.get(node_drain.name, ()):
            after.setdefault(hook.call.uid, []).append(hook)
        free, found = self.calls.free, []
        for lane in (*lanes, *after.values()):
            left = [hook for hook in lane if hook.state != "done"]
            if not left or left[0].until:
                continue
            hook = left[0]
            if hook.call.rule.action == "http":
                free -= 1
            if free >= 0 or hook.call.rule.action != "http":
                found.append(hook)
        return found

    # -- what follows

    def _fail(self, node_drain: run_node_drain.NodeDrain) -> None:
        for move in node_drain.left():
            for hook in self._before.get(move.pod.uid, ()):
                if hook.failure and move.state == "waiting":
                    move.end(
                        "failed",
                        outcomes.PodOutcome.HOOK_FAILED,
                        self.ctx.clock.now(),
                        hook.failure,
                    )
                elif not hook.over and move.state == "waiting":
                    message = f"{hook.call.subject}: {hook.call.what}"
                    move.block(move.pod.ref, message, hook=hook.call.key)
                elif hook.over and move.hook == hook.call.key:
                    # Whatever it waits for now says so itself.
                    move.blocked_by = None

    def _unfinished(self, node_drain: run_node_drain.NodeDrain) -> list[PodHook]:
        if node_drain.name in self._lost:
            return []
        return [hook for hook in self._after.get(node_drain.name, ()) if not hook.over]

    def _tasks_after(
        self, node_drain: run_node_drain.NodeDrain
    ) -> list[tuple[hook_definitions.Call, str, bool]]:
        """The task files for pods that have gone, or stay although they were asked to go."""
        if node_drain.record is None or self.ctx.check:
            return []
        tasks = [rule for rule in self.rules.after if rule.action == "tasks"]
        gone = {uid for uid, move in node_drain.moves.items() if move.state == "gone"}
        found = []
        for call in hook_definitions.left(tasks, node_drain.name, node_drain.record):
            stays = call.uid in node_drain.moves and call.uid not in gone
            if not stays or self._asked(call.uid):
                found.append(
                    (call, hook_definitions.state_of(node_drain.record, call.key), not stays)
                )
        return found


def _as_it_is(move: run_pod_drain.PodDrain, snapshot: snapshots.Snapshot) -> drain_policy.PodPlan:
    """The plan of the move, with its pod as it is now."""
    return dataclasses.replace(move.plan, pod=snapshot.pod(move.pod.uid) or move.pod)


def _recorded(
    node_drain: run_node_drain.NodeDrain, call: hook_definitions.Call, *, moved: bool | None = None
) -> PodHook:
    """The hook of the call, in the state that the node's record says."""
    state = hook_definitions.state_of(node_drain.record, call.key) if node_drain.record else ""
    return PodHook(call, state or "due", state in ("begun", "failed"), moved)


def _refuse(move: run_pod_drain.PodDrain, found: t.Iterable[PodHook]) -> None:
    """A pod whose task file has not run is not moved."""
    for hook in found:
        if move.state == "waiting" and hook.call.rule.action == "tasks" and not hook.over:
            hook.failure = run_hook_calls.failure(hook.call, NOT_RUN)
