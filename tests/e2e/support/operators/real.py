# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The real operator of CloudNativePG on a lab, and what answers it in place of PostgreSQL.

The operator is the project's own binary with its own CRDs: it makes the jobs, claims, pods, certificates, Services and
budgets, elects the primary and relabels the pods. What is emulated is the instance manager in each pod: it answers
`/pg/status` over TLS with the cluster's own certificate, restarts when it is no longer the primary, and writes
`status.currentPrimary` when it has been promoted. Pods have loopback addresses (each node a range of its own), so that
the operator reaches it; EndpointSlices may not have such addresses, so the Services have no endpoints.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from witness import objects as o
from witness.api import ApiError
from witness.log import Json, Log

from support import shapes
from support.arena import Arena
from support.lab import Lab
from support.operators import webhook
from support.waiting import until

SOURCE = "github.com/cloudnative-pg/cloudnative-pg v1.27.0, the operator itself"
PORT = 8000
GROUP = "postgresql.cnpg.io/v1"
ROLE = "cnpg.io/instanceRole"
PROMOTES = 1.0
"""Seconds that a restart of the old primary and the promotion of the new one take."""
PATIENCE = 120.0
LISTENS = "0A"
LOOPBACK = {"0100007F", "00000000000000000000000001000000"}
"""127.0.0.1 and ::1, as Linux shows them on a machine with the least significant byte first."""
UNTIL_CLOSED = '"$@" </dev/null & cat >/dev/null; kill $!; wait'
"""Ends a command when standard input closes, so that it never outlives the tests."""


@contextlib.contextmanager
def operator(lab: Lab, namespace: str, folder: Path) -> Iterator[Path]:
    """The operator as a process that watches one namespace, with its CRDs; yields its log.

    Its webhooks are not registered. Their server has to run all the same, which is why the lab's binary has a main of
    ours, for loopback alone (roles/lab/files/components/cloudnative-pg/manager).
    """
    binary = (lab.programs / "cloudnative-pg").resolve()
    applied = lab.run_kubectl("apply", "--server-side", f"--filename={binary.parent / 'crds'}")
    assert applied.returncode == 0, applied.stderr
    wanted = {file.stem.rpartition("_")[2] for file in (binary.parent / "crds").glob("*_*.yaml")}
    # It ends at once where one of its kinds is not served yet.
    until(lambda: wanted <= served(lab), PATIENCE, f"{wanted} are served")
    for file, pem in zip(("apiserver.key", "apiserver.crt"), webhook.certificate(), strict=True):
        (folder / file).touch(0o600)
        (folder / file).write_bytes(pem)
    # It copies itself into its pods from here, by their architecture.
    (folder / "operator").mkdir()
    for architecture in ("amd64", "arm64"):
        (folder / "operator" / f"manager_{architecture}").symlink_to(binary)
    log = folder / "operator.log"
    environment = {
        "PATH": os.environ["PATH"],
        "KUBECONFIG": str(lab.kubeconfig),
        "OPERATOR_NAMESPACE": namespace,
        "WATCH_NAMESPACE": namespace,
        "WEBHOOK_CERT_DIR": str(folder),
        "PLUGIN_SOCKET_DIR": str(folder),
    }
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(binary), "controller", "--metrics-bind-address=0", f"--webhook-port={port}", "--log-level=info"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["sh", "-c", UNTIL_CLOSED, "sh", *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
        )
    assert process.stdin is not None
    try:
        until(lambda: listening(lab), PATIENCE, f"the operator serves its webhooks, see {log}", every=0.5)
        yield log
    finally:
        process.stdin.close()
        process.wait(30)


def served(lab: Lab) -> set[str]:
    """The plural names of its kinds that the API server has."""
    return {each["name"] for each in (lab.api.find(f"/apis/{GROUP}") or {}).get("resources", [])}


def listening(lab: Lab) -> set[str]:
    """The addresses on which the operator listens, as Linux shows them in /proc/net."""
    binary, sockets = (lab.programs / "cloudnative-pg").resolve(), set[str]()
    for exe in Path("/proc").glob("[0-9]*/exe"):
        with contextlib.suppress(OSError):
            if exe.resolve() == binary:
                sockets |= {str(file.readlink()) for file in (exe.parent / "fd").iterdir()}
    tables = [Path(f"/proc/net/{kind}").read_text(encoding="ascii") for kind in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table.splitlines()[1:]]
    return {line[1].rpartition(":")[0] for line in lines if line[3] == LISTENS and f"socket:[{line[9]}]" in sockets}


@dataclass
class Postgres:
    """A Cluster of three instances, and their instance managers."""

    arena: Arena
    name: str
    over: threading.Event = field(default_factory=threading.Event)
    names: dict[str, str] = field(default_factory=dict)
    servers: dict[str, http.server.ThreadingHTTPServer] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    wrong: list[Exception] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"/apis/{GROUP}/namespaces/{self.arena.namespace}/clusters/{self.name}"

    @property
    def status(self) -> Json:
        found: Json = self.arena.api.get(self.path).get("status") or {}
        return found

    def create(self) -> None:
        """The Cluster as in the project's first example, and volumes for its claims."""
        for number in range(1, 7):
            spec: Json = {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": self.arena.name,
                "nfs": {"server": "127.0.0.1", "path": f"/{number}"},
            }
            meta = {"name": f"{self.arena.name}-{number}"}
            self.arena.api.create("/api/v1/persistentvolumes", {"metadata": meta, "spec": spec})
        spec = {
            "instances": 3,
            "storage": {"size": "1Gi", "storageClass": self.arena.name},
            "affinity": {"nodeSelector": {shapes.ARENA: self.arena.name}, "podAntiAffinityType": "required"},
        }
        made = {"apiVersion": GROUP, "kind": "Cluster", "metadata": {"name": self.name}, "spec": spec}
        self.arena.api.create(self.path.rpartition("/")[0], made)

    def instances(self) -> list[Json]:
        query = {"labelSelector": f"cnpg.io/cluster={self.name},cnpg.io/podRole=instance"}
        return self.arena.api.items(self.arena.path("Pod"), **query)

    def primary(self) -> Json:
        """The pod that its Service for writing selects."""
        return next(pod for pod in self.instances() if o.labels(pod).get(ROLE) == "primary")

    def healthy(self) -> bool:
        status = self.status
        same = status.get("currentPrimary") and status.get("currentPrimary") == status.get("targetPrimary")
        ready = [pod for pod in self.instances() if o.ready(pod) and o.labels(pod).get(ROLE)]
        return bool(same and status.get("readyInstances") == 3 and len(ready) == 3)

    def dark(self, log: Log) -> float:
        """Seconds in which no ready pod was the primary by its label, as the Service for writing selects it."""
        total, since = 0.0, None
        for moment in log.moments():
            pods = moment.world.of("Pod", self.arena.namespace)
            served = any(o.labels(pod).get(ROLE) == "primary" and o.ready(pod) for pod in pods)
            if not served and since is None:
                since = moment.at
            elif served and since is not None:
                total, since = total + moment.at - since, None
        return total + (log.ended - log.began - since if since is not None else 0.0)

    # -- the instance managers

    def loop(self) -> None:
        while not self.over.wait(0.2):
            try:
                self.step()
            except (ApiError, OSError) as error:
                if not isinstance(error, ApiError) or error.status not in (404, 409):
                    self.wrong.append(error)

    def step(self) -> None:
        if self.tls is None and not self.certified():
            return
        pods = {o.name(pod): pod for pod in self.instances()}
        self.names = {pod["status"].get("podIP", ""): name for name, pod in pods.items() if not o.finished(pod)}
        for address in self.names.keys() - self.servers.keys() - {""}:
            self.servers[address] = self.serve(address)
        status = self.status
        target, current = status.get("targetPrimary", ""), status.get("currentPrimary", "")
        if target == current or target not in pods or not o.ready(pods[target]):
            return
        if current in pods:
            self.annotate(current, "never")
            self.over.wait(PROMOTES)
        body = {"status": {"currentPrimary": target}}
        self.arena.api.patch(f"{self.path}/status", body)
        if current in pods:
            self.annotate(current, None)

    def annotate(self, pod: str, ready: str | None) -> None:
        self.arena.patch("Pod", pod, {"metadata": {"annotations": {"lab.kubeops.io/ready": ready}}})

    def certified(self) -> bool:
        """The server certificate that the operator has made for this cluster."""
        secret = self.arena.api.find(f"/api/v1/namespaces/{self.arena.namespace}/secrets/{self.name}-server")
        if secret is None:
            return False
        self.tls = webhook.load(*(base64.b64decode(secret["data"][key]) for key in ("tls.key", "tls.crt")))
        return True

    def report(self, name: str) -> Json:
        """What the instance manager of a pod says of PostgreSQL (pkg/postgres/status.go)."""
        status = self.status
        primary = name == status.get("currentPrimary") == status.get("targetPrimary")
        return {
            "currentLsn" if primary else "receivedLsn": "0/6000060",
            **({} if primary else {"replayLsn": "0/6000060"}),
            "systemID": "7400000000000000001",
            "isPrimary": primary,
            "isWalReceiverActive": not primary and status.get("currentPrimary") == status.get("targetPrimary"),
            "isArchivingWAL": True,
            "timeLineID": 1,
            "executableHash": "lab",
            "instanceManagerVersion": "1.27.0",
            "instanceArch": "amd64",
        }

    def serve(self, address: str) -> http.server.ThreadingHTTPServer:
        postgres = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = postgres.names.get(address, "")
                body = json.dumps(postgres.report(name)).encode()
                self.send_response(200 if name and self.path == "/pg/status" else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        assert self.tls is not None
        server = http.server.ThreadingHTTPServer((address, PORT), Handler)
        server.socket = self.tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, name=f"instance-{address}", daemon=True).start()
        return server


@contextlib.contextmanager
def cluster(arena: Arena, name: str) -> Iterator[Postgres]:
    """A Cluster with three instances that the operator calls healthy."""
    made = Postgres(arena, name)
    thread = threading.Thread(target=made.loop, name="instance-managers", daemon=True)
    try:
        made.create()
        thread.start()
        until(made.healthy, PATIENCE, f"the Cluster {name} is healthy", every=0.5)
        yield made
    finally:
        made.over.set()
        thread.join(30)
        for server in made.servers.values():
            server.shutdown()
            server.server_close()
        for number in range(1, 7):
            arena.api.delete(f"/api/v1/persistentvolumes/{arena.name}-{number}")
    assert not made.wrong, made.wrong


def nodes(arena: Arena, count: int) -> list[str]:
    """Nodes whose pods have addresses on loopback, in ranges that no other arena is likely to have."""
    found = arena.nodes(count)
    second = 16 + time.monotonic_ns() % 200
    for number, name in enumerate(found, 1):
        arena.api.patch(f"/api/v1/nodes/{name}", {"spec": {"podCIDR": f"127.{second}.{number}.0/24"}})
    return found
