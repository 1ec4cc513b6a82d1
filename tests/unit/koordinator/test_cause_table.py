# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guide promises a closed list of causes; it is read from the code here and compared."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parents[3]
UTILS = HERE / "plugins/module_utils"
SAYING = (
    "koordinator/causes.py",
    "koordinator/object_limiter.py",
    "koordinator/job_status.py",
    "koordinator/reservations.py",
    "koordinator/targets.py",
    "koordinator/run_module.py",
)
GUIDE = (HERE / "docs/docsite/rst/koordinator_jobs.rst").read_text(encoding="utf-8")


def codes(tree: ast.AST) -> Iterator[str]:
    """The first argument of whatever makes a cause; both of them where it is a choice."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not call.args:
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in ("Reason", "_full"):
            first = call.args[0]
            for word in (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,):
                if isinstance(word, ast.Constant):
                    yield str(word.value)


def test_every_cause_is_documented_and_no_other() -> None:
    said = {code for file in SAYING for code in codes(ast.parse((UTILS / file).read_text(encoding="utf-8")))}
    table = GUIDE.partition("\nCauses\n")[2]
    rows = re.findall(r"^   \* - (``.*)$", table.partition("\nWhat Koordinator really does\n")[0], re.MULTILINE)
    assert {code for row in rows for code in re.findall(r"``(\w+)``", row)} == said
