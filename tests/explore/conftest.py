# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How much was explored, in the last line."""

from __future__ import annotations

import gc
import os
from collections import Counter

import pytest

COUNTED = {
    "points": "points",
    "orders": "orders",
    "distinct": "of them distinct",
    "ends": "ends of orders brought back",
    "states": "states",
    "guards": "guards",
}
"""What tests record of themselves by `record_property`, and how it is told."""

collect_ignore = [] if os.environ.get("ZOO") else ["test_zoo.py"]


def pytest_collection_finish() -> None:
    """Worlds come and go by the thousand: to look again and again at all that stays would cost a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """All processes' tests together, also those that failed."""
    told: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "call":
                told.update({name: int(str(count)) for name, count in report.user_properties if name in COUNTED})
    parts = [f"{told[name]:,} {words}" for name, words in COUNTED.items() if told[name]]
    if parts:
        terminalreporter.write_line(f"explored: {', '.join(parts)}")
