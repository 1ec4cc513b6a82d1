# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same as test_chaos, with nodes that are emptied by PodMigrationJobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.faults import parse
from chaos.tracks import side_by_side
from support.koordinator import configured, quickened
from support.lab import Lab

SAMPLE = (
    "node/koordinator/killed-after/post-podmigrationjobs-2",
    "node/koordinator/answer-lost/post-podmigrationjobs-1",
)


@pytest.mark.whole
def test_faults_by_jobs(koord: Lab, tmp_path: Path) -> None:
    with configured(koord, quickened("v1.7.0", per_node=6, window=6.0)):
        points = iter([parse(point) for point in SAMPLE])
        found = side_by_side([koord], points, tmp_path, tracks=len(SAMPLE), outage=8.0, told=print)
    wrong = [str(outcome) for outcome in found if outcome.verdict != "ok"]
    assert not wrong, "\n".join(wrong)
