# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report of a run that was resumed: what earlier starts had done counts, as far as it is known."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import announcement, build, text
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.build import build_report
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.timeline import seconds_of
from ansible_collections.kubeops.node_maintenance.tests.unit.report.sample import Sample
from ansible_collections.kubeops.node_maintenance.tests.unit.report.told import Json, at, event, watched

BEFORE: Json = {
    "since": at(-500),
    "waves": [["n1"], ["n2"], []],
    "waves_done": 2,
    "pods_moved": 5,
    "out_seconds": 100.0,
    "watched_seconds": 30.0,
    "dark": [],
    "whole": True,
}


def resumed(*calls: Json, **changes: t.Any) -> t.Any:
    """A start that resumes the run has the third wave left."""
    plan = {"feasible": True, "findings": [], "waves": [["n3"]], "nodes": [{"name": "n3", "outcome": "planned"}]}
    started = {"run": "r1/n", "resumed": True, "earlier": {**BEFORE, **changes}, "nodes": []}
    return build_report([started, plan, *calls])


def test_waves_are_numbered_through_all_starts_and_finished_nodes_are_told() -> None:
    report = resumed()
    assert [(line.name, line.wave, line.outcome) for line in report.nodes] == [
        ("n1", 1, "back"),
        ("n2", 2, "back"),
        ("n3", 3, "planned"),
    ]
    assert (report.totals.waves, report.totals.nodes, report.totals.nodes_done) == (3, 3, 2)
    assert report.verdict == "planned", "nothing was done in this start yet"


def test_a_wave_that_was_finished_in_part_goes_on_under_its_number() -> None:
    report = resumed(waves=[["n1"], []], waves_done=0)
    assert [(line.name, line.wave) for line in report.nodes] == [("n1", 1), ("n3", 1)]


def test_what_earlier_starts_moved_and_watched_is_in_the_totals() -> None:
    drain = {"nodes": [{"name": "n3", "outcome": "drained", "pods": [{"name": "p", "outcome": "evicted"}]}]}
    steps = [
        event(0, "cordoned", "", node="n3", phase="cordoned"),
        event(50, "uncordoned", "", node="n3", phase="back"),
    ]
    report = resumed({**drain, **watched((10, 2), end=20), "timeline": steps})
    assert report.totals.pods_moved == 6
    assert report.totals.out_seconds == 150
    assert report.totals.watched_seconds == 30 + 40
    assert report.verdict == "never_dark"
    assert report.earlier is not None
    assert report.earlier.finished == ("n1", "n2")
    assert report.started == report.earlier.since == report.ended - 550


@pytest.mark.parametrize(("moment", "end", "nodes"), [("started", 700.0, ["n3"]), ("ended", 0.0, ["n1", "n2", "n3"])])
def test_what_is_announced_of_a_resumed_run_begins_with_its_first_start(
    moment: t.Any, end: float, nodes: list[str]
) -> None:
    report, now = resumed(), 1_000_000.0
    told = announcement.Announcement(moment, now, "ann", report, resumed=True, end=now + end or None)
    assert told.window == (now - 500, now + end)
    assert [node.name for node in told.nodes] == nodes


def test_a_service_that_was_dark_before_is_not_forgotten() -> None:
    dark = [["shop", "web", at(0), at(4)], ["shop", "api", at(9), at(10)], "malformed", ["shop", "db", 1, None]]
    report = resumed(watched((20, 2), (21, 0), (22, 2), end=30), dark=dark)
    assert report.verdict == "dark"
    assert [(s.name, s.dark_seconds, s.lowest) for s in report.dark] == [("api", 1.0, 0), ("web", 5.0, 0)]
    assert "api" in text.summary_text(report)


@pytest.mark.parametrize("broken", [{}, {"waves": 7}, {"waves": [None, "x"], "waves_done": "?", "pods_moved": None}])
def test_what_is_missing_or_malformed_is_left_out(broken: Json) -> None:
    report = build_report([{"resumed": True, "earlier": broken, "nodes": []}])
    assert report.totals.pods_moved == 0


def test_the_sums_of_a_wave_are_those_of_its_report_without_nodes_that_stay_out() -> None:
    report = build_report(Sample(nodes=2, per_wave=2, dark=True).results)
    sums = build.sums_of_wave(report, "w1")
    assert (sums.pods_moved, sums.out_seconds) == (report.totals.pods_moved, report.totals.out_seconds)
    assert sums.watched_seconds == report.totals.watched_seconds > 0
    assert len(sums.dark) == report.totals.services_dark > 0
    stays = build.sums_of_wave(build_report(Sample(nodes=2, per_wave=2, fail_tasks=[1]).results), "w2")
    assert (stays.pods_moved, stays.out_seconds) == (14, 0.0)
    both = sums.plus(stays)
    assert (both.pods_moved, both.mark) == (sums.pods_moved + 14, "w2")


def test_no_more_dark_spans_are_kept_than_anybody_reads_the_longest_first() -> None:
    watches = [watched((0, 1), (1, 0), (2 + number, 1), end=90, name=f"web-{number}") for number in range(30)]
    sums = build.sums_of_wave(build_report(watches), "w1")
    assert len(sums.dark) == 20
    assert sums.dark[0][1] == "web-29"
    assert len(sums.plus(sums).dark) == 20


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [([], 0), ([(0, 5)], 5), ([(0, 5), (3, 8)], 8), ([(6, 8), (0, 5)], 7), ([(0, 9), (1, 2)], 9)],
)
def test_periods_that_overlap_count_once(spans: list[tuple[float, float]], seconds: float) -> None:
    assert seconds_of(spans) == seconds


@pytest.mark.parametrize(("before", "words"), [(2, "2 pods moved"), (0, "0 pods moved"), (None, "is not known.")])
def test_what_has_left_a_node_before_it_returns_is_told(before: int | None, words: str) -> None:
    line = {"name": "n1", "outcome": "uncordoned", "failed": False, "message": "", "out_since": at(-60)}
    steps = [event(0, "uncordoned", "", node="n1", phase="back")]
    report = build_report([{"nodes": [{**line, "moved_before": before}], "timeline": steps}])
    assert (report.nodes[0].pods_moved, report.totals.pods_moved) == (before, before or 0)
    assert words in text.subline(report)
    assert (text.headline(report) == "No pod had to move") is (before == 0)
