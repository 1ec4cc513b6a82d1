# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The limit on reruns of end-to-end tests, in runs of pytest that have tests which fail at first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
from support import reruns

def pytest_configure(config):
    reruns.register(config)
"""
FLAKY = """
import pathlib, pytest

@pytest.mark.parametrize("number", range({tests}))
def test_some(number, tmp_path_factory):
    again = pathlib.Path({folder!r}, str(number))
    if number < {flaky} and not again.exists():
        again.touch()
        assert False
    if {flaky} <= number < {flaky} + {skipped}:
        pytest.skip()

def test_wrong():
    assert {right}
"""


def ended(folder: Path, *options: str, tests: int, flaky: int, skipped: int = 0, right: bool = True) -> tuple[int, str]:
    """Exit code and output of a run with `tests` tests and one more, of which some fail once and some are skipped."""
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    code = FLAKY.format(tests=tests - 1, flaky=flaky, skipped=skipped, right=right, folder=str(folder))
    (folder / "test_flaky.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--reruns", "1", *options, "."]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout


@pytest.mark.parametrize(
    ("options", "tests", "flaky", "code"),
    [
        ((), 100, 0, 0),
        ((), 100, 1, 0),
        ((), 99, 1, 1),
        (("--numprocesses=2",), 200, 2, 0),
        (("--numprocesses=2",), 199, 2, 1),
    ],
)
def test_more_reruns_than_one_in_a_hundred_tests_fail_the_run(
    tmp_path: Path, options: tuple[str, ...], tests: int, flaky: int, code: int
) -> None:
    was, output = ended(tmp_path, *options, tests=tests, flaky=flaky)
    assert was == code, output
    assert f"{flaky} reruns of {tests} tests" in output
    assert ("TOO MANY" in output) == bool(code)


def test_each_rerun_is_named_with_its_phase(tmp_path: Path) -> None:
    output = ended(tmp_path, "--numprocesses=2", tests=5, flaky=2)[1]
    named = sorted(line for line in output.splitlines() if line.startswith("run again after a failure: "))
    assert named == [f"run again after a failure: test_flaky.py::test_some[{number}] (call)" for number in (0, 1)]


def test_skipped_tests_do_not_allow_for_reruns(tmp_path: Path) -> None:
    code, output = ended(tmp_path, tests=100, flaky=1, skipped=1)
    assert (code, "1 reruns of 99 tests" in output) == (1, True), output


def test_a_failure_stays_one_however_few_reruns_there_are(tmp_path: Path) -> None:
    code, output = ended(tmp_path, tests=100, flaky=0, right=False)
    assert code == 1
    assert "run again after a failure: test_flaky.py::test_wrong (call)" in output
