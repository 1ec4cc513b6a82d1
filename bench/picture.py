# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The comparison as a picture: bars of medians, a thin line from least to most. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from xml.sax.saxutils import escape

from bench import targets
from bench.trials import BARE, OURS, Summary, best_bare

WIDTH, LEFT, RIGHT = 760, 210, 90
BAR, GAP, HEAD = 18, 8, 34
OURS_COLOUR, BARE_COLOUR, OTHERS_COLOUR = "#1a7f5a", "#c9ced6", "#7a8699"


@dataclass(frozen=True, slots=True)
class Panel:
    """One group of bars: a number of a scene for each tool."""

    title: str
    scene: str
    number: str
    digits: int


PANELS = (
    Panel(
        "Servers that stop gracefully: failed requests (less is better)",
        targets.GRACEFUL,
        "failed",
        0,
    ),
    Panel("One node: pods per second (more is better)", targets.ONE_NODE, "pods_per_second", 1),
    Panel("Five nodes: pods per second (more is better)", targets.FIVE_NODES, "pods_per_second", 1),
    Panel(
        "Five nodes: requests per pod (less is better)", targets.FIVE_NODES, "requests_per_pod", 2
    ),
    Panel(
        "Single replicas that start in 5 s: seconds without a ready endpoint",
        targets.SURGE,
        "dark_seconds_worst",
        2,
    ),
    Panel("A roll of 20 nodes, one at a time: seconds", targets.ROLL, "seconds", 0),
    Panel("A roll of 20 nodes, one at a time: moves per pod", targets.ROLL, "moves_per_pod", 2),
)


def draw(summary: Summary, caption: str) -> str:
    """An SVG document; panels without measurements are left out."""
    parts: list[str] = []
    top = 16
    for panel in PANELS:
        best = best_bare(summary, panel.scene)
        rows = {
            tool: entry["numbers"][panel.number]
            for tool, entry in summary.get(panel.scene, {}).items()
            if panel.number in entry["numbers"] and (tool == best or not tool.startswith(BARE))
        }
        if rows:
            parts += _panel(panel, rows, top)
            top += HEAD + len(rows) * (BAR + GAP) + GAP
    parts.append(_text(16, top + 12, caption, "note"))
    style = (
        "text{font:12px system-ui,sans-serif;fill:#1f2733}.title{font-weight:600;font-size:13px}"
        ".note{fill:#5b6675;font-size:11px}"
    )
    height = top + 28
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}"'
    )
    back = f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
    return "\n".join([f'{head} role="img">', f"<style>{style}</style>", back, *parts, "</svg>", ""])


def _panel(panel: Panel, rows: dict[str, dict[str, float]], top: int) -> list[str]:
    most = max(row["max"] for row in rows.values()) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / most
    parts = [_text(16, top + 14, panel.title, "title")]
    y = top + HEAD - 8
    for tool, row in rows.items():
        middle = y + BAR / 2
        low, high = LEFT + row["min"] * scale, LEFT + row["max"] * scale
        parts += [
            _text(LEFT - 10, middle + 4, tool, "", "end"),
            (
                f'<rect x="{LEFT}" y="{y}" width="{max(row["median"] * scale, 1):.1f}" '
                f'height="{BAR}" rx="2" fill="{_colour(tool)}"/>'
            ),
            f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="#1f2733" stroke-width="1.5"/>',
            _text(high + 8, middle + 4, f"{row['median']:.{panel.digits}f}"),
        ]
        y += BAR + GAP
    return parts


def _colour(tool: str) -> str:
    if tool == OURS:
        return OURS_COLOUR
    return BARE_COLOUR if tool.startswith(BARE) else OTHERS_COLOUR


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{name}>{escape(text)}</text>'
