# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a maintenance will take, told before it begins."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.estimate import estimate_seconds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight import preflight
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.objects import (
    budget,
    deployment,
    pod,
    snapshot,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.routed import WEB, planned, web


@pytest.mark.parametrize(
    ("found", "waves", "settle", "seconds"),
    [
        pytest.param(snapshot(), (("n1",),), 0.0, 5, id="nothing to move"),
        pytest.param(web(1), (("n1",),), 0.0, 5 + 10 + 30, id="a swap"),
        pytest.param(web(1), (("n1",),), 15.0, 5 + 10 + 15 + 30, id="a swap that settles"),
        pytest.param(web(3, here=3), (("n1",),), 0.0, 5 + 3 * 40, id="a guard lets go one by one"),
        pytest.param(web(3, here=3, budgets=[budget("b", 2)]), (("n1",),), 0.0, 5 + 2 * 40, id="a budget lets go two"),
        pytest.param(web(3), (("n1",), ("n2",)), 0.0, 2 * 5 + 40 + 2 * 40, id="wave after wave"),
    ],
)
def test_the_estimate(found: Snapshot, waves: preflight.Waves, settle: float, seconds: int) -> None:
    nodes = tuple(name for wave in waves for name in wave)
    assert estimate_seconds(found, planned(found, nodes), waves, settle=settle) == seconds


def test_the_estimate_reads_probes_and_grace() -> None:
    template = {"spec": {"containers": [{"name": "c", "readinessProbe": {"initialDelaySeconds": 20}}]}}
    top = deployment("web", 1, template=template, minReadySeconds=5)
    top["replica_sets"][0]["spec"]["template"] = template
    found = snapshot(top, pods=[pod("web-0", owner=WEB, grace=600)])
    assert estimate_seconds(found, planned(found), (("n1",),)) == 5 + 10 + 20 + 5 + 30
