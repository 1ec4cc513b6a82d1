# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page for contributors leads to files that are there, and has few words of our own."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BASES = (ROOT, ROOT / "plugins/module_utils")
WORDS = 25


def test_each_path_is_there() -> None:
    quoted = {text for text in re.findall(r"`([\w./-]+)`", PAGE) if "/" in text or text.startswith("_")}
    assert len(quoted) > 20
    role = {path for path in quoted if path.startswith("meta/") and [*ROOT.glob(f"roles/*/{path}")]}
    missing = [path for path in quoted - role if not any((base / path).exists() for base in BASES)]
    assert not missing


def test_the_glossary_is_short() -> None:
    rows = re.findall(r"^\| ([\w, ]+) \|", PAGE.partition("## Glossary")[2], re.MULTILINE)
    assert "word" in rows
    assert len(rows) - 1 <= WORDS
