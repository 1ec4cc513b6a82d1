# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A proxy between the transport and the fake API server."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Proxy:
    """A proxy that tunnels CONNECT; `asked` has the head of each request to it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _run(self) -> None:
        while True:
            try:
                client, _unused = self._server.accept()
            except OSError:
                return
            head = client.recv(65536).decode()
            self.asked.append(head)
            host, _unused, port = head.split()[1].rpartition(":")
            target = socket.create_connection((host, int(port)))
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self.join(client, target)

    @classmethod
    def join(cls, client: socket.socket, target: socket.socket) -> None:
        """Hands on what either says to the other, until one of them ends."""
        for one, other in ((client, target), (target, client)):
            threading.Thread(target=cls._pump, args=(one, other), daemon=True).start()

    @staticmethod
    def _pump(one: socket.socket, other: socket.socket) -> None:
        try:
            while piece := one.recv(65536):
                other.sendall(piece)
        except OSError:
            pass
        finally:
            one.close()
            other.close()
