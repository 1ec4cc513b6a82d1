# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""urllib3's pools (1.26 or 2), with connections that call a request's fence before its first byte and note that."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import endpoints, errors

with suppress(ImportError):  # the `kubernetes` package brings it; connection.py reports both
    import urllib3
    from urllib3.connection import HTTPConnection

POOL = 128
# The kernel notices a peer that vanished after about 30 s, without a request.
_KEEPALIVE = (
    ("SOL_SOCKET", "SO_KEEPALIVE", 1),
    ("IPPROTO_TCP", "TCP_KEEPIDLE", 15),
    ("IPPROTO_TCP", "TCP_KEEPINTVL", 5),
    ("IPPROTO_TCP", "TCP_KEEPCNT", 3),
    ("IPPROTO_TCP", "TCP_USER_TIMEOUT", 30_000),
)
_thread = threading.local()


class Attempt:
    """One request that this thread sends; inside `with` the connections below report to it.

    Attributes:
        sent: a byte of it may have left.
        refusal: what its fence raised.
    """

    def __init__(self, fence: Callable[[], None] | None) -> None:
        self._fence = fence
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
        """Bytes sent inside go to a proxy; they are not the request, and the fence is not called."""
        self._connecting = True
        try:
            yield
        finally:
            self._connecting = False

    def leave(self) -> None:
        """Called before each write; calls the fence before the first. The fence may send requests of its own."""
        if self.sent or self._connecting:
            return
        if self._fence is not None:
            try:
                self._fence()
            except BaseException as error:
                self.refusal = error
                raise
        self.sent = True


def manager(endpoint: endpoints.Endpoint) -> Any:
    """urllib3's manager of the pools to one endpoint; raises ConfigError if its proxy cannot be used."""
    options: dict[str, Any] = {"maxsize": POOL, "block": True, "socket_options": _socket_options()}
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
    proxy = "" if endpoints.bypassed(endpoint.base, endpoint.no_proxy) else endpoint.proxy
    if proxy.startswith("socks"):
        try:
            from urllib3.contrib.socks import SOCKSProxyManager
        except ImportError as error:
            message = f"the proxy {endpoints.plain(proxy)} needs the Python package PySocks"
            raise errors.ConfigError(message, remedy="Install it beside the kubernetes package.") from error
        made: Any = SOCKSProxyManager(proxy, **options)
    elif proxy:
        made = urllib3.ProxyManager(proxy, proxy_headers=endpoint.proxy_headers, **options)
    else:
        made = urllib3.PoolManager(**options)
    made.pool_classes_by_scheme = {scheme: _attentive(pool) for scheme, pool in made.pool_classes_by_scheme.items()}
    return made


def _attentive(pool: Any) -> Any:
    """The pool's class with connections that report to the thread's attempt.

    They count as verified even if the user has switched verification off, so that urllib3 does not warn: its warning
    filter would apply to the whole process.
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
    known = [(level, name, value) for level, name, value in _KEEPALIVE if hasattr(socket, name)]
    keepalive = [(getattr(socket, level), getattr(socket, name), value) for level, name, value in known]
    return [*HTTPConnection.default_socket_options, *keepalive]
