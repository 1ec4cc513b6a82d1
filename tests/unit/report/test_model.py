# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a report makes of results: whole ones, cut ones, strange ones."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import PodOutcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.build import build_report
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.model import Report
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report.read import instant, samples_of
from ansible_collections.kubeops.node_maintenance.tests.unit.report.sample import RULE, RUN, Sample, at, phase_of

Json = dict[str, t.Any]


def event(when: float, what: str, node: str = "n1", name: str = "", message: str = "") -> Json:
    space = "shop" if name else ""
    place = {"node": node, "namespace": space, "name": name}
    return {"at": at(when), **place, "what": what, "message": message, "phase": phase_of(what)}


def node(name: str, outcome: str, **more: t.Any) -> Json:
    return {"name": name, "outcome": outcome, "message": "", **more}


def drained(*samples: tuple[float, int], end: float = 30, **service: t.Any) -> Json:
    series = {"namespace": "shop", "name": "web", "samples": [[at(w), n] for w, n in samples], **service}
    return {"nodes": [node("n1", "drained")], "services": [series], "timeline": [event(end, "drained")]}


def phases(report: Report, index: int = 0) -> list[tuple[str, float]]:
    return [(span.phase, round(span.seconds, 3)) for span in report.nodes[index].spans]


def test_two_waves_go_their_way_and_come_back() -> None:
    report = build_report(Sample(nodes=4, per_wave=2).results)
    assert report.verdict == "never_dark"
    assert not report.failed
    assert (report.run, report.by, report.reason) == (RUN, "mira@bastion", "kernel 6.12.9, CHG-4711")
    assert [(n.name, n.wave, n.outcome) for n in report.nodes] == [
        ("worker-01", 1, "back"),
        ("worker-02", 1, "back"),
        ("worker-03", 2, "back"),
        ("worker-04", 2, "back"),
    ]
    way = [span.phase for span in report.nodes[0].spans]
    assert way == ["cordoned", "protecting", "draining", "drained", "out", "returning"]
    assert report.totals.pods_moved == 4 * 14
    assert report.totals.pods_surged == 4 * 3
    assert report.totals.pods_left == 4 * 2
    assert report.totals.waves == 2
    assert report.totals.forecast_seconds == 22.0
    assert report.totals.requests == sum(r["summary"]["requests"] for r in Sample(4, per_wave=2).results[3::6])


def test_a_failure_of_the_tasks_is_kept_though_the_node_was_parked_afterwards() -> None:
    report = build_report(Sample(fail_tasks=[1]).results)
    failed = report.nodes[1]
    assert (failed.outcome, failed.message.split(":")[0]) == ("failed", "apt-get")
    assert failed.spans[-1].phase == "parked"
    assert failed.spans[-1].open
    assert report.totals.nodes_done == 2
    assert [problem.subject for problem in report.problems] == ["node worker-02"]


def test_a_drain_that_failed_and_then_succeeded_is_no_failure() -> None:
    calls = [{"failed": True, "msg": "x", "nodes": [node("n1", "timed_out")]}, {"nodes": [node("n1", "drained")]}]
    report = build_report([*calls, {"nodes": [node("n1", "parked", failed=False)]}])
    assert report.nodes[0].outcome == "parked"


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["cordoned", "drained", "parked"], "parked"),
        (["already_cordoned", "already_drained", "already_parked"], "parked"),
        (["cordoned"], "unfinished"),
        (["cordoned", "needs_surge", "uncordoned"], "failed"),
        (["gone"], "gone"),
        (["not_in_maintenance"], "failed"),
    ],
)
def test_where_a_node_ends(outcomes: list[str], expected: str) -> None:
    assert build_report([{"nodes": [node("n1", o)]} for o in outcomes]).nodes[0].outcome == expected


def test_an_entry_that_says_it_did_not_fail_is_believed() -> None:
    entry = node("n1", "not_in_maintenance", failed=False)
    assert build_report([{"nodes": [entry]}]).nodes[0].outcome == "unchanged"


def test_dark_time_is_what_lies_between_the_samples() -> None:
    service = build_report([drained((0, 2), (10, 0), (14.5, 1), (20, 0), (20.25, 2))]).services[0]
    assert [(span.start, round(span.seconds, 3)) for span in service.dark] == [
        (service.watches[0].start + 10, 4.5),
        (service.watches[0].start + 20, 0.25),
    ]
    assert service.dark_seconds == pytest.approx(4.75)
    assert (service.lowest, service.highest, service.desired) == (0, 2, 2)
    assert service.below_seconds == pytest.approx(10.25 - 0.0)


def test_a_service_that_is_dark_at_the_last_look_is_dark_until_then() -> None:
    report = build_report([drained((0, 1), (29, 0))])
    assert report.verdict == "dark"
    assert report.services[0].dark[0].open
    assert report.services[0].dark_seconds == pytest.approx(1.0)


def test_a_service_that_never_served_was_not_made_dark() -> None:
    report = build_report([drained((0, 0), (10, 0))])
    assert not report.services[0].served
    assert report.totals.services_dark == 0


def test_time_between_two_calls_is_not_called_dark_for_nobody_looked() -> None:
    report = build_report([drained((0, 1), (10, 0), end=12), drained((500, 0), (501, 1), end=510)])
    assert report.services[0].dark_seconds == pytest.approx(3.0)
    assert report.totals.watched_seconds == pytest.approx(22.0)


def test_the_newcomer_of_a_surge_does_not_raise_what_is_desired() -> None:
    service = build_report([drained((0, 2), (5, 1))]).services[0]
    assert (service.desired, service.lowest, service.below_seconds) == (1, 1, 0.0)


def test_a_surged_pod_shows_the_time_in_which_both_served() -> None:
    report = build_report(Sample(nodes=1).results)
    lane = next(pod for pod in report.pods if pod.route == "surge")
    assert [span.phase for span in lane.spans] == ["taking_over", "both", "ending"]
    surge = report.surges[0]
    assert (surge.replicas_before, surge.replicas_during) == (1, 2)
    assert surge.raised is not None
    assert surge.ready is not None
    assert surge.lowered is not None
    assert surge.raised < surge.ready < surge.lowered


def test_refusals_are_gathered_by_what_refused() -> None:
    report = build_report(Sample(nodes=1).results)
    assert report.totals.refusals == 6
    assert [(r.count, r.rule, r.stuck) for r in report.refusals] == [(3, RULE, ()), (3, RULE, ())]
    assert {r.blocker for r in report.refusals} == {
        "PodDisruptionBudget billing/mail",
        "PodDisruptionBudget platform/tax",
    }
    assert all(r.longest_wait and r.longest_wait > 1 for r in report.refusals)


def test_a_pod_that_stays_says_what_blocks_it() -> None:
    blocked = {"kind": "PodDisruptionBudget", "namespace": "shop", "name": "web", "message": "needs 1, has 1"}
    pod = {"namespace": "shop", "name": "web-1", "route": "evict", "outcome": "not_moved", "blocked_by": blocked}
    call = {
        "failed": True,
        "msg": "Node n1: time is up",
        "nodes": [node("n1", "timed_out", message="Node n1: time is up", pods=[{**pod, "waited_seconds": 30.0}])],
        "timeline": [event(0, "cordoned"), event(5, "refused", name="web-1"), event(30, "timed_out")],
    }
    report = build_report([call])
    refusal = report.refusals[0]
    assert (refusal.blocker, refusal.rule) == ("PodDisruptionBudget shop/web", "needs 1, has 1")
    assert refusal.stuck == ("shop/web-1",)
    assert report.pods[0].failed
    assert report.verdict == "failed"
    assert [p.subject for p in report.problems] == ["node n1"]


@pytest.mark.parametrize("outcome", list(PodOutcome))
def test_a_pod_failed_or_moved_as_its_outcome_says(outcome: PodOutcome) -> None:
    pod = {"namespace": "shop", "name": "web-1", "route": "evict", "outcome": outcome.value, "reason": "why"}
    lane = build_report([{"nodes": [node("n1", "failed", pods=[pod])]}]).pods[0]
    assert (lane.failed, lane.moved) == (outcome.failed, outcome.moved)
    assert lane.rule == ("why" if outcome.failed else "")


def test_an_entry_without_a_verdict_is_judged_by_its_word() -> None:
    words = [
        "replaced",
        "bad_record",
        "not_in_maintenance",
        "uncordoned",
        "gone",
        "at_goal",
        "noted",
        "left",
        "unheard_of",
    ]
    told = build_report([{"failed": True, "nodes": [node(word, word) for word in words]}])
    failed = {line.name for line in told.nodes if line.outcome == "failed"}
    assert failed == {"bad_record", "not_in_maintenance", "unheard_of"}


def test_what_happens_to_pods_begins_the_phases_that_are_no_outcome() -> None:
    events = [event(0, "cordoned"), event(2, "raised", name="web"), event(9, "evicted", name="web-1")]
    report = build_report([{"timeline": [*events, event(12, "drained"), event(14, "uncordoned")]}])
    assert phases(report) == [("cordoned", 2.0), ("protecting", 7.0), ("draining", 3.0), ("drained", 2.0)]


def test_a_phase_is_what_the_event_says_and_not_what_its_words_are_like() -> None:
    reworded = [{**event(when, what), "what": "x"} for when, what in ((0, "cordoned"), (2, "out"), (9, "uncordoned"))]
    assert phases(build_report([{"timeline": reworded}])) == [("cordoned", 2.0), ("out", 7.0)]
    unsaid = [{**event(0, "cordoned"), "phase": phase} for phase in ("", None, "elsewhere", 7)]
    assert phases(build_report([{"timeline": unsaid}])) == []


@pytest.mark.parametrize("late", ["ready", "gone"])
def test_a_pod_that_is_told_of_late_does_not_take_its_node_back(late: str) -> None:
    told = [event(0, "cordoned"), event(4, "drained"), event(6, late, name="web-1"), event(9, "uncordoned")]
    assert phases(build_report([{"timeline": told}])) == [("cordoned", 4.0), ("drained", 5.0)]
    alone = [event(0, late, name="web-1"), event(2, "drained"), event(3, "parked")]
    assert phases(build_report([{"timeline": alone}]))[0] == ("drained", 1.0)


def test_blockers_of_the_plan_stop_and_are_shown() -> None:
    finding = {"code": "two_budgets", "severity": "blocker", "object": "Pod a/b", "message": "m", "remedy": "r"}
    report = build_report([{"feasible": False, "findings": [finding], "waves": [["n1"]], "pods": []}])
    assert report.verdict == "stopped"
    assert report.failed
    assert report.nodes[0].outcome == "planned"


def test_a_blocked_node_did_not_fail_and_is_not_told_twice() -> None:
    finding = {"code": "two_budgets", "severity": "blocker", "object": "Pod a/b", "message": "m", "remedy": "r"}
    blocked = node("n1", "blocked", failed=True, message="m")
    report = build_report([{"feasible": False, "findings": [finding], "nodes": [blocked], "waves": []}])
    assert (report.verdict, report.nodes[0].outcome, report.problems) == ("stopped", "blocked", ())


@pytest.mark.parametrize(
    ("replicas", "samples", "desired"),
    [
        pytest.param(3, ((0, 3), (10, 2)), 3, id="one short at the last look"),
        pytest.param(2, ((0, 3), (10, 2)), 2, id="a surge that is over"),
        pytest.param(3, ((0, 2), (10, 1), (11, 2)), 3, id="one short from the first look to the last"),
        pytest.param(3, ((0, 2), (10, 3)), 3, id="one short at the first look"),
        pytest.param(0, ((0, 3), (10, 2)), 2, id="unknown"),
    ],
)
def test_a_service_should_have_what_its_workloads_want(
    replicas: int, samples: tuple[tuple[float, int], ...], desired: int
) -> None:
    assert build_report([drained(*samples, replicas=replicas)]).services[0].desired == desired


def test_giving_back_does_not_hide_what_was_raised() -> None:
    web = {"kind": "Deployment", "namespace": "shop", "name": "web"}
    raised = {**web, "replicas_before": 1, "replicas_during": 2, "budget": "floor", "outcome": "raised"}
    back = {**web, "replicas_before": 1, "replicas_during": 1, "budget": None, "outcome": "given_back"}
    gone = {**web, "name": "api", "budget": "kubeops-guard-1", "outcome": "unguarded"}
    report = build_report([{"workloads": [raised]}, {"workloads": [back, gone]}])
    surge = next(s for s in report.surges if s.name == "web")
    assert (surge.replicas_before, surge.replicas_during, surge.budget, surge.outcome) == (1, 2, "floor", "given_back")
    assert [(g.object, g.kept) for g in report.given_back] == [("PodDisruptionBudget shop/kubeops-guard-1", False)]


def test_a_surge_told_for_one_node_is_seen_for_the_pods_of_all() -> None:
    pods = [{"namespace": "shop", "name": f"web-{n}", "node": f"n{n}", "route": "surge"} for n in (1, 2)]
    owned = [{**pod, "owner": "Deployment shop/web"} for pod in pods]
    told = [event(1, "raised", name="web"), event(6, "ready", name="web"), event(8, "lowered", name="web")]
    gone = [event(9, "gone", node=f"n{n}", name=f"web-{n}") for n in (1, 2)]
    web = {"kind": "Deployment", "namespace": "shop", "name": "web", "outcome": "raised"}
    report = build_report([{"pods": owned}, {"workloads": [web], "timeline": told + gone}])
    assert [[span.phase for span in pod.spans] for pod in report.pods] == [["taking_over", "both", "ending"]] * 2


def test_in_check_mode_nothing_has_happened() -> None:
    result = {"nodes": [node("n1", "cordoned")], "actions": ["Cordon node n1"], "timeline": [event(0, "cordoned")]}
    report = build_report([result], check=True)
    assert (report.verdict, report.nodes[0].outcome, report.nodes[0].spans) == ("check", "planned", ())
    assert report.actions == ("Cordon node n1",)
    assert report.started is None


def test_what_somebody_else_made_is_listed_as_kept() -> None:
    report = build_report(Sample(nodes=2).results)
    kept = [(g.object, g.message) for g in report.given_back if g.kept]
    assert kept == [("Node worker-02", "it was cordoned before and stays so")]
    assert [g.object for g in report.given_back if not g.kept] == ["Node worker-01", "Node worker-02"]


def test_a_call_that_failed_whole_is_a_problem_of_the_run() -> None:
    report = build_report([{"failed": True, "msg": "connection refused", "timeline": [], "findings": []}])
    assert report.verdict == "failed"
    assert [(p.subject, p.message) for p in report.problems] == [("run", "connection refused")]


def test_evacuate_alone_ends_parked() -> None:
    results = Sample(nodes=1).results[:4]
    report = build_report([*results, {"nodes": [node("worker-01", "parked")], "timeline": []}])
    assert report.nodes[0].outcome == "parked"
    assert report.verdict == "never_dark"


def test_a_loop_is_taken_apart_and_skipped_tasks_are_left_out() -> None:
    looped = {"results": [{"nodes": [node("n1", "parked")]}, {"skipped": True, "nodes": [node("n2", "parked")]}]}
    assert [n.name for n in build_report([looped, {"skipped": True}]).nodes] == ["n1"]


@pytest.mark.parametrize("strange", [None, 7, "text", [], {}, {"nodes": 3}, {"timeline": "x"}, {"summary": []}])
def test_nothing_strange_is_an_error(strange: t.Any) -> None:
    assert build_report([strange]).verdict == "nothing_to_do"


@pytest.mark.parametrize(
    "key", ["nodes", "pods", "workloads", "findings", "services", "timeline", "waves", "actions", "advice"]
)
@pytest.mark.parametrize("value", [None, True, -1, "x", ["x"], [None], [{}], [[]], {"a": 1}, [{"name": ["x"]}]])
def test_any_part_may_be_broken(key: str, value: t.Any) -> None:
    results = [{**result, key: value} for result in Sample(nodes=1, pods=3).results]
    assert build_report(results).totals.nodes >= 0


@pytest.mark.parametrize("length", range(14))
def test_a_run_that_was_cut_anywhere_still_reports(length: int) -> None:
    report = build_report(Sample(nodes=2).results[:length])
    assert all(span.end >= span.start for line in report.nodes for span in line.spans)


@pytest.mark.parametrize("text", ["1970-01-01T00:01:00Z", "1970-01-01T02:01:00+02:00", "1970-01-01T00:01:00"])
def test_a_time_is_read_with_its_zone_and_without_one_as_utc(text: str) -> None:
    assert instant(text) == 60.0


@pytest.mark.parametrize(("told", "ready"), [(-3, 0), (0, 0), (4, 4)])
def test_no_fewer_than_no_pods_are_ready(told: int, ready: int) -> None:
    assert samples_of({"samples": [["1970-01-01T00:01:00Z", told]]}) == ((60.0, ready),)


def test_what_acts_on_the_reader_is_replaced() -> None:
    report = build_report([{"failed": True, "msg": "\x1b[31mred\u202eevil\udce9 " + "x" * 5000}])
    message = report.problems[0].message
    assert "\x1b" not in message
    assert "\u202e" not in message
    assert len(message) < 2100
    message.encode()


def test_equal_results_make_equal_reports() -> None:
    assert build_report(Sample().results) == build_report(Sample().results)


def told(*objects: str, **changes: t.Any) -> dict[str, t.Any]:
    common = {"code": "not_ready", "severity": "warning", "message": f"{objects[0]} is.", "remedy": "Look."}
    return {**common, "object": objects[0], "objects": list(objects), **changes}


@pytest.mark.parametrize(
    ("later", "kept"),
    [
        (told("Pod b"), 1),
        (told("Pod a", "Pod c"), 1),
        (told("Pod d"), 2),
        (told("Pod a", "Pod d"), 2),
        (told("Pod b", code="other"), 2),
        (told("Pod b", severity="info"), 2),
        (told("Pod b", remedy="Run."), 2),
    ],
)
def test_what_is_found_again_before_a_wave_is_told_once(later: dict[str, t.Any], kept: int) -> None:
    plans = [{"feasible": True, "findings": [found], "waves": []} for found in (told("Pod a", "Pod b", "Pod c"), later)]
    report = build_report(plans)
    assert len(report.findings) == kept
    assert report.findings[0].objects == ("Pod a", "Pod b", "Pod c")
