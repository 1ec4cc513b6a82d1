# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import re
from pathlib import Path

import handmade as h
import pytest
from handmade import Story
from witness import audit, demo, measures
from witness.log import Event, Json, load, log_of
from witness.traffic import Traffic


def web() -> Story:
    return Story().before(
        Deployment=h.deployment(),
        ReplicaSet=h.replica_set(),
        Pod=h.pod("web-0"),
        Service=h.service(),
        EndpointSlice=h.endpoints("web-0"),
    )


def test_dark_seconds_are_the_sum_of_the_spans_without_a_ready_endpoint() -> None:
    story = web().at(2, EndpointSlice=h.endpoints(not_ready=["web-0"]))
    story.at(7, EndpointSlice=h.endpoints("web-1")).at(58, EndpointSlice=h.endpoints())
    log = story.end(60)
    spans = measures.dark_spans(log, "shop", "web")
    assert [(round(start), round(end)) for start, end in spans] == [(2, 7), (58, 60)]
    assert measures.dark_seconds(log, "shop", "web") == pytest.approx(7)


def test_a_service_of_a_workload_scaled_to_zero_is_not_dark() -> None:
    story = web().at(1, Deployment=h.deployment(replicas=0), ReplicaSet=h.replica_set(replicas=0))
    assert measures.dark_seconds(story.at(2, EndpointSlice=h.endpoints()).end(), "shop", "web") == 0


def test_new_pods_are_counted_by_uid_and_by_the_workload_on_top() -> None:
    story = web().at(1, Pod=[h.pod("web-1"), h.pod("other-1", of="other")])
    story.at(2, Pod=h.pod("web-1", ready=False)).gone(3, "Pod", "web-0")
    assert measures.new_pods(story.end(), "Deployment", "shop", "web") == ["web-1"]


def test_the_fewest_ready_pods_and_the_values_of_a_field() -> None:
    story = web().at(1, Deployment=h.deployment(replicas=2), Pod=h.pod("web-1", ready=False))
    story.at(2, Pod=h.pod("web-0", ending=True)).at(3, Deployment=h.deployment(replicas=1))
    log = story.end()
    assert measures.least_ready(log, "Deployment", "shop", "web") == 0
    assert measures.values(log, "Deployment", "shop", "web", "spec", "replicas") == [1, 2, 1]


def shut(node: str = "n1", cordoned: bool = True) -> Json:
    return {"metadata": {"name": node, "uid": f"uid-{node}"}, "spec": {"unschedulable": True} if cordoned else {}}


def test_a_node_is_emptied_when_the_last_pod_that_has_to_go_is_gone() -> None:
    story = web().before(Node=shut(cordoned=False)).at(1, Pod=h.pod("agent", owner=("DaemonSet", "agent")))
    story.before(DaemonSet={"metadata": h.meta("agent"), "spec": {}})
    story.at(2, Node=shut()).gone(9, "Pod", "web-0").at(12, Node=shut(cordoned=False)).at(13, Pod=h.pod("web-1"))
    assert measures.emptied_in(story.end(), "n1") == pytest.approx(7)
    assert measures.emptied_in(story.end(), "n2") is None


def test_a_node_with_a_pod_that_stays_is_not_emptied() -> None:
    story = web().before(Node=shut(cordoned=False)).at(2, Node=shut()).gone(4, "Pod", "web-0")
    story.at(5, Pod=h.pod("web-1")).at(6, Node=shut(cordoned=False)).gone(7, "Pod", "web-1")
    assert measures.emptied_in(story.end(), "n1") is None


def test_ways_to_drain_a_node_are_told_side_by_side() -> None:
    ours: Json = {"dark": {"shop/web": 0.0, "shop/api": 0.0}, "emptied": 13.04}
    theirs: Json = {"dark": {"shop/web": 5.2, "shop/api": 0.0}, "emptied": None}
    assert cells({"maintain": ours, "kubectl drain": theirs}) == [
        ["maintain", "kubectl drain"],
        ["shop/web", "0.0 s dark", "5.2 s dark"],
        ["the node was empty after", "13.0 s", "not at all"],
    ]
    ours |= {"failed": {"shop/web": 0, "shop/job": 0}, "sent": {"shop/web": 4000, "shop/api": 4000}}
    theirs |= {"failed": {"shop/web": 1208, "shop/job": 3}, "sent": {"shop/web": 2000, "shop/api": 1}}
    assert cells({"maintain": ours, "kubectl drain": theirs}) == [
        ["maintain", "kubectl drain"],
        ["shop/job", "0 failed, 0.0 s dark", "3 failed, 0.0 s dark"],
        ["shop/web", "0 failed, 0.0 s dark", "1,208 failed, 5.2 s dark"],
        ["requests failed", "0 of 8,000", "1,211 of 2,001"],
        ["the node was empty after", "13.0 s", "not at all"],
    ]


def test_failed_requests_are_told_by_service_and_by_the_connections_they_were_sent_over(tmp_path: Path) -> None:
    traffic = Traffic(Path("lab-web"), tmp_path)
    numbers = {("web", "new"): 0, ("web", "keep"): 0, ("mail", "new"): 0, ("mail", "keep"): 1}
    traffic.verdict = {
        "services": [
            {"service": f"shop/{name}", "kind": kind, "sent": 1000, "failed": failed}
            for (name, kind), failed in numbers.items()
        ]
    }
    total, *lines = demo.told(traffic)
    assert re.findall(r"[\d,]+", total) == ["1", "4,000", "2"]
    assert [re.findall(r"shop/mail|1 of 1,000|kept", line) for line in lines] == [["shop/mail", "1 of 1,000", "kept"]]


def cells(tools: dict[str, Json]) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in demo.side_by_side(tools)]


def test_objects_that_came_and_went_are_seen() -> None:
    story = web().at(1, PodDisruptionBudget=h.budget("kubeops-guard-1", maxUnavailable=1))
    log = story.gone(2, "PodDisruptionBudget", "kubeops-guard-1").end()
    assert [o["metadata"]["name"] for o in measures.appeared(log, "PodDisruptionBudget")] == ["kubeops-guard-1"]


def test_nodes_are_told_in_the_order_in_which_they_were_taken_out() -> None:
    story = Story().before(Node=[h.node("a"), h.node("b"), h.node("c", unschedulable=True)])
    story.at(1, Node=h.node("b", unschedulable=True)).at(2, Node=h.node("b"))
    assert measures.taken_out(story.at(3, Node=h.node("a", unschedulable=True)).end()) == ["b", "a"]


def test_events_are_judged_in_the_order_of_their_versions_not_of_their_arrival() -> None:
    known = list(web().end().events)
    new = Event("EndpointSlice", "MODIFIED", 5, 101.9, 5001.9, h.endpoints("web-1"))
    old = Event("EndpointSlice", "MODIFIED", 4, 102.0, 5002.0, h.endpoints())
    log = log_of([*known, new, old])
    assert measures.dark_seconds(log, "shop", "web") == 0.0
    assert [e.rv for e in log.events if e.type == "MODIFIED"] == [4, 5]


def test_a_log_file_is_read_back_but_for_a_half_written_line(tmp_path: Path) -> None:
    file = tmp_path / "log"
    line = {"kind": "Node", "type": "BEFORE", "rv": 3, "mono": 1.0, "wall": 2.0, "obj": h.node()}
    file.write_text(json.dumps(line) + '\n{"kind": "No', encoding="utf-8")
    log = load(file)
    assert [event.key for event in log.events] == [("Node", "", "n1")]
    assert not log.finished


def entry(**more: object) -> str:
    known: dict[str, object] = {
        "auditID": "1",
        "stage": "ResponseComplete",
        "verb": "create",
        "userAgent": "tool/1",
        "requestURI": "/api/v1/namespaces/shop/pods/web-0/eviction",
        "objectRef": {
            "resource": "pods",
            "subresource": "eviction",
            "namespace": "shop",
            "name": "web-0",
        },
        "responseStatus": {"code": 201},
        "requestReceivedTimestamp": "2026-01-01T00:00:01.500000Z",
    }
    return json.dumps({**known, **more})


def test_audit_lines_become_requests_each_once() -> None:
    lines = [entry(), entry(stage="ResponseStarted"), entry(auditID="2", verb="list"), "{half"]
    first, second = audit.parse(lines)
    assert first.evicts
    assert first.writes
    assert first.accepted
    assert first.at == 1767225601.5
    assert not second.writes


def test_a_dry_run_is_no_write_and_ends_no_pod() -> None:
    (asked,) = audit.parse([entry(requestURI="/x?dryRun=All")])
    assert not asked.writes
    assert not asked.ends_a_pod
    review = {"resource": "selfsubjectaccessreviews"}
    assert not audit.parse([entry(objectRef=review)])[0].writes


def test_requests_are_counted_by_agent_verb_and_resource() -> None:
    lines = [entry(auditID=str(number)) for number in range(3)]
    lines.append(entry(auditID="9", verb="list", userAgent="kube-scheduler/v1"))
    requests = audit.parse(lines)
    assert audit.counted(requests, "agent", "verb", "resource") == {
        ("tool/1", "create", "pods"): 3,
        ("kube-scheduler/v1", "list", "pods"): 1,
    }
    assert [request.by_the_system for request in requests] == [False, False, False, True]


def test_a_mark_leaves_out_what_was_logged_before_it(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    file.write_text(entry() + "\n", encoding="utf-8")
    mark = file.stat().st_size
    with file.open("a", encoding="utf-8") as log:
        log.write(entry(auditID="2", verb="list") + "\n")
    assert [request.verb for request in audit.read(file, mark)] == ["list"]
    assert [request.verb for request in audit.read(file, 0, mark)] == ["create"]
