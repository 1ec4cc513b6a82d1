# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A TLS proxy on the loopback between the collection and an API server, which may do something to any request.

It ends the client's TLS with a certificate of its own, counts each request and asks `decide` what becomes of it.
A bearer token goes through, so that the server knows the client by it; a kubeconfig with a client certificate is
used on the client's behalf. Watches are streamed: their beginning counts as one request, their events do not count.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml
from witness.api import target_of

CERTS = Path(__file__).resolve().parents[1] / "unit" / "kube" / "certs"
PATIENCE = 120.0
"""Seconds for one answer of the API server; a watch may be silent for as long as it lasts."""
LOOK = 0.1
"""Seconds between two looks for clients that hung up in the middle of a watch."""
HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length", "host")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its number among all (from 1), among the writes (0 for a read), and among those of its kind.

    `path` has the query.
    """

    number: int
    write: int
    method: str
    path: str
    same: int = 1

    @property
    def kind(self) -> str:
        """Its method and the last word of its place that is no name: patch-nodes, post-eviction."""
        return kind_of(self.method, self.path)

    @property
    def watches(self) -> bool:
        return "watch=true" in self.path or "watch=1" in self.path

    def __str__(self) -> str:
        return f"{self.method} {self.path.partition('?')[0]}{' (watch)' * self.watches}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that the API server knows nothing of."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)


def nothing() -> None:
    """What is done to most requests."""


@dataclass(frozen=True, slots=True)
class Act:
    """What becomes of one request.

    `before` is called before it is handed on, `after` once the answer is there; `instead` is answered without
    handing it on. With `lost` the client's connection ends without a byte of the answer; without `forward` the API
    server never hears of the request, so it is lost too.
    """

    before: Callable[[], None] = nothing
    after: Callable[[], None] = nothing
    instead: Refusal | None = None
    forward: bool = True
    lost: bool = False


PASS_ON = Act()
Decide = Callable[[Asked], Act]


def kind_of(method: str, path: str) -> str:
    """As `Asked.kind`."""
    words = path.partition("?")[0].strip("/").split("/")
    words = words[2:] if words[0] == "api" else words[3:]
    if words[:1] == ["namespaces"] and len(words) > 2:
        words = words[2:]
    return f"{method.lower()}-{([''] + words[::2])[-1] or 'other'}"


def is_write(method: str, path: str) -> bool:
    """Whether it changes the cluster if accepted; access reviews and dry runs only ask."""
    place, _unused, query = path.partition("?")
    asks = place.rpartition("/")[2] in ("selfsubjectaccessreviews", "selfsubjectreviews", "selfsubjectrulesreviews")
    return method not in ("GET", "HEAD", "OPTIONS") and not asks and "dryRun=All" not in query


class Server(ThreadingHTTPServer):
    """Clients that are killed hang up in the middle of everything: nothing to tell of."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), (OSError, http.client.HTTPException)):
            super().handle_error(request, client_address)


class Proxy:
    """`with Proxy(kubeconfig) as proxy:`; `asked` are the requests so far, `decide` may be set at any time."""

    def __init__(self, kubeconfig: Path, decide: Decide = lambda asked: PASS_ON) -> None:
        self.decide = decide
        self.asked: list[Asked] = []
        self._target = target_of(kubeconfig)
        self._lock = threading.Lock()
        self._streams: dict[socket.socket, socket.socket] = {}
        self._over = threading.Event()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTS / "server.pem", CERTS / "server.key")
        self._server = Server(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._threads = [
            threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True),
            threading.Thread(target=self._look_after_streams, daemon=True),
        ]

    def __enter__(self) -> Proxy:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self.cut_streams()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    @property
    def writes(self) -> int:
        return sum(asked.write > 0 for asked in self.asked)

    def kubeconfig(self, path: Path) -> Path:
        """Writes a kubeconfig by which a client comes through here, as the same user; returns its path."""
        user = {"token": self._target.token} if self._target.token else {}
        cluster = {"server": self.url, "certificate-authority": str(CERTS / "ca.pem")}
        made = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": cluster}],
            "users": [{"name": "proxy", "user": user}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
            "current-context": "proxy",
        }
        path.write_text(yaml.safe_dump(made), encoding="utf-8")
        return path

    def cut_streams(self) -> None:
        """Ends all watches that are open, on both sides, without a word."""
        for pair in list(self._streams.items()):
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _look_after_streams(self) -> None:
        """Ends the server's side of a watch whose client hung up: a client says nothing else meanwhile."""
        while not self._over.wait(LOOK):
            known = dict(self._streams)
            with contextlib.suppress(OSError, ValueError):
                for client in select.select(list(known), [], [], 0)[0]:
                    with contextlib.suppress(OSError):
                        known[client].shutdown(socket.SHUT_RDWR)

    def _count(self, method: str, path: str) -> Asked:
        with self._lock:
            write = self.writes + 1 if is_write(method, path) else 0
            same = sum(each.kind == kind_of(method, path) for each in self.asked) + 1
            asked = Asked(len(self.asked) + 1, write, method, path, same)
            self.asked.append(asked)
            return asked

    def _connect(self) -> http.client.HTTPConnection:
        target = self._target
        if target.tls is not None:
            return http.client.HTTPSConnection(target.host, target.port, timeout=PATIENCE, context=target.tls)
        return http.client.HTTPConnection(target.host, target.port, timeout=PATIENCE)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            upstream: http.client.HTTPConnection | None = None

            def setup(self) -> None:
                if isinstance(self.request, ssl.SSLSocket):
                    self.request.do_handshake()
                super().setup()

            def handle(self) -> None:
                try:
                    super().handle()
                finally:
                    if self.upstream is not None:
                        self.upstream.close()

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: the requests are in `asked`."""

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                asked = proxy._count(self.command, self.path)
                act = proxy.decide(asked)
                act.before()
                if act.instead is not None:
                    self.refuse(act.instead)
                    return
                if not act.forward:
                    self.hang_up()
                    return
                answer = self.forward(body)
                raw = b"" if asked.watches and answer.status == 200 else answer.read()
                act.after()
                if act.lost:
                    self.hang_up()
                elif asked.watches and answer.status == 200:
                    self.stream(answer)
                else:
                    self.head(answer, ("Content-Length", str(len(raw))))
                    self.wfile.write(raw)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = pass_on  # noqa: N815

            def forward(self, body: bytes) -> http.client.HTTPResponse:
                headers = {key: value for key, value in self.headers.items() if key.lower() not in HOP_BY_HOP}
                while True:
                    fresh = self.upstream is None
                    upstream = self.upstream = self.upstream or proxy._connect()
                    try:
                        upstream.request(self.command, self.path, body=body or None, headers=headers)
                        return upstream.getresponse()
                    except (OSError, http.client.HTTPException):
                        # A kept connection may have been closed by the server while it was idle.
                        upstream.close()
                        self.upstream = None
                        if fresh:
                            raise

            def head(self, answer: http.client.HTTPResponse, length: tuple[str, str]) -> None:
                self.send_response_only(answer.status, answer.reason)
                for key, value in answer.getheaders():
                    if key.lower() not in HOP_BY_HOP:
                        self.send_header(key, value)
                self.send_header(*length)
                self.end_headers()

            def refuse(self, refusal: Refusal) -> None:
                self.send_response_only(refusal.status)
                self.send_header("Date", self.date_time_string())
                for key, value in (*refusal.headers, ("Content-Length", str(len(refusal.body)))):
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(refusal.body)

            def stream(self, answer: http.client.HTTPResponse) -> None:
                upstream = self.upstream
                if upstream is None or upstream.sock is None:
                    self.hang_up()
                    return
                upstream.sock.settimeout(None)
                proxy._streams[self.connection] = upstream.sock
                try:
                    self.head(answer, ("Transfer-Encoding", "chunked"))
                    while part := answer.read1(65536):
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                    self.wfile.write(b"0\r\n\r\n")
                except (OSError, http.client.HTTPException):
                    self.hang_up()
                finally:
                    proxy._streams.pop(self.connection, None)
                    answer.close()
                    upstream.close()
                    self.upstream = None

            def hang_up(self) -> None:
                self.close_connection = True
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)

        return Handler


def status(code: int, reason: str, message: str, retry_after: int | None = None) -> Refusal:
    """A refusal as the API server words it; `retry_after` in seconds, as a header and in the details."""
    known: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    body = {**known, "message": message, "reason": reason, "code": code}
    headers = [("Content-Type", "application/json")]
    if retry_after is not None:
        body["details"] = {"retryAfterSeconds": retry_after}
        headers.append(("Retry-After", str(retry_after)))
    return Refusal(code, json.dumps(body).encode(), tuple(headers))
