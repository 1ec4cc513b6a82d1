# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a report makes of single events, pods and watches."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import model
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.build import build_report
from ansible_collections.kubeops.node_maintenance.tests.unit.report.told import (
    SURGE,
    Json,
    at,
    event,
    of_workload,
    watched,
)


def lane(events: list[Json], pod: Json | None = None, workloads: list[Json] | None = None) -> model.PodLane:
    """Of the pod `p` on n1."""
    entry = {"namespace": "shop", "name": "p", **(pod or {})}
    result = {"nodes": [{"name": "n1", "pods": [entry]}], "timeline": events, "workloads": workloads or []}
    (found,) = [one for one in build_report([result]).pods if one.name == "p"]
    return found


def spans(found: model.PodLane) -> list[tuple[str, float, float, bool]]:
    return [(s.phase, s.start - 1_000_000, s.end - 1_000_000, s.open) for s in found.spans]


@pytest.mark.parametrize(
    ("events", "pod", "expected"),
    [
        pytest.param([], {}, [], id="nothing known"),
        pytest.param([event(1, "job")], {}, [("queued", 1, 1, True)], id="still waiting"),
        pytest.param([event(1, "job"), event(4, "job")], {}, [("queued", 1, 4, True)], id="still waiting later"),
        pytest.param(
            [event(1, "job"), event(4, "evicted"), event(9, "gone")],
            {},
            [("queued", 1, 4, False), ("ending", 4, 9, False)],
            id="evicted",
        ),
        pytest.param([event(4, "evicted"), event(4, "gone")], {}, [], id="at once"),
        pytest.param(
            [event(4, "evicted"), event(9, "gone")],
            {"waited_seconds": 8},
            [("queued", 1, 4, False), ("ending", 4, 9, False)],
            id="it waited for longer than is told",
        ),
        pytest.param(
            [event(1, "job"), event(4, "evicted"), event(9, "gone")],
            {"waited_seconds": 6},
            [("queued", 1, 4, False), ("ending", 4, 9, False)],
            id="it is told of before it waited",
        ),
        pytest.param(
            [event(2, "refused"), event(3, "refused"), event(5, "evicted"), event(6, "gone")],
            {"waited_seconds": 6},
            [("queued", 0, 2, False), ("blocked", 2, 5, False), ("ending", 5, 6, False)],
            id="refused, then evicted",
        ),
        pytest.param(
            [event(2, "refused"), event(5, "refused")], {}, [("blocked", 2, 5, True)], id="refused, and still there"
        ),
        pytest.param([event(2, "refused"), event(5, "gone")], {}, [("blocked", 2, 5, False)], id="gone by itself"),
        pytest.param([event(2, "evicted"), event(5, "job")], {}, [], id="evicted, and not seen to be gone"),
        pytest.param(
            [event(2, "released"), event(5, "evicted"), event(6, "gone")],
            {"waited_seconds": 6, "route": "replace"},
            [("queued", 0, 2, False), ("released", 2, 5, False), ("ending", 5, 6, False)],
            id="replaced first",
        ),
        pytest.param(
            [event(2, "released"), event(3, "refused"), event(5, "evicted")],
            {"route": "replace"},
            [("released", 2, 3, False), ("blocked", 3, 5, False)],
            id="replaced first, and then refused",
        ),
    ],
)
def test_the_spans_of_an_evicted_pod(events: list[Json], pod: Json, expected: list[t.Any]) -> None:
    assert spans(lane(events, {"route": "evict", **pod})) == expected


SURGED = {"route": "surge", "owner": "Deployment shop/web"}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param(
            [of_workload(1, "raised"), of_workload(4, "ready"), of_workload(6, "lowered"), event(9, "gone")],
            [("taking_over", 1, 4, False), ("both", 4, 6, False), ("ending", 6, 9, False)],
            id="whole",
        ),
        pytest.param(
            [of_workload(1, "raised"), of_workload(4, "ready"), event(9, "gone")],
            [("taking_over", 1, 4, False), ("both", 4, 9, False)],
            id="not seen to be lowered",
        ),
        pytest.param(
            [of_workload(1, "raised"), of_workload(4, "ready"), event(6, "evicted"), event(9, "gone")],
            [("taking_over", 1, 4, False), ("both", 4, 6, False), ("ending", 6, 9, False)],
            id="evicted after all",
        ),
        pytest.param(
            [of_workload(1, "raised"), of_workload(4, "ready")], [("taking_over", 1, 4, False)], id="still there"
        ),
        pytest.param(
            [of_workload(1, "raised"), of_workload(1, "ready"), of_workload(2, "lowered"), event(9, "gone")],
            [("both", 1, 2, False), ("ending", 2, 9, False)],
            id="ready at once",
        ),
        pytest.param([of_workload(1, "raised"), event(9, "gone")], [], id="never ready"),
        pytest.param(
            [of_workload(1, "ready"), of_workload(2, "raised"), event(9, "gone")], [], id="ready for an earlier surge"
        ),
        pytest.param(
            [
                *(of_workload(1, "raised"), of_workload(4, "ready"), of_workload(6, "lowered"), event(9, "gone")),
                *(of_workload(11, "raised"), of_workload(14, "ready"), of_workload(16, "lowered")),
            ],
            [("taking_over", 1, 4, False), ("both", 4, 6, False), ("ending", 6, 9, False)],
            id="a later surge is of another pod",
        ),
    ],
)
def test_the_spans_of_a_surged_pod(events: list[Json], expected: list[t.Any]) -> None:
    assert spans(lane(events, SURGED, [SURGE])) == expected
    assert "taking_over" not in [span[0] for span in spans(lane(events, {**SURGED, "route": "evict"}, [SURGE]))]
    assert "taking_over" not in [span[0] for span in spans(lane(events, SURGED, []))]


@pytest.mark.parametrize(
    ("pod", "events", "moved", "failed", "outcome"),
    [
        ({"outcome": "evicted"}, [], True, False, "evicted"),
        ({"outcome": "still_ending"}, [], False, True, "still_ending"),
        ({"outcome": "not_moved"}, [], False, False, "not_moved"),
        ({"outcome": "not_moved", "blocked_by": SURGE}, [], False, True, "not_moved"),
        ({"outcome": "a_new_word"}, [event(1, "gone")], False, False, "a_new_word"),
        ({}, [event(1, "gone")], True, False, "gone"),
        ({}, [event(1, "refused")], False, False, "unknown"),
    ],
)
def test_whether_a_pod_moved_or_failed(pod: Json, events: list[Json], moved: bool, failed: bool, outcome: str) -> None:
    found = lane(events, pod)
    assert (found.moved, found.failed, found.outcome) == (moved, failed, outcome)


@pytest.mark.parametrize(
    ("pod", "refused", "blocker", "rule"),
    [
        ({"blocked_by": {**SURGE, "message": "its rule"}}, 1, "Deployment shop/web", "its rule"),
        ({"blocked_by": SURGE}, 1, "Deployment shop/web", "refused"),
        ({"blocked_by": SURGE}, 0, "Deployment shop/web", ""),
        ({"budgets": ["PodDisruptionBudget shop/b"]}, 1, "PodDisruptionBudget shop/b", "refused"),
        ({}, 1, "", "refused"),
        ({"budgets": ["PodDisruptionBudget shop/b"], "reason": "why"}, 0, "", ""),
        ({"route": "refuse", "reason": "why"}, 0, "", "why"),
        ({"outcome": "still_ending", "reason": "why"}, 0, "", "why"),
        ({"outcome": "evicted", "reason": "why"}, 0, "", ""),
    ],
)
def test_what_blocked_a_pod(pod: Json, refused: int, blocker: str, rule: str) -> None:
    found = lane([event(n, "refused") for n in range(refused)], pod)
    assert (found.blocked_by, found.rule, found.refused) == (blocker, rule, refused)


def test_an_empty_report_counts_nothing() -> None:
    found = build_report([]).totals
    assert (found.nodes, found.waves, found.evictions, found.refusals, found.dark_seconds) == (0, 0, 0, 0, 0)
    assert (found.requests, found.services_watched, found.seconds) == (None, None, None)


def test_times_are_read_to_the_millisecond() -> None:
    found = lane([event(0, "refused"), event(1.2346, "evicted"), event(2, "gone")])
    assert found.held_seconds == pytest.approx(1.234, abs=1e-6)


def test_of_several_refusals_the_last_one_tells_the_rule() -> None:
    events = [event(1, "refused", message="first"), event(2, "refused", message="last")]
    assert lane(events).rule == lane(events, {"blocked_by": SURGE}).rule == "last"


def phased(*told: tuple[float, str]) -> Json:
    return {"timeline": [event(when, "note", name="", phase=phase) for when, phase in told]}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param([(0, "cordoned"), (5, "")], [("cordoned", 0, 5, True)], id="the last one is open"),
        pytest.param([(0, "protecting"), (5, "draining")], [], id="pods alone move no node that is not cordoned"),
        pytest.param(
            [(0, "cordoned"), (1, "protecting"), (2, "draining"), (3, "protecting"), (4, "drained")],
            [
                ("cordoned", 0, 1, False),
                ("protecting", 1, 2, False),
                ("draining", 2, 4, False),
                ("drained", 4, 4, True),
            ],
            id="never back to protecting",
        ),
        pytest.param([(0, "cordoned"), (1, "cordoned"), (3, "back"), (9, "")], [("cordoned", 0, 3, False)], id="back"),
        pytest.param([(0, "cordoned"), (3, "gone")], [("cordoned", 0, 3, False)], id="gone"),
        pytest.param(
            [(0, "parked"), (3, "back"), (5, "cordoned"), (6, "")],
            [("parked", 0, 3, False), ("cordoned", 5, 6, True)],
            id="twice",
        ),
    ],
)
def test_the_phases_of_a_node(told: list[tuple[float, str]], expected: list[t.Any]) -> None:
    (line,) = build_report([phased(*told)]).nodes
    found = [(s.phase, s.start - 1_000_000, s.end - 1_000_000, s.open) for s in line.spans]
    assert found == expected


@pytest.mark.parametrize(
    ("calls", "waves"),
    [
        ([{"waves": [["a", "b"], ["c"]], "nodes": [{"name": "z"}]}], [("a", 1), ("b", 1), ("c", 2), ("z", 0)]),
        (
            [
                {"nodes": [{"name": "b"}], "summary": {"seconds": 1}},
                {"nodes": [{"name": "a"}], "summary": {"seconds": 1}},
            ],
            [("b", 1), ("a", 2)],
        ),
        ([{"nodes": [{"name": "b"}]}, {"nodes": [{"name": "a"}, {"name": "b"}]}], [("b", 0), ("a", 0)]),
        ([{"waves": [["a"]]}, {"waves": [["b"], ["a"]]}], [("a", 1)]),
    ],
)
def test_waves_are_as_planned_or_as_emptied(calls: list[Json], waves: list[tuple[str, int]]) -> None:
    assert [(line.name, line.wave) for line in build_report(calls).nodes] == waves


@pytest.mark.parametrize(
    ("pods", "left"),
    [
        ([{"route": "skip", "code": "daemonset"}], (("daemonset", 1),)),
        ([{"route": "skip", "outcome": "tolerates_maintenance", "code": "x"}], (("tolerates_maintenance", 1),)),
        ([{"route": "evict", "outcome": "tolerates_maintenance"}], (("tolerates_maintenance", 1),)),
        ([{"route": "skip"}], (("skip", 1),)),
        ([{"route": "evict", "outcome": "timed_out"}], ()),
        (
            [{"route": "skip", "code": "mirror"}, {"route": "skip", "code": "daemonset"}],
            (("daemonset", 1), ("mirror", 1)),
        ),
        ([{"route": "skip", "code": "mirror"}] * 2, (("mirror", 2),)),
    ],
)
def test_pods_that_stay_are_counted_by_why(pods: list[Json], left: tuple[tuple[str, int], ...]) -> None:
    listed = [{"namespace": "shop", "name": f"p{n}", "node": "n1", **pod} for n, pod in enumerate(pods)]
    report = build_report([{"nodes": [{"name": "n1"}], "pods": listed}])
    assert report.nodes[0].left == left
    assert report.totals.pods_left == sum(count for _code, count in left)


@pytest.mark.parametrize(
    ("samples", "desired", "lowest", "below", "dark"),
    [
        ([(0, 2), (4, 3)], 2, 2, 0.0, []),
        ([(0, 3), (4, 2)], 2, 2, 0.0, []),
        ([(0, 2), (4, 1), (7, 2)], 2, 1, 3.0, []),
        ([(0, 1), (4, 0), (7, 1)], 1, 0, 3.0, [(4, 7, False)]),
        ([(0, 1), (4, 0)], 1, 0, 6.0, [(4, 10, True)]),
        pytest.param([(0, 0), (4, 1)], 0, 1, 0.0, [], id="not served yet"),
        pytest.param([(0, 0), (4, 1), (6, 0), (7, 1)], 0, 0, 0.0, [(6, 7, False)], id="served, then not"),
    ],
)
def test_a_service_is_dark_without_endpoints_once_it_had_one(
    samples: list[tuple[float, int]], desired: int, lowest: int, below: float, dark: list[t.Any]
) -> None:
    (line,) = build_report([watched(*samples)]).services
    assert (line.desired, line.lowest, line.below_seconds) == (desired, lowest, below)
    assert [(s.start - 1_000_000, s.end - 1_000_000, s.open) for s in line.dark] == dark


@pytest.mark.parametrize(
    ("second", "joined"),
    [
        pytest.param((10, 20), [(0, 20)], id="touch"),
        pytest.param((11, 20), [(0, 20)], id="a second between them"),
        pytest.param((11.5, 20), [(0, 10), (11.5, 20)], id="more than a second"),
        pytest.param((2, 5), [(0, 10)], id="within"),
    ],
)
def test_periods_of_watching_are_joined(second: tuple[float, float], joined: list[tuple[float, float]]) -> None:
    calls = [watched((second[0], 1), end=second[1]), watched((0, 1), end=10)]
    found = build_report(calls).watched
    assert [(span.start - 1_000_000, span.end - 1_000_000) for span in found] == joined
    assert build_report(calls).totals.watched_seconds == sum(end - start for start, end in joined)


def node_out(since: float, moved: int = 4) -> Json:
    """What `node_cordon` tells of a node that it found out of service."""
    known = {"out_since": at(since), "moved_before": moved}
    return {"name": "n1", "outcome": "returning", "failed": False, "message": "", **known}


BACK: Json = {
    "nodes": [{"name": "n1", "outcome": "uncordoned", "failed": False, "message": ""}],
    "timeline": [event(10, "uncordoned", "", phase="back")],
}


@pytest.mark.parametrize(
    ("calls", "way", "moved"),
    [
        pytest.param(
            [{"nodes": [node_out(-600)], "timeline": [event(5, "returning", "", phase="returning")]}, BACK],
            [("earlier", 605.0), ("returning", 5.0)],
            4,
            id="released",
        ),
        pytest.param([{"nodes": [node_out(-600)]}, BACK], [("earlier", 610.0)], 4, id="given back at once"),
        pytest.param(
            [{"nodes": [node_out(-600)], "timeline": [event(5, "note", "")]}], [("earlier", 605.0)], 4, id="still out"
        ),
        pytest.param(
            [{"nodes": [node_out(1, 0)], "timeline": [event(0, "cordoned", "", phase="cordoned")]}, BACK],
            [("cordoned", 10.0)],
            0,
            id="cordoned by this run, by a clock that tells seconds",
        ),
        pytest.param(
            [{"nodes": [node_out(-600)], "timeline": [event(5, "returning", "", phase="returning")]},
             {"nodes": [node_out(-900, 9)]}, BACK],
            [("earlier", 605.0), ("returning", 5.0)],
            4,
            id="what was seen first counts",
        ),
        pytest.param([{"nodes": [{**node_out(0), "out_since": None}]}, BACK], [], 4, id="unknown"),
        pytest.param([{"nodes": [{**node_out(0), "out_since": 7}]}, BACK], [], 4, id="malformed"),
    ],
)  # fmt: skip
def test_a_node_that_was_out_before_is_away_from_its_cordon_on(
    calls: list[Json], way: list[tuple[str, float]], moved: int
) -> None:
    report = build_report(calls)
    (line,) = report.nodes
    assert [(span.phase, round(span.seconds, 3)) for span in line.spans] == way
    assert (line.pods_moved, report.totals.pods_moved) == (moved, moved)
    assert report.verdict in ("no_pod_moved", "nothing_to_do")
    assert (report.started or 0) == min([report.started or 0, *(span.start for span in line.spans)])
