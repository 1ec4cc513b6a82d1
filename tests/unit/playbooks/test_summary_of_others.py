# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What recover and plan say."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import commands
from ansible_collections.kubeops.node_maintenance.tests.unit.playbooks.summed import (
    BLOCKER,
    SUMMED,
    WARNING,
    entry,
    start,
    trace,
)


def recovery(answers: dict[str, Any], *, check: bool = False) -> dict[str, Any]:
    return dict(SUMMED({"recovered": {}, "released": {}, "again": {}, **answers}, "recovery", {"check": check}))


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
    released = {
        "nodes": [entry("a", message="A is back.")],
        "steps": [{"step": "verify", "actions": []}, {"step": "uncordon", "actions": ["Uncordon a."]}],
        "answers": {"returning": {"nodes": [entry("a", outcome="returning")]}},
    }
    found = recovery({"recovered": recovered, "released": released, "again": {"actions": ["Delete run ab12."]}})
    assert found["did"] == ["Uncordon b.", "Uncordon a.", "Delete run ab12.", "B is back.", "A is back."]
    assert found["wrong"] == []


@pytest.mark.parametrize("outcome", ["still_dead", "gone"])
def test_a_node_that_does_not_come_back_is_wrong_unless_it_is_not_there(outcome: str) -> None:
    shut = [entry("a", failed=True, message="Shut."), entry("b", failed=True, message="Dead.")]
    returning = {"nodes": [entry("a"), entry("b", failed=outcome == "still_dead", outcome=outcome)]}
    released = {"nodes": shut, "answers": {"returning": returning}}
    recovered = {"nodes": [], "msg": "One is left."}
    found = recovery({"recovered": recovered, "released": released, "again": {"msg": "One is left."}})
    assert found["wrong"] == ["One is left.", "Shut."]
    assert found["did"] == ["Shut.", "Dead."]


TRACES = {
    "traces": [
        trace("Node a", "ab12", by="jo", since="noon"),
        trace("Lease b", "ef56", alive=True),
        trace("Node c", ""),
        trace("Node d", "ab12"),
        trace("Node e", "0123", "e", step="parked"),
    ]
}


def test_what_earlier_runs_left_is_listed_with_what_to_do_next() -> None:
    found = SUMMED({"listed": TRACES}, "traces", {"run": "", "state": "listed"})
    assert found["lines"] == [
        "Node a: left, run ab12, started by jo, since noon, no live run",
        "Lease b: left, run ef56, its run is alive",
        "Node c: left, no live run",
        "Node d: left, run ab12, no live run",
        "Node e: left, run 0123, no live run",
        f"To return e to service: {commands.release(['e'])}",
        f"To undo what run ab12 left: {commands.undo('ab12')}",
        f"To undo what run 0123 left: {commands.undo('0123')}",
        f"To undo what all dead runs left: {commands.UNDO_ALL}",
    ]


def test_nothing_is_to_be_undone_of_what_is_at_work() -> None:
    alive = {"traces": [trace("Lease b", "ef56", alive=True)]}
    assert SUMMED({"listed": alive}, "traces", {"run": "", "state": "listed"})["lines"] == [
        "Lease b: left, run ef56, its run is alive"
    ]


@pytest.mark.parametrize("name", ["x; rm -rf ~", "$(id)", "{{ lookup('pipe', 'id') }}", "-v", "a b", "", "x" * 300])
def test_nothing_that_others_named_becomes_part_of_a_command(name: str) -> None:
    assert commands.undo(name).endswith(" -e recover_run=<name>")
    assert commands.resume(name) == "-e maintain_run=<name>"
    assert commands.release(["n1", name]).endswith(" -e maintain_nodes=n1,<name>")


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
        "estimate_range": [12, 59],
        "fence": "absent",
    }
    found = SUMMED({"plan": plan}, "plan")
    assert found["lines"] == [
        "Wave 1: a, b",
        "Wave 2: c",
        "warning: It goes.",
        "shop/db: It loses its volume.",
        "Draining the nodes takes about 40 s, 12 to 59 s possible.",
        "The API server has no fence. Install it: ansible-playbook kubeops.node_maintenance.fence",
    ]
    assert found["blockers"] == ["There is no room. Add a node."]
    assert found["says"] == start(plan)["in_the_way"]
    assert "takes about 0 s" not in str(SUMMED({"plan": {**plan, "estimate_seconds": 0}}, "plan"))
    assert "do not allow reading" in SUMMED({"plan": {"findings": []}}, "plan")["lines"][-1]


def test_a_plan_shows_the_first_of_many_warnings_and_notes() -> None:
    many = [
        {**WARNING, "severity": severity, "message": f"It is {n}."}
        for severity in ("warning", "info")
        for n in "0123456789"
    ]
    lines = SUMMED({"plan": {"findings": many}}, "plan")["lines"]
    counted = {word: sum(line.startswith(f"{word}: ") for line in lines) for word in ("warning", "info")}
    assert counted == {"warning": 8, "info": 8}
    assert [line for line in lines if line.startswith("…")] == [
        "… and 2 more warnings, all in the report",
        "… and 2 more notes, all in the report",
    ]


def test_a_plan_shows_what_a_wave_takes_and_which_budgets_hold_it_up() -> None:
    def held(wave: int, name: str, seconds: float, **more: Any) -> dict[str, Any]:
        shown = {"namespace": "shop", "name": name, "workload": f"Deployment shop/{name}", "pods": 4, "allowed": 1}
        return {**shown, "guard": False, "blocks": False, "wave": wave, "seconds": seconds, **more}

    plan = {
        "waves": [["a", "b"], ["c"]],
        "wave_seconds": [43, 2],
        "wave_ranges": [[43, 75], [2, 2]],
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
        "Wave 1: a, b (about 43 s, 43 s to 1 min 15 s possible: cordon and proof 2 s, stops 10.5 s, budgets 30 s)",
        "Wave 2: c (about 2 s: cordon and proof 2 s); wave 1 is full with 2 nodes",
        "Wave 2 waits for the guard of StatefulSet shop/db: 4 pods, 1 at a time, 40 s.",
        "Wave 1 waits for budget shop/web: 4 pods, 1 at a time, 30 s.",
        "Wave 1 waits for budget shop/api: 1 pod, none allowed at the moment.",
    ]
    many = {**plan, "budgets": [held(1, f"b{number}", 1.0) for number in range(12)]}
    lines = SUMMED({"plan": many}, "plan")["lines"]
    assert lines[-2] == "It waits for budgets 7 more times, for a shorter time each."
    assert len([line for line in lines if " waits for budget " in line]) == 5


@pytest.mark.parametrize(("waves", "shown"), [(1, 1), (12, 12), (13, 3), (500, 3)])
def test_of_many_waves_the_first_are_shown(waves: int, shown: int) -> None:
    named = [[f"n{number}", f"m{number}"] for number in range(waves)]
    plan: dict[str, Any] = {"waves": named, "findings": [], "budgets": []}
    plan["waits"] = [{"node": f"{letter}{number}", "reason": letter} for number in range(1, waves) for letter in "nm"]
    lines = SUMMED({"plan": plan}, "plan")["lines"]
    assert sum(line.startswith("Wave ") for line in lines) == shown
    assert [line for line in lines if "more wave" in line] == (
        [f"… and {waves - shown} more waves, all in the report"] if waves > shown else []
    )
    assert all("; n" in line and "1 more node " in line for line in lines[1:shown])
