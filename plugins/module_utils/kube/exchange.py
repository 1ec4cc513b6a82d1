# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""One request and its answer: credentials renewed once, every attempt counted,
every failure typed.
"""

from __future__ import annotations

import email.utils
import functools
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    clocks,
    errors,
    tunnel,
    verbs,
)

CONNECT_SECONDS = 10.0
DEEPEST = 100
FIRST_CONTACT_SECONDS = 4.0
"""Seconds to look for a server that has never answered: its address is more likely wrong
than the server down.
"""
# Refusals that the server decides on only after it has checked permissions.
_PAST_RIGHTS = (404, 409, 410, 422)
_DECODER = json.JSONDecoder()
_BETWEEN = " \t\n\r,:"
_NESTING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]')


class Lost(Exception):
    """The request may have arrived, but its answer did not: the connection was cut or
    the server fell silent.
    """


class Body(Protocol):
    """An open answer. `chunks` ends where the answer does, and raises Lost when
    it is cut or silent.
    """

    status: int
    headers: Mapping[str, str]

    def chunks(self) -> Iterator[bytes]:
        """The answer, piece by piece as it arrives."""

    def close(self) -> None:
        """Safe to call from any thread, even while another one waits in `chunks`."""

    def wire(self) -> tunnel.Wire:
        """The bare connection of an answer with status 101."""


class Connection(Protocol):
    """Moves the bytes. `generation` counts how often the credentials were read."""

    generation: int

    @property
    def source(self) -> str:
        """Where the credentials come from, for messages; never a secret."""

    @property
    def entry(self) -> Mapping[str, Any]:
        """The cluster as a kubeconfig describes it, without credentials."""

    @property
    def context(self) -> str:
        """The context of the kubeconfig, `in-cluster` for a pod's service account;
        empty without either.
        """

    def open(
        self,
        request: verbs.Request,
        *,
        read_timeout: float,
        connect_timeout: float,
        before_send: Callable[[], None] | None,
    ) -> Body:
        """Sends; raises Unreachable if the request certainly never left, Lost if it may have.

        `before_send` is called once the connection is ready, right before the first byte;
        if it raises, nothing is sent.
        """

    def renew(self, seen: int, request: verbs.Request, within: float) -> None:
        """Reads the credentials again for `request`, unless that has happened since
        `generation` was `seen`.

        Raises Unrenewed if there are no new ones, or not `within` this many seconds.
        """

    def close(self) -> None:
        """Closes idle connections."""


class Exchange:
    """Sends single requests, without retries. Safe to use from many threads.

    Attributes:
        requests: how many were sent.
        answered: whether the server has ever answered; until then connecting takes
            at most FIRST_CONTACT_SECONDS.
    """

    def __init__(
        self,
        connection: Connection,
        guard: Callable[[], None] | None,
        *,
        answered: bool,
        clock: clocks.Clock,
    ) -> None:
        self._connection = connection
        self._guard = guard
        self._clock = clock
        self._lock = threading.Lock()
        self._granted: set[tuple[str, str, str]] = set()
        self.requests = 0
        self.answered = answered

    def granted(self, request: verbs.Request) -> bool:
        """Whether the server has allowed such a request before: the same verb,
        resource and namespace.
        """
        with self._lock:
            return _right(request) in self._granted

    def whole(
        self, request: verbs.Request, timeout: float, before_send: Callable[[], None] | None = None
    ) -> bytes:
        """The whole answer, `timeout` seconds after the start at the latest;
        raises ClusterError.
        """
        deadline = self._clock.now() + timeout
        body = self.opened(request, timeout, before_send)
        try:
            return self._read(body, deadline)
        except Lost as error:
            raise _lost(request, error) from error

    def opened(
        self, request: verbs.Request, timeout: float, before_send: Callable[[], None] | None = None
    ) -> Body:
        """The open answer of a request that succeeded; raises ClusterError for any other.

        After a 401 the request is sent once more with fresh credentials: it was not processed.
        """
        deadline = self._clock.now() + timeout
        seen = self._connection.generation
        body = self._attempt(request, timeout, before_send)
        if body.status == 401:
            body.close()
            self._connection.renew(seen, request, timeout)
            body = self._attempt(request, timeout, before_send)
        if body.status < 300 or body.status in _PAST_RIGHTS:
            with self._lock:
                self._granted.add(_right(request))
        if body.status == 101 if request.upgrade else body.status < 300:
            return body
        raise self._error(request, body, deadline)

    def _attempt(
        self, request: verbs.Request, timeout: float, before_send: Callable[[], None] | None
    ) -> Body:
        if self._guard is not None:
            self._guard()
        with self._lock:
            self.requests += 1
        connect = min(CONNECT_SECONDS if self.answered else FIRST_CONTACT_SECONDS, timeout)
        try:
            body = self._connection.open(
                request, read_timeout=timeout, connect_timeout=connect, before_send=before_send
            )
        except Lost as error:
            raise _lost(request, error) from error
        self.answered = True
        date = _moment(body.headers.get("Date"))
        if date is not None:
            self._clock.hear(date)
        return body

    def _read(self, body: Body, deadline: float) -> bytes:
        """All of the body; Lost if it is cut, or still trickling in after the deadline."""
        parts = []
        try:
            for chunk in body.chunks():
                parts.append(chunk)
                if self._clock.now() > deadline:
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
            parsed(raw),
            text=text,
            retry_after=_seconds(body.headers.get("Retry-After")),
        )
        if body.status == 401:
            error.advice = (
                f"Renew {self._connection.source}; it has expired or belongs to another cluster."
            )
        return error


def parsed(raw: bytes) -> dict[str, Any] | None:
    """The JSON object in an answer; None if it is anything else."""
    try:
        answer = decoded(raw)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def decoded(raw: bytes) -> Any:
    """The JSON value in an answer, without what is nested too deeply for Python's
    decoder; raises ValueError.

    A custom resource may store that, and comes in one list with all others.
    """
    try:
        return _DECODER.decode(raw.decode(errors="surrogatepass"))
    except RecursionError:
        return json.loads(_cut_off(raw))


def page(raw: bytes, keep: Callable[[Any], Any]) -> dict[str, Any] | None:
    """As `parsed`; of the `items` of a list there is what `keep` makes of each.

    They are decoded one by one. Of all of a page at once their decoding takes half as long again,
    and much memory.
    """
    try:
        return dict(_members(raw.decode(errors="surrogatepass"), keep))
    except RecursionError:
        answer = parsed(raw)
    except (json.JSONDecodeError, UnicodeDecodeError, IndexError):
        return None
    if answer and answer.get("items"):
        answer["items"] = list(map(keep, answer["items"]))
    return answer


def _members(text: str, keep: Callable[[Any], Any]) -> Iterator[tuple[str, Any]]:
    """The names and values of a JSON object; of the array `items` what is kept of its values."""
    at = _next(text, 0)
    if text[at] != "{":
        raise json.JSONDecodeError("no object", text, at)
    at = _next(text, at + 1)
    while text[at] == '"':
        name, at = _DECODER.raw_decode(text, at)
        at = _next(text, at)
        if name == "items" and text[at] == "[":
            value = []
            at = _next(text, at + 1)
            while text[at] != "]":
                item, at = _DECODER.raw_decode(text, at)
                value.append(keep(item))
                at = _next(text, at)
            at += 1
        else:
            value, at = _DECODER.raw_decode(text, at)
        yield name, value
        at = _next(text, at)
    if text[at] != "}":
        raise json.JSONDecodeError("no name", text, at)


def _next(text: str, at: int) -> int:
    """Where the next value, name or end of what it is in begins."""
    while text[at] in _BETWEEN:
        at += 1
    return at


def _cut_off(raw: bytes) -> bytes:
    """JSON with `null` for each value that is nested deeper than DEEPEST levels."""
    kept, depth, start = [], 0, 0
    for token in _NESTING.finditer(raw):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth == DEEPEST + 1:
                kept += [raw[start : token.start()], b"null"]
        elif token[0] in (b"]", b"}"):
            if depth == DEEPEST + 1:
                start = token.end()
            depth -= 1
    return b"".join([*kept, raw[start:]])


def _right(request: verbs.Request) -> tuple[str, str, str]:
    return request.verb, request.resource, request.namespace


def _lost(request: verbs.Request, why: Lost) -> errors.ClusterError:
    kind = errors.UnknownOutcome if request.writes else errors.Unreachable
    return kind(str(why), request=request)


@functools.lru_cache(maxsize=1024)  # answers of the same second have the same one
def _moment(header: str | None) -> float | None:
    """A Date header in seconds since 1970; None if it cannot be parsed."""
    try:
        return email.utils.parsedate_to_datetime(header or "").timestamp()
    except ValueError:
        return None


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; API servers never send a date, and dates from other
    senders are ignored.
    """
    return float(header) if header is not None and header.strip().isdigit() else None
