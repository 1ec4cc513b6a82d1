# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""HTTP calls of hooks: sent by threads and repeated until the expected answer or deadline."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import clocks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_node_lock

MAX_PARALLEL = 8
"""Calls that are under way at the same time."""
PAUSES = (1.0, 2.0, 5.0)
"""Seconds before a call is repeated; the last one for all further times."""
PATIENCE_SECONDS = 30.0
"""Seconds one attempt may take."""
REMEDY = "Find out why at the other end, then run the same command again."


class NoAnswerError(Exception):
    """There was no HTTP answer; the message says why."""


Variables = t.Mapping[str, t.Any]
Send = t.Callable[[hook_definitions.Http, Variables, float], int]
"""Sends a call with these variables in so many seconds: the HTTP status, or NoAnswerError."""


def nobody(http: hook_definitions.Http, variables: Variables, timeout: float) -> int:
    """Stands for ``Send`` where no call is possible."""
    raise NoAnswerError(f"{http.shown()} cannot be called from here")


@dataclasses.dataclass
class HttpCalls:
    """The calls of one engine; ``wake`` is called for each one that has ended.

    Before each attempt, ``prove_locks`` proves the lock of the call's node: who stood still until
    another run took the node over leaves the call to that run.
    """

    ctx: run_context.Context
    prove_locks: t.Callable[[t.Collection[str]], None]
    send: Send = nobody
    wake: t.Callable[[], None] = lambda: None
    _pool: concurrent.futures.Executor | None = None
    _busy: int = 0

    def __post_init__(self) -> None:
        self._stop: threading.Event = self.ctx.clock.event()
        self._lock = self.ctx.clock.lock()

    @property
    def free(self) -> int:
        """How many more calls can start now."""
        return MAX_PARALLEL - self._busy

    def start(
        self, call: hook_definitions.Call, *, again: bool, moved: bool | None = None
    ) -> concurrent.futures.Future[str]:
        """Carry the call out; the result says why it failed, and is empty if it did not."""
        if self._pool is None:
            self._pool = self.ctx.clock.pool(MAX_PARALLEL, "hook")
        with self._lock:
            self._busy += 1
        return self._pool.submit(self._work, call, again, moved)

    def close(self) -> None:
        """Repeat nothing any more, and wait for what is under way."""
        self._stop.set()
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _work(self, call: hook_definitions.Call, again: bool, moved: bool | None) -> str:
        try:
            return self._repeated(call, again, moved)
        finally:
            with self._lock:
                self._busy -= 1
            self.wake()

    def _repeated(self, call: hook_definitions.Call, again: bool, moved: bool | None) -> str:
        http = t.cast("hook_definitions.Http", call.rule.http)

        def attempt(tries: int, timeout: float) -> int:
            variables = call.variables(again=again or tries > 0, moved=moved)
            self.prove_locks((call.node,))
            return self.send(hook_definitions.filled(http, variables), variables, timeout)

        try:
            return repeated(self.ctx.clock, attempt, http.status, call.rule.deadline, self._stop)
        except run_node_lock.LostLockError as lost:
            # The caller learns the same at its next write, which records how the call ended.
            return lost.reason.sentence


Attempt = t.Callable[[int, float], int]
"""Makes a call after so many tries in so many seconds: the HTTP status, or NoAnswerError."""


def repeated(
    clock: clocks.Clock,
    attempt: Attempt,
    status: t.Collection[int],
    deadline: float,
    stop: threading.Event,
) -> str:
    """Make a call until it is answered as expected, refused, stopped,
    or ``deadline`` seconds are over.

    Returns why it failed; empty if it did not.
    """
    until = clock.now() + deadline
    tries = 0
    message = ""
    while not stop.is_set() and (left := until - clock.now()) > 0:
        try:
            answer = attempt(tries, min(left, PATIENCE_SECONDS))
        except NoAnswerError as error:
            message = str(error)
        else:
            if answer in status:
                return ""
            message = f"it answered {answer} instead of {', '.join(map(str, status))}"
            if answer not in hook_definitions.REPEATED:
                return message
        pause = PAUSES[min(tries, len(PAUSES) - 1)]
        stop.wait(min(pause, max(until - clock.now(), 0.0)))
        tries += 1
    return f"it was not done within {deadline:g} s" + (f"; at last {message}" if message else "")


def failure(call: hook_definitions.Call, why: str) -> str:
    """Why a pod is not moved, or a node not gone on with."""
    remedy = "Run the same command again, which runs it." if call.rule.action == "tasks" else REMEDY
    return f"{call.what} failed: {why}. {remedy}"
