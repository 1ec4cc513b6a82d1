# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real HTTP server on the loopback that answers by a script, and nothing else.

Each step answers one request. A request that no step is left for is an error of the test, as is a
step that nobody asked for.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

HERE = Path(__file__).resolve().parent
CERTS = HERE / "certs"
RECORDED: dict[str, Any] = json.loads((HERE / "recorded.json").read_text(encoding="utf-8"))

Cut = str
BEFORE: Cut = "before"  # the connection ends with no byte of an answer
INSIDE: Cut = "inside"  # it ends in the middle of the body
RESET: Cut = "reset"  # as before, but with a TCP reset
NO_WATCH_LISTS: dict[str, Any] = {
    "status": 422,
    "body": {"kind": "Status", "reason": "Invalid", "message": 'ListOptions.meta.k8s.io "" is invalid', "code": 422},
    "headers": {},
    "delay": 0.0,
    "cut": "",
    "events": None,
    "hold": False,
    "stays": False,
}
"""What a watch that is to begin with a list is answered where no step is for it."""


@dataclass
class Call:
    """A request as it arrived. `headers` has every value of a repeated header."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, list[str]]
    body: Any

    def header(self, name: str) -> str | None:
        values = self.headers.get(name.lower())
        return values[0] if values else None


@dataclass
class Step:
    """One expected request and what happens to it."""

    method: str
    path: str
    query: Mapping[str, str]
    matches: Callable[[Call], bool] | None
    status: int
    body: Any
    headers: Mapping[str, str]
    delay: float
    cut: Cut
    events: list[Any] | None
    hold: bool
    stays: bool
    used: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    extra: list[Any] = field(default_factory=list)
    finish: threading.Event = field(default_factory=threading.Event)

    def fits(self, call: Call) -> bool:
        return (
            self.method == call.method
            and self.path == call.path
            and all(call.query.get(key) == value for key, value in self.query.items())
            and (self.matches is None or self.matches(call))
        )

    def send(self, *events: Any) -> None:
        """More events on a watch that is held open."""
        self.extra += events


class Server(ThreadingHTTPServer):
    """Clients that hang up, or do not trust us, are part of the tests."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Api:
    """The server. `calls` are the requests so far, `strangers` those that no step was for.

    With `slow` a TLS handshake waits for so many seconds.
    """

    def __init__(
        self, *, certificate: str = "", client_ca: str = "", port: int = 0, start: bool = True, slow: float = 0.0
    ) -> None:
        self.steps: list[Step] = []
        self.calls: list[Call] = []
        self.strangers: list[Call] = []
        self.peers: list[Any] = []
        self.connections = 0
        self._slow = slow
        self._idle: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._scheme = "https" if certificate else "http"
        self._server = Server(("127.0.0.1", port), self._handler(), start)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTS / f"{certificate}.pem", CERTS / f"{certificate}.key")
            if client_ca:
                context.load_verify_locations(CERTS / f"{client_ca}.pem")
                context.verify_mode = ssl.CERT_REQUIRED
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def expect(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        matches: Callable[[Call], bool] | None = None,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        delay: float = 0.0,
        cut: Cut = "",
        events: Iterable[Any] | None = None,
        hold: bool = False,
        times: int = 1,
        stays: bool = False,
    ) -> Step:
        """Adds a step (the last of `times`): the first unused one that fits answers a request.

        Args:
            method: of the request.
            path: of the request, without its query.
            body: of the answer; str and bytes go out as they are.
            query: what the query has to hold at least.
            matches: a further condition.
            status: of the answer.
            headers: of the answer.
            delay: seconds before it.
            cut: BEFORE, INSIDE or RESET.
            events: answer with a stream of these, each a line; a float is a pause in seconds.
            hold: after the events wait for `Step.send` and `Step.finish`.
            times: how often.
            stays: answer all further requests that fit as well.
        """
        for _unused in range(times):
            step = Step(
                method,
                path,
                query or {},
                matches,
                status,
                {} if body is None else body,
                headers or {},
                delay,
                cut,
                None if events is None else list(events),
                hold,
                stays,
            )
            self.steps.append(step)
        return step

    def close(self) -> None:
        self._stop.set()
        self._server.shutdown()
        self._server.server_close()

    def drop_idle(self) -> None:
        """Closes the connections on which nothing is being answered, as a proxy does."""
        for connection in self._idle.copy():
            connection.shutdown(socket.SHUT_RDWR)

    def check(self) -> None:
        """Fails on strangers and on steps that are left."""
        strangers = [f"{call.method} {call.path} {call.query}" for call in self.strangers]
        assert not strangers, f"requests without a step: {strangers}"
        left = [f"{s.method} {s.path} {dict(s.query)}" for s in self.steps if not s.used.is_set()]
        assert not left, f"steps that were never asked for: {left}"

    def _take(self, call: Call) -> Step | None:
        with self._lock:
            for step in self.steps:
                if (step.stays or not step.used.is_set()) and step.fits(call):
                    step.used.set()
                    self.calls.append(call)
                    return step
            if "sendInitialEvents" in call.query:
                return Step("GET", call.path, {}, None, **NO_WATCH_LISTS)
            self.calls.append(call)
            self.strangers.append(call)
            return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                api.connections += 1
                if isinstance(self.request, ssl.SSLSocket):
                    api._stop.wait(api._slow)
                    self.request.do_handshake()
                    api.peers.append(self.request.getpeercert())
                super().setup()

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:
                    self.close_connection = True
                finally:
                    api._idle.discard(self.connection)

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def answer(self) -> None:
                parts = urlsplit(self.path)
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers: dict[str, list[str]] = {}
                for key, value in self.headers.items():
                    headers.setdefault(key.lower(), []).append(value)
                call = Call(
                    self.command,
                    parts.path,
                    dict(parse_qsl(parts.query)),
                    headers,
                    json.loads(raw) if raw else None,
                )
                step = api._take(call)
                api._idle.discard(self.connection)
                if step is None:
                    self.plain(599, {}, b"no step for this")
                    return
                try:
                    api._stop.wait(step.delay)
                    self.play(step)
                finally:
                    api._idle.add(self.connection)
                    step.ended.set()

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

            def play(self, step: Step) -> None:
                if step.cut in (BEFORE, RESET):
                    self.hang_up(step.cut)
                    return
                if step.events is not None:
                    self.stream(step)
                    return
                raw = step.body
                if not isinstance(raw, bytes):
                    raw = (raw if isinstance(raw, str) else json.dumps(raw)).encode()
                if step.cut == INSIDE:
                    self.plain(step.status, step.headers, raw[: len(raw) // 2], len(raw))
                    self.hang_up(step.cut)
                    return
                self.plain(step.status, step.headers, raw)

            def plain(self, status: int, headers: Mapping[str, str], raw: bytes, length: int = -1) -> None:
                self.send_response(status)
                for key, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(raw) if length < 0 else length))
                self.end_headers()
                self.wfile.write(raw)

            def stream(self, step: Step) -> None:
                self.send_response(step.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.flush()
                for event in step.events or ():
                    self.event(event)
                while step.hold and not step.finish.is_set() and not api._stop.is_set():
                    if self.gone():
                        self.close_connection = True
                        return
                    while step.extra:
                        self.event(step.extra.pop(0))
                    time.sleep(0.01)
                if step.cut == INSIDE:
                    self.hang_up(step.cut)
                    return
                self.wfile.write(b"0\r\n\r\n")

            def event(self, event: Any) -> None:
                if isinstance(event, float):
                    api._stop.wait(event)
                    return
                raw = event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
                self.wfile.flush()

            def gone(self) -> bool:
                """Whether the client has hung up: nothing else makes a held stream readable."""
                return bool(select.select([self.connection], [], [], 0)[0])

            def hang_up(self, how: Cut) -> None:
                self.close_connection = True
                if how == RESET:
                    linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                else:
                    self.connection.shutdown(socket.SHUT_RDWR)
                self.connection.close()

        return Handler


def listing(kind: str, *items: Mapping[str, Any], version: str = "10", token: str = "") -> dict[str, Any]:
    """A page of a list, with items as the API server sends them there: without kind."""
    metadata = {"resourceVersion": version, **({"continue": token} if token else {})}
    return {"kind": f"{kind}List", "apiVersion": "v1", "metadata": metadata, "items": list(items)}


def pod(name: str, version: str = "1", uid: str = "", namespace: str = "shop") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "resourceVersion": version,
        }
    }


def event(what: str, obj: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": what, "object": {"apiVersion": "v1", "kind": "Pod", **obj}}


def bookmark(version: str) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": version}}}


def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Waits for something that another thread does; fails after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)
