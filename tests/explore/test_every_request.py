# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every request of a maintenance from its beginning to its end, and at each of them every fault.

After the fault the same command runs again where the first run did not come through; then all has to be as it was,
no service was below its floor, and no pod was evicted twice. `POINT='eviction 17 lost'` tries one alone.
"""

from __future__ import annotations

import os
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.tests.explore.judge import Violation
from ansible_collections.kubeops.node_maintenance.tests.explore.points import (
    LONG,
    SCENES,
    Point,
    explore,
    points,
    replaced,
    requests_of,
)
from ansible_collections.kubeops.node_maintenance.tests.explore.sample import sampled
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What


def chunks(scene: str, parts: int = 16) -> t.Iterator[t.Any]:
    for part in range(parts):
        yield pytest.param(scene, part, parts, id=f"{scene}-{part}")


@pytest.mark.parametrize(("scene", "part", "parts"), [case for name in SCENES for case in chunks(name)])
def test_every_request_and_every_fault(scene: str, part: int, parts: int, record_property: t.Any) -> None:
    mine = sampled(points(SCENES[scene])[part::parts])
    if only := os.environ.get("POINT"):
        mine = [point for point in points(SCENES[scene])[part::parts] if str(point) == only]
    wrong = []
    for point in mine:
        try:
            explore(point)
        except (Violation, AssertionError) as error:
            wrong.append(f"POINT='{point}': {error}")
    record_property("points", len(mine))
    assert not wrong, f"{len(wrong)} of {len(mine)} points:\n" + "\n".join(wrong[:20])


@pytest.mark.parametrize("what", ["frozen", "frozen sent"])
@pytest.mark.parametrize("scene", SCENES)
def test_a_process_that_stood_still_does_nothing_more(scene: str, what: What, record_property: t.Any) -> None:
    requests = sampled(range(requests_of(SCENES[scene])))
    wrong = []
    for point in [Point(scene, ordinal, Fault(what, LONG)) for ordinal in requests]:
        try:
            replaced(point)
        except (Violation, AssertionError) as error:
            wrong.append(f"{point}: {error}")
    record_property("points", len(requests))
    assert not wrong, f"{len(wrong)} of {len(requests)} points:\n" + "\n".join(wrong[:20])
