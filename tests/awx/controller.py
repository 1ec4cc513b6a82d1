# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""As much of AWX's API as awx.awx needs to create objects in, which keeps all objects and writes down all requests."""

from __future__ import annotations

import json
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
TYPES = {"job_templates": "job_template", "projects": "project", "workflow_job_templates": "workflow_job_template"}
APPROVAL = ("name", "description", "timeout")
"""What an approval has of its own in AWX 24.6.1, which passes over anything else that it is sent."""
THERE: dict[str, list[Json]] = {
    "organizations": [{"id": 1, "name": "Default"}],
    "credential_types": [{"id": 17, "name": "OpenShift or Kubernetes API Bearer Token", "kind": "kubernetes"}],
    "credentials": [{"id": 90, "name": "hosts"}],
    "inventories": [{"id": 91, "name": "clusters", "organization": 1}],
}


@dataclass
class Controller:
    """The objects by their collections, surveys and associations by their paths, and the requests that wrote."""

    objects: dict[str, list[Json]] = field(default_factory=lambda: json.loads(json.dumps(THERE)))
    parts: dict[str, Any] = field(default_factory=dict)
    writes: list[tuple[str, str, Any]] = field(default_factory=list)
    count: int = 100

    def named(self, collection: str, name: str) -> Json:
        (found,) = [one for one in self.objects.get(collection, []) if one.get("name", one.get("identifier")) == name]
        return found

    def associated(self, collection: str, name: str, part: str) -> list[int]:
        """The ids that are associated with an object."""
        found: list[int] = self.parts.get(f"{collection}/{self.named(collection, name)['id']}/{part}", [])
        return found

    # -- requests

    def get(self, path: list[str], query: Json) -> tuple[int, Any]:
        match path:
            case ["ping"]:
                return 200, {"version": "24.6.1"}
            case ["unified_job_templates"]:
                kinds = [(name, TYPES[name]) for name in TYPES]
                every = [{**one, "type": kind} for name, kind in kinds for one in self.objects.get(name, [])]
                return self._list(every, query)
            case [collection]:
                return self._list(self.objects.get(collection, []), query)
            case [collection, ident]:
                found = [one for one in self.objects.get(collection, []) if str(one["id"]) == ident]
                return (200, found[0]) if found else (404, {})
            case [collection, ident, "survey_spec"]:
                return 200, self.parts.get(f"{collection}/{ident}/survey_spec", {})
            case [_collection, _ident, _part]:
                ids = self.parts.get("/".join(path), [])
                return self._list([{"id": one} for one in ids], {})
        return 404, {}

    def _list(self, found: list[Json], query: Json) -> tuple[int, Any]:
        wanted = {key: value for key, value in query.items() if key in ("name", "type", "identifier")}
        wanted |= {key: value for key, value in query.items() if key in ("workflow_job_template", "organization")}
        found = [one for one in found if all(str(one.get(k, value)) == value for k, value in wanted.items())]
        return 200, {"count": len(found), "results": found, "next": None}

    def post(self, path: list[str], body: Json) -> tuple[int, Any]:
        match path:
            case [collection]:
                self.count += 1
                made = {**body, "id": self.count, "url": f"/api/v2/{collection}/{self.count}/", "related": {}}
                made["related"]["survey_spec"] = f"{made['url']}survey_spec/"
                if collection == "projects":
                    made["summary_fields"] = {}
                    made |= {"status": "successful", "scm_revision": "0", "last_job_failed": False}
                self.objects.setdefault(collection, []).append(made)
                return 201, made
            case [_collection, _ident, "survey_spec"]:
                self.parts["/".join(path)] = body
                return 200, {}
            case ["workflow_job_template_nodes", ident, "create_approval_template"]:
                (node,) = [x for x in self.objects["workflow_job_template_nodes"] if str(x["id"]) == ident]
                self.count += 1
                url = f"/api/v2/workflow_approval_templates/{self.count}/"
                kept = {key: value for key, value in body.items() if key in APPROVAL}
                approval = {**kept, "id": self.count, "url": url, "related": {}}
                self.objects.setdefault("workflow_approval_templates", []).append(approval)
                node["related"]["unified_job_template"] = url
                node["unified_job_template"] = self.count
                return 201, approval
            case [_collection, _ident, _part]:
                ids = self.parts.setdefault("/".join(path), [])
                if body.get("disassociate"):
                    ids.remove(body["id"])
                else:
                    ids.append(body["id"])
                return 204, None
        return 404, {}

    def patch(self, path: list[str], body: Json) -> tuple[int, Any]:
        status, found = self.get(path, {})
        if status == 200:
            found |= body
        return status, found


class Handler(BaseHTTPRequestHandler):
    controller: Controller

    def answer(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        path = [part for part in parts.path.split("/") if part][2:]
        length = int(self.headers.get("Content-Length") or 0)
        status: int
        told: Any
        body = json.loads(self.rfile.read(length) or b"null")
        if self.headers.get("Authorization") != "Bearer awx-token":
            status, told = 401, None
        elif self.command == "GET":
            status, told = self.controller.get(path, dict(urllib.parse.parse_qsl(parts.query)))
        else:
            self.controller.writes.append((self.command, "/".join(path), body))
            act = self.controller.post if self.command == "POST" else self.controller.patch
            status, told = act(path, body)
        content = b"" if told is None else json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-API-Product-Name", "AWX")
        self.send_header("X-API-Product-Version", "24.6.1")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the terminal."""


def serving() -> tuple[Controller, ThreadingHTTPServer]:
    """A controller, and its server on a free port of this machine, which the caller shuts down."""
    controller = Controller()
    handler = type("Bound", (Handler,), {"controller": controller})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return controller, server
