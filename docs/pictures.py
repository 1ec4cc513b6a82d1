# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws the pictures of the concepts, narrow enough for a telephone,
in the colours of the reader's light or dark page.

``python docs/pictures.py`` draws them;
``tests/unit/ansible/test_site.py`` fails if a picture is out of date.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

IMAGES = Path(__file__).resolve().parent / "images"
WIDE = 460

STYLE = """<style>
.page { fill: #ffffff; }
text { font: 14px sans-serif; fill: #24292f; }
.strong { font-weight: bold; }
.small { font-size: 12px; fill: #57606a; }
.middle { text-anchor: middle; }
.box { fill: #e8f0fa; stroke: #3b6ea5; }
.ours { fill: #fdf3d7; stroke: #a5812b; }
.serves { fill: #2f8f5b; }
.starts { fill: #b7dfc8; stroke: #2f8f5b; stroke-dasharray: 4 3; }
.gap { fill: #c9423b; }
.line { stroke: #3b6ea5; stroke-width: 1.5; fill: none; }
.tip { fill: #3b6ea5; }
.on { fill: #ffffff; font-weight: bold; }
@media (prefers-color-scheme: dark) {
  .page { fill: #131416; }
  text { fill: #e6edf3; }
  .small { fill: #9aa5b1; }
  .box { fill: #17304d; stroke: #6ea0d8; }
  .ours { fill: #41351a; stroke: #d0a94a; }
  .serves { fill: #2f8f5b; }
  .starts { fill: #1c4630; stroke: #5cc78f; }
  .gap { fill: #d9534b; }
  .line { stroke: #6ea0d8; }
  .tip { fill: #6ea0d8; }
}
</style>"""
TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>'
)

STEPS = (
    ("plan", "reads the cluster: blockers, routes, waves", False),
    ("cordon", "lock, record, cordon and taint on the node", False),
    ("guard", "second pods of single replicas; budgets", False),
    ("drain", "pods leave as fast as their budgets allow", False),
    ("your tasks, reboot", "on the host, while its node is empty", True),
    ("gates", "DaemonSets back, Ready, no pressure, stable", False),
    ("uncordon", "restores what the record lists, and no more", False),
)
"""The steps of one wave: what each is called, what it does, whether it is yours."""

SERVING = (
    (
        "kubectl drain",
        (
            ("pod on the old node", 0, 38, "serves"),
            ("nothing serves", 38, 70, "gap"),
            ("new pod", 70, 100, "serves"),
        ),
    ),
    (
        "surge",
        (
            ("pod on the old node", 0, 70, "serves"),
            ("new pod starts", 15, 55, "starts"),
            ("new pod", 55, 100, "serves"),
        ),
    ),
)
"""A single replica that moves: who serves from when to when, in percent of the width."""

WAVES = (("zone a", 0, 30), ("zone b", 33, 63), ("zone a", 66, 96))
"""Nodes of one zone after the other: label, begin and end in percent of the width."""


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Words at a place."""
    return (
        f'<text x="{x:g}" y="{y:g}" class="{kind}">{words}</text>'
        if kind
        else f'<text x="{x:g}" y="{y:g}">{words}</text>'
    )


def box(x: float, y: float, wide: float, high: float, kind: str) -> str:
    """A rectangle with round corners."""
    return f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" rx="5" class="{kind}"/>'


def arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    """A line with a tip."""
    return (
        f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" class="line" '
        'marker-end="url(#tip)"/>'
    )


def drawn(title: str, high: float, lines: Sequence[str]) -> str:
    """The picture as a file."""
    size = f'viewBox="0 0 {WIDE} {high:g}" width="{WIDE}" height="{high:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    page = f'<rect width="{WIDE}" height="{high:g}" class="page"/>'
    return "\n".join([head, f"<title>{title}</title>", STYLE, TIP, page, *lines, "</svg>\n"])


def cycle() -> str:
    """The steps of one wave, one below the other, with the ways back."""
    high, step = 46, 64
    lines: list[str] = []
    for index, (name, does, yours) in enumerate(STEPS):
        y = 10 + index * step
        lines.append(box(10, y, 340, high, "ours" if yours else "box"))
        lines.append(text(22, y + 19, name, "strong"))
        lines.append(text(22, y + 37, does, "small"))
        if index:
            lines.append(arrow(180, y - step + high, 180, y))
    # A failure before the node is out undoes; one after it keeps the node out.
    undone = 10 + 3 * step + high / 2
    end = 10 + 6 * step + high / 2
    lines.append(
        f'<path d="M350 {undone:g} H400 V{end:g} H352" class="line" stroke-dasharray="5 4" '
        'marker-end="url(#tip)"/>'
    )
    lines.append(text(405, undone + 40, "fails:", "small"))
    lines.append(text(405, undone + 56, "node", "small"))
    lines.append(text(405, undone + 72, "returns", "small"))
    last = 10 + len(STEPS) * step
    lines.append(
        text(10, last + 8, "Fails in your tasks or a gate: the node stays out, recorded.", "small")
    )
    lines.append(
        text(10, last + 26, "Killed anywhere: the same command goes on; recover undoes.", "small")
    )
    return drawn(
        "The steps of a wave: plan, cordon, guard, drain, your tasks, gates, uncordon",
        last + 38,
        lines,
    )


def surge() -> str:
    """The only pod of a service moves, by kubectl drain and by a surge."""
    lines: list[str] = []
    y, left, wide = 24, 10, WIDE - 20
    for name, parts in SERVING:
        lines.append(text(left, y, name, "strong"))
        y += 12
        for label, begin, end, kind in parts:
            x, length = left + wide * begin / 100, wide * (end - begin) / 100
            lines.append(box(x, y, length, 26, kind))
            lines.append(
                text(x + length / 2, y + 18, label, "middle" if kind == "starts" else "middle on")
            )
            y += 30
        y += 26
    lines.append(arrow(left, y - 16, left + wide, y - 16))
    lines.append(text(left, y, "time", "small"))
    return drawn("A single replica: a gap with kubectl drain, none with a surge", y + 10, lines)


def waves() -> str:
    """Waves one after the other, each checked before the next."""
    lines = [text(10, 20, "Each wave ends before the next one starts:", "strong")]
    wide = WIDE - 20
    for number, (zone, begin, end) in enumerate(WAVES, start=1):
        x, length, y = 10 + wide * begin / 100, wide * (end - begin) / 100, 36
        lines.append(box(x, y, length, 62, "box"))
        lines.append(text(x + length / 2, y + 24, f"wave {number}", "middle strong"))
        lines.append(text(x + length / 2, y + 44, f"2 nodes, {zone}", "middle small"))
        if number < len(WAVES):
            lines.append(arrow(x + length, y + 31, x + wide * 0.33, y + 31))
    lines += [
        text(10, y, words, "small") for y, words in zip((124, 142, 160), _between(), strict=True)
    ]
    return drawn("Waves: nodes of one zone at a time, checked in between", 172, lines)


def _between() -> Iterator[str]:
    yield "Between two waves: the nodes of the last one are back and keep"
    yield "their gates for maintain_soak; the plan is made again; the window"
    yield "is still open; no more nodes have failed than maintain_max_failures."


PICTURES = {"cycle.svg": cycle, "surge.svg": surge, "waves.svg": waves}


def main() -> None:
    """Draw all of them."""
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
