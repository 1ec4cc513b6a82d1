# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is read beside pods."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import related
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        ("ReplicaSet", ["replica_sets", "deployments"]),
        ("StatefulSet", ["stateful_sets"]),
        ("DaemonSet", ["daemon_sets"]),
        ("Job", []),
        ("", []),
    ],
)
def test_only_controllers_that_own_a_pod_are_listed(kind: str, listed: list[str]) -> None:
    pod = Pod.of(objects.pod("x", owner=objects.owned(kind, "y") if kind else None))
    assert related.owners_of([pod, pod]) == listed
