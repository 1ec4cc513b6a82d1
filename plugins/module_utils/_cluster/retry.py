# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""How long to wait before a request is sent again, and how long a refusal is no verdict."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import clocks, errors

_FIRST_DELAY = 0.25
_LONGEST_DELAY = 8.0
_ONCE_MORE = 0.5
_NO_VERDICT = (errors.Forbidden, errors.Unauthorized, errors.Unrenewed)


class Backoff:
    """Growing, jittered delays; a Retry-After sets the least."""

    def __init__(self, clock: clocks.Clock, first: float = _FIRST_DELAY, longest: float = _LONGEST_DELAY) -> None:
        self._clock = clock
        self._first = first
        self._longest = longest
        self._next = first

    def delay(self, error: errors.ClusterError | None = None) -> float:
        """Seconds to wait now; between 1 and 1.5 times the step, so that callers spread."""
        step = self._next
        self._next = min(self._next * 2, self._longest)
        if error is not None and error.retry_after is not None:
            step = max(step, error.retry_after)
        return step * self._clock.jitter()

    def reset(self) -> None:
        self._next = self._first


class Refusals:
    """How long a refusal is no verdict.

    An API server that starts answers 403, or 401, until it has read who may do what. So a right that was granted
    before is asked for again for a while, and any other once more: nothing was carried out.
    """

    def __init__(self, clock: clocks.Clock, within: float) -> None:
        """`within`: seconds without success in which a right that was granted before is asked for again."""
        self._clock = clock
        self._within = within
        self.reset()

    def reset(self) -> None:
        """It was granted."""
        self._backoff = Backoff(self._clock)
        self._since: float | None = None

    def delay(self, error: errors.ClusterError, granted: bool) -> float | None:
        """Seconds to wait before asking again; None when this is the verdict."""
        if type(error) not in _NO_VERDICT:
            return None
        now = self._clock.now()
        first = self._since is None
        since = self._since = now if self._since is None else self._since
        if isinstance(error, errors.Unrenewed) or granted:
            return self._backoff.delay() if now - since < self._within else None
        return _ONCE_MORE if first and isinstance(error, errors.Forbidden) else None
