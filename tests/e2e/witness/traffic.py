# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests to the Services of a cluster, at a fixed rate; who watches pods only sees what could have answered.

`lab-web`, the program of the lab's pods, sends them and plays the balancers outside of the cluster.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from witness.api import Api, credentials
from witness.log import Json

AWAITED = "60s"
"""Until each Service has answered, and if it does not, what follows counts."""
TIMEOUT = "10s"
"""Without an answer for so long a request has failed. On a busy machine a connection that is dropped while it is made
is made again after 1, 3 and 7 seconds; a pod that has gone never answers."""
PATIENCE = 30.0
"""Seconds to the end of a load that was told to end."""


@dataclass(frozen=True, slots=True)
class Way:
    """How each Service is asked: by which connections, how often a second, through kube-proxy or a balancer."""

    kind: str = "new"
    rate: float = 50.0
    lag: float | None = None

    @property
    def via(self) -> str:
        return "kube-proxy" if self.lag is None else f"a balancer that lags {self.lag:g} s"


class Traffic:
    """Requests from the start of a `with` to its end; `verdict` is then in the form that `maintenance_report` takes."""

    def __init__(self, program: Path, folder: Path, prefix: Sequence[str] = ()) -> None:
        """`program` is `lab-web`; `prefix` is a command that brings it to where the Services are reached."""
        self.file = folder / "traffic.json"
        self.verdict: Json = {}
        self._command = [*prefix, str(program)]
        self._folder = folder
        self._targets: list[Json] = []
        self._processes: list[subprocess.Popen[str]] = []

    def add(self, service: str, address: str, way: Way) -> None:
        """Ask this address, too; before the start."""
        path = "/stream" if way.kind == "stream" else "/"
        target = {"service": service, "via": way.via, "url": f"http://{address}{path}"}
        self._targets.append({**target, "rate": way.rate, "kind": way.kind})

    def add_services(self, kubeconfig: Path, namespaces: Iterable[str], ways: Sequence[Way]) -> None:
        """Ask all Services of these namespaces that have a selector, each in each of these ways."""
        api = Api(kubeconfig, "kubeops-traffic")
        addresses = {name: found for namespace in namespaces for name, found in _addresses(api, namespace).items()}
        server = credentials(kubeconfig, self._folder)
        for lag in {way.lag for way in ways} - {None}:
            through = self.balance(server, lag or 0.0, addresses)
            for way in (way for way in ways if way.lag == lag):
                for name, address in through.items():
                    self.add(name, address, way)
        for way in (way for way in ways if way.lag is None):
            for name, address in addresses.items():
                self.add(name, address, way)

    def add_service(self, kubeconfig: Path, service: str, way: Way) -> None:
        """Ask one through a balancer; before the start."""
        (address,) = self.balance(credentials(kubeconfig, self._folder), way.lag or 0.0, [service]).values()
        self.add(service, address, way)

    def balance(self, server: Mapping[str, str], lag: float, services: Iterable[str]) -> dict[str, str]:
        """Start a balancer for each of these Services; returns where they listen. `server` are options of `balance`."""
        options = [f"-{name}={value}" for name, value in server.items()]
        arguments = [f"{service}=127.0.0.1:0" for service in services]
        process = self._start(["balance", f"-lag={lag}s", "-tied", *options, *arguments], subprocess.PIPE)
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline() or "{}") for _ in arguments]
        if not all(lines):
            raise RuntimeError(f"the balancers ended with {process.wait(PATIENCE)}")
        return {line["service"]: line["address"] for line in lines}

    def __enter__(self) -> Traffic:
        orders, progress = self._folder / "orders.json", self._folder / "progress.jsonl"
        orders.write_text(json.dumps({"targets": self._targets}), encoding="utf-8")
        with progress.open("w", encoding="utf-8") as out:
            words = ["load", f"-config={orders}", f"-output={self.file}", "-tied", "-progress"]
            # In a namespace of the lab's own nobody else is asking.
            words += ["-forget"] if len(self._command) > 1 else []
            load = self._start([*words, f"-await={AWAITED}", f"-timeout={TIMEOUT}"], out)
        while not progress.stat().st_size:
            if load.poll() is not None:
                raise RuntimeError(f"the load ended with {load.returncode}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_unused: object) -> None:
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=PATIENCE)
        self._processes.clear()
        self.verdict = json.loads(self.file.read_text(encoding="utf-8"))

    def failed(self) -> dict[str, int]:
        """The failed requests of each Service, and of those that had none, too."""
        return self.counts("failed")

    def counts(self, field: str) -> dict[str, int]:
        """How many requests to each Service were `sent` or `failed`, however it was asked."""
        found: dict[str, int] = {}
        for service in self.verdict["services"]:
            found[service["service"]] = found.get(service["service"], 0) + service[field]
        return found

    def _start(self, words: Sequence[str], out: int | IO[str]) -> subprocess.Popen[str]:
        # A session of its own, because the prefix may start the program as its child. It ends with this process.
        process = subprocess.Popen(
            [*self._command, *words], stdin=subprocess.PIPE, stdout=out, text=True, start_new_session=True
        )
        self._processes.append(process)
        return process


def _addresses(api: Api, namespace: str) -> dict[str, str]:
    """The cluster addresses of the Services with a selector, but for headless ones."""
    found = {}
    for service in api.items(f"/api/v1/namespaces/{namespace}/services"):
        spec = service["spec"]
        if spec.get("selector") and spec.get("ports") and spec.get("clusterIP", "None") != "None":
            found[f"{namespace}/{service['metadata']['name']}"] = f"{spec['clusterIP']}:{spec['ports'][0]['port']}"
    return found
