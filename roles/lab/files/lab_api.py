# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A minimal Kubernetes client for the agent and the kubeconfig of a lab."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
# A watch without a bookmark or an event for this long is considered dead.
SILENCE = 90.0


class Refused(Exception):
    """The API server answered with an error; `status` is the HTTP code."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {body[:500]}")
        self.status = status


class Api:
    """Requests to one API server, each on its own connection, so that any thread may use it."""

    def __init__(self, kubeconfig: Path, agent: str) -> None:
        config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        url = urlsplit(cluster["server"])
        self.host, self.port = url.hostname or "127.0.0.1", url.port
        self.agent = agent
        self.tls: ssl.SSLContext | None = None
        if url.scheme == "https":
            self.tls = ssl.create_default_context(cafile=cluster.get("certificate-authority"))
            if authority := cluster.get("certificate-authority-data"):
                self.tls.load_verify_locations(cadata=base64.b64decode(authority).decode())
            if cluster.get("insecure-skip-tls-verify"):
                self.tls.check_hostname = False
                self.tls.verify_mode = ssl.CERT_NONE
            with tempfile.TemporaryDirectory() as folder:
                pair = []
                for name in ("client-certificate", "client-key"):
                    path = Path(user.get(name) or Path(folder) / name)
                    if f"{name}-data" in user:
                        path.touch(0o600)
                        path.write_bytes(base64.b64decode(user[f"{name}-data"]))
                    pair.append(str(path))
                self.tls.load_cert_chain(*pair)

    def connect(self, timeout: float) -> http.client.HTTPConnection:
        if self.tls:
            return http.client.HTTPSConnection(
                self.host, self.port, timeout=timeout, context=self.tls
            )
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def send(
        self, method: str, path: str, body: Json | None = None, content: str = "application/json"
    ) -> Json:
        """One request. Raises Refused, or OSError and
        http.client.HTTPException without a response.
        """
        connection = self.connect(10)
        try:
            headers = {
                "User-Agent": self.agent,
                "Content-Type": content,
                "Accept": "application/json",
            }
            connection.request(
                method, path, json.dumps(body) if body is not None else None, headers
            )
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 400:
            raise Refused(answer.status, text)
        found: Json = json.loads(text)
        return found

    def watch(self, path: str, fields: str) -> Iterator[tuple[str, Json]]:
        """All objects as ADDED, then SYNCED, then events until the connection or the watch ends."""
        listed = self.send("GET", f"{path}?{urlencode({'fieldSelector': fields})}")
        for thing in listed["items"]:
            yield "ADDED", thing
        yield "SYNCED", {}
        query = {
            "fieldSelector": fields,
            "watch": "1",
            "allowWatchBookmarks": "1",
            "resourceVersion": listed["metadata"]["resourceVersion"],
        }
        connection = self.connect(SILENCE)
        try:
            connection.request(
                "GET", f"{path}?{urlencode(query)}", headers={"User-Agent": self.agent}
            )
            answer = connection.getresponse()
            if answer.status != 200:
                raise Refused(answer.status, answer.read().decode())
            for line in answer:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event["type"], event["object"]
        finally:
            connection.close()
