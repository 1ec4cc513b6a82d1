# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The limit on tests that pass only when run again (pytest-rerunfailures).

A rerun may be a deadline that met a busy machine, or a race in the code under test. The first is rare, so a run with
more reruns than one in a hundred tests fails, and each rerun is named.
"""

from __future__ import annotations

import pytest

TESTS_PER_RERUN = 100


class Reruns:
    """Counts the tests and the reruns of a whole run. With pytest-xdist: of all its workers, in the controller."""

    def __init__(self) -> None:
        self.tests: set[str] = set()
        self.again: list[str] = []

    @property
    def too_many(self) -> bool:
        return len(self.again) * TESTS_PER_RERUN > len(self.tests)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # "rerun" is what pytest-rerunfailures makes of a failed attempt; pytest declares only its own outcomes.
        outcome = str(report.outcome)
        if outcome == "rerun":
            self.again.append(f"{report.nodeid} ({report.when})")
        if outcome in ("failed", "rerun") or (outcome == "passed" and report.when == "call"):
            self.tests.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.too_many and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("reruns")
        for attempt in self.again:
            terminalreporter.line(f"run again after a failure: {attempt}")
        terminalreporter.line(
            f"{len(self.again)} reruns of {len(self.tests)} tests, at most one in {TESTS_PER_RERUN} is allowed"
            + (": TOO MANY, the run fails" if self.too_many else ""),
            red=self.too_many,
        )


def register(config: pytest.Config) -> None:
    """Counts the reruns of this run, where its reports come together."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reruns(), "limit-on-reruns")
