# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.inputs import PREFIX, VARIABLES, read


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
    package = read.__module__.rpartition("._edge")[0]
    script = f"import sys, {read.__module__} as m; m.read({{'maintain_nodes': 'a'}}, 'maintain'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    loaded = done.stdout.split()
    assert read.__module__ in loaded
    assert [name for name in loaded if name.startswith((f"{package}._run", f"{package}._cluster"))] == []


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
    )
    assert values["errors"] == []
    assert values["nodes"] == ["a", "b", "c", "d"]
    assert (values["reboot"], values["force"]) == (True, False)
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
        ("job_wait", "0s", "more than 0 seconds"),
        ("job_wait", "soon", "10m"),
        ("timeout", "soon", '"90s"'),
        ("reboot", "maybe", "true or false"),
        ("on_failure", "panic", "auto, keep, release"),
        ("backend", "magic", "auto, eviction, koordinator"),
        ("fallback", "none", "eviction, fail"),
        ("fence_timeout", "soon", '"90s"'),
        ("fenced", {"worker-1": True}, "a list"),
        ("gates", ["ready", "open"], "ready, rebooted, daemonsets, pressure, stable"),
        ("run", "ab12/nonce", "the id of a run"),
        ("until", "late", "05:30"),
        ("until", "25:00", "05:30"),
        ("until", "2026-11-21T05:30:00", "05:30"),
        ("reason", ["a"], "a string"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(name: str, value: object, expected: str) -> None:
    (error,) = given(**{name: value})["errors"]
    assert error.startswith(f"maintain_{name}: {value!r} cannot be used.")
    assert expected in error


DEDICATED = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule", "state": "present"}
OLD = {"key": "old", "effect": "NoExecute", "state": "absent"}


@pytest.mark.parametrize(
    ("value", "taints"),
    [
        ("dedicated=gpu:NoSchedule,old:NoExecute-", [DEDICATED, OLD]),
        (" dedicated=gpu:NoSchedule\nold:NoExecute- ", [DEDICATED, OLD]),
        (["dedicated=gpu:NoSchedule", "old:NoExecute-"], [DEDICATED, OLD]),
        ([dict(DEDICATED), "old:NoExecute-"], [DEDICATED, OLD]),
        (dict(DEDICATED), [DEDICATED]),
        ({"key": "special", "value": True, "effect": "NoSchedule"},) * 2,
        ("old-", [{"key": "old", "state": "absent"}]),
        ("a:NoSchedule", [{"key": "a", "effect": "NoSchedule", "state": "present"}]),
        ([{"key": "a", "value": None, "effect": "NoSchedule", "state": ""}], [{"key": "a", "effect": "NoSchedule"}]),
    ],
)
def test_taints_are_read_in_kubectls_words_and_as_mappings(value: object, taints: object) -> None:
    values = given(taints=value)
    assert values["errors"] == []
    assert values["taints"] == (taints if isinstance(taints, list) else [taints])
    assert values["fingerprint"]["taints"] == values["taints"]


@pytest.mark.parametrize(
    ("value", "where", "expected"),
    [
        ("dedicated=gpu", "maintain_taints[0].effect", "NoSchedule, PreferNoSchedule, NoExecute"),
        ("a=b:Noschedule", "maintain_taints[0].effect", "one of"),
        ("a:NoSchedule,a:NoSchedule-", "maintain_taints[1]", "see maintain_taints[0]"),
        ([{"key": "a", "effect": "NoSchedule", "timeAdded": "now"}], "maintain_taints[0]", "effect and state"),
        ("maintenance.kubeops.io/in-progress-", "maintain_taints[0].key", "another key"),
        (7, "maintain_taints", "dedicated=gpu:NoSchedule"),
    ],
)
def test_a_wrong_taint_is_named_by_its_place(value: object, where: str, expected: str) -> None:
    (error,) = given(taints=value)["errors"]
    assert error.startswith(f"{where}: ")
    assert expected in error


def test_everything_that_is_wrong_is_said_at_once() -> None:
    assert len(given(serial=0, timeout="x", nodez="a", reboot="maybe")["errors"]) == 4


@pytest.mark.parametrize(
    ("name", "meant"),
    [("node", "maintain_nodes"), ("seriel", "maintain_serial"), ("allow_interuption", "maintain_allow_interruption")],
)
def test_a_misspelt_variable_is_an_error_with_what_was_meant(name: str, meant: str) -> None:
    (error,) = given(**{name: 1})["errors"]
    assert f"maintain_{name} is not a variable of this playbook. Did you mean" in error
    assert meant in error


def test_a_variable_that_resembles_none_gets_the_whole_list() -> None:
    (error,) = given(xyzzy=1)["errors"]
    assert all(f"maintain_{name}" in error for name in VARIABLES)


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


def test_the_usual_gates_follow_from_what_is_done(tmp_path: Path) -> None:
    tasks = tmp_path / "patch.yml"
    tasks.write_text("[]")
    assert given()["gates"] == ["ready", "daemonsets", "pressure"]
    assert given(tasks=str(tasks))["gates"] == ["ready", "daemonsets", "pressure", "stable"]
    assert given(reboot=True)["gates"] == ["ready", "rebooted", "daemonsets", "pressure", "stable"]
    assert given(reboot=True, gates="ready")["gates"] == ["ready"]


def test_the_fingerprint_holds_what_is_done_and_not_how_patiently() -> None:
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


def test_every_variable_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs/docsite/rst/guide_input.rst").read_text(encoding="utf-8")
    missing = [name for name in VARIABLES if f"``{PREFIX}{name}``" not in page]
    assert missing == []


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"confg": {}}, "maintain_descheduler.confg: {} cannot be used. Expected: config."),
        ({"flavor": "koord"}, "one of koordinator, ack, sigs"),
        ({"flavor": "ack"}, "{pause: true}"),
        ({"pause": "maybe"}, "true or false"),
        ({"config": {"kind": "DeschedulerPolicy"}}, "flavor: sigs"),
        ({"version": "9", "config": {}}, "1.7.0"),
        ("config: {apiVersion: descheduler/v1alpha2, kind: DeschedulerConfiguration, dryrun: 1}", "Write dryRun"),
    ],
)
def test_wrong_words_about_the_descheduler_are_told_before_the_first_write(value: object, said: str) -> None:
    (error,) = given(descheduler=value)["errors"]
    assert said in error


def test_words_about_the_descheduler_from_a_survey() -> None:
    text = "{flavor: ack, pause: 'yes', config: {apiVersion: descheduler/v1alpha2, kind: DeschedulerConfiguration}}"
    found = given(descheduler=text)
    assert not found["errors"]
    assert found["descheduler"]["pause"] is True
    assert found["descheduler"]["config"]["kind"] == "DeschedulerConfiguration"
    assert given()["descheduler"] == {}
