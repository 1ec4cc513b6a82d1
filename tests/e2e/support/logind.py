# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a kubelet needs of systemd-logind for GracefulNodeShutdown: python logind.py SOCKET.

It plays the system bus and logind on it, for one kubelet: who inhibits a shutdown gets a file, and may go on until it
closes that. SIGUSR1 says that the node is about to shut down; `SOCKET.released` appears once nobody inhibits it.
The messages are those of the D-Bus specification, in its little-endian form.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import threading
from pathlib import Path

DELAY = 60_000_000
"""Microseconds for which a shutdown may be inhibited at most (InhibitDelayMaxUSec)."""
REPLY, SIGNAL = 2, 4
PATH, INTERFACE, MEMBER, REPLY_SERIAL, SIGNATURE, UNIX_FDS = 1, 2, 3, 5, 8, 9
LOGIND = "/org/freedesktop/login1"


def text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode() + b"\0"


def padded(data: bytes, to: int) -> bytes:
    return data + b"\0" * (-len(data) % to)


def field(code: int, kind: str, value: bytes) -> bytes:
    """A field of a header, which begins where eight bytes begin."""
    return struct.pack("<BB2s", code, 1, kind.encode() + b"\0") + value


def message(kind: int, serial: int, fields: list[bytes], signature: str = "", body: bytes = b"") -> bytes:
    if signature:
        fields = [*fields, field(SIGNATURE, "g", struct.pack("<B", len(signature)) + signature.encode() + b"\0")]
    array = b"".join(padded(one, 8) for one in fields[:-1]) + fields[-1]
    head = struct.pack("<cBBBIII", b"l", kind, 0, 1, len(body), serial, len(array)) + array
    return padded(head, 8) + body


class Bus:
    """One connection, from its beginning."""

    def __init__(self, connection: socket.socket, released: Path) -> None:
        self._connection = connection
        self._released = released
        self._stream = connection.makefile("rb")
        self._serial = 0

    def serve(self) -> None:
        self._authenticate()
        while head := self._stream.read(16):
            _endian, _kind, flags, _version, length, serial, fields = struct.unpack("<cBBBIII", head)
            rest = self._stream.read(fields + -fields % 8 + length)
            if not flags & 1:
                self._answer(serial, rest)

    def _authenticate(self) -> None:
        self._stream.read(1)
        while (line := self._stream.readline().strip()) != b"BEGIN":
            words = line.split()
            if words == [b"NEGOTIATE_UNIX_FD"]:
                self._connection.sendall(b"AGREE_UNIX_FD\r\n")
            elif words == [b"AUTH"]:
                self._connection.sendall(b"REJECTED EXTERNAL\r\n")
            else:
                self._connection.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")

    def _answer(self, serial: int, asked: bytes) -> None:
        fields = [field(REPLY_SERIAL, "u", struct.pack("<I", serial))]
        if b"\0Inhibit\0" in asked:
            theirs, ours = os.pipe()
            threading.Thread(target=self._wait, args=(theirs,), daemon=True).start()
            fields.append(field(UNIX_FDS, "u", struct.pack("<I", 1)))
            self._send(REPLY, fields, "h", struct.pack("<I", 0), ours)
            os.close(ours)
        elif b"InhibitDelayMaxUSec\0" in asked:
            self._send(REPLY, fields, "v", padded(b"\1t\0", 8) + struct.pack("<Q", DELAY))
        elif b"\0Hello\0" in asked:
            self._send(REPLY, fields, "s", text(":1.1"))
        else:
            self._send(REPLY, fields)

    def _send(self, kind: int, fields: list[bytes], signature: str = "", body: bytes = b"", *files: int) -> None:
        self._serial += 1
        socket.send_fds(self._connection, [message(kind, self._serial, fields, signature, body)], files)

    def _wait(self, theirs: int) -> None:
        os.read(theirs, 1)
        self._released.touch()

    def announce(self) -> None:
        fields = [
            field(PATH, "o", text(LOGIND)),
            field(INTERFACE, "s", text("org.freedesktop.login1.Manager")),
            field(MEMBER, "s", text("PrepareForShutdown")),
        ]
        self._send(SIGNAL, fields, "b", struct.pack("<I", 1))


def main() -> None:
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    all_of_them: list[Bus] = []

    def announce(*_unused: object) -> None:
        for bus in all_of_them:
            bus.announce()

    signal.signal(signal.SIGUSR1, announce)
    while True:
        bus = Bus(listener.accept()[0], path.with_name(f"{path.name}.released"))
        all_of_them.append(bus)
        threading.Thread(target=bus.serve, daemon=True).start()


if __name__ == "__main__":
    main()
