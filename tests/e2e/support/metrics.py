# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An external metrics API with one number in it, as KEDA or the Prometheus adapter serve it to autoscalers."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from witness.api import Api
from witness.log import Json

from support.lab import ROOT
from support.waiting import until

CERTS = ROOT / "tests" / "unit" / "kube" / "certs"
GROUP = "external.metrics.k8s.io"
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


@dataclass
class Metric:
    """What an autoscaler sees of it, whatever name and namespace it asks for."""

    value: int = 1


@contextmanager
def external(api: Api) -> Iterator[Metric]:
    """Serves the API through the cluster's aggregator."""
    metric = Metric()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(_answer(self.path.partition("?")[0], metric)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTS / "server.pem", CERTS / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    name, port = f"v1beta1.{GROUP}", server.server_address[1]
    place = "/api/v1/namespaces/kube-system/services"
    # As kwokctl does it for metrics-server: the API server finds the process on loopback.
    spec: Json = {"type": "ExternalName", "externalName": "127.0.0.1", "ports": [{"port": port}]}
    api.create(place, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "numbers"}, "spec": spec})
    service = {"name": "numbers", "namespace": "kube-system", "port": port}
    spec = {"group": GROUP, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100}
    made = {**spec, "insecureSkipTLSVerify": True, "service": service}
    api.create(SERVICES, {"metadata": {"name": name}, "spec": made})

    def served() -> bool:
        conditions = api.get(f"{SERVICES}/{name}").get("status", {}).get("conditions") or []
        return any(one["type"] == "Available" and one["status"] == "True" for one in conditions)

    try:
        until(served, 60, "the external metrics are served", every=0.2)
        yield metric
    finally:
        api.delete(f"{SERVICES}/{name}")
        api.delete(f"{place}/numbers")
        server.shutdown()


def _answer(path: str, metric: Metric) -> Json:
    parts = path.strip("/").split("/")
    if "namespaces" not in parts:
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/v1beta1", "resources": []}
    found = {
        "metricName": parts[-1],
        "metricLabels": {},
        "timestamp": "2026-01-01T00:00:00Z",
        "value": str(metric.value),
    }
    return {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/v1beta1", "metadata": {}, "items": [found]}
