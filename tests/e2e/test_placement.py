# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The placement forecast beside the real scheduler, in generated clusters: FORECASTS of them, by their seeds."""

from __future__ import annotations

import os

import pytest
from support import sampling
from support.forecasts import clusters, comparison, pressure
from support.forecasts.cases import report, told
from support.lab import Lab

COUNT = int(os.environ.get("FORECASTS") or (40 if sampling.ALL else 10))
AT_ONCE = 10
NUMBERS = bool(os.environ.get("LAB_NUMBERS"))
"""Whether the lab knows tolerations that compare numbers (conftest.py)."""


@pytest.mark.parametrize("first", range(1, COUNT + 1, AT_ONCE))
def test_what_fits_nowhere_stays_pending_for_the_reasons_that_are_forecast(lab: Lab, first: int) -> None:
    seeds = range(first, min(first + AT_ONCE, COUNT + 1))
    made = [clusters.cluster(seed) for seed in seeds]
    for seed, one in zip(seeds, made, strict=True):
        pressure.press(one, seed, numbers=NUMBERS)
    field = comparison.Field(lab.api, made)
    try:
        cases, wholes = field.play()
    finally:
        field.clear()
    print(report(cases, wholes))
    assert len(cases) == 6 * len(seeds)
    assert not [told(case) for case in cases if case.falsely_promised]
    assert not [whole.cluster for whole in wholes if whole.promised and not whole.kept]
    assert not [told(case) for case in cases if not case.agrees]
