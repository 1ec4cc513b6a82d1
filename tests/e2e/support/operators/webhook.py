# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The admission webhooks of the emulated operators: one HTTPS server on loopback, with a certificate of its own."""

from __future__ import annotations

import base64
import contextlib
import datetime
import http.server
import ipaddress
import json
import ssl
import tempfile
import threading
from collections.abc import Iterator

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from witness.log import Json

from support.operators.base import Operator

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
HOST = "127.0.0.1"


def certificate() -> tuple[bytes, bytes]:
    """A key and a certificate for loopback that signs itself, good for a day, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lab operators")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return secret, made.public_bytes(serialization.Encoding.PEM)


def load(key: bytes, public: bytes) -> ssl.SSLContext:
    """What a server with this pair speaks TLS by; the ssl module takes a pair only from a file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(key + b"\n" + public)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def answer(operator: Operator, review: Json) -> Json:
    """The AdmissionReview that answers one for an eviction."""
    request = review["request"]
    pod = operator.api.find(operator.arena.path("Pod", request["name"]))
    denial = operator.deny(pod, bool(request.get("dryRun"))) if pod else None
    response: Json = {"uid": request["uid"], "allowed": denial is None}
    if denial is not None:
        response["status"] = {"code": denial.code, "message": denial.message}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


@contextlib.contextmanager
def serving(operator: Operator) -> Iterator[None]:
    """The webhook of an operator on pods/eviction, for the pods of its arena."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(answer(operator, review)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the API server's audit log has it."""

    key, public = certificate()
    server = http.server.ThreadingHTTPServer((HOST, 0), Handler)
    server.socket = load(key, public).wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, name=f"webhook-{operator.name}", daemon=True).start()
    name = f"{operator.arena.name}-{operator.name}"
    try:
        operator.api.create(CONFIGURATIONS, configuration(operator, name, server.server_address[1], public))
        yield
    finally:
        operator.api.delete(f"{CONFIGURATIONS}/{name}")
        server.shutdown()
        server.server_close()


def configuration(operator: Operator, name: str, port: int, authority: bytes) -> Json:
    """As the projects register theirs, but for the URL and the namespace."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
    webhook = {
        "name": f"eviction.{operator.kinds[0].group}",
        "rules": [rule],
        "clientConfig": {"url": f"https://{HOST}:{port}/evict", "caBundle": base64.b64encode(authority).decode()},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": operator.arena.namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "NoneOnDryRun",
        "failurePolicy": "Ignore",
        "timeoutSeconds": 5,
    }
    return {"metadata": {"name": name}, "webhooks": [webhook]}
