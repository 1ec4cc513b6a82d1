# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the table of packages and of what each imports into the architecture guide, from the
imports of the code.

``python docs/packages.py`` writes; ``tests/unit/test_layers.py`` fails where the guide shows other
packages. The name of a file says what kind of code it has: ``run_*.py`` loops, ``arguments*.py``
what Ansible passes, all others rules.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UTILS = ROOT / "plugins/module_utils"
GUIDE = ROOT / "docs/docsite/rst/guide_architecture.rst"
KINDS = ("rules", "run", "arguments")
WHOLE = {"kube": "run", "ansible": "arguments", "playbooks": "arguments"}
"""Packages of which all files are of one kind, whatever their names."""
BEGIN, END = ".. The packages: python docs/packages.py writes them.\n", ".. End of the packages.\n"

Part = tuple[str, str]
"""A package and a kind."""


class CircleError(ValueError):
    """Parts import each other in a circle; the text names them."""


def part_of(path: str) -> Part:
    """The part of a file, given below ``module_utils``: drain/run_drain.py -> drain, run."""
    package, _, name = path.partition("/")
    if package in WHOLE:
        return package, WHOLE[package]
    if name.startswith("run_"):
        return package, "run"
    return package, "arguments" if name.startswith("arguments") else "rules"


def imported(source: str) -> Iterator[str]:
    """The file below ``module_utils`` of each module that a source imports from there."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and ".plugins.module_utils." in f"{node.module}.":
            stem = f"{node.module}.".partition(".plugins.module_utils.")[2].replace(".", "/")
            yield from (f"{stem}{alias.name}.py" for alias in node.names)


def parts() -> Mapping[Part, frozenset[Part]]:
    """Each part with those that it imports."""
    found: dict[Part, set[Part]] = {}
    for path in sorted(UTILS.rglob("*.py")):
        part = part_of(str(path.relative_to(UTILS)))
        to = {part_of(name) for name in imported(path.read_text(encoding="utf-8"))}
        found.setdefault(part, set()).update(to - {part})
    return {part: frozenset(to) for part, to in found.items()}


def levels(graph: Mapping[Part, frozenset[Part]]) -> dict[Part, int]:
    """How many parts there are one on the other below each, from 1.

    Raises:
        CircleError: parts import each other in a circle.
    """
    found: dict[Part, int] = {}
    while left := [part for part in graph if part not in found]:
        free = [part for part in left if graph[part] <= set(found)]
        if not free:
            named = ", ".join(" ".join(part) for part in sorted(left))
            raise CircleError(f"these import each other in a circle: {named}")
        found |= {part: 1 + max((found[to] for to in graph[part]), default=0) for part in free}
    return found


def table() -> str:
    """All parts, the highest level first, as a block of reStructuredText.

    Raises:
        CircleError: parts import each other in a circle.
    """
    graph = parts()
    level = levels(graph)
    lines = [".. code-block:: text", ""]
    for kind in reversed(KINDS):
        lines.append(f"   {kind}")
        for part in sorted(
            (part for part in graph if part[1] == kind), key=lambda part: (-level[part], part)
        ):
            to = [
                f"{package}" if other == kind else f"{package}/{other}"
                for package, other in sorted(graph[part])
            ]
            lines.append(f"   {level[part]:>5}  {part[0]:<12} {' '.join(to)}".rstrip())
        lines.append("")
    return "\n".join(lines)


def shown(guide: str) -> str:
    """The table in the guide's text."""
    return guide.partition(BEGIN)[2].partition(END)[0].strip()


def main() -> None:
    """Write it anew."""
    text = GUIDE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    GUIDE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
