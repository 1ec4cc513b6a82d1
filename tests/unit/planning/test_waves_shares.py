# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes that must not be out together, whatever max_parallel says."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import drafts, preflight
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    node,
    owned,
    pod,
    snapshot,
    workload,
)

NAMES = ("n1", "n2", "n3")


def drafted(found: Snapshot) -> drafts.Draft:
    return drafts.draft(found, preflight.DraftOptions(NAMES, DrainPolicy(allow_interruption=True), max_parallel=3))


@pytest.mark.parametrize("role", ["control-plane", "master", "etcd"])
def test_nodes_of_the_control_plane_leave_one_at_a_time(role: str) -> None:
    label = {f"node-role.kubernetes.io/{role}": ""}
    found = snapshot(nodes=[node("n1", labels=label), node("n2"), node("n3", labels=label)])
    plan = drafted(found)
    assert plan.waves == (("n1", "n2"), ("n3",))
    assert [wait.reason for wait in plan.waits] == ["wave 1 has n1 of the control plane"]


def quorum(*, local: bool, budgets: list[Raw]) -> Snapshot:
    """Three members on three nodes, each with a volume."""
    pods, claims, volumes = [], [], []
    for index, name in enumerate(NAMES):
        mounted = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{index}"}}]
        pods.append(pod(f"db-{index}", name, owned("StatefulSet", "db"), labels={"app": "db"}, volumes=mounted))
        place = {"namespace": "shop", "name": f"data-{index}"}
        claims.append({"metadata": place, "spec": {"volumeName": f"pv-{index}", "accessModes": ["ReadWriteOnce"]}})
        kind: Raw = {"local": {"path": "/data"}} if local else {"csi": {"driver": "d", "volumeHandle": str(index)}}
        volumes.append({"metadata": {"name": f"pv-{index}"}, "spec": kind})
    nodes = [node(name) for name in (*NAMES, "n4")]
    sets = {"stateful_sets": [workload("StatefulSet", "db", 3)]}
    return snapshot(sets, nodes=nodes, pods=pods, claims=claims, volumes=volumes, budgets=budgets)


COVERED = {"selector": {"matchLabels": {"app": "db"}}}


@pytest.mark.parametrize(
    ("found", "waves"),
    [
        pytest.param(quorum(local=False, budgets=[]), (NAMES,), id="they move one after the other"),
        pytest.param(quorum(local=True, budgets=[]), (("n1",), ("n2",), ("n3",)), id="down until their node is back"),
        pytest.param(
            quorum(local=True, budgets=[budget("b", 2, healthy=3, desired=1, expected=3, **COVERED)]),
            (("n1", "n2"), ("n3",)),
            id="as many as their budget allows",
        ),
    ],
)
def test_members_that_stay_down_leave_as_their_budget_allows(found: Snapshot, waves: tuple[tuple[str, ...]]) -> None:
    assert drafted(found).waves == waves
