# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is told of a task of the user that failed: enough to act on, and nothing secret."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.tests.unit.playbooks.summed import SUMMED

APT: dict[str, Any] = {
    "failed": True,
    "msg": "non-zero return code",
    "rc": 100,
    "stderr": "Reading package lists...\nE: Could not get lock /var/lib/dpkg/lock-frontend",
    "stdout": "Hit:1 a mirror",
}


def told(result: dict[str, Any], **known: Any) -> str:
    return str(SUMMED({"result": result}, "failed_task", {"host": "node-1", "name": "Patch it", **known})["text"])


def test_task_host_message_code_and_error_output_are_told() -> None:
    text = told(APT)
    for part in ("Patch it", "node-1", "non-zero return code", "100", "Could not get lock"):
        assert part in text
    assert "mirror" not in text, "what it printed besides, where it printed errors"


@pytest.mark.parametrize("key", ["module_stderr", "stdout", "module_stdout"])
def test_what_a_program_said_elsewhere_is_told_if_it_has_no_error_output(key: str) -> None:
    assert "no space left" in told({"failed": True, "msg": "Broken", key: "no space left", "stderr": ""})


def test_of_a_loop_the_first_item_that_failed_is_told() -> None:
    items = [{"failed": False, "msg": "fine"}, {**APT, "msg": "this one"}, {**APT, "msg": "that one"}]
    text = told({"failed": True, "msg": "One or more items failed", "results": items})
    assert "this one" in text
    assert "that one" not in text
    assert "Could not get lock" in text


@pytest.mark.parametrize("no_log", [True, "True", "yes", "{{ hide }}", 1])
def test_nothing_is_told_of_a_result_that_is_hidden(no_log: Any) -> None:
    text = told({**APT, "msg": "hunter2", "stderr": "hunter2"}, no_log=no_log)
    assert "hunter2" not in text
    assert "Patch it" in text
    assert "no_log" in text


@pytest.mark.parametrize(
    "result",
    [
        {**APT, "stderr": "hunter2", "_ansible_no_log": True},
        {"failed": True, "msg": "One", "results": [{**APT, "stderr": "hunter2", "_ansible_no_log": True}]},
    ],
    ids=["whole", "item"],
)
def test_nothing_is_told_of_what_the_result_itself_hides(result: dict[str, Any]) -> None:
    assert "hunter2" not in told(result)


@pytest.mark.parametrize("no_log", [None, False, "False", "false", "no", "", 0])
def test_a_task_without_no_log_hides_nothing(no_log: Any) -> None:
    assert "Could not get lock" in told(APT, no_log=no_log)


def test_the_end_of_a_long_output_is_told_on_one_line_without_escapes() -> None:
    lines = [f"line {number} of \x1b[31mmany\x1b[0m" for number in range(400)]
    text = told({**APT, "stderr": "\r\n".join([*lines, "the last"])})
    assert text.endswith("the last")
    assert len(text) < 800
    assert "\n" not in text
    assert text.isprintable()
    assert "line 0 " not in text


@pytest.mark.parametrize("result", [{}, {"msg": None}, {"failed": True, "results": []}, {"msg": ["a", 1], "rc": "x"}])
def test_a_result_that_says_nothing_is_no_error(result: dict[str, Any]) -> None:
    assert "node-1" in told(result, name="")
