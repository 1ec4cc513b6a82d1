# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs start with and come to, and what release, recover and plan say."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import yaml

from ansible_collections.kubeops.node_maintenance.plugins.filter import maintain_summary

SUMMED = maintain_summary.FilterModule().filters()["maintain_summary"]
BLOCKER = {
    "code": "room",
    "object": "Node n1",
    "severity": "blocker",
    "message": "There is no room.",
    "remedy": "Add a node.",
}
WARNING = {"code": "gone", "severity": "warning", "message": "It goes.", "remedy": ""}


def entry(name: str, *, failed: bool = False, outcome: str = "ok", message: str = "") -> dict[str, Any]:
    return {"name": name, "failed": failed, "outcome": outcome, "message": message}


def trace(what: str, run: str, *nodes: str, alive: bool = False, by: str = "", since: str = "") -> dict[str, Any]:
    return {"object": what, "what": "left", "run": run, "nodes": nodes, "alive": alive, "by": by, "since": since}


def test_the_documentation_names_every_summary() -> None:
    documented = yaml.safe_load(maintain_summary.DOCUMENTATION)["options"]["of"]["choices"]
    assert documented == list(maintain_summary.SUMMARIES)


def start(
    plan: dict[str, Any],
    resumable: Any = None,
    traces: Any = (),
    hosts: Any = (),
    *,
    evacuates: bool = False,
    **wanted: Any,
) -> dict[str, Any]:
    listed = {"traces": list(traces), "resumable": resumable}
    plan = {"wave_seconds": [10] * len(plan.get("waves") or ()), **plan}
    hooks: dict[str, Any] = {"before_node": [], "before_pod": [], "after_pod": [], "after_node": [], "fence_tasks": ""}
    known = {
        "hosts": list(hosts),
        "wanted": {"run": "", "tasks": "", "reboot": False, "tasks_estimate": 900, **hooks, **wanted},
        "evacuates": evacuates,
    }
    return dict(SUMMED({"listed": listed, "plan": plan}, "start", known))


def test_a_new_run_starts_with_all_its_waves() -> None:
    nodes = [{"name": "a", "address": "10.0.0.1"}, {"name": "b", "address": "10.0.0.2"}, {"name": "c", "address": None}]
    plan = {"waves": [["a", "b"], ["c"]], "nodes": nodes, "findings": [WARNING]}
    found = start(plan, hosts=["b"], tasks="work.yml")
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
    assert (found["finished"], found["give_back"], found["runs"], found["blockers"]) == ([], [], {}, [])


@pytest.mark.parametrize(
    ("wanted", "sizes"),
    [
        pytest.param({}, [1, 1], id="nothing"),
        pytest.param({"after_node": [{"nodes": "", "http": {"url": "https://a.invalid"}}]}, [1, 1], id="a call"),
        pytest.param({"reboot": "always"}, [3, 2], id="a reboot"),
        pytest.param({"before_pod": [{"tasks": "/files/move.yml"}]}, [3, 2], id="a task file"),
        pytest.param({"fence_tasks": "/files/fence.yml"}, [3, 2], id="tasks of a fence"),
    ],
)
def test_nodes_are_hosts_of_a_wave_only_where_something_runs_on_hosts(wanted: dict[str, Any], sizes: list[int]) -> None:
    found = start({"waves": [["a", "b"], ["c"]], "findings": []}, **wanted)
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


@pytest.mark.parametrize(
    ("wanted", "evacuates", "has_work"),
    [
        ({}, False, False),
        ({"tasks": "a.yml"}, False, True),
        ({"reboot": True}, False, True),
        ({"reboot": True}, True, False),
    ],
)
def test_there_is_work_on_the_hosts_with_tasks_or_a_reboot(
    wanted: dict[str, Any], evacuates: bool, has_work: bool
) -> None:
    assert start({"findings": []}, evacuates=evacuates, **wanted)["has_work"] is has_work


def test_what_stands_in_the_way_is_said_with_what_to_do() -> None:
    (said,) = start({"waves": [], "findings": [WARNING, BLOCKER, {**BLOCKER, "object": "Node n2"}]})["blockers"]
    assert said.startswith("2 blockers, described with remedies in the report above: ")
    assert said.endswith(": room (Node n1, Node n2).")
    assert start({"waves": [], "findings": [WARNING]})["blockers"] == []


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
    ("wanted", "evacuates", "seconds"),
    [
        pytest.param({}, False, [20, 30], id="no work"),
        pytest.param({"tasks": "a.yml", "tasks_estimate": 100}, False, [120, 130], id="tasks"),
        pytest.param({"reboot": True, "tasks_estimate": 0}, False, [20, 30], id="a reboot in no time"),
        pytest.param({"tasks": "a.yml"}, True, [20, 30], id="no tasks here"),
    ],
)
def test_the_forecast_of_a_batch_is_that_of_its_wave_and_of_the_work(
    wanted: dict[str, Any], evacuates: bool, seconds: list[int]
) -> None:
    plan = {"waves": [["a"], ["b", "c"], ["d"]], "wave_seconds": [10, 20, 30], "findings": []}
    found = start(plan, {"run": "ab12", "finished": ["a"]}, evacuates=evacuates, **wanted)
    assert found["waves"] == [["b", "c"], ["d"]]
    assert found["seconds"] == seconds


NIGHTS = [{"days": [5, 6], "start": "22:00", "end": "04:00", "tz": "UTC"}]
SATURDAY = datetime.datetime(2026, 11, 28, 22, tzinfo=datetime.UTC).timestamp()


@pytest.mark.parametrize(
    ("waves", "now", "said"),
    [
        ([], SATURDAY, ""),
        ([], SATURDAY - 60, "The maintenance window is closed. It opens Sat 2026-11-28 22:00 UTC."),
        ([{"failed": [], "stop": ""}, {}], SATURDAY + 5 * 3600, "The next wave takes about 2 h 0 min, and the"),
        ([{}, {}], SATURDAY + 5 * 3600, ""),
        ([{"failed": [], "stop": ""}] * 2, 0, ""),
    ],
    ids=["open", "closed", "too long", "the first is short", "no more waves"],
)
def test_the_next_wave_has_to_fit_in_the_window(waves: Any, now: float, said: str) -> None:
    found = run(waves, seconds=[60, 7200], window=NIGHTS, now=now)
    assert found["closed"].startswith(said) if said else found["closed"] == ""


def test_nodes_that_the_window_left_are_told_with_the_time_to_continue() -> None:
    came = [{"failed": [], "stop": ""}, {}]
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


def test_a_run_whose_last_node_was_finished_plans_nothing() -> None:
    found = start({"skipped": True}, {"run": "ab12", "finished": ["a"]})
    assert (found["waves"], found["members"], found["give_back"]) == ([], [], ["a"])


def run(waves: list[dict[str, Any]], answers: Any = None, **known: Any) -> dict[str, Any]:
    batches = [["maintenance-wave-1", "a", "b"], ["maintenance-wave-2", "c"]]
    return dict(SUMMED(answers or {}, "run", {"batches": batches, "waves": waves, "taken_up": [], **known}))


WELL = {"failed": [], "stop": ""}


def test_a_run_that_came_through_says_nothing() -> None:
    found = run([WELL, WELL], {"ended": {"nodes": []}, "report": {"html": "report.html"}})
    assert (found["well"], found["clean"], found["wrong"]) == (True, True, [])


def test_a_failure_and_the_waves_that_were_not_begun_for_it_are_in_the_last_message() -> None:
    found = run([{"failed": [entry("a", failed=True, message="No luck. ")], "stop": ""}, {}])
    assert (found["well"], found["clean"], found["left"]) == (False, False, ["c"])
    assert [each["name"] for each in found["failed"]] == ["a"]
    assert found["wrong"] == [
        "No luck.",
        "Not started: c. Because of the failures above, or because maintain_until has passed.",
    ]


def test_a_wave_that_does_not_fit_any_more_says_all_about_those_behind_it() -> None:
    found = run([{"failed": [], "stop": "It does not fit."}, {}])
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


NOTHING: dict[str, dict[str, Any]] = {
    word: {} for word in ("returning", "verify", "verify_parked", "taint", "guards", "uncordon", "parked")
}
OUT = {"nodes": [{"name": "a", "record": {"run": "ab12"}}, {"name": "b", "record": {"run": "ab12"}}, {"name": "c"}]}


def release(answers: dict[str, Any], *, check: bool = False, broken: str = "") -> dict[str, Any]:
    return dict(SUMMED({**NOTHING, "plan": OUT, **answers}, "release", {"check": check, "broken": broken}))


def test_a_release_knows_what_is_out() -> None:
    found = release({})
    assert (found["out"], found["in_service"]) == (["a", "b"], ["c"])
    assert found["at_goal"] == [{"name": "c", "outcome": "at_goal"}]
    assert found["ready"] == []
    assert release({}, check=True)["ready"] == ["a", "b"]


def test_a_release_of_nodes_that_came_back() -> None:
    both = {"nodes": [entry("a"), entry("b")]}
    found = release({"returning": both, "verify": both, "uncordon": both})
    assert (found["give_back"], found["not_back"], found["failed"]) == (["a", "b"], [], [])


def test_a_node_that_is_not_back_says_why_and_what_to_do() -> None:
    half = {"nodes": [entry("a"), entry("b", failed=True, message="Not ready")]}
    found = release(
        {"returning": {"nodes": [entry("a"), entry("b")]}, "verify": half, "uncordon": {"nodes": [entry("a")]}}
    )
    assert (found["verified"], found["not_back"]) == (["a"], ["b"])
    assert [each["message"] for each in found["failed"]] == [
        "Not ready. Node b stays out of service. Run release again."
    ]


def test_a_node_that_cannot_be_tainted_is_not_released() -> None:
    both = {"nodes": [entry("a"), entry("b")]}
    found = release({"verify": both, "taint": {"nodes": [entry("a"), entry("b", failed=True, message="Refused.")]}})
    assert (found["untainted"], found["give_back"]) == (["b"], ["a"])


def test_what_is_somebody_elses_is_not_to_be_released_again() -> None:
    held = {"nodes": [entry("a", failed=True, outcome="held", message="It is held."), entry("b")]}
    found = release({"returning": held}, broken="Forbidden.")
    assert [each["message"] for each in found["failed"]] == [
        "It is held. Node a stays out of service.",
        "Forbidden. Node b stays out of service. Run release again.",
    ]


def recovery(answers: dict[str, Any], *, check: bool = False) -> dict[str, Any]:
    return dict(SUMMED({**NOTHING, "again": {}, **answers}, "recovery", {"check": check}))


def test_a_recovery_verifies_what_has_to_pass_the_gates_and_tells_all() -> None:
    recovered = {
        "nodes": [entry("a", outcome="to_verify", message="A waits."), entry("b", message="B is back.")],
        "actions": ["Uncordon b."],
        "msg": "",
    }
    found = recovery({"recovered": recovered})
    assert found["to_verify"] == ["a"]
    assert found["did"] == ["Uncordon b.", "B is back."]
    assert recovery({"recovered": recovered}, check=True)["did"] == ["Uncordon b.", "A waits.", "B is back."]
    back = {"nodes": [entry("a", message="A is back.")], "actions": ["Uncordon a."]}
    found = recovery({"recovered": recovered, "verify": back, "uncordon": back})
    assert (found["verified"], found["uncordoned"]) == (["a"], ["a"])
    assert found["did"] == ["Uncordon b.", "Uncordon a.", "B is back.", "A is back."]
    assert found["wrong"] == []


def test_a_node_that_does_not_come_back_is_wrong_unless_it_is_still_dead() -> None:
    shut = {
        "nodes": [
            entry("a", failed=True, message="Shut."),
            entry("b", failed=True, outcome="still_dead", message="Dead."),
        ]
    }
    recovered = {"nodes": [], "msg": "One is left."}
    found = recovery({"recovered": recovered, "verify": shut, "uncordon": shut, "again": {"msg": "One is left."}})
    assert found["wrong"] == ["One is left.", "Shut."]


TRACES = {
    "traces": [
        trace("Node a", "ab12", by="jo", since="noon"),
        trace("Lease b", "ef56", alive=True),
        trace("Node c", ""),
        trace("Node d", "ab12"),
    ]
}


def test_what_earlier_runs_left_is_listed_with_what_to_do_next() -> None:
    found = SUMMED({"listed": TRACES}, "traces", {"run": "", "state": "listed"})
    assert found["lines"] == [
        "Node a: left, run ab12, started by jo, since noon, no live run",
        "Lease b: left, run ef56, its run is alive",
        "Node c: left, no live run",
        "Node d: left, run ab12, no live run",
        "To undo what one run left: -e recover_run=<id>. What all dead runs left: -e recover_state=undone.",
    ]
    assert found["runs"] == ["ab12", "ef56"]


def test_of_a_run_that_is_named_its_own_traces_are_listed() -> None:
    found = SUMMED({"listed": TRACES}, "traces", {"run": "ef56", "state": "undone"})
    assert found["lines"] == ["Lease b: left, run ef56, its run is alive"]
    none = SUMMED({"listed": TRACES}, "traces", {"run": "0000", "state": "undone"})
    assert none["lines"] == ["Earlier runs left nothing."]


def test_a_plan_shows_its_waves_findings_losses_time_and_fence() -> None:
    plan = {
        "waves": [["a", "b"], ["c"]],
        "findings": [BLOCKER, WARNING],
        "pods": [
            {"namespace": "shop", "name": "db", "fate": {"reason": "It loses its volume."}},
            {"namespace": "shop", "name": "web", "fate": None},
        ],
        "estimate_seconds": 40,
        "fence": "absent",
    }
    found = SUMMED({"plan": plan}, "plan")
    assert found["lines"] == [
        "Wave 1: a, b",
        "Wave 2: c",
        "warning: It goes.",
        "shop/db: It loses its volume.",
        "Draining the nodes takes about 40 s.",
        "The API server has no fence. Install it: ansible-playbook kubeops.node_maintenance.fence",
    ]
    assert found["blockers"] == ["There is no room. Add a node."]
    assert found["says"] == start(plan)["blockers"]
    assert "takes about 0 s" not in str(SUMMED({"plan": {**plan, "estimate_seconds": 0}}, "plan"))
    assert "do not allow reading" in SUMMED({"plan": {"findings": []}}, "plan")["lines"][-1]


def test_a_plan_shows_what_a_wave_takes_and_which_budgets_hold_it_up() -> None:
    def held(wave: int, name: str, seconds: float, **more: Any) -> dict[str, Any]:
        shown = {"namespace": "shop", "name": name, "workload": f"Deployment shop/{name}", "pods": 4, "allowed": 1}
        return {**shown, "guard": False, "blocks": False, "wave": wave, "seconds": seconds, **more}

    plan = {
        "waves": [["a", "b"], ["c"]],
        "wave_seconds": [43, 2],
        "wave_parts": [{"steps": 2.0, "starts": 0.0, "stops": 10.5, "budgets": 30.0}, {"steps": 2.0, "stops": 0.0}],
        "waits": [{"node": "c", "reason": "wave 1 is full with 2 nodes"}],
        "findings": [],
        "budgets": [
            held(1, "web", 30.0),
            held(1, "api", 2.5, allowed=0, pods=1),
            held(2, "kubeops-guard-1", 40.0, guard=True, workload="StatefulSet shop/db"),
            held(2, "no", 0.0, blocks=True),
        ],
    }
    assert SUMMED({"plan": plan}, "plan")["lines"][:-1] == [
        "Wave 1: a, b (about 43 s: cordon and proof 2 s, stops 10.5 s, budgets 30 s)",
        "Wave 2: c (about 2 s: cordon and proof 2 s); wave 1 is full with 2 nodes",
        "Wave 2 waits for the guard of StatefulSet shop/db: 4 pods, 1 at a time, 40 s.",
        "Wave 1 waits for budget shop/web: 4 pods, 1 at a time, 30 s.",
        "Wave 1 waits for budget shop/api: 1 pod, none allowed at the moment.",
    ]
    many = {**plan, "budgets": [held(1, f"b{number}", 1.0) for number in range(12)]}
    lines = SUMMED({"plan": many}, "plan")["lines"]
    assert lines[-2] == "It waits for budgets 2 more times, for a shorter time each."
    assert len([line for line in lines if " waits for budget " in line]) == 10


def test_after_a_soak_that_failed_no_wave_starts() -> None:
    came = [{"failed": [], "stop": "", "back": ["a", "b"]}, {}]
    found = run(came, soaks=["", "A gate failed.", ""], finished=["z"])
    assert found["stops"] == ["A gate failed."]
    assert found["back"] == ["z", "a", "b"]
    assert found["wrong"] == [
        "A gate failed.",
        "Not started: c. Once the cause is removed, run the same command again.",
    ]
    assert not found["well"]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"nodes": [entry("a"), entry("b")]}, ""),
        (
            {"nodes": [entry("a"), entry("b", failed=True, message="Node b: its condition Ready is False.")]},
            "A gate failed in the soak: Node b: its condition Ready is False. No further wave starts.",
        ),
        ({"failed": True, "msg": "Refused."}, "The soak was not watched to its end: Refused."),
    ],
)
def test_what_a_soak_comes_to(answer: dict[str, Any], text: str) -> None:
    assert SUMMED({"soaked": answer}, "soak") == {"text": text}
