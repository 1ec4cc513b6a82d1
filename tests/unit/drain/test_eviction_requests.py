# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which EvictionRequests count, and what a plan tells of pods with responders (shapes: k8s.io/api v0.37.1)."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import eviction_requests
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import preflight
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import NOW, planned, web

RESPONDED: Raw = {"responders": ["acme.io/db", "acme.io/cache"]}


def request(pod: str = "web-0", intent: str = "Eviction", ended: str = "", **meta: t.Any) -> Raw:
    """As a requester makes it; the controller ends it with a condition."""
    conditions = [{"type": ended, "status": "True", "reason": "PodDeleted"}] if ended else []
    return {
        "metadata": {"name": "away", "namespace": "shop", "uid": "uid-away", **meta},
        "spec": {"target": {"pod": {"name": pod, "uid": f"uid-{pod}"}}, "requester": "acme.io/nodes", "intent": intent},
        "status": {"conditions": conditions},
    }


@pytest.mark.parametrize(
    ("raw", "counts"),
    [
        (request(), True),
        (request(ended="SomethingElse"), True),
        (request("web-1"), False),
        (request(intent="Withdrawn"), False),
        (request(ended="TargetEvicted"), False),
        (request(ended="Failed"), False),
        (request(deletionTimestamp="2026-01-01T00:00:00Z"), False),
        ({**request(), "status": {}}, True),
        ({**request(), "spec": {"target": {}, "requester": "acme.io/nodes", "intent": "Eviction"}}, False),
    ],
)
def test_a_request_counts_while_it_is_wanted_and_for_this_pod_only(raw: Raw, counts: bool) -> None:
    found = web(3, eviction_requests=[raw])
    assert (eviction_requests.active(found, found.pods[0]) is not None) is counts


def told(found: t.Any, **choices: t.Any) -> dict[str, t.Any]:
    plans = planned(found, **choices)
    asked = preflight.DraftOptions(("n1",), DrainPolicy(**choices), now=NOW)
    return {finding.code: finding for finding in preflight.findings(found, plans, asked, (("n1",),))}


def test_responders_are_named_once_for_a_workload() -> None:
    found = told(web(3, here=2, pod_changes=RESPONDED))
    finding = found["eviction_responders"]
    assert (finding.severity, finding.object, finding.nodes) == ("warning", "Deployment shop/web", ("n1",))
    assert "acme.io/db, acme.io/cache" in finding.message
    assert "eviction_requested" not in found


def test_a_request_for_a_pod_with_responders_is_named() -> None:
    finding = told(web(3, pod_changes=RESPONDED, eviction_requests=[request()]))["eviction_requested"]
    assert (finding.severity, finding.object) == ("info", "EvictionRequest shop/away")
    assert "acme.io/nodes" in finding.message
    assert "10 minutes" in finding.remedy


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(
            web(3, eviction_requests=[request()]), id="no responders: the request ends in an eviction like ours"
        ),
        pytest.param(web(1, pod_changes=RESPONDED, eviction_requests=[request()]), id="surged"),
    ],
)
def test_nothing_is_told_where_responders_have_no_bearing(found: t.Any) -> None:
    assert not {"eviction_responders", "eviction_requested"} & set(told(found))
