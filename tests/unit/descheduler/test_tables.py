# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_tables_in_the_documentation_are_the_schemas() -> None:
    script = ROOT / ".ci" / "descheduler_tables.py"
    pages = runpy.run_path(str(script))["pages"]()
    old = [name for name, text in pages.items() if (ROOT / "docs" / "docsite" / "rst" / name).read_text() != text]
    assert old == [], f"run {script.relative_to(ROOT)}"
