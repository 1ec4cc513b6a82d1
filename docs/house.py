# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Draws the wings of the layers, floor by floor, from the imports of the code: as text in the architecture guide,
and as a picture.

``python docs/house.py`` draws; ``tests/unit/test_layers.py`` fails where guide or picture show another house.
A wing is a folder inside a layer. It stands one floor above the highest wing that it imports.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UTILS = ROOT / "plugins/module_utils"
GUIDE = ROOT / "docs/docsite/rst/guide_architecture.rst"
PICTURE = ROOT / "docs/images/house.svg"
LAYERS = ("_run", "_plan")
BEGIN, END = ".. The house: python docs/house.py draws it.\n", ".. End of the house.\n"

WIDE, HIGH, ASIDE, BETWEEN, HEAD = 104, 34, 26, 62, 46
"""Of the picture, in pixels: a wing, what is left beside it and between two floors, and a layer's heading."""
NEAR, FAR = "#3b6ea5", "#b8c7d9"

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


def picture() -> str:
    """All layers beside each other as an SVG; an arrow that passes a floor is pale.

    Raises:
        ArrowBackError: wings import each other in a circle.
    """
    houses = [(layer, wings(layer)) for layer in LAYERS]
    levels = [floors(house) for _layer, house in houses]
    rows = [Counter(level.values()) for level in levels]
    widths = [max(row.values()) * (WIDE + ASIDE) + ASIDE for row in rows]
    top = max(max(row) for row in rows)
    height = HEAD + top * HIGH + (top - 1) * BETWEEN + ASIDE
    lines: list[str] = []
    left = 0
    for (layer, house), level, row, width in zip(houses, levels, rows, widths, strict=True):
        places: dict[str, tuple[int, int]] = {}
        for floor, count in row.items():
            first = left + (width - count * (WIDE + ASIDE) + ASIDE) // 2
            for index, wing in enumerate(sorted(wing for wing in house if level[wing] == floor)):
                places[wing] = (first + index * (WIDE + ASIDE), HEAD + (top - floor) * (HIGH + BETWEEN))
        arrows = [(wing, to) for wing in sorted(house) for to in sorted(house[wing])]
        for wing, to in sorted(arrows, key=lambda arrow: level[arrow[1]] - level[arrow[0]]):
            (x, y), (to_x, to_y) = places[wing], places[to]
            ends = f'x1="{x + WIDE // 2}" y1="{y + HIGH}" x2="{to_x + WIDE // 2}" y2="{to_y}"'
            colour = FAR if level[wing] - level[to] > 1 else NEAR
            lines.append(f'<line {ends} stroke="{colour}" marker-end="url(#tip)"/>')
        for wing, (x, y) in sorted(places.items()):
            lines.append(
                f'<rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="5" fill="#e8f0fa" stroke="{NEAR}"/>'
            )
            lines.append(f'<text x="{x + WIDE // 2}" y="{y + HIGH // 2 + 5}">{wing}</text>')
        lines.append(f'<text x="{left + width // 2}" y="{HEAD // 2}" font-weight="bold">{layer}</text>')
        left += width
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left} {height}" width="{left}" height="{height}">',
            f'<defs>{tip}<path d="M0 0 8 4 0 8z" fill="{NEAR}"/></marker></defs>',
            f'<rect width="{left}" height="{height}" fill="white"/>',
            '<g font-family="sans-serif" font-size="14" text-anchor="middle">',
            *lines,
            "</g>",
            "</svg>\n",
        ]
    )


def main() -> None:
    """Draw anew."""
    PICTURE.write_text(picture(), encoding="utf-8")
    text = GUIDE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    GUIDE.write_text(f"{before}{BEGIN}\n{drawing()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
