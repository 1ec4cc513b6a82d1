# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is said of a maintenance to those who look at a node, a workload or a chat."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import announcement
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.build import build_report
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.model import Cluster
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.text import rfc3339

AT = 1_767_225_600.0
WEB = Ref("Deployment", "web", "shop")


def told(moment: t.Any, pods: int = 1, nodes: int = 1, **more: t.Any) -> announcement.Announcement:
    """The plan of a wave in which so many pods of Deployment `web` have to move."""
    names = [f"n{number:02}" for number in range(nodes)]
    plan = {
        "feasible": True,
        "findings": [],
        "waves": [names],
        "wave_seconds": [12],
        "estimate_seconds": 12,
        "nodes": [{"name": name, "outcome": "planned", "failed": False, "message": ""} for name in names],
        "pods": [
            {
                "namespace": "shop",
                "name": f"web-{number}",
                "uid": f"u{number}",
                "node": names[number % nodes],
                "route": "evict",
                "owner": "Deployment shop/web",
            }
            for number in range(pods)
        ],
    }
    return announcement.Announcement(moment, AT, "ann", build_report([plan]), **more)


@pytest.mark.parametrize(
    ("moment", "pods", "words"),
    [
        ("planned", 1, "Maintenance planned: 1 pod on n00 has to move."),
        ("started", 2, "Maintenance started: 2 pods on n00 have to move."),
    ],
)
def test_a_workload_is_told_how_many_of_its_pods_move(moment: str, pods: int, words: str) -> None:
    assert told(moment, pods).about(WEB) == words


@pytest.mark.parametrize("moment", ["planned", "started"])
def test_nodes_that_are_left_out_are_not_announced(moment: t.Any) -> None:
    plan = {
        "feasible": True,
        "waves": [["n1"]],
        "nodes": [{"name": "n1", "outcome": "planned"}, {"name": "n2", "outcome": "blocked", "failed": True}],
        "pods": [
            {"namespace": "shop", "name": f"web-{on}", "node": on, "route": "evict", "owner": "Deployment shop/web"}
            for on in ("n1", "n2")
        ],
    }
    found = announcement.Announcement(moment, AT, "ann", build_report([plan]))
    assert found.sentence == f"Maintenance {moment}: n1 (1 wave, 1 pod to move)."
    body = found.body()
    assert ([node["name"] for node in body["nodes"]], body["workloads"][0]["pods"]) == (["n1"], 1)
    assert (body["summary"]["nodes"], body["summary"]["waves"]) == (1, 1)


@pytest.mark.parametrize("moment", ["ended", "failed"])
def test_a_workload_is_told_how_it_ended(moment: str) -> None:
    assert told(moment, 2).about(WEB).startswith(f"Maintenance {moment} (2 pods on n00 concerned): ")


@pytest.mark.parametrize(("count", "more"), [(9, ""), (10, ""), (11, " and 1 more"), (13, " and 3 more")])
def test_ten_nodes_are_named(count: int, more: str) -> None:
    shown = ", ".join(f"n{number:02}" for number in range(min(count, 10)))
    assert told("planned", nodes=count).sentence.startswith(f"Maintenance planned: {shown}{more} (")


PROD = Cluster("prod", "https://one.example:6443")


@pytest.mark.parametrize("moment", t.get_args(announcement.Moment))
def test_every_form_of_an_announcement_names_the_cluster(moment: t.Any) -> None:
    found = told(moment, run="r1", cluster=PROD)
    assert " in prod: n00" in found.sentence
    assert found.body()["cluster"] == {"context": "prod", "server": "https://one.example:6443"}
    assert "cluster: prod (https://one.example:6443)" in found.slack()["text"].split("\n")


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        ("planned", "Maintenance of this node, in wave 1, planned."),
        ("started", "Maintenance of this node, in wave 1, started."),
        ("ended", "Maintenance ended: this node is not reached."),
    ],
)
def test_a_node_is_told_when_it_leaves_and_how_it_ended(moment: str, words: str) -> None:
    assert told(moment).about(Ref("Node", "n00")) == words


def test_without_a_forecast_it_lasts_no_time() -> None:
    plan = {"feasible": True, "findings": [], "waves": [["n00"]]}
    assert announcement.Announcement("planned", AT, "ann", build_report([plan])).window == (AT, AT)


@pytest.mark.parametrize("moment", ["planned", "started"])
def test_what_lies_ahead_takes_the_work_on_the_hosts_too(moment: t.Any) -> None:
    found = told(moment, seconds=1812.0)
    assert "about 30 min 12 s" in found.sentence
    assert found.window == (AT, AT + 1812)
    assert told(moment).window == (AT, AT + 12)
    in_window = told(moment, seconds=1812.0, start=AT + 3600, end=AT + 7200)
    assert "about 30 min 12 s" in in_window.sentence
    assert in_window.window == (AT + 3600, AT + 7200)


@pytest.mark.parametrize("moment", ["ended", "failed"])
def test_what_is_over_was_when_it_really_was(moment: t.Any) -> None:
    cordoned = {"at": rfc3339(AT - 90), "node": "n00", "what": "cordoned", "message": "", "phase": "cordoned"}
    entry = {"name": "n00", "outcome": "cordoned", "failed": False, "message": ""}
    plan = {"feasible": True, "findings": [], "waves": [["n00"]], "estimate_seconds": 3600}
    begun = build_report([plan, {"nodes": [entry], "timeline": [cordoned]}])
    assert announcement.Announcement(moment, AT, "ann", begun).window == (AT - 90, AT)
    assert announcement.Announcement(moment, AT, "ann", build_report([plan])).window == (AT, AT), "nothing was done"


@pytest.mark.parametrize(("count", "more"), [(9, []), (10, []), (11, ["… and 1 more"])])
def test_ten_errors_are_told_in_a_chat(count: int, more: list[str]) -> None:
    lines = told("failed", errors=tuple(f"error {number}" for number in range(count))).slack()["text"].split("\n")
    assert sum(line.startswith("• error ") for line in lines) == min(count, 10)
    assert [line for line in lines if line.startswith("… ")] == more


@pytest.mark.parametrize(
    ("line", "size", "kept"),
    [("abcdef", 6, "abcdef"), ("abcdefg", 6, "abc..."), ("äöü", 6, "äöü"), ("äöüx", 6, "ä...")],
)
def test_a_line_is_cut_by_its_bytes_and_no_character_in_two(line: str, size: int, kept: str) -> None:
    assert announcement.clipped(line, size) == kept
