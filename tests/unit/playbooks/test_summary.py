# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs start with and come to."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import yaml

from ansible_collections.kubeops.node_maintenance.plugins.filter import maintain_summary
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import inputs
from ansible_collections.kubeops.node_maintenance.tests.unit.playbooks.summed import (
    BLOCKER,
    SUMMED,
    WARNING,
    asked,
    entry,
    start,
    trace,
)


def test_the_documentation_names_every_summary() -> None:
    documented = yaml.safe_load(maintain_summary.DOCUMENTATION)["options"]["of"]["choices"]
    assert documented == list(maintain_summary.SUMMARIES)


def test_a_new_run_starts_with_all_its_waves() -> None:
    nodes = [{"name": "a", "address": "10.0.0.1"}, {"name": "b", "address": "10.0.0.2"}, {"name": "c", "address": None}]
    plan = {"waves": [["a", "b"], ["c"]], "nodes": nodes, "findings": [WARNING]}
    found = start(plan, hosts=["b"], on_hosts=True)
    assert found["waves"] == [["a", "b"], ["c"]]
    assert found["batches"] == [["maintenance-wave-1", "a", "b"], ["maintenance-wave-2", "c"]]
    assert found["hosts"] == [
        {"name": "a", "address": "10.0.0.1"},
        {"name": "b", "address": ""},
        {"name": "c", "address": ""},
    ]
    assert [(each["name"], each["leads"], each["nodes"]) for each in found["members"]] == [
        ("maintenance-wave-1", True, ["a", "b"]),
        ("a", False, ["a", "b"]),
        ("b", False, ["a", "b"]),
        ("maintenance-wave-2", True, ["c"]),
        ("c", False, ["c"]),
    ]
    assert found["sizes"] == [3, 2]
    assert (found["finished"], found["give_back"], found["runs"], found["in_the_way"]) == ([], [], {}, [])


@pytest.mark.parametrize(("on_hosts", "sizes"), [(False, [1, 1]), (True, [3, 2])])
def test_nodes_are_hosts_of_a_wave_only_where_something_runs_on_hosts(on_hosts: bool, sizes: list[int]) -> None:
    found = start({"waves": [["a", "b"], ["c"]], "findings": []}, on_hosts=on_hosts)
    assert (found["sizes"], len(found["members"])) == (sizes, sum(sizes))
    assert [each["nodes"] for each in found["members"] if each["leads"]] == found["waves"] == [["a", "b"], ["c"]]
    assert found["batches"] == [["maintenance-wave-1", "a", "b"], ["maintenance-wave-2", "c"]]


@pytest.mark.parametrize(
    ("named", "runs", "adopt"),
    [
        ("", {}, [False, False]),
        ("", {"a": "ab12"}, [False, False]),
        ("ab12", {}, [True, True]),
        ("ab12", {"a": "ab12"}, [True, True]),
        ("ab12", {"b": "ef"}, [False, True]),
    ],
)
def test_naming_a_run_takes_its_nodes_over_and_no_others(named: str, runs: dict[str, str], adopt: list[bool]) -> None:
    nodes = [{"name": name, "record": {"run": run}} for name, run in runs.items()]
    found = start({"waves": [["a", "b"], ["c"]], "nodes": nodes, "findings": []}, run=named)
    assert [each["adopt"] for each in found["members"] if each["leads"]] == adopt


def test_what_stands_in_the_way_is_said_with_what_to_do() -> None:
    (said,) = start({"waves": [], "findings": [WARNING, BLOCKER, {**BLOCKER, "object": "Node n2"}]})["in_the_way"]
    assert said.startswith("2 blockers, described with remedies in the report above: ")
    assert said.endswith(": room (Node n1, Node n2).")
    (one,) = start({"waves": [], "findings": [BLOCKER]})["in_the_way"]
    assert one.startswith("1 blocker, described")
    assert start({"waves": [], "findings": [WARNING]})["in_the_way"] == []


LEFT_OUT: dict[str, Any] = {
    "feasible": True,
    "waves": [["a"], ["c"]],
    "left_out": ["b"],
    "findings": [BLOCKER],
    "nodes": [{"name": name, "message": f"About {name}.", "record": None} for name in ("a", "b", "c")],
}


def test_nodes_that_the_plan_leaves_out_are_told_and_stop_nothing() -> None:
    found = start(LEFT_OUT)
    assert (found["waves"], found["in_the_way"]) == ([["a"], ["c"]], [])
    assert found["left_out"] == ["About b. It was left out."]
    none = start({**LEFT_OUT, "feasible": False, "waves": []})
    assert (len(none["in_the_way"]), none["left_out"]) == (1, [])


def test_a_node_that_is_left_out_and_was_out_before_stays_so() -> None:
    nodes = [{"name": "b", "message": "About b.", "record": {"run": "ab12"}}]
    assert start({**LEFT_OUT, "nodes": nodes})["left_out"] == ["About b. It was left out, and stays out of service."]


def test_nodes_whose_hosts_are_out_of_reach_join_no_wave_where_they_are_left_out() -> None:
    listed: dict[str, Any] = {"traces": [], "resumable": None}
    wanted = asked(has_work=True, on_hosts=True, tasks_estimate=1, on_blocked="skip")
    waves = {"waves": [["c"], ["a", "b"]], "wave_seconds": [5, 6], "wave_parts": [{"moves": 1}, {"moves": 2}]}
    waves["wave_ranges"] = [[4, 7], [6, 9]]
    plan = {**LEFT_OUT, **waves, "left_out": [], "estimate_seconds": 11, "estimate_range": [10, 16]}
    known = {"hosts": [], "wanted": wanted, "out_of_reach": {"a": "", "b": "No host b.", "c": "No host c."}}
    found = SUMMED({"listed": listed, "plan": plan}, "start", known)
    assert (found["waves"], found["seconds"]) == ([["a"]], [7])
    assert found["left_out"] == ["No host b.", "No host c."]
    again = found["replanned"]
    assert [(node["name"], node.get("outcome"), node["message"]) for node in again["nodes"]] == [
        ("a", None, "About a."),
        ("b", "blocked", "No host b."),
        ("c", "blocked", "No host c."),
    ]
    assert (again["waves"], again["estimate_seconds"], again["estimate_range"]) == ([["a"]], 6, [6, 9])
    assert (again["wave_seconds"], again["wave_parts"]) == ([6], [{"moves": 2}])
    wanted["on_blocked"] = "stop"
    found = SUMMED({"listed": listed, "plan": plan}, "start", known)
    assert (found["waves"], found["replanned"]) == ([["c"], ["a", "b"]], {})
    assert (found["left_out"], found["in_the_way"]) == ([], ["No host b.", "No host c."])


def test_a_run_that_left_nodes_out_is_not_well_but_may_end_as_planned() -> None:
    found = run([{**WELL, "left_out": ["Again b."]}, WELL], left_out=["About b.", "About d."])
    assert (found["clean"], found["well"], found["failed"]) == (True, False, [])
    assert found["wrong"] == ["About b.", "About d.", "Again b."]


def test_a_resumed_run_leaves_out_what_is_finished_and_takes_up_what_came_back_half_way() -> None:
    traces = [
        trace("Node a", "ab12", "a"),
        trace("Node c", "ab12", "c"),
        trace("Node d", "ef56", "d"),
        trace("PodDisruptionBudget shop/web", "ef56", "b"),
    ]
    nodes = [{"name": "c", "record": {"run": "ab12"}}, {"name": "e"}]
    plan = {"waves": [["a", "c"], ["b"], ["e"]], "nodes": nodes}
    found = start(plan, {"run": "ab12", "finished": ["a", "b", "d"]}, traces)
    assert found["waves"] == [["c"], ["e"]]
    assert found["batches"] == [["maintenance-wave-1", "c"], ["maintenance-wave-2", "e"]]
    assert found["half_back"] == ["a"]
    assert found["give_back"] == ["a", "b"]
    assert found["runs"] == {"c": "ab12"}


@pytest.mark.parametrize(
    ("wanted", "seconds"),
    [
        pytest.param({}, [20, 30], id="no work"),
        pytest.param({"has_work": True, "tasks_estimate": 100}, [120, 130], id="tasks"),
        pytest.param({"has_work": True, "tasks_estimate": 0}, [20, 30], id="a reboot in no time"),
    ],
)
def test_the_forecast_of_a_batch_is_that_of_its_wave_and_of_the_work(
    wanted: dict[str, Any], seconds: list[int]
) -> None:
    plan = {"waves": [["a"], ["b", "c"], ["d"]], "wave_seconds": [10, 20, 30], "findings": []}
    found = start(plan, {"run": "ab12", "finished": ["a"]}, **wanted)
    assert found["waves"] == [["b", "c"], ["d"]]
    assert found["seconds"] == seconds


NIGHTS = [{"days": [5, 6], "start": "22:00", "end": "04:00", "tz": "UTC"}]
SATURDAY = datetime.datetime(2026, 11, 28, 22, tzinfo=datetime.UTC).timestamp()


@pytest.mark.parametrize(
    ("waves", "now", "said"),
    [
        ([], SATURDAY, ""),
        ([], SATURDAY - 60, "The maintenance window is closed. It opens Sat 2026-11-28 22:00 UTC."),
        ([{"nodes": [], "stop": ""}, {}], SATURDAY + 5 * 3600, "The next wave takes about 2 h 0 min, and the"),
        ([{}, {}], SATURDAY + 5 * 3600, ""),
        ([{"nodes": [], "stop": ""}] * 2, 0, ""),
    ],
    ids=["open", "closed", "too long", "the first is short", "no more waves"],
)
def test_the_next_wave_has_to_fit_in_the_window(waves: Any, now: float, said: str) -> None:
    found = run(waves, seconds=[60, 7200], window=NIGHTS, now=now)
    assert found["closed"].startswith(said) if said else found["closed"] == ""


@pytest.mark.parametrize("check", [False, True])
def test_a_closed_window_is_in_the_way_of_the_first_wave_except_in_check_mode(check: bool) -> None:
    plan = {"feasible": True, "waves": [["a"]], "wave_seconds": [60], "findings": []}
    known = {"hosts": [], "wanted": asked(window=NIGHTS), "check": check}
    for now, closed in ((SATURDAY, False), (SATURDAY - 60, True)):
        found = SUMMED({"listed": {"traces": []}, "plan": plan}, "start", {**known, "now": now})
        assert (bool(found["closed"]), len(found["in_the_way"])) == (closed, closed and not check)


def test_nodes_that_the_window_left_are_told_with_the_time_to_continue() -> None:
    came = [{"nodes": [], "stop": ""}, {}]
    found = run(came, seconds=[60, 7200], window=NIGHTS, now=str(SATURDAY + 5 * 3600))
    (wrong,) = found["wrong"]
    assert wrong.startswith("Not started: c. The next wave takes about 2 h 0 min")
    assert "The next one opens Sun 2026-11-29 22:00 UTC. Run the same command again then" in wrong
    assert not found["well"]


def test_a_plan_shows_whether_the_window_is_open() -> None:
    plan = {"waves": [["a"]], "wave_seconds": [60], "findings": []}
    wanted = {"window": NIGHTS, "tasks": "a.yml", "reboot": "", "tasks_estimate": 6 * 3600}
    lines = SUMMED({"plan": plan}, "plan", {"wanted": wanted, "now": SATURDAY})["lines"]
    assert any("No window of the next two weeks is open that long" in line for line in lines)
    lines = SUMMED({"plan": plan}, "plan", {"wanted": {**wanted, "tasks": ""}, "now": SATURDAY})["lines"]
    assert "The maintenance window is open for the first wave." in lines


@pytest.mark.parametrize(
    ("moment", "resumed", "told"),
    [
        ("planned", False, ["start", "end", "duration"]),
        ("started", False, ["start", "end", "duration"]),
        ("started", True, ["end", "duration"]),
        ("ended", False, []),
        ("failed", True, []),
    ],
)
def test_a_time_is_announced_of_what_lies_ahead(moment: str, resumed: bool, told: list[str]) -> None:
    wanted = inputs.read({"maintain_nodes": "a"}, "maintain")
    known = {"moment": moment, "resumed": resumed, "wanted": wanted, "now": SATURDAY, "seconds": [60]}
    found = SUMMED({"plan": {}}, "announced", known)
    assert [name for name in ("start", "end", "duration") if found[name]] == told
    assert found["duration"] in ("", "60s")


@pytest.mark.parametrize(("done", "number"), [(0, 1), (2, 3), (None, 1)])
def test_the_waves_of_a_resumed_run_are_numbered_on(done: int | None, number: int) -> None:
    found = start({"waves": [["c"]], "nodes": []}, {"run": "ab12", "finished": ["a", "b"], "waves_done": done})
    assert found["batches"] == [[f"maintenance-wave-{number}", "c"]]


def test_a_run_whose_last_node_was_finished_plans_nothing() -> None:
    found = start({"skipped": True}, {"run": "ab12", "finished": ["a"]})
    assert (found["waves"], found["members"], found["give_back"]) == ([], [], ["a"])


def run(waves: list[dict[str, Any]], answers: Any = None, **known: Any) -> dict[str, Any]:
    batches = [["maintenance-wave-1", "a", "b"], ["maintenance-wave-2", "c"]]
    return dict(SUMMED(answers or {}, "run", {"batches": batches, "waves": waves, "taken_up": [], **known}))


WELL = {"nodes": [], "stop": ""}


def test_a_run_that_came_through_says_nothing() -> None:
    found = run([WELL, WELL], {"ended": {"nodes": []}, "report": {"html": "report.html"}})
    assert (found["well"], found["clean"], found["wrong"]) == (True, True, [])


def test_a_failure_and_the_waves_that_were_not_begun_for_it_are_in_the_last_message() -> None:
    found = run([{"nodes": [entry("a", failed=True, message="No luck. ")], "stop": ""}, {}])
    assert (found["well"], found["clean"], found["left"]) == (False, False, ["c"])
    assert [each["name"] for each in found["failed"]] == ["a"]
    assert found["wrong"] == ["No luck.", "Not started: c. Because of the failures above."]


FAILED = {"nodes": [entry("a", failed=True, message="No luck.")], "stop": ""}


@pytest.mark.parametrize(
    ("first", "until", "said"),
    [
        (FAILED, None, (True, False)),
        (FAILED, "", (True, False)),
        (FAILED, 200.0, (True, False)),
        (FAILED, "50.0", (True, True)),
        (WELL, 50.0, (False, True)),
        (WELL, None, (False, False)),
    ],
    ids=["failures", "no time", "time left", "both", "time", "neither"],
)
def test_only_what_can_be_the_cause_is_said_of_waves_that_did_not_start(first: Any, until: Any, said: Any) -> None:
    wrong = run([first, {}], until=until, now="100.0")["wrong"][-1]
    assert ("failures above" in wrong, "maintain_until" in wrong) == said


def test_a_wave_that_does_not_fit_any_more_says_all_about_those_behind_it() -> None:
    found = run([{"nodes": [], "stop": "It does not fit."}, {}])
    assert (found["stops"], found["clean"], found["wrong"]) == (["It does not fit."], False, ["It does not fit."])


def test_a_run_that_was_not_begun_says_what_is_in_the_way_and_leaves_no_wave() -> None:
    found = run([], in_the_way=["There is no room."])
    assert (found["left"], found["wrong"]) == ([], ["There is no room."])


def test_what_an_earlier_start_finished_and_is_still_out_is_said_once_for_each_node() -> None:
    taken_up = [
        {"nodes": [entry("d", failed=True, message="D is held."), entry("c", failed=True, message="C is held.")]},
        {"skipped": True},
        {"nodes": [entry("c", failed=True, message="C again."), entry("e")]},
    ]
    found = run([WELL, WELL], taken_up=taken_up)
    assert found["wrong"] == ["C is held.", "D is held."]
    assert (found["clean"], found["well"]) == (True, False)


def test_a_wave_that_could_not_begin_was_not_touched_and_one_that_could_not_return_stays_out() -> None:
    lost = {"failed": True, "msg": "No API."}
    assert [each["message"] for each in run([lost, {}])["failed"]] == ["No API.", "No API."]
    out = {"nodes": [entry("a", failed=True, message="No luck."), entry("b")], "ready": ["b"], "steps": []}
    assert [each["name"] for each in run([out, {}], backs=[{"skipped": True}, {}])["failed"]] == ["a"], "check mode"
    found = run([out, {}], backs=[lost, {}])
    assert [each["name"] for each in found["failed"]] == ["a", "b"]
    assert "Node b stays out of service." in found["failed"][1]["message"]
    assert found["told"] == [out, {"nodes": found["failed"]}]


@pytest.mark.parametrize(
    ("answers", "wrong"),
    [
        ({"ended": {"failed": True, "msg": "Not ended."}}, ["Not ended."]),
        ({"ended": {"skipped": True}}, []),
        ({"report": {"failed": True, "msg": "Not written."}}, ["Not written."]),
    ],
)
def test_the_last_calls_may_fail_as_well(answers: dict[str, Any], wrong: list[str]) -> None:
    assert run([WELL, WELL], answers)["wrong"] == wrong


def test_a_descheduler_that_could_not_be_rolled_out_is_a_failure() -> None:
    found = run([WELL, WELL], descheduler="It does not start.")
    assert (found["well"], found["wrong"]) == (False, ["It does not start."])


def test_after_a_soak_that_failed_no_wave_starts() -> None:
    came = [{"nodes": [], "stop": "", "back": ["a", "b"]}, {}]
    soaked = {"nodes": [entry("a", failed=True, message="It is dark.")]}
    found = run(came, soaks=[{}, soaked, {}], finished=["z"])
    (stop,) = found["stops"]
    assert found["back"] == ["z", "a", "b"]
    assert found["wrong"] == [
        stop,
        "Not started: c. Once the cause is removed, run the same command again.",
    ]
    assert not found["well"]


@pytest.mark.parametrize(
    ("answer", "stops"),
    [
        ({}, []),
        ({"skipped": True}, []),
        ({"nodes": [entry("a"), entry("b")]}, []),
        (
            {"nodes": [entry("a"), entry("b", failed=True, message="Node b: its condition Ready is False.")]},
            ["A gate failed in the soak: Node b: its condition Ready is False. No further wave starts."],
        ),
        ({"failed": True, "msg": "Refused."}, ["The soak was not watched to its end: Refused."]),
    ],
)
def test_what_a_soak_comes_to(answer: dict[str, Any], stops: list[str]) -> None:
    assert run([WELL, WELL], soaks=[answer, answer])["stops"] == stops
