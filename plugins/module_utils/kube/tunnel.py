# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""One HTTP request to a port of a pod, through the API server (`kubectl
port-forward` for a single page).

The forward is a WebSocket (RFC 6455) with the subprotocol `v4.channel.k8s.io`: each message begins
with the number of its channel, 0 for the port's bytes and 1 for an error, and the first message of
each channel only repeats the port. The forward of the `kubernetes` package lacks impersonation, our
user agent and a deadline.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Callable
from typing import Any, Protocol

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, verbs

PROTOCOL = "v4.channel.k8s.io"
_MAX_BYTES = 16 * 1024 * 1024
_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10
_DATA, _ERROR = 0, 1


class Wire(Protocol):
    """The connection after the API server has switched protocols."""

    def read(self, count: int) -> bytes:
        """At most `count` bytes, as they arrive; none at the end."""

    def write(self, data: bytes) -> None:
        """Writes all of it."""

    def close(self) -> None:
        """Closes the connection."""


def upgrade_headers() -> dict[str, str]:
    """The headers that request the WebSocket."""
    return {
        "Accept": "*/*",  # some kubelets' servers answer a forward that accepts only JSON with 406
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Protocol": PROTOCOL,
    }


def fetch(wire: Wire, path: str, *, request: verbs.Request, late: Callable[[], bool]) -> Any:
    """The JSON document at `path` of the forwarded port. HTTP/1.0 keeps it in one piece.

    Raises Unreachable if nothing listens there, the forward broke, or it is `late`; ServerError if
    the answer is not the document.
    """
    asked = f"GET {path} HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n"
    try:
        wire.write(_frame(_BINARY, bytes([_DATA]) + asked.encode()))
        return _answer(wire, request, late)
    except OSError as error:
        raise errors.Unreachable(f"the forward broke: {error}", request=request) from error
    finally:
        wire.close()


def _answer(wire: Wire, request: verbs.Request, late: Callable[[], bool]) -> Any:
    got, opened = b"", set[int]()
    while not late() and len(got) < _MAX_BYTES:
        code, payload = _read_frame(lambda count: _exactly(wire, count, late))
        if code == _PING:
            wire.write(_frame(_PONG, payload))
        if code in (None, _CLOSE):
            return _document(got, request, ended=True)
        if code != _BINARY or not payload:
            continue
        channel, payload = payload[0], payload[1:]
        if channel not in opened:
            opened.add(channel)
        elif channel == _ERROR:
            words = payload.decode("utf-8", "replace").strip()
            raise errors.Unreachable(f"the port cannot be reached: {words}", request=request)
        else:
            got += payload
            found = _document(got, request, ended=False)
            if found is not None:
                return found
    raise errors.Unreachable("no answer in time", request=request)


def _document(got: bytes, request: verbs.Request, *, ended: bool) -> Any:
    """The document; None while more of it may come."""
    head, blank, body = got.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if ended and len(words) < 2:
        raise errors.Unreachable(
            "the port closed the connection without an answer", request=request
        )
    if len(words) > 1 and words[1] != b"200" and (blank or ended):
        raise errors.ServerError(
            f"the port answered {words[1].decode('ascii', 'replace')}", request=request
        )
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        if ended:
            raise errors.ServerError("the port's answer is not JSON", request=request) from None
        return None


def _frame(code: int, payload: bytes) -> bytes:
    """A whole message of a client, masked as RFC 6455 requires."""
    size = len(payload)
    mask = os.urandom(4)
    length = struct.pack("!B", 0x80 | size) if size < 126 else struct.pack("!BH", 0x80 | 126, size)
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    return bytes([0x80 | code]) + length + mask + masked


def _exactly(wire: Wire, count: int, late: Callable[[], bool]) -> bytes:
    """`count` bytes, fewer at the end; raises OSError if they trickle in for too long."""
    got = b""
    while len(got) < count and (piece := wire.read(count - len(got))):
        got += piece
        if late():
            raise OSError("no answer in time")
    return got


def _read_frame(read: Callable[[int], bytes]) -> tuple[int | None, bytes]:
    """Code and payload of the next frame; no code at the end. Servers neither mask nor,
    here, split messages.
    """
    head = read(2)
    if len(head) < 2:
        return None, b""
    size = head[1] & 0x7F
    if size == 126:
        (size,) = struct.unpack("!H", read(2).rjust(2, b"\0"))
    elif size == 127:
        (size,) = struct.unpack("!Q", read(8).rjust(8, b"\0"))
    if size > _MAX_BYTES:
        raise OSError("a frame is too large")
    return (head[0] & 0x0F) or _BINARY, read(size)
