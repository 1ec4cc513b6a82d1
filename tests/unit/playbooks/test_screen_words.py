# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the screen says: the plan's table, waits, failures; and what it leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import (
    screen_waits,
    screen_words,
)

HOME = Path(__file__).parents[3]


def finding(severity: str, code: str) -> dict[str, str]:
    return {"severity": severity, "code": code, "object": "Pod a/b", "message": f"It is {code}.", "remedy": "Wait."}


PLAN: dict[str, Any] = {
    "waves": [["n1"], ["n2", "n3"]],
    "wave_seconds": [45, 125],
    "wave_ranges": [[14, 45], [125, 125]],
    "pods": [
        *({"node": "n1", "route": route} for route in ("skip", "evict", "surge", "evict")),
        {"node": "n2", "route": "refuse"},
        {"node": "n2", "route": "evict", "code": "finished"},
    ],
    "findings": [finding("warning", "odd"), finding("info", "fine"), finding("blocker", "bad")],
}


def test_the_waves_of_a_plan_are_numbered_from_where_the_run_stands() -> None:
    plan = {"waves": [["a", "b"], ["c"]], "wave_ranges": [[1, 1], [2, 2]], "pods": [], "findings": []}
    rows = [line.split()[:2] for line in screen_words.plan_lines(plan, 4)[1:]]
    assert rows == [["4", "a"], ["b", "none"], ["5", "c"]]


def test_the_plan_is_a_table_with_its_warnings() -> None:
    assert screen_words.plan_lines(PLAN) == [
        "wave  node  pods                        forecast",
        "   1  n1    1 surge, 2 evict, 1 stay  14 to 45 s",
        "   2  n2    1 blocked, 1 finished     2 min 05 s",
        "      n3    none",
        "warning: It is odd. Wait.",
    ]


def test_a_long_plan_is_cut() -> None:
    many = {**PLAN, "waves": [[f"n{number}" for number in range(30)]], "wave_ranges": [[1, 1]], "findings": []}
    lines = screen_words.plan_lines(many)
    assert len(lines) == 1 + screen_words.ROWS_OF_MANY + 1
    assert lines[-1] == "… and 25 more nodes"
    few = {**many, "waves": [many["waves"][0][: screen_words.ROWS]]}
    assert len(screen_words.plan_lines(few)) == 1 + screen_words.ROWS


def test_what_has_no_waves_is_no_plan() -> None:
    assert not screen_words.planned({"nodes": []})
    assert not screen_words.planned({**PLAN, "waves": []})
    assert screen_words.planned(PLAN)


def told(message: str, what: str = "progress", phase: str = "draining", node: str = "n1") -> dict[str, str]:
    return {"what": what, "message": message, "node": node, "phase": phase, "name": "", "namespace": "", "at": ""}


AT = "2026-11-21T10:30:48.123Z"


def told_in(held: screen_waits.Waits, events: dict[int, dict[str, str]], seconds: int) -> dict[int, list[str]]:
    """What is told in which second."""
    found = {}
    for second in range(seconds):
        if second in events:
            held.see(events[second], float(second))
        if lines := held.due(float(second), AT):
            found[second] = lines
    return found


def test_a_wait_is_told_again_and_again_until_it_is_over() -> None:
    events = {0: told("the same", "waiting"), 70: told("drained", "drained", "drained")}
    lines = told_in(screen_waits.Waits(), events, 200)
    assert list(lines) == [10, 24, 38, 52, 66]
    assert lines[66] == ["10:30:48  n1  the same (for 1 min 06 s)"]


def test_a_wait_that_changes_is_told_with_what_it_is_about_now() -> None:
    events = {second: told(f"reason {second}", "waiting") for second in range(25)}
    lines = told_in(screen_waits.Waits(), events, 25)
    assert [lines[second][0].partition(" (")[0] for second in lines] == [
        f"10:30:48  n1  reason {second}" for second in (10, 20)
    ]
    cleared = screen_waits.Waits()
    cleared.see(events[0], 0.0)
    cleared.clear()
    assert told_in(cleared, {}, 100) == {}


@pytest.mark.parametrize(("verb", "what"), [("evicted", "evicted"), ("replacing", "released")])
def test_pods_that_leave_end_no_wait_of_their_node(verb: str, what: str) -> None:
    lines = told_in(screen_waits.Waits(), {0: told("held"), 9: told(f"{verb} shop/web-0", what)}, 12)
    assert list(lines) == [10]


def test_a_wait_of_nothing_ends_with_the_next_event() -> None:
    events = {0: told("for others to react", "waiting", node=""), 5: told("cordoned", "cordoned", "cordoned")}
    assert told_in(screen_waits.Waits(), events, 60) == {}


def test_a_task_that_tells_nothing_is_named_and_only_then() -> None:
    held = screen_waits.Waits()
    held.begin("Drain the nodes", 0.0)
    lines = told_in(held, {12: told("held"), 60: told("drained", "drained", "drained")}, 72)
    silent = ["10:30:48  Drain the nodes (for 10 s)"]
    assert (lines[10], [second for second, line in lines.items() if "Drain" in line[0]]) == (silent, [10, 70])


def test_many_waits_are_counted() -> None:
    held = screen_waits.Waits()
    for number in range(screen_waits.SHOWN + 3):
        held.see(told("held", node=f"n{number}"), 0.0)
    lines = held.due(10.0, AT)
    assert (len(lines), lines[-1]) == (screen_waits.SHOWN + 1, "and 3 more waits")


@pytest.mark.parametrize(
    ("action", "path", "kind"),
    [
        ("ansible.builtin.set_fact", "/home/mira/patch.yml:3", screen_words.Kind.SILENT),
        ("ansible.legacy.include_tasks", f"{HOME}/playbooks/maintain.yml:3", screen_words.Kind.SILENT),
        ("ansible.builtin.command", "/home/mira/patch.yml:3", screen_words.Kind.THEIRS),
        ("kubeops.node_maintenance.node_drain", "/home/mira/patch.yml:3", screen_words.Kind.THEIRS),
        ("kubeops.node_maintenance.node_drain", f"{HOME}/roles/migrate/tasks/main.yml:2", screen_words.Kind.ENGINE),
        ("ansible.builtin.reboot", f"{HOME}/playbooks/tasks/work.yml:22", screen_words.Kind.OURS),
        ("ansible.builtin.command", f"{HOME}/playbooks/tasks/demo_work.yml:3", screen_words.Kind.THEIRS),
        ("ansible.builtin.command", f"{HOME}/my_patch.yml:3", screen_words.Kind.THEIRS),
        ("community.general.set_fact", "", screen_words.Kind.THEIRS),
    ],
)
def test_the_kind_of_a_task(action: str, path: str, kind: screen_words.Kind) -> None:
    assert screen_words.kind(action, path, str(HOME)) is kind


def test_a_failure_has_its_cause() -> None:
    result = {"msg": "first\nsecond", "rc": 3, "stderr": "1\n2\n3\n", "stdout": "", "module_stderr": "Traceback"}
    assert screen_words.failure_lines(result, action="x.y.z", path="/p.yml:7", most=2) == [
        "  first",
        "  second",
        "  module  x.y.z, return code 3",
        "  stderr  … 1 line before, see -v",
        "          2",
        "          3",
        "  stderr  Traceback",
        "  task    /p.yml:7",
    ]


def test_what_is_censored_stays_so() -> None:
    assert screen_words.message_lines({"censored": "hidden", "msg": "canary"}) == ["hidden"]


def test_the_last_lines_of_an_output_are_shown() -> None:
    assert screen_words.output_lines({"stdout": "a\nb\nc", "stderr": " ", "stdout_lines": []}, 1) == [
        "    … 2 lines before, see -v",
        "    c",
    ]
    assert screen_words.output_lines({"stdout": "a"}, 0) == ["    … 1 line before, see -v"]


def test_nodes_that_failed_are_named() -> None:
    nodes = [{"name": "n1", "failed": True, "outcome": "held", "message": "by b."}, {"name": "n2", "failed": False}]
    assert screen_words.troubles({"nodes": nodes}) == [("by b.", "n1  held: by b.")]
