# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What people have today, on this very lab: the reason why the collection exists."""

from __future__ import annotations

import pytest
from support.arena import Arena
from support.lab import Lab
from support.watching import Watch


@pytest.mark.whole
def test_kubectl_drain_leaves_a_single_replica_dark_for_its_start_up_time(
    lab: Lab, arena: Arena, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here, start="5s")
    with watching() as seen:
        drained = lab.run_kubectl("drain", here, "--timeout=60s")
        assert drained.returncode == 0, drained.stderr
        arena.settle()
    # Five seconds of start-up; what a busy machine adds to them is no question here.
    assert 4.5 < seen.dark_seconds(web) < 10
    assert [v.rule for v in seen.violations(left=True)] == ["I1"]
    assert len(seen.new_pods(web)) == 1
    assert len(seen.evictions()) == 1


@pytest.mark.whole
def test_kubectl_drain_waits_for_ever_for_a_single_replica_with_a_budget(
    lab: Lab, arena: Arena, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here, budget={"minAvailable": 1})
    with watching() as seen:
        drained = lab.run_kubectl("drain", here, "--timeout=6s")
        assert drained.returncode != 0
    assert seen.new_pods(web) == []
    assert seen.evictions() == []
    assert len(seen.evictions(429)) >= 1
