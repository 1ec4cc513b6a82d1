# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a wave came to, asked at every point of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks.summary_hosts import hooked
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves.wave import Wave, others, task_files

BLOCKER = {"code": "room", "severity": "blocker", "message": "There is no room.", "remedy": "", "object": "Node b"}
BACK = "ansible-playbook kubeops.node_maintenance.release -e maintain_nodes="
STAYS = "stays out of service. To continue, run the same command again. To return the node to service: " + BACK
DONE = {"outcome": "done", "message": ""}
WAITING = {"outcome": "waiting", "message": ""}
CALLS = ("cordon", "protect", "migrate", "out", "returning", "verify", "guards", "uncordon")


def answer(*good: str, **bad: str) -> dict[str, Any]:
    """The answer of a call about nodes: names of those that came through, messages of those that did not."""
    nodes: list[dict[str, Any]] = [{"name": name, "failed": False, "outcome": "ok", "message": ""} for name in good]
    nodes += [{"name": name, "failed": True, "outcome": "failed", "message": text} for name, text in bad.items()]
    return {"nodes": nodes, "failed": bool(bad), "msg": " ".join(bad.values())}


def whole(*nodes: str) -> dict[str, dict[str, Any]]:
    """The answers of a wave in which all was well."""
    return {call: answer(*nodes) for call in CALLS}


class Seen:
    """A wave, of which the tests ask by words."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave

    def __getitem__(self, word: str) -> Any:
        return getattr(self.wave, word)


def asked(
    answers: dict[str, dict[str, Any]],
    *,
    nodes: Sequence[str] = ("a", "b"),
    tasks: str = "",
    works: Sequence[dict[str, Any]] = (DONE, DONE),
    evacuates: bool = False,
    on_failure: str = "auto",
    check: bool = False,
    **known: Any,
) -> Seen:
    """A wave of nodes a and b that was asked for with these words."""
    return Seen(
        Wave(
            answers=answers,
            nodes=nodes,
            has_work=bool(tasks) and not evacuates,
            evacuates=evacuates,
            on_failure=on_failure,
            check=check,
            run="ab12/00000001",
            works=dict(zip(nodes, works, strict=True)) if tasks else {},
            **{"runs": {}, **known},
        )
    )


def failures(came: Seen) -> dict[str, str]:
    return {entry["name"]: entry["message"] for entry in came["failed"]}


def test_before_its_first_call_a_wave_touches_no_node() -> None:
    came = asked({})
    assert (came["stop"], came["drained"], came["ready"], came["returning"]) == ("", [], [], [])


@pytest.mark.parametrize("tasks", ["", "patch.yml"])
def test_all_went_well(tasks: str) -> None:
    came = asked(whole("a", "b"), tasks=tasks)
    both = ["a", "b"]
    for word in ("drained", "ready", "returning", "finished", "released", "give_back"):
        assert came[word] == both, word
    for word in ("lost", "unfinished", "untainted", "not_back", "failed"):
        assert came[word] == [], word


@pytest.mark.parametrize(
    ("call", "known_as"), [("cordon", "ready"), ("protect", "ready"), ("migrate", "drained"), ("out", "ready")]
)
def test_a_node_that_fails_on_its_way_out_goes_no_further_and_blames_no_other(call: str, known_as: str) -> None:
    answers = whole("a")
    for earlier in CALLS[: CALLS.index(call)]:
        answers[earlier] = answer("a", "b")
    answers[call] = answer("a", b="No luck.")
    came = asked(answers, tasks="patch.yml")
    assert came[known_as] == came["ready"] == came["returning"] == ["a"]
    assert came["lost"] == ([] if call == "cordon" else ["b"])
    assert failures(came) == {"b": "No luck."}


def rechecked(feasible: bool, *left_out: str) -> dict[str, Any]:
    """The answer of the look whether a wave of a and b still fits."""
    nodes = [
        {"name": name, "failed": name in left_out, "outcome": "x", "message": f"Node {name} is blocked."}
        for name in ("a", "b")
    ]
    return {"feasible": feasible, "left_out": list(left_out), "nodes": nodes, "findings": [BLOCKER]}


def test_a_node_that_is_blocked_by_now_is_left_out_of_its_wave() -> None:
    answers = {**whole("a"), "again": rechecked(True, "b")}
    found = asked(answers)
    assert (found["stop"], found["done"], found["failed"], found["lost"]) == ("", ["a"], [], [])


def test_a_wave_whose_nodes_are_all_blocked_by_now_touches_none_and_stops_nothing() -> None:
    found = asked({"again": rechecked(False, "a", "b")}, tasks="work.yml")
    assert (found["stop"], found["failed"], found["lost"], found["unfinished"]) == ("", [], [], [])


def test_a_blocker_of_all_nodes_stops_the_wave() -> None:
    assert "no longer fits" in asked({"again": rechecked(False)})["stop"]
    assert "no longer fits" in asked({"again": rechecked(False, "b")})["stop"]


def test_what_failed_first_is_the_reason() -> None:
    answers = {
        **whole("a"),
        "cordon": answer("a", "b"),
        "protect": answer("a", b="First."),
        "migrate": answer(b="Later."),
    }
    assert failures(asked(answers)) == {"b": "First."}


def test_a_node_that_is_gone_is_not_ready_and_says_so() -> None:
    answers = whole("a", "b")
    answers["migrate"]["nodes"][1].update(outcome="gone", message="Node b is not there any more.")
    answers["verify"] = answers["uncordon"] = answer("a")
    came = asked(answers)
    assert (came["ready"], came["lost"]) == (["a"], ["b"])
    assert failures(came) == {"b": "Node b is not there any more."}


def test_a_node_whose_work_failed_stays_out_and_says_how_it_comes_back() -> None:
    works = [DONE, {"outcome": "failed", "message": "Patch it: no luck"}]
    answers = {**whole("a", "b"), "verify": answer("a"), "uncordon": answer("a")}
    came = asked(answers, tasks="patch.yml", works=works)
    assert (came["returning"], came["unfinished"], came["finished"]) == (["a"], ["b"], ["a"])
    assert came["failed"] == [
        {"name": "b", "failed": True, "outcome": "failed_tasks", "message": f"Patch it: no luck. Node b {STAYS}b"}
    ]


def test_a_node_whose_work_failed_comes_back_where_that_was_asked_for_and_still_counts_as_failed() -> None:
    works = [DONE, {"outcome": "failed", "message": "Patch it: no luck"}]
    came = asked(whole("a", "b"), tasks="patch.yml", works=works, on_failure="release")
    assert (came["returning"], came["unfinished"], came["finished"], came["released"]) == (
        ["a", "b"],
        [],
        ["a"],
        ["a", "b"],
    )
    assert failures(came) == {"b": "Patch it: no luck"}


def test_a_host_that_was_lost_keeps_its_node_out() -> None:
    answers = {**whole("a", "b"), "verify": answer("a"), "uncordon": answer("a")}
    came = asked(answers, tasks="patch.yml", works=[DONE, WAITING])
    assert (came["returning"], came["unfinished"]) == (["a"], ["b"])
    assert failures(came) == {"b": f"The connection to host b was lost while your tasks ran. Node b {STAYS}b"}


def test_a_gate_that_stays_shut_keeps_a_node_out() -> None:
    answers = {**whole("a", "b"), "verify": answer("a", b="Node b is not ready."), "uncordon": answer("a")}
    came = asked(answers)
    assert (came["released"], came["not_back"], came["finished"]) == (["a"], ["b"], ["a"])
    assert failures(came) == {"b": f"Node b is not ready. Node b {STAYS}b"}


def test_a_gate_keeps_no_node_out_that_was_to_come_back_whatever_failed() -> None:
    answers = {**whole("a", "b"), "verify": answer("a", b="Node b is not ready.")}
    came = asked(answers, on_failure="release")
    assert (came["released"], came["finished"]) == (["a", "b"], ["a"])
    assert failures(came) == {"b": "Node b is not ready."}


def test_a_node_that_cannot_be_tainted_is_not_given_back() -> None:
    answers = {**whole("a", "b"), "taint": answer("a", b="Refused."), "uncordon": answer("a")}
    came = asked(answers)
    assert (came["untainted"], came["give_back"]) == (["b"], ["a"])
    assert failures(came) == {"b": f"Refused. Node b {STAYS}b"}


def test_a_node_that_cannot_be_uncordoned_stays_out() -> None:
    came = asked({**whole("a", "b"), "uncordon": answer("a", b="Refused.")})
    assert came["not_back"] == ["b"]
    assert failures(came) == {"b": f"Refused. Node b {STAYS}b"}


def test_a_node_in_service_that_left_a_budget_behind_is_not_done() -> None:
    came = asked({**whole("a", "b"), "guards": answer("a", b="Its budget is left.")})
    assert failures(came) == {"b": "Its budget is left."}


def test_a_call_that_broke_on_the_way_out_gives_all_back() -> None:
    came = asked({"cordon": answer("a", "b"), "protect": {"failed": True, "msg": "Forbidden."}}, broken="Forbidden.")
    assert (came["ready"], came["lost"]) == ([], ["a", "b"])
    assert failures(came) == {"a": "Forbidden.", "b": "Forbidden."}


def test_where_the_answer_about_the_cordon_is_missing_every_node_may_have_been_touched() -> None:
    came = asked({"cordon": {"failed": True, "msg": "Lost."}}, broken="Lost.")
    assert came["lost"] == ["a", "b"]


def test_a_call_that_broke_on_the_way_back_is_the_reason_for_those_that_are_not_back() -> None:
    answers = {**whole("a", "b"), "uncordon": answer("a"), "guards": answer("a")}
    came = asked(answers, broken_late="Forbidden.")
    assert came["not_back"] == ["b"]
    assert failures(came) == {"b": f"Forbidden. Node b {STAYS}b"}


@pytest.mark.parametrize(
    "lost", [{"lost_nodes": answer(b="It is locked.")}, {"lost_guards": {"failed": True, "msg": "It is locked."}}]
)
def test_a_node_that_could_not_be_given_back_says_that_as_well(lost: dict[str, dict[str, Any]]) -> None:
    answers = {**whole("a"), "cordon": answer("a", "b"), "protect": answer("a", b="No room"), **lost}
    message = f"No room. It could not be returned to service: It is locked. Node b {STAYS}b"
    assert failures(asked(answers)) == {"b": message}


def test_the_same_reason_is_not_said_twice() -> None:
    answers = {
        **whole("a"),
        "cordon": answer("a", "b"),
        "protect": answer("a", b="Down."),
        "lost_nodes": answer(b="Down."),
    }
    assert failures(asked(answers)) == {"b": f"Down. Node b {STAYS}b"}


@pytest.mark.parametrize("outcome", ["adopted_by", "held"])
def test_a_node_that_is_another_runs_by_now_is_rightly_not_given_back(outcome: str) -> None:
    lost = answer(b="It is another run's.")
    lost["nodes"][0]["outcome"] = outcome
    answers = {**whole("a"), "cordon": answer("a", "b"), "protect": answer("a", b="No room."), "lost_nodes": lost}
    assert failures(asked(answers)) == {"b": "No room."}


def test_a_node_that_was_never_touched_needs_no_give_back() -> None:
    answers = {**whole("a"), "cordon": answer("a", b="No."), "lost_nodes": {"failed": True, "msg": "Down."}}
    assert failures(asked(answers)) == {"b": "No."}


def test_a_node_that_is_to_be_kept_out_whatever_failed_says_how_it_comes_back() -> None:
    answers = {**whole("a"), "cordon": answer("a", "b"), "protect": answer("a", b="No room.")}
    assert failures(asked(answers, on_failure="keep")) == {"b": f"No room. Node b {STAYS}b"}


def test_a_wave_that_does_not_fit_any_more_is_not_begun_and_blames_no_node() -> None:
    blocker = {"severity": "blocker", "message": "There is no room."}
    again = {"feasible": False, "findings": [{"severity": "info", "message": "By the way."}, blocker]}
    came = asked({"again": again, "cordon": {"skipped": True}})
    assert came["stop"] == (
        "The cluster has changed, and the wave a, b no longer fits: There is no room. "
        "Run the same command again, which makes a new plan."
    )
    assert (came["failed"], came["lost"]) == ([], [])


def about(outcome: str, *, failed: bool = False) -> dict[str, Any]:
    """The answer of a call about node b with this outcome, while all was well with a."""
    told = {"name": "b", "failed": failed, "outcome": outcome, "message": "It is as new."}
    return {"nodes": [*answer("a")["nodes"], told], "failed": failed, "msg": ""}


@pytest.mark.parametrize(("outcome", "over"), [("replaced", ["b"]), ("gone", ["b"]), ("ok", [])])
def test_a_node_that_is_gone_or_new_is_given_back_although_it_passed_no_gate(outcome: str, over: list[str]) -> None:
    came = asked({**whole("a", "b"), "returning": about(outcome), "verify": answer("a", b="No.")}, tasks="patch.yml")
    assert (came["over"], came["give_back"]) == (over, ["a", *over])


@pytest.mark.parametrize(("outcome", "stays"), [("not_in_maintenance_yet", False), ("parked", True)])
def test_a_new_node_whose_work_failed_is_not_told_to_stay_out(outcome: str, stays: bool) -> None:
    came = asked(
        {**whole("a", "b"), "parked": about(outcome, failed=not stays), "verify": answer("a"), "uncordon": answer("a")},
        tasks="patch.yml",
        works=[DONE, {"outcome": "failed", "message": "kubeadm join failed."}],
    )
    assert (STAYS in failures(came)["b"]) is stays


def test_in_check_mode_a_node_is_done_that_could_be_emptied() -> None:
    answers = {"cordon": answer("a", "b"), "protect": answer("a", "b"), "migrate": answer("a", b="No room.")}
    came = asked(answers, check=True, tasks="patch.yml", on_failure="keep")
    assert failures(came) == {"b": "No room."}


@pytest.mark.parametrize("tasks", ["", "patch.yml"])
def test_an_evacuated_node_is_parked_whatever_there_is_to_do_on_its_host(tasks: str) -> None:
    emptied = {call: answer("a", "b") for call in ("cordon", "protect", "migrate")}
    came = asked(emptied, tasks=tasks, evacuates=True)
    assert (came["ready"], came["unfinished"], came["lost"], came["returning"]) == (["a", "b"], ["a", "b"], [], [])
    came = asked({**emptied, "parked": answer("a", b="Refused.")}, tasks=tasks, evacuates=True)
    assert failures(came) == {"b": f"Refused. Node b {STAYS}b"}


def test_fenced_nodes_are_emptied_nodes() -> None:
    answers = {"cordon": answer("a", "b"), "protect": answer("a", "b"), "migrate": answer("a", "b")}
    answers["migrate"]["nodes"][1]["outcome"] = "evacuated"
    assert asked(answers)["ready"] == ["a", "b"]


def test_a_resumed_run_tells_the_runs_whose_nodes_came_back_and_no_other() -> None:
    answers = {**whole("a", "b", "c"), "verify": answer("a", "b", "c")}
    runs = {"a": "ef56", "b": "ab12", "c": "ef56", "d": "ef56"}
    came = asked(answers, nodes=["a", "b", "c", "d"], runs=runs)
    assert others(came.wave) == {"ef56": ["a", "c"]}


def test_hosts_that_need_no_reboot_are_named_for_the_gates() -> None:
    works = [{**DONE, "not_rebooted": True}, {**DONE, "not_rebooted": False}]
    assert asked(whole("a", "b"), tasks="patch.yml", works=works)["not_rebooted"] == ["a"]
    assert asked(whole("a", "b"))["not_rebooted"] == []


# -- hooks -------------------------------------------------------------------------------------------------------------


def failing(hook: str, node: str) -> dict[str, Any]:
    """What came of the hooks of a wave after a task file for a node failed."""
    due = {"hook": hook, "rule": "ceph", "node": node, "tasks": "/ceph.yml", "action": "tasks", "state": "due"}
    (found,) = task_files({"nodes": [{"hooks": [due, {**due, "state": "done"}]}]}, hook)
    answers = {"so_far": {}, "begun": {"timeline": [{"what": "hook"}]}}
    return hooked(answers, hook=found, wrong="Set the flag: no route to host")


def test_a_node_whose_hook_fails_before_it_is_drained_goes_no_further() -> None:
    came = asked({"cordon": answer("a", "b"), "files": failing("before_node", "a")})
    assert came["lost"] == ["a", "b"]
    message = failures(came)["a"]
    for text in ("Node a: hook before_node, rule ceph (tasks /ceph.yml)", "no route to host.", "run the same command"):
        assert text in message


def test_a_node_whose_hook_fails_after_its_pods_have_gone_is_given_back() -> None:
    came = asked(
        {**{c: answer("a", "b") for c in ("cordon", "protect", "migrate")}, "files": failing("after_pod", "a")}
    )
    assert (came["drained"], came["lost"]) == (["b"], ["a"])


def test_a_node_whose_hook_fails_before_it_returns_stays_out() -> None:
    answers = {**whole("a", "b"), "files": failing("after_node", "a"), "uncordon": answer("b"), "guards": answer("b")}
    came = asked(answers)
    assert (came["held"], came["finished"], came["give_back"]) == (["a"], ["b"], ["b"])
    assert STAYS + "a" in failures(came)["a"]


def test_the_progress_of_hooks_is_kept_and_an_earlier_failure_too() -> None:
    first = failing("before_node", "a")
    both = hooked({"so_far": first, "begun": {"timeline": [{"what": "hook"}]}}, hook={"node": "b"})
    assert ([entry["name"] for entry in both["nodes"]], len(both["timeline"])) == (["a"], 2)


def test_a_node_comes_through_a_step_unless_it_or_a_hook_failed() -> None:
    answers = {"cordon": answer("a", "b", "c", d="Held."), "before_node": answer(b="Refused.")}
    found = asked({**answers, "protect": answer("a", c="No.")}, nodes=["a", "b", "c", "d"])
    assert (found["hooked"], found["protected"]) == (["a", "c"], ["a"])


def test_a_fenced_node_is_known_by_its_second_drain() -> None:
    answers = {call: answer("a", "b") for call in ("cordon", "protect")}
    answers |= {"migrate": answer("a", b="It does not respond."), "fenced": answer("b")}
    assert asked(answers)["drained"] == ["a", "b"]
