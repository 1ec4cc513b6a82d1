# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No right without a proof that something fails without it, or without the reason why that was not tried."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCS = runpy.run_path(str(ROOT / "docs/ablation.py"))
PROOF = json.loads((ROOT / "docs/ablation.json").read_text(encoding="utf-8"))
GRANTED = {(step, words) for step, _group, words in DOCS["rights"]()}


def test_each_right_has_a_proof_or_a_reason() -> None:
    assert DOCS["unproven"]() == []


def test_nothing_is_proven_that_is_not_granted() -> None:
    assert [one for step, found in PROOF.items() for words in found if (one := (step, words)) not in GRANTED] == []


def test_no_reason_is_left_where_nothing_needs_one() -> None:
    needed = {(step, group) for step, group, words in DOCS["rights"]() if words not in PROOF.get(step, {})}
    assert set(DOCS["ELSEWHERE"]) == needed


def test_the_guide_shows_the_table() -> None:
    text = DOCS["GUIDE"].read_text(encoding="utf-8")
    assert DOCS["written"](text) == text, "python docs/ablation.py writes it anew"
