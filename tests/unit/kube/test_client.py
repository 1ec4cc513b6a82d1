# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is sent once, what is sent again, and what is never sent twice."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, exchange, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.client import Cluster
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.clocks import Clock
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.connection import ConnectionOptions, connect
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.retry import Backoff
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.api import (
    BEFORE,
    INSIDE,
    RECORDED,
    RESET,
    Api,
)

NODE = verbs.get(kinds.NODES, "n1")
PATH = "/api/v1/nodes/n1"
PATCH = verbs.merge_patch(kinds.NODES, "n1", {"spec": {"unschedulable": True}})
EVICT = verbs.evict("shop", "web-1", "u1")
EVICT_PATH = "/api/v1/namespaces/shop/pods/web-1/eviction"


def test_a_request_arrives_as_it_was_meant(api: Api, cluster: Cluster) -> None:
    api.expect("PATCH", PATH, {"kind": "Node"}, query={"fieldManager": verbs.FIELD_MANAGER})
    assert cluster.send(PATCH) == {"kind": "Node"}
    call = api.calls[0]
    assert call.body == {"spec": {"unschedulable": True}}
    assert call.header("Content-Type") == "application/merge-patch+json"
    assert call.header("Accept") == "application/json"
    assert call.header("User-Agent") == "kubeops.node_maintenance/test"
    assert call.header("Authorization") == "Bearer first"
    assert cluster.requests == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("budget_spent", errors.BudgetSpent),
        ("budget_not_observed", errors.BudgetNotObserved),
        ("two_budgets", errors.TwoBudgets),
        ("uid_conflict", errors.Conflict),
        ("webhook_denies_429", errors.DeniedByWebhook),
        ("evict_gone", errors.NotFound),
        ("storage_frozen_write", errors.UnknownOutcome),
        ("webhook_down", errors.ServerError),
    ],
)
def test_decisions_of_the_server_are_not_asked_for_twice(
    api: Api, cluster: Cluster, name: str, kind: type[errors.ClusterError]
) -> None:
    known = RECORDED[name]
    api.expect("POST", EVICT_PATH, known["body"], status=known["status"], headers=known["headers"])
    with pytest.raises(kind) as caught:
        cluster.send(EVICT, patience=30)
    assert caught.value.request is EVICT
    assert cluster.requests == 1


@pytest.mark.parametrize("cut", [BEFORE, INSIDE, RESET])
def test_a_write_whose_answer_is_lost_is_not_repeated(api: Api, cluster: Cluster, cut: str) -> None:
    api.expect("POST", EVICT_PATH, {"kind": "Status", "status": "Success"}, cut=cut)
    with pytest.raises(errors.UnknownOutcome, match="pods/eviction shop/web-1"):
        cluster.send(EVICT, patience=30)


def test_a_write_without_an_answer_in_time_is_not_repeated(api: Api, cluster: Cluster) -> None:
    api.expect("POST", EVICT_PATH, delay=5.0)
    began = time.monotonic()
    with pytest.raises(errors.UnknownOutcome, match="no answer in time"):
        cluster.send(EVICT, timeout=0.3, patience=30)
    assert time.monotonic() - began < 1.0


@pytest.mark.parametrize("cut", [BEFORE, INSIDE, RESET])
def test_a_read_that_is_cut_is_repeated(api: Api, cluster: Cluster, cut: str) -> None:
    api.expect("GET", PATH, {"kind": "Node"}, cut=cut)
    api.expect("GET", PATH, {"kind": "Node"})
    assert cluster.send(NODE, patience=10)["kind"] == "Node"
    assert cluster.requests == 2


def test_a_read_that_is_cut_without_patience_is_unreachable(api: Api, cluster: Cluster) -> None:
    api.expect("GET", PATH, cut=BEFORE)
    with pytest.raises(errors.Unreachable):
        cluster.send(NODE, patience=0.0)


def test_an_answer_that_drips_ends_at_the_timeout(api: Api, cluster: Cluster) -> None:
    # Far more often than the timeout, because on a busy machine a drop may be late: then no answer comes in time.
    drops: list[Any] = [b"[", *(x for _unused in range(60) for x in (0.1, b" "))]
    api.expect("GET", PATH, events=drops)
    began = time.monotonic()
    with pytest.raises(errors.Unreachable, match="took too long"):
        cluster.send(NODE, timeout=2.0, patience=0.0)
    assert time.monotonic() - began < 5.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_refused_connection_is_tried_again_even_for_a_write(
    serve: Callable[..., Api],
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    cluster = connect(ConnectionOptions(host=url, api_key="t"), user_agent="x")
    started: list[Api] = []

    def later() -> None:
        api = serve(port=port)
        api.expect("POST", EVICT_PATH, {"status": "Success"})
        started.append(api)

    timer = threading.Timer(0.6, later)
    timer.start()
    try:
        assert cluster.send(EVICT, patience=20) == {"status": "Success"}
    finally:
        timer.join()
    assert len(started[0].calls) == 1
    assert cluster.requests > 1


def test_patience_ends(cluster: Cluster) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    nobody = connect(ConnectionOptions(host=url, api_key="t"), user_agent="x")
    began = time.monotonic()
    with pytest.raises(errors.Unreachable, match=f"{url}: Connection refused"):
        nobody.send(EVICT, patience=1.0)
    assert 0.9 < time.monotonic() - began < 2.5


def test_a_server_that_never_answered_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "FIRST_CONTACT_SECONDS", 0.5)
    url = f"http://127.0.0.1:{free_port()}"
    nobody = connect(ConnectionOptions(host=url, api_key="t"), user_agent="x", answered=False)
    began = time.monotonic()
    with pytest.raises(errors.Unreachable, match=f"{url}: Connection refused. Check the address in the credentials"):
        nobody.send(NODE, patience=60)
    assert time.monotonic() - began < 3


def test_a_server_that_goes_away_after_its_first_answer_is_waited_for(
    serve: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "FIRST_CONTACT_SECONDS", 0.1)
    api = serve()
    api.expect("GET", PATH, {"kind": "Node"})
    cluster = connect(ConnectionOptions(host=api.url, api_key="t"), user_agent="x", answered=False)
    assert cluster.send(NODE, patience=0)["kind"] == "Node"
    api.expect("GET", PATH, cut=BEFORE)
    api.expect("GET", PATH, {"kind": "Node"})
    assert cluster.send(NODE, patience=20)["kind"] == "Node"
    cluster.close()


def test_closing_ends_the_patience() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    nobody = connect(ConnectionOptions(host=url, api_key="t"), user_agent="x")
    threading.Timer(0.3, nobody.close).start()
    began = time.monotonic()
    with pytest.raises(errors.Unreachable):
        nobody.send(NODE, patience=60)
    assert time.monotonic() - began < 2.0


def test_an_overloaded_server_is_asked_again_after_its_time(api: Api, cluster: Cluster) -> None:
    known = RECORDED["overloaded"]
    api.expect("POST", EVICT_PATH, known["body"], status=429, headers=known["headers"])
    api.expect("POST", EVICT_PATH, {"status": "Success"})
    began = time.monotonic()
    cluster.send(EVICT, patience=20)
    assert 1.0 <= time.monotonic() - began < 3.0


def test_a_retry_after_beyond_the_patience_ends_at_once(api: Api, cluster: Cluster) -> None:
    api.expect("GET", PATH, "busy", status=503, headers={"Retry-After": "60"})
    began = time.monotonic()
    with pytest.raises(errors.Overloaded) as caught:
        cluster.send(NODE, patience=5)
    assert caught.value.retry_after == 60
    assert time.monotonic() - began < 1.0


def test_a_write_that_a_proxy_failed_to_hand_on_is_in_doubt(api: Api, cluster: Cluster) -> None:
    api.expect("POST", EVICT_PATH, "<html>503 upstream reset</html>", status=503)
    with pytest.raises(errors.UnknownOutcome) as caught:
        cluster.send(EVICT, patience=30)
    assert "<html>" not in str(caught.value)


def refuse(api: Api, times: int, status: int = 403) -> None:
    known = RECORDED["forbidden" if status == 403 else "unauthorized"]
    api.expect("POST", EVICT_PATH, known["body"], status=status, times=times)


def test_a_right_that_was_never_granted_is_asked_for_once_more(api: Api, cluster: Cluster) -> None:
    refuse(api, 2)
    began = time.monotonic()
    with pytest.raises(errors.Forbidden) as caught:
        cluster.send(EVICT, patience=30)
    assert 0.45 < time.monotonic() - began < 2.0
    assert caught.value.request is EVICT
    assert cluster.requests == 2


def test_one_refusal_is_no_verdict(api: Api, cluster: Cluster) -> None:
    refuse(api, 1)
    api.expect("POST", EVICT_PATH, {"status": "Success"})
    assert cluster.send(EVICT, patience=30) == {"status": "Success"}


def test_without_patience_one_refusal_is_one(api: Api, cluster: Cluster) -> None:
    refuse(api, 1)
    with pytest.raises(errors.Forbidden):
        cluster.send(EVICT, patience=0.0)


@pytest.mark.parametrize("status", [403, 401])
def test_a_right_that_was_granted_before_is_asked_for_until_it_is_again(
    api: Api, cluster: Cluster, status: int
) -> None:
    """As after the start of an API server that has not read the roles yet; the fence is asked each time."""
    asked: list[int] = []
    api.expect("POST", EVICT_PATH, RECORDED["uid_conflict"]["body"], status=409)
    with pytest.raises(errors.Conflict):
        cluster.send(EVICT, patience=0.0)
    refuse(api, 3 if status == 403 else 6, status)  # a 401 is met with credentials read anew
    api.expect("POST", EVICT_PATH, {"status": "Success"})
    cluster.send(EVICT, patience=30, before_send=lambda: asked.append(len(api.calls)))
    assert asked == ([1, 2, 3, 4] if status == 403 else [1, 2, 3, 4, 5, 6, 7])


def test_a_right_that_stays_away_is_asked_for_no_longer_than_patience(api: Api, cluster: Cluster) -> None:
    api.expect("POST", EVICT_PATH, {"status": "Success"})
    cluster.send(EVICT)
    known = RECORDED["forbidden"]
    api.expect("POST", EVICT_PATH, known["body"], status=403, times=4)
    began = time.monotonic()
    with pytest.raises(errors.Forbidden):
        cluster.send(EVICT, patience=1.5)
    assert 1.2 < time.monotonic() - began < 2.5


def test_a_right_in_another_namespace_is_another_one(api: Api, cluster: Cluster) -> None:
    api.expect("POST", EVICT_PATH, {"status": "Success"})
    cluster.send(EVICT)
    assert cluster.granted(EVICT)
    assert not cluster.granted(verbs.evict("bank", "web-1", "u1"))
    assert not cluster.granted(verbs.get(kinds.PODS, "web-1", "shop"))


def test_a_quota_is_not_argued_with(api: Api, cluster: Cluster) -> None:
    known = RECORDED["quota"]
    api.expect("POST", EVICT_PATH, known["body"], status=403)
    with pytest.raises(errors.AgainstRule):
        cluster.send(EVICT, patience=30)


def test_the_fence_is_asked_before_every_attempt_and_keeps_it_here(api: Api, cluster: Cluster) -> None:
    api.expect("POST", EVICT_PATH, {"kind": "Status"}, status=503)
    asked: list[int] = []

    def before_send() -> None:
        asked.append(len(api.calls))
        if len(asked) == 2:
            raise RuntimeError("the lock is lost")

    with pytest.raises(RuntimeError, match="the lock is lost"):
        cluster.send(EVICT, patience=30, before_send=before_send)
    assert asked == [0, 1]
    assert len(api.calls) == 1


def test_a_fence_may_send_requests_of_its_own(api: Api, cluster: Cluster) -> None:
    api.expect("GET", PATH, {"kind": "Node", "metadata": {"name": "n1"}})
    api.expect("POST", EVICT_PATH, {"kind": "Status"}, status=201)

    def before_send() -> None:
        cluster.send(NODE)

    cluster.send(EVICT, before_send=before_send)
    assert [call.method for call in api.calls] == ["GET", "POST"]


def test_from_the_fence_to_the_last_byte_is_a_moment(cluster_at: Callable[[str], Cluster]) -> None:
    """What the guide says about what remains possible when a lock is lost; most of it is the network's."""
    passed: list[float] = []
    arrived: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            peer, _address = listening.accept()
            with peer, peer.makefile("rb") as reading:
                for _eviction in range(100):
                    length = 0
                    while (line := reading.readline()) not in (b"\r\n", b""):
                        if line.lower().startswith(b"content-length:"):
                            length = int(line.split(b":")[1])
                    reading.read(length)
                    arrived.append(time.perf_counter())
                    peer.sendall(
                        b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
                    )

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        cluster = cluster_at(f"http://127.0.0.1:{listening.getsockname()[1]}")
        for _eviction in range(100):
            cluster.send(EVICT, before_send=lambda: passed.append(time.perf_counter()))
        server.join(10)
    took = sorted(1000 * (end - begin) for begin, end in zip(passed, arrived, strict=True))
    print(f"from fence to last byte: median {took[50]:.2f} ms, 99 of 100 within {took[98]:.2f} ms")
    assert took[50] < 20.0


def test_delays_grow_are_spread_and_bounded() -> None:
    backoff = Backoff(Clock(), first=0.5, longest=2.0)
    delays = [backoff.delay() for _unused in range(5)]
    for delay, step in zip(delays, [0.5, 1.0, 2.0, 2.0, 2.0], strict=True):
        assert step <= delay <= step * 1.5
    backoff.reset()
    assert backoff.delay() <= 0.75
    assert backoff.delay(errors.Overloaded("x", retry_after=7.0)) >= 7.0


def test_a_login_page_is_not_taken_for_an_answer(api: Api, cluster: Cluster) -> None:
    api.expect("GET", PATH, "<html>log in</html>")
    with pytest.raises(errors.ServerError, match="not JSON"):
        cluster.send(NODE, patience=30)
    api.expect("PATCH", PATH, "<html>log in</html>")
    with pytest.raises(errors.UnknownOutcome, match="not JSON"):
        cluster.send(PATCH, patience=30)


def test_a_redirect_is_not_followed(api: Api, cluster: Cluster) -> None:
    api.expect("GET", PATH, status=302, headers={"Location": f"{api.url}/elsewhere"})
    with pytest.raises(errors.ServerError, match="302"):
        cluster.send(NODE, patience=0.0)


def test_a_refused_token_without_a_better_one_is_unauthorized(api: Api, cluster: Cluster) -> None:
    known = RECORDED["unauthorized"]
    api.expect("GET", PATH, known["body"], status=401, times=2)
    with pytest.raises(errors.Unauthorized, match="the credentials given for http:"):
        cluster.send(NODE, patience=30)
    assert cluster.requests == 2


def test_guard_speaks_before_every_request(api: Api) -> None:
    class Stop(Exception):
        pass

    left = [1]

    def guard() -> None:
        if not left:
            raise Stop
        left.pop()

    options = ConnectionOptions(host=api.url, api_key="t")
    cluster = connect(options, user_agent="x", guard=guard)
    api.expect("GET", PATH, cut=BEFORE)
    with pytest.raises(Stop):
        cluster.send(NODE, patience=30)
    with pytest.raises(Stop):
        cluster.stream(verbs.watch(kinds.PODS), read_timeout=5)
    with pytest.raises(Stop):
        cluster.items(kinds.PODS, patience=0.0)
    assert cluster.requests == 1
