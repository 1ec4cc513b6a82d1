# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The text for the terminal and the data for machines."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import model
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.build import build_report
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.text import (
    as_json,
    duration,
    summary_text,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.report.sample import NONCE, START, TOKEN, Sample

SHAPE = {
    "": "actions advice by check cluster earlier ended failed findings given_back headline nodes pods problems reason "
    "refusals run services started surges totals traffic traffic_faults verdict version watched",
    "nodes": "left marks message name outcome pods_failed pods_moved seconds spans tasks_failed waits wave",
    "nodes.spans": "end open phase seconds start",
    "nodes.marks": "at message what",
    "pods": "blocked_by code failed fits forecast_seconds held_seconds marks moved name namespace node outcome owner "
    "reason refused remedy route rule spans target uid waited_seconds",
    "pods.spans": "end open phase seconds start",
    "pods.marks": "at message what",
    "surges": "budget kind lowered message name namespace outcome raised ready replicas_before replicas_during",
    "services": "below_seconds dark dark_seconds desired highest lowest name namespace served watches",
    "services.dark": "end open phase seconds start",
    "services.watches": "end samples",
    "watched": "end open phase seconds start",
    "traffic": "ended failed failures kind sent service slowest_seconds started unanswered_seconds via",
    "traffic.failures": "at count kind",
    "traffic_faults": "message subject",
    "refusals": "blocker count first last longest_wait pods remedy rule stuck",
    "problems": "message subject",
    "findings": "code message object objects remedy severity",
    "given_back": "at kept message object",
}
TOTALS = (
    "dark_seconds evictions forecast_range forecast_seconds moving_seconds nodes nodes_done nodes_failed out_seconds "
    "pods_failed pods_left pods_moved pods_replaced pods_surged refusals requests seconds services_changed "
    "services_dark services_watched watched_seconds waves"
)


def shape(data: t.Any, path: str = "") -> dict[str, str]:
    """The keys of every object in lists, by the path of the list."""
    found: dict[str, str] = {}
    if isinstance(data, dict):
        found[path] = " ".join(sorted(data))
        for key, value in data.items():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                for item in value:
                    found |= shape(item, f"{path}.{key}".lstrip("."))
    return found


def test_the_shape_of_report_json_is_the_documented_one() -> None:
    lost = model.LostRequests(START.timestamp(), "refused", 1)
    sent = [model.TrafficLine("shop/web", "", "new", at, at + 1, 2, 1, 0.0, 0.0, (lost,)) for at in (lost.at, 0.0)]
    data = as_json(build_report(Sample(dark=True, fail_tasks=[1]).results + Sample().results, sent=sent))
    assert data["version"] == 1
    assert shape(data) == SHAPE
    assert " ".join(sorted(data["totals"])) == TOTALS


def test_times_are_rfc_3339_and_the_whole_is_json() -> None:
    data = as_json(build_report(Sample().results))
    assert data["started"] == "2025-03-14T02:58:03.120Z"
    assert data["nodes"][0]["spans"][0]["start"] == data["started"]
    assert json.loads(json.dumps(data, allow_nan=False)) == json.loads(json.dumps(data))


def test_no_secret_comes_through() -> None:
    report = build_report(Sample().results)
    for text in (summary_text(report), json.dumps(as_json(report))):
        assert NONCE not in text
        assert TOKEN not in text


def test_the_summary_says_first_what_matters_and_last_what_to_do() -> None:
    lines = summary_text(build_report(Sample(fail_tasks=[1]).results), path="/reports/report.html").splitlines()
    assert lines[0] == "Never dark while watched (30 s of 5 min 58 s), but your tasks failed on 1 of 3 nodes."
    assert lines[1].startswith("3 nodes: 2 back in service, 1 failed; 42 pods moved")
    assert "  report    /reports/report.html" in lines
    assert [line.split() for line in lines if line.startswith("  worker-02")] == [
        ["worker-02", "2", "failed", "4", "min", "02", "s", "14"]
    ]
    assert lines[-3:-1] == ["  To look at:", "    node worker-02"]
    assert lines[-1].strip().startswith("apt-get: dpkg was interrupted.")


def test_the_summary_names_dark_services_and_their_time() -> None:
    text = summary_text(build_report(Sample(nodes=1, dark=True).results))
    assert text.startswith("3 Services went dark (billing/api-1 longest, 5.0 s).")
    assert "No ready endpoint at 02:58:10 UTC for 5.0 s." in text


def test_the_summary_fits_a_terminal_at_any_size() -> None:
    lines = summary_text(build_report(Sample(nodes=60, pods=30, fail_tasks=range(0, 60, 2)).results)).splitlines()
    assert len(lines) < 60
    assert max(map(len, lines)) <= 120


def test_a_plan_speaks_of_what_would_be() -> None:
    text = summary_text(build_report(Sample().results[:1], check=True))
    assert text.startswith("Planned: 42 pods to move. 3 nodes in 3 waves planned.")
    assert "42 to move, 6 left in place" in text
    assert sum(text.count(f"      {route:<5}  ") for route in ("evict", "surge", "job", "-")) == 10
    assert "… and 32 more pods" in text
    assert max(map(len, text.splitlines())) <= 120


def test_a_plan_names_the_pods_that_would_move_by_wave_and_node() -> None:
    raw = {"namespace": "shop", "node": "n1", "owner": "Deployment shop/web"}
    pods = [
        {**raw, "name": "late", "node": "n2", "route": "evict", "fits": False, "target": None, "seconds": 4},
        {**raw, "name": "web", "route": "surge", "fits": True, "target": "node-3", "seconds": 65.5},
        {**raw, "name": "agent", "route": "skip", "code": "daemonset"},
        {**raw, "name": "lonely", "route": "refuse", "owner": ""},
        {**raw, "name": "bare", "route": "evict", "owner": ""},
        {**raw, "name": "cart", "route": "replace", "target": "node-3", "seconds": 7},
    ]
    waits = [{"node": "n2", "reason": "wave 1 is full with 1 node"}]
    text = summary_text(build_report([{"feasible": True, "waves": [["n1"], ["n2"]], "waits": waits, "pods": pods}]))
    assert text.startswith("Planned: 4 pods to move. 2 nodes in 2 waves planned.")
    assert "4 to move, 1 blocked, 1 left in place" in text
    assert text.partition("To move:\n")[2].splitlines() == [
        "      route    to            takes  pod",
        "    n1, wave 1",
        "      evict    -                 -  shop/bare",
        "      replace  node-3        7.0 s  shop/cart (Deployment shop/web)",
        "      surge    node-3   1 min 06 s  shop/web (Deployment shop/web)",
        "    n2, wave 2; wave 1 is full with 1 node",
        "      evict    nowhere       4.0 s  shop/late (Deployment shop/web)",
    ]


def test_an_empty_run_is_said_in_a_line() -> None:
    assert summary_text(build_report([])).strip() == "Nothing to do. No node took part."


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min 00 s"),
        (125, "2 min 05 s"),
        (4020, "1 h 07 min"),
    ],
)
def test_durations_as_people_say_them(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
