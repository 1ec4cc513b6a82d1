# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""How long to wait before a request is sent again, and how long a refusal is no verdict."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.clock import Clock
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import ClusterError

_FIRST_DELAY = 0.25
_LONGEST_DELAY = 8.0


class Backoff:
    """Growing, jittered delays; a Retry-After sets the least."""

    def __init__(self, clock: Clock, first: float = _FIRST_DELAY, longest: float = _LONGEST_DELAY) -> None:
        self._clock = clock
        self._first = first
        self._longest = longest
        self._next = first

    def delay(self, error: ClusterError | None = None) -> float:
        """Seconds to wait now; between 1 and 1.5 times the step, so that callers spread."""
        step = self._next
        self._next = min(self._next * 2, self._longest)
        if error is not None and error.retry_after is not None:
            step = max(step, error.retry_after)
        return step * self._clock.jitter()

    def reset(self) -> None:
        self._next = self._first
