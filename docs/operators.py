# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the tables of operators in the guide to one's cluster: the planner's presets,
and what was tried with some.

``python docs/operators.py`` writes, where the collection can be imported;
``tests/unit/cluster/test_operators.py`` fails if the guide is out of date. What was tried is in
``operators.json`` beside this file, which ``WHOLE=1 KUBEOPS_OPERATORS=docs/operators.json pytest
tests/e2e/test_operators.py`` and ``test_operators_for_real.py`` write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import operators

GUIDE = Path(__file__).resolve().parent / "docsite/rst/guide_cluster.rst"
BEGIN, END = (
    ".. The operators: python docs/operators.py writes them.\n",
    ".. End of the operators.\n",
)
HEAD = ("project", "its budget", "its operator", "source")


TRIED = Path(__file__).resolve().parent / "operators.json"
TRIED_BEGIN, TRIED_END = (
    ".. What was tried: python docs/operators.py writes it.\n",
    ".. End of what was tried.\n",
)
TRIED_HEAD = ("operator", "``kubectl drain``", "``maintain``", "emulated after")


def listed(widths: str, rows: Iterable[Sequence[str]]) -> str:
    """A list-table; the first row is its head."""
    lines = ["", ".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in rows:
        lines += [f"   {'* -' if number == 0 else '  -'} {cell}" for number, cell in enumerate(row)]
    return "\n".join([*lines, "", ""])


def table() -> str:
    """The presets, each with a row."""
    rows = [
        HEAD,
        *((p.project, p.budget, f"{p.acts}.", p.source) for p in operators.PRESETS.values()),
    ]
    return listed("18 30 30 22", rows)


def told(found: dict[str, Any]) -> str:
    """One tool's outcome on one operator."""
    dark = (
        f"dark for {found['dark_seconds']:.1f} s" if found["dark_seconds"] >= 0.1 else "never dark"
    )
    end = "emptied" if found["rc"] == 0 else "gave up"
    return f"{end} after {found['seconds']:.0f} s, {dark}"


def tried() -> str:
    """What became of a node with each operator on it."""
    known = json.loads(TRIED.read_text(encoding="utf-8"))
    rows = [
        (name, told(row["kubectl drain"]), told(row["maintain"]), row["source"])
        for name, row in known.items()
    ]
    return listed("20 22 22 36", [TRIED_HEAD, *rows])


def written(guide: str) -> str:
    """The guide with the tables as they should be."""
    for begin, end, made in ((BEGIN, END, table()), (TRIED_BEGIN, TRIED_END, tried())):
        before, rest = guide.split(begin)
        guide = before + begin + made + end + rest.split(end)[1]
    return guide


if __name__ == "__main__":
    GUIDE.write_text(written(GUIDE.read_text(encoding="utf-8")), encoding="utf-8")
