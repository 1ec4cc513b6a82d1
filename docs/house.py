# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Draws the wings of the layers, floor by floor, from the imports of the code into the architecture guide.

``python docs/house.py`` draws; ``tests/unit/test_layers.py`` fails where the guide shows another drawing.
A wing is a folder inside a layer. It stands one floor above the highest wing that it imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UTILS = ROOT / "plugins/module_utils"
GUIDE = ROOT / "docs/docsite/rst/guide_architecture.rst"
LAYERS = ("_run", "_plan")
BEGIN, END = ".. The house: python docs/house.py draws it.\n", ".. End of the house.\n"

Wings = Mapping[str, frozenset[str]]
"""The wings of a layer, each with those that it imports."""


class ArrowBackError(ValueError):
    """Wings import each other in a circle; the text names them."""


def imported(source: str) -> Iterator[tuple[str, ...]]:
    """The path below ``module_utils`` of each thing that a source imports from there."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and ".module_utils." in f"{node.module}.":
            stem = f"{node.module}.".partition(".module_utils.")[2]
            yield from (tuple(f"{stem}{alias.name}".split(".")) for alias in node.names)


def wings(layer: str) -> Wings:
    """The wings as the code has them.

    Raises:
        ArrowBackError: a file of the layer stands in no wing.
    """
    found: dict[str, set[str]] = {}
    for path in sorted((UTILS / layer).rglob("*.py")):
        wing, *inside = path.relative_to(UTILS / layer).parts
        if not inside:
            raise ArrowBackError(f"{layer}/{wing} stands in no wing")
        to = {parts[1] for parts in imported(path.read_text(encoding="utf-8")) if parts[0] == layer}
        found.setdefault(wing, set()).update(to - {wing})
    return {wing: frozenset(to) for wing, to in found.items()}


def floors(house: Wings) -> dict[str, int]:
    """On which floor each wing stands, from 1.

    Raises:
        ArrowBackError: wings import each other in a circle.
    """
    found: dict[str, int] = {}
    while left := [wing for wing in house if wing not in found]:
        free = [wing for wing in left if house[wing] <= set(found)]
        if not free:
            raise ArrowBackError(f"these wings import each other in a circle: {', '.join(sorted(left))}")
        found |= {wing: 1 + max((found[to] for to in house[wing]), default=0) for wing in free}
    return found


def drawing() -> str:
    """All layers, the highest floor first, as a block of reStructuredText.

    Raises:
        ArrowBackError: wings import each other in a circle.
    """
    lines = [".. code-block:: text", ""]
    for layer in LAYERS:
        house = wings(layer)
        level = floors(house)
        lines += [f"   {layer}", "   floor  wing         imports"]
        for wing in sorted(house, key=lambda wing: (-level[wing], wing)):
            lines.append(f"   {level[wing]:>5}  {wing:<12} {' '.join(sorted(house[wing]))}".rstrip())
        lines.append("")
    return "\n".join(lines)


def drawn(guide: str) -> str:
    """The drawing in the guide's text."""
    return guide.partition(BEGIN)[2].partition(END)[0].strip()


def main() -> None:
    """Draw anew."""
    text = GUIDE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    GUIDE.write_text(f"{before}{BEGIN}\n{drawing()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
