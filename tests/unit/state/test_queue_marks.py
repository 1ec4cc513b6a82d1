# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The taint on nodes that wait for their wave: which nodes wait, and that nothing else of a node changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import queue_marks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects

FOREIGN: Raw = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
RECORD = Record("r1", "1", "tina", "", "2026-01-01T00:00:00Z", "cordoned", "", "", {})


def mark(run: str = "r1") -> Raw:
    return dict(queue_marks.taint(run))


def node(*taints: Raw, notes: dict[str, str] | None = None) -> Node:
    raw = objects.node("n1", taints=list(taints))
    raw["metadata"]["annotations"] = notes or {}
    return Node.of(raw)


@pytest.mark.parametrize(
    ("waves", "finished", "expected"),
    [
        ([], (), ()),
        ([["a", "b"]], (), ()),
        ([["a"], ["b", "c"], ["d"]], (), ("b", "c", "d")),
        ([["a"], ["b", "c"], ["d"]], ("a",), ("d",)),
        ([["a"], ["b", "c"], ["d"]], ("b", "d"), ("c",)),
        ([["a"], ["b"]], ("a", "b"), ()),
    ],
)
def test_all_nodes_wait_but_those_of_the_wave_that_is_next(
    waves: list[list[str]], finished: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert queue_marks.nodes_of(waves, finished) == expected


KEYS = st.sampled_from(["a", "b", names.TAINT_KEY, "node.kubernetes.io/unreachable"])
TAINTS = st.lists(st.fixed_dictionaries({"key": KEYS, "value": st.sampled_from(["", "r1"])}), max_size=4)


@given(TAINTS, TAINTS)
def test_what_is_set_is_removed_wherever_it_stands_and_the_others_keep_order_and_content(
    before: list[Raw], after: list[Raw]
) -> None:
    made = queue_marks.set_on(node(*before), "r1")
    assert made
    assert made.body
    assert made.body["spec"]["taints"] == [*before, mark("r1")]
    assert made.resource_version
    back = queue_marks.removed_from(node(*before, mark("r1"), *after), "r1")
    assert back
    assert back.body == {"spec": {"taints": [*before, *after] or None}}
    assert back.resource_version
    assert queue_marks.removed_from(node(*before, *after), "r1") is None


def test_a_node_is_marked_for_one_run_and_not_while_it_is_out() -> None:
    other = node(FOREIGN, mark("r2"))
    assert queue_marks.set_on(other, "r1") is None
    assert queue_marks.removed_from(other, "r1") is None
    assert queue_marks.runs_of(other) == {"r2"}
    assert queue_marks.runs_of(node(FOREIGN)) == set()
    assert queue_marks.set_on(node(notes={names.RECORD: RECORD.dump()}), "r1") is None


@pytest.mark.parametrize(("run", "stays"), [("r1", False), ("r2", True)])
def test_a_node_that_leaves_waits_no_longer_in_its_own_run(run: str, stays: bool) -> None:
    _record, change = cordon.take_out(node(FOREIGN, mark(run)), RECORD, taint=True)
    left = [mark(run)] if stays else []
    assert change.body
    assert change.body["spec"]["taints"] == [FOREIGN, *left, cordon.our_taint("r1")]
