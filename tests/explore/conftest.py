# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How much was explored, in the last line."""

from __future__ import annotations

from collections import Counter

import pytest

COUNTED = ("points", "orders", "states", "guards")
"""What tests record of themselves by `record_property`, in the order in which it is told."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """All processes' tests together, also those that failed."""
    told: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "call":
                told.update({name: int(str(count)) for name, count in report.user_properties if name in COUNTED})
    parts = [f"{told[name]:,} {name}" for name in COUNTED if told[name]]
    if parts:
        terminalreporter.write_line(f"explored: {', '.join(parts)}")
