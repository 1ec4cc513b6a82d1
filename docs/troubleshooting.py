# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the list of all codes with meaning and remedy, from the tables of guides
and from remedies.yml.

``python docs/troubleshooting.py`` writes it; ``tests/unit/ansible/test_site.py`` fails if it is out
of date, and ``tests/unit/drain/test_codes.py`` if a code of the sources has no
meaning in these tables.
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml

DOCS = Path(__file__).resolve().parent
TABLES = (DOCS / "docsite/rst/guide_plan.rst", DOCS / "docsite/rst/guide_runbook.rst")
PAGE = DOCS / "docsite/rst/guide_troubleshooting.rst"
REMEDIES = DOCS / "remedies.yml"
BEGIN = ".. The codes: python docs/troubleshooting.py writes them.\n"
ROW = re.compile(
    r"^   \* - ``(\w+)``\n     - (.*)\n     - ((?:.*\n(?:       .*\n)*))", re.MULTILINE
)


def meanings() -> dict[str, list[tuple[str, str]]]:
    """By code: what it is (a route, a severity, a gate) and what it means;
    one entry for each table that has it.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for code, kind, text in ROW.findall(
        "".join(table.read_text(encoding="utf-8") for table in TABLES)
    ):
        found.setdefault(code, []).append((kind.replace("``", ""), " ".join(text.split())))
    return found


def remedies() -> dict[str, str]:
    """By code: what to do."""
    found: dict[str, str] = yaml.safe_load(REMEDIES.read_text(encoding="utf-8"))
    return found


def codes() -> str:
    """The list, in the order of the alphabet."""
    todo = remedies()
    lines: list[str] = []
    for code, told in sorted(meanings().items()):
        lines.append(f"``{code}``")
        lines += [f"   *{kind}*: {text}\n" for kind, text in told]
        lines.append(f"   **What to do:** {todo[code] or 'nothing.'}\n")
    return "\n".join(lines)


def main() -> None:
    """Write the list anew."""
    before, _mark, _old = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{codes()}", encoding="utf-8")


if __name__ == "__main__":
    main()
