# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is taken from results, which may hold anything."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import model, read

NOT_PRINTABLE = "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (None, ""),
        (True, "True"),
        (3, "3"),
        ("two\n lines\t", "two lines"),
        (["a", ("b", None)], "a, b, "),
        ({"kind": "Pod", "namespace": "shop", "name": "web"}, "Pod shop/web"),
        ({"kind": "Node", "name": "n1"}, "Node n1"),
        ({"namespace": "shop", "name": "web"}, "shop/web"),
        ("\x1b[31mred", f"{NOT_PRINTABLE}[31mred"),
        ("x" * 2000, "x" * 2000),
        ("x" * 2001, "x" * 2000 + "..."),
    ],
)
def test_a_value_is_one_line_of_text(value: t.Any, line: str) -> None:
    assert read.text(value) == line


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        ("2.5", 2.5),
        (True, None),
        ("many", None),
        ([1], None),
        (float("nan"), None),
        ("inf", None),
        (999_999_999_999_999, 999_999_999_999_999.0),
        (10**15, None),
        (-(10**15), None),
    ],
)
def test_a_number_is_finite(value: t.Any, number: float | None) -> None:
    assert read.number(value) == number
    assert read.whole(value) == (None if number is None else int(number))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("1970-01-01T00:00:01.5004Z", 1.5),
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("1970-01-01T00:00:01", 1.0),
        ("1969-12-31T23:59:59.900Z", None),
        ("2099-12-31T23:59:59Z", read.LATEST_SECONDS - 1),
        ("2100-01-01T00:00:00Z", None),
        ("soon", None),
        (1.0, None),
    ],
)
def test_an_instant_is_a_time_of_this_century_or_the_last(value: t.Any, seconds: float | None) -> None:
    assert read.instant(value) == seconds


A, B = "1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z"


@pytest.mark.parametrize(
    ("samples", "found"),
    [
        ([[B, 2], [A, 1]], ((1.0, 1), (2.0, 2))),
        ([[A, 1], [A, 3]], ((1.0, 3),)),
        ([[A, 0]], ((1.0, 0),)),
        ([[A, -2]], ((1.0, 0),)),
        ([[A], [A, 1, 2], "x", [A, "many"], ["then", 1]], ()),
        ("none", ()),
    ],
)
def test_samples_are_in_the_order_of_time(samples: t.Any, found: tuple[tuple[float, int], ...]) -> None:
    assert read.samples_of({"samples": samples}) == found


@pytest.mark.parametrize(
    ("results", "count"),
    [
        ([{}], 1),
        ([{"skipped": True}], 0),
        ([{"skipped": False}], 1),
        ([{"results": [{}, {"skipped": True}, {"results": [{}, {}]}]}], 3),
        (["text", None, []], 0),
        ([{"results": {}}], 1),
    ],
)
def test_loops_are_flattened_and_skipped_tasks_left_out(results: list[t.Any], count: int) -> None:
    assert len(read.read(results)) == count


def call(**raw: t.Any) -> read.Call:
    (found,) = read.read([raw])
    return found


@pytest.mark.parametrize(
    ("entry", "failed", "counts"),
    [
        ({"outcome": "blocked", "failed": True}, True, False),
        ({"outcome": "drained", "failed": True}, False, True),
        ({"outcome": "timed_out", "failed": False}, True, False),
        ({"outcome": "timed_out"}, False, True),
        ({"outcome": "drained"}, True, False),
        ({"outcome": "gone"}, True, False),
        ({"outcome": "a_new_word"}, True, True),
        ({"outcome": "a_new_word"}, False, False),
        ({}, True, False),
    ],
)
def test_whether_an_entry_reports_a_failure(entry: dict[str, t.Any], failed: bool, counts: bool) -> None:
    assert read.failed_entry(entry, call(failed=failed)) is counts


def test_a_call_has_what_its_record_says_where_it_says_nothing() -> None:
    record = {"run": "r1/secret", "by": "ann", "reason": "disk"}
    nodes = ["x", {"name": "n0"}, {"name": "n1", "record": record}, {"outcome": "nameless"}]
    found = call(nodes=nodes)
    assert (found.run, found.by, found.reason) == ("r1", "ann", "disk")
    assert [raw["name"] for raw in found.nodes] == ["n0", "n1"]
    found = call(nodes=nodes, run="r2/other", by="bob", reason="cpu")
    assert (found.run, found.by, found.reason) == ("r2", "bob", "cpu")


@pytest.mark.parametrize(
    ("raw", "watched", "start", "end"),
    [
        ({}, None, None, None),
        ({"services": []}, None, None, None),
        ({"timeline": [{"at": B}, {"at": A}, {"at": "then"}]}, None, 1.0, 2.0),
        ({"services": [], "timeline": [{"at": A}]}, (1.0, 1.0), 1.0, 1.0),
        ({"services": [{"samples": [[B, 1]]}], "timeline": [{"at": A}]}, (2.0, 2.0), 1.0, 2.0),
        ({"services": "none", "timeline": [{"at": A}]}, None, 1.0, 1.0),
        ({"services": [], "watched": [A, B]}, (1.0, 2.0), 1.0, 2.0),
        ({"services": [], "watched": [], "timeline": [{"at": A}]}, None, 1.0, 1.0),
        ({"services": [], "watched": [None, "then", 7]}, None, None, None),
    ],
)
def test_a_call_lasts_from_its_first_known_moment_to_its_last(
    raw: dict[str, t.Any], watched: t.Any, start: float | None, end: float | None
) -> None:
    found = call(**raw)
    assert (found.watched, found.start, found.end) == (watched, start, end)


def test_an_unknown_phase_begins_nothing() -> None:
    found = call(timeline=[{"at": A, "phase": "drained"}, {"at": B, "phase": "tired"}])
    assert [event.phase for event in found.events] == ["drained", None]


@pytest.mark.parametrize(
    ("lowest", "highest", "desired", "served", "share", "top", "changed"),
    [
        (1, 2, 2, True, 0.5, 2, True),
        (2, 2, 2, True, 1.0, 2, False),
        (0, 2, 4, True, 0.0, 4, True),
        (0, 0, 0, False, 0.0, 1, False),
        (0, 1, 1, False, 0.0, 1, False),
        (3, 4, 1, True, 3.0, 4, True),
    ],
)
def test_a_service_by_its_counts(
    lowest: int, highest: int, desired: int, served: bool, share: float, top: int, changed: bool
) -> None:
    found = model.ServiceLine("shop", "web", desired, (), served, lowest, highest, (), 0.0)
    assert (found.share, found.top, found.changed) == (share, top, changed)


@pytest.mark.parametrize(
    ("outcome", "spans", "seconds", "touched", "troubled"),
    [
        ("back", ((1, 3), (3, 7)), 6, True, False),
        ("planned", (), None, False, False),
        ("blocked", (), None, False, False),
        ("blocked", ((1, 2),), 1, True, False),
        ("unchanged", (), None, True, False),
        ("failed", (), None, True, True),
        ("unfinished", (), None, True, True),
    ],
)
def test_a_node_by_its_spans(
    outcome: model.Outcome, spans: tuple[tuple[float, float], ...], seconds: float | None, touched: bool, troubled: bool
) -> None:
    line = model.NodeLine("n", 1, outcome, "", tuple(model.Span("out", *span) for span in spans), (), 0, 0, ())
    assert (line.seconds, line.touched, line.troubled) == (seconds, touched, troubled)


def test_a_sample_holds_until_the_next_one() -> None:
    watch = model.Watch(((1.0, 2), (3.0, 0), (4.0, 1)), 9.0)
    assert (watch.start, list(watch.steps())) == (1.0, [(1.0, 3.0, 2), (3.0, 4.0, 0), (4.0, 9.0, 1)])
