# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An API server of a synthetic cluster: lists in pages, narrowed by node, namespace,
label or name; watches; writes.

A write is kept beside the computed objects. An evicted pod is gone at once, and its successor is
ready on another node.

python -m bench.synthetic_server 2000            # prints its address, serves until its input ends
python -m bench.synthetic_server 2000 writers    # single replicas may not be doubled, so they are
evicted, with consent python -m bench.synthetic_server 2000 blockers   # StatefulSets of one pod,
and budgets that never allow an eviction
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from bench import synthetic
from bench.synthetic import Raw, Synthetic

LEASES = "/apis/coordination.k8s.io/v1/leases"
PODS, BUDGETS = "/api/v1/pods", "/apis/policy/v1/poddisruptionbudgets"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
WATCHED_FOR = 30.0


class Changed:
    """What differs from the computed objects, and what was written in which order."""

    def __init__(self, cluster: Synthetic) -> None:
        self.cluster = cluster
        self.now: dict[str, dict[tuple[str, str], Raw | None]] = {}
        self.told: list[tuple[str, str, Raw]] = []
        self.wake = threading.Condition()
        self.moved = 0

    def get(self, path: str, space: str, name: str) -> Raw | None:
        kept = self.now.get(path, {})
        if (space, name) in kept or path not in self.cluster.kinds:
            return kept.get((space, name))
        numbers = self.cluster.numbers(path, f"metadata.name={name}", space)
        return self.cluster.kinds[path][2](numbers[0]) if numbers else None

    def put(
        self, path: str, space: str, name: str, raw: Raw | None, before: Raw | None = None
    ) -> Raw:
        """Write an object, or with ``None`` delete it; returns it as it is,
        or was (``before``, if that is known).
        """
        with self.wake:
            before = before or self.get(path, space, name)
            what = "DELETED" if raw is None else "MODIFIED" if before else "ADDED"
            shown: Raw = raw or before or {}
            version = {"resourceVersion": str(1001 + len(self.told))}
            shown = {**shown, "metadata": {**shown.get("metadata", {}), **version}}
            self.now.setdefault(path, {})[space, name] = None if raw is None else shown
            self.told.append((path, what, shown))
            self.wake.notify_all()
            return shown

    def since(self, at: int) -> list[tuple[str, str, Raw]]:
        """What was written after so many writes; waits for it, but not for ever."""
        with self.wake:
            self.wake.wait_for(lambda: len(self.told) > at, timeout=WATCHED_FOR)
            return self.told[at:]

    def items(self, path: str, query: Mapping[str, str], space: str) -> Iterator[Raw]:
        """The objects of a list that were written; those that left it are told by ``hides``."""
        for (where, _name), raw in list(self.now.get(path, {}).items()):
            if raw is not None and space in ("", where) and selected(path, raw, query):
                yield raw

    def hides(self, path: str, raw: Raw) -> bool:
        meta = raw["metadata"]
        return (meta.get("namespace", ""), meta["name"]) in self.now.get(path, {})

    def budgets(self, space: str, app: str) -> list[Raw]:
        """Those over the app's pods, of which one may have been written by a client."""
        found = [self.get(BUDGETS, space, app)]
        found += [
            raw
            for (where, name), raw in self.now.get(BUDGETS, {}).items()
            if where == space and name != app
        ]
        wanted = (raw for raw in found if raw)
        key = "app.kubernetes.io/name"
        return [raw for raw in wanted if raw["spec"]["selector"]["matchLabels"].get(key) == app]

    def evict(self, space: str, name: str) -> bool:
        """End a pod; its successor is ready elsewhere, its volume detached,
        and its budget as it was.
        """
        pod = self.get(PODS, space, name)
        if pod is None:
            return False
        with self.wake:
            self.moved += 1
            meta, owner = pod["metadata"], pod["metadata"]["ownerReferences"][0]
            self.put(PODS, space, name, None, pod)
            fresh = name if owner["kind"] == "StatefulSet" else f"{owner['name']}-n{self.moved:05x}"
            spot = self.cluster.nodes - 1 - self.moved % (self.cluster.nodes // 2)
            metadata = {**meta, "name": fresh, "uid": f"{meta['uid']}:{self.moved}"}
            successor = {
                **pod,
                "metadata": metadata,
                "spec": {**pod["spec"], "nodeName": synthetic.node_name(spot)},
            }
            self.put(PODS, space, fresh, successor)
            app = meta["labels"]["app.kubernetes.io/name"]
            for budget in self.budgets(space, app):
                self.put(BUDGETS, space, budget["metadata"]["name"], budget)
            if owner["kind"] == "StatefulSet":
                self.put(ATTACHMENTS, "", f"csi-{name}", None, synthetic.attached(name))
        return True


def selected(path: str, raw: Raw, query: Mapping[str, str]) -> bool:
    """Whether a list or watch with these selectors has the object."""
    key, _equals, value = query.get("fieldSelector", "").partition("=")
    if key == "metadata.name" and raw["metadata"]["name"] != value:
        return False
    if key == "spec.nodeName" and raw["spec"].get("nodeName") != value:
        return False
    label, has_in, values = query.get("labelSelector", "").partition(" in ")
    if not has_in:
        label, _equals, values = label.partition("=")
    held = (raw["metadata"].get("labels") or {}).get(label)
    return not label or held in values.strip("()").split(",")


class Handler(BaseHTTPRequestHandler):
    """Answers as an API server does."""

    protocol_version = "HTTP/1.1"
    cluster: Synthetic
    changed: Changed

    def place(self) -> tuple[str, str, str, str, dict[str, str]]:
        """The path of the collection, namespace, name and subresource, and the query."""
        address = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        parts = unquote(address.path).strip("/").split("/")
        group, rest = (parts[:2], parts[2:]) if parts[0] == "api" else (parts[:3], parts[3:])
        space = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            space, rest = rest[1], rest[2:]
        name, subresource = (*rest[1:], "", "")[:2]
        return "/" + "/".join([*group, *rest[:1]]), space, name, subresource, query

    def do_GET(self) -> None:
        """An object, a watch, or a list, in pages if it has a limit."""
        path, space, name, _sub, query = self.place()
        if path == "/version":
            self.answer(200, {"gitVersion": "v1.36.3"})
        elif name:
            self.found(self.changed.get(path, space, name))
        elif path not in self.cluster.kinds and path != LEASES:
            self.found(None)
        elif query.get("watch"):
            self.watch(path, space, query)
        else:
            self.answer(200, self.page(path, space, query))

    def do_POST(self) -> None:
        """Evictions, new objects; reviews of access are answered with yes."""
        path, space, name, sub, _query = self.place()
        body = self.body()
        if sub == "eviction":
            self.found(
                {"kind": "Status", "status": "Success"} if self.changed.evict(space, name) else None
            )
        elif body.get("kind", "").endswith("Review"):
            self.answer(201, {**body, "status": {"allowed": True}})
        else:
            name = body["metadata"]["name"]
            made = {**body, "metadata": {**body["metadata"], "uid": f"new:{name}", "generation": 1}}
            if path == BUDGETS:
                made["status"] = {"observedGeneration": 1, "disruptionsAllowed": 1}
            self.answer(201, self.changed.put(path, space, name, made))

    def do_PATCH(self) -> None:
        """A JSON merge patch."""
        path, space, name, _sub, _query = self.place()
        body, found = self.body(), self.changed.get(path, space, name)
        self.found(self.changed.put(path, space, name, merged(found, body)) if found else None)

    def do_PUT(self) -> None:
        """An object as a whole."""
        path, space, name, _sub, _query = self.place()
        self.answer(200, self.changed.put(path, space, name, self.body()))

    def do_DELETE(self) -> None:
        """An object; preconditions are not looked at."""
        path, space, name, _sub, _query = self.place()
        self.body()
        there = self.changed.get(path, space, name)
        self.found(self.changed.put(path, space, name, None) if there else None)

    def body(self) -> Raw:
        return dict(
            json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        )

    def page(self, path: str, space: str, query: Mapping[str, str]) -> Raw:
        kind, _count, made = self.cluster.kinds.get(path, ("Lease", 0, lambda _number: {}))
        selectors = query.get("fieldSelector", ""), space, query.get("labelSelector", "")
        numbers = self.cluster.numbers(path, *selectors) if path in self.cluster.kinds else []
        start = int(query.get("continue", 0))
        end = min(len(numbers), start + (int(query.get("limit", 0)) or len(numbers)))
        body: Raw = {
            "kind": f"{kind}List",
            "metadata": {"resourceVersion": str(1000 + len(self.changed.told))},
        }
        computed = (made(number) for number in numbers[start:end])
        body["items"] = [raw for raw in computed if not self.changed.hides(path, raw)]
        if end < len(numbers):
            body["metadata"] |= {"continue": str(end), "remainingItemCount": len(numbers) - end}
        else:
            body["items"] += self.changed.items(path, query, space)
        return body

    def watch(self, path: str, space: str, query: Mapping[str, str]) -> None:
        """What was written since the version that is asked for,
        until the client goes or its time is over.
        """
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        at, until = (
            int(query["resourceVersion"]) - 1000,
            time.monotonic() + float(query["timeoutSeconds"]),
        )
        while time.monotonic() < until:
            news = self.changed.since(at)
            at += len(news)
            for where, what, raw in news:
                if (
                    where == path
                    and space in ("", raw["metadata"].get("namespace", ""))
                    and selected(path, raw, query)
                ):
                    line = json.dumps({"type": what, "object": raw}).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    def found(self, raw: Raw | None) -> None:
        if raw is None:
            status = {
                "kind": "Status",
                "status": "Failure",
                "reason": "NotFound",
                "code": 404,
                "message": "not found",
            }
            self.answer(404, status)
        else:
            self.answer(200, raw)

    def answer(self, status: int, body: Raw) -> None:
        sent = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *_args: object) -> None:
        """Nothing: a line per request would be of no use."""


def merged(raw: Raw, patch: Raw) -> Raw:
    """RFC 7386."""
    found = dict(raw)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            found[key] = merged(found.get(key) or {}, value)
        else:
            found[key] = value
    return found


class Server(ThreadingHTTPServer):
    """Each connection has its thread; clients may leave a watch at any time."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def serving(nodes: int, *, writers: bool = False, blockers: bool = False) -> ThreadingHTTPServer:
    """A server on a free port of the loopback; it serves in a thread of its own."""
    cluster = Synthetic(nodes, writers=writers, blockers=blockers)
    handler = type("Of", (Handler,), {"cluster": cluster, "changed": Changed(cluster)})
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> None:
    """Serve a cluster with as many nodes as the argument says."""
    server = serving(int(sys.argv[1]), **dict.fromkeys(sys.argv[2:], True))
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
