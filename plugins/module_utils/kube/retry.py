# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""How long to wait before a request is sent again, and how long a refusal is not final."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import clocks, errors

_ONCE_MORE_SECONDS = 0.5
_NO_VERDICT = (errors.Forbidden, errors.Unauthorized, errors.Unrenewed)


class Backoff:
    """Growing, jittered delays; a Retry-After is a lower bound."""

    def __init__(self, clock: clocks.Clock, first: float = 0.25, longest: float = 8.0) -> None:
        self._clock = clock
        self._first = first
        self._longest = longest
        self._next = first

    def delay(self, error: errors.ClusterError | None = None) -> float:
        """Seconds to wait now: 1 to 1.5 times the step, so that callers spread out."""
        step = self._next
        self._next = min(self._next * 2, self._longest)
        if error is not None and error.retry_after is not None:
            step = max(step, error.retry_after)
        return step * self._clock.jitter()

    def reset(self) -> None:
        self._next = self._first


class Refusals:
    """Whether to repeat a request that was refused; nothing was carried out.

    An API server that starts answers 403 or 401 until it has loaded the permissions. So a request
    that was allowed before is repeated for a while, any other once.
    """

    def __init__(self, clock: clocks.Clock, within: float) -> None:
        """`within`: seconds for which a request that was allowed before is repeated."""
        self._clock = clock
        self._within = within
        self.reset()

    def reset(self) -> None:
        """After a request that was allowed."""
        self._backoff = Backoff(self._clock)
        self._since: float | None = None

    def delay(self, error: errors.ClusterError, granted: bool) -> float | None:
        """Seconds to wait before the next attempt; None if the refusal is final."""
        if type(error) not in _NO_VERDICT:
            return None
        now = self._clock.now()
        first = self._since is None
        since = self._since = now if self._since is None else self._since
        if isinstance(error, errors.Unrenewed) or granted:
            return self._backoff.delay() if now - since < self._within else None
        return _ONCE_MORE_SECONDS if first and isinstance(error, errors.Forbidden) else None
