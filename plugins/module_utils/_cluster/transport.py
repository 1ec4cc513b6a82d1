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
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode, urlsplit

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.client import Lost
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import (
    ConfigError,
    Unreachable,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request

with suppress(ImportError):  # the `kubernetes` package brings it; connection.py reports both
    import urllib3
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.exceptions import EmptyPoolError, HTTPError, LocationParseError, LocationValueError

POOL = 32
_CHUNK = 1 << 18
# A peer that vanished is noticed by the kernel after about 30 s, without a request.
_KEEPALIVE = (
    ("SOL_SOCKET", "SO_KEEPALIVE", 1),
    ("IPPROTO_TCP", "TCP_KEEPIDLE", 15),
    ("IPPROTO_TCP", "TCP_KEEPINTVL", 5),
    ("IPPROTO_TCP", "TCP_KEEPCNT", 3),
    ("IPPROTO_TCP", "TCP_USER_TIMEOUT", 30_000),
)
_wire = threading.local()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to send and how to prove it is the right place.

    `base` may have a path (`https://rancher/k8s/clusters/c-1`); `context` is None for plain HTTP;
    `server_name` is the name to ask and check the certificate for, where it is not the host's.
    """

    base: str
    context: ssl.SSLContext | None = None
    server_name: str = ""
    assert_hostname: bool | str | None = None
    proxy: str = ""
    no_proxy: str = ""
    proxy_headers: Mapping[str, str] | None = None


class Transport:
    """A pool of connections to one endpoint, for up to 32 requests and streams at once."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        try:
            self._manager = _manager(endpoint)
        except (LocationValueError, ValueError):
            raise ConfigError(
                f"the proxy address {plain(endpoint.proxy)!r} is not usable",
                remedy="Give a URL such as http://proxy.example.org:3128.",
            ) from None

    def open(
        self,
        request: Request,
        headers: Mapping[str, str],
        *,
        read_timeout: float,
        connect_timeout: float,
        fence: Callable[[], None] | None = None,
    ) -> Answer:
        """Sends and returns when the status is there; `fence` is called between connecting and the first byte.

        Raises:
            Unreachable: the request never left.
            Lost: it may have arrived.
            ConfigError: the server's certificate is not trusted, or the address is none.
        """
        url = self._endpoint.base + request.path
        if request.query:
            url += "?" + urlencode(request.query)
        body = None if request.body is None else json.dumps(request.body).encode()
        _wire.sent, _wire.fence = True, fence
        try:
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
            raise Unreachable("all connections are in use", request=request) from error
        except (LocationParseError, LocationValueError):
            raise _no_address(self._endpoint.base) from None
        except (HTTPError, HTTPException, OSError) as error:
            if _untrusted(error):
                raise self._distrust(error) from error
            if _wire.sent:
                raise Lost(_words(error)) from error
            where = plain(self._endpoint.base)
            raise Unreachable(f"{where}: {_words(error)}", request=request) from error
        return Answer(response)

    def close(self) -> None:
        """Closes idle connections; requests under way go on."""
        self._manager.clear()

    def _distrust(self, error: BaseException) -> ConfigError:
        return ConfigError(
            f"the certificate of {plain(self._endpoint.base)} is not trusted: {_words(error)}",
            remedy="Give the cluster's own certificate authority (ca_cert, or the kubeconfig of "
            "this cluster), and the address under which its certificate is issued.",
        )


class Answer:
    """A status, headers and an open body. One thread reads `chunks`, any may `close`."""

    def __init__(self, response: Any) -> None:
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._lock = threading.Lock()
        self._reader: int | None = None
        self._done = False

    def chunks(self) -> Iterator[bytes]:
        """The body as it arrives; Lost when it is cut or silent for the read timeout."""
        with self._lock:
            if self._done:
                return
            self._reader = threading.get_ident()
        try:
            yield from self._response.stream(_CHUNK, decode_content=True)
        except (HTTPError, HTTPException, OSError, ValueError, AttributeError) as error:
            # ValueError and AttributeError: read after another thread has closed it.
            raise Lost(_words(error)) from error
        else:
            with self._lock:
                self._done = True
            self._response.release_conn()
        finally:
            self._reader = None
            self.close()

    def close(self) -> None:
        """Ends the answer; a reader in another thread sees its end or Lost at once."""
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
        """The bare connection behind a 101; the answer is over with it."""
        return Wire(self._response)

    def _cut(self) -> None:
        """Wakes the reader: closing the file alone would leave it waiting for bytes."""
        try:
            connection = self._response.connection
            if connection is not None and connection.sock is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)
            else:
                self._response.shutdown()  # urllib3 >= 2.3, after `Connection: close`
        except (OSError, AttributeError, ValueError, RuntimeError):
            pass


class Wire:
    """The bytes of a connection whose protocol was switched.

    They are read through http.client's buffer: it may hold what came right behind the headers.
    """

    def __init__(self, response: Any) -> None:
        self._response = response
        self._file = response._fp.fp

    def read(self, count: int) -> bytes:
        try:
            return bytes(self._file.read(count))
        except ValueError as error:  # closed
            raise OSError(str(error)) from error

    def write(self, data: bytes) -> None:
        self._response.connection.sock.sendall(data)

    def close(self) -> None:
        with suppress(OSError):
            self._response.close()
        self._response.release_conn()  # the closed connection's place in the pool


def tls_context(
    verify: bool, *, ca_cert: str = "", client_cert: str = "", client_key: str = "", source: str
) -> ssl.SSLContext:
    """One context for all connections, as strict as kubectl's.

    OpenSSL's X.509 extras that Python 3.13 switches on refuse the authorities of many clusters, and
    any given certificate may be the anchor. All arguments but the first are paths of PEM files.

    Raises:
        ConfigError: a file that cannot be used; `source` says whose.
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
        why = "not PEM, or a key of another certificate, or one with a password"
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
            why = f"{error.strerror} ({file})"
        raise ConfigError(
            f"the {what} of {source} cannot be used: {why}",
            remedy="Give readable files in PEM format.",
        ) from None
    return context


def plain(url: str) -> str:
    """A URL without user and password."""
    scheme, mark, rest = url.rpartition("://")
    return scheme + mark + rest.rpartition("@")[2]


def address(url: str) -> str:
    """A server's URL as it is used: with a scheme, without a slash at its end.

    Raises:
        ConfigError: it is none.
    """
    url = url.strip().rstrip("/")
    url = url if "://" in url else f"https://{url}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise _no_address(url)
    return url


def bypassed(url: str, no_proxy: str) -> bool:
    """Whether `no_proxy` (names, domains, addresses, networks, `*`; commas between) exempts a URL."""
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
        if address is not None:
            try:
                if address in ipaddress.ip_network(entry, strict=False):
                    return True
            except ValueError:
                pass
        name = entry.lstrip(".")
        if host == name or host.endswith("." + name) or parts.netloc.lower() == name:
            return True
    return False


def _no_address(url: str) -> ConfigError:
    return ConfigError(
        f"the address {plain(url)!r} of the API server is not usable",
        remedy="Give a URL such as https://api.example.org:6443.",
    )


def _manager(endpoint: Endpoint) -> Any:
    options: dict[str, Any] = {
        "maxsize": POOL,
        "block": True,
        "socket_options": _socket_options(),
    }
    if endpoint.context is not None:
        verified = endpoint.context.verify_mode != ssl.CERT_NONE
        if urllib3.__version__.startswith("1."):
            # It gives OpenSSL no name where the host is an address, and checks the name itself.
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
            raise ConfigError(
                f"the proxy {plain(proxy)} needs the Python package PySocks",
                remedy="Install it beside the kubernetes package.",
            ) from error
        return SOCKSProxyManager(proxy, **options)
    if proxy:
        manager = urllib3.ProxyManager(proxy, proxy_headers=endpoint.proxy_headers, **options)
    else:
        manager = urllib3.PoolManager(**options)
    manager.pool_classes_by_scheme = _pool_classes()
    return manager


def _send(send: Callable[[Any], None], connection: Any, data: Any) -> None:
    """What goes to a proxy while connecting is none of the fence's business: `sent` is False then."""
    if connection.sock is None:
        connection.connect()
    if _wire.sent:
        _pass_fence()
    send(data)


def _pass_fence() -> None:
    """Ask the request's fence once; it may send requests of its own from this very thread."""
    fence, _wire.fence = _wire.fence, None
    if fence is not None:
        fence()
        _wire.sent = True


def _pool_classes() -> dict[str, Any]:
    """Pools whose connections note the moment from which a request may have left, and ask its fence before.

    A connection with verification switched off by the user counts as verified, so that urllib3 does
    not warn: its warning filter is one for the whole process.
    """

    class Plain(HTTPConnection):
        def connect(self) -> None:
            _wire.sent = False
            super().connect()
            _wire.sent = True

        def send(self, data: Any) -> None:
            _send(super().send, self, data)

    class Secure(HTTPSConnection):
        def connect(self) -> None:
            _wire.sent = False
            super().connect()
            self.is_verified = True
            _wire.sent = True

        def send(self, data: Any) -> None:
            _send(super().send, self, data)

    class PlainPool(urllib3.HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(urllib3.HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def _socket_options() -> list[tuple[int, int, int]]:
    options: list[tuple[int, int, int]] = list(HTTPConnection.default_socket_options)
    for level, name, value in _KEEPALIVE:
        if hasattr(socket, name):
            options.append((getattr(socket, level), getattr(socket, name), value))
    return options


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was made of: arguments, `reason`, causes; innermost last."""
    seen: set[int] = set()
    queue: list[Any] = [error]
    while queue:
        link = queue.pop(0)
        if isinstance(link, BaseException) and id(link) not in seen:
            seen.add(id(link))
            yield link
            queue += [getattr(link, "reason", None), *link.args, link.__cause__, link.__context__]


def _untrusted(error: BaseException) -> bool:
    """Certificate trouble: trying again would not help. urllib3 1.26 has its own host name check."""
    return any(
        isinstance(link, ssl.SSLCertVerificationError)
        or type(link).__name__ == "CertificateError"
        or (isinstance(link, ssl.SSLError) and link.reason == "WRONG_VERSION_NUMBER")
        for link in _chain(error)
    )


def _words(error: BaseException) -> str:
    """What happened in the fewest true words; urllib3's own texts hold reprs of objects."""
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
