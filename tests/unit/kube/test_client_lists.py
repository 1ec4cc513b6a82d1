# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists in pages, and the connections that many requests share."""

from __future__ import annotations

import gzip
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.client import Cluster
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.transports import MAX_CONNECTIONS
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.api import (
    INSIDE,
    Api,
    Call,
    listing,
    pod,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.test_client import NODE, PATCH, PATH


def test_pages_become_one_list_with_kinds(api: Api, cluster: Cluster) -> None:
    api.expect(
        "GET",
        "/api/v1/pods",
        listing("Pod", pod("a"), pod("b"), version="7", token="next"),
        query={"limit": "2", "labelSelector": "app=web"},
        matches=lambda call: "continue" not in call.query,
    )
    api.expect(
        "GET",
        "/api/v1/pods",
        listing("Pod", pod("c"), version="7"),
        query={"limit": "2", "labelSelector": "app=web", "continue": "next"},
    )
    found = cluster.items(kinds.PODS, labels="app=web", limit=2)
    assert [item["metadata"]["name"] for item in found.items] == ["a", "b", "c"]
    assert {(item["apiVersion"], item["kind"]) for item in found.items} == {("v1", "Pod")}
    assert found.resource_version == "7"
    assert cluster.requests == 2


GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "the token is too old"}


def first(call: Call) -> bool:
    return "continue" not in call.query


def test_pages_that_expire_begin_again(api: Api, cluster: Cluster) -> None:
    page = listing("Pod", pod("old"), token="t1")
    api.expect("GET", "/api/v1/pods", page, matches=first)
    api.expect("GET", "/api/v1/pods", GONE, query={"continue": "t1"}, status=410)
    api.expect("GET", "/api/v1/pods", listing("Pod", pod("new"), version="9"), matches=first)
    found = cluster.items(kinds.PODS)
    assert [item["metadata"]["name"] for item in found.items] == ["new"]


def test_pages_that_always_expire_are_asked_for_in_one_piece(api: Api, cluster: Cluster) -> None:
    page = listing("Pod", pod("old"), token="t1")
    api.expect("GET", "/api/v1/pods", page, query={"limit": "1000"}, matches=first, times=3)
    api.expect("GET", "/api/v1/pods", GONE, query={"continue": "t1"}, status=410, times=3)
    api.expect(
        "GET",
        "/api/v1/pods",
        listing("Pod", pod("new")),
        matches=lambda call: "limit" not in call.query,
    )
    assert len(cluster.items(kinds.PODS).items) == 1


def test_a_list_may_come_compressed(api: Api, cluster: Cluster) -> None:
    page = gzip.compress(json.dumps(listing("Pod", pod("a"))).encode())
    api.expect("GET", "/api/v1/pods", page, headers={"Content-Encoding": "gzip"})
    assert len(cluster.items(kinds.PODS).items) == 1
    assert api.calls[0].header("Accept-Encoding") == "gzip"


def test_an_empty_list_may_be_null(api: Api, cluster: Cluster) -> None:
    api.expect("GET", "/api/v1/pods", {"kind": "PodList", "metadata": {}, "items": None})
    assert cluster.items(kinds.PODS).items == []


def test_many_threads_share_connections_that_stay(api: Api, cluster: Cluster) -> None:
    api.expect("GET", PATH, {"kind": "Node"}, times=200)
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _unused: cluster.send(NODE), range(200)))
    assert len(answers) == 200
    assert cluster.requests == 200
    assert api.connections <= 16


def test_a_connection_that_the_server_closed_meanwhile_is_not_used_for_a_write(api: Api, cluster: Cluster) -> None:
    first = api.expect("GET", PATH, {"kind": "Node"}, headers={"Connection": "keep-alive"})
    api.expect("PATCH", PATH, {"kind": "Node"})
    cluster.send(NODE)
    assert first.ended.wait(2)
    api.drop_idle()
    time.sleep(0.1)
    cluster.send(PATCH)
    assert api.connections == 2


def test_answers_that_are_given_up_leave_their_places_in_the_pool(api: Api, cluster: Cluster) -> None:
    api.expect("GET", "/api/v1/pods", events=[], hold=True, times=MAX_CONNECTIONS + 1)
    for _unused in range(MAX_CONNECTIONS + 1):
        cluster.stream(verbs.watch(kinds.PODS), read_timeout=1).close()
    api.expect("GET", PATH, status=401, times=2 * MAX_CONNECTIONS)
    for _unused in range(MAX_CONNECTIONS):
        with pytest.raises(errors.Unauthorized):
            cluster.send(NODE, timeout=1, patience=0.0)
    api.expect("GET", PATH, {"kind": "Node"}, cut=INSIDE, times=MAX_CONNECTIONS)
    for _unused in range(MAX_CONNECTIONS):
        with pytest.raises(errors.Unreachable):
            cluster.send(NODE, timeout=1, patience=0.0)
    api.expect("GET", PATH, {"kind": "Node"})
    cluster.send(NODE, timeout=1)
