# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `pdb_guard` reports of a workload's surge, by how its state machine ended."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import WorkloadOutcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import run_guard
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard_call import (
    GuardCall,
    GuardedNode,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_raise import WorkloadSurge
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.surge.test_run_guard_call import SURGE, WEB


def closed(close: t.Any, changes: Raw) -> tuple[dict[str, t.Any], dict[str, t.Any], list[str]]:
    """The line of the workload, the entry of n1, and the findings, each with its remedy."""
    with World() as world:
        work = GuardCall(world.process("me").ctx(), {"n1": GuardedNode("n1")}, {})
        close(work, WorkloadSurge(WEB, "n1", **changes), SURGE)
        (line,) = work.workloads
        return line, work.guarded_nodes["n1"].to_dict(), [f"{one.code} {one.remedy}".strip() for one in work.findings]


LATE = {"outcome": WorkloadOutcome.TIMED_OUT, "message": "It was late.", "remedy": "Look."}


@pytest.mark.parametrize(
    ("changes", "outcome", "message", "node", "findings"),
    [
        pytest.param(
            {"state": "ready", "outcome": WorkloadOutcome.RAISED, "message": "serving"},
            *("raised", "serving", "", []),
            id="it serves",
        ),
        pytest.param(
            {"state": "undone", **LATE}, "timed_out", "It was late.", "timed_out", ["timed_out Look."], id="late"
        ),
        pytest.param(
            {"state": "undo", "waiting": "a pod", **LATE},
            "not_given_back",
            "It was late. Its surge could not be undone in time: a pod",
            *("not_given_back", ["not_given_back Look."]),
            id="late, and not undone",
        ),
        pytest.param(
            {"state": "undone", "outcome": WorkloadOutcome.ENDED, "message": "gone"}, "ended", "gone", "", [], id="gone"
        ),
    ],
)
def test_a_surge_that_was_to_be_raised(
    changes: Raw, outcome: str, message: str, node: str, findings: list[str]
) -> None:
    line, entry, found = closed(run_guard._close_present, changes)
    assert (line["outcome"], line["message"], entry["outcome"], found) == (outcome, message, node, findings)
    assert entry["failed"] is bool(findings)


BACK = {"outcome": WorkloadOutcome.GIVEN_BACK, "message": "restored"}
RECOVER = "Once that is over, run recover -e recover_state=undone."


@pytest.mark.parametrize(
    ("changes", "outcome", "message", "findings"),
    [
        pytest.param({"state": "undone", **BACK}, "given_back", "restored", [], id="undone"),
        pytest.param({"state": "undone", "kept": ("a", "b"), **BACK}, "kept", "a; b", [], id="but for what is others'"),
        pytest.param({"state": "undo", "waiting": "a pod"}, "not_given_back", "a pod", [RECOVER], id="not in time"),
        pytest.param(
            {"state": "undo", "waiting": "a pod", "kept": ("a",)},
            "not_given_back",
            "a pod",
            [RECOVER],
            id="nor all of it",
        ),
        pytest.param({"state": "undone", **LATE}, "not_given_back", "It was late.", ["Look."], id="it failed"),
    ],
)
def test_a_surge_that_was_to_be_undone(changes: Raw, outcome: str, message: str, findings: list[str]) -> None:
    line, entry, found = closed(run_guard._close_absent, changes)
    assert (line["outcome"], line["message"]) == (outcome, message)
    assert found == [f"not_given_back {remedy}" for remedy in findings]
    assert entry["outcome"] == ("not_given_back" if findings else "")
    assert not findings or f"still there: {message}" in entry["message"]
