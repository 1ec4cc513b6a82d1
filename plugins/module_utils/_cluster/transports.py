# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""Bytes to and from one API server over urllib3 (1.26 or 2), without its retries and redirects."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import (
    endpoints,
    errors,
    exchange,
    pool,
    verbs,
)

with suppress(ImportError):  # the `kubernetes` package brings it; connection.py reports both
    import urllib3
    from urllib3.exceptions import EmptyPoolError, HTTPError, LocationParseError, LocationValueError

_CHUNK = 1 << 18


class Transport:
    """A pool of connections to one endpoint, for up to 128 requests and streams at once."""

    def __init__(self, endpoint: endpoints.Endpoint) -> None:
        self._endpoint = endpoint
        try:
            self._manager = pool.manager(endpoint)
        except (LocationValueError, ValueError):
            message = f"the proxy address {endpoints.plain(endpoint.proxy)!r} is not usable"
            raise errors.ConfigError(message, remedy="Give a URL such as http://proxy.example.org:3128.") from None

    def open(
        self,
        request: verbs.Request,
        headers: Mapping[str, str],
        *,
        read_timeout: float,
        connect_timeout: float,
        fence: Callable[[], None] | None = None,
    ) -> Answer:
        """Sends, and returns once the status has arrived; `fence` is called between connecting and the first byte.

        Raises:
            Unreachable: the request never left.
            Lost: it may have arrived.
            ConfigError: the server's certificate is not trusted, or the address is invalid.
            Whatever `fence` raises.
        """
        url = self._endpoint.base + request.path
        if request.query:
            url += "?" + urlencode(request.query)
        body = None if request.body is None else json.dumps(request.body).encode()
        attempt = pool.Attempt(fence)
        try:
            with attempt:
                response = self._manager.request(
                    request.method,
                    url,
                    body=body,
                    headers=headers,
                    timeout=urllib3.Timeout(connect=connect_timeout, read=read_timeout),
                    pool_timeout=connect_timeout + read_timeout,
                    retries=False,
                    redirect=False,
                    preload_content=False,
                    enforce_content_length=True,
                )
        except EmptyPoolError as error:
            raise errors.Unreachable("all connections are in use", request=request) from error
        except (LocationParseError, LocationValueError):
            raise endpoints.no_address(self._endpoint.base) from None
        except (HTTPError, HTTPException, OSError) as error:
            if attempt.refusal is not None:
                raise attempt.refusal from None
            where = endpoints.plain(self._endpoint.base)
            if _untrusted(error):
                raise errors.ConfigError(
                    f"the certificate of {where} is not trusted: {_words(error)}",
                    remedy="Give the cluster's own certificate authority (ca_cert, or the kubeconfig of "
                    "this cluster), and the address for which its certificate was issued.",
                ) from error
            if attempt.sent:
                raise exchange.Lost(_words(error)) from error
            raise errors.Unreachable(f"{where}: {_words(error)}", request=request) from error
        return Answer(response)

    def close(self) -> None:
        """Closes idle connections; requests under way continue."""
        self._manager.clear()


class Answer:
    """A status, headers and an open body. One thread reads `chunks`, any thread may `close`."""

    def __init__(self, response: Any) -> None:
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._lock = threading.Lock()
        self._reader: int | None = None
        self._done = False

    def chunks(self) -> Iterator[bytes]:
        """The body as it arrives; Lost if it is cut, or silent for the read timeout."""
        with self._lock:
            if self._done:
                return
            self._reader = threading.get_ident()
        try:
            yield from self._response.stream(_CHUNK, decode_content=True)
        except (HTTPError, HTTPException, OSError, ValueError, AttributeError) as error:
            # ValueError and AttributeError: another thread has closed it.
            raise exchange.Lost(_words(error)) from error
        else:
            with self._lock:
                self._done = True
            self._response.release_conn()
        finally:
            self._reader = None
            self.close()

    def close(self) -> None:
        """Ends the answer; a reader in another thread gets its end or Lost at once."""
        with self._lock:
            if self._done:
                return
            if self._reader not in (None, threading.get_ident()):
                self._cut()
                return
            self._done = True
        self._response.close()
        self._response.release_conn()  # the closed connection's place in the pool

    def wire(self) -> Wire:
        """The bare connection behind a 101, which takes the place of the answer."""
        return Wire(self._response)

    def _cut(self) -> None:
        """Wakes the reader: if only the file were closed, it would keep waiting for bytes."""
        with suppress(OSError, AttributeError, ValueError, RuntimeError):
            connection = self._response.connection
            if connection is not None and connection.sock is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)
            else:
                self._response.shutdown()  # urllib3 >= 2.3, after `Connection: close`


class Wire:
    """The bytes of a connection whose protocol was switched.

    They are read through http.client's buffer, which may already hold those right after the headers.
    """

    def __init__(self, response: Any) -> None:
        self._response = response
        self._file = response._fp.fp

    def read(self, count: int) -> bytes:
        try:
            return bytes(self._file.read1(count))
        except ValueError as error:  # closed
            raise OSError(str(error)) from error

    def write(self, data: bytes) -> None:
        self._response.connection.sock.sendall(data)

    def close(self) -> None:
        with suppress(OSError):
            self._response.close()
        self._response.release_conn()  # the closed connection's place in the pool


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and the errors in it (arguments, `reason`, causes), innermost last."""
    seen: set[int] = set()
    queue: list[Any] = [error]
    while queue:
        link = queue.pop(0)
        if isinstance(link, BaseException) and id(link) not in seen:
            seen.add(id(link))
            yield link
            queue += [getattr(link, "reason", None), *link.args, link.__cause__, link.__context__]


def _untrusted(error: BaseException) -> bool:
    """Whether the certificate is the problem, so that a retry would not help. urllib3 1.26 checks host names itself."""
    return any(
        isinstance(link, ssl.SSLCertVerificationError)
        or type(link).__name__ == "CertificateError"
        or (isinstance(link, ssl.SSLError) and link.reason == "WRONG_VERSION_NUMBER")
        for link in _chain(error)
    )


def _words(error: BaseException) -> str:
    """What happened, in a few words; urllib3's own texts contain reprs of objects."""
    innermost: BaseException = error
    for link in _chain(error):
        if isinstance(link, ssl.SSLCertVerificationError):
            return link.verify_message or str(link)
        if isinstance(link, (TimeoutError, socket.timeout)) or "Timeout" in type(link).__name__:
            return "no answer in time"
        if isinstance(link, OSError):
            innermost = link
    if isinstance(innermost, OSError) and innermost.strerror:
        return innermost.strerror
    return str(innermost) if isinstance(innermost, OSError) else "the connection was cut"
