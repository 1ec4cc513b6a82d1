# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""Requests to one cluster: retries, pages, streams.

exchange.py sends a single request; what happens when it fails, or when there is more to fetch, is
decided here. Times are seconds of the given clock, so setting the wall clock has no effect.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    clocks,
    collector,
    errors,
    exchange,
    kinds,
    retry,
    transports,
    tunnel,
    verbs,
)

_MAX_RESTARTS = 2
_REFUSED_SECONDS = 30.0
_LIST_SECONDS = 60.0
_ALL_SENT = "k8s.io/initial-events-end"
"""The annotation of the bookmark after the last object of a watch that begins as a list."""
SILENCE_SECONDS = 75.0
"""Seconds of silence after which a watch is opened anew: a server sends a bookmark about once a
minute, unless nothing of the kind has changed in the whole cluster.
"""
_REFUSALS = (errors.Forbidden, errors.Unauthorized)
_TRIED_AGAIN = (*_REFUSALS, errors.Unreachable, errors.Overloaded)
PATIENCE = 60.0
"""Seconds a single request may be tried again while the API server is away or overloaded."""
NO_PATIENCE = 0.0
"""The same for a request that is better decided anew than sent late."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All items of a list at one resourceVersion, as they were kept."""

    items: list[Any]
    resource_version: str


class Stream:
    """The events of one watch. Iterating blocks, and goes on where it was left off; `close` ends
    that from any thread. Nobody's any more, it ends by itself.
    """

    def __init__(self, body: exchange.Body, request: verbs.Request) -> None:
        self._body = body
        self._events = _events(body, request)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The events until the server ends the watch; raises Unreachable if it is cut or
        silent for too long, and what an answer like it would for one that is an error.
        """
        return self._events

    def close(self) -> None:
        self._body.close()


def _events(body: exchange.Body, request: verbs.Request) -> Iterator[dict[str, Any]]:
    rest = b""
    try:
        for chunk in body.chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield _event(exchange.decoded(line), request)
    except exchange.Lost as error:
        raise errors.Unreachable(str(error), request=request) from error
    except ValueError as error:
        raise errors.ServerError("the watch sent no JSON", request=request) from error
    finally:
        body.close()


def _event(event: dict[str, Any], request: verbs.Request) -> dict[str, Any]:
    if event.get("type") == "ERROR":
        status = event.get("object") or {}
        raise errors.from_answer(request, int(status.get("code") or 500), status)
    return event


class Cluster:
    """One cluster. Safe to use from many threads.

    `answered` says that the server is known to be there. Until a server has answered for the first
    time, requests to it are retried for FIRST_CONTACT_SECONDS at most.
    """

    def __init__(
        self,
        connection: exchange.Connection,
        guard: Callable[[], None] | None = None,
        *,
        answered: bool = True,
        clock: clocks.Clock | None = None,
    ) -> None:
        self.clock = clock or clocks.Clock()
        self._connection = connection
        self._exchange = exchange.Exchange(connection, guard, answered=answered, clock=self.clock)
        self._closed = self.clock.event()
        self._streams_lists = True
        self.granted = self._exchange.granted
        self.refusals: list[errors.Forbidden] = []
        """What these credentials were not allowed to do, whatever became of it."""

    @property
    def requests(self) -> int:
        """How many requests were sent, retries included."""
        return self._exchange.requests

    @property
    def source(self) -> str:
        """Where the credentials come from, for messages; never a secret."""
        return self._connection.source

    @property
    def entry(self) -> Mapping[str, Any]:
        """The cluster as a kubeconfig describes it: address, authority,
        proxy; never credentials.
        """
        return self._connection.entry

    @property
    def place(self) -> dict[str, str]:
        """What people know the cluster by: the `context`, as far as there is one,
        and the address of the `server`.
        """
        return {
            "context": self._connection.context,
            "server": transports.plain(str(self.entry.get("server") or "")),
        }

    def send(
        self,
        request: verbs.Request,
        *,
        timeout: float = 30.0,
        patience: float = PATIENCE,
        before_send: Callable[[], None] | None = None,
        parsed: Callable[[bytes], dict[str, Any] | None] = exchange.parsed,
    ) -> dict[str, Any]:
        """Sends a request and returns the object in the answer.

        Args:
            request: from verbs.py.
            timeout: seconds for one attempt, from connecting to the last byte.
            patience: seconds for which a request to an unreachable or overloaded server is retried.
                A refusal of what was allowed before is retried for at most 30 of them, any other
                refusal once. A write is repeated only if it was certainly not processed.
            before_send: called right before the first byte of every attempt;
                if it raises, nothing is sent.
            parsed: makes of the answer what is returned, None of one that is no object.

        Raises:
            ClusterError: one of the types in errors.py; whatever `guard` or `before_send`
                raises is passed on.
        """
        began = self.clock.now()
        deadline = began + patience
        backoff = retry.Backoff(self.clock)
        refusals = retry.Refusals(self.clock, min(patience, _REFUSED_SECONDS))
        while True:
            try:
                return _object(request, parsed(self._exchange.whole(request, timeout, before_send)))
            except _TRIED_AGAIN as error:
                if isinstance(error, _REFUSALS):
                    delay = refusals.delay(error, self.granted(request))
                else:
                    if not (self._exchange.answered or isinstance(error, errors.Unrenewed)):
                        deadline = min(deadline, began + exchange.FIRST_CONTACT_SECONDS)
                        error.advice = (
                            f"Check the address in {self.source}, the network and the proxy."
                        )
                    delay = backoff.delay(error)
                left = deadline - self.clock.now()
                too_late = left <= 0 or (error.retry_after or 0.0) > left
                if delay is None or too_late or self._closed.is_set():
                    if isinstance(error, errors.Forbidden):
                        self.refusals.append(error)
                    raise
            self.clock.look()
            self._closed.wait(min(delay, left))
            timeout = min(timeout, max(1.0, deadline - self.clock.now()))

    @collector.paused()
    def items(
        self,
        kind: kinds.Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        patience: float = PATIENCE,
        limit: int | None = None,
        keep: Callable[[dict[str, Any]], Any] = lambda item: item,
    ) -> Listing:
        """The whole list, fetched page by page; starts over if the pages expire on the way.

        `keep` makes of each item, a JSON object with its `apiVersion` and `kind`, what the list
        holds of it. It is called one by one, so that what it leaves out needs no memory. Meanwhile
        no garbage is collected.

        Raises ClusterError as `send` does; Expired only if the list cannot be had
        in one piece either.
        """

        def kept(item: dict[str, Any]) -> Any:
            item.setdefault("apiVersion", kind.api_version)
            item.setdefault("kind", kind.kind)
            return keep(item)

        parsed = functools.partial(exchange.page, keep=kept)
        items: list[Any] = []
        restarts, token = 0, ""
        limit = verbs.PAGES.get(kind, verbs.PAGE) if limit is None else limit
        while True:
            page = verbs.list_page(kind, namespace, labels, fields, limit, token)
            try:
                answer = self.send(page, timeout=_LIST_SECONDS, patience=patience, parsed=parsed)
            except errors.Expired:
                if not token:
                    raise
                restarts += 1
                items, token = [], ""
                limit = limit if restarts <= _MAX_RESTARTS else 0
                continue
            items += answer.get("items") or ()
            metadata = answer.get("metadata") or {}
            token = metadata.get("continue") or ""
            if not token:
                return Listing(items, str(metadata.get("resourceVersion") or ""))

    def stream(self, request: verbs.Request, *, read_timeout: float) -> Stream:
        """Opens a watch, without retries. `read_timeout`: the longest silence, in seconds;
        raises ClusterError.
        """
        return Stream(self._exchange.opened(request, read_timeout), request)

    def begun(
        self,
        kind: kinds.Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        patience: float = PATIENCE,
        keep: Callable[[dict[str, Any]], Any] = lambda item: item,
    ) -> tuple[Listing, Stream | None]:
        """The whole list as `items` gives it, and the watch that goes on with it, of one request
        if that is possible; else there is no watch.
        """
        request = verbs.watch(kind, namespace, labels, fields=fields, listing=True)
        whole = self.streamed(request, keep=keep)
        if whole is not None:
            return whole
        listing = self.items(
            kind, namespace=namespace, labels=labels, fields=fields, patience=patience, keep=keep
        )
        return listing, None

    def streamed(
        self,
        request: verbs.Request,
        *,
        most: int | None = None,
        keep: Callable[[dict[str, Any]], Any] = lambda item: item,
    ) -> tuple[Listing, Stream] | None:
        """The whole list of at most so many objects, as the beginning of a watch (KEP-3157);
        `request` is a `verbs.watch` with `listing`.

        None for more objects, and where the server does not do that: it is on by default in
        Kubernetes 1.32, in 1.34 and later. A list says what is wrong, or waits until it is not.
        """
        if not self._streams_lists:
            return None
        try:
            return self._streamed(request, most, keep)
        except errors.Invalid:
            self._streams_lists = False
        except errors.ClusterError:
            pass
        return None

    @collector.paused()
    def _streamed(
        self, request: verbs.Request, most: int | None, keep: Callable[[dict[str, Any]], Any]
    ) -> tuple[Listing, Stream] | None:
        deadline = self.clock.now() + _LIST_SECONDS
        stream = self.stream(request, read_timeout=SILENCE_SECONDS)
        found: dict[tuple[str, str], Any] = {}
        whole = None
        try:
            for event in stream:
                item = event.get("object") or {}
                meta = item.get("metadata") or {}
                key = str(meta.get("namespace") or ""), str(meta.get("name") or "")
                if event.get("type") == "DELETED":
                    found.pop(key, None)
                elif event.get("type") != "BOOKMARK":
                    found[key] = keep(item)
                elif (meta.get("annotations") or {}).get(_ALL_SENT) == "true":
                    version = str(meta.get("resourceVersion") or "")
                    whole = Listing(list(found.values()), version), stream
                if whole or len(found) > (most or len(found)) or self.clock.now() > deadline:
                    break
        finally:
            if whole is None:
                stream.close()
        return whole

    def text(self, request: verbs.Request) -> str:
        """The plain text in the answer, such as a container's log; without retries;
        raises ClusterError.
        """
        return self._exchange.whole(request, 30.0).decode("utf-8", "replace")

    def page(self, request: verbs.Request, path: str, *, timeout: float = 10.0) -> Any:
        """The JSON document at `path` of the pod's port that `request` (`verbs.port_forward`)
        opens; without retries.

        Raises ClusterError as `send` does; Unreachable also if nothing listens on the port.
        """
        deadline = self.clock.now() + timeout
        body = self._exchange.opened(request, timeout)
        return tunnel.fetch(
            body.wire(), path, request=request, late=lambda: self.clock.now() > deadline
        )

    def close(self) -> None:
        """Ends waits for a retry and closes idle connections."""
        self._closed.set()
        self._connection.close()


def _object(request: verbs.Request, answer: dict[str, Any] | None) -> dict[str, Any]:
    """The object in an answer; raises UnknownOutcome or ServerError if there is none."""
    if answer is not None:
        return answer
    kind = errors.UnknownOutcome if request.writes else errors.ServerError
    raise kind("the answer is not JSON: is this the address of an API server?", request=request)
