# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Bytes to and from one API server over urllib3 (1.26 or 2), without its retries and redirects."""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode, urlsplit

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    errors,
    exchange,
    verbs,
)

with suppress(ImportError):  # the `kubernetes` package brings it; connection.py reports both
    import urllib3
    from urllib3.connection import HTTPConnection
    from urllib3.exceptions import EmptyPoolError, HTTPError, LocationParseError, LocationValueError

MAX_CONNECTIONS = 128
_CHUNK_BYTES = 1 << 18
# The kernel notices a peer that vanished after about 30 s, without a request.
_KEEPALIVE = (
    ("SOL_SOCKET", "SO_KEEPALIVE", 1),
    ("IPPROTO_TCP", "TCP_KEEPIDLE", 15),
    ("IPPROTO_TCP", "TCP_KEEPINTVL", 5),
    ("IPPROTO_TCP", "TCP_KEEPCNT", 3),
    ("IPPROTO_TCP", "TCP_USER_TIMEOUT", 30_000),
)
_thread = threading.local()
"""`attempt` is what this thread sends at the moment."""


# Where an API server is, and how it proves that it is the right one.


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`base` may have a path (`https://rancher/k8s/clusters/c-1`);
    `context` is None for plain HTTP.

    `server_name` is the name in the server's certificate, if that is not the host's.
    """

    base: str
    context: ssl.SSLContext | None = None
    server_name: str = ""
    assert_hostname: bool | str | None = None
    proxy: str = ""
    no_proxy: str = ""
    proxy_headers: Mapping[str, str] | None = None


def tls_context(
    verify: bool, *, ca_cert: str = "", client_cert: str = "", client_key: str = "", source: str
) -> ssl.SSLContext:
    """One context for all connections, as strict as kubectl's;
    the certificates and the key are paths of PEM files.

    Python 3.13's stricter X.509 checks, which refuse the authorities of many clusters, are off, and
    any given certificate may be the trust anchor. Raises ConfigError if a file cannot be used;
    `source` names its owner.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    what, file = "", ""
    try:
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif ca_cert:
            what, file = "certificate authority", ca_cert
            context.load_verify_locations(cafile=ca_cert)
        else:
            context.load_default_certs()
        if client_cert:
            what, file = "client certificate with its key", client_cert
            # A password keeps OpenSSL from asking for one on the terminal.
            context.load_cert_chain(client_cert, client_key or None, password="none")
    except (OSError, ValueError) as error:
        why = "not PEM, or a key that has a password or belongs to another certificate"
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
            why = f"{error.strerror} ({file})"
        message = f"the {what} of {source} cannot be used: {why}"
        raise errors.ConfigError(message, remedy="Give readable files in PEM format.") from None
    return context


def plain(url: str) -> str:
    """A URL without user and password."""
    scheme, mark, rest = url.rpartition("://")
    return scheme + mark + rest.rpartition("@")[2]


def address(url: str) -> str:
    """A server's URL with a scheme and without a trailing slash;
    raises ConfigError if it cannot be parsed.
    """
    url = url.strip().rstrip("/")
    url = url if "://" in url else f"https://{url}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise no_address(url)
    return url


def bypassed(url: str, no_proxy: str) -> bool:
    """Whether `no_proxy` (names, domains, addresses, networks or `*`,
    separated by commas) exempts a URL.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    for entry in (word.strip().lower() for word in no_proxy.split(",")):
        if not entry:
            continue
        if entry == "*":
            return True
        with suppress(ValueError):
            if address is not None and address in ipaddress.ip_network(entry, strict=False):
                return True
        name = entry.lstrip(".")
        if host == name or host.endswith("." + name) or parts.netloc.lower() == name:
            return True
    return False


def no_address(url: str) -> errors.ConfigError:
    """What to raise for an address that cannot be parsed."""
    message = f"the address {plain(url)!r} of the API server is not usable"
    return errors.ConfigError(message, remedy="Give a URL such as https://api.example.org:6443.")


# urllib3's pools (1.26 or 2), with connections that call a request's before_send before its
# first byte and note that.


class Attempt:
    """One request that this thread sends; inside `with` the connections below report to it.

    Attributes:
        sent: a byte of it may have left.
        refusal: what its `before_send` raised.
    """

    def __init__(self, before_send: Callable[[], None] | None) -> None:
        self._before_send = before_send
        self._connecting = False
        self._outer: Attempt | None = None
        self.sent = False
        self.refusal: BaseException | None = None

    def __enter__(self) -> Attempt:
        self._outer = getattr(_thread, "attempt", None)
        _thread.attempt = self
        return self

    def __exit__(self, *_unused: object) -> None:
        _thread.attempt = self._outer

    @contextmanager
    def connecting(self) -> Iterator[None]:
        """Bytes sent inside go to a proxy; they are not the request,
        and `before_send` is not called.
        """
        self._connecting = True
        try:
            yield
        finally:
            self._connecting = False

    def leave(self) -> None:
        """Called before each write; calls `before_send` before the first.
        It may send requests of its own.
        """
        if self.sent or self._connecting:
            return
        if self._before_send is not None:
            try:
                self._before_send()
            except BaseException as error:
                self.refusal = error
                raise
        self.sent = True


def manager(endpoint: Endpoint) -> Any:
    """urllib3's manager of the pools to one endpoint; raises ConfigError if its
    proxy cannot be used.
    """
    options: dict[str, Any] = {
        "maxsize": MAX_CONNECTIONS,
        "block": True,
        "socket_options": _socket_options(),
    }
    if endpoint.context is not None:
        verified = endpoint.context.verify_mode != ssl.CERT_NONE
        if urllib3.__version__.startswith("1."):
            # It gives OpenSSL no name if the host is an address, and checks the name itself.
            endpoint.context.check_hostname = False
        options["ssl_context"] = endpoint.context
        options["cert_reqs"] = "CERT_REQUIRED" if verified else "CERT_NONE"
        if endpoint.server_name:
            options["server_hostname"] = endpoint.server_name
        if endpoint.assert_hostname is not None:
            options["assert_hostname"] = endpoint.assert_hostname
    proxy = "" if bypassed(endpoint.base, endpoint.no_proxy) else endpoint.proxy
    if proxy.startswith("socks"):
        try:
            from urllib3.contrib.socks import SOCKSProxyManager
        except ImportError as error:
            message = f"the proxy {plain(proxy)} needs the Python package PySocks"
            raise errors.ConfigError(
                message, remedy="Install it beside the kubernetes package."
            ) from error
        made: Any = SOCKSProxyManager(proxy, **options)
    elif proxy:
        made = urllib3.ProxyManager(proxy, proxy_headers=endpoint.proxy_headers, **options)
    else:
        made = urllib3.PoolManager(**options)
    made.pool_classes_by_scheme = {
        scheme: _attentive(pool) for scheme, pool in made.pool_classes_by_scheme.items()
    }
    return made


def _attentive(pool: Any) -> Any:
    """The pool's class with connections that report to the thread's attempt.

    They count as verified even if the user has switched verification off, so that urllib3 does not
    warn: its warning filter would apply to the whole process.
    """

    class Connection(pool.ConnectionCls):
        def connect(self) -> None:
            with _thread.attempt.connecting():
                super().connect()
            self.is_verified = True

        def send(self, data: Any) -> None:
            if self.sock is None:
                self.connect()
            _thread.attempt.leave()
            super().send(data)

    return type(pool.__name__, (pool,), {"ConnectionCls": Connection})


def _socket_options() -> list[tuple[int, int, int]]:
    options = list(HTTPConnection.default_socket_options)
    for level, name, value in _KEEPALIVE:
        if hasattr(socket, name):  # not every system has all of them
            options.append((getattr(socket, level), getattr(socket, name), value))
    return options


class Transport:
    """A pool of connections to one endpoint, for up to MAX_CONNECTIONS requests and streams
    at once.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        try:
            self._manager = manager(endpoint)
        except (LocationValueError, ValueError):
            message = f"the proxy address {plain(endpoint.proxy)!r} is not usable"
            raise errors.ConfigError(
                message, remedy="Give a URL such as http://proxy.example.org:3128."
            ) from None

    def open(
        self,
        request: verbs.Request,
        headers: Mapping[str, str],
        *,
        read_timeout: float,
        connect_timeout: float,
        before_send: Callable[[], None] | None = None,
    ) -> Answer:
        """Sends, and returns once the status has arrived;
        `before_send` is called between connecting and the first byte.

        Raises:
            Unreachable: the request never left.
            Lost: it may have arrived.
            ConfigError: the server's certificate is not trusted, or the address is invalid.
            Whatever `before_send` raises.
        """
        url = self._endpoint.base + request.path
        if request.query:
            url += "?" + urlencode(request.query)
        body = None if request.body is None else json.dumps(request.body).encode()
        attempt = Attempt(before_send)
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
            raise no_address(self._endpoint.base) from None
        except (HTTPError, HTTPException, OSError) as error:
            if attempt.refusal is not None:
                raise attempt.refusal from None
            where = plain(self._endpoint.base)
            if _untrusted(error):
                raise errors.ConfigError(
                    f"the certificate of {where} is not trusted: {_words(error)}",
                    remedy=(
                        "Give the cluster's own certificate authority (ca_cert, or the kubeconfig "
                        "of this cluster), and the address for which its certificate was issued."
                    ),
                ) from error
            if attempt.sent:
                raise exchange.Lost(_words(error)) from error
            raise errors.Unreachable(f"{where}: {_words(error)}", request=request) from error
        return Answer(response)

    def close(self) -> None:
        """Closes idle connections; requests under way continue."""
        self._manager.clear()


class Answer:
    """A status, headers and an open body. One thread at a time reads `chunks`, any may `close`."""

    def __init__(self, response: Any) -> None:
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._lock = threading.Lock()
        self._reader: int | None = None
        self._done = False

    def chunks(self) -> Iterator[bytes]:
        """The body as it arrives; Lost if it is cut, or silent for the read timeout."""
        stream = self._response.stream(_CHUNK_BYTES, decode_content=True)
        try:
            while (chunk := self._next(stream)) is not None:
                yield chunk
        except (HTTPError, HTTPException, OSError, ValueError, AttributeError) as error:
            # ValueError and AttributeError: another thread has closed it.
            raise exchange.Lost(_words(error)) from error
        else:
            with self._lock:
                self._done = True
            self._response.release_conn()
        finally:
            self.close()

    def _next(self, stream: Iterator[bytes]) -> bytes | None:
        """What arrives next, None at the end. Who waits for it is noted: a list may be read by
        another thread than the watch that goes on with it.
        """
        with self._lock:
            if self._done:
                return None
            self._reader = threading.get_ident()
        try:
            return next(stream, None)
        finally:
            self._reader = None

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

    They are read through http.client's buffer, which may already hold those
    right after the headers.
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


def _untrusted(error: BaseException) -> bool:
    """Whether the certificate is the problem, so that a retry would not help.
    urllib3 1.26 checks host names itself.
    """
    return any(
        isinstance(link, ssl.SSLCertVerificationError)
        or type(link).__name__ == "CertificateError"
        or (isinstance(link, ssl.SSLError) and link.reason == "WRONG_VERSION_NUMBER")
        for link in _chain(error)
    )


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
