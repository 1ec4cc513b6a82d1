# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""Sends with credentials that are current, and never lets a renewal that hangs hold up the others.

Credentials are read in a thread of their own, one at a time. Whoever can go on with those at hand does so;
whoever cannot (they have expired, or were refused) waits for the reading, as long as its own request may take.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import (
    clocks,
    errors,
    exchange,
    exec_plugin,
    retry,
    transports,
    tunnel,
    verbs,
)

with suppress(ImportError):  # the `kubernetes` package brings it; connection.py reports both
    from urllib3._collections import HTTPHeaderDict  # public only since urllib3 2

ABANDONED = exec_plugin.DEADLINE + 5.0
"""Seconds after which a reading counts as hung: a network file system or a login server can do that too."""
_AHEAD = 120.0
"""Seconds before its end in which a credential is renewed while it is still used."""
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 300.0
_LOGIN = "Look at the kubeconfig, at what its user logs in with, and at the file systems they lie on."


@dataclass(frozen=True, slots=True)
class Loaded:
    """One reading of the credentials and the pool made for them.

    `authorization` is the header, empty where a certificate says it all; `source` says where they are from and
    `renewer` who makes new ones, both for messages. `expires` is in seconds of the wall clock: a hint by
    somebody else's clock, which decides only when to ask for new ones. `lasts` is how many seconds credentials
    without such a hint are used before they are read again; None for always.
    """

    transport: transports.Transport
    authorization: str
    source: str
    renewer: str
    expires: float | None = None
    lasts: float | None = None

    def __repr__(self) -> str:
        """Without its secrets."""
        return f"Loaded({self.source!r})"


class _Reading:
    """Credentials being read: `over` rings at its end, and then `error` says why it failed."""

    def __init__(self, clock: clocks.Clock) -> None:
        self.began = clock.now()
        self.over = clock.event()
        self.error: Exception | None = None


class Credentials:
    """A connection (see client.py) whose credentials are read by `load`, which gets the event that ends it."""

    def __init__(
        self,
        load: Callable[[threading.Event], Loaded],
        *,
        user_agent: str,
        impersonate: tuple[tuple[str, str], ...] = (),
        clock: clocks.Clock,
    ) -> None:
        """Reads them for the first time.

        Args:
            load: reads them; raises ConfigError.
            user_agent: goes out with every request.
            impersonate: headers that do so too.
            clock: whose threads and time it takes.

        Raises:
            ConfigError: they cannot be read.
        """
        self._load = load
        self._user_agent = user_agent
        self._impersonate = impersonate
        self._clock = clock
        self._lock = clock.lock()
        self._closed = clock.event()
        self._reading: _Reading | None = None
        self._pause = retry.Backoff(clock, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        self._not_before = 0.0
        self._since = 0.0
        self._loaded: Loaded
        self.generation = -1
        reading = self._read()
        if not reading.over.wait(ABANDONED):
            self._end_reading()
            raise errors.ConfigError(f"reading the credentials takes longer than {ABANDONED:.0f} s", remedy=_LOGIN)
        if reading.error is not None:
            raise reading.error

    @property
    def source(self) -> str:
        return self._loaded.source

    def open(
        self,
        request: verbs.Request,
        *,
        read_timeout: float,
        connect_timeout: float,
        fence: Callable[[], None] | None = None,
    ) -> exchange.Body:
        began = self._clock.now()
        loaded = self._current(request, read_timeout)
        left = read_timeout - (self._clock.now() - began)
        return loaded.transport.open(
            request,
            self._headers(loaded, request),
            read_timeout=max(left, min(read_timeout, 1.0)),
            connect_timeout=connect_timeout,
            fence=fence,
        )

    def renew(self, seen: int, request: verbs.Request, within: float) -> None:
        self._await(self._read(seen), request, within)

    def close(self) -> None:
        self._end_reading()
        self._loaded.transport.close()

    def _current(self, request: verbs.Request, within: float) -> Loaded:
        """What to send with now; credentials that end soon are renewed meanwhile."""
        loaded, now = self._loaded, self._clock.epoch()
        if loaded.expires is not None and now >= loaded.expires:
            self._await(self._read(), request, within)
        elif self._ending(loaded, now) and self._clock.now() >= self._not_before:
            self._read()
        return self._loaded

    def _ending(self, loaded: Loaded, now: float) -> bool:
        if loaded.expires is not None:
            return now >= loaded.expires - _AHEAD
        return loaded.lasts is not None and self._clock.now() >= self._since + loaded.lasts

    def _read(self, seen: int | None = None) -> _Reading:
        """The reading that is under way, or a new one where there is none or it hangs.

        With `seen` one that is over, where they have been read since that generation.
        """
        with self._lock:
            reading = self._reading
            if seen is not None and self.generation != seen:
                reading = _Reading(self._clock)
                reading.over.set()
            elif reading is None or self._clock.now() >= reading.began + ABANDONED:
                reading = self._reading = _Reading(self._clock)
                if self.generation >= 0:
                    self._not_before = self._clock.now() + self._pause.delay()
                self._clock.thread(lambda: self._take(reading), "credentials").start()
            return reading

    def _take(self, reading: _Reading) -> None:
        """In the thread of its own: what comes after the reading was given up for hung is dropped."""
        loaded: Loaded | None = None
        try:
            loaded = self._load(self._closed)
        except Exception as error:  # told by whoever waits for it
            reading.error = error
        unused = loaded
        with self._lock:
            if self._reading is reading:
                self._reading = None
                if loaded is not None:
                    unused = self._loaded if self.generation >= 0 else None
                    self._loaded, self._since = loaded, self._clock.now()
                    self.generation += 1
                    self._pause.reset()
        reading.over.set()
        if unused is not None:
            unused.transport.close()

    def _end_reading(self) -> None:
        self._closed.set()
        with self._lock:
            reading, self._reading = self._reading, None
        if reading is not None:
            reading.error = errors.ConfigError("the connection was closed meanwhile")
            reading.over.set()

    def _await(self, reading: _Reading, request: verbs.Request, within: float) -> None:
        """Until it is over, or until its time or ours is up.

        Raises:
            Unrenewed: there are no new credentials.
        """
        began = self._clock.now()
        if not reading.over.wait(min(within, max(reading.began + ABANDONED - began, 0.0))):
            waited = self._clock.now() - reading.began
            raise errors.Unrenewed(
                f"{self._loaded.renewer} has not answered for {waited:.0f} s", request=request, remedy=_LOGIN
            )
        error = reading.error
        if isinstance(error, errors.ClusterError):
            raise errors.Unrenewed(error.message, request=request, remedy=error.advice) from error
        if error is not None:
            raise error

    def _headers(self, loaded: Loaded, request: verbs.Request) -> Mapping[str, str]:
        headers: Any = HTTPHeaderDict()
        headers["User-Agent"] = self._user_agent
        headers["Accept"] = "application/json"
        if request.upgrade:
            headers.update(tunnel.upgrade_headers())
        if request.verb == "list":
            headers["Accept-Encoding"] = "gzip"  # a tenth of the bytes for the same time
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        token = loaded.authorization
        if token:
            if not token.isprintable() or not token.isascii():
                raise errors.ConfigError(
                    f"the token of {loaded.source} has characters that no token has",
                    remedy="Look for line breaks and quotes in it.",
                )
            headers["Authorization"] = token
        for name, value in self._impersonate:
            headers.add(name, value)
        return headers  # type: ignore[no-any-return]
