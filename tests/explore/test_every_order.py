# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every order: runs and people act at once, and the invariants are asked after each step.

`ORDERS` orders are tried, by chance from `SEED` on; a counterexample is shrunk and printed as a file for `found/`,
whose files are replayed first.
"""

from __future__ import annotations

import json
import math
import os
import random
import typing as t
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.kubeops.node_maintenance.tests.explore import stories
from ansible_collections.kubeops.node_maintenance.tests.explore.orders import broken_by, saved, shrunk, tell
from ansible_collections.kubeops.node_maintenance.tests.explore.sample import SAMPLE, SEED
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Choices

FOUND = Path(__file__).parent / "found"
ORDERS = int(os.environ.get("ORDERS") or "100000") // SAMPLE
PARTS = 8


@pytest.mark.parametrize("file", sorted(FOUND.glob("*.json")), ids=lambda file: file.stem)
def test_what_was_found_before(file: Path) -> None:
    known = json.loads(file.read_text())
    story = next(story for story in stories.ALL if story.name == known["story"])
    story = replace(story, bystanders=known.get("bystanders", ""))
    assert broken_by(story, known["choices"]) == ""


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("story", stories.ALL, ids=lambda story: story.name.replace(" ", "-"))
def test_every_order(story: stories.Story, part: int, record_property: t.Any) -> None:
    count = math.ceil(ORDERS * story.share / PARTS)
    orders: set[tuple[int, ...]] = set()
    ends: set[str] = set()
    for number in range(count):
        choices = Choices(chance=random.Random(f"{SEED} {story.name} {part} {number}"))
        told = story.with_bystanders(part + number)
        try:
            tell(told, choices, ends)
        except AssertionError as error:
            picked = shrunk(told, choices.picked())
            why = broken_by(told, picked) or str(error)
            pytest.fail(f"{why}\nas tests/explore/found/NAME.json:\n{saved(told, picked, why)}", pytrace=False)
        orders.add(tuple(choices.picked()))
    record_property("orders", count)
    record_property("distinct", len(orders))
    record_property("ends", len(ends))
