# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan for the nodes that are not blocked, as a mode."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.reasons import Finding
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import drafts
from ansible_collections.kubeops.node_maintenance.tests.unit.support.advised import nodes, wanted, web
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw, owned, pod, snapshot, workload

ALL = ("n1", "n2", "n3")


def single(*on: str) -> dict[str, list[Raw]]:
    """StatefulSets with one pod each, on these nodes: they cannot be moved without an interruption."""
    return {
        "stateful_sets": [workload("StatefulSet", f"db-{node}", 1) for node in on],
        "pods": [pod(f"db-{node}-0", node, owned("StatefulSet", f"db-{node}")) for node in on],
    }


def fitting(seen: Snapshot, *names: str, **more: t.Any) -> tuple[drafts.Plan, tuple[Finding, ...]]:
    asked = wanted(*names, **more)
    return drafts.fitting(seen, asked, drafts.judged(seen, asked, drafts.draft(seen, asked)))


@pytest.mark.parametrize("blocked", [(), ("n2",), ("n1", "n3"), ALL])
def test_blocked_nodes_join_no_wave_and_their_blockers_are_told(blocked: tuple[str, ...]) -> None:
    seen = snapshot(web(3), single(*blocked), nodes=nodes())
    plan, told = fitting(seen, *ALL)
    assert plan.draft.waves == tuple((name,) for name in ALL if name not in blocked)
    assert [(one.code, one.nodes) for one in told] == [("stateful_single", (name,)) for name in blocked]
    assert [one for one in plan.findings if one.severity == "blocker"] == []
    assert {one.pod.node for one in plan.draft.plans} == set(ALL) - set(blocked)


@pytest.mark.parametrize(
    ("names", "choices", "code"),
    [(ALL, {"disable_eviction": True}, "disable_eviction"), (("n1", "n2", "n9"), {}, "unknown_node")],
)
def test_what_is_not_about_nodes_of_the_plan_stops_all_of_them(
    names: tuple[str, ...], choices: dict[str, t.Any], code: str
) -> None:
    plan, told = fitting(snapshot(web(3), single("n2"), nodes=nodes()), *names, choices=choices)
    assert told == ()
    assert {one.code for one in plan.findings if one.severity == "blocker"} == {code, "stateful_single"}


def test_where_all_nodes_stay_out_none_of_them_is_left_to_take_pods() -> None:
    plan, told = fitting(snapshot(web(3), nodes=nodes()), *ALL, evacuates=True)
    assert [one.code for one in told] == ["last_schedulable_node"]
    assert plan.draft.waves == ()
