# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A small Kubernetes client on the standard library, for the witness and the test harness.

It shares nothing with the collection on purpose: a fault in the client under test must not
blind the one who watches it. It knows kubeconfig files with client certificates or a token,
plain requests and raw watches; objects are the JSON dicts of the API.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

Json = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class ApiError(Exception):
    """The API server refused: `status` is the HTTP code, `body` the Status object."""

    def __init__(self, status: int, body: Json, what: str) -> None:
        super().__init__(f"{what}: HTTP {status} {body.get('message', body)}")
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class Target:
    """Where the API server is and how to be believed there."""

    scheme: str
    host: str
    port: int
    token: str
    tls: ssl.SSLContext | None


def target_of(kubeconfig: Path, context: str = "") -> Target:
    """Read the current (or the named) context of a kubeconfig file."""
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    name = context or config["current-context"]
    chosen = _named(config["contexts"], name)["context"]
    cluster = _named(config["clusters"], chosen["cluster"])["cluster"]
    user = _named(config["users"], chosen["user"])["user"] or {}
    url = urlsplit(cluster["server"])
    tls: ssl.SSLContext | None = None
    if url.scheme == "https":
        tls = ssl.create_default_context()
        # As kubectl, which takes authorities without key identifiers; Python 3.13 would not.
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if cluster.get("insecure-skip-tls-verify"):
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        authority = _pem(cluster, "certificate-authority", kubeconfig.parent)
        if authority:
            tls.load_verify_locations(cadata=authority)
        certificate = _pem(user, "client-certificate", kubeconfig.parent)
        if certificate:
            _load_pair(tls, certificate, _pem(user, "client-key", kubeconfig.parent))
    port = url.port or (443 if url.scheme == "https" else 80)
    return Target(url.scheme, url.hostname or "", port, user.get("token", ""), tls)


def credentials(kubeconfig: Path, folder: Path) -> dict[str, str]:
    """The server, and the files with `ca`, `cert`, `key` and `token`, for programs that read no kubeconfig."""
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    chosen = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], chosen["cluster"])["cluster"]
    user = _named(config["users"], chosen["user"])["user"] or {}
    texts = {
        "ca": _pem(cluster, "certificate-authority", kubeconfig.parent),
        "cert": _pem(user, "client-certificate", kubeconfig.parent),
        "key": _pem(user, "client-key", kubeconfig.parent),
        "token": user.get("token", ""),
    }
    found = {"server": cluster["server"]}
    for name, text in texts.items():
        if text:
            file = folder / f"credentials.{name}"
            file.touch(mode=0o600)
            file.write_text(text, encoding="utf-8")
            found[name] = str(file)
    return found


def _named(entries: list[Json], name: str) -> Json:
    return next(entry for entry in entries if entry["name"] == name)


def _pem(section: Json, key: str, folder: Path) -> str:
    if inline := section.get(f"{key}-data"):
        return base64.b64decode(inline).decode()
    path = section.get(key)
    return (folder / path).read_text(encoding="utf-8") if path else ""


def _load_pair(tls: ssl.SSLContext, certificate: str, key: str) -> None:
    """The ssl module takes a key pair only from a file, so it gets one for a moment."""
    handle, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(certificate + "\n" + key)
        tls.load_cert_chain(name)
    finally:
        Path(name).unlink()


class Api:
    """Requests over one kept connection per thread; thread safe."""

    def __init__(self, kubeconfig: Path, agent: str, timeout: float = 30.0) -> None:
        self.kubeconfig = kubeconfig
        self._target = target_of(kubeconfig)
        self._agent = agent
        self._timeout = timeout
        self._local = threading.local()

    def connect(self, timeout: float) -> http.client.HTTPConnection:
        target = self._target
        if target.tls is not None:
            return http.client.HTTPSConnection(target.host, target.port, timeout=timeout, context=target.tls)
        return http.client.HTTPConnection(target.host, target.port, timeout=timeout)

    def _headers(self, content_type: str = "") -> dict[str, str]:
        headers = {"User-Agent": self._agent, "Accept": "application/json"}
        if self._target.token:
            headers["Authorization"] = f"Bearer {self._target.token}"
        if content_type:
            headers["Content-Type"] = content_type
        return headers

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Json:
        """One request, its answer as JSON; ApiError for every status from 400."""
        url = f"{path}?{urlencode(query)}" if query else path
        payload = None if body is None else json.dumps(body).encode()
        headers = self._headers(content_type if payload is not None else "")
        for attempt in (1, 2):
            connection = getattr(self._local, "connection", None)
            fresh = connection is None
            if connection is None:
                connection = self._local.connection = self.connect(self._timeout)
            try:
                connection.request(method, url, body=payload, headers=headers)
                response = connection.getresponse()
                text = response.read()
                break
            except (OSError, http.client.HTTPException):
                connection.close()
                self._local.connection = None
                # A kept connection may have been closed by the server while it was idle.
                if fresh or attempt == 2:
                    raise
        answer: Json = json.loads(text) if text.strip().startswith(b"{") else {"message": str(text)}
        if response.status >= 400:
            raise ApiError(response.status, answer, f"{method} {url}")
        return answer

    def get(self, path: str) -> Json:
        return self.request("GET", path)

    def find(self, path: str) -> Json | None:
        """The object, or None where there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def items(self, path: str, **query: str) -> list[Json]:
        listed: list[Json] = self.request("GET", path, query=query)["items"]
        return listed

    def create(self, path: str, obj: Json) -> Json:
        return self.request("POST", path, obj)

    def patch(self, path: str, body: Any, content_type: str = MERGE_PATCH) -> Json:
        return self.request("PATCH", path, body, content_type=content_type)

    def delete(self, path: str, **options: Any) -> None:
        """Delete; an object that is gone already is fine."""
        try:
            self.request("DELETE", path, options or None)
        except ApiError as error:
            if error.status != 404:
                raise

    def watch(self, path: str, resource_version: str, timeout: float) -> Iterator[Json]:
        """Raw watch events (type, object) until the server or the network ends the stream.

        `timeout` (seconds) bounds the silence on the wire; bookmarks arrive about once a
        minute, so a value above that tells a dead connection from a quiet cluster.
        """
        query = urlencode(
            {
                "watch": "1",
                "resourceVersion": resource_version,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": "3600",
            }
        )
        connection = self.connect(timeout)
        try:
            connection.request("GET", f"{path}?{query}", headers=self._headers())
            response = connection.getresponse()
            if response.status != 200:
                body = json.loads(response.read() or b"{}")
                raise ApiError(response.status, body, f"WATCH {path}")
            for line in response:
                if line.strip():
                    yield json.loads(line)
        finally:
            connection.close()
