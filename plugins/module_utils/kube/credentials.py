# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""Sends requests with current credentials; a renewal that hangs does not hold up other requests.

Credentials are read in a thread of their own, once at a time. A request uses those at hand if it
can. If they have expired or were refused, it waits for the reading,
but no longer than the request itself may take.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
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

ABANDONED_AFTER_SECONDS = exec_plugin.DEADLINE_SECONDS + 5.0
"""Seconds after which a reading counts as hung, as a network file system or a login server may."""
_AHEAD_SECONDS = 120.0
"""Seconds before its expiry in which a credential is renewed while it is still used."""
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 300.0
_LOGIN = "Check the kubeconfig, how its user logs in, and the file systems that both are on."


@dataclass(frozen=True, slots=True)
class Loaded:
    """Credentials and the connection pool made for them.

    `authorization` is the header, empty if a certificate is all there is; `source` says where they
    come from and `renewer` who makes new ones, both for messages. `expires` is in seconds of the
    wall clock, but was set by another machine's: it decides only when to renew. `lasts` is for how
    many seconds credentials without it are used until they are read again; None for ever. `entry`
    is the cluster as a kubeconfig describes it, `context` its name there.
    """

    transport: transports.Transport
    authorization: str
    source: str
    renewer: str
    expires: float | None = None
    lasts: float | None = None
    entry: Mapping[str, Any] = field(default_factory=dict)
    context: str = ""

    def __repr__(self) -> str:
        """Without secrets."""
        return f"Loaded({self.source!r})"


class _Reading:
    """Credentials being read: `over` is set at the end, and then `error` says why it failed."""

    def __init__(self, clock: clocks.Clock) -> None:
        self.began = clock.now()
        self.over = clock.event()
        self.error: Exception | None = None


class Credentials:
    """A connection (see exchange.py) whose credentials are read by `load`,
    which gets the event that ends it.
    """

    def __init__(
        self,
        load: Callable[[threading.Event], Loaded],
        *,
        user_agent: str,
        impersonate: tuple[tuple[str, str], ...] = (),
        clock: clocks.Clock,
    ) -> None:
        """Reads the credentials for the first time; raises ConfigError.
        `impersonate` are further headers.
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
        if not reading.over.wait(ABANDONED_AFTER_SECONDS):
            self._end_reading()
            raise errors.ConfigError(
                f"reading the credentials takes longer than {ABANDONED_AFTER_SECONDS:.0f} s",
                remedy=_LOGIN,
            )
        if reading.error is not None:
            raise reading.error

    @property
    def source(self) -> str:
        return self._loaded.source

    @property
    def entry(self) -> Mapping[str, Any]:
        return self._loaded.entry

    @property
    def context(self) -> str:
        return self._loaded.context

    def open(
        self,
        request: verbs.Request,
        *,
        read_timeout: float,
        connect_timeout: float,
        before_send: Callable[[], None] | None,
    ) -> exchange.Body:
        began = self._clock.now()
        loaded = self._current(request, read_timeout)
        left = max(read_timeout - (self._clock.now() - began), min(read_timeout, 1.0))
        headers = self._headers(loaded, request)
        return loaded.transport.open(
            request,
            headers,
            read_timeout=left,
            connect_timeout=connect_timeout,
            before_send=before_send,
        )

    def renew(self, seen: int, request: verbs.Request, within: float) -> None:
        self._await(self._read(seen), request, within)

    def close(self) -> None:
        self._end_reading()
        self._loaded.transport.close()

    def _current(self, request: verbs.Request, within: float) -> Loaded:
        """What to send with now; credentials that expire soon are renewed in the background."""
        loaded = self._loaded
        now = self._clock.epoch()
        if loaded.expires is not None and now >= loaded.expires:
            self._await(self._read(), request, within)
        elif self._ending(loaded, now) and self._clock.now() >= self._not_before:
            self._read()
        return self._loaded

    def _ending(self, loaded: Loaded, now: float) -> bool:
        if loaded.expires is not None:
            return now >= loaded.expires - _AHEAD_SECONDS
        return loaded.lasts is not None and self._clock.now() >= self._since + loaded.lasts

    def _read(self, seen: int | None = None) -> _Reading:
        """The reading that is under way, or a new one if there is none or it hangs.

        If the credentials were read since the generation `seen`, a reading that is over.
        """
        with self._lock:
            reading = self._reading
            if seen is not None and self.generation != seen:
                reading = _Reading(self._clock)
                reading.over.set()
            elif reading is None or self._clock.now() >= reading.began + ABANDONED_AFTER_SECONDS:
                reading = self._reading = _Reading(self._clock)
                if self.generation >= 0:
                    self._not_before = self._clock.now() + self._pause.delay()
                self._clock.thread(lambda: self._take(reading), "credentials").start()
            return reading

    def _take(self, reading: _Reading) -> None:
        """Runs in a thread of its own; what arrives after the reading was abandoned is dropped."""
        loaded: Loaded | None = None
        try:
            loaded = self._load(self._closed)
        except Exception as error:  # raised by whoever waits for it
            reading.error = error
        unused = loaded
        with self._lock:
            if self._reading is reading:
                self._reading = None
                if loaded is not None:
                    unused = self._loaded if self.generation >= 0 else None
                    self._loaded = loaded
                    self._since = self._clock.now()
                    self.generation += 1
                    self._pause.reset()
        reading.over.set()
        if unused is not None:
            unused.transport.close()

    def _end_reading(self) -> None:
        self._closed.set()
        with self._lock:
            reading = self._reading
            self._reading = None
        if reading is not None:
            reading.error = errors.ConfigError("the connection was closed")
            reading.over.set()

    def _await(self, reading: _Reading, request: verbs.Request, within: float) -> None:
        """Waits until it is over, hangs, or `within` is up;
        raises Unrenewed if there are no new credentials.
        """
        began = self._clock.now()
        if not reading.over.wait(
            min(within, max(reading.began + ABANDONED_AFTER_SECONDS - began, 0.0))
        ):
            waited = self._clock.now() - reading.began
            raise errors.Unrenewed(
                f"{self._loaded.renewer} has not answered for {waited:.0f} s",
                request=request,
                remedy=_LOGIN,
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
            headers["Accept-Encoding"] = "gzip"  # a tenth of the bytes in the same time
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if token := loaded.authorization:
            if not token.isprintable() or not token.isascii():
                message = (
                    f"the token of {loaded.source} contains characters that are not "
                    "allowed in a token"
                )
                raise errors.ConfigError(message, remedy="Look for line breaks and quotes in it.")
            headers["Authorization"] = token
        for name, value in self._impersonate:
            headers.add(name, value)
        return headers  # type: ignore[no-any-return]
