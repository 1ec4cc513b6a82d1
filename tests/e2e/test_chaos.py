# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fixed part of what `make chaos` does: a fault at one request of a real run, and all is well in the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.faults import parse
from chaos.tracks import side_by_side
from support import sampling
from support.lab import Lab

SAMPLE = {
    "roll": ("orphaned/post-eviction-2", "409/patch-nodes-4"),
    "node": (
        "answer-lost/patch-nodes-1",
        "killed-before/post-eviction-3",
        "frozen-and-recovered/post-eviction-2",
        "503/patch-nodes-2",
        "killed-after/patch-configmaps-1",
    ),
    "scaled": (
        "killed-after/patch-pods-1",
        "429-retry-after/post-leases-2",
        "403-once/get-nodes-3",
    ),
}


@pytest.mark.parametrize("scene", sampling.first(0, list(SAMPLE)))
def test_faults(lab: Lab, tmp_path: Path, scene: str) -> None:
    points = [parse(f"{scene}/eviction/{point}") for point in SAMPLE[scene]]
    found = side_by_side([lab], iter(points), tmp_path, tracks=len(points), outage=8.0, told=print)
    wrong = [str(outcome) for outcome in found if outcome.verdict != "ok"]
    assert not wrong, "\n".join(wrong)
