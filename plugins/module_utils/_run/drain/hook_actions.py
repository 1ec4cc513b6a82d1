# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""One call of a pod's hook, and how it is carried out: an HTTP call, or the handshake by annotations."""

from __future__ import annotations

import concurrent.futures
import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    hooks,
    node_records,
    objects,
    phases,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import handshake
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, hook_calls, writing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.protect import surge_lease


@dataclass
class PodHook:
    """One call; ``state`` is that of the record, ``until`` the deadline of one that is under way.

    ``again``: it was begun before. ``moved``: after the move, whether the pod has gone.
    """

    call: hooks.Call
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
    """Carries calls out. ``fence`` proves the lock of nodes before a write."""

    ctx: context.Context
    calls: hook_calls.HttpCalls
    fence: surge_lease.NodesFence
    _pool: concurrent.futures.Executor | None = None

    def close(self) -> None:
        """Begin nothing more; a call that is under way is waited for, and stays recorded as begun."""
        self.calls.close()
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, one: PodHook, record: node_records.Record, pod: objects.Pod | None) -> None:
        """Carry it out; it is recorded as begun."""
        one.until, one.state = self.ctx.clock.now() + one.call.rule.deadline, "begun"
        self.tell(one, "called again, as it was begun before" if one.again else "called")
        if one.call.rule.action == "http":
            one.answer = self.calls.start(one.call, again=one.again, moved=one.moved)
        elif pod is not None:
            if self._pool is None:
                self._pool = self.ctx.clock.pool(hook_calls.AT_ONCE, "announce")
            one.answer = self._pool.submit(self._announce, pod, record)

    def _announce(self, pod: objects.Pod, record: node_records.Record) -> str:
        decide = functools.partial(handshake.announcing, uid=pod.uid, record=record)
        writing.write(self.ctx, pod.ref, decide, fence=lambda: self.fence((pod.node,)))
        self.calls.wake()
        return ""

    def follow(self, one: PodHook, record: node_records.Record, snapshot: snapshots.Snapshot) -> None:
        """Take in the answer of one that is under way, and its deadline."""
        if one.answer is not None and one.answer.done():
            error = one.answer.exception()
            if error is not None and not isinstance(error, (errors.ClusterError, context.StopRun)):
                raise error
            why = str(error) if error else one.answer.result()
            one.answer = None
            if why:
                one.failure = hook_calls.failure(one.call, why)
            elif one.call.rule.action == "http":
                one.state = "done"
        if one.call.rule.action != "annotation" or one.over:
            return
        pod = snapshot.pod(one.call.uid)
        if pod is not None and handshake.agreed(pod, record):
            one.state = "done"
        elif self.ctx.clock.now() >= one.until:
            seconds = f"{one.call.rule.deadline:g} s"
            wanted = f"its application did not set the annotation to {record.since!r} within {seconds}"
            one.failure = hook_calls.failure(one.call, wanted)

    def tell(self, one: PodHook, what: str) -> None:
        """A line of progress, and an event for the report."""
        call, message = one.call, f"{one.call.what}: {what}"
        self.ctx.tell(phases.What.HOOK, message, node=call.node, namespace=call.namespace, name=call.name)
