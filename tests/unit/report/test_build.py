# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The verdict on a run, and what is summed up, grouped and put in order."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.build import build_report
from ansible_collections.kubeops.node_maintenance.tests.unit.report.told import (
    SURGE,
    Json,
    at,
    event,
    of_workload,
    watched,
)

BLOCKER = {"code": "bare_pod", "severity": "blocker", "message": "why", "object": "Pod shop/p"}
MOVED = {"nodes": [{"name": "n1", "pods": [{"namespace": "shop", "name": "p", "outcome": "evicted"}]}]}
LOOKED = {"services": [], "timeline": [{"at": at(0)}]}


@pytest.mark.parametrize(
    ("calls", "check", "verdict"),
    [
        ([], False, "nothing_to_do"),
        ([{"actions": ["Cordon n1"]}], False, "no_pod_moved"),
        ([{"timeline": [event(0, "cordoned", name="")]}], False, "no_pod_moved"),
        ([MOVED], False, "not_watched"),
        ([MOVED, LOOKED], False, "never_dark"),
        ([MOVED, watched((0, 1), (4, 0))], False, "dark"),
        ([MOVED, watched((0, 1), (4, 0))], True, "check"),
        ([watched((0, 1), (4, 2))], False, "never_dark"),
        ([{"findings": [BLOCKER]}], False, "stopped"),
        ([{"findings": [{**BLOCKER, "severity": "warning"}]}], False, "nothing_to_do"),
        ([{"feasible": False}], False, "stopped"),
        ([{"feasible": True, "waves": [["n1"]], "findings": [BLOCKER]}], False, "planned"),
        ([{"feasible": True, "findings": [BLOCKER]}, MOVED, LOOKED], False, "never_dark"),
        ([{"feasible": True}], False, "nothing_to_do"),
        ([{"feasible": True, "waves": [["n1"]]}], False, "planned"),
        ([{"feasible": True, "waves": [["n1"]]}], True, "planned"),
        ([{"feasible": True, "waves": [["n1"]]}, {"failed": True}], False, "failed"),
        ([{"findings": [BLOCKER]}], True, "stopped"),
        ([MOVED, {"findings": [BLOCKER]}], False, "not_watched"),
        ([{"failed": True}], False, "failed"),
        ([{"nodes": [{"name": "n1", "outcome": "timed_out"}]}], False, "failed"),
    ],
)
def test_the_verdict(calls: list[Json], check: bool, verdict: str) -> None:
    assert build_report(calls, check=check).verdict == verdict


@pytest.mark.parametrize(
    ("call", "problems"),
    [
        ({"failed": True, "msg": "It broke."}, [("run", "It broke.")]),
        ({"failed": True}, [("run", "A call failed and said nothing.")]),
        ({"failed": True, "findings": [BLOCKER]}, []),
        ({"failed": True, "msg": "x", "findings": [{**BLOCKER, "severity": "warning"}]}, [("run", "x")]),
        ({"failed": True, "nodes": [{"name": "n1", "outcome": "timed_out", "message": "late"}]}, [("node n1", "late")]),
        ({"nodes": [{"name": "n1", "outcome": "timed_out"}]}, [("node n1", "timed out")]),
        ({"nodes": [{"name": "n1", "outcome": "drained"}]}, []),
    ],
)
def test_the_problems(call: Json, problems: list[tuple[str, str]]) -> None:
    report = build_report([call, call])
    assert [(problem.subject, problem.message) for problem in report.problems] == problems


def test_findings_are_told_once_the_worst_first() -> None:
    found = [{**BLOCKER, "code": severity, "severity": severity} for severity in ("odd", "info", "warning", "blocker")]
    report = build_report([{"findings": found}, {"findings": found}])
    assert [finding.severity for finding in report.findings] == ["blocker", "warning", "info", "odd"]


def refused(name: str, *moments: float, **pod: t.Any) -> Json:
    entry = {"namespace": "shop", "name": name, "budgets": ["PodDisruptionBudget shop/b"], **pod}
    told = [event(when, "refused", name) for when in moments]
    return {"nodes": [{"name": "n1", "pods": [entry]}], "timeline": told}


def test_refusals_are_grouped_by_what_refused() -> None:
    calls = [refused("a", 3, 5, outcome="evicted"), refused("b", 2, outcome="still_ending", remedy="Wait.")]
    (found,) = build_report(calls).refusals
    assert (found.blocker, found.count, found.remedy) == ("PodDisruptionBudget shop/b", 3, "Wait.")
    assert [moment - 1_000_000 for moment in (found.first or 0, found.last or 0)] == [2, 5]
    assert (found.pods, found.stuck) == (("shop/a", "shop/b"), ("shop/b",))


def test_refusals_of_pods_that_are_still_there_come_first_then_the_most() -> None:
    def by(name: str, budget: str, outcome: str, *moments: float) -> Json:
        return refused(name, *moments, outcome=outcome, budgets=[budget])

    calls = [by("a", "one", "evicted", 1), by("b", "two", "evicted", 1, 2), by("c", "stuck", "still_ending", 1)]
    assert [found.blocker for found in build_report(calls).refusals] == ["stuck", "two", "one"]


def test_only_refusals_count_as_moments_of_a_refusal() -> None:
    call = refused("a", 4, outcome="evicted")
    call["timeline"] += [event(1, "job", "a"), event(9, "evicted", "a")]
    (found,) = build_report([call]).refusals
    assert (found.first, found.last) == (1_000_004, 1_000_004)
    assert found.longest_wait == 5


def test_a_surge_has_the_highest_count_that_was_told() -> None:
    def told(during: int | None, **more: t.Any) -> Json:
        return {"workloads": [{**SURGE, "replicas_before": 1, "replicas_during": during, **more}]}

    (found,) = build_report([told(2, outcome="surged"), told(1, outcome="", message="done"), told(None)]).surges
    assert (found.replicas_before, found.replicas_during) == (1, 2)
    assert (found.outcome, found.message) == ("surged", "done")
    (found,) = build_report([told(0)]).surges
    assert found.replicas_during is None


def test_a_workload_surged_twice_is_raised_first_and_lowered_last() -> None:
    told = [of_workload(when, what) for when, what in enumerate(["raised", "ready", "lowered"] * 2)]
    (found,) = build_report([{"workloads": [SURGE], "timeline": told}]).surges
    assert [moment and moment - 1_000_000 for moment in (found.raised, found.ready, found.lowered)] == [0, 1, 5]


def test_what_was_given_back_and_what_was_kept() -> None:
    told = [event(1, "restored", "web"), event(2, "kept", "web", message="theirs"), event(3, "kept", "", message="x")]
    guard = {**SURGE, "outcome": "unguarded", "budget": "kubeops-guard-u"}
    calls = [{"nodes": [{"name": "n1", "kept": ["a label"]}], "timeline": told}, {"workloads": [guard]}]
    found = [(one.object, one.kept, one.message) for one in build_report(calls).given_back]
    assert found == [
        ("Node n1", True, "a label"),
        ("shop/web", False, "restored"),
        ("shop/web", True, "theirs"),
        ("Node n1", True, "x"),
        ("PodDisruptionBudget shop/kubeops-guard-u", False, "removed"),
    ]


def test_totals_are_sums_of_what_was_told() -> None:
    def call(**summary: t.Any) -> Json:
        return {"summary": summary, "nodes": [{"name": "n1"}]}

    found = build_report([call(requests=3, evicted=1, services=4), call(requests=4), call(services=2)]).totals
    assert (found.requests, found.evictions, found.services_watched) == (7, 1, 4)
    assert build_report([call(refusals=2)]).totals.refusals == 2
    assert build_report([refused("a", 1, 2)]).totals.refusals == 2


def way(node: str, *phases: tuple[float, str]) -> list[Json]:
    return [event(when, phase, name="", node=node, phase=phase) for when, phase in phases]


@pytest.mark.parametrize(
    ("waves", "told", "seconds"),
    [
        pytest.param([["n1"]], [], None, id="not begun"),
        pytest.param([["n1"]], way("n1", (0, "cordoned"), (4, "protecting"), (9, "draining")), 9, id="until now"),
        pytest.param(
            [["n1"]],
            way("n1", (0, "cordoned"), (4, "protecting"), (9, "draining"), (13, "drained"), (90, "back")),
            13,
            id="also what protects",
        ),
        pytest.param([["n1"]], way("n1", (0, "cordoned"), (3, "draining"), (7, "back")), 7, id="given up"),
        pytest.param(
            [["n1", "n2"]],
            [*way("n1", (0, "cordoned"), (5, "drained")), *way("n2", (1, "cordoned"), (8, "drained"))],
            8,
            id="a wave together",
        ),
        pytest.param(
            [["n1"], ["n2"]],
            [*way("n1", (0, "cordoned"), (5, "drained")), *way("n2", (100, "cordoned"), (108, "drained"))],
            13,
            id="a wave after the other",
        ),
        pytest.param([["n1"]], way("n1", (0, "drained"), (5, "returning"), (9, "back")), None, id="resumed"),
    ],
)
def test_nodes_are_emptied_from_their_cordon_until_they_are_drained(
    waves: list[list[str]], told: list[Json], seconds: float | None
) -> None:
    assert build_report([{"waves": waves}, {"timeline": told}]).totals.moving_seconds == seconds


PARTS = {"steps": 3.0, "notice": 600.0, "starts": 4.0, "stops": 2.5, "budgets": 0.0, "jobs": 0.0}


def test_a_check_has_no_beginning_and_no_end() -> None:
    calls = [watched((1, 1), end=9), {}]
    assert build_report(calls).totals.seconds == 8
    checked = build_report(calls, check=True)
    assert (checked.started, checked.ended, checked.totals.seconds) == (None, None, None)


@pytest.mark.parametrize(
    ("estimates", "seconds", "possible"),
    [
        ([{"waves": [["n1"]], "estimate_seconds": 7}], 7, None),
        ([{"waves": [["n1"]], "estimate_seconds": 7, "estimate_range": ["x", 9]}], 7, None),
        ([{"estimate_seconds": 7, "estimate_range": [5, 9]}], None, None),
        ([{"waves": [["n1"]], "estimate_seconds": 9, "wave_parts": [PARTS]}], 607.5, None),
        (
            [{"waves": [["n1"]], "estimate_seconds": 9, "wave_parts": [PARTS], "estimate_range": [600, 700]}],
            607.5,
            (598, 698),
        ),
        ([{"waves": [["n1"], ["n2"]], "estimate_seconds": 18, "wave_parts": [PARTS, PARTS]}], 1215, None),
    ],
)
def test_the_forecast_is_the_plans(
    estimates: list[Json], seconds: float | None, possible: tuple[float, float] | None
) -> None:
    totals = build_report([{"waves": [["n1"]]}, *estimates]).totals
    assert (totals.forecast_seconds, totals.forecast_range) == (seconds, possible)
