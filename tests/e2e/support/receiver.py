# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The other end of a webhook, with its secrets."""

from __future__ import annotations

import http.server
import json
import threading

from witness.log import Json

CANARY = "7b1f-webhook-canary"


class Chat:
    """The receiver of a webhook; ``status`` is what it answers."""

    def __init__(self) -> None:
        self.got: list[Json] = []
        self.status = 200
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.headers["Authorization"] == f"Bearer {CANARY}"
                assert self.path == f"/hooks/{CANARY}"
                outer.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(outer.status)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                del format, args

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.input: Json = {
            "maintain_announce_webhook": f"http://127.0.0.1:{self._server.server_port}/hooks/{CANARY}",
            "maintain_announce_headers": {"Authorization": f"Bearer {CANARY}"},
            "maintain_announce_deadline": "5s",
        }
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def moments(self) -> list[str]:
        return [body["moment"] for body in self.got]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
