# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the variables of a user come to: types, defaults, and what is said of wrong ones."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks.inputs import (
    PREFIX,
    UNPARSED,
    VARIABLES,
    read,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import stored_objects


def given(**variables: Any) -> dict[str, Any]:
    known = {"maintain_nodes": "worker-1"}
    return read({**known, **{f"maintain_{name}": value for name, value in variables.items()}}, "maintain")


def test_nothing_but_a_node_is_enough() -> None:
    values = given()
    assert values["errors"] == []
    assert values["nodes"] == ["worker-1"]
    assert values["on_failure"] == "auto"
    assert values["max_failures"] == 0
    assert values["serial"] is None
    assert values["timeout"] is None


def test_to_read_the_input_loads_no_engine() -> None:
    """Each playbook begins with it, in a process of its own: the engine and its client are half a second there."""
    package = read.__module__.rpartition(".playbooks.")[0]
    script = f"import sys, {read.__module__} as m; m.read({{'maintain_nodes': 'a'}}, 'maintain'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    loaded = done.stdout.split()
    assert read.__module__ in loaded
    assert [name for name in loaded if name.startswith(f"{package}.kube") or ".run_" in name] == []


def test_a_survey_sends_strings_and_gets_types() -> None:
    values = given(
        nodes="a b\nc,d",
        reboot="yes",
        serial="2",
        max_failures="1",
        timeout="10m",
        force="False",
        gates="ready, daemonsets",
        on_failure="keep",
        hold_autoscalers="no",
    )
    assert values["errors"] == []
    assert (values["exclude_from_load_balancers"], values["hold_autoscalers"]) == (True, False)
    assert values["nodes"] == ["a", "b", "c", "d"]
    assert (values["reboot"], values["force"]) == ("always", False)
    assert (values["serial"], values["max_failures"], values["timeout"]) == (2, 1, 600)
    assert values["gates"] == ["ready", "daemonsets"]
    assert values["on_failure"] == "keep"


@pytest.mark.parametrize("empty", ["", "  ", None, [], {}])
def test_empty_means_unset(empty: object) -> None:
    everything = {name: empty for name in VARIABLES if name != "nodes"}
    values = given(**everything)
    plain = given()
    assert values == plain


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("migrate_fenced", "maintain_fenced"),
        ("migrate_fencd", "maintain_fenced"),
        ("migrate_fence_task", "maintain_fence_tasks"),
        ("migrate_fallback", "maintain_fallback"),
        ("migrate_job_wait", "maintain_job_wait"),
        ("migrate_force", "maintain_force"),
    ],
)
def test_an_option_of_the_role_is_refused_because_it_would_overrule_the_playbook_or_be_lost(
    name: str, right: str
) -> None:
    (error,) = read({"maintain_nodes": "worker-1", name: None}, "maintain")["errors"]
    assert error == f"{name} is a variable of the role migrate. Use {right} with this playbook."


def test_a_notice_needs_the_condition_that_it_waits_after() -> None:
    (error,) = given(planned_notice="10m")["errors"]
    assert "maintain_node_conditions=true" in error
    values = given(planned_notice="10m", node_conditions="yes")
    assert (values["errors"], values["planned_notice"], values["node_conditions"]) == ([], 600, True)
    assert given(planned_notice="0")["errors"] == []
    wrong = given(nodes="reboot_required", planned_notice="10m", max_per_zone=3)["errors"]
    assert [error.partition(" ")[0] for error in wrong] == ["maintain_planned_notice", "maintain_max_per_zone=3"]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_per_zone": 3, "serial": 2}, "maintain_max_per_zone=3 contradicts maintain_serial=2: "),
        ({"max_per_zone": "2"}, "maintain_max_per_zone=2 contradicts one node, because maintain_serial is not set: "),
        ({"max_per_zone": 2, "serial": 2}, ""),
        ({"max_per_zone": 1}, ""),
    ],
)
def test_limits_that_contradict_each_other_are_an_error(limits: dict[str, object], said: str) -> None:
    errors = given(**limits)["errors"]
    assert len(errors) == bool(said)
    assert "".join(errors).startswith(said)


def test_a_variable_of_others_that_begins_alike_is_nobodys_business() -> None:
    assert read({"maintain_nodes": "worker-1", "migrate_database": None}, "maintain")["errors"] == []


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("serial", 0, "at least 1"),
        ("serial", "0", "at least 1"),
        ("serial", "-2", "at least 1"),
        ("serial", "two", "at least 1"),
        ("serial", True, "at least 1"),
        ("max_failures", -1, "at least 0"),
        ("max_per_zone", 0, "at least 1"),
        ("order", "random", "given, name, pods, priority, zone"),
        ("job_wait", "0s", "more than 0 seconds"),
        ("job_wait", "soon", "10m"),
        ("operator_budget_wait", "soon", "10m"),
        ("reactive_budgets", "!!", "a label selector such as"),
        ("reactive_budgets", {"app": "vault"}, "a list of label selectors"),
        ("reactive_budgets", True, "a list of label selectors"),
        ("timeout", "soon", '"90s"'),
        ("reboot", "maybe", "if_required, always, never, true, false"),
        ("reboot_checks", ["file", "uptime"], "file, needs_restarting, kernel"),
        ("on_failure", "panic", "auto, keep, release"),
        ("backend", "magic", "auto, eviction, koordinator"),
        ("fallback", "none", "eviction, fail"),
        ("fence_timeout", "soon", '"90s"'),
        ("fenced", {"worker-1": True}, "a list"),
        ("gates", ["ready", "open"], "ready, rebooted, daemonsets, pressure, schedulable, conditions, stable"),
        ("run", "ab12/nonce", "the id of a run"),
        ("until", "late", "05:30"),
        ("until", "25:00", "05:30"),
        ("until", 1335, 'in quotes: "22:15"; without'),
        ("until", 9999, "in quotes; without"),
        ("until", "2026-11-21T05:30:00", "05:30"),
        ("reason", ["a"], "a string"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(name: str, value: object, expected: str) -> None:
    (error,) = given(**{name: value})["errors"]
    assert error.startswith(f"maintain_{name}: {value!r} cannot be used.")
    assert expected in error


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, []),
        ("", []),
        ("app=vault", ["app=vault"]),
        ("app=vault,tier in (a, b); role=db\nrook", ["app=vault,tier in (a, b)", "role=db", "rook"]),
        (["app=vault,role", " kafka "], ["app=vault,role", "kafka"]),
    ],
)
def test_selectors_of_pods_with_operators_keep_their_commas(value: object, expected: list[str]) -> None:
    found = given(reactive_budgets=value)
    assert (found["errors"], found["reactive_budgets"]) == ([], expected)


def test_an_operator_is_waited_for_ten_minutes_unless_the_caller_says_otherwise() -> None:
    assert given()["operator_budget_wait"] == 600
    assert given(operator_budget_wait="45m")["operator_budget_wait"] == 2700
    assert given(operator_budget_wait="0")["operator_budget_wait"] == 0


def test_everything_that_is_wrong_is_said_at_once() -> None:
    assert len(given(serial=0, timeout="x", nodez="a", reboot="maybe")["errors"]) == 4


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("node", "maintain_nodes"),
        ("report", "maintain_report_dir"),
        ("seriel", "maintain_serial"),
        ("allow_interuption", "maintain_allow_interruption"),
    ],
)
def test_a_misspelt_variable_is_an_error_with_what_was_meant(name: str, meant: str) -> None:
    (error,) = given(**{name: 1})["errors"]
    assert f"maintain_{name} is not a variable of this playbook. Did you mean {meant}?" in error


def test_what_is_not_similar_is_not_suggested() -> None:
    (error,) = given(kubeconfig="x")["errors"]
    assert "Did you mean" not in error


def test_a_variable_that_resembles_none_gets_the_whole_list() -> None:
    (error,) = given(xyzzy=1)["errors"]
    assert all(f"maintain_{name}" in error for name in VARIABLES)


def test_words_that_belong_to_no_variable_are_an_error() -> None:
    (error,) = read({"maintain_nodes": "worker-1", UNPARSED: "worker-2"}, "maintain")["errors"]
    assert error.startswith('"worker-2" ')


def test_exactly_one_way_to_name_nodes() -> None:
    (neither,) = read({}, "maintain")["errors"]
    assert "needs nodes" in neither
    (both,) = given(node_selector="pool=blue")["errors"]
    assert "maintain_node_selector" in both


def test_a_task_file_is_looked_for_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "patch.yml").write_text("[]")
    assert given(tasks="patch.yml")["tasks"] == str(tmp_path / "patch.yml")
    assert given(tasks=str(tmp_path / "patch.yml"))["errors"] == []


def test_a_missing_task_file_is_an_error_that_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (error,) = given(tasks="patch.yml")["errors"]
    assert "file patch.yml does not exist" in error
    assert str(tmp_path / "patch.yml") in error


def test_the_task_files_of_hooks_are_found_from_the_current_directory_and_a_survey_gives_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rule = {"pods": "app=db", "tasks": "switch.yml"}
    (error,) = given(before_pod=[rule])["errors"]
    assert "maintain_before_pod[0].tasks: 'switch.yml' cannot be used" in error
    assert str(tmp_path / "switch.yml") in error
    (tmp_path / "switch.yml").write_text("[]")
    wanted = [{**rule, "tasks": str(tmp_path / "switch.yml")}]
    assert given(before_pod=[rule])["before_pod"] == given(before_pod=json.dumps([rule]))["before_pod"] == wanted
    assert given(before_pod=rule)["before_pod"] == wanted
    (error,) = given(after_node="nodes: x")["errors"]
    assert "maintain_after_node: 'the text' cannot be used. Expected: a list of rules" in error


def test_hooks_do_not_make_another_run() -> None:
    rule = {"pods": "app=db", "annotation": True}
    assert given(before_pod=[rule])["fingerprint"] == given()["fingerprint"]


CALL = {"nodes": "pool=blue", "http": {"url": "https://a.invalid"}}


@pytest.mark.parametrize(
    ("variables", "playbook", "work", "on_hosts"),
    [
        pytest.param({}, "maintain", False, False, id="nothing"),
        pytest.param({"reboot": "always"}, "maintain", True, True, id="a reboot"),
        pytest.param({"tasks": "a.yml"}, "maintain", True, True, id="tasks"),
        pytest.param({"tasks": "a.yml"}, "evacuate", False, False, id="tasks that are for later"),
        pytest.param({"before_pod": [{"pods": "app=db", "tasks": "a.yml"}]}, "evacuate", False, True, id="a task file"),
        pytest.param({"after_node": [CALL]}, "maintain", False, False, id="a call"),
        pytest.param({"fence_tasks": "a.yml"}, "maintain", False, True, id="tasks of a fence"),
    ],
)
def test_what_runs_on_hosts(
    variables: dict[str, Any],
    playbook: str,
    work: bool,
    on_hosts: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "a.yml").write_text("[]")
    monkeypatch.chdir(tmp_path)
    raw = {"maintain_nodes": "a", **{f"maintain_{name}": value for name, value in variables.items()}}
    found = read(raw, playbook)
    assert (found["errors"], found["has_work"], found["on_hosts"]) == ([], work, on_hosts)


def test_the_usual_gates_follow_from_what_is_done(tmp_path: Path) -> None:
    tasks = tmp_path / "patch.yml"
    tasks.write_text("[]")
    state = ["daemonsets", "pressure", "schedulable", "conditions"]
    assert given()["gates"] == ["ready", *state]
    assert given(tasks=str(tasks))["gates"] == ["ready", *state, "stable"]
    assert given(reboot=True)["gates"] == ["ready", "rebooted", *state, "stable"]
    assert given(reboot=True, gates="ready")["gates"] == ["ready"]


def test_the_fingerprint_holds_what_is_done_and_not_how_patiently() -> None:
    assert tuple(given()["fingerprint"]) == stored_objects.FINGERPRINTED
    patient = given(reason="because", timeout="1h", report_dir="/tmp", serial=3, on_failure="keep")
    assert patient["fingerprint"] == given()["fingerprint"]
    assert given(reboot=True)["fingerprint"] != given()["fingerprint"]
    assert given(nodes="worker-2")["fingerprint"] != given()["fingerprint"]
    evacuate = read({"maintain_nodes": "worker-1"}, "evacuate")
    assert evacuate["fingerprint"] != given()["fingerprint"]


def test_a_time_of_day_is_its_next_occurrence() -> None:
    soon = datetime.datetime.now() + datetime.timedelta(minutes=2)
    until = given(until=soon.strftime("%H:%M"))["until"]
    assert 0 < until - time.time() <= 120
    past = datetime.datetime.now() - datetime.timedelta(minutes=2)
    assert given(until=past.strftime("%H:%M"))["until"] > time.time() + 23 * 3600
    assert given(until="2026-11-21T05:30:00+01:00")["until"] == 1795235400.0


def test_an_extra_variable_without_its_prefix_is_told() -> None:
    raw = {"maintain_nodes": "worker-1", "maintain_reason": ""}
    found = read(raw, "maintain", ["force", "tasks", "nodes", "reason", "colour"])["errors"]
    assert found == [
        "force is not a variable of this playbook. Did you mean maintain_force?",
        "tasks is not a variable of this playbook. Did you mean maintain_tasks?",
    ]


def test_every_variable_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs/docsite/rst/guide_input.rst").read_text(encoding="utf-8")
    missing = [name for name in VARIABLES if f"``{PREFIX}{name}``" not in page]
    assert missing == []


@pytest.mark.parametrize(
    ("value", "reboot"),
    [
        (True, "always"),
        ("yes", "always"),
        ("always", "always"),
        ("if_required", "if_required"),
        (False, ""),
        ("false", ""),
        ("never", ""),
    ],
)
def test_a_reboot_is_a_word_or_a_truth(value: object, reboot: str) -> None:
    found = given(reboot=value)
    assert (found["errors"], found["reboot"]) == ([], reboot)
    assert ("rebooted" in found["gates"]) is bool(reboot)


@pytest.mark.parametrize(
    ("variables", "playbook", "asks"),
    [
        ({"reboot": "if_required"}, "maintain", True),
        ({"reboot": "if_required"}, "plan", True),
        ({"reboot": "if_required"}, "evacuate", False),
        ({"reboot": "if_required", "taints": "old-"}, "maintain", False),
        ({"reboot": "always"}, "maintain", False),
        ({}, "maintain", False),
        ({"nodes": "reboot_required"}, "evacuate", True),
    ],
)
def test_hosts_are_asked_first_where_the_nodes_depend_on_it(
    variables: dict[str, object], playbook: str, asks: bool
) -> None:
    raw = {f"maintain_{name}": value for name, value in {"nodes": "worker-1", **variables}.items()}
    found = read(raw, playbook)
    assert (found["errors"], found["asks_hosts"]) == ([], asks)


def test_where_tasks_run_a_host_is_asked_after_them(tmp_path: Path) -> None:
    (tmp_path / "patch.yml").write_text("[]")
    assert not given(reboot="if_required", tasks=str(tmp_path / "patch.yml"))["asks_hosts"]


def test_nodes_whose_hosts_have_to_be_rebooted_are_chosen_among_some_or_all() -> None:
    every = given(nodes="reboot_required")
    assert (every["errors"], every["nodes"], every["node_selector"]) == ([], [], "kubernetes.io/hostname")
    some = given(nodes="reboot_required", node_selector="pool=blue")
    assert (some["errors"], some["nodes"], some["node_selector"]) == ([], [], "pool=blue")
    assert len({str(found["fingerprint"]) for found in (every, some, given(nodes="worker-1"))}) == 3
    (error,) = given(nodes="reboot_required,worker-1")["errors"]
    assert "stands alone" in error
    (error,) = read({"maintain_nodes": "reboot_required"}, "release")["errors"]
    assert "for plan, maintain and evacuate" in error
