# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A page through a port-forward, against a server that speaks the WebSocket byte by byte."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.connection import ConnectionOptions, connect
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.errors import (
    Forbidden,
    ServerError,
    Unreachable,
)

SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
OPENED = [b"\x00\x0b\x28", b"\x01\x0b\x28"]
"""Port 10251 on the data and on the error channel."""
CONFIG = {"componentconfig": {"DryRun": False, "Names": ["x" * 70_000]}}


def frame(payload: bytes, code: int = 2) -> bytes:
    size = len(payload)
    if size < 126:
        return bytes([0x80 | code, size]) + payload
    if size < 1 << 16:
        return bytes([0x80 | code, 126]) + struct.pack("!H", size) + payload
    return bytes([0x80 | code, 127]) + struct.pack("!Q", size) + payload


def page(document: object, status: str = "200 OK") -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Type: application/json\r\n\r\n{json.dumps(document)}".encode()


@dataclass
class Server:
    """Answers one connection with what it is told to say, and keeps what it was asked."""

    says: list[bytes] = field(default_factory=list)
    head: bytes = SWITCH
    drips: bytes = b""
    stays: bool = False
    asked: bytes = b""
    told: bytes = b""
    over: threading.Event = field(default_factory=threading.Event)

    def serve(self, listener: socket.socket) -> None:
        connection, _address = listener.accept()
        with connection:
            while b"\r\n\r\n" not in self.asked:
                self.asked += connection.recv(4096)
            # The first frames come right behind the headers, as they may from a real server.
            connection.sendall(self.head + b"".join(self.says[:1]))
            self.told = self.unmasked(connection.recv(4096)) if self.head == SWITCH else b""
            connection.sendall(b"".join(self.says[1:]))
            for byte in self.drips:
                connection.sendall(bytes([byte]))
                if self.over.wait(0.1):
                    break
            if self.stays:
                self.over.wait(5)

    def unmasked(self, data: bytes) -> bytes:
        size = data[1] & 0x7F
        mask, payload = data[2:6], data[6 : 6 + size]
        assert data[1] & 0x80, "a client masks"
        return bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))


Served = Callable[[Server], object]


@pytest.fixture
def served() -> Iterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def fetch(server: Server) -> object:
            thread = threading.Thread(target=server.serve, args=(listener,), daemon=True)
            thread.start()
            options = ConnectionOptions(host=f"http://127.0.0.1:{listener.getsockname()[1]}", api_key="t0ken")
            cluster = connect(options, user_agent="kubeops/test")
            try:
                return cluster.page(verbs.port_forward("kube-system", "web", 10251), "/configz", timeout=2)
            finally:
                server.over.set()
                cluster.close()
                thread.join(5)

        yield fetch


def test_a_page_comes_through_in_pieces(served: Served) -> None:
    whole = page(CONFIG)
    server = Server([*map(frame, OPENED), frame(b"hi", 9), frame(b"\0" + whole[:60]), frame(b"\0" + whole[60:])])
    server.stays = True
    assert served(server) == CONFIG
    assert server.asked.startswith(b"GET /api/v1/namespaces/kube-system/pods/web/portforward?ports=10251 HTTP/1.1")
    for header in (b"Authorization: Bearer t0ken", b"User-Agent: kubeops/test", b"v4.channel.k8s.io"):
        assert header in server.asked
    assert server.told.startswith(b"\0GET /configz HTTP/1.0\r\n")


@pytest.mark.parametrize(
    ("says", "error", "words"),
    [
        ([*OPENED, b"\x01dial tcp 127.0.0.1:10251: connection refused"], Unreachable, "connection refused"),
        ([*OPENED, b"\0" + page({}, "404 Not Found")], ServerError, "answered 404"),
        ([*OPENED, b"\0" + page(CONFIG)[:100]], ServerError, "not JSON"),
        (OPENED, Unreachable, "without an answer"),
    ],
)
def test_what_goes_wrong_at_the_port(says: list[bytes], error: type[Exception], words: str, served: Served) -> None:
    with pytest.raises(error, match=words):
        served(Server([*map(frame, says), frame(b"", 8)]))


def test_a_silent_port_is_not_waited_for(served: Served) -> None:
    with pytest.raises(Unreachable):
        served(Server([*map(frame, OPENED)], stays=True))


def test_a_port_that_drips_is_not_waited_for(served: Served) -> None:
    began = time.monotonic()
    with pytest.raises(Unreachable, match="no answer in time"):
        served(Server([*map(frame, OPENED)], drips=frame(b"\0" + page(CONFIG))[:100]))
    assert time.monotonic() - began < 4.0


def test_a_refusal_of_the_api_server_is_told(served: Served) -> None:
    body = json.dumps({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no pods/portforward"})
    head = f"HTTP/1.1 403 Forbidden\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    with pytest.raises(Forbidden, match="no pods/portforward"):
        served(Server(head=head))
