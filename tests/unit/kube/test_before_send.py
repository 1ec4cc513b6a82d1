# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``before_send`` is called when all is ready and before the first byte of the request, however it travels."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.client import Cluster
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.connection import ConnectionOptions, connect
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.api import CERTS, Api
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.proxy import Proxy

Serve = Callable[..., Api]
EVICT = verbs.evict("shop", "web-1", "u1")
PATH = "/api/v1/namespaces/shop/pods/web-1/eviction"
SUCCESS = {"kind": "Status", "status": "Success"}


def joined(api: Api, proxy: str = "") -> Cluster:
    options = ConnectionOptions(host=api.url, api_key="t", ca_cert=str(CERTS / "ca.pem"), proxy=proxy)
    return connect(options, user_agent="x")


class Look:
    """Notes what had happened each time it was asked."""

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self.seen: list[object] = []

    def __call__(self) -> None:
        self.seen.append(self._look())


def test_it_is_asked_after_a_slow_handshake(serve: Serve) -> None:
    api = serve(certificate="server", slow=0.5)
    api.expect("POST", PATH, SUCCESS)
    began = time.monotonic()
    before_send = Look(lambda: (time.monotonic() - began > 0.5, len(api.calls)))
    joined(api).send(EVICT, before_send=before_send)
    assert before_send.seen == [(True, 0)]


def test_it_is_asked_once_for_headers_and_body_in_pieces_of_their_own(api: Api, cluster: Cluster) -> None:
    api.expect("POST", PATH, SUCCESS, times=2)
    before_send = Look(lambda: len(api.calls))
    cluster.send(EVICT, before_send=before_send)
    cluster.send(EVICT, before_send=before_send)
    assert before_send.seen == [0, 1]
    assert api.calls[0].body["deleteOptions"]["preconditions"] == {"uid": "u1"}


def test_it_is_asked_once_where_the_server_closed_the_connection_meanwhile(api: Api, cluster: Cluster) -> None:
    first = api.expect("GET", "/api/v1/nodes/n1", {"kind": "Node"})
    api.expect("POST", PATH, SUCCESS)
    cluster.send(verbs.get(kinds.NODES, "n1"))
    assert first.ended.wait(2)
    api.drop_idle()
    time.sleep(0.1)
    before_send = Look(lambda: len(api.calls))
    cluster.send(EVICT, before_send=before_send)
    assert before_send.seen == [1]
    assert api.connections == 2


def test_a_tunnel_is_made_before_it_is_asked(serve: Serve, proxy: Proxy) -> None:
    api = serve(certificate="server")
    api.expect("POST", PATH, SUCCESS)
    before_send = Look(lambda: (len(proxy.asked), len(api.calls)))
    joined(api, proxy=proxy.url).send(EVICT, before_send=before_send)
    assert before_send.seen == [(1, 0)]


@pytest.fixture
def socks() -> Iterator[str]:
    """The URL of a SOCKS 5 proxy that leads one client to where it wants."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            client, _address = listener.accept()
            client.recv(64)
            client.sendall(b"\x05\x00")
            asked = client.recv(64)
            (port,) = struct.unpack("!H", asked[-2:])
            target = socket.create_connection(("127.0.0.1", port))
            client.sendall(b"\x05\x00\x00\x01\x7f\x00\x00\x01" + asked[-2:])
            Proxy.join(client, target)

    threading.Thread(target=serve, daemon=True).start()
    yield f"socks5://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()


@pytest.mark.parametrize("certificate", ["", "server"])
def test_it_is_asked_behind_a_socks_proxy_too(serve: Serve, socks: str, certificate: str) -> None:
    pytest.importorskip("socks")
    api = serve(certificate=certificate)
    api.expect("POST", PATH, SUCCESS)
    before_send = Look(lambda: len(api.calls))
    joined(api, proxy=socks).send(EVICT, before_send=before_send)
    assert before_send.seen == [0]


@pytest.mark.parametrize("error", [TimeoutError, BrokenPipeError, ConnectionResetError, RuntimeError])
def test_what_it_raises_is_never_taken_for_trouble_of_the_network(
    api: Api, cluster: Cluster, error: type[Exception]
) -> None:
    def before_send() -> None:
        raise error("the lock is lost")

    with pytest.raises(error, match="the lock is lost"):
        cluster.send(EVICT, timeout=1.0, patience=5.0, before_send=before_send)
    assert api.calls == []


def test_a_request_that_its_own_request_could_not_make_has_not_left(api: Api, cluster: Cluster) -> None:
    """It may read a lock; what goes wrong there says nothing about the write behind it."""
    api.expect("GET", "/api/v1/nodes/n1", {}, cut="before")

    def before_send() -> None:
        cluster.send(verbs.get(kinds.NODES, "n1"), patience=0.0)

    with pytest.raises(errors.Unreachable) as caught:
        cluster.send(EVICT, before_send=before_send, patience=0.0)
    assert caught.value.request is not None
    assert caught.value.request.verb == "get"
    assert [call.method for call in api.calls] == ["GET"]
