# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An API server of a synthetic cluster: lists in pages, which may be narrowed to a node; nothing can be written.

python -m bench.synthetic_server 2000      # prints its address, serves until its input ends
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from bench.synthetic import Raw, Synthetic


class Handler(BaseHTTPRequestHandler):
    """Answers as an API server does, to one that only reads."""

    protocol_version = "HTTP/1.1"
    cluster: Synthetic

    def do_GET(self) -> None:
        """A list, in pages if it has a limit."""
        address = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        if address.path == "/version":
            self.answer(200, b'{"gitVersion": "v1.36.3"}')
        elif address.path in self.cluster.kinds:
            self.answer(200, self.page(address.path, query))
        elif "/namespaces/" in address.path and address.path.endswith("/leases"):
            self.answer(200, b'{"metadata": {"resourceVersion": "1000"}, "items": []}')
        else:
            status = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"}
            self.answer(404, json.dumps(status).encode())

    def do_POST(self) -> None:
        """Reviews of access are answered with yes."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(201, json.dumps({**body, "status": {"allowed": True}}).encode())

    def page(self, path: str, query: Mapping[str, str]) -> bytes:
        kind, _count, made = self.cluster.kinds[path]
        numbers = self.cluster.numbers(path, query.get("fieldSelector", ""))
        start = int(query.get("continue", 0))
        end = min(len(numbers), start + (int(query.get("limit", 0)) or len(numbers)))
        body: Raw = {"kind": f"{kind}List", "metadata": {"resourceVersion": "1000"}}
        if end < len(numbers):
            body["metadata"]["continue"] = str(end)
        body["items"] = [made(number) for number in numbers[start:end]]
        return json.dumps(body).encode()

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_args: object) -> None:
        """Nothing: a line per request would be of no use."""


def serving(nodes: int) -> ThreadingHTTPServer:
    """A server on a free port of the loopback; it serves in a thread of its own."""
    handler = type("Of", (Handler,), {"cluster": Synthetic(nodes)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> None:
    """Serve a cluster with as many nodes as the argument says."""
    server = serving(int(sys.argv[1]))
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
