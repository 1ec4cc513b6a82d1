# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The proxy between the collection and an API server hands on everything as it is, but for what it is told to do."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chaos.proxy import PASS_ON, Act, Asked, Proxy, is_write, kind_of, status
from witness.api import Api as Client
from witness.api import ApiError

from ansible_collections.kubeops.node_maintenance.tests.unit.kube.api import CERTS, Api

NODE = "/api/v1/nodes/n1"


@pytest.fixture
def server() -> Iterator[Api]:
    api = Api(certificate="server")
    yield api
    api.close()
    api.check()


@pytest.fixture
def proxy(server: Api, tmp_path: Path) -> Iterator[Proxy]:
    known = {
        "clusters": [{"name": "c", "cluster": {"server": server.url, "certificate-authority": str(CERTS / "ca.pem")}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = tmp_path / "direct"
    path.write_text(yaml.safe_dump(known), encoding="utf-8")
    with Proxy(path) as made:
        yield made


@pytest.fixture
def client(proxy: Proxy, tmp_path: Path) -> Client:
    return Client(proxy.kubeconfig(tmp_path / "through"), "test/1")


def at(number: int, act: Act) -> Any:
    return lambda asked: act if asked.number == number else PASS_ON


def test_requests_go_through_as_they_are_and_are_counted(server: Api, proxy: Proxy, client: Client) -> None:
    server.expect("GET", NODE, {"kind": "Node"})
    server.expect("PATCH", NODE, {"kind": "Node"}, query={"dryRun": "All"})
    server.expect("PATCH", NODE, {"changed": True}, headers={"Date": "Sun, 01 Feb 2026 00:00:00 GMT"})
    assert client.get(NODE) == {"kind": "Node"}
    client.patch(f"{NODE}?dryRun=All", {"spec": {}})
    assert client.patch(NODE, {"spec": {}}) == {"changed": True}
    assert [(asked.number, asked.write, asked.same) for asked in proxy.asked] == [(1, 0, 1), (2, 0, 1), (3, 1, 2)]
    assert proxy.writes == 1
    call = server.calls[-1]
    assert call.body == {"spec": {}}
    assert call.header("Authorization") == "Bearer secret"
    assert call.header("User-Agent") == "test/1"
    assert call.header("Content-Type") == "application/merge-patch+json"


def test_a_refusal_of_the_server_goes_through(server: Api, client: Client) -> None:
    server.expect("GET", NODE, {"message": "no such node"}, status=404)
    with pytest.raises(ApiError) as caught:
        client.get(NODE)
    assert caught.value.status == 404
    assert caught.value.body == {"message": "no such node"}


def test_an_answer_of_its_own_reaches_no_server(server: Api, proxy: Proxy, client: Client) -> None:
    proxy.decide = at(1, Act(instead=status(429, "TooManyRequests", "later", retry_after=3)))
    with pytest.raises(ApiError) as caught:
        client.patch(NODE, {})
    assert caught.value.status == 429
    assert caught.value.body["details"] == {"retryAfterSeconds": 3}
    assert server.calls == []


def test_a_lost_answer_is_carried_out_and_never_told(server: Api, proxy: Proxy, client: Client) -> None:
    server.expect("PATCH", NODE, {"changed": True})
    proxy.decide = at(1, Act(lost=True))
    with pytest.raises((http.client.RemoteDisconnected, OSError)):
        client.patch(NODE, {})
    assert len(server.calls) == 1


def test_what_is_not_handed_on_is_lost_without_being_carried_out(server: Api, proxy: Proxy, client: Client) -> None:
    order: list[str] = []
    proxy.decide = at(1, Act(before=lambda: order.append("before"), forward=False))
    with pytest.raises((http.client.RemoteDisconnected, OSError)):
        client.patch(NODE, {})
    assert order == ["before"]
    assert server.calls == []


def test_before_and_after_are_on_their_sides_of_the_server(server: Api, proxy: Proxy, client: Client) -> None:
    seen: list[int] = []
    server.expect("PATCH", NODE, {})

    def note() -> None:
        seen.append(len(server.calls))

    proxy.decide = at(1, Act(before=note, after=note))
    client.patch(NODE, {})
    assert seen == [0, 1]


def test_a_watch_is_streamed_event_by_event(server: Api, proxy: Proxy, client: Client) -> None:
    step = server.expect("GET", "/api/v1/nodes", query={"watch": "1"}, events=[{"type": "ADDED"}], hold=True)
    events = client.watch("/api/v1/nodes", "1", 10.0)
    assert next(events) == {"type": "ADDED"}
    step.send({"type": "MODIFIED"})
    assert next(events) == {"type": "MODIFIED"}
    step.finish.set()
    assert list(events) == []
    assert [asked.watches for asked in proxy.asked] == [True]


def test_the_server_hears_when_the_client_of_a_watch_hangs_up(server: Api, client: Client) -> None:
    step = server.expect("GET", "/api/v1/nodes", events=[{"type": "ADDED"}], hold=True)
    events = client.watch("/api/v1/nodes", "1", 10.0)
    next(events)
    events.close()  # type: ignore[attr-defined]
    assert step.ended.wait(5)


def test_open_watches_can_be_cut(server: Api, proxy: Proxy, client: Client) -> None:
    step = server.expect("GET", "/api/v1/nodes", events=[{"type": "ADDED"}], hold=True)
    events = client.watch("/api/v1/nodes", "1", 10.0)
    next(events)
    threading.Timer(0.1, proxy.cut_streams).start()
    assert list(events) == []
    assert step.ended.wait(5)


@pytest.mark.parametrize(
    ("method", "path", "writes"),
    [
        ("GET", NODE, False),
        ("PATCH", NODE, True),
        ("POST", "/api/v1/namespaces/a/pods/p/eviction", True),
        ("POST", "/api/v1/namespaces/a/pods/p/eviction?dryRun=All", False),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", False),
    ],
)
def test_what_counts_as_a_write(method: str, path: str, writes: bool) -> None:
    assert is_write(method, path) is writes


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("PATCH", "/api/v1/nodes/n1", "patch-nodes"),
        ("GET", "/api/v1/pods?watch=true", "get-pods"),
        ("POST", "/api/v1/namespaces/a/pods/p/eviction?dryRun=All", "post-eviction"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/node-n1", "put-leases"),
        ("GET", "/api/v1/namespaces/a", "get-namespaces"),
        ("GET", "/version", "get-other"),
        ("GET", "/apis/policy/v1", "get-other"),
    ],
)
def test_kinds_of_requests(method: str, path: str, kind: str) -> None:
    assert kind_of(method, path) == kind


def test_a_request_in_words() -> None:
    assert str(Asked(1, 0, "GET", "/api/v1/pods?watch=true")) == "GET /api/v1/pods (watch)"
