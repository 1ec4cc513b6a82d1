# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""Sending requests to one cluster: retries, deadlines, pages, streams.

The connection below (see connection.py) moves bytes; everything that is a decision about HTTP is
here. Times are seconds of the clock that is given, so a re-set wall clock bends nothing.
"""

from __future__ import annotations

import email.utils
import functools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import (
    clocks,
    errors,
    kinds,
    retry,
    tunnel,
    verbs,
)

CONNECT_TIMEOUT = 10.0
FIRST_CONTACT = 4.0
"""Seconds a server is sought that nobody has heard of yet: more likely a wrong address than a bad moment."""
_RESTARTS = 2
_REFUSED = 30.0
# Refusals that come only after the look at rights.
_PAST_RIGHTS = (404, 409, 410, 422)


class Lost(Exception):
    """The request may have arrived, its answer did not: a cut connection or a silent server."""


class Body(Protocol):
    """An open answer. `chunks` ends at its clean end and raises Lost when cut or silent."""

    status: int
    headers: Mapping[str, str]

    def chunks(self) -> Iterator[bytes]:
        """The pieces of the answer as they come."""

    def close(self) -> None:
        """From any thread, also while another one waits in `chunks`."""

    def wire(self) -> tunnel.Wire:
        """The bare connection, where the status is 101."""


class Connection(Protocol):
    """What moves bytes. `generation` counts how often the credentials were read."""

    generation: int

    @property
    def source(self) -> str:
        """Where the credentials are from, for messages."""

    def open(
        self, request: verbs.Request, *, read_timeout: float, connect_timeout: float, fence: Callable[[], None] | None
    ) -> Body:
        """Sends; raises Unreachable when the request surely never left, Lost when it may have.

        `fence` is called when all is ready and the first byte would leave now; what it raises keeps it here.
        """

    def renew(self, seen: int, request: verbs.Request, within: float) -> None:
        """Reads the credentials again for `request`, unless that has happened since `generation` was `seen`.

        Raises:
            Unrenewed: there are no new ones, or not `within` so many seconds.
        """

    def close(self) -> None:
        """Gives idle connections back."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All items of a list at one resourceVersion, each with its `apiVersion` and `kind`."""

    items: list[dict[str, Any]]
    resource_version: str


class Stream:
    """The events of one watch. Iterating blocks; `close` ends that from any thread."""

    def __init__(self, body: Body, request: verbs.Request) -> None:
        self._body = body
        self._request = request

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The events until the server ends the watch.

        Raises:
            Unreachable: cut, or silent for longer than the read timeout.
        """
        rest = b""
        try:
            for chunk in self._body.chunks():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield json.loads(line)
        except Lost as error:
            raise errors.Unreachable(str(error), request=self._request) from error
        except ValueError as error:
            raise errors.ServerError("the watch sent no JSON", request=self._request) from error
        finally:
            self._body.close()

    def close(self) -> None:
        self._body.close()


class Cluster:
    """One cluster. Safe to use from many threads. `requests` counts what was sent, retries too.

    `answered` says that the server is known to be there; until it has answered for the first time,
    no patience is longer than FIRST_CONTACT.
    """

    def __init__(
        self,
        connection: Connection,
        guard: Callable[[], None] | None = None,
        *,
        answered: bool = True,
        clock: clocks.Clock | None = None,
    ) -> None:
        self.clock = clock or clocks.Clock()
        self._connection = connection
        self._guard = guard
        self._answered = answered
        self._lock = threading.Lock()
        self._closed = self.clock.event()
        self._granted: set[tuple[str, str, str]] = set()
        self.requests = 0

    @property
    def source(self) -> str:
        """Where the connection comes from, for messages: never a secret."""
        return self._connection.source

    def send(
        self,
        request: verbs.Request,
        *,
        timeout: float = 30.0,
        patience: float = 0.0,
        fence: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        """Sends a request and returns the object in the answer.

        Args:
            request: from verbs.py.
            timeout: seconds for one attempt, from connecting to the last byte.
            patience: seconds in which an unreachable or overloaded server is asked again; 30 at most of them
                where it refuses what it allowed before, and once where it never did. A write is repeated only
                when it surely was not processed.
            fence: called right before the first byte of every attempt leaves; what it raises ends the request unsent.

        Raises:
            ClusterError: a type of errors.py; whatever `guard` or `fence` raises comes through as it is.
        """
        began = self.clock.now()
        deadline = began + patience
        backoff = retry.Backoff(self.clock)
        refusals = retry.Refusals(self.clock, min(patience, _REFUSED))
        while True:
            try:
                return self._once(request, timeout, fence)
            except (errors.Forbidden, errors.Unauthorized) as error:
                pause = refusals.delay(error, self.granted(request))
                left = deadline - self.clock.now()
                if pause is None or left <= 0 or self._closed.is_set():
                    raise
                delay = min(pause, left)
            except (errors.Unreachable, errors.Overloaded) as error:
                if not self._answered and not isinstance(error, errors.Unrenewed):
                    deadline = min(deadline, began + FIRST_CONTACT)
                    error.advice = f"Check the address in {self.source}, the network and the proxy."
                delay = backoff.delay(error)
                left = deadline - self.clock.now()
                if left <= 0 or self._closed.is_set():
                    raise
                if delay >= left:
                    if error.retry_after is not None and error.retry_after > left:
                        raise
                    delay = left
            self._closed.wait(delay)
            timeout = min(timeout, max(1.0, deadline - self.clock.now()))

    def granted(self, request: verbs.Request) -> bool:
        """Whether the server has allowed such a request before: the same verb, resource and namespace."""
        with self._lock:
            return _right(request) in self._granted

    def items(
        self,
        kind: kinds.Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        patience: float = 0.0,
        limit: int = 1000,
        timeout: float = 60.0,
    ) -> Listing:
        """The whole list, page by page. Begins again when the pages expire on the way.

        Raises:
            ClusterError: as `send`; Expired only if the list cannot be had in one piece either.
        """
        restarts = 0
        items: list[dict[str, Any]] = []
        token = ""
        while True:
            page = verbs.list_page(kind, namespace, labels, fields, limit, token)
            try:
                answer = self.send(page, timeout=timeout, patience=patience)
            except errors.Expired:
                if not token:
                    raise
                restarts += 1
                items, token = [], ""
                limit = limit if restarts <= _RESTARTS else 0
                continue
            for item in answer.get("items") or ():
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.kind)
                items.append(item)
            metadata = answer.get("metadata") or {}
            token = metadata.get("continue") or ""
            if not token:
                return Listing(items, str(metadata.get("resourceVersion") or ""))

    def stream(self, request: verbs.Request, *, read_timeout: float) -> Stream:
        """Opens a watch. `read_timeout`: the longest silence, in seconds.

        Raises:
            ClusterError: as `send`, without patience.
        """
        body = self._open(request, read_timeout, min(CONNECT_TIMEOUT, read_timeout))
        if body.status == 200:
            return Stream(body, request)
        raise self._error(request, body, self.clock.now() + CONNECT_TIMEOUT)

    def text(self, request: verbs.Request, *, timeout: float = 30.0) -> str:
        """Sends a request whose answer is no object but text, such as a container's log.

        Raises:
            ClusterError: as `send`, without patience.
        """
        deadline = self.clock.now() + timeout
        body = self._open(request, timeout, min(CONNECT_TIMEOUT, timeout))
        if body.status >= 300:
            raise self._error(request, body, deadline)
        try:
            return self._read(body, deadline).decode("utf-8", "replace")
        except Lost as error:
            raise _lost(request, str(error)) from error

    def page(self, request: verbs.Request, path: str, *, timeout: float = 10.0) -> Any:
        """The JSON document at `path` of the pod's port that `request` (`verbs.port_forward`) opens.

        Raises:
            ClusterError: as `send`, without patience; Unreachable also where nobody listens at the port.
        """
        deadline = self.clock.now() + timeout
        body = self._open(request, timeout, min(CONNECT_TIMEOUT, timeout))
        if body.status != 101:
            raise self._error(request, body, deadline)
        return tunnel.fetch(body.wire(), path, request=request, late=lambda: self.clock.now() > deadline)

    def close(self) -> None:
        """Ends waits for a retry and gives idle connections back."""
        self._closed.set()
        self._connection.close()

    def _once(self, request: verbs.Request, timeout: float, fence: Callable[[], None] | None) -> dict[str, Any]:
        deadline = self.clock.now() + timeout
        body = self._open(request, timeout, min(CONNECT_TIMEOUT, timeout), fence)
        if body.status >= 300:
            raise self._error(request, body, deadline)
        try:
            raw = self._read(body, deadline)
        except Lost as error:
            raise _lost(request, str(error)) from error
        answer = _parsed(raw)
        if answer is None:
            text = "the answer is not JSON: is this the address of an API server?"
            if request.writes:
                raise errors.UnknownOutcome(text, request=request, status=body.status)
            raise errors.ServerError(text, request=request, status=body.status)
        return answer

    def _open(
        self,
        request: verbs.Request,
        read_timeout: float,
        connect_timeout: float,
        fence: Callable[[], None] | None = None,
    ) -> Body:
        """Sends. A 401 is met once with credentials read anew: the request was not processed."""
        seen = self._connection.generation
        body = self._attempt(request, read_timeout, connect_timeout, fence)
        if body.status == 401:
            body.close()
            self._connection.renew(seen, request, read_timeout)
            body = self._attempt(request, read_timeout, connect_timeout, fence)
        if body.status < 300 or body.status in _PAST_RIGHTS:
            with self._lock:
                self._granted.add(_right(request))
        return body

    def _attempt(
        self, request: verbs.Request, read_timeout: float, connect_timeout: float, fence: Callable[[], None] | None
    ) -> Body:
        if self._guard is not None:
            self._guard()
        with self._lock:
            self.requests += 1
        if not self._answered:
            connect_timeout = min(connect_timeout, FIRST_CONTACT)
        try:
            body = self._connection.open(
                request, read_timeout=read_timeout, connect_timeout=connect_timeout, fence=fence
            )
        except Lost as error:
            raise _lost(request, str(error)) from error
        self._answered = True
        date = _moment(body.headers.get("Date"))
        if date is not None:
            self.clock.hear(date)
        return body

    def _read(self, body: Body, deadline: float) -> bytes:
        """The whole answer; Lost when it is cut or drips beyond the deadline."""
        parts = []
        try:
            for chunk in body.chunks():
                parts.append(chunk)
                if self.clock.now() > deadline:
                    raise Lost("the answer took too long")
        finally:
            body.close()
        return b"".join(parts)

    def _error(self, request: verbs.Request, body: Body, deadline: float) -> errors.ClusterError:
        try:
            raw = self._read(body, deadline)
        except Lost:
            raw = b""
        text = raw[:2000].decode("utf-8", "replace")
        error = errors.from_answer(
            request,
            body.status,
            _parsed(raw),
            text="" if "<html" in text.lower() else text,
            retry_after=_seconds(body.headers.get("Retry-After")),
        )
        if body.status == 401:
            error.advice = f"Renew {self.source}; it has expired or belongs to another cluster."
        return error


def _right(request: verbs.Request) -> tuple[str, str, str]:
    return request.verb, request.resource, request.namespace


def _lost(request: verbs.Request, why: str) -> errors.ClusterError:
    kind = errors.UnknownOutcome if request.writes else errors.Unreachable
    return kind(why, request=request)


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(raw)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


@functools.lru_cache(maxsize=1024)  # answers of the same second have the same one
def _moment(header: str | None) -> float | None:
    """A Date header in seconds since 1970; ``None`` where it is none."""
    try:
        return email.utils.parsedate_to_datetime(header or "").timestamp()
    except ValueError:
        return None


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; API servers never send a date, other senders' dates are ignored."""
    if header is None or not header.strip().isdigit():
        return None
    return float(header)
