# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.objects import Node
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight.waves import waves
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.objects import node

ZONE = "topology.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("zones", "options", "expected"),
    [
        pytest.param("", {}, (), id="none"),
        pytest.param("abc", {}, (("n0",), ("n1",), ("n2",)), id="one at a time"),
        pytest.param("abc", {"max_parallel": 2}, (("n0", "n1"), ("n2",)), id="two at a time"),
        pytest.param("abc", {"max_parallel": 5}, (("n0", "n1", "n2"),), id="all at once"),
        pytest.param(
            "aabb", {"max_parallel": 2, "max_per_zone": 1}, (("n0", "n2"), ("n1", "n3")), id="one of each zone"
        ),
        pytest.param(
            "aaab", {"max_parallel": 3, "max_per_zone": 2}, (("n0", "n1", "n3"), ("n2",)), id="two of each zone"
        ),
        pytest.param("..", {"max_parallel": 2, "max_per_zone": 1}, (("n0",), ("n1",)), id="no zone is one zone"),
        pytest.param(
            "aa",
            {"max_parallel": 2, "max_per_zone": 1, "zone_key": "kubernetes.io/hostname"},
            (("n0", "n1"),),
            id="key",
        ),
    ],
)
def test_waves(zones: str, options: dict[str, t.Any], expected: tuple[tuple[str, ...], ...]) -> None:
    nodes = [Node.of(node(f"n{index}", labels={} if zone == "." else {ZONE: zone})) for index, zone in enumerate(zones)]
    assert waves(nodes, **options) == expected
