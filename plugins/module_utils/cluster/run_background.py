# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Requests beside a loop: it never waits for them, and takes their answers up in its own turns."""

from __future__ import annotations

import concurrent.futures
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context

MAX_PARALLEL = 4
"""Works of one loop that are under way at the same time."""


Answer = tuple[t.Any, "BaseException | None"]
"""What a call returned, or raised."""


class BackgroundCalls:
    """Calls that a loop makes in threads of their own, one at a time for each thing that they are
    about (``about``, such as the name of a node); ``wake`` is called when one has ended.

    All methods are for the loop's thread. No thread starts before the first call.
    """

    def __init__(self, ctx: run_context.Context, name: str, wake: t.Callable[[], None]) -> None:
        self._ctx = ctx
        self._name = name
        self._wake = wake
        self._pool: concurrent.futures.Executor | None = None
        self._going: set[str] = set()
        self._answers: dict[str, Answer] = {}

    def start(self, about: str, work: t.Callable[[], t.Any]) -> None:
        """Begin a call; the answer of the last one about the same has to have been taken."""
        if self._pool is None:
            self._pool = self._ctx.clock.pool(MAX_PARALLEL, self._name)
        self._going.add(about)
        self._pool.submit(self._do, about, work)

    def going(self, about: str) -> bool:
        """Whether a call about this was begun, and its answer has not been taken."""
        return about in self._going

    def done(self, about: str) -> bool:
        """Whether the call about this has ended, so that ``answer`` does not wait."""
        return about in self._answers

    def answer(self, about: str) -> t.Any:
        """Take what the call returned; raises what it raised."""
        self._going.remove(about)
        found, error = self._answers.pop(about)
        if error:
            raise error
        return found

    def close(self) -> None:
        """Wait for what is under way; nothing more is begun."""
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _do(self, about: str, work: t.Callable[[], t.Any]) -> None:
        try:
            self._answers[about] = work(), None
        except Exception as error:
            self._answers[about] = None, error
        self._wake()
