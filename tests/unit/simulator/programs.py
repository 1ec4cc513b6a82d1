# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs in the pods' containers, as far as a cluster shows it: their ends, their logs, their ports."""

from __future__ import annotations

import io
import json
import struct
import typing as t

from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw


class Program:
    """Something that runs, says nothing and listens nowhere; a test gives its own to the server as `program`."""

    def start(self, pod: Raw) -> str:
        """Called when a pod's containers start; with last words they end at once, again and again."""
        del pod
        return ""

    def log(self, pod: Raw) -> str:
        """What its containers have written."""
        del pod
        return ""

    def page(self, pod: Raw) -> t.Any:
        """The JSON document that its port answers with; None where nobody listens."""
        del pod


class Forward:
    """The WebSocket of a forwarded port, as an API server opens it; the port answers whatever is asked."""

    def __init__(self, page: t.Any) -> None:
        opened = [_frame(channel, b"\0\0") for channel in (0, 1)]
        if page is None:
            told = _frame(1, b"an error occurred forwarding: connection refused")
        else:
            told = _frame(0, b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + json.dumps(page).encode())
        self._read = io.BytesIO(b"".join(opened) + told)

    def read(self, count: int) -> bytes:
        return self._read.read(count)

    def write(self, data: bytes) -> None:
        """There is one page only."""

    def close(self) -> None:
        """Nothing is open."""


def _frame(channel: int, payload: bytes) -> bytes:
    """A binary message of the server."""
    size = len(payload) + 1
    head = struct.pack("!BB", 0x82, size) if size < 126 else struct.pack("!BBH", 0x82, 126, size)
    return head + bytes([channel]) + payload
